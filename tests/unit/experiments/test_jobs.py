"""Several jobs on one simulated network: ``innet simulate --job-file``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import innet
from innet.cli.app import app
from innet.core.errors import ConfigError, InputError
from innet.experiments.jobs import read_jobs, simulate_jobs
from innet.experiments.plots import jobs_figure
from innet.records import Record, schema

QUICK = {"host_receive": 0.0, "host_send": 0.0, "rate": 10e9}
TIMES = {"encode_time": 0.0, "decode_time": 0.0}
TREE = {"program": "tree", "topology": "tree", "racks": 2, **TIMES}


def test_a_job_takes_what_an_all_reduce_takes():
    """A star's links are each job's own, so that nobody waits for another."""
    one = innet.simulate(workers=2, size=20_000, window=64, network="10g", thin=True, iterations=2)
    record = simulate_jobs(
        [{"workers": 2}, {"workers": 3, "start": 1e-3}],
        size=20_000, window=64, network="10g", iterations=2,
    )  # fmt: skip
    first, second = record.jobs
    expected = one.iterations[0].buckets[0].simulated.seconds
    assert first.times == pytest.approx([expected] * 2, rel=1e-9)
    assert first.slowdown == pytest.approx(1)
    assert first.goodput_gbps == pytest.approx(32e-9 * 20_000 / expected)
    assert first.end == pytest.approx(one.seconds, rel=1e-9)
    assert second.begins[0] == pytest.approx(1e-3 + 20_000 * 1e-10)
    assert (first.window, first.sizes, first.codec) == (64, "codec", "dense")


def test_jobs_share_a_trunk_and_wait_for_computing():
    jobs = [{"name": "a", "workers": 4}, {"name": "b", "workers": 4}]
    network = {**QUICK, "trunk_rate": 1e9}
    both = simulate_jobs(jobs, size=64_000, iterations=2, network=network, window=64, **TREE)
    for job in both.jobs:
        assert job.slowdown == pytest.approx(2, rel=0.05)
    calm = [{**jobs[0], "compute": 1e-2}, {**jobs[1], "start": 5e-3, "compute": 1e-2}]
    apart = simulate_jobs(calm, size=64_000, iterations=2, network=network, window=64, **TREE)
    assert [job.slowdown for job in apart.jobs] == pytest.approx([1, 1])
    first = apart.jobs[0]
    assert first.begins[1] - first.ends[0] == pytest.approx(1e-2)
    assert apart.simulated.seconds == max(apart.jobs[1].ends)
    assert 0 < apart.simulated.utilization["trunk"] < both.simulated.utilization["trunk"] <= 1


def test_codecs_and_slots_are_each_jobs_own(tmp_path):
    record = simulate_jobs(
        [{"codec": "lhc", "density": 0.01, "window": 128}, {"codec": "topk"}, {}],
        size=10_000, network="10g:loss=0.01", seed=3, alone=False,
        background={"flow": [{"source": 0, "destination": 5, "rate": 1e9}]},
    )  # fmt: skip
    assert record.jobs[0].window == 128
    dense = record.jobs[2]
    assert all(job.times[0] < dense.times[0] for job in record.jobs[:2])
    assert all(job.alone_seconds is None and job.slowdown is None for job in record.jobs)
    assert record.simulated.retransmissions == sum(job.retransmissions for job in record.jobs) > 0
    assert record.background[0].sent > 0
    again = simulate_jobs(**record.settings)
    assert (again.jobs, again.simulated) == (record.jobs, record.simulated)
    path = tmp_path / "record.json"
    record.save(path)
    assert Record.load(path) == record
    assert (
        json.loads(path.read_text()).keys() == schema()["$defs"]["JobsRecord"]["properties"].keys()
    )
    left, right = jobs_figure(record).axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["job 1", "job 2", "job 3"]
    assert len(right.lines) == 3


def test_the_command_line_takes_a_file_of_jobs(tmp_path):
    path, record = tmp_path / "jobs.toml", tmp_path / "record.json"
    path.write_text('[[job]]\nname = "early"\n[[job]]\nname = "late"\nstart = 1e-4\n')
    arguments = ["simulate", "--job-file", str(path), "--size", "2000", "--window", "64"]
    run = CliRunner().invoke(
        app, [*arguments, "-o", str(record)], env={"COLUMNS": "120"}, catch_exceptions=False
    )
    shown = " ".join(run.stdout.split())
    assert "early 4 dense 64" in shown
    assert "late 4 dense 64" in shown
    again = CliRunner().invoke(app, ["report", str(record)], env={"COLUMNS": "120"})
    assert "late 4 dense 64" in " ".join(again.stdout.split())
    refused = CliRunner().invoke(app, [*arguments, "--sweep", "workers=2"])
    assert "--sweep is not for several jobs" in str(refused.exception)


@pytest.mark.parametrize(
    ("jobs", "settings", "said"),
    [
        ([], {}, "job"),
        ([{"slots": 5}], {}, "slots"),
        ([{"iterations": 0}], {}, "iterations"),
        ([{"name": "a"}, {"name": "a"}], {}, "two jobs are called 'a'"),
        ([{"codec": "none"}], {}, "job 1: .*none"),
        ([{"size": 0}], {}, "needs at least 1 element"),
        ([{"window": 1024}] * 2, {}, "job 2: a window of 1024 beside the 1024 slots"),
        ([{}, {}], {"model": "resnet20"}, "model is for one job"),
        ([{}, {}], {"baselines": ("ring",)}, "baselines is for one job"),
        ([{}, {}], {"program": "slot"}, "Did you mean 'slots'"),
        ([{}], {"background": {"flow": [{"source": 9, "destination": 0, "rate": 1}]}}, "worker 9"),
    ],
)
def test_what_is_none_is_refused_by_name(jobs, settings, said):
    with pytest.raises(InputError, match=said):
        simulate_jobs(jobs, size=settings.pop("size", 64), **settings)


def test_files_are_refused_by_name(tmp_path):
    path = tmp_path / "jobs.toml"
    with pytest.raises(ConfigError, match=r"jobs\.toml cannot be read"):
        read_jobs(path)
    path.write_text("[[job]")
    with pytest.raises(ConfigError, match=r"jobs\.toml is no TOML"):
        read_jobs(path)
    path.write_text("[[jobs]]\nworkers = 2\n")
    with pytest.raises(ConfigError, match=r"jobs\.toml"):
        read_jobs(path)
