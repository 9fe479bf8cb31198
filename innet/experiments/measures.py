"""What can be measured of a claim, without training over the switch; see ``papers`` for the terms.

Each function returns a ``Finding`` without the paper's words. ``quick`` makes all of it small: to
see that it runs, not to judge by.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs import CodecSpec, build_codec
from innet.experiments.models.model import Model, Vector, data_of, model_of
from innet.experiments.offline import Offline
from innet.experiments.papers import Aggregation, BuildUp, Share, Speed, Traffic
from innet.experiments.runs import collective, one_thread
from innet.experiments.samples import Data
from innet.experiments.training import Schedule, plain_sum, train
from innet.records import Finding, Report, Series

_STEPS = 24  # of trainings without a network; the second half counts
_REPEATS = 5  # of what is timed: the median counts
_TIMES = "\N{MULTIPLICATION SIGN}"


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
        theirs="",
        setup=f"{model.title}, {steps} steps without a network; mean of the second half",
        ours=f"from {counts[0]} to {counts[-1]} workers the union grows "
        + ", ".join(f"{ratio:.2f}{_TIMES} ({label})" for label, ratio in growth.items()),
        criterion=f"the union of {measure.constant} does not grow, other ones at least double",
        holds=_judged(
            all(
                ratio == 1 if label == measure.constant else ratio >= 2
                for label, ratio in growth.items()
            ),
            quick,
        ),
        numbers={"growth": growth, "of_one_worker": first},
        series=tuple(series),
        axes=("workers", "coordinates in the union"),
        logarithmic=("x", "y"),
    )


def share(measure: Share, *, seed: int, quick: bool) -> Finding:
    """Selected / wanted, for each selector and target."""
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
        theirs="",
        setup=f"{model.title}, {measure.workers} workers, {steps} steps without a network; "
        "mean of the second half",
        ours="selected / wanted: "
        + "; ".join(
            f"{each.label} "
            + ", ".join(f"{y:.2f} at {x * 100:g} %" for x, y in zip(each.x, each.y, strict=True))
            for each in series
        ),
        criterion=f"off by at most a factor of {measure.within:g}",
        holds=_judged(worst <= measure.within, quick),
        numbers={each.label: dict(zip(map(str, each.x), each.y, strict=True)) for each in series},
        series=tuple(series),
        axes=("share that is wanted", "selected / wanted"),
        logarithmic=("x",),
    )


def speed(measure: Speed, *, seed: int, quick: bool) -> Finding:
    """Seconds of error feedback and selection, side by side in this process."""
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
                    # One worker: what the network would answer is what it is asked.
                    asked = next(choice)
                    while True:
                        asked = choice.send([segment.words for segment in asked])
                except StopIteration:
                    times.append(time.perf_counter() - begun)
                codec.error_feedback.settle(None)
            seconds[label] = statistics.median(times[1:])  # the first one compiles
    ratios = {label: each / seconds[measure.subject] for label, each in seconds.items()}
    others = {label: ratio for label, ratio in ratios.items() if label != measure.subject}
    wanted = measure.least_ratio
    return Finding(
        claim="",
        theirs="",
        setup=f"{size:,} elements with Laplace's distribution, residual included, one CPU thread",
        ours=f"{measure.subject} takes {seconds[measure.subject] * 1e3:.1f} ms; "
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
        theirs="",
        setup=f"{measure.workers} workers, {size:,} elements, {measure.density * 100:g} % of them "
        f"not zero, at {alike}; built-in switch, in memory, one core for all",
        ours="; ".join(
            f"{label}: {rate['bytes']:.2f}{_TIMES} fewer bytes than dense, {rate['time']:.2f}"
            f"{_TIMES} as fast in memory"
            for label, rate in rates.items()
        )
        + ("" if all(r.exact for r, _ in reports.values()) else "; NOT EXACT"),
        criterion=f"{measure.subject} sends at least {measure.least_ratio:g}{_TIMES} fewer bytes, "
        "and the sums are exact"
        if measure.least_ratio
        else "",
        holds=_judged(
            ratio >= measure.least_ratio and all(r.exact is True for r, _ in reports.values()),
            quick,
        )
        if measure.least_ratio
        else None,
        numbers=rates,
        series=tuple(Series(label=label, y=(rate["bytes"],)) for label, rate in rates.items()),
        axes=("", "times fewer bytes than dense"),
    )


def traffic(measure: Traffic, *, seed: int, quick: bool) -> Finding:
    """Bytes of one worker; all counts reduce gradients of the same parameters."""
    model, data = _model(measure.model)
    counts = measure.counts[:3] if quick else measure.counts
    gradients = _gradients(model, data, max(counts), seed)
    series = []
    for label, codec in measure.codecs.items():
        sent = []
        for count in counts:
            summing = collective(
                workers=count, codec=codec, layers=tuple(model.shapes.values()), seed=seed
            )
            for _ in range(2):  # a codec may know more about the union from the second time on
                _, report = summing.all_reduce(gradients[:count])
            sent.append(float(report.bytes_sent))
        series.append(Series(label=label, x=counts, y=tuple(sent)))
    growth = {each.label: each.y[-1] / each.y[0] for each in series}
    return Finding(
        claim="",
        theirs="",
        setup=f"{model.title}: the gradients of a step, over the built-in switch",
        ours=f"from {counts[0]} to {counts[-1]} workers the bytes of each grow "
        + ", ".join(f"{ratio:.2f}{_TIMES} ({label})" for label, ratio in growth.items()),
        criterion=f"the bytes of {measure.constant} do not grow",
        holds=_judged(growth[measure.constant] == 1, quick),
        numbers={"growth": growth},
        series=tuple(series),
        axes=("workers", "bytes sent by each"),
        logarithmic=("x", "y"),
    )


def _judged(holds: bool, quick: bool) -> bool | None:
    return None if quick else holds


def _model(name: str) -> tuple[Model, Data]:
    model = model_of(name)
    return model, data_of(model, "test")


def _selections(
    model: Model, data: Data, codec: CodecSpec, *, workers: int, steps: int, seed: int
) -> tuple[list[int], list[int]]:
    """Selected by all workers together, and in the union, in the second half of a training."""
    batch = min(model.recipe.batch_size, len(data.train) // workers)
    schedule = Schedule(workers, steps, batch, model.recipe.learning_rate, model.recipe.momentum)
    reducer = Offline(codec, workers, tuple(model.shapes.values()), seed)
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
        places = shared if measure.overlap else rng.choice(size, filled, replace=False)
        tensor[places] = rng.standard_normal(filled, np.float32)
        yield tensor


def _measured(
    codec: CodecSpec, tensors: list[NDArray[np.float32]], seed: int, repeats: int
) -> tuple[Report, float]:
    """The last report, and the median of the seconds after the first all-reduce, which compiles."""
    summing = collective(workers=len(tensors), codec=codec, seed=seed)
    seconds = []
    for _ in range(repeats + 1):
        _, report = summing.all_reduce(tensors)
        seconds.append(report.seconds.encode + report.seconds.network + report.seconds.decode)
    return report, statistics.median(seconds[1:])
