"""Several jobs on one simulated network: ``innet simulate jobs``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import innet
from innet.cli.app import app
from innet.core.errors import ConfigError, InputError
from innet.records import Record, schema
from innet.reports.plots import jobs_figure
from innet.scenarios.jobs import read_jobs, simulate_jobs

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


SLOW = {**QUICK, "rate": 20e6, "delay": 0.0, "switch_latency": 1e-4}
WIRE = 8 * 354  # bits of a packet of 64 values
CHUNKS = 1001  # one of them by which workers agree on a scale


def beside(*jobs, queue=256, chunks=CHUNKS - 1, **network):
    """Jobs of two workers each, which share a trunk as fast as their own links."""
    return simulate_jobs(
        jobs, workers=2, size=64 * chunks, window=64, program="tree", topology="dumbbell",
        network={**SLOW, "queue_packets": queue, **network}, **TIMES,
    )  # fmt: skip


def test_the_prior_job_gets_its_solo_time_and_the_other_what_is_left():
    prior = {"name": "prior", "priority": 5, "start": 0.02}
    record = beside({"name": "other"}, {**prior, "size": 64 * 300})
    other, first = record.jobs
    # At each of the trunk's two ends, its packets wait for one that is being sent, at most. Later
    # ones wait no more for it.
    late = first.times[0] - first.alone_seconds
    assert 0 <= late <= 2 * 2 * WIRE / 20e6
    assert first.retransmissions == record.simulated.dropped == 0
    # What is left: all that both send, one after the other. What waits for so long is sent again.
    both, again = CHUNKS + 301, other.retransmissions
    assert 0.99 * both < other.ends[0] / (WIRE / 20e6) < 1.01 * (both + again)
    # Without a priority they share, so that it takes twice as long.
    shared = beside({"name": "other"}, {**prior, "priority": 0, "size": 64 * 300}).jobs[1]
    assert shared.times[0] == pytest.approx(2 * first.times[0], rel=0.1)
    assert record.network["priorities"] == 6


def test_hosts_that_are_late_by_chance_do_not_lock_each_other_out():
    """Equally fast jobs at a queue that is too short: without, one finds it full again and again.

    Beginning at different times does not help them.
    """

    def goodputs(jitter, **job):
        record = beside({**job}, {**job}, queue=64, chunks=3672, host_jitter=jitter)
        assert record.simulated.dropped > 100
        return sorted(job.goodput_gbps for job in record.jobs)

    slow, fast = goodputs(0.0)
    assert fast > 2 * slow
    slow, fast = goodputs(0.0, start_jitter="uniform:seconds=0.01")
    assert fast > 2 * slow
    slow, fast = goodputs(1e-4, start_jitter="uniform:seconds=0.01")
    assert fast < 1.5 * slow


def test_jobs_may_have_a_pace():
    """Half of the trunk each: nothing is lost where unpaced jobs lose."""
    paced = beside({"pace": 10e6}, {"pace": 10e6}, queue=64)
    assert paced.simulated.dropped == 0
    for job in paced.jobs:
        assert job.times[0] == pytest.approx(CHUNKS * WIRE / 10e6, rel=0.01)
    assert beside({}, {}, queue=64).simulated.dropped > 0


def test_workers_of_a_job_begin_at_times_of_their_own():
    jobs = [{"start_jitter": "uniform:seconds=1e-3"}, {}]
    one, other = (simulate_jobs(jobs, workers=2, size=640, network="10g", seed=s) for s in (1, 1))
    assert one.jobs == other.jobs
    again = simulate_jobs(jobs, workers=2, size=640, network="10g", seed=2)
    late, together = one.jobs
    assert 1e-4 < late.times[0] < 1e-3 + together.times[0]
    assert late.times != again.jobs[0].times
    assert together.times == again.jobs[1].times
    for wrong, said in (("uniform", "seconds"), ("uniform:seconds=-1", "seconds"), ("x", "'x'")):
        with pytest.raises(InputError, match=f"(?s)job 1: .*{said}"):
            simulate_jobs([{"start_jitter": wrong}], size=640)


def test_a_priority_needs_a_header_that_says_it():
    with pytest.raises(InputError, match=r"job 2: priority = 1, .*choose framing udp"):
        simulate_jobs([{}, {"priority": 1}], workers=2, size=640, framing="raw")
    with pytest.raises(ConfigError, match="priority = 8 cannot be used"):
        simulate_jobs([{"priority": 8}], size=640)


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
    arguments = ["simulate", "jobs", str(path), "--size", "2000", "--window", "64"]
    run = CliRunner().invoke(
        app, [*arguments, "-o", str(record)], env={"COLUMNS": "120"}, catch_exceptions=False
    )
    shown = " ".join(run.stdout.split())
    assert "early 4 dense 64" in shown
    assert "late 4 dense 64" in shown
    again = CliRunner().invoke(app, ["report", str(record)], env={"COLUMNS": "120"})
    assert "late 4 dense 64" in " ".join(again.stdout.split())
    refused = CliRunner().invoke(app, [*arguments, "--trace", "x.json"])
    assert "No such option: --trace" in refused.stderr


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
    with pytest.raises(ConfigError, match=r"cannot read .*jobs\.toml"):
        read_jobs(path)
    path.write_text("[[job]")
    with pytest.raises(ConfigError, match=r"jobs\.toml is no valid TOML"):
        read_jobs(path)
    path.write_text("[[jobs]]\nworkers = 2\n")
    with pytest.raises(ConfigError, match=r"jobs\.toml"):
        read_jobs(path)
