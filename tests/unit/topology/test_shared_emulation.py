"""Several jobs on one network in simulated time."""

from __future__ import annotations

import numpy as np
import pytest

from innet.core.errors import InputError
from innet.core.reduce_op import ReduceOp, Segment, ThinSegment
from innet.sim import Network
from innet.topology import Request, SharedEmulation, plan_jobs

CHUNKS, VALUES = 200, 32
FAST = Network(rate=10e9, host_receive=0.0, host_send=0.0)


def rounds_of(size, value):
    return [[Segment(ReduceOp.SUM, np.full(size, value, np.int32))]]


def took(jobs, network, starts=None, **options):
    """Seconds of one round of each job, whose sums are right."""
    shared = plan_jobs("tree", VALUES, Request(workers=4, racks=2, **options), jobs)
    net = SharedEmulation(shared, network)
    done = net.run([rounds_of(CHUNKS * VALUES, job + 1) for job in range(jobs)], starts)
    for job, ends in enumerate(net.workers):
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
    net = SharedEmulation(shared, FAST)
    thin = [[ThinSegment(ReduceOp.SUM, 6400)]]
    done = net.run([3 * thin, thin])
    of_first = [each for each in done if each.job == 0]
    assert [each.begin for each in of_first[1:]] == [each.end for each in of_first[:-1]]
    assert len(of_first) == 3


def test_rounds_of_other_jobs_are_refused():
    net = SharedEmulation(plan_jobs("slots", 64, Request(workers=2), 2), FAST)
    with pytest.raises(InputError, match="rounds of 1 jobs, but there are 2"):
        net.run([rounds_of(64, 1)])
