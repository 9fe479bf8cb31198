"""Reduce-scatter, all-gather, reduce, broadcast and barrier in simulated time: closed forms.

Links are full and lose nothing. A full packet takes a link for F, one that ends with the header
for H, and across are two delays and the pipeline.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.tiers import tiered

from innet.core.reduce_op import CollectiveOp, Segment, SizedSegment
from innet.sim import Network
from innet.sim.network import OVERHEAD
from innet.topology import EmulatedNetwork, Request, make_plan

VALUES = 64
CHUNKS = 40  # of each shard
HEADER = 14 + 20 + 8 + 32
FULL = HEADER + 4 * VALUES
QUIET = Network(rate=10e9, delay=1e-6, switch_latency=5e-7, host_receive=0.0, host_send=0.0)
ACROSS = 2 * 1e-6 + 5e-7
F, H = (8 * (size + OVERHEAD) / 10e9 for size in (FULL, HEADER))
REDUCE, BROADCAST, BARRIER = CollectiveOp

workers = pytest.mark.parametrize(
    "workers", tiered([1, 2, 3, 8, 32], [1, 2, 3], "the same with more workers")
)


def exchanged(workers, segments, *, thin, network=QUIET):
    """A round of (operation, words, owner): seconds, and all that was counted."""
    plan = make_plan("collectives", VALUES, Request(workers=workers, thin=thin))
    net = EmulatedNetwork(plan, network=network)
    for worker, end in enumerate(net.workers):
        end.start(
            [SizedSegment(*each) for each in segments]
            if thin
            else [
                Segment(operation, np.full(size, worker + 1, np.int32), owner)
                for operation, size, owner in segments
            ],
            net.now,
        )
    net.run()
    if not thin:
        check(net.workers, segments)
    counted = [end.counters for end in net.workers]
    return net.now, net.simulation.counts(), counted, net.simulation.queue_bytes_max()


def check(ends, segments):
    """All have what they should have."""
    for worker, end in enumerate(ends):
        for (operation, size, owner), found in zip(segments, end.results(), strict=True):
            assert found.shape == (size,)
            if operation is REDUCE and owner == worker:
                assert (found == sum(range(1, len(ends) + 1)) - (owner + 1)).all()
            if operation is BROADCAST and owner != worker:
                assert (found == owner + 1).all()


def both(workers, segments, **options):
    """What ``exchanged`` finds in full packets; in thin ones all is the same."""
    full = exchanged(workers, segments, thin=False, **options)
    assert exchanged(workers, segments, thin=True, **options) == full
    return full


def shards(operation, workers, chunks=CHUNKS):
    return [(operation, chunks * VALUES, owner) for owner in range(workers)]


def close(seconds, expected):
    assert seconds == pytest.approx(expected, rel=1e-9, abs=2e-12)


@workers
@pytest.mark.parametrize("operation", [REDUCE, BROADCAST])
def test_a_shard_of_headers_and_the_others_of_values(workers, operation):
    """A reduce-scatter and an all-gather, which is its mirror image.

    Bytes are those of every worker. The last packet is a full one both ways; of one worker, one
    way.
    """
    seconds, _, counted, _ = both(workers, shards(operation, workers))
    full, bare = CHUNKS * (workers - 1) * FULL, CHUNKS * HEADER
    mirror = CHUNKS * FULL + CHUNKS * (workers - 1) * HEADER
    sent, received = (full + bare, mirror) if operation is REDUCE else (mirror, full + bare)
    assert {(each.bytes_sent, each.bytes_received) for each in counted} == {(sent, received)}
    if workers == 1:
        close(seconds, CHUNKS * F + H + ACROSS)
    else:
        close(seconds, (workers - 1) * CHUNKS * F + CHUNKS * H + F + ACROSS)


@workers
@pytest.mark.parametrize("operation", [REDUCE, BROADCAST])
def test_a_reduce_and_a_broadcast_take_the_time_of_their_values(workers, operation):
    owner = workers - 1
    seconds, _, counted, _ = both(workers, [(operation, CHUNKS * VALUES, owner)])
    close(seconds, CHUNKS * F + (F if workers > 1 else H) + ACROSS)
    for worker, each in enumerate(counted):
        sends = (operation is BROADCAST) == (worker == owner)
        sizes = [CHUNKS * FULL, CHUNKS * HEADER]
        assert [each.bytes_sent, each.bytes_received] == sizes[:: 1 if sends else -1]


@workers
def test_a_barrier_is_a_header_there_and_back(workers):
    seconds, _, counted, _ = both(workers, [(BARRIER, 1, 0)])
    close(seconds, 2 * H + ACROSS)
    assert {(each.bytes_sent, each.bytes_received) for each in counted} == {(HEADER, HEADER)}


@workers
def test_both_at_the_same_time_fill_the_links_both_ways(workers):
    """C (F + H) each way. One after the other they take nearly 2 C F, of many workers."""
    segments = shards(REDUCE, workers) + shards(BROADCAST, workers)
    seconds = both(workers, segments)[0]
    close(seconds, workers * CHUNKS * (F + H) + (F if workers > 1 else H) + ACROSS)


@pytest.mark.parametrize("operation", [REDUCE, BROADCAST])
def test_uneven_shards_are_spread_evenly(operation):
    """Of all words, a worker sends or gets those of the others, and headers for its own."""
    chunks = [120, 0, 7, 33]
    segments = [(operation, count * VALUES, owner) for owner, count in enumerate(chunks)]
    seconds = both(4, segments)[0]
    most = max((sum(chunks) - own) * F + own * H for own in chunks)
    assert seconds == pytest.approx(most + F + ACROSS, rel=0.01)


def test_results_without_values_hold_up_no_others():
    """They wait in their queues as full packets, and leave as headers: nothing piles up."""
    queued = both(8, [*shards(REDUCE, 8), (REDUCE, 500 * VALUES, 3)])[3]
    assert queued < 4 * FULL


def test_losses_and_short_queues_are_recovered():
    """Full packets and thin ones have the same fate."""
    lossy = Network(rate=10e9, loss=0.01, queue_bytes=3000, host_receive=0.0, host_send=0.0)
    segments = [*shards(BROADCAST, 5), (BARRIER, 1, 2), (REDUCE, 9, 4)]
    _, counts, counted, _ = both(5, segments, network=lossy)
    assert counts.dropped > 0 < counts.lost
    assert sum(each.retransmissions for each in counted) > 0
