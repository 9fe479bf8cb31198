"""Loops in actions: both engines do what the loops say.

Random actions of nested loops, with break, continue, return and exit, are written as p4c writes
them, and run by Python as well (``Oracle``). And the actions of other programs are put into loops.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engines import check_random_traffic
from support.tiers import tiered

from innet.core.errors import EndlessLoopError
from innet.switch import Switch, ir
from innet.switch.frontend.loader import load_program
from innet.switch.ir.simplify import simplify

PROGRAMS = Path(__file__).parents[1] / "programs"
PROGRAM = load_program(PROGRAMS / "fuzz_for.json")
HEADERS = {header.name: i for i, header in enumerate(PROGRAM.headers)}
CELLS = 16
ACTIONS = 8


def field(header: str, name: str) -> ir.FieldRef:
    number = HEADERS[header]
    fields = PROGRAM.type_of(number).fields
    return ir.FieldRef(number, [each.name.split(".")[-1] for each in fields].index(name))


#: What statements compute with: fields that leave with the packet, and metadata.
PACKET = [field("op", name) for name in ("n", "m", "x", "sum")]
LOCALS = [field("scalars", name) for name in ("word",)]
#: The variable of each level of loops.
COUNTERS = [field("scalars", name) for name in ("found", "count", "i_0")]
VARIABLES = [*PACKET, *LOCALS, *COUNTERS]

KIND = ir.DataOperator
OPERATORS: dict[ir.DataOperator, Callable[[int, int], int]] = {
    KIND.ADD: lambda left, right: left + right,
    KIND.SUB: lambda left, right: left - right,
    KIND.XOR: lambda left, right: left ^ right,
    KIND.MUL: lambda left, right: left * right,
}


# ── Statements ───────────────────────────────────────────────────────────────────────────────────


@dataclasses.dataclass(frozen=True)
class Compute:
    """target = (left operator right) & the target's bits"""

    target: ir.FieldRef
    operator: ir.DataOperator
    left: ir.FieldRef
    right: ir.FieldRef | int


@dataclasses.dataclass(frozen=True)
class Copy:
    """target = source & the target's bits"""

    target: ir.FieldRef
    source: ir.FieldRef


@dataclasses.dataclass(frozen=True)
class Read:
    target: ir.FieldRef
    index: ir.FieldRef


@dataclasses.dataclass(frozen=True)
class Write:
    index: ir.FieldRef
    value: ir.FieldRef


@dataclasses.dataclass(frozen=True)
class If:
    """if (left & 7 < bound)"""

    left: ir.FieldRef
    bound: int
    then: tuple[Any, ...]
    otherwise: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class For:
    """for (counter = 0; counter < (limit & 7); counter = counter + step)"""

    level: int
    limit: ir.FieldRef
    step: int
    body: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Check:
    """assert(left & 7 < bound)"""

    left: ir.FieldRef
    bound: int


#: break, continue, return, exit
Jump = str


@st.composite
def bodies(draw: st.DrawFn, level: int, size: int) -> tuple[Any, ...]:
    """Statements inside ``level`` loops."""
    return tuple(draw(statements(level, size)) for _ in range(draw(st.integers(1, size))))


@st.composite
def statements(draw: st.DrawFn, level: int, size: int) -> Any:
    kinds = ["compute"] * 4 + ["read", "write", "jump", "jump", "check"]
    kinds += ["if", "for", "for"] if size > 1 else []
    any_variable, written = st.sampled_from(VARIABLES), st.sampled_from([*PACKET, *LOCALS])
    match draw(st.sampled_from(kinds)):
        case "compute":
            right = draw(st.one_of(any_variable, st.integers(0, 300)))
            operator = draw(st.sampled_from(list(OPERATORS)))
            return Compute(draw(written), operator, draw(any_variable), right)
        case "read":
            return Read(draw(written), draw(any_variable))
        case "write":
            return Write(draw(any_variable), draw(any_variable))
        case "if":
            then, otherwise = draw(bodies(level, size - 1)), draw(bodies(level, size - 1))
            otherwise = otherwise if draw(st.booleans()) else ()
            return If(draw(any_variable), draw(st.integers(1, 7)), then, otherwise)
        case "check":
            return Check(draw(any_variable), draw(st.integers(6, 7)))
        case "for" if level < len(COUNTERS):
            limit, step = draw(any_variable), draw(st.integers(1, 2))
            return For(level, limit, step, draw(bodies(level + 1, size - 1)))
        case _:
            # Mostly under a condition, so that something runs behind it.
            jumps = ["return", "exit", *(["break", "continue"] * 3 if level else [])]
            jump = draw(st.sampled_from(jumps))
            return If(draw(any_variable), draw(st.integers(1, 5)), (jump,), ())


# ── As p4c writes them ───────────────────────────────────────────────────────────────────────────


class Writer:
    """Primitives with labels, whose positions are known at the end."""

    def __init__(self) -> None:
        self.primitives: list[Any] = []
        self.labels: dict[int, int] = {}
        self.made = 0

    def label(self) -> int:
        self.made += 1
        return self.made

    def place(self, label: int) -> None:
        self.labels[label] = len(self.primitives)

    def action(self, body: tuple[Any, ...]) -> tuple[ir.Primitive, ...]:
        end = self.label()
        self.body(body, end, None)
        self.place(end)
        return tuple(
            dataclasses.replace(each, target=self.labels[each.target])
            if isinstance(each, ir.Jump | ir.JumpIfZero)
            else each
            for each in self.primitives
        )

    def less(self, left: Any, bound: int) -> ir.Compare:
        masked = ir.Binary(KIND.AND, left, ir.Const(7))
        return ir.Compare(ir.Comparison.LT, masked, ir.Const(bound))

    def body(self, body: tuple[Any, ...], end: int, loop: tuple[int, int] | None) -> None:
        add = self.primitives.append
        for each in body:
            match each:
                case Compute(target, operator, left, right):
                    other = ir.Const(right) if isinstance(right, int) else right
                    value = ir.Binary(operator, left, other)
                    mask = ir.Const((1 << PROGRAM.field(target).width) - 1)
                    add(ir.Assign(target, ir.Binary(KIND.AND, value, mask)))
                case Copy(target, source):
                    add(ir.Assign(target, source))
                case Read(target, index):
                    add(ir.RegisterRead(target, 0, index))
                case Write(index, value):
                    add(ir.RegisterWrite(0, index, value))
                case If(left, bound, then, otherwise):
                    no, after = self.label(), self.label()
                    add(ir.JumpIfZero(ir.BoolToData(self.less(left, bound)), no))
                    self.body(then, end, loop)
                    add(ir.Jump(after))
                    self.place(no)
                    self.body(otherwise, end, loop)
                    self.place(after)
                case For(level, limit, step, inner):
                    test, update, after = self.label(), self.label(), self.label()
                    counter = COUNTERS[level]
                    add(ir.Assign(counter, ir.Const(0)))
                    self.place(test)
                    masked = ir.Binary(KIND.AND, limit, ir.Const(7))
                    less = ir.Compare(ir.Comparison.LT, counter, masked)
                    add(ir.JumpIfZero(ir.BoolToData(less), after))
                    self.body(inner, end, (after, update))
                    self.place(update)
                    add(ir.Assign(counter, ir.Binary(KIND.ADD, counter, ir.Const(step))))
                    add(ir.Jump(test))
                    self.place(after)
                case Check(left, bound):
                    add(ir.Assert(self.less(left, bound), assume=False))
                case "break" | "continue":
                    assert loop is not None
                    add(ir.Jump(loop[each == "continue"]))
                case "return":
                    add(ir.Jump(end))
                case "exit":
                    add(ir.Exit())
                    add(ir.Jump(end))


# ── By Python ────────────────────────────────────────────────────────────────────────────────────


class _JumpError(Exception):
    """A jump out of what runs; ``args[0]`` says which."""


class Oracle:
    def __init__(self, values: dict[ir.FieldRef, int], cells: list[int]) -> None:
        self.values = values
        self.cells = cells

    def action(self, body: tuple[Any, ...]) -> str:
        """What ended it: "return", "exit" or "fail"."""
        try:
            self.body(body)
        except _JumpError as jump:
            return str(jump.args[0])
        return "return"

    def body(self, body: tuple[Any, ...]) -> None:
        values = self.values
        for each in body:
            match each:
                case Compute(target, operator, left, right):
                    other = right if isinstance(right, int) else values[right]
                    value = OPERATORS[operator](values[left], other)
                    values[target] = value & ((1 << PROGRAM.field(target).width) - 1)
                case Copy(target, source):
                    values[target] = values[source] & ((1 << PROGRAM.field(target).width) - 1)
                case Read(target, index):
                    if values[index] < CELLS:
                        mask = (1 << PROGRAM.field(target).width) - 1
                        values[target] = self.cells[values[index]] & mask
                case Write(index, value):
                    if values[index] < CELLS:
                        self.cells[values[index]] = values[value]
                case If(left, bound, then, otherwise):
                    self.body(then if values[left] & 7 < bound else otherwise)
                case Check(left, bound):
                    if values[left] & 7 >= bound:
                        raise _JumpError("fail")
                case For(level, limit, step, inner):
                    counter = COUNTERS[level]
                    values[counter] = 0
                    while values[counter] < values[limit] & 7:
                        try:
                            self.body(inner)
                        except _JumpError as jump:
                            if jump.args[0] == "break":
                                break
                            if jump.args[0] != "continue":
                                raise
                        values[counter] += step
                case _:
                    raise _JumpError(each)


# ── Programs ─────────────────────────────────────────────────────────────────────────────────────


def program_of(actions: list[tuple[ir.Primitive, ...]]) -> ir.Program:
    """Ingress runs the action that ``op`` names, then one that marks the packet."""
    mark = ir.Assign(field("op", "level"), ir.Const(1))
    forward = ir.Assign(PROGRAM.standard.egress_spec, ir.Const(1))
    made = (
        *(ir.Action(f"random{i}", (), body) for i, body in enumerate(actions)),
        ir.Action("mark", (), (mark,)),
        ir.Action("forward", (), (forward,)),
    )
    count = len(actions)

    def call(number: int) -> ir.Node:
        return ir.Node(ir.NodeKind.ACTION_CALL, number)

    def test(number: int) -> ir.Node:
        return ir.Node(ir.NodeKind.CONDITIONAL, number) if number < count else call(count)

    calls = [ir.ActionCall(f"random{i}", i, call(count)) for i in range(count)]
    calls += [ir.ActionCall("mark", count, None), ir.ActionCall("forward", count + 1, test(0))]
    conditionals = [
        ir.Conditional(
            f"is{i}",
            ir.Compare(ir.Comparison.EQ, field("op", "op"), ir.Const(i)),
            call(i),
            test(i + 1),
        )
        for i in range(count)
    ]
    return dataclasses.replace(
        PROGRAM,
        actions=made,
        action_calls=tuple(calls),
        conditionals=tuple(conditionals),
        tables=(),
        ingress=ir.Pipeline("ingress", call(count + 1)),
        fingerprint=hashlib.sha256(repr(made).encode()).hexdigest(),
    )


def expected(bodies_: list[Any], packets: list[tuple[int, ...]], cells: list[int]) -> list[bytes]:
    """What leaves, by the oracle."""
    sent = []
    for op, *rest in packets:
        values = dict.fromkeys(VARIABLES, 0) | dict(zip(PACKET, rest, strict=True))
        end = Oracle(values, cells).action(bodies_[op] if op < len(bodies_) else ())
        if end != "fail":
            sent.append(packed((op, *(values[each] for each in PACKET)), int(end == "return")))
    return sent


def packed(numbers: tuple[int, ...], level: int = 0) -> bytes:
    op, n, m, x, total = numbers
    words = (x, 4), (total, 4), (level, 2), (0, 9)
    return bytes([op, n, m]) + b"".join(value.to_bytes(size, "big") for value, size in words)


@settings(deadline=None, max_examples=5, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(bodies(0, 4), min_size=ACTIONS, max_size=ACTIONS),
    st.integers(0, 1 << 32),
)
def test_random_loops(bodies_: list[Any], seed: int) -> None:
    program = program_of([Writer().action(body) for body in bodies_])
    rng = np.random.default_rng(seed)
    packets = [
        (i % (ACTIONS + 1), *(int(rng.integers(0, 256)) for _ in range(2)),
         *(int(rng.integers(0, 1 << int(rng.choice([3, 5, 32])))) for _ in range(2)))
        for i in range(200)
    ]  # fmt: skip
    cells = [0] * CELLS
    wanted = expected(bodies_, packets, cells)
    for engine in ("interpret", "jit"):
        switch = Switch(program, engine)
        sent = switch.process([(0, packed(each)) for each in packets])
        assert [data for _, data in sent] == wanted, engine
        assert switch.registers[PROGRAM.registers[0].name].tolist() == cells, engine
        assert switch.statistics.failed_assertions == len(packets) - len(wanted)


# ── Ifs that choose values ───────────────────────────────────────────────────────────────────────


def choices(rng: np.random.Generator, size: int) -> tuple[Any, ...]:
    """Statements that set metadata, alone and in ifs, as p4c writes conditional values."""
    metadata = [*LOCALS, *COUNTERS]
    found: list[Any] = []
    for _ in range(rng.integers(1, 4 if size == 3 else 3)):
        left, right = (rng.choice(len(VARIABLES), p=[0.15] * 4 + [0.1] * 4) for _ in range(2))
        target = metadata[rng.integers(len(metadata))]
        if size and rng.random() < 0.6:
            then = choices(rng, size - 1)
            otherwise = choices(rng, size - 1) if rng.random() < 0.7 else ()
            found.append(If(VARIABLES[left], int(rng.integers(1, 7)), then, otherwise))
        elif rng.random() < 0.3:
            found.append(Copy(target, VARIABLES[left]))
        else:
            operator = [*OPERATORS][rng.integers(len(OPERATORS))]
            found.append(Compute(target, operator, VARIABLES[left], VARIABLES[right]))
    return tuple(found)


def jumps(program: ir.Program) -> int:
    steps = (each for action in program.actions for each in action.primitives)
    return sum(isinstance(each, ir.JumpIfZero) for each in steps)


def test_ifs_that_choose_values() -> None:
    """Simplified actions do the same. (The JIT simplifies all actions, the interpreter none.)"""
    rng = np.random.default_rng(1)
    kept = [Compute(PACKET[3], KIND.XOR, PACKET[3], each) for each in (*LOCALS, *COUNTERS)]
    ifs = converted = 0
    for _ in range(40):
        bodies_ = [(*choices(rng, 3), *kept) for _ in range(ACTIONS)]
        program = program_of([Writer().action(body) for body in bodies_])
        simple = simplify(program)
        ifs += jumps(program)
        converted += jumps(program) - jumps(simple)
        packets = [
            (
                i % ACTIONS,
                *map(int, rng.integers(0, 256, 2)),
                *map(int, rng.integers(0, 1 << 32, 2)),
            )
            for i in range(40)
        ]
        wanted = expected(bodies_, packets, [0] * CELLS)
        for each in (program, simple):
            sent = Switch(each, "interpret").process([(0, packed(packet)) for packet in packets])
            assert [data for _, data in sent] == wanted
    assert ifs > converted > 300


def test_a_loop_that_is_entered_in_two_places() -> None:
    """p4c writes none; emitted code has numbered blocks for it."""
    n, x, total = (field("op", name) for name in ("n", "x", "sum"))

    def more(target: ir.FieldRef) -> ir.Assign:
        mask = ir.Const((1 << PROGRAM.field(target).width) - 1)
        return ir.Assign(
            target, ir.Binary(KIND.AND, ir.Binary(KIND.ADD, target, ir.Const(1)), mask)
        )

    small = Writer().less(total, 7)
    last = ir.Compare(ir.Comparison.EQ, ir.Binary(KIND.AND, n, ir.Const(7)), ir.Const(0))
    check, back = ir.Assert(small, assume=False), ir.JumpIfZero(ir.BoolToData(last), 1)
    program = program_of([(ir.JumpIfZero(x, 2), more(total), more(n), check, back)])
    wanted: list[bytes] = []
    packets = [(0, n, 0, x, total) for n in range(8) for x in range(2) for total in range(3)]
    for _, turns, _, entered, before in packets:
        added = 8 - turns - (entered == 0)
        if before + added < 7:
            wanted.append(packed((0, 8, 0, entered, before + added), 1))
    assert 0 < len(wanted) < len(packets)
    for engine in ("interpret", "jit"):
        sent = Switch(program, engine).process([(0, packed(each)) for each in packets])
        assert [data for _, data in sent] == wanted, engine


# ── Other programs, in loops ─────────────────────────────────────────────────────────────────────


def in_loops(program: ir.Program, turns: int, step: ir.Primitive | None = None) -> ir.Program:
    """``program`` with each action's primitives in a loop of ``turns`` turns, ``step`` last."""
    header = next(i for i, each in enumerate(program.headers) if each.name == "scalars")
    kind = program.type_of(header)
    turn = ir.FieldRef(header, len(kind.fields))
    new = ir.Field("turn", 8, False, False, False, kind.width)
    grown = dataclasses.replace(kind, fields=(*kind.fields, new), width=kind.width + 8)
    types = tuple(grown if each is kind else each for each in program.header_types)

    def looped(action: ir.Action) -> ir.Action:
        inside = [*action.primitives, *([step] if step else [])]
        moved = [
            dataclasses.replace(each, target=each.target + 2)
            if isinstance(each, ir.Jump | ir.JumpIfZero)
            else each
            for each in inside
        ]
        goes_on = ir.Compare(ir.Comparison.LT, turn, ir.Const(turns))
        body = (
            ir.Assign(turn, ir.Const(0)),
            ir.JumpIfZero(ir.BoolToData(goes_on), len(moved) + 4),
            *moved,
            ir.Assign(turn, ir.Binary(KIND.ADD, turn, ir.Const(1))),
            ir.Jump(1),
        )
        return dataclasses.replace(action, primitives=body)

    return dataclasses.replace(
        program,
        header_types=types,
        actions=tuple(map(looped, program.actions)),
        fingerprint=f"{program.fingerprint} in {turns} turns {step}",
    )


@pytest.mark.parametrize(
    "name",
    tiered(
        ["jit_headers", "jit_stacks", "jit_tables", "jit_wide", "fuzz_ends", "fuzz_registers"],
        ["jit_headers"],
        "the same with another program",
    ),
)
def test_actions_in_loops(name: str) -> None:
    program = load_program(PROGRAMS / f"{name}.json")
    check_random_traffic(in_loops(program, 3), seed=0, largest=60, rounds=2)


def test_runs_in_loops_that_leave_the_registers() -> None:
    """In later turns the index is out of bounds: temporaries keep what the first turn read."""
    program = load_program(PROGRAMS / "jit_runs.json")
    header = next(i for i, each in enumerate(program.headers) if each.name == "scalars")
    names = [each.name for each in program.type_of(header).fields]
    index = ir.FieldRef(header, next(i for i, each in enumerate(names) if each.endswith("index")))
    more = ir.Binary(KIND.AND, ir.Binary(KIND.ADD, index, ir.Const(9)), ir.Const(0xFFFFFFFF))
    program = in_loops(program, 3, ir.Assign(index, more))
    check_random_traffic(program, seed=0, largest=60, rounds=2)


# ── Loops without an end ─────────────────────────────────────────────────────────────────────────


@pytest.mark.repeats(
    "the same interpreted", but=["False-*-jit", "*-False-jit", "False-False-interpret"]
)
@pytest.mark.parametrize(
    ("timed", "conditional", "engine"),
    tiered(
        itertools.product([False, True], [False, True], ["interpret", "jit"]),
        [
            (False, False, "interpret"),
            (True, True, "interpret"),
            (False, True, "jit"),
            (True, False, "jit"),
        ],
        "the same with the other kind of loop, or with times",
    ),
)
def test_an_endless_loop_ends_with_an_error(engine: str, conditional: bool, timed: bool) -> None:
    x, total = field("op", "x"), field("op", "sum")
    jump = ir.JumpIfZero(x, 0, "own.p4:7") if conditional else ir.Jump(0, "own.p4:7")
    write = ir.RegisterWrite(0, total, total)
    switch = Switch(program_of([(write, jump), (write,)]), engine)
    clock = itertools.count()

    def run(*packets: tuple[int, ...]) -> int:
        times = [1_000_000 * next(clock) for _ in packets] if timed else None
        return len(switch.process([(0, packed(each)) for each in packets], times=times))

    assert run((1, 0, 0, 0, 3)) == 1
    with pytest.raises(EndlessLoopError, match=r"for\.p4: .* own\.p4:7 in random0 .*1,048,576"):
        run((1, 0, 0, 0, 4), (0, 0, 0, 0, 5), (1, 0, 0, 0, 6))
    # What ran before it counts, what would have run after it does not; the switch goes on.
    cells = [0, 0, 0, 3, 4, 5, 0, 0]
    assert switch.registers[PROGRAM.registers[0].name].tolist() == cells + [0] * 8
    assert switch.statistics.packets_in == 3
    assert run((1, 0, 0, 0, 7)) == 1
    if conditional:
        assert run((0, 0, 0, 1, 7)) == 1


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_an_endless_loop_of_the_deparser(engine: str) -> None:
    deparser = dataclasses.replace(PROGRAM.deparser, operations=(ir.Jump(0),))
    program = dataclasses.replace(
        program_of([]), deparser=deparser, fingerprint="an endless deparser"
    )
    switch = Switch(program, engine)
    with pytest.raises(EndlessLoopError, match="the loop in deparser"):
        switch.process([(0, packed((1, 0, 0, 0, 0)))])
