"""Who leads a network's workers to the next epoch: when it begins, and what switches are told."""

from __future__ import annotations

import pytest

from innet.mininet.coordinator import Leader
from innet.mininet.table_dump import entries
from innet.switch import Switch
from innet.topology import Request, plan_jobs

EPOCH = {  # what a program's switches hold of an epoch: table, which keys are job and epoch
    "slots": ("SlotsIngress.admission.admission", 1, 2),
    "tree": ("TreeIngress.family.admission", 1, 2),
    "hashed": ("HashedIngress.neighbours.workers", 1, 2),
}


def network(program, workers=3, jobs=1):
    """The jobs' plans, and what tells switches something."""
    shared = plan_jobs(program, 32, Request(workers=workers), jobs)
    switches = {each.name: Switch.load(each.program.json(), engine="interpret")
                for each in shared.switches}  # fmt: skip
    for each in shared.switches:
        switches[each.name].commands("\n".join(each.commands))
    return shared.jobs, lambda name, line: switches[name].command(line)


def test_an_epoch_begins_once_all_who_go_on_have_asked():
    (plan,), command = network("slots", 4)
    leader = Leader(plan, command)
    assert leader.awaited == ()
    leader.ask(0, [2])
    assert leader.awaited == (1, 3)
    leader.ask(3, [2])
    leader.ask(2, [0])  # who is left out has no say
    assert leader.awaited == (1,)
    leader.depart(1)
    assert leader.awaited == ()
    assert leader.without == (2,)
    after = leader.begin()
    assert after is leader.plan
    assert (after.job.epoch, after.job.present) == (1, (0, 3))
    assert leader.awaited == leader.without == ()
    leader.ask(0, [3])
    leader.depart(0)
    assert leader.awaited == ()  # nobody has asked who is still there


@pytest.mark.parametrize(("program", "jobs"), [("slots", 2), ("tree", 2), ("hashed", 1)])
def test_switches_let_the_next_epoch_in_and_keep_other_jobs(program, jobs):
    plans, command = network(program, jobs=jobs)
    table, job, epoch = EPOCH[program]

    def admitted(number, switches):
        return sorted(
            (switch, each.key[epoch], each.action)
            for switch in switches
            for each in entries(command(switch, f"table_dump {table}"))
            if int(each.key[job], 0) == number
        )

    names = [each.name for each in plans[-1].switches]
    before = {number: admitted(number, names) for number in range(1, jobs + 1)}
    leader = Leader(plans[-1], command)
    leader.ask(0, [1])
    leader.ask(2, [1])
    leader.begin()
    for number in range(1, jobs):
        assert admitted(number, names) == before[number]
    found = admitted(jobs, names)
    assert {int(each[1], 0) for each in found} == {1}
    assert len(found) < len(before[jobs])


def test_results_no_longer_go_to_who_was_left_out_of_one_job_of_two():
    plans, command = network("slots", jobs=2)
    before = command("s1", "mc_dump")
    leader = Leader(plans[1], command)
    leader.ask(0, [2])
    leader.ask(1, [2])
    leader.begin()
    after = command("s1", "mc_dump")
    changed = set(before.splitlines()) ^ set(after.splitlines())
    assert changed
    assert all("5" in line for line in changed)  # node 5 is that of the second job's worker 2
