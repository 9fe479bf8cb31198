"""The table of ``innet train``: all seeds of each way to sum."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from innet.record import ExperimentRecord, Metric, Run
from innet.report import numbers

_NOT_SENT = "-"


@dataclass(frozen=True, slots=True)
class Way:
    """All runs of one way to sum: one for each seed, of one metric and of equal length."""

    title: str
    runs: tuple[Run, ...]

    @property
    def metric(self) -> Metric:
        return self.runs[0].metric

    @property
    def measured(self) -> bool:
        """Whether its bytes were sent."""
        return any(run.summed_by_network for run in self.runs)

    @property
    def compression(self) -> float:
        """Bytes of float32 in packets over bytes sent, over all seeds."""
        sent = sum(run.total("bytes_sent") for run in self.runs)
        return sum(run.total("bytes_dense") for run in self.runs) / sent if sent else 1.0

    def scores(self) -> list[float]:
        """Each seed's last score."""
        return [run.final_score for run in self.runs if run.final_score is not None]

    def losses(self, last: int) -> list[float]:
        """Each seed's mean loss of the ``last`` iterations."""
        return [statistics.fmean(step.loss for step in run.steps[-last:]) for run in self.runs]


def ways_of(record: ExperimentRecord) -> list[Way]:
    """The record's runs by their way to sum, in order of appearance."""
    groups: dict[str, list[Run]] = {}
    for run in record.runs:
        groups.setdefault(str(run.settings.get("way", run.title)), []).append(run)
    return [Way(title, tuple(runs)) for title, runs in groups.items()]


def training_table(record: ExperimentRecord) -> Table:
    """Score, loss and traffic of each way in the record."""
    ways = ways_of(record)
    last = int(record.settings.get("iterations_per_epoch", 1))
    part = "validation set" if record.settings.get("evaluate") == "validation" else "test set"
    table = Table(
        title=title(record, ways),
        caption=(
            f"Scores on the {part}. Loss: mean of the last epoch's batches. ±: standard deviation "
            "over the seeds. Bytes: by each worker in one run, headers included; compression is "
            "against float32 in packets of as many values. Exact: integer sums that equal the "
            "oracle's."
        ),
        box=SIMPLE_HEAD,
        title_style="bold",
        caption_justify="left",
    )
    table.add_column("")
    for name in (ways[0].metric.name.capitalize(), "Loss", "Bytes", "Compression", "Exact"):
        table.add_column(name, justify="right")
    for way in ways:
        table.add_row(way.title, *cells(way, last))
    return table


def cells(way: Way, last: int) -> tuple[str, ...]:
    """Score, loss, bytes, compression and exact sums of one way, for people."""
    learned = (
        spread_of_scores(way.scores(), way.metric),
        spread(way.losses(last), _loss),
    )
    if not way.measured:
        return (*learned, _NOT_SENT, _NOT_SENT, _NOT_SENT)
    sent = sum(run.total("bytes_sent") for run in way.runs)
    exact = sum(run.exact_steps for run in way.runs)
    steps = sum(len(run.steps) for run in way.runs)
    return (
        *learned,
        numbers.size(sent / len(way.runs)),
        numbers.times(way.compression),
        f"{numbers.count(exact)} of {numbers.count(steps)}",
    )


def _loss(number: float) -> str:
    """Four digits after the point; that of a training that ran away would fill the table."""
    return f"{number:.4f}" if number < 1e4 else f"{number:.1e}"


def spread_of_scores(scores: Sequence[float], metric: Metric) -> str:
    """The mean of scores and their spread: 97.0 ± 0.3 %, 4.12 ± 0.03."""
    if not scores:
        return "not evaluated"
    read = [metric.factor * each for each in scores]
    text = spread(read, numbers.score_like(statistics.fmean(read), metric))
    return f"{text} %" if metric.unit == "share" else text


def spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The mean, and the sample standard deviation where there are several."""
    mean = text(statistics.fmean(values))
    return f"{mean} ± {text(statistics.stdev(values))}" if len(values) > 1 else mean


def title(record: ExperimentRecord, ways: Sequence[Way]) -> str:
    """What learns what, and how: of a training's record."""
    settings = record.settings
    seeds = max(len(way.runs) for way in ways)
    return (
        f"{settings.get('title', 'a CNN learns handwritten digits')}: "
        f"{numbers.several(settings.get('workers'), 'worker')}, epochs: {settings.get('epochs')}, "
        f"seeds: {seeds}"
    )
