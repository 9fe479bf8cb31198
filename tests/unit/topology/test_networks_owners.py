"""Chunks with an owner in trees: exact whatever the links do, with values where they are due."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.networks import BAD, all_reduce, hold_exact, network, watch
from support.tiers import tiered

from innet.core.errors import StalledError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp, Segment
from innet.network import Faults
from innet.protocol import Timing
from innet.topology import EmulatedNetwork
from innet.topology.topologies import TreeNode
from innet.topology.tree import UP_PORT, below, shape_of

REDUCE, BROADCAST, BARRIER = CollectiveOp
VALUES = 64
LENGTHS = (130, 0, 64, 7, 200, 1, 63)  # of the workers' shards
SHAPES = [
    (1, {}),
    (2, {"racks": 1, "depth": 3}),
    (4, {"racks": 1, "depth": 1}),
    (4, {"racks": 2}),
    (5, {"racks": 3}),
    (4, {"racks": 4, "depth": 3}),
    (7, {"racks": 3, "depth": 3}),
    (9, {"topology": "dumbbell"}),
    (33, {}),
    (64, {"topology": "leaf-spine"}),
    (64, {"racks": 12, "depth": 3}),
]
FEWER = "the same with fewer workers"
MILD = Faults(loss=0.03, duplicate=0.03, reorder=0.1, hold=0.05, jitter=5e-3, tick=5e-3)
SLOW = Faults(delay=5e-4, tick=1e-4)  # a packet takes half a millisecond on each link
Given = list[list[Segment]]


def tree(workers: int, **settings: object) -> EmulatedNetwork:
    return network("collectives-tree", workers, values=VALUES, **settings)


def shards(
    rng: np.random.Generator, workers: int, *operations: CollectiveOp, lengths: tuple[int, ...] = ()
) -> Given:
    """Of each worker: a segment of each operation for each owner, and a sum.

    What a worker need not send is noise, too.
    """
    size = [*(lengths or LENGTHS)] * workers
    shape = [(each, size[owner], owner) for owner in range(workers) for each in operations]
    shape += [(ReduceOp.SUM, 10, None), (BARRIER, 1, workers - 1)]
    low, high = -(2**31), 2**31
    return [
        [
            Segment(operation, rng.integers(low, high, length).astype(np.int32), owner)
            for operation, length, owner in shape
        ]
        for _ in range(workers)
    ]


def start(net: EmulatedNetwork, given: Given) -> None:
    for end, segments in zip(net.workers, given, strict=True):
        end.start(segments, net.now)


# ---------------------------------------------------------------- exact


@pytest.mark.parametrize("faults", [None, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize(
    ("workers", "shape"), tiered(SHAPES, [each for each in SHAPES if each[0] < 10], FEWER), ids=str
)
def test_everybody_gets_what_it_is_to_get(workers, shape, faults):
    """Twice, so that slots are taken over: one after the other, and both at once."""
    rng = np.random.default_rng(workers)
    lengths = LENGTHS
    if workers >= 10:
        lengths, faults = (70, *[0] * 30, 1), faults and MILD
    net = tree(workers, faults=faults, seed=workers, **shape)
    for operations in ((REDUCE,), (BROADCAST,), (REDUCE, BROADCAST)):
        all_reduce(net, shards(rng, workers, *operations, lengths=lengths))
    for end in net.workers:
        assert end.counters.refused == {}
        if faults is None:
            assert end.counters.retransmissions == end.counters.duplicates == 0


@pytest.mark.parametrize("framing", ["udp", "raw"])
@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_engines_and_framings(engine, framing):
    net = tree(3, racks=2, engine=engine, framing=framing, faults=Faults(loss=0.05))
    all_reduce(net, shards(np.random.default_rng(0), 3, REDUCE, BROADCAST))


@pytest.mark.repeats("test_everybody_gets_what_it_is_to_get, with more workers")
@pytest.mark.parametrize(
    ("shape", "faults"), [({}, MILD), ({"racks": 64, "depth": 4}, None)], ids=["bad", "perfect"]
)
def test_1024_workers(shape, faults):
    """Shards of which most are empty."""
    rng = np.random.default_rng(1024)
    net = tree(1024, faults=faults, window=16, **shape)
    for operations in ((REDUCE,), (BROADCAST,)):
        all_reduce(net, shards(rng, 1024, *operations, lengths=(0,) * 255 + (70,)))


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("operation", list(CollectiveOp), ids=str)
@pytest.mark.parametrize(
    ("workers", "shape"), [(5, {"racks": 3}), (4, {"racks": 4, "depth": 3})], ids=str
)
def test_each_link_carries_values_once_where_they_are_due(workers, shape, operation):
    """Of a chunk one packet goes up each link, and one down.

    From a worker up to a rack, rack to rack: it has values if somebody below has something to add
    to them. Down it has values if somebody below is to get them.
    """
    net = tree(workers, **shape)
    chunks, words = 5, [np.full(5 * VALUES, 7, np.int32)] * workers
    for owner in range(workers):
        seen = watch(net)
        before = [(end.counters.bytes_sent, end.counters.bytes_received) for end in net.workers]
        start(net, [[Segment(operation, each, owner)] for each in words])
        net.run()
        whole, bare = net.plan.layout.frame_size, net.plan.layout.bare_size

        def size(there: range, *, up: bool, owner: int = owner) -> int:
            from_owner = (operation == BROADCAST) == up
            due = owner in there if from_owner else any(worker != owner for worker in there)
            return whole if due and operation != BARRIER else bare  # noqa: B023

        for node, parent in shape_of(net.plan).with_parents():
            arrived = Counter((port, len(data)) for port, data in seen[node.name])
            expected = Counter(
                {
                    (each.port, size(each.workers, up=True)): chunks
                    for each in below(node, net.plan.job.members)
                }
            )
            if parent is not None:
                expected[UP_PORT, size(node.workers, up=False)] = chunks
            assert arrived == expected, node.name
        for worker, end in enumerate(net.workers):
            there = range(worker, worker + 1)
            sent = end.counters.bytes_sent - before[worker][0]
            received = end.counters.bytes_received - before[worker][1]
            assert (sent, received) == (
                chunks * size(there, up=True), chunks * size(there, up=False)
            )  # fmt: skip


def test_a_worker_sends_and_receives_what_it_does_with_one_switch():
    """Reduce-scatter and all-gather with uneven and empty shards, to the byte."""
    found = []
    for net in (tree(7, racks=3, depth=3), network("collectives", 7, values=VALUES)):
        rng = np.random.default_rng(7)
        all_reduce(net, shards(rng, 7, REDUCE))
        all_reduce(net, shards(rng, 7, BROADCAST))
        found.append(
            [(each.counters.bytes_sent, each.counters.bytes_received) for each in net.workers]
        )
    assert found[0] == found[1]


# ---------------------------------------------------------------- what fails


def nodes_of(net: EmulatedNetwork) -> dict[str, TreeNode]:
    """The root, a switch between it and a leaf, and this leaf."""
    root = shape_of(net.plan)
    middle = root.children[-1]
    return {"root": root, "middle": middle, "leaf": middle.children[0]}


def restart(net: EmulatedNetwork, switch: str, after: int) -> list[int]:
    """``switch`` loses all registers before its ``after``-th batch of packets; says when it has."""
    running = net.switches[switch]
    inner, calls, done = running.process_batch, [0], []

    def process(batch: PacketBatch, **times: object) -> PacketBatch:
        calls[0] += 1
        if calls[0] == after:
            for cells in running.registers.values():
                cells[:] = 0
            done.append(after)
        return inner(batch, **times)

    running.process_batch = process
    return done


@pytest.mark.parametrize("operation", [REDUCE, BROADCAST], ids=str)
@pytest.mark.parametrize("which", ["root", "middle", "leaf"])
@pytest.mark.parametrize("after", tiered(range(2, 7), [3, 5], "the same at another time"))
def test_a_switch_that_restarts(which, after, operation):
    """Nobody takes anything wrong. If it stalls, the next epoch ends that."""
    timing = Timing(timeout=5e-3, max_timeout=0.1, give_up=2.0)
    net = tree(6, racks=4, depth=3, faults=SLOW, timing=timing)
    given = shards(np.random.default_rng(after), 6, operation, lengths=(800, 0, 500))
    done = restart(net, nodes_of(net)[which].name, after)
    start(net, given)
    try:
        net.run()
    except StalledError:
        net.begin_epoch([])
        start(net, given)
        net.run()
    assert done
    hold_exact(net, given)


@pytest.mark.parametrize("operation", [REDUCE, BROADCAST], ids=str)
def test_a_dead_worker_is_named_and_left_out(operation):
    """Owner or not; chunks that it owns go on without it, and with zeros."""
    net = tree(5, racks=3, timing=Timing(timeout=0.01, give_up=0.5))
    given = shards(np.random.default_rng(3), 5, operation)
    dead = net.workers[3]
    speak, size = dead.outgoing, net.plan.layout.frame_size

    def mumble(now: float) -> np.ndarray:
        speak(now)
        return np.empty((0, size), np.uint8)

    dead.outgoing = mumble
    start(net, given)
    with pytest.raises(StalledError, match=r"waits for worker 3\."):
        net.run()
    net.begin_epoch([3])
    others = [worker for worker in range(5) if worker != 3]
    for worker in others:
        net.workers[worker].start(given[worker], net.now)
    net.run()
    for index, segment in enumerate(given[0]):
        if segment.operation != operation:
            continue
        owner = segment.owner
        for worker in others:
            found = net.workers[worker].results()[index]
            if operation == REDUCE and worker == owner:
                words = [given[each][index].words for each in others if each != owner]
                np.testing.assert_array_equal(found, np.sum(words, axis=0, dtype=np.int32))
            if operation == BROADCAST and worker != owner:
                sent = given[owner][index].words
                np.testing.assert_array_equal(found, sent * (owner != 3))
