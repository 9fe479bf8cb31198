"""What is measured for the papers' claims: one function for each kind that ``papers`` declares.

Each returns a ``Finding`` without the paper's words.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.report import selections
from innet.codecs import CodecSpec, Outcome, build_codec
from innet.core.errors import DivergedError
from innet.core.reduce_op import combine
from innet.core.settings import CodecDescription, TrainSettings
from innet.experiments.comparison import methods
from innet.experiments.models.model import Data, Model, Vector, data_of, model_of
from innet.experiments.papers import (
    Aggregation,
    BuildUp,
    Context,
    ReproduceOptions,
    SelectionRatio,
    SelectionTime,
    Traffic,
    Training,
)
from innet.experiments.training import Schedule, make_collective, one_thread, plain_sum, train
from innet.records import Finding, Metric, Report, Run, Series

_QUICK_STEPS = 12  # of a training in a quick run
# Warm-ups that end within these steps, or they would say nothing of what follows.
_QUICK_WARM_UPS = {"warmup": 4, "warmup_steps": 1}
_TIMES = "\N{MULTIPLICATION SIGN}"


def training(measure: Training, context: Context) -> Finding:
    """Trains plainly and with the codec, and compares the scores seed by seed."""
    spec = measure.codec or context.paper.codec_for(measure.model)
    if context.options.quick:
        spec = _quickly_warm(spec)
    plain = _runs(measure, spec, context, plain=True)
    title = model_of(measure.model).title
    try:
        coded = _runs(measure, spec, context, plain=False)
    except DivergedError as error:
        return _diverged(measure, title, str(error), context.options)
    return _compared(measure, plain, coded, title, context.options)


def _runs(measure: Training, spec: CodecDescription, context: Context, *, plain: bool) -> list[Run]:
    settings = TrainSettings(
        model=measure.model,
        workers=measure.workers,
        codecs=(spec,),
        epochs=measure.epochs,
        batch_size=measure.batch_size,
        schedule=measure.schedule,
    )
    layers = tuple(model_of(measure.model).shapes.values())
    method = methods(settings, layers)[0 if plain else 1]
    first, quick = context.options.seed, context.options.quick
    return [
        context.store.run(settings, method, seed, _QUICK_STEPS if quick else None).runs[0]
        for seed in range(first, first + (1 if quick else context.options.seeds))
    ]


def _quickly_warm(spec: CodecDescription) -> CodecDescription:
    """The same codec with its warm-up, if it has one, for a training of a few steps."""
    if isinstance(spec, str) or not isinstance(selector := spec.get("selector"), dict):
        return spec
    shorter = {name: n for name, n in _QUICK_WARM_UPS.items() if selector.get(name, 0) > n}
    return {**spec, "selector": {**selector, **shorter}} if shorter else spec


def _compared(
    measure: Training, plain: list[Run], coded: list[Run], title: str, options: ReproduceOptions
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
    exact = all(run.exact_steps == run.summed_steps for run in coded)
    criterion = f"{metric.name} at most {measure.max_score_drop:.1f} {unit} worse, on average"
    holds = statistics.fmean(lost) <= measure.max_score_drop
    direction = None
    if measure.min_compression:
        criterion += f", with at least {measure.min_compression:g}{_TIMES} fewer bytes"
        direction = holds and compression > 1
        holds = holds and compression >= measure.min_compression
    return Finding(
        claim="",
        paper_result="",
        setup=f"{title}, {measure.workers} workers, {len(coded)} "
        f"{'seed' if len(coded) == 1 else 'seeds'}, {len(coded[0].steps)} steps; "
        f"{coded[0].codec}",
        measured=f"{metric.name} {_mean(plain, metric)} plain, {_mean(coded, metric)} with the "
        f"codec; {_worse(lost, unit)}; {compression:.1f}{_TIMES} fewer bytes, "
        f"{selected * 100:.3g} % of the elements selected by each worker, "
        f"{union * 100:.3g} % by any" + ("" if exact else "; SOME SUMS WERE NOT EXACT"),
        criterion=criterion,
        holds=None if options.quick else holds,
        direction=direction,
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


def _diverged(measure: Training, title: str, message: str, options: ReproduceOptions) -> Finding:
    return Finding(
        claim="",
        paper_result="",
        setup=f"{title}, {measure.workers} workers",
        measured=message,
        criterion="the training does not diverge",
        holds=None if options.quick else False,
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
    indices = [number for number, column in enumerate(columns, 1) if column]
    values = [[metric.factor * score for score in column] for column in columns if column]
    return Series(
        label=label,
        x=tuple(indices),
        y=tuple(map(statistics.fmean, values)),
        spread=tuple(statistics.stdev(each) for each in values) if len(runs) > 1 else (),
    )


# ----------------------------------------------------------------------------
# Measurements without a training over the switch. ``quick`` makes them small, and judges nothing.

_STEPS = 24  # of trainings without a network; the second half counts
_REPEATS = 5  # of what is timed: the median counts


def build_up(measure: BuildUp, *, seed: int, quick: bool) -> Finding:
    """Trains with each codec and number of workers, and compares the unions."""
    model, data = _model(measure.model)
    counts = measure.counts[:4] if quick else measure.counts
    steps = 4 if quick else _STEPS
    series = []
    for label, codec in measure.codecs.items():
        unions = []
        for count in counts:
            _, seen = _selections(model, data, codec, workers=count, steps=steps, seed=seed)
            unions.append(statistics.fmean(seen))
        series.append(Series(label=label, x=counts, y=tuple(unions)))
    growth = {each.label: each.y[-1] / each.y[0] for each in series}
    first = {each.label: each.y[0] for each in series}
    return Finding(
        claim="",
        paper_result="",
        setup=f"{model.title}, {steps} steps without a network; mean of the second half",
        measured=f"from {counts[0]} to {counts[-1]} workers the union grows "
        + ", ".join(f"{ratio:.2f}{_TIMES} ({label})" for label, ratio in growth.items()),
        criterion=f"the union of {measure.constant} does not grow, other ones at least double",
        holds=_judged(
            all(
                ratio == 1 if label == measure.constant else ratio >= 2
                for label, ratio in growth.items()
            ),
            quick,
        ),
        direction=_grows_least(growth, measure.constant),
        numbers={"growth": growth, "of_one_worker": first},
        series=tuple(series),
        axes=("workers", "coordinates in the union"),
        logarithmic=("x", "y"),
    )


def selection_ratio(measure: SelectionRatio, *, seed: int, quick: bool) -> Finding:
    """Selected / target, for each selector and target."""
    model, data = _model(measure.model)
    steps = 8 if quick else 4 * _STEPS
    series, worst = [], 1.0
    for label, codec in measure.codecs.items():
        ratios = []
        for target in measure.targets:
            chosen, _ = _selections(
                model,
                data,
                _with_ratio(codec, target),
                workers=measure.workers,
                steps=steps,
                seed=seed,
            )
            ratio = statistics.fmean(chosen) / (target * model.size * measure.workers)
            ratios.append(ratio)
            worst = max(worst, ratio, 1 / ratio)
        series.append(Series(label=label, x=measure.targets, y=tuple(ratios)))
    return Finding(
        claim="",
        paper_result="",
        setup=f"{model.title}, {measure.workers} workers, {steps} steps without a network; "
        "mean of the second half",
        measured="selected / wanted: "
        + "; ".join(
            f"{each.label} "
            + ", ".join(f"{y:.2f} at {x * 100:g} %" for x, y in zip(each.x, each.y, strict=True))
            for each in series
        ),
        criterion=f"off by at most a factor of {measure.within:g}",
        holds=_judged(worst <= measure.within, quick),
        numbers={each.label: dict(zip(map(str, each.x), each.y, strict=True)) for each in series},
        series=tuple(series),
        axes=("target ratio", "selected / target"),
        logarithmic=("x",),
    )


def selection_time(measure: SelectionTime, *, seed: int, quick: bool) -> Finding:
    """Seconds of error feedback and selection, measured in turns in this process."""
    size = measure.elements // (10 if quick else 1)
    gradient = np.random.default_rng(seed).laplace(size=size).astype(np.float32)
    seconds = {}
    with one_thread():
        for label, spec in measure.codecs.items():
            codec = build_codec(spec, seed=seed)
            times = []
            for _ in range(_REPEATS + 1):
                begun = time.perf_counter()
                choice = codec.error_feedback.choose(codec.selector, gradient, 1)
                try:
                    # With one worker the network's answer equals the request.
                    asked = next(choice)
                    while True:
                        asked = choice.send([segment.words for segment in asked])
                except StopIteration:
                    times.append(time.perf_counter() - begun)
                codec.error_feedback.commit(None)
            seconds[label] = statistics.median(times[1:])  # the first one compiles
    ratios = {label: each / seconds[measure.subject] for label, each in seconds.items()}
    others = {label: ratio for label, ratio in ratios.items() if label != measure.subject}
    wanted = measure.min_ratio
    return Finding(
        claim="",
        paper_result="",
        setup=f"{size:,} elements with Laplace's distribution, residual included, one CPU thread",
        measured=f"{measure.subject} takes {seconds[measure.subject] * 1e3:.1f} ms; "
        + ", ".join(f"{label} {ratio:.2f}{_TIMES} as long" for label, ratio in others.items()),
        criterion="; ".join(
            f"{label} takes at least {ratio:g}{_TIMES} as long" for label, ratio in wanted.items()
        ),
        holds=_judged(all(ratios[label] >= least for label, least in wanted.items()), quick)
        if wanted
        else None,
        numbers={"seconds": seconds, "ratios": ratios},
        series=tuple(Series(label=label, y=(each * 1e3,)) for label, each in seconds.items()),
        axes=("", "milliseconds"),
    )


def aggregation(measure: Aggregation, *, seed: int, quick: bool) -> Finding:
    """Bytes and seconds of all-reduces over the switch, in memory."""
    size = measure.elements // (10 if quick else 1)
    tensors = list(_sparse(measure, size, np.random.default_rng(seed)))
    reports = {
        label: _measured(codec, tensors, seed, 2 if quick else _REPEATS)
        for label, codec in {"dense": "dense", **measure.codecs}.items()
    }
    dense = reports.pop("dense")
    rates = {
        label: {
            "bytes": dense[0].bytes_sent / report.bytes_sent,
            "time": dense[1] / seconds,
        }
        for label, (report, seconds) in reports.items()
    }
    alike = "the same places" if measure.overlap else "independent places"
    ratio = rates[measure.subject]["bytes"]
    return Finding(
        claim="",
        paper_result="",
        setup=f"{measure.workers} workers, {size:,} elements, {measure.density * 100:g} % of them "
        f"not zero, at {alike}; built-in switch, in memory, one core for all",
        measured="; ".join(
            f"{label}: {rate['bytes']:.2f}{_TIMES} fewer bytes than dense, {rate['time']:.2f}"
            f"{_TIMES} as fast in memory"
            for label, rate in rates.items()
        )
        + ("" if all(r.exact for r, _ in reports.values()) else "; NOT EXACT"),
        criterion=f"{measure.subject} sends at least {measure.min_ratio:g}{_TIMES} fewer bytes, "
        "and the sums are exact"
        if measure.min_ratio
        else "",
        holds=_judged(
            ratio >= measure.min_ratio and all(r.exact is True for r, _ in reports.values()),
            quick,
        )
        if measure.min_ratio
        else None,
        direction=ratio > 1,
        numbers=rates,
        series=tuple(Series(label=label, y=(rate["bytes"],)) for label, rate in rates.items()),
        axes=("", "times fewer bytes than dense"),
    )


def traffic(measure: Traffic, *, seed: int, quick: bool) -> Finding:
    """Bytes of one worker, for gradients of the same parameters at all counts."""
    model, data = _model(measure.model)
    counts = measure.counts[:3] if quick else measure.counts
    gradients = _gradients(model, data, max(counts), seed)
    series = []
    for label, codec in measure.codecs.items():
        sent = []
        for count in counts:
            collective = make_collective(
                workers=count, codec=codec, layers=tuple(model.shapes.values()), seed=seed
            )
            for _ in range(2):  # a codec may know more about the union from the second time on
                _, report = collective.all_reduce(gradients[:count])
            sent.append(float(report.bytes_sent))
        series.append(Series(label=label, x=counts, y=tuple(sent)))
    growth = {each.label: each.y[-1] / each.y[0] for each in series}
    return Finding(
        claim="",
        paper_result="",
        setup=f"{model.title}: the gradients of a step, over the built-in switch",
        measured=f"from {counts[0]} to {counts[-1]} workers the bytes of each grow "
        + ", ".join(f"{ratio:.2f}{_TIMES} ({label})" for label, ratio in growth.items()),
        criterion=f"the bytes of {measure.constant} do not grow",
        holds=_judged(growth[measure.constant] == 1, quick),
        direction=_grows_least(growth, measure.constant),
        numbers={"growth": growth},
        series=tuple(series),
        axes=("workers", "bytes sent by each"),
        logarithmic=("x", "y"),
    )


def _grows_least(growth: Mapping[str, float], label: str) -> bool:
    """Whether what has this label grows less than all else."""
    return all(growth[label] < other for name, other in growth.items() if name != label)


def _judged(holds: bool, quick: bool) -> bool | None:
    return None if quick else holds


def _model(name: str) -> tuple[Model, Data]:
    model = model_of(name)
    return model, data_of(model, "test")


def _selections(
    model: Model, data: Data, codec: CodecSpec, *, workers: int, steps: int, seed: int
) -> tuple[list[int], list[int]]:
    """Elements selected by all workers, and in the union, in the second half of a training."""
    batch = min(model.recipe.batch_size, len(data.train) // workers)
    schedule = Schedule(workers, steps, batch, model.recipe.learning_rate, model.recipe.momentum)
    reducer = OfflineReducer(codec, workers, tuple(model.shapes.values()), seed)
    few = Data(data.train, data.test.take(np.arange(1)))  # the score does not matter
    with one_thread():
        for _ in train(schedule, model, few, reducer, seed):
            pass
    return reducer.selected[steps // 2 :], reducer.unions[steps // 2 :]


def _gradients(model: Model, data: Data, workers: int, seed: int) -> list[Vector]:
    """Each worker's gradient after a few steps of plain training."""
    batch = min(model.recipe.batch_size, len(data.train) // workers)
    few = Data(data.train, data.test.take(np.arange(1)))
    found: list[Vector] = []

    def reduce(gradients: list[Vector]) -> tuple[Vector, None]:
        found[:] = [each.copy() for each in gradients]
        return plain_sum(gradients)

    schedule = Schedule(workers, 8, batch, model.recipe.learning_rate, model.recipe.momentum)
    with one_thread():
        for _ in train(schedule, model, few, reduce, seed):
            pass
    return found


def _with_ratio(codec: CodecSpec, ratio: float) -> CodecSpec:
    spec = {"preset": codec} if isinstance(codec, str) else dict(codec)
    selector: Any = spec.get("selector", {})
    given = {"name": selector} if isinstance(selector, str) else dict(selector)
    return {**spec, "selector": {**given, "ratio": ratio}}


def _sparse(
    measure: Aggregation, size: int, rng: np.random.Generator
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
# Codecs without a network, for more workers than a switch program serves.


class OfflineReducer:
    """A reducer that combines the workers' words without a network, and records the selections.

    Args:
        codec: codec of all workers.
        workers: number of workers.
        layers: shapes of the model's layers.
        seed: of the codec's hashes.

    Attributes:
        selected: for each all-reduce, the number of elements selected by all workers together.
        unions: for each, the number of coordinates selected by at least one worker.
        words: words that one worker has sent, in all of them together.
        codecs: of all workers.
        outcomes: of the last all-reduce.
    """

    def __init__(
        self, codec: CodecSpec, workers: int, layers: Sequence[Sequence[int]], seed: int = 0
    ) -> None:
        self.codecs = [
            build_codec(codec, seed=seed, worker=worker, layers=layers) for worker in range(workers)
        ]
        self.selected: list[int] = []
        self.unions: list[int] = []
        self.words = 0
        self.outcomes: list[Outcome] = []

    def __call__(self, gradients: list[Vector]) -> tuple[Vector, None]:
        outcomes = self.outcomes = self._exchange(gradients)
        selected, union = selections(outcomes, gradients[0].size)
        self.selected.append(selected)
        self.unions.append(union)
        return outcomes[0].sum, None

    def _exchange(self, gradients: list[Vector]) -> list[Outcome]:
        """All workers' exchanges in lock-step."""
        workers = len(self.codecs)
        exchanges = [
            codec.exchange(gradient, workers)
            for codec, gradient in zip(self.codecs, gradients, strict=True)
        ]
        outcomes: list[Outcome] = []
        answers = None
        while not outcomes:
            rounds = []
            for exchange in exchanges:
                try:
                    rounds.append(next(exchange) if answers is None else exchange.send(answers))
                except StopIteration as stop:
                    outcomes.append(stop.value)
            self.words += sum(each.words.size for each in rounds[0]) if rounds else 0
            answers = [
                combine(column[0].operation, [each.words for each in column])
                for column in zip(*rounds, strict=True)
            ]
        return outcomes
