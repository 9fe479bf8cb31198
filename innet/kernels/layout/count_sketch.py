"""The cells of an element in a count sketch, as all kernels compute them.

A sketch has ``rows`` rows of ``columns`` cells, one row after the other. Elements are hashed by
blocks of ``lanes`` consecutive ones. The element at lane l of block b is added to one cell in each
row j, negated or not:

    key j = mix(seed + (j + 1) · 0x9E3779B97F4A7C15)        all modulo 2**64
    z     = mix(b · 0x9E3779B97F4A7C15 + key j)
    column: ((low half of z) · columns >> 32, + l) mod columns
    negative where bit 64 - lanes + l of z is set

``mix`` is that of ``innet.kernels.layout.hashing``. Nothing is stored per element. The column's
product fits 64 bits, since its factors are below 2**32; the products in ``mix`` wrap around.

A block lies in neighboring cells, which are read and written together. The guarantees of a count
sketch hold as for elements that are hashed one by one: an element is equally likely to be in each
of the columns, two elements of different blocks collide in a row with probability 1 / columns, and
their signs are independent. So estimates are unbiased. Their variance is no larger, since elements
of one block never collide. But where two blocks overlap, all their elements there collide at once.

Charikar, Chen, Farach-Colton: Finding frequent items in data streams, ICALP 2002,
https://doi.org/10.1007/3-540-45465-9_59.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.kernels.layout.hashing import GOLDEN, mix

MAX_ROWS = 31
LANES = 16  # except in small sketches
_NARROW = 16 * LANES  # columns; with fewer, blocks overlap too often


@dataclass(frozen=True, slots=True)
class CountLayout:
    """Size and seed of a count sketch.

    Attributes:
        rows: odd, so that the median is one of them; 3 to 31.
        columns: cells in a row, at least 1.
        seed: chooses the hash functions, 0 .. 2**63 - 1.

    Raises:
        InputError: a number outside its range.
    """

    rows: int
    columns: int
    seed: int

    def __post_init__(self) -> None:
        if not 3 <= self.rows <= MAX_ROWS or self.rows % 2 == 0:
            raise InputError(
                f"a count sketch cannot have {self.rows} rows; use an odd number, 3 to {MAX_ROWS}."
            )
        if not (self.columns >= 1 and self.cells < 2**31):
            raise InputError(f"a count sketch cannot have {self.columns} columns.")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"the seed {self.seed} of a sketch is not in 0 .. 2**63 - 1.")

    @property
    def cells(self) -> int:
        """Cells of the whole sketch."""
        return self.rows * self.columns

    @property
    def lanes(self) -> int:
        """Elements that are hashed together: 16, or 1 in sketches of fewer than 256 columns."""
        return LANES if self.columns >= _NARROW else 1

    def keys(self) -> NDArray[np.uint64]:
        """One for each row, shape (rows,)."""
        rows = np.arange(1, self.rows + 1, dtype=np.uint64)
        return mix(rows * GOLDEN + np.uint64(self.seed))
