"""The table of the battery of collectives: what it calls, and that its cases hold all pairs."""

from __future__ import annotations

import inspect
import random
import types

import pytest

torch = pytest.importorskip("torch")

from support.collective_table import (  # noqa: E402 - after importorskip
    AXES,
    COLLECTIVES,
    cases,
    settled,
)
from support.pairwise import all_pairs, pairs_of  # noqa: E402

CASES = 592  # those of functions that a PyTorch lacks are left out


def test_each_two_settings_occur_together():
    held = {pair for case in cases() for pair in pairs_of(case)}
    chance = random.Random(7)
    for _ in range(3000):
        drawn = settled({axis: chance.choice(settings) for axis, settings in AXES.items()})
        missing = [pair for pair in pairs_of(drawn) if "" not in dict(pair).values()]
        assert held.issuperset(missing), drawn
    assert len(cases()) == CASES


def test_pairs_take_few_cases():
    axes = {name: [f"{name}{k}" for k in range(4)] for name in "abcd"}
    found = all_pairs(axes)
    assert {pair for case in found for pair in pairs_of(case)} == {
        ((a, one), (b, other))
        for a in axes
        for b in axes
        if a < b
        for one in axes[a]
        for other in axes[b]
    }
    assert 16 <= len(found) <= 28  # of 256


# Of torch.distributed, with a tensor among its arguments: what is no collective.
OTHERS = {"P2POp", "get_default_backend_for_device"}


def test_every_function_that_moves_tensors_is_in_the_table():
    dist = torch.distributed
    known = {name for each in COLLECTIVES.values() for name in each.functions} | OTHERS
    moved = ("tensor", "object_list", "obj", "output", "input")
    functions = vars(dist.distributed_c10d).items()
    for name, function in functions:
        if name.startswith("_") or type(function) is not types.FunctionType:
            continue
        parameters = inspect.signature(function).parameters
        if "group" in parameters and any(each.startswith(moved) for each in parameters):
            assert name in known, f"this PyTorch has torch.distributed.{name}: add it to the table"
