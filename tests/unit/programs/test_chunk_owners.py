"""Chunks with an owner in the program `collectives`: who may send what, and who gets what."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support.naive_wire import checksum
from support.slot_oracle import (
    CHECKSUM,
    LATE,
    MALFORMED,
    MISMATCH,
    NOT_ADMITTED,
    SLOT_RANGE,
    STALE,
    TRUNCATED,
)
from support.tiers import tiered
from support.traffic import job_of, resealed, sends_values, without_values

from innet import programs
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.protocol.admission import Job
from innet.switch import Switch, ir, load_program
from innet.wire import WITHOUT_VALUES, Endpoint, HeaderFlag, PacketLayout, pack, parse_strict
from innet.wire.layout import offset_of

VALUES = 64
REDUCE, BROADCAST, BARRIER = CollectiveOp
SLOTS = 4
LAYOUTS = {framing: PacketLayout(VALUES, framing, has_owners=True) for framing in ("udp", "raw")}
UDP = LAYOUTS["udp"]

engines = pytest.mark.parametrize(
    "engine", tiered(["interpret", "jit"], ["jit"], "the same compiled")
)


@cache
def program() -> ir.Program:
    return load_program(programs.find("collectives", VALUES).json())


def switch_of(engine: str, *jobs: Job) -> Switch:
    switch = Switch.load(program(), engine)
    node = 0
    for job in jobs:
        for command in job.commands(node, new_ports=node == 0):
            switch.command(command)
        node += len(job.members)
    return switch


def words_of(worker: int, chunk: int = 0) -> np.ndarray:
    return np.arange(VALUES, dtype=np.int32) + 1000 * (worker + 1) + 100_000 * chunk


def packet(
    job: Job,
    worker: int,
    operation: int,
    owner: int,
    *,
    chunk: int = 0,
    layout: PacketLayout = UDP,
    values: np.ndarray | None = None,
    whole: bool | None = None,
    flags: int = 0,
    **fields: int,
) -> tuple[int, bytes]:
    """What a worker sends; ``whole``: with values, by default if it is to send some."""
    frame = pack(
        layout,
        job.members[worker].endpoint,
        Endpoint.of_switch(),
        (words_of(worker, chunk) if values is None else values)[None],
        operation=operation,
        job=job.number,
        epoch=job.epoch,
        sequence=chunk + 1,
        slot=fields.pop("slot", chunk % SLOTS),
        slot_version=chunk // SLOTS % 2,
        exponent=owner,
        flags=flags,
        **{"worker": worker, **fields},
    )[0].tobytes()
    if whole is None:
        whole = operation <= max(ReduceOp) or sends_values(operation, worker == owner)
    return job.members[worker].port, frame if whole else without_values(layout, frame)


def seen(
    answers: list[tuple[int, bytes]], layout: PacketLayout = UDP
) -> dict[int, np.ndarray | None]:
    """Of each worker's one result: its values, or None if it ends with the header."""
    found: dict[int, np.ndarray | None] = {}
    for port, data in answers:
        batch = parse_strict(layout, data)
        header = batch.header[0]
        assert int(header["flags"]) & HeaderFlag.RESULT
        assert port == int(header["worker"]) + 1
        assert port - 1 not in found
        bare = bool(int(header["operation"]) & WITHOUT_VALUES)
        assert len(data) == (layout.bare_size if bare else layout.frame_size)
        if layout.framing == "udp":
            ip = batch.frames["ipv4"][0]
            assert int(ip["total_length"]) == len(data) - 14
            assert int(batch.frames["udp"]["length"][0]) == len(data) - 34
            assert checksum(np.frombuffer(data, np.uint8)[None, 14:34].copy()).tolist() == [0]
        found[port - 1] = None if bare else batch.values[0]
    return found


def dropped(switch: Switch) -> Counter[int]:
    counts = switch.counters["SlotsIngress.dropped"].packets
    return Counter({int(reason): int(counts[reason]) for reason in np.flatnonzero(counts)})


def wrapped(*words: np.ndarray) -> list[int]:
    return sum(each.astype(np.int64) for each in words).astype(np.uint32).view(np.int32).tolist()


@engines
@pytest.mark.parametrize("framing", ["udp", "raw"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_who_gets_values(engine: str, framing: str, order: tuple[int, ...]) -> None:
    """The owner's packet is the first, the last, or between."""
    job, layout = job_of(3, SLOTS), LAYOUTS[framing]
    switch = switch_of(engine, job)

    def results(operation: int, chunk: int) -> dict[int, np.ndarray | None]:
        sent = [packet(job, w, operation, 0, chunk=chunk, layout=layout) for w in order]
        assert switch.process(sent[:2]) == []
        return seen(switch.process(sent[2:]), layout)

    reduced = results(REDUCE, 0)
    assert reduced[0].tolist() == wrapped(words_of(1), words_of(2))
    assert reduced[1] is reduced[2] is None
    broadcast = results(BROADCAST, 1)
    assert broadcast[0] is None
    assert broadcast[1].tolist() == broadcast[2].tolist() == words_of(0, 1).tolist()
    assert results(BARRIER, 2) == {0: None, 1: None, 2: None}
    summed = results(ReduceOp.SUM, 3)
    everybody = wrapped(*(words_of(w, 3) for w in range(3)))
    assert [summed[w].tolist() for w in range(3)] == [everybody] * 3
    assert not dropped(switch)


@engines
def test_one_worker_reduces_nothing_and_tells_nobody(engine: str) -> None:
    job = job_of(1, SLOTS)
    switch = switch_of(engine, job)
    assert seen(switch.process([packet(job, 0, REDUCE, 0)]))[0].tolist() == [0] * VALUES
    assert seen(switch.process([packet(job, 0, BROADCAST, 0, chunk=1)])) == {0: None}
    assert seen(switch.process([packet(job, 0, BARRIER, 0, chunk=2)])) == {0: None}


def changed(sent: tuple[int, bytes], layout: PacketLayout, **fields: int) -> tuple[int, bytes]:
    """With single bytes of the innet header overwritten, and the checksum right again."""
    data = bytearray(sent[1])
    for name, byte in fields.items():
        data[layout.header_offset + offset_of(name)] = byte
    return sent[0], resealed(layout, bytes(data))


MALFORMED_OPERATIONS = [0x00, 0x07, 0x40, 0x44, 0x7F, 0x80, 0x81, 0x82, 0x83, 0x87, 0xC4, 0xFF]


@engines
@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_what_no_worker_sends_is_dropped(engine: str, framing: str) -> None:
    """Values where none are due, none where some are, and operations that are none."""
    job, layout = job_of(3, SLOTS), LAYOUTS[framing]
    switch = switch_of(engine, job)
    wrong = [
        packet(job, 0, REDUCE, 0, layout=layout, whole=True),
        packet(job, 1, REDUCE, 0, layout=layout, whole=False),
        packet(job, 0, BROADCAST, 0, layout=layout, whole=False),
        packet(job, 1, BROADCAST, 0, layout=layout, whole=True),
        packet(job, 0, BARRIER, 0, layout=layout, whole=True),
        packet(job, 1, BARRIER, 0, layout=layout, whole=True),
        *(packet(job, 0, each, 0, layout=layout, whole=False) for each in ReduceOp),
    ]
    for operation in MALFORMED_OPERATIONS:
        one = packet(job, 1, REDUCE, 0, layout=layout, whole=operation < WITHOUT_VALUES)
        wrong.append(changed(one, layout, operation=operation))
    bare = packet(job, 0, REDUCE, 0, layout=layout)
    wrong += [changed(bare, layout, slot_version=2), changed(bare, layout, elements=8)]
    wrong.append(changed(bare, layout, flags=int(HeaderFlag.RESULT)))
    assert switch.process(wrong) == []
    assert dropped(switch) == {MALFORMED: len(wrong)}
    # None of it has left a trace.
    assert len(switch.process([packet(job, w, REDUCE, 0, layout=layout) for w in range(3)])) == 3


@engines
def test_outer_lengths_are_those_of_the_packet(engine: str) -> None:
    """A whole packet's lengths in one without values, and the other way round."""
    job = job_of(2, SLOTS)
    switch = switch_of(engine, job)
    bare, whole = bytearray(packet(job, 0, REDUCE, 0)[1]), bytearray(packet(job, 1, REDUCE, 0)[1])
    for frame, other in ((bare, whole), (whole, bare)):
        ip, udp = slice(16, 18), slice(38, 40)
        for places in ([ip], [udp], [ip, udp]):
            wrong = bytearray(frame)
            for place in places:
                wrong[place] = other[place]
            wrong[24:26] = bytes(2)
            (right,) = checksum(np.frombuffer(wrong, np.uint8)[None, 14:34].copy())
            wrong[24:26] = int(right).to_bytes(2, "big")
            assert switch.process([(1 if frame is bare else 2, bytes(wrong))]) == []
    assert dropped(switch) == {MALFORMED: 6}


@engines
@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_damage_of_packets_without_values(engine: str, framing: str) -> None:
    job, layout = job_of(2, SLOTS), LAYOUTS[framing]
    switch = switch_of(engine, job)
    port, data = packet(job, 0, REDUCE, 0, layout=layout)
    damaged = bytearray(data)
    damaged[layout.header_offset + offset_of("job")] ^= 1
    assert switch.process([(port, bytes(damaged))]) == []
    assert dropped(switch) == {CHECKSUM: 1}
    cut = [(port, data[:length]) for length in range(len(data))]
    # And what says that values follow, without them.
    lacks = changed((port, data), layout, operation=int(REDUCE))
    assert switch.process([*cut, lacks]) == []
    assert dropped(switch) == {CHECKSUM: 1, TRUNCATED: len(cut) + 1}


@engines
@pytest.mark.parametrize("operation", list(CollectiveOp))
def test_nobody_speaks_for_another(engine: str, operation: int) -> None:
    """Who says to be another, from its own port or of another job, is not admitted."""
    job, other = job_of(3, SLOTS), job_of(2, SLOTS, number=8)
    switch = switch_of(engine, job)
    liars = [
        (2, packet(job, 0, operation, 0)[1]),  # for the owner, from worker 1's port
        (1, packet(job, 1, operation, 0)[1]),  # the owner for another
        (9, packet(job, 0, operation, 0)[1]),
        packet(other, 0, operation, 0),
        packet(job_of(3, SLOTS, epoch=4), 0, operation, 0),
    ]
    assert switch.process(liars) == []
    assert switch.process([packet(job, 0, operation, 0, slot=SLOTS)]) == []
    assert dropped(switch) == {NOT_ADMITTED: len(liars), SLOT_RANGE: 1}
    assert len(switch.process([packet(job, w, operation, 0) for w in range(3)])) == 3


@engines
@pytest.mark.parametrize("operation", list(CollectiveOp))
def test_who_differs_from_the_first_packet_is_left_out(engine: str, operation: int) -> None:
    job = job_of(3, SLOTS)
    switch = switch_of(engine, job)
    strange = [
        packet(job, 1, operation, 1),  # another owner
        packet(job, 1, operation, 2),
        packet(job, 1, operation, 77),
        packet(job, 1, operation % 6 + 1, 0),  # another operation
        packet(job, 1, operation, 0, elements=VALUES - 1),
        packet(job, 1, operation, 0, message=5),
    ]
    assert switch.process([packet(job, 0, operation, 0), *strange]) == []
    assert dropped(switch) == {MISMATCH: len(strange)}
    results = seen(switch.process([packet(job, w, operation, 0) for w in (2, 1)]))
    assert set(results) == {0, 1, 2}
    if operation == REDUCE:
        assert results[0].tolist() == wrapped(words_of(1), words_of(2))
    if operation == BROADCAST:
        assert results[1].tolist() == words_of(0).tolist()


@engines
def test_what_was_lost_is_sent_again_to_one(engine: str) -> None:
    job = job_of(3, SLOTS)
    switch = switch_of(engine, job)
    for chunk, operation in enumerate(CollectiveOp):
        sent = [packet(job, w, operation, 1, chunk=chunk) for w in range(3)]
        # Repeats before the last one is in change nothing and are not answered.
        assert switch.process([*sent[:2], *sent[:2], *sent[:2]]) == []
        whole = seen(switch.process(sent[2:]))
        for worker in (1, 0, 2, 1):
            (again,) = seen(switch.process([sent[worker]])).items()
            np.testing.assert_array_equal(again[1], whole[worker])
            assert again[0] == worker
    assert not dropped(switch)


@engines
@pytest.mark.parametrize("operation", list(CollectiveOp))
def test_stale_packets_find_no_newer_chunk(engine: str, operation: int) -> None:
    """Also if they name another owner, which is not to become that of the newer chunk."""
    job = job_of(2, SLOTS)
    switch = switch_of(engine, job)
    old = [packet(job, w, operation, owner) for w in range(2) for owner in range(2)]
    new = [packet(job, w, operation, 1, chunk=2 * SLOTS) for w in range(2)]
    assert switch.process([new[0], *old]) == []
    assert dropped(switch) == {STALE: 4}
    results = seen(switch.process([new[1]]))
    assert (results[1] is not None) == (operation == REDUCE)
    assert (results[0] is not None) == (operation == BROADCAST)


@engines
@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_partial_results(engine: str, lacking: int) -> None:
    """Of those who are there; of an owner who is not, the others get zeros, nothing of before."""
    job = job_of(3, SLOTS)
    switch = switch_of(engine, job)
    there = [w for w in range(3) if w != lacking]
    # What fills the values of the slots.
    for chunk in range(SLOTS):
        switch.process([packet(job, w, ReduceOp.SUM, 0, chunk=chunk) for w in range(3)])
    for slot, operation in enumerate(CollectiveOp):
        chunk = 2 * SLOTS + slot

        def one(worker: int, operation=operation, chunk=chunk, **how: int) -> tuple[int, bytes]:
            return packet(job, worker, operation, 1, chunk=chunk, **how)

        assert switch.process([one(there[0])]) == []
        answers = switch.process([one(there[1], flags=HeaderFlag.PARTIAL)])
        results = seen(answers)
        for _, data in answers:
            header = parse_strict(UDP, data).header[0]
            assert int(header["flags"]) & HeaderFlag.PARTIAL
            assert (int(header["count"]), int(header["bitmap"])) == (2, 7 & ~(1 << lacking))
        inside = [words_of(w, chunk) for w in there if w != 1]
        if operation == REDUCE:
            assert results[1].tolist() == wrapped(*inside)
        if operation == BROADCAST:
            expected = [0] * VALUES if lacking == 1 else words_of(1, chunk).tolist()
            assert results[0].tolist() == results[2].tolist() == expected
        # Who is late gets the same, and changes nothing.
        late = seen(switch.process([one(lacking)]))
        np.testing.assert_array_equal(late[lacking], results[lacking])
        np.testing.assert_array_equal(
            seen(switch.process([one(there[0])]))[there[0]], results[there[0]]
        )
    assert dropped(switch) == {LATE: 3}


@engines
@pytest.mark.parametrize("held", [ReduceOp.SUM, REDUCE, BROADCAST])
@pytest.mark.parametrize("is_between", [False, True], ids=["at once", "after a barrier"])
def test_no_values_of_another_job_are_told(engine: str, held: int, is_between: bool) -> None:
    """Two jobs in the same slots: what one left there, the next one's results do not hold."""
    first = job_of(2, SLOTS)
    second = replace(first, number=9, group=6)
    switch = switch_of(engine, first, second)
    secret = np.full(VALUES, 0x5EC2E7, np.int32)
    chunk = 0  # always in the same copy of the same slot
    for operation in (BROADCAST, REDUCE):
        told = switch.process(
            [packet(first, w, held, 0, values=secret, chunk=chunk) for w in (0, 1)]
        )
        assert any(values is not None and values.any() for values in seen(told).values())
        if is_between:
            assert switch.process([packet(second, 0, BARRIER, 0, chunk=chunk)]) == []
            chunk += 2 * SLOTS
        # The first packet has no values, and nobody waits for those of the others.
        worker = int(operation == BROADCAST)
        asked = packet(second, worker, operation, 0, chunk=chunk, flags=HeaderFlag.PARTIAL)
        assert seen(switch.process([asked]))[worker].tolist() == [0] * VALUES
        chunk += 2 * SLOTS
    assert not dropped(switch)


@engines
def test_overflow_and_congestion_are_told_to_all(engine: str) -> None:
    job = job_of(3, SLOTS)
    switch = switch_of(engine, job)
    large = np.full(VALUES, 2**31 - 1, np.int32)

    def flags(chunk: int, operation: int, marks: dict[int, int]) -> set[int]:
        sent = [
            packet(job, w, operation, 1, chunk=chunk, values=large, flags=marks.get(w, 0))
            for w in range(3)
        ]
        answers = switch.process(sent)
        assert len(answers) == 3
        found = {int(parse_strict(UDP, data).header["flags"][0]) for _, data in answers}
        return {each & ~HeaderFlag.RESULT for each in found}

    assert flags(0, REDUCE, {}) == {HeaderFlag.OVERFLOW}
    assert flags(1, BROADCAST, {}) == {0}
    assert flags(2, BARRIER, {}) == {0}
    for chunk, operation in enumerate(CollectiveOp, 3):  # by a packet with values, or without
        for again, worker in enumerate((0, 1)):
            found = flags(chunk + 8 * again, operation, {worker: HeaderFlag.ECN})
            assert found == {HeaderFlag.ECN | (HeaderFlag.OVERFLOW if operation == REDUCE else 0)}
