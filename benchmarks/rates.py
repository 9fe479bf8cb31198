"""The pictures of docs/papers on what codecs send: our numbers beside the papers'.

    python -m benchmarks.rates lhc --plot lhc-rates.png
    python -m benchmarks.rates scalecom --plot scalecom-rates.png
    python -m benchmarks.rates adacomp --plot adacomp-rates.png

They are measured anew from the claims in ``innet/claims/papers.toml``, which ``innet
reproduce NAME`` judges beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.axes import Axes

from innet.claims.claim import ClaimContext, ReproduceOptions
from innet.claims.papers import paper_of
from innet.claims.traffic import ElementRates, Lossless, WireRates
from innet.experiments.comparison import Store
from innet.records import Finding
from innet.reports.plots import hide_frame, new_figure, save, style

_TIMES = "\N{MULTIPLICATION SIGN}"
_KINDS: dict[str, type[Any]] = {"lhc": Lossless, "scalecom": WireRates, "adacomp": ElementRates}


def main(
    preset: Annotated[str, typer.Argument(help="lhc, scalecom or adacomp.")],
    plot: Annotated[Path | None, typer.Option(help="Picture.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few steps, to see that it runs.")
    ] = False,
) -> None:
    """Measure, print, and draw."""
    if preset not in _KINDS:
        raise typer.BadParameter(f"{preset!r} has no picture; choose of {', '.join(_KINDS)}.")
    paper = paper_of(preset)
    store = Store(plot.parent if plot else Path(), None)  # keeps trainings; there are none
    context = ClaimContext(paper, ReproduceOptions(quick=quick), store)
    found = []
    for claim in paper.claims:
        if isinstance(claim.measure, _KINDS[preset]):
            finding = claim.measure.finding(context)
            found.append((claim.measure, finding))
            print(f"{claim.claim}\n  paper: {claim.paper_result}\n  here: {finding.measured}")
    if plot:
        figure = new_figure(5.5 * len(found), 3.8)
        panels = figure.subplots(1, len(found), squeeze=False).ravel()
        for axes, (measure, finding) in zip(panels, found, strict=True):
            _DRAWN[preset](axes, measure, finding)
            hide_frame(axes)
        save(figure, plot)


def _lossless(axes: Axes, measure: Lossless, finding: Finding) -> None:
    del measure
    codecs = [(label, each) for label, each in finding.numbers.items() if "compression" in each]
    for place, (_, each) in enumerate(codecs):
        color = style(0)["color"] if each["nearest"] == 1 else style(1)["color"]
        axes.barh(place, each["compression"], color=color)
        text = f" {each['compression']:.2f}{_TIMES}, {each['nearest']:.1%} of sums exact"
        axes.text(each["compression"], place, text, va="center", fontsize=8)
        axes.axvline(1, color="0.6", linewidth=0.8)
    axes.set_yticks(range(len(codecs)), [label for label, _ in codecs])
    axes.set_xlim(0, 1.6 * max(each["compression"] for _, each in codecs))
    axes.set_xlabel("times fewer bytes than dense float32 (NCF, 4 workers)")
    axes.set_title("Blue: sums are the nearest float32", fontsize=9, loc="left")


def _wire(axes: Axes, measure: WireRates, finding: Finding) -> None:
    del measure
    (ours, named) = finding.series
    axes.plot(named.x, named.y, "--", color="0.5", label="the paper's rate: values alone")
    axes.plot(ours.x, ours.y, marker="o", label="on the wire", **style(0))
    words = [rate / 2 for rate in named.x]
    axes.plot(named.x, words, ":", color="0.5", label="a word for each index")
    for x, y in zip(ours.x, ours.y, strict=True):
        axes.annotate(f"{y:.0f}{_TIMES}", (x, y), (6, -10), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(named.x, [f"{rate:g}" for rate in named.x])
    axes.minorticks_off()
    axes.set_xlabel("rate of ScaleCom")
    axes.set_ylabel("times fewer bytes than dense float32")
    axes.legend(fontsize=8)


def _elements(axes: Axes, measure: ElementRates, finding: Finding) -> None:
    for number, series in enumerate(finding.series):
        look = style(number)
        axes.plot(series.x, series.y, marker="o", markersize=3.5, label=series.label, **look)
        if series.label in measure.published:
            axes.axhline(
                measure.published[series.label], color=look["color"], linestyle=":", linewidth=1
            )
    axes.axhline(finding.numbers["words"], color="0.5", linestyle="--", label="words to the switch")
    axes.set_yscale("log")
    axes.set_xticks(finding.series[0].x)
    axes.set_xlabel("epoch (dotted: the paper's rates)")
    axes.set_ylabel("times fewer bits than dense float32")
    axes.set_title(finding.setup.split(",")[0].split(", ")[0], fontsize=9, loc="left")
    axes.legend(fontsize=8)


_DRAWN: dict[str, Callable[[Axes, Any, Finding], None]] = {
    "lhc": _lossless,
    "scalecom": _wire,
    "adacomp": _elements,
}

if __name__ == "__main__":
    typer.run(main)
