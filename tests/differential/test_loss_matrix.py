"""Sums over bad networks are those of good ones, bit for bit: by loss, program, workers, codec.

And so are the sums and arrays of reduce-scatters, all-gathers, reduces and broadcasts, by the sizes
of what each worker owns. Of all combinations a sample runs in which every pair of settings occurs;
the second tier runs every one.
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

COLLECTIVES = ("reduce-scatter", "reduce", "all-gather", "broadcast", "barrier")
SHARDS = ("even", "uneven", "one")
OWNED: tuple[Sequence[object], ...] = (LOSS, DUPLICATE, REORDER, COLLECTIVES, WORKERS, SHARDS)

SIZE = 300
# Patient, as half of the packets of 32 workers are lost on each of several links.
TIMING = Timing(timeout=0.02, max_timeout=0.05, give_up=1000.0)


def sample(axes: tuple[Sequence[object], ...] = AXES) -> list[tuple[object, ...]]:
    """Few combinations in which every two settings of different axes meet, chosen greedily."""
    everything = list(itertools.product(*axes))
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


@pytest.mark.parametrize("axes", [AXES, OWNED], ids=["all-reduces", "others"])
def test_the_sample_has_every_pair(axes: tuple[Sequence[object], ...]) -> None:
    met = set().union(*(pairs(combination) for combination in sample(axes)))
    everything = itertools.product(*axes)
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


@pytest.mark.repeats(
    "the same with other workers",
    but=["*-slots-*", "*-tree-*", "*-harvest-?-*", "*-hashed-1-*", "*-hashed-2-*", "*-hashed-32-*"],
)
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


# ---------------------------------------------------------------- other collectives


def sizes_of(shards: str, workers: int) -> list[int]:
    """What each worker owns of ``SIZE`` elements; some own nothing."""
    if shards == "one":
        return [SIZE * (worker == workers // 2) for worker in range(workers)]
    rng = np.random.default_rng(workers)
    cuts = np.sort(rng.integers(0, SIZE + 1, workers - 1))
    if shards == "even":
        cuts = np.arange(1, workers) * SIZE // workers
    return np.diff([0, *cuts, SIZE]).tolist()


def gathered(name: str, workers: int, shards: str, faults: Faults | None) -> list[np.ndarray]:
    """What two collectives of a kind give their owners, or all."""
    collective = Collective(
        workers=workers, codec="exact", program="collectives", window=16, faults=faults,
        timing=TIMING, seed=1,
    )  # fmt: skip
    sizes, found = sizes_of(shards, workers), []
    given = gradients(workers)
    for again in range(2):
        owner = (workers // 2 + again) % workers
        if name == "reduce-scatter":
            parts, report = collective.reduce_scatter(given, sizes=sizes)
            found.append(np.concatenate(parts))
        elif name == "reduce":
            total, report = collective.reduce(given, owner)
            found.append(total)
        elif name == "all-gather":
            whole, report = collective.all_gather(
                [each[:size] for each, size in zip(given, sizes, strict=True)]
            )
            found.append(whole)
        elif name == "broadcast":
            whole, report = collective.broadcast(given[owner][: sizes[owner]], owner)
            found.append(whole)
        else:
            report = collective.barrier()
        assert report.exact is not False
        assert report.packets_sent >= workers * (name == "barrier")
    return found


def truth(name: str, workers: int, shards: str) -> list[np.ndarray]:
    """What they are to give; sums are those of float64, rounded once."""
    sizes, given = sizes_of(shards, workers), gradients(workers)
    total = np.sum(given, axis=0, dtype=np.float64).astype(np.float32)
    if name in ("reduce-scatter", "reduce"):
        return [total] * 2
    if name == "all-gather":
        return [np.concatenate([each[:n] for each, n in zip(given, sizes, strict=True)])] * 2
    owners = [(workers // 2 + again) % workers for again in range(2)]
    return [given[owner][: sizes[owner]] for owner in owners] if name == "broadcast" else []


@pytest.mark.repeats("test_every_bit_arrives, with combinations of pairs that the sample has")
@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_bit_arrives_over_every_network(name: str, workers: int, shards: str) -> None:
    for loss, duplicate, reorder in itertools.product(LOSS, DUPLICATE, REORDER):
        test_every_bit_arrives(loss, duplicate, reorder, name, workers, shards)


@pytest.mark.parametrize(
    ("loss", "duplicate", "reorder", "name", "workers", "shards"), sample(OWNED)
)
def test_every_bit_arrives(
    loss: float, duplicate: float, reorder: float, name: str, workers: int, shards: str
) -> None:
    faults = Faults(
        loss=loss, duplicate=duplicate, reorder=reorder, hold=0.02, delay=1e-4, tick=4e-3
    )
    for found, expected in zip(
        gathered(name, workers, shards, faults), truth(name, workers, shards), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
