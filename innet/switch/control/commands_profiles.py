"""Commands of action profiles and indirect tables, in the dialect of simple_switch_CLI."""

from __future__ import annotations

from innet.switch.control.command_table import (
    COMMANDS,
    OF_PROFILES_BY_TABLE,
    Arguments,
    Handler,
    after_arrow,
    command,
    indirect_entry,
    integer,
)
from innet.switch.control.control_plane import ControlPlane
from innet.switch.control.entries import describe_target
from innet.switch.state.profiles import ProfileState
from innet.switch.state.tables import is_ordered


@command("act_prof_create_member", "PROFILE ACTION [PARAMETER ...]", 2, None)
def _create_member(control: ControlPlane, words: Arguments) -> str:
    handle = control.act_prof_create_member(words[0], words[1], after_arrow(words[2:]))
    return f"Member has been created with handle {handle}"


@command("act_prof_modify_member", "PROFILE ACTION MEMBER [PARAMETER ...]", 3, None)
def _modify_member(control: ControlPlane, words: Arguments) -> str:
    member = integer(words[2], "the member")
    control.act_prof_modify_member(words[0], words[1], member, after_arrow(words[3:]))
    return ""


@command("act_prof_delete_member", "PROFILE MEMBER", 2, 2)
def _delete_member(control: ControlPlane, words: Arguments) -> str:
    control.act_prof_delete_member(words[0], integer(words[1], "the member"))
    return ""


@command("act_prof_create_group", "PROFILE", 1, 1)
def _create_group(control: ControlPlane, words: Arguments) -> str:
    return f"Group has been created with handle {control.act_prof_create_group(words[0])}"


@command("act_prof_delete_group", "PROFILE GROUP", 2, 2)
def _delete_group(control: ControlPlane, words: Arguments) -> str:
    control.act_prof_delete_group(words[0], integer(words[1], "the group"))
    return ""


@command("act_prof_add_member_to_group", "PROFILE MEMBER GROUP", 3, 3)
def _add_to_group(control: ControlPlane, words: Arguments) -> str:
    member, group = integer(words[1], "the member"), integer(words[2], "the group")
    control.act_prof_add_member_to_group(words[0], member, group)
    return ""


@command("act_prof_remove_member_from_group", "PROFILE MEMBER GROUP", 3, 3)
def _remove_from_group(control: ControlPlane, words: Arguments) -> str:
    member, group = integer(words[1], "the member"), integer(words[2], "the group")
    control.act_prof_remove_member_from_group(words[0], member, group)
    return ""


# ── What there is ──


def _member_line(control: ControlPlane, profile: ProfileState, member: int) -> str:
    profile.require_member(member)
    target = describe_target(profile.members[member], control.program)
    return f"member {member}: {target}".rstrip()


def _group_line(profile: ProfileState, group: int) -> str:
    members = ", ".join(map(str, profile.require_group(group)))
    return f"group {group}: members [{members}]"


@command("act_prof_dump", "PROFILE", 1, 1)
def _dump(control: ControlPlane, words: Arguments) -> str:
    profile = control.profile(words[0])
    lines = [_member_line(control, profile, member) for member in sorted(profile.members)]
    lines += [_group_line(profile, group) for group in sorted(profile.groups)]
    return "\n".join(lines)


@command("act_prof_dump_member", "PROFILE MEMBER", 2, 2)
def _dump_member(control: ControlPlane, words: Arguments) -> str:
    return _member_line(control, control.profile(words[0]), integer(words[1], "the member"))


@command("act_prof_dump_group", "PROFILE GROUP", 2, 2)
def _dump_group(control: ControlPlane, words: Arguments) -> str:
    return _group_line(control.profile(words[0]), integer(words[1], "the group"))


# ── Tables ──


def _entry(control: ControlPlane, words: Arguments) -> tuple[str, Arguments, int, int | None]:
    """Table, key, handle and priority of TABLE KEY ... => HANDLE [PRIORITY]."""
    ordered = is_ordered(control.indirect_table(words[0])[0].table)
    return (words[0], *indirect_entry(words[1:], ordered=ordered))


@command("table_indirect_add", "TABLE KEY ... => MEMBER [PRIORITY]", 3, None)
def _table_indirect_add(control: ControlPlane, words: Arguments) -> str:
    handle = control.table_indirect_add(*_entry(control, words))
    return f"Entry has been added with handle {handle}"


@command("table_indirect_add_with_group", "TABLE KEY ... => GROUP [PRIORITY]", 3, None)
def _table_indirect_add_with_group(control: ControlPlane, words: Arguments) -> str:
    handle = control.table_indirect_add_with_group(*_entry(control, words))
    return f"Entry has been added with handle {handle}"


@command("table_indirect_delete", "TABLE HANDLE", 2, 2)
def _table_indirect_delete(control: ControlPlane, words: Arguments) -> str:
    control.table_indirect_delete(words[0], integer(words[1], "the handle"))
    return ""


@command("table_indirect_set_default", "TABLE MEMBER", 2, 2)
def _table_indirect_set_default(control: ControlPlane, words: Arguments) -> str:
    control.table_indirect_set_default(words[0], integer(words[1], "the member"))
    return ""


@command("table_indirect_set_default_with_group", "TABLE GROUP", 2, 2)
def _table_indirect_set_default_with_group(control: ControlPlane, words: Arguments) -> str:
    control.table_indirect_set_default_with_group(words[0], integer(words[1], "the group"))
    return ""


@command("table_indirect_reset_default", "TABLE", 1, 1)
def _table_indirect_reset_default(control: ControlPlane, words: Arguments) -> str:
    control.table_indirect_reset_default(words[0])
    return ""


def _of_table(handler: Handler) -> Handler:
    def run(control: ControlPlane, words: Arguments) -> str:
        _, profile = control.indirect_table(words[0])
        return handler(control, [profile.profile.name, *words[1:]])

    return run


for _old, _new in OF_PROFILES_BY_TABLE.items():
    _known = COMMANDS[_new]
    _usage = _known.usage.replace("PROFILE", "TABLE")
    command(_old, _usage, _known.least, _known.most)(_of_table(_known.handler))
