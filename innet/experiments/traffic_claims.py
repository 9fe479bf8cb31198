"""Claims about what codecs send and remember: lossless sums, rates, memories, filters, batches.

Trainings here have no network (``OfflineReducer``): the words are combined as a switch does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from innet.core.errors import DivergedError, InputError
from innet.core.settings import CodecDescription, Decay, Settings
from innet.experiments.papers import Codecs, Measure, Workers
from innet.records import Finding, Metric, Series

if TYPE_CHECKING:
    from innet.experiments.measurements import OfflineReducer
    from innet.experiments.models.model import Model
    from innet.experiments.papers import Context

_TIMES = "\N{MULTIPLICATION SIGN}"

Rate = Annotated[float, Field(gt=0)]


class _OfModel(Measure):
    """A measurement while a model trains.

    Attributes:
        model: a registered model's name.
        workers: of that training.
    """

    model: str
    workers: Workers = 4

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)


# ----------------------------------------------------------------------------
# Lossless sums.


class Lossless(_OfModel):
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

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import (  # noqa: PLC0415 - take long
            _gradients,
            _model,
        )
        from innet.experiments.training import make_collective  # noqa: PLC0415 - likewise

        options = context.options
        model, data = _model(self.model)
        gradients = _gradients(model, data, self.workers, options.seed)
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
            + (f", {each['compression']:.2f}{_TIMES} fewer bytes" if "compression" in each else "")
            for label, each in shares.items()
        ]
        return Finding(
            claim="",
            paper_result="",
            setup=f"{model.title}: the gradients of a step, {self.workers} workers; "
            f"{int(some.sum()):,} sums that are not zero",
            measured="of these are the float32 nearest to the true sum: " + "; ".join(words),
            criterion=f"{self.subject}: all, in at least {self.min_ratio:g}{_TIMES} fewer bytes",
            holds=None if options.quick else holds,
            numbers=shares,
            series=tuple(
                Series(label=label, y=(each["compression"],))
                for label, each in shares.items()
                if "compression" in each
            ),
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

    def finding(self, context: Context) -> Finding:
        from innet.experiments.training import make_collective  # noqa: PLC0415 - takes long

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
            claim="",
            paper_result="",
            setup=f"{size:,} normal numbers, {self.workers} workers, over the built-in switch",
            measured="; ".join(f"rate {rate}: {each:.1f}{_TIMES}" for rate, each in found.items()),
            criterion="at least "
            + ", ".join(f"{least:g}{_TIMES} for {rate}" for rate, least in self.rates.items()),
            holds=None
            if options.quick
            else all(found[rate] >= least for rate, least in self.rates.items()),
            numbers=found,
            series=(
                Series(label="on the wire", x=nominal, y=tuple(found.values())),
                Series(label="as named", x=nominal, y=nominal),
            ),
            axes=("rate", "times fewer bytes than dense"),
            logarithmic=("x", "y"),
        )


# ----------------------------------------------------------------------------
# AdaComp's own counting, by type of layer.


class ElementRates(_OfModel):
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

    def finding(self, context: Context) -> Finding:
        from innet.allreduce.report import counted  # noqa: PLC0415 - it brings Numba
        from innet.experiments.measurements import OfflineReducer, _model  # noqa: PLC0415
        from innet.experiments.training import by_type  # noqa: PLC0415 - takes long

        options = context.options
        model, data = _model(self.model)
        reducer = OfflineReducer(
            self.codec, self.workers, tuple(model.shapes.values()), options.seed
        )
        per_epoch: list[dict[str, float]] = []
        sent: dict[str, int] = {}  # bits of an epoch
        dense: dict[str, int] = {}  # elements of a step

        def reduce(gradients: list[NDArray[np.float32]]) -> tuple[NDArray[np.float32], None]:
            total, _ = reducer(gradients)
            bits = counted(reducer.codecs, reducer.outcomes).get("counted_bits")
            if bits is None:
                raise InputError(
                    f"the paper of the codec {self.codec!r} counts no other bits than those on the "
                    "wire; choose adacomp."
                )
            found, elements = by_type(model, bits, self.workers)
            dense.update(elements)
            for kind, each in found.items():
                sent[kind] = sent.get(kind, 0) + each
            return total, None

        steps, epoch = _steps(self, model, len(data.train), options.quick)
        training = _training(
            model, data, reduce, workers=self.workers, steps=steps, seed=options.seed
        )
        for step, _ in enumerate(training, 1):
            if step % epoch == 0:
                per_epoch.append(
                    {
                        kind: 32 * epoch * dense[kind] / bits if bits else math.inf
                        for kind, bits in sent.items()
                    }
                )
                sent.clear()
        words = reducer.words
        overall = {
            kind: statistics.fmean(each[kind] for each in per_epoch) for kind in per_epoch[0]
        }
        wire = model.size * steps / words
        return Finding(
            claim="",
            paper_result="",
            setup=f"{model.title}, {self.workers} workers, {len(per_epoch)} epochs without a "
            "network; 8 bits for each element sent of bins up to 64, else 16",
            measured=", ".join(
                f"{kind} {rate:.0f}{_TIMES} ({min(e[kind] for e in per_epoch):.0f} to "
                f"{max(e[kind] for e in per_epoch):.0f})"
                for kind, rate in overall.items()
            )
            + f"; words to the switch: {wire:.1f}{_TIMES} fewer than dense",
            criterion=", ".join(
                f"{kind} at least {rate:g}{_TIMES}" for kind, rate in self.published.items()
            ),
            holds=None
            if options.quick or not self.published
            else all(overall[kind] >= rate for kind, rate in self.published.items()),
            numbers={"by_type": overall, "by_epoch": per_epoch, "words": wire},
            series=tuple(
                Series(
                    label=kind,
                    x=tuple(range(1, len(per_epoch) + 1)),
                    y=tuple(each[kind] for each in per_epoch),
                )
                for kind in overall
            ),
            axes=("epoch", "times fewer bits, as the paper counts"),
            logarithmic=("y",),
        )


# ----------------------------------------------------------------------------
# ScaleCom: similar memories, the filter, large batches.


class Similarity(_OfModel):
    """Cosine of the workers' memories, of each two, over the second half of a training.

    Attributes:
        codec: with error feedback that keeps a memory.
        least: the claim holds if the mean is at least this.
    """

    kind: Literal["similarity"]
    codec: CodecDescription = "scalecom"
    least: Annotated[float, Field(ge=-1, le=1)] = 0.5

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import OfflineReducer, _model  # noqa: PLC0415

        options = context.options
        model, data = _model(self.model)
        layers = tuple(model.shapes.values())
        reducer = OfflineReducer(self.codec, self.workers, layers, options.seed)
        steps, _ = _steps(self, model, len(data.train), options.quick)
        training = _training(
            model, data, reducer, workers=self.workers, steps=steps, seed=options.seed
        )
        seen = [_mean_cosine(reducer) for _ in training]
        second = seen[len(seen) // 2 :]
        mean = statistics.fmean(second)
        return Finding(
            claim="",
            paper_result="",
            setup=f"{model.title}, {self.workers} workers, an epoch without a network; second half",
            measured=f"mean cosine {mean:.2f} (of a step {min(second):.2f} to {max(second):.2f})",
            criterion=f"at least {self.least:g}",
            holds=None if options.quick else mean >= self.least,
            numbers={"mean": mean, "least": min(second), "most": max(second)},
            series=(Series(label=self.model, x=tuple(range(1, len(seen) + 1)), y=tuple(seen)),),
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


class Variant(Settings):
    """A training of ``Variants``.

    Attributes:
        codec: None for plain sums.
        batch: factor of the batch size.
        rate: factor of the learning rate.
        warmup: share of the steps in which the learning rate rises to that.
    """

    codec: CodecDescription | None = None
    batch: Annotated[int, Field(ge=1)] = 1
    rate: Rate = 1.0
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.0


class Variants(_OfModel):
    """Final scores of trainings that differ in codec, batch and learning rate.

    Attributes:
        methods: by label.
        epochs: of all of them; by default the recipe's.
        decay: of the learning rate, after ``innet.experiments.training.Schedule``.
        learns: the claim holds only if ``reference`` itself is at most so much worse than the first
            method. A codec that follows plain sums into a collapse shows nothing.
        subject: the claim holds if this one's score is at most ``max_score_drop`` worse than
        reference: this one's: percentage points of a share, per cent of other scores.
        max_score_drop: see above; negative if it must be better.
    """

    kind: Literal["variants"]
    methods: Annotated[dict[str, Variant], Field(min_length=2)]
    epochs: Annotated[int, Field(ge=1)] | None = None
    decay: Decay = "constant"
    learns: Annotated[float, Field(ge=0)] | None = None
    subject: str
    reference: str
    max_score_drop: float

    def finding(self, context: Context) -> Finding:
        from innet.experiments.measurements import OfflineReducer, _model  # noqa: PLC0415
        from innet.experiments.training import Schedule, one_thread, plain_sum, train  # noqa: PLC0415

        options = context.options
        model, data = _model(self.model)
        scores: dict[str, list[float]] = {}
        for label, variant in self.methods.items():
            batch = variant.batch * model.recipe.batch_size
            steps = len(data.train) // (batch * self.workers)
            steps = 4 if options.quick else steps * (self.epochs or model.recipe.epochs)
            rate = variant.rate * model.recipe.learning_rate
            schedule = Schedule(
                self.workers,
                steps,
                batch,
                rate,
                model.recipe.momentum,
                decay=self.decay,
                warmup=round(variant.warmup * steps),
            )
            layers = tuple(model.shapes.values())
            for seed in range(options.seed, options.seed + (1 if options.quick else options.seeds)):
                reduce: Any = plain_sum
                if variant.codec is not None:
                    reduce = OfflineReducer(variant.codec, self.workers, layers, seed)
                last = math.nan
                try:
                    with one_thread():
                        for step in train(schedule, model, data, reduce, seed):
                            last = step.score if step.score is not None else last
                except DivergedError:
                    last = math.inf
                scores.setdefault(label, []).append(last)
        means = {label: statistics.fmean(each) for label, each in scores.items()}
        holds = math.isfinite(means[self.subject]) and (
            _drop(model.metric, means[self.reference], means[self.subject]) <= self.max_score_drop
        )
        first = next(iter(self.methods))
        criterion = f"{self.subject} at most {self.max_score_drop:g} worse than {self.reference}"
        if self.learns is not None:
            criterion += f", which is at most {self.learns:g} worse than {first}"
            reference = means[self.reference]
            holds = holds and math.isfinite(reference)
            holds = holds and _drop(model.metric, means[first], reference) <= self.learns
        return Finding(
            claim="",
            paper_result="",
            setup=f"{model.title}, {self.workers} workers, {self.epochs or model.recipe.epochs} "
            f"epochs without a network; {len(next(iter(scores.values())))} seeds",
            measured=f"{model.metric.name}: "
            + "; ".join(f"{label} {_said(each)}" for label, each in scores.items()),
            criterion=criterion,
            holds=None if options.quick else holds,
            numbers={label: [_finite(one) for one in each] for label, each in scores.items()},
        )


def _drop(metric: Metric, reference: float, score: float) -> float:
    """How much worse: points of a share, per cent of another number; negative where better."""
    worse = reference - score if metric.higher_is_better else score - reference
    return 100 * worse if metric.unit == "share" else 100 * worse / reference


def _said(scores: list[float]) -> str:
    if not all(map(math.isfinite, scores)):
        return "diverges"
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return f"{statistics.fmean(scores):.4g} ± {spread:.2g}"


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None


# ----------------------------------------------------------------------------


def _steps(measure: Any, model: Model, samples: int, quick: bool) -> tuple[int, int]:
    """Steps of the training, and of an epoch of it."""
    batch = min(model.recipe.batch_size, samples // measure.workers)
    epoch = samples // (batch * measure.workers)
    return (8, 4) if quick else (epoch * getattr(measure, "epochs", 1), epoch)


def _training(
    model: Model, data: Any, reduce: Any, *, workers: int, steps: int, seed: int
) -> Iterator[object]:
    """The steps of a training of the model's recipe, without its scores."""
    from innet.experiments.models.model import Data  # noqa: PLC0415 - takes long
    from innet.experiments.training import Schedule, one_thread, train  # noqa: PLC0415

    batch = min(model.recipe.batch_size, len(data.train) // workers)
    schedule = Schedule(workers, steps, batch, model.recipe.learning_rate, model.recipe.momentum)
    few = Data(data.train, data.test.take(np.arange(1)))  # the score does not matter
    with one_thread():
        yield from train(schedule, model, few, reduce, seed)
