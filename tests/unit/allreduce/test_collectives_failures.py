"""Collectives with owners where workers die, switches forget and links do everything at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.tiers import seeds, tiered

from innet import Collective
from innet.core.errors import StalledError
from innet.network import Faults, Outage
from innet.protocol import Timing

NAMES = ("reduce-scatter", "reduce", "all-gather", "broadcast", "barrier")
WORKERS = 3
SIZE = 64 * 40
SLOW = {"delay": 1e-3, "tick": 1e-4}  # a round trip takes 2 ms, so that there are phases to die in
WAIT = Timing(timeout=0.01, max_timeout=0.05, give_up=0.4)
PHASES = [0.0, 1.5e-3, 2.5e-3, 5e-3]

Call = Callable[[], tuple[list[np.ndarray], list[np.ndarray]]]
"""Runs a collective: what came of it, and what should have."""


def collective(**arguments: object) -> Collective:
    given = {"workers": WORKERS, "program": "collectives", "codec": "exact", "window": 8}
    return Collective(**{**given, "timing": WAIT, **arguments})


def given_to(workers: int, size: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(size).astype(np.float32) for _ in range(workers)]


def call_of(
    network: Collective, name: str, given: list[np.ndarray], root: int, cuts: list[int]
) -> Call:
    """``cuts``: where each worker's part of ``given`` begins, but for the first."""
    total = np.sum(given, axis=0, dtype=np.float64).astype(np.float32)
    own = [np.split(each, cuts)[worker] for worker, each in enumerate(given)]

    def run() -> tuple[list[np.ndarray], list[np.ndarray]]:
        if name == "reduce-scatter":
            sizes = [len(each) for each in own]
            parts, report = network.reduce_scatter(given, sizes=sizes)
            found, expected = parts, np.split(total, cuts)
        elif name == "reduce":
            one, report = network.reduce(given, root)
            found, expected = [one], [total]
        elif name == "all-gather":
            one, report = network.all_gather(own)
            found, expected = [one], [np.concatenate(own)]
        elif name == "broadcast":
            one, report = network.broadcast(own[root], root)
            found, expected = [one], [own[root]]
        elif name == "all-reduce":
            one, report = network.all_reduce(given)
            found, expected = [one], [total]
        else:
            report = network.barrier()
            found, expected = [], []
        assert report.exact is not False
        return found, expected

    return run


def assert_right(call: Call) -> None:
    found, expected = call()
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def one_call(network: Collective, name: str, root: int = 0) -> Call:
    given = given_to(WORKERS, SIZE, 0)
    return call_of(network, name, given, root, [SIZE // 3, SIZE // 2])


def run_until(network: Collective, call: Call, when: float) -> None:
    """Again and again, until one was under way at a time; each of them is right."""
    while network.network.now <= when:
        assert_right(call)


# ---------------------------------------------------------------- death


@pytest.mark.parametrize(
    ("name", "victim", "when"),
    tiered(
        [(name, victim, when) for name in NAMES for victim in range(WORKERS) for when in PHASES],
        [(name, victim, 1.5e-3) for name in NAMES for victim in (0, 1)],
        "the same at another phase",
    ),
)
def test_whoever_dies_is_named_in_time(name: str, victim: int, when: float) -> None:
    """The owner, or another, before the first packet or while many are under way."""
    network = collective(faults=Faults(**SLOW, outages=(Outage(when, hosts=(victim + 1,)),)))
    with pytest.raises(StalledError, match=rf"worker {victim}\b"):
        run_until(network, one_call(network, name), when + 2e-3)
    assert when <= network.network.now <= when + 1.0


# ---------------------------------------------------------------- switches that forget


@pytest.mark.parametrize(
    ("name", "when"),
    tiered(
        [(name, when) for name in NAMES for when in (0.5e-3, 1.3e-3, 3.3e-3, 5.5e-3)],
        [("reduce-scatter", 3.3e-3), ("all-gather", 3.3e-3), ("barrier", 1.3e-3)],
        "the same at another phase",
    ),
)
def test_a_switch_that_forgets_gives_no_wrong_values(name: str, when: float) -> None:
    """What was under way is repeated, or its workers say that they stall; the next one is right."""
    network = collective(faults=Faults(**SLOW, loss=0.05, restarts=(when,)), attempts=2)
    call = one_call(network, name, root=1)
    try:
        run_until(network, call, when)
    except StalledError:
        assert network.network.now < when + 1.0
    assert_right(call)


# ---------------------------------------------------------------- everything at once


@pytest.mark.parametrize("seed", seeds(40))
def test_mixes_of_faults(seed: int) -> None:
    """Any collectives, one after the other, of any sizes, over links with any faults.

    A quarter of them in simulated time, whose links are faster.
    """
    rng = np.random.default_rng(seed)
    simulated = seed % 4 == 3
    second = 5e-3 if simulated else 1.0

    def often(most: float) -> float:
        return float(rng.choice([0.0, rng.uniform(0, most)]))

    faults = Faults(
        loss=often(0.4),
        duplicate=often(0.3),
        reorder=often(0.3),
        corrupt=often(0.1),
        truncate=often(0.1),
        mark=often(0.3),
        jitter=often(2e-3 * second),
        hold=0.02 * second,
        delay=0.0 if simulated else 1e-4,
        tick=1e-3,
    )
    timing = Timing(
        timeout=0.05 * second,
        max_timeout=0.2 * second,
        give_up=1000.0,
        window_control="aimd" if rng.integers(2) else "fixed",
    )
    workers = int(rng.integers(1, 8))
    network = collective(
        workers=workers,
        framing="raw" if rng.integers(2) else "udp",
        window=int(rng.choice([1, 2, 8, 32])),
        faults=faults,
        timing=timing,
        network="100g" if simulated else None,
        seed=seed,
    )
    for step in range(6):
        size = int(rng.choice([1, 63, 64, 65, 500, 1500]))
        cuts = np.sort(rng.integers(0, size + 1, workers - 1)).tolist()
        name = str(rng.choice([*NAMES, "all-reduce"]))
        root = int(rng.integers(workers))
        assert_right(call_of(network, name, given_to(workers, size, step), root, cuts))
    assert all(end.counters.refused == {} for end in network.network.workers) or (
        faults.corrupt + faults.truncate > 0
    )
