"""``innet simulate --baseline``: all-reduces between hosts beside a codec."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import innet
from innet.cli.app import app
from innet.core.errors import ConfigError, InputError, UnknownNameError
from innet.records import Record
from innet.reports.plots import simulation_figure, sweep_figure
from innet.reports.tables import sweep_table
from innet.scenarios.baselines import Baseline, names
from innet.scenarios.sweeps import as_csv, sweep
from innet.sim.baselines import simulate_messages
from innet.sim.messages import ELEMENTS, parameter_server, ring_all_reduce
from innet.sim.network import SECOND

SIZE = 20_000
MODEL = """
title = "two layers"
source = "here"
parameters = 20_000
[compute]
seconds = 1e-3
source = "here"
[[blocks]]
name = "fc{}"
numbers = [0, 1]
parameters = [{ name = "weight", shape = [100, 100], positions = 1 }]
"""


def of_baselines(*baselines, **settings):
    settings = {"workers": 4, "size": SIZE, "network": "10g", **settings}
    return innet.simulate(baselines=baselines, **settings)


def test_a_baseline_takes_what_its_messages_take():
    record = of_baselines("ring", "ring-float16", "parameter-server:servers=2", transport="roce")
    for name, graph in (
        ("ring", ring_all_reduce(4, SIZE)),
        ("ring-float16", ring_all_reduce(4, SIZE, dtype="float16")),
        ("parameter-server:servers=2", parameter_server(4, [4, 5], SIZE)),
    ):
        run = simulate_messages(graph, "10g", transport="roce")
        found = record.baselines[name]
        assert found.simulated.seconds == pytest.approx(run.seconds, rel=1e-9)
        assert found.simulated.packets == run.counts.packets
        assert found.simulated.goodput_gbps == pytest.approx(32e-9 * SIZE / run.seconds)
        assert found.transport == "roce"
    ring = record.baselines["ring"]
    assert ring.seconds == ring.simulated.seconds  # float32 is not encoded
    (bucket,) = ring.iterations[0].buckets
    # 2 (n - 1) / n of the gradient and some headers; and what was received, acknowledged.
    assert 6 * SIZE < bucket.bytes_sent < 6.5 * SIZE
    assert bucket.exact is None
    assert record.baselines["ring-float16"].iterations[0].encode[0] == pytest.approx(2e-6)


def test_hosts_of_a_coded_ring_decode_and_encode_at_each_hop():
    """Formats with scales and lossless coders take the codecs' times, unless a time is given."""
    given = ("ring-mxfp8-e4m3", "ring-mxfp8-e4m3:hop_cost=800", "ring:lossless=1.25,hop_cost=1000")
    record = of_baselines(*given, transport="roce", encode_time=3e-10, decode_time=2e-10)
    mx, slow, lossless = (record.baselines[name] for name in given)
    # Three hops of a quarter each, of 300 ps more for an element, to the picosecond.
    longer = (slow.simulated.seconds - mx.simulated.seconds) * SECOND
    assert round(longer) == 3 * SIZE // 4 * 300
    kind = replace(ELEMENTS["float32"], lossless=1.25, hop_cost=1000.0)
    run = simulate_messages(ring_all_reduce(4, SIZE, dtype=kind), "10g", transport="roce")
    assert round(run.seconds * SECOND) == round(lossless.simulated.seconds * SECOND)
    assert lossless.iterations[0].encode[0] == pytest.approx(SIZE * 3e-10)
    # A fourth of float32's bytes and the scales, and a quarter less of the others.
    (bucket,), (other,) = mx.iterations[0].buckets, lossless.iterations[0].buckets
    assert 1.5 * SIZE * 33 / 32 < bucket.bytes_sent < 1.7 * SIZE * 33 / 32
    assert 6 * SIZE / 1.25 < other.bytes_sent < 6.5 * SIZE / 1.25
    assert Baseline.of("ring-bfloat16").elements(500.0).hop_cost == 0


def test_sparse_baselines_send_values_and_indices():
    def sent(name, density=1.0):
        baseline = Baseline.of(name)
        assert baseline.is_encoded
        return baseline.graph(4, SIZE, density).bytes[0]

    assert sent("all-gather") == sent("gtopk-tree") == 200 * 8
    assert sent("all-gather-float16:ratio=0.1") == 2000 * 6
    assert sent("all-gather:ratio=0.1", density=0.001) == 20 * 8
    assert sent("all-gather-int8:ratio=0.1") == 2000 * 5 + 4
    assert sent("all-gather:ratio=0.1,lossless=2") == 2000 * (2 + 4)


def test_iterations_have_buckets_and_overlap(tmp_path):
    path = tmp_path / "model.toml"
    path.write_text(MODEL)
    record = innet.simulate(
        model=str(path), workers=2, iterations=3, bucket_cap_mb=0.01, baselines=("ring",),
        network="10g", straggler="fixed:worker=1,factor=2",
    )  # fmt: skip
    run = record.baselines["ring"]
    assert len(run.iterations) == 3
    for each in run.iterations:
        assert [bucket.elements for bucket in each.buckets] == [10_000] * 2
        assert each.compute == pytest.approx((1e-3, 2e-3))
        first, last = each.buckets
        # Nobody has the sum before the slower worker can send, and no bucket begins before.
        assert min(first.summed) > max(first.encoded)
        assert all(map(float.__le__, first.summed, last.started))
        assert min(each.exposed) >= 0
        assert each.seconds == pytest.approx(2e-3, rel=0.05)
    figure = simulation_figure(record)
    (bars,) = figure.subfigs[1].axes
    assert [text.get_text() for text in bars.get_yticklabels()] == ["dense", "ring"]
    # Computing takes most of it: bars show what comes on top.
    assert bars.get_xlabel() == "simulated time of an iteration beyond the 2.00 ms of computing, µs"
    rest = [1e6 * (run.iteration_seconds - 2e-3) for run in (record, record.baselines["ring"])]
    assert [bar.get_width() for bar in bars.patches] == pytest.approx(rest)
    assert re.fullmatch(r"\d+\.?\d* µs \(iteration 2\.0\d ms\)", bars.texts[0].get_text())
    alone = simulation_figure(of_baselines("ring")).subfigs[1].axes[0]
    assert "computing" not in alone.get_xlabel()


def test_equal_all_reduces_are_simulated_once_where_nothing_is_random(tmp_path):
    assert of_baselines("ring", iterations=3).baselines["ring"].all_reduces == 1
    lossy = {"iterations": 3, "network": "10g:loss=0.01", "seed": 5}
    first, second = (of_baselines("ring", **lossy) for _ in range(2))
    assert first.baselines == second.baselines
    assert first.baselines["ring"].all_reduces == 3
    assert first.baselines["ring"].simulated.retransmissions > 0
    path = tmp_path / "record.json"
    first.save(path)
    assert Record.load(path) == first


def test_workers_are_where_the_job_has_them():
    """A slow trunk between racks slows a ring as it slows the sum."""
    slow = {"topology": "tree", "racks": 2, "network": "10g:trunk_rate=1e9"}
    names = ("ring", "parameter-server")
    record = of_baselines(*names, **slow)
    flat = of_baselines(*names)
    for name in names:
        assert record.baselines[name].seconds > 3 * flat.baselines[name].seconds
    alone = of_baselines("ring", "sharded-parameter-server", "parameter-server", workers=1)
    assert alone.baselines["ring"].seconds == 0
    assert alone.baselines["parameter-server"].simulated.packets > 0


def test_a_sweep_compares_with_them():
    record = sweep(
        {"size": 2000, "network": "10g", "baselines": ("ring", "all-gather:ratio=0.01")},
        {"workers": [2, 3], "codec": ["dense", "topk"]},
        jobs=1,
    )
    assert record.baselines == ("ring", "all-gather:ratio=0.01")
    for point in record.points:
        ring = point.metric("baselines.ring.goodput_gbps")
        assert ring == point.record["baselines"]["ring"]["simulated"]["goodput_gbps"]
        assert point.metric("baselines.all-gather:ratio=0.01.seconds") > 0
        assert 0 <= point.metric("report.vnmse") <= 1
    head = as_csv(record).splitlines()[0].split(",")
    assert {"baselines.ring.goodput_gbps", "baselines.ring.seconds"} < {*head}
    assert len({*head}) == len(head)
    heads = [column.header for column in sweep_table(record).columns]
    assert "ring\ngoodput\nGbit/s" in heads
    labels = [line.get_label() for line in sweep_figure(record, ["goodput_gbps"]).axes[0].lines]
    assert labels == ["dense", "topk", "ring", "all-gather:ratio=0.01"]
    drawn = sweep_figure(record, ["packets", "report.bytes_sent"]).axes[1].lines
    assert [line.get_label() for line in drawn] == ["dense", "topk"]  # baselines have no report


def test_the_command_line_shows_them_in_one_table():
    arguments = ["simulate", "--baseline", "ring", "--baseline", "halving-doubling", "--size", "99"]
    run = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"}, catch_exceptions=False)
    shown = " ".join(run.stdout.split())
    assert "dense (slots-64)" in shown
    assert "halving-doubling" in shown
    assert "over tcp" in shown
    record = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert list(record["baselines"]) == ["ring", "halving-doubling"]


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"baselines": ("rings",)}, UnknownNameError, "Did you mean 'ring'"),
        ({"baselines": ("ring-float64",)}, UnknownNameError, "of the baseline ring .* mxfp4"),
        ({"baselines": ("ring-",)}, UnknownNameError, "of the baseline ring"),
        ({"baselines": ("ring:lossless=0.5",)}, ConfigError, "lossless"),
        ({"baselines": ("ring:lossless=measured",)}, InputError, "as in ring:lossless=1.2"),
        ({"baselines": ("ring", "ring")}, InputError, "'ring' is given twice"),
        ({"baselines": ("ring:ratio=0.1",)}, ConfigError, "ratio"),
        ({"baselines": ("all-gather:ratio=2",)}, ConfigError, "ratio = 2"),
        ({"baselines": ("parameter-server:servers=0",)}, ConfigError, "servers = 0"),
        ({"transport": "udp"}, UnknownNameError, "dctcp"),
        ({"transport": "tcp:payload=0"}, InputError, "payload is 0"),
    ],
)
def test_what_is_none_is_refused_by_name(settings, error, said):
    with pytest.raises(error, match=said):
        innet.simulate(size=10, **settings)
    with pytest.raises(InputError, match=said):
        sweep({"size": 10, **settings}, {"workers": [2]}, jobs=1)


def test_names_have_the_widths_of_elements():
    assert len(names()) == 9 * len(ELEMENTS)
    assert all(Baseline.of(name).name == name for name in names())
