"""Tables of any shape, without a program that has them."""

from __future__ import annotations

import dataclasses

import numpy as np

from innet.switch import ir
from innet.switch.jit.tables.arrays import Argument, TableArguments
from innet.switch.state.profiles import ProfileState
from innet.switch.state.tables import Generation, TableState
from support.state_fuzzer import interesting_number

KIND = ir.MatchKind


def table_of(
    base: ir.Program, *parts: tuple[ir.MatchKind, int], size: int = 4096, parameters: int = 0
) -> TableState:
    """A table with keys of these kinds and widths; one action with so many parameters."""
    rank = [KIND.EXACT, KIND.LPM, KIND.TERNARY, KIND.RANGE]
    action = next(i for i, each in enumerate(base.actions) if len(each.parameters) == parameters)
    table = dataclasses.replace(
        base.tables[0],
        match=max((kind for kind, _ in parts), key=rank.index),
        keys=tuple(ir.TableKey(kind, ir.FieldRef(0, 0), width, None, "") for kind, width in parts),
        max_size=size,
        actions=(action,),
        next=(None,),
        default=None,
        entries=(),
        immutable=False,
        with_counters=False,
    )
    return TableState(table, Generation(), base.actions)


def table_arguments(
    program: ir.Program, state: TableState, profile: ProfileState | None = None
) -> list[Argument]:
    """The arguments of compiled code for a table that does not change."""
    return TableArguments(program, state, profile).settle()


def random_match(rng: np.random.Generator, kind: ir.MatchKind, width: int) -> ir.Match:
    """What an entry says about a field; all is possible."""
    value = interesting_number(rng, width)
    match kind:
        case KIND.LPM:
            return ir.LpmMatch(value, int(rng.integers(0, width + 1)))
        case KIND.TERNARY:
            mask = interesting_number(rng, width)
            return ir.TernaryMatch(value & mask, mask)
        case KIND.RANGE:
            other = interesting_number(rng, width)
            return ir.RangeMatch(min(value, other), max(value, other))
        case _:
            return ir.ExactMatch(value)
