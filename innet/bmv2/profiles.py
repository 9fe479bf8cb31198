"""Commands of action profiles and indirect tables for a running simple_switch."""

from __future__ import annotations

from typing import Any

from innet.bmv2.runtime import HANDLERS, Handler, Runtime, command
from innet.bmv2.tables import action_of, keys_of, target
from innet.core.errors import ControlError
from innet.switch import ir
from innet.switch.control.command_table import (
    OF_PROFILES_BY_TABLE,
    Arguments,
    after_arrow,
    indirect_entry,
    integer,
)
from innet.switch.state.tables import is_ordered


def _profile(switch: Runtime, word: str) -> tuple[str, list[int]]:
    """An action profile's name, and the actions that its members may have."""
    position = switch.profiles.find(word)
    actions = {
        action
        for table in switch.program.tables
        if table.action_profile == position
        for action in table.actions
    }
    return switch.program.action_profiles[position].name, sorted(actions)


def _member(switch: Runtime, words: Arguments, parameters: Arguments) -> tuple[str, Any]:
    """The profile, and a member's action with its parameters."""
    name, actions = _profile(switch, words[0])
    of = f"action profile {name}"
    return name, action_of(switch, actions, words[1], after_arrow(parameters), of=of)


@command("act_prof_create_member")
def _create_member(switch: Runtime, words: Arguments) -> str:
    name, chosen = _member(switch, words, words[2:])
    handle = switch.standard("bm_mt_act_prof_add_member", name, *chosen)
    return f"Member has been created with handle {handle}"


@command("act_prof_modify_member")
def _modify_member(switch: Runtime, words: Arguments) -> str:
    name, chosen = _member(switch, words, words[3:])
    member = integer(words[2], "the member")
    switch.standard("bm_mt_act_prof_modify_member", name, member, *chosen)
    return ""


@command("act_prof_delete_member")
def _delete_member(switch: Runtime, words: Arguments) -> str:
    name, _ = _profile(switch, words[0])
    switch.standard("bm_mt_act_prof_delete_member", name, integer(words[1], "the member"))
    return ""


@command("act_prof_create_group")
def _create_group(switch: Runtime, words: Arguments) -> str:
    handle = switch.standard("bm_mt_act_prof_create_group", _profile(switch, words[0])[0])
    return f"Group has been created with handle {handle}"


@command("act_prof_delete_group")
def _delete_group(switch: Runtime, words: Arguments) -> str:
    name, _ = _profile(switch, words[0])
    switch.standard("bm_mt_act_prof_delete_group", name, integer(words[1], "the group"))
    return ""


@command("act_prof_add_member_to_group")
def _add_to_group(switch: Runtime, words: Arguments) -> str:
    member, group = integer(words[1], "the member"), integer(words[2], "the group")
    name, _ = _profile(switch, words[0])
    switch.standard("bm_mt_act_prof_add_member_to_group", name, member, group)
    return ""


@command("act_prof_remove_member_from_group")
def _remove_from_group(switch: Runtime, words: Arguments) -> str:
    member, group = integer(words[1], "the member"), integer(words[2], "the group")
    name, _ = _profile(switch, words[0])
    switch.standard("bm_mt_act_prof_remove_member_from_group", name, member, group)
    return ""


# ── What there is ──


def _member_line(found: dict[str, Any]) -> str:
    return f"member {found['handle']}: {target(found)}".rstrip()


def _group_line(found: dict[str, Any]) -> str:
    members = ", ".join(map(str, found["members"]))
    return f"group {found['handle']}: members [{members}]"


@command("act_prof_dump")
def _dump(switch: Runtime, words: Arguments) -> str:
    name, _ = _profile(switch, words[0])
    lines = [_member_line(each) for each in switch.standard("bm_mt_act_prof_get_members", name)]
    if switch.program.action_profiles[switch.profiles.find(name)].selector is not None:
        lines += [_group_line(each) for each in switch.standard("bm_mt_act_prof_get_groups", name)]
    return "\n".join(lines)


@command("act_prof_dump_member")
def _dump_member(switch: Runtime, words: Arguments) -> str:
    name, _ = _profile(switch, words[0])
    member = integer(words[1], "the member")
    return _member_line(switch.standard("bm_mt_act_prof_get_member", name, member))


@command("act_prof_dump_group")
def _dump_group(switch: Runtime, words: Arguments) -> str:
    name, _ = _profile(switch, words[0])
    group = integer(words[1], "the group")
    return _group_line(switch.standard("bm_mt_act_prof_get_group", name, group))


# ── Tables ──


def _indirect(switch: Runtime, name: str) -> ir.Table:
    table = switch.table(name)
    if table.action_profile is None:
        raise ControlError(f"table {table.name} has no action profile; use table_add and the like")
    return table


def _entry(switch: Runtime, words: Arguments) -> tuple[str, list[Any], int, dict[str, int]]:
    """Table, key, handle and priority of TABLE KEY ... => HANDLE [PRIORITY]."""
    table = _indirect(switch, words[0])
    key, handle, priority = indirect_entry(words[1:], ordered=is_ordered(table))
    return table.name, keys_of(table, key), handle, {"priority": priority or 0}


@command("table_indirect_add")
def _table_indirect_add(switch: Runtime, words: Arguments) -> str:
    handle = switch.standard("bm_mt_indirect_add_entry", *_entry(switch, words))
    return f"Entry has been added with handle {handle}"


@command("table_indirect_add_with_group")
def _table_indirect_add_with_group(switch: Runtime, words: Arguments) -> str:
    handle = switch.standard("bm_mt_indirect_ws_add_entry", *_entry(switch, words))
    return f"Entry has been added with handle {handle}"


@command("table_indirect_delete")
def _table_indirect_delete(switch: Runtime, words: Arguments) -> str:
    handle = integer(words[1], "the handle")
    switch.standard("bm_mt_indirect_delete_entry", _indirect(switch, words[0]).name, handle)
    return ""


@command("table_indirect_set_default")
def _table_indirect_set_default(switch: Runtime, words: Arguments) -> str:
    member = integer(words[1], "the member")
    switch.standard("bm_mt_indirect_set_default_member", _indirect(switch, words[0]).name, member)
    return ""


@command("table_indirect_set_default_with_group")
def _table_indirect_set_default_with_group(switch: Runtime, words: Arguments) -> str:
    group = integer(words[1], "the group")
    switch.standard("bm_mt_indirect_ws_set_default_group", _indirect(switch, words[0]).name, group)
    return ""


@command("table_indirect_reset_default")
def _table_indirect_reset_default(switch: Runtime, words: Arguments) -> str:
    switch.standard("bm_mt_indirect_reset_default_entry", _indirect(switch, words[0]).name)
    return ""


def _of_table(handler: Handler) -> Handler:
    def run(switch: Runtime, words: Arguments) -> str:
        profile = _indirect(switch, words[0]).action_profile
        assert profile is not None
        return handler(switch, [switch.program.action_profiles[profile].name, *words[1:]])

    return run


HANDLERS.update({old: _of_table(HANDLERS[new]) for old, new in OF_PROFILES_BY_TABLE.items()})
