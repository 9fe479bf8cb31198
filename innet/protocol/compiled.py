"""How a worker's end takes received packets and fills frames, in compiled code.

It is compiled at import, so that no packet waits for it. Import this module only where a worker is
made, since importing Numba takes longer than most commands. ``tests/support/naive_answers.py`` does
the same in NumPy.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.reduce_op import CollectiveOp
from innet.protocol.counters import Stats
from innet.protocol.timers import PACE_REORDERING, SLOTS, TIMERS, TimerState, hear, overtake
from innet.wire import CONGESTED, HEADER, WITHOUT_VALUES, HeaderFlag
from innet.wire.compiled import (
    check_frame,
    check_headers,
    read_checked,
    read_floats,
    write_floats,
    write_values,
)
from innet.wire.layout import offset_of

MemberWords: TypeAlias = NDArray[np.int64]
"""A worker in an all-reduce: job, epoch, index, number of workers present, first chunk, chunk after
the last, and offset of the type of service in frames (-1: none)."""

_ANSWER, _UNREADABLE, _NOT_A_RESULT, _JOB, _EPOCH, _WORKER, _COUNT, _SLOT = range(8)
_DUPLICATE, _SEQUENCE, _SLOT_VERSION, _OPERATION, _ELEMENTS = range(8, 13)
_RESULT, _PARTIAL, _ECN = int(HeaderFlag.RESULT), int(HeaderFlag.PARTIAL), int(HeaderFlag.ECN)
_IDLE, _QUEUED, _WAITING = range(3)  # innet.protocol.slot_client.SlotState
_REFUSED, _FLAGS, _IN_QUEUE, _MARKED = Stats.REFUSED, Stats.FLAGS, Stats.QUEUED, Stats.MARKED
_SHORT = Stats.SHORT
_CONGESTED = int(CONGESTED)
_HEADER_BYTES = HEADER.itemsize
_BARE, _REDUCE, _BROADCAST = WITHOUT_VALUES, int(CollectiveOp.REDUCE), int(CollectiveOp.BROADCAST)
_UDP_AT = 42  # where the innet header begins in UDP over IPv4
_AT_IP_LENGTH, _AT_IP_CHECKSUM, _AT_UDP_LENGTH = 16, 24, 38

_AT_OPERATION, _AT_JOB, _AT_EPOCH = offset_of("operation"), offset_of("job"), offset_of("epoch")
_AT_SEQUENCE, _AT_SLOT, _AT_VERSION = (
    offset_of("sequence"),
    offset_of("slot"),
    offset_of("slot_version"),
)
_AT_FLAGS, _AT_WORKER, _AT_COUNT = offset_of("flags"), offset_of("worker"), offset_of("count")
_AT_ELEMENTS, _AT_BITMAP = offset_of("elements"), offset_of("bitmap")
_AT_OWNER = offset_of("exponent")
_NAMES = ((_AT_JOB, _JOB), (_AT_EPOCH, _EPOCH), (_AT_WORKER, _WORKER))


@njit("i8(u1[::1], i8)", cache=True, nogil=True)
def _short(header: Any, offset: int) -> Any:
    return np.int64(header[offset]) << 8 | np.int64(header[offset + 1])


@njit("i8(u1[::1], i8)", cache=True, nogil=True)
def _long(header: Any, offset: int) -> Any:
    return _short(header, offset) << 16 | _short(header, offset + 2)


@njit(inline="always", nogil=True)
def _addressed(header: Any, member: Any, window: int) -> int:
    """Whether a packet is a result, complete or partial, for this worker; a PacketVerdict."""
    flags = header[_AT_FLAGS]
    if flags & _RESULT == 0:
        return _NOT_A_RESULT
    for index, (offset, verdict) in enumerate(_NAMES):
        if _short(header, offset) != member[index]:
            return verdict
    if _short(header, _AT_COUNT) != member[3] and flags & _PARTIAL == 0:
        return _COUNT
    return _ANSWER if _short(header, _AT_SLOT) < window else _SLOT


@njit("i8(u1[::1], i8, i8)", cache=True, nogil=True)
def _awaited(header: Any, chunk: int, state: int) -> int:
    """Whether a slot in ``state`` waits for a packet; a PacketVerdict."""
    # 32-bit serial arithmetic; the sequence of a chunk is one more than its number.
    distance = _long(header, _AT_SEQUENCE) - chunk - 1
    ahead = (distance + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000
    if ahead == 0 and state == _WAITING:
        return _ANSWER
    if ahead < 0 or (ahead == 0 and state == _IDLE):
        return _DUPLICATE
    return _SEQUENCE


@njit("u1(u1)", cache=True, nogil=True)
def result_of(operation: Any) -> Any:
    """The operation byte of a chunk's result, by that of the worker's own packet: who has sent
    values for others gets none, and the other way round.
    """
    kind = operation & 0x7F
    has_values_one_way = _REDUCE <= kind <= _BROADCAST  # a set would be made each time
    return np.uint8(operation ^ _BARE if has_values_one_way else operation)


@njit(inline="always", nogil=True)
def _judged(header: Any, member: Any, slots: Any, asked: Any, is_whole: bool) -> int:
    """The PacketVerdict for a readable packet, which has values or ends with the header."""
    chunk, state = slots
    window = len(chunk)
    found = _addressed(header, member, window)
    if found != _ANSWER:
        return int(found)
    slot = _short(header, _AT_SLOT)
    found = _awaited(header, chunk[slot], state[slot])
    if found != _ANSWER:
        return int(found)
    operation, elements = asked
    # A chunk that is waited for was sent, so it belongs to this all-reduce.
    index = chunk[slot] - member[4]
    if header[_AT_VERSION] != (chunk[slot] // window & 1):
        return _SLOT_VERSION
    found = header[_AT_OPERATION]
    if found != result_of(operation[index]) or (found & _BARE == 0) != is_whole:
        return _OPERATION
    return _ANSWER if _short(header, _AT_ELEMENTS) == elements[index] else _ELEMENTS


_TAKE = (
    f"i8(Tuple((u1[:,::1], i4[::1])), Tuple((i8[:,::1], i8[::1])), Tuple(({SLOTS}, {TIMERS})),"
    " Tuple((u1[::1], u2[::1], i4[:,::1], u4[::1], f4[::1], f8[::1], i4[::1])),"
    " Tuple((i8[::1], f8[::1])))"
)


@njit(inline="always", nogil=True)
def take_frame(  # noqa: PLR0917 - compiled functions are called by position
    frame: NDArray[np.uint8],
    length: int,
    terms: tuple[NDArray[np.int64], MemberWords],
    slots: tuple[tuple[NDArray[Any], ...], TimerState],
    chunks: tuple[NDArray[Any], ...],
    notes: tuple[NDArray[np.int64], NDArray[np.float64]],
) -> int:
    """``take`` of one packet, within the caller: its arguments are too many to be handed over."""
    rules, member = terms
    (chunk, state, queue), timers = slots
    sends, first_sent, _, _, resend_at, give_up_at, _, _ = timers
    operation, elements, words, who, sums, numbers, places = chunks
    stats, clock = notes
    at = rules[0, 1]
    window = len(chunk)
    verdict, number, slot, index, place, is_read = _ANSWER, 0, 0, 0, 0, False
    header = frame[at : at + _HEADER_BYTES]
    is_whole = length == rules[0, 4]
    stats[_SHORT] += length < rules[0, 4]
    # Step 1: does it answer a chunk that waits?
    if check_headers(frame, length, rules) == 0:
        # Of a frame that answers a chunk, values are read and summed at once. Where the sum is
        # wrong, the chunk is still waited for, and its values are written again.
        verdict = _judged(header, member, (chunk, state), (operation, elements), is_whole)
        if verdict == _ANSWER:
            slot = _short(header, _AT_SLOT)
            number = chunk[slot]
            index = number - member[4]
            place = index if len(places) == 0 else int(places[index])
            row = words[place % len(words)]
            is_read = (
                read_checked(frame, at, row) if is_whole else check_frame(frame, length, rules) == 0
            )
    if not is_read:
        reason = check_frame(frame, length, rules)
        if reason != 0:
            verdict = _UNREADABLE
            stats[_REFUSED + reason] += 1
        stats[verdict] += 1
        return 0
    # Step 2: the result, and what its flags say.
    stats[_ANSWER] += 1
    if len(sums) > 0:  # while the words are in the cache
        first = place * words.shape[1]
        read_floats(row, numbers[1], sums[first : first + words.shape[1]])
    who[index] = _long(header, _AT_BITMAP)
    flags = np.int64(header[_AT_FLAGS])
    stats[_FLAGS] |= flags
    congested = member[6] >= 0 and frame[member[6]] & _CONGESTED == _CONGESTED
    if flags & _ECN != 0 or congested:
        stats[_MARKED] = max(stats[_MARKED], number)
    # Step 3: what the timers learn from it. Which chunk that was answered was sent last: chunks
    # before it may be lost (RFC 8985, section 6.2, step 2). And the round trip, of chunks that were
    # sent only once (Karn's algorithm, RFC 6298, section 3).
    sent = first_sent[slot]
    if (sends[slot] == 1 or number == member[5] - 1) and (
        sent > clock[3] or (sent == clock[3] and number > clock[4])
    ):
        clock[3], clock[4] = sent, number
    waited = clock[0] - sent
    if sends[slot] == 1 and (index >= window or waited <= clock[1]):
        clock[2] = max(clock[2], waited)
    # Step 4: the slot is free for the next chunk of its own.
    resend_at[slot] = give_up_at[slot] = np.inf
    state[slot] = _IDLE
    if number + window < member[5]:
        chunk[slot] = number + window
        state[slot] = _QUEUED
        queue[stats[_IN_QUEUE]] = slot
        stats[_IN_QUEUE] += 1
    return 1


@njit(_TAKE, cache=True, nogil=True, allocates=False)
def take(
    packets: tuple[NDArray[np.uint8], NDArray[np.int32]],
    terms: tuple[NDArray[np.int64], MemberWords],
    slots: tuple[tuple[NDArray[Any], ...], TimerState],
    chunks: tuple[NDArray[Any], ...],
    notes: tuple[NDArray[np.int64], NDArray[np.float64]],
) -> int:
    """Take the packets that answer chunks, in order; count the others.

    Of several packets for one chunk, the first one answers it. The others are duplicates.

    Args:
        packets: (n, stride) uint8 and (n,) int32: their bytes, and their lengths.
        terms: the rules of ``innet.wire.compiled.check_frames``; and ``MemberWords``.
        slots: (window,): int64 chunk, uint8 state, and int64 the queue of slots whose chunks may be
            sent; and their timers, which stop when a chunk is answered.
        chunks: (chunks,) of the all-reduce: uint8 operation and uint16 elements; and filled in:
            (chunks, V) int32 values, (chunks,) uint32 bitmaps, and float32 what all values stand
            for, or empty. And float64 (2,), the second of which is how much a 1 stands for. Where
            there are floats, the values may have fewer rows, which are used in turn. And int32
            (chunks,), the row of each chunk, or empty: they are in order.
        notes: int64, see ``Stats``, added to. And float64 (5,): the time; the longest wait for
            which a chunk of the first window is measured, since longer ones are due to late peers;
            the longest such wait of a chunk that was sent once, raised; and of the answered chunk
            that was sent last, the time and the number, raised. These two only count chunks that
            were sent once, and the last one, which is sent again to find out what was lost.

    Returns:
        How many packets were answers.
    """
    data, length = packets
    answers = 0
    for row in range(len(length)):
        answers += take_frame(data[row], length[row], terms, slots, chunks, notes)
    return answers


@njit(inline="always", nogil=True)
def receive_frame(  # noqa: PLR0917 - likewise
    frame: NDArray[np.uint8],
    length: int,
    terms: tuple[NDArray[np.int64], MemberWords],
    slots: tuple[tuple[NDArray[Any], ...], TimerState],
    chunks: tuple[NDArray[Any], ...],
    notes: tuple[NDArray[np.int64], NDArray[np.float64]],
) -> int:
    """``receive`` of one packet, within the caller."""
    answered = take_frame(frame, length, terms, slots, chunks, notes)
    if answered > 0:
        clock = notes[1]
        if slots[1][7][PACE_REORDERING] < np.inf:
            overtake(slots[0], slots[1], clock)
        hear(slots[1], clock[0], clock[2])
        clock[2] = -1.0
    return answered


@njit(_TAKE, cache=True, nogil=True, allocates=False)
def receive(
    packets: tuple[NDArray[np.uint8], NDArray[np.int32]],
    terms: tuple[NDArray[np.int64], MemberWords],
    slots: tuple[tuple[NDArray[Any], ...], TimerState],
    chunks: tuple[NDArray[Any], ...],
    notes: tuple[NDArray[np.int64], NDArray[np.float64]],
) -> int:
    """``take``, then advance the timers accordingly."""
    answers = take(packets, terms, slots, chunks, notes)
    clock = notes[1]
    if answers > 0:
        overtake(slots[0], slots[1], clock)
        hear(slots[1], clock[0], clock[2])
        clock[2] = -1.0
    return answers


# ------------------------------------------------------------------ the frames of chunks


@njit("i8(i8, i8, i8[::1], u1[::1], i8[::1])", cache=True, nogil=True)
def begin(
    first: int,
    end: int,
    chunks: NDArray[np.int64],
    states: NDArray[np.uint8],
    queue: NDArray[np.int64],
) -> int:
    """Put the first chunks of an all-reduce into the slots and the queue, one per slot.

    Args:
        first: the first chunk.
        end: the one after the last.
        chunks: (window,), filled in: the chunk in each slot.
        states: (window,), filled in for slots with a chunk.
        queue: (window,), filled in: slots whose chunks may be sent.

    Returns:
        How many chunks are in the queue.
    """
    window = len(chunks)
    count = min(end - first, window)
    for position in range(count):
        slot = (first + position) % window
        chunks[slot] = first + position
        states[slot] = _QUEUED
        queue[position] = slot
    return count


_MESSAGE = (
    "Tuple((i8[::1], i8)), Tuple((i4[::1], u1[::1], u2[::1], u2[::1], f4[::1], f8[::1], i4[::1]))"
)


@njit("void(u1[::1], i8)", cache=True, nogil=True)
def _end_with_header(frame: NDArray[np.uint8], lacking: int) -> None:
    """Let the outer headers of a frame over UDP say that ``lacking`` bytes of values are not there.

    Source: RFC 1624, equation 3, for the checksum of the IPv4 header.
    """
    total = _short(frame, _AT_IP_LENGTH)
    checksum = ~_short(frame, _AT_IP_CHECKSUM) & 0xFFFF
    checksum += (~total & 0xFFFF) + (total - lacking)
    for _ in range(2):
        checksum = (checksum & 0xFFFF) + (checksum >> 16)
    for at, number in (
        (_AT_IP_LENGTH, total - lacking),
        (_AT_IP_CHECKSUM, ~checksum & 0xFFFF),
        (_AT_UDP_LENGTH, _short(frame, _AT_UDP_LENGTH) - lacking),
    ):
        frame[at], frame[at + 1] = number >> 8, number & 0xFF


@njit(f"i8(u1[::1], u1[::1], i8, i8, {_MESSAGE})", cache=True, nogil=True, allocates=False)
def fill_frame(  # noqa: PLR0917 - compiled functions are called by position
    frame: NDArray[np.uint8],
    head: NDArray[np.uint8],
    slot: int,
    flags: int,
    where: tuple[NDArray[np.int64], int],
    message: tuple[NDArray[Any], ...],
) -> int:
    """Write the frame of the chunk in a slot; the arguments are those of ``fill``.

    Returns:
        its length: a frame without values ends with the header.
    """
    chunks, base = where
    words, operation, elements, owners, floats, numbers, places = message
    at = len(head) - _HEADER_BYTES
    values = (len(frame) - len(head)) // 4
    for byte in range(len(head)):
        frame[byte] = head[byte]
    chunk = chunks[slot]
    index = chunk - base
    frame[at + _AT_OPERATION] = operation[index]
    sequence = chunk + 1
    for byte in range(4):
        frame[at + _AT_SEQUENCE + byte] = sequence >> (24 - 8 * byte) & 0xFF
    frame[at + _AT_SLOT] = slot >> 8
    frame[at + _AT_SLOT + 1] = slot & 0xFF
    frame[at + _AT_VERSION] = chunk // len(chunks) & 1
    frame[at + _AT_FLAGS] = flags
    frame[at + _AT_ELEMENTS] = elements[index] >> 8
    frame[at + _AT_ELEMENTS + 1] = elements[index] & 0xFF
    begin = (index if len(places) == 0 else int(places[index])) * values
    end, length = begin + values, len(frame)
    if len(owners) > 0:
        frame[at + _AT_OWNER] = owners[index] >> 8
        frame[at + _AT_OWNER + 1] = owners[index] & 0xFF
        if operation[index] & _BARE != 0:
            end, length = begin, len(head)
            if at == _UDP_AT:
                _end_with_header(frame, 4 * values)
    if len(floats) > 0:
        write_floats(frame, at, floats[begin : min(end, len(floats))], numbers[0])
    else:
        write_values(frame, at, words[begin : min(end, len(words))])
    return length


_FILL = f"i8(u1[:,::1], i4[::1], u1[::1], Tuple((i8[::1], u1[::1])), {_MESSAGE})"


@njit(_FILL, cache=True, nogil=True, allocates=False)
def fill(  # noqa: PLR0917 - compiled functions are called by position
    frames: NDArray[np.uint8],
    lengths: NDArray[np.int32],
    head: NDArray[np.uint8],
    which: tuple[NDArray[np.int64], NDArray[np.uint8]],
    where: tuple[NDArray[np.int64], int],
    message: tuple[NDArray[Any], ...],
) -> int:
    """Write the frames of chunks.

    Args:
        frames: (k, frame bytes), filled in.
        lengths: (k,) int32, filled in: bytes of each.
        head: all headers, with 0 in the checksum and in the fields that differ between chunks.
        which: (k,) int64 slots, and uint8 flags of each frame.
        where: (window,) int64, the chunk in each slot; and the first chunk of the all-reduce.
        message: int32 words of all chunks, without padding of the last one; (chunks,): uint8
            operation and uint16 elements of each, and uint16 owners, or empty; float32 of which
            words are made instead, or empty; float64 (2,), the first of which is their scale; and
            int32, which chunk of the words each has, or empty: they are in order.

    Returns:
        How many end with the header.
    """
    slots, flags = which
    bare = 0
    for row in range(len(slots)):
        length = fill_frame(frames[row], head, slots[row], flags[row], where, message)
        lengths[row] = length
        bare += length < frames.shape[1]
    return bare
