"""Queues, links and slots over simulated time."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

import innet
from innet.cli.app import app
from innet.core.errors import StalledError
from innet.records import Record
from innet.reports.plots import simulation_figure
from innet.reports.samples_csv import write_samples

SLOW_TRUNK = {
    "workers": 4, "racks": 2, "program": "tree", "size": 20_000, "window": 128,
    "network": {"rate": 10e9, "trunk_rate": 5e9, "host_receive": 0.0, "host_send": 0.0},
    "encode_time": 0.0, "decode_time": 0.0,
}  # fmt: skip


def test_queues_links_and_slots_are_those_of_a_slow_trunk(tmp_path):
    """Workers send twice as fast as the trunk takes, until all slots wait for it."""
    plain = innet.simulate(**SLOW_TRUNK)
    record = innet.simulate(samples=50, **SLOW_TRUNK)
    assert plain.samples is None
    # Who looks changes nothing.
    assert (plain.simulated, plain.iterations) == (record.simulated, record.iterations)
    samples = record.samples
    assert 50 <= len(samples.seconds) <= 101
    assert np.ptp(np.diff(samples.seconds)) < 1e-12
    assert samples.seconds[-1] < record.seconds
    lengths = {len(each) for part in (samples.queue_bytes, samples.utilization, samples.slots)
               for each in part.values()}  # fmt: skip
    assert lengths == {len(samples.seconds)}
    assert max(map(max, samples.slots.values())) == pytest.approx(128, abs=4)
    longest = max(map(max, samples.queue_bytes.values()))
    assert longest <= record.simulated.queue_bytes_max
    assert longest == pytest.approx(record.simulated.queue_bytes_max, rel=0.1)
    middle = slice(len(samples.seconds) // 4, -len(samples.seconds) // 4)
    trunk = np.array(samples.utilization["trunk"][middle])
    assert trunk == pytest.approx(np.ones_like(trunk), abs=0.05)
    assert all(0 <= share < 1.001 for each in samples.utilization.values() for share in each)
    # Over all samples a class of links is as busy as the record says.
    down = np.mean(samples.utilization["switch_to_host"][1:])
    assert down == pytest.approx(record.simulated.utilization["switch_to_host"], rel=0.05)
    path = tmp_path / "record.json"
    record.save(path)
    assert Record.load(path) == record
    above, below = simulation_figure(record).subfigs
    assert [len(axes.lines) for axes in below.axes if axes.get_visible()] == [
        len(samples.queue_bytes), len(samples.utilization), len(samples.slots), 1,
    ]  # fmt: skip
    # What comes to a worker is what the trunk brings, which it carries once for each rack.
    assert not samples.windows
    rates = np.array(samples.throughput["workers"][middle])
    assert rates.mean() == pytest.approx(5e9, rel=0.02)
    assert below.get_supxlabel() == ""
    for axes in (above.axes[0], *below.axes[:4]):  # of the same iteration, over the same time
        assert axes.get_xlabel() == "simulated time in iteration 1, µs"
        assert axes.get_xlim() == above.axes[0].get_xlim()


def test_what_is_nothing_all_the_time_has_no_panel_but_words():
    record = innet.simulate(workers=12, size=20_000, network="10g", samples=50, iterations=2)
    assert not record.samples.queue_bytes
    above, below = simulation_figure(record).subfigs
    links, throughput = below.axes
    assert throughput.get_ylabel() == "throughput, Gbit/s"
    assert links.get_ylabel() == "utilization of links"
    count = len(record.samples.seconds)
    said = f"In {count} samples no packet waited in a queue and no slot waited for a worker."
    assert below.get_supxlabel() == said
    lanes = above.axes[0]
    assert lanes.get_ylabel() == "8 of 12 workers, the fastest and the slowest included"
    names = [text.get_text() for text in lanes.get_legend().get_texts()]
    assert names == ["encode", "network", "decode"]  # there is no model to compute
    assert "iteration 1" in lanes.get_xlabel()
    assert "iteration 1" in links.get_xlabel()


def test_the_first_iteration_is_sampled_whole(tmp_path):
    """Also where its buckets are equal, of which one would be simulated otherwise."""
    path = tmp_path / "model.toml"
    path.write_text(
        'title = "equal layers"\nsource = "here"\nparameters = 20_000\n'
        '[compute]\nseconds = 3e-4\nsource = "here"\n[[blocks]]\nname = "fc{}"\n'
        'numbers = [0, 1]\nparameters = [{ name = "weight", shape = [100, 100], positions = 1 }]\n'
    )
    settings = {"model": str(path), "bucket_cap_mb": 0.01, "iterations": 2, "network": "10g"}
    record = innet.simulate(samples=40, **settings)
    assert record.iterations == innet.simulate(**settings).iterations
    first, last = record.iterations[0].buckets
    samples = record.samples
    assert samples.seconds[0] == pytest.approx(first.encoded[0])
    assert first.summed[0] < samples.seconds[-1] <= last.summed[0]
    for bucket in (first, last):
        busy = [
            share
            for time, share in zip(
                samples.seconds, samples.utilization["host_to_switch"], strict=True
            )
            if bucket.encoded[0] < time <= bucket.summed[0]
        ]
        assert max(busy) > 0.5


def test_windows_and_packets_beside_an_all_reduce(tmp_path):
    """Marks halve the windows; the flow gets what it sends."""
    network = {**SLOW_TRUNK["network"], "ecn_bytes": 10_000}
    settings = {**SLOW_TRUNK, "network": network, "window_control": "aimd"}
    file = tmp_path / "background.toml"
    file.write_text(
        "[[flow]]\nsource = 0\ndestination = 2\nrate = 1e9\nsize = 1000\npackets = 500\n"
    )
    record = innet.simulate(samples=200, sample_interval=1e-6, background=str(file), **settings)
    samples = record.samples
    assert set(np.round(np.diff(samples.seconds) * 1e6).astype(int)) == {1}
    assert set(samples.windows) == {"mean", "smallest", "largest"}
    assert samples.windows["largest"][0] == 128
    assert samples.windows["smallest"][-1] < 64
    kinds = (samples.windows[name] for name in ("smallest", "mean", "largest"))
    for least, mean, most in zip(*kinds, strict=True):
        assert 1 <= least <= mean <= most <= 128
    (title,) = set(samples.throughput) - {"workers"}
    arrived = sum(samples.throughput[title]) * 1e-6  # bits
    (flow,) = record.background
    assert 0.9 * 8000 * flow.received < arrived < 8000 * (flow.received + 0.5)
    path = tmp_path / "samples.csv"
    write_samples(record, path)
    with path.open(newline="") as rows:
        lines = list(csv.DictReader(rows))
    read = [float(line["value"]) for line in lines if line["of"] == title]
    assert read == list(samples.throughput[title])
    assert len(lines) == len(samples.seconds) * len(samples.lines())


def test_no_samples_for_a_file_of_them_are_refused_before_anything_runs(tmp_path):
    path = tmp_path / "samples.csv"
    refused = CliRunner().invoke(app, ["simulate", "--samples", "0", "--csv", str(path)])
    assert "leave one out" in str(refused.exception)
    assert not path.exists()


def test_who_waits_for_ever_is_not_sampled_for_ever():
    with pytest.raises(StalledError):
        innet.simulate(workers=2, size=100, network="10g:loss=0.999", samples=1)


def test_plots_have_samples(tmp_path):
    plot, record = tmp_path / "plot.svg", tmp_path / "record.json"
    arguments = ["simulate", "--size", "2000", "--plot", str(plot), "-o", str(record)]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert 200 <= len(Record.load(record).samples.seconds) <= 401
    assert plot.stat().st_size > 10_000
