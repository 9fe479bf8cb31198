"""Networks of a thousand hosts: addresses, ports, groups and tables. Programs carry 32 workers so
far, so their limit is lifted where plans are made; see ``support.many_workers``.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict

import numpy as np
import pytest
from support.many_workers import allowed

from innet.core.errors import InputError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.mininet.settings import NetSettings
from innet.switch import Switch, load_program
from innet.topology import TOPOLOGIES, Port, Request, aggregation_of, make_plan
from innet.topology.topologies import FatTree, LeafSpine, Node, Tree, tree_of
from innet.topology.tree import members_below, shape_of
from innet.transport.memory import NetworkTransport, SwitchPort

NETWORKS = [
    ({}, 1000),
    ({"racks": 11}, 1000),
    ({"topology": "leaf-spine"}, 1024),
    ({"topology": "leaf-spine:spines=40", "racks": 200}, 1000),
    ({"topology": "fat-tree", "ports": 16}, 1024),
    ({"topology": "dumbbell"}, 1000),
]


@pytest.fixture(autouse=True)
def _allowed():
    with allowed(1 << 16):
        yield


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
    assert [member.port for member in plan.job.members[:99]] == list(range(1, 100))
    assert max(each.port for each in ends) <= MAX_PORT
    assert plan.distance(plan.workers[-1]) == plan.distances()[f"h{workers}"] <= 3


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
        assert tables["TreeIngress.family.admission"] == below + parent
        assert tables["NetworkEgress.deliver"] == below + parent
        assert tables["TreeIngress.family.position"] == 1
        nodes = [line.split() for line in switch.commands if line.startswith("mc_node_create")]
        assert len(nodes) == below
        assert {int(port) for _, _, port in nodes} <= neighbors[node.name]
        assert len({rid for _, rid, _ in nodes}) == below
        served |= {int(rid) for _, rid, _ in nodes} & set(node.local_workers)
        for table, size in (("admission", 1024), ("deliver", 512), ("position", 256)):
            assert all(number <= size for name, number in tables.items() if name.endswith(table))
    assert served == set(range(workers))


def test_a_switch_takes_what_it_is_told_but_for_the_masks():
    """Masks have 32 bits in the program of today."""
    plan = plan_of(1024)
    root, leaf = plan.switches[0], plan.switches[-1]
    program = load_program(root.program.json())
    for planned in (root, leaf):
        switch = Switch(program, "interpret")
        for line in planned.commands:
            words = line.split()
            if "=>" in words and words[1].startswith("TreeIngress"):
                at = words.index("=>") + 1
                words[at : at + 1] = [str(int(each) & 0xFFFFFFFF) for each in words[at : at + 1]]
            switch.command(" ".join(words))


@pytest.mark.parametrize(("shape", "workers"), NETWORKS)
def test_plans_take_no_time_and_memory_to_speak_of(shape, workers):
    begun = time.process_time()
    plan = plan_of(workers, **shape)
    after, commands = aggregation_of("tree").next_epoch(plan, frozenset({3}), lambda *_: ())
    assert time.process_time() - begun < 2.0  # some 0.04 s
    assert after.job.absent == {3}
    # Masks alone grow with the number of workers.
    told = sum(len(line) for each in plan.switches for line in each.commands)
    assert told < workers * (200 + workers)
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


def test_many_thousand_workers_have_places():
    root = Tree().shape(32768).root
    members = members_below(root, 0, 99, frozenset())
    assert len({(each.switch, each.port) for each in members}) == 32768
    assert len({each.endpoint.ip for each in members}) == 32768
    assert max(each.port for each in members) <= 99
    assert len(list(root.descend())) == 1057
    assert len(FatTree().shape(32768, 52).spare) > 0


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (Request(workers=1024, topology="star"), "1024 workers at switch s1; it has too few ports"),
        (Request(workers=1024, topology="dumbbell"), "512 workers at switch s1; .* more switches"),
        (Request(workers=1024, racks=1, depth=2), "1024 workers at switch s2; .* 1 to 510"),
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
    assert len(make_plan("slots", 32, Request(workers=510, window=8)).hosts) == 510
    with pytest.raises(InputError, match=r"511 workers .* ports for 510"):
        make_plan("slots", 32, Request(workers=511, window=8))


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
    leaves = tuple(Node(f"x{i}", i, range(i - 1, i)) for i in range(1, 202))
    shape = type(Tree().shape(4))(Node("top", 0, range(201), leaves))
    wide = type("Wide", (Tree,), {"shape": lambda self, workers: shape, "options": ()})
    monkeypatch.setitem(TOPOLOGIES._loaded, "wide", wide)
    with pytest.raises(InputError, match="201 switches below top"):
        make_plan("tree", 32, Request(workers=201, topology="wide"))
