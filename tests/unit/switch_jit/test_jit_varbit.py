"""Varbit fields where P4 has no words for it: as numbers, without a limit, in headers cut short."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from innet.core.errors import UnsupportedError
from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.frontend.loader import load_program
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine

PATH = Path(__file__).parents[2] / "programs/jit_varbit.json"
PROGRAM = load_program(PATH)


def field(header: str, name: str) -> ir.FieldRef:
    index = next(i for i, each in enumerate(PROGRAM.headers) if each.name == header)
    return ir.FieldRef(index, PROGRAM.type_of(index).index(name))


def doing(*primitives: ir.Primitive, program: ir.Program = PROGRAM) -> ir.Program:
    """The program, with these instead of all that ingress does but sending the packet back."""
    standard = program.standard
    forward = ir.Assign(standard.egress_spec, standard.ingress_port)
    action = ir.Action("do", (), (forward, *primitives))
    return dataclasses.replace(
        program,
        actions=(action, *program.actions[1:]),
        action_calls=(ir.ActionCall("do", 0, None),),
        ingress=ir.Pipeline("ingress", ir.Node(ir.NodeKind.ACTION_CALL, 0)),
        egress=ir.Pipeline("egress", None),
        fingerprint=hashlib.sha256(repr((action, program.header_types)).encode()).hexdigest(),
    )


def agree(program: ir.Program, packets: Sequence[bytes]) -> list[bytes]:
    """What leaves both engines."""
    batch = [(1, packet) for packet in packets]
    answers = []
    for engine in (InterpretEngine, JitEngine):
        state = SwitchState(program, np.random.default_rng(0))
        made: Any = engine(program, state)
        answers.append(made.process(PacketBatch.from_packets(batch)).to_packets())
    assert answers[0] == answers[1]
    return [data for _, data in answers[0]]


def packet(length: int, rng: np.random.Generator) -> bytes:
    """A start header that asks for ``length`` bytes of options, and those; then nothing more."""
    return bytes([0, length, 0, 0]) + rng.bytes(2 + length + 3)


def test_a_varbit_field_as_a_number() -> None:
    rng = np.random.default_rng(1)
    bytes_, kind, op = field("a", "bytes"), field("a", "kind"), field("s", "op")
    third = ir.Binary(ir.DataOperator.SHIFT_RIGHT, bytes_, ir.Const(70))
    low = ir.Compare(ir.Comparison.LT, bytes_, ir.Const(1 << 200))
    program = doing(
        ir.Assign(kind, ir.Binary(ir.DataOperator.ADD, third, ir.Const(1))),
        ir.Assign(op, ir.Choice(low, bytes_, ir.Const(77))),
    )
    packets = [packet(length, rng) for length in range(41)]
    left = agree(program, packets)
    for sent, got in zip(packets, left, strict=True):
        number = int.from_bytes(sent[6 : 6 + sent[1]], "big")
        assert int.from_bytes(got[4:6], "big") == ((number >> 70) + 1) % (1 << 16)
        assert got[0] == (number % 256 if number < 1 << 200 else 77)


def test_every_length_and_every_end() -> None:
    """Lengths beyond the header's limit, and packets that end anywhere."""
    rng = np.random.default_rng(2)
    whole = [packet(length, rng) for length in (0, 1, 39, 40, 41, 63)]
    packets = [each[:end] for each in whole for end in range(len(each) + 1)]
    b, a = (ir.HeaderRef(field(name, "kind").header) for name in ("b", "a"))
    left = agree(doing(ir.AssignHeader(b, a)), packets)
    sent = whole[3]
    got = left[packets.index(sent)]
    assert (got[:2], got[4:]) == (sent[:2], sent[4:] * 2)


def test_headers_without_a_limit() -> None:
    document = json.loads(PATH.read_text(encoding="utf-8"))
    for kind in document["header_types"]:
        if kind["name"] == "options_t":
            del kind["max_length"]
    program = load_program(document)
    rng = np.random.default_rng(3)
    assert len(agree(doing(program=program), [packet(63, rng), packet(63, rng)[:-1]])) == 2
    with pytest.raises(UnsupportedError, match=r"a\.bytes, a varbit field of up to \d+ bits"):
        JitEngine(
            doing(ir.Assign(field("s", "op"), field("a", "bytes")), program=program),
            SwitchState(program, rng),
        )


def test_a_number_written_to_a_varbit_field_is_refused() -> None:
    program = doing(ir.Assign(field("a", "bytes"), ir.Const(5)))
    with pytest.raises(UnsupportedError, match=r"writing a number to the varbit field a\.bytes"):
        JitEngine(program, SwitchState(program, np.random.default_rng(0)))
