"""The control plane of action profiles and of the tables that take their actions from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from innet.core.errors import ControlError
from innet.switch import ir
from innet.switch.control.entries import TableControl, action_entry, checked, matches_of
from innet.switch.control.names import Names
from innet.switch.control.values import Key, Number
from innet.switch.state.profiles import ProfileState
from innet.switch.state.tables import Reference, TableState


class ProfileControl(TableControl):
    """Members and groups are called by their handles, which creating them returns."""

    @cached_property
    def _profiles(self) -> Names:
        return Names("action profile", (each.profile.name for each in self.state.profiles))

    def profile(self, name: str) -> ProfileState:
        """The action profile called ``name``."""
        return self.state.profiles[self._profiles.find(name)]

    # ── Members and groups ──

    def act_prof_create_member(
        self, profile: str, action: str, parameters: Sequence[Number] = ()
    ) -> int:
        """Add an action with arguments; returns its handle."""
        target = self.profile(profile)
        return target.create_member(self._member(target, action, parameters))

    def act_prof_modify_member(
        self, profile: str, action: str, member: int, parameters: Sequence[Number] = ()
    ) -> None:
        """Change what a member runs, for all entries and groups that have it."""
        target = self.profile(profile)
        target.modify_member(member, self._member(target, action, parameters))

    def act_prof_delete_member(self, profile: str, member: int) -> None:
        """Remove a member; ControlError while a group, an entry or a default has it."""
        self.profile(profile).delete_member(member)

    def act_prof_create_group(self, profile: str) -> int:
        """Add an empty group; returns its handle."""
        return self.profile(profile).create_group()

    def act_prof_delete_group(self, profile: str, group: int) -> None:
        """Remove a group; ControlError while an entry or a default has it."""
        self.profile(profile).delete_group(group)

    def act_prof_add_member_to_group(self, profile: str, member: int, group: int) -> None:
        """Put a member into a group, where the order of handles is that of choice."""
        self.profile(profile).add_to_group(member, group)

    def act_prof_remove_member_from_group(self, profile: str, member: int, group: int) -> None:
        """Take a member out of a group."""
        self.profile(profile).remove_from_group(member, group)

    def _member(
        self, target: ProfileState, action: str, parameters: Sequence[Number]
    ) -> ir.ActionEntry:
        of = f"action profile {target.profile.name}"
        actions = target.actions.values()
        return action_entry(self.state.program, actions, action, parameters, of=of)

    # ── Tables ──

    def table_indirect_add(
        self, table: str, keys: Sequence[Key], member: int, priority: int | None = None
    ) -> int:
        """Add an entry that runs a member; returns its handle (see ``table_add``)."""
        target, profile = self.indirect_table(table)
        profile.require_member(member)
        matches = matches_of(target.table, keys)
        return target.add(matches, Reference(False, member), checked(target.table, priority))

    def table_indirect_add_with_group(
        self, table: str, keys: Sequence[Key], group: int, priority: int | None = None
    ) -> int:
        """Add an entry that runs one member of a group, which must have some by now."""
        target, profile = self.indirect_table(table, with_groups=True)
        if not profile.require_group(group):
            raise ControlError(f"group {group} of {profile.profile.name} is empty")
        matches = matches_of(target.table, keys)
        return target.add(matches, Reference(True, group), checked(target.table, priority))

    def table_indirect_delete(self, table: str, handle: int) -> None:
        """Remove an entry; its member or group stays."""
        self.indirect_table(table)[0].delete(handle)

    def table_indirect_set_default(self, table: str, member: int) -> None:
        """Make a miss run a member."""
        target, profile = self.indirect_table(table)
        profile.require_member(member)
        target.set_default(Reference(False, member))

    def table_indirect_set_default_with_group(self, table: str, group: int) -> None:
        """Make a miss run one member of a group; while it is empty, nothing."""
        target, profile = self.indirect_table(table, with_groups=True)
        profile.require_group(group)
        target.set_default(Reference(True, group))

    def table_indirect_reset_default(self, table: str) -> None:
        """Back to what the program states, which is to run nothing."""
        self.indirect_table(table)[0].reset_default()

    def indirect_table(
        self, name: str, *, with_groups: bool = False
    ) -> tuple[TableState, ProfileState]:
        """The indirect table called ``name`` and its profile."""
        target = self.table(name)
        profile = self.state.profile_of(target.table)
        if profile is None:
            raise ControlError(f"table {target.table.name} has no action profile")
        if with_groups and target.table.kind is not ir.TableKind.INDIRECT_WS:
            raise ControlError(f"table {target.table.name} has no selector, so it takes no groups")
        return target, profile
