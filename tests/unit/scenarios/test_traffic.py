"""Any P4 program in simulated time: delays, queues, captures, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import capture_files

from innet.core.errors import ConfigError, InputError
from innet.records import Record
from innet.scenarios.traffic import simulate_traffic
from innet.scenarios.traffic_file import read_scenario
from innet.sim.links import wire_time
from innet.tools.captures import CaptureReader

EXAMPLES = Path(__file__).parents[3] / "p4" / "examples"
FORWARD = {
    "program": str(EXAMPLES / "forward.json"),
    "commands": EXAMPLES / "forward.commands",
}
RATE = 10_000_000_000
STAR = f'[topology]\nkind = "star"\nhosts = 3\nrate = {RATE}\ndelay = 3e-7\nhost_send = 0\n'
FLOW = "[[flow]]\nsource = {}\ndestination = {}\nsize = {}\npackets = {}\ninterval = {}\n"
ECN_COMMANDS = """
table_add EcnIngress.routes EcnIngress.forward 10.0.0.1/32 => 1
register_write EcnEgress.threshold 0 {threshold}
"""


def written(folder, text, name="flows.toml"):
    path = folder / name
    path.write_text(text)
    return path


def packets_of(path):
    """Times in nanoseconds and bytes of a capture's packets."""
    times, packets = [], []
    with CaptureReader(path) as capture:
        for block in capture.blocks():
            data = block.data.tobytes()
            times += block.time.tolist()
            packets += [data[a : a + n] for a, n in zip(block.start, block.length, strict=True)]
    return times, packets


def test_a_packet_through_a_program_takes_two_wires_two_delays_and_the_pipeline(tmp_path):
    path = written(tmp_path, STAR + FLOW.format(0, 1, 1000, 7, 2e-6))
    record = simulate_traffic(path, **FORWARD)
    (flow,) = record.flows
    expected = 2 * wire_time(1042, RATE) + 2 * 300_000 + 600_000
    assert (flow.sent, flow.received) == (7, 7)
    assert round(flow.mean_delay * 1e12) == round(flow.longest_delay * 1e12) == expected
    assert record.hosts[1].received_bytes == record.hosts[0].sent_bytes == 7 * 1042
    assert record.hosts[2].received == record.under_way == 0


def test_what_the_program_drops_is_told_apart_from_what_queues_drop(tmp_path):
    text = STAR + "queue_packets = 4\n" + FLOW.format(0, 1, 1000, 50, 1e-6)
    text += FLOW.format(2, 1, 1000, 50, 1e-6) + FLOW.format(0, 2, 100, 20, 1e-6)
    (switch,) = simulate_traffic(written(tmp_path, text), **FORWARD).switches
    assert switch.dropped_program == 20, "forward.commands do not know host 2"
    assert switch.dropped_queue > 0
    assert switch.packets_in == 120 == switch.packets_out + switch.dropped_queue + 20


def naive_queue(arrivals, took, capacity, threshold):
    """Whether each packet is sent, and marked: it waits while the line is busy, FIFO."""
    departures, free, found = [], 0, []
    for now in arrivals:
        # Events of one time: arrivals come before departures.
        waiting = sum(departure >= now for departure in departures)
        if waiting >= capacity:
            found.append(None)
            continue
        departures.append(max(now, free))
        free = departures[-1] + took
        found.append(waiting >= threshold)
    return found


def test_marks_and_drops_of_ecn_under_overload_are_those_of_a_naive_queue(tmp_path):
    capacity, threshold, each = 12, 5, 200
    commands = written(tmp_path, ECN_COMMANDS.format(threshold=threshold), "ecn.txt")
    flows = "".join(
        FLOW.format(source, 0, 1000, each, interval) + f"start = {start}\necn = 1\n"
        for source, interval, start in ((1, 1.3e-6, 0), (2, 1.700003e-6, 1.00001e-7))
    )
    path = written(tmp_path, STAR + f"queue_packets = {capacity}\n" + flows)
    record = simulate_traffic(
        path, program=str(EXAMPLES / "ecn.json"), commands=commands, pcap=tmp_path / "out"
    )
    took = wire_time(1042, RATE)
    arrivals = sorted(
        start + number * interval + took + 300_000 + 600_000
        for interval, start in ((1_300_000, 0), (1_700_003, 100_001))
        for number in range(each)
    )
    assert len(set(arrivals)) == len(arrivals), "no ties"
    expected = [
        mark for mark in naive_queue(arrivals, took, capacity, threshold) if mark is not None
    ]
    _, packets = packets_of(tmp_path / "out" / "s1.1-to-host0.pcap")
    marks = [packet[15] & 3 == 3 for packet in packets]
    assert marks == expected
    assert 0 < sum(marks) < len(marks)
    assert record.switches[0].dropped_queue == 2 * each - len(expected) > 0


def test_captures_have_what_the_counters_count_in_order_and_not_closer_than_the_wire(tmp_path):
    text = STAR + FLOW.format(0, 1, 1000, 300, 5e-7) + FLOW.format(2, 1, 200, 300, 4e-7)
    record = simulate_traffic(written(tmp_path, text), **FORWARD, pcap=tmp_path / "out")
    for link in record.links:
        times, packets = packets_of(Path(link.capture))
        assert len(packets) == link.packets
        assert sum(max(len(packet), 60) + 24 for packet in packets) == link.bytes
        took = [wire_time(len(packet), RATE) // 1000 for packet in packets[:-1]]
        assert (np.diff(times) >= took).all()
    assert sum(link.packets > 0 for link in record.links) == 3


def test_packets_of_a_capture_are_ethernet_frames(tmp_path):
    content = capture_files.pcap([(0, bytes(60))], link_type=101)
    (tmp_path / "raw.pcap").write_bytes(content)
    text = STAR + '[[flow]]\nsource = 0\npcap = "raw.pcap"\n'
    with pytest.raises(InputError, match=r"raw\.pcap has packets of link type raw IP \(101\)"):
        simulate_traffic(written(tmp_path, text), **FORWARD)


def test_packets_of_a_capture_are_sent_at_its_times(tmp_path):
    first = written(tmp_path, STAR + FLOW.format(0, 1, 500, 40, 3e-6))
    simulate_traffic(first, **FORWARD, pcap=tmp_path / "out")
    text = STAR + '[[flow]]\nsource = 0\npcap = "out/host0-to-s1.1.pcap"\n'
    record = simulate_traffic(written(tmp_path, text), **FORWARD, pcap=tmp_path / "again")
    name = "s1.2-to-host1.pcap"
    assert packets_of(tmp_path / "again" / name) == packets_of(tmp_path / "out" / name)
    assert record.hosts[1].received == 40
    assert record.flows[0].received is None


def test_without_a_program_switches_forward_flows(tmp_path):
    text = STAR + FLOW.format(0, 2, 1000, 5, 1e-6)
    record = simulate_traffic(written(tmp_path, text), pcap=tmp_path / "out")
    assert record.flows[0].received == record.hosts[2].received == 5
    _, packets = packets_of(tmp_path / "out" / "s1.3-to-host2.pcap")
    assert [packet[:6].hex() for packet in packets] == ["020000000003"] * 5


def test_links_can_be_listed_and_switches_have_programs_of_their_own(tmp_path):
    text = f"[topology]\nrate = {RATE}\ndelay = 3e-7\nhost_send = 0\n"
    for ends in ('"host 0", "left:1"', '"left:2", "right:1"', '"right:2", "host 1"'):
        text += f"[[link]]\nends = [{ends}]\n"
    text += f'[switch.right]\nprogram = "{EXAMPLES}/forward.json"\n'
    text += f'commands = "{EXAMPLES}/forward.commands"\n' + FLOW.format(0, 1, 1000, 3, 1e-6)
    record = simulate_traffic(written(tmp_path, text), **FORWARD)
    assert [switch.packets_out for switch in record.switches] == [3, 3]
    expected = 3 * wire_time(1042, RATE) + 3 * 300_000 + 2 * 600_000
    assert round(record.flows[0].longest_delay * 1e12) == expected


def test_the_record_is_the_same_twice_and_can_be_read(tmp_path):
    text = STAR + "loss = 0.1\n" + FLOW.format(0, 1, 100, 100, 1e-6) + "poisson = true\n"
    path = written(tmp_path, text)
    first, second = (simulate_traffic(path, **FORWARD, seed=3) for _ in range(2))
    assert first.flows == second.flows
    assert first.links == second.links
    assert sum(link.lost for link in first.links) > 0
    first.save(tmp_path / "record.json")
    assert Record.load(tmp_path / "record.json") == first


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[[flow]]\nsource = 0\ndestination = 1\nsize = 9\npackets = 1\nrate = 1\n", "kind"),
        (STAR + FLOW.format(0, 7, 9, 1, 1e-6), "destination = 7"),
        (STAR + FLOW.format(0, 1, 9, 1, 1e-6) + "speed = 3\n", "speed"),
        (STAR + FLOW.format(0, 1, 9, 1, 1e-6) + "rate = 3\n", "one of rate, interval"),
        (STAR + FLOW.format(0, 1, 9, 1, 1e-6) + "stamp = true\n", "16 bytes"),
        (STAR + FLOW.format(0, 1, 9, 1, 1e-6) + "[switch.s9]\n", "no switch s9"),
        (STAR + '[[flow]]\nsource = 0\npacket = "xy"\npackets = 1\ninterval = 1\n', "hexadecimal"),
        ('[[link]]\nends = ["host 0", "host 1"]\n' + FLOW.format(0, 1, 9, 1, 1e-6), "link 0"),
        ("rate =", "no valid TOML"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, text, wanted):
    with pytest.raises(ConfigError, match=wanted):
        read_scenario(written(tmp_path, text), program="x.json")


LINKS = f"""
[topology]
delay = 3e-7
host_send = 0
switch_latency = 0
rate = {RATE}
[[link]]
ends = ["host 0", "s1:1"]
rate = 1e9
delay = 5e-6
[[link]]
ends = ["s1:2", "host 1"]
"""


def test_a_link_may_have_a_rate_and_a_delay_of_its_own(tmp_path):
    flow = FLOW.format(0, 1, 1000, 1, 1)
    record = simulate_traffic(written(tmp_path, LINKS + flow))
    took = wire_time(1042, 10**9) + wire_time(1042, RATE) + 5_000_000 + 300_000
    assert record.flows[0].mean_delay == pytest.approx(took / 1e12, abs=1e-12)
    with pytest.raises(ConfigError, match=r"link 0: rate is 0; give bits per second"):
        read_scenario(written(tmp_path, LINKS.replace("rate = 1e9", "rate = 0") + flow))
    with pytest.raises(ConfigError, match=r"link 0: delay is 1e-13 s, below the clock"):
        read_scenario(written(tmp_path, LINKS.replace("5e-6", "1e-13") + flow))


def test_faults_of_links_delay_and_duplicate_packets(tmp_path):
    text = STAR + "[faults]\njitter = 1e-5\nduplicate = 0.25\n"
    text += FLOW.format(0, 1, 100, 2000, 1e-6)
    record = simulate_traffic(written(tmp_path, text), pcap=tmp_path / "out")
    flow = record.flows[0]
    assert flow.sent == 2000
    # Each packet meets two links, and a copy made on the first may be doubled on the second.
    assert 2000 * 1.25**2 * 0.93 < flow.received < 2000 * 1.25**2 * 1.07
    least = 2 * (wire_time(142, RATE) + 300_000) / 1e12
    assert least + 0.9e-5 < flow.mean_delay < least + 1.2e-5
    assert flow.longest_delay < least + 2.2e-5


@pytest.mark.parametrize(("unit", "came", "waited"), [("us", 68, 67), ("ns", 68_100, 67_200)])
def test_programs_see_microseconds_or_nanoseconds(tmp_path, unit, came, waited):
    """Two packets of 84 bytes on the wire come at the same time, at 10 Mbit/s; one waits."""
    header = "4500002800000000401100000a0000010a000002"  # to 10.0.0.2: by port 2
    packet = f'packet = "{"00" * 12}0800{header}{"00" * 20}"\npackets = 1\ninterval = 1\n'
    text = STAR.replace(f"{RATE}", f'1e7\ntimestamp_unit = "{unit}"')
    text += f"[[flow]]\nsource = 0\n{packet}[[flow]]\nsource = 2\n{packet}"
    program = Path(__file__).parents[2] / "golden" / "rate_limits" / "rate_limits.json"
    simulate_traffic(written(tmp_path, text), program=str(program), pcap=tmp_path / "out")
    _, packets = packets_of(tmp_path / "out" / "s1.2-to-host1.pcap")
    seen = [
        (int.from_bytes(data[34:40], "big"), int.from_bytes(data[44:48], "big")) for data in packets
    ]
    assert seen == [(came, 0), (came, waited)]


def test_flows_of_a_higher_priority_wait_for_one_packet_at_most(tmp_path):
    """One flow alone fills the link to a host; the other one goes first, or waits behind it."""
    delays = []
    for priority in (0, 1):
        text = STAR + "priorities = 2\nqueue_packets = 50\n"
        text += FLOW.format(0, 1, 1000, 400, 8.5e-7) + FLOW.format(2, 1, 1000, 100, 3.3e-6)
        record = simulate_traffic(written(tmp_path, text + f"priority = {priority}\n"))
        delays.append(record.flows[1].mean_delay)
        prior = record.flows[1]
    packet = wire_time(1042, RATE) / 1e12
    alone = 2 * packet + 2 * 3e-7 + 6e-7
    assert alone < prior.mean_delay < prior.longest_delay <= alone + packet
    assert delays[0] > alone + 20 * packet
    with pytest.raises(InputError, match=r"priority 1, but .*priorities=2"):
        simulate_traffic(written(tmp_path, STAR + FLOW.format(0, 1, 9, 1, 1) + "priority = 1\n"))


def test_packets_that_go_round_in_circles_end_a_run_without_an_end(tmp_path):
    for name, port in (("s1", 2), ("s2", 1)):
        entry = f"ForwardIngress.addresses ForwardIngress.forward 0x020000000002 => {port}\n"
        written(tmp_path, f"table_add {entry}", f"{name}.commands")
    links = (("host 0", "s1:1"), ("s1:2", "s2:1"), ("host 1", "s2:2"))
    text = f"[topology]\nrate = {RATE}\n" + FLOW.format(0, 1, 1000, 1, 1e-6)
    text += "".join(f'[[link]]\nends = ["{one}", "{other}"]\n' for one, other in links)
    text += "".join(f'[switch.{name}]\ncommands = "{name}.commands"\n' for name in ("s1", "s2"))
    with pytest.raises(InputError, match=r"1 packets were sent.* in circles\. Say by seconds"):
        simulate_traffic(written(tmp_path, text), program=FORWARD["program"])
    many = text + FLOW.format(1, 0, 1000, 20_000, 1e-6)  # of which none goes round
    with pytest.raises(InputError, match=r"20001 packets were sent.* in circles"):
        simulate_traffic(written(tmp_path, many), program=FORWARD["program"])
    (flow,) = simulate_traffic(
        written(tmp_path, "seconds = 1e-4\n" + text), program=FORWARD["program"]
    ).flows
    assert (flow.sent, flow.received) == (1, 0)
