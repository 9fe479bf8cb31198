"""What selector ``powersgd`` works with: the matrices in a gradient, and bases of a few columns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from innet.codecs.error_feedback.residual import loaded
from innet.codecs.layers import Layers, Shape, Shapes
from innet.codecs.optional_methods import SendsCoefficients
from innet.codecs.parts import (
    COEFFICIENTS,
    LEAVES_RESIDUAL,
    SAME_INDICES,
    Capabilities,
    Floats,
    Ints,
    PartContext,
    SelectSteps,
    SparseValues,
    StepCounter,
)
from innet.codecs.quantizers.fixed import FixedScaling
from innet.codecs.selectors.layered import LayeredSelector
from innet.core.errors import StateError
from innet.core.numbers import FLOAT32_MAX
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings
from innet.kernels import Kernels

_DEPENDENT = 1e-5  # of a column's length: what is left of it then is rounding


@dataclass(frozen=True, slots=True)
class FactoredLayer:
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
        values = x[self.part]
        missing = self.rows * self.columns - self.size
        return np.concatenate([values, np.zeros(missing, np.float32)]) if missing else values


def layers_of(shapes: Shapes | None, size: int, rank: int) -> list[FactoredLayer]:
    """The layers of a gradient of ``size`` elements; one where their shapes are not known.

    A layer is sent as factors with this many columns if they have fewer elements than the layer.
    """
    if not size:
        return []
    cut = [_square(size)] if shapes is None else [_cut(shape) for shape in shapes]
    lengths = [size] if shapes is None else [math.prod(shape) for shape in shapes]
    starts = accumulate(lengths[:-1], initial=0)
    return [
        FactoredLayer(start, length, rows, columns, rank if rank * (rows + columns) < length else 0)
        for start, length, (rows, columns) in zip(starts, lengths, cut, strict=True)
    ]


def _square(size: int) -> tuple[int, int]:
    """The matrix nearest to a square with room for this number of elements."""
    columns = math.isqrt(size - 1) + 1
    return -(-size // columns), columns


def _cut(shape: Shape) -> tuple[int, int]:
    """Rows and columns, with the dimensions cut where their sum is smallest."""
    cuts = [(math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape))]
    return min(cuts, key=sum, default=(1, shape[0]))


def held(numbers: NDArray[np.floating[Any]]) -> Floats:
    """As float32, and at most its largest finite number."""
    return np.asarray(np.clip(numbers, -FLOAT32_MAX, FLOAT32_MAX), np.float32)


def orthonormal(columns: Floats, kernels: Kernels) -> Floats:
    """Modified Gram-Schmidt, each column twice; shape (rank, rows), as the argument.

    A column that depends on those before becomes zero. The same on every machine: sums are those
    of ``Kernels.project_rows``, everything else is a single operation of float64.
    """
    found = np.zeros_like(columns)
    for k, column in enumerate(columns):
        norm = _length(column, kernels)
        if not norm:
            continue
        vector = column.astype(np.float64) / norm  # far from both ends of float32
        for _ in range(2):
            for earlier in found[:k]:
                share = kernels.project_rows(held(vector), vector.size, earlier)[0]
                vector = vector - share * earlier.astype(np.float64)
        length = _length(held(vector), kernels)
        if length > _DEPENDENT:
            found[k] = (vector / length).astype(np.float32)
    return found


def directions(basis: Floats, kernels: Kernels, *, seed: int, step: int, layer: int) -> Floats:
    """Each column of the basis, shape (rank, rows), with length 1; zero columns are redrawn."""
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


# ----------------------------------------------------------------------------
# Selector ``powersgd``: factors of low rank instead of matrices, by a step of power iteration.


class PowerSgdSettings(Settings):
    """The rank of the factors.

    Attributes:
        rank: columns of the factors; the paper uses 1, 2 and 4.
        layers: elements or shape of each layer of the gradient; without, those given to the codec.
    """

    rank: Annotated[int, Field(ge=1, le=1024)] = 2
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None


class PowerSgd(StepCounter[PowerSgdSettings], LayeredSelector[PowerSgdSettings], SendsCoefficients):
    """PowerSGD (Vogels, Karimireddy, Jaggi: PowerSGD: Practical low-rank gradient compression for
    distributed optimization, NeurIPS 2019, https://arxiv.org/abs/1905.13727).

    For a layer that is a matrix X of n rows and m columns on each worker, and Q of m rows and
    ``rank`` columns from the all-reduce before, the same on all workers:

        P <- the sum of X · Q over the workers, with its columns made orthonormal
        Q <- the sum of X transposed · P
        the sum of X is taken for P · Q transposed

    Both products are linear, so that the switch can sum them: rank · (n + m) numbers travel instead
    of n · m. P goes in two rounds of the selector's own, the largest magnitude by MAX and then
    integers, as quantizer ``fixed`` makes them, with a scale for each layer: no sum overflows, by
    the proof given there. Each worker's own Q is what the codec's quantizer and carrier sum. What
    the worker sends of its x is P · (X transposed · P) transposed; the rest is the
    error feedback's. Vectors, and matrices that have no more elements than their factors, are sent
    as they are with the last round.

    All workers have the same sum of P and make it orthonormal by the same operations in the same
    order, so that they agree to the last bit on what the sum of Q stands for. Columns of Q are
    brought to length 1 first, which changes nothing but the scale of P's before it is made
    orthonormal; a column that has become zero is redrawn from the seed. The error of P's
    integers only tilts the basis, and is thus in the error feedback.

    The sum is finite as long as N · rank · sqrt(n) · the largest magnitude of a gradient is below
    float32's largest number, 3.4e38: the columns of P have length 1, so that no element of the sum
    of Q exceeds N · sqrt(n) times that magnitude. Beyond, factors are held at float32's largest
    number, and elements of their product may be infinite.

    Differences with the paper:

    * A shape of more than two dimensions becomes the matrix with the smallest sum of rows and
      columns. In the paper the first dimension gives the rows, and all others the columns.
    * A gradient of unknown shape is one matrix, as square as possible. Such a matrix hardly has a
      low rank, so give the layers.
    * The error feedback keeps the difference from the worker's own x. In the paper's public code it
      keeps the difference from the mean; the sum over the workers is the same.
    """

    name = "powersgd"
    local = False
    verbatim = False
    capabilities = Capabilities(
        provides=frozenset({SAME_INDICES, LEAVES_RESIDUAL, COEFFICIENTS}),
        rounds=(0, 2),
        metadata="rank * rows + 1 for each matrix",
    )
    settings = PowerSgdSettings

    def __init__(self, parameters: PowerSgdSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._basis: Floats | None = None  # the last sums of Q, one after the other
        self._lefts: list[Floats | None] = []  # P of each layer while an all-reduce runs
        self._size = 0  # of the gradient
        self._sent: Floats | None = None  # this worker's coefficients
        self._decoded: Floats | None = None  # what was expanded last

    def check(self, gradient: Floats) -> None:
        super().check(gradient)
        if self._basis is not None and self._basis.size != self._length(gradient.size):
            raise StateError(
                f"the factors of worker {self.context.worker}'s codec have {self._basis.size} "
                f"elements, those of this gradient {self._length(gradient.size)}; use one codec "
                "for each tensor layout."
            )

    def select(self, x: Floats) -> SparseValues:
        """What a worker that is alone would send."""
        return self.select_alone(x)

    def choose(self, x: Floats, workers: int) -> SelectSteps:
        self._size = x.size
        layers = self._layers(x.size)
        if not any(layer.rank for layer in layers):
            self._sent = None
            return None, x
        kernels = self.context.kernels
        self._lefts = yield from self._left_factors(x, layers, workers)
        self._sent = np.concatenate(
            [
                x[layer.part]
                if left is None
                else held(kernels.project_columns(layer.matrix(x), layer.columns, left))
                for layer, left in zip(layers, self._lefts, strict=True)
            ]
        )
        return None, held(self.from_coefficients(self._sent, x.size))

    def to_coefficients(self, selected: SparseValues, size: int) -> tuple[int, SparseValues]:
        """The factors Q, and what is sent as it is, one layer after the other."""
        return (size, selected) if self._sent is None else (self._sent.size, (None, self._sent))

    def from_coefficients(self, values: Floats, size: int) -> Floats:
        if self._sent is None:
            return values
        values = self._decoded = held(values)  # infinity times zero is no number
        layers = self._layers(size)
        parts, start = [], 0
        for layer, left in zip(layers, self._lefts, strict=True):
            own = values[start : start + layer.coefficients]
            if left is not None:
                own = self.context.kernels.factor_product(left, own, layer.rank)[: layer.size]
            parts.append(own)
            start += layer.coefficients
        return np.concatenate(parts)

    def commit(self) -> None:
        """The sum of Q is where the next step of the iteration begins."""
        super().commit()
        if self._sent is not None and self._decoded is not None:
            start, factors = 0, []
            for layer in self._layers(self._size):
                if layer.rank:
                    factors.append(self._decoded[start : start + layer.coefficients])
                start += layer.coefficients
            self._basis = np.concatenate(factors)
        self._sent = self._decoded = None
        self._lefts = []

    def with_parameters(self, parameters: PowerSgdSettings) -> Self:
        """The same state; with another rank, factors are redrawn as in the first all-reduce."""
        part = super().with_parameters(parameters)
        if parameters.rank != self.parameters.rank:
            part._basis = None
        return part

    def adopt(self, state: Mapping[str, Any]) -> None:
        self.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        basis = None if self._basis is None else self._basis.copy()
        return {**super().state_dict(), "basis": basis}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._expect(state, {"step", "basis"})
        basis = loaded(state["basis"], "basis")
        super().load_state_dict({"step": state["step"]})
        self._basis = basis

    def _layers(self, size: int) -> list[FactoredLayer]:
        return layers_of(self.layers, size, self.parameters.rank)

    def _length(self, size: int) -> int:
        """Elements of all factors Q together."""
        return sum(layer.coefficients for layer in self._layers(size) if layer.rank)

    def _left_factors(
        self, x: Floats, layers: list[FactoredLayer], workers: int
    ) -> Generator[list[Segment], list[Ints], list[Floats | None]]:
        """P of each layer, shape (rank · rows,), None for what is sent as it is; two rounds."""
        kernels = self.context.kernels
        flat = [
            held(kernels.project_rows(layer.matrix(x), layer.columns, right))
            for layer, right in self._right_factors(layers)
        ]
        largest = np.array([kernels.absmax_nnz(each)[0] for each in flat], np.int32)
        (answer,) = yield [Segment(ReduceOp.MAX, largest)]
        scalings = [FixedScaling(kernels, float(each), workers) for each in answer.view(np.float32)]
        summed = np.zeros(sum(each.size for each in flat), np.int32)
        if answer.any():
            integers = [
                scaling.quantize(each) for scaling, each in zip(scalings, flat, strict=True)
            ]
            (summed,) = yield [Segment(ReduceOp.SUM, np.concatenate(integers))]
        lefts: list[Floats | None] = []
        start, scaling = 0, iter(scalings)
        for layer in layers:
            if not layer.rank:
                lefts.append(None)
                continue
            stop = start + layer.rank * layer.rows
            total = next(scaling).dequantize(summed[start:stop]).reshape(layer.rank, -1)
            lefts.append(orthonormal(held(total), kernels).ravel())
            start = stop
        return lefts

    def _right_factors(self, layers: list[FactoredLayer]) -> list[tuple[FactoredLayer, Floats]]:
        """The layers that have factors, each with Q of the last all-reduce, shape (rank ·
        columns,).
        """
        found, start = [], 0
        for number, layer in enumerate(layers):
            if layer.rank:
                shape = layer.rank, layer.columns
                stop = start + layer.coefficients
                basis = np.zeros(shape, np.float32)
                if self._basis is not None:
                    basis = self._basis[start:stop].reshape(shape)
                start = stop
                named = {"seed": self.context.seed, "step": self._step, "layer": number}
                found.append((layer, directions(basis, self.context.kernels, **named).ravel()))
        return found
