"""Table entries as p4lang's tutorials write them (runtime_json), as commands of simple_switch_CLI.

Source: p4lang/tutorials, utils/p4runtime_lib/simple_controller.py describes the format.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from innet.errors import ConfigError, UnknownNameError

_LARGEST_PRIORITY = 1 << 30


def commands(path: Path, program: Mapping[str, Any]) -> list[str]:
    """The commands that make what the file describes.

    Args:
        path: a runtime_json file.
        program: BMv2 JSON of what the switch runs; it says in which order keys and parameters go.

    Raises:
        ConfigError: the file cannot be read, or an entry cannot be used.
        UnknownNameError: a table, action, key or parameter that the program does not have.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        entries = document.get("table_entries", [])
        groups = document.get("multicast_group_entries", [])
        sessions = document.get("clone_session_entries", [])
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"cannot read {path}: {error}.") from None
    names = _Names(program)
    try:
        made = [names.table_command(entry) for entry in entries]
        made += _group_commands(groups)
        made += _session_commands(sessions)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnknownNameError):
            raise
        raise ConfigError(
            f"{path}: an entry cannot be used: {type(error).__name__} {error}."
        ) from None
    return made


class _Names:
    """Tables and actions of a program, by name."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        self.tables = {
            table["name"]: table for pipe in program["pipelines"] for table in pipe["tables"]
        }
        self.actions = {action["name"]: action for action in program["actions"]}

    def table_command(self, entry: Mapping[str, Any]) -> str:
        table = _known("table", str(entry["table"]), self.tables)
        name = str(entry["action_name"])
        action = _known("action", name, self.actions)
        given = dict(entry.get("action_params") or {})
        parameters = [
            _text(_take("parameter", each["name"], given, name)) for each in action["runtime_data"]
        ]
        _nothing_left("parameter", given, [each["name"] for each in action["runtime_data"]])
        if entry.get("default_action"):
            return " ".join(["table_set_default", table["name"], name, *parameters])
        match = dict(entry.get("match") or {})
        keys, ranked = [], False
        for key in table["key"]:
            kind = key["match_type"]
            ranked = ranked or kind in ("ternary", "range")
            value = match.pop(key["name"], None)
            keys.append(_key(kind, value, table["name"], key["name"]))
        _nothing_left("key", match, [key["name"] for key in table["key"]])
        words = ["table_add", table["name"], name, *keys, "=>", *parameters]
        if ranked:  # P4Runtime's largest priority wins, simple_switch_CLI's smallest
            words.append(str(_LARGEST_PRIORITY - int(entry.get("priority", 1))))
        return " ".join(words)


def _key(kind: str, value: Any, table: str, name: str) -> str:
    if kind == "exact" and value is not None:
        return _text(value)
    if kind == "lpm":
        prefix, length = value or (0, 0)
        return f"{_text(prefix)}/{int(length)}"
    if kind == "ternary":
        number, mask = value or (0, 0)
        return f"{_text(number)}&&&{_text(mask)}"
    if kind == "range" and value is not None:
        low, high = value
        return f"{_text(low)}->{_text(high)}"
    raise ValueError(f"table {table} needs a value for {name} ({kind})")


def _text(value: Any) -> str:
    """A number, an IPv4 or a MAC address, as a number."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"{value!r} is no number and no address")
    if isinstance(value, int):
        return str(value)
    if re.fullmatch(r"[0-9A-Fa-f]{1,2}(:[0-9A-Fa-f]{1,2}){5}", value):
        return "0x" + "".join(part.zfill(2) for part in value.split(":"))
    if re.fullmatch(r"\d+(\.\d+){3}", value):
        return str(int(ipaddress.IPv4Address(value)))
    return str(int(value, 0))


def _group_commands(groups: list[Mapping[str, Any]]) -> Iterator[str]:
    handle = 0
    for group in groups:
        number = int(group["multicast_group_id"])
        yield f"mc_mgrp_create {number}"
        for replica in group["replicas"]:
            yield f"mc_node_create {int(replica['instance'])} {int(replica['egress_port'])}"
            yield f"mc_node_associate {number} {handle}"
            handle += 1


def _session_commands(sessions: list[Mapping[str, Any]]) -> Iterator[str]:
    for session in sessions:
        for replica in session["replicas"]:
            yield f"mirroring_add {int(session['clone_session_id'])} {int(replica['egress_port'])}"


def _known(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise UnknownNameError(kind, name, known)
    return known[name]


def _take(kind: str, name: str, given: dict[str, Any], of: str) -> Any:
    if name not in given:
        raise ValueError(f"{of} needs the {kind} {name}")
    return given.pop(name)


def _nothing_left(kind: str, given: Mapping[str, Any], known: list[str]) -> None:
    for name in given:
        raise UnknownNameError(kind, name, known)
