"""How many coordinates the workers' selections have together, by the number of workers.

    python -m benchmarks.buildup [--size 100000] [--ratio 0.01]

Comma-separated, one line for each number of workers, ready to plot. The workers' gradients are a
common vector and noise of the same variance, both normal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import typer

from innet.codecs import build_codec
from innet.core.reduce_op import combine

COUNTS = (1, 2, 4, 8, 16, 32, 64)


def main(
    size: Annotated[int, typer.Option(help="Elements of each gradient.")] = 100_000,
    ratio: Annotated[float, typer.Option(help="Share that one worker selects.")] = 0.01,
) -> None:
    """Select and print."""
    print("workers,topk,scalecom")
    for row in unions(size, int(ratio * size), COUNTS):
        print(",".join(str(value) for value in row.values()))


def unions(size: int, k: int, counts: Sequence[int]) -> list[dict[str, int]]:
    """For each number of workers, the size of the union of what they select, by selector."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal(size)
    every = [(common + rng.standard_normal(size)).astype(np.float32) for _ in range(max(counts))]
    parameters: dict[str, dict[str, object]] = {
        "topk": {"k": k},
        "scalecom": {"rate": size // k, "exact": True},
    }
    table = []
    for count in counts:
        row = {"workers": count}
        for name, given in parameters.items():
            spec = {
                "selector": {"name": name, **given},
                "carrier": "dense",
                "error_feedback": "none",
            }
            row[name] = union_of(spec, every[:count])
        table.append(row)
    return table


def union_of(spec: Mapping[str, object], job: list[np.ndarray]) -> int:
    """Coordinates that at least one worker selects in an all-reduce without a network."""
    selectors = [build_codec(spec, worker=worker).selector for worker in range(len(job))]
    choices = [each.choose(x, len(job)) for each, x in zip(selectors, job, strict=True)]
    answers = None
    chosen: set[int] = set()
    while True:
        segments = []
        for choice in choices:
            try:
                segments.append(next(choice) if answers is None else choice.send(answers))
            except StopIteration as stop:
                chosen.update(stop.value[0].tolist())
        if not segments:
            return len(chosen)
        answers = [
            combine(column[0].operation, [each.words for each in column])
            for column in zip(*segments, strict=True)
        ]


if __name__ == "__main__":
    typer.run(main)
