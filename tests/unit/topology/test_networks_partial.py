"""tree and hashed without those who are late: whoever has a chunk's result has the same one."""

from __future__ import annotations

import numpy as np
import pytest
from support.networks import mute, network

from innet.core.errors import StalledError
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults, Outage
from innet.protocol import Timing
from innet.protocol.parameter_server import ParameterServer
from innet.topology import Emulation
from innet.wire import Flag

VALUES = 32
CHUNKS = 24
SHAPES = [
    ("tree", 4, {"racks": 1, "depth": 1}),
    ("tree", 4, {"racks": 2}),
    ("tree", 6, {"racks": 4, "depth": 3}),
    ("hashed", 4, {}),
    ("hashed", 4, {"racks": 2}),
    ("hashed", 6, {"racks": 4, "depth": 3}),
]
GOING_ON = Timing(timeout=0.01, max_timeout=0.05, give_up=1.0, partial_after=0.1)
HASTY = Timing(timeout=0.002, max_timeout=0.02, give_up=1.0, partial_after=0.015)
LATE = 10  # index of the counter


def words_of(workers: int) -> list[np.ndarray]:
    rng = np.random.default_rng(workers)
    return [
        rng.integers(-(2**20), 2**20, (CHUNKS, VALUES)).astype(np.int32) for _ in range(workers)
    ]


def run(net: Emulation, words: list[np.ndarray]) -> str:
    """One all-reduce; what was said if it stalled."""
    for end, each in zip(net.workers, words, strict=True):
        end.start([Segment(ReduceOp.SUM, each.reshape(-1))], net.now)
    try:
        net.run()
    except StalledError as error:
        return str(error)
    return ""


def hold_same(net: Emulation, words: list[np.ndarray]) -> np.ndarray:
    """All results of a chunk have one bitmap, and are the sum of those in it; the bitmaps."""
    bitmaps = np.stack([end.bitmaps for end in net.workers])
    together = np.bitwise_or.reduce(bitmaps)
    assert ((bitmaps == 0) | (bitmaps == together)).all()
    inside = together[:, None] >> np.arange(len(words), dtype=np.uint32) & 1
    expected = np.einsum("cw,wcv->cv", inside, np.stack(words)).astype(np.int32)
    for end, own in zip(net.workers, bitmaps, strict=True):
        have = own != 0
        np.testing.assert_array_equal(end._message.combined[have], expected[have])
    return together


def late(net: Emulation) -> int:
    """Contributions that came too late, by all counters there are."""
    counted = sum(
        int(switch.counters["refused"].packets[LATE])
        for switch in net.switches.values()
        if len(switch.counters["refused"].packets) > LATE
    )
    servers = (end for end in net.hosts.values() if isinstance(end, ParameterServer))
    return counted + sum(end.counters.refused["late"] for end in servers)


@pytest.mark.parametrize("dead", [(0,), (3,), (0, 1), (1, 2)], ids=str)
@pytest.mark.parametrize(("program", "workers", "shape"), SHAPES, ids=str)
def test_only_the_dead_are_left_out(program, workers, shape, dead):
    """Not those who share a rack with them, and not those of racks that answer later."""
    net = network(program, workers, timing=GOING_ON, **shape)
    for worker in dead:
        mute(net.workers[worker])
    words = words_of(workers)
    alive = [worker for worker in range(workers) if worker not in dead]
    run(net, words)
    assert all(net.workers[worker].done for worker in alive)
    together = hold_same(net, words)
    assert (together == sum(1 << worker for worker in alive)).all()
    assert {net.workers[worker].missing for worker in alive} == {dead}
    assert all(Flag.PARTIAL in net.workers[worker].result_flags for worker in alive)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("program", "workers", "shape"), SHAPES, ids=str)
def test_everybody_holds_the_same_over_bad_networks(program, workers, shape, seed):
    """Loss, copies and overtaking on every link, a worker that is away for a while."""
    faults = Faults(
        loss=0.15,
        duplicate=0.1,
        reorder=0.2,
        hold=0.02,
        jitter=1e-3,
        tick=1e-3,
        outages=(Outage(0.03, 0.5, (2,)),),
    )
    net = network(program, workers, window=4, faults=faults, timing=HASTY, seed=seed, **shape)
    words = words_of(workers)
    run(net, words)
    together = hold_same(net, words)
    everybody = (1 << workers) - 1
    assert ((together != 0) & (together != everybody)).any()
    assert (together == everybody).any()


@pytest.mark.parametrize(("program", "workers", "shape"), SHAPES, ids=str)
def test_who_comes_late_is_counted_and_told_the_result(program, workers, shape):
    """Worker 1 is cut off while others close the chunks under way without it."""
    cut = Faults(delay=1e-3, tick=1e-4, outages=(Outage(0.0, 0.4, (2,)),))
    net = network(program, workers, window=32, timing=GOING_ON, faults=cut, **shape)
    words = words_of(workers)
    assert run(net, words) == ""
    together = hold_same(net, words)
    assert (together == (1 << workers) - 1 - 2).all()
    assert [end.missing for end in net.workers] == [(1,)] * workers
    assert late(net) >= CHUNKS
    # The next one waits for all again.
    net.now = 1.0
    assert run(net, words) == ""
    assert (hold_same(net, words) == (1 << workers) - 1).all()
    assert all(end.missing == () for end in net.workers)
