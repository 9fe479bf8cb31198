"""Action profiles: members and groups that the entries of several tables share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ControlError, Refusal
from innet.core.numbers import require_int
from innet.switch import ir
from innet.switch.state.entries import NO_ACTION, ActionRows, row_actions
from innet.switch.state.hash_index import resized
from innet.switch.state.tables import ProfileRef, TableState

_MORE_ROWS = 4


class Members(MutableMapping[int, ir.ActionEntry]):
    """The actions of members by handle, ascending.

    Args:
        actions: the program's.
        possible: the actions that members or ``defaults`` may have.
        defaults: the program's default entry of each table with the profile.

    Attributes:
        rows: a row for each default, then one without an action, then by handle.
        first: the row of handle 0.
    """

    def __init__(
        self,
        actions: Sequence[ir.Action],
        possible: Sequence[int],
        defaults: Sequence[ir.ActionEntry | None],
    ) -> None:
        self.rows = ActionRows(actions, possible)
        self.first = len(defaults) + 1
        self.rows.resize(self.first)
        for row, default in enumerate(defaults):
            self.rows.set(row, default)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._actions != NO_ACTION).tolist())

    def __contains__(self, handle: Any) -> bool:
        return 0 <= handle < len(self._actions) and bool(self._actions[handle] != NO_ACTION)

    def __getitem__(self, handle: int) -> ir.ActionEntry:
        entry = self.rows.get(self.first + handle) if handle in self else None
        if entry is None:
            raise KeyError(handle)
        return entry

    def __setitem__(self, handle: int, entry: ir.ActionEntry) -> None:
        if handle >= len(self._actions):
            self.rows.resize(self.first + handle + handle // 16 + _MORE_ROWS)
        self._count += handle not in self
        self.rows.set(self.first + handle, entry)

    def __delitem__(self, handle: int) -> None:
        if handle not in self:
            raise KeyError(handle)
        self.rows.set(self.first + handle, None)
        self._count -= 1
        if len(self._actions) > 2 * self._count + 2 * _MORE_ROWS:
            last = max(self, default=-1)
            if len(self._actions) > (last + 1) * 9 // 8 + 2 * _MORE_ROWS:
                self.rows.resize(self.first + last + 1)

    def lowest_free(self) -> int:
        """The handle of the next member."""
        free = np.flatnonzero(self._actions == NO_ACTION)
        return int(free[0]) if len(free) else len(self._actions)

    @property
    def _actions(self) -> NDArray[np.uint16]:
        return self.rows.actions[self.first :]


# ----------------------------------------------------------------------------
# The groups of an action profile: one list of all their members, and where each begins in it.

_MORE = 4


class Groups(Mapping[int, list[int]]):
    """The handles of members by the handle of their group, both ascending. Empty at first.

    Attributes:
        starts: uint32: the members of a group are ``listed[starts[group]:starts[group + 1]]``;
            there are none for a handle that no group has.
        listed: uint32; zeros follow.
    """

    def __init__(self) -> None:
        self.starts: NDArray[np.uint32] = np.zeros(1, np.uint32)
        self.listed: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._exist: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._handles = 0  # all are below

    def __len__(self) -> int:
        return int(np.count_nonzero(self._exist))

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._exist).tolist())

    def __contains__(self, group: Any) -> bool:
        return 0 <= group < self._handles and bool(self._exist[group])

    def __getitem__(self, group: int) -> list[int]:
        if group not in self:
            raise KeyError(group)
        members: list[int] = self.listed[self.starts[group] : self.starts[group + 1]].tolist()
        return members

    def create(self) -> int:
        """Add an empty group with the lowest free handle."""
        group = int(np.argmin(self._exist[: self._handles])) if self._handles else 0
        if group in self or not self._handles:
            group = self._handles
            if group == len(self._exist):
                room = group + group // 16 + _MORE
                self._exist, self.starts = (
                    resized(self._exist, room),
                    resized(self.starts, room + 1),
                )
            self._handles += 1
            self.starts[group + 1] = self.starts[group]
        self._exist[group] = True
        return group

    def delete(self, group: int) -> None:
        """Remove a group and free its handle."""
        for member in self[group]:
            self.remove(group, member)
        self._exist[group] = False
        while self._handles and not self._exist[self._handles - 1]:
            self._handles -= 1
        if len(self._exist) > self._handles * 9 // 8 + 2 * _MORE:
            self._exist = resized(self._exist, self._handles)
            self.starts = resized(self.starts, self._handles + 1)

    def add(self, group: int, member: int) -> None:
        """Add a member to a group that it is not in."""
        total = int(self.starts[self._handles])
        if total == len(self.listed):
            self.listed = resized(self.listed, total + total // 16 + _MORE)
        slot = self._place(group, member)
        self.listed[slot + 1 : total + 1] = self.listed[slot:total]
        self.listed[slot] = member
        self.starts[group + 1 : self._handles + 1] += np.uint32(1)

    def remove(self, group: int, member: int) -> None:
        """Remove a member from a group that it is in."""
        total = int(self.starts[self._handles])
        slot = self._place(group, member)
        self.listed[slot : total - 1] = self.listed[slot + 1 : total]
        self.starts[group + 1 : self._handles + 1] -= np.uint32(1)
        if len(self.listed) > total * 9 // 8 + 2 * _MORE:
            self.listed = resized(self.listed, total)

    def with_member(self, member: int) -> list[int]:
        """The groups that a member is in."""
        slots = np.flatnonzero(self.listed[: int(self.starts[self._handles])] == member)
        found = np.searchsorted(self.starts[: self._handles + 1], slots, side="right") - 1
        groups: list[int] = found.tolist()
        return groups

    def _place(self, group: int, member: int) -> int:
        first = int(self.starts[group])
        return first + int(np.searchsorted(self.listed[first : self.starts[group + 1]], member))


# ----------------------------------------------------------------------------
# Action profiles: actions that entries of several tables share, alone or in groups.
#
# A member is an action with arguments, a group a set of members of which a hash chooses one for
# each packet: the one at position hash modulo size, in ascending order of handles. Handles are the
# lowest that are free. What is in use cannot be deleted: a member by a group, an entry or a
# default, a group by an entry or a default. BMv2 ignores the size that the program states, and so
# does this.
#
# p4c gives each table its own copy of an action, so that the members of a profile that two tables
# share name a copy that only one of them has; here each table runs its own. (simple_switch aborts
# unless what follows the table depends on hit and miss alone.)


@dataclass(slots=True)
class ProfileState:
    """The members and groups of one profile.

    Args:
        profile: the program's description.
        tables: the tables that use it.
        actions: the actions that members may have, by name: the copies of the last table.
        table_actions: for each table, by name, its copy of each of ``actions``.

        members: by handle; none at first.

    Attributes:
        groups: none at first.
    """

    profile: ir.ActionProfile
    tables: tuple[TableState, ...]
    actions: Mapping[str, int]
    table_actions: Mapping[str, Mapping[int, int]]
    members: Members
    groups: Groups = field(init=False, default_factory=Groups)

    # ── For the data plane ──

    def resolve(self, table: ir.Table, member: int) -> ir.ActionEntry:
        """The action of ``table`` for a member."""
        entry = self.members[member]
        return ir.ActionEntry(self.table_actions[table.name][entry.action], entry.arguments)

    def choose(self, group: int, hashed: int) -> int:
        """The member of a non-empty group that the lower 32 bits of a hash select."""
        members = self.groups[group]
        return members[(hashed & 0xFFFFFFFF) % len(members)]

    # ── For the control plane ──

    def create_member(self, entry: ir.ActionEntry) -> int:
        """Add a member with a checked action and arguments; returns its handle."""
        handle = self.members.lowest_free()
        self.members[handle] = entry
        self._changed()
        return handle

    def modify_member(self, member: int, entry: ir.ActionEntry) -> None:
        """Change the action of a member."""
        self.require_member(member)
        self.members[member] = entry
        self._changed()

    def delete_member(self, member: int) -> None:
        """Remove a member that nothing uses."""
        self.require_member(member)
        users = [f"group {group}" for group in self.groups.with_member(member)]
        self._require_unused("member", member, users + self._users(ProfileRef(False, member)))
        del self.members[member]
        self._changed()

    def create_group(self) -> int:
        """Add an empty group; returns its handle."""
        handle = self.groups.create()
        self._changed()
        return handle

    def delete_group(self, group: int) -> None:
        """Remove a group that nothing uses; its members stay."""
        self.require_group(group)
        self._require_unused("group", group, self._users(ProfileRef(True, group)))
        self.groups.delete(group)
        self._changed()

    def add_to_group(self, member: int, group: int) -> None:
        """Add a member to a group."""
        self.require_member(member)
        if member in self.require_group(group):
            raise ControlError(
                f"member {member} is in group {group} of {self._name} already",
                Refusal.MEMBER_IN_GROUP,
            )
        self.groups.add(group, member)
        self._changed()

    def remove_from_group(self, member: int, group: int) -> None:
        """Remove a member from a group, which may be in use and become empty."""
        self.require_member(member)
        if member not in self.require_group(group):
            raise ControlError(
                f"member {member} is not in group {group} of {self._name}",
                Refusal.MEMBER_NOT_IN_GROUP,
            )
        self.groups.remove(group, member)
        self._changed()

    def require_member(self, member: int) -> None:
        """Raise ControlError if there is no such member."""
        if require_int(member, "the member", ControlError) not in self.members:
            raise ControlError(
                f"{self._name} has no member {member}: {_listed(self.members)}",
                Refusal.UNKNOWN_MEMBER,
            )

    def require_group(self, group: int) -> list[int]:
        """The members of a group; ControlError if there is no such group."""
        if require_int(group, "the group", ControlError) not in self.groups:
            raise ControlError(
                f"{self._name} has no group {group}: {_listed(self.groups)}",
                Refusal.UNKNOWN_GROUP,
            )
        return self.groups[group]

    # ── Helpers ──

    @property
    def _name(self) -> str:
        return f"action profile {self.profile.name}"

    def _changed(self) -> None:
        # Always, since the arrays may have been replaced.
        for table in self.tables:
            table.touch()

    def _users(self, reference: ProfileRef) -> list[str]:
        """The users of a member or group, for messages."""
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
            reason = Refusal.MEMBER_USED if kind == "member" else Refusal.GROUP_USED
            raise ControlError(f"{kind} {handle} of {self._name} is used by {used}", reason)


def _listed(known: Mapping[int, object]) -> str:
    more = f", ... ({len(known)} in all)" if len(known) > 10 else ""
    return "there is " + (", ".join(map(str, sorted(known)[:10])) or "none") + more


def profile_states(program: ir.Program, tables: tuple[TableState, ...]) -> tuple[ProfileState, ...]:
    """The empty profiles of a program."""
    return tuple(
        _profile_state(program, profile, tuple(t for t in tables if t.table.action_profile == i))
        for i, profile in enumerate(program.action_profiles)
    )


def profile_actions(program: ir.Program, profile: int) -> dict[str, int]:
    """The actions that members of a profile may have, by name: those of all its tables.

    Tables have copies of an action with the same name; these are the last table's.
    """
    named = [_action_names(program, t) for t in program.tables if t.action_profile == profile]
    return {
        name: action
        for name, action in (named[-1] if named else {}).items()
        if all(name in each for each in named)
    }


def _action_names(program: ir.Program, table: ir.Table) -> dict[str, int]:
    return {program.actions[action].name: action for action in reversed(table.actions)}


def _profile_state(
    program: ir.Program, profile: ir.ActionProfile, tables: tuple[TableState, ...]
) -> ProfileState:
    actions = profile_actions(program, program.action_profiles.index(profile))
    used = {}
    for table in tables:
        named = _action_names(program, table.table)
        used[table.table.name] = {action: named[name] for name, action in actions.items()}
    possible = row_actions(program, tables[0].table) if tables else ()
    defaults = [each.table.default for each in tables]
    members = Members(program.actions, possible, defaults)
    return ProfileState(profile, tables, actions, used, members)
