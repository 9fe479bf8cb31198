"""``innet switch run``: the built-in switch on network interfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    *,
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM", help="p4c's JSON (plain, gzip, xz), or slots-32 and so on."
        ),
    ],
    interface: Annotated[
        list[str],
        typer.Option("--interface", "-i", metavar="PORT@NAME", help="Repeatable: 1@eth0."),
    ],
    commands: Annotated[
        Path | None,
        typer.Option("--commands", "-c", help="simple_switch_CLI's commands, by line; run first."),
    ] = None,
    control: Annotated[
        Path | None, typer.Option(help="A UNIX socket to make, which takes commands.")
    ] = None,
    pcap: Annotated[
        Path | None, typer.Option(help="Write captures of all interfaces to this folder.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", "-e", help="jit or interpret.")] = "jit",
    seed: Annotated[int, typer.Option(help="Of the program's random().")] = 0,
) -> None:
    """Forward packets between network interfaces by a compiled P4 program; needs root.

    It prints "ready" when packets are taken, and runs until it is interrupted or terminated.
    """
    from innet.processes import switch
    from innet.tools.files import engine_named

    switch.run(
        program,
        interface,
        commands=commands,
        control=control,
        pcap=pcap,
        engine=engine_named(engine),
        seed=seed,
    )
