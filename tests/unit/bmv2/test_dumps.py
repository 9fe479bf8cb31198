"""What ``innet switch cli`` shows is what simple_switch_CLI of BMv2 1.15.5 printed."""

from __future__ import annotations

import io
import json

import pytest
from support.switch_cases import program

pytest.importorskip("thrift", reason="Thrift's library is not installed")

from support.thrift_fuzz import Process

from innet.bmv2 import shell


def printed(name, lines, capsys):
    process = Process(json.dumps(program(name)), engine="interpret")
    try:
        shell.run("127.0.0.1", process.port, lines)
    finally:
        process.close()
    return capsys.readouterr().out


def test_a_table(capsys):
    lines = [
        "table_add I.ternary_table I.ternary_ 0x123456&&&0xff00ff 3 1&&&1 => 1 5",
        "table_dump I.ternary_table",
        "table_dump_entry ternary_table 0",
    ]
    entry = """\
Dumping entry 0x0
Match key:
* key.masked          : TERNARY   120056 &&& ff00ff
* key.small           : EXACT     03
* extra_valid         : TERNARY   01 &&& 01
Priority: 5
Action entry: I.ternary_ - 01
"""
    assert (
        printed("switch_tables", lines, capsys)
        == f"""\
Entry has been added with handle 0
==========
TABLE ENTRIES
**********
{entry}==========
Dumping default entry
Action entry: I.ternary_ - ee
==========
{entry}"""
    )


def test_other_kinds_of_keys(capsys):
    lines = [
        "table_add I.lpm_table I.lpm 3 10.1.0.0/17 => 255",
        "table_add I.range_table I.range_ 5->9 0&&&0 => 1 7",
        "table_dump I.lpm_table",
        "table_dump I.range_table",
    ]
    found = printed("switch_tables", lines, capsys)
    assert (
        "* key.small           : EXACT     03\n* key.prefix          : LPM       0a010000/17"
        in found
    )
    assert "* key.range_low       : RANGE     0005 -> 0009\n" in found


def test_an_action_profile(capsys):
    lines = [
        "act_prof_create_member I.ways I.go 300 4",
        "act_prof_create_member I.ways I.stay",
        "act_prof_create_group I.ways",
        "act_prof_add_member_to_group I.ways 0 0",
        "act_prof_add_member_to_group I.ways 1 0",
        "table_indirect_add_with_group I.way_table 5 => 0",
        "table_indirect_set_default I.way_table 1",
        "table_dump I.way_table",
    ]
    found = printed("switch_profiles", lines, capsys)
    assert (
        found[found.index("==========") :]
        == """\
==========
TABLE ENTRIES
**********
Dumping entry 0x0
Match key:
* probe.flow          : EXACT     0005
Index: group(0)
==========
MEMBERS
**********
Dumping member 0
Action entry: I.go - 012c, 04
**********
Dumping member 1
Action entry: I.stay -\x20
==========
GROUPS
**********
Dumping group 0
Members: [0, 1]
==========
Dumping default entry
Index: member(1)
==========
"""
    )


def test_ports(capsys):
    assert printed("switch_tables", ["show_ports"], capsys) == (
        "  port #       iface name       status  extra info\n" + "=" * 50 + "\n"
    )


def test_refusals_are_those_of_the_common_commands(capsys):
    found = printed("switch_tables", ["table_dump nowhere", "table_dump_entry run_table x"], capsys)
    assert "Error: unknown table 'nowhere'" in found
    assert found.count("Error: ") == 2


def test_the_options_of_simple_switch_cli(monkeypatch, capsys):
    process = Process(json.dumps(program("switch_tables")), engine="interpret")
    monkeypatch.setattr("sys.stdin", io.StringIO("table_num_entries I.lpm_table\n"))
    try:
        words = ["--thrift-ip", "localhost", "--json", "x.json", "--pre", "SimplePreLAG"]
        assert shell.main(["--thrift-port", str(process.port), *words]) == 0
    finally:
        process.close()
    assert capsys.readouterr().out.startswith(f"{shell.PROMPT}0\n")
    assert shell.main(["--thrift-port", "1"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
