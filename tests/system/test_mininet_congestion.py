"""Congestion in simple_switch's queues: marks by depth, windows that halve, sums that are exact."""

from __future__ import annotations

import concurrent.futures
import contextlib

import numpy as np
import pytest
from support.bmv2 import needs_simple_switch
from support.mininet import missing, needs_mininet

import innet
from innet.allreduce.worker import Worker, connect
from innet.protocol import Timing
from innet.wire import HeaderFlag

if not missing():
    from innet.mininet.network import network, temporary_folder
    from innet.mininet.nodes import network_namespace_of
    from innet.mininet.settings import NetSettings

pytestmark = [
    pytest.mark.mininet,
    needs_mininet,
    pytest.mark.bmv2,
    needs_simple_switch,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.usefixtures("nothing_left"),
]

WORKERS = 2
WINDOW = 64  # twice the depth from which on packets are marked
RATE = 100  # packets/s that leave at each port, far fewer than a busy machine takes in
CHUNKS = 150


def all_reduce(
    program: str, control: str, rate: int | None, window: int = WINDOW
) -> list[tuple[np.ndarray, Worker]]:
    """Each worker's sum and end, over simple_switch with so many packets/s at each port."""
    chosen = NetSettings(workers=WORKERS, program=program, switch="bmv2", window=window)
    plan = chosen.plan()
    # A full window takes 0.64 s to leave. Only a lost packet would wait for many times that.
    timing = Timing(timeout=10.0, min_timeout=10.0, max_timeout=20.0, window_control=control)
    with (
        temporary_folder() as folder,
        network(chosen.mininet_topo(plan, folder)) as net,
        contextlib.ExitStack() as stack,
    ):
        for switch in net.switches:
            switch.command("set_queue_depth 1000")
            if rate is not None:
                switch.command(f"set_queue_rate {rate}")
        ends = []
        for worker, host in enumerate(plan.workers):
            with network_namespace_of(net.get(host.name).pid):
                transport = stack.enter_context(connect(plan, worker))
            ends.append(Worker(plan, worker, codec="dense", transport=transport, timing=timing))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            done = list(pool.map(lambda end, given: end.all_reduce(given), ends, gradients()))
        return [(total, end) for (total, _), end in zip(done, ends, strict=True)]


def gradients() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(64 * CHUNKS, np.float32) for _ in range(WORKERS)]


@pytest.mark.repeats("the same with a tree", but=["slots"])
@pytest.mark.parametrize("program", ["slots", "tree"])
def test_a_full_queue_marks_and_the_window_halves(program):
    expected, _ = innet.all_reduce(gradients(), program=program)
    for total, worker in all_reduce(program, "aimd", RATE):
        np.testing.assert_array_equal(total, expected)
        end = worker._end
        assert HeaderFlag.ECN in end.result_flags
        assert end.window.halvings >= 1
        assert end.counters.retransmissions == 0  # it is marks that tell, not losses


def test_a_queue_that_cannot_be_deep_marks_nothing():
    for _, worker in all_reduce("slots", "aimd", None, window=WINDOW // 4):
        assert HeaderFlag.ECN not in worker._end.result_flags
        assert worker._end.window.halvings == 0


def test_who_does_not_listen_is_not_told():
    for _, worker in all_reduce("slots", "fixed", RATE):
        assert HeaderFlag.ECN not in worker._end.result_flags
