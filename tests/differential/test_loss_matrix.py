"""Sums over bad networks are those of good ones, bit for bit: by loss, program, workers, codec.

Of all combinations a sample runs in which every pair of settings occurs; the second tier runs every
one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from innet import Collective
from innet.core.errors import CompositionError
from innet.network import Faults
from innet.protocol import Timing
from innet.topology.hashed import HashedAggregation

LOSS = (0.0, 0.001, 0.01, 0.1, 0.5)
DUPLICATE = (0.0, 0.1)
REORDER = (0.0, 0.2)
PROGRAMS = ("slots", "harvest", "harvest-256", "tree", "hashed")
WORKERS = (1, 2, 4, 8, 32)
CODECS = ("dense", "lhc", "scalecom")
AXES: tuple[Sequence[object], ...] = (LOSS, DUPLICATE, REORDER, PROGRAMS, WORKERS, CODECS)

SIZE = 300
# Patient, as half of the packets of 32 workers are lost on each of several links.
TIMING = Timing(timeout=0.02, max_timeout=0.05, give_up=1000.0)


def sample() -> list[tuple[object, ...]]:
    """Few combinations in which every two settings of different axes meet, chosen greedily."""
    everything = list(itertools.product(*AXES))
    rng = np.random.default_rng(0)
    left = {pair for combination in everything for pair in pairs(combination)}
    chosen: list[tuple[object, ...]] = []
    while left:
        some = [everything[i] for i in rng.integers(0, len(everything), 60)]
        best = max(some, key=lambda combination: len(left & pairs(combination)))
        if left & pairs(best):
            chosen.append(best)
            left -= pairs(best)
    return chosen


def pairs(combination: tuple[object, ...]) -> set[tuple[object, ...]]:
    return set(itertools.combinations(enumerate(combination), 2))


@cache
def gradients(workers: int) -> list[np.ndarray]:
    rng = np.random.default_rng(workers)
    made = []
    for _ in range(workers):
        gradient = np.zeros(SIZE, np.float32)
        places = rng.choice(SIZE, SIZE // 4, replace=False)
        gradient[places] = rng.standard_normal(len(places)).astype(np.float32)
        made.append(gradient)
    return made


def sums(program: str, workers: int, codec: str, faults: Faults | None) -> list[np.ndarray]:
    """Of two all-reduces, the second with what the codecs held back from the first."""
    collective = Collective(
        workers=workers,
        codec=codec,
        program=program.partition("-")[0],
        values_per_packet={"harvest": 64, "harvest-256": 256}.get(program, 32),
        window=16 if program != "hashed" else None,
        racks=2 if program in ("tree", "hashed") and workers > 1 else None,
        faults=faults,
        timing=TIMING,
        seed=1,
    )
    found = []
    for _ in range(2):
        total, report = collective.all_reduce(gradients(workers))
        assert report.exact
        found.append(total)
    return found


@cache
def undisturbed(workers: int, codec: str) -> list[np.ndarray]:
    return sums("slots", workers, codec, None)


def test_the_sample_has_every_pair() -> None:
    met = set().union(*(pairs(combination) for combination in sample()))
    everything = itertools.product(*AXES)
    expected = set().union(*(pairs(each) for each in everything))
    assert met == expected


def test_codecs_that_wrap_are_refused_where_sums_saturate(monkeypatch) -> None:
    monkeypatch.setattr(HashedAggregation, "saturates", True)
    with pytest.raises(CompositionError, match="hashed stay at the ends of int32"):
        sums("hashed", 2, "lhc", None)


@pytest.mark.repeats("test_bit_equal, with combinations of pairs that the sample has")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_bit_equal_over_every_network(program: str, workers: int, codec: str) -> None:
    for loss, duplicate, reorder in itertools.product(LOSS, DUPLICATE, REORDER):
        test_bit_equal(loss, duplicate, reorder, program, workers, codec)


@pytest.mark.parametrize(("loss", "duplicate", "reorder", "program", "workers", "codec"), sample())
def test_bit_equal(
    loss: float, duplicate: float, reorder: float, program: str, workers: int, codec: str
) -> None:
    faults = Faults(
        loss=loss, duplicate=duplicate, reorder=reorder, hold=0.02, delay=1e-4, tick=4e-3
    )
    for total, expected in zip(
        sums(program, workers, codec, faults), undisturbed(workers, codec), strict=True
    ):
        np.testing.assert_array_equal(total, expected)
