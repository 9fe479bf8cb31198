"""What became of a paper's claims, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from innet.records import Finding, Reproduction
from innet.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 2  # panels beside each other


def reproduction_table(record: Reproduction) -> Table:
    """Claim by claim: what the paper says, what was seen here, and what was not tried."""
    quick = ", a quick run: nothing is judged" if record.quick else ""
    table = Table(
        title=f"{record.codec}: {record.paper}{quick}",
        caption=record.note.replace("\n", " ").strip(),
        box=SIMPLE_HEAD,
        show_header=False,
        title_style="bold",
        caption_justify="left",
    )
    table.add_column(style="bold")
    table.add_column()
    for finding in record.findings:
        table.add_row("claim", finding.claim)
        table.add_row("theirs", finding.theirs)
        table.add_row("ours", finding.ours)
        table.add_row("set-up", finding.setup)
        table.add_row("holds here", verdict(finding), end_section=True)
    for reason in record.not_reproduced:
        table.add_row("not tried", reason)
    return table


def verdict(finding: Finding) -> str:
    """Whether the claim holds here, and what that would have taken."""
    if finding.holds is None:
        word = "not judged"
        return f"{word} ({finding.criterion})" if finding.criterion else word
    return f"{'yes' if finding.holds else 'NO'} ({finding.criterion})"


def draw_reproduction(record: Reproduction, path: str | Path) -> None:
    """Draws a panel for each claim.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    plots.save(reproduction_figure(record), path)


def reproduction_figure(record: Reproduction) -> Figure:
    """The panels as a matplotlib figure.

    Raises:
        MissingToolError: matplotlib is not installed.
    """
    drawn = [finding for finding in record.findings if finding.series]
    columns = min(_COLUMNS, max(1, len(drawn)))
    rows = max(1, -(-len(drawn) // columns))
    figure = plots.new_figure(6.5 * columns, 3.8 * rows)
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
    plots.plain(axes)


def _draw_lines(axes: Axes, finding: Finding) -> None:
    for place, series in enumerate(finding.series):
        style = plots.style(place)
        axes.plot(series.x, series.y, **style, marker="o", markersize=3, label=series.label)
        if series.spread:
            edges = list(zip(series.y, series.spread, strict=True))
            axes.fill_between(
                series.x,
                [mean - around for mean, around in edges],
                [mean + around for mean, around in edges],
                color=style["color"],
                alpha=0.15,
                lw=0,
            )
    if "x" in finding.logarithmic:
        axes.set_xscale("log", base=2 if finding.axes[0] == "workers" else 10)
        axes.xaxis.set_major_formatter("{x:g}")
    if "y" in finding.logarithmic:
        plots.log_scale(axes)
    axes.set_xlabel(finding.axes[0])
    axes.set_ylabel(finding.axes[1])
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def _draw_bars(axes: Axes, finding: Finding) -> None:
    values = [series.y[0] for series in finding.series]
    colors = [plots.style(place)["color"] for place in range(len(values))]
    bars = axes.barh(range(len(values)), values, color=colors)
    axes.bar_label(bars, [f"{value:.3g}" for value in values], padding=4)
    axes.set_yticks(range(len(values)), [series.label for series in finding.series])
    axes.invert_yaxis()
    axes.set_xlim(0, max(values) * 1.2)
    axes.set_xlabel(finding.axes[1])
