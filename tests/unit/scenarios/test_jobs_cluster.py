"""Jobs that come and go on a cluster: who gets which hosts and slots when; how long it takes."""

from __future__ import annotations

import csv
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.errors import ConfigError, InputError
from innet.records import Record
from innet.reports.plots import jobs_figure
from innet.reports.registry import table_of
from innet.scenarios.arrivals import ArrivalTable, drawn
from innet.scenarios.cluster import Cluster, Demand, Share
from innet.scenarios.jobs import read_jobs, simulate_jobs

QUICK = {"size": 6400, "network": "10g", "encode_time": 0.0, "decode_time": 0.0}
RACKS = ["a"] * 4 + ["b"] * 4 + ["c"] * 4


def cluster(placement="packed", queueing="fifo", slots=1024, seed=0):
    return Cluster(RACKS, slots, placement, queueing, seed)


def begun(jobs, *demands):
    for number, demand in enumerate(demands):
        jobs.arrive(number, Demand(*demand))
    return dict(jobs.begin())


def test_packed_jobs_fill_racks_and_spread_ones_do_not():
    shares = begun(cluster(), (3, 64), (2, 64), (1, 64), (5, 64))
    assert [share.hosts for share in shares.values()] == [
        (0, 1, 2), (4, 5), (3,), (6, 8, 9, 10, 11),
    ]  # fmt: skip
    shares = begun(cluster("spread"), (3, 64), (4, 64))
    assert [share.hosts for share in shares.values()] == [(0, 4, 8), (1, 2, 5, 9)]
    first, again = (begun(cluster("random", seed=seed), (6, 64)) for seed in (3, 3))
    assert first == again != begun(cluster("random", seed=4), (6, 64))
    assert len(set(first[0].hosts)) == 6


def test_slots_are_found_where_they_are_free_and_given_back():
    jobs = cluster(slots=256)
    shares = begun(jobs, (1, 64), (1, 128), (1, 64), (1, 64))
    assert [share.slot_base for share in shares.values()] == [0, 128, 64]
    assert (jobs.hosts_busy, jobs.slots_used, jobs.waiting) == (3, 256, 1)
    jobs.end(1)
    assert jobs.begin() == [(3, Share((1,), 128))]


def test_backfill_lets_jobs_pass_that_fit_and_fifo_does_not():
    demands = [(8, 64), (8, 64), (2, 64)]
    assert begun(cluster(), *demands).keys() == {0}
    assert begun(cluster(queueing="backfill"), *demands).keys() == {0, 2}


def test_jobs_that_need_all_hosts_run_one_after_the_other():
    """The makespan is the sum of what they take alone, decoding and computing included."""
    jobs = [{"workers": 4, "iterations": 2, "compute": 1e-4}, {"workers": 4, "start": 1e-6}]
    settings = {**QUICK, "decode_time": 1e-9}
    record = simulate_jobs(jobs, hosts=4, **settings)
    first, second = record.jobs
    alone = [simulate_jobs([{**job, "start": 0.0}], hosts=4, **settings).makespan for job in jobs]
    assert record.makespan == pytest.approx(sum(alone), rel=1e-9)
    assert second.begin == pytest.approx(first.end, abs=2e-12)
    assert second.waited == pytest.approx(first.end - 1e-6)
    assert second.stretch == pytest.approx((sum(alone) - 1e-6) / alone[1])
    assert (first.slowdown, second.slowdown) == pytest.approx((1, 1))
    assert first.hosts == second.hosts == (0, 1, 2, 3)
    assert record.cluster.waiting == (0, 1, 0, 0)
    assert record.cluster.hosts_busy[-1] == record.cluster.slots_used[-1] == 0
    mean = sum(alone) / record.cluster.seconds[-1]
    assert record.cluster.mean(record.cluster.hosts_busy) == pytest.approx(4 * mean)


def test_of_jobs_that_want_all_slots_one_runs_at_a_time():
    jobs = [{"workers": 2}, {"workers": 2}]
    shared, first_come = (
        simulate_jobs(jobs, hosts=4, memory=memory, **QUICK) for memory in ("shares", "first-come")
    )
    one, two = first_come.jobs
    assert (one.window, two.window) == (1024, 1024)
    assert two.begin == one.end
    assert first_come.makespan == pytest.approx(one.completion + two.completion - two.waited)
    assert [job.waited for job in shared.jobs] == [0, 0]
    assert [job.window for job in shared.jobs] == [512, 512]
    # A job that states its window waits for that much, whatever others would get.
    stated = simulate_jobs([{**job, "window": 512} for job in jobs], hosts=4, memory="first-come",
                           **QUICK)  # fmt: skip
    assert [job.waited for job in stated.jobs] == [0, 0]


def test_the_slots_of_a_round_trip_are_enough():
    jobs = [{"workers": 2}]
    settings = {**QUICK, "size": 64_000, "hosts": 4}
    few = simulate_jobs(jobs, memory="bandwidth", **settings).jobs[0]
    many = simulate_jobs(jobs, memory="first-come", **settings).jobs[0]
    fewer = simulate_jobs([{**jobs[0], "window": few.window // 4}], **settings).jobs[0]
    assert few.window < 64
    assert few.goodput_gbps > 0.97 * many.goodput_gbps > 1.3 * fewer.goodput_gbps


def test_racks_sum_for_a_job_that_fits_into_one():
    """A packed job does not use the trunks; spread over the racks it does, as does its neighbor."""
    tree = {**QUICK, "program": "tree", "racks": 2, "hosts": 4, "network": "10g:trunk_rate=5e9"}
    jobs = [{"workers": 2}, {"workers": 2}]
    packed, spread = (
        simulate_jobs(jobs, placement=placement, **tree) for placement in ("packed", "spread")
    )
    assert [job.hosts for job in packed.jobs] == [(0, 1), (2, 3)]
    assert [job.hosts for job in spread.jobs] == [(0, 2), (1, 3)]
    assert packed.simulated.utilization["trunk"] == 0 < spread.simulated.utilization["trunk"]
    assert [job.slowdown for job in packed.jobs] == pytest.approx([1, 1])
    # Two jobs share a trunk that is half as fast as a host's link.
    assert [job.slowdown for job in spread.jobs] == pytest.approx([2, 2], rel=0.1)


def test_arrivals_are_a_poisson_process_of_kinds_by_weight():
    kinds = [{"name": "a", "weight": 3}, {"workers": 2}]
    jobs = drawn(kinds, ArrivalTable(rate=50.0, jobs=4000), 1)
    gaps = np.diff([job["start"] for job in jobs], prepend=0.0)
    # Mean and standard deviation of an exponential distribution are equal; five standard errors.
    assert gaps.mean() == pytest.approx(0.02, rel=5 / 4000**0.5)
    assert gaps.std() == pytest.approx(0.02, rel=5 * (2 / 4000) ** 0.5)
    large = sum("workers" not in job for job in jobs)
    assert large == pytest.approx(3000, abs=5 * (4000 * 0.75 * 0.25) ** 0.5)
    assert all("weight" not in job for job in jobs)
    assert jobs == drawn(kinds, ArrivalTable(rate=50.0, jobs=4000), 1)
    assert jobs != drawn(kinds, ArrivalTable(rate=50.0, jobs=4000), 2)


def test_a_record_has_what_repeats_it_and_is_shown(tmp_path):
    record = simulate_jobs(
        [{"name": "x", "workers": 4}, {"workers": 2, "iterations": 2}],
        arrivals={"rate": 1e5, "jobs": 30}, hosts=8, placement="random", queueing="backfill",
        network="10g:loss=0.001", size=640, seed=5, alone=False,
        background={"flow": [{"source": 0, "destination": 7, "rate": 1e9}]},
    )  # fmt: skip
    again = simulate_jobs(**record.settings)
    assert (again.jobs, again.simulated, again.cluster) == (
        record.jobs, record.simulated, record.cluster,
    )  # fmt: skip
    record.save(tmp_path / "record.json")
    assert Record.load(tmp_path / "record.json") == record
    assert record.background[0].sent > 0
    assert all(job.waited >= 0 and len(job.hosts) == job.workers for job in record.jobs)
    # No host has two workers at a time.
    for host in range(8):
        spans = sorted((job.begin, job.end) for job in record.jobs if host in job.hosts)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    lanes, use, _ = jobs_figure(record).axes
    assert len(lanes.patches) == 60
    assert len(use.lines) == 2
    assert table_of(record).renderables


def test_the_command_line_takes_arrivals_and_csv(tmp_path):
    jobs, out = tmp_path / "jobs.csv", tmp_path / "out.csv"
    jobs.write_text("name,start,workers,codec\nearly,0,2,\nlate,1e-6,2,topk\n")
    arguments = ["simulate", "jobs", str(jobs), "--hosts", "2", "--size", "2000", "--csv", str(out)]
    run = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"}, catch_exceptions=False)
    assert "2 hosts, 1,024 slots" in run.stdout
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["hosts"]) for row in rows] == [("early", "0 1"), ("late", "0 1")]
    assert float(rows[1]["begin"]) == pytest.approx(float(rows[0]["end"]), abs=2e-12)
    toml = tmp_path / "jobs.toml"
    toml.write_text("[arrivals]\nrate = 1e5\njobs = 3\n[[job]]\nworkers = 2\n")
    run = CliRunner().invoke(app, ["simulate", "jobs", str(toml), *arguments[3:]],
                             env={"COLUMNS": "120"}, catch_exceptions=False)  # fmt: skip
    assert "Makespan" in run.stdout


@pytest.mark.parametrize(
    ("jobs", "settings", "said"),
    [
        ([{"workers": 5}], {"hosts": 4}, "job 1: 5 workers, but the cluster has 4 hosts"),
        ([{"workers": 2, "window": 2048}], {"hosts": 4}, "job 1: a window of 2048"),
        ([{}], {"placement": "spread"}, "placement: for jobs that share the hosts of a cluster"),
        ([{}], {"arrivals": {"rate": 1.0, "jobs": 2}}, "arrivals: for jobs that share"),
        ([{"start": 1.0}], {"hosts": 4, "arrivals": {"rate": 1.0, "jobs": 2}}, "start is drawn"),
        ([{"weight": 2}], {"hosts": 4}, r"add \[arrivals\]"),
        ([{"weight": 0}], {"hosts": 4, "arrivals": {"rate": 1.0, "jobs": 2}}, "weight"),
        ([{}], {"hosts": 4, "arrivals": {"rate": 0, "jobs": 2}}, "rate"),
        ([{}], {"hosts": 4, "placement": "best"}, "placement"),
        ([{}], {"hosts": 4, "program": "hashed"}, "come and go on hashed"),
        ([{}], {"hosts": 40}, "40 workers"),
    ],
)  # fmt: skip
def test_what_a_cluster_does_not_have_is_refused_by_name(jobs, settings, said):
    with pytest.raises(InputError, match=said):
        simulate_jobs(jobs, size=64, **settings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no job"),
        ("workers\n2,3\n", "line 2 has more values"),
        ("workers\nx\n", "workers"),
        ("slots\n2\n", "slots"),
    ],
)
def test_csv_is_refused_by_name(tmp_path, text, said):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_jobs(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_jobs(tmp_path / "none.csv")
