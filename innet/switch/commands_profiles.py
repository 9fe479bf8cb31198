"""Commands of action profiles and indirect tables, in the dialect of simple_switch_CLI."""

from __future__ import annotations

from innet.errors import ControlError
from innet.switch.command_table import (
    COMMANDS,
    Arguments,
    Handler,
    after_arrow,
    command,
    integer,
)
from innet.switch.control import ControlPlane
from innet.switch.control_entries import describe_target
from innet.switch.profiles import ProfileState
from innet.switch.tables import is_ordered


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
    table, *rest = words
    priority = None
    if is_ordered(control.indirect_table(table)[0].table):
        priority = integer(rest.pop(), "the priority, which comes last")
    if len(rest) < 2 or rest[-2] != "=>":
        raise ControlError("expected => and one handle after the key fields")
    return table, rest[:-2], integer(rest[-1], "the handle"), priority


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


# ── The names that these commands had when each profile belonged to one table ──

_OLD = {
    "table_indirect_create_member": _create_member,
    "table_indirect_modify_member": _modify_member,
    "table_indirect_delete_member": _delete_member,
    "table_indirect_create_group": _create_group,
    "table_indirect_delete_group": _delete_group,
    "table_indirect_add_member_to_group": _add_to_group,
    "table_indirect_remove_member_from_group": _remove_from_group,
    "table_dump_member": _dump_member,
    "table_dump_group": _dump_group,
}


def _of_table(handler: Handler) -> Handler:
    def run(control: ControlPlane, words: Arguments) -> str:
        _, profile = control.indirect_table(words[0])
        return handler(control, [profile.profile.name, *words[1:]])

    return run


for _name, _handler in _OLD.items():
    _known = next(each for each in COMMANDS.values() if each.handler is _handler)
    _usage = _known.usage.replace("PROFILE", "TABLE")
    command(_name, _usage, _known.least, _known.most)(_of_table(_handler))
