"""``innet allreduce`` and ``innet codecs``."""

from __future__ import annotations

import ast
from typing import Annotated, Any

import typer

from innet.cli.options import (
    CodecOption,
    ConfigOption,
    DensityOption,
    DepthOption,
    EngineOption,
    InputOption,
    JsonOption,
    OutputOption,
    PartialAfterOption,
    ProgramOption,
    RacksOption,
    SeedOption,
    SetOption,
    ValuesOption,
    WorkersOption,
)
from innet.cli.outages import outages
from innet.cli.output import out, say_json
from innet.cli.settings import read_settings
from innet.core.errors import ConfigError
from innet.core.settings import AllReduceSettings, shortened


def allreduce(
    *,
    workers: WorkersOption = None,
    codec: CodecOption = None,
    codec_parameters: SetOption = None,
    size: Annotated[
        int | None, typer.Option(help="Elements of each gradient. [default: 1000000]")
    ] = None,
    density: DensityOption = None,
    engine: EngineOption = None,
    values_per_packet: ValuesOption = None,
    program: ProgramOption = None,
    racks: RacksOption = None,
    depth: DepthOption = None,
    seed: SeedOption = None,
    loss: Annotated[
        float | None, typer.Option(help="Share of packets that are lost. [default: 0]")
    ] = None,
    duplicate: Annotated[
        float | None, typer.Option(help="Share that arrives twice. [default: 0]")
    ] = None,
    reorder: Annotated[
        float | None, typer.Option(help="Share that others overtake. [default: 0]")
    ] = None,
    corrupt: Annotated[
        float | None, typer.Option(help="Share with wrong bits. [default: 0]")
    ] = None,
    truncate: Annotated[
        float | None, typer.Option(help="Share that arrives cut short. [default: 0]")
    ] = None,
    mark: Annotated[
        float | None, typer.Option(help="Share that congestion marks. [default: 0]")
    ] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds on each link. [default: 0]")] = None,
    crash: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKER:BEGIN[:END]",
            help="A worker is cut off from BEGIN to END s, or for ever; repeatable.",
        ),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="BEGIN:END", help="All workers are cut off; repeatable."),
    ] = None,
    restart: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", help="The switches lose all registers; repeatable."),
    ] = None,
    window_control: Annotated[
        str | None, typer.Option(help="fixed or aimd. [default: fixed]")
    ] = None,
    partial_after: PartialAfterOption = None,
    attempts: Annotated[int | None, typer.Option(help="Tries, if it stalls. [default: 1]")] = None,
    input_files: InputOption = None,
    output: OutputOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sum gradients over the emulated network, once, and report what it took."""
    faults = {
        "loss": loss,
        "duplicate": duplicate,
        "reorder": reorder,
        "corrupt": corrupt,
        "truncate": truncate,
        "mark": mark,
        "delay": delay,
        "outages": outages(crash or (), partition or ()) or None,
        "restarts": restart or None,
    }
    settings = read_settings(
        AllReduceSettings,
        config,
        {
            "workers": workers,
            "codec": codec,
            "size": size,
            "density": density,
            "engine": engine,
            "values_per_packet": values_per_packet,
            "program": program,
            "racks": racks,
            "depth": depth,
            "seed": seed,
            "faults": {key: value for key, value in faults.items() if value is not None} or None,
            "window_control": window_control,
            "partial_after": partial_after,
            "attempts": attempts,
            "input": tuple(input_files) if input_files else None,
        },
    )
    # Imported here, as Numba takes longer to import than a mistake in an option should.
    from innet.allreduce import collective
    from innet.experiments.allreduce import faults_of, gradients, timing_of
    from innet.experiments.outputs import check_writable, save_array
    from innet.experiments.tables import report_table

    if output is not None:
        check_writable(output)
    total, report = collective.all_reduce(
        gradients(settings),
        codec=with_parameters(settings.codec, codec_parameters or []),
        program=settings.program,
        racks=settings.racks,
        depth=settings.depth,
        engine=settings.engine,
        values_per_packet=settings.values_per_packet,
        seed=settings.seed,
        faults=faults_of(settings.faults, settings.workers),
        timing=timing_of(settings),
        attempts=settings.attempts,
    )
    try:
        if output is not None:
            save_array(output, total)
    finally:  # also where the disk is full
        if as_json:
            say_json(report.model_dump(mode="json"))
        else:
            out.print(report_table(report))


def with_parameters(codec: str | dict[str, Any], changes: list[str]) -> str | dict[str, Any]:
    """``codec`` with changes such as "selector.ratio=0.05".

    Raises:
        ConfigError: a change that is not of that form.
    """
    if not changes:
        return codec
    changed: dict[str, Any] = {"preset": codec} if isinstance(codec, str) else dict(codec)
    for change in changes:
        name, equals, text = change.partition("=")
        part, dot, key = name.partition(".")
        if not (equals and dot and part and key):
            raise ConfigError(
                f"--set {shortened(change)}: write it as PART.KEY=VALUE, such as "
                "selector.ratio=0.05, or carrier.name=dense for another part."
            )
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = text  # a name, or nothing that Python can read
        earlier = changed.get(part, {})
        if isinstance(earlier, str):
            earlier = {"name": earlier}
        changed[part] = {**earlier, key: value}
    return changed


def codecs(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the codecs, and the parts of which others can be made."""
    from innet.cli.codec_list import catalogue, tables

    if as_json:
        say_json(catalogue())
    else:
        for table in tables():
            out.print(table)
