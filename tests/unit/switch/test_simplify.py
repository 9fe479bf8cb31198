"""Ifs of actions that only choose a value, and stores that nothing reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from innet import programs
from innet.switch import ir
from innet.switch.frontend.loader import load_program
from innet.switch.ir.simplify import local_fields, simplify

PROGRAM = load_program(Path(__file__).parents[2] / "programs" / "fuzz_for.json")
SCALARS = next(i for i, header in enumerate(PROGRAM.headers) if header.name == "scalars")
OP = next(i for i, header in enumerate(PROGRAM.headers) if header.name == "op")
FIELDS = PROGRAM.type_of(SCALARS).fields
# A local variable of p4c, which no other action mentions once ``only`` has replaced them.
WORDS = [ir.FieldRef(SCALARS, i) for i, each in enumerate(FIELDS) if each.width == 32][:2]
ONE, TWO = WORDS
X = ir.FieldRef(OP, 3)
IS_ODD = ir.Compare(ir.Comparison.EQ, ir.Binary(ir.DataOperator.AND, X, ir.Const(1)), ir.Const(1))


def only(*primitives: ir.Primitive) -> ir.Program:
    """A program with one action, which nothing calls."""
    action = ir.Action("only", (), primitives)
    return replace(
        PROGRAM, actions=(action,), action_calls=(), tables=(), conditionals=(),
        ingress=replace(PROGRAM.ingress, initial=None),
    )  # fmt: skip


def simplified(*primitives: ir.Primitive) -> list[ir.Primitive]:
    (action,) = simplify(only(*primitives)).actions
    assert len(action.primitives) == len(primitives)
    return [each for each in action.primitives if each != ir.NoOp()]


def choose(target: ir.FieldRef, then: object, otherwise: object, start: int = 0) -> list[object]:
    """``target = odd ? then : otherwise``, as p4c writes it from position ``start`` on."""
    return [
        ir.JumpIfZero(ir.BoolToData(IS_ODD), start + 3),
        ir.Assign(target, then),
        ir.Jump(start + 4),
        ir.Assign(target, otherwise),
    ]


def test_a_conditional_value_is_one_assignment():
    use = ir.Assign(X, ONE)
    found = simplified(*choose(ONE, ir.Const(5), X), use)
    assert found == [ir.Assign(ONE, ir.Choice(IS_ODD, ir.Const(5), X)), use]


def test_an_inner_choice_becomes_a_part_of_the_outer_one():
    inner = choose(TWO, ir.Const(1), ir.Const(2), start=3)
    found = simplified(
        ir.JumpIfZero(ir.BoolToData(IS_ODD), 3),
        ir.Assign(ONE, X),
        ir.Jump(8),
        *inner,
        ir.Assign(ONE, TWO),
        ir.Assign(X, ONE),
    )
    chosen = ir.Choice(IS_ODD, X, ir.Choice(IS_ODD, ir.Const(1), ir.Const(2)))
    assert found == [ir.Assign(ONE, chosen), ir.Assign(X, ONE)]


def test_a_copy_that_nothing_reads_goes():
    found = simplified(*choose(ONE, ir.Const(5), X), ir.Assign(TWO, ONE), ir.Assign(X, ONE))
    assert found == [ir.Assign(ONE, ir.Choice(IS_ODD, ir.Const(5), X)), ir.Assign(X, ONE)]
    assert {ONE, TWO} <= local_fields(only(ir.Assign(ONE, X), ir.Assign(TWO, X)))
    assert ONE not in local_fields(only(ir.Assign(X, ONE), ir.Assign(ONE, X)))


@pytest.mark.parametrize(
    "branch",
    [
        ir.Assign(X, ir.Const(1)),  # of a header, which may be invalid
        ir.Assign(ONE, ir.Binary(ir.DataOperator.DIV, ONE, X)),
        ir.Assign(ONE, ir.Binary(ir.DataOperator.SHIFT_LEFT, ONE, X)),
        ir.RegisterRead(ONE, 0, X),
        ir.Exit(),
    ],
)
def test_what_has_effects_or_no_value_stays_conditional(branch):
    kept = [*choose(ONE, ir.Const(5), X), ir.Assign(X, ONE)]
    kept[1] = branch
    assert simplified(*kept) == kept


def test_a_jump_into_an_if_keeps_it():
    kept = [*choose(ONE, ir.Const(5), X), ir.JumpIfZero(X, 3), ir.Assign(X, ONE)]
    assert simplified(*kept) == kept


def test_values_that_need_each_other_stay():
    """Both have to be chosen by what was there before."""
    kept = [
        ir.JumpIfZero(ir.BoolToData(IS_ODD), 4),
        ir.Assign(ONE, X),
        ir.Assign(TWO, ir.Const(3)),
        ir.Jump(6),
        ir.Assign(TWO, ONE),
        ir.Assign(ONE, ir.Const(9)),
        ir.Assign(X, ir.Binary(ir.DataOperator.ADD, ONE, TWO)),
    ]
    assert simplified(*kept) == kept


@pytest.mark.parametrize(
    "name", ["slots-64", "collectives-64", "harvest-64", "harvest-256", "tree-64", "hashed-64"]
)
def test_shipped_programs_have_no_ifs_left(name):
    program = load_program(programs.catalogue()[name].json())
    simple = simplify(program)
    assert any(isinstance(each, ir.JumpIfZero) for a in program.actions for each in a.primitives)
    assert not any(isinstance(each, ir.JumpIfZero) for a in simple.actions for each in a.primitives)
    assert simplify(simple) is simple
