"""Tables of records and reports, for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from innet.record import ExperimentRecord, Report, Run
from innet.report import numbers

_NOT_SENT = "-"


def demo_table(record: ExperimentRecord) -> Table:
    """The runs of a demonstration side by side, one column for each."""
    workers = numbers.several(record.settings.get("workers"), "worker")
    table = Table(
        title=f"Training on handwritten digits, {workers}",
        caption=_explanation(record),
        box=SIMPLE_HEAD,
        title_style="bold",
        caption_justify="left",
    )
    table.add_column("")
    for run in record.runs:
        table.add_column(run.title, justify="right")
    for label, cell in _ROWS:
        table.add_row(label, *(cell(run) for run in record.runs))
    return table


def report_table(report: Report) -> Table:
    """One all-reduce, a line for each of its numbers."""
    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    for label, text in _report_rows(report):
        table.add_row(label, text)
    return table


def exactness(report: Report) -> str:
    """Whether the integer sum was right, in words."""
    if report.exact is None:
        return "not compared"
    return "equals the oracle's" if report.exact else "DIFFERS from the oracle's"


def _report_rows(report: Report) -> list[tuple[str, str]]:
    seconds = report.seconds
    return [
        ("Decoded integer sum", exactness(report)),
        ("Largest error, against float64", _error(report.max_abs_error)),
        ("  of that, by quantisation", _error(report.max_abs_error_sent)),
        *_infinite(report),
        ("Workers", numbers.count(report.workers)),
        ("Elements", numbers.count(report.elements)),
        ("Codec", report.codec),
        (
            "Program, engine, fabric",
            f"{report.program}, {report.values_per_packet} values per packet; "
            f"{report.engine}; {report.fabric}",
        ),
        ("Rounds", numbers.count(report.rounds)),
        ("Packets sent, all workers", numbers.count(report.packets_sent)),
        ("Packets received, all workers", numbers.count(report.packets_received)),
        ("Packets sent again", numbers.count(report.retransmissions)),
        ("Bytes sent, each worker", numbers.size(report.bytes_sent)),
        ("  as dense float32", numbers.size(report.bytes_dense)),
        ("Compression", numbers.times(report.compression)),
        ("Encode", numbers.duration(seconds.encode)),
        ("Network", numbers.duration(seconds.network)),
        ("Packets through the switch", _rate(report.switch_packets, _switch_time(report))),
        ("Decode", numbers.duration(seconds.decode)),
        ("Total", numbers.duration(seconds.total)),
    ]


def _infinite(report: Report) -> list[tuple[str, str]]:
    """A row for what hardly ever happens."""
    return [("Sums beyond float32", numbers.count(report.infinite))] if report.infinite else []


def _switch_time(report: Report) -> float:
    return report.seconds.network if report.seconds.switch is None else report.seconds.switch


def _explanation(record: ExperimentRecord) -> str:
    per_packet = record.settings.get("values_per_packet", "?")
    machine = record.machine
    return (
        "Bytes are those each worker sent, headers included; compression is against float32 in "
        f"packets of the same {per_packet} values. Times are those of this machine "
        f"({machine.cpu}, {machine.cores} cores), all workers together."
    )


def _networked(cell: Callable[[Run], str]) -> Callable[[Run], str]:
    """For rows that mean nothing to a run without packets."""
    return lambda run: cell(run) if run.summed_by_network else _NOT_SENT


def _accuracy(run: Run) -> str:
    score = run.final_score
    return "not evaluated" if score is None else numbers.score(score, run.metric)


def _compression(run: Run) -> str:
    return numbers.times(run.compression)


def _exact(run: Run) -> str:
    return f"{numbers.count(run.exact_steps)} of {numbers.count(len(run.steps))}"


def _per_step(field: str) -> Callable[[Run], str]:
    return lambda run: numbers.duration(run.total_seconds(field) / len(run.steps))


def _switch_rate(run: Run) -> str:
    # Where the switch runs apart, all that is known is how long the exchange took.
    seconds = run.total_seconds("switch") or run.total_seconds("network")
    return _rate(run.total("switch_packets"), seconds)


def _rate(packets: int, seconds: float) -> str:
    return numbers.rate(packets / seconds) if seconds else _NOT_SENT


def _largest_error(run: Run) -> str:
    known = [step.max_abs_error_sent for step in run.steps if step.max_abs_error_sent is not None]
    return _error(max(known, default=None))


def _error(error: float | None) -> str:
    if error is None:
        return "not compared"
    return f"{error:.1e}" if error else "0"


_ROWS: Sequence[tuple[str, Callable[[Run], str]]] = (
    ("Test accuracy", _accuracy),
    ("Exact integer sums", _networked(_exact)),
    ("Largest quantisation error", _networked(_largest_error)),
    ("Bytes sent, each worker", _networked(lambda run: numbers.size(run.total("bytes_sent")))),
    ("  as dense float32", _networked(lambda run: numbers.size(run.total("bytes_dense")))),
    ("Compression", _networked(_compression)),
    ("Packets sent, all workers", _networked(lambda run: numbers.count(run.total("packets_sent")))),
    ("Packets through the switch", _networked(_switch_rate)),
    ("Encode, per iteration", _networked(_per_step("encode"))),
    ("Network, per iteration", _networked(_per_step("network"))),
    ("Decode, per iteration", _networked(_per_step("decode"))),
    ("Whole run", lambda run: numbers.duration(run.wall_seconds)),
)
