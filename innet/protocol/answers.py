"""Which packets answer what a worker waits for, in compiled code.

Imported where a worker is made: Numba takes longer to import than most commands to run. Compiled at
import, so that no packet waits for it. ``tests/support/naive_answers.py`` says the same in NumPy.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from innet.wire import HEADER, Flag


class Verdict(enum.IntEnum):
    """What becomes of a packet: the first that holds, from the top."""

    ANSWER = 0
    UNREADABLE = 1  # counted already, by the reason that parsing gave
    NOT_A_RESULT = 2
    JOB = 3
    EPOCH = 4
    WORKER = 5
    COUNT = 6
    SLOT = 7
    DUPLICATE = 8
    SEQUENCE = 9
    SLOT_VERSION = 10
    OPERATION = 11
    ELEMENTS = 12

    @property
    def label(self) -> str:
        """As it reads in a sentence: "slot version"."""
        return self.name.lower().replace("_", " ")


_ANSWER, _UNREADABLE, _NOT_A_RESULT, _JOB, _EPOCH, _WORKER, _COUNT, _SLOT = range(8)
_DUPLICATE, _SEQUENCE, _SLOT_VERSION, _OPERATION, _ELEMENTS = range(8, 13)
_RESULT, _PARTIAL = int(Flag.RESULT), int(Flag.PARTIAL)
_IDLE, _WAITING = 0, 2  # innet.protocol.slots.SlotState


def _offset(name: str) -> int:
    fields = HEADER.fields
    assert fields is not None
    return int(fields[name][1])


_AT_OPERATION, _AT_JOB, _AT_EPOCH = _offset("operation"), _offset("job"), _offset("epoch")
_AT_SEQUENCE, _AT_SLOT, _AT_VERSION = (
    _offset("sequence"),
    _offset("slot"),
    _offset("slot_version"),
)
_AT_FLAGS, _AT_WORKER, _AT_COUNT = _offset("flags"), _offset("worker"), _offset("count")
_AT_ELEMENTS = _offset("elements")
_NAMES = ((_AT_JOB, _JOB), (_AT_EPOCH, _EPOCH), (_AT_WORKER, _WORKER))


@njit("i8(u1[:,::1], i8, i8)", cache=True, nogil=True)
def _short(header: Any, row: int, offset: int) -> Any:
    return np.int64(header[row, offset]) << 8 | np.int64(header[row, offset + 1])


@njit("i8(u1[:,::1], i8, i8[::1], i8)", cache=True, nogil=True)
def _addressed(header: Any, row: int, member: Any, window: int) -> int:
    """Is it a full result of this job for this worker?"""
    flags = header[row, _AT_FLAGS]
    if flags & _RESULT == 0:
        return _NOT_A_RESULT
    for index, (offset, verdict) in enumerate(_NAMES):
        if _short(header, row, offset) != member[index]:
            return verdict
    if header[row, _AT_COUNT] != member[3] and flags & _PARTIAL == 0:
        return _COUNT
    return _ANSWER if _short(header, row, _AT_SLOT) < window else _SLOT


@njit("i8(u1[:,::1], i8, i8, u1)", cache=True, nogil=True)
def _awaited(header: Any, row: int, chunk: int, state: int) -> int:
    """Is it what a slot in ``state`` waits for?"""
    number = _short(header, row, _AT_SEQUENCE) << 16 | _short(header, row, _AT_SEQUENCE + 2)
    # 32-bit serial arithmetic; the sequence of a chunk is one more than its number.
    ahead = (number - chunk - 1 + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000
    if ahead == 0 and state == _WAITING:
        return _ANSWER
    if ahead < 0 or (ahead == 0 and state == _IDLE):
        return _DUPLICATE
    return _SEQUENCE


@njit(
    "u1[::1](u1[:,::1], u1[::1], i8[::1], Tuple((i8[::1], u1[::1], u1[::1], u2[::1])))",
    cache=True,
    nogil=True,
)
def judge(
    header: NDArray[np.uint8],
    reason: NDArray[np.uint8],
    member: NDArray[np.int64],
    asked: tuple[NDArray[Any], ...],
) -> NDArray[np.uint8]:
    """A Verdict for each packet.

    Args:
        header: (n, header bytes): innet headers, as they came.
        reason: (n,): 0 for packets that can be read.
        member: the worker's job, epoch, index, how many workers are present, and the first chunk
            of its all-reduce.
        asked: (window,) int64 chunk and uint8 state of each slot; (chunks,) uint8 operation and
            uint16 elements of each chunk of the all-reduce.

    Returns:
        (n,). Of several packets that answer the same chunk the first one does, and the others are
        duplicates.
    """
    chunk, state, operation, elements = asked
    window = len(chunk)
    answered = np.zeros(window, np.bool_)
    verdict = np.empty(len(reason), np.uint8)
    for row in range(len(reason)):
        if reason[row] != 0:
            verdict[row] = _UNREADABLE
            continue
        found = _addressed(header, row, member, window)
        slot = _short(header, row, _AT_SLOT)
        if found == _ANSWER:
            found = _awaited(header, row, chunk[slot], state[slot])
        if found == _ANSWER:
            # What is awaited was sent, so it is a chunk of this all-reduce.
            index = chunk[slot] - member[4]
            if header[row, _AT_VERSION] != (chunk[slot] // window & 1):
                found = _SLOT_VERSION
            elif header[row, _AT_OPERATION] != operation[index]:
                found = _OPERATION
            elif _short(header, row, _AT_ELEMENTS) != elements[index]:
                found = _ELEMENTS
            elif answered[slot]:
                found = _DUPLICATE
            else:
                answered[slot] = True
        verdict[row] = found
    return verdict
