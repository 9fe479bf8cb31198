"""What ``innet switch replay`` is asked, and what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from innet.core.errors import InputError
from innet.experiments import tables
from innet.switch import Switch
from innet.tools.replay import Input, Summary


def inputs_of(captures: Sequence[Path], ports: Sequence[str]) -> list[Input]:
    """The captures, with what ``--port`` says of each.

    Raises:
        InputError: an option of another form, or no capture at all.
    """
    everywhere: int | None = None
    stated: dict[Path, int] = {}
    for text in ports:
        number, equals, file = text.partition("=")
        if not number.isdecimal() or (equals and not file):
            raise InputError(f"--port {text}: write --port 3, or --port 3=FILE.")
        if equals:
            stated[Path(file)] = int(number)
        else:
            everywhere = int(number)
    paths = list(dict.fromkeys([*captures, *stated]))
    if not paths:
        raise InputError("name a capture to replay, such as p0_in.pcap or --port 0=FILE.")
    return [Input(path, stated.get(path, everywhere)) for path in paths]


class Progress:
    """A bar on a terminal, nothing elsewhere; pass it as the ``progress`` of a replay."""

    def __init__(self, console: Console, inputs: Sequence[Input]) -> None:
        sizes = [each.path.stat().st_size for each in inputs if each.path.is_file()]
        self._bars = Bars(
            TextColumn("{task.fields[packets]:,} packets"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("", total=sum(sizes) or None, packets=0)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def __call__(self, packets: int, read: int) -> None:
        self._bars.update(self._task, completed=read, packets=packets)


def summary(result: Summary) -> Table:
    """A line for each port; unanswered are packets that came in and led to none that left."""
    table = Table(box=None, show_footer=len(result.ports) > 1)
    columns = ("packets_in", "bytes_in", "silent", "packets_out", "bytes_out")
    totals = [tables.count(result.total(name)) for name in columns]
    titles = ("packets in", "bytes in", "unanswered", "packets out", "bytes out")
    table.add_column("port", footer="all", justify="right")
    for title, total in zip(titles, totals, strict=True):
        table.add_column(title, footer=total, justify="right")
    table.add_column("written")
    for port, traffic in sorted(result.ports.items()):
        cells = [tables.count(int(getattr(traffic, name))) for name in columns]
        table.add_row(str(port), *cells, result.files[port].name if port in result.files else "")
    return table


def remarks(result: Summary, switch: Switch, folder: Path) -> Iterator[str]:
    """What concerns all ports, in lines."""
    packets = result.total("packets_in")
    rate = tables.rate(packets / result.switch_seconds) if result.switch_seconds else "-"
    whole = tables.rate(packets / result.seconds) if result.seconds else "-"
    yield (
        f"{rate} through the switch, {whole} with reading and writing; the captures took "
        f"{tables.duration(result.capture_seconds)}"
    )
    if result.cut:
        yield (
            f"{tables.count(result.cut)} packets had been longer before they were captured: the "
            "switch saw what the captures hold"
        )
    statistics = switch.statistics
    if statistics.parser_errors:
        yield f"{tables.count(statistics.parser_errors)} packets with a parser error"
    yield f"written to {folder}"


def as_document(result: Summary, switch: Switch) -> dict[str, Any]:
    """The same for programs."""
    return {
        "program": switch.program.name,
        "engine": switch.engine_name,
        "ports": {
            str(port): {
                "packets_in": traffic.packets_in,
                "bytes_in": traffic.bytes_in,
                "silent": traffic.silent,
                "packets_out": traffic.packets_out,
                "bytes_out": traffic.bytes_out,
                "file": str(result.files[port]) if port in result.files else None,
            }
            for port, traffic in sorted(result.ports.items())
        },
        "cut": result.cut,
        "switch_seconds": result.switch_seconds,
        "seconds": result.seconds,
        "capture_seconds": result.capture_seconds,
        "statistics": switch.statistics.as_dict(),
    }
