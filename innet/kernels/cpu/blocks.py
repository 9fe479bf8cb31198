"""Blocks of integers: find those that are not zero, gather and scatter them."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import Ints, Words


def block_bitmap(integers: Ints, block: int, /) -> Ints:
    """See ``innet.kernels.Kernels.block_bitmap``."""
    blocks = -(-integers.size // block)
    bitmap = np.zeros(-(-blocks // 32), np.uint32)
    _flag_blocks(integers, block, bitmap)
    return bitmap.view(np.int32)


def gather_blocks(integers: Ints, blocks: Ints, block: int, /) -> Ints:
    """See ``innet.kernels.Kernels.gather_blocks``."""
    words = buffers.empty(min(blocks.size * block, integers.size), np.int32)
    if block == 1:
        _gather_single(integers, blocks, words)
        return words
    return words[: _gather(integers, blocks, block, words)]


def scatter_blocks(blocks: Ints, words: Ints, block: int, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.scatter_blocks``."""
    dense = buffers.zeros(size, np.int32)
    _scatter(blocks, words, block, dense)
    return dense


@njit(cache=True, nogil=True)
def _flag_blocks(integers: Ints, block: int, bitmap: Words) -> None:
    for b in range(-(-integers.size // block)):
        anything = np.int32(0)
        # The whole block without an early exit, so that it compiles to vector instructions.
        piece = integers[b * block : (b + 1) * block]
        for i in range(piece.size):
            anything |= piece[i]
        if anything != 0:
            bitmap[b >> 5] |= np.uint32(1) << np.uint32(b & 31)


@njit(cache=True, nogil=True)
def _gather_single(integers: Ints, positions: Ints, words: Ints) -> None:
    for j in range(positions.size):
        words[j] = integers[np.uint64(positions[j])]


@njit(cache=True, nogil=True)
def _gather(integers: Ints, blocks: Ints, block: int, words: Ints) -> int:
    end = 0
    for j in range(blocks.size):
        first = int(blocks[j]) * block
        count = min(block, integers.size - first)
        at, source = np.uint64(end), np.uint64(first)
        for i in range(np.uint64(count)):
            words[at + i] = integers[source + i]
        end += count
    return end


@njit(cache=True, nogil=True)
def _scatter(blocks: Ints, words: Ints, block: int, dense: Ints) -> None:
    start = 0
    for j in range(blocks.size):
        first = int(blocks[j]) * block
        count = min(block, dense.size - first)
        at, source = np.uint64(first), np.uint64(start)
        for i in range(np.uint64(count)):
            dense[at + i] = words[source + i]
        start += count
