"""Claims about selectors that estimate a threshold: how close they come to the wanted share, and
how long they take compared with the baselines of SIDCo's paper.

The baselines in torch are our own code, after the papers and their public code.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from innet.codecs import build_codec
from innet.codecs.parts import Floats, Selector
from innet.experiments.measurements import OfflineReducer
from innet.experiments.models.model import Data, data_of, model_of
from innet.experiments.papers import Codecs, Context, Measure, Workers
from innet.experiments.training import Schedule, one_thread, train
from innet.records import Finding, Series

if TYPE_CHECKING:
    import torch

_TIMES = "\N{MULTIPLICATION SIGN}"
FIRST = 0.25  # share of the elements that pass the first of several stages of SIDCo
_SAMPLE, _TOO_MANY = 0.01, 4 / 3  # of DGC, as SIDCo's public code has it
_REPEATS = 7  # of which the fastest counts
_QUICK_STEPS = 8


class SelectionQuality(Measure):
    """Selected / wanted of several selectors, while a model trains with each.

    Attributes:
        model: the model that is trained, without a network.
        workers: of that training.
        steps: of that training; a few in a quick run.
        codecs: codecs by label.
        targets: shares of the gradient to select.
        subject: the label of the codec that is judged. The claim holds if its single all-reduces
            are off by a factor of ``within`` at most, on average ...
        within: this factor.
        better_than: ... and by less than those of these.
    """

    kind: Literal["selection-quality"]
    model: str
    workers: Workers = 4
    steps: Annotated[int, Field(ge=10)] = 100
    codecs: Codecs
    targets: Annotated[tuple[float, ...], Field(strict=False, min_length=1)]
    subject: str
    within: Annotated[float, Field(gt=1)]
    better_than: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    def finding(self, context: Context) -> Finding:
        quick = context.options.quick
        steps = _QUICK_STEPS if quick else self.steps
        first = context.options.seed
        seeds = range(first, first + (1 if quick else context.options.seeds))
        off, words, series, numbers = {}, [], [], {}
        for label, spec in self.codecs.items():
            rows = [
                [self._ratios(spec, each, steps, seed) for seed in seeds] for each in self.targets
            ]
            means = [[statistics.fmean(ratios) for ratios in row] for row in rows]
            errors = [
                statistics.fmean(abs(math.log(ratio)) for ratios in row for ratio in ratios)
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
            words.append(f"{label} {cells}, off by {off[label]:.2f}{_TIMES}")
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
            claim="",
            paper_result="",
            setup=f"{model_of(self.model).title}, {self.workers} workers, {steps} steps without a "
            f"network, {len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}; second half",
            measured="selected / wanted: " + "; ".join(words),
            criterion=criterion,
            holds=None if quick else holds,
            numbers=numbers,
            series=tuple(series),
            axes=("target ratio", "selected / target"),
            logarithmic=("x", "y"),
        )

    def _ratios(self, spec: Any, target: float, steps: int, seed: int) -> list[float]:
        """Selected / wanted in each all-reduce of the second half of a training."""
        model = model_of(self.model)
        data, recipe = data_of(model, "test"), model.recipe
        few = Data(data.train, data.test.take(np.arange(1)))  # the score does not matter
        batch = min(recipe.batch_size, len(data.train) // self.workers)
        schedule = Schedule(self.workers, steps, batch, recipe.learning_rate, recipe.momentum)
        given: dict[str, Any] = {"preset": spec} if isinstance(spec, str) else dict(spec)
        codec = {**given, "selector": {**given.get("selector", {}), "ratio": target}}
        reducer = OfflineReducer(codec, self.workers, tuple(model.shapes.values()), seed)
        with one_thread():
            for _ in train(schedule, model, few, reducer, seed):
                pass
        wanted = target * model.size * self.workers
        return [each / wanted for each in reducer.selected[steps // 2 :]]


class PublishedSelectionTime(Measure):
    """Time to find indices and values, of baselines in torch as published and of codecs here.

    No residual is kept. All run in turns on one thread; its processor time counts, the least of
    seven.

    Attributes:
        codecs: selectors of innet by label, beside "torch.topk", "DGC, permutation", "DGC, draws"
            and "DGC, strided" (named by how the sample is taken), and "SIDCo-E, torch".
        elements: with Laplace's distribution; a tenth in a quick run.
        ratio: share to select.
        reference: label of the method whose times are compared with the others'.
        min_ratio: by label, how many times as long as that the others must take at least for the
            claim to hold.
    """

    kind: Literal["published-selection-time"]
    codecs: Codecs
    elements: Annotated[int, Field(ge=1000)]
    ratio: Annotated[float, Field(gt=0, lt=FIRST)] = 0.001
    reference: str
    min_ratio: dict[str, float] = Field(default_factory=dict)

    def finding(self, context: Context) -> Finding:
        quick = context.options.quick
        size = self.elements // (10 if quick else 1)
        x = np.random.default_rng(context.options.seed).laplace(size=size).astype(np.float32)
        seconds, found = selection_times(x, self.ratio, self.codecs)
        ratios = {label: each / seconds[self.reference] for label, each in seconds.items()}
        share = {label: count / (self.ratio * size) for label, count in found.items()}
        return Finding(
            claim="",
            paper_result="",
            setup=f"{size:,} elements with Laplace's distribution, {self.ratio * 100:g} %, one CPU "
            "thread, its processor time, no residual",
            measured="; ".join(
                f"{label} {taken * 1e3:.3g} ms ({share[label]:.2f} of what is wanted)"
                for label, taken in seconds.items()
            ),
            criterion="; ".join(
                f"{label} takes at least {least:g}{_TIMES} as long as {self.reference}"
                for label, least in self.min_ratio.items()
            ),
            holds=None
            if quick or not self.min_ratio
            else all(ratios[label] >= least for label, least in self.min_ratio.items()),
            numbers={"seconds": seconds, "ratios": ratios, "selected": share},
            series=tuple(Series(label=label, y=(each * 1e3,)) for label, each in seconds.items()),
            axes=("", "milliseconds"),
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
