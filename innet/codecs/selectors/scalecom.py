"""Selector ``scalecom``: the workers take turns in choosing the coordinates for all.

Chen et al., "ScaleCom: Scalable sparsified gradient compression for communication-efficient
distributed training", NeurIPS 2020 (cyclic local top-k, their CLT-k).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from innet.codecs.layers import Layers, slices
from innet.codecs.optional_methods import ChoosesFromSum
from innet.codecs.parts import (
    LEAVES_RESIDUAL,
    SAME_INDICES,
    Capabilities,
    Floats,
    Ints,
    Longs,
    PartContext,
    SelectSteps,
    SelectSumSteps,
    SparseValues,
    StepCounter,
)
from innet.codecs.selectors.layered import LayeredSelector
from innet.codecs.selectors.packed_indices import ChunkCode, IndexCode, SortedCode
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
        warmup: the number of all-reduces at the start that send everything.
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
        layers: slice of each layer, and how its indices are sent; None if all of it is sent.
        words: of the leader's indices.
        chosen: there are layers of which elements are chosen.
    """

    size: int
    layers: tuple[tuple[slice, IndexCode | None], ...]
    words: int
    chosen: bool


class ScaleCom(StepCounter[ScaleComSettings], LayeredSelector[ScaleComSettings], ChoosesFromSum):
    """In all-reduce t of N workers, worker t mod N leads. It chooses indices from its own x, and
    all workers use them. If workers have left, N counts those who take part, in their order.

    The leader's k indices take a separate round. The leader sends them packed
    (``packed_indices``), the other workers send zeros, and the switch combines them by OR. So k
    coordinates arrive for any number of workers, with the sum of the workers' x at each. The first
    word of the round is the leader's position plus one: all workers see whether the right one led,
    and no other. The leader's choice suits all workers if their x are similar. Error feedback
    ``lowpass`` makes them so.

    Indices of layers that are sent completely are known and are not sent. If everything is sent,
    there is no such round. The same worker leads again when a failed all-reduce is repeated.

    Differences with the paper: a chunk has ``rate`` elements, so that one of ``rate`` is chosen;
    the paper does not fix the chunk's length. Among equal magnitudes the first is chosen.
    """

    name = "scalecom"
    local = False
    capabilities = Capabilities(
        provides=frozenset({SAME_INDICES, LEAVES_RESIDUAL}),
        rounds=(0, 1),
        metadata="ceil(k * ceil(log2(rate)) / 32) + 1",
    )
    settings = ScaleComSettings

    def __init__(self, parameters: ScaleComSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._rates = parameters.rates
        if parameters.flops is not None:
            self._rates = tuple(rate_of(each) for each in parameters.flops)
        self._last: _Division | None = None
        if self._rates is not None and len(self._rates) != len(self.layers or ()):
            raise ConfigError(
                f"selector 'scalecom': {len(self._rates)} rates for {len(self.layers or ())} "
                "layers; give as many rates as layers."
            )

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

    def chunks_of_sum(self, size: int, workers: int) -> Longs:
        parts: list[tuple[int, int, int]] = []
        if self._leads(workers) and not self._everything(size):
            layers = self._division(size).layers
            chunked = [(layer, code) for layer, code in layers if isinstance(code, ChunkCode)]
            parts = [(layer.start, layer.stop, code.chunk) for layer, code in chunked]
        return np.array(parts, np.int64).reshape(-1, 3)

    def choose_from_sum(
        self, gradient: Floats, memory: Floats, workers: int, largest: Ints
    ) -> SelectSumSteps:
        if self._everything(gradient.size):
            return None, None
        local = None
        if self._leads(workers):
            local = self._lead_from_sum(gradient, memory, largest)
        indices = yield from self._follow(local, gradient.size, workers)
        return indices, None

    def _follow(
        self, local: list[Ints] | None, size: int, workers: int
    ) -> Generator[list[Segment], list[Ints], Ints]:
        """The leader's indices (``local`` on the leader), and those of layers sent completely."""
        position = self._place()
        if position >= workers:
            raise InputError(
                f"worker {position} takes part in an all-reduce of {workers} workers; to take "
                f"turns in leading they must be numbered 0 to {workers - 1} (build_codec's worker)."
            )
        words = np.zeros(1 + self._division(size).words, np.int32)
        if local is not None:
            words[0] = position + 1
            self._encode(local, size, words[1:])
        (answer,) = yield [Segment(ReduceOp.OR, words)]
        # Without a leader all words are zero; two leaders mix theirs.
        led = answer[0] == self.leader(workers) + 1
        if local is not None:
            led = led and np.array_equal(answer, words)
        indices = self._decode(answer[1:], size) if led else None
        if indices is None:
            raise InputError(
                f"in all-reduce {self._step} not exactly one worker led; build the codecs with "
                "the numbers of their workers (build_codec's worker) and load states of one time."
            )
        return indices

    def _division(self, size: int) -> _Division:
        """The division of a gradient of this size, cached for the last size."""
        if self._last is None or self._last.size != size:
            parts = slices(self.layers, size)
            rates = list(self._rates or [self.parameters.rate] * len(parts))
            if self.parameters.first_dense and len(parts) > 1:
                rates[0] = 1
            codes = [self._code(part, rate) for part, rate in zip(parts, rates, strict=True)]
            words = sum(code.words for code in codes if code is not None)
            chosen = any(code is not None for code in codes)
            layers = tuple(zip(parts, codes, strict=True))
            self._last = _Division(size, layers, words, chosen)
        return self._last

    def _code(self, layer: slice, rate: int) -> IndexCode | None:
        size: int = layer.stop - layer.start
        if rate == 1:
            return None
        if self.parameters.exact:
            return SortedCode(size, max(1, size // rate))
        return ChunkCode(size, rate)

    def _everything(self, size: int) -> bool:
        warm = self._step < self.parameters.warmup
        return warm or size == 0 or not self._division(size).chosen

    def _lead(self, x: Floats) -> list[Ints]:
        """This worker's choice from x in each layer that is not sent completely.

        Indices count from the layer's first element.
        """
        kernels = self.context.kernels
        chosen = []
        for layer, code in self._division(x.size).layers:
            if isinstance(code, SortedCode):
                chosen.append(kernels.top_k(x[layer], code.count)[0])
            elif isinstance(code, ChunkCode):
                chosen.append(kernels.chunk_argmax(x[layer], code.chunk))
        return chosen

    def _lead_from_sum(self, gradient: Floats, memory: Floats, largest: Ints) -> list[Ints]:
        """``_lead`` of memory + gradient; ``largest`` are those of ``chunks_of_sum``."""
        chosen, found = [], 0
        for layer, code in self._division(gradient.size).layers:
            if isinstance(code, SortedCode):
                x = memory[layer] + gradient[layer]
                chosen.append(self.context.kernels.top_k(x, code.count)[0])
            elif isinstance(code, ChunkCode):
                here = largest[found : found + code.count]
                chosen.append(here - np.int32(layer.start) if layer.start else here)
                found += code.count
        return chosen

    def _encode(self, chosen: list[Ints], size: int, words: Ints) -> None:
        """Write the words of the choice."""
        codes = [code for _, code in self._division(size).layers if code is not None]
        start = 0
        for indices, code in zip(chosen, codes, strict=True):
            words[start : start + code.words] = code.encode(indices, self.context.kernels)
            start += code.words

    def _decode(self, words: Ints, size: int) -> Ints | None:
        """All indices of the words and of layers sent completely; None if they are no choice."""
        chosen, start = [], 0
        for layer, code in self._division(size).layers:
            if code is None:
                continue
            indices = code.decode(words[start : start + code.words], self.context.kernels)
            start += code.words
            length = layer.stop - layer.start
            if indices.size != code.count or not _ascending(indices, length):
                return None
            chosen.append(indices)
        return self._with_dense_layers(chosen, size)

    def _with_dense_layers(self, chosen: list[Ints], size: int) -> Ints:
        """The choice and all indices of layers that are sent completely, ascending."""
        parts, left = [], iter(chosen)
        for layer, code in self._division(size).layers:
            if code is None:
                parts.append(np.arange(layer.start, layer.stop, dtype=np.int32))
            else:
                indices = next(left)
                parts.append(indices + np.int32(layer.start) if layer.start else indices)
        return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _ascending(indices: Ints, size: int) -> bool:
    """Whether they are different elements of a layer of that size, in order."""
    return bool(indices[0] >= 0 and indices[-1] < size and (indices[1:] > indices[:-1]).all())
