"""An independent model of the slot-pool switch program: frames in, frames out.

Written from the protocol's description with ``struct`` and plain Python, packet by packet, without
the P4 program, the switch model or ``innet.wire``. Only the numbers of the drop reasons are
those of the P4 program's counter.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from innet.core.packets import PacketBatch
from support.float_oracle import FORMATS, numbers_of, sums_of, words_of

Packet = tuple[int, bytes]

SUM, OR, MAX, REDUCE, BROADCAST, BARRIER = 1, 2, 3, 4, 5, 6
WITHOUT_VALUES = 0x80
OVERFLOW, ECN, RESULT, PARTIAL = 1, 8, 16, 32
INNET = struct.Struct(">HBBHHIHBBIHHHHHH")

NOT_INNET, TRUNCATED, CHECKSUM, MALFORMED, NOT_ADMITTED, SLOT_RANGE, STALE, MISMATCH, LATE = range(
    1, 10
)


@dataclass(frozen=True)
class Admitted:
    worker_bit: int
    full_bitmap: int
    group: int
    slot_base: int
    slot_mask: int


@dataclass
class Copy:
    """One copy of a slot."""

    sequence: int = 0
    bitmap: int = 0
    count: int = 0
    exponent: int = 0
    tenant: int = 0  # job and epoch
    owner: int = 0  # of the chunk, if it has one
    chunk_signature: int = 0  # all-reduce, operation and elements of the first packet
    closed: int = 0  # somebody asked for what was there
    marks: int = 0  # OVERFLOW and ECN, once seen
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint32))
    added: list[np.ndarray] = field(default_factory=list)  # the words of all who are in

    @property
    def chunk(self) -> int:
        """As the program's register of this name holds it."""
        return self.tenant << 32 | self.sequence

    @chunk.setter
    def chunk(self, cell: int) -> None:
        self.tenant, self.sequence = divmod(cell, 2**32)

    @property
    def worker_bitmap(self) -> int:
        """As the program's register of this name holds it."""
        return (self.chunk_signature | self.closed << 16) << 32 | self.bitmap


class Dropped(Exception):  # noqa: N818 - not an error: the switch drops and counts
    def __init__(self, reason: int) -> None:
        self.reason = reason


def ones_complement_sum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class SlotOracle:
    """The switch: ``command`` fills its tables, ``process`` and ``one`` run packets.

    ``has_owners``: it is the program of collectives, whose chunks may have an owner.
    ``adds_floats``: it is fpisa, which also adds floats.
    """

    def __init__(
        self,
        values: int,
        commands: Iterable[str] = (),
        *,
        has_owners: bool = False,
        adds_floats: bool = False,
    ) -> None:
        self.values = values
        self.has_owners = has_owners
        self.adds_floats = adds_floats
        self.admission: dict[tuple[int, int, int, int], Admitted] = {}
        self.nodes: list[tuple[int, int]] = []  # (egress port, replication id)
        self.groups: dict[int, list[tuple[int, int]]] = {}
        self.addresses: dict[int, tuple[bytes, bytes, int]] = {}
        self.copies: dict[int, Copy] = {}
        self.dropped: Counter[int] = Counter()
        for line in commands:
            self.command(line)

    # ---------------------------------------------------------------- control plane

    def command(self, line: str) -> None:
        """A control command in simple_switch_CLI's dialect, as far as jobs need them."""
        name, *words = line.split()
        if name == "table_add":
            table, _, *rest = words
            arrow = rest.index("=>")
            key, data = rest[:arrow], rest[arrow + 1 :]
            if table.endswith("admission"):
                port, job, epoch, worker = map(int, key)
                self.admission[port, job, epoch, worker] = Admitted(*map(int, data))
            else:
                mac, ip, udp_port = (int(word, 0) for word in data)
                self.addresses[int(key[0])] = (mac.to_bytes(6), ip.to_bytes(4), udp_port)
        elif name == "mc_mgrp_create":
            self.groups[int(words[0])] = []
        elif name == "mc_node_create":
            self.nodes.append((int(words[1]), int(words[0])))
        elif name == "mc_node_associate":
            self.groups[int(words[0])].append(self.nodes[int(words[1])])
        elif name == "register_write":
            slot, slot_version = divmod(int(words[1]), 2)
            register = words[0].rsplit(".", 1)[-1]
            setattr(self.copy(slot, slot_version), register, int(words[2]))
        else:
            raise ValueError(line)

    def copy(self, slot: int, slot_version: int, slot_base: int = 0) -> Copy:
        index = (slot_base | slot) * 2 + slot_version
        if index not in self.copies:
            self.copies[index] = Copy(values=np.zeros(self.values, np.uint32))
        return self.copies[index]

    # ---------------------------------------------------------------- data plane

    def process(self, batch: PacketBatch) -> PacketBatch:
        return PacketBatch.from_packets(
            answer for packet in batch.to_packets() for answer in self.one(*packet)
        )

    def one(self, port: int, frame: bytes) -> list[Packet]:
        try:
            offset = self.find_innet(frame)
            return self.aggregate(port, frame, offset)
        except Dropped as dropped:
            self.dropped[dropped.reason] += 1
            return []

    def find_innet(self, frame: bytes) -> int:
        """Where the innet header of a complete packet begins."""

        def part(start: int, size: int) -> bytes:
            if len(frame) < start + size:
                raise Dropped(TRUNCATED)
            return frame[start : start + size]

        ethertype = int.from_bytes(part(0, 14)[12:], "big")
        damaged = False
        is_innet = True
        offset = 14
        if ethertype == 0x0800:
            ip = part(14, 20)
            damaged = ones_complement_sum(ip) != 0xFFFF
            fragment = int.from_bytes(ip[6:8], "big") & 0x3FFF
            is_innet = ip[0] == 0x45 and ip[9] == 17 and fragment == 0
            is_innet = is_innet and int.from_bytes(part(34, 8)[2:4], "big") == 48879
            offset = 42
        elif ethertype != 0x88B5:
            is_innet = False
        if is_innet:
            is_innet = part(offset, 32)[:3] == b"IN\x03"
        if is_innet:
            whole = part(offset, 32 + self.body(frame[offset + 3]))
            # The checksum of a packet is never 0xFFFF, as its magic number is not 0.
            damaged = damaged or ones_complement_sum(whole) != 0xFFFF or whole[30:32] == b"\xff\xff"
        if damaged:
            raise Dropped(CHECKSUM)
        if not is_innet:
            raise Dropped(NOT_INNET)
        return offset

    def body(self, operation: int) -> int:
        """How many bytes of values a packet with this operation has."""
        return 0 if self.has_owners and operation & WITHOUT_VALUES else 4 * self.values

    def is_sane(self, operation: int, worker: int, owner: int) -> bool:
        """Whether an operation is known, and this worker sends values for it, or none."""
        if not self.has_owners or operation <= MAX:
            return operation in (SUM, OR, MAX) or (self.adds_floats and operation in FORMATS)
        sends = {REDUCE: worker != owner, BROADCAST: worker == owner, BARRIER: False}
        kind = operation % WITHOUT_VALUES
        return kind in sends and sends[kind] == (operation < WITHOUT_VALUES)

    def aggregate(self, port: int, frame: bytes, offset: int) -> list[Packet]:
        (
            magic,
            version,
            operation,
            job,
            epoch,
            sequence,
            slot,
            slot_version,
            flags,
            _bitmap,
            worker,
            _count,
            elements,
            exponent,
            message,
            _checksum,
        ) = INNET.unpack_from(frame, offset)
        sane = (
            self.is_sane(operation, worker, exponent)
            and slot_version in (0, 1)
            and 1 <= elements <= self.values
            and not flags & RESULT
        )
        if offset == 42:  # behind IPv4 and UDP, whose lengths must be those of a whole packet
            (total_length,) = struct.unpack_from(">H", frame, 16)
            (udp_length,) = struct.unpack_from(">H", frame, 38)
            udp = 8 + INNET.size + self.body(operation)
            sane = sane and (total_length, udp_length) == (20 + udp, udp)
        if not sane:
            raise Dropped(MALFORMED)
        admitted = self.admission.get((port, job, epoch, worker))
        if admitted is None:
            raise Dropped(NOT_ADMITTED)
        if slot & ~admitted.slot_mask:
            raise Dropped(SLOT_RANGE)
        held = self.copy(slot, slot_version, admitted.slot_base)
        tenant = job << 16 | epoch
        ahead = (sequence - held.sequence) % 2**32 if held.tenant == tenant else 1
        held.tenant = tenant
        if ahead >= 2**31:
            raise Dropped(STALE)
        start = offset + 32
        end = start + self.body(operation)
        words = np.frombuffer(frame[start:end], ">u4").astype(np.uint32)
        first = ahead > 0
        has_owner = self.has_owners and operation > MAX
        operation %= WITHOUT_VALUES
        if has_owner and first:
            held.owner = exponent
        elif has_owner and held.owner != exponent:
            raise Dropped(MISMATCH)
        signature = operation % 8 << 28 | operation // 8 << 27 | elements << 17 | message
        if not first and held.chunk_signature != signature:
            raise Dropped(MISMATCH)
        seen = not first and bool(held.bitmap & admitted.worker_bit)
        was_closed = not first and bool(held.closed)
        late = was_closed and not seen
        if late:
            self.dropped[LATE] += 1
        ecn = bool(flags & ECN) or (offset == 42 and frame[15] & 3 == 3)
        held.marks = (0 if first else held.marks) | (ECN if ecn else 0) | flags & OVERFLOW
        if first:
            held.sequence = sequence
            held.chunk_signature = signature
            held.bitmap, held.count, held.exponent = admitted.worker_bit, 1, exponent
            if operation != BARRIER:  # which leaves the values of another chunk there
                held.values = words if end > start else np.zeros(self.values, np.uint32)
            held.added = [words]
        elif not seen and not late:
            held.bitmap |= admitted.worker_bit
            held.count += 1
            held.exponent = max(held.exponent, exponent)
            if end > start and operation not in FORMATS:
                if operation in (SUM, REDUCE) and self.leaves_int32(held.values, words):
                    held.marks |= OVERFLOW
                held.values = self.combined(operation, held.values, words)
            held.added.append(words)
        held.closed = int(was_closed or bool(flags & PARTIAL))
        if operation in FORMATS:
            held.values = self.mantissas(held, operation)
        full = held.bitmap == admitted.full_bitmap
        if not full and not held.closed:
            return []
        result = held.values
        if operation in FORMATS:
            result, finite = self.floats(held, operation)
            held.marks |= 0 if finite else OVERFLOW
        result_flags = RESULT | held.marks | (0 if full else PARTIAL)

        def answer(egress: int, addressee: int) -> Packet:
            gets = {REDUCE: addressee == held.owner, BROADCAST: addressee != held.owner}
            bare = has_owner and not gets.get(operation, False)

            def header(checksum: int) -> bytes:
                return INNET.pack(
                    magic, version, operation | WITHOUT_VALUES * bare, job, epoch, sequence, slot,
                    slot_version, result_flags, held.bitmap, addressee, held.count, elements,
                    held.exponent, message, checksum,
                )  # fmt: skip

            body = b"" if bare else result.astype(">u4").tobytes()
            outer = self.addressed(frame[:offset], egress, 32 + len(body))
            checksum = ones_complement_sum(header(0) + body) ^ 0xFFFF
            return egress, outer + header(checksum) + body + frame[end:]

        known = seen or late if full else was_closed
        if known:
            return [answer(port, worker)]
        return [answer(egress, replica) for egress, replica in self.groups[admitted.group]]

    @staticmethod
    def mantissas(held: Copy, operation: int) -> np.ndarray:
        """As the registers hold them: of two numbers in a word, that of the first."""
        sums = sums_of(operation, held.added)
        per_word = len(sums) // len(held.added[0])
        return np.array([each.mantissa % 2**32 for each in sums[::per_word]], np.uint32)

    @staticmethod
    def floats(held: Copy, operation: int) -> tuple[np.ndarray, bool]:
        """The words of the sums, and whether all are finite."""
        sums = sums_of(operation, held.added)
        words = np.array(words_of(operation, sums, held.sequence), np.uint32)
        infinity = sums[0].last << sums[0].fraction
        return words, all(bits & infinity != infinity for bits in numbers_of(operation, words))

    @staticmethod
    def leaves_int32(held: np.ndarray, words: np.ndarray) -> bool:
        total = held.astype(np.int32).astype(np.int64) + words.astype(np.int32)
        return bool(((total < -(2**31)) | (total >= 2**31)).any())

    @staticmethod
    def combined(operation: int, held: np.ndarray, words: np.ndarray) -> np.ndarray:
        if operation in (SUM, REDUCE):
            return ((held.astype(np.uint64) + words) % 2**32).astype(np.uint32)
        if operation in (OR, BROADCAST):
            return held | words
        return np.where(held.astype(np.int32) > words.astype(np.int32), held, words)

    def addressed(self, outer: bytes, egress: int, inner: int) -> bytes:
        """The headers before ``inner`` bytes of innet's, from the address the worker spoke to, to
        ``egress``.
        """
        if egress in self.addresses:
            mac, ip, udp_port = self.addresses[egress]
            ethernet = mac + outer[:6] + outer[12:14]
            rest = outer[14:]
            if rest:
                rest = (
                    rest[:12]
                    + rest[16:20]
                    + ip
                    + struct.pack(">HH", 48879, udp_port)
                    + rest[24:26]
                    + bytes(2)
                )
        else:
            ethernet, rest = outer[:14], outer[14:]
        if rest:
            rest = (
                rest[:2]
                + struct.pack(">H", 28 + inner)
                + rest[4:24]
                + struct.pack(">H", 8 + inner)
                + rest[26:]
            )
            blank = rest[:10] + bytes(2) + rest[12:20]
            checksum = ones_complement_sum(blank) ^ 0xFFFF
            rest = rest[:10] + struct.pack(">H", checksum) + rest[12:]
        return ethernet + rest
