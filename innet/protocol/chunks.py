"""The frames of chunks, in compiled code: imported and compiled as ``answers`` is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.compiled import njit
from innet.wire import HEADER
from innet.wire.compiled import write_values
from innet.wire.layout import offset_of

_HEADER_BYTES = HEADER.itemsize
_AT_OPERATION, _AT_SEQUENCE, _AT_SLOT = (
    offset_of("operation"),
    offset_of("sequence"),
    offset_of("slot"),
)
_AT_VERSION, _AT_FLAGS = offset_of("slot_version"), offset_of("flags")
_AT_ELEMENTS = offset_of("elements")

_QUEUED = 1  # innet.protocol.slots.SlotState


@njit("i8(i8, i8, i8[::1], u1[::1], i8[::1])", cache=True, nogil=True)
def begin(
    first: int,
    end: int,
    chunks: NDArray[np.int64],
    states: NDArray[np.uint8],
    queue: NDArray[np.int64],
) -> int:
    """Put the chunks of an all-reduce into the slots and the queue, as many as there are slots.

    Args:
        first: the first chunk.
        end: the one after the last.
        chunks: (window,), filled in: the chunk in each slot.
        states: (window,), filled in: those of slots that have one.
        queue: (window,), filled in: slots whose chunks may be sent.

    Returns:
        how many chunks are in the queue.
    """
    window = len(chunks)
    count = min(end - first, window)
    for place in range(count):
        slot = (first + place) % window
        chunks[slot] = first + place
        states[slot] = _QUEUED
        queue[place] = slot
    return count


_FILL = (
    "void(u1[:,::1], u1[::1], Tuple((i8[::1], u1[::1])), Tuple((i8[::1], i8)),"
    " Tuple((i4[::1], u1[::1], u2[::1])))"
)


@njit(_FILL, cache=True, nogil=True)
def fill(
    frames: NDArray[np.uint8],
    head: NDArray[np.uint8],
    which: tuple[NDArray[np.int64], NDArray[np.uint8]],
    where: tuple[NDArray[np.int64], int],
    message: tuple[NDArray[Any], ...],
) -> None:
    """Write the frames of chunks.

    Args:
        frames: (k, frame bytes), filled in.
        head: what stands before the values, but for the fields in which chunks differ; those, and
            the checksum, are 0.
        which: (k,) int64 slots, and uint8 flags of each frame.
        where: (window,) int64, the chunk in each slot; and the first chunk of the all-reduce.
        message: int32 words of all chunks, where zeros that fill up the last one may be missing;
            and (chunks,): uint8 operation and uint16 elements of each.
    """
    slots, flags = which
    chunks, base = where
    words, operation, elements = message
    window = len(chunks)
    at = len(head) - _HEADER_BYTES
    values = (frames.shape[1] - len(head)) // 4
    for row in range(len(slots)):
        frame = frames[row]
        frame[: len(head)] = head
        chunk = chunks[slots[row]]
        index = chunk - base
        frame[at + _AT_OPERATION] = operation[index]
        sequence = chunk + 1
        for byte in range(4):
            frame[at + _AT_SEQUENCE + byte] = sequence >> (24 - 8 * byte) & 0xFF
        frame[at + _AT_SLOT] = slots[row] >> 8
        frame[at + _AT_SLOT + 1] = slots[row] & 0xFF
        frame[at + _AT_VERSION] = chunk // window & 1
        frame[at + _AT_FLAGS] = flags[row]
        frame[at + _AT_ELEMENTS] = elements[index] >> 8
        frame[at + _AT_ELEMENTS + 1] = elements[index] & 0xFF
        begin = index * values
        write_values(frame, at, words[begin : min(begin + values, len(words))])
