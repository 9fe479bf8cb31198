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
- Packets that are too short, or not innet's, are dropped uncounted. Late ones are not counted. Some
  packets are refused for another reason: ``OWN_REASONS``.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from innet.core.packets import PacketBatch
from innet.protocol.admission import Job
from innet.switch import Switch
from innet.wire import PacketLayout
from support.float_oracle import approximate_add, approximate_result, approximate_start

from .jobs import TnaJob
from .switch import RECIRCULATION_PORT

Packet = tuple[int, bytes]

MOST, LEAST = 2**31 - 1, -(2**31)
OVERFLOW, ECN, RESULT = 1, 8, 16
FLOAT32, INFINITY = 7, 0x7F800000
MARKS = OVERFLOW | ECN
CLOSED = 1 << 16
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
    """Both programs with the same tables.

    Attributes:
        ends: how often a value of an answer was at an end of int32 while the v1model program
            flagged an overflow.
        added, answered: packets that were added to a slot; frames that left.
    """

    CONTROL: str
    REGISTERS: tuple[str, ...]
    OWN_REASONS: set[tuple[int, int]]  # where it differs: the TNA form's, the v1model program's
    LATE: int
    ENDS_STAY = True
    NOTHING: Any = 0  # what a value's registers hold at first

    def __init__(self, tna: TnaJob, v1model: Switch, values: int, commands: Iterable[str]) -> None:
        self.tna, self.v1model, self.layout = tna, v1model, PacketLayout(values, "raw")
        self.registers = {
            name: v1model.registers[f"{self.CONTROL}.pool.{name}"] for name in self.REGISTERS
        }
        self.values: dict[int, list[Any]] = {}
        self.marks: dict[int, int] = {}
        self.all_marks: dict[int, int] = {}  # with those of packets that came too late
        self.ends = self.added = self.answered = 0
        for line in commands:
            self.tna.command(line)
            self.v1model.command(line)

    def feed(self, packets: Iterable[Packet]) -> None:
        for port, frame in packets:
            self.one(port, frame)

    def one(self, port: int, frame: bytes) -> None:
        """Give one packet to both."""
        before = {name: cells.copy() for name, cells in self.registers.items()}
        counted = self.refusals()
        batch = PacketBatch.from_packets([(port, frame)])
        expected = self.v1model.process_batch(batch).to_packets()
        refused = self.refusals() - counted
        refused[self.LATE] = 0
        index = None
        if not refused.any():
            index = self._follow(port, frame, before)
        [counter] = self.tna.counters.values()
        counted_by_tna = counter.copy()
        got = self.tna.process(port, frame)
        self._compare_reasons(counter - counted_by_tna, refused)
        assert got == [(out, self._as_tna(frame, each, index)) for out, each in expected]
        self.answered += len(got)
        if expected:
            flagged = of(expected[0][1])[3] & OVERFLOW and not self.all_marks[index] & OVERFLOW
            at_end = sum(v in (MOST, LEAST) for v in numbers(got[0][1], self.layout.values))
            assert not flagged or at_end or not self.ENDS_STAY
            self.ends += at_end if flagged else 0

    def lose_registers(self) -> None:
        """As a switch that starts again, with the tables that it had."""
        for cells in self.v1model.registers.values():
            cells[:] = 0
        for register in self.tna.registers.values():
            register.reset()
        for index, values in self.values.items():
            self.values[index] = [self.NOTHING] * len(values)
        for index in self.marks:
            self.marks[index] = self.all_marks[index] = 0

    def _compare_reasons(self, by_tna: Counter[int], refused: np.ndarray) -> None:
        reasons = [number for number in np.flatnonzero(refused).tolist() if number not in UNCOUNTED]
        assert by_tna.total() == len(reasons)
        for own, number in zip(by_tna, reasons, strict=True):
            assert own == number or (own, number) in self.OWN_REASONS

    def refusals(self) -> np.ndarray:
        return self.v1model.counters[f"{self.CONTROL}.dropped"].packets.astype(np.int64)

    def _follow(self, port: int, frame: bytes, before: dict[str, np.ndarray]) -> int:
        """What the TNA form's values and marks are after the packet, which was not refused."""
        operation, _, _, flags, _ = of(frame)
        index = self._index(frame)
        given = numbers(frame, self.layout.values)
        if self._is_fresh(port, frame, before, index):
            self.values[index] = [self._started(each) for each in given]
            self.marks[index] = self.all_marks[index] = flags & MARKS
            self.added += 1
            return index
        self.all_marks[index] |= flags & MARKS
        if self._is_open(before, index):
            self.marks[index] |= flags & MARKS
            if self._bitmap(self.registers, index) != self._bitmap(before, index):
                held = self.values[index]
                self.values[index] = [
                    self._combined(operation, *each) for each in zip(held, given, strict=True)
                ]
                self.added += 1
        return index

    def _is_fresh(self, port: int, frame: bytes, before: dict[str, np.ndarray], index: int) -> bool:
        """Whether the packet replaces what the slot held."""
        raise NotImplementedError

    def _is_open(self, before: dict[str, np.ndarray], index: int) -> bool:
        raise NotImplementedError

    def _bitmap(self, cells: dict[str, np.ndarray], index: int) -> int:
        raise NotImplementedError

    def _slot_base(self, job: int, epoch: int) -> int:
        raise NotImplementedError

    def _index(self, frame: bytes) -> int:
        """The slot and version of a packet that is admitted."""
        job, epoch = struct.unpack_from(">HH", frame, INNET + 4)
        _, slot, version, _, _ = of(frame)
        return (self._slot_base(job, epoch) | slot) << 1 | version

    def _as_tna(self, frame: bytes, answer: bytes, index: int | None) -> bytes:
        """The v1model program's answer, with the differences."""
        assert index is not None
        changed = bytearray(answer)
        changed[CHECKSUM] = frame[CHECKSUM]
        changed[FLAGS] = answer[FLAGS] & ~MARKS | self.marks[index]
        words = [self._result(each) for each in self.values[index]]
        changed[FLAGS] |= self._flags(words)
        values = struct.pack(f">{self.layout.values}I", *(each % 2**32 for each in words))
        changed[VALUES : VALUES + len(values)] = values
        return bytes(changed)

    def compare_state(self) -> None:
        """All registers."""
        tna = {name.rsplit(".", 1)[-1]: each.cells for name, each in self.tna.registers.items()}
        for name in ("chunk", "chunk_newest"):
            words = [(c.owner & 0xFFFFFFFF) << 32 | c.sequence & 0xFFFFFFFF for c in tna[name]]
            assert words == self._chunks()
        for name in ("members", "members_signature", "members_open"):
            assert [cell.bitmap for cell in tna[name]] == [
                self._bitmap(self.registers, index) for index in range(len(tna[name]))
            ]
            self._compare_signatures([cell.signature for cell in tna[name]])
        assert tna["count"] == self.registers["count"].tolist()
        assert tna["exponent"] == self.registers["exponent"].tolist()
        for index, marks in self.marks.items():
            assert tna["marks"][index] == marks
        for index, values in self.values.items():
            assert self.held(index) == values

    def _chunks(self) -> list[int]:
        """Job, epoch and sequence number of each slot."""
        raise NotImplementedError

    def _compare_signatures(self, signatures: list[int]) -> None:
        raise NotImplementedError

    # What there is of a value: here a number.

    def _started(self, given: int) -> Any:
        """What its registers hold after a chunk's first packet."""
        return given

    def _result(self, held: Any) -> int:
        """The word that a result has for it."""
        return int(held)

    def _flags(self, words: list[int]) -> int:
        """The flags of a result with these words, besides the marks."""
        return 0

    def held(self, index: int) -> list[Any]:
        """The values that the TNA form's registers hold."""
        return [
            self.tna.registers[f"{self.CONTROL}.values.value{i}"].cells[index]
            for i in range(self.layout.values)
        ]

    def _combined(self, operation: int, held: Any, given: int) -> Any:
        if operation == 1:
            return self.added_to(held, given)
        return held | given if operation == 2 else max(held, given)

    @staticmethod
    def added_to(held: int, given: int) -> int:
        """A sum that has left int32 stays at the end that it has reached."""
        return held if held in (MOST, LEAST) else max(LEAST, min(MOST, held + given))


class BesideSlots(Beside):
    CONTROL = "SlotsIngress"
    REGISTERS = ("chunk", "worker_bitmap", "count", "exponent")
    OWN_REASONS: ClassVar = set()
    LATE = 9

    def __init__(self, tna: TnaJob, v1model: Switch, values: int, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        commands: list[str] = []
        node = 0
        for job in jobs:
            commands += job.commands(first_node=node, new_ports=node == 0)
            node += len(job.members)
        super().__init__(tna, v1model, values, commands)

    def _is_fresh(self, port: int, frame: bytes, before: dict[str, np.ndarray], index: int) -> bool:
        return bool(before["chunk"][index] != self.registers["chunk"][index])

    def _is_open(self, before: dict[str, np.ndarray], index: int) -> bool:
        return not int(before["worker_bitmap"][index]) >> 32 & CLOSED

    def _bitmap(self, cells: dict[str, np.ndarray], index: int) -> int:
        return int(cells["worker_bitmap"][index]) & 0xFFFFFFFF

    def _slot_base(self, job: int, epoch: int) -> int:
        [slot_base] = {
            each.slot_base for each in self.jobs if (each.number, each.epoch) == (job, epoch)
        }
        return slot_base

    def _chunks(self) -> list[int]:
        return self.registers["chunk"].tolist()

    def _compare_signatures(self, signatures: list[int]) -> None:
        """Message, operation, elements, closed."""
        for cell, signature in zip(self.registers["worker_bitmap"], signatures, strict=True):
            held = int(cell) >> 32
            assert (held & 0xFFFF, held >> 28 & 7, held >> 17 & 0x7FF, held >> 16 & 1) == (
                signature >> 16, signature >> 8 & 0xFF, signature >> 1 & 0x7F, signature & 1,
            )  # fmt: skip


class BesideFloats(BesideSlots):
    """``fpisa``, whose TNA form adds approximately: packets have to carry sums of float32."""

    ENDS_STAY = False  # FLAG_OVERFLOW is of results that are not finite
    NOTHING = (0, 0)

    def _started(self, given: int) -> tuple[int, int]:
        return approximate_start(given % 2**32)

    def _combined(self, operation: int, held: tuple[int, int], given: int) -> tuple[int, int]:
        assert operation == FLOAT32
        return approximate_add(held, given % 2**32)

    def _result(self, held: tuple[int, int]) -> int:
        return approximate_result(held)

    def _flags(self, words: list[int]) -> int:
        return OVERFLOW if any(word & INFINITY == INFINITY for word in words) else 0

    def held(self, index: int) -> list[tuple[int, int]]:
        exponents = [
            self.tna.registers[f"{self.CONTROL}.values.exponent{i}"].cells[index]
            for i in range(self.layout.values)
        ]
        return list(zip(exponents, super().held(index), strict=True))


class BesideHarvest(BesideSlots):
    """A sum that has left int32 may come back from the end, unnoticed."""

    ENDS_STAY = False

    def held(self, index: int) -> list[int]:
        pairs = [self.tna.registers[f"HarvestIngress.values.pair{i}"] for i in range(32)]
        cells = [pair.cells[index] for pair in pairs]
        return [cell.low for cell in cells] + [cell.high for cell in cells]

    @staticmethod
    def added_to(held: int, given: int) -> int:
        return max(LEAST, min(MOST, held + given))


@dataclass
class Inside:
    """A packet between two passes: in the v1model program, and in the TNA form.

    Attributes:
        frame: as it came.
        passes: that it has made, of the v1model program.
        late: it came after its slot was closed.
        marks: of the slot, when the packet was in the last part.
        reads_more: the TNA form needs one pass more, to read the high words of the last part.
    """

    frame: bytes
    real: Any
    between: bytes
    passes: int
    index: int
    late: bool
    marks: int = 0
    reads_more: bool = False


class BesideHarvest256(BesideHarvest):
    """Pass by pass: packets between two passes wait in ``inside`` until ``go_on`` takes one.

    A packet that adds nothing to a sum or maximum, and any of an OR, takes one pass more in the TNA
    form: ``eager`` packets take it at once, others just before the v1model program's next pass.

    Marks are kept in the last part alone; those of late packets are not.
    """

    PARTS, PER_PART = 4, 64
    STEP_HIGH = 3
    values: dict[int, list[int]]  # of cells: slot, version and part

    def __init__(self, tna: TnaJob, v1model: Switch, jobs: Sequence[Job]) -> None:
        super().__init__(tna, v1model, self.PARTS * self.PER_PART, jobs)
        self.inside: list[Inside] = []
        self.overtaken = self.dropped = 0
        self.engine: Any = v1model._engine
        self.recirculated: list[Any] = []
        recirculate = self.engine._recirculate

        def wait(packet: Any) -> None:
            recirculate(packet)
            self.recirculated.append(self.engine._ingress.pop())

        self.engine._recirculate = wait

    def arrive(self, port: int, frame: bytes, *, eager: bool = True) -> None:
        """The first pass of a packet."""
        before = {name: cells.copy() for name, cells in self.registers.items()}
        self._pass(None, (port, frame), (port, frame), before, eager=eager)

    def go_on(self, number: int, *, eager: bool = True) -> None:
        """The next pass of packet ``number`` of those inside."""
        packet = self.inside.pop(number)
        before = {name: cells.copy() for name, cells in self.registers.items()}
        self.engine._ingress.append(packet.real)
        # The empty packet makes the engine run; it is dropped as such.
        self._pass(packet, (510, b""), (RECIRCULATION_PORT, packet.between), before, eager=eager)

    def lose(self, number: int) -> None:
        """Packet ``number`` is lost between two passes."""
        del self.inside[number]

    def one(self, port: int, frame: bytes) -> None:
        """All passes of a packet, undisturbed."""
        self.arrive(port, frame)
        while self.inside:
            self.go_on(len(self.inside) - 1)

    def _pass(
        self,
        packet: Inside | None,
        real: Packet,
        between: Packet,
        before: dict[str, np.ndarray],
        *,
        eager: bool,
    ) -> None:
        counted = self.refusals()
        answers = self.v1model.process([real])
        goes_on = bool(self.recirculated)
        refused = self.refusals() - counted
        refused[self.LATE] = 0
        if packet is not None:
            refused[2] -= 1  # the empty packet
        [counter] = self.tna.counters.values()
        counted_by_tna = counter.copy()
        got = self.tna.one_pass(*between)
        if packet is not None and packet.reads_more and got:
            got = self.tna.one_pass(RECIRCULATION_PORT, self._recirculated(got))
        self._compare_reasons(counter - counted_by_tna, refused)
        self.dropped += int(refused.any())
        self.overtaken += int(refused[10])
        if refused.any():
            assert (got, answers, goes_on) == ([], [], False)
            return
        if packet is None:
            index = self._index(between[1])
            late = self._is_late(between[1], before, index)
            packet = Inside(between[1], None, b"", 0, index, late)
        packet.passes += 1
        if packet.passes <= self.PARTS:
            self._add(packet, before)
        else:
            for name, cells in self.registers.items():
                np.testing.assert_array_equal(cells, before[name], name)
        if not goes_on:
            assert got == [(out, self._as_tna_result(packet, each)) for out, each in answers]
            self.answered += len(got)
            if got:
                sums = numbers(got[0][1], self.layout.values)
                self.ends += sum(value in (MOST, LEAST) for value in sums)
            return
        assert answers == []
        packet.between = self._recirculated(got)
        packet.reads_more = packet.passes == self.PARTS and self._step(packet) == self.STEP_HIGH
        if packet.reads_more and eager:
            got = self.tna.one_pass(RECIRCULATION_PORT, packet.between)
            packet.between = self._recirculated(got)
            packet.reads_more = False
        packet.real = self.recirculated.pop()
        self.inside.append(packet)

    @staticmethod
    def _recirculated(got: list[Packet]) -> bytes:
        assert [port for port, _ in got] == [RECIRCULATION_PORT]
        return got[0][1]

    def _step(self, packet: Inside) -> int:
        """What the next pass of the TNA form does: p4/tna/include/header.p4."""
        return packet.between[9] & 7

    def _cell(self, index: int, part: int) -> int:
        return index + part * len(self.registers["count"])

    def _is_late(self, frame: bytes, before: dict[str, np.ndarray], index: int) -> bool:
        [worker] = struct.unpack_from(">H", frame, INNET + 20)
        held = int(before["worker_bitmap"][index])
        return (
            not self._is_fresh(0, frame, before, index)
            and bool(held >> 32 & CLOSED)
            and not held >> worker & 1
        )

    def _add(self, packet: Inside, before: dict[str, np.ndarray]) -> None:
        """One of the first four passes."""
        part = packet.passes - 1
        at = self._cell(packet.index, part)
        operation, _, _, flags, _ = of(packet.frame)
        given = numbers(packet.frame, self.layout.values)[part * self.PER_PART :][: self.PER_PART]
        fresh = self._is_fresh(0, packet.frame, before, at)
        if fresh:
            self.values[at] = given
            self.added += 1
        elif self._bitmap(self.registers, at) != self._bitmap(before, at):
            held = self.values[at]
            self.values[at] = [
                self._combined(operation, *each) for each in zip(held, given, strict=True)
            ]
            self.added += 1
        if part == self.PARTS - 1:
            if fresh:
                self.marks[packet.index] = 0
            if not packet.late:
                self.marks[packet.index] |= flags & MARKS
            packet.marks = self.marks[packet.index]

    def _as_tna_result(self, packet: Inside, answer: bytes) -> bytes:
        changed = bytearray(answer)
        changed[CHECKSUM] = packet.frame[CHECKSUM]
        changed[FLAGS] = answer[FLAGS] & ~MARKS | packet.marks
        for part in range(self.PARTS):
            sums = self.values[self._cell(packet.index, part)]
            struct.pack_into(f">{len(sums)}i", changed, VALUES + 4 * self.PER_PART * part, *sums)
        return bytes(changed)

    def _compare_signatures(self, signatures: list[int]) -> None:
        """Message, operation, elements, closed."""
        for cell, signature in zip(self.registers["worker_bitmap"], signatures, strict=True):
            held = int(cell) >> 32
            assert (held & 0xFFFF, held >> 28 & 7, held >> 17 & 0x7FF, held >> 16 & 1) == (
                signature >> 16, signature >> 10 & 0x3F, signature >> 1 & 0x1FF, signature & 1,
            )  # fmt: skip


class BesideTree(Beside):
    CONTROL = "TreeIngress"
    REGISTERS = (
        "owner", "sequence", "chunk_signature", "state", "bitmap", "count", "exponent",
    )  # fmt: skip
    # A worker that sends a result, or a bitmap: nobody of that name is admitted.
    OWN_REASONS: ClassVar = {(5, 4), (5, 9)}
    LATE = 10

    def __init__(
        self, tna: TnaJob, v1model: Switch, values: int, commands: Sequence[str], slot_base: int
    ) -> None:
        self.slot_base = slot_base
        super().__init__(tna, v1model, values, commands)

    def _is_fresh(self, port: int, frame: bytes, before: dict[str, np.ndarray], index: int) -> bool:
        return bool(of(frame)[3] & RESULT) or any(
            before[name][index] != self.registers[name][index] for name in ("owner", "sequence")
        )

    def _is_open(self, before: dict[str, np.ndarray], index: int) -> bool:
        return not int(before["state"][index]) & 1

    def _bitmap(self, cells: dict[str, np.ndarray], index: int) -> int:
        return int(cells["bitmap"][index])

    def _slot_base(self, job: int, epoch: int) -> int:
        return self.slot_base

    def _chunks(self) -> list[int]:
        cells = (self.registers[name].tolist() for name in ("owner", "sequence"))
        return [owner << 32 | sequence for owner, sequence in zip(*cells, strict=True)]

    def _compare_signatures(self, signatures: list[int]) -> None:
        """Message, operation, elements; closed, holds the result, lacks workers."""
        cells = (self.registers[name].tolist() for name in ("chunk_signature", "state"))
        for held, state, signature in zip(*cells, signatures, strict=True):
            assert (held >> 16, held >> 12 & 15, held & 0xFFF, state) == (
                signature >> 16, signature >> 12 & 15, signature >> 3 & 0x1FF, signature & 7,
            )  # fmt: skip
