"""Blocks of a randomized Hadamard transform, as all kernels compute it.

A vector is cut into blocks of ``block`` consecutive elements, a power of two. The remainder at the
end is a separate block, padded with zeros to the next power of two. Within a block of n

    y = H · D · x,    H[i, j] = (-1)^popcount(i & j)

with D the diagonal of random signs. Element i of the whole vector is negated where bit i mod 64 of

    mix(key + (i div 64 + 1) · 0x9E3779B97F4A7C15)        modulo 2**64

is set, with ``mix`` of ``innet.kernels.layout.hashing``. H is not scaled: H · H = n, so that
integers remain integers, and the order of the additions does not matter.
"""

from __future__ import annotations

MOST = 8192  # elements of a block: 32 KiB of integers, which a GPU's shared memory holds


def padded(size: int, block: int) -> int:
    """Elements of all blocks of a vector of ``size`` elements."""
    full, left = divmod(size, block)
    return full * block + (1 << (left - 1).bit_length() if left else 0)
