"""Members and groups of action profiles, and one-shot action sets.

A member of a controller is one or several members of the switch: BMv2's groups are sets without
weights, so a member of weight w in a group is w equal members there. Those whose watch port is down
leave their groups until it is up again; a group that becomes empty so does nothing to packets.

Source: P4Runtime 1.5, sections "ActionProfileMember & ActionProfileGroup", "One Shot Action
Selector Programming".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from innet.p4runtime.context import (
    DELETE,
    INSERT,
    MODIFY,
    PipelineContext,
    Undo,
    action_arguments,
    action_message,
)
from innet.p4runtime.messages import copied, p4
from innet.p4runtime.p4info import ActionInfo, ProfileInfo, TableInfo
from innet.p4runtime.status import (
    StatusError,
    already_exists,
    failed_precondition,
    invalid,
    not_found,
    resource_exhausted,
    unimplemented,
)
from innet.switch import ir
from innet.switch.state.tables import ProfileRef

_MOST_WEIGHT = 1024
_MOST_GROUP = 16384
"""Most members that a group may have in the switch, weights counted."""


@dataclass(slots=True)
class _Member:
    """A member.

    Attributes:
        action: its message.
        handles: of its equal members in the switch: one, or as many as its highest weight.
        weights: in the groups that it is in, by their ids.
    """

    action: Any
    name: str
    arguments: tuple[int, ...]
    handles: list[int]
    weights: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Slot:
    """A member's part of a group: its handles there, its watched port."""

    handles: tuple[int, ...]
    port: int | None
    is_in: bool = True


@dataclass(slots=True)
class _ProfileGroup:
    """A group.

    Attributes:
        handle: in the switch.
        message: as it was written.
        slots: of its members.
    """

    handle: int
    message: Any
    slots: list[_Slot]


@dataclass(slots=True)
class _OneShot:
    """The group of an entry, its members, and the action set as it was written."""

    group: _ProfileGroup
    members: list[_Member]
    message: Any


@dataclass(slots=True)
class _Profile:
    """The state of one profile."""

    info: ProfileInfo
    members: dict[int, _Member] = field(default_factory=dict)
    groups: dict[int, _ProfileGroup] = field(default_factory=dict)
    one_shots: dict[int, _OneShot] = field(default_factory=dict)
    """By the group's handle."""
    member_ids: dict[int, int] = field(default_factory=dict)
    group_ids: dict[int, int] = field(default_factory=dict)
    """Ids by handle."""


class ActionProfiles:
    """Writes and reads the members and groups of all profiles."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        self._switch, self._index, self._ports = context
        self._control = context.control
        self._profiles = {number: _Profile(each) for number, each in context.ids.profiles.items()}

    # ── Members ──

    def write_member(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        """An update of an ActionProfileMember."""
        profile = self._profile(entry.action_profile_id)
        number = self._id(entry.member_id, "member")
        member = profile.members.get(number)
        name = profile.info.name
        if kind == INSERT:
            if member is not None:
                raise already_exists(f"action profile {name} has a member {number} already")
            # "Constraints on action selector programming": a profile has members, or action sets.
            action, arguments = self._action(profile, entry)
            if profile.one_shots:
                raise _mixed(name)
            size = profile.info.info.size
            if size and len(profile.members) >= size:
                raise resource_exhausted(f"action profile {name} holds {size} members")
            handle = self._control.act_prof_create_member(name, action.name, arguments)
            profile.members[number] = _Member(
                copied(entry.action), action.name, arguments, [handle]
            )
            profile.member_ids[handle] = number
            return lambda: self.write_member(DELETE, entry, False)
        if member is None:
            raise not_found(f"action profile {name} has no member {number}")
        before = p4.ActionProfileMember(action_profile_id=profile.info.id, member_id=number)
        before.action.CopyFrom(member.action)
        # Its equals change and go together ("Action Profile Member Programming").
        if kind == MODIFY:
            action, arguments = self._action(profile, entry)
            for handle in member.handles:
                self._control.act_prof_modify_member(name, action.name, handle, arguments)
            member.action = copied(entry.action)
            member.name, member.arguments = action.name, arguments
            return lambda: self.write_member(MODIFY, before, False)
        if member.weights:
            raise failed_precondition(
                f"member {number} of {name} is in group {next(iter(member.weights))}"
            )
        for handle in reversed(member.handles):
            self._control.act_prof_delete_member(name, handle)
            profile.member_ids.pop(handle, None)
        del profile.members[number]
        return (lambda: self.write_member(INSERT, before, False)) if want_undo else None

    def read_members(self, wanted: Any) -> Iterator[Any]:
        """ActionProfileMember messages."""
        for profile in self._wanted(wanted.action_profile_id):
            for number, member in profile.members.items():
                if wanted.member_id in (0, number):
                    message = p4.ActionProfileMember(
                        action_profile_id=profile.info.id, member_id=number
                    )
                    message.action.CopyFrom(member.action)
                    yield message

    def _action(self, profile: _Profile, entry: Any) -> tuple[ActionInfo, tuple[int, ...]]:
        if not entry.HasField("action"):
            raise invalid(f"a member of action profile {profile.info.name} needs an action")
        return self._action_of(profile, entry.action)

    def _action_of(self, profile: _Profile, action: Any) -> tuple[ActionInfo, tuple[int, ...]]:
        found = profile.info.actions.get(action.action_id)
        if found is None:
            raise invalid(
                f"action profile {profile.info.name} has no action with id 0x{action.action_id:08x}"
            )
        return found, action_arguments(action, found)

    # ── Groups ──

    def write_group(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        """An update of an ActionProfileGroup."""
        profile = self._profile(entry.action_profile_id)
        number = self._id(entry.group_id, "group")
        name = profile.info.name
        if not profile.info.info.with_selector:
            raise invalid(f"action profile {name} has no selector, so it has no groups")
        group = profile.groups.get(number)
        if kind == INSERT:
            if group is not None:
                raise already_exists(f"action profile {name} has a group {number} already")
            self._check_group(profile, entry)
            if profile.one_shots:
                raise _mixed(name)
            handle = self._control.act_prof_create_group(name)
            group = _ProfileGroup(handle, copied(entry), [])
            self._put(profile, number, group, entry)
            profile.groups[number] = group
            profile.group_ids[handle] = number
            return lambda: self.write_group(DELETE, entry, False)
        if group is None:
            raise not_found(f"action profile {name} has no group {number}")
        # A MODIFY gives the group other members, all at once, but no other size ("Rules on Setting
        # max_size"). Members outlive their groups.
        before = group.message
        if kind == MODIFY:
            self._check_group(profile, entry)
            if entry.max_size != before.max_size:
                raise invalid(f"the max_size of group {number} of {name} stays {before.max_size}")
            self._put(profile, number, group, entry)
            group.message = copied(entry)
            return lambda: self.write_group(MODIFY, before, False)
        self._control.act_prof_delete_group(name, group.handle)
        for each in before.members:
            del profile.members[each.member_id].weights[number]
            self._trim(profile, profile.members[each.member_id])
        del profile.groups[number], profile.group_ids[group.handle]
        return (lambda: self.write_group(INSERT, before, False)) if want_undo else None

    def read_groups(self, wanted: Any) -> Iterator[Any]:
        """ActionProfileGroup messages."""
        for profile in self._wanted(wanted.action_profile_id):
            for number, group in profile.groups.items():
                if wanted.group_id in (0, number):
                    yield group.message

    def _check_group(self, profile: _Profile, entry: Any) -> None:
        # Step 1: its max_size, by P4Info and by what the switch can hold.
        info = profile.info.info
        most = info.max_group_size
        if entry.max_size < 0 or (most and not 0 < entry.max_size <= most):
            raise invalid(
                f"the max_size of a group of {profile.info.name} is 1 to {most}, not "
                f"{entry.max_size}"
                if most
                else "max_size cannot be negative"
            )
        if entry.max_size > _MOST_GROUP:
            raise resource_exhausted(f"a group has at most {_MOST_GROUP} members here")
        # Step 2: its members are there, and once each; their watched ports are ports.
        seen = set()
        for each in entry.members:
            if each.member_id in seen:
                raise invalid(f"member {each.member_id} is in the group twice; it has a weight")
            seen.add(each.member_id)
            if each.member_id not in profile.members:
                raise not_found(f"{profile.info.name} has no member {each.member_id}")
            self._watched(each)
        # Step 3: its size counts members or weights, as the selector's P4Info says.
        weights = self._weights(profile, entry.members)
        by_members = info.WhichOneof("selector_size_semantics") == "sum_of_members"
        size = len(weights) if by_members else sum(weights)
        if entry.max_size and size > entry.max_size:
            raise resource_exhausted(f"the group has a size of {size}, above {entry.max_size}")

    def _weights(self, profile: _Profile, members: Any) -> list[int]:
        info = profile.info.info
        weights = [each.weight for each in members]
        for weight in weights:
            if info.weights_disallowed:
                if weight:
                    raise invalid(f"members of {profile.info.name} have no weights")
            elif weight < 1:
                raise invalid(f"a member's weight is 1 or more, not {weight}")
            most = info.sum_of_members.max_member_weight
            if most and weight > most:
                raise invalid(f"a member's weight is at most {most}, not {weight}")
            if weight > _MOST_WEIGHT:
                raise resource_exhausted(f"a member's weight is at most {_MOST_WEIGHT} here")
        weights = [max(1, weight) for weight in weights]
        if sum(weights) > _MOST_GROUP:
            raise resource_exhausted(f"a group's weights are at most {_MOST_GROUP} in all here")
        return weights

    def _watched(self, each: Any) -> int | None:
        """The port that a member's liveness depends on."""
        kind = each.WhichOneof("watch_kind")
        if kind is None or (kind == "watch_port" and not each.watch_port):
            return None
        if kind == "watch":
            if each.watch == 0:
                return None
            port = int(each.watch)
        else:
            port = self._context.port(each.watch_port, "watch_port")
        if not self._ports.has_port(port):
            raise invalid(f"watch_port {port} is no port of this switch")
        return port

    def _put(self, profile: _Profile, number: int, group: _ProfileGroup, entry: Any) -> None:
        """Give a group the members of a checked message, as many equals as their weights say."""
        # Step 1: each member gets as many equals as its weight in this group needs.
        slots = []
        touched = {each.member_id for each in group.message.members}
        pairs = zip(entry.members, self._weights(profile, entry.members), strict=True)
        for each, weight in pairs:
            touched.add(each.member_id)
            member = profile.members[each.member_id]
            member.weights[number] = weight
            self._multiply(profile, member, weight)
            slots.append(_Slot(tuple(member.handles[:weight]), self._watched(each)))
        # Step 2: put them in before equals are removed, which no group may hold any longer.
        self._fill(profile, group, slots)
        for gone in touched - {each.member_id for each in entry.members}:
            profile.members[gone].weights.pop(number, None)
        for member_id in sorted(touched):
            self._trim(profile, profile.members[member_id])

    def _trim(self, profile: _Profile, member: _Member) -> None:
        """Remove equals of a member that no group's weight asks for any longer."""
        needed = max(member.weights.values(), default=1)
        while len(member.handles) > needed:
            self._control.act_prof_delete_member(profile.info.name, member.handles.pop())

    def _multiply(self, profile: _Profile, member: _Member, weight: int) -> None:
        while len(member.handles) < weight:
            name = profile.info.name
            handle = self._control.act_prof_create_member(name, member.name, member.arguments)
            member.handles.append(handle)

    def _fill(self, profile: _Profile, group: _ProfileGroup, slots: list[_Slot]) -> None:
        """Give a group its members; those whose port is down stay out."""
        for slot in slots:
            slot.is_in = slot.port is None or self._ports.is_port_up(slot.port)
        wanted = {handle for slot in slots if slot.is_in for handle in slot.handles}
        name = profile.info.name
        present = set(self._control.act_prof_group(name, group.handle))
        for handle in sorted(wanted - present):
            self._control.act_prof_add_member_to_group(name, handle, group.handle)
        for handle in sorted(present - wanted):
            self._control.act_prof_remove_member_from_group(name, handle, group.handle)
        group.slots = slots

    def ports_changed(self) -> None:
        """Take members in and out of groups whose watched ports changed."""
        for profile in self._profiles.values():
            groups = [*profile.groups.values(), *(e.group for e in profile.one_shots.values())]
            for group in groups:
                if any(
                    slot.port is not None and slot.is_in != self._ports.is_port_up(slot.port)
                    for slot in group.slots
                ):
                    self._fill(profile, group, group.slots)

    # ── What entries run ──

    def target(self, table: TableInfo, action: Any) -> ProfileRef:
        """The member or group of an entry's TableAction; that of an action set is made.

        Raises:
            StatusError: there is none, or the table does not take it.
        """
        profile = self._profiles[table.profile]
        name = profile.info.name
        kind = action.WhichOneof("type")
        if kind == "action_profile_member_id":
            member = profile.members.get(action.action_profile_member_id)
            if member is None:
                number = action.action_profile_member_id
                raise not_found(f"action profile {name} has no member {number}")
            return ProfileRef(False, member.handles[0])
        if kind == "action_profile_group_id" and profile.info.info.with_selector:
            group = profile.groups.get(action.action_profile_group_id)
            if group is None:
                number = action.action_profile_group_id
                raise not_found(f"action profile {name} has no group {number}")
            return ProfileRef(True, group.handle)
        if kind == "action_profile_action_set" and profile.info.info.with_selector:
            return ProfileRef(True, self._make_one_shot(profile, action.action_profile_action_set))
        groups = ", a group or an action set" if profile.info.info.with_selector else ""
        raise invalid(
            f"entries of table {table.name} take a member{groups}, not {kind or 'nothing'}"
        )

    def _make_one_shot(self, profile: _Profile, given: Any) -> int:
        # Step 1: check all of it ("One Shot Action Selector Programming").
        name, info = profile.info.name, profile.info.info
        if profile.members or profile.groups:
            raise _mixed(name)
        if given.action_selection_mode or given.size_semantics:
            raise unimplemented(
                f"action profile {name}: groups have no selection mode and size semantics of "
                "their own"
            )
        actions = given.action_profile_actions
        by_members = info.WhichOneof("selector_size_semantics") == "sum_of_members"
        weights = self._weights(profile, actions)
        size = len(weights) if by_members else sum(weights)
        if info.max_group_size and size > info.max_group_size:
            raise invalid(
                f"the action set has a size of {size}, above the {info.max_group_size} of {name}"
            )
        resolved = [self._action_of(profile, each.action) for each in actions]
        ports = [self._watched(each) for each in actions]
        held = sum(len(each.members) for each in profile.one_shots.values())
        if info.size and held + len(actions) > info.size:
            raise resource_exhausted(f"action profile {name} holds {info.size} members")
        # Step 2: members that no controller sees, and a group of them that the entry runs.
        members = []
        for each, (found, arguments), weight in zip(actions, resolved, weights, strict=True):
            member = _Member(each.action, found.name, arguments, [])
            self._multiply(profile, member, weight)
            members.append(member)
        group = _ProfileGroup(self._control.act_prof_create_group(name), None, [])
        slots = [
            _Slot(tuple(member.handles), port) for member, port in zip(members, ports, strict=True)
        ]
        self._fill(profile, group, slots)
        profile.one_shots[group.handle] = _OneShot(group, members, copied(given))
        return group.handle

    def release(self, table: TableInfo, target: object) -> None:
        """Remove the group and members of an action set that no entry uses any more."""
        if not isinstance(target, ProfileRef) or not target.group or not table.profile:
            return
        profile = self._profiles[table.profile]
        found = profile.one_shots.pop(target.handle, None)
        if found is None:
            return
        name = profile.info.name
        self._control.act_prof_delete_group(name, found.group.handle)
        for member in found.members:
            for handle in reversed(member.handles):
                self._control.act_prof_delete_member(name, handle)

    def describe(self, table: TableInfo, target: ProfileRef, action: Any) -> None:
        """Fill in a TableAction."""
        profile = self._profiles.get(table.profile)
        if profile is None:
            return
        if not target.group:
            number = profile.member_ids.get(target.handle)
            if number is not None:
                action.action_profile_member_id = number
                return
            members = self._control.act_prof_members(profile.info.name)
            entry = members.get(target.handle)
            if entry is not None:  # made over Thrift: at least its action is known
                self._describe_action(profile, entry, action)
            return
        one_shot = profile.one_shots.get(target.handle)
        if one_shot is not None:
            action.action_profile_action_set.CopyFrom(one_shot.message)
        elif (number := profile.group_ids.get(target.handle)) is not None:
            action.action_profile_group_id = number

    def _describe_action(self, profile: _Profile, entry: ir.ActionEntry, action: Any) -> None:
        name = self._index.program.actions[entry.action].name
        for found in profile.info.actions.values():
            if found.name == name:
                action.action.CopyFrom(action_message(entry, found))

    # ── Helpers ──

    def _profile(self, number: int) -> _Profile:
        self._index.find("action profile", self._index.profiles, number)
        return self._profiles[number]

    def _wanted(self, number: int) -> Iterable[_Profile]:
        return [self._profile(number)] if number else self._profiles.values()

    def _id(self, number: int, what: str) -> int:
        if number == 0:
            raise invalid(f"0 is no id of a {what}")
        return number


def _mixed(name: str) -> StatusError:
    return invalid(
        f"the entries of action profile {name} use either action sets, or members and groups, "
        "and not both"
    )
