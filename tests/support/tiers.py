"""Parameters of tests that run in two tiers (CONTRIBUTING.md, "Tests")."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings


def tiered(
    cases: Iterable[Any],
    first: Collection[Any],
    repeats: str,
    marks: Callable[[Any], Iterable[pytest.MarkDecorator]] = lambda case: (),
) -> list[Any]:
    """``cases`` for ``pytest.mark.parametrize``: those in ``first`` for the first tier.

    Args:
        cases: values, or tuples of them; what occurs twice is one case.
        first: some of them; it must have no other.
        repeats: what the others repeat.
        marks: what a case is marked with besides.
    """
    known = list(cases)
    if strange := [case for case in first if case not in known]:
        raise ValueError(f"no case is {strange[0]!r}")
    found = []
    for number, case in enumerate(known):
        if case not in known[:number]:
            mark = [] if case in first else [pytest.mark.repeats(repeats)]
            values = case if isinstance(case, tuple) else (case,)
            found.append(pytest.param(*values, marks=[*marks(case), *mark]))
    return found


def seeds(count: int, first: int = 1) -> list[Any]:
    """Seeds from 0; all but the first ones for the second tier."""
    return tiered(range(count), range(first), "the same with other seeds")


def examples(count: int) -> int:
    """For ``max_examples`` of Hypothesis: a quarter of them in the first tier (of 100, too).

    Args:
        count: those of the second tier.
    """
    return count // 4 if settings.default.max_examples < 100 else count
