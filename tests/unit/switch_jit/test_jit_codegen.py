"""Emitted code compiled by its own pipeline: the same results, and no reference lost or kept."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import int64, njit
from support.tiers import tiered

from innet.core.packets import PacketBatch
from innet.switch import Switch
from innet.switch.jit.codegen import StraightPipeline

PROGRAM = Path(__file__).parents[2] / "programs" / "as_bmv2_lengths.json"


@njit(error_model="numpy", pipeline_class=StraightPipeline)
def grown(start, rounds, wanted):
    """The numbers 0 .. rounds - 1 in an array that grows, and one that only some ways make."""
    held = other = start
    used = int64(0)
    while used < rounds:
        if used == len(held):
            longer = np.empty(2 * len(held) + 1, np.int64)
            longer[:used] = held
            held = longer
        if used == wanted:
            other = np.empty(1, np.int64)
            other[0] = used
        held[used] = used
        used += 1
    return held[:used], other


@pytest.mark.xdist_group("made again")  # by one function, which each process would compile
@pytest.mark.parametrize(
    ("wanted", "rounds"),
    tiered(
        [(wanted, rounds) for wanted in (-1, 0, 50) for rounds in (0, 1, 100)],
        [(-1, 1), (0, 0), (50, 100)],
        "each number with each other",
    ),
)
def test_arrays_that_are_made_again(wanted: int, rounds: int) -> None:
    start = np.full(1, -1, np.int64)
    held, other = grown(start, rounds, wanted)
    np.testing.assert_array_equal(held, np.arange(rounds))
    assert other.tolist() == ([wanted] if 0 <= wanted < rounds else start.tolist())


@pytest.mark.repeats("arrays that are made again")
def test_references_to_arguments_are_given_back() -> None:
    grown(np.zeros(4, np.int64), 0, 1)  # compiled now, which may keep an argument in its frames
    start = np.zeros(4, np.int64)
    before = sys.getrefcount(start)
    for rounds in (0, 3, 100):
        grown(start, rounds, 1)
    assert sys.getrefcount(start) == before


def test_emitted_code_frees_what_it_makes() -> None:
    """Buffers of a megabyte and more, in every call."""
    switch = Switch.load(PROGRAM, engine="jit")
    packets = PacketBatch.from_packets([(1, bytes(range(256)) * 4096)])
    for round_ in range(200):
        switch.process_batch(packets)
        if round_ == 20:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # KiB
