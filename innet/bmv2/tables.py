"""Commands of tables for a running simple_switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from innet.bmv2.runtime import Runtime, command
from innet.bmv2.thrift_calls import EXACT, LPM, RANGE, TERNARY, VALID
from innet.core.errors import ControlError
from innet.switch import ir
from innet.switch.control.command_table import Arguments, after_arrow, integer
from innet.switch.control.entries import action_entry, matches_of
from innet.switch.control.values import describe_match
from innet.switch.state.tables import is_ordered


@command("table_add")
def _table_add(switch: Runtime, words: Arguments) -> str:
    name, action, *rest = words
    table = switch.table(name)
    options = {"priority": 0}
    if is_ordered(table):
        options["priority"] = integer(rest.pop(), "the priority, which comes last")
    if "=>" not in rest:
        raise ControlError("expected => between the key fields and the action's parameters")
    split = rest.index("=>")
    keys = keys_of(table, rest[:split])
    chosen = _action(switch, table, action, rest[split + 1 :])
    handle = switch.standard("bm_mt_add_entry", table.name, keys, *chosen, options)
    return f"Entry has been added with handle {handle}"


@command("table_set_default")
def _table_set_default(switch: Runtime, words: Arguments) -> str:
    table = switch.table(words[0])
    chosen = _action(switch, table, words[1], after_arrow(words[2:]))
    switch.standard("bm_mt_set_default_action", table.name, *chosen)
    return ""


@command("table_reset_default")
def _table_reset_default(switch: Runtime, words: Arguments) -> str:
    switch.standard("bm_mt_reset_default_entry", switch.table(words[0]).name)
    return ""


@command("table_modify")
def _table_modify(switch: Runtime, words: Arguments) -> str:
    table = switch.table(words[0])
    chosen = _action(switch, table, words[1], after_arrow(words[3:]))
    switch.standard("bm_mt_modify_entry", table.name, integer(words[2], "the handle"), *chosen)
    return ""


@command("table_delete")
def _table_delete(switch: Runtime, words: Arguments) -> str:
    handle = integer(words[1], "the handle")
    switch.standard("bm_mt_delete_entry", switch.table(words[0]).name, handle)
    return ""


@command("table_clear")
def _table_clear(switch: Runtime, words: Arguments) -> str:
    switch.standard("bm_mt_clear_entries", switch.table(words[0]).name, False)
    return ""


@command("table_num_entries")
def _table_num_entries(switch: Runtime, words: Arguments) -> str:
    return str(switch.standard("bm_mt_get_num_entries", switch.table(words[0]).name))


@command("table_dump")
def _table_dump(switch: Runtime, words: Arguments) -> str:
    table = switch.table(words[0])
    entries = switch.standard("bm_mt_get_entries", table.name)
    lines = [_describe(table, entry) for entry in entries]
    default = switch.standard("bm_mt_get_default_entry", table.name)
    if default["type"]:
        lines.append(f"default: {target(default)}".rstrip())
    return "\n".join(lines)


@command("table_dump_entry")
def _table_dump_entry(switch: Runtime, words: Arguments) -> str:
    table = switch.table(words[0])
    handle = integer(words[1], "the handle")
    return _describe(table, switch.standard("bm_mt_get_entry", table.name, handle))


# ── Entries as they travel ──


def action_of(
    switch: Runtime, actions: Iterable[int], name: str, words: Sequence[str], *, of: str
) -> tuple[str, list[bytes]]:
    """The one of ``actions`` that is called ``name``, and its parameters as they travel.

    ``of`` says whose actions these are, for messages.
    """
    entry = action_entry(switch.program, actions, name, words, of=of)
    found = switch.program.actions[entry.action]
    sizes = [each.width for each in found.parameters]
    return found.name, [_bytes(*each) for each in zip(entry.arguments, sizes, strict=True)]


def _action(
    switch: Runtime, table: ir.Table, name: str, words: Sequence[str]
) -> tuple[str, list[bytes]]:
    return action_of(switch, table.actions, name, words, of=f"table {table.name}")


def keys_of(table: ir.Table, words: Sequence[str]) -> list[dict[str, Any]]:
    """The fields of a key as they travel."""
    matches = matches_of(table, words)
    return [_parameter(*each) for each in zip(matches, table.keys, strict=True)]


def _describe(table: ir.Table, entry: Mapping[str, Any]) -> str:
    """An entry on one line, as the built-in switch has it."""
    keys = " ".join(
        describe_match(_match(found, key))
        for found, key in zip(entry["matches"], table.keys, strict=True)
    )
    priority = max(0, entry.get("options", {}).get("priority", 0))
    return f"{entry['handle']}: {keys} => {target(entry['action'])} priority {priority}"


def target(action: Mapping[str, Any]) -> str:
    """What an entry runs, in the words of table_add."""
    if "member" in action:
        return f"member {action['member']}"
    if "group" in action:
        return f"group {action['group']}"
    values = " ".join(hex(int.from_bytes(each, "big")) for each in action.get("arguments", ()))
    return f"{action['name']} {values}"


def _bytes(value: int, width: int) -> bytes:
    return value.to_bytes((width + 7) // 8, "big")


def _parameter(match: ir.Match, key: ir.TableKey) -> dict[str, Any]:
    """A match as it travels."""
    width = key.width
    match match:
        case ir.ExactMatch(value) if key.match is ir.MatchKind.VALID:
            return {"type": VALID, "valid": {"key": bool(value)}}
        case ir.ExactMatch(value):
            return {"type": EXACT, "exact": {"key": _bytes(value, width)}}
        case ir.LpmMatch(value, prefix):
            return {"type": LPM, "lpm": {"key": _bytes(value, width), "prefix": prefix}}
        case ir.TernaryMatch(value, mask):
            pair = {"key": _bytes(value, width), "mask": _bytes(mask, width)}
            return {"type": TERNARY, "ternary": pair}
        case ir.RangeMatch(low, high):
            pair = {"low": _bytes(low, width), "high": _bytes(high, width)}
            return {"type": RANGE, "range": pair}


def _match(found: Mapping[str, Any], key: ir.TableKey) -> ir.Match:
    """The other way."""

    def value(name: str) -> int:
        return int.from_bytes(body[name], "big")

    match key.match:
        case ir.MatchKind.VALID:
            return ir.ExactMatch(int(found["valid"]["key"]))
        case ir.MatchKind.EXACT:
            body = found["exact"]
            return ir.ExactMatch(value("key"))
        case ir.MatchKind.LPM:
            body = found["lpm"]
            return ir.LpmMatch(value("key"), body["prefix"])
        case ir.MatchKind.TERNARY:
            body = found["ternary"]
            return ir.TernaryMatch(value("key"), value("mask"))
        case ir.MatchKind.RANGE:
            body = found["range"]
            return ir.RangeMatch(value("low"), value("high"))
