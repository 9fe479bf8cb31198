"""Recordings: what happened to each packet, its causes, queues, drops, watched cells, headers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.tiers import tiered

from innet.allreduce import collective
from innet.core.errors import InputError, StateError, UnknownNameError
from innet.network import Faults
from innet.records import Record, RecordingRecord
from innet.records.recording import FATES
from innet.scenarios.traffic import TrafficRun, simulate_traffic
from innet.scenarios.traffic_file import read_scenario
from innet.sim import Testbed as Bed
from innet.sim.flows import udp_frame
from innet.sim.header_layouts import layouts_of
from innet.switch.ways import way_lines
from innet.tools.files import open_program

ROOT = Path(__file__).parents[3]
L3 = ROOT / "benchmarks/programs/l3.json"
GRADIENTS = [np.arange(i, 400 + i, dtype=np.float32) / 64 for i in range(4)]
FORWARD = {
    "program": str(ROOT / "p4/examples/forward.json"),
    "commands": ROOT / "p4/examples/forward.commands",
}
INCAST = """
[topology]
kind = "star"
hosts = 3
rate = 1e10
queue_packets = 4
loss = {loss}
""" + "".join(
    f"[[flow]]\nsource = {source}\ndestination = {target}\nsize = 600\npackets = {packets}\n"
    f"interval = 2.5e-7\n"
    for source, target, packets in ((0, 1, 60), (2, 1, 60), (0, 2, 10))
)


def routed(hosts=2, **link):
    """Hosts at a router."""
    bed = Bed("10g", seed=link.pop("seed", 0), faults=link.pop("faults", None))
    routes = []
    for i in range(1, hosts + 1):
        routes += [
            f"table_add routes route 10.0.0.{i}/32 => {i}",
            f"table_add next_hops forward {i} => {i} 02:00:00:00:ff:01 02:00:00:00:00:0{i}",
        ]
    router = bed.switch("s1", L3, commands=routes)
    ends = [bed.host(f"h{i}") for i in range(1, hosts + 1)]
    for port, host in enumerate(ends, start=1):
        bed.link(host, router, port=port, **link)
    return bed, ends


def asked(bed, client, server, frames=20):
    """Let a client send frames, and a server each one back."""

    @server.serve
    async def answer():
        while True:
            frame = await server.receive()
            server.send(udp_frame(1, 0, 18, payload=frame[42:60]))

    @client.run
    async def ask():
        for number in range(frames):
            client.send(udp_frame(0, 1, 18, payload=bytes([number]) * 18))
            if number % 4 == 3:
                await client.receive(timeout=1e-5)
        await client.sleep(1e-4)

    bed.run()


def fates(columns):
    return Counter(FATES[each] for each in columns["fate"].tolist())


def recorded(tmp_path, bed, **options):
    bed.record(**options)
    asked(bed, *bed.hosts.values())
    bed.save(tmp_path / "run.json")
    record = RecordingRecord.load(tmp_path / "run.json")
    return record, record.unpacked()


def test_each_packet_has_its_cause_and_what_became_of_it(tmp_path):
    bed, _ = routed()
    record, columns = recorded(tmp_path, bed)
    assert isinstance(Record.load(tmp_path / "run.json"), RecordingRecord)
    assert [(node.name, node.kind) for node in record.nodes] == [
        ("s1", "switch"), ("h1", "host"), ("h2", "host"),
    ]  # fmt: skip
    assert len(columns["link"]) == 80 == record.packets
    assert fates(columns) == {"received": 40, "passed on": 40}
    from_switch = [record.nodes[record.links[link].source].name == "s1" for link in columns["link"]]
    for row, cause in enumerate(columns["cause"].tolist()):
        assert (cause >= 0) == from_switch[row]
        if cause >= 0:
            # Its bytes behind the headers are those of the packet that came, and it left then.
            assert payload(columns, row) == payload(columns, cause)
            assert columns["time"][row] == columns["time"][cause] + columns["flight"][cause]


def payload(columns, row):
    begins = np.cumsum(columns["frame_length"]) - columns["frame_length"]
    begin = int(begins[columns["frame"][row]])
    length = int(columns["frame_length"][columns["frame"][row]])
    return bytes(columns["bytes"][begin + 42 : begin + length].astype(np.uint8))


def traced(record, columns, switch):
    """Of each packet that came to a switch, in their order, its row and what a trace tells."""
    begins = np.append(0, np.cumsum(columns["frame_length"]))
    to_switch = [row for row, link in enumerate(columns["link"]) if record.links[link].target == 0]
    arrives = (columns["time"] + columns["flight"])[to_switch]
    for place in np.lexsort((to_switch, columns["link"][to_switch], arrives)).tolist():
        row = to_switch[place]
        frame = columns["frame"][row]
        data = bytes(columns["bytes"][begins[frame] : begins[frame + 1]].astype(np.uint8))
        yield row, way_lines(switch.trace(record.links[columns["link"][row]].target_port, data))


def test_ways_through_a_router_are_those_of_a_trace_and_each_is_kept_once(tmp_path):
    bed, (client, _) = routed()
    bed.packets(client, udp_frame(0, 7, 18), interval=2e-6, packets=3)
    record, columns = recorded(tmp_path, bed)
    told = list(traced(record, columns, bed.switches["s1"].model))
    assert len(told) == 43
    for row, lines in told:
        assert record.ways[columns["way"][row]] == lines
    assert len(record.ways) == len(set(record.ways)) == 3
    assert (columns["way"] >= 0).sum() == len(told), "packets for hosts have no way"
    texts = ["\n".join(way) for way in record.ways]
    (text,) = (each for each in texts if "routes: hit entry 1" in each)
    for each in ("at port 1", "state parse_ipv4", "checksums correct: true", "sent to port 2"):
        assert each in text
    assert sum("routes: miss" in each for each in texts) == 1


def test_ways_of_slots_are_those_of_a_trace():
    def made():
        return collective.Collective(workers=2, network="10g", values_per_packet=32, window=2)

    whole = made()
    recorder = whole.record_run()
    whole.all_reduce([np.ones(320, np.float32)] * 2)
    record = recorder.record("sum")
    columns = record.unpacked()
    (switch,) = made().network.switches.values()
    for row, lines in traced(record, columns, switch):
        assert record.ways[columns["way"][row]] == lines
    assert 1 < len(record.ways) < 10
    assert any("multicast" in line for way in record.ways for line in way)


def test_equal_bytes_are_kept_once_and_headers_are_those_of_the_parser(tmp_path):
    bed, _ = routed()
    record, columns = recorded(tmp_path, bed)
    assert len(columns["frame_length"]) == 4 * 20
    ((ethernet, ipv4),) = record.layouts
    assert (ethernet.name, ipv4.name, ipv4.offset) == ("ethernet", "ipv4", 14 * 8)
    assert [field.notation for field in ipv4.fields[-2:]] == ["ipv4", "ipv4"]
    assert ethernet.fields[0].notation == "mac"


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(None, id="loss"),
        pytest.param(Faults(duplicate=0.3, reorder=0.3, hold=3e-6, jitter=1e-7), id="copies"),
        pytest.param(Faults(corrupt=0.3, truncate=0.1), id="damage"),
    ],
)
def test_losses_and_faults_are_those_of_the_run_which_recording_does_not_change(tmp_path, faults):
    def run(**options):
        bed, (client, server) = routed(seed=3, faults=faults, loss=0.1)
        if options:
            _, columns = recorded(tmp_path, bed, **options)
        else:
            asked(bed, client, server)
            columns = None
        counts = [count for link in bed.links for count in link.counts()]
        told = bed.switches["s1"].model.statistics.as_dict()
        return counts, (client.received, server.received, told), columns

    plain, seen, _ = run()
    counts, again, columns = run(limit=1000)
    assert (plain, seen) == (counts, again)
    found = fates(columns)
    assert found["lost on the link"] == sum(count.lost for count in counts) > 0
    duplicates = columns["again"] > 0
    to_host = np.isin(columns["link"], [1, 3])
    received = to_host & (columns["fate"] == FATES.index("received"))
    assert received.sum() + (received & duplicates).sum() == seen[0] + seen[1]
    assert (duplicates.any(), columns["damaged"].any()) == (
        faults is not None and faults.duplicate > 0,
        faults is not None and faults.corrupt > 0,
    )
    dropped = seen[2]["dropped_ingress"]
    assert found["dropped by the program"] <= dropped
    if not duplicates.any():
        assert found["dropped by the program"] == dropped


@pytest.mark.parametrize("program", [True, False])
def test_queues_are_exact_and_drops_are_told_apart(tmp_path, program):
    path = tmp_path / "flows.toml"
    path.write_text(INCAST.format(loss=0.01))
    given = FORWARD if program else {}
    traffic = simulate_traffic(path, **given, recording=tmp_path / "run.json")
    own = {"created", "machine", "wall_seconds"}
    plain = simulate_traffic(path, **given)
    assert traffic.model_dump(exclude=own) == plain.model_dump(exclude=own)
    record = RecordingRecord.load(tmp_path / "run.json")
    columns = record.unpacked()
    (switch,) = traffic.switches
    found = fates(columns)
    assert found["found the queue full"] == switch.dropped_queue == len(columns["full_time"]) > 0
    assert found["dropped by the program"] == switch.dropped_program
    assert (switch.dropped_program > 0) == program, "forward.commands do not know host 2"
    assert found["lost on the link"] == sum(link.lost for link in traffic.links) > 0
    assert found["not known"] == found["on its way at the end"] == 0
    assert record.end == (columns["time"] + columns["flight"]).max()
    # The most bytes that ever waited, from arrivals and departures, are what the queue counted.
    (queue,) = (queue for queue in switch.queues if queue.port == 2)
    link = next(i for i, each in enumerate(record.links) if each.source_port == 2)
    rows = np.flatnonzero(columns["link"] == link)
    causes = columns["cause"][rows]
    enters = columns["time"][causes] + columns["flight"][causes]
    leaves, lengths = columns["time"][rows], columns["length"][rows]
    # At the same time packets leave programs before others come, and those of flows after them.
    later = np.greater if program else np.greater_equal
    waiting = [
        int(lengths[(enters <= time) & (later(leaves, time) | (enters == time))].sum())
        for time in enters.tolist()
    ]
    assert max(waiting) == queue.bytes_max
    assert set(columns["full_link"].tolist()) == {link}
    assert (columns["full_cause"] >= 0).all()


def test_recording_does_not_change_flows_that_share_queues_with_a_program(tmp_path):
    text = INCAST.format(loss=0.01).replace("queue_packets", "priorities = 2\nqueue_packets", 1)
    for source, priority in ((0, 0), (2, 1)):
        text += f"[[flow]]\nsource = {source}\ndestination = 1\nsize = 300\npackets = 40\n"
        text += f"interval = 3e-7\npoisson = true\nbackground = true\npriority = {priority}\n"
    path = tmp_path / "flows.toml"
    path.write_text(text)
    given = {**FORWARD, "priority_queues": 2}
    own = {"created", "machine", "wall_seconds"}
    traffic = simulate_traffic(path, **given, recording=tmp_path / "run.json")
    assert traffic.model_dump(exclude=own) == simulate_traffic(path, **given).model_dump(
        exclude=own
    )
    columns = RecordingRecord.load(tmp_path / "run.json").unpacked()
    found = fates(columns)
    (switch,) = traffic.switches
    assert found["found the queue full"] == switch.dropped_queue == len(columns["full_time"]) > 0
    assert found["passed on"] == switch.packets_out > 0
    flows = columns["flow"] >= 0
    assert flows.any()
    assert not flows.all()
    assert found["not known"] == found["on its way at the end"] == 0


@pytest.mark.parametrize(
    "topology", tiered(["star", "tree:racks=2"], ["star"], "several switches, another program")
)
def test_an_all_reduce_is_the_same_and_its_switches_end_what_they_sum(topology):
    def summed(record):
        whole = collective.Collective(
            workers=4, network="10g", topology=topology, values_per_packet=32,
            faults=Faults(loss=0.02), seed=1,
        )  # fmt: skip
        recorder = whole.record_run() if record else None
        total, report = whole.all_reduce(GRADIENTS)
        if recorder is None:
            return total, report.simulated, None
        switches = whole.network.switches.values()
        told = [switch.statistics.as_dict() for switch in switches]
        return total, report.simulated, (recorder.record("sum"), told)

    total, simulated, _ = summed(False)
    again, same, (record, told) = summed(True)
    assert np.array_equal(total, again)
    assert simulated == same
    found = fates(record.unpacked())
    ended = sum(each["dropped_ingress"] + each["dropped_egress"] for each in told)
    assert 0 < found["dropped by the program"] <= ended
    assert found["not known"] == 0
    assert found["passed on"] > 0
    assert {"ethernet", "udp"} < {header.name for layout in record.layouts for header in layout}


def test_when_a_recording_has_ended_the_build_without_records_runs_again():
    recorded, plain = (
        collective.Collective(workers=4, network="10g", values_per_packet=32, seed=1)
        for _ in range(2)
    )
    recorder = recorded.record_run()
    runs = [[each.all_reduce(GRADIENTS) for each in (recorded, plain)]]
    engine = recorded.network.switches["s1"]._engine
    assert engine._queued._recorder is not None
    recorder.stop()
    found = recorder.record("sum").unpacked()
    runs.append([each.all_reduce(GRADIENTS) for each in (recorded, plain)])
    assert engine._queued._recorder is None
    for (total, report), (same, other) in runs:
        assert np.array_equal(total, same)
        assert report.simulated == other.simulated
    again = recorder.record("sum").unpacked()
    assert found.keys() == again.keys()
    assert all(np.array_equal(found[name], again[name]) for name in found)
    counts = [each.network.switches["s1"].statistics.as_dict() for each in (recorded, plain)]
    assert counts[0] == counts[1]


def test_ports_without_a_link_and_switches_without_a_program_end_packets(tmp_path):
    bed = Bed("10g")
    commands = [
        "table_add routes route 10.0.0.2/32 => 1",
        "table_add routes route 10.0.0.3/32 => 2",
        "table_add next_hops forward 1 => 7 02:00:00:00:ff:01 02:00:00:00:00:02",
        "table_add next_hops forward 2 => 3 02:00:00:00:ff:01 02:00:00:00:00:03",
    ]
    router, plain = bed.switch("s1", L3, commands=commands), bed.switch("s2")
    sender, other = bed.host("h1"), bed.host("h2")
    bed.link(sender, router, port=1)
    bed.link(other, plain, port=1)
    bed.link(router, plain, ports=(3, 2))
    for target, packets in ((1, 4), (2, 3)):
        bed.packets(sender, udp_frame(0, target, 18), interval=1e-6, packets=packets)
    bed.record()
    bed.run()
    bed.save(tmp_path / "run.json")
    found = fates(RecordingRecord.load(tmp_path / "run.json").unpacked())
    assert found == {
        "left by a port without a link": 4,
        "passed on": 3,
        "came to a switch without a program": 3,
    }


def test_packets_of_messages_have_causes_and_no_headers(tmp_path):
    bed = Bed("10g", seed=1)
    switches = [bed.switch("s1"), bed.switch("s2")]
    a, b = bed.host("h1"), bed.host("h2")
    bed.link(a, switches[0])
    bed.link(b, switches[1])
    bed.link(*switches, rate="1g", loss=0.02)
    bed.transfer(a, b, 60_000)
    bed.record()
    bed.run()
    bed.save(tmp_path / "run.json")
    record = RecordingRecord.load(tmp_path / "run.json")
    columns = record.unpacked()
    found = fates(columns)
    assert found["lost on the link"] > 0
    assert found["passed on"] == (columns["cause"] >= 0).sum() > 80
    assert found["not known"] == found["left by a port without a link"] == 0
    assert record.layouts == ((),)
    assert columns["frame_length"].tolist() == [0]


def test_a_damaged_record_is_refused(tmp_path):
    bed, _ = routed()
    record, _ = recorded(tmp_path, bed)
    for data in ("no base64", record.data[:-8]):
        with pytest.raises(InputError, match="data are damaged"):
            record.model_copy(update={"data": data}).unpacked()


def test_watched_cells_have_each_value_at_its_time(tmp_path):
    whole = collective.Collective(workers=2, network="10g", values_per_packet=32, window=2)
    (name, switch), *_ = whole.network.switches.items()
    register = next(each for each, cells in switch.registers.items() if cells.ndim == 1)
    recorder = whole.record_run({name: [f"{register}[0]", register]})
    whole.all_reduce([np.ones(320, np.float32)] * 2)
    record = recorder.record("watched")
    columns = record.unpacked()
    assert record.watches[:2] == (f"{name} {register}[0]",) * 2
    assert len(record.watches) == 1 + min(64, len(switch.registers[register]))
    values = (columns["change_high"] << 32) + columns["change_low"]
    first, again = (columns["change_watch"] == watch for watch in range(2))
    assert np.array_equal(values[first], values[again])
    values = values[first]
    assert len(values) > 1
    assert values[-1] == switch.registers[register][0]
    assert (np.diff(columns["change_time"]) >= 0).all()
    assert (values != np.append(record.first_values[0], values[:-1])).all()


def test_a_longer_run_says_what_it_left_out(tmp_path):
    bed, _ = routed()
    record, columns = recorded(tmp_path, bed, limit=30)
    assert record.packets + record.left_out == 80
    assert 25 < record.packets <= 30
    assert (columns["time"] < record.end).all()
    whole, all_columns = recorded(tmp_path, routed()[0])
    kept = len(columns["time"])
    ways = [
        [each.ways[way] if way >= 0 else None for way in found["way"][:kept]]
        for each, found in ((record, columns), (whole, all_columns))
    ]
    assert ways[0] == ways[1]
    assert (columns["time"] == all_columns["time"][:kept]).all()
    assert (columns["cause"] == all_columns["cause"][:kept]).all()
    assert whole.left_out == 0


def test_headers_without_a_program_and_of_packets_that_a_parser_decides_on_differently():
    plain = udp_frame(0, 1, 18)
    arp = plain[:12] + b"\x08\x06" + bytes(46)
    layouts, found = layouts_of(None, [plain, arp, plain, b"\1" * 14, b"\2" * 13])
    assert [[header.name for header in layout] for layout in layouts] == [
        [], ["ethernet"], ["ethernet", "ipv4", "udp"], ["ethernet", "arp"],
    ]  # fmt: skip
    assert found.tolist() == [2, 3, 2, 1, 0]
    program = open_program("slots-32")
    layouts, found = layouts_of(program, [plain, arp, plain[:-1] + b"x"])
    assert [[header.name for header in layout] for layout in layouts] == [
        ["ethernet", "ipv4", "udp"], ["ethernet"],
    ]  # fmt: skip
    assert found.tolist() == [0, 1, 0]


def test_what_cannot_be_recorded_is_refused(tmp_path):
    scenario = read_scenario(written(tmp_path), **FORWARD)
    run = TrafficRun(scenario)
    with pytest.raises(InputError, match=r"s9 has no registers.*s1"):
        run.recorder({"s9": ["counts"]})
    with pytest.raises(UnknownNameError, match="nothing"):
        run.recorder({"s1": ["nothing[0]"]})
    run.recorder()
    with pytest.raises(StateError, match="being recorded already"):
        run.recorder()
    with pytest.raises(StateError, match=r"call record\(\) before run"):
        routed()[0].save(tmp_path / "run.json")
    with pytest.raises(InputError, match="give a network"):
        collective.Collective(workers=2).record_run()


def written(folder):
    path = folder / "flows.toml"
    path.write_text(INCAST.format(loss=0))
    return path
