"""``innet train``: any codec on real gradients, beside plain float32 sums."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from innet.cli.allreduce import with_parameters
from innet.cli.options import ConfigOption, EngineOption, SetOption, ValuesOption, WorkersOption
from innet.cli.output import err, out, say_json
from innet.cli.settings import read_settings
from innet.core.errors import InnetError
from innet.core.settings import TrainSettings


def train(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="digits-cnn, mnist5k-cnn, charlm or ncf. [default: digits-cnn]"
        ),
    ] = None,
    codecs: Annotated[
        list[str] | None,
        typer.Option("--codec", "-c", help="A codec; repeatable. [default: topk]"),
    ] = None,
    codec_parameters: SetOption = None,
    workers: WorkersOption = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data. [default: the model's]")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples per worker and step. [default: the model's]")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="[default: the model's]")] = None,
    momentum: Annotated[float | None, typer.Option(help="[default: the model's]")] = None,
    repeats: Annotated[
        int | None,
        typer.Option("--seeds", "--repeats", help="How many seeds, from --seed on. [default: 1]"),
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(help="test, or validation to choose settings by. [default: test]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of weights, batches, hashes. [default: 0]")
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(help="What computes gradients: numpy or torch. [default: the model's]"),
    ] = None,
    engine: EngineOption = None,
    values_per_packet: ValuesOption = None,
    config: ConfigOption = None,
    out_dir: Annotated[Path, typer.Option("--out", "-o", help="Where record and plot go.")] = Path(
        "innet-out"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Train a small model with any codec, beside plain float32 sums.

    All runs of one seed start from the same weights and see the same batches. --set applies to
    every codec given.
    """
    settings = read_settings(
        TrainSettings,
        config,
        {
            "codecs": tuple(codecs) if codecs else None,
            "model": model,
            "workers": workers,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "momentum": momentum,
            "evaluate": evaluate,
            "epochs": epochs,
            "repeats": repeats,
            "seed": seed,
            "framework": framework,
            "engine": engine,
            "values_per_packet": values_per_packet,
        },
    )
    changed = tuple(with_parameters(codec, codec_parameters or []) for codec in settings.codecs)
    settings = settings.model_copy(update={"codecs": changed})
    # Imported here, as they take longer to import than a mistake in an option should.
    from innet.experiments.comparison import run
    from innet.experiments.plots import draw_training
    from innet.experiments.progress import ProgressDisplay
    from innet.experiments.tables import training_table

    try:
        with ProgressDisplay(err) as display:
            result = run(
                settings, out_dir, created=datetime.now(UTC), watch=display, draw=draw_training
            )
    except (KeyboardInterrupt, InnetError, MemoryError) as stop:
        for note in getattr(stop, "__notes__", ()):
            err.print(note, markup=False, soft_wrap=True)
        raise
    for note in result.notes:
        err.print(note, markup=False)
    if as_json:
        say_json(result.record.model_dump(mode="json"))
        return
    out.print(training_table(result.record))
    for what, path in {"record": result.record_path, "plot": result.plot_path}.items():
        if path is not None:
            out.print(f"{what}: {path}", highlight=False, soft_wrap=True)
