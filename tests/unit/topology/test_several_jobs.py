"""Several jobs on one network in simulated time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.tiers import tiered

from innet.core.errors import InputError
from innet.core.reduce_op import ReduceOp, Segment, SizedSegment
from innet.protocol import Timing
from innet.protocol.parameter_server import ParameterServer
from innet.sim import Network
from innet.topology import (
    EmulatedNetwork,
    Request,
    SharedPlan,
    aggregation_of,
    make_plan,
    plan_jobs,
)
from innet.topology.aggregation import next_epoch_plan

CHUNKS, VALUES = 200, 32
FAST = Network(rate=10e9, trunk_rate=10e9, host_receive=0.0, host_send=0.0)


def rounds_of(size, value):
    return [[Segment(ReduceOp.SUM, np.full(size, value, np.int32))]]


def took(jobs, network, starts=None, **options):
    """Seconds of one round of each job, whose sums are right."""
    shared = plan_jobs("tree", VALUES, Request(workers=4, racks=2, **options), jobs)
    net = EmulatedNetwork(shared, network=network)
    done = net.run_rounds([rounds_of(CHUNKS * VALUES, job + 1) for job in range(jobs)], starts)
    for job, ends in enumerate(net.job_workers):
        for end in ends:
            assert (end.results()[0] == 4 * (job + 1)).all()
    assert sorted(each.job for each in done) == list(range(jobs))
    assert [each.end for each in done] == sorted(each.end for each in done)
    return {each.job: each.end - each.begin for each in done}


def test_jobs_share_a_trunk():
    """Two jobs take twice as long where they wait for the trunk, and no longer elsewhere."""
    slow = Network(rate=10e9, trunk_rate=1e9, host_receive=0.0, host_send=0.0)
    alone, both = took(1, slow)[0], took(2, slow)
    assert all(seconds == pytest.approx(2 * alone, rel=0.03) for seconds in both.values())
    alone, both = (
        took(1, FAST)[0],
        took(2, Network(rate=10e9, trunk_rate=40e9, host_receive=0.0, host_send=0.0)),
    )
    assert all(seconds == pytest.approx(alone, rel=0.03) for seconds in both.values())


def test_a_job_that_begins_later_is_alone_then():
    seconds = took(2, FAST, {1: 1.0})
    assert seconds[0] == pytest.approx(took(1, FAST)[0])
    assert seconds[1] == pytest.approx(seconds[0], rel=1e-6)


def test_sums_stay_apart_under_loss():
    seconds = took(3, Network(rate=10e9, loss=0.01), window=32)
    assert len(seconds) == 3


def test_rounds_follow_one_another_and_may_be_thin():
    shared = plan_jobs("slots", 64, Request(workers=2, thin=True), 2)
    net = EmulatedNetwork(shared, network=FAST)
    thin = [[SizedSegment(ReduceOp.SUM, 6400)]]
    done = net.run_rounds([3 * thin, thin])
    of_first = [each for each in done if each.job == 0]
    assert [each.begin for each in of_first[1:]] == [each.end for each in of_first[:-1]]
    assert len(of_first) == 3


def test_a_job_computes_between_its_rounds():
    net = EmulatedNetwork(plan_jobs("slots", 64, Request(workers=2, thin=True), 2), network=FAST)
    thin = [[SizedSegment(ReduceOp.SUM, 6400)]]
    done = net.run_rounds([3 * thin, 3 * thin], delays=[[1e-3] * 2, []])
    for job, pause in ((0, 1e-3), (1, 0.0)):
        of_job = [each for each in done if each.job == job]
        gaps = [b.begin - a.end for a, b in pairwise(of_job)]
        assert gaps == pytest.approx([pause] * 2)


@pytest.mark.parametrize("racks", tiered([1, 2], [2], "the same with more racks"))
def test_jobs_share_hashed_aggregators(racks):
    """Sums are right though jobs take each other's aggregators, and each has a server."""
    shared = plan_jobs("hashed", VALUES, Request(workers=2, racks=racks), 4)
    servers = [host for host in shared.hosts if host.role == "server"]
    assert len({host.name for host in servers}) == len({host.endpoint.ip for host in servers}) == 4
    assert [plan.job.slots for plan in shared.jobs] == [512] * 4, "windows are no parts of a pool"
    network = Network(rate=10e9, loss=1e-3, delay=2e-4)
    net = EmulatedNetwork(shared, network=network, timing=Timing(timeout=5e-3), seed=1)
    net.run_rounds([rounds_of(200 * VALUES, job + 1) for job in range(4)])
    for job, ends in enumerate(net.job_workers):
        for end in ends:
            assert (end.results()[0] == 2 * (job + 1)).all()
    assert all(isinstance(server, ParameterServer) for server in net.servers)
    assert sum(server.collisions for server in net.servers) > 20


def test_the_second_job_of_hashed_begins_a_new_epoch():
    """The switch is told the port of its own server again."""
    plan = plan_jobs("hashed", VALUES, Request(workers=2), 2).jobs[1]
    later = next_epoch_plan(plan, frozenset({1}))
    (command,) = (each for each in plan.switches[0].commands if "set_position" in each)
    aggregation = aggregation_of("hashed")
    _, commands = aggregation.next_epoch(plan, frozenset({1}), lambda _switch, _table: ())
    (again,) = (each for each in commands["s1"] if "set_position" in each)
    assert command.split()[-2] == again.split()[-2] == "101"
    assert later.job.absent == {1}


def test_jobs_whose_trees_differ_are_refused():
    request = Request(workers=2, topology="fat-tree")
    first = make_plan("tree", VALUES, replace(request, window=64))
    larger = replace(request, workers=3, window=64, job=2, existing_jobs=(first,))
    with pytest.raises(
        InputError, match=r"port \d+ of \w+ leads elsewhere .* same number of workers"
    ):
        SharedPlan((first, make_plan("tree", VALUES, larger)))


def test_rounds_of_other_jobs_are_refused():
    net = EmulatedNetwork(plan_jobs("slots", 64, Request(workers=2), 2), network=FAST)
    with pytest.raises(InputError, match="rounds of 1 jobs, but there are 2"):
        net.run_rounds([rounds_of(64, 1)])
