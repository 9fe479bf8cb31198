"""Selector ``scalecom``: one worker after another chooses the coordinates for all.

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

_RULE = ((196, 25), (128, 50), (0, 400))  # from so many operations per element on, one of so many


class ScaleComSettings(Settings):
    """How much is chosen, and how.

    Attributes:
        rate: one of so many elements is chosen; 1 for all of them.
        exact: the floor(n / rate) largest of a layer of n elements, at least one. Otherwise the
            largest of each chunk of ``rate`` elements, which takes one reading and no sorting.
        layers: elements or shape of each layer of the gradient; without, as the codec was told.
        rates: of each layer; ``rate`` for all if not given.
        flops: of each layer, the floating-point operations that a worker spends in an iteration
            for each element of the gradient; the rates follow by the paper's rule of thumb.
        first_dense: the first of several layers is sent whole, whatever its rate.
        warmup: so many all-reduces at the beginning send everything.
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
    """The paper's rule of thumb, of a layer's floating-point operations per gradient element."""
    return next(rate for least, rate in _RULE if flops >= least)


class _Division(NamedTuple):
    """How a gradient is divided.

    Attributes:
        size: its elements.
        layers: each layer's place and rate.
        led: how many indices the leader chooses; 0 where every layer is sent whole.
        mixed: some layers are sent whole.
    """

    size: int
    layers: tuple[tuple[slice, int], ...]
    led: int
    mixed: bool


class ScaleCom(StepCounter[ScaleComSettings], Selector[ScaleComSettings]):
    """In all-reduce t of N workers, worker t mod N leads: its choice of its own x is everybody's.
    Where some have left, N are those who take part, and they are counted in their order.

    The leader's k indices travel as a round of their own, 4·k bytes for each worker as all other
    segments: k words, in which the leader puts its indices, each plus one, and the others zeros,
    combined by OR. So k coordinates arrive whatever the number of workers, and what arrives is the
    sum of the x at these: to choose and to add up are exchangeable. That the leader's choice is a
    good one for all rests on the workers' x being alike, which is what error feedback ``lowpass``
    is for.

    Indices of layers that are sent whole are known and do not travel. Where all is sent there is no
    round. An all-reduce that fails is led by the same worker when it is repeated.

    Differences with the paper: a chunk has ``rate`` elements, so that one of ``rate`` is chosen
    (the chunk's length is a detail that other descriptions leave open), and of equal magnitudes the
    first counts.
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
        """Who leads the next all-reduce: the place among the workers who take part."""
        return self._step % workers

    def _leads(self, workers: int) -> bool:
        return self._place() == self.leader(workers)

    def _place(self) -> int:
        return self.context.worker if self.rank is None else self.rank

    def select(self, x: Floats) -> SparseValues:
        """What this worker would choose if it led."""
        if self._everything(x.size):
            return None, x
        indices = self._with_whole_layers(self._lead(x), x.size)
        return indices, x[indices]

    def choose(self, x: Floats, workers: int) -> SelectSteps:
        """The leader's choice.

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
        """The leader's indices, ``local`` if it is this worker; and those of whole layers."""
        position = self._place()
        if position >= workers:
            raise InputError(
                f"worker {position} takes part in an all-reduce of {workers} workers; to take "
                f"turns in leading they must be numbered 0 to {workers - 1} (build_codec's worker)."
            )
        led = self._division(size).led
        words = np.zeros(led, np.int32) if local is None else local + np.int32(1)
        (answer,) = yield [Segment(ReduceOp.OR, words)]
        indices = self._with_whole_layers(answer - np.int32(1), size)
        # No leader leaves zeros, two of them a mixture.
        if indices[0] < 0 or (local is not None and not np.array_equal(answer, words)):
            raise InputError(
                f"in all-reduce {self._step} not exactly one worker led; build the codecs with "
                "the numbers of their workers (build_codec's worker) and load states of one time."
            )
        return indices

    def applied_indices(self, total: Floats) -> Ints | None:
        """All that was chosen counts; the next worker leads."""
        del total
        self._step += 1
        return None

    def _division(self, size: int) -> _Division:
        """That of a gradient of this size, made anew if the last one was of another."""
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
        """This worker's choice of x, or of x + y, in the layers that are not sent whole."""
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

    def _with_whole_layers(self, chosen: Ints, size: int) -> Ints:
        """The choice, and all indices of the layers that are sent whole; ascending."""
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
