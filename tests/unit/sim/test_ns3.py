"""Flows of UDP packets: what ns-3 made of them, packet by packet, and the rules that this pins."""

from __future__ import annotations

import heapq
from dataclasses import replace
from pathlib import Path

import pytest
from support.drop_tail import Rounding, Ties, simulate, wire_time
from support.flow_scenarios import (
    HEADERS,
    SECOND,
    Flow,
    Link,
    Outcome,
    Scenario,
    read_golden,
    read_scenario,
)

from innet.sim import Network
from innet.sim.flows import Flow as SimulatedFlow
from innet.sim.flows import FlowCounts
from innet.sim.links import draw
from innet.sim.simulation import Cable, Simulation
from innet.switch.traffic_manager import QUEUE_WORDS, TrafficManager, admit, withdraw
from innet.wire import PacketLayout

GOLDEN = Path(__file__).parents[2] / "golden" / "ns3"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.toml"))
DECIDED = {"ties", "rounding"}
"""Scenarios in which a rule of the simulator decides: there, innet's differs from ns-3's."""


def golden(name: str) -> tuple[Scenario, list[Outcome]]:
    scenario, outcomes, _ = read_golden(GOLDEN / f"{name}.json.gz")
    return scenario, outcomes


def differing(one: list[Outcome], other: list[Outcome]) -> int:
    """Packets that arrive at another time, or are dropped in but one of two outcomes."""
    return sum(
        a != b
        for mine, theirs in zip(one, other, strict=True)
        for a, b in zip(mine.delays, theirs.delays, strict=True)
    )


def test_there_are_recordings():
    assert len(NAMES) >= 10
    assert sum(len(each.delays) for name in NAMES for each in golden(name)[1]) > 30_000


@pytest.mark.parametrize("name", NAMES)
def test_recording_is_of_its_scenario(name):
    scenario, outcomes = golden(name)
    assert scenario == read_scenario(GOLDEN / f"{name}.toml"), "run tests/golden/record_ns3.py"
    for flow, outcome in zip(scenario.flows, outcomes, strict=True):
        assert len(outcome.delays) == len(flow.times)
        assert set(outcome.dropped_at.values()) <= set(flow.path)


@pytest.mark.parametrize("name", NAMES)
def test_reference_is_ns3_packet_by_packet(name):
    scenario, outcomes = golden(name)
    assert simulate(scenario) == outcomes


@pytest.mark.parametrize("name", sorted(set(NAMES) - DECIDED))
def test_innets_rules_for_ties_and_rounding_decide_nothing_here(name):
    """So these recordings hold for whoever simulates, whatever is done at equal times."""
    scenario, outcomes = golden(name)
    assert simulate(scenario, ties=Ties.ARRIVALS_FIRST, rounding=Rounding.UP) == outcomes


def test_rounding_up_adds_less_than_a_picosecond_for_each_packet_of_a_busy_link():
    scenario, outcomes = golden("rounding")
    mine = simulate(scenario, rounding=Rounding.UP)
    assert differing(mine, outcomes) > 0
    assert [each.dropped_at for each in mine] == [each.dropped_at for each in outcomes]
    later = [
        a - b
        for one, other in zip(mine, outcomes, strict=True)
        for a, b in zip(one.delays, other.delays, strict=True)
        if a is not None and b is not None
    ]
    assert min(later) >= 0
    assert max(later) < sum(len(flow.times) for flow in scenario.flows)


def test_ties_decide_which_packets_are_dropped_and_not_how_many():
    scenario, outcomes = golden("ties")
    mine = simulate(scenario, ties=Ties.ARRIVALS_FIRST)
    assert differing(mine, outcomes) > 0
    assert sum(len(each.dropped_at) for each in mine) == sum(
        len(each.dropped_at) for each in outcomes
    )


@pytest.mark.parametrize(
    ("ties", "lost"),
    [(Ties.AS_MADE, [2]), (Ties.ARRIVALS_FIRST, [0, 2]), (Ties.DEPARTURES_FIRST, [0])],
)
def test_smallest_tie(ties, lost):
    """Three packets at one time at an idle link, with room for one beside the one that it sends.

    Flow 0 is that of host 2. As made, it comes first; by link, last. With arrivals first, the link
    does not send before all three have come.
    """
    cables = [(Link(h, 3, 10**10, 0, 100), Link(3, h, 10**10, 0, 1)) for h in (0, 1, 2)]
    out = Link(3, 4, 10**10, 0, 1), Link(4, 3, 10**10, 0, 1)
    links = tuple(link for cable in (*cables, out) for link in cable)
    flows = tuple(Flow(1000, (2 * host, 6), (0,)) for host in (2, 0, 1))
    outcomes = simulate(Scenario(3, 5, links, flows), ties=ties)
    dropped = [flow for flow, outcome in enumerate(outcomes) if outcome.dropped_at]
    assert dropped == lost


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"star-sizes"}))
def test_recordings_pin_what_a_queue_holds(name):
    """A queue that held the packet on the wire too, or one more, would drop others."""
    scenario, outcomes = golden(name)
    for more in (-1, 1):
        links = tuple(replace(link, queue=link.queue + more) for link in scenario.links)
        assert simulate(replace(scenario, links=links)) != outcomes


# ------------------------------------------------------------------ the switch's egress queues


def through_egress_queues(scenario: Scenario) -> list[Outcome]:
    """As ``simulate``, with a queue of the switch's traffic manager before each link."""
    manager = TrafficManager()
    for port, link in enumerate(scenario.links):
        manager.set_bit_rate(link.rate, port, SECOND)
        manager.set_depth(link.queue, port)
    outcomes = [Outcome([None] * len(flow.times)) for flow in scenario.flows]
    sent = [0] * len(scenario.links)
    events = [
        (time, False, given.path[0], number, (flow, number, 0))
        for flow, given in enumerate(scenario.flows)
        for number, time in enumerate(given.times)
    ]
    heapq.heapify(events)
    while events:
        now, leaves, link, _, (flow, number, hop) = heapq.heappop(events)
        given = scenario.flows[flow]
        length = given.size + HEADERS
        if leaves:
            withdraw(manager.queues, link * QUEUE_WORDS, now, length)
            sent[link] += 1
            rate, delay = scenario.links[link].rate, scenario.links[link].delay
            there = now + wire_time(given.size, rate, Rounding.UP) + delay
            heapq.heappush(events, (there, False, link, sent[link], (flow, number, hop + 1)))
        elif hop == len(given.path):
            outcomes[flow].delays[number] = now - given.times[number]
        else:
            port = given.path[hop]
            departure = admit(manager.queues, port * QUEUE_WORDS, now, length)
            if departure < 0:
                outcomes[flow].dropped_at[number] = port
            else:
                heapq.heappush(events, (departure, True, port, number, (flow, number, hop)))
    return outcomes


@pytest.mark.parametrize("name", NAMES)
def test_egress_queues_are_the_reference_packet_by_packet(name):
    """And so ns-3, but for ties and rounding."""
    scenario, outcomes = golden(name)
    found = through_egress_queues(scenario)
    assert found == simulate(scenario, ties=Ties.ARRIVALS_FIRST, rounding=Rounding.UP)
    assert (found == outcomes) == (name not in DECIDED)


# ------------------------------------------------------------------ the simulated network


def network_of(scenario: Scenario) -> tuple[Network, list[Cable]]:
    """Innet's network of a scenario: its hosts and switches take no time."""
    to_hosts = scenario.links[1]
    trunks = [link for link in scenario.links if min(link.source, link.target) >= scenario.hosts]
    network = Network(
        rate=to_hosts.rate,
        trunk_rate=trunks[0].rate if trunks else None,
        delay=to_hosts.delay / SECOND,
        queue_packets=to_hosts.queue,
        switch_latency=0,
        host_receive=0,
        host_send=0,
    )
    cables = []
    for number, link in enumerate(scenario.links[::2]):
        if link.source < scenario.hosts:
            cables.append(Cable(f"s{link.target}", number, link.source))
        else:
            cables.append(Cable(f"s{link.source}", number, None, f"s{link.target}", number))
    return network, cables


def numbers_by_path(scenario: Scenario) -> list[int]:
    """A number for each flow with which innet sends it by way of the spine that it names."""
    numbers: list[int] = []
    for flow in scenario.flows:
        source, target = (scenario.links[link] for link in flow.path[:2])
        leaf = source.target
        spines = [link.target for link in scenario.links if link.source == leaf]
        spines = [node for node in spines if node >= scenario.hosts]
        number = 0
        while number in numbers or (
            len(flow.path) == 4
            and spines[int(draw(0, number, leaf - scenario.hosts) * len(spines))] != target.target
        ):
            number += 1
        numbers.append(number)
    return numbers


def through_core(scenario: Scenario) -> tuple[Simulation, list[FlowCounts]]:
    """What innet's network makes of a scenario."""
    network, cables = network_of(scenario)
    switches = {f"s{node}": None for node in range(scenario.hosts, scenario.nodes)}
    simulation = Simulation(network, PacketLayout(64), switches, cables, scenario.hosts)
    last = max(flow.times[-1] for flow in scenario.flows) / SECOND
    numbers = numbers_by_path(scenario)
    late = SimulatedFlow(source=0, destination=1, size=0, times=[last + 0.1])
    flows = [late] * (max(numbers) + 1)
    for number, flow in zip(numbers, scenario.flows, strict=True):
        flows[number] = SimulatedFlow(
            source=scenario.links[flow.path[0]].source,
            destination=scenario.links[flow.path[-1]].target,
            size=flow.size,
            times=[time / SECOND for time in flow.times],
            record_delays=True,
        )
    simulation.add_flows(flows)
    simulation.run_until(last + 1)
    counts = simulation.flow_counts()
    return simulation, [counts[number] for number in numbers]


@pytest.mark.parametrize("name", NAMES)
def test_simulated_network_is_ns3_packet_by_packet(name):
    """But for ties and rounding, where it is what its own rules say."""
    scenario, outcomes = golden(name)
    if name in DECIDED:
        outcomes = simulate(scenario, ties=Ties.ARRIVALS_FIRST, rounding=Rounding.UP)
    simulation, found = through_core(scenario)
    assert simulation.under_way() == 0
    for counts, outcome in zip(found, outcomes, strict=True):
        assert counts.delays is not None
        assert counts.delays.tolist() == [-1 if each is None else each for each in outcome.delays]
        assert counts.dropped == len(outcome.dropped_at)
        assert counts.sent == counts.received + counts.dropped == len(outcome.delays)


def test_differences_from_ns3_are_at_most_two_percent():
    packets = differences = 0
    for name in NAMES:
        scenario, outcomes = golden(name)
        found = [
            Outcome([None if each < 0 else each for each in counts.delays.tolist()])
            for counts in through_core(scenario)[1]
            if counts.delays is not None
        ]
        packets += sum(len(each.delays) for each in outcomes)
        differences += differing(found, outcomes)
    assert 0 < differences < 0.02 * packets
