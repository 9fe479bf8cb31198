"""The papers' claims about time, in simulated time: the tables and pictures of docs/papers.

    python -m benchmarks.times lhc                   # Markdown tables of its claims
    python -m benchmarks.times lhc --plot lhc.png    # ratios over what the claim varies

``innet reproduce lhc`` judges the same claims beside its others. What they compare stands in
``innet/claims/times.toml``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from matplotlib.axes import Axes

from innet.claims.claim import TIMES, Claim
from innet.claims.papers import paper_of, papers
from innet.claims.times import TimeRatios, timing
from innet.records import Finding
from innet.reports.plots import hide_frame, new_figure, save, style

app = typer.Typer(help=__doc__)


@app.command()
def main(
    presets: Annotated[list[str] | None, typer.Argument(help="[default: all with such]")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture; of one preset.")] = None,
) -> None:
    """Simulate, print the tables, and draw."""
    for preset in presets or papers():
        claims = [each for each in paper_of(preset).claims if isinstance(each.measure, TimeRatios)]
        found = [timing(each.measure) for each in claims if isinstance(each.measure, TimeRatios)]
        for claim, finding in zip(claims, found, strict=True):
            print(f"\n### {preset}: {claim.claim}\n")
            print(f"Paper: {claim.paper_result}\n\nHere: {finding.measured}\n")
            print(f"Criterion: {finding.criterion or 'none'}\n")
            print(table(finding))
        if plot and claims:
            draw(claims, found, plot)


def table(finding: Finding) -> str:
    """A Markdown table: a row for each point, milliseconds of each method, the ratio."""
    points = finding.numbers["points"]
    labels = list(points[0]["methods"])
    lines = [
        "| model | network | workers | computing | "
        + " | ".join(labels)
        + " | ratio | codec 0 s |",
        "|---" * (len(labels) + 6) + "|",
    ]
    for point in points:
        taken = point["methods"]
        cells = [point["model"], point["network"], str(point["workers"])]
        cells.append(f"{taken[labels[0]]['compute'] * 1e3:.3g}")
        cells += [f"{taken[label]['seconds'] * 1e3:.4g}" for label in labels]
        cells += [f"{point['ratio']:.2f}", f"{point['bound']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(claims: list[Claim], findings: list[Finding], path: Path) -> None:
    """A panel for each claim: ratios, and the paper's numbers as dashed lines."""
    columns = 2
    rows = -(-len(claims) // columns)
    figure = new_figure(6.2 * columns, 3.9 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, claim, finding in zip(panels, claims, findings, strict=False):
        _panel(axes, claim, finding)
    for axes in panels[len(claims) :]:
        axes.set_visible(False)
    save(figure, path)


def _panel(axes: Axes, claim: Claim, finding: Finding) -> None:
    measure = claim.measure
    assert isinstance(measure, TimeRatios)
    for number, series in enumerate(finding.series):
        look = style(number)
        axes.plot(series.x, series.y, marker="o", markersize=3.5, label=series.label, **look)
    theirs = measure.ratio_range or ((measure.min_ratio,) if measure.min_ratio else ())
    for level in theirs:
        axes.axhline(level, ls="--", lw=1, color="#555555")
        axes.annotate(
            f"paper {level:g}", (1, level), xycoords=("axes fraction", "data"), fontsize=8,
            color="#555555", ha="right", va="bottom",
        )  # fmt: skip
    axes.axhline(1, lw=0.8, color="#bbbbbb")
    places = sorted({x for series in finding.series for x in series.x})
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.minorticks_off()
    top = max([*(y for series in finding.series for y in series.y), *theirs])
    low = min([*(y for series in finding.series for y in series.y), *theirs, 1.0])
    ticks = [y for y in (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50) if low / 1.4 < y < top * 1.4]
    axes.set_yticks(ticks, [f"{y:g}{TIMES}" for y in ticks])
    axes.set_ylim(low / 1.15, top * 1.25)
    axes.set_xlabel(finding.axes[0])
    axes.set_title(
        f"{claim.claim}\n{measure.subject} against {measure.against}: {finding.verdict}",
        fontsize=8.5, loc="left", wrap=True,
    )  # fmt: skip
    axes.grid(alpha=0.25)
    if len(finding.series) > 1:
        axes.legend(fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    hide_frame(axes)


if __name__ == "__main__":
    app()
