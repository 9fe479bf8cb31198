"""tree and hashed without those who are late: whoever has a chunk's result has the same one."""

from __future__ import annotations

import numpy as np
import pytest
from support.networks import mute, network, text_if_congested
from support.tiers import seeds

from innet.core.errors import StalledError
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults, Outage
from innet.programs import CompiledProgram
from innet.protocol import Timing
from innet.protocol.parameter_server import ParameterServer
from innet.topology import EmulatedNetwork, aggregation_of
from innet.wire import HeaderFlag

VALUES = 32
CHUNKS = 24
SHAPES = [
    ("tree", 4, {"racks": 1, "depth": 1}),
    ("tree", 4, {"racks": 2}),
    ("tree", 6, {"racks": 4, "depth": 3}),
    ("tree", 40, {"racks": 6, "depth": 3}),
    ("tree", 6, {"topology": "leaf-spine:racks=3,spines=3,trees=3"}),
    ("adaptive-tree", 6, {"topology": "leaf-spine:racks=3,spines=4,trees=4"}),
    ("hashed", 4, {}),
    ("hashed", 4, {"racks": 2}),
    ("hashed", 6, {"racks": 4, "depth": 3}),
]
GOING_ON = Timing(timeout=0.01, max_timeout=0.05, give_up=1.0, partial_after=0.1)
HASTY = Timing(timeout=0.002, max_timeout=0.02, give_up=1.0, partial_after=0.015)
LATE = 10  # index of the counter


NAMES = 30  # workers that one word of a chunk names, one bit each


@pytest.fixture(autouse=True)
def _slots_move(monkeypatch):
    """Those of adaptive-tree, with every chunk."""
    monkeypatch.setattr(CompiledProgram, "text", text_if_congested)


def words_of(workers: int, values: int = VALUES) -> list[np.ndarray]:
    """Of each worker, (chunks, values). The first of a chunk's words add up to who is in it."""
    rng = np.random.default_rng(workers)
    found = []
    for worker in range(workers):
        words = rng.integers(-(2**20), 2**20, (CHUNKS, values)).astype(np.int32)
        words[:, : -(-workers // NAMES)] = 0
        words[:, worker // NAMES] = 1 << worker % NAMES
        found.append(words)
    return found


def run(net: EmulatedNetwork, words: list[np.ndarray]) -> str:
    """One all-reduce; what was said if it stalled."""
    for end, each in zip(net.workers, words, strict=True):
        end.start([Segment(ReduceOp.SUM, each.reshape(-1))], net.now)
        end._message.combined[:] = 0  # which tells chunks without a result
    try:
        net.run()
    except StalledError as error:
        return str(error)
    return ""


def hold_same(net: EmulatedNetwork, words: list[np.ndarray]) -> np.ndarray:
    """All results of a chunk are the same sum, of those whom it names, and every worker is told
    the truth about itself and about all whom its bitmap names.

    Returns:
        (chunks, workers), who is in; nobody where no worker has a result.
    """
    workers = len(words)
    together = np.zeros((CHUNKS, workers), bool)
    known = np.zeros(CHUNKS, bool)
    stacked = np.stack(words)
    job = net.plan.job
    for end in net.workers:
        names = end._message.combined[:, : -(-workers // NAMES), None] >> np.arange(NAMES) & 1
        inside = names.reshape(CHUNKS, -1)[:, :workers].astype(bool)
        have = inside.any(1)
        assert (inside[have & known] == together[have & known]).all()
        together[have & ~known] = inside[have & ~known]
        known |= have
        # Whom the bitmap names: all workers of the job, or the neighbors at the same switch.
        own = job.members[end.member.worker]
        for other, member in enumerate(job.members):
            if member.switch == own.switch or own.bit is None:
                bit = np.uint32(other if member.bit is None else member.bit)
                said = (end.bitmaps >> bit & 1).astype(bool)
                assert (said[have] == inside[have, other]).all()
    expected = np.einsum("cw,wcv->cv", together, stacked).astype(np.int32)
    for end in net.workers:
        have = (end._message.combined != 0).any(1)
        np.testing.assert_array_equal(end._message.combined[have], expected[have])
    return together


def late(net: EmulatedNetwork) -> int:
    """Contributions that came too late, by all counters there are."""
    counted = sum(
        int(switch.counters["dropped"].packets[LATE])
        for switch in net.switches.values()
        if len(switch.counters["dropped"].packets) > LATE
    )
    servers = (end for end in net.hosts.values() if isinstance(end, ParameterServer))
    return counted + sum(end.counters.refused["late"] for end in servers)


def late_workers(net: EmulatedNetwork) -> frozenset[int]:
    """As the coordinator finds them, in the switches' registers."""
    return aggregation_of("tree").late_workers(
        net.plan, lambda switch, name: net.switches[switch].registers[name].tolist()
    )


@pytest.mark.repeats("the same with others who die", but=["*-(0,)", "*-(1, 2)"])
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
    assert [np.flatnonzero(inside).tolist() for inside in together] == [alive] * CHUNKS
    # Of a tree's other racks a worker knows only that somebody is missing.
    assert {net.workers[worker].missing for worker in alive} == {
        () if program != "hashed" else dead
    }
    if program != "hashed":  # the dead hear, and are told that they are not in
        assert [net.workers[worker].missing for worker in dead] == [(worker,) for worker in dead]
        assert late_workers(net) == set(dead)
    assert all(HeaderFlag.PARTIAL in net.workers[worker].result_flags for worker in alive)


@pytest.mark.repeats(
    "the same with more workers", but=["tree-4-*", "tree-6-*", "adaptive-*", "hashed-4-{'r*"]
)
@pytest.mark.parametrize("seed", seeds(2))
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
    assert (together.any(1) & ~together.all(1)).any()
    assert together.all(1).any()


@pytest.mark.parametrize(("program", "workers", "shape"), SHAPES, ids=str)
def test_who_comes_late_is_counted_and_told_the_result(program, workers, shape):
    """Worker 1 is cut off while others close the chunks under way without it."""
    cut = Faults(delay=1e-3, tick=1e-4, outages=(Outage(0.0, 0.4, (2,)),))
    net = network(program, workers, window=32, timing=GOING_ON, faults=cut, **shape)
    words = words_of(workers)
    assert run(net, words) == ""
    together = hold_same(net, words)
    assert [np.flatnonzero(~inside).tolist() for inside in together] == [[1]] * CHUNKS
    missing = [end.missing for end in net.workers]
    assert missing == [
        (1,) if program == "hashed" or worker == 1 else () for worker in range(workers)
    ]
    assert late(net) >= CHUNKS
    # The next one waits for all again.
    net.now = 1.0
    assert run(net, words) == ""
    assert hold_same(net, words).all()
    assert all(end.missing == () for end in net.workers)
