"""Selectors that estimate a threshold, against what SIDCo's paper compares itself with.

    python -m benchmarks.thresholds                  seconds to select, of 10**7 elements
    python -m benchmarks.thresholds --adaptation     selected / wanted after SIDCo's adaptation
    python -m benchmarks.thresholds --quality        selected / wanted over trainings

The baselines in torch are written here, from what the papers and their public code do:
``torch.topk`` of the magnitudes; DGC, which takes its threshold from a sample and selects again
among what reaches it; SIDCo-E with masks. All run on one thread of the CPU. Tables are Markdown.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from innet.codecs import build_codec
from innet.codecs.parts import Selector
from innet.experiments.models.model import Data, data_of, model_of
from innet.experiments.reproduce import OfflineReducer
from innet.experiments.training import Schedule, one_thread, train

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float32]

RATIOS = (0.1, 0.01, 0.001)
_FIRST, _FEW, _MANY, _EVERY = 0.25, 0.8, 1.2, 5  # of SIDCo
_SAMPLE, _TOO_MANY = 0.01, 4 / 3  # of DGC, as SIDCo's public code has it

Codecs = dict[str, dict[str, Any]]
OURS: Codecs = {
    name: {"preset": name, "error_feedback": "residual"}
    for name in ("topk", "dgc", "redsync", "gaussiank", "sidco-e", "sidco-gp", "sidco-p")
}
# As SIDCo's public code sets two methods that it compares itself with.
THEIRS: Codecs = {
    "redsync, tolerance 0.2": {"preset": "redsync", "selector": {"tolerance": 0.2}},
    "gaussiank of magnitudes": {"preset": "gaussiank", "selector": {"fit": "magnitudes"}},
}


def main(  # noqa: PLR0917 - typer makes options of them
    adaptation: Annotated[bool, typer.Option("--adaptation", help="SIDCo's stages.")] = False,
    quality: Annotated[bool, typer.Option("--quality", help="Selected / wanted.")] = False,
    elements: Annotated[int, typer.Option(help="To select from.")] = 10_000_000,
    repeats: Annotated[int, typer.Option(help="Of which the fastest counts.")] = 7,
    model: Annotated[str, typer.Option(help="To train for --quality.")] = "mnist5k-cnn",
    steps: Annotated[int, typer.Option(help="Of that training.")] = 200,
    seeds: Annotated[int, typer.Option(help="Of that training.")] = 3,
) -> None:
    """Measure and print."""
    if adaptation:
        print_adaptation()
    elif quality:
        print_quality(model, steps, seeds)
    else:
        print_times(elements, repeats)


# ----------------------------------------------------------------------------
# Seconds.


def print_times(elements: int, repeats: int) -> None:
    """A row for each method: milliseconds for Laplace elements, and what was selected."""
    x = np.random.default_rng(0).laplace(size=elements).astype(np.float32)
    with one_thread():
        for ratio in (0.01, 0.001):
            methods = dict(_methods(x, ratio))
            taken = dict.fromkeys(methods, math.inf)
            found = {}
            for _ in range(repeats):  # in turns, so that a busy moment does not hit one method
                for name, select in methods.items():
                    begun = time.perf_counter()
                    found[name] = select()
                    taken[name] = min(taken[name], time.perf_counter() - begun)
            print(f"\n{elements} Laplace elements, {ratio * 100:g} %\n")
            print("| | ms | times SIDCo-E in torch | selected / wanted |\n|---|---|---|---|")
            for name, seconds in taken.items():
                against = seconds / taken["SIDCo-E in torch"]
                share = found[name] / (ratio * elements)
                print(f"| {name} | {seconds * 1e3:.3g} | {against:.2f} | {share:.2f} |")


def _methods(x: Floats, ratio: float) -> Iterator[tuple[str, Callable[[], int]]]:
    import torch  # noqa: PLC0415 - it is optional, and slow to import

    tensor = torch.from_numpy(x)
    yield "torch.topk", lambda: int(_torch_topk(tensor, ratio).numel())
    yield "DGC in torch, random sample", lambda: int(_torch_dgc(tensor, ratio, False).numel())
    yield "DGC in torch, strided sample", lambda: int(_torch_dgc(tensor, ratio, True).numel())
    yield "SIDCo-E in torch", lambda: int(_torch_sidco(tensor, ratio, 1).numel())
    yield "SIDCo-E in torch, 3 stages", lambda: int(_torch_sidco(tensor, ratio, 3).numel())
    for name, spec in OURS.items():
        selector = build_codec({**spec, "selector": {"ratio": ratio}}).selector
        yield f"innet {name}", partial(_selected, selector, x)


def _selected(selector: Selector[Any], x: Floats) -> int:
    return selector.select(x)[1].size


def _torch_topk(x: torch.Tensor, ratio: float) -> torch.Tensor:
    found = x.abs().topk(int(ratio * x.numel()), sorted=False).indices
    x[found]  # values are sent, too
    return found


def _torch_dgc(x: torch.Tensor, ratio: float, strided: bool) -> torch.Tensor:
    """A threshold from a sample; then, if too many reach it, the largest of these."""
    import torch  # noqa: PLC0415

    magnitudes = x.abs()
    count = math.ceil(_SAMPLE * x.numel())
    if strided:
        sample = magnitudes[:: x.numel() // count]
    else:
        sample = magnitudes[torch.randperm(x.numel())[:count]]
    threshold = sample.topk(math.ceil(ratio * sample.numel()), sorted=False).values.min()
    found = (magnitudes > threshold).nonzero().squeeze(1)
    wanted = math.ceil(ratio * x.numel())
    if found.numel() > _TOO_MANY * wanted:
        found = found[magnitudes[found].topk(wanted, sorted=False).indices]
    x[found]
    return found


def _torch_sidco(x: torch.Tensor, ratio: float, stages: int) -> torch.Tensor:
    """Exponential fits, each to the elements that passed the one before."""
    magnitudes = x.abs()
    first = ratio if stages == 1 else _FIRST
    threshold = -float(magnitudes.mean()) * math.log(first)
    passed = magnitudes
    for _ in range(stages - 1):
        passed = passed[passed > threshold]
        least = float(passed.min())
        share = (ratio / _FIRST) ** (1 / (stages - 1))
        threshold = least - (float(passed.mean()) - least) * math.log(share)
    found = (magnitudes > threshold).nonzero().squeeze(1)
    x[found]
    return found


# ----------------------------------------------------------------------------
# What SIDCo's adaptation leaves.


class AuthorsRule:
    """SIDCo-E with the adaptation of the authors' public code, by its behavior: zeros are fitted
    like the rest, and the stages become more where too few are selected, and fewer where too many.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._most = math.ceil(-math.log2(ratio))
        self._stages = 1
        self._found: list[float] = []

    def select(self, x: Floats) -> float:
        """Selected / wanted."""
        magnitudes = np.abs(x).astype(np.float64)
        several = self._stages > 1 and self._ratio < _FIRST
        threshold = -magnitudes.mean() * math.log(_FIRST if several else self._ratio)
        passed = magnitudes
        for _ in range(self._stages - 1 if several else 0):
            passed = passed[passed > threshold]
            share = (self._ratio / _FIRST) ** (1 / (self._stages - 1))
            threshold = passed.min() - (passed.mean() - passed.min()) * math.log(share)
        self._found.append(np.count_nonzero(magnitudes > threshold) / (self._ratio * x.size))
        if len(self._found) % _EVERY == 0:
            mean = statistics.fmean(self._found[-_EVERY:])
            step = (mean < _FEW) - (mean > _MANY)
            self._stages = min(max(self._stages + step, 1), self._most)
        return self._found[-1]


def print_adaptation(size: int = 50_000, rounds: int = 60) -> None:
    """Means of selected / wanted over the second half of ``rounds`` all-reduces."""
    print("| data | authors' rule | `sidco-e` | `sidco-gp` | `sidco-p` |\n|---|---|---|---|---|")
    for data in ("Laplace", "normal", "t₃", "gamma"):
        for zeros in (False, True):
            cells: dict[str, list[float]] = {}
            for ratio in RATIOS:
                rule = AuthorsRule(ratio)
                rules = ("sidco-e", "sidco-gp", "sidco-p")
                runs = {name: build_codec(f"{name}:ratio={ratio}").selector for name in rules}
                found: dict[str, list[float]] = {name: [] for name in ("authors", *rules)}
                for number in range(rounds):
                    x = draw(data, zeros, size, number)
                    found["authors"].append(rule.select(x))
                    for name, selector in runs.items():
                        found[name].append(_selected(selector, x) / (ratio * size))
                for name, ratios in found.items():
                    cells.setdefault(name, []).append(statistics.fmean(ratios[rounds // 2 :]))
            row = [", ".join(f"{each:.2f}" for each in cell) for cell in cells.values()]
            print(f"| {data}{', zeros' * zeros} | {' | '.join(row)} |", flush=True)


def draw(data: str, zeros: bool, size: int, seed: int) -> Floats:
    """A gradient; with ``zeros`` four fifths of its elements are zero."""
    rng = np.random.default_rng(seed)
    match data:
        case "Laplace":
            x = rng.laplace(size=size)
        case "normal":
            x = rng.standard_normal(size)
        case "gamma":
            x = rng.gamma(0.3, size=size) * rng.choice([-1, 1], size)
        case _:
            x = rng.standard_t(3, size)
    if zeros:
        x[rng.random(size) < 0.8] = 0
    return x.astype(np.float32)


# ----------------------------------------------------------------------------
# Selected / wanted while a model trains.


def print_quality(name: str, steps: int, seeds: int, workers: int = 4) -> None:
    """Of each selector the mean over the training's second half, ± over seeds; and how far single
    all-reduces are off: the mean of |ln(selected / wanted)|, as a factor.
    """
    model = model_of(name)
    recipe = model.recipe
    codecs = {**{key: spec for key, spec in OURS.items() if key != "topk"}, **THEIRS}
    print(f"{name}, {workers} workers, {steps} steps, {seeds} seeds\n")
    print("| | " + " | ".join(f"{ratio * 100:g} %" for ratio in RATIOS) + " |")
    print("|---" * (1 + len(RATIOS)) + "|")
    data = data_of(model, "test")
    few = Data(data.train, data.test.take(np.arange(1)))  # the score does not matter
    batch = min(recipe.batch_size, len(data.train) // workers)
    schedule = Schedule(workers, steps, batch, recipe.learning_rate, recipe.momentum)
    for label, spec in codecs.items():
        cells = []
        for ratio in RATIOS:
            means, factors = [], []
            for seed in range(seeds):
                parameters = {**spec.get("selector", {}), "ratio": ratio}
                codec = {**spec, "selector": parameters, "carrier": "dense"}
                reducer = OfflineReducer(codec, workers, tuple(model.shapes.values()), seed)
                with one_thread():
                    for _ in train(schedule, model, few, reducer, seed):
                        pass
                wanted = ratio * model.size * workers
                found = [each / wanted for each in reducer.selected[steps // 2 :]]
                means.append(statistics.fmean(found))
                factors.append(statistics.fmean(abs(math.log(each)) for each in found))
            spread = statistics.stdev(means) if seeds > 1 else 0.0
            off = math.exp(statistics.fmean(factors))
            cells.append(f"{statistics.fmean(means):.2f} ± {spread:.2f} (x {off:.2f})")
        print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    typer.run(main)
