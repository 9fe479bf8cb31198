"""Which of several shortest paths packets of flows and messages take: ECMP, spraying, flowlets."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from support.tiers import tiered

import innet
from innet.core.errors import InputError
from innet.sim import Network, network_of
from innet.sim.baselines import leaf_spine, simulate_messages
from innet.sim.flows import Flow
from innet.sim.messages import halving_doubling_all_reduce
from innet.sim.simulation import FrameSize, Simulation
from innet.topology import EmulatedNetwork, Request, make_plan

SPINES = 8
BALANCED = ("ecmp", "spray", "adaptive", "flowlet")


def two_racks(hosts, *, spines=SPINES, seed=0, **settings):
    """Half of the hosts at each of two leaves, below so many spines."""
    switches, cables = leaf_spine(hosts, 2, spines)
    network = Network(**{"rate": 10e9, "trunk_rate": 10e9, **settings})
    return Simulation(network, FrameSize(64, 64), dict.fromkeys(switches), cables, hosts, seed=seed)


def by_spine(simulation):
    """Packets from the first leaf to each spine."""
    return np.array(
        [
            each.packets
            for each in simulation.link_counts()
            if each.source.startswith("leaf0:") and each.target.startswith("spine")
        ]
    )


def arrivals(flow, counts):
    """When the packets of a flow came, seconds."""
    return np.asarray(flow.times) + counts.delays * 1e-12


def test_flows_collide_as_often_as_balls_in_bins():
    """ECMP: m flows take n paths at random, each independently. Closed form, over all n**m ways."""
    flows, trials = 4, 400
    loads = [max(Counter(ways).values()) for ways in product(range(SPINES), repeat=flows)]
    alone, most, spread = loads.count(1) / len(loads), np.mean(loads), np.std(loads)
    simulation = two_racks(2)
    simulation.add_flows(
        [
            Flow(source=0, destination=1, size=100, times=[1e-5 * trial])
            for trial in range(trials)
            for _ in range(flows)
        ]
    )
    found, before = [], by_spine(simulation)
    for trial in range(trials):
        simulation.run_until(1e-5 * trial + 9e-6)
        after = by_spine(simulation)
        assert (after - before).sum() == flows
        found.append((after - before).max())
        before = after
    assert np.mean(np.array(found) == 1) == pytest.approx(
        alone, abs=3 * np.sqrt(alone * (1 - alone) / trials)
    )
    assert np.mean(found) == pytest.approx(most, abs=3 * spread / np.sqrt(trials))
    assert alone == 8 * 7 * 6 * 5 / 8**4


@pytest.mark.parametrize("paths", BALANCED)
def test_what_passes_when_racks_send_at_the_rate_of_all_paths(paths):
    simulation = two_racks(2 * SPINES, paths=paths, queue_packets=256)
    flows = [
        Flow(source=h, destination=SPINES + h, size=1458, packets=2000, rate=9e9)
        for h in range(SPINES)
    ]
    simulation.add_flows(flows)
    simulation.run_until(0.1)
    counts = simulation.flow_counts()
    assert all(each.sent == 2000 == each.received + each.dropped for each in counts)
    passed = by_spine(simulation)
    received = sum(each.received for each in counts)
    assert passed.sum() == received
    if paths in {"spray", "adaptive"}:  # all paths carry the same
        assert received == SPINES * 2000
        limit = 1 if paths == "adaptive" else 4 * np.sqrt(2000 * (1 - 1 / SPINES))
        assert abs(passed - 2000).max() <= limit
    elif paths == "ecmp":  # a path has one flow, or more than it can carry
        full = 2000 * 8 * 1458 / 9e9 * 10e9 / (8 * (1458 + 42 + 24)) + 256
        assert 0 < np.count_nonzero(passed > 2000) < SPINES - 1
        for packets in passed[passed > 0]:
            assert packets == 2000 or packets == pytest.approx(full, rel=0.01)
    else:  # without a pause a flow is one flowlet
        assert (passed > 0).sum() < SPINES


def test_a_flowlet_takes_one_path_and_keeps_its_order():
    bursts, packets, gap = 60, 20, 20e-6
    times = [b * 100e-6 + p * 1.2e-6 for b in range(bursts) for p in range(packets)]
    flow = Flow(source=0, destination=1, size=1458, times=times, record_delays=True)
    simulation = two_racks(2, paths="flowlet", flowlet_gap=gap)
    simulation.add_flows([flow])
    taken, before = [], by_spine(simulation)
    for burst in range(bursts):
        simulation.run_until(100e-6 * burst + 90e-6)
        after = by_spine(simulation)
        assert sorted(after - before) == [0] * (SPINES - 1) + [packets]
        taken.append(int(np.argmax(after - before)))
        before = after
    assert set(taken) == set(range(SPINES))
    (counts,) = simulation.flow_counts()
    assert (np.diff(arrivals(flow, counts)) > 0).all()
    # A longer gap than the pauses: all of it is one flowlet.
    simulation = two_racks(2, paths="flowlet", flowlet_gap=1e-4)
    simulation.add_flows([flow])
    simulation.run_until(1.0)
    assert np.count_nonzero(by_spine(simulation)) == 1


def test_sprayed_packets_overtake_each_other_and_a_stated_path_is_kept():
    times = [1.3e-6 * number for number in range(2000)]
    flow = Flow(source=0, destination=2, size=1458, times=times, record_delays=True)
    beside = Flow(source=1, destination=3, size=1458, rate=9.5e9, packets=2000, path=3)
    simulation = two_racks(4, paths="spray")
    simulation.add_flows([flow, beside])
    simulation.run_until(1.0)
    counts, _ = simulation.flow_counts()
    assert counts.received == 2000
    assert (np.diff(arrivals(flow, counts)) < 0).any()
    assert by_spine(simulation)[3] > 2000 + 2000 / SPINES / 2


@pytest.mark.parametrize(
    "paths", tiered(BALANCED, ["spray"], "the same with other choices of a path")
)
def test_equal_runs_are_equal_and_everything_is_accounted_for(paths):
    def run(seed):
        plan = make_plan("tree", 64, Request(workers=8, topology="fat-tree:ports=4"))
        network = Network(rate=10e9, paths=paths, loss=1e-3, queue_packets=16)
        net = EmulatedNetwork(plan, network=network, seed=seed)
        simulation = net.simulation
        simulation.add_flows(
            [
                Flow(source=h, destination=7 - h, size=900, packets=400, rate=9e9, poisson=True)
                for h in range(4)
            ]
        )
        simulation.run_until(0.01)
        counts = simulation.flow_counts()
        for each in counts:
            assert each.sent == 400 == each.received + each.dropped + each.lost
        used = [each.packets for each in simulation.link_counts()]
        return counts, used

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_messages_over_all_paths():
    """Go-back-N takes what overtakes for loss; TCP does so beyond its threshold."""
    graph = halving_doubling_all_reduce(16, 100_000)

    def run(paths, transport):
        return simulate_messages(
            graph, f"100g:paths={paths}", transport=transport, racks=4, spines=4
        )

    ecmp = run("ecmp", "tcp")
    spray = run("spray", "tcp:reordering=200")
    assert spray.retransmissions == 0
    assert spray.seconds < 0.7 * ecmp.seconds
    assert run("spray", "tcp").retransmissions > 0
    assert run("spray", "roce").retransmissions > 100
    adaptive = run("adaptive", "tcp:reordering=200")
    assert adaptive.retransmissions == 0
    assert adaptive.seconds < spray.seconds
    with pytest.raises(InputError, match="reordering is 0; give an integer from 1"):
        run("ecmp", "tcp:reordering=0")


def test_baselines_of_a_command_take_all_paths():
    def seconds(paths):
        record = innet.simulate(
            workers=8, size=200_000, topology="leaf-spine:racks=2,spines=4", thin=True,
            network=f"100g:paths={paths}", baselines=["halving-doubling"],
            transport="tcp:reordering=200",
        )  # fmt: skip
        return record.baselines["halving-doubling"].simulated.seconds

    assert seconds("adaptive") < seconds("ecmp")


def test_choices_that_there_are_not():
    with pytest.raises(InputError, match="paths is 'best'; give one of ecmp, spray, adaptive, flo"):
        network_of("100g:paths=best")
    with pytest.raises(InputError, match="flowlet_gap is -1"):
        network_of("100g:flowlet_gap=-1")
