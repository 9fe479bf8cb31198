"""``innet switch serve``: the built-in switch as a UDP service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    *,
    program: Annotated[str, typer.Option(help="A shipped program for one switch.")] = "slots",
    values: Annotated[int, typer.Option(help="Values in a packet.")] = 256,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS:PORT", help="For UDP and TCP; port 0 takes a free one.")
    ] = "127.0.0.1:48879",
    key: Annotated[
        str | None, typer.Option(help="What workers must know. Other users see it in `ps`.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="A file that holds the key.")] = None,
    jobs: Annotated[int, typer.Option(help="Jobs at the same time; they share the slots.")] = 4,
    workers_max: Annotated[int, typer.Option(help="Workers that a job may have.")] = 32,
    window: Annotated[
        int | None,
        typer.Option(
            help="Packets of each worker under way at once, at most, a power of two; where links "
            "have short queues, fewer arrive in less time.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS:PORT", help="Serve metrics for Prometheus there, over HTTP."),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", "-e", help="jit or interpret.")] = "jit",
) -> None:
    """Serve the built-in switch to workers that are processes on this or other machines.

    It prints where it listens, and serves until it is interrupted or terminated.
    """
    from innet.service.connections import resolve
    from innet.service.process import key_of
    from innet.service.process import serve as serve_here
    from innet.service.server import ServiceSettings
    from innet.tools.files import engine_named

    settings = ServiceSettings(
        listen=resolve(listen),
        program=program,
        values=values,
        key=key_of(key, key_file),
        jobs=jobs,
        workers=workers_max,
        engine=engine_named(engine),
        window=window,
    )
    serve_here(settings, None if metrics is None else resolve(metrics))
