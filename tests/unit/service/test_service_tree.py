"""A switch service that runs a tree of switches for each job: more than 32 workers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.service import (
    SECONDS,
    all_reduce,
    joined,
    make_workers,
    serving,
    together,
    wait_until_empty,
    where,
)
from support.tiers import tiered

import innet
from innet import programs
from innet.core.errors import ControlError, InputError, StalledError
from innet.protocol import Timing
from innet.service import connections, join
from innet.service.coordinator import JobCoordinator
from innet.service.slot_partition import SlotPartitions, plan_of

WORKERS = 70


@pytest.fixture(scope="module")
def served():
    with serving(program="tree", workers_max=WORKERS) as service:
        yield service


@pytest.fixture
def service(served):
    yield served
    wait_until_empty(served)


def gradients(workers=WORKERS, size=300, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.laplace(size=size).astype(np.float32) for _ in range(workers)]


@pytest.mark.repeats("workers of several racks, and more of them in memory")
@pytest.mark.parametrize("codec", tiered(["dense", "lhc"], ["lhc"], "the same with another codec"))
def test_seventy_workers_are_summed_as_in_memory(service, stack, codec):
    expected, in_memory = innet.all_reduce(
        gradients(), codec=codec, program="tree", racks=3, values_per_packet=32, seed=3
    )
    ends = make_workers(joined(service, stack, WORKERS), codec)
    for total, report in all_reduce(ends, gradients()):
        np.testing.assert_array_equal(total, expected)
        assert (report.rounds, report.program) == (in_memory.rounds, "tree-32")
    (job,) = service.ask(service.statistics, 60)["jobs"]
    assert (job["workers"], job["slots_open"], job["missing"]) == (WORKERS, 0, [])
    assert all(each["packets_in"] > 0 for each in job["members"])


@pytest.mark.carriers("udp", "shm")
def test_two_jobs_have_switches_of_their_own(service, stack):
    ours = make_workers(joined(service, stack, 40, job="ours"))
    theirs = make_workers(joined(service, stack, 3, job="theirs"))
    x, y = gradients(40, 900), gradients(3, 2000, seed=2)
    results = all_reduce(ours + theirs, x + y)
    for given, found in ((x, results[:40]), (y, results[40:])):
        expected, _ = innet.all_reduce(given, values_per_packet=32)
        for total, _ in found:
            np.testing.assert_array_equal(total, expected)


def asks(member):
    """A worker that was left out asks for the next epoch, and does not wait for it."""
    with pytest.raises(StalledError) as caught:
        member.renew(0.5)
    return str(caught.value)


def test_workers_leave_and_come_back_under_the_next_epoch(service, stack):
    members = joined(service, stack, 36)
    ends = make_workers(members)
    all_reduce(ends, gradients(36))
    gone = (0, 17, 35)
    there = [each for each in members if each.worker not in gone]
    plans = together([lambda m=m: m.renew(SECONDS, without=gone) for m in there])
    assert {plan.job.absent for plan in plans} == {frozenset(gone)}
    given = gradients(33, seed=5)
    expected, _ = innet.all_reduce(given, program="tree", values_per_packet=32)
    for total, _ in all_reduce(make_workers(there), given):
        np.testing.assert_array_equal(total, expected)
    asked = together([lambda m=m: asks(m) for m in members if m.worker in gone])
    assert all("waited for workers" in each for each in asked)
    plans = together([lambda m=m: m.renew(SECONDS) for m in members])
    assert {plan.job.absent for plan in plans} == {frozenset()}
    expected, _ = innet.all_reduce(gradients(36), program="tree", values_per_packet=32)
    for total, _ in all_reduce(make_workers(members), gradients(36)):
        np.testing.assert_array_equal(total, expected)


def test_a_late_worker_is_found_in_the_registers_and_left_out(service, stack):
    """Results do not name workers of other racks; the switch knows them."""
    members = joined(service, stack, 35)
    late = 34  # alone in the last rack but one other

    def renewed(member):
        return lambda named: member.renew(SECONDS, without=named)

    patience = Timing(timeout=0.1, max_timeout=0.4, give_up=60.0, partial_after=3.0)
    ends = [
        make_workers([each], timing=patience, renew=renewed(each))[0]
        for each in members
        if each.worker != late
    ]
    given = gradients(34, 100)
    expected, _ = innet.all_reduce(given, program="tree", values_per_packet=32)
    for total, report in all_reduce(ends, given):
        np.testing.assert_array_equal(total, expected)
        assert report.details["without"] == [late]
    assert {end.plan.job.absent for end in ends} == {frozenset({late})}


def test_a_stall_names_who_is_missing_from_the_registers_of_all_switches(service, stack):
    members = joined(service, stack, 34)
    brief = Timing(timeout=0.2, max_timeout=0.4, give_up=2.0)
    ends = make_workers([each for each in members if each.worker not in (3, 33)], timing=brief)

    def stalls(end):
        with pytest.raises(StalledError):
            end.all_reduce(gradients(1, 40)[0])

    together([lambda end=end: stalls(end) for end in ends])
    first = next(end for end in ends if end.worker == 0)
    assert "It waits for workers 3, 33." in first.diagnose(members[0].read_register)
    with pytest.raises(ControlError, match="no register"):
        members[0].read_register("s9", "TreeIngress.pool.bitmap", 0)
    (job,) = service.ask(service.statistics, 60)["jobs"]
    assert (job["slots_open"] > 0, job["missing"]) == (True, [3, 33])


def test_how_many_workers_a_service_takes():
    program = programs.find("tree", 32)
    with pytest.raises(InputError, match="32769 workers; tree-32 takes 1 to 32768"):
        SlotPartitions.divide(program, 1, 32769)
    with pytest.raises(InputError, match="32768 workers in all, which is room for 1 to 32 jobs"):
        SlotPartitions.divide(program, 33, 1024)
    assert SlotPartitions.divide(program, 32, 1024).ports == 32 * 1024 + 3
    with (
        serving(program="tree", workers_max=40) as service,
        pytest.raises(InputError, match="with 41 workers; this switch takes 1 to 40"),
    ):
        join(where(service), job="a", worker=0, workers=41)


def test_a_process_that_may_not_open_so_many_files_is_told(monkeypatch):
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (256, 1000))
    with (
        pytest.raises(
            InputError, match=r"1000 files open, not 1\d\d\d; give a lower --workers-max"
        ),
        serving(program="tree", workers_max=1000, jobs=1),
    ):
        pass


def test_the_plan_of_a_thousand_workers_is_made_once_in_a_process():
    partitions = SlotPartitions.divide(programs.find("tree", 32), 1, 1024)
    job = JobCoordinator("a", 1000, None, None, number=7, epoch=3, absent=frozenset({5}))
    plan = plan_of(json.loads(json.dumps(partitions.describe(job))))
    assert (len(plan.workers), plan.job.number, plan.job.epoch) == (1000, 7, 3)
    assert plan.job.absent == frozenset({5})
    assert plan_of(partitions.describe(job)) is plan
