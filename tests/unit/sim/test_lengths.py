"""A packet's length on the wire is its own: links, queues and programs take each packet's."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.switch_cases import program

from innet.core.errors import InputError
from innet.core.reduce_op import ReduceOp, SizedSegment
from innet.network import Faults
from innet.sim import Network
from innet.sim.baselines import star
from innet.sim.flows import LONGEST_FRAME, Flow, PacketFlow, udp_frame
from innet.sim.network import OVERHEAD
from innet.sim.simulation import FrameSize, Simulation
from innet.switch import Switch
from innet.topology import EmulatedNetwork, Request, make_plan

FORWARD = Path(__file__).parents[3] / "p4" / "examples" / "forward.json"
CARRIED = 142  # bytes of the packets here
RATE, DELAY, PIPELINE = 10e9, 1e-6, 5e-7
QUIET = {
    "rate": RATE,
    "delay": DELAY,
    "switch_latency": PIPELINE,
    "host_receive": 0.0,
    "host_send": 0.0,
}
LENGTHS = (0, 1000, 300)


def wire(extra):
    """Seconds of a packet on a link."""
    return 8 * (CARRIED + extra + OVERHEAD) / RATE


def switched(hosts, **settings):
    """Hosts at a switch that forwards by destination; ``counted`` has bytes by port."""
    switch = Switch.load(FORWARD, "jit")
    for host in range(hosts):
        switch.commands(
            f"table_add ForwardIngress.addresses ForwardIngress.forward "
            f"{0x0200_0000_0001 + host} => {host}"
        )
    names, cables = star(hosts)
    network = Network(**{**QUIET, **settings})
    size = FrameSize(CARRIED, CARRIED)
    return Simulation(network, size, dict.fromkeys(names, switch), cables, hosts), switch


def packets(source, destination, extra, start=0.0, count=1):
    return PacketFlow(
        source=source,
        frames=(udp_frame(source, destination, CARRIED - 42),),
        packets=count,
        interval=1e-7,
        start=start,
        record_delays=True,
        stamp=True,
        extra=extra,
    )


def test_each_packet_takes_its_own_time():
    simulation, switch = switched(2)
    simulation.add_flows([packets(0, 1, extra, 1e-5 * at) for at, extra in enumerate(LENGTHS)])
    simulation.run_until(1.0)
    for extra, counts in zip(LENGTHS, simulation.flow_counts(), strict=True):
        assert counts.received == 1
        expected = 2 * wire(extra) + 2 * DELAY + PIPELINE
        assert counts.mean_delay == pytest.approx(expected, rel=1e-9)
    total = sum(CARRIED + extra for extra in LENGTHS)
    up, down = simulation.link_counts()[0], simulation.link_counts()[3]
    assert up.bytes == down.bytes == total + len(LENGTHS) * OVERHEAD
    # The program counts them so, too, and what hosts get is what is carried.
    assert simulation.host_packets(1) == (3, 3 * CARRIED)
    assert switch.state.counters[0][1].tolist() == [3, total]


def test_a_packet_waits_for_the_length_of_the_one_before_it():
    """Two hosts' packets come to the switch at once; that of the lower number goes first."""
    simulation, _ = switched(3)
    simulation.add_flows([packets(0, 2, 800), packets(1, 2, 200, wire(800) - wire(200))])
    simulation.run_until(1.0)
    first, second = simulation.flow_counts()
    across = 2 * DELAY + PIPELINE
    assert first.mean_delay == pytest.approx(2 * wire(800) + across, rel=1e-9)
    assert second.mean_delay == pytest.approx(2 * wire(200) + wire(800) + across, rel=1e-9)


def test_a_flow_without_bytes_waits_for_the_length_of_a_packet():
    simulation, _ = switched(3)
    plain = Flow(source=1, destination=2, size=CARRIED - 42, packets=1, interval=1.0,
                 start=wire(800) - wire(0))  # fmt: skip
    simulation.add_flows([packets(0, 2, 800), plain])
    simulation.run_until(1.0)
    delay = simulation.flow_counts()[1].mean_delay
    assert delay == pytest.approx(2 * wire(0) + wire(800) + 2 * DELAY + PIPELINE, rel=1e-9)


@pytest.mark.parametrize("becomes", [100, 255])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_flow_moves_up_behind_packets_that_become_shorter(becomes, recorded):
    """The program cuts packets in egress; two flows share its line, which is overloaded."""
    names, cables = star(4)
    switch = Switch.load(program("switch_copies"), "jit")
    network = Network(**QUIET)
    simulation = Simulation(network, FrameSize(1400, 1400), dict.fromkeys(names, switch), cables, 4)
    if recorded:  # it takes steps anyway
        simulation.record(lambda *_: None)
    frame = bytes([15, becomes, *bytes(1398)])
    gaps, sizes = (1.2e-6, 0.55e-6, 3e-7), (1400, 500, 142)
    counts = (80, 150, 250)
    simulation.add_flows(
        [PacketFlow(source=0, frames=(frame,), packets=counts[0], interval=gaps[0])]
        + [
            Flow(source=source, destination=1, size=sizes[at] - 42, packets=counts[at],
                 interval=gaps[at], record_delays=True)
            for at, source in ((1, 2), (2, 3))
        ]
    )  # fmt: skip
    simulation.run_until(1.0)
    # The same by a line that sends one packet after the other: 800 ps for each byte.
    across, events = round((DELAY + PIPELINE) * 1e12), []
    for at, (gap, size, count) in enumerate(zip(gaps, sizes, counts, strict=True)):
        due = [round(gap * 1e12) * number for number in range(count)]
        events += [(time + 800 * (size + OVERHEAD) + across, at, time) for time in due]
    free, expected = 0, ([], [], [])
    for time, at, due in sorted(events):
        free = max(free, time) + 800 * ((becomes, *sizes[1:])[at] + OVERHEAD)
        expected[at].append(free + 1_000_000 - due)
    for at in (1, 2):
        assert simulation.flow_counts()[at].delays.tolist() == expected[at]
    assert simulation.link_counts()[3].bytes == 80 * (becomes + OVERHEAD) + sum(
        count * (size + OVERHEAD) for count, size in zip(counts[1:], sizes[1:], strict=True)
    )
    assert simulation.queue_bytes_max() > 4000


def test_a_queue_that_is_limited_in_bytes_counts_what_packets_stand_for():
    simulation, switch = switched(3, queue_bytes=1000)
    # Of each pair, the second finds the first on the line, and the queue empty but for itself.
    simulation.add_flows([packets(0, 2, 300, count=50), packets(1, 2, 300, count=50)])
    simulation.run_until(1.0)
    assert switch.traffic_manager.dropped == simulation.counts().dropped > 0
    assert simulation.queue_bytes_max() == 2 * (CARRIED + 300)
    with pytest.raises(InputError, match="queue_bytes is 1000, but a packet has 1143 bytes"):
        simulation.add_flows([packets(0, 2, 1001)])


def test_a_damaged_packet_is_shorter_by_what_it_has_lost():
    simulation, _ = switched(2)
    simulation.set_faults(Faults(truncate=1.0, tick=0.0), [1])
    simulation.add_flows([packets(0, 1, 1000)])
    simulation.run_until(1.0)
    _, size = simulation.host_packets(1)
    assert size < CARRIED
    slots = simulation._memory.slots
    cut = slots[(slots["carried"] == size) & (slots["length"] > 0)]
    assert (cut["length"] == size + 1000).any()


def test_packets_beside_a_job_of_longer_ones_are_as_long_as_they_are():
    """A job's packets stand for 64 values, a flow's for themselves, in one network."""
    plan = make_plan("slots", 64, Request(workers=2, thin=True))
    net = EmulatedNetwork(plan, network=Network(**QUIET))
    for worker in net.workers:
        worker.start([SizedSegment(ReduceOp.SUM, 640)], 0.0)
    simulation = net.simulation
    short = udp_frame(0, 1, 20)
    simulation.add_flows([PacketFlow(source=0, frames=(short,), packets=3, interval=1e-6)])
    net.run()
    simulation.run_until(1.0)
    job = 10 * (plan.layout.wire_size + OVERHEAD)
    mine, other = (simulation.link_counts()[at] for at in (0, 2))
    assert (other.packets, other.bytes) == (10, job)
    assert (mine.packets, mine.bytes) == (13, job + 3 * (len(short) + OVERHEAD))


def test_a_frame_without_values_stands_for_itself():
    layout = make_plan("slots", 64, Request(workers=2, thin=True)).layout
    assert layout.wire_length(layout.frame_size) == layout.wire_size
    assert layout.wire_length(layout.values_offset) == layout.values_offset


@pytest.mark.parametrize("extra", [-1, LONGEST_FRAME, 1.5])
def test_lengths_that_no_packet_has_are_refused(extra):
    with pytest.raises(InputError, match="extra bytes of the packets of host 0 are"):
        packets(0, 1, extra)
