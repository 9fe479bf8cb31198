"""How many words each round of an all-reduce sends: what thin packets take instead of values.

A codec's rounds depend on the gradients, so the codec itself runs, without a network, and what it
sends is written down. Where gradients of the wanted size are too large for that, ``modelled_sizes``
runs it on two smaller ones, and goes on as sizes grow from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.loop import RoundResult, Vector, reduce_loop, run_loop
from innet.codecs import Codec, CodecSpec, ModelLayers, build_codec
from innet.core.errors import InputError, StalledError
from innet.core.numbers import is_real, require_int
from innet.core.reduce_op import ReduceOp, Segment, SizedSegment, combine, sends
from innet.core.threads import cores

_SHARE = 8  # of a sample, the smaller one: what does not grow shows in it, and noise counts little

MODELLED, BY_CODEC = "modelled", "codec"
"""Where sizes come from, as records say it."""


@dataclass(frozen=True, slots=True)
class RoundSizes:
    """What each worker sends in an all-reduce.

    Attributes:
        elements: of the gradient.
        rounds: the segments of each round, one round after the other.
        source: "codec" if the codec sent them for gradients of that size, otherwise "modelled".
    """

    elements: int
    rounds: tuple[tuple[SizedSegment, ...], ...]
    source: str = BY_CODEC

    @property
    def words(self) -> int:
        """Words of all rounds."""
        return sum(segment.size for each in self.rounds for segment in each)


def combined(segments: Mapping[int, Sequence[Segment]]) -> RoundResult:
    """What the network must answer to a round, computed without it.

    It overflows where a sum of the first workers, by index, leaves int32. A switch that takes the
    workers in another order may see that for other words.

    Args:
        segments: by worker; those of all workers have the same operations and lengths.

    Raises:
        StalledError: they have not.
    """
    given = list(segments.values())
    shapes = [[(each.operation, len(each.words), each.owner) for each in item] for item in given]
    if any(shape != shapes[0] for shape in shapes):
        raise StalledError(
            "workers send different operations or numbers of words in the same round, and would "
            "wait for each other for ever."
        )
    totals, overflowed = [], False
    for index, first in enumerate(given[0]):
        words = [
            item[index].words
            for worker, item in segments.items()
            if first.owner is None or sends(first.operation, worker == first.owner)
        ]
        if not words:  # nobody's: a barrier, or a sum of no others
            totals.append(np.zeros_like(first.words))
            continue
        if first.operation in {ReduceOp.OR, ReduceOp.MAX}:
            totals.append(combine(ReduceOp(first.operation), words))
            continue
        total, overflows = _sum(words)
        totals.append(total)
        overflowed |= overflows
    return RoundResult(
        # Each worker has arrays of its own, as from a network.
        {worker: [total.copy() for total in totals] for worker in segments},
        overflowed=overflowed,
    )


def _sum(words: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], bool]:
    """The sum modulo 2**32, and whether a sum of the first ones has left int32."""
    total, overflows = words[0].copy(), False
    for each in words[1:]:
        before = total
        total = before + each
        overflows |= bool(((before ^ total) & (each ^ total) < 0).any())
    return total, overflows


def sized(segments: Sequence[Segment]) -> tuple[SizedSegment, ...]:
    """The sizes of segments."""
    return tuple(SizedSegment(each.operation, len(each.words), each.owner) for each in segments)


def round_sizes(
    codec: CodecSpec | Sequence[Codec],
    gradients: Iterable[Vector],
    *,
    seed: int = 0,
    layers: ModelLayers | None = None,
) -> RoundSizes:
    """The sizes of all rounds of an all-reduce, from the codec itself, without a network.

    Args:
        codec: name or parts, as ``innet.codecs.build_codec`` takes it; or the codecs of all
            workers, whose state changes as in an all-reduce.
        gradients: float32, one flat array for each worker, of one size.
        seed: of new codecs.
        layers: of the model, for new codecs.

    Raises:
        GradientError: a gradient that a codec does not take.
        InputError: no gradients, or not as many codecs.
        StalledError: workers do not agree on a round.
    """
    vectors = dict(enumerate(gradients))
    if not vectors:
        raise InputError("no gradients; sizes of rounds need those of at least one worker.")
    codecs = (
        [build_codec(codec, seed=seed, worker=each, layers=layers) for each in vectors]
        if isinstance(codec, str | Mapping)
        else list(codec)
    )
    if len(codecs) != len(vectors):
        raise InputError(f"{len(codecs)} codecs for {len(vectors)} gradients; give one for each.")
    rounds: list[tuple[SizedSegment, ...]] = []

    def written(segments: Mapping[int, list[Segment]]) -> RoundResult:
        result = combined(segments)
        rounds.append(sized(next(iter(segments.values()))))
        return result

    loop = reduce_loop(dict(enumerate(codecs)), vectors, tuple(vectors), threads=cores())
    run_loop(loop, written, lambda _: tuple(vectors))
    return RoundSizes(vectors[0].size, tuple(rounds))


def scaled(sizes: RoundSizes, factor: float) -> RoundSizes:
    """Sizes for gradients that are ``factor`` times as long, if all segments grow with them.

    Raises:
        InputError: a factor that is not above 0.
    """
    if not is_real(factor) or not 0 < factor < float("inf"):
        raise InputError(f"a factor of {factor!r}; give a number above 0.")
    exact = Fraction(factor)
    return RoundSizes(
        ceil(sizes.elements * exact),
        tuple(
            tuple(replace(segment, size=ceil(segment.size * exact)) for segment in each)
            for each in sizes.rounds
        ),
        MODELLED,
    )


def extrapolated(small: RoundSizes, large: RoundSizes, elements: int) -> RoundSizes:
    """Sizes for ``elements``, by those of two smaller gradients.

    Each segment grows as a power of the elements, the one that leads from the small gradient's to
    the large one's. So parts that do not grow, such as a handshake, stay as they are; those of a
    dense codec grow in proportion, and factors of a matrix with its square root.

    Raises:
        InputError: the two have other rounds, or the same size.
    """
    shape, other = ([[s.operation for s in each] for each in of.rounds] for of in (small, large))
    if shape != other or not 0 < small.elements < large.elements:
        raise InputError(
            f"gradients of {small.elements} and {large.elements} elements take other rounds, so "
            "nothing leads from them to larger ones; choose samples of other sizes."
        )

    def grown(one: SizedSegment, two: SizedSegment) -> SizedSegment:
        if one.size * large.elements == two.size * small.elements:
            return replace(two, size=ceil(Fraction(two.size * elements, large.elements)))
        power = log(max(two.size, 1) / max(one.size, 1)) / log(large.elements / small.elements)
        return replace(two, size=round(two.size * (elements / large.elements) ** power))

    return RoundSizes(
        elements,
        tuple(
            tuple(map(grown, first, second))
            for first, second in zip(small.rounds, large.rounds, strict=True)
        ),
        MODELLED,
    )


def modelled_sizes(
    codec: CodecSpec,
    gradients: Callable[[int], Iterable[Vector]],
    elements: int,
    *,
    sample: int = 1 << 17,
    seed: int = 0,
) -> RoundSizes:
    """Sizes for gradients that are too large to run the codec on them.

    The codec runs on gradients of ``sample`` elements and of an eighth of them; see
    ``extrapolated``. Gradients that are no larger than that are not modelled.

    Args:
        codec: name or parts.
        gradients: makes the gradients of all workers, for a number of elements.
        elements: of the gradient whose sizes are wanted.
        sample: elements of the larger sample, at least 8.
        seed: of the codecs.

    Raises:
        InputError: a number that is too small, or the codec's rounds differ between the samples.
    """
    elements = require_int(elements, "the number of elements")
    sample = require_int(sample, "the sample")
    if elements < 1 or sample < _SHARE:
        raise InputError(
            f"{elements} elements by a sample of {sample}; give at least 1 and {_SHARE}."
        )
    if elements <= sample:
        return round_sizes(codec, gradients(elements), seed=seed)
    return extrapolated(*sampled_sizes(codec, gradients, sample, seed=seed), elements)


def sampled_sizes(
    codec: CodecSpec,
    gradients: Callable[[int], Iterable[Vector]],
    sample: int,
    *,
    seed: int = 0,
) -> tuple[RoundSizes, RoundSizes]:
    """The sizes of an eighth of a sample and of the sample, for ``extrapolated``; see
    ``modelled_sizes``.
    """
    sizes = sample // _SHARE, sample
    small, large = (round_sizes(codec, gradients(size), seed=seed) for size in sizes)
    return small, large
