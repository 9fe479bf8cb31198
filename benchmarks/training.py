"""Every codec on every model with 4 and 8 workers: the tables of docs/training.md.

    python -m benchmarks.training run runs      # hours; goes on where it was stopped
    python -m benchmarks.training show runs     # Markdown tables, and plots beside the records

Each run is a record of its own, so a run that is stopped loses one training. Codecs are set as in
``innet/experiments/papers.toml``; what has no paper there is taken as it comes. 8 workers have half
the batch of 4, so that both make the same number of steps on the same number of samples.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from innet.config import CodecDescription, TrainSettings
from innet.experiments.comparison import completed, epoch_of, run_of_seed, trial_of
from innet.experiments.model import MODELS
from innet.experiments.outputs import record_of
from innet.experiments.papers import papers
from innet.experiments.runs import Way, one_thread
from innet.record import TRAIN, ExperimentRecord, merge
from innet.report.curves import draw_training
from innet.report.training import cells, ways_of

app = typer.Typer(help=__doc__, no_args_is_help=True)

SEEDS = 3
CODECS = (
    *("plain", "dense", "topk", "lhc", "scalecom", "adacomp", "sidco-e", "dgc", "gtopk"),
    *("gs-sgd", "sketched-sgd", "qsgd", "thc", "powersgd"),
    *("sidco-gp", "sidco-p", "exact", "threshold"),
)
Many = Annotated[list[str] | None, typer.Option(help="Repeatable. [default: all]")]


@app.command()
def run(
    folder: Path,
    model: Many = None,
    workers: Annotated[list[int] | None, typer.Option(help="[default: 4 and 8]")] = None,
    codec: Many = None,
) -> None:
    """Train what has no record yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for count in workers or (4, 8):
        for name in model or MODELS:
            for one in codec or CODECS:
                for seed in range(SEEDS):
                    _train(folder, name, count, one, seed)


def _train(folder: Path, model_name: str, workers: int, codec: str, seed: int) -> None:
    path = folder / f"{model_name}-{workers}-{codec}-{seed}.json"
    if path.exists():
        return
    model = MODELS.get(model_name)(None)
    description = _description(codec, model_name)
    settings = completed(
        TrainSettings(
            model=model_name,
            workers=workers,
            codecs=(description or "dense",),
            batch_size=max(1, model.recipe.batch_size * 4 // workers),
        ),
        model,
    )
    data = model.load("test")
    own_momentum = codec in {"dgc", "sketched-sgd"}
    way = Way(codec, "plain float32" if codec == "plain" else codec, description, own_momentum)
    with one_thread():
        done = run_of_seed(way, trial_of(settings, model=model, data=data, seed=seed))
    shared = settings.model_dump(mode="json", exclude={"codecs", "seed", "repeats"})
    shared |= {"title": model.title, "iterations_per_epoch": epoch_of(settings, data)}
    record_of(TRAIN, shared, [done], datetime.now(UTC)).save(path)
    print(f"{path.name}: {done.final_score:.4f}, {done.wall_seconds:.0f} s", flush=True)


def _description(codec: str, model: str) -> CodecDescription | None:
    if codec == "plain":
        return None
    paper = papers().get(codec)
    return codec if paper is None else paper.codec_for(model)


@app.command()
def show(folder: Path) -> None:
    """Print a table for each model and number of workers, and draw them."""
    for name in MODELS:
        for count in (4, 8):
            paths = [
                folder / f"{name}-{count}-{codec}-{seed}.json"
                for codec in CODECS
                for seed in range(SEEDS)
            ]
            found = [ExperimentRecord.load(path, TRAIN) for path in paths if path.exists()]
            if not found:
                continue
            record = merge(found)
            _print(record, f"{name}, {count} workers")
            draw_training(record, folder / f"{name}-{count}.png")


def _print(record: ExperimentRecord, title: str) -> None:
    ways = ways_of(record)
    last = int(record.settings["iterations_per_epoch"])
    steps = len(record.runs[0].steps)
    print(f"\n{title}, {steps} steps, {len(ways[0].runs)} seeds:\n")
    print(f"| codec | {ways[0].metric.name} | loss | bytes | compression | exact sums |")
    print("|---|---|---|---|---|---|")
    for way in ways:
        print(f"| {way.title} | {' | '.join(cells(way, last))} |")


if __name__ == "__main__":
    app()
