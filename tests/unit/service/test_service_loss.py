"""Packets lost between real sockets, where compiled code moves them: sums are those of memory."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from support.lossy import LossyRelay
from support.service import SECONDS, all_reduce, make_workers, serving, together

import innet
from innet.service import join

WORKERS = 3


def behind_a_lossy_relay(stack, service, codec, seed, **options):
    """A relay before the service that loses a tenth of the packets, and workers behind it."""
    where = (service.address.ip, service.address.udp_port)
    relay = stack.enter_context(LossyRelay(where, loss=0.1, seed=seed))
    switch = "{}:{}".format(*relay.address)
    members = together(
        [
            lambda w=worker: join(switch, job="lossy", worker=w, workers=WORKERS, deadline=SECONDS)
            for worker in range(WORKERS)
        ]
    )
    for member in members:
        stack.callback(member.leave)
    workers = make_workers(members, codec, **options)
    assert all(each._socket_loop is not None for each in workers)
    return relay, workers


@pytest.mark.parametrize(("program", "values"), [("slots", 32), ("harvest", 64)])
@pytest.mark.parametrize(("codec", "size"), [("exact", 2000), ("topk", 40_000)])
def test_what_is_lost_is_sent_again_and_sums_stay_right(program, values, codec, size):
    rng = np.random.default_rng(4)
    rounds = [[rng.standard_normal(size, np.float32) for _ in range(WORKERS)] for _ in range(2)]
    memory = innet.Collective(
        workers=WORKERS, codec=codec, program=program, values_per_packet=values, seed=3
    )
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serving(program=program, values_per_packet=values))
        relay, workers = behind_a_lossy_relay(stack, service, codec, seed=5)
        again = 0
        for gradients in rounds:
            expected, _ = memory.all_reduce(gradients)
            for total, report in all_reduce(workers, gradients):
                np.testing.assert_array_equal(total, expected)
                again += report.retransmissions
    assert relay.dropped > 0
    assert again > 0


def test_packets_without_values_are_lost_too_and_all_arrives():
    """Of each collective whose packets carry values for some of the workers only."""
    rng = np.random.default_rng(6)
    given = [rng.standard_normal(4000, np.float32) for _ in range(WORKERS)]
    total = np.sum(given, axis=0, dtype=np.float64).astype(np.float32)
    sizes = [2500, 0, 1500]
    parts = np.split(total, np.cumsum(sizes)[:-1])
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serving(program="collectives", values_per_packet=64))
        relay, workers = behind_a_lossy_relay(stack, service, "exact", seed=7)

        def by_all(call):
            return together([lambda w=number: call(workers[w], w) for number in range(WORKERS)])

        again = 0
        for _ in range(2):
            found = by_all(lambda worker, w: worker.reduce_scatter(given[w], sizes=sizes)[0])
            for mine, expected in zip(found, parts, strict=True):
                np.testing.assert_array_equal(mine, expected)
            gathered = by_all(lambda worker, w: worker.all_gather(parts[w], sizes=sizes))
            for whole, _ in gathered:
                np.testing.assert_array_equal(whole, total)
            for array, _ in by_all(lambda worker, w: worker.broadcast(given[w], 2)):
                np.testing.assert_array_equal(array, given[2])
            sums = by_all(lambda worker, w: worker.reduce(given[w], 1)[0])
            assert (sums[0], sums[2]) == (None, None)
            np.testing.assert_array_equal(sums[1], total)
            again += sum(report.retransmissions for _, report in gathered)
            for report in by_all(lambda worker, w: worker.barrier()):
                assert report.bytes_sent == (1 + report.retransmissions) * (14 + 20 + 8 + 32)
    assert relay.dropped > 0
    assert again > 0


def test_results_in_another_format_between_processes():
    """Owners' bits arrive at all, and what they rounded away comes with the next sum."""
    rng = np.random.default_rng(8)
    rounds = [[rng.standard_normal(3001, np.float32) for _ in range(WORKERS)] for _ in range(3)]
    memory = innet.Collective(workers=WORKERS, codec="exact", results="mxfp4", seed=3)
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serving(program="collectives", values_per_packet=64))
        _, workers = behind_a_lossy_relay(stack, service, "exact", 9, results="mxfp4")
        for gradients in rounds:
            expected, _ = memory.all_reduce(gradients)
            for total, report in all_reduce(workers, gradients):
                assert total.tobytes() == expected.tobytes()
                assert (report.details["results"], report.rounds) == ("mxfp4", 3)
