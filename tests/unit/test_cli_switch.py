"""``innet switch``: what people type, and what they see when it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import capture_files as files
from typer.testing import CliRunner

from innet.cli.app import app
from innet.errors import ControlError, InnetError, InputError, ProgramError, UnknownNameError

PROGRAMS = Path(__file__).parents[1] / "programs"
STF = Path(__file__).parents[1] / "stf"
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

    def test_prints_what_commands_print(self):
        arguments = ["stf", STATE, STF / "switch_state.stf", "-e", "interpret"]
        assert "words[3]= 304" not in switch(*arguments).stdout
        assert "switch_state.stf:26: words[3]= 304" in switch(*arguments, "-v").stdout

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
            ([PROGRAMS, STF / "failing.stf"], InputError, "no such file"),
            ([TABLES, STF / "failing.stf", "-e", "fast"], UnknownNameError, "Known: interpret"),
        ],
    )
    def test_wrong(self, arguments, error, message):
        with pytest.raises(error, match=message):
            switch("stf", *arguments)

    def test_a_syntax_error_names_file_and_line(self, tmp_path):
        (tmp_path / "x.stf").write_text("wait\nadd 5\n")
        with pytest.raises(InputError, match=r"x\.stf:2: expected a table, found 5: add 5"):
            switch("stf", TABLES, tmp_path / "x.stf")


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
