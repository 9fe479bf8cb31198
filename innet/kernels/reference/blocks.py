"""Kernels on blocks of integers: the oracle. See ``innet.kernels`` for what each must do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.kernels.arrays import Ints


def block_bitmap(integers: Ints, block: int, /) -> Ints:
    """See ``innet.kernels.Kernels.block_bitmap``."""
    blocks = -(-integers.size // block)
    flags = np.zeros(-(-blocks // 32) * 32, np.bool_)
    flags[np.flatnonzero(integers) // block] = True
    return np.packbits(flags, bitorder="little").view(np.int32)


def gather_blocks(integers: Ints, blocks: Ints, block: int, /) -> Ints:
    """See ``innet.kernels.Kernels.gather_blocks``."""
    return integers[_elements(blocks, block, integers.size)]


def scatter_blocks(blocks: Ints, words: Ints, block: int, size: int, /) -> Ints:
    """See ``innet.kernels.Kernels.scatter_blocks``."""
    dense = np.zeros(size, np.int32)
    dense[_elements(blocks, block, size)] = words
    return dense


def _elements(blocks: Ints, block: int, size: int) -> NDArray[np.int64]:
    """The indices of the blocks' elements, ascending."""
    indices = (blocks.astype(np.int64)[:, np.newaxis] * block + np.arange(block)).ravel()
    return indices[indices < size]
