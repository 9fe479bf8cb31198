"""A job on a network: when its next epoch begins, and what switches are told."""

from __future__ import annotations

import pytest

from innet.mininet.control import NetworkSwitches, entries
from innet.service.coordinator import JobCoordinator
from innet.switch import Switch
from innet.topology import Request, plan_jobs

EPOCH = {  # what a program's switches hold of an epoch: table, which keys are job and epoch
    "slots": ("SlotsIngress.admission.admission", 1, 2),
    "tree": ("TreeIngress.admission.admission", 1, 2),
    "hashed": ("HashedIngress.admission.worker_admission", 1, 2),
}


def network(program, workers=3, jobs=1):
    """The jobs' plans, and what tells switches something."""
    shared = plan_jobs(program, 32, Request(workers=workers), jobs)
    switches = {each.name: Switch.load(each.program.json(), engine="interpret")
                for each in shared.switches}  # fmt: skip
    for each in shared.switches:
        switches[each.name].commands("\n".join(each.commands))
    return shared.jobs, lambda name, line: switches[name].command(line)


def coordinated(plan, command):
    """The job's coordinator, its switches, and what its workers are told."""
    told = []
    switches = NetworkSwitches(plan, command, lambda after: told.append(after.job.epoch))
    job = JobCoordinator(
        "a", len(plan.workers), switches, lambda worker, message: told.append((worker, message)),
        number=plan.job.number, epoch=plan.job.epoch,
    )  # fmt: skip
    job.start()
    return job, switches, told


def test_an_epoch_begins_once_all_who_go_on_have_requested_it():
    (plan,), command = network("slots", 4)
    job, switches, told = coordinated(plan, command)
    assert not job.is_renewing
    job.request_epoch(0, 0, [2])
    assert job.awaited == [1, 3]
    job.request_epoch(3, 0, [2])
    job.request_epoch(2, 0, [0])  # who is left out has no say
    assert job.awaited == [1]
    assert switches.plan is plan
    job.expel([1])
    assert (switches.plan.job.epoch, switches.plan.job.present) == (1, (0, 3))
    assert (job.epoch, job.present) == (1, (0, 3))
    answer = {"plan": {"epoch": 1, "absent": [1, 2]}, "newcomers": []}
    begun = told.index(1)
    assert told[begun + 1 : begun + 3] == [(0, answer), (3, answer)]
    job.expel([2])
    job.request_epoch(0, 1)
    job.expel([0])
    assert not job.is_renewing  # nobody has requested it who is still there
    assert job.present == (3,)


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
    job_of_last, _, _ = coordinated(plans[-1], command)
    job_of_last.request_epoch(0, 0, [1])
    job_of_last.request_epoch(2, 0, [1])
    for number in range(1, jobs):
        assert admitted(number, names) == before[number]
    found = admitted(jobs, names)
    assert {int(each[1], 0) for each in found} == {1}
    assert len(found) < len(before[jobs])


def test_results_no_longer_go_to_who_was_left_out_of_one_job_of_two():
    plans, command = network("slots", jobs=2)
    before = command("s1", "mc_dump")
    job, _, _ = coordinated(plans[1], command)
    job.request_epoch(0, 0, [2])
    job.request_epoch(1, 0, [2])
    after = command("s1", "mc_dump")
    changed = set(before.splitlines()) ^ set(after.splitlines())
    assert changed
    assert all("5" in line for line in changed)  # node 5 is that of the second job's worker 2
