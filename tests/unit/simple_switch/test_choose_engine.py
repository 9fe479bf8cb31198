"""Which engine innet simple-switch runs a program with, and whether it compiles meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import switch_logs

from innet.simple_switch.engines import choose_engine, choose_threads, compile_program
from innet.switch import is_compiled, load_program

EXAMPLES = Path(__file__).parents[3] / "p4" / "examples"


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


@pytest.mark.parametrize(
    ("example", "wanted", "ports", "threads", "said"),
    [
        ("forward", 3, 4, 3, "packets share no state, and each thread has ports of its own"),
        ("forward", 8, 2, 2, "packets share no state"),
        ("forward", 1, 4, 1, "one was asked for"),
        ("forward", 4, 1, 1, "one was asked for, or there is one port"),
        ("aggregation", 2, 4, 1, "packets of several ports share its registers"),
        ("balance", 2, 4, 1, "the index of register Balance.loads is no field of the packet"),
        ("cache", 2, 4, 1, "digests such as hot_key_t leave in the order of packets"),
    ],
)
def test_threads_are_chosen_by_what_packets_share(example, wanted, ports, threads, said):
    program = load_program(EXAMPLES / f"{example}.json")
    found, reason = choose_threads(program, wanted, ports)
    assert found == threads
    assert reason.startswith(said)
