"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CodecOption = Annotated[
    str | None,
    typer.Option("--codec", "-c", help="A codec; `innet codecs` lists them. [default: dense]"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PART.KEY=VALUE",
        help="Change a parameter of the codec's parts, e.g. selector.ratio=0.05; repeatable.",
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", "-w", help="How many workers. [default: 4]")
]
ValuesOption = Annotated[int | None, typer.Option(help="32, 64, 256 or 1024. [default: 64]")]
ProgramOption = Annotated[
    str | None, typer.Option(help="P4 program; `innet p4 list`. [default: slots]")
]
RacksOption = Annotated[
    int | None,
    typer.Option(help="Switches with workers, for programs of several levels. [default: 2]"),
]
DepthOption = Annotated[int | None, typer.Option(help="Levels of switches, likewise. [default: 2]")]
EngineOption = Annotated[
    str | None, typer.Option(help="Of the built-in switch: jit or interpret. [default: jit]")
]
DensityOption = Annotated[
    float | None, typer.Option(help="Share of elements that are not zero. [default: 1]")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Of gradients, hashes and faults. [default: 0]")
]
InputOption = Annotated[
    list[Path] | None,
    typer.Option("--input", "-i", help="NumPy files, one array per worker; repeatable."),
]
PartialAfterOption = Annotated[
    float | None,
    typer.Option(help="Seconds to wait for late workers. [default: for all, always]"),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the sum to this .npy file.")
]
ConfigOption = Annotated[
    Path | None, typer.Option(help="Settings in TOML; options given here win.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
