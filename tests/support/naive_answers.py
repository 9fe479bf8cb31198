"""What ``innet.protocol.compiled.take`` does, a packet at a time and written to be read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from innet import kernels
from innet.core.reduce_op import CollectiveOp
from innet.protocol.counters import PacketVerdict
from innet.protocol.message import serial_distance
from innet.wire import CONGESTED, WITHOUT_VALUES, FrameRefusal, HeaderFlag, parse

IDLE, QUEUED, WAITING = range(3)
REFERENCE = kernels.get("reference")
STEP = 1e-3  # what a 1 stands for


@dataclass
class Taken:
    """What is left behind.

    Attributes:
        verdicts: of the packets, in order.
        refusals: of those that cannot be read.
        flags: of all answers.
        queue: slots that may go on, in order.
        marked: the newest chunk that met congestion; -1 for none.
        waited: the longest wait that tells of the way; -1 for none.
        newest: of the chunks that were sent once and the last of the all-reduce, when the one that
            was sent last was sent first, and its number.
    """

    verdicts: list[PacketVerdict] = field(default_factory=list)
    refusals: list[FrameRefusal] = field(default_factory=list)
    flags: HeaderFlag = field(default_factory=lambda: HeaderFlag(0))
    queue: list[int] = field(default_factory=list)
    marked: int = -1
    waited: float = -1.0
    newest: tuple[float, float] = (-math.inf, -1.0)


def taken(layout, packets, member, slots, chunks, clock):
    """As ``take``; ``slots`` (but for the queue) and ``chunks`` are changed in the same way."""
    batch = parse(layout, packets)
    found = Taken()
    for row, reason in enumerate(batch.reason):
        if reason:
            found.verdicts.append(PacketVerdict.UNREADABLE)
            found.refusals.append(FrameRefusal(reason))
            continue
        has_values = packets.length[row] == layout.frame_size
        verdict = _judged(batch.header[row], has_values, member, slots, chunks)
        found.verdicts.append(verdict)
        if verdict is PacketVerdict.ANSWER:
            congested = layout.framing == "udp" and (
                batch.frames["ipv4"]["tos"][row] & CONGESTED == CONGESTED
            )
            values = batch.values[row] if has_values else None
            _accept(found, batch.header[row], values, congested,
                    (member, slots, chunks, clock))  # fmt: skip
    return found


def answer_to(operation):
    """The operation of a chunk's result, by that of what this worker has sent."""
    return {
        CollectiveOp.REDUCE: WITHOUT_VALUES | CollectiveOp.REDUCE,
        WITHOUT_VALUES | CollectiveOp.REDUCE: CollectiveOp.REDUCE,
        CollectiveOp.BROADCAST: WITHOUT_VALUES | CollectiveOp.BROADCAST,
        WITHOUT_VALUES | CollectiveOp.BROADCAST: CollectiveOp.BROADCAST,
    }.get(operation, operation)


def _judged(header, has_values, member, slots, chunks):
    job, epoch, worker, present, base, _, _ = member
    flags = HeaderFlag(int(header["flags"]))
    if HeaderFlag.RESULT not in flags:
        return PacketVerdict.NOT_A_RESULT
    for name, mine in (("job", job), ("epoch", epoch), ("worker", worker)):
        if header[name] != mine:
            return PacketVerdict[name.upper()]
    if header["count"] != present and HeaderFlag.PARTIAL not in flags:
        return PacketVerdict.COUNT
    slot, window = int(header["slot"]), len(slots["chunk"])
    if slot >= window:
        return PacketVerdict.SLOT
    chunk, state = int(slots["chunk"][slot]), slots["state"][slot]
    ahead = serial_distance(int(header["sequence"]), chunk + 1)
    if ahead < 0 or (ahead == 0 and state == IDLE):
        return PacketVerdict.DUPLICATE
    if ahead > 0 or state != WAITING:
        return PacketVerdict.SEQUENCE
    if header["slot_version"] != chunk // window % 2:
        return PacketVerdict.SLOT_VERSION
    operation = answer_to(int(chunks["operation"][chunk - base]))
    if header["operation"] != operation or has_values == (operation >= WITHOUT_VALUES):
        return PacketVerdict.OPERATION
    if header["elements"] != chunks["elements"][chunk - base]:
        return PacketVerdict.ELEMENTS
    return PacketVerdict.ANSWER


def _accept(found, header, values, congested, where):
    member, slots, chunks, (now, patience) = where
    base, end, window = member[4], member[5], len(slots["chunk"])
    slot = int(header["slot"])
    chunk = int(slots["chunk"][slot])
    if values is not None:
        chunks["words"][chunk - base] = values
        first = (chunk - base) * len(values)
        sums = chunks["sums"][first : first + len(values)]
        sums[:] = REFERENCE.dequantize(values[: len(sums)], STEP)
    chunks["who"][chunk - base] = header["bitmap"]
    flags = HeaderFlag(int(header["flags"]))
    found.flags |= flags
    if HeaderFlag.ECN in flags or congested:
        found.marked = max(found.marked, chunk)
    sent = slots["first_sent"][slot]
    if slots["sends"][slot] == 1 or chunk == end - 1:
        found.newest = max(found.newest, (sent, chunk))
    waited = now - sent
    if slots["sends"][slot] == 1 and (chunk - base >= window or waited <= patience):
        found.waited = max(found.waited, waited)
    slots["resend_at"][slot] = slots["give_up_at"][slot] = math.inf
    slots["state"][slot] = IDLE
    if chunk + window < end:
        slots["chunk"][slot] = chunk + window
        slots["state"][slot] = QUEUED
        found.queue.append(slot)


def overtaken(slots, timers, newest, now, reordering):
    """As ``overtaken``; ``slots`` and ``timers`` are changed in the same way."""
    found = False
    for slot, chunk in enumerate(slots["chunk"]):
        waits = slots["state"][slot] == WAITING and timers["timeout"][slot] > 0
        if waits and (timers["last_sent"][slot], chunk) < newest:
            timers["timeout"][slot] = -reordering
            slots["resend_at"][slot] = min(slots["resend_at"][slot], now + reordering)
            found = True
    return found


def fields_of(slots):
    """A copy of arrays by name."""
    return {name: np.copy(array) for name, array in slots.items()}
