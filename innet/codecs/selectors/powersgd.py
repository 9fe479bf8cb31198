"""Selector ``powersgd``: factors of low rank instead of matrices, by a step of power iteration."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from innet.codecs.capabilities import COEFFICIENTS, REST, SAME_INDICES, Capabilities
from innet.codecs.feedback.residual import loaded
from innet.codecs.layers import Layers, check_layers, chosen_layers
from innet.codecs.parts import Choice, Context, Floats, Ints, Picks, Selector
from innet.codecs.quantisers.fixed import FixedScaling
from innet.codecs.selectors.low_rank import Layer, directions, held, layers_of, orthonormal
from innet.codecs.steps import Counting
from innet.config import Settings
from innet.errors import StateError
from innet.words import Operation, Segment


class PowerSgdSettings(Settings):
    """How much of a matrix is sent.

    Attributes:
        rank: columns of the factors; the paper uses 1, 2 and 4.
        layers: elements or shape of each layer of the gradient; without, as the codec was told.
    """

    rank: Annotated[int, Field(ge=1, le=1024)] = 2
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None


class PowerSgd(Counting[PowerSgdSettings], Selector[PowerSgdSettings]):
    """PowerSGD (Vogels, Karimireddy, Jaggi: PowerSGD: Practical low-rank gradient compression for
    distributed optimization, NeurIPS 2019, https://arxiv.org/abs/1905.13727).

    For a layer that is a matrix X of n rows and m columns on each worker, and Q of m rows and
    ``rank`` columns from the all-reduce before, the same on all workers:

        P <- the sum of X · Q over the workers, with its columns made orthonormal
        Q <- the sum of X transposed · P
        the sum of X is taken for P · Q transposed

    Both products are linear, so that the switch can sum them: rank · (n + m) numbers travel instead
    of n · m. P goes in two rounds of the selector's own, the largest magnitude by MAX and then
    integers, as quantiser ``fixed`` makes them, with a scale for each layer: no sum overflows, by
    the proof given there. Each worker's own Q is what the codec's quantiser and carrier sum. What
    the worker thereby sends of its x is P · (X transposed · P) transposed; the rest is the
    feedback's. Vectors, and matrices that have no more elements than their factors, are sent as
    they are with the last round.

    All workers have the same sum of P and make it orthonormal by the same operations in the same
    order, so that they agree to the last bit on what the sum of Q stands for. Columns of Q are
    brought to length 1 first, which changes nothing but the scale of P's before it is made
    orthonormal; a column that has become zero is drawn anew, from the seed. The error of P's
    integers only tilts the basis, and is thus in the feedback. Factors that float32 cannot hold, of
    gradients near its end, are held at its largest number.

    Differences with the paper:

    * Shapes of more than two dimensions are cut where rows and columns together are fewest, where
      the paper puts the first dimension against the others.
    * A gradient of unknown shape is one matrix, as square as can be. That it then has a low rank is
      not to be expected: tell the layers.
    * The feedback holds what is missing of the worker's own x. In the paper's public code it holds
      the difference with the mean; the sum over the workers is the same.
    """

    name = "powersgd"
    local = False
    verbatim = False
    capabilities = Capabilities(
        provides=frozenset({SAME_INDICES, REST, COEFFICIENTS}),
        rounds=(0, 2),
        metadata="rank * rows + 1 for each matrix",
    )
    settings = PowerSgdSettings

    def __init__(self, parameters: PowerSgdSettings, context: Context) -> None:
        super().__init__(parameters, context)
        self.layers = chosen_layers(parameters.layers, context.layers)
        self._basis: Floats | None = None  # the last sums of Q, one after the other
        self._lefts: list[Floats | None] = []  # P of each layer while an all-reduce runs
        self._sent: Floats | None = None  # this worker's coefficients
        self._decoded: Floats | None = None  # what was expanded last

    def check(self, gradient: Floats) -> None:
        check_layers(self.layers, gradient.size, self.context.worker)
        if self._basis is not None and self._basis.size != self._length(gradient.size):
            raise StateError(
                f"the factors of worker {self.context.worker}'s codec have {self._basis.size} "
                f"elements, those of this gradient {self._length(gradient.size)}; use one codec "
                "for each tensor layout."
            )

    def select(self, x: Floats) -> Picks:
        """What a worker that is alone would send."""
        choice = self.choose(x, 1)
        try:
            segments = next(choice)
            while True:
                segments = choice.send([segment.words for segment in segments])
        except StopIteration as stop:
            picks: Picks = stop.value
            return picks

    def choose(self, x: Floats, workers: int) -> Choice:
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
        return None, held(self.expand(self._sent, x.size))

    def express(self, picks: Picks, size: int) -> tuple[int, Picks]:
        """The factors Q, and what is sent as it is, one layer after the other."""
        return (size, picks) if self._sent is None else (self._sent.size, (None, self._sent))

    def expand(self, values: Floats, size: int) -> Floats:
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

    def conclude(self, total: Floats) -> Ints | None:
        """The sum of Q is where the next step of the iteration begins."""
        self._step += 1
        if self._sent is not None and self._decoded is not None:
            layers, start, factors = self._layers(total.size), 0, []
            for layer in layers:
                if layer.rank:
                    factors.append(self._decoded[start : start + layer.coefficients])
                start += layer.coefficients
            self._basis = np.concatenate(factors)
        self._sent = self._decoded = None
        self._lefts = []
        return None

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

    def _layers(self, size: int) -> list[Layer]:
        return layers_of(self.layers, size, self.parameters.rank)

    def _length(self, size: int) -> int:
        """Elements of all factors Q together."""
        return sum(layer.coefficients for layer in self._layers(size) if layer.rank)

    def _left_factors(
        self, x: Floats, layers: list[Layer], workers: int
    ) -> Generator[list[Segment], list[Ints], list[Floats | None]]:
        """P of each layer, shape (rank · rows,), None for what is sent as it is; two rounds."""
        kernels = self.context.kernels
        own = [
            held(kernels.project_rows(layer.matrix(x), layer.columns, right))
            for layer, right in self._right_factors(layers)
        ]
        largest = np.array([kernels.survey(each)[0] for each in own], np.int32)
        (answer,) = yield [Segment(Operation.MAX, largest)]
        scalings = [FixedScaling(kernels, float(each), workers) for each in answer.view(np.float32)]
        summed = np.zeros(sum(each.size for each in own), np.int32)
        if answer.any():
            integers = [scaling.quantise(each) for scaling, each in zip(scalings, own, strict=True)]
            (summed,) = yield [Segment(Operation.SUM, np.concatenate(integers))]
        lefts: list[Floats | None] = []
        start, scaling = 0, iter(scalings)
        for layer in layers:
            if not layer.rank:
                lefts.append(None)
                continue
            stop = start + layer.rank * layer.rows
            total = next(scaling).dequantise(summed[start:stop]).reshape(layer.rank, -1)
            lefts.append(orthonormal(held(total), kernels).ravel())
            start = stop
        return lefts

    def _right_factors(self, layers: list[Layer]) -> list[tuple[Layer, Floats]]:
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
