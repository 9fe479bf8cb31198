"""A sweep on a Dask cluster of several worker processes, one of which is killed."""

from __future__ import annotations

import json

import pytest
from support import sweep_points

from innet.core.errors import NetworkError
from innet.scenarios import sweep_workers, sweeps
from innet.scenarios.sweeps import Task

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'innet[dask]'")

pytestmark = pytest.mark.xdist_group("dask")  # the processes of xdist would each start a cluster


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=3,
        threads_per_worker=2,
        processes=True,
        dashboard_address=":0",
        host="127.0.0.1",
    ) as running:
        yield running


@pytest.mark.repeats("the sweeps by processes, in those of a cluster")
def test_a_cluster_gives_the_records_of_a_serial_run(cluster, tmp_path):
    task = Task(sweep_points.all_reduce, sweep_points.PARAMETERS)
    axes = {"workers": [2, 3], "loss": [0, 0.01]}
    serial = sweeps.run(task, {"network": "10g"}, axes, jobs=1)
    spread = sweeps.run(
        task, {"network": "10g"}, axes, scheduler=cluster.scheduler_address, out_dir=tmp_path
    )
    for one, other in zip(serial.points, spread.points, strict=True):
        assert one.digest == other.digest
        assert json.dumps(one.record["simulated"]) == json.dumps(other.record["simulated"])
    assert {f"{each.digest}.json" for each in spread.points} <= {
        each.name for each in tmp_path.iterdir()
    }


def test_a_killed_worker_is_survived(cluster, tmp_path):
    record = sweeps.run(
        Task(sweep_points.killed_once, ("a", "b", "folder")),
        {"folder": str(tmp_path)},
        {"a": [1, 2, 3], "b": [1, 2, 3, 4]},
        scheduler=cluster.scheduler_address,
    )
    assert (tmp_path / "2-1-killed").exists()
    assert record.failures == ()
    assert [each.metric("seconds") for each in record.points] == [
        a * b for a in (1, 2, 3) for b in (1, 2, 3, 4)
    ]


def test_a_point_that_fails_on_the_cluster_is_named(cluster):
    record = sweeps.run(
        Task(sweep_points.failing, ("a", "b")),
        {},
        {"a": [1, 2]},
        scheduler=cluster.scheduler_address,
        attempts=2,
    )
    (failure,) = record.failures
    assert (failure.values, failure.attempts) == ({"a": 2}, 2)
    assert failure.error == "RuntimeError: two is too much"


def test_an_address_without_a_scheduler_is_refused(monkeypatch):
    monkeypatch.setattr(sweep_workers, "_CONNECT_SECONDS", 1)
    with pytest.raises(NetworkError, match="dask scheduler"):
        sweep_workers.DaskPool("tcp://127.0.0.1:9")
    with pytest.raises(NetworkError, match="dask scheduler"):
        sweep_workers.DaskPool("no address at all")


def test_a_cluster_without_workers_is_given_up(monkeypatch):
    monkeypatch.setattr(sweep_workers, "_POLL_SECONDS", 0.1)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as empty,
        sweep_workers.DaskPool(empty.scheduler_address, patience=0.3) as pool,
    ):
        pool.submit("a", sweep_points.product, {"a": 1})
        with pytest.raises(NetworkError, match=r"no worker.*dask worker tcp://"):
            next(pool.answers())
