"""``innet simulate sweep``, and ``innet report`` of what it leaves."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

import innet
from innet.cli.app import app
from innet.core.errors import InnetError
from innet.records import SweepRecord

SMALL = ["sweep", "--size", "2000", "--network", "10g", "--workers", "2", "--jobs", "1"]


def innet_simulate(*words):
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, ["simulate", *map(str, words)])


def test_a_sweep_writes_records_table_and_plot_and_goes_on(tmp_path):
    words = [*SMALL, "codec=dense,topk:ratio=0.1", "--output", tmp_path / "out"]
    words += ["--plot", tmp_path / "x.svg"]
    first = innet_simulate(*words, "loss=0")
    assert first.exit_code == 0, first.output
    assert re.search(r"topk:ratio=0\.1 +0 +\d", first.stdout)
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
    files = {each.name: each.read_bytes() for each in (tmp_path / "out").iterdir()}
    assert {"sweep.json", "sweep.csv"} < files.keys()
    assert len(files) == 4
    second = innet_simulate(*words, "loss=0,0.01", "--json")
    record = SweepRecord.model_validate_json(second.stdout)
    assert len(record.points) == 4
    for name in files.keys() - {"sweep.json", "sweep.csv"}:
        assert (tmp_path / "out" / name).read_bytes() == files[name]
    shown = CliRunner().invoke(app, ["report", str(tmp_path / "out" / "sweep.json")])
    assert shown.stdout.count("topk:ratio=0.1") == 2


def test_a_sweep_is_that_of_python():
    said = innet_simulate(*SMALL, "queue_packets=2,4096", "--json")
    record = innet.sweep(
        {"size": 2000, "workers": 2, "network": "10g"}, {"queue_packets": [2, 4096]}, jobs=1
    )
    assert [each["record"]["simulated"] for each in json.loads(said.stdout)["points"]] == [
        each.record["simulated"] for each in record.points
    ]
    direct = innet.simulate(size=2000, workers=2, network="10g:queue_packets=2")
    assert record.points[0].record["simulated"] == direct.simulated.model_dump(mode="json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wrkers=2"], "wrkers.*Did you mean 'workers'"),
        (["workers=2", "workers=3"], "workers is given twice"),
        (["workers"], "NAME=VALUE"),
        (["codec=dense,lhhc"], "codec=lhhc cannot be run: .*'lhc'"),
        (["queue_packets=0,1"], "network.queue_packets=0 cannot be run"),
        (["size=1,x"], "size=x cannot be run"),
        (["size=1,2", "--metric", "secnds"], "metric 'secnds'.*Did you mean 'seconds'"),
        (["size=1", "--metric", "utilisation.trunk"], "Did you mean 'utilization'"),
        (["size=1,2", "--metric", "seconds"], "add --plot, or leave it out"),
    ],
)
def test_what_cannot_be_swept_is_refused(words, message):
    found = innet_simulate("sweep", *words)
    assert isinstance(found.exception, InnetError)
    assert re.search(message, str(found.exception))


def test_a_metric_that_the_points_lack_is_told_after_the_table(tmp_path):
    words = ["seed=1", "--plot", tmp_path / "x.png", "--metric", "utilization.trunk"]
    found = innet_simulate(*SMALL, *words)
    assert "goodput" in found.stdout
    assert "no metric 'utilization.trunk'" in str(found.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_point_that_fails_is_named_and_the_status_is_1():
    words = ["sweep", "--size", "1000", "--workers", "33", "--program", "slots", "--jobs", "1"]
    found = innet_simulate(*words, "seed=1")
    assert found.exit_code == 1
    assert "seed=1 failed: " in found.stderr


def test_a_trace_of_one_run_is_written(tmp_path):
    path = tmp_path / "trace.json"
    found = innet_simulate("--size", 100, "--trace", path)
    assert f"trace: {path}" in found.stdout
    assert {each["ph"] for each in json.loads(path.read_text())["traceEvents"]} == set("MXCbe")
