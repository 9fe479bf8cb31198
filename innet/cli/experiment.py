"""``innet experiment``: sweeps, which take a while, write records and can be gone on with."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from innet.cli.output import err, out, say_json
from innet.cli.settings import read_settings
from innet.core.settings import ThroughputSettings

if TYPE_CHECKING:
    from innet.experiments.throughput import Measure
    from innet.records.throughput import Point

app = typer.Typer(
    help="Experiments that sweep over settings.", no_args_is_help=True, rich_markup_mode="markdown"
)


@app.callback()
def _experiment() -> None:
    """Experiments that sweep over settings."""


@app.command("throughput")
def throughput(
    *,
    workers: Annotated[
        list[int] | None,
        typer.Option("--workers", "-w", help="Numbers of workers; repeatable. [default: 2, 4]"),
    ] = None,
    codecs: Annotated[
        list[str] | None, typer.Option("--codec", "-c", help="Repeatable. [default: dense]")
    ] = None,
    values: Annotated[
        list[int] | None,
        typer.Option("--values-per-packet", help="32, 64, 256, 1024; repeatable. [default: 64]"),
    ] = None,
    windows: Annotated[
        list[int] | None,
        typer.Option("--window", help="Packets under way; repeatable. [default: 64, 256]"),
    ] = None,
    topologies: Annotated[
        list[str] | None,
        typer.Option(
            "--topology", help="star; tree: two racks below a root; repeatable. [default: star]"
        ),
    ] = None,
    switches: Annotated[
        list[str] | None,
        typer.Option(
            "--switch",
            help="memory; builtin or bmv2 (in Mininet, with root); repeatable. [default: memory]",
        ),
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Elements of each gradient. [default: 1000000]")
    ] = None,
    size_bmv2: Annotated[
        int | None,
        typer.Option(help="The same for simple_switch, which is slower. [default: 100000]"),
    ] = None,
    density: Annotated[
        float | None, typer.Option(help="Share of elements that are not zero. [default: 1]")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="All-reduces at each point; the median counts. [default: 5]")
    ] = None,
    framing: Annotated[
        str | None, typer.Option(help="In Mininet: udp or raw. [default: udp]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of gradients and hashes. [default: 0]")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML; options given here win.")
    ] = None,
    out_dir: Annotated[Path, typer.Option("--out", "-o", help="Where record and plot go.")] = Path(
        "innet-out"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Measure how fast sums come. Run again with the same --out, it measures what is missing."""
    settings = read_settings(
        ThroughputSettings,
        config,
        {
            "workers": tuple(workers) if workers else None,
            "codecs": tuple(codecs) if codecs else None,
            "values_per_packet": tuple(values) if values else None,
            "windows": tuple(windows) if windows else None,
            "topologies": tuple(topologies) if topologies else None,
            "switches": tuple(switches) if switches else None,
            "size": size,
            "size_bmv2": size_bmv2,
            "density": density,
            "rounds": rounds,
            "framing": framing,
            "seed": seed,
        },
    )
    # Imported here, as they take longer to import than a mistake in an option should.
    from innet.core.errors import MissingToolError
    from innet.experiments import throughput as experiment
    from innet.experiments.outputs import folder_for
    from innet.experiments.plots import draw_throughput
    from innet.experiments.tables import throughput_table

    measures: dict[str, Measure] = {"memory": experiment.in_memory}
    if set(settings.switches) - {"memory"}:
        from innet.mininet.network import require_root

        require_root("a Mininet network")
        from innet.bmv2.simple_switch import find_simple_switch
        from innet.mininet.allreduce import measure

        if "bmv2" in settings.switches:
            find_simple_switch()  # an error now, not when it is its turn

        measures |= {"builtin": measure, "bmv2": measure}
    folder = folder_for(out_dir, ("throughput.json", "throughput.png"))
    path = folder / "throughput.json"
    with err.status("") as status:

        def watch(number: int, of: int, point: Point) -> None:
            status.update(f"{number} of {of}: {point.workers} workers, {point.codec}, "
                          f"{point.values_per_packet} values, window {point.window}, "
                          f"{point.topology}, {point.switch} ...")  # fmt: skip

        record = experiment.run(
            settings, path, created=datetime.now(UTC), measures=measures, watch=watch
        )
    plot: Path | None = folder / "throughput.png"
    try:
        draw_throughput(record, folder / "throughput.png")
    except MissingToolError as error:
        err.print(f"No plot was drawn: {error}", markup=False)
        plot = None
    if as_json:
        say_json(record.model_dump(mode="json"))
        return
    out.print(throughput_table(record))
    for what, written in {"record": path, "plot": plot}.items():
        if written is not None:
            out.print(f"{what}: {written}", highlight=False, soft_wrap=True)
