"""What ``innet switch stf`` shows of its outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from innet.tools.stf import Outcome, WrongPacket, as_rows, shown

_MOST_FAILURES = 20


def failure_lines(outcome: Outcome) -> Iterator[str]:
    """Each failure with its file and line, and how the packet differs."""
    for failure in outcome.failures[:_MOST_FAILURES]:
        place = outcome.test if failure.line is None else f"{outcome.test}:{failure.line}"
        yield f"{place}: {failure}"
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


def summary(outcomes: Sequence[Outcome]) -> Table:
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


def as_document(outcome: Outcome) -> dict[str, Any]:
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
