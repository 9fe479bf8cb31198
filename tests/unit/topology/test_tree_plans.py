"""Trees of switches: their shapes, their cables, what each switch is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.core.errors import InputError
from innet.topology import Port, Request, make_plan
from innet.topology.topologies import tree_of


@given(workers=st.integers(1, 32), racks=st.integers(1, 32), depth=st.integers(1, 5))
def test_every_worker_is_below_one_leaf(workers, racks, depth):
    if racks > workers or (depth == 1 and racks > 1):
        with pytest.raises(InputError, match="racks"):
            tree_of(workers, racks, depth)
        return
    root = tree_of(workers, racks, depth)
    nodes = list(root.descend())
    leaves = [node for node in nodes if not node.children]
    assert len(leaves) == racks
    assert sorted(worker for leaf in leaves for worker in leaf.workers) == list(range(workers))
    sizes = [len(leaf.workers) for leaf in leaves]
    assert max(sizes) - min(sizes) <= 1
    assert root.mask == (1 << workers) - 1
    assert sorted(node.index for node in nodes) == list(range(len(nodes)))
    assert root.index == 0
    for node in nodes:
        if node.children:
            assert sum(child.mask for child in node.children) == node.mask
            assert len({child.identity for child in node.children}) == len(node.children)

    def levels(node):
        below = {levels(child) for child in node.children}
        assert len(below) <= 1
        return 1 + (below.pop() if below else 0)

    assert levels(root) == depth


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ((4, 5, 2), "5 racks for 4 workers"),
        ((4, 0, 2), "0 racks"),
        ((4, 2, 0), "depth of 0"),
        ((4, 2, 9), "depth of 9"),
        ((4, 2, 1), "need at least 2 levels"),
    ],
)
def test_trees_that_cannot_be(settings, match):
    with pytest.raises(InputError, match=match):
        tree_of(*settings)


def test_a_tree_is_wired():
    plan = make_plan("tree", 32, Request(workers=4, racks=2, window=8))
    assert [switch.name for switch in plan.switches] == ["s1", "s2", "s3"]
    assert plan.attachments() == {
        1: Port("s2", 1),
        2: Port("s2", 2),
        3: Port("s3", 3),
        4: Port("s3", 4),
    }
    assert set(plan.trunks()) == {
        (Port("s2", 100), Port("s1", 101)),
        (Port("s3", 100), Port("s1", 102)),
    }
    peers = {host.name: host.peer.ip for host in plan.hosts}
    assert peers["h1"] == peers["h2"] != peers["h3"] == peers["h4"]
    root = "\n".join(plan.switches[0].commands)
    # The second rack speaks for workers 2 and 3.
    assert "TreeIngress.admission.admit_switch 102 1 0 2 => 12" in root


def test_a_server_is_at_the_root():
    plan = make_plan("hashed", 32, Request(workers=4, racks=2, window=8))
    assert [host.name for host in plan.servers] == ["ps"]
    assert plan.attachment(plan.servers[0]) == Port("s1", 100)
    assert len(make_plan("hashed", 32, Request(workers=4)).switches) == 1
    assert make_plan("hashed", 32, Request(workers=4)).window == 512
    with pytest.raises(InputError, match="job's number is 0"):
        make_plan("hashed", 32, Request(workers=4, job=0))
