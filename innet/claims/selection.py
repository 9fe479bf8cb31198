"""Claims about selectors: how near they come to the wanted share, and how long they take.

The baselines in torch are our own code, after SIDCo's paper and its public code.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from innet.claims.claim import (
    TIMES,
    ClaimContext,
    Codecs,
    Measure,
    OfflineMeasure,
    bars,
    lines,
    reached,
)
from innet.claims.offline import model_with_data, selections
from innet.codecs import CodecSpec, build_codec
from innet.codecs.parts import Floats, Selector
from innet.experiments.models.model import Data, Model
from innet.experiments.training import one_thread
from innet.records import Finding, Series
from innet.records.units import plural

if TYPE_CHECKING:
    import torch

FIRST = 0.25  # share of the elements that pass the first of several stages of SIDCo
_SAMPLE, _TOO_MANY = 0.01, 4 / 3  # of DGC, as SIDCo's public code has it
_STEPS = 96  # of trainings without a network; the second half counts
_QUICK_STEPS = 8
_ROUNDS = 5  # of which the median counts
_REPEATS = 7  # of which the fastest counts


# ----------------------------------------------------------------------------
# Selected / wanted.


class _Selected(OfflineMeasure):
    """Selected / wanted of selectors, while a model trains with each, without a network.

    Attributes:
        codecs: codecs by label.
        targets: shares of the gradient to select.
        within: a factor.
    """

    codecs: Codecs
    targets: Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
    within: Annotated[float, Field(gt=1)]

    def _selected(
        self, loaded: tuple[Model, Data], codec: CodecSpec, target: float, *, steps: int, seed: int
    ) -> list[int]:
        """Elements selected by all workers, in each all-reduce of the second half."""
        spec = {"preset": codec} if isinstance(codec, str) else dict(codec)
        selector: Any = spec.get("selector", {})
        given = {"name": selector} if isinstance(selector, str) else dict(selector)
        spec = {**spec, "selector": {**given, "ratio": target}}
        return selections(*loaded, spec, workers=self.workers, steps=steps, seed=seed)[0]


class SelectionRatio(_Selected):
    """The selection ratio of a selector relative to its target, while a model trains.

    The claim holds if, for each target, the mean of selected / target over the second half of the
    training is within the factor ``within`` of 1.
    """

    kind: Literal["selection-ratio"]

    def measure(self, context: ClaimContext) -> Finding:
        model, data = model_with_data(self.model)
        steps = _QUICK_STEPS if context.options.quick else _STEPS
        seed = context.options.seed

        def ratio(codec: CodecSpec, target: float) -> float:
            found = self._selected((model, data), codec, target, steps=steps, seed=seed)
            return statistics.fmean(found) / (target * model.size * self.workers)

        ratios = {
            label: [ratio(codec, target) for target in self.targets]
            for label, codec in self.codecs.items()
        }
        worst = max(max(each, 1 / each) for row in ratios.values() for each in row)
        return Finding(
            setup=f"{model.title}, {self.workers} workers, {steps} steps without a network; "
            "mean of the second half",
            measured="selected / wanted: "
            + "; ".join(
                f"{label} "
                + ", ".join(
                    f"{ratio:.2f} at {target * 100:g} %"
                    for target, ratio in zip(self.targets, row, strict=True)
                )
                for label, row in ratios.items()
            ),
            criterion=f"off by at most a factor of {self.within:g}",
            holds=worst <= self.within,
            numbers={
                label: dict(zip(map(str, self.targets), row, strict=True))
                for label, row in ratios.items()
            },
            series=lines(self.targets, ratios),
            axes=("target ratio", "selected / target"),
            logarithmic=("x",),
        )


class SelectionQuality(_Selected):
    """Selected / wanted of several selectors, over several seeds.

    The claim holds if the single all-reduces of ``subject`` are off by the factor ``within`` at
    most, on average, and by less than those of ``better_than``.

    Attributes:
        steps: of the training; a few in a quick run.
        subject: the label of the codec that is judged.
        better_than: labels.
    """

    kind: Literal["selection-quality"]
    steps: Annotated[int, Field(ge=10)] = 100
    subject: str
    better_than: Annotated[tuple[str, ...], Field(strict=False)] = ()

    def measure(self, context: ClaimContext) -> Finding:
        model, data = model_with_data(self.model)
        steps = _QUICK_STEPS if context.options.quick else self.steps
        seeds = context.options.training_seeds

        def ratios(codec: CodecSpec, target: float, seed: int) -> list[float]:
            found = self._selected((model, data), codec, target, steps=steps, seed=seed)
            wanted = target * model.size * self.workers
            return [each / wanted for each in found]

        # Ratios are compared by their logarithms: half as many is as far off as twice as many.
        off, words, series, numbers = {}, [], [], {}
        for label, codec in self.codecs.items():
            rows = [[ratios(codec, target, seed) for seed in seeds] for target in self.targets]
            means = [[statistics.fmean(run) for run in row] for row in rows]
            errors = [
                statistics.fmean(abs(math.log(ratio)) for run in row for ratio in run)
                for row in rows
            ]
            y = tuple(statistics.fmean(row) for row in means)
            spread = tuple(statistics.stdev(row) if len(row) > 1 else 0.0 for row in means)
            off[label] = math.exp(statistics.fmean(errors))
            series.append(Series(label=label, x=self.targets, y=y, spread=spread))
            cells = ", ".join(
                f"{mean:.2f} ± {around:.2f} at {target * 100:g} %"
                for mean, around, target in zip(y, spread, self.targets, strict=True)
            )
            words.append(f"{label} {cells}, off by {off[label]:.2f}{TIMES}")
            numbers[label] = {
                "targets": self.targets,
                "mean": y,
                "deviation": spread,
                "off_by": tuple(map(math.exp, errors)),
            }
        holds = off[self.subject] <= self.within and all(
            off[self.subject] < off[other] for other in self.better_than
        )
        criterion = f"{self.subject} is off by at most a factor of {self.within:g} on average"
        if self.better_than:
            criterion += ", and by less than " + " and ".join(self.better_than)
        return Finding(
            setup=f"{model.title}, {self.workers} workers, {steps} steps without a network, "
            f"{plural(len(seeds), 'seed')}; second half",
            measured="selected / wanted: " + "; ".join(words),
            criterion=criterion,
            holds=holds,
            numbers=numbers,
            series=tuple(series),
            axes=("target ratio", "selected / target"),
            logarithmic=("x", "y"),
        )


# ----------------------------------------------------------------------------
# Times.


class _SelectionTimes(Measure):
    """Times to select from a gradient with Laplace's distribution, side by side.

    Attributes:
        codecs: what selects, by label.
        elements: of the gradient; a tenth in a quick run.
        min_ratio: by label, how many times as long as the method that is compared the others must
            take at least for the claim to hold.
    """

    codecs: Codecs
    elements: Annotated[int, Field(ge=1000)]
    min_ratio: dict[str, float] = Field(default_factory=dict)

    def _gradient(self, context: ClaimContext) -> Floats:
        size = self.elements // (10 if context.options.quick else 1)
        rng = np.random.default_rng(context.options.seed)
        return rng.laplace(size=size).astype(np.float32)

    def _finding(
        self,
        seconds: Mapping[str, float],
        reference: str,
        *,
        setup: str,
        measured: str,
        longer: str,
        **numbers: Any,
    ) -> Finding:
        """The finding: the others take at least so many times as long as the reference."""
        ratios = {label: each / seconds[reference] for label, each in seconds.items()}
        return Finding(
            setup=setup,
            measured=measured,
            criterion="; ".join(
                f"{label} takes at least {least:g}{TIMES} {longer}"
                for label, least in self.min_ratio.items()
            ),
            holds=reached(ratios, self.min_ratio),
            numbers={"seconds": seconds, "ratios": ratios, **numbers},
            series=bars({label: each * 1e3 for label, each in seconds.items()}),
            axes=("", "milliseconds"),
        )


class SelectionTime(_SelectionTimes):
    """Time to select, and to keep the rest, of codecs.

    Attributes:
        subject: whose times are compared with the others'.
    """

    kind: Literal["selection-time"]
    subject: str

    def measure(self, context: ClaimContext) -> Finding:
        """Seconds of error feedback and selection, measured in turns in this process."""
        gradient = self._gradient(context)
        seconds = {}
        with one_thread():
            for label, spec in self.codecs.items():
                codec = build_codec(spec, seed=context.options.seed)
                times = []
                for _ in range(_ROUNDS + 1):
                    begun = time.perf_counter()
                    choice = codec.choose(gradient, 1)
                    try:
                        # With one worker the network's answer equals the request.
                        asked = next(choice)
                        while True:
                            asked = choice.send([segment.words for segment in asked])
                    except StopIteration:
                        times.append(time.perf_counter() - begun)
                    codec.error_feedback.commit(None)
                seconds[label] = statistics.median(times[1:])  # the first one compiles
        return self._finding(
            seconds,
            self.subject,
            setup=f"{gradient.size:,} elements with Laplace's distribution, residual included, one "
            "CPU thread",
            measured=f"{self.subject} takes {seconds[self.subject] * 1e3:.1f} ms; "
            + ", ".join(
                f"{label} {each / seconds[self.subject]:.2f}{TIMES} as long"
                for label, each in seconds.items()
                if label != self.subject
            ),
            longer="as long",
        )


class PublishedSelectionTime(_SelectionTimes):
    """Time to find indices and values, of baselines in torch as published and of codecs here.

    No residual is kept. All run in turns on one thread; its processor time counts, the least of
    seven. Beside the codecs there are "torch.topk", "DGC, permutation", "DGC, draws" and "DGC,
    strided" (named by how the sample is taken), and "SIDCo-E, torch".

    Attributes:
        ratio: share to select.
        reference: label of the method whose times are compared with the others'.
    """

    kind: Literal["published-selection-time"]
    ratio: Annotated[float, Field(gt=0, lt=FIRST)] = 0.001
    reference: str

    def measure(self, context: ClaimContext) -> Finding:
        x = self._gradient(context)
        seconds, found = selection_times(x, self.ratio, self.codecs)
        share = {label: count / (self.ratio * x.size) for label, count in found.items()}
        return self._finding(
            seconds,
            self.reference,
            setup=f"{x.size:,} elements with Laplace's distribution, {self.ratio * 100:g} %, one "
            "CPU thread, its processor time, no residual",
            measured="; ".join(
                f"{label} {taken * 1e3:.3g} ms ({share[label]:.2f} of what is wanted)"
                for label, taken in seconds.items()
            ),
            longer=f"as long as {self.reference}",
            selected=share,
        )


def selection_times(
    x: Floats, ratio: float, codecs: Codecs
) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds of processor time and selected elements by label, of baselines in torch and of
    codecs.

    Raises:
        MissingToolError: torch is not installed.
    """
    methods = dict(_methods(x, ratio, codecs))
    seconds = dict.fromkeys(methods, math.inf)
    found = dict.fromkeys(methods, 0)
    with one_thread():
        for _ in range(_REPEATS):  # in turns, so that a busy moment does not hit one alone
            for label, select in methods.items():
                begun = time.thread_time()
                found[label] = select()
                seconds[label] = min(seconds[label], time.thread_time() - begun)
    return seconds, found


def _methods(x: Floats, ratio: float, codecs: Codecs) -> Iterator[tuple[str, Callable[[], int]]]:
    import torch  # noqa: PLC0415 - it is optional, and slow to import

    tensor = torch.from_numpy(x)

    def sent(indices: torch.Tensor) -> int:
        return tensor[indices].numel()  # values are taken, too

    yield "torch.topk", lambda: sent(torch_topk(tensor, ratio))
    yield "DGC, permutation", lambda: sent(torch_dgc(tensor, ratio, "permutation"))
    yield "DGC, draws", lambda: sent(torch_dgc(tensor, ratio, "draws"))
    yield "DGC, strided", lambda: sent(torch_dgc(tensor, ratio, "strided"))
    yield "SIDCo-E, torch", lambda: sent(torch_sidco(tensor, ratio, 1))
    for label, spec in codecs.items():
        selector = build_codec(spec).selector
        yield label, _selecting(selector, x)


def _selecting(selector: Selector[Any], x: Floats) -> Callable[[], int]:
    return lambda: selector.select(x)[1].size


def torch_topk(x: torch.Tensor, ratio: float) -> torch.Tensor:
    """Indices of the largest magnitudes, by sorting them as torch does."""
    return x.abs().topk(int(ratio * x.numel()), sorted=False).indices


def torch_dgc(
    x: torch.Tensor, ratio: float, sample: Literal["permutation", "draws", "strided"]
) -> torch.Tensor:
    """Indices by DGC: a threshold from a sample of 1 %; if far too many reach it, the largest of
    these.

    Args:
        x: the gradient.
        ratio: share to select.
        sample: the first 1 % of a random permutation, as in SIDCo's public code; as many random
            draws; or every hundredth element.
    """
    import torch  # noqa: PLC0415

    magnitudes, count = x.abs(), math.ceil(_SAMPLE * x.numel())
    if sample == "permutation":
        seen = magnitudes[torch.randperm(x.numel())[:count]]
    elif sample == "draws":
        seen = magnitudes[torch.randint(x.numel(), (count,))]
    else:
        seen = magnitudes[:: x.numel() // count]
    threshold = seen.topk(math.ceil(ratio * seen.numel()), sorted=False).values.min()
    found = (magnitudes > threshold).nonzero().squeeze(1)
    wanted = math.ceil(ratio * x.numel())
    if found.numel() > _TOO_MANY * wanted:
        found = found[magnitudes[found].topk(wanted, sorted=False).indices]
    return found


def torch_sidco(x: torch.Tensor, ratio: float, stages: int) -> torch.Tensor:
    """Indices by SIDCo-E: exponential fits, each to the elements that passed the one before."""
    magnitudes = x.abs()
    threshold = -float(magnitudes.mean()) * math.log(ratio if stages == 1 else FIRST)
    passed = magnitudes
    for _ in range(stages - 1):
        passed = passed[passed > threshold]
        least = float(passed.min())
        share = (ratio / FIRST) ** (1 / (stages - 1))
        threshold = least - (float(passed.mean()) - least) * math.log(share)
    return (magnitudes > threshold).nonzero().squeeze(1)
