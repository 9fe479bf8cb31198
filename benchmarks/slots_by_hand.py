"""The slot pool written by hand: what ``p4/slots.p4`` does, as one Numba loop over batches.

With ``floats`` also what ``p4/fpisa.p4`` does with float32.

No P4, no tables, no general switch: the bar that the compiled program is measured against. It makes
the same checks in the same order, keeps the same state, counts the same drops and writes the
same packets; ``benchmarks.switch`` compares the two byte by byte.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from innet.core.packets import PacketBatch
from innet.protocol.admission import Job
from innet.switch.jit.runtime.core import (
    copy,
    get,
    load8,
    load16,
    load32,
    opaque,
    put,
    store8,
    store16,
    store32,
)
from innet.switch.jit.runtime.hashes import folded

SLOTS = 1024
ETHERNET, IPV4, UDP, INNET = 14, 20, 8, 32
UDP_PORT = 48879
OVERFLOW, ECN, RESULT, PARTIAL = 1, 8, 16, 32
SUM, OR, MAX, FLOAT32 = 1, 2, 3, 7
# Why a packet was dropped, by the numbers of slots.p4.
NOT_INNET, TRUNCATED, CHECKSUM, MALFORMED, NOT_ADMITTED, SLOT_RANGE, STALE, MISMATCH, LATE = range(
    1, 10
)
# Columns of the state of a slot's copy.
OWNER, SEQUENCE, SIGNATURE, BITMAP, COUNT, EXPONENT, CLOSED, MARKS = range(8)
FIELDS = 8
# Columns of what a worker is admitted to.
BIT, WORKERS, BASE, MASK = range(4)
PLACES = 1024  # of the hash table of workers

# Without Numba's counting of references to arrays, which the compiled program does not have either:
# with it this loop takes almost three times as long.
_OPTIONS: dict[str, Any] = {"forceinline": True, "nogil": True, "cache": True, "_nrt": False}
kernel: Any = numba.njit(boundscheck=False, error_model="numpy", **_OPTIONS)


class SlotsByHand:
    """A switch that can do nothing but run the slot pool, for one job.

    Args:
        job: who is admitted.
        values: per packet.
        floats: values may be float32. A cell has the mantissas of its sums, then their scales.
    """

    def __init__(self, job: Job, values: int, *, floats: bool = False) -> None:
        self.values = values
        self.last = FLOAT32 if floats else MAX
        self.rounded = np.zeros(values, np.uint32)
        self.pool = np.zeros(2 * SLOTS * FIELDS, np.int64)
        self.sums = np.zeros(2 * SLOTS * values * (2 if floats else 1), np.uint32)
        self.dropped = np.zeros((10, 2), np.int64)
        self.keys = np.full(PLACES, -1, np.int64)
        self.admitted = np.zeros(PLACES * 4, np.int64)
        self.addresses = np.zeros(512 * 3, np.int64)
        for worker, member in enumerate(job.members):
            key = member.port << 48 | job.number << 32 | job.epoch << 16 | worker
            place = place_of(key)
            while self.keys[place] >= 0:
                place = (place + 1) % PLACES
            self.keys[place] = key
            self.admitted[4 * place :][:4] = (
                1 << worker,
                len(job.members),
                job.slot_base,
                job.slots - 1,
            )
            end = member.endpoint
            mac = int.from_bytes(end.mac_bytes, "big")
            self.addresses[3 * member.port :][:3] = (mac, end.ip_number, end.udp_port)
        self.ports = np.array([member.port for member in job.members], np.int64)
        self._out = (np.empty((0, 0), np.uint8), np.empty(0, np.int32), np.empty(0, np.int32))

    def process_batch(self, batch: PacketBatch) -> PacketBatch:
        """What leaves the switch; valid until the next call.

        Raises:
            ValueError: the batch led to more packets than it holds, which one job's traffic cannot.
        """
        room = len(batch) + len(self.ports)
        if self._out[0].shape != (room, batch.data.shape[1]):
            self._out = (
                np.empty((room, batch.data.shape[1]), np.uint8),
                np.empty(room, np.int32),
                np.empty(room, np.int32),
            )
        state = (self.pool, self.sums, self.dropped)
        job = (self.keys, self.admitted, self.addresses, self.ports)
        kind = (self.values, self.last, self.rounded)
        produced = run(batch.data, batch.length, batch.port, *self._out, *kind, *state, *job)
        if produced < 0:
            raise ValueError("more packets leave than came in: repeated requests for results")
        data, length, port = self._out
        return PacketBatch(data[:produced], length[:produced], port[:produced])


@kernel
def place_of(key: int) -> int:
    """Where the search for a worker begins."""
    return (key * 0x9E3779B97F4A7C1) >> 40 & (PLACES - 1)


@kernel
def header_sum(data: Any, start: int) -> Any:
    """The sum of an IPv4 header's ten 16-bit words, not folded."""
    first, second, third = load32(data, start), load32(data, start + 4), load32(data, start + 8)
    return first + second + third + load32(data, start + 12) + load32(data, start + 16)


@kernel
def packet_sum(data: Any, start: int, values: int) -> Any:
    """The sum of the 16-bit words of an innet header and its values, not folded."""
    total = 0
    words = opaque(INNET // 4 + values)
    for k in range(words):
        total += load32(data, start + 4 * k)
    return total


@kernel
def find(data: Any, base: int, size: int, values: int) -> int:  # noqa: PLR0911 - one per check
    """The offset of the innet header in a whole packet, or minus the reason to drop it."""
    if size < ETHERNET:
        return -TRUNCATED
    kind = load16(data, base + 12)
    if kind == 0x88B5:
        offset, damaged = ETHERNET, False
    elif kind != 0x0800:
        return -NOT_INNET
    else:
        if size < ETHERNET + IPV4:
            return -TRUNCATED
        ip = base + ETHERNET
        damaged = folded(header_sum(data, ip)) != 0
        plain = load8(data, ip) == 0x45 and load16(data, ip + 6) & 0x3FFF == 0
        if not plain or load8(data, ip + 9) != 17:
            return -CHECKSUM if damaged else -NOT_INNET
        if size < ETHERNET + IPV4 + UDP:
            return -TRUNCATED
        offset = ETHERNET + IPV4 + UDP
        if load16(data, ip + IPV4 + 2) != UDP_PORT:
            return -CHECKSUM if damaged else -NOT_INNET
    if size < offset + INNET:
        return -TRUNCATED
    if load32(data, base + offset) >> 8 != 0x494E03:
        return -CHECKSUM if damaged else -NOT_INNET
    if size < offset + INNET + 4 * values:
        return -TRUNCATED
    damaged |= folded(packet_sum(data, base + offset, values)) != 0
    damaged |= load16(data, base + offset + 30) == 0xFFFF  # means 0, and is not what is sent
    return -CHECKSUM if damaged else offset


@kernel
def well_formed(  # noqa: PLR0917 - a kernel
    data: Any, base: int, at: int, offset: int, values: int, last: int
) -> Any:
    """Whether a worker could have sent the innet header at ``at``."""
    operation, elements = load8(data, at + 3), load16(data, at + 24)
    sane = SUM <= operation <= MAX or operation == last
    sane &= 1 <= elements <= values
    sane &= load8(data, at + 14) <= 1 and load8(data, at + 15) & RESULT == 0
    if offset != ETHERNET:
        udp = UDP + INNET + 4 * values
        sane &= load16(data, base + ETHERNET + IPV4 + 4) == udp
        sane &= load16(data, base + ETHERNET + 2) == udp + IPV4
    return sane


@kernel
def add_floats(  # noqa: PLR0917 - a kernel
    data: Any, at: int, sums: Any, row: int, values: int, fresh: bool
) -> None:
    """Add float32 numbers to sums: unpack, align, add."""
    one, two = np.uint32(1), np.uint32(2)
    for k in range(values):
        word = np.uint32(load32(data, at + 4 * k))
        exponent = np.uint32(np.uint32(word >> np.uint32(23)) & np.uint32(0xFF))
        fraction = np.uint32(word & np.uint32(0x7FFFFF))
        special = np.uint32(0x200) if word >> np.uint32(31) else np.uint32(0x100)
        special = np.uint32(0x300) if fraction else special
        special = special if exponent == 255 else np.uint32(0)
        significand = fraction | np.uint32(0x800000) if exponent else fraction
        mantissa = np.int32(np.uint32(significand << two))
        mantissa = -mantissa if word >> np.uint32(31) else mantissa
        exponent = max(exponent, one)
        total = np.int32(0) if fresh else np.int32(get(sums, row + k))
        held = np.uint32(0) if fresh else np.uint32(get(sums, row + values + k))
        largest = np.uint32(held & np.uint32(0xFF))
        scale = max(exponent, largest)
        rise, fall = min(scale - largest, np.uint32(31)), min(scale - exponent, np.uint32(31))
        total = np.int32(np.int32(total >> np.int32(rise)) + np.int32(mantissa >> np.int32(fall)))
        put(sums, row + k, np.uint32(total))
        put(sums, row + values + k, np.uint32(scale | held & np.uint32(0x300) | special))


@kernel
def round_floats(sums: Any, row: int, values: int, rounded: Any) -> Any:
    """Make float32 numbers of sums; OVERFLOW if not all are finite, else 0."""
    one, infinity = np.uint32(1), np.uint32(0x7F800000)
    flags = np.uint32(0)
    for k in range(values):
        total, held = np.uint32(get(sums, row + k)), np.uint32(get(sums, row + values + k))
        size = np.uint32(np.uint32(0) - total) if total >> np.uint32(31) else total
        top = np.uint32(16) if size > 0xFFFF else np.uint32(0)
        for bits, step in ((0xFF, 8), (0xF, 4), (3, 2), (1, 1)):
            top = np.uint32(top + np.uint32(step)) if np.uint32(size >> top) > bits else top
        largest = np.uint32(held & np.uint32(0xFF))
        highest = np.uint32(top + largest) if size else np.uint32(0)
        exponent = np.uint32(highest - np.uint32(26)) if highest > 26 else np.uint32(0)
        by = np.int32(np.int32(exponent) + np.int32(3) - np.int32(largest))
        right, left = np.uint32(max(by, np.int32(0))), np.uint32(max(-by, np.int32(0)))
        odd = np.uint32(np.uint32(size >> right) & one)
        half = np.uint32(np.uint32(np.uint32(one << right) - one + odd) >> one)
        field = np.uint32(np.uint32(np.uint32(size + half) >> right) << left)
        field = min(np.uint32(field + np.uint32(exponent << np.uint32(23))), infinity)
        special = np.uint32(0x80000000) if held >= 0x200 else np.uint32(0)
        special = np.uint32(0x400000) if held >= 0x300 else special
        sign = np.uint32(total & np.uint32(0x80000000))
        field = np.uint32(field | sign if held < 0x100 else infinity | special)
        flags |= one if field & infinity == infinity else np.uint32(0)
        put(rounded, k, field)
    return np.int64(flags)


@kernel
def combine(  # noqa: PLR0917 - a kernel
    data: Any, at: int, sums: Any, row: int, values: int, operation: int, fresh: bool
) -> Any:
    """Put a packet's values into a slot, whose own begin at ``row``; OVERFLOW or 0."""
    signs = np.uint32(0)
    values = opaque(values)
    if operation == FLOAT32:
        add_floats(data, at, sums, row, values, fresh)
    elif fresh:
        for k in range(values):
            put(sums, row + k, load32(data, at + 4 * k))
    elif operation == SUM:
        for k in range(values):
            held, word = np.uint32(get(sums, row + k)), np.uint32(load32(data, at + 4 * k))
            total = np.uint32(held + word)
            signs |= (held ^ total) & (word ^ total)
            put(sums, row + k, total)
    elif operation == OR:
        for k in range(values):
            put(sums, row + k, get(sums, row + k) | load32(data, at + 4 * k))
    else:
        for k in range(values):
            one, other = np.int32(get(sums, row + k)), np.int32(load32(data, at + 4 * k))
            put(sums, row + k, max(one, other))
    return np.int64(signs) >> 31


@kernel
def answer(  # noqa: PLR0917 - a kernel
    data: Any, base: int, size: int, offset: int, out: Any, to: int, addresses: Any,
    port: int, addressee: int, flags: int, pool: Any, held: int, sums: Any, row: int, values: int,
) -> None:  # fmt: skip
    """Write the result of a slot, addressed to one worker."""
    copy(out, to, data, base, offset + INNET)
    address = 3 * port
    if get(addresses, address + 2) != 0:
        mac = get(addresses, address)
        store32(out, to, mac >> 16)
        store16(out, to + 4, mac)
        copy(out, to + 6, data, base, 6)
        if offset != ETHERNET:
            ip = to + ETHERNET
            copy(out, ip + 12, data, base + ETHERNET + 16, 4)
            store32(out, ip + 16, get(addresses, address + 1))
            store16(out, ip + IPV4, UDP_PORT)
            store16(out, ip + IPV4 + 2, get(addresses, address + 2))
            store16(out, ip + IPV4 + 6, 0)
    if offset != ETHERNET:
        ip = to + ETHERNET
        store16(out, ip + 10, 0)
        store16(out, ip + 10, folded(header_sum(out, ip)))
    head = to + offset
    store8(out, head + 15, flags)
    store32(out, head + 16, get(pool, held + BITMAP))
    store16(out, head + 20, addressee)
    store16(out, head + 22, get(pool, held + COUNT))
    store16(out, head + 26, get(pool, held + EXPONENT))
    store16(out, head + 30, 0)
    start = head + INNET
    values = opaque(values)
    for k in range(values):
        store32(out, start + 4 * k, get(sums, row + k))
    store16(out, head + 30, folded(packet_sum(out, head, values)))
    tail = offset + INNET + 4 * values
    if size > tail:
        copy(out, to + tail, data, base + tail, size - tail)


@kernel
def aggregate(  # noqa: PLR0917 - a kernel
    data: Any, base: int, offset: int, place: int, admitted: Any, pool: Any, sums: Any, values: int,
    cells: int,
) -> Any:  # fmt: skip
    """Take one admitted packet into its slot: (drop reason or 0, index, known).

    A result is *known* if an earlier packet made it, and this one asks for it again, or comes late.
    """
    at = base + offset
    slot = load16(data, at + 12)
    if slot & ~get(admitted, place + MASK):
        return SLOT_RANGE, 0, False
    index = (get(admitted, place + BASE) | slot) << 1 | load8(data, at + 14)
    held = index * FIELDS
    owner, sequence = load32(data, at + 4), load32(data, at + 8)
    age = (sequence - get(pool, held + SEQUENCE)) & 0xFFFFFFFF
    if get(pool, held + OWNER) != owner:
        age = 1
    put(pool, held + OWNER, owner)
    if age >= 1 << 31:
        return STALE, 0, False
    fresh = age != 0
    put(pool, held + SEQUENCE, sequence)
    operation = load8(data, at + 3)
    signature = load16(data, at + 28) << 16 | (operation & 15) << 12 | load16(data, at + 24) & 0xFFF
    exponent, flags = load16(data, at + 26), load8(data, at + 15)
    bitmap, count = get(pool, held + BITMAP), get(pool, held + COUNT)
    closed, marks = get(pool, held + CLOSED), get(pool, held + MARKS)
    if fresh:
        put(pool, held + SIGNATURE, signature)
        bitmap, count, closed, marks = 0, 0, 0, 0
    elif get(pool, held + SIGNATURE) != signature:
        return MISMATCH, 0, False
    bit = get(admitted, place + BIT)
    marks |= flags & (OVERFLOW | ECN)
    if offset != ETHERNET and load8(data, base + ETHERNET + 1) & 3 == 3:
        marks |= ECN
    seen = bitmap & bit != 0
    late = closed != 0 and not seen
    if not seen and not late:
        count += 1
        put(pool, held + BITMAP, bitmap | bit)
        put(pool, held + COUNT, count)
        if fresh or exponent > get(pool, held + EXPONENT):
            put(pool, held + EXPONENT, exponent)
        marks |= combine(data, at + INNET, sums, index * cells, values, operation, fresh)
    put(pool, held + CLOSED, 1 if closed != 0 or flags & PARTIAL else 0)
    put(pool, held + MARKS, marks)
    known = seen or late if count == get(admitted, place + WORKERS) else closed != 0
    return LATE if late else 0, index, known


@kernel
def run(  # noqa: PLR0912, PLR0917 - a kernel
    data: Any, length: Any, port: Any, out: Any, out_length: Any, out_port: Any, values: int,
    last: int, rounded: Any, pool: Any, sums: Any, dropped: Any, keys: Any, admitted: Any,
    addresses: Any, ports: Any,
) -> int:  # fmt: skip
    """How many packets leave; -1 when there is no room for them."""
    stride, out_stride = data.shape[1], out.shape[1]
    cells = len(sums) // (2 * SLOTS)
    produced = 0
    for i in range(len(length)):
        base, size = i * stride, np.int64(length[i])
        offset = find(data, base, size, values)
        reason, index, known = max(-offset, 0), 0, False
        if reason == 0:
            at = base + offset
            if not well_formed(data, base, at, offset, values, last):
                reason = MALFORMED
            else:
                key = np.int64(port[i]) << 48 | load32(data, at + 4) << 16 | load16(data, at + 20)
                place = place_of(key)
                while get(keys, place) >= 0 and get(keys, place) != key:
                    place = (place + 1) & (PLACES - 1)
                if get(keys, place) != key:
                    reason = NOT_ADMITTED
                else:
                    reason, index, known = aggregate(
                        data, base, offset, 4 * place, admitted, pool, sums, values, cells
                    )
        if reason != 0:
            dropped[reason, 0] += 1
            dropped[reason, 1] += size
            if reason != LATE:
                continue
        held = index * FIELDS
        full = get(pool, held + COUNT) == len(ports)
        if not full and get(pool, held + CLOSED) == 0:
            continue
        source, row = sums, index * cells
        if load8(data, base + offset + 3) == FLOAT32:
            over = round_floats(sums, row, opaque(values), rounded)
            put(pool, held + MARKS, get(pool, held + MARKS) | over)
            source, row = rounded, 0
        flags = RESULT | get(pool, held + MARKS) | (0 if full else PARTIAL)
        copies = 1 if known else len(ports)
        if produced + copies > len(out_length):
            return -1
        for number in range(copies):
            leaves = np.int64(port[i]) if known else get(ports, number)
            addressee = load16(data, base + offset + 20) if known else number
            to = produced * out_stride
            answer(
                data, base, size, offset, out, to, addresses, leaves, addressee, flags, pool, held,
                source, row, values,
            )  # fmt: skip
            out_length[produced] = size
            out_port[produced] = leaves
            produced += 1
    return produced
