"""The randomized Hadamard transform of ``innet.kernels.layout.hadamard``, in shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.arrays import SQUARES_LANES
from innet.kernels.cuda.device import (
    LOW,
    MOST_BLOCKS,
    ONE,
    THREADS,
    Array,
    back,
    empty,
    floats,
    ints,
    mix,
    threads_for,
    times,
)
from innet.kernels.layout.hadamard import MOST, padded
from innet.kernels.layout.hashing import GOLDEN


def block_squares(x: Any, block: int, /) -> Any:
    """See ``innet.kernels.Kernels.block_squares``."""
    values = floats(x)
    sums = empty(-(-values.size // block) * SQUARES_LANES, np.float64)
    _block_squares[threads_for(sums.size)](values, block, sums)
    lanes = sums.copy_to_host().reshape(-1, SQUARES_LANES)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0].copy()


def hadamard(x: Any, scales: Any, block: int, key: int, /) -> Any:
    """See ``innet.kernels.Kernels.hadamard``."""
    values = floats(x)
    integers = empty(padded(values.size, block))
    _hadamard[_blocks(scales.size)](values, cuda.to_device(scales), block, np.uint64(key), integers)
    return back(integers, x)


def hadamard_inverse(integers: Any, steps: Any, block: int, key: int, size: int, /) -> Any:
    """See ``innet.kernels.Kernels.hadamard_inverse``."""
    words, values = ints(integers), empty(size, np.float32)
    _hadamard_inverse[_blocks(steps.size)](
        words, cuda.to_device(steps), block, np.uint64(key), values
    )
    return back(values, integers)


def quantize_to_table(integers: Any, scales: Any, table: Any, block: int, key: int, /) -> Any:
    """See ``innet.kernels.Kernels.quantize_to_table``."""
    words = ints(integers)
    quantized = empty(words.size)
    _quantize_to_table[threads_for(words.size)](
        words,
        cuda.to_device(scales),
        cuda.to_device(table),
        float(table[-1]) / 2,
        block,
        np.uint64(key),
        quantized,
    )
    return back(quantized, integers)


def _blocks(count: int) -> tuple[int, int]:
    return max(1, min(count, MOST_BLOCKS)), THREADS


@cuda.jit
def _block_squares(x: Array, block: int, sums: Array) -> None:
    """One thread per lane of each block."""
    for s in range(cuda.grid(1), sums.size, cuda.gridsize(1)):
        start = s // SQUARES_LANES * block
        total = np.float64(0)
        for i in range(start + s % SQUARES_LANES, min(start + block, x.size), SQUARES_LANES):
            total += times(np.float64(x[i]), np.float64(x[i]))
        sums[s] = total


@cuda.jit(device=True)
def _sign(i: int, key: np.uint64) -> np.int32:
    """1 or -1."""
    word = mix(np.uint64((i >> 6) + 1) * GOLDEN + key)
    return np.int32(1 - 2 * np.int32((word >> np.uint64(i & 63)) & ONE))


@cuda.jit(device=True)
def _transform(shared: Array, size: int) -> None:
    """H · x in place, by all threads of the block."""
    width = 1
    while width < size:
        for pair in range(cuda.threadIdx.x, size >> 1, cuda.blockDim.x):
            low = ((pair & ~(width - 1)) << 1) | (pair & (width - 1))
            a, b = shared[low], shared[low + width]
            shared[low] = np.int32(a + b)
            shared[low + width] = np.int32(a - b)
        cuda.syncthreads()
        width <<= 1


@cuda.jit
def _hadamard(x: Array, scales: Array, block: int, key: np.uint64, integers: Array) -> None:
    shared = cuda.shared.array(MOST, np.int32)
    for b in range(cuda.blockIdx.x, scales.size, cuda.gridDim.x):
        start = b * block
        size = min(block, integers.size - start)
        for i in range(cuda.threadIdx.x, size, cuda.blockDim.x):
            shared[i] = np.int32(0)
            if start + i < x.size:
                rounded = np.int32(round(np.float64(x[start + i]) * scales[b]))
                shared[i] = np.int32(rounded * _sign(start + i, key))
        cuda.syncthreads()
        _transform(shared, size)
        for i in range(cuda.threadIdx.x, size, cuda.blockDim.x):
            integers[start + i] = shared[i]
        cuda.syncthreads()


@cuda.jit
def _hadamard_inverse(
    integers: Array, steps: Array, block: int, key: np.uint64, values: Array
) -> None:
    shared = cuda.shared.array(MOST, np.int32)
    for b in range(cuda.blockIdx.x, steps.size, cuda.gridDim.x):
        start = b * block
        size = min(block, integers.size - start)
        for i in range(cuda.threadIdx.x, size, cuda.blockDim.x):
            shared[i] = integers[start + i]
        cuda.syncthreads()
        _transform(shared, size)
        for i in range(cuda.threadIdx.x, min(size, values.size - start), cuda.blockDim.x):
            signed = np.int32(shared[i] * _sign(start + i, key))
            value = np.float32(np.float64(signed) * steps[b])
            values[start + i] = value + np.float32(0)  # not -0.0
        cuda.syncthreads()


@cuda.jit
def _quantize_to_table(
    integers: Array,
    scales: Array,
    table: Array,
    half: float,
    block: int,
    key: np.uint64,
    quantized: Array,
) -> None:
    most = np.float64(table[table.size - 1])
    for i in range(cuda.grid(1), integers.size, cuda.gridsize(1)):
        position = times(np.float64(integers[i]), scales[i // block]) + np.float64(half)
        position = min(max(position, 0.0), most)
        entry = 0
        while entry < table.size - 2 and np.float64(table[entry + 1]) <= position:
            entry += 1
        low = np.float64(table[entry])
        gap = np.float64(table[entry + 1]) - low
        word = mix(np.uint64((i >> 1) + 1) * GOLDEN + key)
        chance = np.float64((word >> np.uint64(32 * (i & 1))) & LOW)
        up = times(chance, gap) < (position - low) * 4294967296.0
        quantized[i] = table[entry + 1] if up else table[entry]
