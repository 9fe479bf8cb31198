"""The parts of a switch that serves jobs, and what a worker is told of its own."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from innet import programs
from innet.core.errors import NetworkError
from innet.service.coordinator import JobCoordinator
from innet.service.hosted_switch import HostedSwitch
from innet.service.process import advise
from innet.service.slot_partition import SlotPartitions, plan_of
from innet.wire import PacketLayout

PROGRAM = programs.find("slots", 32)


def job_at(partition, workers, **fields):
    return JobCoordinator("a", workers, None, None, partition=partition, **fields)


def test_parts_share_nothing_and_are_as_large_as_can_be():
    partitions = SlotPartitions.divide(PROGRAM, jobs=3, workers=5)
    jobs = [partitions.job(partition) for partition in range(3)]
    ports = [member.port for job in jobs for member in job.members]
    assert ports == list(range(1, 16))
    assert len({job.group for job in jobs}) == 3
    ends = [(job.slot_base, job.slot_base + job.slots) for job in jobs]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert ends[-1][1] <= PROGRAM.dimensions().slots < 3 * 2 * partitions.slots


def test_a_window_is_no_larger_than_what_may_wait_at_the_switch():
    slots = PROGRAM.dimensions().slots
    partitions = SlotPartitions(PROGRAM, 1, 32, slots, max_queued=100)
    assert [partitions.window(workers) for workers in (1, 4, 25, 26, 101)] == [64, 16, 4, 2, 1]
    free = SlotPartitions(PROGRAM, 1, 32, slots)
    assert 64 < free.window(1) <= slots
    assert free.window(32) * 32 > 100
    assert SlotPartitions(PROGRAM, 1, 32, 8).window(1) == 8
    few = replace(free, max_window=16)
    assert [few.window(workers) for workers in (1, 32)] == [16, 16]
    assert replace(few, max_queued=100).window(25) == 4
    assert replace(free, max_window=2 * slots).window(1) == free.window(1)
    # What is under way is counted in bytes: some 2 MiB, or 128 KiB of each worker's.
    size = PacketLayout(PROGRAM.parameters["VALUES"]).frame_size
    assert 1 << 20 < 16 * free.window(16) * size < 5 << 19
    assert 1 << 16 < free.window(32) * size <= 1 << 17
    large = SlotPartitions(programs.find("slots", 1024), 1, 32, slots)
    assert large.window(8) < free.window(8)


def test_memory_is_asked_for_only_where_more_would_help(capsys):
    """Not where caches are what keeps a window small."""
    partitions = SlotPartitions(programs.find("slots", 256), 1, 32, 1024)
    assert partitions.window(32) < partitions.slots
    for room in (None, 50_000):
        advise(replace(partitions, max_queued=room))
        assert capsys.readouterr().err == ""
    advise(replace(partitions, max_queued=100))
    said = capsys.readouterr().err
    assert "Only 100 packets may wait here" in said
    assert f"2 packets each under way instead of {partitions.window(32)}," in said


def test_the_plan_of_a_worker_is_that_of_the_switch():
    partitions = SlotPartitions.divide(PROGRAM, jobs=3, workers=5)
    job = job_at(1, 4, number=77, epoch=65_535, absent=frozenset({2}))
    plan = plan_of(partitions.describe(job))
    admitted = partitions.job(1)
    assert (plan.job.number, plan.job.epoch, plan.job.absent) == (77, 65_535, {2})
    assert (plan.job.slot_base, plan.job.group) == (admitted.slot_base, admitted.group)
    assert plan.job.slots == partitions.window(4) <= admitted.slots
    assert plan.job.members == admitted.members[:4]
    assert [link.b.port for link in plan.links] == [6, 7, 8, 9]
    for change in ({"workers": "many"}, {"values": 33}, {"job": None}):
        with pytest.raises(NetworkError, match="job that cannot be"):
            plan_of(partitions.describe(job) | change)


def test_a_job_begins_in_empty_slots_and_ends_with_nobody_admitted():
    """And what others have stays."""
    partitions = SlotPartitions.divide(PROGRAM, jobs=3, workers=2)
    switch = HostedSwitch(partitions, "interpret")
    entries, registers = switch.switch.table_entries, switch.switch.registers.values()

    def begin(partition, epoch):
        job = job_at(partition, 2, number=7 + partition, epoch=epoch)
        switch.begin(partition, plan_of(partitions.describe(job)))

    for partition in range(3):
        begin(partition, 1)
        assert len(entries("admission")) == 2 * (partition + 1)
    before = [entry.handle for entry in entries("admission")]
    for cells in registers:
        cells[:] = 5
    begin(1, 2)
    assert len(entries("admission")) == 6
    mine = slice(2 * partitions.slots, 4 * partitions.slots)
    for cells in registers:
        assert not cells[mine].any()
        assert (np.delete(cells, mine) == 5).all()
    switch.end(1)
    assert [entry.handle for entry in entries("admission")] == before[:2] + before[4:]
