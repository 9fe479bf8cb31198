"""Random commands for action profiles and the tables that take their actions from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innet.switch import ir

if TYPE_CHECKING:
    from support.fuzz_commands import Controller

MOST = 10
"""Members, and groups, of a profile."""


class ProfileCommands:
    """Makes commands for ``controller``; see there."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.state = controller.switch.state
        self.rng = controller.rng
        self.tables = [
            each for each in controller.program.tables if each.kind is not ir.TableKind.SIMPLE
        ]

    def makers(self):
        """Those that fit the program, often those that matter most."""
        if not self.tables:
            return []
        return [
            *[self.member] * 3,
            *[self.add] * 5,
            *[self.group] * 4,
            self.modify,
            self.delete_member,
            self.delete_entry,
            self.default,
        ]

    def _table(self):
        table = self.controller._pick(self.tables)
        return table, self.state.profiles[table.action_profile]

    def _action(self, table, profile) -> tuple[str, str] | None:
        entry = self.controller.fuzzer._action(table.actions)
        name = self.controller.program.actions[entry.action].name
        if name not in profile.actions:
            return None
        return name, " ".join(map(hex, entry.arguments))

    def _some(self, handles) -> int:
        """One of them; now and then one that is not."""
        if not handles or self.rng.random() < 0.1:
            return self.controller._small(MOST)
        return self.controller._pick(sorted(handles))

    def member(self) -> str | None:
        table, profile = self._table()
        action = self._action(table, profile)
        if action is None or len(profile.members) >= MOST:
            return None
        return f"act_prof_create_member {profile.profile.name} {action[0]} {action[1]}".rstrip()

    def modify(self) -> str | None:
        table, profile = self._table()
        action = self._action(table, profile)
        if action is None:
            return None
        member = self._some(profile.members)
        name = profile.profile.name
        return f"act_prof_modify_member {name} {action[0]} {member} => {action[1]}".rstrip()

    def delete_member(self) -> str | None:
        """Of a member that a group holds: it is refused.

        simple_switch counts users that were refused themselves, and refuses more than it should.
        """
        _, profile = self._table()
        held = sorted({member for group in profile.groups.values() for member in group})
        if not held:
            return None
        return f"act_prof_delete_member {profile.profile.name} {self.controller._pick(held)}"

    def group(self) -> str | None:
        """Make groups, fill them, and empty them."""
        _, profile = self._table()
        if profile.profile.selector is None:
            return None
        name = profile.profile.name
        choice = self.rng.random()
        if choice < 0.25 and len(profile.groups) < MOST:
            return f"act_prof_create_group {name}"
        member, group = self._some(profile.members), self._some(profile.groups)
        if choice < 0.85:
            return f"act_prof_add_member_to_group {name} {member} {group}"
        if len(profile.groups.get(group, ())) == 1:
            return None  # simple_switch loses its way in a table whose group became empty
        return f"act_prof_remove_member_from_group {name} {member} {group}"

    def add(self) -> str:
        table, profile = self._table()
        keys = self.controller.keys(table)
        priority = f" {self.controller._small(5)}" if self.controller.ordered(table) else ""
        if profile.profile.selector is not None and self.rng.random() < 0.6:
            group = self._some(profile.groups)
            return f"table_indirect_add_with_group {table.name} {keys} => {group}{priority}"
        member = self._some(profile.members)
        return f"table_indirect_add {table.name} {keys} => {member}{priority}"

    def delete_entry(self) -> str:
        table, _ = self._table()
        return f"table_indirect_delete {table.name} {self.controller._handle(table)}"

    def default(self) -> str:
        table, profile = self._table()
        choice = self.rng.random()
        if choice < 0.2:
            return f"table_indirect_reset_default {table.name}"
        if choice < 0.6 and profile.profile.selector is not None:
            group = self._some(profile.groups)
            if group in profile.groups and not profile.groups[group]:
                return None  # simple_switch takes it, and loses its way
            return f"table_indirect_set_default_with_group {table.name} {group}"
        return f"table_indirect_set_default {table.name} {self._some(profile.members)}"
