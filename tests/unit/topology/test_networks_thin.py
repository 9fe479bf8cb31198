"""Thin packets: the workers' ends do and count what they do with all values."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from innet.core.errors import InputError, StateError
from innet.core.reduce_op import ReduceOp, Segment, SizedSegment
from innet.network import Faults
from innet.protocol import JobMembership, SlotClient
from innet.protocol.message import Message, SizedMessage
from innet.topology import EmulatedNetwork, Request, make_plan, plan_jobs
from innet.wire import Endpoint, PacketLayout

ROUNDS = [
    [(ReduceOp.SUM, 4000)],
    [(ReduceOp.OR, 77), (ReduceOp.SUM, 1200), (ReduceOp.MAX, 64), (ReduceOp.SUM, 0)],
]
FAULTS = Faults(loss=0.05, duplicate=0.1, reorder=0.2, delay=1e-4)


def thin_client(elements=64, workers=1, window=4):
    return SlotClient(
        PacketLayout(1, "udp", stands_for=elements),
        JobMembership(0, workers, 1, 0, window),
        source=Endpoint.of_worker(0),
        switch=Endpoint.of_switch(),
    )


def ran(program, values, options, *, thin, faults, engine="jit"):
    """The virtual time of two all-reduces, and what the workers counted."""
    request = Request(workers=5, window=16, thin=thin, **options)
    emulation = EmulatedNetwork(
        make_plan(program, values, request), faults=faults, seed=3, engine=engine
    )
    for sizes in ROUNDS:
        segments = (
            [SizedSegment(*each) for each in sizes]
            if thin
            else [Segment(operation, np.full(size, 7, np.int32)) for operation, size in sizes]
        )
        for worker in emulation.workers:
            worker.start(segments, emulation.now)
        emulation.run()
    return emulation.now, [worker.counters for worker in emulation.workers]


@pytest.mark.repeats(
    "each program with and without faults, and more values",
    but=["slots-64-*", "tree-64-*-with faults", "hashed-*-without faults", "harvest-*-with faults"],
)
@pytest.mark.parametrize("faults", [None, FAULTS], ids=["without faults", "with faults"])
@pytest.mark.parametrize(
    ("program", "values", "options"),
    [
        ("slots", 64, {}),
        ("slots", 256, {}),
        ("tree", 64, {"racks": 2}),
        ("tree", 32, {"racks": 3, "depth": 3}),
        ("hashed", 64, {"racks": 2}),
        ("harvest", 64, {}),
    ],
)
def test_thin_rounds_take_as_many_packets_bytes_and_retransmissions(
    program, values, options, faults
):
    full = ran(program, values, options, thin=False, faults=faults)
    assert ran(program, values, options, thin=True, faults=faults) == full
    assert (full[1][0].retransmissions > 0) == (faults is not None)


def test_the_interpreter_runs_thin_programs_alike():
    one, other = (
        ran("slots", 64, {}, thin=True, faults=FAULTS, engine=engine)
        for engine in ("jit", "interpret")
    )
    assert one == other


def test_packets_of_any_size_are_possible():
    plan = make_plan("slots", 2229, Request(workers=2, thin=True))
    assert plan.layout == PacketLayout(1, "udp", stands_for=2229)
    emulation = EmulatedNetwork(plan)
    for worker in emulation.workers:
        worker.start([SizedSegment(ReduceOp.SUM, 10 * 2229 + 1)], 0.0)
    emulation.run()
    assert emulation.workers[0].counters.sent == 11
    assert emulation.workers[0].counters.bytes_sent == 11 * PacketLayout(2229).frame_size


def test_thin_jobs_share_a_network():
    shared = plan_jobs("slots", 64, Request(workers=2, thin=True), jobs=2)
    assert {plan.layout for plan in shared.jobs} == {PacketLayout(1, "udp", stands_for=64)}
    assert shared.jobs[0].window == 512


def test_a_plan_that_is_not_thin_has_no_packets_of_one_value():
    with pytest.raises(InputError, match="compiled for 32, 64, 256, 1024 values per packet, not"):
        make_plan("slots", 1, Request(workers=2))


def test_a_thin_message_cuts_as_the_full_one():
    full = Message([Segment(op, np.zeros(size, np.int32)) for op, size in ROUNDS[1]], 64)
    thin = SizedMessage([SizedSegment(op, size) for op, size in ROUNDS[1]], 64)
    assert thin.chunks == full.chunks
    assert thin.tag(5, 6) == full.tag(5, 6)
    assert np.array_equal(thin.operation, full.operation)
    assert np.array_equal(thin.elements, full.elements)
    assert (thin.words.nbytes, thin.combined.nbytes) == (0, 0)


def test_thin_workers_need_a_few_bytes_for_each_chunk():
    """25 MiB in packets of 64 values are 102,400 chunks."""
    first, client = thin_client(), thin_client()
    first.start([SizedSegment(ReduceOp.SUM, 25 * 2**18)], 0.0)  # makes what all workers share
    tracemalloc.start()
    client.start([SizedSegment(ReduceOp.SUM, 25 * 2**18)], 0.0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 * 102_400


def test_thin_packets_have_no_sums():
    emulation = EmulatedNetwork(make_plan("slots", 64, Request(workers=1, thin=True)))
    (worker,) = emulation.workers
    worker.start([SizedSegment(ReduceOp.SUM, 100)], 0.0)
    emulation.run()
    assert worker.has_results
    with pytest.raises(StateError, match="thin packets have no sums"):
        worker.results()


@pytest.mark.parametrize(
    ("segments", "match"),
    [
        ([Segment(ReduceOp.SUM, np.zeros(3, np.int32))], "segment 0 is Segment.*SizedSegment"),
        ([SizedSegment(ReduceOp.SUM, -1)], "number of words"),
        ([SizedSegment(ReduceOp.SUM, 2.0)], "number of words"),
        ([SizedSegment(ReduceOp.SUM, 2), SizedSegment(99, 2)], "segment 1 has the operation 99"),
        ("SUM", "a round is of type str.*SizedSegment"),
    ],
)
def test_what_is_no_list_of_thin_segments_is_refused(segments, match):
    with pytest.raises(InputError, match=match):
        thin_client().start(segments, 0.0)


def test_packets_with_values_take_no_thin_segments():
    with pytest.raises(InputError, match=r"segment 0 is SizedSegment.* expected an .*\.Segment"):
        Message([SizedSegment(ReduceOp.SUM, 3)], 64)
