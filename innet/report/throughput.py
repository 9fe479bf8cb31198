"""Tables and plots of throughput sweeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from innet.errors import InputError
from innet.record.throughput import Measurement, ThroughputRecord
from innet.report import numbers
from innet.report.figures import DASHES, new_figure, plain, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {
    "memory": "built-in, in memory",
    "builtin": "built-in, in Mininet",
    "bmv2": "simple_switch, in Mininet",
}
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
    table.add_column("switch")
    shaped = _has_trees(record)
    for column in ("workers", *(["topology"] if shaped else []), "codec", "values", "window"):
        table.add_column(column)
    for column in ("goodput", "of bmv2", "packets in", "sent again"):
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
            f"{numbers.size(each.goodput)}/s",
            "" if ratio is None else numbers.times(ratio),
            numbers.rate(each.packet_rate),
            numbers.count(each.again),
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
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
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
    for each in record.measurements:
        rest = each.point.model_dump(exclude={axis, "switch"})
        varied = [
            f"{value} {name.replace('_', ' ')}" if isinstance(value, int) else str(value)
            for name, value in rest.items()
            if len({getattr(other.point, name) for other in record.measurements}) > 1
        ]
        line = lines.setdefault((each.point.switch, ", ".join(varied)), [])
        line.append((int(getattr(each.point, axis)), of(each)))
    switches = list(dict.fromkeys(switch for switch, _ in lines))
    others = list(dict.fromkeys(rest for _, rest in lines))
    for (switch, other), found in lines.items():  # a colour for each switch, dashes for the rest
        x, y = zip(*sorted(found), strict=True)
        look = style(switches.index(switch)) | {"linestyle": DASHES[others.index(other) % 4]}
        label = ", ".join(filter(None, [_NAMES.get(switch, switch), other]))
        axes.plot(x, y, marker="o", label=label, **look)
    ticks = sorted({int(getattr(each.point, axis)) for each in record.measurements})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(_VARIED[axis])
    plain(axes)
