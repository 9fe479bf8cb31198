"""What selector ``powersgd`` works with: the matrices in a gradient, and bases of a few columns."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs.layers import Shape, Shapes
from innet.codecs.parts import Floats
from innet.kernels import Kernels

_FLOAT32_MAX = np.finfo(np.float32).max
_DEPENDENT = 1e-5  # of a column's length: what is left of it then is rounding


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the gradient as it is sent.

    Attributes:
        start: its first element in the gradient.
        size: its elements.
        rows, columns: of the matrix that the elements fill, row by row, with zeros at the end where
            they are too few.
        rank: columns of its factors; 0 if the elements are sent as they are.
    """

    start: int
    size: int
    rows: int
    columns: int
    rank: int

    @property
    def part(self) -> slice:
        """Where it lies in the gradient."""
        return slice(self.start, self.start + self.size)

    @property
    def coefficients(self) -> int:
        """How many numbers are sent for it in the last round."""
        return self.rank * self.columns if self.rank else self.size

    def matrix(self, x: Floats) -> Floats:
        """Its elements in x and what fills them up, shape (rows · columns,)."""
        own = x[self.part]
        missing = self.rows * self.columns - self.size
        return np.concatenate([own, np.zeros(missing, np.float32)]) if missing else own


def layers_of(shapes: Shapes | None, size: int, rank: int) -> list[Layer]:
    """The layers of a gradient of ``size`` elements; one where their shapes are not known.

    A layer is sent by factors of so many columns where these have fewer elements than it.
    """
    if not size:
        return []
    cut = [_square(size)] if shapes is None else [_cut(shape) for shape in shapes]
    lengths = [size] if shapes is None else [math.prod(shape) for shape in shapes]
    starts = accumulate(lengths[:-1], initial=0)
    return [
        Layer(start, length, rows, columns, rank if rank * (rows + columns) < length else 0)
        for start, length, (rows, columns) in zip(starts, lengths, cut, strict=True)
    ]


def _square(size: int) -> tuple[int, int]:
    """The matrix nearest to a square that has room for so many elements."""
    columns = math.isqrt(size - 1) + 1
    return -(-size // columns), columns


def _cut(shape: Shape) -> tuple[int, int]:
    """Rows and columns, with the dimensions cut where their sum is smallest."""
    cuts = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(cuts, key=sum, default=(1, shape[0]))


def held(numbers: NDArray[np.floating[Any]]) -> Floats:
    """As float32, and at most its largest finite number."""
    return np.asarray(np.clip(numbers, -_FLOAT32_MAX, _FLOAT32_MAX), np.float32)


def orthonormal(columns: Floats, kernels: Kernels) -> Floats:
    """Modified Gram-Schmidt, each column twice; shape (rank, rows), as the argument.

    A column that depends on those before becomes zero. The same on every machine: sums are those
    of ``Kernels.project_rows``, everything else is a single operation of float64.
    """
    found = np.zeros_like(columns)
    for k, column in enumerate(columns):
        whole = _length(column, kernels)
        if not whole:
            continue
        vector = column.astype(np.float64) / whole  # far from both ends of float32
        for _ in range(2):
            for earlier in found[:k]:
                share = kernels.project_rows(held(vector), vector.size, earlier)[0]
                vector = vector - share * earlier.astype(np.float64)
        length = _length(held(vector), kernels)
        if length > _DEPENDENT:
            found[k] = (vector / length).astype(np.float32)
    return found


def directions(basis: Floats, kernels: Kernels, *, seed: int, step: int, layer: int) -> Floats:
    """Each column of the basis, shape (rank, rows), with length 1; what is zero is drawn anew."""
    found = np.empty_like(basis)
    for k, column in enumerate(basis):
        length = _length(column, kernels)
        if not length:
            column = _random(column.size, seed, step, layer, k)  # noqa: PLW2901 - instead of it
            length = _length(column, kernels)
        found[k] = (column.astype(np.float64) / length).astype(np.float32)
    return found


def _length(vector: Floats, kernels: Kernels) -> float:
    return math.sqrt(kernels.project_rows(vector, vector.size, vector)[0])


def _random(size: int, *numbers: int) -> Floats:
    """Odd integers of 24 bits, evenly distributed around zero and never zero."""
    digest = hashlib.sha256(" ".join(("powersgd", *map(str, numbers))).encode()).digest()
    raw = np.random.PCG64(int.from_bytes(digest[:16], "little")).random_raw(size)
    return (2 * (raw >> np.uint64(41)).astype(np.int64) - (2**23 - 1)).astype(np.float32)
