"""``innet switch``: what people type, and what they see when it is wrong."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from support import capture_files as files
from support.bmv2 import needs_simple_switch
from support.interrupts import hear_interrupts
from typer.testing import CliRunner

from innet.cli import INTERRUPTED, switch_explain
from innet.cli.app import app
from innet.cli.switch_explain import tree
from innet.core.errors import (
    ControlError,
    InnetError,
    InputError,
    ProgramError,
    UnknownNameError,
)
from innet.core.packets import PacketBatch
from innet.switch import Switch, ir, load_program
from innet.tools.captures import CaptureReader
from innet.tools.explain import explain

PROGRAMS = Path(__file__).parents[2] / "programs"
STF = Path(__file__).parents[2] / "stf"
CLOCK = PROGRAMS / "tools_clock.json"
STATE = PROGRAMS / "switch_state.json"
TABLES = PROGRAMS / "switch_tables.json"


def switch(*arguments):
    result = CliRunner().invoke(app, ["switch", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


class TestStf:
    def test_passes(self):
        result = switch("stf", TABLES, STF / "switch_tables.stf", "-e", "interpret")
        assert result.exit_code == 0
        assert "passed" in result.stdout

    def test_a_shipped_program_by_name(self):
        result = switch("stf", "slots-32", "p4/examples/two-workers.stf", "-e", "interpret")
        assert result.exit_code == 0

    def test_prints_what_commands_print(self):
        arguments = ["stf", STATE, STF / "switch_state.stf", "-e", "interpret"]
        assert "words[3]= 304" not in switch(*arguments).stdout
        assert "switch_state.stf:26: words[3]= 304" in switch(*arguments, "-v").stdout

    @pytest.mark.bmv2
    @needs_simple_switch
    def test_on_simple_switch(self):
        arguments = ("stf", "slots-32", "p4/examples/two-workers.stf", "--simple-switch")
        result = switch(*arguments)
        assert result.exit_code == 0
        assert "passed" in result.stdout

    def test_simple_switch_has_no_simulated_time(self):
        arguments = ("stf", "slots-32", "p4/examples/two-workers.stf", "--simple-switch")
        with pytest.raises(InputError, match="--gap is for the built-in switch"):
            switch(*arguments, "--gap", "1us")

    def test_fails_with_the_difference(self):
        result = switch(
            "stf", STATE, STF / "failing.stf", STF / "switch_state.stf", "-e", "interpret"
        )
        assert result.exit_code == 1
        assert "failing.stf:5: port 1, packet 0: not the packet that was expected" in result.stdout
        assert (
            "    0000  expected  0305 0000 0011 0000 0000 2001 0000 0000\n"
            "          got       0305 0000 0010 0000 0000 2001 0000 0000\n"
            "                                 ^\n"
        ) in result.stdout
        assert "    expected at least 44 bytes, got 43\n" in result.stdout
        assert "1 of 2 passed" in result.stdout

    def test_json(self):
        result = switch("stf", STATE, STF / "failing.stf", "-e", "interpret", "--json")
        assert result.exit_code == 1
        (outcome,) = json.loads(result.stdout)
        assert not outcome["passed"]
        assert len(outcome["failures"]) == 10
        assert outcome["failures"][-1]["expected"] == "06"

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ([TABLES, "absent.stf"], InputError, r"absent\.stf cannot be read: No such file"),
            (["absent.json", STF / "failing.stf"], InputError, r"absent\.json: no such file"),
            ([STF / "failing.stf"] * 2, ProgramError, "no JSON, so no compiled P4 program"),
            ([PROGRAMS, STF / "failing.stf"], InputError, "not a file"),
            ([TABLES, STF / "failing.stf", "-e", "fast"], UnknownNameError, "Known: interpret"),
        ],
    )
    def test_wrong(self, arguments, error, message):
        with pytest.raises(error, match=message):
            switch("stf", *arguments)

    def test_a_syntax_error_names_file_and_line(self, tmp_path):
        (tmp_path / "x.stf").write_text("wait\nadd 5\n")
        with pytest.raises(InputError, match=r"x\.stf:2:5: expected a name, found '5' .*: add 5"):
            switch("stf", TABLES, tmp_path / "x.stf")


class TestStfTimes:
    def test_gap(self, tmp_path):
        (tmp_path / "x.stf").write_text(
            "set_queue_rate 1000 2\npacket 0 02\npacket 0 02\n"
            f"expect 2 02{0:012x}{1000:012x}\nexpect 2 02{20:012x}{2000:012x}\n"
        )
        words = ["stf", CLOCK, tmp_path / "x.stf", "-e", "interpret"]
        assert switch(*words, "--gap", "20us").exit_code == 0
        assert switch(*words).exit_code == 1
        with pytest.raises(InputError, match="--gap is '20'; write it with its unit, such as 20us"):
            switch(*words, "--gap", "20")


class TestReplay:
    @pytest.fixture
    def capture(self, tmp_path):
        path = tmp_path / "p1_in.pcap"
        path.write_bytes(files.pcap([(1_000, b"\2a"), (2_000, b"\xff"), (3_000, b"\x09")]))
        return path

    def test_table_and_files(self, tmp_path, capture):
        (tmp_path / "commands").write_text(
            "# two copies\nmc_mgrp_create 1\nmc_node_create 0 3 4\nmc_node_associate 1 0\n"
        )
        arguments = ["-c", tmp_path / "commands", "-o", tmp_path / "out", "-e", "interpret"]
        result = switch("replay", CLOCK, capture, *arguments)
        assert result.exit_code == 0
        for text in ("p2_out.pcap", "p3_out.pcap", "p4_out.pcap", "unanswered"):
            assert text in result.stdout
        assert len((tmp_path / "out" / "p2_out.pcap").read_bytes()) == 24 + 16 + 14

    def test_json(self, tmp_path, capture):
        other = tmp_path / "other"
        other.write_bytes(capture.read_bytes())
        arguments = ["-p", f"7={other}", "-o", tmp_path / "out", "-e", "interpret", "--json"]
        document = json.loads(switch("replay", CLOCK, capture, *arguments).stdout)
        assert document["ports"]["1"]["packets_in"] == 3
        assert document["ports"]["7"]["silent"] == 2
        assert document["ports"]["2"]["file"] == str(tmp_path / "out" / "p2_out.pcap")
        assert document["statistics"]["unknown_groups"] == 2

    def test_times(self, tmp_path, capture):
        (tmp_path / "commands").write_text("set_queue_rate 10 2\n")
        arguments = ["-c", tmp_path / "commands", "-e", "interpret", "--timed", "-o"]
        text = switch("replay", CLOCK, capture, *arguments, tmp_path / "out").stdout
        assert "unanswered" not in text
        assert "0 packets found their queue full; 1 waited when the last one came, " in text
        rows = [line.split() for line in text.splitlines()]
        assert ["port", "priority", "capacity", "rate", "dropped"] in rows
        assert ["2", "0", "64", "10/s", "0"] in rows
        document = json.loads(
            switch("replay", CLOCK, capture, *arguments, tmp_path / "more", "--json").stdout
        )
        assert document["queues"] == [
            {
                "port": 2,
                "priority": 0,
                "depth": 0,
                "capacity": 64,
                "rate": 10,
                "dropped": 0,
                "bytes": 0,
                "bytes_max": 14,
                "capacity_bytes": None,
                "bit_rate": 0,
                "marked": 0,
            }
        ]
        assert (document["waiting"], document["drain_seconds"]) == (1, 0.099998)
        assert document["ports"]["1"]["silent"] is None

    def test_interrupted(self, tmp_path):
        """What was written so far is whole, and one line says what happened."""
        path, out = tmp_path / "p1_in.pcap", tmp_path / "out"
        path.write_bytes(files.pcap([(i * 1_000, b"\2" * 60) for i in range(400_000)]))
        command = ["replay", CLOCK, path, "-o", out, "-e", "interpret", "--batch", 64]
        with subprocess.Popen(
            [sys.executable, "-m", "innet", "switch", *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hear_interrupts,  # noqa: PLW1509 - these tests start no threads
        ) as running:
            try:
                for _ in range(600):
                    if (out / "p2_out.pcap").exists() and (out / "p2_out.pcap").stat().st_size:
                        break
                    time.sleep(0.1)
                running.send_signal(signal.SIGINT)
                printed, said = running.communicate(timeout=30)
            finally:
                running.kill()
        assert (running.returncode, printed, said) == (INTERRUPTED, "", "interrupted.\n")
        with CaptureReader(out / "p2_out.pcap") as capture:
            assert sum(map(len, capture.blocks())) % 64 == 0

    def test_a_command_that_is_refused(self, tmp_path, capture):
        (tmp_path / "commands").write_text("\nmc_mgrp_create 1\ntable_add x y 1 =>\n")
        arguments = ["-c", tmp_path / "commands", "-o", tmp_path / "out", "-e", "interpret"]
        with pytest.raises(ControlError, match=r"commands:3: table_add x y 1 =>: unknown table"):
            switch("replay", CLOCK, capture, *arguments)

    def test_wrong_before_a_program_is_compiled(self, tmp_path, capture, monkeypatch):
        monkeypatch.setattr("innet.switch.Switch.__init__", None)
        out = ["-o", tmp_path / "out"]
        for arguments, message in (
            ([capture, *out, "-e", "fast"], "unknown switch engine 'fast'"),
            ([capture, *out, "-c", "absent"], "absent cannot be read: No such file"),
            (["absent.pcap", *out], r"absent\.pcap cannot be read: No such file"),
            ([CLOCK, *out, "-p", "1"], "is neither a pcap nor a pcapng file"),
            ([capture, "-o", tmp_path], "is not empty"),
            (out, "name a capture to replay"),
        ):
            with pytest.raises(InnetError, match=message):
                switch("replay", CLOCK, *arguments)


class TestExplain:
    def test_tree(self):
        text = switch("explain", PROGRAMS / "tools_tour.json").stdout
        for line in (
            "tools_tour.p4  (BMv2 JSON 2.2",
            "base: base_t, 16 bits",
            "bit<8> value at bit 8",
            "tags[2]: tag_t, 8 bits each",
            "state tags",
            "select base.kind (8)",
            "0x1 → tags",
            "default → accept",
            "table I.choose (ternary, 16 entries, counter I.hits)",
            "key base.kind: exact, 8 bits (h.base.kind)",
            "action I.send(bit<9> port, bit<8> value)",
            "default I.drop()",
            "clone(I2E, session 5, field list 1)",
            "I.seen[scalars.tmp_1] = scalars.tmp_2",
            "if (scalars.metadata_t.round == 1)",
            "emit base, tags[0], tags[1], extra",
            "register I.seen: 16 cells of 32 bits",
            "counter I.hits: 16 cells, of table I.choose",
            "field list 1 field_list1: scalars.metadata_t.round",
            "interpret runs the program",
        ):
            assert line in text

    def test_where_tables_lead(self):
        text = switch("explain", PROGRAMS / "switch_tables.json").stdout
        assert "→ hit: I.ternary_table, miss: tbl_switch_tables65" in text
        assert "→ I.one: tbl_switch_tables71, I.two: tbl_switch_tables72, I.drop: " in text

    def test_runs_are_shown_as_one(self):
        text = switch("explain", "slots-32").stdout
        assert "bit<32> v0 .. v31 (32) at bit 0" in text
        assert "register SlotsIngress.values.value0 .. SlotsIngress.values.value31 (32): " in text
        assert "a loop of 32 in ingress: " in text

    def test_numbered_fields_of_different_widths_are_no_run(self):
        document = explain(load_program(PROGRAMS / "tools_tour.json"))
        (extra,) = (each for each in document["headers"] if each["name"] == "extra")
        extra["fields"] = [
            {**field, "name": f"v{number}"} for number, field in enumerate(2 * extra["fields"])
        ]
        console = Console(file=io.StringIO(), width=200)
        console.print(tree(document))
        text = console.file.getvalue()
        assert "bit<16> v0 at bit 0" in text
        assert "bit<8> v1 at bit 16" in text

    @pytest.mark.repeats(
        "the same with the other programs", but=["switch_*", "jit_tables", "fuzz_registers"]
    )
    @pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.json")), ids=lambda path: path.stem)
    def test_every_program(self, path):
        document = explain(load_program(path))
        assert json.loads(json.dumps(document)) == document
        console = Console(file=io.StringIO(), width=200)
        console.print(tree(document))
        text = console.file.getvalue()
        for name in ("tables", "counters", "meters", "action_profiles"):
            for each in document[name]:
                assert each["name"].rpartition(".")[2] in text
        # A class's name would stand for a statement that has no text.
        shown = {word for line in text.splitlines() for word in line.split()}
        assert not shown & {name for name in vars(ir) if name[0].isupper()}

    def test_json_and_source(self, tmp_path):
        source = tmp_path / "emitted.py"
        result = switch("explain", CLOCK, "--json", "--source", source)
        document = json.loads(result.stdout)
        assert [each["name"] for each in document["parser"]["states"]] == ["start"]
        assert document["engines"]["jit"] == {"refused": [], "loops": []}
        assert "def process(" in source.read_text()
        compile(source.read_text(), "emitted", "exec")

    def test_wrong(self, tmp_path):
        with pytest.raises(InputError, match=r"cannot write .*absent"):
            switch("explain", CLOCK, "--source", tmp_path / "absent" / "x.py")
        (tmp_path / "old.json").write_text('{"__meta__": {"version": [1, 0]}}')
        with pytest.raises(ProgramError, match=r"version|1\.0"):
            switch("explain", tmp_path / "old.json")
        (tmp_path / "cut.json").write_text(CLOCK.read_text()[:-10])
        with pytest.raises(ProgramError, match="no JSON, so no compiled P4 program"):
            switch("explain", tmp_path / "cut.json")


class TestTrace:
    TOUR = PROGRAMS / "tools_tour.json"

    def test_packets(self, tmp_path):
        (tmp_path / "commands").write_text("table_add choose send 4&&&255 8 0&&&0 => 3 9 1\n")
        text = switch(
            "explain", self.TOUR, "--trace", "--packet", "2:0804616263", "--packet", "0:",
            "-c", tmp_path / "commands",
        ).stdout  # fmt: skip
        for line in (
            "packet 0\n  ingress: normal packet of 5 bytes at port 2\n    state start at byte 0\n",
            "    extract base: kind 0x8, value 0x4\n",
            "hit entry 0\n    counter I.hits[0] now 1 packets, 5 bytes\n    action I.send(port 0x3",
            "      base.value: 0x4 → 0x9\n",
            "    sent to port 3: 3 bytes 0809",
            "packet 1\n  ingress: normal packet of 0 bytes at port 0\n",
            "    parser error PacketTooShort\n",
        ):
            assert line in text

    def test_captures(self, tmp_path):
        path = tmp_path / "p3_in.pcap"
        path.write_bytes(files.pcap([(5_000, b"\2a"), (12_000, b"\2b")]))
        text = switch("explain", CLOCK, "--pcap", path).stdout
        assert f"sent to port 2: 14 bytes 02{'00' * 12}61" in text
        assert "sent to port 2: 14 bytes 0200000000000700000000000762" in text

    def test_machine_code_tells_the_same(self, monkeypatch):
        forward = Path(__file__).parents[3] / "p4" / "examples" / "forward.json"
        packet = "020000000002 020000000001 88b5".replace(" ", "") + "00" * 46
        words = ["--packet", f"1:{packet}", "--packet", "1:02"]
        words += ["-c", forward.with_suffix(".commands")]
        Switch.load(forward).record(PacketBatch.empty())  # which compiles what records
        texts = []
        for is_there in (True, False):
            monkeypatch.setattr(switch_explain, "is_compiled", lambda *_, t=is_there, **__: t)
            texts.append(switch("explain", forward, *words).stdout)
            texts.append(switch("explain", forward, *words, "--json").stdout)
        assert texts[:2] == texts[2:]
        assert "hit entry" in texts[0]

    def test_idle_entries(self, tmp_path):
        (tmp_path / "p1_in.pcap").write_bytes(
            files.pcap([(0, bytes(8)), (500_000_000, b"\5" * 8), (3_200_000_000, b"\6" * 8)])
        )
        (tmp_path / "commands").write_text(
            "table_add small_table mark 5 => 1\ntable_set_timeout small_table 0 700\n"
        )
        options = ("--pcap", tmp_path / "p1_in.pcap", "-c", tmp_path / "commands")
        path = PROGRAMS / "switch_ageing.json"
        lines = switch("explain", path, *options).stdout.splitlines()
        told = [line for line in lines if line.startswith("idle")]
        assert told == ["idle timeout at 2000000 us in I.small_table: entries 0"]
        assert lines.index(told[0]) + 1 == lines.index("packet 2")
        result = switch("explain", path, *options, "--json")
        documents = [json.loads(line) for line in result.stdout.splitlines()]
        assert ["idle_timeouts" in each for each in documents] == [False, False, True]
        assert documents[2]["idle_timeouts"] == [
            {"time": 2_000_000, "table": "I.small_table", "handles": [0]}
        ]

    def test_captures_whose_name_does_not_say_the_port(self, tmp_path):
        path = tmp_path / "x.pcap"
        path.write_bytes(files.pcap([(5_000, b"\2a")]))
        with pytest.raises(InputError, match=r"its packets arrive\? Say --port 0,"):
            switch("explain", CLOCK, "--pcap", path)
        text = switch("explain", CLOCK, "--pcap", path, "--port", 5).stdout
        assert "ingress: normal packet of 2 bytes at port 5" in text

    def test_json(self):
        result = switch("explain", self.TOUR, "--packet", "0:00", "--packet", "0:0000", "--json")
        first, second = map(json.loads, result.stdout.splitlines())
        assert (first["packet"], second["packet"]) == (0, 1)
        assert first["events"][0] == {
            "event": "ingress",
            "instance_type": "normal",
            "port": 0,
            "length": 1,
        }
        assert second["events"][-1]["event"] == "drop"

    @pytest.mark.parametrize("text", ["0", "x:00", "0:0", "0:zz", ":00", "-1:00", "1.5:00"])
    def test_packets_that_are_none(self, text):
        with pytest.raises(InputError, match=rf"--packet {text}: write it as PORT:HEX"):
            switch("explain", self.TOUR, "--packet", text)

    def test_times(self, tmp_path):
        """Packets that are named and those of a capture meet in the queues."""
        path = tmp_path / "p3_in.pcap"
        path.write_bytes(files.pcap([(5_000, b"\2a"), (15_000, b"\2b")]))
        (tmp_path / "commands").write_text("set_queue_rate 10000 2\n")
        options = ["--pcap", path, "-c", tmp_path / "commands", "--packet", "0:0263@2us"]
        text = switch("explain", CLOCK, *options).stdout
        heads = [line for line in text.splitlines() if not line.startswith(" ")]
        assert heads == [
            "packet 0 at 0 ns",
            "packet 1 at 2,000 ns",
            "packet 2 at 10,000 ns",
            "packet 0 at 100,000 ns",
            "packet 1 at 200,000 ns",
            "packet 2 at 300,000 ns",
        ]
        assert "queue of port 2, priority 0: 1 before it, leaves in 198000 ns" in text
        assert "left the queue after 198000 ns, 1 behind it" in text
        assert f"sent to port 2: 14 bytes 02{2:012x}{200:012x}63" in text
        result = switch("explain", CLOCK, *options[:4], "--timed", "--json")
        documents = [json.loads(line) for line in result.stdout.splitlines()]
        assert [(each["packet"], each["time"]) for each in documents] == [
            (0, 0), (1, 10_000), (0, 100_000), (1, 200_000),
        ]  # fmt: skip
        assert documents[1]["events"][-1]["event"] == "enqueue"

    def test_times_that_are_none(self):
        with pytest.raises(InputError, match="the time of --packet 0:00@5 is '5'; write it with"):
            switch("explain", CLOCK, "--packet", "0:00@5")
        with pytest.raises(InputError, match="state packets in the order of their times"):
            switch("explain", CLOCK, "--packet", "0:00@5ns", "--packet", "0:00@4ns")
        assert switch("explain", CLOCK, "--packet", "0:00@5ns", "--packet", "0:00").exit_code == 0

    def test_nothing_to_trace(self):
        with pytest.raises(InputError, match="nothing to trace"):
            switch("explain", self.TOUR, "--trace")
        with pytest.raises(InputError, match="nothing to trace"):
            switch("explain", self.TOUR, "--port", "1")
        with pytest.raises(InputError, match="arrives at port 600"):
            switch("explain", self.TOUR, "--packet", "600:00")


class TestPriorityQueues:
    """Of each command that loads a switch."""

    COMMAND = "set_queue_depth 5 1 3"  # the fourth queue of port 1

    @pytest.fixture
    def run(self, tmp_path):
        (tmp_path / "rules").write_text(self.COMMAND)
        (tmp_path / "test.stf").write_text(f"{self.COMMAND}\nqueue_read 1\npacket 0 00\n")
        (tmp_path / "p0_in.pcap").write_bytes(files.pcap([(0, b"a")]))
        with_rules = ["-c", tmp_path / "rules"]
        words = {
            "stf": [TABLES, tmp_path / "test.stf", "-e", "interpret", "-v"],
            "replay": [TABLES, tmp_path / "p0_in.pcap", "-e", "interpret", "-o", tmp_path / "out"],
            "explain": [TABLES, "--packet", "0:00"],
        }
        for name in ("replay", "explain"):
            words[name] += with_rules
        return lambda name, *more: switch(name, *words[name], *more)

    def test_packet_tests(self, run):
        text = run("stf", "--priority-queues", 4).stdout
        assert "port 1 priority 3: depth 0, capacity 5, rate unlimited, dropped 0" in text
        failed = run("stf")
        assert failed.exit_code == 1
        assert "there is no priority 3: this switch has 1 queue per port" in failed.stdout

    @pytest.mark.parametrize("name", ["replay", "explain"])
    def test_others(self, name, run):
        with pytest.raises(ControlError, match="there is no priority 3: this switch has 1 queue"):
            run(name)
        with pytest.raises(ControlError, match="there is no priority 3: this switch has 2 queues"):
            run(name, "--priority-queues", 2)
        assert run(name, "--priority-queues", 4).exit_code == 0

    @pytest.mark.parametrize("name", ["stf", "replay", "explain"])
    @pytest.mark.parametrize("number", [0, 33])
    def test_as_many_as_no_port_has(self, name, number, run):
        message = f"1 to 32 priority queues per port, not {number}"
        with pytest.raises(InputError, match=message):
            run(name, "--priority-queues", number)

    def test_measurements(self, run, monkeypatch):
        given = {}

        def measure(*_, **options):
            given.update(options)
            raise InputError("enough")

        monkeypatch.setattr("innet.tools.bench.measure", measure)
        with pytest.raises(InputError, match="enough"):
            switch("bench", TABLES, "--packets", 1, "--priority-queues", 5)
        assert given == {"priority_queues": 5}
