"""What the engines make of a program: what they refuse, and what the compiled one emits."""

from __future__ import annotations

from typing import Any

from innet.core.errors import UnsupportedError
from innet.switch import ir
from innet.switch.engine import allocate_registers
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.ir.tree import walk
from innet.switch.jit import JitEngine, lowered
from innet.switch.jit.emit.program import emit
from innet.switch.jit.lower.program import lower_program
from innet.switch.jit.lower.vectorize import reroll
from innet.switch.jit.traits import needs_queue


def engines(program: ir.Program) -> dict[str, Any]:
    """What each engine refuses (nothing: it runs the program); the compiled one's loops."""
    refused = JitEngine.unsupported(program)
    return {
        "interpret": {"refused": InterpretEngine.unsupported(program)},
        "jit": {"refused": refused, "loops": [] if refused else _loops(program)},
    }


def emitted_source(program: ir.Program) -> str:
    """The Python module that the compiled engine emits.

    Raises:
        UnsupportedError: the program uses something that it does not have.
    """
    if refused := JitEngine.unsupported(program):
        raise UnsupportedError(f"the jit engine emits nothing for this program: {refused[0]}")
    return emit(program, allocate_registers(program), needs_queue(program)).source


def _loops(program: ir.Program) -> list[dict[str, Any]]:
    """Runs of like statements that became loops: where, how often, and over what."""
    bodies = lower_program(program)
    return [
        _described(program, region, node)
        for region in ("parser", "verify", "ingress", "egress", "update")
        for node in walk(reroll(program, getattr(bodies, region)))
        if isinstance(node, lowered.Loop)
    ]


def _described(program: ir.Program, region: str, loop: lowered.Loop) -> dict[str, Any]:
    last = loop.count - 1
    registers: dict[str, None] = {}
    fields: dict[str, None] = {}
    for node in walk(loop.body):
        if isinstance(node, lowered.LoadCell | lowered.StoreCell):
            first, end = node.register, node.register + node.stride * last
            registers[_range(program.registers[first].name, program.registers[end].name)] = None
        elif isinstance(node, lowered.Lane):
            ends = (node.first, node.first + node.stride * last)
            names = [program.name_of(ir.FieldRef(node.header, end)) for end in ends]
            fields[_range(*names)] = None
    return {
        "region": region,
        "count": loop.count,
        "statements": len(loop.body),
        "registers": list(registers),
        "fields": list(fields),
    }


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} .. {last}"
