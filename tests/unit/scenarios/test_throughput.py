"""The throughput sweep: what it measures, that it goes on where it stopped, and its pictures."""

from __future__ import annotations

import functools
import io
import itertools
import json
import sys
from datetime import UTC, datetime

import pytest
from rich.console import Console

from innet.cli import app
from innet.core.errors import InnetError, InputError
from innet.core.settings import ThroughputSettings
from innet.records.throughput import Point, ThroughputRecord
from innet.reports.plots import throughput_figure
from innet.reports.registry import draw
from innet.reports.tables import throughput_table
from innet.scenarios import throughput

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SMALL = ThroughputSettings(workers=(1, 2), windows=(4, 16), size=2000, rounds=2)


@functools.cache
def measured():
    """A point that was measured, for tests that are about what comes after."""
    point = Point(switch="memory", workers=2, codec="dense", values_per_packet=64, window=4)
    return throughput.in_memory(point, SMALL)


def quick(point, settings):
    return [each.model_copy(update={"workers": point.workers}) for each in measured()]


def sweep(path, settings=SMALL, measures=None, **options):
    measures = measures or {"memory": quick}
    return throughput.run(settings, path, created=NOW, measures=measures, **options)


def test_every_combination_is_measured_once(tmp_path):
    record = sweep(tmp_path / "t.json", measures={"memory": throughput.in_memory})
    asked = [(each.point.workers, each.point.window) for each in record.measurements]
    assert asked == [(1, 4), (1, 16), (2, 4), (2, 16)]
    for each in record.measurements:
        assert len(each.reports) == 2
        assert each.exact
        assert each.retransmissions == 0
        assert each.goodput > 0
        first = each.reports[0]
        assert first.workers == each.point.workers
        assert first.elements == 2000
        assert each.packet_rate * min(r.seconds.network for r in each.reports) > 0


def test_more_workers_than_a_switch_takes_are_measured_on_trees(tmp_path):
    assert ThroughputSettings(workers=(2, 32)).topologies == ("star",)
    settings = ThroughputSettings(workers=(2, 40), windows=(16,), size=2000, rounds=1)
    assert settings.topologies == ("tree",)
    record = sweep(tmp_path / "t.json", settings, {"memory": throughput.in_memory})
    assert [each.point.topology for each in record.measurements] == ["tree", "tree"]
    assert all(each.exact for each in record.measurements)


def test_trees_are_measured_beside_stars(tmp_path):
    settings = SMALL.model_copy(
        update={"workers": (2,), "windows": (16,), "topologies": ("star", "tree"), "rounds": 1}
    )
    record = sweep(tmp_path / "t.json", settings, {"memory": throughput.in_memory})
    star, tree = record.measurements
    assert (star.point.topology, tree.point.topology) == ("star", "tree")
    assert star.exact
    assert tree.exact
    packets = [each.reports[0].switch_packets for each in (star, tree)]
    assert packets[1] == 3 * packets[0]  # up to a leaf, up to the root, down to a leaf
    assert [str(cell) for cell in throughput_table(record).columns[2].cells] == ["star", "tree"]
    document = json.loads((tmp_path / "t.json").read_text())
    for each in document["measurements"]:
        each["point"].pop("topology", None)  # as records were before
    (tmp_path / "old.json").write_text(json.dumps(document))
    assert ThroughputRecord.load(tmp_path / "old.json").measurements[1].point.topology == "star"
    draw(record, tmp_path / "t.png")


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "t.json"
    seen = []

    def failing(point, settings):
        seen.append(point)
        if len(seen) == 3:
            raise InputError("enough")
        return quick(point, settings)

    with pytest.raises(InputError, match="enough"):
        sweep(path, measures={"memory": failing})
    assert len(ThroughputRecord.load(path).measurements) == 2
    told = []
    sweep(path, watch=lambda number, of, _: told.append((number, of)))
    assert told == [(3, 4), (4, 4)]
    assert len(ThroughputRecord.load(path).measurements) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"windows": (4, 2048)}, "slots-64 has 1024 slots"),
        ({"windows": (4, 3)}, "power of two"),
        ({"codecs": ("dense", "lhcc")}, "Did you mean 'lhc'"),
        (
            {"topologies": ("star", "tree"), "values_per_packet": (256,)},
            "tree is compiled for 32, 64 values",
        ),
    ],
)
def test_a_point_that_cannot_be_is_told_before_any_is_measured(tmp_path, change, words):
    measured_points = []

    def measure(point, settings):
        measured_points.append(point)
        return quick(point, settings)

    with pytest.raises(InnetError, match=words):
        sweep(tmp_path / "t.json", SMALL.model_copy(update=change), {"memory": measure})
    assert not measured_points


def test_what_cannot_be_compared_is_not_joined(tmp_path):
    path = tmp_path / "t.json"
    sweep(path)
    with pytest.raises(InputError, match=r"another settings \(size\)"):
        sweep(path, SMALL.model_copy(update={"size": 3000}))
    document = json.loads(path.read_text())
    document["machine"]["cpu"] = "Z80"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"another machine \(cpu\)"):
        sweep(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "innet.demo"}', "\x00"])
def test_files_that_are_no_records_are_refused(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"t\.json"):
        ThroughputRecord.load(path)


def test_ratios_are_of_equal_points(tmp_path):
    def of(switch, factor):
        def measure(point, settings):
            reports = quick(point, settings)
            return [
                report.model_copy(
                    update={
                        "seconds": report.seconds.model_copy(update={"total": factor}),
                        "elements": throughput.all_reduce_settings(point, settings).size,
                    }
                )
                for report in reports
            ]

        return measure

    settings = SMALL.model_copy(update={"switches": ("builtin", "bmv2"), "size_bmv2": 1000})
    measures = {"builtin": of("builtin", 0.5), "bmv2": of("bmv2", 1.0)}
    record = sweep(tmp_path / "t.json", settings, measures)
    point = Point(switch="builtin", workers=2, codec="dense", values_per_packet=64, window=4)
    assert record.ratio(record.at(point)) == pytest.approx(4)  # twice as much in half the time
    assert record.ratio(record.at(point), to="memory") is None
    assert throughput_table(record).row_count == 8


def test_the_table_fits_a_terminal(tmp_path):
    switches, topologies = ("memory", "builtin", "bmv2"), ("star", "tree")
    settings = SMALL.model_copy(
        update={"workers": (16,), "switches": switches, "topologies": topologies}
    )
    record = sweep(tmp_path / "t.json", settings, dict.fromkeys(switches, quick))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(throughput_table(record))
    said = console.export_text()
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    for word in ("switch", "workers", "topology", "window", "builtin", "sent", "again"):
        assert word in said


def test_the_command_writes_record_and_plot(tmp_path, monkeypatch, capsys):
    words = ["--workers", "2", "--window", "4", "--size", "1000", "--rounds", "1"]
    monkeypatch.setattr(
        sys, "argv", ["innet", "experiment", "throughput", *words, "--out", str(tmp_path)]
    )
    assert app.run() == 0
    assert "memory" in capsys.readouterr().out
    record = ThroughputRecord.load(tmp_path / "throughput.json")
    assert len(record.measurements) == 1
    assert (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")
    again = ["report", str(tmp_path / "throughput.json"), "--plot", str(tmp_path / "again.png")]
    monkeypatch.setattr(sys, "argv", ["innet", *again])
    assert app.run() == 0
    assert "memory" in capsys.readouterr().out
    assert (tmp_path / "again.png").exists()


@pytest.mark.parametrize("switches", [("memory",), ("memory", "builtin")])
def test_no_two_lines_of_a_picture_look_alike(tmp_path, switches):
    settings = SMALL.model_copy(
        update={"workers": (1, 2, 3), "codecs": ("dense", "lhc", "topk"), "switches": switches}
    )
    record = sweep(tmp_path / "t.json", settings, dict.fromkeys(switches, quick))
    left, _ = throughput_figure(record).axes
    # Of dashes that have no name, matplotlib tells the pattern nowhere else.
    looks = {
        (line.get_color(), str(line._unscaled_dash_pattern), line.get_marker())
        for line in left.lines
    }
    assert len(looks) == len(left.lines) == 6 * len(switches)
    assert any("window 16" in line.get_label() for line in left.lines)


@pytest.mark.parametrize("seconds", [1e-4, 30.0])
def test_axes_say_how_much_wherever_the_values_lie(tmp_path, seconds):
    def measure(point, settings):
        return [
            each.model_copy(
                update={
                    "seconds": each.seconds.model_copy(update={"total": seconds * point.workers})
                }
            )
            for each in quick(point, settings)
        ]

    record = sweep(tmp_path / "t.json", measures={"memory": measure})
    for panel in throughput_figure(record).axes:
        low, high = panel.get_ylim()
        values = [value for line in panel.lines for value in line.get_ydata()]
        assert low <= min(values) <= max(values) <= high
        labels = [label.get_text() for label in panel.get_yticklabels()]
        shown = [at for at, label in zip(panel.get_yticks(), labels, strict=True) if label]
        assert sum(low <= at <= high for at in shown) >= 2


@pytest.mark.repeats("the same with other numbers", but=["workers1", "workers2"])
@pytest.mark.parametrize(
    "workers", [tuple(range(1, 33)), (3, 5), (1, 2, 4, 8, 16, 32), (20, 21, 22, 23, 24)]
)
def test_numbers_below_an_axis_do_not_overlap(tmp_path, workers):
    settings = SMALL.model_copy(update={"workers": workers, "windows": (16,)})
    record = sweep(tmp_path / "t.json", settings, {"memory": quick})
    for panel in throughput_figure(record).axes:
        assert panel.get_xticks().tolist() == list(workers)
        labels = [label for label in panel.get_xticklabels() if label.get_text()]
        assert len(labels) >= min(len(workers), 5)
        panel.figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in labels]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_nothing_is_no_picture(tmp_path):
    record = sweep(tmp_path / "t.json").model_copy(update={"measurements": ()})
    with pytest.raises(InputError, match="no measurement"):
        draw(record, tmp_path / "t.png")
