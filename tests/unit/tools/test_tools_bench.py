"""Measurements: what is measured, on which packets, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support import capture_files as files
from support.switch_cases import program
from typer.testing import CliRunner

from innet.bmv2.simple_switch import RunResult
from innet.cli.app import app
from innet.core.errors import ControlError, InputError, MissingToolError
from innet.switch import SwitchState, load_program
from innet.tools import bench
from innet.tools.files import Commands
from innet.tools.replay import Input

NONE = Commands(None, ())


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(bench, "_LEAST_SECONDS", 0.01)

    def missing(*_, **__):
        raise MissingToolError("simple_switch", "this", "Install it.")

    monkeypatch.setattr("innet.bmv2.simple_switch.run", missing)
    monkeypatch.setattr("innet.bmv2.simple_switch.version", lambda: "1.2.3")


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(bench, "_start", lambda _: bench.StartTimes(3.0, 0.5, 1000))


def measure(name, count=300, commands=NONE, batch=100, priority_queues=1):
    document = program(name)
    loaded = load_program(document)
    packets = bench.fuzzed_packets(loaded, count, seed=1)
    *rates, last = bench.measure(
        document, loaded, packets, commands, batch, priority_queues=priority_queues
    )
    assert tuple(rates) == last.rates
    return last


def test_engines_side_by_side(started):
    result = measure("tools_clock")
    jit, interpret, reference = result.rates
    assert (jit.name, jit.packets) == ("jit", 300)
    assert jit.per_second == 300 / jit.seconds > interpret.per_second > 0
    assert interpret.packets % 64 in (0, 300 % 64)
    assert reference.per_second is None
    assert "simple_switch is not installed" in reference.note
    assert result.start == bench.StartTimes(3.0, 0.5, 1000)
    assert 0 < result.answered <= 1


def test_a_simple_switch_that_cannot_be_run_leaves_the_others_measured(started, monkeypatch):
    def broken():
        raise InputError("simple_switch cannot be run: Exec format error.")

    monkeypatch.setattr("innet.bmv2.simple_switch.version", broken)
    result = measure("tools_clock")
    assert result.rates[0].per_second > 0
    assert result.rates[-1].note == "simple_switch cannot be run: Exec format error."


def test_all_have_as_many_queues(started, monkeypatch):
    given = {}

    def run(*_, **options):
        given.update(options)
        return RunResult({}, {}, 1.0)

    monkeypatch.setattr("innet.bmv2.simple_switch.run", run)
    commands = Commands(None, ("set_queue_depth 5 1 3",))
    assert measure("tools_clock", commands=commands, priority_queues=4).rates[-1].seconds == 1.0
    assert given["priority_queues"] == 4
    with pytest.raises(ControlError, match="no priority 3: this switch has 3 queues per port"):
        measure("tools_clock", commands=commands, priority_queues=3)


def test_a_new_process():
    """Compiles in a directory of its own, whatever this machine has compiled before."""
    start = bench._start(program("tools_clock"))
    assert start.cold > start.warm > 0
    assert start.memory > 0


def test_simple_switch_gets_the_same(started, monkeypatch):
    given = {}

    def run(document, packets, commands, *, ports, **_):
        given.update(document=document, packets=packets, commands=commands, ports=ports)
        return RunResult({}, {}, 2.0)

    monkeypatch.setattr("innet.bmv2.simple_switch.run", run)
    commands = Commands(None, ("# groups", "", "mc_mgrp_create 1"))
    result = measure("tools_clock", 120, commands)
    assert result.rates[-1] == bench.EngineRate("simple_switch 1.2.3", 120, 2.0)
    assert given["commands"] == ["mc_mgrp_create 1"]
    loaded = load_program(given["document"])
    assert given["packets"] == bench.fuzzed_packets(loaded, 120, seed=1)
    monkeypatch.setattr("innet.bmv2.simple_switch.run", lambda *_, **__: RunResult({}, {}, 0.0))
    assert "fewer than two packets" in measure("tools_clock", 10).rates[-1].note


def test_simple_switch_has_the_ports_by_which_packets_leave(started, monkeypatch):
    """Which no packet came by, and only an action's argument names."""
    examples = Path(__file__).parents[3] / "p4/examples"
    document = json.loads((examples / "forward.json").read_text())
    commands = Commands(None, tuple((examples / "forward.commands").read_text().splitlines()))
    given = set()

    def run(*_, ports, **__):
        given.update(ports)
        return RunResult({}, {}, 2.0)

    monkeypatch.setattr("innet.bmv2.simple_switch.run", run)
    to_h2 = bytes.fromhex("020000000002 020000000001 0800") + bytes(50)
    *_, last = bench.measure(document, load_program(document), [(1, to_h2)] * 9, commands)
    assert given == {2}
    assert last.answered == 1


def test_what_the_state_takes():
    def state_size(name):
        loaded = load_program(program(name))
        return bench.state_size(SwitchState(loaded, np.random.default_rng(0)))

    assert state_size("switch_tables") == bench.StateSize(0, 0, 0, 4)
    state = state_size("switch_state")
    assert state.registers == 256 * (4 + 4 + 8 + 1) + 4 * 16  # 100 bits take two words
    assert state.counters == 2 * 8 * (256 + 1024)


def test_fuzzed_packets_repeat(monkeypatch):
    monkeypatch.setattr(bench, "_DISTINCT", 3)
    packets = bench.fuzzed_packets(load_program(program("jit_parser")), 7, seed=0)
    assert packets == [*packets[:3], *packets[:3], packets[0]]
    assert len(set(packets)) == 3


def test_captured_packets(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(files.pcap([(i, bytes([i])) for i in range(3)]))
    packets = bench.captured_packets(Input(path, 4), 5)
    assert packets == [(4, bytes([i % 3])) for i in range(5)]


def test_nothing_to_measure():
    loaded = load_program(program("tools_clock"))
    for packets, batch in (([], 4), ([(0, b"")], 0)):
        with pytest.raises(InputError, match="nothing to measure"):
            next(bench.measure({}, loaded, packets, NONE, batch))


class TestCommand:
    def run(self, *arguments):
        result = CliRunner().invoke(app, ["switch", "bench", *map(str, arguments)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def test_table(self, started):
        text = self.run("tests/programs/tools_clock.json", "--packets", 100).stdout
        for part in ("jit", "interpret", "1.00", "slower by", "registers 0 B", "after 500 ms"):
            assert part in text

    def test_json(self, started, tmp_path):
        path = tmp_path / "p2.pcap"
        path.write_bytes(files.pcap([(0, b"\1" * 60)]))
        arguments = ["--packets", 50, "--batch", 20, "--pcap", path, "--json"]
        document = json.loads(self.run("tests/programs/tools_clock.json", *arguments).stdout)
        assert [each["name"] for each in document["rates"]] == [
            "jit",
            "interpret",
            "simple_switch",
        ]
        assert document["answered"] == 1
        assert document["start"]["warm"] == 0.5
        assert (document["packets"], document["batch"]) == (50, 20)

    def test_wrong(self, started, tmp_path):
        (tmp_path / "commands").write_text("mc_mgrp_create 1\nmc_mgrp_create x\n")
        for arguments, error, message in (
            (["absent.json"], InputError, r"absent\.json: no such file.*slots-32"),
            (["slots-32", "--pcap", "absent"], InputError, "absent cannot be read"),
            (["slots-32", "--commands", "absent"], InputError, "absent cannot be read"),
            (
                ["tests/programs/tools_clock.json", "--commands", tmp_path / "commands"],
                ControlError,
                "commands:2: mc_mgrp_create x: .* is 'x'; give an integer",
            ),
        ):
            with pytest.raises(error, match=message):
                self.run(*arguments)
        assert self.run("slots-32", "--packets", 0).exit_code == 2
