"""Slots that leave trees where they meet congestion."""

from __future__ import annotations

import numpy as np
import pytest
from support.networks import BAD, MIXED, all_reduce, contributions, network, text_if_congested
from support.tiers import tiered

import innet
from innet.core.errors import InputError, StalledError
from innet.core.reduce_op import ReduceOp
from innet.network import Faults, Outage
from innet.programs import CompiledProgram
from innet.protocol import Timing
from innet.topology import Request, make_plan
from innet.topology.tree import trees_of

FOUR = "leaf-spine:racks=3,spines=4,trees=all"


@pytest.fixture
def always_congested(monkeypatch):
    monkeypatch.setattr(CompiledProgram, "text", text_if_congested)


def offsets(net, switch):
    """How far each slot has moved."""
    return [way & 0xFFFF for way in net.switches[switch].registers["way"]][: net.plan.job.slots]


@pytest.mark.parametrize("engine", tiered(["jit", "interpret"], ["jit"], "the same interpreted"))
@pytest.mark.usefixtures("always_congested")
def test_each_chunk_takes_another_tree_in_a_bad_network(engine):
    rng = np.random.default_rng(3)
    net = network("adaptive-tree", 9, topology=FOUR, faults=BAD, engine=engine, seed=1)
    for _ in range(3):
        all_reduce(net, contributions(rng, 9, MIXED))
        all_reduce(net, contributions(rng, 9, [(ReduceOp.SUM, 32 * 40)]))
    moved = offsets(net, "leaf1")
    assert all(moved)
    assert all(net.switches[root].statistics.packets_in > 100 for root in net.plan.roots)
    # All leaves agree, though each lost other packets.
    assert offsets(net, "leaf2") == offsets(net, "leaf3") == moved


@pytest.mark.usefixtures("always_congested")
def test_a_leaf_without_its_registers_is_silent_until_the_next_epoch():
    timing = Timing(timeout=0.002, max_timeout=0.05, give_up=0.5)
    net = network("adaptive-tree", 6, topology=FOUR, timing=timing)
    given = contributions(np.random.default_rng(0), 6, [(ReduceOp.SUM, 32 * 40)])
    all_reduce(net, given)
    for cells in net.switches["leaf2"].registers.values():
        cells[:] = 0
    for end, segments in zip(net.workers, given, strict=True):
        end.start(segments, net.now)
    with pytest.raises(StalledError, match="leaf2"):
        net.run()
    assert net.switches["leaf2"].counters["dropped"].packets[11]
    net.begin_epoch()
    all_reduce(net, given)
    assert offsets(net, "leaf2") == offsets(net, "leaf1")


def test_slots_stay_where_no_queue_is_long():
    net = network("adaptive-tree", 9, topology=FOUR, faults=BAD, seed=1)
    all_reduce(net, contributions(np.random.default_rng(0), 9, MIXED))
    assert not any(offsets(net, "leaf1"))


@pytest.mark.parametrize("direction", tiered(["up", "down"], ["down"], "the same on the way up"))
def test_slots_leave_a_congested_link(direction):
    """Three flows between racks that share one link take 120 % of it; tree loses packets there."""
    away = {"up": [(0, 4), (1, 8), (2, 12)], "down": [(4, 0), (8, 1), (12, 2)]}[direction]
    flows = [
        {"source": a, "destination": b, "rate": 40e9, "size": 1458, "path": 1} for a, b in away
    ]
    found = {
        program: innet.simulate(
            workers=16, size=1 << 21, program=program, thin=True, elements_per_packet=256,
            topology="leaf-spine:racks=4,spines=4,trees=all", network="100g:host=rdma",
            background={"flow": flows}, encode_time=0.0, decode_time=0.0,
        ).simulated
        for program in ("tree", "adaptive-tree")
    }  # fmt: skip
    assert found["adaptive-tree"].seconds < found["tree"].seconds / 2


def test_alone_it_takes_as_long_as_tree():
    seconds = {
        innet.simulate(
            workers=8, size=200_000, program=program, thin=True, network="100g",
            topology="leaf-spine:racks=4,spines=2,trees=2", encode_time=0.0, decode_time=0.0,
        ).simulated.seconds
        for program in ("tree", "adaptive-tree")
    }  # fmt: skip
    assert len(seconds) == 1


def test_which_trees_slots_move_between():
    for topology in ("leaf-spine:spines=3,trees=3", "fat-tree:ports=4,trees=2"):
        with pytest.raises(InputError, match=r"2, 4, 8, .* spines of a leaf-spine"):
            make_plan("adaptive-tree", 32, Request(workers=9, topology=topology))
    all_reduce(
        network("adaptive-tree", 5, topology="fat-tree:ports=4", faults=BAD),
        contributions(np.random.default_rng(0), 5, MIXED),
    )
    # Without a spine two of the other three are left.
    faults = Faults(outages=(Outage(0.0, switches=("spine2",)),))
    timing = Timing(timeout=0.01, max_timeout=0.05, give_up=0.5)
    net = network("adaptive-tree", 6, topology=FOUR, faults=faults, timing=timing)
    given = contributions(np.random.default_rng(0), 6, MIXED)
    for end, segments in zip(net.workers, given, strict=True):
        end.start(segments, net.now)
    with pytest.raises(StalledError, match="spine2"):
        net.run()
    net.begin_epoch()
    assert [root.name for root in trees_of(net.plan)] == ["spine1", "spine3"]
    all_reduce(net, given)
