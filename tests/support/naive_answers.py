"""What ``innet.protocol.answers.judge`` says, a packet at a time and written to be read."""

from __future__ import annotations

from innet.protocol.answers import Verdict
from innet.protocol.serial import serial_distance
from innet.wire import Flag


def judged(header, readable, member, asked):
    """A Verdict for each record of ``header``; the arguments are those of ``judge``."""
    job, epoch, worker, present, base = member
    verdicts, answered = [], set()
    for each, can_be_read in zip(header, readable, strict=True):
        verdict = _one(each, asked, (job, epoch, worker, present, base)) if can_be_read else None
        if verdict is Verdict.ANSWER:
            if int(each["slot"]) in answered:
                verdict = Verdict.DUPLICATE
            answered.add(int(each["slot"]))
        verdicts.append(Verdict.UNREADABLE if verdict is None else verdict)
    return verdicts


def _one(header, asked, member):
    chunks, states, operations, elements = asked
    job, epoch, worker, present, base = member
    flags = Flag(int(header["flags"]))
    if Flag.RESULT not in flags:
        return Verdict.NOT_A_RESULT
    for name, mine in (("job", job), ("epoch", epoch), ("worker", worker)):
        if header[name] != mine:
            return Verdict[name.upper()]
    if header["count"] != present and Flag.PARTIAL not in flags:
        return Verdict.COUNT
    slot = int(header["slot"])
    if slot >= len(chunks):
        return Verdict.SLOT
    chunk = int(chunks[slot])
    ahead = serial_distance(int(header["sequence"]), chunk + 1)
    idle, _, waiting = range(3)
    if ahead < 0 or (ahead == 0 and states[slot] == idle):
        return Verdict.DUPLICATE
    if ahead > 0 or states[slot] != waiting:
        return Verdict.SEQUENCE
    version = (chunk // len(chunks)) % 2
    for name, sent in (
        ("slot_version", version),
        ("operation", operations[chunk - base]),
        ("elements", elements[chunk - base]),
    ):
        if header[name] != sent:
            return Verdict[name.upper()]
    return Verdict.ANSWER
