"""Headers and unions found at run time in every place where a program may name one.

p4c only writes some of these (and crashes on run-time indices of union stacks), so programs that
name elements by constants are rewritten to find them by an index from the packet.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from support.engines import check_random_traffic

from innet.switch import ir
from innet.switch.frontend.loader import load_program
from innet.switch.ir.tree import rebuild

PROGRAMS = Path(__file__).parents[1] / "programs"


def found_at_run_time(program: ir.Program) -> ir.Program:
    """``program`` with each element of a stack found by an index: mostly right, at times none."""
    base = next(i for i, header in enumerate(program.headers) if header.name == "base")
    index = program.type_of(base).index("index")

    def position(element: int) -> ir.DataExpression:
        shifted = ir.Binary(
            ir.DataOperator.SHIFT_RIGHT, ir.FieldRef(base, index), ir.Const(element)
        )
        return ir.Binary(ir.DataOperator.AND, shifted, ir.Const(3))

    unions = {
        union: (number, element)
        for number, stack in enumerate(program.union_stacks)
        for element, union in enumerate(stack.unions)
    }

    def header(number: int) -> ir.HeaderExpression | None:
        instance = program.headers[number]
        if instance.stack is not None:
            return ir.StackElement(instance.stack, position(instance.stack_position))
        if instance.union in unions:
            stack, element = unions[instance.union]
            found = ir.UnionStackElement(stack, position(element))
            return ir.UnionMember(found, instance.union_position)
        return None

    def replace(node: Any) -> Any:
        match node:
            case ir.HeaderRef(number):
                return header(number) or node
            case ir.FieldRef(number, field):
                found = header(number)
                return node if found is None else ir.HeaderField(found, field)
            case ir.UnionRef(union) if union in unions:
                stack, element = unions[union]
                return ir.UnionStackElement(stack, position(element))
            case ir.Push() | ir.Pop():
                return dataclasses.replace(node, count=ir.FieldRef(base, index))
            case _:
                return node

    return dataclasses.replace(
        program,
        fingerprint=f"{program.fingerprint} at run time",
        actions=rebuild(program.actions, replace),
        conditionals=rebuild(program.conditionals, replace),
    )


def with_assertions(program: ir.Program) -> ir.Program:
    """``program`` with an assertion in each parser state, value sets that are masked in part, and a
    few things in the deparser.
    """
    base = next(i for i, header in enumerate(program.headers) if header.name == "base")
    fields = program.type_of(base)
    index, op = (ir.FieldRef(base, fields.index(name)) for name in ("index", "op"))

    def differs(field: ir.FieldRef, value: int) -> ir.Assert:
        return ir.Assert(ir.Compare(ir.Comparison.NE, field, ir.Const(value)), False)

    def masked(transition: ir.Transition) -> ir.Transition:
        if transition.value_set is None:
            return transition
        return dataclasses.replace(transition, masks=tuple(m & ~0x30 for m in transition.masks))

    states = tuple(
        dataclasses.replace(
            state,
            operations=(*state.operations, differs(index, number)),
            transitions=tuple(map(masked, state.transitions)),
        )
        for number, state in enumerate(program.parser.states)
    )
    operations = (
        ir.JumpIfZero(op, 2),
        differs(op, 7),
        ir.Assign(op, ir.Const(9)),
        ir.AddHeader(ir.HeaderRef(program.unions[0].headers[0])),
    )
    return dataclasses.replace(
        program,
        fingerprint=f"{program.fingerprint} with assertions",
        parser=dataclasses.replace(program.parser, states=states),
        deparser=dataclasses.replace(program.deparser, operations=operations),
    )


def test_elements_of_stacks() -> None:
    program = found_at_run_time(load_program(PROGRAMS / "jit_stacks.json"))
    for seed in range(3):
        check_random_traffic(program, seed)


def test_unions_and_assertions() -> None:
    program = with_assertions(found_at_run_time(load_program(PROGRAMS / "jit_unions.json")))
    statistics = check_random_traffic(program, 0).statistics
    assert min(statistics.dropped_ingress, statistics.dropped_egress) > 0
    assert statistics.failed_assertions == statistics.dropped_ingress + statistics.dropped_egress
    for seed in range(1, 4):
        check_random_traffic(program, seed)
