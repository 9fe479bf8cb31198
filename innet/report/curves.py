"""The picture of ``innet train``: all seeds of each way to sum."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import accumulate, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innet.record import ExperimentRecord, Metric
from innet.report import figures
from innet.report.training import Way, title, ways_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of a name at a point, in points: a letter's width, and a line's height.
_LETTER, _LINE = 4.0, 9.0


def draw_training(record: ExperimentRecord, path: str | Path) -> None:
    """Draws scores and losses of all seeds, over iterations and over bytes.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    figures.save(training_figure(record), path)


def training_figure(record: ExperimentRecord) -> Figure:
    """Lines are means over the seeds, bands their standard deviations.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    ways = ways_of(record)
    figure = figures.new_figure(13, 7)
    (score, traffic), (loss, final) = figure.subplots(2, 2)
    styles = _styles(ways)
    _draw_scores(score, ways, styles, by_bytes=False)
    _draw_scores(traffic, ways, styles, by_bytes=True)
    _draw_losses(loss, ways, styles)
    _draw_final(final, ways, styles)
    figure.suptitle(title(record, ways), fontsize=13)
    figure.legend(
        score.lines, [way.title for way in ways], loc="outside right center", frameon=False
    )
    return figure


def _styles(ways: Sequence[Way]) -> list[dict[str, Any]]:
    """How each way is drawn; the one without packets as a broad pale line below the others."""
    result: list[dict[str, Any]] = []
    sent = 0
    for way in ways:
        if way.measured:
            result.append(figures.style(sent))
            sent += 1
        else:
            result.append({"color": figures.BAND, "linewidth": 6, "solid_capstyle": "round"})
    return result


def _draw_scores(
    axes: Axes, ways: Sequence[Way], styles: Sequence[dict[str, Any]], by_bytes: bool
) -> None:
    metric = ways[0].metric
    for way, style in zip(ways, styles, strict=True):
        if by_bytes and not way.measured:
            continue
        lines = []
        for run in way.runs:
            sent = accumulate(step.bytes_sent for step in run.steps)
            lines.append(
                [
                    (total if by_bytes else step.iteration, metric.factor * step.score)
                    for step, total in zip(run.steps, sent, strict=True)
                    if step.score is not None
                ]
            )
        places = [statistics.fmean(x for x, _ in column) for column in zip(*lines, strict=True)]
        _band(axes, places, [[y for _, y in line] for line in lines], style, marker="o")
    axes.set_ylabel(_axis(metric))
    axes.grid(alpha=0.3)
    axes.set_xlabel("bytes sent by each worker" if by_bytes else "iteration")
    if not by_bytes:
        axes.locator_params(axis="x", integer=True)
    elif any(way.measured for way in ways):
        figures.log_scale(axes, "x", figures.bytes_tick)
    figures.plain(axes)


def _draw_losses(axes: Axes, ways: Sequence[Way], styles: Sequence[dict[str, Any]]) -> None:
    for way, style in zip(ways, styles, strict=True):
        lines = [figures.smooth([step.loss for step in run.steps]) for run in way.runs]
        _band(axes, range(1, len(lines[0]) + 1), lines, style)
    figures.log_scale(axes)
    axes.set_ylabel(f"training loss, mean of {figures.SMOOTH} iterations")
    axes.set_xlabel("iteration")
    axes.grid(alpha=0.3)
    figures.plain(axes)


def _draw_final(axes: Axes, ways: Sequence[Way], styles: Sequence[dict[str, Any]]) -> None:
    """The last scores over the compression; bars reach a standard deviation either way."""
    metric = ways[0].metric
    names: list[tuple[str, tuple[float, float]]] = []
    for way, style in zip(ways, styles, strict=True):
        scores = [metric.factor * each for each in way.scores()]
        if not scores:
            continue
        mean = statistics.fmean(scores)
        deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
        if not way.measured:
            axes.axhspan(mean - deviation, mean + deviation, color=figures.BAND, alpha=0.5, lw=0)
            axes.axhline(mean, color=figures.BAND)
            continue
        axes.errorbar(
            way.compression, mean, deviation, fmt="o", color=style["color"], capsize=3, ms=4
        )
        names.append((way.title, (way.compression, mean)))
    figures.log_scale(axes, "x", "{x:g}\N{MULTIPLICATION SIGN}")
    _name_points(axes, names)
    axes.set_xlabel("compression against float32 in packets (grey: plain float32)")
    axes.set_ylabel(f"final {_axis(metric)}")
    axes.grid(alpha=0.3)
    figures.plain(axes)


def _name_points(axes: Axes, names: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """Each point's name, where there is more room; long ones do not make the panels narrower.

    Names keep clear of one another: whichever would lie on another one goes below its point, or
    further away. Where the panels will be is not known yet, but it is not far from where they are.
    """
    low, high = axes.get_xlim()
    points = 72 / axes.figure.dpi
    taken: list[tuple[float, float, float]] = []  # left and right end, and height, in points
    for name, point in names:
        x, y = points * axes.transData.transform(point)
        right = point[0] ** 2 > low * high
        left = x - 5 - _LETTER * len(name) if right else x + 5
        end = left + _LETTER * len(name)
        up = next(
            up
            for up in _offsets()
            if all(end < a or b < left or abs(y + up - c) > _LINE for a, b, c in taken)
        )
        taken.append((left, end, y + up))
        axes.annotate(
            name,
            point,
            (-5 if right else 5, up),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=7,
            in_layout=False,
        )


def _offsets() -> Iterator[float]:
    """How far above its point a name may stand, in points: the nearest places first."""
    for line in count():
        yield 3 + line * _LINE
        yield -8 - line * _LINE


def _band(
    axes: Axes,
    places: Sequence[float],
    lines: Sequence[Sequence[float]],
    style: dict[str, Any],
    marker: str = "",
) -> None:
    """The mean of the lines at ``places``, and their standard deviation about it."""
    columns = list(zip(*lines, strict=True))
    means = [statistics.fmean(column) for column in columns]
    broad = "linewidth" in style
    if broad:  # a line of one point shows nothing but its marker
        axes.plot(places, means, **style, marker="o" if len(means) == 1 else "", markersize=7)
    else:
        axes.plot(places, means, **style, marker=marker, markersize=3)
    if len(lines) > 1 and not broad:
        around = [statistics.stdev(column) for column in columns]
        lower = [mean - each for mean, each in zip(means, around, strict=True)]
        upper = [mean + each for mean, each in zip(means, around, strict=True)]
        axes.fill_between(places, lower, upper, color=style["color"], alpha=0.15, lw=0)


def _axis(metric: Metric) -> str:
    return f"{metric.name}, %" if metric.unit == "share" else metric.name
