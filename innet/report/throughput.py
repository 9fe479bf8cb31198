"""Tables and plots of throughput sweeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from innet.core.errors import InputError
from innet.records import Measurement, ThroughputRecord
from innet.records.throughput import Point
from innet.report import tables
from innet.report.plots import COLORS, DASHES, log_scale, new_figure, plain, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def throughput_table(record: ThroughputRecord) -> Table:
    """A line for each point."""
    wrong = sum(not each.exact for each in record.measurements)
    table = Table(
        box=None,
        padding=(0, 1, 0, 0),
        caption=f"{wrong} points had wrong sums." if wrong else "All sums were exact.",
        caption_justify="left",
    )
    shaped = _has_trees(record)
    topology = ["topology"] if shaped else []
    for column in ("switch", "workers", *topology, "codec", "values", "window"):
        table.add_column(column, no_wrap=True)
    for column in ("goodput", "of\nbmv2", "packets\nin", "sent\nagain"):  # for 80 columns
        table.add_column(column, justify="right", no_wrap=True)
    for each in record.measurements:
        point = each.point
        ratio = record.ratio(each)
        table.add_row(
            point.switch,
            str(point.workers),
            *([point.topology] if shaped else []),
            point.codec,
            str(point.values_per_packet),
            str(point.window),
            f"{tables.size(each.goodput)}/s",
            "" if ratio is None else tables.times(ratio),
            tables.rate(each.packet_rate),
            tables.count(each.again),
        )
    return table


def draw_throughput(record: ThroughputRecord, path: Path) -> None:
    """Goodput and packet rates over what the sweep varied most, a line for each of the rest.

    Raises:
        InputError: nothing was measured yet, or the file cannot be written.
        MissingToolError: matplotlib is not installed.
    """
    if not record.measurements:
        raise InputError("the record has no measurement to draw.")
    figure = new_figure(10, 4)
    axis = _axis(record)
    left, right = figure.subplots(1, 2)
    _draw(left, record, axis, lambda each: each.goodput / 1e6)
    left.set_ylabel("goodput of each worker, MB/s")
    _draw(right, record, axis, lambda each: each.packet_rate / 1e3)
    switches = "all switches" if _has_trees(record) else "the switch"
    right.set_ylabel(f"packets into {switches}, 1000/s")
    handles, labels = left.get_legend_handles_labels()
    columns = min(len(labels), 3 if max(map(len, labels)) < _LONG_LABEL else 2)
    rows = -(-len(labels) // columns)
    figure.set_figheight(4 + 0.2 * max(0, rows - 2))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3)
    save(figure, path)


def _has_trees(record: ThroughputRecord) -> bool:
    return any(each.point.topology != "star" for each in record.measurements)


def _axis(record: ThroughputRecord) -> str:
    """The varied number that has most values."""

    def variety(name: str) -> int:
        return len({getattr(each.point, name) for each in record.measurements})

    return max(_VARIED, key=variety)


def _draw(
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
