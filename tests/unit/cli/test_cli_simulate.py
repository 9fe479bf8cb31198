"""``innet simulate`` as people type it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from innet.cli import main
from innet.cli.app import app
from innet.core.errors import InputError
from innet.records import Record

MODEL = """
title = "tiny"
source = "nowhere"
parameters = 1200
[compute]
seconds = 1e-3
source = "a guess"
assumed = true
[[blocks]]
name = "fc{}"
numbers = [0, 1, 2]
parameters = [{ name = "weight", shape = [20, 20], positions = 1 }]
"""


def innet(*arguments):
    result = CliRunner().invoke(app, ["simulate", *map(str, arguments)], env={"COLUMNS": "120"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(MODEL)
    return path


def test_json_is_the_record_and_has_equal_simulated_parts_in_two_runs(tmp_path):
    arguments = ("--size", 2000, "-w", 3, "--network", "10g:loss=0.01", "--json")
    first, second = (json.loads(innet(*arguments).stdout) for _ in range(2))
    for part in ("simulated", "iterations", "seconds", "network"):
        assert first[part] == second[part]
    simulated = first["simulated"]
    assert simulated["goodput_gbps"] == pytest.approx(32e-9 * 2000 / simulated["seconds"])
    assert simulated["lost"] > 0
    assert first["wall_seconds"] > 0
    assert first["report"]["exact"] is True
    assert first["format"] == "innet.simulation"


def test_what_repeats_itself_is_skipped_unless_that_is_switched_off():
    arguments = ("--thin", "--workers", 2, "--size", 400_000, "--json")
    skipped, full = (
        json.loads(innet(*arguments, *given).stdout) for given in ((), ("--no-fast-forward",))
    )
    assert skipped["fast_forward"]["packets"] > 0
    assert full["fast_forward"]["packets"] == 0
    assert "switched off" in full["fast_forward"]["why"]
    assert skipped["simulated"] == full["simulated"]


def test_a_transport_that_cannot_be_cut_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr("innet.scenarios.simulate._SimulationRun", None)
    with pytest.raises(InputError, match="choose roce:recovery=selective"):
        innet("--network", "100g:trim=true", "--baseline", "ring")


def test_the_table_says_what_is_assumed(model):
    text = innet("--model", model, "--iterations", 12, "--bucket-cap-mb", 0.001).stdout
    shown = " ".join(text.split())
    assert "tiny, 1,200 parameters" in shown
    assert "a guess (assumed)" in shown
    assert "36 of 36" in shown  # sums
    assert "2 more iterations are in the record" in shown


def test_one_all_reduce_needs_no_table_of_iterations():
    shown = innet("--size", 100, "--straggler", "none").stdout
    assert "Goodput, each worker" in shown
    assert "exposed" not in shown


def test_record_and_plot_are_written_and_shown_again(model, tmp_path):
    record, plot, again = tmp_path / "r.json", tmp_path / "p.png", tmp_path / "again.svg"
    shown = innet(
        *("--model", model, "--straggler", "lognormal:sigma=0.5", "--pause", "1:1:0.01"),
        *("-w", 12, "--plot", plot, "-o", record),
    ).stdout
    assert "record: " in shown
    assert plot.stat().st_size > 10_000
    loaded = Record.load(record)
    assert loaded.iterations[0].paused[1] == 0.01
    assert loaded.settings["straggler"] == "lognormal:sigma=0.5"
    repeated = CliRunner().invoke(app, ["report", str(record), "--plot", str(again)])
    assert "tiny, 1,200 parameters" in repeated.stdout
    assert "worker 11" in again.read_text() or again.stat().st_size > 10_000


def test_settings_may_stand_in_a_file(model, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(f'model = "{model}"\nworkers = 2\ncompute = 0.5\nnetwork = {{rate = 1e9}}\n')
    record = json.loads(innet("--config", config, "--json", "--seed", 3).stdout)
    assert record["workers"] == 2
    assert record["network"]["rate"] == 1e9
    assert record["settings"]["seed"] == 3
    assert record["compute_assumed"] is False


def test_a_worker_may_die_while_others_go_on(tmp_path):
    arguments = ("--size", 20_000, "-w", 3, "--network", "10g", "--iterations", 2)
    dying = ("--crash", "2:3e-5", "--partial-after", 2e-3)
    record, page = tmp_path / "r.json", tmp_path / "r.html"
    shown = " ".join(innet(*arguments, *dying, "-o", record).stdout.split())
    assert "Left out, as they were late worker 2" in shown
    loaded = Record.load(record)
    assert loaded.settings["faults"]["outages"][0]["workers"] == [2]
    CliRunner().invoke(app, ["report", str(record), "--html", str(page)])
    assert "--crash 2:3e-05 --partial-after 0.002" in page.read_text()


def test_a_file_may_have_faults(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("size = 2000\nnetwork = '10g'\n[faults]\nduplicate = 0.5\nrestarts = [1.0]\n")
    record = json.loads(innet("--config", config, "--loss", 0.01, "--json").stdout)
    assert record["settings"]["faults"]["duplicate"] == 0.5
    assert record["simulated"]["lost"] > 0
    assert record["report"]["exact"] is True


def test_a_networks_file_is_refused_by_its_name_and_the_settings(tmp_path, capsys, monkeypatch):
    path = tmp_path / "network.toml"
    for text, said in (
        ("rate = 0", "rate is 0; give bits per second"),
        ("queue_bytes = 100", "queue_bytes is 100, but a packet has 330 bytes: none would pass"),
        ("buffer_bytes = 100", "buffer_bytes is 100, but a packet has 330 bytes"),
        ("quee_packets = 3", "Did you mean 'queue_packets'?"),
        ("delay = 1e-13", "delay is 1e-13 s, below the clock's resolution of a picosecond"),
        ("host_jitter = 1e-13", "host_jitter is 1e-13 s, below the clock's resolution"),
        ("priorities = 9", "priorities is 9; give 1 to 8"),
        ("preset = '1t'", "10g"),
    ):
        path.write_text(text)
        for command in ("simulate", "allreduce"):
            arguments = ["innet", command, "--size", "10", "--network", str(path)]
            monkeypatch.setattr("sys.argv", arguments)
            with pytest.raises(SystemExit) as stopped:
                main()
            assert stopped.value.code == 2
            assert said in " ".join(capsys.readouterr().err.split()), (text, command)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--network", "100g:rate=0"), "rate is 0; give bits per second"),
        (("--network", "100g:queue_bytes=100"), "a packet has 330 bytes: none would pass"),
        (("--network", "100g:queue_packets=0"), "a queue holds at least 1 packet"),
        (("--network", "100g:quee_packets=3"), "Did you mean 'queue_packets'?"),
        (("--network", "100g:delay=1e-13"), "below the clock's resolution of a picosecond"),
        (("--topology", "fat-tree", "--ports", "2", "-w", "16"), "Choose other --ports"),
        (("--crash", "9:0.1"), "there is no worker 9 to cut off"),
        (("--crash", "2"), "write it as WORKER:BEGIN"),
        (("--restart", "-1"), "faults.restarts"),
        (("traffic", "flows.toml", "--crash", "1:0"), "No such option: --crash"),
        (("traffic", "flows.toml", "--commands", "c.txt"), "add --program"),
        (("--network", "10g", "--traffic", "flows.toml"), "innet simulate traffic FILE"),
        (("--job-file=jobs.toml",), "--job-file is a command now: innet simulate jobs FILE"),
        (("--sweep", "workers=2"), "--sweep is a command now: innet simulate sweep"),
        (("--network", "1t"), "100g, 10g"),
        (("--network", "none.toml"), "cannot read none.toml"),
        (("--model", "resnet"), "Did you mean 'resnet50'"),
        (("--model", "resnet50", "--size", "5"), "leave size or model out"),
        (("--straggler", "pareto"), "distribution of stragglers"),
        (("--pause", "1"), "write WORKER:ITERATION:SECONDS"),
        (("--bucket-cap-mb", "0"), "bucket_cap_mb = 0 cannot be used"),
        (("--encode-time", "-1"), "encode_time = -1 cannot be used"),
        (("--size", "0"), "at least 1 element"),
        (("--topology", "ring"), "star"),
        (("--output", "/none/r.json"), "cannot write /none/r.json"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(arguments, said, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["innet", "simulate", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == (1 if arguments[0] == "--output" else 2)
    assert said in " ".join(capsys.readouterr().err.split())
