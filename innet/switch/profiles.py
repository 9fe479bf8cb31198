"""Action profiles: actions that entries of several tables share, alone or in groups.

A member is an action with arguments, a group a set of members of which a hash chooses one for each
packet: the one at position hash modulo size, in ascending order of handles. Handles are the lowest
that are free. What is in use cannot be deleted: a member by a group, an entry or a default, a group
by an entry or a default. BMv2 ignores the size that the program states, and so does this.

p4c gives each table its own copy of an action, so that the members of a profile that two tables
share name a copy that only one of them has; here each table runs its own. (simple_switch aborts
unless what comes after the table depends on hit and miss alone.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from innet.errors import ControlError
from innet.switch import ir
from innet.switch.groups import Groups
from innet.switch.members import Members
from innet.switch.table_words import row_actions
from innet.switch.tables import Reference, TableState
from innet.switch.whole import whole


@dataclass(slots=True)
class ProfileState:
    """The members and groups of one profile.

    Args:
        profile: what the program says of it.
        tables: those that take their actions from it.
        actions: those that members may have, by name: the copies of the last table.
        own_actions: for each table, by name, its copy of each of ``actions``.

        members: by handle; none at first.

    Attributes:
        groups: none at first.
    """

    profile: ir.ActionProfile
    tables: tuple[TableState, ...]
    actions: Mapping[str, int]
    own_actions: Mapping[str, Mapping[int, int]]
    members: Members
    groups: Groups = field(init=False, default_factory=Groups)

    # ── What the data plane asks ──

    def resolve(self, table: ir.Table, member: int) -> ir.ActionEntry:
        """What ``table`` runs for a member."""
        entry = self.members[member]
        return ir.ActionEntry(self.own_actions[table.name][entry.action], entry.arguments)

    def choose(self, group: int, hashed: int) -> int:
        """The member of a group that is not empty, for a hash of which 32 bits count."""
        members = self.groups[group]
        return members[(hashed & 0xFFFFFFFF) % len(members)]

    # ── What the control plane asks ──

    def create_member(self, entry: ir.ActionEntry) -> int:
        """Add a member whose action and arguments were checked; returns its handle."""
        handle = self.members.lowest_free()
        self.members[handle] = entry
        self._changed()
        return handle

    def modify_member(self, member: int, entry: ir.ActionEntry) -> None:
        """Change what a member runs."""
        self.require_member(member)
        self.members[member] = entry
        self._changed()

    def delete_member(self, member: int) -> None:
        """Remove a member that nothing uses."""
        self.require_member(member)
        users = [f"group {group}" for group in self.groups.with_member(member)]
        self._require_unused("member", member, users + self._users(Reference(False, member)))
        del self.members[member]
        self._changed()

    def create_group(self) -> int:
        """Add an empty group; returns its handle."""
        self._require_selector()
        handle = self.groups.create()
        self._changed()
        return handle

    def delete_group(self, group: int) -> None:
        """Remove a group that nothing uses; its members stay."""
        self._require_selector()
        self.require_group(group)
        self._require_unused("group", group, self._users(Reference(True, group)))
        self.groups.delete(group)
        self._changed()

    def add_to_group(self, member: int, group: int) -> None:
        """Put a member into a group."""
        self._require_selector()
        self.require_member(member)
        if member in self.require_group(group):
            raise ControlError(f"member {member} is in group {group} of {self._name} already")
        self.groups.add(group, member)
        self._changed()

    def remove_from_group(self, member: int, group: int) -> None:
        """Take a member out of a group, which may be in use and become empty."""
        self._require_selector()
        self.require_member(member)
        if member not in self.require_group(group):
            raise ControlError(f"member {member} is not in group {group} of {self._name}")
        self.groups.remove(group, member)
        self._changed()

    def require_member(self, member: int) -> None:
        """ControlError when there is no such member."""
        if whole(member, "the member") not in self.members:
            raise ControlError(f"{self._name} has no member {member}: {_listed(self.members)}")

    def require_group(self, group: int) -> list[int]:
        """The members of a group; ControlError when there is no such group."""
        if whole(group, "the group") not in self.groups:
            raise ControlError(f"{self._name} has no group {group}: {_listed(self.groups)}")
        return self.groups[group]

    # ── Inside ──

    @property
    def _name(self) -> str:
        return f"action profile {self.profile.name}"

    def _changed(self) -> None:
        # Also when nothing else is to be seen of it: the arrays may be new ones.
        for table in self.tables:
            table.touch()

    def _require_selector(self) -> None:
        if self.profile.selector is None:
            raise ControlError(f"{self._name} has no selector, so it has no groups")

    def _users(self, reference: Reference) -> list[str]:
        """Who refers to a member or group, for people."""
        users = []
        for table in self.tables:
            users += [
                f"entry {entry.handle} of table {table.table.name}"
                for entry in table
                if entry.action == reference
            ]
            if table.default == reference:
                users.append(f"the default of table {table.table.name}")
        return users

    def _require_unused(self, kind: str, handle: int, users: list[str]) -> None:
        if users:
            more = f" and {len(users) - 3} more" if len(users) > 3 else ""
            used = ", ".join(users[:3]) + more
            raise ControlError(f"{kind} {handle} of {self._name} is used by {used}")


def _listed(known: Mapping[int, object]) -> str:
    more = f", ... ({len(known)} in all)" if len(known) > 10 else ""
    return "there is " + (", ".join(map(str, sorted(known)[:10])) or "none") + more


def profile_states(program: ir.Program, tables: tuple[TableState, ...]) -> tuple[ProfileState, ...]:
    """The empty profiles of a program."""
    return tuple(
        _profile_state(program, profile, tuple(t for t in tables if t.table.action_profile == i))
        for i, profile in enumerate(program.action_profiles)
    )


def _profile_state(
    program: ir.Program, profile: ir.ActionProfile, tables: tuple[TableState, ...]
) -> ProfileState:
    named = [
        {program.actions[action].name: action for action in reversed(table.table.actions)}
        for table in tables
    ]
    # A member must mean something to every table that may come to it.
    actions = {
        name: action
        for name, action in (named[-1] if named else {}).items()
        if all(name in each for each in named)
    }
    own = {
        table.table.name: {action: each[name] for name, action in actions.items()}
        for table, each in zip(tables, named, strict=True)
    }
    possible = row_actions(program, tables[0].table) if tables else ()
    defaults = [each.table.default for each in tables]
    members = Members(program.actions, possible, defaults)
    return ProfileState(profile, tables, actions, own, members)
