"""Pictures of plans: where nodes stand, and that a file comes out."""

from __future__ import annotations

import pytest

from innet.plan import Request, make_plan
from innet.report.topology import draw_plan, layout


@pytest.mark.parametrize(
    ("program", "request_"),
    [
        ("slots", Request(workers=3)),
        ("tree", Request(workers=8, racks=4, depth=3)),
        ("hashed", Request(workers=4, racks=2)),
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
    draw_plan(plan, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
