"""Every codec on every model with 4 and 8 workers: the tables of docs/results.md.

    python -m benchmarks.training run runs      # hours; goes on where it was stopped
    python -m benchmarks.training show runs     # Markdown tables, and plots beside the records
    python -m benchmarks.training run runs --schedule long --model charlm
    python -m benchmarks.training show runs --schedule long
    python -m benchmarks.training claims out    # the same of what innet reproduce left in out

Each run is a record of its own, so a run that is stopped loses one training. Codecs are set as in
``innet/claims/papers.toml``; what has no paper there is taken as it comes. 8 workers have half
the batch of 4, so that both make the same number of steps on the same number of samples. With
``--schedule long`` models train until plain sums have flattened, with 4 workers; the two larger
models have no other schedule, and three codecs and one seed unless others are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from innet.claims.papers import papers
from innet.core.errors import DivergedError
from innet.core.settings import CodecDescription, TrainSettings
from innet.experiments.comparison import Store, methods
from innet.experiments.models.model import MODELS, model_of
from innet.experiments.summing import SumMethod
from innet.records import TRAIN, ReproductionRecord, TrainingRecord, merge
from innet.reports.registry import draw
from innet.reports.tables import cells, methods_of, verdict

app = typer.Typer(help=__doc__, no_args_is_help=True)

SEEDS = 3
CODECS = (
    *("plain", "dense", "topk", "lhc", "scalecom", "adacomp", "sidco-e", "dgc", "gtopk"),
    *("gs-sgd", "sketched-sgd", "qsgd", "thc", "powersgd"),
    *("sidco-gp", "sidco-p", "exact", "threshold", "block"),
)
# What has no preset: OmniReduce's blocks, of whatever is not zero.
COMPOSED: dict[str, CodecDescription] = {"block": {"preset": "lhc", "carrier": "block"}}
# Of the long schedule: what claims are about, and what lossless sums are compared with.
LONG_CODECS = (
    *("plain", "topk", "scalecom", "adacomp", "dgc", "powersgd-4", "sidco-e", "gtopk"),
    *("gs-sgd", "sketched-sgd", "qsgd", "thc", "dense"),
)
COMPOSED["powersgd-4"] = {"preset": "powersgd", "selector": {"rank": 4}}
# Up to half an hour of a core for each run: these codecs with one seed, unless others are named.
LARGE = ("mnist5k-resnet", "docs-gpt")
OF_LARGE = ("plain", "topk", "scalecom")
Many = Annotated[list[str] | None, typer.Option(help="Repeatable. [default: all]")]


class Length(StrEnum):
    """The schedules that models have."""

    SHORT = "short"
    LONG = "long"


ScheduleOption = Annotated[Length, typer.Option("--schedule")]


@app.command()
def run(
    folder: Path,
    *,
    model: Many = None,
    workers: Annotated[
        list[int] | None, typer.Option(help="[default: 4 and 8; 4 for the long schedule]")
    ] = None,
    codec: Many = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="[default: 3, or 1]")] = None,
    schedule: ScheduleOption = Length.SHORT,
) -> None:
    """Train what has no record yet: the first seed of everything, then the next."""
    store = Store(folder)
    for seed in range(seeds or SEEDS):
        for count, name, one in _table(schedule, workers, model, codec):
            if seed < _seeds(name, seeds):
                _train(store, asked_of(name, count, one, schedule), one, seed)


def _table(
    schedule: Length,
    workers: list[int] | None = None,
    models: list[str] | None = None,
    codecs: list[str] | None = None,
) -> Iterator[tuple[int, str, str]]:
    """Workers, model and codec of each cell."""
    long = schedule is Length.LONG
    for count in workers or ((4,) if long else (4, 8)):
        for name in models or [each for each in MODELS if long or each not in LARGE]:
            if long and model_of(name).long is None:
                continue
            found = OF_LARGE if name in LARGE else LONG_CODECS if long else CODECS
            for one in codecs or found:
                yield count, name, one


def _seeds(model: str, asked: int | None) -> int:
    return asked or (1 if model in LARGE else SEEDS)


def _train(store: Store, asked: tuple[TrainSettings, SumMethod], codec: str, seed: int) -> None:
    settings, method = asked
    path = store.path(settings, method, seed)
    if path is not None and path.exists():
        return
    try:
        done = store.run(settings, method, seed).runs[0]
    except DivergedError as error:
        about = f"{settings.model}, {settings.workers} workers, {codec}, seed {seed}"
        print(f"{about}: {error}", flush=True)
        return
    print(f"{path}: {done.final_score:.4f}, {done.wall_seconds:.0f} s", flush=True)


def asked_of(
    model: str, workers: int, codec: str, schedule: Length = Length.SHORT
) -> tuple[TrainSettings, SumMethod]:
    """The settings, and the method, of a cell of the tables."""
    description = _description(codec, model)
    of_model = model_of(model)
    settings = TrainSettings(
        model=model,
        workers=workers,
        codecs=(description or "dense",),
        batch_size=max(1, of_model.recipe.batch_size * 4 // workers),
        schedule=schedule.value,
    )
    method = methods(settings, tuple(of_model.shapes.values()))[0 if description is None else 1]
    if description is None:
        return settings, method
    return settings, replace(method, title=codec, name=codec if codec == "block" else method.name)


def _description(codec: str, model: str) -> CodecDescription | None:
    if codec == "plain":
        return None
    if codec in COMPOSED:
        return COMPOSED[codec]
    paper = papers().get(codec)
    return codec if paper is None else paper.codec_for(model)


@app.command()
def show(folder: Path, *, schedule: ScheduleOption = Length.SHORT) -> None:
    """Print a table for each model and number of workers, and draw them."""
    store = Store(folder)
    cells: dict[tuple[int, str], list[str]] = {}
    for count, name, codec in _table(schedule):
        cells.setdefault((count, name), []).append(codec)
    for (count, name), codecs in cells.items():
        found, failed = [], []
        for codec in codecs:
            for seed in range(SEEDS):
                path = store.path(*asked_of(name, count, codec, schedule), seed)
                assert path is not None
                if path.exists():
                    found.append(TrainingRecord.load(path, TRAIN))
                elif (note := path.with_suffix(".diverged")).exists():
                    failed.append(f"{codec}, seed {seed}: {note.read_text().strip()}")
        if not found:
            continue
        # Runs may have been made with other numbers of cores: nothing shown here is a time.
        machine = found[0].machine
        record = merge([each.model_copy(update={"machine": machine}) for each in found])
        _print(record, f"{name}, {count} workers")
        print("\n".join(["", *failed]))
        suffix = "-long" if schedule is Length.LONG else ""
        draw(record, folder / f"{name}-{count}{suffix}.png")


@app.command()
def claims(folder: Path) -> None:
    """Print what `innet reproduce` found, of all records in a folder, as one Markdown table."""
    print("| codec | claim | paper | here | holds here |")
    print("|---|---|---|---|---|")
    for name in papers():
        path = folder / f"reproduce-{name}.json"
        if not path.exists():
            continue
        for finding in ReproductionRecord.load(path).findings:
            row = (
                f"`{name}`",
                finding.claim,
                finding.paper_result,
                finding.measured,
                verdict(finding),
            )
            print(f"| {' | '.join(row)} |")


def _print(record: TrainingRecord, title: str) -> None:
    methods = methods_of(record)
    last = int(record.settings["iterations_per_epoch"])
    steps = len(record.runs[0].steps)
    print(f"\n{title}, {steps} steps, {len(methods[0].runs)} seeds:\n")
    print(f"| codec | {methods[0].metric.name} | loss | bytes | compression | exact sums |")
    print("|---|---|---|---|---|---|")
    for method in methods:
        print(f"| {method.title} | {' | '.join(cells(method, last))} |")


if __name__ == "__main__":
    app()
