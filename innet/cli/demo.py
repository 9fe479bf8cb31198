"""``innet demo``: the main job, on real gradients."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from innet.cli.output import err, out, say_json
from innet.cli.settings import read_settings
from innet.core.settings import DemoSettings


def demo(
    *,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", help="How many workers. [default: 4]")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Optimiser steps of each run. [default: 330]")
    ] = None,
    ratio: Annotated[
        float | None, typer.Option(help="Share of elements that top-k sends. [default: 0.01]")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="jit or interpret. [default: jit]")] = None,
    values_per_packet: Annotated[
        int | None, typer.Option(help="32, 64, 256 or 1024. [default: 64]")
    ] = None,
    framework: Annotated[
        str | None, typer.Option(help="What computes gradients: numpy or torch. [default: numpy]")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of weights, batches, hashes. [default: 0]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML; options given here win.")
    ] = None,
    out_dir: Annotated[
        Path, typer.Option("--out", "-o", help="Where record, plot and capture go.")
    ] = Path("innet-out"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Train a small CNN on handwritten digits, its gradients summed by a P4 program.

    Three times from the same start: plain float32 sums; every element as an integer through the
    switch (dense); the largest of each worker as a lossless homomorphic sketch (LHC).
    """
    settings = read_settings(
        DemoSettings,
        config,
        {
            "workers": workers,
            "iterations": iterations,
            "ratio": ratio,
            "engine": engine,
            "values_per_packet": values_per_packet,
            "framework": framework,
            "seed": seed,
        },
    )
    # Imported here, as they take longer to import than a mistake in an option should.
    from innet.experiments.demo import run
    from innet.experiments.plots import draw_demo
    from innet.experiments.progress import ProgressDisplay
    from innet.experiments.tables import demo_table

    with ProgressDisplay(err) as display:
        result = run(settings, out_dir, created=datetime.now(UTC), watch=display, draw=draw_demo)
    for note in result.notes:
        err.print(note, markup=False)
    if as_json:
        say_json(result.record.model_dump(mode="json"))
        return
    out.print(demo_table(result.record))
    files = {
        "record": result.record_path,
        "plot": result.plot_path,
        "packets of one round": result.capture_path,
    }
    for what, path in files.items():
        if path is not None:
            out.print(f"{what}: {path}", highlight=False, soft_wrap=True)
