"""What a switch holds, in the words of simple_switch_CLI, which scripts read.

Source: BMv2's ``tools/runtime_CLI.py``, to which the output is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from innet.bmv2.control_plane import ThriftControlPlane
from innet.bmv2.thrift_api import EXACT, LPM, RANGE, TERNARY
from innet.switch import ir

_BAR, _STARS = "=" * 10, "*" * 10


def _table_dump(control: ThriftControlPlane, name: str) -> Iterator[str]:
    table = control.table(name)
    yield from (_BAR, "TABLE ENTRIES")
    for entry in control.call("bm_mt_get_entries", 0, table.name):
        yield _STARS
        yield from _entry(control.program, table, entry)
    if table.action_profile is not None:
        yield from _act_prof_dump(control, control.profile_of_table(table.name))
    yield from (_BAR, "Dumping default entry")
    yield _target(control.call("bm_mt_get_default_entry", 0, table.name))
    yield _BAR


def _table_dump_entry(control: ThriftControlPlane, name: str, handle: str) -> Iterator[str]:
    table = control.table(name)
    found = control.call("bm_mt_get_entry", 0, table.name, int(handle, 0))
    yield from _entry(control.program, table, found)


def _entry(program: ir.Program, table: ir.Table, entry: Mapping[str, Any]) -> Iterator[str]:
    # Of the validity of a header simple_switch_CLI makes a name of its own.
    names = [program.name_of(key.field).replace(".$valid$", "_valid") for key in table.keys]
    width = max(20, *map(len, names)) if names else 0
    yield f"Dumping entry {hex(entry['handle'])}"
    yield "Match key:"
    for name, match in zip(names, entry["matches"], strict=True):
        kind, text = _match(match)
        yield f"* {name:{width}}: {kind:10}{text}"
    if entry["options"].get("priority", -1) >= 0:
        yield f"Priority: {entry['options']['priority']}"
    yield _target(entry["action"])
    if (life := entry.get("life")) is not None:
        hit, timeout = life["time_since_hit_ms"], life["timeout_ms"]
        yield f"Life: {hit}ms since hit, timeout is {timeout}ms"


def _match(match: Mapping[str, Any]) -> tuple[str, str]:
    match match["type"]:
        case kind if kind == EXACT:
            return "EXACT", match["exact"]["key"].hex()
        case kind if kind == LPM:
            return "LPM", f"{match['lpm']['key'].hex()}/{match['lpm']['prefix']}"
        case kind if kind == TERNARY:
            pair = match["ternary"]
            return "TERNARY", f"{pair['key'].hex()} &&& {pair['mask'].hex()}"
        case kind if kind == RANGE:
            return "RANGE", f"{match['range']['low'].hex()} -> {match['range']['high'].hex()}"
    return "VALID", "01" if match["valid"]["key"] else "00"


def _target(target: Mapping[str, Any]) -> str:
    match target["type"]:
        case 1:
            return _action(target)
        case 2:
            return f"Index: member({target['member']})"
        case 3:
            return f"Index: group({target['group']})"
    return "EMPTY"


def _action(found: Mapping[str, Any]) -> str:
    return f"Action entry: {found['name']} - {', '.join(a.hex() for a in found['arguments'])}"


def _act_prof_dump(control: ThriftControlPlane, name: str) -> Iterator[str]:
    profile = control.profile(name)
    yield from (_BAR, "MEMBERS")
    for member in control.call("bm_mt_act_prof_get_members", 0, profile.name):
        yield from (_STARS, f"Dumping member {member['handle']}", _action(member))
    if profile.selector is None:
        return
    yield from (_BAR, "GROUPS")
    for group in control.call("bm_mt_act_prof_get_groups", 0, profile.name):
        members = ", ".join(map(str, group["members"]))
        yield from (_STARS, f"Dumping group {group['handle']}", f"Members: [{members}]")


def _show_ports(control: ThriftControlPlane) -> Iterator[str]:
    yield f"{'port #':^10}{'iface name':^20}{'status':^10}extra info"
    yield "=" * 50
    for port in control.call("bm_dev_mgr_show_ports"):
        status = "UP" if port["up"] else "DOWN"
        extra = "; ".join(f"{key}={value}" for key, value in port["extra"].items())
        yield f"{port['port']:^10}{port['interface']:^20}{status:^10}{extra}"


_DUMPS: dict[str, tuple[int, Callable[..., Iterator[str]]]] = {
    "table_dump": (1, _table_dump),
    "table_dump_entry": (2, _table_dump_entry),
    "act_prof_dump": (1, _act_prof_dump),
    "show_ports": (0, _show_ports),
}


def dump(control: ThriftControlPlane, name: str, words: Sequence[str]) -> str | None:
    """What simple_switch_CLI prints for a command; None for commands that print the same in all
    ways to run, or are not called so.

    Raises:
        ControlError: the command was refused.
    """
    count, function = _DUMPS.get(name, (-1, None))
    if function is None or len(words) != count:
        return None
    if name == "table_dump_entry" and not words[1].isdecimal():
        return None  # the common command says what is wrong
    return "\n".join(function(control, *words))
