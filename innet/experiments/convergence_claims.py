"""Claims that one codec trains better, or with fewer bytes, than others: all like for like."""

from __future__ import annotations

import statistics
from typing import Annotated, Literal

from pydantic import Field

from innet.core.settings import CodecDescription, TrainSettings, WorkerCount
from innet.experiments.comparison import methods
from innet.experiments.models.model import model_of
from innet.experiments.papers import Codecs, Context, Measure
from innet.records import Finding, Metric, Run, Series

_TIMES = "\N{MULTIPLICATION SIGN}"
_QUICK_STEPS = 12


class Convergence(Measure):
    """Trainings with several codecs from the same initial parameters, on the same batches.

    Attributes:
        model: what is trained.
        workers: data-parallel workers.
        batch_size: by default that of the model's recipe.
        epochs: likewise.
        codecs: by label.
        subject: the label of the codec that is judged.
        against: the claim holds if the subject's mean score is no worse than those of these, but
            for ``max_score_drop``.
        max_score_drop: percentage points of a share, per cent of other scores.
        local_sgd: by label, for codecs whose workers train by themselves: K2 or K1,K2.
        racks: of these; by default two.
    """

    kind: Literal["convergence"]
    model: str
    workers: WorkerCount = 4
    batch_size: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    codecs: Codecs
    subject: str
    against: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    max_score_drop: Annotated[float, Field(ge=0)] = 0.0
    local_sgd: dict[str, str] = Field(default_factory=dict)
    racks: Annotated[int, Field(ge=1)] | None = None

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    def finding(self, context: Context) -> Finding:
        quick = context.options.quick
        runs = {"plain": self._runs(next(iter(self.codecs.values())), context, plain=True)}
        for label, spec in self.codecs.items():
            runs[label] = self._runs(spec, context, plain=False, local=self.local_sgd.get(label))
        metric = runs[self.subject][0].metric
        scores = {label: _scores(each, metric) for label, each in runs.items()}
        means = {label: statistics.fmean(each) for label, each in scores.items()}
        megabytes = {
            label: statistics.fmean(run.total("bytes_sent") for run in each) / 1e6
            for label, each in runs.items()
            if label != "plain"
        }
        all_workers = {
            label: sum(step.scope == "job" for step in each[0].steps)
            for label, each in runs.items()
        }
        subject = runs[self.subject]
        dense = statistics.fmean(run.total("bytes_dense") for run in subject) / 1e6
        traffic = {
            label: f"{each:.3g} MB, {all_workers[label]} sums of all workers"
            if self.local_sgd
            else f"{each:.3g} MB, {dense / each:.1f}{_TIMES} fewer than dense"
            for label, each in megabytes.items()
        }
        unit = "points" if metric.unit == "share" else "%"
        holds = all(
            _drop(metric, means[self.subject], means[other]) <= self.max_score_drop
            for other in self.against
        )
        inexact = [
            label
            for label, each in runs.items()
            if label != "plain" and any(run.exact_steps < run.summed_steps for run in each)
        ]
        seeds = len(subject)
        return Finding(
            claim="",
            paper_result="",
            setup=f"{model_of(self.model).title}, {self.workers} workers, {seeds} "
            f"{'seed' if seeds == 1 else 'seeds'}, {len(subject[0].steps)} steps; the same "
            "initial parameters and batches for all",
            measured=f"{metric.name}: "
            + "; ".join(
                f"{label} {_score(each, metric)}"
                + (f" ({traffic[label]})" if label in traffic else "")
                for label, each in scores.items()
            )
            + (f"; NOT EXACT: {', '.join(inexact)}" if inexact else ""),
            criterion=f"{self.subject} is no worse than {' and '.join(self.against)}, but for "
            f"{self.max_score_drop:g} {unit} on average; and all sums are exact",
            holds=None if quick else holds and not inexact,
            numbers={
                "scores": scores,
                "megabytes": megabytes,
                "sums_of_all": all_workers,
                "bytes_beside": {
                    label: each / megabytes[self.subject] for label, each in megabytes.items()
                },
            },
            series=tuple(_curve(label, each, metric) for label, each in runs.items()),
            axes=("iteration", metric.name),
        )

    def _runs(
        self, spec: CodecDescription, context: Context, *, plain: bool, local: str | None = None
    ) -> list[Run]:
        settings = TrainSettings(
            model=self.model,
            workers=self.workers,
            codecs=(spec,),
            epochs=self.epochs,
            batch_size=self.batch_size,
            local_sgd=local,
            racks=None if local is None else self.racks,
        )
        layers = tuple(model_of(self.model).shapes.values())
        method = methods(settings, layers)[0 if plain else 1]
        first, quick = context.options.seed, context.options.quick
        return [
            context.store.run(settings, method, seed, _QUICK_STEPS if quick else None).runs[0]
            for seed in range(first, first + (1 if quick else context.options.seeds))
        ]


def _scores(runs: list[Run], metric: Metric) -> list[float]:
    return [metric.factor * run.final_score for run in runs if run.final_score is not None]


def _drop(metric: Metric, mine: float, other: float) -> float:
    """How much worse: points of a share, per cent of another number."""
    lost = other - mine if metric.unit == "share" else 100 * (other - mine) / other
    return lost if metric.higher_is_better else -lost


def _score(scores: list[float], metric: Metric) -> str:
    digits = 1 if metric.unit == "share" else 2
    text = f"{statistics.fmean(scores):.{digits}f}"
    if len(scores) > 1:
        text += f" ± {statistics.stdev(scores):.{digits}f}"
    return text + (" %" if metric.unit == "share" else "")


def _curve(label: str, runs: list[Run], metric: Metric) -> Series:
    """Mean and deviation of the scores over the iterations."""
    x, y, spread = [], [], []
    for number, steps in enumerate(zip(*(run.steps for run in runs), strict=True), 1):
        column = [metric.factor * step.score for step in steps if step.score is not None]
        if column:
            x.append(float(number))
            y.append(statistics.fmean(column))
            spread.append(statistics.stdev(column) if len(column) > 1 else 0.0)
    return Series(label=label, x=tuple(x), y=tuple(y), spread=tuple(spread))
