"""Claims about what trainings end with: beside plain sums, other codecs and other batches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from innet.claims.claim import TIMES, ClaimContext, Codecs, ModelMeasure, OfflineMeasure
from innet.claims.offline import OfflineReducer, model_with_data
from innet.core.errors import DivergedError
from innet.core.settings import CodecDescription, Decay, Settings, TrainSettings, WorkerCount
from innet.experiments.comparison import methods
from innet.experiments.models.model import model_of
from innet.experiments.summing import plain_sum
from innet.experiments.training import TrainingSchedule, one_thread, train
from innet.records import Finding, Metric, Run, Series
from innet.records.units import plural

_QUICK_STEPS = 12  # of a training in a quick run
# Warm-ups that end within these steps, or they would say nothing of what follows.
_QUICK_WARM_UPS = {"warmup": 4, "warmup_steps": 1}


class _Trained(ModelMeasure):
    """Trainings through the switch from the same initial parameters, on the same batches.

    Attributes:
        workers: data-parallel workers.
        epochs: by default those of the model's recipe.
        batch_size: likewise. Half of it with twice the workers keeps the number of steps.
    """

    workers: WorkerCount = 4
    epochs: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None


def _runs(
    measure: _Trained,
    codec: CodecDescription,
    context: ClaimContext,
    *,
    plain: bool = False,
    **settings: Any,
) -> list[Run]:
    """A run for each seed, with the codec or with plain sums."""
    asked = TrainSettings(
        model=measure.model,
        workers=measure.workers,
        codecs=(codec,),
        epochs=measure.epochs,
        batch_size=measure.batch_size,
        **settings,
    )
    layers = tuple(model_of(measure.model).shapes.values())
    method = methods(asked, layers)[0 if plain else 1]
    steps = _QUICK_STEPS if context.options.quick else None
    return [
        context.store.run(asked, method, seed, steps).runs[0]
        for seed in context.options.training_seeds
    ]


def _finals(runs: Sequence[Run]) -> list[float]:
    return [run.final_score for run in runs if run.final_score is not None]


def _score(scores: Sequence[float], metric: Metric) -> str:
    """Mean and deviation of final scores."""
    read = [metric.factor * score for score in scores]
    digits = 1 if metric.unit == "share" else 2
    text = f"{statistics.fmean(read):.{digits}f}"
    if len(read) > 1:
        text += f" ± {statistics.stdev(read):.{digits}f}"
    return text + (" %" if metric.unit == "share" else "")


def _drop(metric: Metric, reference: float, score: float) -> float:
    """How much worse: points of a share, per cent of another number; negative where better."""
    lost = 100 * (reference - score)
    if metric.unit != "share":
        lost /= reference
    return lost if metric.higher_is_better else -lost


def _curve(label: str, runs: Sequence[Run], metric: Metric, *, band: bool) -> Series:
    """Mean and, with ``band``, deviation of the scores over the iterations."""
    columns = {
        number: [metric.factor * step.score for step in steps if step.score is not None]
        for number, steps in enumerate(zip(*(run.steps for run in runs), strict=True), 1)
    }
    scored = {number: column for number, column in columns.items() if column}
    return Series(
        label=label,
        x=tuple(scored),
        y=tuple(map(statistics.fmean, scored.values())),
        spread=tuple(map(_deviation, scored.values())) if band else (),
    )


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


# ----------------------------------------------------------------------------
# Beside plain sums.


class Training(_Trained):
    """A training through the switch, compared with plain sums from the same initial parameters.

    Attributes:
        codec: by default the paper's ``codec``.
        schedule: of the model's recipes; "long" ends where plain sums hardly improve any more.
        max_score_drop: the claim holds if the mean score is at most this much worse than that of
            plain sums: percentage points of a share, per cent of other scores.
        min_compression: and if the bytes sent are fewer by at least this factor.
    """

    kind: Literal["training"]
    codec: CodecDescription | None = None
    schedule: Literal["short", "long"] = "short"
    max_score_drop: Annotated[float, Field(ge=0)]
    min_compression: Annotated[float, Field(ge=0)] = 0.0

    def measure(self, context: ClaimContext) -> Finding:
        """Trains plainly and with the codec, and compares the scores seed by seed."""
        codec = self.codec or context.paper.codec_for(self.model)
        if context.options.quick:
            codec = _quickly_warm(codec)
        plain = _runs(self, codec, context, plain=True, schedule=self.schedule)
        title = model_of(self.model).title
        try:
            coded = _runs(self, codec, context, schedule=self.schedule)
        except DivergedError as error:
            return Finding(
                setup=f"{title}, {self.workers} workers",
                measured=str(error),
                criterion="the training does not diverge",
                holds=False,
            )
        return self._compared(plain, coded, title)

    def _compared(self, plain: Sequence[Run], coded: Sequence[Run], title: str) -> Finding:
        """The finding of two groups of runs, one of each for each seed."""
        metric = coded[0].metric
        before, after = _finals(plain), _finals(coded)
        lost = [_drop(metric, one, two) for one, two in zip(before, after, strict=True)]
        sent = sum(run.total("bytes_sent") for run in coded)
        compression = sum(run.total("bytes_dense") for run in coded) / sent
        elements = sum(run.elements * len(run.steps) for run in coded)
        selected = sum(run.total("selected") for run in coded) / (elements * self.workers)
        union = sum(run.total("union") for run in coded) / elements
        unit = "points" if metric.unit == "share" else "per cent"
        exact = all(run.exact_steps == run.summed_steps for run in coded)
        criterion = f"{metric.name} at most {self.max_score_drop:.1f} {unit} worse, on average"
        holds = statistics.fmean(lost) <= self.max_score_drop
        direction = None
        if self.min_compression:
            criterion += f", with at least {self.min_compression:g}{TIMES} fewer bytes"
            direction = holds and compression > 1
            holds = holds and compression >= self.min_compression
        return Finding(
            setup=f"{title}, {self.workers} workers, {plural(len(coded), 'seed')}, "
            f"{len(coded[0].steps)} steps; {coded[0].codec}",
            measured=f"{metric.name} {_score(before, metric)} plain, {_score(after, metric)} with "
            f"the codec; {_worse(lost, unit)}; {compression:.1f}{TIMES} fewer bytes, "
            f"{selected * 100:.3g} % of the elements selected by each worker, "
            f"{union * 100:.3g} % by any" + ("" if exact else "; SOME SUMS WERE NOT EXACT"),
            criterion=criterion,
            holds=holds,
            direction=direction,
            numbers={
                "lost": lost,
                "plain": before,
                "coded": after,
                "compression": compression,
                "selected": selected,
                "union": union,
                "exact": exact,
            },
            series=tuple(
                _curve(label, runs, metric, band=len(runs) > 1)
                for label, runs in (("plain float32", plain), ("codec", coded))
            ),
            axes=("iteration", f"{metric.name}, %" if metric.unit == "share" else metric.name),
        )


def _quickly_warm(spec: CodecDescription) -> CodecDescription:
    """The same codec with its warm-up, if it has one, for a training of a few steps."""
    if isinstance(spec, str) or not isinstance(selector := spec.get("selector"), dict):
        return spec
    shorter = {name: n for name, n in _QUICK_WARM_UPS.items() if selector.get(name, 0) > n}
    return {**spec, "selector": {**selector, **shorter}} if shorter else spec


def _worse(lost: Sequence[float], unit: str) -> str:
    mean = statistics.fmean(lost)
    around = f" ± {statistics.stdev(lost):.1f}" if len(lost) > 1 else ""
    return f"{abs(mean):.1f}{around} {unit} {'worse' if mean >= 0 else 'better'}"


# ----------------------------------------------------------------------------
# Beside other codecs: all like for like.


class Convergence(_Trained):
    """Trainings with several codecs: one trains better, or with fewer bytes, than others.

    Attributes:
        codecs: by label.
        subject: the label of the codec that is judged.
        against: the claim holds if the subject's mean score is no worse than those of these, but
            for ``max_score_drop``.
        max_score_drop: percentage points of a share, per cent of other scores.
        local_sgd: by label, for codecs whose workers train by themselves: K2 or K1,K2.
        racks: of these; by default two.
    """

    kind: Literal["convergence"]
    codecs: Codecs
    subject: str
    against: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    max_score_drop: Annotated[float, Field(ge=0)] = 0.0
    local_sgd: dict[str, str] = Field(default_factory=dict)
    racks: Annotated[int, Field(ge=1)] | None = None

    def measure(self, context: ClaimContext) -> Finding:
        # Step 1: the trainings, one for each seed of each codec, and plain sums beside them.
        runs = {"plain": _runs(self, next(iter(self.codecs.values())), context, plain=True)}
        for label, codec in self.codecs.items():
            local = self.local_sgd.get(label)
            racks = None if local is None else self.racks
            runs[label] = _runs(self, codec, context, local_sgd=local, racks=racks)
        subject = runs[self.subject]
        metric = subject[0].metric
        # Step 2: scores, and what was sent for them.
        finals = {label: _finals(each) for label, each in runs.items()}
        means = {label: statistics.fmean(each) for label, each in finals.items()}
        megabytes = {
            label: statistics.fmean(run.total("bytes_sent") for run in each) / 1e6
            for label, each in runs.items()
            if label != "plain"
        }
        all_workers = {
            label: sum(step.scope == "job" for step in each[0].steps)
            for label, each in runs.items()
        }
        dense = statistics.fmean(run.total("bytes_dense") for run in subject) / 1e6
        traffic = {
            label: f" ({each:.3g} MB, {all_workers[label]} sums of all workers)"
            if self.local_sgd
            else f" ({each:.3g} MB, {dense / each:.1f}{TIMES} fewer than dense)"
            for label, each in megabytes.items()
        }
        # Step 3: the verdict. A sum that is not exact makes any score worthless.
        unit = "points" if metric.unit == "share" else "%"
        holds = all(
            _drop(metric, means[other], means[self.subject]) <= self.max_score_drop
            for other in self.against
        )
        inexact = [
            label
            for label in self.codecs
            if any(run.exact_steps < run.summed_steps for run in runs[label])
        ]
        return Finding(
            setup=f"{model_of(self.model).title}, {self.workers} workers, "
            f"{plural(len(subject), 'seed')}, {len(subject[0].steps)} steps; the same initial "
            "parameters and batches for all",
            measured=f"{metric.name}: "
            + "; ".join(
                f"{label} {_score(each, metric)}{traffic.get(label, '')}"
                for label, each in finals.items()
            )
            + (f"; NOT EXACT: {', '.join(inexact)}" if inexact else ""),
            criterion=f"{self.subject} is no worse than {' and '.join(self.against)}, but for "
            f"{self.max_score_drop:g} {unit} on average; and all sums are exact",
            holds=holds and not inexact,
            numbers={
                "scores": {
                    label: [metric.factor * score for score in each]
                    for label, each in finals.items()
                },
                "megabytes": megabytes,
                "sums_of_all": all_workers,
                "bytes_beside": {
                    label: each / megabytes[self.subject] for label, each in megabytes.items()
                },
            },
            series=tuple(_curve(label, each, metric, band=True) for label, each in runs.items()),
            axes=("iteration", metric.name),
        )


# ----------------------------------------------------------------------------
# With other batches and learning rates, without a network.


class TrainingVariant(Settings):
    """A training of ``Variants``.

    Attributes:
        codec: None for plain sums.
        batch: factor of the batch size.
        rate: factor of the learning rate.
        warmup: share of the steps in which the learning rate rises to that.
    """

    codec: CodecDescription | None = None
    batch: Annotated[int, Field(ge=1)] = 1
    rate: Annotated[float, Field(gt=0)] = 1.0
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.0


class Variants(OfflineMeasure):
    """Final scores of trainings that differ in codec, batch and learning rate.

    Attributes:
        methods: by label.
        epochs: of all of them; by default the recipe's.
        decay: of the learning rate, after ``innet.experiments.training.TrainingSchedule``.
        learns: the claim holds only if ``reference`` itself is at most so much worse than the first
            method. A codec that follows plain sums into a collapse shows nothing.
        subject: the claim holds if this one's score is at most ``max_score_drop`` worse than
        reference: this one's: percentage points of a share, per cent of other scores.
        max_score_drop: see above; negative if it must be better.
    """

    kind: Literal["variants"]
    methods: Annotated[dict[str, TrainingVariant], Field(min_length=2)]
    epochs: Annotated[int, Field(ge=1)] | None = None
    decay: Decay = "constant"
    learns: Annotated[float, Field(ge=0)] | None = None
    subject: str
    reference: str
    max_score_drop: float

    def measure(self, context: ClaimContext) -> Finding:
        model, data = model_with_data(self.model)
        recipe = model.recipe
        epochs = self.epochs or recipe.epochs
        scores: dict[str, list[float]] = {}
        # Step 1: train with each method from the same parameters, with as many samples in all.
        for label, variant in self.methods.items():
            batch = variant.batch * recipe.batch_size
            steps = len(data.train) // (batch * self.workers)
            steps = 4 if context.options.quick else steps * epochs
            schedule = TrainingSchedule(
                self.workers,
                steps,
                batch,
                variant.rate * recipe.learning_rate,
                recipe.momentum,
                decay=self.decay,
                warmup=round(variant.warmup * steps),
            )
            layers = tuple(model.shapes.values())
            for seed in context.options.training_seeds:
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
        # Step 2: the verdict, which asks whether the reference itself has learned something.
        means = {label: statistics.fmean(each) for label, each in scores.items()}
        reference, score = means[self.reference], means[self.subject]
        holds = math.isfinite(score) and (
            _drop(model.metric, reference, score) <= self.max_score_drop
        )
        first = next(iter(self.methods))
        criterion = f"{self.subject} at most {self.max_score_drop:g} worse than {self.reference}"
        if self.learns is not None:
            criterion += f", which is at most {self.learns:g} worse than {first}"
            holds = holds and math.isfinite(reference)
            holds = holds and _drop(model.metric, means[first], reference) <= self.learns
        return Finding(
            setup=f"{model.title}, {self.workers} workers, {epochs} epochs without a network; "
            f"{len(scores[first])} seeds",
            measured=f"{model.metric.name}: "
            + "; ".join(f"{label} {_mean_or_diverges(each)}" for label, each in scores.items()),
            criterion=criterion,
            holds=holds,
            numbers={
                label: [score if math.isfinite(score) else None for score in each]
                for label, each in scores.items()
            },
        )


def _mean_or_diverges(scores: Sequence[float]) -> str:
    if not all(map(math.isfinite, scores)):
        return "diverges"
    return f"{statistics.fmean(scores):.4g} ± {_deviation(scores):.2g}"
