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
        where = (service.address.ip, service.address.udp_port)
        relay = stack.enter_context(LossyRelay(where, loss=0.1, seed=5))
        switch = "{}:{}".format(*relay.address)
        members = together(
            [
                lambda w=worker: join(
                    switch, job="lossy", worker=w, workers=WORKERS, deadline=SECONDS
                )
                for worker in range(WORKERS)
            ]
        )
        for member in members:
            stack.callback(member.leave)
        workers = make_workers(members, codec)
        assert all(each._socket_loop is not None for each in workers)
        again = 0
        for gradients in rounds:
            expected, _ = memory.all_reduce(gradients)
            for total, report in all_reduce(workers, gradients):
                np.testing.assert_array_equal(total, expected)
                again += report.retransmissions
    assert relay.dropped > 0
    assert again > 0
