"""Random networks with jobs, flows and faults: right sums, and no packet unaccounted for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.protocol import Timing
from innet.sim import Network
from innet.sim.flows import Flow
from innet.topology import EmulatedNetwork, Request, plan_jobs

VALUES = 32
TIMING = Timing(timeout=2e-3, min_timeout=5e-4, give_up=20.0)
NETWORKS = st.builds(
    Network,
    rate=st.sampled_from([1e9, 10e9, 33.3e9, 400e9]),
    trunk_rate=st.sampled_from([None, 2.5e9, 100e9]),
    delay=st.sampled_from([0.0, 1e-9, 5e-7, 1e-4]),
    loss=st.sampled_from([0.0, 1e-3, 0.03]),
    switch_latency=st.sampled_from([0.0, 6e-7]),
    queue_packets=st.sampled_from([2, 64, 4096]),
    queue_bytes=st.sampled_from([None, 2000, 50_000]),
    buffer_bytes=st.sampled_from([None, 10_000, 1_000_000]),
    buffer_alpha=st.sampled_from([0.5, 1.0, 8.0]),
    ecn_bytes=st.sampled_from([None, 1000]),
    host_receive=st.sampled_from([0.0, 1e-7, 5e-6]),
    paths=st.sampled_from(["ecmp", "spray", "adaptive", "flowlet"]),
    host_byte=st.sampled_from([0.0, 1e-10]),
)

FAULTS = st.builds(
    Faults,
    duplicate=st.sampled_from([0.0, 0.02]),
    reorder=st.sampled_from([0.0, 0.02]),
    hold=st.sampled_from([1e-6, 3e-4]),
    jitter=st.sampled_from([0.0, 1e-6]),
    corrupt=st.sampled_from([0.0, 0.01]),
    truncate=st.sampled_from([0.0, 0.01]),
)


@st.composite
def flows(draw, hosts):
    """Up to four flows between some of so many hosts."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        source = draw(st.integers(0, hosts - 1))
        to = draw(st.integers(0, hosts - 1).filter(lambda host, here=source: host != here))
        found.append(
            Flow(
                source=source,
                destination=to,
                size=draw(st.integers(0, 1472)),
                packets=draw(st.integers(1, 300)),
                interval=draw(st.sampled_from([1e-8, 3e-7, 1e-5])),
                start=draw(st.sampled_from([0.0, 1e-5])),
                poisson=draw(st.booleans()),
                record_delays=True,
            )
        )
    return found


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_jobs_and_flows_share_any_network(data):
    jobs, workers = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    racks = data.draw(st.integers(1, workers))
    network = data.draw(NETWORKS)
    if data.draw(st.booleans()):
        network = replace(
            network,
            pfc=True,
            queue_bytes=None,
            priorities=data.draw(st.sampled_from([1, 2])),
            buffer_bytes=data.draw(st.sampled_from([100_000, 10_000_000])),
            pfc_headroom=data.draw(st.sampled_from([100, 3_000])),
            pfc_alpha=data.draw(st.sampled_from([1 / 128, 1.0])),
        )
    window = data.draw(st.sampled_from([1, 8, 64]))
    topology = data.draw(st.sampled_from([None, "leaf-spine:spines=3,trees=2"]))
    request = Request(workers=workers, racks=racks, window=window, topology=topology)
    hosts = jobs * workers
    found = data.draw(flows(hosts)) if hosts > 1 else []
    sizes = [data.draw(st.integers(0, 1500)) for _ in range(jobs)]
    faults = data.draw(FAULTS)
    outage = data.draw(st.none() | st.tuples(st.integers(0, hosts - 1), st.floats(0, 1e-3)))

    def run():
        net = EmulatedNetwork(
            plan_jobs("tree", VALUES, request, jobs), network=network, timing=TIMING, seed=5
        )
        sim = net.simulation
        sim.add_flows(found)
        sim.set_faults(faults)
        if outage is not None:
            sim.add_outage(outage[0], outage[1], outage[1] + 1e-3)
        rounds = [
            [[Segment(ReduceOp.SUM, np.arange(size, dtype=np.int32))] for _ in range(2)]
            for size in sizes
        ]
        done = net.run_rounds(rounds, {0: 1e-5})
        for job, size in enumerate(sizes):
            for end in net.job_workers[job]:
                assert (end.results()[0] == workers * np.arange(size)).all()
        ended = sim.counts()
        sim.run_until(sim.now + 1.0)  # all that is under way arrives
        assert sim.under_way() == 0
        counts = sim.flow_counts()
        for flow, each in zip(found, counts, strict=True):
            assert each.sent == flow.packets
            assert each.sent + each.duplicated == each.received + each.dropped + each.lost
            arrived = each.delays[each.delays >= 0]
            assert each.received - each.duplicated <= len(arrived) <= each.received
            least = (
                2
                * (flow.frame_size + 24)
                * 8
                / max(network.rate, network.trunk_rate or network.rate)
            )
            assert (arrived >= least * 1e12 - 2).all()
        after = sim.counts()
        assert after.unconnected == 0
        assert after.dropped >= sum(each.dropped for each in counts)
        return done, ended, [each._replace(delays=None) for each in counts]

    first, again = run(), run()
    assert first == again
