"""Selector ``scalecom``: the workers take turns in choosing the coordinates for all.

Chen et al., "ScaleCom: Scalable sparsified gradient compression for communication-efficient
distributed training", NeurIPS 2020 (cyclic local top-k, their CLT-k).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from innet.codecs.layers import Layers, check_layers, chosen_layers, slices
from innet.codecs.parts import (
    LEAVES_RESIDUAL,
    SAME_INDICES,
    Capabilities,
    Context,
    Floats,
    Ints,
    Selector,
    SelectSteps,
    SelectSumSteps,
    SparseValues,
    StepCounter,
)
from innet.core.errors import ConfigError, InputError
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import Settings

Rate = Annotated[int, Field(ge=1, lt=2**31)]

_RULE = ((196, 25), (128, 50), (0, 400))  # least operations per element, rate


class ScaleComSettings(Settings):
    """The compression rate, and how elements are chosen.

    Attributes:
        rate: one of ``rate`` elements is chosen; 1 chooses all.
        exact: choose the floor(n / rate) largest of a layer of n elements, at least one. Otherwise
            choose the largest of each chunk of ``rate`` elements, in one pass without sorting.
        layers: elements or shape of each layer of the gradient; by default those of the codec.
        rates: a rate for each layer; by default ``rate`` for all.
        flops: floating-point operations that a worker spends in an iteration for each element of
            the gradient, for each layer. The rates follow by the paper's rule of thumb.
        first_dense: send the first of several layers completely, whatever its rate.
        warmup: the first all-reduces, so many, send everything.
    """

    rate: Rate = 100
    exact: bool = False
    layers: Annotated[Layers, Field(strict=False, min_length=1)] = None
    rates: Annotated[tuple[Rate, ...], Field(strict=False)] | None = None
    flops: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(strict=False)] | None = None
    first_dense: bool = True
    warmup: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _not_both(self) -> ScaleComSettings:
        if self.rates is not None and self.flops is not None:
            raise ValueError("give either rates or flops, not both")
        return self


def rate_of(flops: float) -> int:
    """The paper's rule of thumb: a layer's rate from its operations per gradient element."""
    return next(rate for least, rate in _RULE if flops >= least)


class _Division(NamedTuple):
    """How a gradient is divided.

    Attributes:
        size: elements of the gradient.
        layers: slice and rate of each layer.
        led: how many indices the leader chooses; 0 if every layer is sent completely.
        mixed: some layers are sent completely.
    """

    size: int
    layers: tuple[tuple[slice, int], ...]
    led: int
    mixed: bool


class ScaleCom(StepCounter[ScaleComSettings], Selector[ScaleComSettings]):
    """In all-reduce t of N workers, worker t mod N leads. It chooses indices from its own x, and
    all workers use them. If workers have left, N counts those who take part, in their order.

    The leader's k indices take a round of their own, with k words. The leader sends its indices
    plus one, the other workers send zeros, and the switch combines them by OR. So k coordinates
    arrive for any number of workers, with the sum of the workers' x at each. The leader's choice
    suits all workers if their x are similar. Error feedback ``lowpass`` makes them so.

    Indices of layers that are sent completely are known and are not sent. If everything is sent,
    there is no such round. The same worker leads again when a failed all-reduce is repeated.

    Differences with the paper: a chunk has ``rate`` elements, so that one of ``rate`` is chosen;
    the paper does not fix the chunk's length. Among equal magnitudes the first is chosen.
    """

    name = "scalecom"
    local = False
    capabilities = Capabilities(
        provides=frozenset({SAME_INDICES, LEAVES_RESIDUAL}), rounds=(0, 1), metadata="k"
    )
    settings = ScaleComSettings

    def __init__(self, parameters: ScaleComSettings, context: Context) -> None:
        super().__init__(parameters, context)
        self.layers = chosen_layers(parameters.layers, context.layers)
        self._rates = parameters.rates
        if parameters.flops is not None:
            self._rates = tuple(rate_of(each) for each in parameters.flops)
        self._last: _Division | None = None
        if self._rates is not None and len(self._rates) != len(self.layers or ()):
            raise ConfigError(
                f"selector 'scalecom': {len(self._rates)} rates for {len(self.layers or ())} "
                "layers; give as many rates as layers."
            )

    def check(self, gradient: Floats) -> None:
        check_layers(self.layers, gradient.size, self.context.worker)

    def leader(self, workers: int) -> int:
        """Position, among the workers who take part, of the leader of the next all-reduce."""
        return self._step % workers

    def _leads(self, workers: int) -> bool:
        return self._place() == self.leader(workers)

    def _place(self) -> int:
        return self.context.worker if self.rank is None else self.rank

    def select(self, x: Floats) -> SparseValues:
        """What this worker chooses when it leads."""
        if self._everything(x.size):
            return None, x
        indices = self._with_dense_layers(self._lead(x), x.size)
        return indices, x[indices]

    def choose(self, x: Floats, workers: int) -> SelectSteps:
        """The leader's indices, with this worker's values.

        Raises:
            InputError: the workers' codecs are not those of workers 0 .. N - 1.
        """
        if self._everything(x.size):
            return None, x
        local = self._lead(x) if self._leads(workers) else None
        indices = yield from self._follow(local, x.size, workers)
        return indices, x[indices]

    def choose_from_sum(self, gradient: Floats, memory: Floats, workers: int) -> SelectSumSteps:
        if self._everything(gradient.size):
            return None, None
        local = self._lead(memory, gradient) if self._leads(workers) else None
        indices = yield from self._follow(local, gradient.size, workers)
        return indices, None

    def _follow(
        self, local: Ints | None, size: int, workers: int
    ) -> Generator[list[Segment], list[Ints], Ints]:
        """The leader's indices (``local`` on the leader), and those of layers sent completely."""
        position = self._place()
        if position >= workers:
            raise InputError(
                f"worker {position} takes part in an all-reduce of {workers} workers; to take "
                f"turns in leading they must be numbered 0 to {workers - 1} (build_codec's worker)."
            )
        led = self._division(size).led
        words = np.zeros(led, np.int32) if local is None else local + np.int32(1)
        (answer,) = yield [Segment(ReduceOp.OR, words)]
        indices = self._with_dense_layers(answer - np.int32(1), size)
        # Without a leader all words are zero; two leaders mix their words.
        if indices[0] < 0 or (local is not None and not np.array_equal(answer, words)):
            raise InputError(
                f"in all-reduce {self._step} not exactly one worker led; build the codecs with "
                "the numbers of their workers (build_codec's worker) and load states of one time."
            )
        return indices

    def applied_indices(self, total: Floats) -> Ints | None:
        """Return None: all chosen elements are applied. The next worker becomes the leader."""
        del total
        self._step += 1
        return None

    def _division(self, size: int) -> _Division:
        """The division of a gradient of this size, cached for the last size."""
        if self._last is None or self._last.size != size:
            parts = slices(self.layers, size)
            rates = list(self._rates or [self.parameters.rate] * len(parts))
            if self.parameters.first_dense and len(parts) > 1:
                rates[0] = 1
            layers = tuple(zip(parts, rates, strict=True))
            led = sum(self._count(layer, rate) for layer, rate in layers if rate > 1)
            self._last = _Division(size, layers, led, 1 in rates)
        return self._last

    def _everything(self, size: int) -> bool:
        warm = self._step < self.parameters.warmup
        return warm or size == 0 or self._division(size).led == 0

    def _count(self, layer: slice, rate: int) -> int:
        size: int = layer.stop - layer.start
        return max(1, size // rate) if self.parameters.exact else -(-size // rate)

    def _lead(self, x: Floats, y: Floats | None = None) -> Ints:
        """This worker's choice from x, or x + y, in the layers that are not sent completely."""
        kernels = self.context.kernels
        chosen = []
        for layer, rate in self._division(x.size).layers:
            if rate == 1:
                continue
            if self.parameters.exact:
                part = x[layer] if y is None else x[layer] + y[layer]
                indices, _ = kernels.top_k(part, self._count(layer, rate))
            elif y is None:
                indices = kernels.chunk_argmax(x[layer], rate)
            else:
                indices = kernels.chunk_argmax_sum(x[layer], y[layer], rate)
            chosen.append(indices + np.int32(layer.start) if layer.start else indices)
        return np.concatenate(chosen) if len(chosen) > 1 else chosen[0]

    def _with_dense_layers(self, chosen: Ints, size: int) -> Ints:
        """The choice and all indices of layers that are sent completely, ascending."""
        division = self._division(size)
        if not division.mixed:
            return chosen
        parts, start = [], 0
        for layer, rate in division.layers:
            if rate == 1:
                parts.append(np.arange(layer.start, layer.stop, dtype=np.int32))
            else:
                stop = start + self._count(layer, rate)
                parts.append(chosen[start:stop])
                start = stop
        return np.concatenate(parts)
