"""Runs are recognized where they are, and mean what they meant before."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tiers import tiered

from innet.switch import ir
from innet.switch.frontend.loader import load_program
from innet.switch.ir.tree import rebuild, walk
from innet.switch.jit import lowered
from innet.switch.jit.compiler import structural_reasons
from innet.switch.jit.lower.program import lower_program
from innet.switch.jit.lower.vectorize import instantiate, reroll

ROOT = Path(__file__).parents[3]
PROGRAMS = [
    path
    for folder, pattern in (("tests/programs", "*.json"), ("p4/compiled", "*.json.gz"))
    for path in sorted((ROOT / folder).glob(pattern))
]


def unrolled(body: lowered.Body) -> lowered.Body:
    """``body`` with its loops written out."""

    def expand(statements: lowered.Body) -> lowered.Body:
        flat: list[lowered.Statement] = []
        for statement in statements:
            if isinstance(statement, lowered.Loop):
                for k in range(statement.count):
                    flat.extend(instantiate(statement.body, k))
            else:
                flat.append(statement)
        return tuple(flat)

    def replace(node: object) -> object:
        match node:
            case lowered.If(condition, then, otherwise):
                return lowered.If(condition, expand(then), expand(otherwise))
            case lowered.Dispatch(table, bodies):
                return lowered.Dispatch(table, tuple(map(expand, bodies)))
            case lowered.Blocks(first, blocks):
                return lowered.Blocks(first, tuple((n, expand(inner)) for n, inner in blocks))
            case _:
                return node

    return expand(rebuild(body, replace))


@pytest.mark.repeats(
    "the same with the other programs",
    but=["jit_*", "switch_*", "*-32.json.gz", "*-thin.json.gz", "harvest-64.json.gz"],
)
@pytest.mark.parametrize(
    "path",
    tiered(
        PROGRAMS,
        [path for path in PROGRAMS if not path.name.startswith("fuzz_")],
        "the same with the other programs",
    ),
    ids=lambda path: path.name,
)
def test_rolled_up_means_the_same(path: Path) -> None:
    program = load_program(path)
    assert not structural_reasons(program)
    for body in lower_program(program).bodies:
        assert unrolled(reroll(program, body)) == body


def loops(program: ir.Program) -> list[lowered.Loop]:
    rolled = [reroll(program, body) for body in lower_program(program).bodies]
    return [node for node in walk(tuple(rolled)) if isinstance(node, lowered.Loop)]


@pytest.mark.parametrize(
    "values", tiered([32, 64, 256], [64], "the same with packets of another size")
)
def test_slots_program_is_few_loops(values: int) -> None:
    """read, or, max: each one loop over all values; sum: too, or with 32 one over each quarter."""
    program = load_program(ROOT / f"p4/compiled/slots-{values}.json.gz")
    found = loops(program)
    sums = [values // 4] * 4 if values == 32 else [values]
    assert sorted(loop.count for loop in found) == sorted(sums + [values] * 3)
    # Sums have one statement more: whether it leaves int32. So has max: p4c's variable for the
    # value that it chooses.
    assert sorted(len(loop.body) for loop in found) == [1, 3] + [4] * (len(sums) + 1)


def test_runs_of_every_kind() -> None:
    program = load_program(ROOT / "tests/programs/jit_runs.json")
    found = loops(program)
    strides = {node.stride for node in walk(tuple(found)) if isinstance(node, lowered.Lane)}
    assert strides >= {1, 2}
    register_strides = {
        node.stride
        for node in walk(tuple(found))
        if isinstance(node, lowered.LoadCell | lowered.StoreCell)
    }
    assert register_strides >= {-1, 0, 1}
    assert any(isinstance(node, lowered.If) for loop in found for node in walk(loop))
    assert any(isinstance(node, lowered.Affine) for loop in found for node in walk(loop))


def assignments(fields: list[tuple[int, int]]) -> lowered.Body:
    return tuple(
        lowered.SetInteger(ir.FieldRef(header, field), ir.Const(7)) for header, field in fields
    )


def test_short_and_broken_runs_stay() -> None:
    program = load_program(ROOT / "tests/programs/jit_runs.json")
    header = next(i for i, each in enumerate(program.headers) if each.name == "v")
    seven = assignments([(header, i) for i in range(7)])
    assert reroll(program, seven) == seven
    gap = assignments([(header, i) for i in (0, 1, 2, 3, 5, 6, 7, 8, 9)])
    assert not any(isinstance(each, lowered.Loop) for each in reroll(program, gap))
    eight = assignments([(header, i) for i in range(8)])
    assert reroll(program, eight) == (
        lowered.Loop(8, (lowered.SetInteger(lowered.Lane(header, 0, 1), ir.Const(7)),)),
    )


def test_fields_of_other_widths_are_no_run() -> None:
    program = load_program(ROOT / "tests/programs/jit_expressions.json")
    header = next(i for i, each in enumerate(program.headers) if each.name == "x")
    body = assignments([(header, i) for i in range(15)])
    assert reroll(program, body) == body
