"""Priority flow control: pauses to the picosecond, no drops, deadlocks and storms by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rich.console import Console
from support.tiers import tiered

import innet
from innet.core.errors import InputError, StalledError
from innet.reports import tables
from innet.scenarios.traffic import simulate_traffic
from innet.sim import Network, network_of
from innet.sim.baselines import simulate_messages, star
from innet.sim.flows import Flow
from innet.sim.links import wire_time
from innet.sim.messages import parameter_server, ring_all_reduce
from innet.sim.simulation import Cable, FrameSize, Simulation

PS = 10**12
FRAME = 1442  # bytes of a packet of 1,400 bytes of payload
WIRE, PAUSE_WIRE = wire_time(FRAME, 10**11), wire_time(60, 10**11)
DELAY, PIPELINE = 500_000, 600_000  # ps


def simulation(cables, hosts, **settings):
    names = dict.fromkeys(cable.switch for cable in cables)
    network = Network(**{"pfc": True, **settings})
    return Simulation(network, FrameSize(1500, 1500), names, cables, hosts)


def of_star(hosts, **settings):
    return simulation(star(hosts)[1], hosts, **settings)


def incast(senders, packets, **settings):
    """All hosts send to the last one, at the rate of their links."""
    net = of_star(senders + 1, **settings)
    net.add_flows(
        [
            Flow(source=h, destination=senders, size=1400, packets=packets, interval=1e-8)
            for h in range(senders)
        ]
    )
    net.run_until(1.0)
    counts = net.flow_counts()
    assert sum(each.sent for each in counts) == senders * packets
    return net, sum(each.received for each in counts), sum(each.dropped for each in counts)


def test_incast_of_64_loses_nothing():
    net, received, dropped = incast(64, 50, buffer_bytes=3_500_000)
    assert (received, dropped) == (64 * 50, 0)
    assert net.counts().pauses > 64
    assert net.counts().dropped == 0
    _, received, dropped = incast(64, 50, pfc=False, buffer_bytes=3_500_000)
    assert dropped > 1000
    assert received + dropped == 64 * 50


@pytest.mark.parametrize("senders", tiered([2, 4, 8], [4], "other numbers of senders"))
def test_paused_senders_share_a_link_that_is_never_idle(senders):
    """Closed form: a sender that is paused for a part p of the time sends at (1 - p) of its rate,
    and of N senders into one link each is paused (N - 1)/N of the time in the mean.
    """
    net = of_star(senders + 1, buffer_bytes=900_000)
    net.add_flows(
        [
            Flow(
                source=h,
                destination=senders,
                size=1400,
                packets=10_000,
                interval=1e-8,
                start=1e-9 * h,
            )
            for h in range(senders)
        ]
    )
    begin, end = 1e-4, 1.1e-3
    net.run_until(begin)
    before = net.counts(), net.pause_counts(), [each.received for each in net.flow_counts()]
    net.run_until(end)
    after = net.counts(), net.pause_counts(), [each.received for each in net.flow_counts()]
    rates = np.subtract(after[2], before[2]) * (FRAME + 24) * 8 / (end - begin)
    assert rates.sum() == pytest.approx(1e11, rel=1e-3)
    paused = [late.paused - early.paused for early, late in zip(before[1], after[1], strict=True)]
    assert len(paused) == senders
    assert np.mean(paused) / (end - begin) == pytest.approx(1 - 1 / senders, rel=0.02)
    assert rates == pytest.approx(1e11 * (1 - np.divide(paused, end - begin)), rel=0.05)
    assert after[0].dropped == 0


def test_a_paused_queue_to_the_picosecond():
    """A host pauses its link: what is due in between leaves when the frame to resume has come."""
    net = of_star(2, host_send=0.0)
    times = [1e-6 * number for number in range(12)]
    net.add_flows([Flow(source=0, destination=1, size=1400, times=times, record_delays=True)])
    since, until = 3_000_000, 8_000_000
    net.pause_link(1, since / PS, until / PS)
    net.run_until(1e-3)
    (counts,) = net.flow_counts()
    on_way = PAUSE_WIRE + DELAY  # of a pause frame, which does not pass the pipeline
    arrivals, free = [], 0
    for sent in range(0, 12_000_000, 1_000_000):
        leaves = max(sent + WIRE + DELAY + PIPELINE, free)
        if since + on_way <= leaves < until + on_way:
            leaves = until + on_way
        free = leaves + WIRE
        arrivals.append(free + DELAY - sent)
    assert counts.delays.tolist() == arrivals
    (paused,) = net.pause_counts()
    assert paused == ("s0:1", "host 1", 0, 1, pytest.approx(5e-6))


def test_a_higher_priority_passes_a_paused_one():
    """Likewise, but the link is free for packets of the other priority."""
    net = of_star(3, priorities=2, host_send=0.0)
    net.add_flows(
        [
            Flow(source=0, destination=2, size=1400, times=[0.0, 1e-6, 2e-6], record_delays=True),
            Flow(
                source=1,
                destination=2,
                size=1400,
                times=[0.0, 1e-6, 1.9e-6],
                priority=1,
                record_delays=True,
            ),
        ]
    )
    net.pause_link(2, 0.0, 9e-6, priority=1)
    net.run_until(1e-3)
    low, high = net.flow_counts()
    alone = 2 * (WIRE + DELAY) + PIPELINE
    assert low.delays.tolist() == [alone] * 3
    resumed = 9_000_000 + PAUSE_WIRE + DELAY + WIRE + DELAY
    assert high.delays.tolist() == [
        resumed,
        resumed + WIRE - 1_000_000,
        resumed + 2 * WIRE - 1_900_000,
    ]


def test_a_paused_host_sends_packets_of_other_priorities():
    """Host 0's packets to a slow link wait in the host; those of the other priority do not."""
    cables = [Cable("s0", 0, 0), Cable("s0", 1, 1, rate=1e9), Cable("s0", 2, 2)]
    net = simulation(cables, 3, priorities=2, buffer_bytes=900_000)
    others = [2e-6 * number for number in range(20)]
    net.add_flows(
        [
            Flow(source=0, destination=1, size=1400, packets=60, interval=1e-8),
            Flow(source=0, destination=2, size=1400, times=others, priority=1, record_delays=True),
        ]
    )
    net.run_until(1e-2)
    slow, fast = net.flow_counts()
    assert slow.received == 60
    assert slow.dropped == 0
    assert fast.received == 20
    (paused,) = net.pause_counts()
    assert paused.source == "host 0"
    assert paused.priority == 0
    assert paused.paused > 1e-4
    # It waits for what host 0 has begun and for its own processor, and for no packet more.
    assert fast.delays.max() < 2 * (WIRE + DELAY) + PIPELINE + 61 * WIRE
    assert fast.delays[10:].max() < 2 * (WIRE + DELAY) + PIPELINE + WIRE + 100_000


RING = [Cable(f"s{i}", 0, i) for i in range(4)] + [
    Cable(f"s{i}", 1, None, f"s{(i + 1) % 4}", 2, rate=25e9) for i in range(4)
]


def test_a_deadlock_is_told_with_its_cycle():
    """Four switches in a ring, and all flows take it the same way round."""
    net = simulation(RING, 4, buffer_bytes=400_000)
    net.add_flows(
        [
            Flow(source=h, destination=(h + 2) % 4, size=1400, packets=5000, interval=1e-7, path=0)
            for h in range(4)
        ]
    )
    with pytest.raises(StalledError, match=r"deadlock .*s0:1 to s1:2; s1:1 to s2:2; s2:1"):
        net.run_until(1.0)


def test_the_other_way_round_there_is_none():
    """Half of the flows take the ring the other way: no cycle, and all arrives."""
    net = simulation(RING, 4, buffer_bytes=400_000)
    net.add_flows(
        [
            Flow(
                source=h,
                destination=(h + 1) % 4,
                size=1400,
                packets=5000,
                interval=1e-7,
            )
            for h in range(4)
        ]
    )
    net.run_until(1.0)
    assert [each.received for each in net.flow_counts()] == [5000] * 4
    assert net.counts().pauses > 0 == net.counts().dropped


def test_a_pause_storm_is_told():
    net = of_star(4, buffer_bytes=800_000)
    net.add_flows(
        [Flow(source=h, destination=3, size=1400, packets=2000, interval=1e-7) for h in range(3)]
    )
    net.pause_link(3, 1e-5, math.inf)
    with pytest.raises(StalledError, match=r"pause storm: the link s0:3 to host 3 .*3 others"):
        net.run_until(1.0)
    with pytest.raises(InputError, match="pfc=true"):
        of_star(2, pfc=False).pause_link(0, 0.0, 1.0)


@pytest.mark.parametrize("graph", [parameter_server(8, [8], 50_000), ring_all_reduce(8, 20_000)])
def test_messages_over_roce_lose_nothing(graph):
    lossless = simulate_messages(
        graph, "100g:pfc=true,buffer_bytes=700000", transport="roce", racks=3, spines=2
    )
    lossy = simulate_messages(
        graph, "100g:buffer_bytes=300000", transport="roce", racks=3, spines=2
    )
    assert lossless.counts.dropped == lossless.retransmissions == 0
    assert lossless.seconds <= lossy.seconds
    if graph.destination.max() == 8:
        assert lossless.counts.pauses > 0 < lossy.counts.dropped


def summed(network, workers=8, **options):
    """An all-reduce through two racks with a slow trunk."""
    collective = innet.Collective(
        workers=workers, program="tree", racks=2, network=network, window=512, **options
    )
    gradients = [np.full(100_000, worker, np.float32) for worker in range(workers)]
    total, report = collective.all_reduce(gradients)
    assert report.exact
    assert total[0] == workers * (workers - 1) / 2
    return report, collective.network.simulation


def test_sums_in_switches_lose_nothing():
    lossless = "100g:trunk_rate=10e9,pfc=true,buffer_bytes=400000"
    report, net = summed(lossless)
    assert report.simulated.dropped == report.retransmissions == 0
    assert report.simulated.pauses == net.counts().pauses > 0
    assert report.simulated.paused == max(each.paused for each in net.pause_counts()) > 0
    report, _ = summed("100g:trunk_rate=10e9,buffer_bytes=40000")
    assert report.simulated.dropped > 0 == report.simulated.pauses


def test_the_same_on_two_threads(monkeypatch):
    network = "100g:trunk_rate=10e9,pfc=true,buffer_bytes=2000000"
    times = []
    for cores in (1, 2):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        report, net = summed(network, workers=64, values_per_packet=32)
        assert (net._threads is not None) == (cores == 2)
        times.append((report.simulated.model_dump(), net.pause_counts(), net.link_counts()))
    assert times[0] == times[1]
    assert times[0][0]["pauses"] > 0


def test_settings():
    assert network_of("100g:pfc=true").pfc
    assert not network_of("100g:pfc=False").pfc
    for settings, message in (
        ({"pfc": 3}, "pfc is 3"),
        ({"pfc_alpha": 0}, "pfc_alpha is 0"),
        ({"pfc_headroom": -1}, "pfc_headroom is -1"),
        ({"pfc_watchdog": -1}, "pfc_watchdog is -1"),
        ({"pfc": True, "queue_bytes": 1000}, "set buffer_bytes instead"),
    ):
        with pytest.raises(InputError, match=message):
            Network(**settings)
    with pytest.raises(InputError, match=r"buffer_bytes is 100000, of which 9 links .*headroom"):
        of_star(9, buffer_bytes=100_000)


def ring_file(folder, flows):
    """A traffic file: three switches in a ring, whose program's tables go round it one way."""
    ports = {0: {0: 1, 1: 2, 2: 2}, 1: {1: 1, 2: 2, 0: 2}, 2: {2: 1, 0: 2, 1: 2}}
    lines = ["[topology]", 'preset = "100g"', "pfc = true", "buffer_bytes = 300_000"]
    for switch, routes in ports.items():
        entries = [
            f"table_add ForwardIngress.addresses ForwardIngress.forward {0x020000000001 + h} => {p}"
            for h, p in routes.items()
        ]
        (folder / f"s{switch}.commands").write_text("\n".join(entries) + "\n")
        lines += [f"[switch.s{switch}]", f'commands = "s{switch}.commands"']
        lines += ["[[link]]", f'ends = ["host {switch}", "s{switch}:1"]']
        lines += ["[[link]]", f'ends = ["s{switch}:2", "s{(switch + 1) % 3}:3"]', "rate = 25e9"]
        if switch >= flows:
            continue
        lines += ["[[flow]]", f"source = {switch}", f"destination = {(switch + 2) % 3}"]
        lines += ["size = 1000", "packets = 2000", "interval = 1e-7"]
    file = folder / "ring.toml"
    file.write_text("\n".join(lines))
    return file


def test_a_program_with_cyclic_routes_in_a_traffic_file(tmp_path):
    with pytest.raises(
        StalledError, match=r"deadlock .*: s0:2 to s1:3; s1:2 to s2:3; s2:2 to s0:3"
    ):
        simulate_traffic(ring_file(tmp_path, 3), program="p4/examples/forward.json")
    record = simulate_traffic(ring_file(tmp_path, 2), program="p4/examples/forward.json")
    assert [flow.received for flow in record.flows] == [2000] * 2
    paused = {f"{link.source} to {link.target}" for link in record.links if link.pauses}
    assert paused
    assert all(0 < link.paused[0] < record.seconds for link in record.links if link.pauses)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(tables.traffic_table(record))
    assert " times, " in capture.get()
