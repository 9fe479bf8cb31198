"""Which engine innet simple-switch runs a program with, and whether it compiles meanwhile."""

from __future__ import annotations

import json

import pytest
from support import switch_logs

from innet.simple_switch.engines import choose_engine, compile_program
from innet.switch import is_compiled, load_program


def choose(wanted, uncompilable=(), is_compiled=False, has_loop=True):
    choice = choose_engine(
        wanted,
        uncompilable=uncompilable,
        is_compiled=is_compiled,
        has_loop=has_loop,
    )
    return choice.engine, choice.compiles, [level for level, _ in choice.told]


@pytest.mark.parametrize(
    ("wanted", "known", "found"),
    [
        ("auto", {}, ("interpret", True, ["info"])),
        ("auto", {"is_compiled": True}, ("jit", False, [])),
        ("auto", {"is_compiled": True, "has_loop": False}, ("jit", True, [])),
        ("jit", {"has_loop": False}, ("jit", False, [])),
        ("interpret", {"is_compiled": True}, ("interpret", False, [])),
    ],
)
def test_a_program_that_can_be_compiled(wanted, known, found):
    assert choose(wanted, **known) == found


@pytest.mark.parametrize("wanted", ["auto", "jit"])
def test_what_cannot_be_compiled_is_interpreted_and_said(wanted):
    assert choose(wanted, ["a loop", "a union"]) == ("interpret", False, ["warn", "warn"])
    assert choose(wanted, ["a loop"]) == ("interpret", False, ["warn"])


def test_nothing_is_said_where_the_interpreter_was_asked_for():
    assert choose("interpret", ["a loop"]) == ("interpret", False, [])


def test_a_program_whose_packets_are_logged_is_compiled_for_that(monkeypatch, tmp_path):
    monkeypatch.setattr("os.nice", lambda _: 0)
    document = switch_logs.document_of("forward")
    path = tmp_path / "program.json"
    path.write_text(json.dumps(document))
    compile_program(path, 511, logged=True)
    assert is_compiled(load_program(document).with_drop_port(511), logged=True)
