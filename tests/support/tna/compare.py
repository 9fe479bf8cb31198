"""A TNA form beside its v1model program: the same packets, one by one, and what may differ.

``Beside.feed`` gives each packet to both, and compares all that leaves, byte for byte, with what
the v1model program's answers and registers say that the TNA form has to do. The two may differ in
this, and in nothing else:

- The TNA form neither verifies nor updates innet's checksum: an answer has the one that came with
  the packet. Packets have to come with a right one, since the v1model program drops others.
- A sum that leaves int32 stays at the end that it has reached. The v1model program wraps, and says
  FLAG_OVERFLOW. ``ends`` counts the values of results that are at an end after the v1model program
  said so.
- Marks (FLAG_OVERFLOW, FLAG_ECN) of a packet that comes after its slot was closed are not kept.
- Packets that are too short, or not innet's, are dropped uncounted. Late ones are not counted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from innet.core.packets import PacketBatch
from innet.protocol.admission import Job
from innet.switch import Switch
from innet.wire import Layout

from .jobs import TnaSlots

Packet = tuple[int, bytes]

MOST, LEAST = 2**31 - 1, -(2**31)
OVERFLOW, ECN = 1, 8
MARKS = OVERFLOW | ECN
CLOSED = 1 << 16
NOT_ADMITTED, STALE, MISMATCH, LATE = 5, 7, 8, 9
UNCOUNTED = {1, 2, 3}  # not innet's, truncated, wrong checksum
INNET = 14  # where the header begins
FLAGS, CHECKSUM = INNET + 15, slice(INNET + 30, INNET + 32)
VALUES = INNET + 32


def of(frame: bytes) -> tuple[int, ...]:
    """operation, slot, version, flags, elements and values of a frame."""
    operation, slot, version, flags = struct.unpack_from(">B8xHBB", frame, INNET + 3)
    [elements] = struct.unpack_from(">H", frame, INNET + 24)
    return operation, slot, version, flags, elements


def numbers(frame: bytes, values: int) -> list[int]:
    return list(struct.unpack_from(f">{values}i", frame, VALUES))


class Beside:
    """Both programs with the tables of the same jobs.

    Attributes:
        ends: how often a value of an answer was at an end of int32 while the v1model program
            flagged an overflow.
        added, answered: packets that were added to a slot; frames that left.
    """

    def __init__(
        self, tna: TnaSlots, v1model: Switch, values: int, jobs: Sequence[Job],
        pool: str = "SlotsIngress.pool.",
    ) -> None:  # fmt: skip
        self.tna, self.v1model, self.layout = tna, v1model, Layout(values, "raw")
        self.registers = {
            name: v1model.registers[pool + name]
            for name in ("chunk", "worker_bitmap", "count", "exponent")
        }
        self.values: dict[int, list[int]] = {}
        self.marks: dict[int, int] = {}
        self.all_marks: dict[int, int] = {}  # with those of packets that came too late
        self.ends = self.added = self.answered = 0
        self.jobs = jobs
        node = 0
        for job in jobs:
            for line in job.commands(first_node=node, new_ports=node == 0):
                self.tna.command(line)
                self.v1model.command(line)
            node += len(job.members)

    def feed(self, packets: Sequence[Packet]) -> None:
        for port, frame in packets:
            self.one(port, frame)

    def one(self, port: int, frame: bytes) -> None:
        """Give one packet to both."""
        before = {name: cells.copy() for name, cells in self.registers.items()}
        counted = self.refusals()
        expected = self.v1model.process_batch(
            PacketBatch.from_packets([(port, frame)])
        ).to_packets()
        refused = self.refusals() - counted
        refused[LATE] = 0
        index = None
        if not refused.any():
            index = self._follow(frame, before)
        got = self.tna.process(port, frame)
        assert got == [(out, self._as_tna(frame, each, index)) for out, each in expected]
        self.answered += len(got)
        if expected:
            flagged = of(expected[0][1])[3] & OVERFLOW and not self.all_marks[index] & OVERFLOW
            at_end = sum(v in (MOST, LEAST) for v in numbers(got[0][1], self.layout.values))
            assert not flagged or at_end
            self.ends += at_end if flagged else 0

    def refusals(self) -> np.ndarray:
        return self.v1model.counters["SlotsIngress.dropped"].packets.astype(np.int64)

    def _follow(self, frame: bytes, before: dict[str, np.ndarray]) -> int:
        """What the TNA form's values and marks are after the packet, which was not refused."""
        operation, _, _, flags, _ = of(frame)
        index = self._index(frame)
        fresh = before["chunk"][index] != self.registers["chunk"][index]
        members, after = before["worker_bitmap"][index], self.registers["worker_bitmap"][index]
        given = numbers(frame, self.layout.values)
        if fresh:
            self.values[index] = given
            self.marks[index] = self.all_marks[index] = flags & MARKS
            self.added += 1
            return index
        self.all_marks[index] |= flags & MARKS
        if not int(members) >> 32 & CLOSED:
            self.marks[index] |= flags & MARKS
            if int(after) & 0xFFFFFFFF != int(members) & 0xFFFFFFFF:
                held = self.values[index]
                self.values[index] = [
                    _combined(operation, *each) for each in zip(held, given, strict=True)
                ]
                self.added += 1
        return index

    def _index(self, frame: bytes) -> int:
        """The slot and version of a packet that is admitted."""
        job, epoch = struct.unpack_from(">HH", frame, INNET + 4)
        [slot_base] = {
            each.slot_base for each in self.jobs if (each.number, each.epoch) == (job, epoch)
        }
        _, slot, version, _, _ = of(frame)
        return (slot_base | slot) << 1 | version

    def _as_tna(self, frame: bytes, answer: bytes, index: int | None) -> bytes:
        """The v1model program's answer, with the differences."""
        assert index is not None
        changed = bytearray(answer)
        changed[CHECKSUM] = frame[CHECKSUM]
        changed[FLAGS] = answer[FLAGS] & ~MARKS | self.marks[index]
        values = struct.pack(f">{self.layout.values}i", *self.values[index])
        changed[VALUES : VALUES + len(values)] = values
        return bytes(changed)

    def compare_state(self) -> None:
        """All registers, and the counts of refusals."""
        tna = {name.rsplit(".", 1)[-1]: each.cells for name, each in self.tna.registers.items()}
        for name in ("chunk", "chunk_newest"):
            words = [(c.owner & 0xFFFFFFFF) << 32 | c.sequence & 0xFFFFFFFF for c in tna[name]]
            assert words == [int(cell) for cell in self.registers["chunk"]]
        for index, cell in enumerate(self.registers["worker_bitmap"]):
            bitmap, signature = int(cell) & 0xFFFFFFFF, int(cell) >> 32
            decoded = (
                signature & 0xFFFF,  # message
                signature >> 28 & 7,  # operation
                signature >> 17 & 0x7FF,  # elements
                signature >> 16 & 1,  # closed
            )
            for name in ("members", "members_signature", "members_open"):
                held = tna[name][index]
                assert held.bitmap == bitmap
                signed = held.signature
                assert decoded == (
                    signed >> 16, signed >> 8 & 0xFF, signed >> 1 & 0x7F, signed & 1,
                )  # fmt: skip
        assert tna["count"] == [int(cell) for cell in self.registers["count"]]
        assert tna["exponent"] == [int(cell) for cell in self.registers["exponent"]]
        for index, marks in self.marks.items():
            assert tna["marks"][index] == marks
            assert self.held(index) == self.values[index]
        [counter] = self.tna.counters.values()
        expected = {
            reason: int(count)
            for reason, count in enumerate(self.refusals())
            if count and reason not in UNCOUNTED | {LATE}
        }
        assert dict(counter) == expected

    def held(self, index: int) -> list[int]:
        """The values that the TNA form's registers hold."""
        return [
            self.tna.registers[f"SlotsIngress.values.value{i}"].cells[index]
            for i in range(self.layout.values)
        ]


def _combined(operation: int, held: int, given: int) -> int:
    if operation == 1:
        return held if held in (MOST, LEAST) else max(LEAST, min(MOST, held + given))
    return held | given if operation == 2 else max(held, given)
