"""Pictures of plans: where nodes stand, and that a file comes out."""

from __future__ import annotations

import pytest

from innet.reports.plots import draw_plan, layout
from innet.topology import Request, make_plan, plan_jobs


@pytest.mark.parametrize(
    ("program", "request_"),
    [
        ("slots", Request(workers=3)),
        ("tree", Request(workers=8, racks=4, depth=3)),
        ("hashed", Request(workers=4, racks=2)),
        ("tree", Request(workers=8, topology="fat-tree")),
    ],
)
def test_switches_stand_above_what_is_below_them(program, request_, tmp_path):
    plan = make_plan(program, 32, request_)
    places = layout(plan)
    assert set(places) == {node.name for node in (*plan.switches, *plan.hosts)}
    assert len(set(places.values())) == len(places)
    bottom = max(level for _, level in places.values())
    assert all(places[host.name][1] == bottom for host in plan.hosts)
    assert places[plan.switches[0].name][1] == 0
    for a, b in plan.trunks():
        assert abs(places[a.node][1] - places[b.node][1]) == 1
    if request_.topology is None:
        for switch in plan.switches:  # in the middle
            below = [places[a.node][0] for a, b in plan.links if b.node == switch.name]
            below = below[: len(below) - (program == "hashed" and switch.name == "s1")]
            assert places[switch.name][0] == pytest.approx(sum(below) / len(below))
    draw_plan(plan, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_a_dumbbells_switches_stand_side_by_side(tmp_path):
    plan = plan_jobs("tree", 32, Request(workers=2, topology="dumbbell"), jobs=2)
    places = layout(plan)
    assert set(places) == {"s1", "s2", "h1", "h2", "h3", "h4"}
    assert places["s1"][1] == places["s2"][1] == 0
    assert abs(places["s1"][0] - places["s2"][0]) >= 1
    draw_plan(plan, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
