"""Simulations whose digests are recorded: they are the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import innet
from innet.core.reduce_op import ReduceOp, SizedSegment
from innet.network import Faults, Outage
from innet.protocol import Timing
from innet.sim import Network
from innet.sim.flows import Flow
from innet.topology import EmulatedNetwork, Request, plan_jobs

TIMING = Timing(timeout=2e-4, min_timeout=2e-5, reordering=1e-5, tail_probe=5e-5)


FIELDS = {  # of ``Simulated``, when the digests were recorded
    "seconds", "goodput_gbps", "elements_per_second", "packets", "bytes", "lost", "dropped",
    "marked", "retransmissions", "queue_bytes_max", "utilization",
}  # fmt: skip

RECORDED = {
    "slots": "ab21f7eb55cb7cdd",
    "slots, loss": "b53df10c8f0afc4e",
    "tree": "32b49b5c9f151cda",
    "tree, queues": "9c5c2224e1f25802",
    "hashed": "ec25291a8b4ccc65",
    "outage": "d044b0b08abbd9dc",
    "jobs and flows": "086c4da7cc29fb2c",
}


def digest(*parts):
    """Of whole numbers and records."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def all_reduces(**options):
    """Three of them, with what the workers counted."""
    collective = innet.Collective(workers=5, values_per_packet=32, seed=7, **options)
    parts = []
    for size in (1000, 7, 5000):
        gradients = [np.arange(size, dtype=np.float32) + worker for worker in range(5)]
        _, report = collective.all_reduce(gradients)
        assert report.exact
        parts.append(report.simulated.model_dump_json(include=FIELDS))
    return digest(*parts, *[end.counters for end in collective.network.workers])


RUNS = {
    "slots": {"network": "100g"},
    "slots, loss": {"network": "25g:loss=0.02", "timing": TIMING},
    "tree": {"network": "10g:trunk_rate=2.5e9", "program": "tree", "racks": 2},
    "tree, queues": {
        "network": Network(rate=10e9, trunk_rate=1e9, queue_bytes=3000),
        "program": "tree",
        "racks": 2,
        "timing": TIMING,
    },
    "hashed": {"network": "10g:loss=0.01", "program": "hashed", "timing": TIMING},
    "outage": {
        "network": "10g",
        "faults": Faults(outages=(Outage(1e-5, 1e-4, hosts=(2,)),)),
        "timing": TIMING,
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_all_reduces(name):
    assert all_reduces(**RUNS[name]) == RECORDED[name]


def test_jobs_and_flows():
    shared = plan_jobs("tree", 64, Request(workers=4, racks=2, thin=True, window=64), 2)
    network = Network(rate=10e9, trunk_rate=10e9, loss=0.005, buffer_bytes=50_000)
    net = EmulatedNetwork(shared, network=network, seed=3)
    net.simulation.add_flows(
        [
            Flow(source=0, destination=7, size=1000, packets=400, rate=4e9),
            Flow(source=5, destination=2, size=64, packets=999, interval=1.3e-7),
        ]
    )
    rounds = [[[SizedSegment(ReduceOp.SUM, 20_000)]] * 2, [[SizedSegment(ReduceOp.MAX, 3000)]]]
    done = net.run_rounds(rounds, {1: 2e-5})
    net.simulation.run_until(1.0)
    # As recorded, when there were no faulty links, and the counts had a shorter name.
    flows = [str(each).replace(", duplicated=0)", ")") for each in net.simulation.flow_counts()]
    counts = str(net.simulation.counts()).removeprefix("Network").partition(", work=")[0] + ")"
    found = digest(*done, counts, *flows)
    assert found == RECORDED["jobs and flows"]
