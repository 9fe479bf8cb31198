"""The demonstration's picture: what was learned, and what it cost, from the record alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innet.record import ExperimentRecord, Run
from innet.report import figures, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STEPS_OF_TIME = (("encode", "#56B4E9"), ("network", "#999999"), ("decode", "#E69F00"))


@dataclass(frozen=True, slots=True)
class _Line:
    """How a run is drawn, everywhere in the picture."""

    run: Run
    style: dict[str, Any]  # keyword arguments of matplotlib's plot
    bytes_sent: list[int]  # by one worker, up to and with each step

    @property
    def measured(self) -> bool:
        """Whether its bytes were sent; otherwise they are what sending would have taken."""
        return self.run.summed_by_network


def draw_demo(record: ExperimentRecord, path: str | Path) -> None:
    """Draws accuracy and loss over iterations and over bytes, and bytes and times as bars.

    Args:
        record: of a demonstration.
        path: the PNG file to write.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    figures.save(demo_figure(record), path)


def demo_figure(record: ExperimentRecord) -> Figure:
    """The picture as a matplotlib figure, for those who want it in another form.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    lines = _lines(record)
    figure = figures.new_figure(13, 7)
    (accuracy, accuracy_bytes, volume), (loss, loss_bytes, speed) = figure.subplots(
        2, 3, width_ratios=(5, 5, 4)
    )
    for axes, by_bytes in ((accuracy, False), (accuracy_bytes, True)):
        _draw_accuracy(axes, lines, by_bytes)
    for axes, by_bytes in ((loss, False), (loss_bytes, True)):
        _draw_loss(axes, lines, by_bytes)
    _draw_volume(volume, lines)
    _draw_times(speed, [line for line in lines if line.measured])
    figure.suptitle(_title(record), fontsize=13)
    return figure


def _title(record: ExperimentRecord) -> str:
    networked = [run for run in record.runs if run.summed_by_network]
    exact = sum(run.exact_steps for run in networked)
    steps = sum(len(run.steps) for run in networked)
    workers = record.settings.get("workers")
    return (
        f"{numbers.several(workers, 'worker')} {'learns' if workers == 1 else 'learn'} handwritten "
        f"digits; the switch sums {'its' if workers == 1 else 'their'} gradients "
        f"({exact:,} of {steps:,} integer sums exact)"
    )


def _lines(record: ExperimentRecord) -> list[_Line]:
    """The runs with their style. A run without packets is shown as if it sent dense float32."""
    dense = next((run for run in record.runs if run.summed_by_network), None)
    result, drawn = [], 0
    for run in record.runs:
        sent = [step.bytes_sent for step in run.steps]
        style = figures.style(drawn)
        if run.summed_by_network:
            drawn += 1
        else:
            style = {"color": figures.BAND, "linewidth": 6, "solid_capstyle": "round"}
            if dense is not None:
                sent = [dense.steps[0].bytes_dense] * len(run.steps)
        result.append(_Line(run, style, list(accumulate(sent))))
    return result


def _draw_accuracy(axes: Axes, lines: Sequence[_Line], by_bytes: bool) -> None:
    for line in lines:
        known = [
            (sent if by_bytes else step.iteration, step.score * 100)
            for step, sent in zip(line.run.steps, line.bytes_sent, strict=True)
            if step.score is not None
        ]
        lone = len(known) == 1  # of a broad line, a single point shows nothing but its marker
        axes.plot(
            [place for place, _ in known],
            [percent for _, percent in known],
            **line.style,
            marker="o" if line.measured or lone else "",
            markersize=3 if line.measured else 7,
        )
        if by_bytes and line.measured and known:
            axes.annotate(
                line.run.title,
                known[0],
                xytext=(8, -2),
                textcoords="offset points",
                color=line.style["color"],
                va="center",
            )
    axes.margins(y=0.1)
    axes.set_ylabel("accuracy on the test set, %")
    if not by_bytes:
        axes.legend(axes.lines, [_label(line) for line in lines], frameon=False)
    _finish(axes, lines, by_bytes)


def _draw_loss(axes: Axes, lines: Sequence[_Line], by_bytes: bool) -> None:
    for line in lines:
        losses = figures.smooth([step.loss for step in line.run.steps])
        places = line.bytes_sent if by_bytes else range(1, len(losses) + 1)
        axes.plot(places, losses, **line.style)
        if by_bytes and line.measured:
            axes.annotate(
                line.run.title,
                (places[-1], losses[-1]),
                xytext=(-14, -4),
                textcoords="offset points",
                color=line.style["color"],
                ha="right",
                va="center",
            )
    axes.margins(y=0.1)
    figures.log_scale(axes)
    axes.set_ylabel(f"training loss, mean of {figures.SMOOTH} iterations")
    if not by_bytes:
        axes.legend(axes.lines, [line.run.title for line in lines], frameon=False)
    _finish(axes, lines, by_bytes)


def _finish(axes: Axes, lines: Sequence[_Line], by_bytes: bool) -> None:
    figures.plain(axes)
    axes.grid(alpha=0.3)
    if not by_bytes:
        axes.set_xlabel("iteration")
        axes.locator_params(axis="x", integer=True)
        return
    axes.set_xlabel("bytes sent by each worker")
    if any(line.bytes_sent[-1] for line in lines):
        figures.log_scale(axes, "x", figures.bytes_tick)
    if not all(line.measured for line in lines):
        axes.set_title("grey: float32, as if sent densely in packets", fontsize=9)


def _draw_volume(axes: Axes, lines: Sequence[_Line]) -> None:
    totals = [line.bytes_sent[-1] for line in lines]
    bars = axes.barh(range(len(lines)), totals, color=[line.style["color"] for line in lines])
    for bar, line in zip(bars, lines, strict=True):
        if not line.measured:  # hatched: this bar is a comparison, nothing was sent
            bar.set(fill=False, hatch="///", edgecolor=line.style["color"])
    axes.bar_label(bars, [_volume_label(line) for line in lines], padding=4)
    axes.set_xlim(0, max(totals, default=0) * 1.7 or 1)
    axes.set_title("bytes sent by each worker")
    axes.xaxis.set_major_formatter(figures.bytes_tick)
    axes.locator_params(axis="x", nbins=4)
    _name_bars(axes, lines)


def _volume_label(line: _Line) -> str:
    total = numbers.size(line.bytes_sent[-1])
    if not line.measured:
        return f"{total} if sent"
    ratio = line.run.compression
    return f"{total} ({numbers.times(ratio)} less)" if ratio > 1.05 else total


def _draw_times(axes: Axes, lines: Sequence[_Line]) -> None:
    widest = 0.0
    for row, line in enumerate(lines):
        left = 0.0
        for field, colour in _STEPS_OF_TIME:
            width = line.run.total_seconds(field) / len(line.run.steps) * 1e3
            axes.barh(row, width, left=left, color=colour, label=field if row == 0 else None)
            left += width
        axes.text(left, row, f"  {numbers.duration(left / 1e3)}", va="center")
        widest = max(widest, left)
    axes.set_xlim(0, widest * 1.3 or 1)
    axes.set_title("time of one all-reduce")
    axes.set_xlabel("milliseconds, all workers together")
    if lines:
        axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.4, -0.16))
    _name_bars(axes, lines)


def _name_bars(axes: Axes, lines: Sequence[_Line]) -> None:
    axes.set_yticks(range(len(lines)), [line.run.title for line in lines])
    axes.invert_yaxis()
    figures.plain(axes)


def _label(line: _Line) -> str:
    score = line.run.final_score
    return line.run.title + ("" if score is None else f": {numbers.percent(score)}")
