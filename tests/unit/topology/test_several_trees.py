"""A job's slots spread over several trees: which is summed where, and what if a root is down."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.networks import BAD, MIXED, all_reduce, contributions, network
from support.tiers import tiered

import innet
from innet.core.errors import ConfigError, InputError, StalledError, UnknownNameError
from innet.core.reduce_op import ReduceOp
from innet.network import Faults, Outage
from innet.protocol import Timing
from innet.sim import Network
from innet.switch import Switch, load_program
from innet.topology import (
    EmulatedNetwork,
    Request,
    Shape,
    Topology,
    TreeNode,
    aggregation_of,
    make_plan,
    plan_jobs,
)
from innet.topology.shapes.fat_tree import FatTree
from innet.topology.shapes.leaf_spine import LeafSpine
from innet.topology.topologies import TOPOLOGIES
from innet.topology.tree import all_trees, links_of, root_of, slot_classes, trees_of
from innet.wire import Endpoint, HeaderFlag, PacketLayout, pack

FOUR = "leaf-spine:racks=3,spines=4,trees=all"
CORES = "fat-tree:ports=4,trees=all"
NOT_ADMITTED = 5  # index of the counter of drops


def of_tree(node):
    """A switch and all below, with their ports."""
    return node.name, node.index, node.workers, links_of(node), tuple(map(of_tree, node.children))


def packets_of(net):
    return {name: switch.statistics.packets_in for name, switch in net.switches.items()}


@pytest.mark.parametrize(
    ("shape", "roots", "spare"),
    [
        (LeafSpine().shape(6, 3, 4, trees=0), "spine1 spine2 spine3 spine4", ""),
        (LeafSpine().shape(6, 3, 4, trees=2, root=4), "spine4 spine1", "spine2 spine3"),
        (LeafSpine().shape(6, 3, 3, root=2), "spine2", "spine3 spine1"),
        # The next tree of a fat-tree goes by other aggregation switches: 1 and 2 have the same.
        (FatTree().shape(16, 4, trees=0), "c1 c3 c2 c4", ""),
        (FatTree().shape(3, 4, trees=2, root=4), "c4 c2", "c1 c3 a7 a8 e2 e4 e5 e7 e8"),
    ],
)
def test_which_switches_are_roots_and_which_are_left(shape, roots, spare):
    assert [root.name for root in shape.roots] == roots.split()
    assert list(shape.spare) == spare.split()
    ends = Counter(end for link in shape.unused_links for end in link)
    assert set(ends.values()) <= {1}
    for root in shape.roots:
        assert root.workers == shape.root.workers
        assert {node.name for node in root.descend()}.isdisjoint(shape.spare)


@pytest.mark.parametrize("topology", [FOUR, CORES, "fat-tree:ports=6,trees=7,root=5"])
def test_a_plan_holds_its_trees(topology):
    name, _, options = topology.partition(":")
    given = {k: 0 if v == "all" else int(v) for k, v in (o.split("=") for o in options.split(","))}
    shape = TOPOLOGIES.get(name)().shape(9, **given)
    plan = make_plan("tree", 32, Request(workers=9, topology=topology))
    assert [*map(of_tree, all_trees(plan))] == [*map(of_tree, shape.roots)]
    assert trees_of(plan) == all_trees(plan)


@pytest.mark.parametrize(
    ("trees", "slots", "classes", "most"),
    [(1, 64, 1, 64), (4, 64, 4, 16), (3, 1024, 64, 352), (6, 1024, 128, 176), (8, 4, 4, 1)],
)
def test_slots_are_spread_evenly(trees, slots, classes, most):
    assert slot_classes(trees, slots) == classes
    roots = [TreeNode(f"root{i}", i, range(1)) for i in range(trees)]
    counts = Counter(root_of(roots, slot, slots).name for slot in range(slots))
    assert len(counts) == min(trees, slots)
    assert max(counts.values()) == most <= -(-slots // trees) * 17 / 16


@pytest.mark.parametrize(
    ("program", "topology", "values"),
    tiered(
        [
            ("tree", FOUR, 32),
            ("tree", "leaf-spine:racks=4,spines=3,trees=3,root=2", 32),
            ("tree", CORES, 32),
            ("collectives-tree", CORES, 64),
        ],
        [("tree", "leaf-spine:racks=4,spines=3,trees=3,root=2", 32), ("tree", CORES, 32)],
        "other numbers of trees and another program",
    ),
)
def test_sums_over_several_trees_in_a_bad_network(program, topology, values):
    rng = np.random.default_rng(3)
    net = network(program, 9, values=values, topology=topology, faults=BAD, seed=1)
    for _ in range(2):
        all_reduce(net, contributions(rng, 9, MIXED))
    assert all(packets_of(net)[root] for root in net.plan.roots)


@pytest.mark.parametrize("engine", tiered(["jit", "interpret"], ["jit"], "the same interpreted"))
@pytest.mark.parametrize(("topology", "trees"), [(FOUR, 4), (CORES, 4)])
def test_each_root_sums_its_part_of_the_slots(topology, trees, engine):
    net = network("tree", 9, topology=topology, engine=engine, window=8)
    all_reduce(net, contributions(np.random.default_rng(0), 9, [(ReduceOp.SUM, 32 * 48)]))
    counts = packets_of(net)
    tops = len(trees_of(net.plan)[0].children)
    assert [counts[root] for root in net.plan.roots] == [48 // trees * tops] * trees


def test_a_result_comes_down_the_tree_of_its_slot():
    plan = make_plan("tree", 32, Request(workers=6, topology=FOUR, window=4))
    planned = next(each for each in plan.switches if each.name == "leaf1")
    leaf = Switch(load_program(planned.program.json()), "interpret")
    for command in planned.commands:
        leaf.command(command)
    ports = (100, 202, 203, 204)  # to the spines of the slots 0, 1, 2 and 3
    frames = pack(
        PacketLayout(32), Endpoint.of_switch(0), Endpoint.of_switch(1), np.ones((4, 32), np.int32),
        operation=1, job=1, epoch=0, sequence=np.arange(1, 5), slot=np.arange(4), slot_version=0,
        worker=0, flags=int(HeaderFlag.RESULT), bitmap=7, count=6,
    )  # fmt: skip
    for port in ports:
        for own, frame in zip(ports, frames, strict=True):
            answers = leaf.process([(port, frame.tobytes())])
            assert sorted(out for out, _ in answers) == ([1, 2] if own == port else [])
    assert leaf.counters["dropped"].packets[NOT_ADMITTED] == 12


@pytest.mark.parametrize("topology", tiered([FOUR, CORES], [FOUR], "the same in a fat-tree"))
def test_slots_of_a_root_that_is_down_move_in_the_next_epoch(topology):
    rng = np.random.default_rng(5)
    down = make_plan("tree", 32, Request(workers=9, topology=topology)).roots[1]
    faults = Faults(delay=1e-3, tick=1e-3, outages=(Outage(0.0, 50.0, switches=(down,)),))
    timing = Timing(timeout=0.01, max_timeout=0.05, give_up=1.0)
    net = network("tree", 9, topology=topology, faults=faults, timing=timing)
    given = contributions(rng, 9, MIXED)
    for end, segments in zip(net.workers, given, strict=True):
        end.start(segments, net.now)
    with pytest.raises(StalledError, match=f"counted all workers.* are down: {down}"):
        net.run()
    # The others have all slots.
    net.begin_epoch()
    assert net.plan.down == {down}
    before = packets_of(net)[down]
    all_reduce(net, given)
    assert packets_of(net)[down] == before
    # It is back: it has its slots again in the next epoch, and no entries of older ones.
    net.now = 60.0
    all_reduce(net, given)
    assert packets_of(net)[down] == before
    net.begin_epoch()
    all_reduce(net, given)
    assert packets_of(net)[down] > before
    sizes = {name: len(switch.table_entries("position")) for name, switch in net.switches.items()}
    assert sizes[down] == 1
    # Alone it would be in every tree that there is, and so are leaves.
    leaf = net.plan.attachment(net.plan.hosts[0]).node
    for names in ({leaf}, set(net.plan.roots)):
        plan, _ = aggregation_of("tree").next_epoch(
            replace(net.plan, down=frozenset(names)), frozenset(), lambda *_: ()
        )
        assert len(trees_of(plan)) == 4


def test_a_collective_goes_on_without_a_root_in_simulated_time():
    faults = Faults(outages=(Outage(2e-4, switches=("spine2",)),))
    net = innet.Collective(
        workers=4, topology="leaf-spine:spines=3,trees=3", network="10g", faults=faults,
        program="tree", attempts=2, timing=Timing(timeout=1e-4, min_timeout=1e-5, give_up=0.01),
    )  # fmt: skip
    gradients = [np.full(100_000, worker, np.float32) for worker in range(4)]
    total, report = net.all_reduce(gradients)
    assert (total == 6).all()
    assert report.exact
    assert (net.network.plan.job.epoch, net.network.plan.down) == (1, {"spine2"})
    with pytest.raises(UnknownNameError, match="spine9"):
        innet.all_reduce(gradients, faults=Faults(outages=(Outage(0.0, switches=("spine9",)),)))


@pytest.mark.parametrize(
    ("topology", "trees"),
    tiered(
        [("leaf-spine:racks=4,spines=4", 4), ("fat-tree:ports=4", 4)],
        [("leaf-spine:racks=4,spines=4", 4)],
        "the same in a fat-tree",
    ),
)
def test_trunks_carry_so_many_times_as_much(topology, trees):
    """Closed form: each trunk of a root carries its part of the sums, at the trunk's rate."""
    gradients = [np.ones(2_000_000, np.float32)] * 8
    goodput = {}
    for each in (1, trees):
        _, report = innet.all_reduce(
            gradients, topology=f"{topology},trees={each}", thin=True,
            network="100g:trunk_rate=10e9",
        )  # fmt: skip
        assert report.simulated.limit.startswith("trunks")
        goodput[each] = report.simulated.goodput_gbps
    wire = 64 * 4 / (330 + 24)  # values of a packet's bytes
    uplinks = {1: 1, trees: 2 if "fat" in topology else trees}  # of a leaf, that are used
    for each, found in goodput.items():
        assert found == pytest.approx(uplinks[each] * 10 * wire, rel=0.02)


def test_jobs_and_racks_have_several_trees():
    shared = plan_jobs("tree", 32, Request(workers=4, topology=CORES, window=16), jobs=2)
    net = EmulatedNetwork(shared, network=Network(rate=10e9))
    given = contributions(np.random.default_rng(2), 4, MIXED)
    done = net.run_rounds([[given[0]], [given[0]]])
    assert sorted(each.job for each in done) == [0, 1]
    collective = innet.Collective(
        workers=6, topology=FOUR, program="tree", codec="dense", rack_codec="exact", window=64
    )
    gradients = [np.full(3000, worker, np.float32) for worker in range(6)]
    sums, report = collective.all_reduce(gradients, scope="rack")
    assert [each[0] for each in sums] == [1, 5, 9]
    collective.leave(2)
    total, report = collective.all_reduce(gradients[:2] + gradients[3:])
    assert (total[0], report.exact) == (13, True)


class Crossed(Topology):
    """Two trees, of which the second has a link that there is not."""

    def shape(self, workers: int) -> Shape:
        """See ``Topology``."""
        leaf = TreeNode("leaf", 1, range(workers))
        other = TreeNode("other", 2, range(workers), (leaf,), ((301, 201),))
        return Shape(TreeNode("first", 0, range(workers), (leaf,)), others=(other,))


def test_trees_that_cannot_be_are_refused(monkeypatch):
    for program, topology, match in (
        ("hashed", FOUR, "4 trees: hashed sums over one; leave trees out"),
        ("tree", "leaf-spine:spines=2,trees=3", "3 trees over 2 spines; give 1 to 2, or all"),
        ("tree", "leaf-spine:root=3", "the first root is spine 3; give 1 to 2"),
        ("tree", "fat-tree:trees=5", "5 trees over 4 cores"),
        ("tree", "tree:trees=2", "trees is 2, which a tree does not take"),
        ("tree", "leaf-spine:trees=most", "trees of the topology leaf-spine"),
    ):
        with pytest.raises(InputError, match=match):
            make_plan(program, 32, Request(workers=4, topology=topology))
    monkeypatch.setitem(TOPOLOGIES._loaded, "crossed", Crossed)
    with pytest.raises(ConfigError, match=r"other is the root of a tree with the link.*unused_lin"):
        make_plan("tree", 32, Request(workers=4, topology="crossed"))
