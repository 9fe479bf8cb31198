"""Baselines in simulated time: closed forms, the loss matrix, and equal runs."""

from __future__ import annotations

import numpy as np
import pytest

from innet.core.errors import InputError, UnknownNameError
from innet.sim import Network, messages
from innet.sim.baselines import leaf_spine, simulate_messages, star
from innet.sim.flows import Flow
from innet.sim.links import wire_time
from innet.sim.messages import (
    all_gather,
    gtopk_tree,
    halving_doubling_all_reduce,
    parameter_server,
    ring_all_reduce,
    together,
)
from innet.sim.network import OVERHEAD, PRESETS, SECOND
from innet.sim.simulation import Simulation
from innet.sim.transport import TRANSPORTS, ReliableTransport, transport_of
from innet.wire import PacketLayout

ROCE = TRANSPORTS["roce"]
FIXED = ReliableTransport(congestion="fixed")


def wire_bytes(transport, size, *, acks):
    """Bytes on a link for ``size`` of payload; with those of the other way's acknowledgements."""
    each = transport.payload + transport.header_bytes + OVERHEAD
    if acks:
        each += transport.ack_bytes + OVERHEAD
    return size * each / transport.payload


def latency(network, transport):
    """Seconds from a message's last bit on the first link to its end: a hop more, and delays."""
    frame = wire_time(transport.payload + transport.header_bytes, int(network.rate)) / SECOND
    hosts = (network.host_send + network.host_receive) / network.host_cores
    return 2 * network.delay + network.switch_latency + frame + hosts


@pytest.mark.parametrize("transport", [ROCE, FIXED], ids=["roce", "tcp, fixed"])
@pytest.mark.parametrize("preset", ["10g", "100g"])
@pytest.mark.parametrize("hosts", [2, 5, 8])
def test_a_ring_takes_what_the_closed_form_says(hosts, preset, transport):
    network, size = PRESETS[preset], 8_000_000
    run = simulate_messages(ring_all_reduce(hosts, size // 4), network, transport=transport)
    # Each link carries a message one way, and the acknowledgements of another one.
    on_wire = wire_bytes(transport, size, acks=True)
    expected = messages.ring_seconds(hosts, on_wire, network.rate, latency(network, transport))
    assert run.seconds == pytest.approx(expected, rel=0.01)
    assert (run.counts.dropped, run.retransmissions, run.timeouts) == (0, 0, 0)


@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_the_others_take_what_theirs_say(hosts):
    network, size = PRESETS["100g"], 8_000_000
    delay = latency(network, ROCE)
    both, alone = (wire_bytes(ROCE, size, acks=acks) for acks in (True, False))
    for graph, expected in [
        (
            halving_doubling_all_reduce(hosts, size // 4),
            messages.halving_doubling_seconds(hosts, both, network.rate, delay),
        ),
        (
            all_gather(hosts, np.full(hosts, size // 4)),
            messages.all_gather_seconds(np.full(hosts, both), network.rate, delay),
        ),
        (
            parameter_server(hosts, [hosts], size // 4),
            messages.parameter_server_seconds(hosts, alone, network.rate, delay),
        ),
        (
            parameter_server(hosts, range(hosts), size // 4),
            messages.parameter_server_seconds(
                hosts, both, network.rate, delay, servers=hosts, colocated=True
            ),
        ),
        (gtopk_tree(hosts, size // 4), messages.gtopk_seconds(hosts, alone, network.rate, delay)),
    ]:
        run = simulate_messages(graph, network, transport=ROCE)
        assert run.seconds == pytest.approx(expected, rel=0.015)


def test_summing_what_came_costs_what_is_said():
    size = 4_000_000
    free = simulate_messages(ring_all_reduce(4, size // 4), "100g", transport=ROCE)
    cost = simulate_messages(
        ring_all_reduce(4, size // 4, reduce_cost=50.0), "100g", transport=ROCE
    )
    assert cost.seconds - free.seconds == pytest.approx(3 * size / 4 * 50e-12, rel=0.02)


def test_a_small_window_gets_itself_in_a_round_trip():
    network, size = PRESETS["100g"], 4_000_000
    small = ReliableTransport(congestion="fixed", window_bytes=4 * 1448)
    run = simulate_messages(gtopk_tree(2, size // 4), network, transport=small)
    ack = (small.ack_bytes + OVERHEAD) * 8 / network.rate
    data = (1448 + small.header_bytes + OVERHEAD) * 8 / network.rate
    hosts = 2 * (network.host_send + network.host_receive) / network.host_cores
    trip = 2 * (data + ack) + 4 * network.delay + 2 * network.switch_latency + hosts
    assert run.seconds == pytest.approx(2 * size / (4 * 1448) * trip, rel=0.01)


@pytest.mark.parametrize("loss", [0.0, 1e-4, 1e-3, 1e-2, 5e-2])
@pytest.mark.parametrize("transport", ["tcp", "dctcp", "roce", "tcp:recovery=go_back_n"])
def test_all_is_delivered_whatever_links_lose(transport, loss):
    network = Network(rate=10e9, loss=loss, queue_packets=20)
    graph = together(
        [
            ring_all_reduce(5, 40_000),
            parameter_server(4, [4], 10_000),
            parameter_server(5, range(5), 10_000),
            all_gather(5, [4000, 0, 7, 999, 20_000]),
            gtopk_tree(5, 3000),
            halving_doubling_all_reduce(5, 10_000),
        ]
    )
    run = simulate_messages(graph, network, transport=transport, seed=3)
    assert (run.delivered >= 0).all()
    assert run.delivered.max() == run.seconds
    assert (run.retransmissions > 0) == (run.counts.dropped + run.counts.lost > 0)
    least = np.maximum(1, -(-graph.bytes // transport_of(transport).payload))
    away = graph.source != graph.destination
    assert run.segments - run.retransmissions >= least[away].sum() - 5
    again = simulate_messages(graph, network, transport=transport, seed=3)
    assert again.seconds == run.seconds
    assert again.counts == run.counts
    np.testing.assert_array_equal(again.delivered, run.delivered)


def test_messages_do_not_start_before_what_they_wait_for():
    graph = ring_all_reduce(6, 30_000)
    run = simulate_messages(graph, Network(rate=10e9, loss=1e-2), transport="tcp")
    earlier = np.repeat(np.arange(len(graph)), np.diff(graph.first))
    least = 2 * 500e-9 + 600e-9 + 8 * graph.bytes[graph.dependents] / 10e9
    assert (run.delivered[graph.dependents] - run.delivered[earlier] >= least).all()


def test_more_messages_at_a_time_than_there_was_room_for():
    run = simulate_messages(parameter_server(40, range(40), 40_000), "100g", transport="tcp")
    assert (run.delivered >= 0).all()
    assert run.segments - run.retransmissions == 2 * 40 * 39 * 3


def test_racks_share_trunks_and_spines_their_load():
    graph = all_gather(np.arange(16).reshape(2, 8).T.ravel().tolist(), np.full(16, 40_000))
    slow = "10g:trunk_rate=10e9"
    one = simulate_messages(graph, slow, transport=ROCE, racks=2)
    four = simulate_messages(graph, slow, transport=ROCE, racks=2, spines=4)
    flat = simulate_messages(graph, "10g", transport=ROCE)
    assert one.seconds > 2 * four.seconds
    assert four.seconds > flat.seconds
    assert set(one.counts.busy) == {"host_to_switch", "switch_to_host", "trunk"}
    assert one.segments - one.retransmissions == flat.segments - flat.retransmissions


def test_traffic_beside_takes_its_part():
    graph = ring_all_reduce(4, 1_000_000)
    alone = simulate_messages(graph, "10g", transport="tcp")
    flow = Flow(source=0, destination=2, size=1400, packets=20_000, rate=4e9)
    beside = simulate_messages(graph, "10g", transport="tcp", flows=[flow])
    assert beside.seconds > 1.3 * alone.seconds
    assert (beside.delivered >= 0).all()


def test_dctcp_heeds_marks_where_newreno_fills_the_queue():
    # Three hosts send to a fourth for a while.
    graph = parameter_server(3, [3], 2_000_000)
    network = Network(rate=10e9, queue_packets=200, ecn_bytes=60_000)
    marked = simulate_messages(graph, network, transport="dctcp")
    assert marked.counts.marked > 0
    assert marked.counts.dropped == 0
    plain = simulate_messages(graph, Network(rate=10e9, queue_packets=200), transport="tcp")
    assert plain.counts.marked == 0
    assert plain.counts.dropped > 0
    lower = messages.parameter_server_seconds(
        3, wire_bytes(ReliableTransport(), 8_000_000, acks=False), 10e9
    )
    assert lower < marked.seconds < 1.05 * lower


def test_graphs_one_after_the_other_in_one_network():
    network = Network(rate=10e9, loss=1e-2)
    switches, cables = star(4)
    simulation = Simulation(network, PacketLayout(1), dict.fromkeys(switches), cables, 4, seed=1)
    before = 0.0
    for _ in range(4):
        group = simulation.launch_messages(ring_all_reduce(4, 20_000), ReliableTransport())
        assert simulation.wait() == group
        delivered = simulation.messenger.delivered / SECOND
        assert before < delivered.min() <= delivered.max() == simulation.now
        before = simulation.now
    assert simulation.flow_counts() == []


def test_late_hosts_start_late():
    graph = ring_all_reduce(3, 3000)
    usual = simulate_messages(graph, "10g").seconds
    late = simulate_messages(graph.starting([0, 2e-3, 0]), "10g").seconds
    assert late == pytest.approx(2e-3 + usual, rel=0.01)


def test_networks_of_racks():
    switches, cables = leaf_spine(6, 3, 2)
    assert switches == ["leaf0", "leaf1", "leaf2", "spine0", "spine1"]
    assert sum(cable.host is None for cable in cables) == 6
    assert [cable.switch for cable in cables if cable.host in {0, 5}] == ["leaf0", "leaf2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"racks": 0}, "racks is 0"),
        ({"spines": 0}, "spines is 0"),
        ({"transport": ReliableTransport(window_bytes=1 << 30)}, "window_bytes"),
    ],
)
def test_what_cannot_be_is_named(options, words):
    with pytest.raises(InputError, match=words):
        simulate_messages(ring_all_reduce(3, 5), **options)
    with pytest.raises(UnknownNameError):
        simulate_messages(ring_all_reduce(3, 5), transport="udp")


def test_a_switch_has_only_so_many_ports():
    with pytest.raises(InputError, match="more racks"):
        simulate_messages(gtopk_tree(600, 1))
