"""Random expressions of all widths: the compiled engine computes what the interpreter computes.

Of fields up to 256 bits, and of lanes: the same expression over consecutive fields, a loop there.

INNET_WIDE_SEEDS (3) in the environment says how many programs of them are made, one of them in the
first tier.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.state_fuzzer import StateFuzzer, interesting_number
from support.tiers import seeds

from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.frontend.loader import load_program
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine
from innet.switch.jit.compiler import source_of

PROGRAM = load_program(Path(__file__).parents[1] / "programs/jit_wide.json")
HEADER = next(i for i, header in enumerate(PROGRAM.headers) if header.name == "x")
RESULT = next(i for i, header in enumerate(PROGRAM.headers) if header.name == "r")
FIELDS = [ir.FieldRef(HEADER, i) for i in range(len(PROGRAM.type_of(HEADER).fields))]
SHIFT = ir.FieldRef(HEADER, PROGRAM.type_of(HEADER).index("shift"))
KIND = ir.DataOperator
PLAIN = (KIND.ADD, KIND.SUB, KIND.MUL, KIND.AND, KIND.OR, KIND.XOR)
CASTS = (KIND.TWO_COMP_MOD, KIND.SAT_CAST, KIND.USAT_CAST)
SEEDS = int(os.environ.get("INNET_WIDE_SEEDS", "3"))
WIDTHS = (1, 8, 31, 63, 64, 65, 100, 127, 128, 129, 200, 256)


class Maker:
    """Expressions and conditions of bounded depth."""

    widths = WIDTHS

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def pick(self, some: Any) -> Any:
        return some[int(self.rng.integers(len(some)))]

    def data(self, depth: int) -> Any:
        if depth == 0:
            return self.leaf()
        match int(self.rng.integers(12)):
            case 0 | 1 | 2 | 3:
                return ir.Binary(self.pick(PLAIN), self.data(depth - 1), self.data(depth - 1))
            case 4 | 5:
                operator = self.pick((KIND.SHIFT_LEFT, KIND.SHIFT_RIGHT))
                return ir.Binary(operator, self.data(depth - 1), self.amount())
            case 6:
                operator = self.pick((KIND.DIV, KIND.MOD))
                return ir.Binary(operator, self.data(depth - 1), self.leaf())
            case 7 | 8:
                width = ir.Const(self.pick(self.widths))
                return ir.Binary(self.pick(CASTS), self.data(depth - 1), width)
            case 9:
                return ir.Invert(self.data(depth - 1))
            case 10:
                return ir.Choice(self.test(depth - 1), self.data(depth - 1), self.data(depth - 1))
            case _:
                mask = ir.Const((1 << self.pick(self.widths)) - 1)
                return ir.Binary(KIND.AND, self.data(depth - 1), mask)

    def test(self, depth: int) -> Any:
        if self.rng.random() < 0.2:
            return ir.DataToBool(self.data(depth))
        return ir.Compare(self.pick(list(ir.Comparison)), self.data(depth), self.data(depth))

    def leaf(self) -> Any:
        choice = self.rng.random()
        if choice < 0.2:
            value = interesting_number(self.rng, self.pick(WIDTHS))
            return ir.Const(self.pick((value, -value)))
        return self.cell() if choice < 0.3 else self.pick(FIELDS)

    def cell(self) -> ir.RegisterElement:
        """A register's cell, in bounds or not."""
        index = self.pick((ir.Const(1), ir.Const(9), SHIFT))
        return ir.RegisterElement(int(self.rng.integers(len(PROGRAM.registers))), index)

    def amount(self) -> Any:
        amounts = (0, 1, 7, 63, 64, 65, 128, 255, ir.MAX_SHIFT + 1, -1)
        return ir.Const(self.pick(amounts)) if self.rng.random() < 0.5 else SHIFT


class LaneMaker(Maker):
    """Expressions whose leaves are lanes, for the present ``lane`` and ``rng``."""

    widths = (1, 8, 16, 31, 32, 33, 63, 64)

    def __init__(self, rng: np.random.Generator, lane: int) -> None:
        super().__init__(rng)
        self.lane = lane

    def data(self, depth: int) -> Any:
        """Half of them as p4c writes numbers of 32 bits, which are computed with as many."""
        if depth == 0 or self.rng.random() < 0.5:
            return super().data(depth)
        word = ir.Const(32)
        left, right = self.data(depth - 1), self.data(depth - 1)
        match int(self.rng.integers(4)):
            case 0:
                sum_ = ir.Binary(self.pick((KIND.ADD, KIND.SUB)), left, right)
                return ir.Binary(KIND.USAT_CAST, sum_, word)
            case 1:
                number = ir.Binary(KIND.TWO_COMP_MOD, left, word)
                value = ir.Binary(KIND.SHIFT_RIGHT, number, self.amount())
            case 2:
                value = ir.Binary(KIND.SHIFT_LEFT, left, self.amount())
            case _:
                value = ir.Binary(self.pick(PLAIN), left, right)
        return ir.Binary(KIND.AND, value, ir.Const((1 << 32) - 1))

    def leaf(self) -> Any:
        choice = self.rng.random()
        first = int(interesting_number(self.rng, 32))
        if choice < 0.15:
            return ir.Const(self.pick((first, -first)))
        if choice < 0.25:
            return ir.Const(first + (self.lane + 1) * self.pick((1, 3, 1 << 20)))
        if choice < 0.4:
            return self.pick(SCALARS)
        if choice < 0.5:
            return ir.RegisterElement(self.lane, ir.Const(int(self.rng.integers(16))))
        return self.pick(lanes(self.lane))

    def amount(self) -> Any:
        amounts = (0, 1, 7, 31, 32, 33, 63, 64)
        return ir.Const(self.pick(amounts)) if self.rng.random() < 0.3 else self.leaf()


LANES = load_program(Path(__file__).parents[1] / "programs/jit_runs.json")
LANE_COUNT = 12


def lanes_field(header: str, number: int) -> ir.FieldRef:
    return ir.FieldRef([each.name for each in LANES.headers].index(header), number)


def lanes(lane: int) -> list[ir.FieldRef]:
    """Fields of a lane: of 32, 32, 16 and 16 bits."""
    return [
        lanes_field("v", lane),
        lanes_field("half", lane),
        lanes_field("p", 2 * lane),
        lanes_field("p", 2 * lane + 1),
    ]


SCALARS = [lanes_field("op", 1), lanes_field("op", 2), lanes_field("half", 21)]


def with_lanes(seed: int) -> ir.Program:
    """A program with random assignments to the fields of each lane."""
    assignments = []
    for number in (0, 1, 2, 4):
        for lane in range(LANE_COUNT):
            maker = LaneMaker(np.random.default_rng([seed, number, 78]), lane)
            depth = int(maker.rng.integers(1, 5))
            target = lanes(lane)[number % 4]
            value = maker.data(depth)
            if number == 4:  # a field that is made of itself, lane by lane
                target = lanes_field("half", 23)
                value = ir.Binary(maker.pick((KIND.OR, KIND.ADD, KIND.XOR)), target, value)
            assignments.append(ir.Assign(target, value))
    return with_action(LANES, assignments)


def with_assignments(rng: np.random.Generator) -> ir.Program:
    """The program, with a random assignment to each result instead of all that ingress does."""
    maker = Maker(rng)
    fields = [ir.FieldRef(RESULT, i) for i in range(len(PROGRAM.type_of(RESULT).fields))]
    assignments = [ir.Assign(field, maker.data(int(rng.integers(1, 5)))) for field in fields]
    assignments += [ir.Assign(maker.cell(), maker.data(2)) for _ in range(3)]
    return with_action(PROGRAM, assignments)


def with_action(program: ir.Program, assignments: list[ir.Assign]) -> ir.Program:
    """A program that does nothing but the assignments, and sends packets back."""
    standard = program.standard
    forward = ir.Assign(standard.egress_spec, standard.ingress_port)
    action = ir.Action("compute", (), (forward, *assignments))
    start = ir.Node(ir.NodeKind.ACTION_CALL, 0)
    return dataclasses.replace(
        program,
        actions=(action,),
        action_calls=(ir.ActionCall("compute", 0, None),),
        tables=(),
        conditionals=(),
        ingress=ir.Pipeline("ingress", start),
        egress=ir.Pipeline("egress", None),
        fingerprint=hashlib.sha256(repr(action).encode()).hexdigest(),
    )


def packet(rng: np.random.Generator, program: ir.Program, headers: list[int]) -> bytes:
    """The headers, one behind the other."""
    data = b""
    for header in headers:
        kind = program.type_of(header)
        value = 0
        for field in kind.fields:
            value = value << field.width | interesting_number(rng, field.width)
        data += value.to_bytes(kind.width // 8, "big")
    return data


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_random_expressions(seed: int) -> None:
    rng = np.random.default_rng([seed, 77])
    check(with_assignments(rng), [HEADER, RESULT], rng)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_random_expressions_of_lanes(seed: int) -> None:
    program = with_lanes(seed)
    assert source_of(program).count("for k in range(lanes_12)") >= 3
    names = [each.name for each in LANES.headers]
    headers = [names.index(name) for name in ("op", "half", "v", "p", "b", "q")]
    check(program, headers, np.random.default_rng([seed, 79]))


def check(program: ir.Program, headers: list[int], rng: np.random.Generator) -> None:
    """Both engines make the same of random packets and registers."""
    states = [SwitchState(program, np.random.default_rng(0)) for _ in range(2)]
    StateFuzzer(program, rng).registers(states)
    engines = (InterpretEngine(program, states[0]), JitEngine(program, states[1]))
    packets = [(0, packet(rng, program, headers)) for _ in range(300)]
    expected, got = (
        engine.process(PacketBatch.from_packets(packets)).to_packets() for engine in engines
    )
    for sent, one, other in zip(packets, expected, got, strict=True):
        assert one == other, sent[1].hex()
    for one, other in zip(states[0].registers, states[1].registers, strict=True):
        np.testing.assert_array_equal(one, other)
