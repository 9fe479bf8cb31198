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


def network(program, workers=3, jobs=1, **options):
    """The jobs' plans, and what tells switches something."""
    shared = plan_jobs(program, 32, Request(workers=workers, **options), jobs)
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


def write_slot(command, plan, switch, index, **cells):
    """What a switch of a tree holds of the plan's job at an index of its pool."""
    job = plan.job
    for name, value in {"owner": job.number << 16 | job.epoch, **cells}.items():
        command(switch, f"register_write TreeIngress.pool.{name} {index} {value}")


def close_without(command, plan, index=2):
    """A partial result of a tree of three racks with two workers each. Worker 1 is not in, nor the
    third rack, whose leaf has not heard of it.
    """
    write_slot(command, plan, "s1", index, sequence=5, state=1, bitmap=0b011, count=3)
    write_slot(command, plan, "s2", index, sequence=5, state=0b111, bitmap=0b01, count=3)
    write_slot(command, plan, "s3", index, sequence=5, state=0b111, bitmap=0b11, count=3)


def test_the_late_workers_of_a_tree_are_read_from_its_switches():
    (plan,), command = network("tree", 6, racks=3, allow_partial=True)
    job, switches, told = coordinated(plan, command)
    assert switches.late_workers(job) == set()
    # Complete, or not closed: nobody is late.
    write_slot(command, plan, "s1", 0, sequence=4, state=1, bitmap=0b111, count=6)
    write_slot(command, plan, "s1", 1, sequence=4, state=0, bitmap=0b011, count=4)
    assert switches.late_workers(job) == set()
    close_without(command, plan)
    assert switches.late_workers(job) == {1, 4, 5}
    # A worker of a tree names nobody. The first who asks waits for those who are in alone.
    job.request_epoch(2, 0, [])
    assert job.awaited == [0, 3]
    job.request_epoch(3, 0, [])
    job.request_epoch(0, 0, [])
    assert (job.epoch, job.present) == (1, (0, 2, 3))
    answer = {"plan": {"epoch": 1, "absent": [1, 4, 5]}, "newcomers": []}
    assert all((worker, answer) in told for worker in (0, 2, 3))
    assert (1, {"left_out": [0, 2, 3]}) in told
    assert switches.plan.job.absent == {1, 4, 5}


def test_what_an_earlier_epoch_left_in_a_switch_says_nothing():
    (before,), command = network("tree", 6, racks=3, allow_partial=True)
    job, switches, _ = coordinated(before, command)
    for switch in ("s1", "s2", "s3", "s4"):
        write_slot(command, before, switch, 2, sequence=2049, state=2, bitmap=0b111, count=6)
    for worker in range(6):
        job.request_epoch(worker, 0, [])
    assert (job.epoch, job.present) == (1, tuple(range(6)))
    assert switches.late_workers(job) == set()
    close_without(command, switches.plan)
    assert switches.late_workers(job) == {1, 4, 5}


def test_a_rack_whose_switch_has_lost_its_registers_stands_for_all_of_its_workers():
    (plan,), command = network("tree", 6, racks=3, allow_partial=True)
    job, switches, _ = coordinated(plan, command)
    close_without(command, plan)
    for register in ("owner", "sequence", "bitmap"):
        command("s2", f"register_reset TreeIngress.pool.{register}")
    assert switches.late_workers(job) == {4, 5}
    job.request_epoch(2, 0, [])
    assert job.awaited == [0, 1, 3]  # worker 1 does not ask, and is expelled in time
    job.request_epoch(3, 0, [])
    job.request_epoch(0, 0, [])
    job.expel([1])
    assert (job.epoch, job.present) == (1, (0, 2, 3))


def test_late_workers_are_read_from_the_root_of_their_slot():
    (plan,), command = network(
        "tree", 6, topology="leaf-spine:racks=3,spines=3,trees=3", allow_partial=True
    )
    job, switches, _ = coordinated(plan, command)
    for leaf in ("leaf1", "leaf2"):
        write_slot(command, plan, leaf, 2, sequence=5, state=0b111, bitmap=0b11, count=4)
    write_slot(command, plan, "spine1", 2, sequence=5, state=1, bitmap=0b011, count=4)
    assert switches.late_workers(job) == set()  # slot 1 is of the second spine
    write_slot(command, plan, "spine2", 2, sequence=5, state=1, bitmap=0b011, count=4)
    assert switches.late_workers(job) == {4, 5}


def test_a_rack_without_any_worker_is_no_longer_waited_for():
    (plan,), command = network("tree", 6, racks=3, allow_partial=True)
    job, _, _ = coordinated(plan, command)
    write_slot(command, plan, "s1", 2, sequence=5, state=1, bitmap=0b101, count=4)
    for switch in ("s2", "s4"):
        write_slot(command, plan, switch, 2, sequence=5, state=0b111, bitmap=0b11, count=4)
    for worker in (0, 1, 4, 5):
        job.request_epoch(worker, 0, [])
    assert job.present == (0, 1, 4, 5)
    position = command("s1", "table_dump TreeIngress.admission.position")
    (entry,) = entries(position)
    assert entry.action.startswith("TreeIngress.admission.set_root 0x5 ")
    assert entry.action.endswith(" 0x1 0x4")  # partial results are allowed; four workers
    assert not list(entries(command("s3", "table_dump TreeIngress.admission.position")))
    fences = {command(switch, "register_read TreeIngress.pool.fence 0") for switch in ("s1", "s3")}
    assert {int(each.rpartition("=")[2]) for each in fences} == {~(1 << 16 | 1) & 0xFFFF_FFFF}


def test_a_job_without_partial_results_reads_no_registers():
    (plan,), command = network("tree", 6, racks=3)

    def without_registers(switch, line):
        assert not line.startswith("register_read")
        return command(switch, line)

    job, switches, _ = coordinated(plan, without_registers)
    close_without(command, plan)
    assert switches.late_workers(job) == set()
    job.request_epoch(0, 0, [])
    assert job.awaited == [1, 2, 3, 4, 5]
