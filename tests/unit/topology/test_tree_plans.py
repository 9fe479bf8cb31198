"""Trees of switches: their shapes, their cables, what each switch is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.core.errors import InputError
from innet.protocol import Timing
from innet.topology import Port, Request, aggregation_of, make_plan
from innet.topology.shapes.tree import tree_of


@given(workers=st.integers(1, 200), racks=st.integers(1, 40), depth=st.integers(1, 5))
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
    admission = "table_add TreeIngress.admission.admission TreeIngress.admission."
    position = "table_add TreeIngress.admission.position TreeIngress.admission."
    told = {
        switch.name: [line for line in switch.commands if "TreeIngress" in line]
        for switch in plan.switches
    }
    fence = f"register_write TreeIngress.pool.fence 0 {~(1 << 16) & 0xFFFFFFFF}"
    assert told["s1"] == [
        fence,
        # The racks are bits 1 and 2, and have two workers each.
        f"{admission}admit_switch 101 1 0 0 => 1 2",
        f"{admission}admit_switch 102 1 0 2 => 2 2",
        f"{position}set_root 1 0 => 3 1 0 7 1 0 4",
    ]
    assert told["s3"] == [
        fence,
        f"{admission}admit_worker 3 1 0 2 => 1",
        f"{admission}admit_worker 4 1 0 3 => 2",
        f"{admission}admit_parent 100 1 0 2 => 2",
        f"{position}set_inner 1 0 => 3 1 0 7 0 0 100 2",
    ]


def test_the_fence_is_written_once_in_an_epoch_and_before_anybody_is_admitted():
    plan = make_plan("tree", 32, Request(workers=5, racks=2, window=8, allow_partial=True))
    fences = []
    for epoch in range(3):
        if epoch:
            plan, commands = aggregation_of("tree").next_epoch(
                plan, frozenset({epoch}), lambda _switch, _table: [4, 5]
            )
        else:
            commands = {switch.name: switch.commands for switch in plan.switches}
        for lines in commands.values():
            (fence,) = (each for each in lines if each.startswith("register_write"))
            kinds = [line.split()[0] for line in lines if "TreeIngress" in line]
            assert kinds == sorted(kinds, key=["table_delete", "register_write", "table_add"].index)
            fences.append(fence)
    assert len(set(fences)) == 3
    assert fences[0].split()[-1] == str(~(1 << 16 | 0) & 0xFFFFFFFF)


def test_the_job_and_epoch_whose_fence_would_be_that_of_a_lost_switch():
    with pytest.raises(InputError, match="job 65535 has no epoch 65535"):
        make_plan("tree", 32, Request(workers=2, job=0xFFFF, epoch=0xFFFF))
    plan = make_plan("tree", 32, Request(workers=2, job=0xFFFF, epoch=0xFFFE))
    after, commands = aggregation_of("tree").next_epoch(plan, frozenset(), lambda *_: ())
    assert after.job.epoch == 0
    assert commands["s1"][0].split()[-1] == str(0x0000FFFF)


def test_an_empty_rack_is_told_nothing_but_the_fence():
    plan = make_plan("tree", 32, Request(workers=4, racks=2, window=8))
    after, commands = aggregation_of("tree").next_epoch(plan, frozenset({2, 3}), lambda *_: ())
    assert [line.split()[0] for line in commands["s3"]] == ["register_write"]
    assert after.job.present == (0, 1)
    root = commands["s1"][-1]
    assert root.endswith("set_root 1 1 => 1 1 0 7 1 0 2")  # its first child, two workers


def test_partial_results_that_switches_were_not_told_of_are_refused():
    plan = make_plan("tree", 32, Request(workers=4, racks=2, window=8))
    timing = Timing(partial_after=0.1)
    with pytest.raises(InputError, match=r"plan it with Request\(allow_partial=True\)"):
        aggregation_of("tree").worker_end(plan, plan.hosts[0], timing)


def test_a_server_is_at_the_root():
    plan = make_plan("hashed", 32, Request(workers=4, racks=2, window=8))
    assert [host.name for host in plan.servers] == ["ps"]
    assert plan.attachment(plan.servers[0]) == Port("s1", 100)
    assert len(make_plan("hashed", 32, Request(workers=4)).switches) == 1
    assert make_plan("hashed", 32, Request(workers=4)).window == 512
    with pytest.raises(InputError, match="job's number is 0"):
        make_plan("hashed", 32, Request(workers=4, job=0))
