"""The built-in switch beside simple_switch: the same packets and commands, everything compared."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from innet.bmv2 import simple_switch as bmv2
from innet.bmv2.session import Session, refused
from innet.core.errors import ControlError
from innet.switch import Switch, ir
from innet.switch.frontend.loader import load_program
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine
from support.bmv2 import checked_simple_switch
from support.fuzz_commands import Controller, outcome
from support.state_fuzzer import StateFuzzer

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("fuzz_*.json"))
PORTS = 8
"""How many ports packets arrive at; simple_switch drops what is sent to others."""

Packet = tuple[int, bytes]
ByPort = dict[int, list[bytes]]


def document(name: str) -> dict[str, Any]:
    return json.loads((PROGRAMS / f"{name}.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Round:
    """Commands with what the interpreter printed for them (None: refused), then packets."""

    commands: list[tuple[str, str | None]]
    packets: list[Packet]


@dataclass(frozen=True)
class Case:
    """A program with what happens to it, made by ``seed`` alone."""

    name: str
    seed: int
    rounds: list[Round]

    @property
    def packets(self) -> list[Packet]:
        return [packet for each in self.rounds for packet in each.packets]


def make_case(name: str, seed: int, packets: int, rounds: int = 4) -> Case:
    """``packets`` packets in as many ``rounds``, with commands before each."""
    program = load_program(document(name))
    rng = np.random.default_rng([seed, *name.encode()])
    fuzzer = StateFuzzer(program, rng)
    model = Switch(program, "interpret")
    controller = Controller(model, fuzzer, rng, PORTS)
    made = []
    for i in range(rounds):
        commands = controller.run(60 if i == 0 else 20)
        some = _packets(fuzzer, rng, model, packets // rounds)
        made.append(Round(commands, some))
    return Case(name, seed, made)


def _packets(
    fuzzer: StateFuzzer, rng: np.random.Generator, model: Switch, count: int
) -> list[Packet]:
    fuzzer.members = [sorted(each) for each in model.state.value_sets]
    made = [fuzzer.mutate(fuzzer.packet()) for _ in range(count - 2)]
    made += [b"", fuzzer.packet().ljust(10_000, b"\x5a")]
    rng.shuffle(made)
    return [(int(rng.integers(0, PORTS)), data) for data in made]


@dataclass
class State:
    """What a switch holds at the end."""

    registers: dict[str, list[int]] = field(default_factory=dict)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def one_by_one(program: ir.Program) -> bool:
    """Whether packets must not overlap in simple_switch, whose threads would race."""
    racing = ir.Clone | ir.Resubmit | ir.Recirculate
    return any(isinstance(each, racing) for a in program.actions for each in a.primitives)


# ── simple_switch ──


@dataclass(frozen=True)
class Trace:
    """What simple_switch did.

    ``answers``: per round, what left by port after each burst of packets; a burst is one packet
    where packets must not overlap, else the round's. ``refusals``: per round and command.
    """

    handles: list[list[str | None]]
    answers: list[list[ByPort]]
    state: State


def simple_switch(case: Case, *, thrift: bool = False) -> Trace:
    """Raises ProgramError when simple_switch ends, as it does by an assertion of its own."""
    text = document(case.name)
    program = load_program(text)
    single = one_by_one(program)
    handles, answers = [], []
    model = Switch(program, "interpret")
    with bmv2.open_session(
        text, case.packets, range(PORTS), path=checked_simple_switch(), thrift=thrift
    ) as session:
        for each in case.rounds:
            handles.append(_attempt(session, [command for command, _ in each.commands]))
            for command, _ in each.commands:
                outcome(model, command)
            bursts = [1] * len(each.packets) if single else [len(each.packets)]
            answers.append([session.play(burst) for burst in bursts])
        state = _read_state(session, program, model)
    return Trace(handles, answers, state)


def _attempt(session: Session, commands: Sequence[str]) -> list[str | None]:
    """The handle that each command answers with, "" without one, None when it is refused."""
    return [None if refused(each) else _handle(each) for each in session.attempt(commands)]


def _handle(printed: str) -> str:
    found = re.search(r"handle (\d+)", printed)
    return found[1] if found else ""


def _read_state(session: Session, program: ir.Program, model: Switch) -> State:
    """Registers and counters."""
    state = State()
    for register in program.registers:
        cells = bmv2.read_register(session, register.name)
        state.registers[register.name] = [int(cell) for cell in cells]
    for counter in program.counters:
        indices = _indices(counter, program, model)
        state.counters[counter.name] = _read_counters(session, counter.name, indices)
    return state


def _read_counters(session: Session, name: str, indices: Sequence[int]) -> list[tuple[int, int]]:
    """(packets, bytes) of cells of a counter array; of a direct one, ``indices`` are handles."""
    answers = session.commands([f"counter_read {name} {index}" for index in indices])
    cells = []
    for answer in answers:
        match = re.search(r"\((\d+) bytes, (\d+) packets\)", answer)
        if match is None:
            raise ControlError(f"simple_switch did not answer counter_read {name}: {answer}")
        cells.append((int(match[2]), int(match[1])))
    return cells


def _indices(counter: ir.CounterArray, program: ir.Program, model: Switch) -> list[int]:
    if counter.table is None:
        return list(range(counter.size))
    table = program.tables[counter.table].name
    return [entry.handle for entry in model.table_entries(table)]


# ── The built-in switch ──


def engines(name: str) -> list[str]:
    """The engines that have all that the program uses."""
    program = load_program(document(name))
    kinds = {"interpret": InterpretEngine, "jit": JitEngine}
    return [each for each, kind in kinds.items() if not kind.unsupported(program)]


def compare(case: Case, trace: Trace, engine: str) -> int:
    """Assert that the engine does what simple_switch did; how many packets left."""
    program = load_program(document(case.name))
    switch = Switch(program, engine)
    total = 0
    for number, each in enumerate(case.rounds):
        where = f"{case.name} seed {case.seed} {engine} round {number}"
        for (command, _), expected in zip(each.commands, trace.handles[number], strict=True):
            printed = outcome(switch, command)
            got = None if printed is None else _handle(printed)
            assert got == expected, f"{where}: {command}: {got!r}, simple_switch: {expected!r}"
        total += _compare_packets(switch, each.packets, trace.answers[number], where)
    for name, cells in trace.state.registers.items():
        values = [switch.control.register_read(name, index) for index in range(len(cells))]
        assert [min(value, bmv2.MAX_READ) for value in values] == cells, (
            case.name,
            engine,
            name,
        )
    for counter in program.counters:
        indices = _indices(counter, program, switch)
        got = [switch.control.counter_read(counter.name, index) for index in indices]
        assert got == trace.state.counters[counter.name], (case.name, engine, counter.name)
    return total


def _compare_packets(
    switch: Switch, packets: list[Packet], answers: list[ByPort], where: str
) -> int:
    if len(answers) == 1:
        expected, got = answers[0], by_port(switch.process(packets))
        for port in sorted({*expected, *got}):
            first, second = expected.get(port, []), got.get(port, [])
            if first != second:
                raise AssertionError(_described(where, port, first, second))
        return sum(map(len, expected.values()))
    for position, (packet, expected) in enumerate(zip(packets, answers, strict=True)):
        got = by_port(switch.process([packet]))
        # Copies of one packet pass different threads of simple_switch.
        first = {port: sorted(sent) for port, sent in expected.items()}
        second = {port: sorted(sent) for port, sent in got.items()}
        assert second == first, f"{where} packet {position} {packet[0]} {packet[1].hex()}"
    return sum(len(sent) for answer in answers for sent in answer.values())


def by_port(sent: Iterable[Packet]) -> ByPort:
    """What leaves at ports that simple_switch has."""
    ports: ByPort = defaultdict(list)
    for port, data in sent:
        if port < PORTS:
            ports[port].append(data)
    return dict(ports)


def _described(where: str, port: int, expected: list[bytes], got: list[bytes]) -> str:
    for position, (first, second) in enumerate(zip(expected, got, strict=False)):
        if first != second:
            return (
                f"{where} port {port}: packet {position} of those that leave there is\n"
                f"{second[:80].hex()} of {len(second)} bytes, from simple_switch\n"
                f"{first[:80].hex()} of {len(first)}"
            )
    return f"{where} port {port}: {len(got)} packets leave, from simple_switch {len(expected)}"
