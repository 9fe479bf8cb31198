"""Time per all-reduce where links have a rate: codecs through the switch service beside gloo.

    sudo python -m benchmarks.links [--rate 100 --rate 1000 ...] [--plot FILE] [--json]

What ``benchmarks.service`` measures where bytes cost little, at loopback, is measured here where
they cost what a network lets through: each process, a worker of the service and a rank
of gloo, has a network namespace of its own with an interface of that rate in both directions, and
the switch service has another one, to which all of them lead. gloo's ranks send to each other
through the same interfaces. The kernel's token buckets do that; links have no length, and queues
have room for all that is under way unless ``--queue`` says otherwise. With ``--loss`` the kernel
loses so many of the packets that arrive anywhere, by chance. With ``--one-card`` the
switch service is behind one such link itself, as a machine with one network card is. Ratios are of
medians, of turns at the same rate.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Annotated

import typer

from benchmarks.common import Row, show
from benchmarks.ranks import GLOO, Ranks, rows
from benchmarks.service_cases import CASES, Case
from benchmarks.star import Star
from innet.core.errors import InnetError
from innet.reports.plots import hide_frame, log_scale, new_figure, save, style

# The bitmap that is the faster index at loopback is more bytes than a filter.
METHODS = {
    name: case for name, case in CASES.items() if "bitmap" not in name and case.values is None
}
METHODS["exact"] = Case("exact")  # what the process group does unless told otherwise


def _draw(found: dict[float, list[Row]], path: str) -> None:
    """Milliseconds over the rate, a line for each way."""
    figure = new_figure(7, 5)
    axes = figure.subplots()
    for place, name in enumerate(row.name for row in next(iter(found.values()))):
        times = [row.rate for each in found.values() for row in each if row.name == name]
        axes.plot(list(found), times, marker="osv^DPX*h"[place], label=name, **style(place))
    for which in ("x", "y"):
        log_scale(axes, which)
    hide_frame(axes)
    axes.set(xlabel="each link, Mbit/s", ylabel="time of an all-reduce, ms")
    figure.legend(loc="outside lower center", ncols=2, handlelength=3)
    save(figure, path)


def main(  # noqa: PLR0917 - options of a command
    rate: Annotated[list[float], typer.Option(min=1, help="Of each link, Mbit/s.")] = [  # noqa: B006
        100.0,
        1_000.0,
        10_000.0,
    ],
    method: Annotated[list[str], typer.Option(help="Only these, by name.")] = [],  # noqa: B006
    workers: Annotated[int, typer.Option(min=2, max=32, help="How many processes.")] = 4,
    elements: Annotated[int, typer.Option(help="Of each gradient; 25 MiB.")] = 25 * (1 << 20) // 4,
    values: Annotated[int, typer.Option(help="Values per packet.")] = 256,
    repeats: Annotated[int, typer.Option(help="All-reduces of each kind.")] = 5,
    one_card: Annotated[bool, typer.Option(help="The switch has a single link, too.")] = False,
    queue: Annotated[int, typer.Option(min=1, help="Kilobytes that may wait at a link.")] = 16_000,
    loss: Annotated[float, typer.Option(min=0, max=50, help="Packets lost, percent.")] = 0.0,
    window: Annotated[
        int | None, typer.Option(help="Packets of each worker under way at most.")
    ] = None,
    plot: Annotated[str | None, typer.Option(help="PNG file to draw.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    if unknown := set(method) - set(METHODS):
        raise typer.BadParameter(
            f"no such method: {', '.join(unknown)}; there are {', '.join(METHODS)}."
        )
    if window is not None and (window < 1 or window & (window - 1)):
        raise typer.BadParameter(f"a window of {window} packets; choose a power of two.")
    cases = {name: METHODS[name] for name in method or METHODS}
    found: dict[float, list[Row]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Star(workers, card=one_card) as star,
        Ranks(
            cases,
            size=elements,
            workers=workers,
            values=values,
            alike=False,
            folder=folder,
            places=star.places,
            window=window,
        ) as ranks,
    ):
        if loss:
            star.lose(loss / 100)
        for each in sorted(rate):
            star.limit(each, 1000 * queue)
            found[each] = rows(ranks.measure([GLOO, *cases], repeats))
            title = f"all-reduce of {elements:,} values, {workers} processes, {each:,g} Mbit/s"
            show(title, "times as fast as gloo", found[each], as_json)
    if plot is not None:
        _draw(found, plot)


if __name__ == "__main__":
    try:
        typer.run(main)
    except InnetError as error:
        sys.exit(str(error))
