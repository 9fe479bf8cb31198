"""Sweeps: their axes, points, files and pools."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from support import sweep_points
from support.sweep_points import PARAMETERS

import innet
from innet.core.errors import ConfigError, InputError, MissingToolError, UnknownNameError
from innet.records import PointRecord, Record, SweepRecord
from innet.reports.plots import sweep_figure
from innet.reports.progress import SweepDisplay
from innet.reports.registry import draw
from innet.reports.tables import failures, sweep_table
from innet.scenarios import sweeps
from innet.scenarios.sweep_workers import ProcessPool, as_json
from innet.scenarios.sweeps import Task, axis_of
from innet.sim import Network

PRODUCT = Task(sweep_points.product, ("a", "b", "folder", "wait"))
REDUCE = Task(sweep_points.all_reduce, PARAMETERS)


def simulated(record):
    return [
        json.dumps([each.values, each.record["simulated"]], sort_keys=True)
        for each in record.points
    ]


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("workers=8,16", ("workers", [8, 16])),
        ("loss=0,1e-4", ("loss", [0, 1e-4])),
        ("codec=dense, lhc", ("codec", ["dense", "lhc"])),
        ("codec=dense,topk:ratio=0.1,x=4,lhc", ("codec", ["dense", "topk:ratio=0.1,x=4", "lhc"])),
        ("codec=topk:ratio=0.1,topk:ratio=0.2", ("codec", ["topk:ratio=0.1", "topk:ratio=0.2"])),
        ("trunk_rate=None", ("trunk_rate", [None])),
    ],
)
def test_axes_as_they_are_typed(text, axis):
    assert axis_of(text) == axis


@pytest.mark.parametrize("text", ["workers", "workers=", "=8", "workers=8,,16", "a=1,b=2=3"])
def test_axes_of_another_form_are_refused(text):
    if text == "a=1,b=2=3":  # a value with "=" of its own is text
        assert axis_of(text) == ("a", [1, "b=2=3"])
        return
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        axis_of(text)


def test_points_are_the_product_in_order_with_the_last_axis_fastest(tmp_path):
    record = sweeps.run(PRODUCT, {}, {"b": [1, 2], "a": [3, 4]}, jobs=1, out_dir=tmp_path)
    assert [each.values for each in record.points] == [
        {"b": 1, "a": 3},
        {"b": 1, "a": 4},
        {"b": 2, "a": 3},
        {"b": 2, "a": 4},
    ]
    assert [each.metric("seconds") for each in record.points] == [3, 4, 6, 8]
    assert Record.load(tmp_path / "sweep.json") == record
    assert (tmp_path / "sweep.csv").read_text().splitlines()[:2] == ["b,a,seconds", "1,3,3"]
    assert [each.metric("seconds") for each in record.at(a=4)] == [4, 8]
    with pytest.raises(InputError, match="no axis 'c'; it has b, a"):
        record.at(c=1)
    with pytest.raises(InputError, match=r"no metric 'speed' .*pid, seconds"):
        record.points[0].metric("speed")


@pytest.mark.parametrize(
    ("settings", "axes", "message"),
    [
        ({}, {}, "needs an axis"),
        ({}, {"workrs": [1]}, "workrs.*workers"),
        ({"wokers": 1}, {"workers": [1]}, "wokers.*workers"),
        ({}, {"network.los": [1]}, "setting of a network 'los'.*loss"),
        ({}, {"loss": [0], "network.loss": [0.1]}, "network.loss is swept twice"),
        ({}, {"workers": []}, "list of values"),
        ({}, {"workers": "8"}, "list of values"),
        ({}, {"workers": [8, 8]}, "workers=8 is given twice"),
        ({}, {"loss": [0, 2]}, r"network\.loss=2 cannot be run: loss is 2"),
        ({}, {"network": ["100g", "100g:loss=0"]}, "have the same settings"),
        ({}, {"network": ["100gg"]}, r"network=100gg cannot be run.*100gg"),
    ],
)
def test_axes_that_cannot_be_swept_are_refused_by_name(settings, axes, message):
    with pytest.raises((InputError, UnknownNameError), match=message):
        sweeps.run(REDUCE, settings, axes, jobs=1)


def test_every_point_is_checked_before_the_first_one_runs(tmp_path):
    def check(settings):
        if settings["a"] == 9:
            raise ConfigError("a is 9.")

    task = Task(sweep_points.product, ("a", "b", "folder"), check)
    with pytest.raises(InputError, match=r"the point a=9 cannot be run: a is 9\."):
        sweeps.run(task, {"folder": str(tmp_path)}, {"a": [1, 9]}, jobs=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"jobs": 0}, {"attempts": 0}, {"jobs": 1, "scheduler": "x"}])
def test_options_that_cannot_be_used_are_refused(options):
    with pytest.raises(InputError, match="give"):
        sweeps.run(PRODUCT, {}, {"a": [1]}, **options)


def test_a_networks_settings_are_swept_on_top_of_the_network(tmp_path):
    toml = tmp_path / "cluster.toml"
    toml.write_text('preset = "10g"\ndelay = 2e-6\n')
    axes = {"rate": [10e9, 20e9], "workers": [2]}
    record = sweeps.run(REDUCE, {"network": str(toml)}, axes, jobs=1, out_dir=tmp_path)
    assert [each.name for each in record.axes] == ["network.rate", "workers"]
    slow, fast = (each.metric("seconds") for each in record.points)
    assert slow > fast > 4e-6  # there and back
    kept = PointRecord.load(tmp_path / f"{record.points[1].digest}.json")
    assert kept.settings["network"]["rate"] == 20e9
    assert kept.settings["network"]["delay"] == 2e-6
    direct = sweep_points.all_reduce(network=Network(rate=20e9, delay=2e-6))
    assert record.points[1].record["simulated"] == as_json(direct)["simulated"]
    # The network counts by its settings, not by the name of its file.
    toml.write_text('preset = "10g"\ndelay = 3e-6\n')
    again = sweeps.run(REDUCE, {"network": str(toml)}, axes, jobs=1, out_dir=tmp_path)
    assert {each.digest for each in again.points}.isdisjoint(each.digest for each in record.points)


def test_a_sweep_goes_on_where_it_stopped_and_runs_nothing_twice(tmp_path):
    calls, out = tmp_path / "calls", tmp_path / "out"
    calls.mkdir()
    settings = {"folder": str(calls)}
    sweeps.run(PRODUCT, settings, {"a": [1, 2], "b": [1]}, jobs=1, out_dir=out)
    events = []
    record = sweeps.run(
        PRODUCT, settings, {"a": [1, 2], "b": [1, 2]}, jobs=1, out_dir=out, watch=events.append
    )
    assert [(each.what, each.number, each.total) for each in events] == [
        ("kept", 1, 4),
        ("kept", 2, 4),
        ("done", 3, 4),
        ("done", 4, 4),
    ]
    assert sorted(each.name for each in calls.iterdir()) == ["1-1-0", "1-2-0", "2-1-0", "2-2-0"]
    assert [each.metric("seconds") for each in record.points] == [1, 2, 2, 4]
    assert not list(out.glob(".innet-*"))
    fresh = sweeps.run(PRODUCT, settings, {"a": [1, 2], "b": [1, 2]}, jobs=1)
    assert simulated(fresh) == simulated(record)


@pytest.mark.parametrize("damage", ["", "{", "{}", "other settings", "other version"])
def test_a_file_that_is_damaged_or_of_another_run_is_made_again(tmp_path, damage):
    first = sweeps.run(PRODUCT, {}, {"a": [1, 2]}, jobs=1, out_dir=tmp_path)
    path = tmp_path / f"{first.points[1].digest}.json"
    whole = json.loads(path.read_text())
    if damage == "other settings":
        damage = json.dumps({**whole, "settings": {"a": 7}, "record": {}})
    elif damage == "other version":
        damage = json.dumps({**whole, "innet": "0.0.1", "record": {}})
    path.write_text(damage)
    events = []
    again = sweeps.run(PRODUCT, {}, {"a": [1, 2]}, jobs=1, out_dir=tmp_path, watch=events.append)
    assert [each.what for each in events] == ["kept", "done"]
    assert simulated(again) == simulated(first)
    assert json.loads(path.read_text())["record"] == whole["record"]


def test_an_interruption_leaves_what_was_done(tmp_path):
    def stop(event):
        if event.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweeps.run(PRODUCT, {}, {"a": [1, 2, 3]}, jobs=1, out_dir=tmp_path, watch=stop)
    assert len(SweepRecord.load(tmp_path / "sweep.json").points) == 2
    events = []
    sweeps.run(PRODUCT, {}, {"a": [1, 2, 3]}, jobs=1, out_dir=tmp_path, watch=events.append)
    assert [each.what for each in events] == ["kept", "kept", "done"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_point_that_fails_is_tried_again_and_then_named(tmp_path, jobs):
    events = []
    record = sweeps.run(
        Task(sweep_points.failing, ("a", "b", "folder")),
        {"folder": str(tmp_path)},
        {"a": [1, 2, 3], "b": [5]},
        jobs=jobs,
        attempts=2,
        watch=events.append,
    )
    assert [each.values["a"] for each in record.points] == [1, 3]
    (failure,) = record.failures
    assert failure.values == {"a": 2, "b": 5}
    assert failure.error == "RuntimeError: two is too much"
    assert failure.attempts == 2
    assert len(list(tmp_path.glob("2-5-*"))) == 2
    assert sorted(each.what for each in events) == ["again", "done", "done", "failed"]


def test_settings_that_are_refused_are_not_tried_again(tmp_path):
    task = Task(sweep_points.refusing, ("a", "folder"))
    record = sweeps.run(task, {"folder": str(tmp_path)}, {"a": [1, 2]}, jobs=1)
    assert [(each.error, each.attempts) for each in record.failures] == [
        ("a is 2; give another.", 1)
    ]


def test_processes_give_the_records_of_a_serial_run(tmp_path):
    axes = {"workers": [2, 3], "loss": [0, 0.01], "codec": ["dense", "topk:ratio=0.1"]}
    serial = sweeps.run(REDUCE, {"network": "10g"}, axes, jobs=1)
    parallel = sweeps.run(REDUCE, {"network": "10g"}, axes, jobs=2, out_dir=tmp_path)
    assert simulated(parallel) == simulated(serial)
    assert [each.digest for each in parallel.points] == [each.digest for each in serial.points]
    assert any(each.metric("lost") for each in serial.points)


def test_the_csv_has_every_number_that_is_simulated(tmp_path):
    axes = {"workers": [2, 3], "loss": [0]}
    record = sweeps.run(REDUCE, {}, axes, jobs=1, out_dir=tmp_path)
    rows = [*csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines())]
    assert [row["workers"] for row in rows] == ["2", "3"]
    for row, point in zip(rows, record.points, strict=True):
        for name, number in point.metrics().items():
            if name.startswith("simulated."):
                column = name if name in row else name.removeprefix("simulated.")
                assert float(row[column]) == number
    model = innet.sweep({"network": "1g", "size": 100}, {"encode_time": [1e-6]}, jobs=1)
    (row,) = csv.DictReader(sweeps.as_csv(model).splitlines())
    assert float(row["seconds"]) > float(row["simulated.seconds"]) > 0


def test_a_killed_process_costs_its_point_one_attempt(tmp_path):
    events = []
    record = sweeps.run(
        Task(sweep_points.killed_once, ("a", "b", "folder")),
        {"folder": str(tmp_path)},
        {"a": [1, 2, 3], "b": [1, 2]},
        jobs=2,
        watch=events.append,
    )
    assert record.failures == ()
    assert [each.metric("seconds") for each in record.points] == [1, 2, 2, 4, 3, 6]
    (again,) = (each for each in events if each.what == "again")
    assert again.point == {"a": 2, "b": 1}
    assert "SIGKILL" in again.error


def test_a_point_that_kills_each_process_is_named_and_the_others_are_done():
    record = sweeps.run(
        Task(sweep_points.always_killed, ("a", "b")), {}, {"a": [1, 2, 3]}, jobs=2, attempts=2
    )
    assert [each.metric("seconds") for each in record.points] == [1, 3]
    (failure,) = record.failures
    assert (failure.values, failure.attempts) == ({"a": 2}, 2)
    assert "ended by SIGKILL" in failure.error


def test_processes_end_with_their_pool():
    with ProcessPool(2) as pool:
        pool.submit("x", sweep_points.product, {"wait": 60})
        pool.submit("y", sweep_points.product, {})
        key, answer = next(pool.answers())
        assert (key, answer.record["simulated"]) == ("y", {"seconds": 1})
        pids = [*pool.pids, answer.record["pid"]]
        assert len(set(pids)) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_processes_end_where_the_sweep_is_killed(tmp_path):
    code = (
        "from support import sweep_points\n"
        "from innet.scenarios import sweeps\n"
        "task = sweeps.Task(sweep_points.product, ('a', 'folder', 'wait'))\n"
        f"settings = {{'folder': {str(tmp_path)!r}, 'wait': 250}}\n"
        "sweeps.run(task, settings, {'a': [1, 2]}, jobs=2)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        wait_until(lambda: len([each for each in tmp_path.iterdir() if each.stat().st_size]) == 2)
        pids = [int(each.read_text()) for each in tmp_path.iterdir()]
        process.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def is_running(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(happened):
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_function_that_no_process_can_import_is_refused():
    task = Task(lambda a: {"a": a}, ("a",))
    with pytest.raises(InputError, match="cannot be imported by other processes"):
        sweeps.run(task, {}, {"a": [1, 2]}, jobs=2)
    assert [each.metric("a") for each in sweeps.run(task, {}, {"a": [1, 2]}, jobs=1).points] == [
        1,
        2,
    ]


@pytest.mark.parametrize("returned", [None, 3, {"a": float("nan")}, {"a": {1, 2}}])
def test_what_is_no_record_is_an_error_of_its_point(returned):
    record = sweeps.run(Task(lambda a: returned, ("a",)), {}, {"a": [1]}, jobs=1)
    assert "the function returned" in record.failures[0].error


def test_without_dask_a_scheduler_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingToolError, match=r"pip install 'innet\[dask\]'"):
        sweeps.run(PRODUCT, {}, {"a": [1, 2]}, scheduler="tcp://127.0.0.1:1")


def swept(**axes):
    task = Task(sweep_points.product, ("a", "b"))
    return sweeps.run(task, {}, axes or {"a": [1, 2, 4], "b": [3, 5]}, jobs=1)


def shown(table):
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()


def test_the_table_has_a_row_for_each_point_and_names_what_failed():
    lines = [line.split() for line in shown(sweep_table(swept())).splitlines()]
    assert ["a", "b", "time"] in lines
    assert ["4", "5", "20.0", "s"] in lines
    task = Task(sweep_points.failing, ("a", "b"))
    failed = sweeps.run(task, {}, {"a": [1, 2]}, jobs=1, attempts=1)
    assert failures(failed) == ["a=2 failed: RuntimeError: two is too much (1 attempt)"]


def test_the_picture_has_a_line_for_each_value_of_the_second_axis():
    figure = sweep_figure(swept())
    (axes,) = figure.axes
    assert [[*line.get_xdata()] for line in axes.lines] == [[1, 2, 4]] * 2
    assert [[*line.get_ydata()] for line in axes.lines] == [[3, 6, 12], [5, 10, 20]]
    assert [line.get_label() for line in axes.lines] == ["3", "5"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "simulated time")
    assert axes.get_xscale() == "linear"


def test_no_panel_has_more_than_eight_lines_and_each_line_its_own_style():
    task = Task(sweep_points.everything, ("a", "b", "c", "d"))
    axes = {"a": [1, 2], "b": [1, 2, 3], "c": [0, 1], "d": [5, 6, 7, 8, 9]}
    figure = sweep_figure(sweeps.run(task, {}, axes, jobs=1))
    panels = [each for each in figure.axes if each.get_visible()]
    assert [each.get_title(loc="left") for each in panels] == [f"d={each}" for each in axes["d"]]
    for panel, d in zip(panels, axes["d"], strict=True):
        assert [line.get_label() for line in panel.lines] == [
            f"{b}, {c}" for b in axes["b"] for c in axes["c"]
        ]
        assert [[*line.get_ydata()] for line in panel.lines] == [
            [1000 * a + 100 * b + 10 * c + d for a in (1, 2)] for b in axes["b"] for c in axes["c"]
        ]
        looks = {(each.get_color(), each.get_linestyle()) for each in panel.lines}
        assert len(looks) == len(panel.lines) <= 8
        assert panel.get_ylim() == panels[0].get_ylim()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 6
    for count in (8, 9):
        wide = sweeps.run(task, {}, {"a": [1, 2], "b": [*range(count)]}, jobs=1)
        panels = [each for each in sweep_figure(wide).axes if each.get_visible()]
        assert [len(each.lines) for each in panels] == ([8] if count == 8 else [1] * 9)
        looks = {(line.get_color(), line.get_linestyle()) for line in panels[0].lines}
        assert len(looks) == len(panels[0].lines)


def test_lines_are_means_over_seeds_with_a_band():
    task = Task(sweep_points.everything, ("a", "b", "seed"))
    record = sweeps.run(task, {}, {"seed": [0, 2, 4], "a": [1, 2], "b": [1, 3]}, jobs=1)
    figure = sweep_figure(record)
    (panel,) = figure.axes
    assert [[*line.get_ydata()] for line in panel.lines] == [[1102, 2102], [1302, 2302]]
    assert [line.get_label() for line in panel.lines] == ["1", "3"]
    (low, high) = panel.collections[0].get_datalim(panel.transData).intervaly
    assert (low, high) == (1100, 2104)
    assert figure.get_suptitle() == "Means of 3 seeds; bands: standard deviation"
    assert sweep_table(record).caption is None
    (alone,) = sweep_figure(sweeps.run(task, {}, {"seed": [0, 2, 4]}, jobs=1)).axes
    assert [*alone.lines[0].get_xdata()] == [0, 2, 4]


def test_seeds_that_change_nothing_are_said_to():
    record = innet.sweep(
        {"size": 2000, "network": "10g"}, {"workers": [2, 3], "seed": [1, 2]}, jobs=1
    )
    said = "All 2 seeds give the same numbers: nothing random changes them here."
    assert sweep_figure(record).get_suptitle() == sweep_table(record).caption
    assert sweep_table(record).caption.splitlines()[-1] == said
    assert not sweep_figure(record).axes[0].collections


def test_wide_axes_are_logarithmic_and_zero_stands_beside_them():
    (axes,) = sweep_figure(swept(a=[1, 8, 64])).axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    (axes,) = sweep_figure(swept(a=[0, 1e-4, 1e-2])).axes
    assert [*axes.lines[0].get_xdata()] == [0, 1, 2]
    assert [each.get_text() for each in axes.get_xticklabels()] == ["0", "0.0001", "0.01"]


def test_pictures_without_points_or_with_unknown_metrics_are_refused(tmp_path):
    with pytest.raises(InputError, match="no metric 'speed'"):
        draw(swept(), tmp_path / "x.png", metrics=["speed"])
    failed = sweeps.run(Task(sweep_points.failing, ("a",)), {}, {"a": [2]}, jobs=1, attempts=1)
    with pytest.raises(InputError, match="no point of the sweep"):
        draw(failed, tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
    draw(swept(), tmp_path / "x.png", metrics=["pid", "seconds"])
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_says_how_far_the_sweep_is_and_what_failed(terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with SweepDisplay(console) as display:
        task = Task(sweep_points.failing, ("a", "b"))
        sweeps.run(task, {}, {"a": [1, 2, 3]}, jobs=1, attempts=2, watch=display)
    said = console.file.getvalue()
    assert "a=2: failed, and is tried again: RuntimeError: two is too much" in said
    assert "a=2: failed: RuntimeError" in said
    if terminal:
        assert "3/3" in said
    else:
        assert re.search(r"1 of 3 points: a=1; about \S+ \S+ left", said)
        assert "2 of 3 points: a=3; about " in said


@pytest.mark.repeats("serial and parallel sweeps of all-reduces, with a model")
def test_models_have_means_of_their_iterations_and_files_all_of_them(tmp_path):
    settings = {"model": "resnet20", "network": "1g", "iterations": 2, "workers": 3}
    axes = {"straggler": ["none", "lognormal:sigma=0.5"], "seed": [0, 1]}
    serial = innet.sweep(settings, axes, jobs=1, out_dir=tmp_path / "serial")
    parallel = innet.sweep(settings, axes, jobs=2, out_dir=tmp_path / "parallel")
    assert simulated(parallel) == simulated(serial)
    for point in serial.points:
        one, other = (
            Record.load(tmp_path / folder / f"{point.digest}.json").record["iterations"]
            for folder in ("serial", "parallel")
        )
        assert json.dumps(one) == json.dumps(other)
        assert len(one) == 2
        assert "iterations" not in point.record
        exposed = [seconds for each in one for seconds in each["exposed"]]
        assert point.metric("exposed_seconds") == pytest.approx(sum(exposed) / 6)
        assert point.metric("iteration_seconds") == point.record["seconds"] / 2
    shown = serial.shown_metrics()
    assert shown[:3] == ("iteration_seconds", "exposed_seconds", "goodput_gbps")
    assert len(sweep_figure(serial).axes) == 2
