"""Table entries of p4lang's tutorials as commands, tried on the built-in switch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from innet.core.errors import ConfigError, UnknownNameError
from innet.mininet.files import commands
from innet.switch import Switch

ROOT = Path(__file__).parents[3]
FORWARD = json.loads((ROOT / "p4/examples/forward.json").read_text())
TABLES = json.loads((ROOT / "tests/programs/switch_tables.json").read_text())

ENTRY = {
    "table": "ForwardIngress.addresses",
    "match": {"hdr.ethernet.destination": "08:00:00:00:02:22"},
    "action_name": "ForwardIngress.forward",
    "action_params": {"port": 2},
}


def written(tmp_path, **document):
    path = tmp_path / "s1-runtime.json"
    path.write_text(json.dumps({"target": "bmv2", **document}))
    return path


def test_entries_defaults_groups_and_sessions(tmp_path):
    path = written(
        tmp_path,
        table_entries=[
            ENTRY,
            {
                "table": "ForwardIngress.addresses",
                "default_action": True,
                "action_name": "ForwardIngress.forward",
                "action_params": {"port": "0x1"},
            },
        ],
        multicast_group_entries=[
            {
                "multicast_group_id": 3,
                "replicas": [
                    {"egress_port": 1, "instance": 1},
                    {"egress_port": 2, "instance": 1},
                ],
            }
        ],
        clone_session_entries=[{"clone_session_id": 5, "replicas": [{"egress_port": 4}]}],
    )
    lines = commands(path, FORWARD)
    assert lines == [
        "table_add ForwardIngress.addresses ForwardIngress.forward 0x080000000222 => 2",
        "table_set_default ForwardIngress.addresses ForwardIngress.forward 1",
        "mc_mgrp_create 3",
        "mc_node_create 1 1",
        "mc_node_associate 3 0",
        "mc_node_create 1 2",
        "mc_node_associate 3 1",
        "mirroring_add 5 4",
    ]
    switch = Switch.load(FORWARD, engine="interpret")
    switch.commands("\n".join(lines))
    frame = bytes.fromhex("080000000222") + bytes(54)
    assert switch.process([(0, frame), (0, bytes(60))]) == [(2, frame), (1, bytes(60))]


def test_kinds_of_keys(tmp_path):
    program = {
        "pipelines": [
            {
                "tables": [
                    {
                        "name": "I.t",
                        "key": [
                            {"name": "a", "match_type": "lpm"},
                            {"name": "b", "match_type": "ternary"},
                            {"name": "c", "match_type": "range"},
                        ],
                    }
                ]
            }
        ],
        "actions": [{"name": "I.go", "runtime_data": [{"name": "x"}]}],
    }
    entry = {
        "table": "I.t",
        "action_name": "I.go",
        "action_params": {"x": 7},
        "match": {"a": ["10.0.1.0", 24], "b": [5, 255], "c": [1, 9]},
        "priority": 2,
    }
    (line,) = commands(written(tmp_path, table_entries=[entry]), program)
    assert line == f"table_add I.t I.go 167772416/24 5&&&255 1->9 => 7 {(1 << 30) - 2}"
    open_entry = {**entry, "match": {"c": [0, 1]}}
    (line,) = commands(written(tmp_path, table_entries=[open_entry]), program)
    assert "I.go 0/0 0&&&0 0->1" in line


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"table": "none"}, UnknownNameError, "unknown table 'none'"),
        ({"action_name": "none"}, UnknownNameError, "unknown action 'none'"),
        ({"action_params": {"port": 1, "x": 2}}, UnknownNameError, "unknown parameter 'x'"),
        ({"action_params": {}}, ConfigError, "needs the parameter port"),
        ({"match": {}}, ConfigError, "needs a value for hdr.ethernet.destination"),
        ({"match": {"hdr.ethernet.destination": [1.5]}}, ConfigError, "neither a number"),
        ({"match": {"hdr.ethernet.destination": "x"}}, ConfigError, "invalid entry"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, change, error, words):
    path = written(tmp_path, table_entries=[{**ENTRY, **change}])
    with pytest.raises(error, match=words):
        commands(path, FORWARD)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_files_that_are_none(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"x\.json"):
        commands(path, FORWARD)
    with pytest.raises(ConfigError, match=r"none\.json"):
        commands(tmp_path / "none.json", FORWARD)
