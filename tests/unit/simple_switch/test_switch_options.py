"""The options of innet simple-switch beside simple_switch's own, as they were recorded."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.bmv2 import needs_simple_switch

pytest.importorskip("thrift", reason="Thrift's library is not installed")

from innet.bmv2 import shell
from innet.bmv2.build import find_simple_switch
from innet.core.errors import InputError
from innet.simple_switch.options import options_of
from innet.simple_switch.process import SimpleSwitch, main

GOLDEN = Path(__file__).parents[2] / "golden" / "simple_switch" / "names.json"
KNOWN = json.loads(GOLDEN.read_text())
VALUES = {
    "--interface": "1@a",
    "--pcap": None,
    "--log-level": "info",
    "--log-file": "log",
    "--packet-in": "ipc://x",
    "--notifications-addr": "ipc://y",
}
FLAGS = {"--log-console", "--log-flush", "--version", "--json-version", "--no-p4", "--enable-swap"}
REFUSED = {"--debugger", "--debugger-addr", "--restore-state", "--load-modules"}


@pytest.mark.parametrize("option", sorted(set(KNOWN["options"]) - REFUSED - {"--help"}))
def test_each_option_of_simple_switch_is_taken(option):
    value = VALUES.get(option, "3")
    words = [option] if option in FLAGS or value is None else [option, value]
    options = options_of([*words, "program.json"])
    found = getattr(options, option.removeprefix("--").replace("-", "_"))
    if option in FLAGS:
        assert found is True
    elif value is not None:
        assert str(found) == value or found == [value]
    assert options.program == (None if option == "--no-p4" else "program.json")


@pytest.mark.parametrize("option", sorted(REFUSED))
def test_what_cannot_be_is_refused_by_name(option):
    for words in ([option, "value"], [f"{option}=value"]):
        with pytest.raises(InputError, match=f"^{option}: .*[a-z]"):
            options_of([*words, "program.json"])


def test_targets_options_may_stand_behind_dashes():
    options = options_of(["-i", "1@a", "x.json", "--", "--priority-queues", "8", "--enable-swap"])
    assert (options.priority_queues, options.enable_swap, options.program) == (8, True, "x.json")


def test_the_folder_of_captures_may_be_a_word_of_its_own(tmp_path):
    """As run_exercise.py of p4lang's tutorials writes it."""
    words = ["-i", "1@a", "--pcap", str(tmp_path), "--device-id", "0", "x.json", "--log-console"]
    options = options_of(words)
    assert (options.pcap, options.program) == (str(tmp_path), "x.json")
    options = options_of(["--pcap", "x.json"])
    assert (options.pcap, options.program) == (".", "x.json")


@pytest.mark.parametrize(
    ("words", "program", "ignored"),
    [
        (["x.json", "-i", "2@b", "3@c"], "x.json", ["3@c"]),
        (["-i", "2@b", "x.json", "y.json", "--device-id", "1", "z"], "x.json", ["y.json", "z"]),
        (["x.json", "--", "--priority-queues", "8", "more"], "x.json", ["more"]),
        (["--no-p4", "x.json", "3@c"], None, ["x.json", "3@c"]),
        (["x.json"], "x.json", []),
    ],
)
def test_words_too_many_are_ignored_as_simple_switch_does(words, program, ignored):
    options = options_of(words)
    assert (options.program, options.ignored) == (program, ignored)


def test_words_too_many_are_said(capsys):
    assert main(["absent.json", "-i", "2@b", "3@c"]) == 1
    said = capsys.readouterr().err
    assert "warning: ignored, as simple_switch does: 3@c. Each interface needs an -i" in said
    assert main(["-i", "2@b", "3@c", "absent.json"]) == 1
    assert "error: 3@c: no such file" in (said := capsys.readouterr().err)
    assert said.endswith("Each interface needs an -i of its own: -i PORT@NAME.\n")


def test_an_unknown_option_is_still_an_error(capsys):
    with pytest.raises(SystemExit):
        options_of(["x.json", "--bogus", "word"])
    assert "unrecognized arguments: --bogus" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_lists_all_options(word, capsys):
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 0
    listed = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
    assert set(KNOWN["options"]) - REFUSED <= listed


@pytest.mark.parametrize(("word", "said"), [("-v", "1.15.5"), ("--json-version", "2.24")])
def test_versions_are_simple_switchs(word, said, capsys):
    assert main([word]) == 0
    assert capsys.readouterr().out.strip() == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--use-files", "0", "--packet-in", "ipc://x"], "exclude each other"),
        (["--log-console", "--log-file", "x"], "exclude each other"),
        (["--drop-port", "512"], "--drop-port 512: egress_spec is 0 to 511"),
        (["--log-file-max-size", "0"], "--log-file-max-size is at least 1"),
        (["--dump-packet-data", "-1"], "--dump-packet-data is a number of bytes"),
        (["--max-mc-groups", "0"], "--max-mc-groups 0: it is at least 1"),
    ],
)
def test_values_that_cannot_be_are_named(words, said, capsys):
    assert main([*words, "program.json"]) == 1
    assert said in capsys.readouterr().err


def test_each_command_of_simple_switch_cli_is_there():
    assert set(KNOWN["commands"]) <= set(shell.NAMES)


@needs_simple_switch
def test_the_recorded_options_are_those_of_the_simple_switch_on_path():
    switch, _ = find_simple_switch()
    said = subprocess.run([switch, "--help"], capture_output=True, text=True, check=False).stdout
    listed = set(re.findall(r"^  (?:-\w \[ )?(--[a-z0-9-]+)", said, re.MULTILINE))
    assert listed <= set(KNOWN["options"])
    of_its_build = {"--debugger", "--debugger-addr", "--load-modules", "--nanolog"}
    of_its_build |= {"--packet-in", "--notifications-addr"}  # those with nanomsg
    assert set(KNOWN["options"]) - listed <= of_its_build


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["511@lo"], "511@lo: a switch has ports 0 to 510"),
        (["lo"], "lo: write it as PORT@NAME"),
        (["one@lo"], "one@lo: write it as PORT@NAME"),
        (["@lo"], "@lo: write it as PORT@NAME"),
        (["1@"], "1@: write it as PORT@NAME"),
        (["1@lo", "1@eth0"], "1@eth0: port 1 has an interface already"),
    ],
)
def test_interfaces_that_no_switch_can_have(words, why, capsys):
    program = str(Path(__file__).parents[3] / "p4/examples/forward.json")
    options = [option for word in words for option in ("--interface", word)]
    assert main([program, *options]) == 1
    assert why in capsys.readouterr().err


def test_the_switch_has_as_many_queues_as_a_port_may_have(capsys):
    program = str(Path(__file__).parents[3] / "p4/examples/forward.json")
    words = [program, "--thrift-port", "0", "--engine", "interpret", "--priority-queues", "40"]
    assert main(words) == 1
    assert "1 to 32 priority queues per port, not 40" in capsys.readouterr().err


def test_p4_utils_option_for_events_is_taken_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(SimpleSwitch, "run", SimpleSwitch._close)
    program = str(Path(__file__).parents[3] / "p4/examples/forward.json")
    words = [program, "--thrift-port", "0", "--engine", "interpret", "--nanolog", "ipc:///none"]
    assert main([*words, "--log-file", str(tmp_path / "log"), "--log-flush"]) == 0
    assert "--nanolog ipc:///none: no events are sent" in (tmp_path / "log.txt").read_text()
