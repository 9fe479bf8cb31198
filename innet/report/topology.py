"""Pictures of plans: switches, hosts and cables, level by level."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from innet.report.plots import COLORS, new_figure, save
from innet.topology import Plan, SharedPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SWITCH, _WORKER, _SERVER, _IDLE = COLORS[0], COLORS[2], COLORS[1], "#aaaaaa"


def draw_plan(plan: Plan | SharedPlan, path: Path) -> None:
    """Draw a plan's network into a PNG file: the root above, hosts below. What no job
    uses is grey and thin.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
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
