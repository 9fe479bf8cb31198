"""What all pictures share: matplotlib when it is needed, colours, and numbers at axes."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from innet.errors import InputError, MissingToolError
from innet.files import whole
from innet.report import numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with any common colour blindness. Lines differ in their
# dashes too, for print in grey. The run without packets is a broad pale band below the others,
# which are meant to hide it.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
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
        # Without pyplot: no window, no state shared with the caller's own plots.
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
    with whole(path) as place:
        figure.savefig(place, dpi=_DPI, format=form)


def style(place: int) -> dict[str, Any]:
    """Colour and dashes of the ``place``-th line, keyword arguments of matplotlib's plot."""
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place % len(DASHES)]}


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
    digits, _, unit = numbers.size(value).partition(" ")
    return f"{float(digits.replace(',', '')):g} {unit}"


def smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and up to SMOOTH - 1 before it."""
    sums = [0.0, *accumulate(values)]
    starts = (max(0, end - SMOOTH) for end in range(1, len(sums)))
    return [(sums[end] - sums[start]) / (end - start) for end, start in enumerate(starts, 1)]
