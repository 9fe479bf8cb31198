"""Memory that the workers of one job and one machine share, to decode equal words once.

The switch makes it for a job (a memfd, sealed, as that of the rings) and hands it to each worker
that gets rings. It does not look into it. There are some entries. One worker claims an entry,
decodes, writes the words and the result into it, and wakes the others, who wait for that (futex),
compare the words with theirs, and copy the result. Whatever fails, a worker decodes for itself: the
entry is being written for something else, its writer has died or takes too long, the words differ
in any bit, the result does not fit or is not valid. So results are those of each worker by itself.

An entry whose writer died is never used again, as nobody can know whether it still writes. The
memory goes with the job.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
import time
import zlib
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.core.threads import while_others_wait
from innet.transport.atomics import compare_exchange, fence, load_acquire, store_release

Arrays = tuple[NDArray[np.int32], ...]

ENTRIES = 4
#: Bytes of an entry. Only those that are written are memory of the machine.
ENTRY = 64 << 20
SIZE = ENTRIES * ENTRY
_HEAD = 4096  # bytes before the data of an entry
_MOST = 16  # arrays
_STATE, _COUNTS = 0, 16  # words of 64 bits in the head: label and whether it is done; lengths
_PATIENCE, _PER_WORD = 0.02, 1e-7  # seconds
_TURN = 1e-4  # seconds between two looks, where there is no futex
_SAMPLES = 512  # words in a label
_OTHERS = 1  # cores of workers that wait, for whoever decodes

# futex(2) has no function in the C library, and its number depends on the processor.
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}.get(platform.machine())
_WAIT, _WAKE, _ALL = 0, 1, 0x7FFF_FFFF
_syscall: Any = ctypes.CDLL(None).syscall if sys.platform == "linux" else None


@njit(cache=True, nogil=True)
def _look(address: int) -> int:
    fence()
    return int(load_acquire(address))


@njit(cache=True, nogil=True)
def _publish(address: int, word: int) -> None:
    store_release(address, word)


@njit(cache=True, nogil=True)
def _claim(address: int, expected: int, word: int) -> bool:
    return bool(compare_exchange(address, expected, word))


def _wake(state: int) -> None:
    """Wake all who wait at the word at an address."""
    if _FUTEX is not None and _syscall is not None:
        _syscall(ctypes.c_long(_FUTEX), ctypes.c_void_p(state), _WAKE, _ALL)


def _wait_while(state: int, word: int, seconds: float) -> int:
    """Sleep until the word at an address is no longer ``word``, or time is up; returns it."""
    until = time.monotonic() + seconds
    while (found := _look(state)) == word and (left := until - time.monotonic()) > 0:
        if _FUTEX is None or _syscall is None:
            time.sleep(min(left, _TURN))
            continue
        span = struct.pack("qq", int(left), int(left % 1 * 1e9))
        low = ctypes.c_uint32(word & 0xFFFF_FFFF)  # where the address points: little-endian
        _syscall(ctypes.c_long(_FUTEX), ctypes.c_void_p(state), _WAIT, low, span)
    return found


class DecodeOncePerHost:
    """``innet.codecs.decode_once.Decoding`` over the memory of a job.

    Args:
        memory: (SIZE,) uint8, shared by workers.

    Attributes:
        memory: as given.
        saved: how often the result was another worker's.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.saved = 0
        self.memory = memory
        self._base = memory.ctypes.data

    def __call__(
        self,
        how: Hashable,
        words: Arrays,
        decode: Callable[[], Arrays],
        valid: Callable[[Arrays], bool] = lambda _: True,
    ) -> Arrays:
        """What ``decode()`` returns for ``words``: arrays that the caller may change.

        Args:
            how: all that the result depends on besides the words; equal in ``repr`` where equal.
            words: received ones.
            decode: computes it.
            valid: whether a result of another worker has the form of one.
        """
        label = _label(how, words)
        begin = label % ENTRIES * ENTRY
        state = self._base + begin
        working, done = label << 1, label << 1 | 1
        found = _look(state)
        # The lowest bit of an entry that nobody writes is set, or it was never written.
        free = found == 0 or (found & 1 and found != done)
        if free and _claim(state, found, working):
            left = 0  # nobody writes there any more
            try:
                with while_others_wait(_OTHERS):
                    result = decode()
                self._write(begin, words, result)
                left = done
            finally:
                _publish(state, left)
                _wake(state)
            return result
        patience = _PATIENCE + _PER_WORD * sum(each.size for each in words)
        if _wait_while(state, working, patience) == done:
            copied = self._read(begin, words)
            if copied is not None and _look(state) == done and valid(copied):
                self.saved += 1
                return copied
        return decode()

    def _write(self, begin: int, words: Arrays, result: Arrays) -> None:
        """Write words and result behind each other; no lengths say that they do not fit."""
        counts = self._counts(begin)
        arrays = (*words, *result)
        fits = len(arrays) <= _MOST and sum(each.nbytes for each in arrays) <= ENTRY - _HEAD
        counts[:2] = (len(words), len(result)) if fits else (0, 0)
        at = begin + _HEAD
        for number, each in enumerate(arrays if fits else ()):
            counts[2 + number] = each.size
            self.memory[at : at + each.nbytes].view(np.int32)[:] = each
            at += each.nbytes

    def _read(self, begin: int, words: Arrays) -> Arrays | None:
        """A copy of the result, if the words are these and the lengths are possible."""
        counts = self._counts(begin)[:].tolist()  # once, since others may write there
        given, results = counts[:2]
        if given != len(words) or not 0 < results <= _MOST - given:
            return None
        lengths = counts[2 : 2 + given + results]
        if min(lengths) < 0 or 4 * sum(lengths) > ENTRY - _HEAD:
            return None
        at, arrays = begin + _HEAD, []
        for length in lengths:
            arrays.append(self.memory[at : at + 4 * length].view(np.int32))
            at += 4 * length
        if not all(map(np.array_equal, words, arrays)):
            return None
        found = tuple(buffers.empty(each.size, np.int32) for each in arrays[given:])
        for mine, each in zip(found, arrays[given:], strict=True):
            mine[:] = each
        return found

    def _counts(self, begin: int) -> Any:
        first = begin + 8 * _COUNTS
        return self.memory[first : first + 8 * (2 + _MOST)].view(np.int64)


def _label(how: Hashable, words: Arrays) -> int:
    """A number that tells most words apart, of 62 bits and not 0."""
    text = repr(how).encode()
    for each in words:
        sample = np.ascontiguousarray(each[:: max(1, each.size // _SAMPLES)])
        text += sample.tobytes()
    return (zlib.crc32(text) << 29 | zlib.adler32(text) & (1 << 29) - 1) + 1
