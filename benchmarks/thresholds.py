"""Selectors that estimate a threshold, against what SIDCo's paper compares itself with.

    python -m benchmarks.thresholds                  seconds to select, of 10**7 elements
    python -m benchmarks.thresholds --adaptation     selected / wanted after SIDCo's adaptation

``innet reproduce sidco-e`` measures both for its claims, the second over trainings. Here are more
settings. Tables are Markdown.
"""

from __future__ import annotations

import math
import statistics
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from innet.codecs import build_codec
from innet.experiments.selection_claims import FIRST, selection_times

Floats = NDArray[np.float32]

RATIOS = (0.1, 0.01, 0.001)
SELECTORS = ("topk", "dgc", "redsync", "gaussiank", "sidco-e", "sidco-gp", "sidco-p")
SIDCO = ("sidco-e", "sidco-gp", "sidco-p")
_FEW, _MANY, _EVERY = 0.8, 1.2, 5  # of SIDCo's adaptation


def main(
    adaptation: Annotated[bool, typer.Option("--adaptation", help="SIDCo's stages.")] = False,
    elements: Annotated[int, typer.Option(help="To select from.")] = 10_000_000,
) -> None:
    """Measure and print."""
    if adaptation:
        print_adaptation()
    else:
        print_times(elements)


def print_times(elements: int) -> None:
    """A row for each method: milliseconds for Laplace elements, and what was selected."""
    x = np.random.default_rng(0).laplace(size=elements).astype(np.float32)
    for ratio in (0.01, 0.001):
        codecs: dict[str, Any] = {
            f"innet {name}": {"preset": name, "selector": {"ratio": ratio}} for name in SELECTORS
        }
        seconds, found = selection_times(x, ratio, codecs)
        print(f"\n{elements} Laplace elements, {ratio * 100:g} %\n")
        print("| | ms | times SIDCo-E in torch | selected / wanted |\n|---|---|---|---|")
        for name, taken in seconds.items():
            against = taken / seconds["SIDCo-E, torch"]
            share = found[name] / (ratio * elements)
            print(f"| {name} | {taken * 1e3:.3g} | {against:.2f} | {share:.2f} |")


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
        several = self._stages > 1 and self._ratio < FIRST
        threshold = -magnitudes.mean() * math.log(FIRST if several else self._ratio)
        passed = magnitudes
        for _ in range(self._stages - 1 if several else 0):
            passed = passed[passed > threshold]
            share = (self._ratio / FIRST) ** (1 / (self._stages - 1))
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
                runs = {name: build_codec(f"{name}:ratio={ratio}").selector for name in SIDCO}
                found: dict[str, list[float]] = {name: [] for name in ("authors", *SIDCO)}
                for number in range(rounds):
                    x = draw(data, zeros, size, number)
                    found["authors"].append(rule.select(x))
                    for name, selector in runs.items():
                        found[name].append(selector.select(x)[1].size / (ratio * size))
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


if __name__ == "__main__":
    typer.run(main)
