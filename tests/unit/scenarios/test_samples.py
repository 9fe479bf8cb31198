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


def two_layers(folder):
    """A model whose two buckets are equal."""
    path = folder / "model.toml"
    path.write_text(
        'title = "equal layers"\nsource = "here"\nparameters = 20_000\n'
        '[compute]\nseconds = 3e-4\nsource = "here"\n[[blocks]]\nname = "fc{}"\n'
        'numbers = [0, 1]\nparameters = [{ name = "weight", shape = [100, 100], positions = 1 }]\n'
    )
    return str(path)


def increases(samples, values):
    """By how much what ``values`` are rates of has grown from each sample to the next."""
    return np.array(values[1:]) * np.diff(samples.seconds)


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
    settings = {"model": two_layers(tmp_path), "bucket_cap_mb": 0.01, "network": "10g"}
    settings["iterations"] = 2
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


def test_pauses_and_rates_of_a_baseline_with_dcqcn(tmp_path):
    """4 workers push to one server at 40 Gbit/s, as figures of DCQCN's paper draw it."""
    settings = {
        "workers": 4, "size": 400_000, "thin": True, "transport": "dcqcn",
        "baselines": ["parameter-server"],
        "network": "40g:pfc=true,ecn_bytes=5000,ecn_max_bytes=100000,buffer_bytes=400000",
    }  # fmt: skip
    record = innet.simulate(samples=1000, sample_interval=2e-6, **settings)
    run = record.baselines["parameter-server"]
    plain = innet.simulate(**settings).baselines["parameter-server"]
    assert plain.samples is None
    # Who looks changes nothing, but for acknowledgements that are under way at the end.
    ends = {"packets", "bytes", "utilization", "busiest"}
    same = (each.simulated.model_dump(exclude=ends) for each in (run, plain))
    assert next(same) == next(same)
    assert run.iterations[0].end == plain.iterations[0].end
    assert run.simulated.packets == pytest.approx(plain.simulated.packets, abs=4)
    samples = run.samples
    # Pauses: as many as the record counts, of the workers' links alone, and for as long.
    assert set(samples.pauses) == set(samples.paused)
    assert set(samples.pauses) == {f"host {host} to s1:{host + 1}" for host in range(4)}
    assert sum(map(sum, samples.pauses.values())) == run.simulated.pauses > 0
    longest = max(increases(samples, values).sum() for values in samples.paused.values())
    assert longest == pytest.approx(run.simulated.paused, rel=1e-6)
    assert all(0 <= part <= 1.000001 for values in samples.paused.values() for part in values)
    # Rates begin with the link's, and are cut; nothing of a connection is 0.
    pushes, pulls = ([f"{a} to 4" for a in range(4)], [f"4 to {a}" for a in range(4)])
    assert set(samples.rates) == {*pushes, *pulls} == set(samples.throughput) - {"workers"}
    assert not samples.windows
    for name in pushes:
        assert samples.rates[name][1] == 40e9
        assert 0 < min(rate for rate in samples.rates[name] if rate) < 38e9
        assert samples.rates[name][-1] == 0.0
    # What has come of each connection by the last sample is its message.
    for name in pushes:
        came = increases(samples, samples.throughput[name]).sum()
        assert came == pytest.approx(32 * 400_000, rel=1e-9)
    assert not record.samples.rates
    assert not record.samples.pauses
    figure = simulation_figure(record)
    drawn = figure.subfigs[2]
    assert drawn.get_suptitle() == "parameter-server, dcqcn"
    lines = {axes.get_ylabel(): len(axes.lines) for axes in drawn.axes if axes.get_visible()}
    assert lines["sending rates, Gbit/s"] == 8
    assert lines["pauses of links in a sample"] == 4
    path = tmp_path / "samples.csv"
    write_samples(record, path)
    with path.open(newline="") as rows:
        of_run = [line for line in csv.DictReader(rows) if line["baseline"]]
    assert {line["baseline"] for line in of_run} == {"parameter-server"}
    read = [float(line["value"]) for line in of_run if line["quantity"] == "pauses"]
    assert sum(read) == run.simulated.pauses


def test_connections_of_gpus_are_those_that_take_the_network():
    """A ring of two hosts with two GPUs each: half of its messages are local."""
    record = innet.simulate(
        workers=4, gpus_per_host=2, size=400_000, network="100g", baselines=["ring"],
        transport="dcqcn", samples=50,
    )  # fmt: skip
    samples = record.baselines["ring"].samples
    across = {"0 to 3", "1 to 2", "2 to 1", "3 to 0"}
    assert set(samples.rates) == across == set(samples.throughput) - {"workers"}
    assert {max(rates) for rates in samples.rates.values()} == {100e9}


def test_pauses_of_a_job_behind_a_slow_trunk():
    network = {
        **SLOW_TRUNK["network"],
        "pfc": True,
        "buffer_bytes": 200_000,
        "pfc_headroom": 20_000,
    }
    record = innet.simulate(samples=300, **{**SLOW_TRUNK, "network": network, "window": 1024})
    samples = record.samples
    assert sum(map(sum, samples.pauses.values())) == record.simulated.pauses > 0
    longest = max(increases(samples, values).sum() for values in samples.paused.values())
    assert longest == pytest.approx(record.simulated.paused, rel=0.01)


def test_windows_of_many_connections_and_networks_one_after_the_other(tmp_path):
    """A ring's connections are more than have names; each bucket has a network of its own."""
    record = innet.simulate(
        model=two_layers(tmp_path), bucket_cap_mb=0.01, network="10g", workers=10, samples=400,
        sample_interval=1e-6, baselines=["ring"], transport="tcp:initial_window=2",
    )  # fmt: skip
    run = record.baselines["ring"]
    samples = run.samples
    assert set(samples.windows) == {"mean", "smallest", "largest"}
    assert max(samples.windows["largest"]) > 2 == min(filter(None, samples.windows["smallest"]))
    assert set(samples.throughput) == {"workers"}
    assert not samples.rates
    came = increases(samples, samples.throughput["workers"]).sum()
    half = 8 * run.simulated.bytes / 2 / 10  # of what links carry, those from the switch
    assert came == pytest.approx(half, rel=0.02)
    first, last = run.iterations[0].buckets
    assert samples.seconds[0] == pytest.approx(first.encoded[0])
    assert first.summed[0] < samples.seconds[-1] <= last.summed[0]


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
