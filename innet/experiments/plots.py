"""What all pictures share: matplotlib when it is needed, colors, and numbers at axes."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from innet.core.errors import InputError, MissingToolError
from innet.core.files import atomic_write
from innet.experiments import tables
from innet.experiments.tables import Method, methods_of, title
from innet.records import (
    Finding,
    Measurement,
    Metric,
    ReproductionRecord,
    Run,
    ThroughputRecord,
    TrainingRecord,
)
from innet.records.throughput import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from innet.topology import Plan, SharedPlan

# Okabe and Ito's palette: told apart with any common color blindness. Lines differ in their
# dashes too, for print in grey. The run without packets is a broad pale band below the others,
# which are meant to hide it.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
DASHES = ("dashed", "solid", "dashdot", "dotted")
BAND = "#BBBBBB"
SMOOTH = 11  # iterations over which the loss, noisy from batch to batch, is averaged
_DPI = 150
_FORMATS = ("png", "pdf", "svg")
_NARROW, _WIDE, _FEW = 0.6, 2.0, 4  # decades; intervals of a narrow axis


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
    with atomic_write(path) as place:
        figure.savefig(place, dpi=_DPI, format=form)


def style(place: int) -> dict[str, Any]:
    """Color and dashes of the ``place``-th line, keyword arguments of matplotlib's plot."""
    return {"color": COLORS[place % len(COLORS)], "linestyle": DASHES[place % len(DASHES)]}


def plain(axes: Axes) -> None:
    """No frame at the top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)


def log_scale(
    axes: Axes, which: Literal["x", "y"] = "y", said: str | Callable[[float, Any], str] = "{x:,g}"
) -> None:
    """Make an axis logarithmic, with numbers at it however narrow or wide its range is.

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
    digits, _, unit = tables.size(value).partition(" ")
    return f"{float(digits.replace(',', '')):g} {unit}"


def smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and up to SMOOTH - 1 before it."""
    sums = [0.0, *accumulate(values)]
    starts = (max(0, end - SMOOTH) for end in range(1, len(sums)))
    return [(sums[end] - sums[start]) / (end - start) for end, start in enumerate(starts, 1)]


# ----------------------------------------------------------------------------
# The demonstration's picture: what was learned, and what it cost, from the record alone.

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


def draw_demo(record: TrainingRecord, path: str | Path) -> None:
    """Draws accuracy and loss over iterations and over bytes, and bytes and times as bars.

    Args:
        record: of a demonstration.
        path: the PNG file to write.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    save(demo_figure(record), path)


def demo_figure(record: TrainingRecord) -> Figure:
    """The picture as a matplotlib figure, for those who want it in another form.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    lines = _lines(record)
    figure = new_figure(13, 7)
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


def _title(record: TrainingRecord) -> str:
    networked = [run for run in record.runs if run.summed_by_network]
    exact = sum(run.exact_steps for run in networked)
    steps = sum(len(run.steps) for run in networked)
    workers = record.settings.get("workers")
    return (
        f"{tables.several(workers, 'worker')} {'learns' if workers == 1 else 'learn'} handwritten "
        f"digits; the switch sums {'its' if workers == 1 else 'their'} gradients "
        f"({exact:,} of {steps:,} integer sums exact)"
    )


def _lines(record: TrainingRecord) -> list[_Line]:
    """The runs with their style. A run without packets is shown as if it sent dense float32."""
    dense = next((run for run in record.runs if run.summed_by_network), None)
    result, drawn = [], 0
    for run in record.runs:
        sent = [step.bytes_sent for step in run.steps]
        look = style(drawn)
        if run.summed_by_network:
            drawn += 1
        else:
            look = {"color": BAND, "linewidth": 6, "solid_capstyle": "round"}
            if dense is not None:
                sent = [dense.steps[0].bytes_dense] * len(run.steps)
        result.append(_Line(run, look, list(accumulate(sent))))
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
        losses = smooth([step.loss for step in line.run.steps])
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
    log_scale(axes)
    axes.set_ylabel(f"training loss, mean of {SMOOTH} iterations")
    if not by_bytes:
        axes.legend(axes.lines, [line.run.title for line in lines], frameon=False)
    _finish(axes, lines, by_bytes)


def _finish(axes: Axes, lines: Sequence[_Line], by_bytes: bool) -> None:
    plain(axes)
    axes.grid(alpha=0.3)
    if not by_bytes:
        axes.set_xlabel("iteration")
        axes.locator_params(axis="x", integer=True)
        return
    axes.set_xlabel("bytes sent by each worker")
    if any(line.bytes_sent[-1] for line in lines):
        log_scale(axes, "x", bytes_tick)
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
    axes.xaxis.set_major_formatter(bytes_tick)
    axes.locator_params(axis="x", nbins=4)
    _name_bars(axes, lines)


def _volume_label(line: _Line) -> str:
    total = tables.size(line.bytes_sent[-1])
    if not line.measured:
        return f"{total} if sent"
    ratio = line.run.compression
    return f"{total} ({tables.times(ratio)} less)" if ratio > 1.05 else total


def _draw_times(axes: Axes, lines: Sequence[_Line]) -> None:
    widest = 0.0
    for row, line in enumerate(lines):
        left = 0.0
        for field, color in _STEPS_OF_TIME:
            width = line.run.total_seconds(field) / len(line.run.steps) * 1e3
            axes.barh(row, width, left=left, color=color, label=field if row == 0 else None)
            left += width
        axes.text(left, row, f"  {tables.duration(left / 1e3)}", va="center")
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
    plain(axes)


def _label(line: _Line) -> str:
    score = line.run.final_score
    return line.run.title + ("" if score is None else f": {tables.percent(score)}")


# ----------------------------------------------------------------------------
# The picture of ``innet train``: all seeds of each way to sum.

# Of a name at a point, in points: a letter's width, and a line's height.
_LETTER, _LINE = 4.0, 9.0


def draw_training(record: TrainingRecord, path: str | Path) -> None:
    """Draws scores and losses of all seeds, over iterations and over bytes.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    save(training_figure(record), path)


def training_figure(record: TrainingRecord) -> Figure:
    """Lines are means over the seeds, bands their standard deviations.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    methods = methods_of(record)
    figure = new_figure(13, 7)
    (score, traffic), (loss, final) = figure.subplots(2, 2)
    styles = _styles(methods)
    _draw_scores(score, methods, styles, by_bytes=False)
    _draw_scores(traffic, methods, styles, by_bytes=True)
    _draw_losses(loss, methods, styles)
    _draw_final(final, methods, styles)
    figure.suptitle(title(record, methods), fontsize=13)
    figure.legend(
        score.lines, [method.title for method in methods], loc="outside right center", frameon=False
    )
    return figure


def _styles(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """How each way is drawn; the one without packets as a broad pale line below the others."""
    result: list[dict[str, Any]] = []
    sent = 0
    for method in methods:
        if method.measured:
            result.append(style(sent))
            sent += 1
        else:
            result.append({"color": BAND, "linewidth": 6, "solid_capstyle": "round"})
    return result


def _draw_scores(
    axes: Axes, methods: Sequence[Method], styles: Sequence[dict[str, Any]], by_bytes: bool
) -> None:
    metric = methods[0].metric
    for method, style in zip(methods, styles, strict=True):
        if by_bytes and not method.measured:
            continue
        lines = []
        for run in method.runs:
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
    elif any(method.measured for method in methods):
        log_scale(axes, "x", bytes_tick)
    plain(axes)


def _draw_losses(axes: Axes, methods: Sequence[Method], styles: Sequence[dict[str, Any]]) -> None:
    for method, style in zip(methods, styles, strict=True):
        lines = [smooth([step.loss for step in run.steps]) for run in method.runs]
        _band(axes, range(1, len(lines[0]) + 1), lines, style)
    log_scale(axes)
    axes.set_ylabel(f"training loss, mean of {SMOOTH} iterations")
    axes.set_xlabel("iteration")
    axes.grid(alpha=0.3)
    plain(axes)


def _draw_final(axes: Axes, methods: Sequence[Method], styles: Sequence[dict[str, Any]]) -> None:
    """The last scores over the compression; bars reach a standard deviation either way."""
    metric = methods[0].metric
    names: list[tuple[str, tuple[float, float]]] = []
    for method, style in zip(methods, styles, strict=True):
        scores = [metric.factor * each for each in method.scores()]
        if not scores:
            continue
        mean = statistics.fmean(scores)
        deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
        if not method.measured:
            axes.axhspan(mean - deviation, mean + deviation, color=BAND, alpha=0.5, lw=0)
            axes.axhline(mean, color=BAND)
            continue
        axes.errorbar(
            method.compression, mean, deviation, fmt="o", color=style["color"], capsize=3, ms=4
        )
        names.append((method.title, (method.compression, mean)))
    log_scale(axes, "x", "{x:g}\N{MULTIPLICATION SIGN}")
    _name_points(axes, names)
    axes.set_xlabel("compression against float32 in packets (grey: plain float32)")
    axes.set_ylabel(f"final {_axis(metric)}")
    axes.grid(alpha=0.3)
    plain(axes)


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


# ----------------------------------------------------------------------------
# What became of a paper's claims, as a table and as a picture.

_COLUMNS = 2  # panels beside each other


def draw_reproduction(record: ReproductionRecord, path: str | Path) -> None:
    """Draws a panel for each claim.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    save(reproduction_figure(record), path)


def reproduction_figure(record: ReproductionRecord) -> Figure:
    """The panels as a matplotlib figure.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    drawn = [finding for finding in record.findings if finding.series]
    columns = min(_COLUMNS, max(1, len(drawn)))
    rows = max(1, -(-len(drawn) // columns))
    figure = new_figure(6.5 * columns, 3.8 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, finding in zip(panels, drawn, strict=False):
        _draw(axes, finding)
    for axes in panels[len(drawn) :]:
        axes.set_visible(False)
    figure.suptitle(f"{record.codec}: {record.paper}", fontsize=12)
    return figure


def _draw(axes: Axes, finding: Finding) -> None:
    if finding.series[0].x:
        _draw_lines(axes, finding)
    else:
        _draw_bars(axes, finding)
    mark = {True: "holds here: ", False: "does not hold here: ", None: ""}[finding.holds]
    axes.set_title(f"{mark}{finding.claim}", fontsize=8, loc="left", wrap=True)
    plain(axes)


def _draw_lines(axes: Axes, finding: Finding) -> None:
    for place, series in enumerate(finding.series):
        look = style(place)
        axes.plot(series.x, series.y, **look, marker="o", markersize=3, label=series.label)
        if series.spread:
            edges = list(zip(series.y, series.spread, strict=True))
            axes.fill_between(
                series.x,
                [mean - around for mean, around in edges],
                [mean + around for mean, around in edges],
                color=look["color"],
                alpha=0.15,
                lw=0,
            )
    if "x" in finding.logarithmic:
        axes.set_xscale("log", base=2 if finding.axes[0] == "workers" else 10)
        axes.xaxis.set_major_formatter("{x:g}")
    if "y" in finding.logarithmic:
        log_scale(axes)
    axes.set_xlabel(finding.axes[0])
    axes.set_ylabel(finding.axes[1])
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def _draw_bars(axes: Axes, finding: Finding) -> None:
    values = [series.y[0] for series in finding.series]
    colors = [style(place)["color"] for place in range(len(values))]
    bars = axes.barh(range(len(values)), values, color=colors)
    axes.bar_label(bars, [f"{value:.3g}" for value in values], padding=4)
    axes.set_yticks(range(len(values)), [series.label for series in finding.series])
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


def draw_throughput(record: ThroughputRecord, path: Path) -> None:
    """Goodput and packet rates over what the sweep varied most, a line for each of the rest.

    Raises:
        InputError: nothing was measured yet, or the file cannot be written.
        MissingToolError: matplotlib is not installed.
    """
    if not record.measurements:
        raise InputError("the record has no measurement to draw.")
    figure = new_figure(10, 4)
    axis = _throughput_axis(record)
    left, right = figure.subplots(1, 2)
    _throughput_draw(left, record, axis, lambda each: each.goodput / 1e6)
    left.set_ylabel("goodput of each worker, MB/s")
    _throughput_draw(right, record, axis, lambda each: each.packet_rate / 1e3)
    switches = "all switches" if tables.has_trees(record) else "the switch"
    right.set_ylabel(f"packets into {switches}, 1000/s")
    handles, labels = left.get_legend_handles_labels()
    columns = min(len(labels), 3 if max(map(len, labels)) < _LONG_LABEL else 2)
    rows = -(-len(labels) // columns)
    figure.set_figheight(4 + 0.2 * max(0, rows - 2))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3)
    save(figure, path)


def _throughput_axis(record: ThroughputRecord) -> str:
    """The varied number that has most values."""

    def variety(name: str) -> int:
        return len({getattr(each.point, name) for each in record.measurements})

    return max(_VARIED, key=variety)


def _throughput_draw(
    axes: Axes, record: ThroughputRecord, axis: str, of: Callable[[Measurement], float]
) -> None:
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    varied = [
        name
        for name in Point.model_fields
        if name not in (axis, "switch")
        and len({getattr(each.point, name) for each in record.measurements}) > 1
    ]
    for each in record.measurements:
        rest = ", ".join(_words(name, getattr(each.point, name)) for name in varied)
        line = lines.setdefault((each.point.switch, rest), [])
        line.append((int(getattr(each.point, axis)), of(each)))
    switches = list(dict.fromkeys(switch for switch, _ in lines))
    others = list(dict.fromkeys(rest for _, rest in lines))
    for (switch, other), found in lines.items():
        x, y = zip(*sorted(found), strict=True)
        label = ", ".join(filter(None, [_NAMES.get(switch, switch), other]))
        look = _look(switches.index(switch), others.index(other), one=len(switches) == 1)
        axes.plot(x, y, label=label, **look)
    ticks = sorted({int(getattr(each.point, axis)) for each in record.measurements})
    axes.set_xscale("log", base=2)
    labeled = _apart(ticks)
    axes.set_xticks(ticks, [str(tick) if tick in labeled else "" for tick in ticks])
    log_scale(axes)
    axes.minorticks_off()
    axes.set_xlabel(_VARIED[axis])
    plain(axes)


def _apart(ticks: Sequence[int]) -> set[int]:
    """Those whose labels have room beside each other on an axis of logarithms; powers of two are
    taken before others.
    """
    least = math.log2(ticks[-1] / ticks[0]) / _LABELS
    taken: set[int] = set()
    for tick in sorted(ticks, key=lambda tick: (tick & (tick - 1) != 0, tick)):
        if all(abs(math.log2(tick / other)) >= least for other in taken):
            taken.add(tick)
    return taken


def _look(switch: int, other: int, *, one: bool) -> dict[str, Any]:
    """A color for each switch, if there are several, and dashes, then markers, for the rest."""
    look = style(other if one else switch) | {"linestyle": DASHES[other % len(DASHES)]}
    alike = len(COLORS) * len(DASHES) if one else len(DASHES)
    return look | {"marker": _MARKERS[other // alike % len(_MARKERS)]}


def _words(name: str, value: object) -> str:
    """What a point says of itself beside the axis."""
    if name == "workers":
        return f"{value} worker" + ("" if value == 1 else "s")
    if name == "values_per_packet":
        return f"{value} values per packet"
    return f"window {value}" if name == "window" else str(value)


# ----------------------------------------------------------------------------
# Pictures of plans: switches, hosts and cables, level by level.

_SWITCH, _WORKER, _SERVER, _IDLE = COLORS[0], COLORS[2], COLORS[1], "#aaaaaa"


def draw_plan(plan: Plan | SharedPlan, path: Path) -> None:
    """Draw a plan's network into a PNG file: the root above, hosts below. What no job
    uses is grey and thin.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    from innet.topology import SharedPlan  # noqa: PLC0415 - no other picture needs it

    places = layout(plan)
    columns = [column for column, _ in places.values()]
    width = max(6.0, 1.1 * (1 + max(columns) - min(columns)))
    depth = 1 + max(level for _, level in places.values())
    figure = new_figure(width, 1.2 + 1.1 * depth)
    axes = figure.subplots()
    hosts = {host.name for host in plan.hosts}
    idle = {switch.name for switch in plan.switches if not switch.commands}
    for a, b in plan.links:
        if {a.node, b.node} & idle:
            _line(axes, places[a.node], places[b.node], 0.4)
            continue
        _line(axes, places[a.node], places[b.node], 1.5)
        for end, other in ((a, b), (b, a)):
            if end.node not in hosts:
                _port(axes, end.port, places[end.node], places[other.node])
    for switch in plan.switches:
        label = f"{switch.name}\n{switch.program.name}"
        color = _IDLE if switch.name in idle else _SWITCH
        _box(axes, label, places[switch.name], color, "square,pad=0.5")
    jobs = plan.jobs if isinstance(plan, SharedPlan) else (plan,)
    for job in jobs:
        for host in job.hosts:
            role = f"worker {host.worker}" if host.role == "worker" else "parameter server"
            if len(jobs) > 1:
                role = f"job {job.job.number}\n{role}"
            color = _WORKER if host.role == "worker" else _SERVER
            _box(axes, f"{host.name}\n{role}", places[host.name], color, "round,pad=0.4")
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
    places = [columns[name] for name in names]
    if any(right - left < 1 for left, right in itertools.pairwise(places)):
        share = max(1.0, width / len(names))
        for number, name in enumerate(names):
            columns[name] = (number + 0.5) * share - 0.5


def _line(axes: Axes, a: tuple[float, int], b: tuple[float, int], width: float) -> None:
    axes.plot([a[0], b[0]], [-a[1], -b[1]], color="#888888", linewidth=width, zorder=1)


def _port(axes: Axes, number: int, own: tuple[float, int], other: tuple[float, int]) -> None:
    at = (own[0] + 0.3 * (other[0] - own[0]), -(own[1] + 0.3 * (other[1] - own[1])))
    axes.annotate(
        str(number), at, fontsize=7, ha="center", va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip


def _box(axes: Axes, text: str, place: tuple[float, int], color: str, shape: str) -> None:
    axes.text(
        place[0], -place[1], text, ha="center", va="center", fontsize=8, color="white", zorder=2,
        bbox={"boxstyle": shape, "facecolor": color, "edgecolor": "none"},
    )  # fmt: skip
