"""Cases in which each two settings occur together, without all combinations of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence

Case = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]
_TRIES = 30  # of which the one with the most new pairs is taken


def pairs_of(case: Case) -> list[Pair]:
    """Each two settings of a case, as (axis, setting), in the order of the axes."""
    return list(itertools.combinations(case.items(), 2))


def all_pairs(
    axes: Mapping[str, Sequence[str]],
    settled: Callable[[Case], Case] = lambda case: case,
    seed: int = 0,
) -> list[Case]:
    """Cases that hold every pair of settings that a case can hold; the same for the same arguments.

    Greedy, as AETG does it (Cohen et al., 1997): each case begins with a pair that is missing, and
    of some that are drawn around it the one with the most missing pairs is taken.

    Args:
        axes: the settings, by axis.
        settled: a case without the settings that mean nothing in it, which are "" then.
        seed: of what is drawn.
    """
    chance = random.Random(seed)
    two = itertools.combinations(axes, 2)
    pairs = [
        ((a, one), (b, other)) for a, b in two for one, other in itertools.product(axes[a], axes[b])
    ]
    chance.shuffle(pairs)
    missing = dict.fromkeys(pairs)  # a set that keeps the order
    cases = []
    while missing:
        pair, _ = missing.popitem()
        drawn = [
            settled({axis: chance.choice(settings) for axis, settings in axes.items()} | dict(pair))
            for _ in range(_TRIES)
        ]
        fitting = [case for case in drawn if dict(pair).items() <= case.items()]
        if fitting:
            best = max(fitting, key=lambda case: sum(each in missing for each in pairs_of(case)))
            cases.append(best)
            for each in pairs_of(best):
                missing.pop(each, None)
    return cases
