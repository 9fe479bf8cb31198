"""A service that forwards on several threads: sums, order, statistics, and where it may not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.service import (
    SECONDS,
    all_reduce,
    frames_of,
    joined,
    make_workers,
    serving,
    together,
    where,
)

import innet
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.service import join
from innet.wire import HEADER, PacketLayout

LAYOUT = PacketLayout(32)
BAD = Faults(loss=0.05, duplicate=0.05, reorder=0.1, hold=0.01, tick=1e-3, truncate=0.02)


def of_both_kinds(service, stack, kinds):
    """Workers of a job, each over another transport."""
    made = together(
        [
            lambda w=worker, name=name: join(
                where(service), job="both", worker=w, workers=len(kinds), transport=name,
                deadline=SECONDS,
            )
            for worker, name in enumerate(kinds)
        ]
    )  # fmt: skip
    for each in made:
        stack.callback(each.leave)
    return made


@pytest.mark.repeats(
    "sums over bad networks, on other numbers of threads", but=["2-exact-both", "3-exact-shm"]
)
@pytest.mark.parametrize("kinds", [("udp", "shm", "shm"), ("shm",) * 4], ids=["both", "shm"])
@pytest.mark.parametrize("codec", ["exact", "lhc", "topk"])
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_sums_over_bad_networks_are_those_of_memory(stack, threads, codec, kinds):
    service = stack.enter_context(serving(threads=threads))
    assert service.threads == threads
    workers = make_workers(of_both_kinds(service, stack, kinds), codec, faults=BAD)
    memory = innet.Collective(workers=len(kinds), codec=codec, values_per_packet=32, seed=3)
    rng = np.random.default_rng(threads)
    again = 0
    for _ in range(2):
        given = [rng.standard_normal(1500, np.float32) for _ in kinds]
        expected, _ = memory.all_reduce(given)
        for total, report in all_reduce(workers, given):
            np.testing.assert_array_equal(total, expected)
            again += report.retransmissions
    assert again > 0
    said = service.ask(service.statistics)
    assert sum(x["packets_out"] for x in said["jobs"][0]["members"]) == said["packets"]["out"]
    assert sum(x["packets_in"] for x in said["jobs"][0]["members"]) == said["packets"]["in"]


def test_packets_of_a_slot_stay_in_order(stack):
    """Results of one slot come in the order of its chunks, over both transports."""
    service = stack.enter_context(serving(threads=2, jobs=1))
    pair = of_both_kinds(service, stack, ("udp", "shm"))
    sent = [frames_of(each, seed, 600) for seed, each in enumerate(pair)]
    udp, ring = pair[0].transport._link._socket, pair[1].transport
    window = pair[0].plan.job.slots
    outer = ring._link.ring.outer
    got = [[], []]
    for begin in range(0, 600, window):
        rows = slice(begin, begin + window)
        for row in sent[0][rows]:
            udp.send(row)
        frames = np.pad(sent[1][rows], ((0, 0), (outer, 0)))
        length = np.full(len(frames), frames.shape[1], np.int32)
        ring.send(innet.core.packets.PacketBatch(frames, length, length), 0.0)
        expected = len(got[0]) + len(frames)
        for each, results in zip(pair, got, strict=True):
            deadline = ring.now() + 30
            while len(results) < expected:
                assert ring.now() < deadline
                each.transport.wait(ring.now(), ring.now() + 1)
                came = each.transport.receive(ring.now()).data
                at = LAYOUT.header_offset
                heads = came[:, at : at + HEADER.itemsize].copy().view(HEADER)[:, 0]
                results.extend(heads.tolist())
    names = HEADER.names
    for results in got:
        heads = [dict(zip(names, each, strict=True)) for each in results]
        assert len({each["slot"] >> 4 & 1 for each in heads}) == 2  # of both threads
        heads.sort(key=lambda each: each["slot"])
        for _, of_slot in itertools.groupby(heads, lambda each: each["slot"]):
            chunks = [each["sequence"] for each in of_slot]
            assert chunks == sorted(chunks)


def test_what_the_control_plane_does_meets_no_packet(stack):
    """Statistics, jobs that come and go and registers that are read, while packets pass."""
    service = stack.enter_context(serving(threads=2, jobs=3))
    workers = make_workers(joined(service, stack, 2, transport="shm"))
    done = []

    def run(worker):
        for number in range(40):
            words = np.full(32 * 40, number, np.int32)
            (found,) = worker.combine([Segment(ReduceOp.SUM, words)])
            assert (found == 2 * number).all()
        done.append(worker)

    def disturb():
        counted = 0
        while len(done) < 2:
            with join(where(service), job="other", worker=0, workers=1) as alone:
                (one,) = make_workers([alone])
                one.combine([Segment(ReduceOp.SUM, np.ones(300, np.int32))])
            now = service.ask(service.statistics, 60)["packets"]["in"]
            assert now > counted
            counted = now

    together([*(lambda each=each: run(each) for each in workers), disturb])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"program": "tree"}, "each job has switches of its own, and Python joins them"),
        ({"engine": "interpret"}, "the interpreter runs packets"),
        ({"threads": 1}, "one was asked for"),
    ],
)
def test_why_there_is_one_thread_is_said(settings, said):
    with serving(**{"threads": 4} | settings) as service:
        switch = service.ask(service.statistics)["switch"]
    assert switch["threads"] == 1
    assert switch["threads_reason"].startswith(said)


def test_what_spreads_packets_is_said():
    with serving(threads=2) as service:
        switch = service.ask(service.statistics)["switch"]
    assert (switch["threads"], switch["threads_reason"]) == (2, "packets are spread by innet.slot")
