"""What ``innet switch replay``, ``bench`` and ``stf`` show; and what ``replay`` is asked.

Imported within the commands, as it brings the switch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from innet.core.errors import InputError
from innet.records import units
from innet.switch import QueueState, Switch
from innet.tools.bench import BenchResult, EngineRate
from innet.tools.replay import Input, Summary
from innet.tools.stf import StfOutcome, WrongPacket, as_rows, shown


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


class ReplayProgress:
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

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, packets: int, read: int) -> None:
        self._bars.update(self._task, completed=read, packets=packets)


def replay_summary(result: Summary) -> Table:
    """A line for each port; unanswered are packets that came in and led to none that left."""
    table = Table(box=None, show_footer=len(result.ports) > 1)
    titles = {
        "packets_in": "packets in",
        "bytes_in": "bytes in",
        "silent": "unanswered",
        "packets_out": "packets out",
        "bytes_out": "bytes out",
    }
    columns = [name for name in titles if not (result.timed and name == "silent")]
    table.add_column("port", footer="all", justify="right")
    for name in columns:
        table.add_column(titles[name], footer=units.count(result.total(name)), justify="right")
    table.add_column("written")
    for port, traffic in sorted(result.ports.items()):
        cells = [units.count(int(getattr(traffic, name))) for name in columns]
        table.add_row(str(port), *cells, result.files[port].name if port in result.files else "")
    return table


def queue_summary(queues: Sequence[QueueState]) -> Table:
    """A line for each queue; after a replay nothing waits any more."""
    table = Table(box=None)
    for title in ("port", "priority", "capacity", "rate", "dropped"):
        table.add_column(title, justify="right")
    for queue in queues:
        rate = units.rate(queue.rate) if queue.rate else "unlimited"
        numbers = (str(queue.port), str(queue.priority), units.count(queue.capacity), rate)
        table.add_row(*numbers, units.count(queue.dropped))
    return table


def replay_remarks(result: Summary, switch: Switch, folder: Path) -> Iterator[str]:
    """What concerns all ports, in lines."""
    packets = result.total("packets_in")
    rate = units.rate(packets / result.switch_seconds) if result.switch_seconds else "-"
    total = units.rate(packets / result.seconds) if result.seconds else "-"
    yield (
        f"{rate} through the switch, {total} with reading and writing; the captures took "
        f"{units.duration(result.capture_seconds)}"
    )
    if result.timed:
        drops = units.count(sum(queue.dropped for queue in result.queues))
        waiting, drain = units.count(result.waiting), units.duration(result.drain_seconds)
        yield (
            f"{drops} packets found their queue full; {waiting} waited when the last one came, and "
            f"the last left {drain} later"
        )
    if result.cut:
        yield (
            f"{units.count(result.cut)} packets had been longer before they were captured: the "
            "switch saw what the captures hold"
        )
    statistics = switch.statistics
    if statistics.parser_errors:
        yield f"{units.count(statistics.parser_errors)} packets with a parser error"
    yield f"written to {folder}"


def replay_document(result: Summary, switch: Switch) -> dict[str, Any]:
    """The same for programs."""
    return {
        "program": switch.program.name,
        "engine": switch.engine_name,
        "ports": {
            str(port): {
                "packets_in": traffic.packets_in,
                "bytes_in": traffic.bytes_in,
                "silent": None if result.timed else traffic.silent,
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
        **(_queues(result) if result.timed else {}),
    }


def _queues(result: Summary) -> dict[str, Any]:
    return {
        "queues": [dataclasses.asdict(queue) for queue in result.queues],
        "waiting": result.waiting,
        "drain_seconds": result.drain_seconds,
    }


# ----------------------------------------------------------------------------
# What ``innet switch bench`` shows.


def wait_for_rates(console: Console, steps: Iterator[EngineRate | BenchResult]) -> BenchResult:
    """Wait for the measurements; on a terminal, say what came so far."""
    with console.status("measuring"):
        for step in steps:
            if isinstance(step, BenchResult):
                return step
            if console.is_terminal:
                console.print(f"{step.name}: {_rate(step)}", highlight=False, markup=False)
    raise AssertionError("the measurements end with a Measurement")


def _rate(rate: EngineRate) -> str:
    return "-" if rate.per_second is None else units.rate(rate.per_second)


def bench_table(result: BenchResult) -> Table:
    """A line for each way to run the program; ratios are of the fastest."""
    fastest = max((rate.per_second or 0.0 for rate in result.rates), default=0.0)
    shown = Table(box=None)
    for title in ("", "packets/s", "ns/packet", "slower by", "packets timed"):
        shown.add_column(title, justify="right" if title else "left")
    for rate in result.rates:
        if not rate.per_second:
            shown.add_row(rate.name, "-", "-", "-", "-")
            continue
        shown.add_row(
            rate.name,
            _rate(rate).removesuffix("/s"),
            f"{1e9 / rate.per_second:,.0f}",
            units.times(fastest / rate.per_second),
            units.count(rate.packets),
        )
    return shown


def bench_remarks(result: BenchResult) -> Iterator[str]:
    """What does not fit the table."""
    for rate in result.rates:
        if rate.note:
            yield f"{rate.name}: {rate.note}"
    yield f"{result.answered:.3g} packets leave for each that comes"
    if result.start is not None:
        start = result.start
        yield (
            f"a new process is ready after {units.duration(start.warm)}, the first one, which "
            f"compiles, after {units.duration(start.cold)}; it grows by "
            f"{units.size(start.memory)}"
        )
    state_size = result.state_size
    yield (
        f"state: registers {units.size(state_size.registers)}, counters "
        f"{units.size(state_size.counters)}, meters {units.size(state_size.meters)}, "
        f"{units.count(state_size.entries)} table entries"
    )


def bench_document(program: str, packets: int, batch: int, result: BenchResult) -> dict[str, Any]:
    """The same for programs."""
    return {
        "program": program,
        "packets": packets,
        "batch": batch,
        "rates": [
            {**dataclasses.asdict(rate), "packets_per_second": rate.per_second}
            for rate in result.rates
        ],
        "start": None if result.start is None else dataclasses.asdict(result.start),
        "state": dataclasses.asdict(result.state_size),
        "answered": result.answered,
    }


# ----------------------------------------------------------------------------
# What ``innet switch stf`` shows of its outcomes.

_MOST_FAILURES = 20


def stf_failures(outcome: StfOutcome) -> Iterator[str]:
    """Each failure with its file and line, and how the packet differs."""
    for failure in outcome.failures[:_MOST_FAILURES]:
        location = outcome.test if failure.line is None else f"{outcome.test}:{failure.line}"
        yield f"{location}: {failure}"
        if isinstance(failure, WrongPacket):
            yield from (f"    {line}" for line in _difference(failure))
    if len(outcome.failures) > _MOST_FAILURES:
        yield f"{outcome.test}: and {len(outcome.failures) - _MOST_FAILURES} more failures"


def _difference(failure: WrongPacket) -> list[str]:
    expected, got = failure.expected, failure.got
    if got is None:
        pattern = None if expected is None else expected.pattern
        return [] if not pattern else ["expected:", *as_rows(pattern)]
    if expected is None or expected.pattern is None:
        return ["got:", *(as_rows(got.hex().upper()) or ["a packet of 0 bytes"])]
    return shown(expected.pattern, got, exact=expected.exact)


def stf_summary(outcomes: Sequence[StfOutcome]) -> Table:
    """A line for each test, and one for all."""
    passed = sum(outcome.passed for outcome in outcomes)
    table = Table(box=None, show_footer=len(outcomes) > 1)
    table.add_column("test", footer=f"{passed} of {len(outcomes)} passed", overflow="fold")
    table.add_column("packets in", justify="right")
    table.add_column("packets compared", justify="right")
    table.add_column("result")
    for outcome in outcomes:
        count = len(outcome.failures)
        verdict = "[green]passed[/]" if outcome.passed else f"[bold red]failed[/] ({count})"
        table.add_row(Path(outcome.test).name, str(outcome.packets), str(outcome.compared), verdict)
    return table


def stf_document(outcome: StfOutcome) -> dict[str, Any]:
    """The same for programs."""
    return {
        "test": outcome.test,
        "passed": outcome.passed,
        "packets": outcome.packets,
        "compared": outcome.compared,
        "printed": [{"line": line, "text": text} for line, text in outcome.printed],
        "failures": [
            {
                "line": failure.line,
                "what": str(failure),
                **(_packet(failure) if isinstance(failure, WrongPacket) else {}),
            }
            for failure in outcome.failures
        ],
    }


def _packet(failure: WrongPacket) -> dict[str, Any]:
    expected = failure.expected
    return {
        "port": failure.port,
        "packet": failure.position,
        "expected": None if expected is None else expected.pattern,
        "exact": None if expected is None else expected.exact,
        "got": None if failure.got is None else failure.got.hex().upper(),
    }
