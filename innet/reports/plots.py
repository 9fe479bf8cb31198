"""Pictures of records and of topologies. matplotlib is imported when something is drawn; whatever
makes a figure raises ``MissingToolError`` where it is not installed.

First what all pictures share: styles of lines, and numbers at axes.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import operator
import os
import statistics
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, count
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from innet.core.errors import InputError, MissingToolError
from innet.core.files import atomic_write
from innet.core.numbers import is_real
from innet.records import (
    Axis,
    ClusterUse,
    Finding,
    JobsRecord,
    Measurement,
    Metric,
    ReproductionRecord,
    Run,
    SimulationRecord,
    SweepRecord,
    ThroughputRecord,
    TrainingRecord,
    units,
)
from innet.records.report import fabric_text
from innet.records.simulation import BaselineRun, Iteration, NetworkSamples
from innet.records.sweep import of_baseline
from innet.records.throughput import Point
from innet.reports import tables
from innet.reports.tables import MethodRuns, methods_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from innet.topology import Plan, SharedPlan

# Okabe and Ito's palette without its yellow: distinct with any common color blindness. Lines
# differ in their dashes too, for print in gray.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = (
    *("solid", "dashed", "dotted", "dashdot"),
    *((0, (8, 2)), (0, (4, 1, 1, 1, 1, 1))),  # long dashes; a dash and two dots
)
# A codec has the same color and dashes in every picture: its place here, in these two.
_CODECS = (
    *("dense", "topk", "lhc", "scalecom", "adacomp", "dgc", "gtopk"),
    *("qsgd", "sidco-e", "block", "sketched-sgd", "gs-sgd", "powersgd", "exact"),
    *("threshold", "sidco-gp", "sidco-p"),
)
# The run without packets is a broad pale band below the others, which are meant to hide it.
BAND: dict[str, Any] = {"color": "#BBBBBB", "linewidth": 6, "solid_capstyle": "round"}
SMOOTH = 11  # iterations over which the loss, noisy from batch to batch, is averaged
_DPI = 150
_FORMATS = ("png", "pdf", "svg")
_NARROW, _WIDE, _FEW = 0.6, 2.0, 4  # decades; intervals of a narrow axis
_LETTER, _LINE = 4.0, 9.0  # of a name in a panel, in points: a letter's width, a line's height


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches; panels keep clear of each other.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    try:
        _import_matplotlib()
        # Without pyplot: no window, no state shared with the caller's own
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional
        from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - optional
    except ImportError:
        raise MissingToolError(
            "matplotlib", "plots", "Install it by: pip install 'innet[plot]'."
        ) from None
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))


def _import_matplotlib() -> None:
    """Import it although MPLBACKEND may name a back end that is not installed: what a notebook
    starts inherits the notebook's, and may be of another environment. Files need none.
    """
    if "matplotlib" in sys.modules:
        return
    named = os.environ.pop("MPLBACKEND", None)
    try:
        matplotlib = importlib.import_module("matplotlib")
    finally:
        if named is not None:
            os.environ["MPLBACKEND"] = named
    if named:
        with contextlib.suppress(ValueError):  # as it does itself, for the caller's own plots
            matplotlib.rcParams["backend"] = named


def save(figure: Figure, path: str | Path) -> None:
    """Writes a PNG file, or what the path's suffix says.

    Raises:
        InputError: a suffix of another kind of file, or it cannot be written.
    """
    form = Path(path).suffix.lower().removeprefix(".") or "png"
    if form not in _FORMATS:
        known = ", ".join(f".{each}" for each in _FORMATS)
        raise InputError(f"{path}: no picture is written as .{form}; choose one of {known}.")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=_DPI, format=form)


def style(position: int) -> dict[str, Any]:
    """Color and dashes of the line at ``position``, keyword arguments of matplotlib's plot."""
    turn = position // len(COLORS)
    return {"color": COLORS[position % len(COLORS)], "linestyle": DASHES[turn % len(DASHES)]}


def codec_styles(codecs: Sequence[str]) -> list[dict[str, Any]]:
    """A style for each codec of one picture: that of its name, or the next one if it is taken.

    Only of more codecs than there are styles some look alike.
    """
    positions: list[int] = []
    for name in codecs:
        known = [each for each in _CODECS if name.startswith(each)] or [
            each for each in _CODECS if each in name
        ]
        position = _CODECS.index(max(known, key=len)) if known else len(_CODECS)
        looks = len(COLORS) * len(DASHES)
        while position in positions and len(set(positions)) < looks:
            position = (position + 1) % looks
        positions.append(position)
    return [style(position) for position in positions]


def hide_frame(axes: Axes) -> None:
    """No frame at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def log_scale(
    axes: Axes, which: Literal["x", "y"] = "y", said: str | Callable[[float, Any], str] = "{x:,g}"
) -> None:
    """Make an axis logarithmic, with numbers for any range.

    Args:
        axes: whose; all is drawn.
        which: of the two.
        said: how a number is written, as matplotlib's formatters take it.
    """
    from matplotlib.ticker import (  # noqa: PLC0415 - optional
        Locator,
        LogLocator,
        MaxNLocator,
        NullFormatter,
    )

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    locator: Locator = MaxNLocator(_FEW)
    if decades > _NARROW:
        locator = LogLocator(subs=(1, 2, 5) if decades < _WIDE else (1,))
    axis.set_major_locator(locator)
    axis.set_major_formatter(said)
    axis.set_minor_formatter(NullFormatter())


def bytes_tick(value: float, _: object = None) -> str:
    """Bytes at an axis: 10 MB instead of 10.0 MB."""
    digits, _, unit = units.size(value).partition(" ")
    return f"{float(digits.replace(',', '')):g} {unit}"


def duration_tick(value: float, _: object = None) -> str:
    """Seconds at an axis: 10 ms instead of 10.0 ms."""
    digits, _, unit = units.duration(value).partition(" ")
    return f"{float(digits.replace(',', '')):g} {unit}"


def smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and up to SMOOTH - 1 before it."""
    sums = [0.0, *accumulate(values)]
    starts = (max(0, end - SMOOTH) for end in range(1, len(sums)))
    return [(sums[end] - sums[start]) / (end - start) for end, start in enumerate(starts, 1)]


# ----------------------------------------------------------------------------
# Trainings: the picture of the demonstration, and that of ``innet train``.

_MANY = 6  # curves that one panel can show at most; more have a panel each
_PANELS = 4  # of those, beside each other
_ITERATIONS, _BYTES = "iteration", "bytes"  # what a panel's x may be; else a network's time
_PARTS_OF_TIME = (("encode", "#56B4E9"), ("network", "#999999"), ("decode", "#E69F00"))
# Plain sums over time, above all others: where they take as long as others, one sees both.
_RING: dict[str, Any] = {
    "color": "#000000", "linestyle": "dashed", "linewidth": 1.2, "zorder": 3,
}  # fmt: skip
_EQUAL = 1.01  # times that are named together
_TITLE, _BAR = 48, 28  # characters in a line above a panel, and beside a bar
_NEAR = 20.0  # ends of lines; further apart, their axis is logarithmic


@dataclass(frozen=True, slots=True)
class _Curve:
    """A method, and how it is drawn in all panels."""

    method: MethodRuns
    look: dict[str, Any]  # keyword arguments of matplotlib's plot
    failure: str  # as ``MethodRuns.failure``

    @property
    def measured(self) -> bool:
        return self.method.measured

    @property
    def label(self) -> str:
        return f"{self.method.title} ({self.failure})" if self.failure else self.method.title

    def scores(self) -> tuple[list[float], list[float], list[list[float]]]:
        """Where it was evaluated: iterations, bytes sent until then, and each seed's scores."""
        factor = self.method.metric.factor
        seeds = [
            [
                (step.iteration, sent, factor * step.score)
                for step, sent in zip(run.steps, accumulate(sizes), strict=True)
                if step.score is not None
            ]
            for run in self.method.runs
            for sizes in [[step.bytes_sent for step in run.steps]]
        ]
        columns = list(zip(*seeds, strict=True))
        return (
            [float(column[0][0]) for column in columns],
            [statistics.fmean(sent for _, sent, _ in column) for column in columns],
            [[score for _, _, score in seed] for seed in seeds],
        )


def demo_figure(record: TrainingRecord) -> Figure:
    """Accuracy and loss over iterations, bytes and simulated time; bytes and times as bars."""
    curves = _curves(record)
    sent = [curve for curve in curves if curve.measured]
    figure = new_figure(13, 7 + _height_over_time(record))
    over_time, rest = _divided(figure, record, 7)
    if over_time is not None:
        _draw_over_time(over_time, record, curves)
    (score, score_bytes, volume), (loss, loss_bytes, times) = rest.subplots(
        2, 3, width_ratios=(5, 5, 4)
    )
    _draw_scores(score, curves, _ITERATIONS)
    _draw_scores(score_bytes, sent, _BYTES)
    _draw_losses(loss, curves, _ITERATIONS)
    _draw_losses(loss_bytes, sent, _BYTES)
    _draw_volume(volume, sent)
    _draw_times(times, sent)
    runs = [run for curve in sent for run in curve.method.runs]
    exact, steps = (sum(run.exact_steps for run in runs), sum(len(run.steps) for run in runs))
    workers = record.settings.get("workers")
    _head(
        figure,
        f"{units.plural(workers, 'worker')} {'learns' if workers == 1 else 'learn'} handwritten "
        f"digits; the switch sums {'its' if workers == 1 else 'their'} gradients "
        f"({exact:,} of {steps:,} integer sums exact)",
        curves,
    )
    _legend(figure, curves, over_time=over_time is not None)
    return figure


def training_figure(record: TrainingRecord) -> Figure:
    """Scores and losses of all seeds, over iterations, bytes and simulated time.

    Lines are means over the seeds, bands their standard deviations. Many methods have a panel each,
    with the others in gray, instead of one panel for all.
    """
    curves = _curves(record)
    if len(curves) > _MANY:
        rows = -(-sum(curve.measured for curve in curves) // _PANELS)
        height = 1.9 * rows + 5
    else:
        height = 7.0
    figure = new_figure(13, height + _height_over_time(record))
    over_time, rest = _divided(figure, record, height)
    if over_time is not None:
        _draw_over_time(over_time, record, curves)
    if len(curves) > _MANY:
        _small_multiples(rest, curves)
    else:
        (score, traffic), (loss, final) = rest.subplots(2, 2)
        _draw_scores(score, curves, _ITERATIONS)
        _draw_scores(traffic, [curve for curve in curves if curve.measured], _BYTES)
        _draw_losses(loss, curves, _ITERATIONS)
        _draw_final(final, curves, named=False)
        _legend(figure, curves, over_time=over_time is not None)
    _head(figure, tables.title(record, [curve.method for curve in curves]), curves)
    return figure


def _small_multiples(figure: FigureBase, curves: Sequence[_Curve]) -> None:
    """A panel for each curve, and one for the final scores of all."""
    measured = [curve for curve in curves if curve.measured]
    rows = -(-len(measured) // _PANELS)
    grid = figure.add_gridspec(rows + 1, _PANELS, height_ratios=[1.0] * rows + [2.2])
    first: Axes | None = None
    for position, curve in enumerate(measured):
        axes = figure.add_subplot(
            grid[position // _PANELS, position % _PANELS], sharex=first, sharey=first
        )
        first = first or axes
        others = [
            replace(each, look={"color": "#DDDDDD", "linewidth": 0.8} if each.measured else BAND)
            for each in curves
            if each is not curve and not each.failure
        ]
        for each in (*others, curve):
            iterations, _, scores = each.scores()
            _band(axes, iterations, scores, each.look)
        final = tables.spread_of_scores(curve.method.scores(), curve.method.metric)
        axes.set_title(f"{curve.label}: {final}", fontsize=9, color=curve.look["color"], loc="left")
        axes.label_outer()
        axes.grid(alpha=0.3)
        hide_frame(axes)
        if position >= len(measured) - _PANELS:
            axes.set_xlabel("iteration")
            axes.tick_params(labelbottom=True)
        if position % _PANELS == 0:
            axes.set_ylabel(_axis(curve.method.metric))
    if first is not None:
        _clip(first, curves, lambda curve: chain.from_iterable(curve.scores()[2]))
    _draw_final(figure.add_subplot(grid[rows, :]), curves)


def _height_over_time(record: TrainingRecord) -> float:
    """Inches of the panels with simulated time; none without any."""
    return 0.8 + 3.0 * len(record.networks) if record.networks else 0.0


def _divided(
    figure: Figure, record: TrainingRecord, height: float
) -> tuple[FigureBase | None, FigureBase]:
    """The part of the figure for simulated time, if the record has any, and the rest below it."""
    if not record.networks:
        return None, figure
    parts: Any = figure.subfigures(2, 1, height_ratios=(_height_over_time(record), height))
    return parts[0], parts[1]


def _draw_over_time(figure: FigureBase, record: TrainingRecord, curves: Sequence[_Curve]) -> None:
    """Scores and losses over simulated time for each network, and bars of an iteration."""
    networks = record.networks
    shown = [
        curve for curve in curves if any(curve.method.simulated(name).seconds for name in networks)
    ]
    grid = figure.add_gridspec(len(networks), 3)
    target = tables.Target.of([curve.method for curve in curves])
    for row, network in enumerate(networks):
        _draw_scores_over_time(figure.add_subplot(grid[row, 0]), network, shown, target)
        _draw_losses(figure.add_subplot(grid[row, 1]), _timed(shown, network), network)
    _draw_iteration(figure.add_subplot(grid[:, 2]), networks, shown)
    if fabric := tables.training_fabric(record):
        figure.suptitle(fabric, fontsize=9)


def _timed(curves: Sequence[_Curve], network: str) -> list[_Curve]:
    """Those with simulated time on a network; plain sums as what they are there, a ring."""
    return [
        replace(curve, look=_RING) if curve.method.is_plain else curve
        for curve in curves
        if curve.method.simulated(network).seconds
    ]


def _draw_scores_over_time(
    axes: Axes, network: str, curves: Sequence[_Curve], target: tables.Target | None
) -> None:
    """The scores over simulated seconds on one network."""
    drawn = _timed(curves, network)
    metric = drawn[0].method.metric
    for curve in drawn:
        points = curve.method.scores_over_time(network)
        seeds = list(zip(*(scores for _, scores in points), strict=True))
        scaled = [[metric.factor * each for each in scores] for scores in seeds]
        _band(axes, [seconds for seconds, _ in points], scaled, curve.look, marker="o")
    if target is not None:
        axes.axhline(metric.factor * target.score, color="#777777", linewidth=0.8, linestyle=":")
    verdict = "" if target is None else _verdict([each.method for each in drawn], network, target)
    heading = f"{metric.name.capitalize()} over simulated time, {network}"
    lines = [heading, *textwrap.wrap(verdict, _TITLE)]
    axes.set_title("\n".join(lines), loc="left", fontsize=8.5)
    axes.set_ylabel(_axis(metric))
    _clip(axes, drawn, lambda curve: chain.from_iterable(curve.scores()[2]))
    _finish(axes, drawn, network)


def _verdict(methods: Sequence[MethodRuns], network: str, target: tables.Target) -> str:
    """Which method is first at the target, beside plain float32, in words."""
    reached = tables.fastest(methods, network, target)
    score = units.score(target.score, target.metric)
    plain = next((seconds for method, seconds in reached if method.is_plain), None)
    if not reached or plain is None:
        return ""
    best, seconds = reached[0]
    if not best.is_plain:
        faster = units.times(plain / seconds)
        return f"to {score}: {best.title} first, {faster} sooner than plain"
    if len(reached) == 1:
        return f"to {score}: plain float32 alone"
    second, later = reached[1]
    if later < _EQUAL * plain:
        return f"to {score}: plain float32 and {second.title} first"
    return f"to {score}: plain float32 first, {second.title} {later / plain - 1:.0%} later"


def _draw_iteration(axes: Axes, networks: Sequence[str], curves: Sequence[_Curve]) -> None:
    """What an iteration is spent on, for each network and method."""
    labels: list[str] = []
    widest = 0.0
    for network in networks:
        for curve in curves:
            times = curve.method.simulated(network)
            if not times.seconds:
                continue
            row, left = len(labels), 0.0
            steps = sum(len(run.steps) for run in curve.method.runs)
            for field, color in (("compute", "#DDDDDD"), *_PARTS_OF_TIME):
                width = getattr(times, field) / steps * 1e3
                axes.barh(row, width, left=left, color=color, label=None if row else field)
                left += width
            axes.text(left, row, f"  {units.duration(left / 1e3)}", va="center", fontsize=8)
            label = curve.method.title + (f", {network}" if len(networks) > 1 else "")
            labels.append(textwrap.fill(label, _BAR))
            widest = max(widest, left)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, widest * 1.25 or 1)
    axes.set_title(
        "An iteration in simulated time" + (f", {networks[0]}" if len(networks) == 1 else ""),
        loc="left",
        fontsize=8.5,
    )
    axes.set_xlabel("milliseconds")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.4, 0), borderaxespad=4.2, ncols=4, frameon=False,
        handlelength=1.2, columnspacing=1.2, fontsize=8,
    )  # fmt: skip
    hide_frame(axes)


def _curves(record: TrainingRecord) -> list[_Curve]:
    """The record's methods with their styles."""
    methods = methods_of(record)
    styles = codec_styles([each.preset for each in methods if not each.is_plain])
    # Thinner ones above: a curve is seen below an equal one
    looks = ({**look, "linewidth": max(1.0, 2.8 - 0.5 * at)} for at, look in enumerate(styles))
    chance = record.settings.get("chance")
    return [
        _Curve(each, BAND if each.is_plain else next(looks), each.failure(chance))
        for each in methods
    ]


def _head(figure: Figure, title: str, curves: Sequence[_Curve]) -> None:
    """The picture's title, and below it what it shows."""
    found = _result([curve for curve in curves if not curve.failure])
    title = title[:1].upper() + title[1:]
    figure.suptitle(f"{title}\n{found}" if found else title, fontsize=12)


def _result(curves: Sequence[_Curve]) -> str:
    """Which codec saves most bytes without a loss, in words; "" if there is nothing to compare."""
    target = tables.Target.of([curve.method for curve in curves])
    if target is None:
        return ""
    metric = target.metric
    kept = [
        curve.method
        for curve in curves
        if curve.measured
        and curve.method.compression > 1.05
        and curve.method.scores()
        and target.reached_by(statistics.fmean(curve.method.scores()))
    ]
    if not kept:
        return (
            f"no codec saves bytes and stays within {target.margin} of plain float32's "
            f"{metric.name}"
        )
    best = max(kept, key=lambda method: method.compression)
    return (
        f"{best.title}: {units.times(best.compression)} fewer bytes, {metric.name} within "
        f"{target.margin} of plain float32"
    )


def _draw_scores(axes: Axes, curves: Sequence[_Curve], over: str) -> None:
    """The scores over ``over``: see ``_places``."""
    for curve in curves:
        iterations, sent, scores = curve.scores()
        _band(axes, sent if over == _BYTES else iterations, scores, curve.look, marker="o")
    metric = curves[0].method.metric if curves else None
    name = "score" if metric is None else metric.name
    axes.set_title(f"{name.capitalize()} by {over}", loc="left", fontsize=10)
    axes.set_ylabel("" if metric is None else _axis(metric))
    _clip(axes, curves, lambda curve: chain.from_iterable(curve.scores()[2]))
    _finish(axes, curves, over)


def _places(run: Run, over: str) -> Sequence[float]:
    """Where each step of a run stands: iterations, bytes sent until then, or simulated seconds on
    the network ``over``.
    """
    if over == _ITERATIONS:
        return range(1, len(run.steps) + 1)
    if over == _BYTES:
        return list(accumulate(step.bytes_sent for step in run.steps))
    return [step.simulated_seconds[over] for step in run.steps]


def _draw_losses(axes: Axes, curves: Sequence[_Curve], over: str) -> None:
    """The losses over ``over``: see ``_places``."""
    for curve in curves:
        lines = [smooth([step.loss for step in run.steps]) for run in curve.method.runs]
        places = [_places(run, over) for run in curve.method.runs]
        _band(axes, list(map(statistics.fmean, zip(*places, strict=True))), lines, curve.look)
    if over in {_ITERATIONS, _BYTES}:
        axes.set_title(f"Loss by {over}", loc="left", fontsize=10)
    else:
        axes.set_title(f"Loss over simulated time, {over}", loc="left", fontsize=8.5)
    axes.set_ylabel(f"training loss\nmean of {SMOOTH} iterations")
    log_scale(axes)
    _clip(
        axes,
        curves,
        lambda curve: chain.from_iterable(
            smooth([step.loss for step in run.steps]) for run in curve.method.runs
        ),
    )
    _finish(axes, curves, over)


def _clip(
    axes: Axes, curves: Sequence[_Curve], values: Callable[[_Curve], Iterable[float]]
) -> None:
    """Runs that failed do not squeeze the others: they may leave the panel, which says so."""
    good = [value for curve in curves if not curve.failure for value in values(curve)]
    cut = [curve for curve in curves if curve.failure]
    if not good or not cut:
        return
    low, high = min(good), max(good)
    if axes.get_yscale() == "log":
        low, high = low / 1.2, high * 1.2
    else:
        low, high = low - 0.08 * (high - low or 1), high + 0.08 * (high - low or 1)
    beyond = [
        curve.label for curve in cut if any(not low <= each <= high for each in values(curve))
    ]
    axes.set_ylim(low, high)
    if beyond:
        axes.annotate(
            f"beyond this panel: {', '.join(beyond)}", (0.01, 0.97), xycoords="axes fraction",
            fontsize=7, va="top",
        )  # fmt: skip


def _finish(axes: Axes, curves: Sequence[_Curve], over: str) -> None:
    """The axis at the bottom, and no frame."""
    hide_frame(axes)
    axes.grid(alpha=0.3)
    if over == _ITERATIONS:
        axes.set_xlabel("iteration")
        axes.locator_params(axis="x", integer=True)
    elif over == _BYTES:
        axes.set_xlabel("bytes sent by each worker")
        if any(run.total("bytes_sent") for curve in curves for run in curve.method.runs):
            log_scale(axes, "x", bytes_tick)
    else:
        ends = [curve.method.runs[0].steps[-1].simulated_seconds[over] for curve in curves]
        if max(ends) > _NEAR * min(ends):
            axes.set_xlabel("simulated time")
            log_scale(axes, "x", duration_tick)
        else:
            axes.set_xlim(left=0)
            factor, unit = _time_unit(max(ends))
            axes.xaxis.set_major_formatter(lambda seconds, _: f"{factor * seconds:g}")
            axes.set_xlabel(f"simulated time, {unit}")


def _legend(figure: Figure, curves: Sequence[_Curve], *, over_time: bool) -> None:
    """All curves' names below the panels, where they cover none."""
    lines = importlib.import_module("matplotlib.lines")
    named = [(curve.label, curve.look) for curve in curves]
    if over_time and any(curve.method.is_plain for curve in curves):
        named.insert(1, ("over time: plain float32 by a ring", _RING))
    widest = max(len(name) for name, _ in named)
    figure.legend(
        [lines.Line2D([], [], **look) for _, look in named],
        [name for name, _ in named],
        loc="outside lower center",
        ncols=max(1, min(len(named), int(11 * figure.get_figwidth() / (9 + widest)))),
        frameon=False,
        handlelength=3,
    )


def _name_ends(axes: Axes, names: Sequence[tuple[str, str]]) -> None:
    """Each line's name, in its color, right of the panel: as high as the line ends, or near it."""
    axes.get_xlim(), axes.get_ylim()  # brings the transformations up to date
    height = axes.get_window_extent().height * 72 / axes.figure.dpi
    least = (_LINE + 1) / max(height, 1)
    ends: list[tuple[float, tuple[str, str]]] = []
    for each, line in zip(names, axes.lines, strict=False):
        points: Any = line.get_xydata()
        if len(points):
            level = axes.transAxes.inverted().transform(axes.transData.transform(points[-1]))[1]
            ends.append((min(1.0, max(0.0, float(level))), each))
    ends.sort(key=itemgetter(0))
    levels = [level for level, _ in ends]
    for position in range(1, len(levels)):  # upwards, each clear of the one below it
        levels[position] = max(levels[position], levels[position - 1] + least)
    if levels and (above := levels[-1] - 1.0) > 0:  # and back down where they left the panel
        levels[-1] -= above
        for position in reversed(range(len(levels) - 1)):
            levels[position] = min(levels[position], levels[position + 1] - least)
    for level, (_, (name, color)) in zip(levels, ends, strict=True):
        axes.annotate(
            name, (1.01, level), xycoords="axes fraction", fontsize=8, va="center", color=color
        )


def _draw_volume(axes: Axes, curves: Sequence[_Curve]) -> None:
    totals = [sum(run.total("bytes_sent") for run in curve.method.runs) for curve in curves]
    bars = axes.barh(range(len(curves)), totals, color=[each.look["color"] for each in curves])
    labels = []
    for total, curve in zip(totals, curves, strict=True):
        ratio = curve.method.compression
        less = f" ({units.times(ratio)} less)" if ratio > 1.05 else ""
        labels.append(units.size(total) + less)
    axes.bar_label(bars, labels, padding=4)
    axes.set_xlim(0, max(totals, default=0) * 1.7 or 1)
    axes.set_title("Bytes sent by each worker", loc="left", fontsize=10)
    axes.xaxis.set_major_formatter(bytes_tick)
    axes.locator_params(axis="x", nbins=4)
    _name_bars(axes, curves)


def _draw_times(axes: Axes, curves: Sequence[_Curve]) -> None:
    widest = 0.0
    for row, curve in enumerate(curves):
        run, left = curve.method.runs[0], 0.0
        for field, color in _PARTS_OF_TIME:
            width = run.total_seconds(field) / len(run.steps) * 1e3
            axes.barh(row, width, left=left, color=color, label=field if row == 0 else None)
            left += width
        axes.text(left, row, f"  {units.duration(left / 1e3)}", va="center")
        widest = max(widest, left)
    axes.set_xlim(0, widest * 1.3 or 1)
    axes.set_title("One all-reduce, on this machine", loc="left", fontsize=10)
    axes.set_xlabel("milliseconds, codec of one worker")
    if curves:
        axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.4, -0.16))
    _name_bars(axes, curves)


def _name_bars(axes: Axes, curves: Sequence[_Curve]) -> None:
    axes.set_yticks(range(len(curves)), [curve.label for curve in curves])
    axes.invert_yaxis()
    hide_frame(axes)


def _draw_final(axes: Axes, curves: Sequence[_Curve], *, named: bool = True) -> None:
    """The last scores over the compression; bars reach a standard deviation either way."""
    metric = curves[0].method.metric
    names: list[tuple[str, tuple[float, float], str]] = []
    for curve in curves:
        method, color = curve.method, curve.look["color"]
        scores = [metric.factor * each for each in method.scores()]
        if not scores or not (method.measured or method.is_plain):
            continue
        mean = statistics.fmean(scores)
        deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
        if not method.measured:
            axes.axhspan(mean - deviation, mean + deviation, color=color, alpha=0.5, lw=0)
            axes.axhline(mean, color=color)
            continue
        axes.errorbar(method.compression, mean, deviation, fmt="o", color=color, capsize=3, ms=4)
        names.append((method.title, (method.compression, mean), color))
    _clip(axes, curves, lambda curve: (metric.factor * each for each in curve.method.scores()))
    log_scale(axes, "x", "{x:g}\N{MULTIPLICATION SIGN}")
    if named:
        _name_points(axes, names)
    axes.set_title(f"Final {metric.name}: further right, fewer bytes", loc="left", fontsize=10)
    axes.set_xlabel("compression against float32 in packets (gray: plain float32)")
    axes.set_ylabel(f"final {_axis(metric)}")
    axes.grid(alpha=0.3)
    hide_frame(axes)


def _name_points(axes: Axes, names: Sequence[tuple[str, tuple[float, float], str]]) -> None:
    """Write each point's name in its color, at the side with more room.

    Names do not overlap: a name that would cover another one moves below its point, or further
    away. The panels may still move a little later.
    """
    axes.get_ylim()  # with the next line, brings the transformations up to date
    low, high = axes.get_xlim()
    points = 72 / axes.figure.dpi
    taken: list[tuple[float, float, float]] = []  # left and right end, and height, in points
    for name, point, color in names:
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
            color=color,
            in_layout=False,
        )


def _offsets() -> Iterator[float]:
    """How far above its point a name may stand, in points: the nearest places first."""
    for line in count():
        yield 3 + line * _LINE
        yield -8 - line * _LINE


def _band(
    axes: Axes,
    positions: Sequence[float],
    lines: Sequence[Sequence[float]],
    style: dict[str, Any],
    marker: str = "",
) -> None:
    """The mean of the lines at ``positions``, and their standard deviation about it."""
    columns = list(zip(*lines, strict=True))
    means = [statistics.fmean(column) for column in columns]
    broad = "linestyle" not in style
    if broad:  # a line of one point shows nothing but its marker
        axes.plot(positions, means, **style, marker="o" if len(means) == 1 else "", markersize=7)
    else:
        axes.plot(positions, means, **style, marker=marker, markersize=3)
    if len(lines) > 1 and not broad:
        _shade(axes, positions, means, list(map(statistics.stdev, columns)), style["color"])


def _shade(
    axes: Axes, x: Sequence[float], means: Sequence[float], around: Sequence[float], color: str
) -> None:
    """A pale band that reaches as far as ``around`` to either side of the means."""
    lower, upper = list(map(operator.sub, means, around)), list(map(operator.add, means, around))
    axes.fill_between(x, lower, upper, color=color, alpha=0.15, lw=0)


def _axis(metric: Metric) -> str:
    return f"{metric.name}, %" if metric.unit == "share" else metric.name


# ----------------------------------------------------------------------------
# What became of a paper's claims, as a table and as a picture.

_COLUMNS = 2  # panels beside each other
_PLAIN = "plain float32"  # label of the series without a codec


def reproduction_figure(record: ReproductionRecord) -> Figure:
    """A panel for each claim."""
    drawn = [finding for finding in record.findings if finding.series]
    columns = min(_COLUMNS, max(1, len(drawn)))
    rows = max(1, -(-len(drawn) // columns))
    figure = new_figure(6.5 * columns, 3.8 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, finding in zip(panels, drawn, strict=False):
        _draw_finding(axes, finding, record.codec)
    for axes in panels[len(drawn) :]:
        axes.set_visible(False)
    figure.suptitle(f"{record.codec}: {record.paper}", fontsize=12)
    return figure


def _draw_finding(axes: Axes, finding: Finding, codec: str) -> None:
    names = [codec if series.label == "codec" else series.label for series in finding.series]
    looks = iter(codec_styles([name for name in names if name != _PLAIN]))
    styles = [BAND if name == _PLAIN else next(looks) for name in names]
    if finding.series[0].x:
        _draw_lines(axes, finding, names, styles)
    else:
        _draw_bars(axes, finding, names, styles)
    mark = "" if finding.holds is None else f"{finding.verdict.capitalize()}: "
    axes.set_title(f"{mark}{finding.claim}", fontsize=8, loc="left", wrap=True)
    hide_frame(axes)


def _draw_lines(
    axes: Axes, finding: Finding, names: Sequence[str], styles: Sequence[dict[str, Any]]
) -> None:
    for series, look in zip(finding.series, styles, strict=True):
        marker = "" if look is BAND and len(series.x) > 1 else "o"
        axes.plot(series.x, series.y, **look, marker=marker, markersize=3)
        if series.spread:
            _shade(axes, series.x, series.y, series.spread, look["color"])
    if "x" in finding.logarithmic:
        axes.set_xscale("log", base=2 if finding.axes[0] == "workers" else 10)
        axes.xaxis.set_major_formatter("{x:g}")
    if "y" in finding.logarithmic:
        log_scale(axes)
    axes.set_xlabel(finding.axes[0])
    axes.set_ylabel(finding.axes[1])
    axes.grid(alpha=0.3)
    colors = ["#777777" if look is BAND else look["color"] for look in styles]
    _name_ends(axes, list(zip(names, colors, strict=True)))


def _draw_bars(
    axes: Axes, finding: Finding, names: Sequence[str], styles: Sequence[dict[str, Any]]
) -> None:
    values = [series.y[0] for series in finding.series]
    bars = axes.barh(range(len(values)), values, color=[look["color"] for look in styles])
    axes.bar_label(bars, [f"{value:.3g}" for value in values], padding=4)
    axes.set_yticks(range(len(values)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, max(values) * 1.2)
    axes.set_xlabel(finding.axes[1])


# ----------------------------------------------------------------------------
# Tables and plots of throughput sweeps.

_NAMES = {
    "memory": "built-in, in memory",
    "builtin": "built-in, in Mininet",
    "bmv2": "simple_switch, in Mininet",
}
_MARKERS = "os^Dv"
_LABELS = 12  # of four digits, side by side below a panel
_LONG_LABEL = 34  # characters: three such are wider than the figure
_VARIED = {
    "window": "packets of each worker under way at once",
    "workers": "workers",
    "values_per_packet": "values per packet",
}


def throughput_figure(record: ThroughputRecord) -> Figure:
    """Goodput and packet rates over what the sweep varied most, a line for each of the rest.

    Raises:
        InputError: nothing was measured yet.
    """
    if not record.measurements:
        raise InputError("the record has no measurement to draw.")
    figure = new_figure(10, 4)
    axis = _widest(record)
    left, right = figure.subplots(1, 2)
    _draw_sweep(left, record, axis, lambda each: each.goodput / 1e6)
    left.set_ylabel("goodput of each worker, MB/s")
    _draw_sweep(right, record, axis, lambda each: each.packet_rate / 1e3)
    switches = "all switches" if tables.has_trees(record) else "the switch"
    right.set_ylabel(f"packets into {switches}, 1000/s")
    handles, labels = left.get_legend_handles_labels()
    columns = min(len(labels), 3 if max(map(len, labels)) < _LONG_LABEL else 2)
    rows = -(-len(labels) // columns)
    figure.set_figheight(4 + 0.2 * max(0, rows - 2))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3)
    return figure


def _widest(record: ThroughputRecord) -> str:
    """The varied number that has most values."""

    def variety(name: str) -> int:
        return len({getattr(each.point, name) for each in record.measurements})

    return max(_VARIED, key=variety)


def _draw_sweep(
    axes: Axes, record: ThroughputRecord, axis: str, of: Callable[[Measurement], float]
) -> None:
    """A line for each combination: colored by switch, or by codec where there is one switch."""

    def varied(name: str) -> bool:
        return len({getattr(each.point, name) for each in record.measurements}) > 1

    named = [name for name in Point.model_fields if name not in (axis, "switch") and varied(name)]
    colored = "switch" if varied("switch") else "codec"
    points = [each.point for each in record.measurements]
    codecs = list(dict.fromkeys(point.codec for point in points))
    switches = list(dict.fromkeys(point.switch for point in points))
    colors = (
        dict(zip(codecs, codec_styles(codecs), strict=True))
        if colored == "codec"
        else {switch: style(position) for position, switch in enumerate(switches)}
    )
    lines: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for each in record.measurements:
        label, rest = (
            ", ".join(_words(name, getattr(each.point, name)) for name in named if name != left)
            for left in ("", colored)
        )
        switch = _NAMES.get(each.point.switch, each.point.switch)
        key = (getattr(each.point, colored), rest, ", ".join(filter(None, [switch, label])))
        lines.setdefault(key, []).append((int(getattr(each.point, axis)), of(each)))
    rests = list(dict.fromkeys(rest for _, rest, _ in lines))
    for (color, rest, label), found in lines.items():
        x, y = zip(*sorted(found), strict=True)
        turn, position = divmod(rests.index(rest), len(DASHES))
        look = {"color": colors[color]["color"], "linestyle": DASHES[position]}
        axes.plot(x, y, label=label, marker=_MARKERS[turn % len(_MARKERS)], **look)
    ticks = sorted({int(getattr(each.point, axis)) for each in record.measurements})
    axes.set_xscale("log", base=2)
    labeled = _apart(ticks)
    axes.set_xticks(ticks, [str(tick) if tick in labeled else "" for tick in ticks])
    log_scale(axes)
    axes.minorticks_off()
    axes.set_xlabel(_VARIED[axis])
    hide_frame(axes)


def _apart(ticks: Sequence[int]) -> set[int]:
    """The values whose labels fit on a logarithmic axis; powers of two come first."""
    least = math.log2(ticks[-1] / ticks[0]) / _LABELS
    taken: set[int] = set()
    for tick in sorted(ticks, key=lambda tick: (tick & (tick - 1) != 0, tick)):
        if all(abs(math.log2(tick / other)) >= least for other in taken):
            taken.add(tick)
    return taken


def _words(name: str, value: object) -> str:
    """What a point says of itself beside the axis."""
    if name == "workers":
        return f"{value} worker" + ("" if value == 1 else "s")
    if name == "values_per_packet":
        return f"{value} values per packet"
    return f"window {value}" if name == "window" else str(value)


# ----------------------------------------------------------------------------
# Simulations: who did what when in an iteration, and how long iterations took.

_LANES = 8  # workers that one time-line shows at most
_PANELS = 3  # of samples over time, in a row
_MOSTLY = 0.5  # of an iteration; if computing takes more, bars show the rest
_FORWARD_COLOR, _BACKWARD_COLOR = "#BBBBBB", "#777777"
_DOING = (
    ("forward", _FORWARD_COLOR),
    ("backward", _BACKWARD_COLOR),
    ("encode", "#56B4E9"),
    ("wait for others", "#BFE3D6"),
    ("network", "#009E73"),
    ("decode", "#E69F00"),
)


def simulation_figure(record: SimulationRecord) -> Figure:
    """An iteration's time-line, and how long buckets and iterations took.

    The iteration with samples of the network is drawn, the first one; without samples the last one,
    as a run begins in step.
    """
    lanes = min(record.workers, _LANES)
    above = max(3.6, 1.6 + 0.5 * lanes)
    heights = [above]
    sampled = {"": record.samples, **{name: run.samples for name, run in record.baselines.items()}}
    known = {name: samples for name, samples in sampled.items() if samples is not None}
    heights += [
        3.2 * -(-max(1, sum(map(bool, _sampled(each)))) // _PANELS) + 0.3 * bool(name)
        for name, each in known.items()
    ]
    if record.baselines:
        heights.append(0.9 + 0.3 * (1 + len(record.baselines)))
    figure = new_figure(13, sum(heights))
    parts: Any = [figure]
    if len(heights) > 1:
        parts = figure.subfigures(len(heights), 1, height_ratios=heights)
    iteration = record.iterations[-1 if record.samples is None else 0]
    for part, (name, samples) in zip(parts[1:], known.items(), strict=False):
        run = record.baselines[name].iterations[0] if name else iteration
        _draw_samples(part, samples, run)
        if name:
            part.suptitle(f"{name}, {record.baselines[name].transport}", fontsize=11)
    if record.baselines:
        _draw_baselines(parts[-1].subplots(), record)
    left, right = parts[0].subplots(1, 2, width_ratios=(2.2, 1))
    _draw_timeline(left, iteration)
    _draw_completion(right, record)
    what = record.model or f"all-reduce of {record.elements:,} elements"
    figure.suptitle(
        f"{what}, {units.plural(record.workers, 'worker')}, {record.report.codec}: "
        f"{units.duration(record.iteration_seconds)} an iteration"
        + _below(fabric_text([record.simulated.fabric])),
        fontsize=12,
    )
    return figure


def _below(text: str) -> str:
    """The line of a title that says what the numbers rest on, if there is one."""
    return f"\n{text}" if text else ""


def _legend_above(axes: Axes, columns: int, **named: Any) -> None:
    """A legend between a panel and what is above it."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False,
        handlelength=1.2, columnspacing=1.2, fontsize=9, **named,
    )  # fmt: skip


def _draw_timeline(axes: Axes, iteration: Iteration) -> None:
    """Two bars for each worker: what it computes above, what happens to the gradients below."""
    workers: Sequence[int] = range(len(iteration.begin))
    if len(workers) > _LANES:  # the slowest and others between it and the fastest
        ordered = sorted(workers, key=iteration.backward.__getitem__)
        step = (len(ordered) - 1) / (_LANES - 1)
        workers = sorted(ordered[round(position * step)] for position in range(_LANES))
    origin = min(iteration.begin)
    factor, unit = _time_unit(max(iteration.end) - origin)
    done: set[str] = set()
    for lane, worker in enumerate(workers):
        spans: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in _DOING}
        computing = iteration.begin[worker] + iteration.paused[worker]
        spans["forward"] = [(computing, iteration.forward[worker])]
        spans["backward"] = [(iteration.forward[worker], iteration.backward[worker])]
        for bucket in iteration.buckets:
            slowest = max(bucket.encoded)
            spans["encode"].append((bucket.started[worker], bucket.encoded[worker]))
            spans["wait for others"].append((bucket.encoded[worker], slowest))
            spans["network"].append((slowest, bucket.summed[worker]))
            spans["decode"].append((bucket.summed[worker], bucket.decoded[worker]))
        for name, color in _DOING:
            low = lane - 0.4 if name in {"forward", "backward"} else lane
            bars = [
                ((begin - origin) * factor, (end - begin) * factor) for begin, end in spans[name]
            ]
            axes.broken_barh(bars, (low, 0.36), facecolor=color, edgecolor="white", linewidth=0.3)
            if any(width > 0 for _, width in bars):
                done.add(name)
    axes.set_yticks(range(len(workers)), [f"worker {worker}" for worker in workers])
    if len(workers) < (total := len(iteration.begin)):
        axes.set_ylabel(f"{len(workers)} of {total} workers, the fastest and the slowest included")
    axes.invert_yaxis()
    axes.set_xlim(0, (max(iteration.end) - origin) * factor)
    axes.set_xlabel(f"simulated time in iteration {iteration.number}, {unit}")
    patches = importlib.import_module("matplotlib.patches")
    shown = [patches.Patch(color=color, label=name) for name, color in _DOING if name in done]
    _legend_above(axes, len(_DOING), handles=shown)
    hide_frame(axes)


def _draw_completion(axes: Axes, record: SimulationRecord) -> None:
    """Which share of the workers' all-reduces and iterations was done after how long."""
    found = {
        "all-reduce of a bucket": [
            end - begin
            for each in record.iterations
            for bucket in each.buckets
            for begin, end in zip(bucket.encoded, bucket.summed, strict=True)
        ],
        "iteration": [
            end - begin
            for each in record.iterations
            for begin, end in zip(each.begin, each.end, strict=True)
        ],
    }
    _draw_shares(axes, found, "share of workers and iterations")


def _sampled(samples: NetworkSamples) -> list[bool]:
    """Of each panel, whether it shows anything."""
    kinds = (
        samples.queue_bytes, samples.utilization, samples.slots, samples.throughput,
        samples.windows, samples.rates, samples.pauses,
    )  # fmt: skip
    return [any(map(any, each.values())) for each in kinds]


def _draw_samples(figure: FigureBase, samples: NetworkSamples, iteration: Iteration) -> None:
    """Queues, links and slots over an iteration; what is 0 all the time is said in words."""
    origin, end = min(iteration.begin), max(iteration.end)
    factor, unit = _time_unit(end - origin)
    times = [factor * (each - origin) for each in samples.seconds]
    links = {name.replace("_", " "): shares for name, shares in samples.utilization.items()}
    gigabits, allowed = (
        {name: [rate / 1e9 for rate in rates] for name, rates in lines.items()}
        for lines in (samples.throughput, samples.rates)
    )
    no_slot = "no slot waited for a worker" if samples.slots else ""  # of a baseline there are none
    shown: list[tuple[str, Mapping[str, Sequence[float]], str]] = [
        ("bytes in the longest queues", samples.queue_bytes, "no packet waited in a queue"),
        ("utilization of links", links, "no link was busy"),
        ("slots that wait for a worker", samples.slots, no_slot),
        ("throughput, Gbit/s", gigabits, ""),
        ("congestion windows, packets", samples.windows, ""),
        ("sending rates, Gbit/s", allowed, ""),
        ("pauses of links in a sample", samples.pauses, ""),
    ]
    known = [each for each in shown if any(map(any, each[1].values()))]
    missing = [each[2] for each in shown if each not in known and each[2]]
    if missing:
        said = f"In {len(times)} samples {' and '.join(missing)}."
        figure.supxlabel(said, fontsize=10)
    rows = -(-max(1, len(known)) // _PANELS)
    grid = figure.subplots(rows, min(_PANELS, max(1, len(known))), squeeze=False)
    panels = list(grid.flat)
    for axes in panels[len(known) :]:
        axes.set_visible(False)
    for axes, (label, lines, _) in zip(panels, known, strict=False):
        for position, (name, values) in enumerate(lines.items()):
            # Equal lines do not hide each other.
            look = {**style(position), "linewidth": max(0.8, 2.4 - 0.5 * position)}
            axes.step(times, values, where="pre", label=name, **look)
        axes.set_xlim(0, factor * (end - origin))
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"simulated time in iteration {iteration.number}, {unit}")
        axes.set_ylabel(label)
        if label.startswith("bytes"):
            axes.yaxis.set_major_formatter(bytes_tick)
        axes.locator_params(
            axis="y",
            integer=not label.startswith(("utilization", "throughput", "congestion", "sending")),
        )
        _legend_above(axes, 3)
        axes.grid(alpha=0.3)
        hide_frame(axes)


def _draw_baselines(axes: Axes, record: SimulationRecord) -> None:
    """The mean time of an iteration with the codec, and with each baseline.

    Where computing takes most of it, bars begin where computing ends, and show the rest.
    """
    runs: dict[str, SimulationRecord | BaselineRun] = {
        record.report.codec: record,
        **record.baselines,
    }
    seconds = [run.iteration_seconds for run in runs.values()]
    computing = statistics.fmean(
        max(map(sum, zip(each.paused, each.compute, strict=True))) for each in record.iterations
    )
    begin = computing if computing > _MOSTLY * min(seconds) else 0.0
    beyond = [max(0.0, each - begin) for each in seconds]
    factor, unit = _time_unit(max(beyond))
    bars = axes.barh(
        range(len(runs)),
        [factor * each for each in beyond],
        color=[COLORS[0], *[_OTHER] * len(record.baselines)],
        height=0.7,
    )
    labels = [units.duration(each) for each in seconds]
    if begin:
        labels = [
            f"{units.duration(rest)} (iteration {whole})"
            for rest, whole in zip(beyond, labels, strict=True)
        ]
    axes.bar_label(bars, labels, padding=4, fontsize=9)
    axes.set_yticks(range(len(runs)), list(runs))
    axes.invert_yaxis()
    axes.set_xlim(0, (1.25 if begin else 1.1) * factor * max(beyond))
    said = f" beyond the {units.duration(begin)} of computing" if begin else ""
    axes.set_xlabel(f"simulated time of an iteration{said}, {unit}")
    hide_frame(axes)


def _time_unit(longest: float) -> tuple[float, str]:
    """A unit that makes a number of seconds easy to read, and its name."""
    for limit, factor, unit in ((2.0, 1.0, "s"), (2e-3, 1e3, "ms")):
        if longest >= limit:
            return factor, unit
    return 1e6, "µs"


_NAMED_JOBS = 24  # of a cluster: more have no room for names


def jobs_figure(record: JobsRecord) -> Figure:
    """When each job sums gradients, and how long that takes; of a cluster, what is in use."""
    if record.cluster is not None:
        return _cluster_figure(record, record.cluster)
    figure = new_figure(13, max(3.6, 1.6 + 0.4 * len(record.jobs)))
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    factor, unit = _time_unit(max(job.end for job in record.jobs))
    for lane, job in enumerate(record.jobs):
        color = COLORS[lane % len(COLORS)]
        spans = zip(job.begins, job.times, strict=True)
        bars = [(factor * begin, factor * seconds) for begin, seconds in spans]
        left.broken_barh(
            bars, (lane - 0.35, 0.7), facecolor=color, edgecolor="white", linewidth=0.5
        )
    left.set_yticks(range(len(record.jobs)), [f"job {job.name}" for job in record.jobs])
    left.invert_yaxis()
    left.set_xlim(0, factor * max(job.end for job in record.jobs))
    left.set_xlabel(f"simulated time of all-reduces, {unit}")
    hide_frame(left)
    times = {f"job {job.name}, {job.codec}": job.times for job in record.jobs}
    _draw_shares(right, times, "share of all-reduces")
    figure.suptitle(
        f"{units.plural(len(record.jobs), 'job')} on one network, {record.program}"
        + _below(fabric_text([record.simulated.fabric])),
        fontsize=12,
    )
    return figure


def _cluster_figure(record: JobsRecord, cluster: ClusterUse) -> Figure:
    """When jobs wait and run, what they have of the cluster, and how long they take."""
    figure = new_figure(13, 7.5)
    grid = figure.add_gridspec(3, 2, width_ratios=(1.6, 1))
    factor, unit = _time_unit(max(job.end for job in record.jobs))
    jobs = figure.add_subplot(grid[:2, 0])
    # Left: a line for each job, and below what is in use.
    for label, color, spans in (
        ("waits", "#BBBBBB", [(job.arrived, job.waited) for job in record.jobs]),
        ("runs", COLORS[0], [(job.begin, job.end - job.begin) for job in record.jobs]),
    ):
        begins, lengths = ([factor * each for each in one] for one in zip(*spans, strict=True))
        jobs.barh(range(len(spans)), lengths, 0.8, begins, color=color, label=label)
    if len(record.jobs) <= _NAMED_JOBS:
        jobs.set_yticks(range(len(record.jobs)), [f"job {job.name}" for job in record.jobs])
    else:
        jobs.set_ylabel("jobs as they arrive")
    jobs.invert_yaxis()
    _legend_above(jobs, 2)
    use = figure.add_subplot(grid[2, 0], sharex=jobs)
    seconds = [factor * each for each in cluster.seconds]
    for position, (label, counts, most) in enumerate(
        (
            ("hosts", cluster.hosts_busy, cluster.hosts),
            ("slots", cluster.slots_used, cluster.slots),
        )
    ):
        shares = [100 * each / most for each in counts]
        use.step(seconds, shares, where="post", label=label, **style(position))
    use.set_ylim(0, 105)
    use.set_ylabel("in use, %")
    use.set_xlim(0, seconds[-1])
    use.set_xlabel(f"simulated time, {unit}")
    _legend_above(use, 2)
    # Right: how long they take.
    right = figure.add_subplot(grid[:, 1])
    times = {"completion": [job.completion for job in record.jobs]}
    if any(waited := [job.waited for job in record.jobs]):
        times["waiting"] = waited
    _draw_shares(right, times, "share of jobs")
    for axes in (jobs, use):
        axes.grid(axis="x", alpha=0.3)
        hide_frame(axes)
    figure.suptitle(
        f"{units.plural(len(record.jobs), 'job')} on {units.plural(cluster.hosts, 'host')}, "
        f"{record.program}; placement {cluster.placement}, memory {cluster.memory}, "
        f"queueing {cluster.queueing}" + _below(fabric_text([record.simulated.fabric])),
        fontsize=12,
    )
    return figure


def _draw_shares(axes: Axes, times: Mapping[str, Sequence[float]], label: str) -> None:
    """Which share was done after how long."""
    factor, unit = _time_unit(max(map(max, times.values())))
    for position, (name, seconds) in enumerate(times.items()):
        values = [factor * each for each in sorted(seconds)]
        shares = [(number + 1) / len(values) for number in range(len(values))]
        axes.step([0, *values], [0, *shares], where="post", label=name, **style(position))
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"simulated time until it is complete, {unit}")
    axes.set_ylabel(label)
    _legend_above(axes, 2)
    axes.grid(alpha=0.3)
    hide_frame(axes)


# ----------------------------------------------------------------------------
# Sweeps in simulated time.

_METRICS = {
    "iteration_seconds": "simulated time of an iteration",
    "exposed_seconds": "exposed time of an iteration",
    "seconds": "simulated time",
    "goodput_gbps": "goodput of each worker, Gbit/s",
    "elements_per_second": "elements of each worker per second",
    "dropped": "packets that found a queue full",
    "lost": "packets lost on links",
    "retransmissions": "packets sent again",
    "packets": "packets on links",
}
_OTHER = "#999999"  # what stands beside a codec
_ALONE = "sums in the network"  # the name of a sweep's only line, beside baselines
_ROOM = 40  # characters of numbers side by side below a panel
_SERIES = 8  # lines in a panel
_FACETS = 4  # panels beside each other
_SPREAD = 8.0  # largest number over smallest, from which an axis is logarithmic


def sweep_figure(record: SweepRecord, metrics: Sequence[str] = ()) -> Figure:
    """Metrics over the first axis of a sweep.

    The axes after it have a line for each combination, and, from the last one on, a panel where
    there would be more than eight lines. Lines are means over the axis "seed", bands their standard
    deviation.

    Args:
        record: of the sweep.
        metrics: as ``SweepPoint.metric`` takes them, a panel for each; by default goodput and
            seconds, as far as all points have them.

    Raises:
        InputError: there is no point or no such metric.
    """
    if not record.points:
        raise InputError("no point of the sweep has a record to draw.")
    known = record.shown_metrics()
    metrics = metrics or [
        name for name in ("goodput_gbps", "iteration_seconds", "seconds") if name in known
    ]
    if not metrics:
        raise InputError("the records have neither goodput nor seconds; name a metric to draw.")
    for each in record.points:
        for name in metrics:
            each.metric(name)
    first, series, facets = _sweep_axes(record)
    settings = [
        dict(zip([axis.name for axis in facets], values, strict=True))
        for values in itertools.product(*(axis.values for axis in facets))
    ]
    if len(settings) == 1:  # metrics beside each other, else below each other
        figure = new_figure(5 * len(metrics) + 0.5, 4)
        panels = figure.subplots(1, len(metrics), squeeze=False).T
    else:
        columns = min(_FACETS, len(settings))
        blocks = -(-len(settings) // columns)
        figure = new_figure(1 + 3.2 * columns, 0.6 + 2.8 * blocks * len(metrics))
        panels = figure.subplots(blocks * len(metrics), columns, squeeze=False)
        panels = panels.reshape(blocks, len(metrics), columns).transpose(1, 0, 2)
        panels = panels.reshape(len(metrics), -1)
    for metric, row in zip(metrics, panels, strict=True):
        for axes, fixed in zip(row, settings, strict=False):
            _draw_swept(axes, record, metric, first=first, series=series, fixed=fixed)
        _same_range(row[: len(settings)], metric)
        for axes in row[len(settings) :]:
            axes.set_visible(False)
    drawn = [axes.get_legend_handles_labels() for axes in panels[0]]
    lines = {label: line for each in drawn for line, label in zip(*each, strict=True)}
    labels = list(lines)
    if len(labels) > 1:
        columns = max(
            1, min(len(labels), int(10 * figure.get_figwidth() / (8 + max(map(len, labels)))))
        )
        rows = -(-len(labels) // columns)
        figure.set_figheight(figure.get_figheight() + 0.2 * rows)
        names = ", ".join(axis.name for axis in series)
        figure.legend(
            lines.values(), labels, loc="outside lower center", ncols=columns, handlelength=3,
            title=names,
        )  # fmt: skip
    figure.suptitle("\n".join(_sweep_notes(record, metrics, first)), fontsize=10)
    return figure


def _sweep_notes(record: SweepRecord, metrics: Sequence[str], first: Axis) -> list[str]:
    """What the picture rests on: the networks, and what became of the seeds."""
    notes = [tables.sweep_fabric(record), tables.seeds_note(record, metrics)]
    seeds = next((len(axis.values) for axis in record.axes if axis.name == "seed"), 1)
    if not notes[1] and seeds > 1 and first.name != "seed":
        notes[1] = f"Means of {seeds} seeds; bands: standard deviation"
    return [note for note in notes if note]


def _sweep_axes(record: SweepRecord) -> tuple[Axis, list[Axis], list[Axis]]:
    """The axis on x, those with a line for each value, and those with a panel for each.

    Lines are means over the seeds. Panels have at most ``_SERIES`` lines.
    """
    first, *series = [axis for axis in record.axes if axis.name != "seed"] or record.axes
    facets: list[Axis] = []

    def lines() -> int:
        sums = math.prod(len(axis.values) for axis in series)
        others = math.prod(len(axis.values) for axis in series if axis.name != "codec")
        return sums + len(record.baselines) * others

    while series and lines() > _SERIES:
        facets.insert(0, series.pop())
    return first, series, facets


def _sweep_looks(series: Sequence[Axis]) -> list[dict[str, Any]]:
    """A style for each line of a panel: colors for the first of its axes, dashes for others."""
    colors = len(series[0].values) if series else 1
    total = math.prod(len(axis.values) for axis in series)
    if colors > len(COLORS) or total // colors > len(DASHES):
        colors = total
    found = []
    for number in range(total):
        color, dashes = divmod(number, total // colors)
        found.append(
            {
                "color": COLORS[color % len(COLORS)],
                "linestyle": DASHES[(dashes + color // len(COLORS)) % len(DASHES)],
                "marker": _MARKERS[color % len(_MARKERS)],
                "markersize": max(4, 9 - 1.5 * color),  # equal results do not hide each other
            }
        )
    return found


def _draw_swept(
    axes: Axes,
    record: SweepRecord,
    metric: str,
    *,
    first: Axis,
    series: Sequence[Axis],
    fixed: Mapping[str, Any],
) -> None:
    """A panel: the points with what is fixed in it, and a line for each value of ``series``."""
    positions, logarithmic = _positions(first)
    combinations = itertools.product(*(axis.values for axis in series))
    for values, look in zip(combinations, _sweep_looks(series), strict=True):
        names = dict(zip([axis.name for axis in series], values, strict=True))
        _swept_line(
            axes,
            [(positions[first.values.index(point.values[first.name])], point.metric(metric))
             for point in record.at(**fixed, **names)],
            {**look, "label": ", ".join(map(units.setting, values)) or _ALONE},
        )  # fmt: skip
    _draw_swept_baselines(axes, record, metric, first=first, series=series, fixed=fixed)
    if logarithmic:
        axes.set_xscale("log", base=2)
    labels = [units.setting(value) for value in first.values]
    axes.set_xticks(positions, labels, rotation=0 if sum(map(len, labels)) < _ROOM else 30)
    axes.minorticks_off()
    axes.set_xlabel(first.name)
    axes.set_ylabel(_METRICS.get(metric, metric.replace("_", " ")))
    if fixed:
        said = (f"{name}={units.setting(value)}" for name, value in fixed.items())
        axes.set_title(",\n".join(said), fontsize=9, loc="left")
    axes.grid(alpha=0.3)
    hide_frame(axes)


def _swept_line(axes: Axes, found: Sequence[tuple[float, float]], look: Mapping[str, Any]) -> None:
    """A line through the means at each place, and a band of their standard deviation."""
    places: dict[float, list[float]] = defaultdict(list)
    for at, number in sorted(found):
        places[at].append(number)
    if not places:  # each point failed
        return
    axes.plot(list(places), [statistics.fmean(each) for each in places.values()], **look)
    spread = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in places.values()]
    if any(spread):
        edges = list(zip(places.values(), spread, strict=True))
        axes.fill_between(
            list(places),
            [max(min(each), statistics.fmean(each) - around) for each, around in edges],
            [statistics.fmean(each) + around for each, around in edges],
            color=look["color"], alpha=0.15, lw=0,
        )  # fmt: skip


def _same_range(panels: Sequence[Axes], metric: str) -> None:
    """The panels of a metric have one range of numbers, logarithmic if it is wide."""
    drawn: list[Any] = [line.get_ydata() for axes in panels for line in axes.lines]
    numbers: list[float] = [number for line in drawn for number in line]
    low, high = min(numbers), max(numbers)
    ends = [end for axes in panels for end in axes.get_ylim()]
    for axes in panels:
        if low > 0 and high / low > _SPREAD:
            axes.set_ylim(low / 1.25, high * 1.25)
            log_scale(axes, "y", duration_tick if metric.endswith("seconds") else "{x:,g}")
            continue
        axes.set_ylim(min(0, low), max(ends))
        if metric.endswith("seconds"):
            axes.yaxis.set_major_formatter(duration_tick)


def _draw_swept_baselines(
    axes: Axes,
    record: SweepRecord,
    metric: str,
    *,
    first: Axis,
    series: Sequence[Axis],
    fixed: Mapping[str, Any],
) -> None:
    """A gray line for each baseline and combination of the other axes.

    Over codecs all baselines are the same: of each combination without them, one line is drawn.
    """
    positions, _ = _positions(first)
    names = [axis.name for axis in series if axis.name != "codec"]
    for number, name in enumerate(record.baselines):
        lines: dict[tuple[Any, ...], set[tuple[float, float]]] = {}
        for point in record.at(**fixed):
            try:
                found = point.metric(of_baseline(name, metric))
            except InputError:  # a metric that baselines have not
                return
            key = tuple(point.values[other] for other in names)
            at = positions[first.values.index(point.values[first.name])]
            lines.setdefault(key, set()).add((at, found))
        for dashes, (values, line) in enumerate(lines.items()):
            _swept_line(
                axes,
                [*line],
                {
                    "label": ", ".join([name, *map(units.setting, values)]),
                    "color": str(0.25 + 0.5 * number / max(1, len(record.baselines))),
                    "linestyle": DASHES[(1 + dashes) % len(DASHES)],
                    "marker": _MARKERS[-1 - number % len(_MARKERS)],
                    "markersize": 5,
                },
            )


def _positions(axis: Axis) -> tuple[list[float], bool]:
    """Where the values of an axis stand, and whether in logarithms. Text, and zero beside numbers
    of several magnitudes, stand at equal distances.
    """
    if not all(map(is_real, axis.values)):
        return [float(position) for position in range(len(axis.values))], False
    numbers = [float(value) for value in axis.values]
    above = [number for number in numbers if number > 0]
    wide = bool(above) and max(above) / min(above) >= _SPREAD
    if wide and len(above) < len(numbers):
        return [float(sorted(numbers).index(number)) for number in numbers], False
    return numbers, wide


# ----------------------------------------------------------------------------
# Pictures of plans: switches, hosts and cables, level by level.

_SWITCH, _WORKER, _SERVER, _IDLE = COLORS[0], COLORS[2], COLORS[1], "#aaaaaa"


def draw_plan(plan: Plan | SharedPlan, path: Path) -> None:
    """Draw a plan's network into a PNG file: the root above, hosts below. What no job
    uses is gray and thin.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    from innet.topology import SharedPlan  # noqa: PLC0415 - no other picture needs it

    positions = layout(plan)
    columns = [column for column, _ in positions.values()]
    width = max(6.0, 1.1 * (1 + max(columns) - min(columns)))
    depth = 1 + max(level for _, level in positions.values())
    figure = new_figure(width, 1.2 + 1.1 * depth)
    axes = figure.subplots()
    hosts = {host.name for host in plan.hosts}
    idle = {switch.name for switch in plan.switches if not switch.commands}
    for a, b in plan.links:
        if {a.node, b.node} & idle:
            _line(axes, positions[a.node], positions[b.node], 0.4)
            continue
        _line(axes, positions[a.node], positions[b.node], 1.5)
        for end, other in ((a, b), (b, a)):
            if end.node not in hosts:
                _port(axes, end.port, positions[end.node], positions[other.node])
    for switch in plan.switches:
        label = f"{switch.name}\n{switch.program.name}"
        color = _IDLE if switch.name in idle else _SWITCH
        _box(axes, label, positions[switch.name], color, "square,pad=0.5")
    jobs = plan.jobs if isinstance(plan, SharedPlan) else (plan,)
    for job in jobs:
        for host in job.hosts:
            role = f"worker {host.worker}" if host.role == "worker" else "parameter server"
            if len(jobs) > 1:
                role = f"job {job.job.number}\n{role}"
            color = _WORKER if host.role == "worker" else _SERVER
            _box(axes, f"{host.name}\n{role}", positions[host.name], color, "round,pad=0.4")
    axes.set_xlim(min(columns) - 0.8, max(columns) + 0.8)
    axes.set_ylim(-depth + 0.4, 0.6)
    axes.axis("off")
    save(figure, path)


def layout(plan: Plan | SharedPlan) -> dict[str, tuple[float, int]]:
    """Where each node goes: (column, level). Hosts stand in a row, switches above their middle."""
    neighbors: dict[str, list[str]] = defaultdict(list)
    for a, b in plan.links:
        neighbors[a.node].append(b.node)
        neighbors[b.node].append(a.node)
    hosts = {host.name for host in plan.hosts}
    height = {host.name: 0 for host in plan.hosts if host.role == "worker"}
    order = list(height)
    for node in order:
        for other in neighbors[node]:
            if other not in height and other not in hosts:
                height[other] = height[node] + 1
                order.append(other)
    bottom = max(height.values())
    columns = {host.name: float(column) for column, host in enumerate(plan.hosts)}
    switches = sorted((node for node in order if node not in hosts), key=height.__getitem__)
    for level, row in itertools.groupby(switches, key=height.__getitem__):
        names = list(row)
        for node in names:
            below = [columns[each] for each in neighbors[node] if height.get(each, level) < level]
            columns[node] = sum(below) / len(below) if below else 0.0
        _spread(names, columns, len(hosts))
    return {node: (columns[node], bottom - height.get(node, 0)) for node in columns}


def _spread(names: list[str], columns: dict[str, float], width: int) -> None:
    """Nodes of one level that would cover each other stand apart, over the whole width."""
    names = sorted(names, key=columns.__getitem__)
    positions = [columns[name] for name in names]
    if any(right - left < 1 for left, right in itertools.pairwise(positions)):
        share = max(1.0, width / len(names))
        for number, name in enumerate(names):
            columns[name] = (number + 0.5) * share - 0.5


def _line(axes: Axes, a: tuple[float, int], b: tuple[float, int], width: float) -> None:
    axes.plot([a[0], b[0]], [-a[1], -b[1]], color="#888888", linewidth=width, zorder=1)


def _port(axes: Axes, number: int, here: tuple[float, int], there: tuple[float, int]) -> None:
    at = (here[0] + 0.3 * (there[0] - here[0]), -(here[1] + 0.3 * (there[1] - here[1])))
    axes.annotate(
        str(number), at, fontsize=7, ha="center", va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip


def _box(axes: Axes, text: str, position: tuple[float, int], color: str, shape: str) -> None:
    axes.text(
        position[0], -position[1], text, ha="center", va="center",
        fontsize=8, color="white", zorder=2,
        bbox={"boxstyle": shape, "facecolor": color, "edgecolor": "none"},
    )  # fmt: skip
