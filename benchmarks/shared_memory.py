"""All-reduces of the processes of one machine: shared memory and UDP beside gloo.

    taskset -c 0,1 python -m benchmarks.shared_memory [--elements 6553600] [--json]

Each of four processes is a rank of gloo and a worker of a switch service for each row, as in
``benchmarks.service``. They all-reduce in turns, so that whatever else the machine does meets all.
Goals are those of dense sums as fast as gloo, LHC of 1 % of independent supports twice, and
ScaleCom three times as fast.
"""

from __future__ import annotations

import tempfile
from typing import Annotated

import typer

from benchmarks.common import show
from benchmarks.ranks import GLOO, Ranks, rows
from benchmarks.service_cases import Case, Kind
from innet.codecs import CodecSpec
from innet.core.settings import ServiceTransport

_BITMAP = {"name": "lhc", "index": "bitmap"}
_CODECS: dict[str, tuple[CodecSpec, Kind]] = {
    "dense": ("dense", Kind.FULL),
    "LHC of 1 %, independent supports": ("lhc", Kind.OWN_PLACES),
    "LHC of 1 %, independent supports, a bitmap": (
        {"preset": "lhc", "carrier": _BITMAP},
        Kind.OWN_PLACES,
    ),
    "ScaleCom 100 x": ("scalecom", Kind.FULL),
}
_TRANSPORTS: tuple[ServiceTransport, ...] = ("shm", "udp")


def main(  # noqa: PLR0917 - options of a command
    elements: Annotated[int, typer.Option(help="Of each gradient; 25 MiB.")] = 25 * (1 << 20) // 4,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 4,
    values: Annotated[int, typer.Option(help="Values per packet.")] = 1024,
    repeats: Annotated[int, typer.Option(help="All-reduces of each kind.")] = 11,
    window: Annotated[int | None, typer.Option(help="Packets under way, of each worker.")] = None,
    only: Annotated[str, typer.Option(help="Cases whose names contain this.")] = "",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print how many times as fast as gloo each is."""
    cases = {
        f"{name}, {transport}": Case(codec, kind, transport=transport)
        for name, (codec, kind) in _CODECS.items()
        for transport in _TRANSPORTS
        if only in f"{name}, {transport}"
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        Ranks(
            cases,
            size=elements,
            workers=workers,
            values=values,
            alike=False,
            folder=folder,
            window=window,
        ) as ranks,
    ):
        found = rows(ranks.measure([GLOO, *cases], repeats))
    title = f"all-reduce of {elements:,} values, {workers} processes of one machine"
    show(title, "times as fast as gloo", found, as_json)


if __name__ == "__main__":
    typer.run(main)
