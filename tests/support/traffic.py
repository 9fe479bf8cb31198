"""Random packets for a job on slots.p4: what workers send, and what nobody should."""

from __future__ import annotations

import numpy as np

from innet.core.float_sums import FloatSum
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.protocol.admission import Job, WorkerPort
from innet.wire import (
    WITHOUT_VALUES,
    Endpoint,
    Framing,
    HeaderFlag,
    PacketLayout,
    internet_checksum,
    pack,
)
from innet.wire.layout import HEADER, offset_of
from support.naive_wire import ended

Packet = tuple[int, bytes]

WORDS = np.array([0, 1, -1, 2**31 - 1, -(2**31), 255, -256, 2**30], np.int32)


def job_of(workers: int, slots: int = 8, number: int = 7, epoch: int = 3) -> Job:
    """Worker i behind port i + 1, in a part of the pool that does not begin at 0."""
    members = [WorkerPort(i + 1, Endpoint.of_worker(i)) for i in range(workers)]
    return Job(members, number=number, epoch=epoch, slot_base=slots, slots=slots, group=5)


def contribution(
    rng: np.random.Generator,
    layout: PacketLayout,
    job: Job,
    worker: int,
    chunk: int,
    operation: int,
    elements: int | None = None,
    message: int = 0,
    owner: int | None = None,
    *,
    flags: int = 0,
) -> Packet:
    """What ``worker`` sends for ``chunk``, with values that reach the ends of int32.

    For an ``operation`` with an ``owner``, as many as it sends by ``sends_values``.
    """
    edge = rng.choice(WORDS, (1, layout.values))
    near = rng.integers(-1000, 1000, (1, layout.values), dtype=np.int32)
    # In half of the packets: the sums of the others stay in int32.
    edges = rng.random((1, layout.values)) < 0.3 * rng.integers(2)
    values = np.where(edges, edge, near)
    if operation in list(FloatSum):  # of all exponents, or of a few, infinities among them
        anything = rng.integers(-(2**31), 2**31, (1, layout.values), dtype=np.int32)
        normal = rng.standard_normal((1, layout.values), np.float32).view(np.int32)
        values = np.where(edges, anything, normal)
    frames = pack(
        layout,
        job.members[worker].endpoint,
        Endpoint.of_switch(),
        values,
        operation=operation,
        job=job.number,
        epoch=job.epoch,
        sequence=(chunk + 1) % 2**32,
        slot=chunk % job.slots,
        slot_version=chunk // job.slots % 2,
        worker=worker,
        elements=elements,
        exponent=int(rng.integers(0, 300)) if owner is None else owner,
        message=message,
        flags=flags,
    )
    if layout.framing == "udp" and rng.random() < 0.1:
        ipv4 = layout.view(frames)["ipv4"]
        ipv4["tos"], ipv4["checksum"] = 3, 0  # congestion experienced
        ipv4["checksum"] = internet_checksum(ipv4[:, None].view(np.uint8))
    sent = frames[0].tobytes()
    if owner is not None and not sends_values(operation, worker == owner):
        sent = without_values(layout, sent)
    return job.members[worker].port, sent


def sends_values(operation: int, is_owner: bool) -> bool:
    """Whether a worker sends values of a chunk that has an owner."""
    if operation == CollectiveOp.REDUCE:
        return not is_owner
    return operation == CollectiveOp.BROADCAST and is_owner


def without_values(layout: PacketLayout, data: bytes) -> bytes:
    """A whole frame as one that ends with the header, of the same operation."""
    frame = np.frombuffer(data, np.uint8)[None].copy()
    layout.view(frame)["innet"]["operation"] |= WITHOUT_VALUES
    return ended(layout, frame).tobytes()


def marked(rng: np.random.Generator) -> int:
    """Mostly none; now and then a mark, or the wish for what is there."""
    drawn = rng.random(3)
    ecn = HeaderFlag.ECN if drawn[0] < 0.1 else HeaderFlag(0)
    overflow = HeaderFlag.OVERFLOW if drawn[1] < 0.05 else HeaderFlag(0)
    return ecn | overflow | (HeaderFlag.PARTIAL if drawn[2] < 0.15 else HeaderFlag(0))


def meaning(
    rng: np.random.Generator, layout: PacketLayout, workers: int
) -> tuple[int, int, int, int | None]:
    """An operation, a number of elements, which all-reduce it is, and an owner if it has one."""
    last = 8 if layout.adds_floats else 6 if layout.has_owners else 3
    operation = int(rng.integers(1, last + 1))
    if layout.adds_floats and operation > max(ReduceOp):
        operation += min(FloatSum) - min(CollectiveOp)
    elements, message = int(rng.integers(1, layout.values + 1)), int(rng.integers(3))
    owner = int(rng.integers(workers)) if operation in list(CollectiveOp) else None
    return operation, elements, message, owner


def resealed(layout: PacketLayout, data: bytes) -> bytes:
    """``data`` with the innet checksum that its bytes need; too short to have one: as it is."""
    at = layout.header_offset
    ends = layout.has_owners and data[at : at + 4][3:] >= bytes([WITHOUT_VALUES])
    if len(data) < (size := layout.bare_size if ends else layout.frame_size):
        return data
    frame = np.frombuffer(data, np.uint8).copy()
    place = slice(at + offset_of("checksum"), at + HEADER.itemsize)
    frame[place] = 0
    (checksum,) = internet_checksum(frame[None, at:size])
    frame[place] = checksum >> 8, checksum & 0xFF
    return frame.tobytes()


def mangled(rng: np.random.Generator, packet: Packet) -> Packet:
    """``packet`` with a few bytes overwritten, cut, lengthened, or from another port.

    Of those with bytes overwritten half have a right checksum again: what a mistaken or hostile
    worker would send, beside what a bad cable makes.
    """
    port, data = packet
    kind = rng.integers(0, 5)
    if kind == 0:
        return port, data[: rng.integers(0, len(data))]
    if kind == 1:
        return port, data + rng.bytes(int(rng.integers(1, 40)))
    if kind == 2:
        return int(rng.integers(0, 6)), data
    damaged = bytearray(data)
    # Mostly in the headers: a damaged value is only another value.
    reach = 80 if kind == 3 else len(data)
    for _ in range(rng.integers(1, 4)):
        damaged[rng.integers(0, min(reach, len(data)))] = int(rng.integers(0, 256))
    if len(data) % 4 == 2 and rng.integers(2):
        framing: Framing = "udp" if data[12:14] == b"\x08\x00" else "raw"
        values = (len(data) - PacketLayout(1, framing).values_offset) // 4
        layout = PacketLayout(max(values, 1), framing, has_owners=values == 0)
        return port, resealed(layout, bytes(damaged))
    return port, bytes(damaged)


def misused(rng: np.random.Generator, layout: PacketLayout, packet: Packet) -> Packet:
    """``packet`` of a chunk with an owner, as no worker sends it.

    Values where none are due, none where some are, another owner, or an operation that is none.
    """
    port, data = packet
    at = layout.header_offset
    kind = rng.integers(3)
    changed = bytearray(data)
    if kind == 0 and len(data) == layout.frame_size:
        return port, without_values(layout, data)
    if kind == 0:
        bare = slice(at, layout.bare_size)
        whole = pack(
            layout, Endpoint.of_worker(0), Endpoint.of_switch(),
            np.ones((1, layout.values), np.int32), operation=1, job=0, epoch=0, sequence=0,
            slot=0, slot_version=0, worker=0,
        )  # fmt: skip
        changed = bytearray(whole[0])
        changed[bare] = data[bare]
        changed[at + 3] &= WITHOUT_VALUES - 1
    elif kind == 1:
        changed[at + offset_of("exponent") + 1] = int(rng.integers(8))
    else:
        changed[at + 3] = int(rng.choice([0, 7, 0x40, 0x80, 0x81, 0x83, 0x87, 0xFF]))
    return port, resealed(layout, bytes(changed))


def traffic(
    rng: np.random.Generator,
    layouts: list[PacketLayout],
    job: Job,
    chunks: int,
    first_chunk: int = 0,
) -> list[Packet]:
    """``chunks`` chunks of every worker, out of order, with repeats, stale and mangled packets."""
    workers = len(job.members)
    sent: list[Packet] = []
    for chunk in range(first_chunk, first_chunk + chunks):
        meant = meaning(rng, layouts[0], workers)
        # In some chunks, a worker that reduces something else.
        odd = int(rng.integers(0, workers)) if rng.random() < 0.1 else -1
        turn: list[Packet] = []
        for worker in rng.permutation(workers):
            layout = layouts[rng.integers(len(layouts))]
            said = meant
            if worker == odd:
                said = meaning(rng, layout, workers)
            flags = marked(rng)
            packet = contribution(rng, layout, job, int(worker), chunk, *said, flags=flags)
            if layout.has_owners and said[3] is not None and rng.random() < 0.1:
                turn.append(misused(rng, layout, packet))
            turn.append(packet)
            if rng.random() < 0.3:  # a retransmission, before or after the slot is complete
                turn.insert(int(rng.integers(0, len(turn) + 1)), packet)
            if rng.random() < 0.2:
                turn.append(mangled(rng, packet))
            if sent and rng.random() < 0.2:  # however old
                turn.append(sent[rng.integers(len(sent))])
        sent += turn
    return sent
