"""Thin packets take the time of those that they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from innet import Collective
from innet.core.reduce_op import ReduceOp, Segment, SizedSegment
from innet.protocol import Timing
from innet.sim import network_of
from innet.topology import EmulatedNetwork, Request, make_plan

SLOTS = 16
TIMING = Timing(timeout=1e-3, min_timeout=1e-4, reordering=1e-5, tail_probe=1e-5)
NETWORKS = {
    "plain": "100g",
    "loss": "100g:loss=2e-3",
    "slow trunks": {"rate": 25e9, "trunk_rate": 10e9},
    "short queues": {"rate": 10e9, "trunk_rate": 2e9, "queue_packets": 8, "loss": 1e-3},
    "slow hosts": "400g:host_receive=2e-6,host_send=1e-6",
}


def simulated(program, values, options, network, *, thin):
    """All that is known of three all-reduces in simulated time."""
    request = Request(workers=6, window=SLOTS, thin=thin, **options)
    emulation = EmulatedNetwork(
        make_plan(program, values, request), network=network_of(network), timing=TIMING, seed=5
    )
    found = []
    for sizes in (
        [(ReduceOp.MAX, 3)],
        [(ReduceOp.SUM, 12 * SLOTS * values - 40)],  # each slot many times
        [(ReduceOp.OR, 900), (ReduceOp.SUM, 5000)],
    ):
        segments = (
            [SizedSegment(*each) for each in sizes]
            if thin
            else [Segment(operation, np.full(size, 7, np.int32)) for operation, size in sizes]
        )
        for worker in emulation.workers:
            worker.start(segments, emulation.now)
        emulation.run()
        found.append((emulation.now, emulation.simulation.counts()))
    return found, [worker.counters for worker in emulation.workers]


@pytest.mark.repeats("each program in each network", but=["slots-64-*", "*-loss", "harvest-plain"])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize(
    ("program", "values", "options"),
    [
        ("slots", 64, {}),
        pytest.param("slots", 1024, {}, marks=pytest.mark.repeats("slots-64")),
        pytest.param("tree", 64, {"racks": 2}, marks=pytest.mark.repeats("three levels")),
        ("tree", 32, {"racks": 3, "depth": 3}),
        ("hashed", 64, {"racks": 2}),
        ("harvest", 64, {}),
    ],
    ids=["slots-64", "slots-1024", "two levels", "three levels", "hashed", "harvest"],
)
def test_events_happen_at_the_same_times(program, values, options, network):
    full = simulated(program, values, options, network, thin=False)
    assert simulated(program, values, options, network, thin=True) == full
    if "loss" in str(network):
        assert sum(counters.retransmissions for counters in full[1]) > 0


def test_short_queues_drop_the_same_packets():
    network = NETWORKS["short queues"]
    (_, counts), *_ = simulated("tree", 64, {"racks": 2}, network, thin=True)[0][::-1]
    assert counts.dropped > 0


@pytest.mark.parametrize("codec", ["dense", "lhc", "gs-sgd"])
@pytest.mark.parametrize("loss", ["", ":loss=1e-3"])
def test_reports_of_collectives_are_the_same(codec, loss):
    rng = np.random.default_rng(2)
    gradients = [
        np.where(rng.random(30_000) < 0.05, rng.standard_normal(30_000), 0).astype(np.float32)
        for _ in range(4)
    ]
    full, thin = (
        Collective(workers=4, codec=codec, network=f"100g{loss}", thin=thin, timing=TIMING)
        for thin in (False, True)
    )
    for _ in range(2):  # the second one begins where the first one ended
        total, report = full.all_reduce(gradients)
        same, other = thin.all_reduce(gradients)
        assert np.array_equal(total, same)
        assert report.exact
        assert other.simulated == report.simulated
        assert other.bytes_sent == report.bytes_sent
        assert other.compression == report.compression


def test_a_packet_of_any_size_takes_its_time_on_two_wires():
    def seconds(values):
        plan = make_plan("slots", values, Request(workers=1, thin=True))
        emulation = EmulatedNetwork(plan, network=network_of("10g"))
        emulation.workers[0].start([SizedSegment(ReduceOp.SUM, 1)], 0.0)
        emulation.run()
        counts = emulation.simulation.counts()
        assert (counts.packets, counts.bytes) == (2, 2 * (plan.layout.wire_size + 24))
        return emulation.now

    # 2,165 values more, of 32 bits, at 10 Gbit/s.
    assert seconds(2229) - seconds(64) == pytest.approx(2 * 32 * 2165 / 10e9, abs=1e-12)
