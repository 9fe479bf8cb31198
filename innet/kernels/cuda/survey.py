"""Largest and smallest magnitude, non-zeros, the first element that is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cpu.topk import least_bits
from innet.kernels.cuda.bitmap import expand
from innet.kernels.cuda.blocks import gather_blocks
from innet.kernels.cuda.device import Array, back, empty, floats, threads_for, warps_for
from innet.kernels.cuda.warp import ballot

_INFINITY = 0x7F800000  # the bits of infinity; those of a NaN are larger
_MAGNITUDE = 0x7FFFFFFF
_NOWHERE = 2**31 - 1


def survey(x: Any, /) -> tuple[int, int, int]:
    """See ``innet.kernels.Kernels.survey``."""
    words = floats(x).view(np.int32)
    found = _nothing_found()
    _survey[threads_for(words.size)](words, found)
    return _told(found)


def survey_and_pick(x: Any, most: int, /) -> tuple[int, int, int, Any]:
    """See ``innet.kernels.Kernels.survey_and_pick``."""
    words = floats(x).view(np.int32)
    found, bitmap = _nothing_found(), empty(-(-words.size // 32), np.uint32)
    _survey_and_mark[warps_for(bitmap.size)](words, found, bitmap)
    largest, nonzero, bad = _told(found)
    picks = None
    if nonzero <= most:
        indices = expand(bitmap.view(np.int32), words.size)
        values = gather_blocks(words, indices, 1).view(np.float32)
        picks = back(indices, x), back(values, x)
    return largest, nonzero, bad, picks


def _nothing_found() -> Array:
    """The largest bits, how many are not zero, the first that is not finite."""
    return cuda.to_device(np.array([0, 0, _NOWHERE], np.int32))


def _told(found: Array) -> tuple[int, int, int]:
    largest, nonzero, bad = found.copy_to_host().tolist()
    return largest, nonzero, -1 if bad == _NOWHERE else bad


def smallest(x: Any, least: float, /) -> tuple[float, int]:
    """See ``innet.kernels.Kernels.smallest``."""
    words = floats(x).view(np.int32)
    found = cuda.to_device(np.array([_INFINITY, 0], np.int32))
    _smallest[threads_for(words.size)](words, least_bits(least), found)
    bits, count = found.copy_to_host()
    return float(bits.view(np.float32)), int(count)


@cuda.jit
def _smallest(words: Array, least: int, found: Array) -> None:
    shared = cuda.shared.array(2, np.int32)
    if cuda.threadIdx.x == 0:
        shared[0] = _INFINITY
        shared[1] = 0
    cuda.syncthreads()
    own = np.int32(_INFINITY)
    count = np.int32(0)
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        bits = np.int32(words[i] & _MAGNITUDE)
        if bits >= least:
            own = min(own, bits)
            count += np.int32(1)
    cuda.atomic.min(shared, 0, own)
    cuda.atomic.add(shared, 1, count)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.min(found, 0, shared[0])
        cuda.atomic.add(found, 1, shared[1])


@cuda.jit
def _survey(words: Array, found: Array) -> None:
    largest = np.int32(0)
    nonzero = np.int32(0)
    bad = np.int32(_NOWHERE)
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        bits = np.int32(words[i] & _MAGNITUDE)
        largest = max(largest, bits)
        nonzero += np.int32(bits != 0)
        if bits >= _INFINITY:
            bad = min(bad, np.int32(i))
    _combine(largest, nonzero, bad, found)


@cuda.jit
def _survey_and_mark(words: Array, found: Array, bitmap: Array) -> None:
    lane = cuda.grid(1) & 31
    largest = np.int32(0)
    nonzero = np.int32(0)
    bad = np.int32(_NOWHERE)
    for w in range(cuda.grid(1) >> 5, bitmap.size, cuda.gridsize(1) >> 5):
        bits = np.int32(0)
        if 32 * w + lane < words.size:
            bits = np.int32(words[32 * w + lane] & _MAGNITUDE)
        largest = max(largest, bits)
        nonzero += np.int32(bits != 0)
        if bits >= _INFINITY:
            bad = min(bad, np.int32(32 * w + lane))
        flags = ballot(bits != 0)
        if lane == 0:
            bitmap[w] = flags
    _combine(largest, nonzero, bad, found)


@cuda.jit(device=True)
def _combine(largest: np.int32, nonzero: np.int32, bad: np.int32, found: Array) -> None:
    """Each thread's own, first in its block's shared memory, then with the others in ``found``."""
    shared = cuda.shared.array(3, np.int32)
    if cuda.threadIdx.x == 0:
        shared[0] = 0
        shared[1] = 0
        shared[2] = _NOWHERE
    cuda.syncthreads()
    cuda.atomic.max(shared, 0, largest)
    cuda.atomic.add(shared, 1, nonzero)
    cuda.atomic.min(shared, 2, bad)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.max(found, 0, shared[0])
        cuda.atomic.add(found, 1, shared[1])
        cuda.atomic.min(found, 2, shared[2])
