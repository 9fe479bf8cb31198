"""Captures through a switch: ports, order, times, files; and what is wrong before anything runs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support import capture_files as files
from support.switch_cases import program

from innet.cli.switch_output import inputs_of
from innet.core.errors import InputError, PacketError
from innet.switch import Switch, load_program
from innet.tools.captures import CaptureReader
from innet.tools.replay import Input, Replay, reads_clock

START = 1_700_000_000_000_000_000


def put(tmp_path, name, records, **keywords):
    path = tmp_path / name
    path.write_bytes(files.pcap(records, **keywords))
    return path


def read(path):
    with CaptureReader(path) as capture:
        return [
            (int(time) - START, block.data[start : start + length].tobytes())
            for block in capture.blocks()
            for time, start, length in zip(block.time, block.start, block.length, strict=True)
        ]


def play(inputs, out, engine="interpret", name="tools_clock", batch=4096, commands=None):
    switch = Switch.load(program(name), engine)
    switch.multicast_group(1, [(2, 0), (4, 0)])
    if name == "tools_tour":
        for action, value in (("copy", "4"), ("spread", ""), ("send", "4 9"), ("again", "")):
            priority = len(switch.table_entries("choose"))
            for kind in (0, 1, 7):
                key = f"{priority:#x}&&&3 {kind} 0&&&{2 if action == 'again' else 0}"
                switch.command(f"table_add choose {action} {key} => {value} {priority}")
        switch.mirror_session(5, port=6)
    switch.commands(commands or "")
    with Replay(inputs, out) as replay:
        return replay.run(switch, batch, timed=commands is not None), switch


def stamped(first, micros):
    """What tools_clock makes of a packet that arrives so many microseconds after the first."""
    return first[:1] + 2 * micros.to_bytes(6, "big") + first[1:]


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize("batch", [1, 3, 4096])
def test_times_ports_and_the_clock(tmp_path, engine, batch):
    one = put(tmp_path, "p1_in.pcap", [(START, b"\2a"), (START + 5_000, b"\3b")])
    rest = [(START + 2_500, b"\2c"), (START + 5_999, b"\xff"), (START + 9_000, b"\x09")]
    two = put(tmp_path, "p7.pcap", [*rest, (START + 9_001, b"")], nano=False)
    summary, switch = play([Input(one), Input(two)], tmp_path / "out", engine, batch=batch)
    # Time stamps are those of what came in; the clock counts microseconds from the first packet.
    out = tmp_path / "out"
    assert read(out / "p2_out.pcap") == [
        (0, stamped(b"\2a", 0)),
        (2_000, stamped(b"\2c", 2)),
        (9_000, stamped(b"\x09", 9)),
    ]
    assert read(out / "p3_out.pcap") == [(5_000, stamped(b"\3b", 5))]
    assert read(out / "p4_out.pcap") == [(9_000, stamped(b"\x09", 9))]
    assert sorted(path.name for path in out.iterdir()) == [f"p{i}_out.pcap" for i in (2, 3, 4)]
    ports = summary.ports
    assert (ports[1].packets_in, ports[1].silent, ports[1].bytes_in) == (2, 0, 4)
    assert (ports[7].packets_in, ports[7].silent, ports[7].bytes_in) == (4, 2, 4)
    assert (ports[2].packets_out, ports[2].bytes_out) == (3, 14 + 14 + 13)
    assert summary.total("packets_out") == 5 == switch.statistics.packets_out
    assert summary.capture_seconds == 9e-6


@pytest.mark.parametrize(("name", "port"), [("jit_parser", 1), ("tools_tour", 4)])
def test_engines_and_batches_agree(tmp_path, name, port):
    rng = np.random.default_rng(2)
    times = START + np.cumsum(rng.integers(0, 3_000, 300))
    some = [rng.bytes(int(rng.integers(0, 30))) for _ in times]
    if name == "tools_tour":
        some = [bytes([(0, 1, 7)[i % 3]]) + data for i, data in enumerate(some)]
    records = list(zip(map(int, times), some, strict=True))
    capture = put(tmp_path, "x.pcap", records)
    written = []
    for engine, batch in (("interpret", 50), ("jit", 7), ("jit", 4096)):
        out = tmp_path / f"{engine}{batch}"
        play([Input(capture, 3)], out, engine, name, batch)
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0] == written[1] == written[2]
    assert len(read(tmp_path / "jit7" / f"p{port}_out.pcap")) > 50


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize("batch", [1, 2, 4096])
def test_packets_wait_in_queues(tmp_path, engine, batch):
    # Microseconds: two packets a millisecond by port 2, three of which may wait.
    arrivals = [0, 100, 200, 300, 1100, 9_000]
    records = [(START + time * 1000, b"\2a") for time in arrivals] + [(START + 9_000_001, b"\xff")]
    capture = put(tmp_path, "p1_in.pcap", records, nano=False)
    commands = "set_queue_rate 2000 2\nset_queue_depth 3 2"
    summary, switch = play(
        [Input(capture)], tmp_path / "out", engine, batch=batch, commands=commands
    )
    left = [(0, 500), (100, 1000), (200, 1500), (1100, 2000), (9_000, 9_000)]
    assert read(tmp_path / "out" / "p2_out.pcap") == [
        (when * 1000, b"\2" + came.to_bytes(6, "big") + when.to_bytes(6, "big") + b"a")
        for came, when in left
    ]
    assert [(each.port, each.dropped) for each in summary.queues] == [(2, 1)]
    assert summary.timed
    assert (summary.waiting, summary.drain_seconds) == (0, 0.0)
    assert switch.waiting == 0
    assert summary.ports[2].packets_out == 5
    assert summary.ports[1].packets_in == 7


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_what_waits_at_the_end_leaves(tmp_path, engine):
    capture = put(tmp_path, "p1_in.pcap", [(START + i, b"\2") for i in range(70)])
    summary, _ = play([Input(capture)], tmp_path / "out", engine, commands="set_queue_rate 1 2")
    assert [time for time, _ in read(tmp_path / "out" / "p2_out.pcap")] == [
        second * 10**9 for second in range(1, 65)
    ]
    assert summary.waiting == 64
    assert summary.queues[0].dropped == 6
    assert summary.drain_seconds == 64 - 69e-9


def test_interfaces_of_a_pcapng_are_ports(tmp_path):
    packets = [files.enhanced(by, START + by, b"\2x") for by in (0, 2, 1)]
    head = files.section() + b"".join(files.interface(resolution=9) for _ in range(3))
    path = tmp_path / "capture.pcapng"
    path.write_bytes(head + b"".join(packets))
    summary, _ = play([Input(path)], tmp_path / "out")
    assert sorted(port for port, each in summary.ports.items() if each.packets_in) == [0, 1, 2]
    summary, _ = play([Input(path, 6)], tmp_path / "out6")
    assert summary.ports[6].packets_in == 3


def test_link_type_and_resolution_are_kept(tmp_path):
    path = put(tmp_path, "p0.pcap", [(START, b"\2")], nano=False, link_type=101)
    play([Input(path)], tmp_path / "out")
    with CaptureReader(tmp_path / "out" / "p2_out.pcap") as capture:
        assert (capture.link_type, capture.nano) == (101, False)


@pytest.mark.parametrize(
    ("name", "looks"),
    [
        ("tools_clock", True),
        ("switch_meters", True),
        ("jit_parser", False),
        ("switch_tables", False),
    ],
)
def test_programs_that_look_at_the_clock(name, looks):
    assert reads_clock(load_program(program(name))) is looks


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_packets_of_any_length(tmp_path, engine):
    lengths = (0, 1, 60, 9_999, 10_001, 262_144)
    records = [(START, b"\3" * length) for length in lengths]
    path = put(tmp_path, "p1.pcap", records)
    summary, _ = play([Input(path)], tmp_path / "out", engine)
    assert summary.ports[1].silent == 1  # the one without bytes has no port to go to
    out = (tmp_path / "out" / "p3_out.pcap").read_bytes()
    assert len(out) == 24 + sum(16 + 12 + length for length in lengths if length)


@pytest.mark.parametrize(
    ("name", "port"),
    [("p3.pcap", 3), ("p12_in.pcap", 12), ("x-port7.pcap.gz", 7), ("pcap5_in.pcap", 5)],
)
def test_ports_in_file_names(tmp_path, name, port):
    path = put(tmp_path, name, [(START, b"\2")])
    with Replay([Input(path)], tmp_path / "out") as replay:
        assert replay.sources[0].port == port


class TestWrong:
    @pytest.mark.parametrize("name", ["x.pcap", "top3.pcap", "p.pcap", "3.pcap"])
    def test_nobody_says_where_packets_arrive(self, tmp_path, name):
        path = put(tmp_path, name, [(START, b"")])
        with pytest.raises(InputError, match=r"at which port.*--port 0, or call the file p0_in"):
            Replay([Input(path)], tmp_path / "out")

    def test_ports_that_no_switch_has(self, tmp_path):
        path = put(tmp_path, "x.pcap", [(START, b"")])
        with pytest.raises(InputError, match=r"at port 511: a switch has ports 0\.\.510"):
            Replay([Input(path, 511)], tmp_path / "out")

    def test_no_packets(self, tmp_path):
        path = put(tmp_path, "p1.pcap", [])
        with pytest.raises(InputError, match=r"p1\.pcap holds no packets"):
            Replay([Input(path)], tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_folder(self, tmp_path):
        path = put(tmp_path, "p1.pcap", [(START, b"")])
        with pytest.raises(InputError, match=r"is not empty; name a new folder"):
            Replay([Input(path)], tmp_path)
        with pytest.raises(InputError, match=r"cannot write .*File exists"):
            Replay([Input(path)], path)
        with pytest.raises(InputError, match=r"cannot write .*Not a directory"):
            Replay([Input(path)], path / "out")

    def test_damage_on_the_way(self, tmp_path, monkeypatch):
        monkeypatch.setattr("innet.tools.captures.CHUNK", 100)
        path = put(tmp_path, "p1.pcap", [(START, b"\2" * 20)] * 20)
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(PacketError, match=r"packet 19 .* is cut off"):
            play([Input(path)], tmp_path / "out")
        assert len(read(tmp_path / "out" / "p2_out.pcap")) == 19

    def test_batches_of_nothing(self, tmp_path):
        path = put(tmp_path, "p1.pcap", [(START, b"")])
        with pytest.raises(InputError, match="a batch of 0 packets"):
            play([Input(path)], tmp_path / "out", batch=0)

    def test_options(self, tmp_path):
        a, b = tmp_path / "a", tmp_path / "b"
        assert inputs_of([a, b], ["3", f"4={b}"]) == [Input(a, 3), Input(b, 4)]
        assert inputs_of([], [f"4={b}"]) == [Input(b, 4)]
        for wrong in ("x", "3=", "=a", "-1", "3.5"):
            with pytest.raises(InputError, match=re.escape(f"--port {wrong}: write --port 3")):
                inputs_of([a], [wrong])
        with pytest.raises(InputError, match="name a capture to replay"):
            inputs_of([], [])
