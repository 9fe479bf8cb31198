"""``innet reproduce``: the claims of a codec's paper, measured here as far as that is possible."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from innet import __version__
from innet.core.errors import DivergedError
from innet.core.settings import CodecDescription, TrainSettings
from innet.experiments import measures
from innet.experiments.comparison import ways
from innet.experiments.models.model import model_of
from innet.experiments.outputs import folder_for
from innet.experiments.papers import (
    Aggregation,
    BuildUp,
    Measure,
    Paper,
    Share,
    Speed,
    Training,
    paper_of,
)
from innet.experiments.store import Store
from innet.records import Finding, Machine, Metric, Reproduction, Run, Series, Watcher

RUNS = "runs"  # folder of the trainings in the output folder
_QUICK_STEPS = 12  # of a training in a quick run
# Warm-ups that end within these steps, or they would say nothing of what follows.
_QUICK_WARM_UPS = {"warmup": 4, "warmup_steps": 1}
_TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True)
class Effort:
    """How thoroughly to measure.

    Attributes:
        seeds: of each training.
        seed: the first of them, and that of everything else.
        quick: only to see that it runs: nothing is judged.
    """

    seeds: int = 3
    seed: int = 0
    quick: bool = False


def run(
    codec: str,
    out_dir: str | Path,
    *,
    effort: Effort,
    created: datetime,
    watch: Watcher | None = None,
) -> tuple[Reproduction, Path]:
    """Measures all claims and writes the record.

    Args:
        codec: a preset with claims.
        out_dir: made where it is missing; gets ``reproduce-CODEC.json``, and in ``runs`` each
            training, which is not made again as long as it lies there.
        effort: how thoroughly.
        created: the time to put into the record, with a time zone.
        watch: called for each step of each training over the switch.

    Raises:
        UnknownNameError: there are no claims for that codec.
        InputError: the file cannot be written (found before anything is measured).
        MissingToolError: a model's framework or data is not installed.
    """
    paper = paper_of(codec)
    path = folder_for(out_dir, [f"reproduce-{codec}.json"]) / f"reproduce-{codec}.json"
    for claim in paper.claims:  # what is missing is told before hours of work
        if not isinstance(claim.measure, Speed | Aggregation):
            model_of(claim.measure.model)
    trained = _Trainings(paper, effort, Store(path.parent / RUNS, watch))
    findings = []
    for claim in paper.claims:
        measured = _measure(claim.measure, trained, effort)
        findings.append(measured.model_copy(update={"claim": claim.claim, "theirs": claim.theirs}))
    record = Reproduction(
        innet=__version__,
        created=created,
        machine=Machine.here(),
        codec=codec,
        paper=paper.paper,
        note=paper.note,
        quick=effort.quick,
        seeds=1 if effort.quick else effort.seeds,
        findings=tuple(findings),
        not_reproduced=paper.not_reproduced,
    )
    record.save(path)
    return record, path


def _measure(measure: Measure, trained: _Trainings, effort: Effort) -> Finding:
    seed, quick = effort.seed, effort.quick
    if isinstance(measure, Training):
        return trained.finding(measure)
    if isinstance(measure, BuildUp):
        return measures.build_up(measure, seed=seed, quick=quick)
    if isinstance(measure, Share):
        return measures.share(measure, seed=seed, quick=quick)
    if isinstance(measure, Speed):
        return measures.speed(measure, seed=seed, quick=quick)
    if isinstance(measure, Aggregation):
        return measures.aggregation(measure, seed=seed, quick=quick)
    return measures.traffic(measure, seed=seed, quick=quick)


class _Trainings:
    """Trainings over the switch, and with plain sums."""

    def __init__(self, paper: Paper, effort: Effort, store: Store) -> None:
        self._paper = paper
        self._effort = effort
        self._store = store

    def finding(self, measure: Training) -> Finding:
        """Trains plainly and with the codec, and compares the scores seed by seed."""
        spec = measure.codec or self._paper.codec_for(measure.model)
        if self._effort.quick:
            spec = _quickly_warm(spec)
        plain = self._runs(measure, spec, plain=True)
        title = model_of(measure.model).title
        try:
            coded = self._runs(measure, spec, plain=False)
        except DivergedError as error:
            return _diverged(measure, title, str(error), self._effort)
        return _compared(measure, plain, coded, title, self._effort)

    def _runs(self, measure: Training, spec: CodecDescription, *, plain: bool) -> list[Run]:
        settings = TrainSettings(
            model=measure.model,
            workers=measure.workers,
            codecs=(spec,),
            epochs=measure.epochs,
            batch_size=measure.batch_size,
        )
        layers = tuple(model_of(measure.model).shapes.values())
        way = ways(settings, layers)[0 if plain else 1]
        first, quick = self._effort.seed, self._effort.quick
        return [
            self._store.run(settings, way, seed, _QUICK_STEPS if quick else None).runs[0]
            for seed in range(first, first + (1 if quick else self._effort.seeds))
        ]


def _quickly_warm(spec: CodecDescription) -> CodecDescription:
    """The same codec with its warm-up, if it has one, for a training of a few steps."""
    if isinstance(spec, str) or not isinstance(selector := spec.get("selector"), dict):
        return spec
    shorter = {name: n for name, n in _QUICK_WARM_UPS.items() if selector.get(name, 0) > n}
    return {**spec, "selector": {**selector, **shorter}} if shorter else spec


def _compared(
    measure: Training, plain: list[Run], coded: list[Run], title: str, effort: Effort
) -> Finding:
    """The finding of two groups of runs, one of each for each seed."""
    metric = coded[0].metric
    lost = [_lost(metric, one, two) for one, two in zip(plain, coded, strict=True)]
    sent = sum(run.total("bytes_sent") for run in coded)
    compression = sum(run.total("bytes_dense") for run in coded) / sent
    elements = sum(run.elements * len(run.steps) for run in coded)
    selected = sum(run.total("selected") for run in coded) / (elements * measure.workers)
    union = sum(run.total("union") for run in coded) / elements
    unit = "points" if metric.unit == "share" else "per cent"
    exact = all(run.exact_steps == len(run.steps) for run in coded)
    criterion = f"{metric.name} at most {measure.most_lost:.1f} {unit} worse, on average"
    holds = statistics.fmean(lost) <= measure.most_lost
    if measure.least_compression:
        criterion += f", with at least {measure.least_compression:g}{_TIMES} fewer bytes"
        holds = holds and compression >= measure.least_compression
    return Finding(
        claim="",
        theirs="",
        setup=f"{title}, {measure.workers} workers, {len(coded)} "
        f"{'seed' if len(coded) == 1 else 'seeds'}, {len(coded[0].steps)} steps; "
        f"{coded[0].codec}",
        ours=f"{metric.name} {_mean(plain, metric)} plain, {_mean(coded, metric)} with the codec; "
        f"{_worse(lost, unit)}; {compression:.1f}{_TIMES} fewer bytes, {selected * 100:.3g} % of "
        f"the elements selected by each worker, {union * 100:.3g} % by any"
        + ("" if exact else "; SOME SUMS WERE NOT EXACT"),
        criterion=criterion,
        holds=None if effort.quick else holds,
        numbers={
            "lost": lost,
            "plain": [run.final_score for run in plain],
            "coded": [run.final_score for run in coded],
            "compression": compression,
            "selected": selected,
            "union": union,
            "exact": exact,
        },
        series=(_curve("plain float32", plain, metric), _curve("codec", coded, metric)),
        axes=("iteration", f"{metric.name}, %" if metric.unit == "share" else metric.name),
    )


def _diverged(measure: Training, title: str, message: str, effort: Effort) -> Finding:
    return Finding(
        claim="",
        theirs="",
        setup=f"{title}, {measure.workers} workers",
        ours=message,
        criterion="the training does not diverge",
        holds=None if effort.quick else False,
    )


def _lost(metric: Metric, plain: Run, coded: Run) -> float:
    """How much worse: points of a share, per cent of another number; negative where better."""
    before, after = plain.final_score, coded.final_score
    assert before is not None
    assert after is not None
    lost = 100 * (before - after) if metric.unit == "share" else 100 * (before - after) / before
    return lost if metric.higher_is_better else -lost


def _mean(runs: list[Run], metric: Metric) -> str:
    scores = [metric.factor * run.final_score for run in runs if run.final_score is not None]
    digits = 1 if metric.unit == "share" else 2
    text = f"{statistics.fmean(scores):.{digits}f}"
    if len(scores) > 1:
        text += f" ± {statistics.stdev(scores):.{digits}f}"
    return text + (" %" if metric.unit == "share" else "")


def _worse(lost: list[float], unit: str) -> str:
    mean = statistics.fmean(lost)
    around = f" ± {statistics.stdev(lost):.1f}" if len(lost) > 1 else ""
    return f"{abs(mean):.1f}{around} {unit} {'worse' if mean >= 0 else 'better'}"


def _curve(label: str, runs: list[Run], metric: Metric) -> Series:
    """Mean and deviation of the scores over the iterations."""
    columns = [
        [step.score for step in steps if step.score is not None]
        for steps in zip(*(run.steps for run in runs), strict=True)
    ]
    places = [number for number, column in enumerate(columns, 1) if column]
    values = [[metric.factor * score for score in column] for column in columns if column]
    return Series(
        label=label,
        x=tuple(places),
        y=tuple(map(statistics.fmean, values)),
        spread=tuple(statistics.stdev(each) for each in values) if len(runs) > 1 else (),
    )
