"""Networks of a thousand hosts and more: addresses, ports, groups and tables."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

import numpy as np
import pytest

from innet.core.errors import InputError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.mininet.settings import NetSettings
from innet.switch import Switch, load_program
from innet.topology import (
    TOPOLOGIES,
    Port,
    Request,
    aggregation_of,
    make_plan,
    plan_jobs,
)
from innet.topology.shapes.leaf_spine import LeafSpine
from innet.topology.shapes.tree import BalancedTree, tree_of
from innet.topology.topologies import TreeNode
from innet.topology.tree import members_below, shape_of
from innet.transport.memory import NetworkTransport, SwitchPort

NETWORKS = [
    ({}, 1000),
    ({}, 1024),
    pytest.param({}, 3000, marks=pytest.mark.repeats("three levels of fewer workers")),
    ({"racks": 200, "depth": 3}, 1000),
    ({"topology": "leaf-spine"}, 1024),
    ({"topology": "leaf-spine:spines=40", "racks": 32}, 1000),
    ({"topology": "fat-tree", "ports": 16}, 1024),
    ({"topology": "dumbbell"}, 62),
]


def plan_of(workers, **shape):
    return make_plan("tree", 32, Request(workers=workers, window=8, **shape))


@pytest.mark.parametrize(("shape", "workers"), NETWORKS)
def test_addresses_and_ports(shape, workers):
    plan = plan_of(workers, **shape)
    assert [host.name for host in plan.workers] == [f"h{i + 1}" for i in range(workers)]
    root = shape_of(plan)
    everyone = {host.endpoint for host in plan.hosts} | {host.peer for host in plan.hosts}
    leaves = sum(bool(node.local_workers) for node in root.descend())
    assert len({each.ip for each in everyone}) == workers + leaves
    assert len({each.mac for each in everyone}) == workers + leaves
    ends = Counter(end for link in plan.links for end in link)
    assert set(ends.values()) == {1}
    where = plan.attachments()
    for number, member in enumerate(plan.job.members):
        assert where[number + 1] == Port(member.switch, member.port)
    # The first 99 have the ports that they have in a small network.
    assert [member.port for member in plan.job.members[:99]] == list(range(1, min(workers, 99) + 1))
    assert max(each.port for each in ends) <= MAX_PORT
    assert plan.distance(plan.workers[-1]) == plan.distances()[f"h{workers}"] <= 4


@pytest.mark.parametrize(("shape", "workers"), NETWORKS)
def test_tables_and_groups(shape, workers):
    """What each switch is told concerns its neighbors alone, and fits the program's tables."""
    plan = plan_of(workers, **shape)
    neighbors = defaultdict(set)
    for link in plan.links:
        for end in link:
            neighbors[end.node].add(end.port)
    served = set()
    for node in shape_of(plan).descend():
        switch = next(each for each in plan.switches if each.name == node.name)
        tables = Counter(line.split()[1] for line in switch.commands if "table_add" in line)
        below = len(node.children) + len(node.local_workers)
        parent = node.index > 0
        assert tables["TreeIngress.admission.admission"] == below + parent
        assert tables["NetworkEgress.deliver"] == below + parent
        assert tables["TreeIngress.admission.position"] == 1
        nodes = [line.split() for line in switch.commands if line.startswith("mc_node_create")]
        assert len(nodes) == below
        assert {int(port) for _, _, port in nodes} <= neighbors[node.name]
        assert len({rid for _, rid, _ in nodes}) == below
        served |= {int(rid) for _, rid, _ in nodes} & set(node.local_workers)
        for table, size in (("admission", 1024), ("deliver", 512), ("position", 256)):
            assert all(number <= size for name, number in tables.items() if name.endswith(table))
    assert served == set(range(workers))


@pytest.mark.parametrize(("shape", "workers"), NETWORKS)
def test_bits(shape, workers):
    """Each switch has a bit for each neighbor below, and each below is told its own."""
    plan = plan_of(workers, **shape)
    switches = {each.name: each for each in plan.switches}
    for node, parent in shape_of(plan).with_parents():
        told = defaultdict(list)  # action -> its arguments, of each entry
        for line in switches[node.name].commands:
            if line.startswith("table_add"):
                key, _, arguments = line.partition(" => ")
                told[key.split()[2].rpartition(".")[2]].append(arguments.split())
        bits = [int(each[0]) for each in told["admit_worker"] + told["admit_switch"]]
        below = len(node.children) + len(node.local_workers)
        assert sorted(bits) == [1 << bit for bit in range(below)]
        (position,) = told["set_root"] + told["set_inner"]
        assert int(position[0]) == (1 << below) - 1
        if parent is None:
            assert int(position[-1]) == workers
        else:
            assert told["admit_parent"] == [[str(1 << parent.children.index(node))]]
        for bit, worker in enumerate(node.local_workers, start=len(node.children)):
            member = plan.membership(plan.workers[worker]) if worker < 64 else None
            assert plan.job.members[worker].bit == bit
            assert member is None or member.bit == bit


def test_a_switch_takes_what_it_is_told():
    plan = plan_of(1024)
    program = load_program(plan.switches[0].program.json())
    for planned in (plan.switches[0], plan.switches[-1]):
        switch = Switch(program, "interpret")
        for line in planned.commands:
            switch.command(line)


@pytest.mark.parametrize(("shape", "workers"), NETWORKS)
def test_plans_take_no_time_and_memory_to_speak_of(shape, workers):
    """As many calls of functions as there are workers, times a number that does not grow."""
    plan_of(4)  # what is read once
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        plan = plan_of(workers, **shape)
        after, commands = aggregation_of("tree").next_epoch(plan, frozenset({3}), lambda *_: ())
    finally:
        sys.setprofile(before)
    assert calls < 200 * workers, calls / workers
    assert after.job.absent == {3}
    told = sum(len(line) for each in plan.switches for line in each.commands)
    assert told < workers * 450
    assert set(commands) == {node.name for node in shape_of(plan).descend()}


@pytest.mark.parametrize(
    ("workers", "racks", "depth", "sizes"),
    [
        (33, None, None, [1, 2]),
        (64, None, None, [1, 2]),
        (65, None, None, [1, 3]),
        (1024, None, None, [1, 32]),
        (1025, None, None, [1, 6, 33]),
        (32768, None, None, [1, 32, 1024]),
        (100, 40, None, [1, 7, 40]),
        (100, 40, 2, [1, 40]),
        (32768, None, 1, [1]),
    ],
)
def test_trees_by_default(workers, racks, depth, sizes):
    level, found = [tree_of(workers, racks, depth)], []
    while level:
        found.append(len(level))
        assert max(len(node.children) for node in level) <= max(32, racks or 0)
        level = [child for node in level for child in node.children]
    assert found == sizes


@pytest.mark.repeats("plans of 1,024 workers, and the largest number that is refused")
def test_a_plan_of_the_largest_job():
    """32,768 workers below three levels of 32: 3 s, and 100 MiB."""
    plan = plan_of(32768)
    root = shape_of(plan)
    after, commands = aggregation_of("tree").next_epoch(plan, frozenset({3}), lambda *_: ())
    assert len(list(root.descend())) == len(commands) == 1057
    assert {len(node.children) + len(node.local_workers) for node in root.descend()} == {32}
    members = plan.job.members
    assert len({(each.switch, each.port) for each in members}) == 32768
    assert len({each.endpoint.ip for each in members}) == 32768
    assert max(each.port for each in members) <= 99
    assert {each.bit for each in members} == set(range(32))
    assert after.job.present == (*range(3), *range(4, 32768))
    assert plan.membership(plan.workers[-1]).bit == 31


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (Request(workers=1024, racks=201, depth=2), "201 switches below s1; .* for 200 of them"),
        (Request(workers=1024, racks=201, topology="leaf-spine"), "201 switches below spine1"),
        (Request(workers=1024, topology="leaf-spine:spines=201"), "201 spines; give 1 to 200"),
        (Request(workers=8192, racks=8192), r"tree of \d+ switches; choose at most 4096"),
        (Request(workers=1024, topology="fat-tree", ports=54), "give 2, 4, ... 52"),
    ],
)
def test_what_a_switch_has_no_ports_for_is_refused(request_, match):
    with pytest.raises(InputError, match=match):
        make_plan("tree", 32, request_)


def test_a_star_has_510_ports():
    """Of one job or of several."""
    shared = plan_jobs("slots", 32, Request(workers=30, window=8), jobs=17)
    assert len(shared.hosts) == 510
    beside = plan_jobs("slots", 32, Request(workers=30, window=8), jobs=16).jobs
    with pytest.raises(InputError, match=r"31 workers beside the 480 of other jobs; .* 510"):
        make_plan("slots", 32, Request(workers=31, window=8, job=99, existing_jobs=beside))


def test_what_ports_and_bits_there_are_for_members():
    """Without child bits a switch takes as many as it has ports."""
    root = BalancedTree().shape(1024, 2, 2).root
    with pytest.raises(InputError, match="512 workers at switch s2; it has too few ports"):
        members_below(root, 0, 99, frozenset())
    root = BalancedTree().shape(1000, 2, 2).root
    members = members_below(root, 0, 99, frozenset())
    assert len({(each.switch, each.port) for each in members}) == 1000
    assert {each.bit for each in members} == {None}
    with pytest.raises(InputError, match="500 workers and switches directly below s2"):
        members_below(root, 0, 99, frozenset(), child_bits=True)


def test_a_thousand_hosts_of_a_network_in_memory():
    """Each switch returns what arrives to where it came from; leaves hand it up, the root back."""
    root = LeafSpine().shape(1000).root
    members = members_below(root, 0, 99, frozenset())
    hosts = {i + 1: SwitchPort(each.switch, each.port) for i, each in enumerate(members)}
    trunks = [
        (SwitchPort(leaf.name, 100), SwitchPort("spine1", 101 + i))
        for i, leaf in enumerate(root.children)
    ]

    def leaf(packets):
        up = packets.port == 100
        back = packets.data[:, 0].astype(np.int32) << 8 | packets.data[:, 1]
        return PacketBatch(packets.data, packets.length, np.where(up, back, 100).astype(np.int32))

    switches = {each.name: leaf for each in root.children} | {"spine1": lambda packets: packets}
    network = NetworkTransport(switches, hosts, trunks)
    for number, end in hosts.items():
        frame = np.array([[end.port >> 8, end.port & 255, number >> 8, number & 255]], np.uint8)
        network.send(PacketBatch.uniform(frame, number), 0.0)
    arrived = network.receive(0.0)
    names = arrived.data[:, 2].astype(int) << 8 | arrived.data[:, 3]
    assert sorted(arrived.port.tolist()) == list(range(1, 1001))
    assert (names == arrived.port).all()
    with pytest.raises(InputError, match=r"in 0 \.\. 65535"):
        NetworkTransport({"s": leaf}, {65536: SwitchPort("s", 1)})


def test_timeouts_follow_the_longest_way():
    settings = NetSettings(workers=8, topology="tree:racks=4,depth=3", link_delay=10.0)
    assert settings.completed().timeout == pytest.approx(settings.timeout + 4 * 3 * 0.01)


def test_topologies_of_ones_own_may_have_few_neighbors_only(monkeypatch):
    leaves = tuple(TreeNode(f"x{i}", i, range(i - 1, i)) for i in range(1, 202))
    shape = type(BalancedTree().shape(4))(TreeNode("top", 0, range(201), leaves))
    wide = type("Wide", (BalancedTree,), {"shape": lambda self, workers: shape, "options": ()})
    monkeypatch.setitem(TOPOLOGIES._loaded, "wide", wide)
    with pytest.raises(InputError, match="201 switches below top"):
        make_plan("tree", 32, Request(workers=201, topology="wide"))
