"""Blocks of integers: find those that are not zero, gather and scatter them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.cuda.device import (
    Array,
    back,
    ballot,
    empty,
    filled,
    ints,
    threads_for,
    warps_for,
)


def block_bitmap(integers: Any, block: int, /) -> Any:
    """See ``innet.kernels.Kernels.block_bitmap``."""
    words = ints(integers)
    blocks = -(-words.size // block)
    bitmap = filled(-(-blocks // 32), 0, np.uint32)
    _flag_blocks[warps_for(blocks)](words, block, blocks, bitmap)
    return back(bitmap.view(np.int32), integers)


def gather_blocks(integers: Any, blocks: Any, block: int, /) -> Any:
    """See ``innet.kernels.Kernels.gather_blocks``."""
    words, chosen = ints(integers), ints(blocks)
    count = 0
    if chosen.size:
        # The last block may be shorter than the others.
        last = int(chosen[chosen.size - 1 :].copy_to_host()[0])
        count = (chosen.size - 1) * block + min(block, words.size - last * block)
    gathered = empty(count)
    _gather[threads_for(count)](words, chosen, block, gathered)
    return back(gathered, integers, blocks)


def scatter_blocks(blocks: Any, words: Any, block: int, size: int, /) -> Any:
    """See ``innet.kernels.Kernels.scatter_blocks``."""
    dense, gathered = filled(size), ints(words)
    _scatter[threads_for(gathered.size)](ints(blocks), gathered, block, dense)
    return back(dense, blocks, words)


@cuda.jit
def _flag_blocks(integers: Array, block: int, blocks: int, bitmap: Array) -> None:
    """A warp for each block."""
    lane = cuda.grid(1) & 31
    for b in range(cuda.grid(1) >> 5, blocks, cuda.gridsize(1) >> 5):
        part = np.int32(0)
        for i in range(b * block + lane, min((b + 1) * block, integers.size), 32):
            part |= integers[i]
        flags = ballot(part != 0)
        if lane == 0 and flags != 0:
            cuda.atomic.or_(bitmap, b >> 5, np.uint32(1) << np.uint32(b & 31))


@cuda.jit
def _gather(integers: Array, blocks: Array, block: int, words: Array) -> None:
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        words[i] = integers[np.int64(blocks[i // block]) * block + i % block]


@cuda.jit
def _scatter(blocks: Array, words: Array, block: int, dense: Array) -> None:
    for i in range(cuda.grid(1), words.size, cuda.gridsize(1)):
        dense[np.int64(blocks[i // block]) * block + i % block] = words[i]
