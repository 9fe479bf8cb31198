"""Claims about what codecs send and remember: bytes, growth, lossless sums, rates, memories."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from innet.allreduce.report import counted
from innet.claims.claim import (
    TIMES,
    ClaimContext,
    Codecs,
    Measure,
    ModelMeasure,
    OfflineMeasure,
    Workers,
    bars,
    lines,
    reached,
)
from innet.claims.offline import (
    OfflineReducer,
    batch_size,
    gradients_of,
    model_with_data,
    selections,
    steps_of,
)
from innet.codecs import CodecSpec
from innet.core.errors import InputError
from innet.core.settings import CodecDescription, WorkerCount
from innet.experiments.models.model import Data, Model
from innet.experiments.summing import by_type, make_collective
from innet.records import Finding, Report

_STEPS = 24  # of trainings without a network; the second half counts
_REPEATS = 5  # of what is timed: the median counts

Rate = Annotated[float, Field(gt=0)]


# ----------------------------------------------------------------------------
# What grows with the number of workers.


class _Growth(ModelMeasure):
    """What grows with the number of workers, and what does not.

    Attributes:
        codecs: codecs by label.
        constant: the label of what does not grow.
    """

    codecs: Codecs
    constant: str

    def _grown(
        self,
        counts: Sequence[int],
        rows: Mapping[str, Sequence[float]],
        *,
        setup: str,
        what: str,
        criterion: str,
        others: float,
        axis: str,
    ) -> Finding:
        """The finding: the constant does not grow, and others grow by this factor at least."""
        growth = {label: row[-1] / row[0] for label, row in rows.items()}
        return Finding(
            setup=setup,
            measured=f"from {counts[0]} to {counts[-1]} workers {what} "
            + ", ".join(f"{ratio:.2f}{TIMES} ({label})" for label, ratio in growth.items()),
            criterion=criterion,
            holds=all(
                ratio == 1 if label == self.constant else ratio >= others
                for label, ratio in growth.items()
            ),
            direction=all(
                growth[self.constant] < ratio
                for label, ratio in growth.items()
                if label != self.constant
            ),
            numbers={"growth": growth},
            series=lines(counts, rows),
            axes=("workers", axis),
            logarithmic=("x", "y"),
        )


class BuildUp(_Growth):
    """The union of the workers' selections, by the number of workers, on a training's gradients.

    The model trains without a network for a few steps. The claim holds if the union of ``constant``
    is the same for all counts, and those of the others at least double.

    Attributes:
        counts: numbers of workers.
    """

    kind: Literal["build-up"]
    counts: Annotated[tuple[Workers, ...], Field(strict=False, min_length=1)]

    def measure(self, context: ClaimContext) -> Finding:
        model, data = model_with_data(self.model)
        quick, seed = context.options.quick, context.options.seed
        counts, steps = (self.counts[:4], 4) if quick else (self.counts, _STEPS)

        def union(codec: CodecSpec, count: int) -> float:
            _, seen = selections(model, data, codec, workers=count, steps=steps, seed=seed)
            return statistics.fmean(seen)

        unions = {
            label: [union(codec, count) for count in counts] for label, codec in self.codecs.items()
        }
        found = self._grown(
            counts,
            unions,
            setup=f"{model.title}, {steps} steps without a network; mean of the second half",
            what="the union grows",
            criterion=f"the union of {self.constant} does not grow, other ones at least double",
            others=2.0,
            axis="coordinates in the union",
        )
        first = {label: each[0] for label, each in unions.items()}
        return found.model_copy(update={"numbers": {**found.numbers, "of_one_worker": first}})


class WorkerTraffic(_Growth):
    """Bytes of one worker in an all-reduce of a training's gradients, by the number of workers.

    The claim holds where the bytes of ``constant`` are the same for all counts.

    Attributes:
        counts: numbers of workers.
    """

    kind: Literal["traffic"]
    counts: Annotated[tuple[WorkerCount, ...], Field(strict=False, min_length=1)]

    def measure(self, context: ClaimContext) -> Finding:
        """Bytes of one worker, for gradients of the same parameters at all counts."""
        model, data = model_with_data(self.model)
        seed = context.options.seed
        counts = self.counts[: 3 if context.options.quick else None]
        gradients = gradients_of(model, data, max(counts), seed)
        layers = tuple(model.shapes.values())
        sent: dict[str, list[float]] = {label: [] for label in self.codecs}
        for label, codec in self.codecs.items():
            for count in counts:
                collective = make_collective(workers=count, codec=codec, layers=layers, seed=seed)
                for _ in range(2):  # a codec may know more about the union from the second time on
                    _, report = collective.all_reduce(gradients[:count])
                sent[label].append(float(report.bytes_sent))
        return self._grown(
            counts,
            sent,
            setup=f"{model.title}: the gradients of a step, over the built-in switch",
            what="the bytes of each grow",
            criterion=f"the bytes of {self.constant} do not grow",
            others=0.0,
            axis="bytes sent by each",
        )


# ----------------------------------------------------------------------------
# Beside dense all-reduces.


class SparseAggregation(Measure):
    """Bytes and time of an all-reduce of sparse tensors over the switch, compared with ``dense``.

    Attributes:
        codecs: by label; "dense" is what the others are compared with.
        elements: of each worker's tensor; a tenth in a quick run.
        workers: how many.
        density: share of the elements that are not zero.
        overlap: whether they are at the same coordinates on all workers.
        min_ratio: the claim holds if ``subject`` sends fewer bytes by at least this factor.
        subject: a label.
    """

    kind: Literal["aggregation"]
    codecs: Codecs
    elements: Annotated[int, Field(ge=1000)]
    workers: WorkerCount = 4
    density: Annotated[float, Field(gt=0, le=1)]
    overlap: bool
    subject: str
    min_ratio: Annotated[float, Field(ge=0)] = 0.0

    def measure(self, context: ClaimContext) -> Finding:
        """Bytes and seconds of all-reduces over the switch, in memory."""
        quick, seed = context.options.quick, context.options.seed
        size = self.elements // (10 if quick else 1)
        tensors = list(_sparse(self, size, np.random.default_rng(seed)))
        reports = {
            label: _measured(codec, tensors, seed, 2 if quick else _REPEATS)
            for label, codec in {"dense": "dense", **self.codecs}.items()
        }
        dense = reports.pop("dense")
        rates = {
            label: {"bytes": dense[0].bytes_sent / report.bytes_sent, "time": dense[1] / seconds}
            for label, (report, seconds) in reports.items()
        }
        alike = "the same places" if self.overlap else "independent places"
        ratio = rates[self.subject]["bytes"]
        exact = all(report.exact for report, _ in reports.values())
        return Finding(
            setup=f"{self.workers} workers, {size:,} elements, {self.density * 100:g} % of them "
            f"not zero, at {alike}; built-in switch, in memory, one core for all",
            measured="; ".join(
                f"{label}: {rate['bytes']:.2f}{TIMES} fewer bytes than dense, {rate['time']:.2f}"
                f"{TIMES} as fast in memory"
                for label, rate in rates.items()
            )
            + ("" if exact else "; NOT EXACT"),
            criterion=f"{self.subject} sends at least {self.min_ratio:g}{TIMES} fewer bytes, "
            "and the sums are exact"
            if self.min_ratio
            else "",
            holds=ratio >= self.min_ratio and exact if self.min_ratio else None,
            direction=ratio > 1,
            numbers=rates,
            series=bars({label: rate["bytes"] for label, rate in rates.items()}),
            axes=("", "times fewer bytes than dense"),
        )


def _sparse(
    measure: SparseAggregation, size: int, rng: np.random.Generator
) -> Iterator[NDArray[np.float32]]:
    filled = max(1, round(measure.density * size))
    shared = rng.choice(size, filled, replace=False)
    for _ in range(measure.workers):
        tensor = np.zeros(size, np.float32)
        indices = shared if measure.overlap else rng.choice(size, filled, replace=False)
        tensor[indices] = rng.standard_normal(filled, np.float32)
        yield tensor


def _measured(
    codec: CodecSpec, tensors: list[NDArray[np.float32]], seed: int, repeats: int
) -> tuple[Report, float]:
    """The last report, and the median of the seconds after the first all-reduce, which compiles."""
    collective = make_collective(workers=len(tensors), codec=codec, seed=seed)
    seconds = []
    for _ in range(repeats + 1):
        _, report = collective.all_reduce(tensors)
        codecs = report.workers * (report.seconds.encode + report.seconds.decode)
        seconds.append(codecs + report.seconds.network)
    return report, statistics.median(seconds[1:])


# ----------------------------------------------------------------------------
# Lossless sums.


class Lossless(OfflineMeasure):
    """Which sums of a training's gradients are exact, and how many bytes they take.

    Attributes:
        codecs: codecs by label.
        subject: the claim holds if every sum of this one is the float32 nearest to the true sum,
        min_ratio: and it sends fewer bytes than dense float32 by at least this factor.
    """

    kind: Literal["lossless"]
    codecs: Codecs
    subject: str
    min_ratio: Rate = 1.0

    def measure(self, context: ClaimContext) -> Finding:
        options = context.options
        model, data = model_with_data(self.model)
        gradients = gradients_of(model, data, self.workers, options.seed)
        exact = nearest_sums(gradients)
        plain = np.add.reduce(gradients)
        some = exact != 0
        shares = {"float32, in the workers' order": {"nearest": _share(plain, exact, some)}}
        for label, codec in self.codecs.items():
            collective = make_collective(workers=self.workers, codec=codec, seed=options.seed)
            for _ in range(2):  # a codec may know more about the union from the second time on
                total, report = collective.all_reduce(gradients)
            shares[label] = {
                "nearest": _share(total, exact, some),
                "float32's": _share(total, plain, some),
                "compression": report.compression,
            }
        subject = shares[self.subject]
        holds = subject["nearest"] == 1 and subject["compression"] >= self.min_ratio
        words = [
            f"{label} {each['nearest']:.1%}"
            + (f", {each['compression']:.2f}{TIMES} fewer bytes" if "compression" in each else "")
            for label, each in shares.items()
        ]
        return Finding(
            setup=f"{model.title}: the gradients of a step, {self.workers} workers; "
            f"{int(some.sum()):,} sums that are not zero",
            measured="of these are the float32 nearest to the true sum: " + "; ".join(words),
            criterion=f"{self.subject}: all, in at least {self.min_ratio:g}{TIMES} fewer bytes",
            holds=holds,
            numbers=shares,
            series=bars({label: shares[label]["compression"] for label in self.codecs}),
            axes=("", "times fewer bytes than dense"),
        )


def nearest_sums(rows: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """For each column the float32 nearest to the true sum, half to even.

    ``math.fsum`` rounds once, to float64. Rounding that again is wrong only where it lies halfway
    between two float32 numbers and the true sum does not.
    """
    columns = np.array(rows, np.float64)
    doubles = np.array([math.fsum(column) for column in columns.T.tolist()])
    found = doubles.astype(np.float32)
    halfway = np.flatnonzero((doubles.view(np.int64) & 0x1FFFFFFF) == 0x10000000)
    for i in halfway.tolist():
        true = sum(map(Fraction, columns[:, i].tolist()), Fraction(0))
        away = true - Fraction(float(doubles[i]))
        if away:  # then one of the two is nearer, and lies on that side of halfway
            side = np.float32(np.inf if away > 0 else -np.inf)
            lies = found[i] > doubles[i]
            found[i] = found[i] if lies == (away > 0) else np.nextafter(found[i], side)
    return found


def _share(one: NDArray[np.float32], other: NDArray[np.float32], where: NDArray[np.bool_]) -> float:
    same = one.view(np.int32) == other.view(np.int32)
    return float(same[where].mean()) if where.any() else 1.0


# ----------------------------------------------------------------------------
# A rate's name and its bytes.


class WireRates(Measure):
    """Compression on the wire, headers included, beside the rate that a codec is named by.

    Attributes:
        codec: of which ``rate`` is set.
        elements: of the gradient; a tenth in a quick run.
        workers: how many.
        rates: nominal rates, and the least compression of each for the claim to hold.
    """

    kind: Literal["wire-rates"]
    codec: str
    elements: Annotated[int, Field(ge=1000)] = 1_000_000
    workers: Workers = 4
    rates: Annotated[dict[str, Rate], Field(min_length=1)]

    def measure(self, context: ClaimContext) -> Finding:
        options = context.options
        size = self.elements // (10 if options.quick else 1)
        rng = np.random.default_rng(options.seed)
        job = list(rng.standard_normal((self.workers, size), np.float32))
        found = {}
        for rate in self.rates:
            spec = {"preset": self.codec, "selector": {"rate": int(rate)}}
            _, report = make_collective(workers=self.workers, codec=spec).all_reduce(job)
            found[rate] = report.compression
        nominal = tuple(float(rate) for rate in self.rates)
        return Finding(
            setup=f"{size:,} normal numbers, {self.workers} workers, over the built-in switch",
            measured="; ".join(f"rate {rate}: {each:.1f}{TIMES}" for rate, each in found.items()),
            criterion="at least "
            + ", ".join(f"{least:g}{TIMES} for {rate}" for rate, least in self.rates.items()),
            holds=reached(found, self.rates),
            numbers=found,
            series=lines(nominal, {"on the wire": tuple(found.values()), "as named": nominal}),
            axes=("rate", "times fewer bytes than dense"),
            logarithmic=("x", "y"),
        )


# ----------------------------------------------------------------------------
# AdaComp's own counting, by type of layer.


class ElementRates(OfflineMeasure):
    """Compression by layer type, as AdaComp's paper counts it, over a training.

    A layer of n elements of which m are sent has the rate 32 · n / (b · m): b is 8 bits for bins of
    at most 64 elements, and 16 for longer ones. Indices within a bin are in these bits; nothing is
    counted for the bins' scales.

    Attributes:
        codec: with the selector ``adacomp``.
        epochs: of the training.
        published: by type of layer ("convolution", "matrix", "recurrent", "vector"), the paper's
            rate. The claim holds if the mean rate of each is at least so high.
    """

    kind: Literal["element-rates"]
    codec: CodecDescription = "adacomp"
    epochs: Annotated[int, Field(ge=1)] = 2
    published: dict[str, Rate] = Field(default_factory=dict)

    def measure(self, context: ClaimContext) -> Finding:
        options = context.options
        model, data = model_with_data(self.model)
        layers = tuple(model.shapes.values())
        reducer = OfflineReducer(self.codec, self.workers, layers, options.seed)
        per_epoch: list[dict[str, float]] = []
        sent: dict[str, int] = {}  # bits of an epoch
        dense: dict[str, int] = {}  # elements of a step

        # Step 1: each sum of the training adds what the paper counts of it, by type of layer.
        def reduce(gradients: list[NDArray[np.float32]]) -> tuple[NDArray[np.float32], None]:
            total, _ = reducer(gradients)
            bits = counted(reducer.codecs, reducer.outcomes).get("counted_bits")
            if bits is None:
                raise InputError(
                    f"the paper of the codec {self.codec!r} counts no other bits than those on the "
                    "wire; choose adacomp."
                )
            found, elements = by_type(model.shapes, bits, self.workers)
            dense.update(elements)
            for kind, each in found.items():
                sent[kind] = sent.get(kind, 0) + each
            return total, None

        # Step 2: the rates of each epoch.
        workers = self.workers
        steps, epoch = _steps(model, data, workers, self.epochs, quick=options.quick)
        training = steps_of(model, data, reduce, workers=workers, steps=steps, seed=options.seed)
        for step, _ in enumerate(training, 1):
            if step % epoch == 0:
                per_epoch.append(
                    {
                        kind: 32 * epoch * dense[kind] / bits if bits else math.inf
                        for kind, bits in sent.items()
                    }
                )
                sent.clear()
        # Step 3: the verdict, by the mean of all epochs.
        overall = {
            kind: statistics.fmean(each[kind] for each in per_epoch) for kind in per_epoch[0]
        }
        wire = model.size * steps / reducer.words
        return Finding(
            setup=f"{model.title}, {self.workers} workers, {len(per_epoch)} epochs without a "
            "network; 8 bits for each element sent of bins up to 64, else 16",
            measured=", ".join(
                f"{kind} {rate:.0f}{TIMES} ({min(e[kind] for e in per_epoch):.0f} to "
                f"{max(e[kind] for e in per_epoch):.0f})"
                for kind, rate in overall.items()
            )
            + f"; words to the switch: {wire:.1f}{TIMES} fewer than dense",
            criterion=", ".join(
                f"{kind} at least {rate:g}{TIMES}" for kind, rate in self.published.items()
            ),
            holds=reached(overall, self.published),
            numbers={"by_type": overall, "by_epoch": per_epoch, "words": wire},
            series=lines(
                range(1, len(per_epoch) + 1),
                {kind: [each[kind] for each in per_epoch] for kind in overall},
            ),
            axes=("epoch", "times fewer bits, as the paper counts"),
            logarithmic=("y",),
        )


# ----------------------------------------------------------------------------
# ScaleCom's memories.


class Similarity(OfflineMeasure):
    """Cosine of the workers' memories, of each two, over the second half of a training.

    Attributes:
        codec: with error feedback that keeps a memory.
        least: the claim holds if the mean is at least this.
    """

    kind: Literal["similarity"]
    codec: CodecDescription = "scalecom"
    least: Annotated[float, Field(ge=-1, le=1)] = 0.5

    def measure(self, context: ClaimContext) -> Finding:
        options = context.options
        model, data = model_with_data(self.model)
        layers = tuple(model.shapes.values())
        reducer = OfflineReducer(self.codec, self.workers, layers, options.seed)
        workers = self.workers
        steps, _ = _steps(model, data, workers, 1, quick=options.quick)
        training = steps_of(model, data, reducer, workers=workers, steps=steps, seed=options.seed)
        seen = [_mean_cosine(reducer) for _ in training]
        second = seen[len(seen) // 2 :]
        mean = statistics.fmean(second)
        return Finding(
            setup=f"{model.title}, {self.workers} workers, an epoch without a network; second half",
            measured=f"mean cosine {mean:.2f} (of a step {min(second):.2f} to {max(second):.2f})",
            criterion=f"at least {self.least:g}",
            holds=mean >= self.least,
            numbers={"mean": mean, "least": min(second), "most": max(second)},
            series=lines(range(1, len(seen) + 1), {self.model: seen}),
            axes=("iteration", "cosine of two workers' memories"),
        )


def _mean_cosine(reducer: OfflineReducer) -> float:
    feedbacks: list[Any] = [each.error_feedback for each in reducer.codecs]
    memories = [each.residual.astype(np.float64) for each in feedbacks]
    norms = [np.linalg.norm(each) or 1.0 for each in memories]
    return statistics.fmean(
        float(memories[i] @ memories[j] / (norms[i] * norms[j]))
        for i, j in combinations(range(len(memories)), 2)
    )


def _steps(model: Model, data: Data, workers: int, epochs: int, *, quick: bool) -> tuple[int, int]:
    """Steps of a training of so many epochs, and of one of them."""
    epoch = len(data.train) // (batch_size(model, data, workers) * workers)
    return (8, 4) if quick else (epoch * epochs, epoch)
