"""Jobs that are admitted and dismissed while time passes, on hosts and slots that others had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from innet.core.errors import ControlError, InputError
from innet.core.reduce_op import ReduceOp, Segment
from innet.sim import Network
from innet.topology import EmulatedNetwork, Request, aggregation_of, make_plan

SIZE = 1000


def cluster(program, loss=0.0, **options):
    plan = make_plan(program, 32, Request(workers=8, job=0, **options))
    return EmulatedNetwork(plan.without_job(), network=Network(rate=10e9, loss=loss)), plan


def placed(plan, hosts, number, base=0, slots=16):
    job = replace(plan.job, number=number, slot_base=base, slots=slots, group=base + 1)
    return aggregation_of(plan.aggregation).placed(plan, hosts, job)


def begin(net, plan, seed):
    """Admit a job and let it begin an all-reduce; returns it, its group and the right sums."""
    admitted = net.admit(plan)
    words = np.random.default_rng(seed).integers(-(2**20), 2**20, (len(plan.hosts), SIZE), np.int32)
    for end, own in zip(admitted.ends.values(), words, strict=True):
        end.start([Segment(ReduceOp.SUM, own)], net.timed.now)
    return admitted, net.timed.launch(admitted.ends), words.sum(0, dtype=np.int32)


def finish(net, job):
    admitted, _, expected = job
    for end in admitted.ends.values():
        np.testing.assert_array_equal(np.concatenate(end.results()), expected)
    net.dismiss(admitted)


def entries_of(net):
    return {
        (name, table.name): len(switch.table_entries(table.name))
        for name, switch in net.switches.items()
        for table in switch.program.tables
    }


@pytest.mark.parametrize(
    ("program", "options"),
    [("slots", {}), ("tree", {"racks": 2}), ("tree", {"topology": "fat-tree", "ports": 4})],
)
def test_sums_are_exact_on_hosts_and_slots_that_others_had(program, options):
    net, plan = cluster(program, **options)
    empty = entries_of(net)
    first, other = (
        begin(net, placed(plan, (0, 1, 5), 1), 1),
        begin(net, placed(plan, (2, 7), 2, 16), 2),
    )
    jobs = {job[1]: job for job in (first, other)}
    done = jobs.pop(net.timed.wait())
    finish(net, done)
    # The next one comes while one of them is under way, and has the other's hosts and slots.
    base = done[0].plan.job.slot_base
    third = begin(net, placed(plan, sorted(done[0].ends), 3, base), 3)
    jobs[third[1]] = third
    while jobs:
        finish(net, jobs.pop(net.timed.wait()))
    assert entries_of(net) == empty
    assert all(not switch.state.replication.groups for switch in net.switches.values())
    assert all(end.counters.retransmissions == 0 for end in third[0].ends.values())


@pytest.mark.parametrize("program", ["slots", "tree"])
def test_late_packets_of_jobs_that_left_are_summed_by_nobody(program):
    """Links lose packets, so copies are under way when a job ends and the next has its place."""
    net, plan = cluster(program, loss=0.02, **({"racks": 2} if program == "tree" else {}))
    rng = np.random.default_rng(7)
    free, left, running, resent = set(range(8)), iter(range(1, 21)), {}, 0
    while True:
        while len(free) >= 3 and (number := next(left, None)) is not None:
            hosts = sorted(rng.choice(sorted(free), 3, replace=False).tolist())
            bases = {job[0].plan.job.slot_base for job in running.values()}
            job = begin(net, placed(plan, hosts, number, min({0, 16} - bases)), number)
            running[job[1]] = job
            free -= {*hosts}
        if not running:
            break
        done = running.pop(net.timed.wait())
        resent += sum(end.counters.retransmissions for end in done[0].ends.values())
        free |= done[0].ends.keys()
        finish(net, done)
    # Every packet was delivered or lost, or is on a link or in a queue.
    counts, links = net.timed.counts(), net.timed._memory.links
    assert resent > 100
    assert counts.lost > 50
    assert counts.packets == links["head"].sum() + counts.lost + net.timed.under_way()


def test_the_root_is_the_lowest_switch_with_all_workers_below():
    plan = make_plan("tree", 32, Request(workers=8, job=0, racks=2))
    assert [each.name for each in placed(plan, (0, 3), 1).switches] == ["s2"]
    assert [each.name for each in placed(plan, (4, 5), 1).switches] == ["s3"]
    assert [each.name for each in placed(plan, (3, 4), 1).switches] == ["s1", "s2", "s3"]


def test_what_a_switch_has_no_room_for_leaves_nothing_behind():
    net, plan = cluster("tree", racks=2)
    empty, job = entries_of(net), placed(plan, (0, 7), 1)
    broken = replace(job.switches[-1], commands=(*job.switches[-1].commands, "table_add x y 1 =>"))
    with pytest.raises(ControlError, match="x"):
        net.admit(replace(job, switches=(*job.switches[:-1], broken)))
    assert entries_of(net) == empty


def test_programs_without_such_jobs_are_refused():
    plan = make_plan("hashed", 32, Request(workers=4, thin=True))
    with pytest.raises(InputError, match="come and go on hashed; choose program slots or tree"):
        placed(plan, (0, 1), 1)
    plan = make_plan("tree", 32, Request(workers=4, topology="leaf-spine:trees=all"))
    with pytest.raises(InputError, match="leave trees out"):
        placed(plan, (0, 1), 1)
