"""The table of ``innet train``: a row for each way to sum, mean and spread over the seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from innet.record import ExperimentRecord, Run
from innet.report import numbers

_NOT_SENT = "-"


def training_table(record: ExperimentRecord) -> Table:
    """Accuracy, loss and traffic of each way in the record."""
    groups: dict[str, list[Run]] = {}
    for run in record.runs:
        groups.setdefault(str(run.settings.get("way", run.title)), []).append(run)
    last = int(record.settings.get("iterations_per_epoch", 1))
    seeds = max(map(len, groups.values()))
    table = Table(
        title=(
            f"Training on handwritten digits, {record.settings.get('workers', '?')} workers, "
            f"epochs: {record.settings.get('epochs', '?')}, seeds: {seeds}"
        ),
        caption=(
            "Loss: mean of the last epoch's batches. ±: standard deviation over the seeds. Bytes: "
            "by each worker in one run, headers included; compression is against float32 in "
            "packets of as many values. Exact: integer sums that equal the oracle's."
        ),
        box=SIMPLE_HEAD,
        title_style="bold",
        caption_justify="left",
    )
    table.add_column("")
    for title in ("Accuracy", "Loss", "Bytes", "Compression", "Exact"):
        table.add_column(title, justify="right")
    for title, runs in groups.items():
        table.add_row(title, *_cells(runs, last))
    return table


def _cells(runs: Sequence[Run], last: int) -> tuple[str, ...]:
    accuracies = [run.final_accuracy for run in runs if run.final_accuracy is not None]
    losses = [statistics.fmean(step.loss for step in run.steps[-last:]) for run in runs]
    learned = (
        _spread([100 * each for each in accuracies], lambda number: f"{number:.1f}") + " %"
        if accuracies
        else "not evaluated",
        _spread(losses, lambda number: f"{number:.4f}"),
    )
    if not any(run.summed_by_network for run in runs):
        return (*learned, _NOT_SENT, _NOT_SENT, _NOT_SENT)
    sent = sum(run.total("bytes_sent") for run in runs)
    dense = sum(run.total("bytes_dense") for run in runs)
    exact = sum(run.exact_steps for run in runs)
    steps = sum(len(run.steps) for run in runs)
    return (
        *learned,
        numbers.size(sent / len(runs)),
        numbers.times(dense / sent),
        f"{numbers.count(exact)} of {numbers.count(steps)}",
    )


def _spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The mean, and the sample standard deviation where there are several."""
    mean = text(statistics.fmean(values))
    return f"{mean} ± {text(statistics.stdev(values))}" if len(values) > 1 else mean
