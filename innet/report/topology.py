"""Pictures of plans: switches, hosts and cables, level by level."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from innet.plan import Plan
from innet.report.figures import COLOURS, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SWITCH, _WORKER, _SERVER = COLOURS[0], COLOURS[2], COLOURS[1]


def draw_plan(plan: Plan, path: Path) -> None:
    """Draw a plan's network into a PNG file: the root above, hosts below.

    Raises:
        MissingToolError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    places = layout(plan)
    width = max(6.0, 1.1 * len(plan.hosts))
    depth = 1 + max(level for _, level in places.values())
    figure = new_figure(width, 1.2 + 1.1 * depth)
    axes = figure.subplots()
    for a, b in plan.links:
        (xa, ya), (xb, yb) = places[a.node], places[b.node]
        axes.plot([xa, xb], [-ya, -yb], color="#888888", zorder=1)
        for end, (x, y), (to_x, to_y) in ((a, (xa, ya), (xb, yb)), (b, (xb, yb), (xa, ya))):
            if any(end.node == switch.name for switch in plan.switches):
                at = (x + 0.3 * (to_x - x), -(y + 0.3 * (to_y - y)))
                label = str(end.port)
                axes.annotate(
                    label, at, fontsize=7, ha="center", va="center",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
                )  # fmt: skip
    for switch in plan.switches:
        label = f"{switch.name}\n{switch.program.name}"
        _box(axes, label, places[switch.name], _SWITCH, "square,pad=0.5")
    for host in plan.hosts:
        role = f"worker {host.worker}" if host.role == "worker" else "parameter server"
        colour = _WORKER if host.role == "worker" else _SERVER
        _box(axes, f"{host.name}\n{role}", places[host.name], colour, "round,pad=0.4")
    axes.set_xlim(-0.8, max(x for x, _ in places.values()) + 0.8)
    axes.set_ylim(-depth + 0.4, 0.6)
    axes.axis("off")
    save(figure, path)


def layout(plan: Plan) -> dict[str, tuple[float, int]]:
    """Where each node goes: (column, level). Hosts stand in a row, switches above their middle."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for a, b in plan.links:
        neighbours[a.node].append(b.node)
        neighbours[b.node].append(a.node)
    hosts = {host.name for host in plan.hosts}
    level = {plan.switches[0].name: 0}
    order = [plan.switches[0].name]
    for node in order:
        for other in neighbours[node]:
            if other not in level and other not in hosts:
                level[other] = level[node] + 1
                order.append(other)
    bottom = max(level.values()) + 1
    places: dict[str, tuple[float, int]] = {
        host.name: (float(column), bottom) for column, host in enumerate(plan.hosts)
    }
    for node in reversed(order):
        below = [
            places[other][0]
            for other in neighbours[node]
            if other in places and places[other][1] > level[node]
        ]
        places[node] = (sum(below) / len(below) if below else 0.0, level[node])
    return places


def _box(axes: Axes, text: str, place: tuple[float, int], colour: str, shape: str) -> None:
    axes.text(
        place[0], -place[1], text, ha="center", va="center", fontsize=8, color="white", zorder=2,
        bbox={"boxstyle": shape, "facecolor": colour, "edgecolor": "none"},
    )  # fmt: skip
