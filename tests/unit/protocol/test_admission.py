"""Jobs on a switch: side by side, one after the other, and after a failure under the next epoch."""

from __future__ import annotations

import numpy as np
import pytest

from innet import programs
from innet.core.errors import InputError, StalledError
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import drive
from innet.protocol import JobMembership, SlotClient, Timing
from innet.protocol.admission import Job, WorkerPort
from innet.switch import Switch
from innet.transport.memory import MemoryTransport
from innet.wire import Endpoint, PacketLayout

NOT_ADMITTED = 5


def members(count: int) -> list[WorkerPort]:
    return [WorkerPort(i + 1, Endpoint.of_worker(i)) for i in range(count)]


def new_switch(*jobs: Job) -> Switch:
    switch = Switch.load(programs.find("slots", 32).json(), engine="jit")
    node = 0
    for job in jobs:
        for command in job.commands(node, new_ports=node == 0):
            switch.command(command)
        node += len(job.members)
    return switch


def ends(job: Job) -> dict[int, SlotClient]:
    size = len(job.members)
    return {
        member.port: SlotClient(
            PacketLayout(32),
            JobMembership(worker, size, job.number, job.epoch, job.slots),
            source=member.endpoint,
            switch=Endpoint.of_switch(),
            timing=Timing(give_up=1.0),
        )
        for worker, member in enumerate(job.members)
    }


def all_reduce(switch: Switch, workers: dict[int, SlotClient], length: int = 1000) -> None:
    for number, end in enumerate(workers.values(), 1):
        end.start([Segment(ReduceOp.SUM, np.full(length, number, np.int32))], 0.0)
    drive(workers, MemoryTransport(switch.process_batch, list(workers)), 0.0)
    for end in workers.values():
        assert (end.results()[0] == sum(range(1, len(workers) + 1))).all()


def test_after_a_failure_the_next_epoch_is_exact() -> None:
    job = Job(members(2), slots=4)
    switch = new_switch(job)
    workers = ends(job)
    all_reduce(switch, workers)
    alone = {1: workers[1]}
    alone[1].start([Segment(ReduceOp.SUM, np.ones(500, np.int32))], 0.0)
    with pytest.raises(StalledError):
        drive(alone, MemoryTransport(switch.process_batch, [1, 2]), 0.0)

    entries = [entry.handle for entry in switch.table_entries("admission")]
    following, commands = job.next_epoch(entries)
    for command in commands:
        switch.command(command)
    all_reduce(switch, ends(following))
    # Whoever still speaks for the old epoch is a stranger now.
    late = ends(job)[1]
    late.start([Segment(ReduceOp.SUM, np.ones(32, np.int32))], 0.0)
    before = int(switch.counters["SlotsIngress.dropped"].packets[NOT_ADMITTED])
    assert switch.process([(1, frame.tobytes()) for frame in late.outgoing(0.0)]) == []
    assert switch.counters["SlotsIngress.dropped"].packets[NOT_ADMITTED] == before + 1


def test_the_next_job_in_the_same_slots_is_exact() -> None:
    first = Job(members(2), number=1, slots=4)
    second = Job(members(2), number=2, slots=4, group=2)
    switch = new_switch(first, second)
    all_reduce(switch, ends(first))
    all_reduce(switch, ends(second))
    assert not switch.counters["SlotsIngress.dropped"].packets.any()


def test_two_jobs_behind_the_same_ports() -> None:
    first = Job(members(3), number=1, slots=4)
    second = Job(members(2), number=2, slots=8, slot_base=8, group=2)
    switch = new_switch(first, second)
    left, right = ends(first), ends(second)
    for length in (100, 900, 33):
        all_reduce(switch, left, length)
        all_reduce(switch, right, length)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": []}, "number of workers is 0"),
        ({"members": members(33)}, "33 workers; a job takes 1 to 32, as .* one of 32 bits"),
        ({"members": [members(1)[0]] * 2}, "share a switch port"),
        (
            {"members": [WorkerPort(511, Endpoint.of_worker(0))]},
            "port is 511; it must be in 0 .. 510",
        ),
        ({"number": 1 << 16}, "job's number is 65536"),
        ({"epoch": -1}, "epoch is -1"),
        ({"group": 0}, "multicast group is 0"),
        ({"absent": frozenset({0, 1})}, "all workers of the job are absent"),
        ({"slots": 12}, "power of two"),
        ({"slots": 1 << 17}, "number of slots is 131072"),
        ({"slots": 8, "slot_base": 4}, "no multiple"),
        ({"slots": 4, "slot_base": -4}, "slot base is -4"),
    ],
)
def test_impossible_jobs_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Job(**{"members": members(2), **changes})


@pytest.mark.parametrize("absent", [frozenset(), frozenset({0}), frozenset({1, 3, 31})])
def test_the_bitmap_has_a_bit_for_each_who_is_present(absent: frozenset[int]) -> None:
    job = Job(members(32), absent=absent)
    place = JobMembership(worker=2, workers=32, absent=absent)
    assert job.bitmap == place.bitmap == sum(1 << index for index in job.present)
    assert Job(members(3), absent=frozenset({0, 7})).bitmap == 0b110
