"""Fat-trees and dumbbells: what is where, sums over them, and several jobs on one network."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.networks import BAD, MIXED, PATIENT, all_reduce, contributions, network

import innet
from innet.core.errors import ConfigError, InputError
from innet.core.reduce_op import combine
from innet.network import FaultyTransport, drive
from innet.processes.settings import NetworkJobSettings
from innet.switch import Switch, load_program
from innet.topology import (
    Request,
    Shape,
    SharedPlan,
    TreeNode,
    aggregation_of,
    make_plan,
    plan_jobs,
)
from innet.topology.shapes.dumbbell import Dumbbell
from innet.topology.shapes.fat_tree import FatTree
from innet.topology.shapes.leaf_spine import LeafSpine
from innet.topology.topologies import TOPOLOGIES, Topology
from innet.topology.tree import shape_of
from innet.transport.memory import NetworkTransport, SwitchPort


@given(half=st.integers(1, 6), data=st.data())
def test_a_fat_tree_has_its_switches_and_links(half, data):
    ports = 2 * half
    workers = data.draw(st.integers(1, min(32, 2 * half**3)))
    found = FatTree().shape(workers, ports)
    nodes = list(found.root.descend())
    names = [node.name for node in nodes] + list(found.spare)
    kinds = Counter(name[0] for name in names)
    assert len(set(names)) == len(names)
    assert kinds == {"c": half**2, "a": ports * half, "e": ports * half}
    links = len(found.unused_links) + len(nodes) - 1
    assert links == 2 * ports * half * half  # edges to aggregation, aggregation to core
    ends = Counter(end for link in found.unused_links for end in link)
    assert set(ends.values()) <= {1}
    assert sorted(node.index for node in nodes) == list(range(len(nodes)))
    leaves = [node for node in nodes if not node.children]
    assert sorted(w for leaf in leaves for w in leaf.workers) == list(range(workers))
    sizes = [len(leaf.workers) for leaf in leaves]
    assert max(sizes) <= half
    assert max(sizes) - min(sizes) <= 1
    assert len(leaves) == min(workers, ports * half)


@pytest.mark.parametrize(("workers", "at_the_first"), [(2, 1), (4, 2), (5, 3), (32, 16)])
def test_half_of_the_workers_are_at_each_end_of_a_dumbbell(workers, at_the_first):
    first = Dumbbell().shape(workers).root
    (second,) = first.children
    assert first.local_workers == tuple(range(at_the_first))
    assert second.local_workers == tuple(range(at_the_first, workers))


def test_a_leaf_spine_has_its_switches_and_links():
    found = LeafSpine().shape(7, racks=3, spines=4)
    leaves = found.root.children
    assert [len(leaf.workers) for leaf in leaves] == [2, 2, 3]
    assert found.spare == ("spine2", "spine3", "spine4")
    assert len(found.unused_links) == 9
    ends = Counter(end for link in found.unused_links for end in link)
    assert set(ends.values()) == {1}


class Pair(Topology):
    """Two switches in a row; a topology of somebody's own."""

    options = ("left",)
    arguments = ("workers", *options)

    def shape(self, workers: int, left: int = 1) -> Shape:
        """See ``Topology``."""
        end = TreeNode("far", 1, range(left, workers))
        return Shape(TreeNode("near", 0, range(workers), (end,)))


def test_a_topology_of_ones_own_is_registered_in_one_place(monkeypatch):
    monkeypatch.setitem(TOPOLOGIES._loaded, "pair", Pair)
    gradients = [np.full(300, each, np.float32) for each in (1, 2, 3)]
    total, report = innet.all_reduce(gradients, topology="pair:left=2")
    assert (total == 6).all()
    assert report.exact
    assert report.program == "tree-64"
    settings = NetworkJobSettings(workers=3, topology="pair:left=2")
    assert [each.name for each in settings.plan().switches] == ["near", "far"]
    assert "pair" in TOPOLOGIES


def test_what_is_registered_has_to_be_a_topology(monkeypatch):
    monkeypatch.setitem(TOPOLOGIES._loaded, "none", 3)
    with pytest.raises(ConfigError, match=r"has to be a class derived from innet\.topology"):
        make_plan("tree", 32, Request(workers=2, topology="none"))
    monkeypatch.setitem(TOPOLOGIES._loaded, "none", Topology)
    with pytest.raises(ConfigError, match="its class Topology lacks"):
        make_plan("tree", 32, Request(workers=2, topology="none"))


def two_racks(first, second, of=range(4), numbers=(1, 2)):
    racks = (TreeNode("s2", numbers[0], first), TreeNode("s3", numbers[1], second))
    return Shape(TreeNode("s1", 0, of, racks))


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        (TreeNode("s1", 0, range(4)), "its shape is a TreeNode; return a Shape"),
        (two_racks(range(2), range(2, 4), numbers=(1, 1)), r"indices \[0, 1, 1\]; give the root 0"),
        (two_racks(range(2), range(2, 4), numbers=(2, 3)), r"and the others 1 to 2, each once"),
        (two_racks(range(2), range(2, 3), range(3)), r"root s1 has .*; give it all, range\(4\)"),
        (two_racks(range(3), range(2, 4)), "s1 has .* below have .*; give each of them a separate"),
        (two_racks(range(2), range(2, 5)), "s1 has .* below have .*; give each of them a separate"),
        (two_racks(range(4), range(4, 4)), "no worker is below s3; list it in Shape.spare"),
    ],
)
def test_a_shape_that_is_no_network(monkeypatch, shape, match):
    wrong = type("Wrong", (Topology,), {"shape": lambda self, workers: shape})
    monkeypatch.setitem(TOPOLOGIES._loaded, "wrong", wrong)
    with pytest.raises(ConfigError, match=f"topology 'wrong': .*{match}"):
        make_plan("tree", 32, Request(workers=4, topology="wrong"))


@pytest.mark.repeats(
    "each topology with and without faults",
    but=[
        "tree-4-*-bad",
        "tree-5-*-perfect",
        "tree-7-*-bad",
        "slots-*-bad",
        "hashed-4-*-bad",
        "tree-16-*-perfect",
    ],
)
@pytest.mark.parametrize("faults", [None, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize(
    ("program", "workers", "shape"),
    [
        ("tree", 4, {"topology": "fat-tree"}),
        ("tree", 16, {"topology": "fat-tree", "ports": 4}),
        ("tree", 2, {"topology": "fat-tree", "ports": 2}),
        ("tree", 5, {"topology": "dumbbell"}),
        ("tree", 3, {"topology": "star"}),
        ("tree", 7, {"topology": "leaf-spine:spines=3", "racks": 3}),
        ("slots", 3, {"topology": "star"}),
        ("hashed", 4, {"topology": "leaf-spine"}),
        ("hashed", 8, {"topology": "fat-tree"}),
        ("hashed", 4, {"topology": "dumbbell"}),
        *(("tree", 4, {"topology": name}) for name in TOPOLOGIES.names()),
    ],
    ids=str,
)
def test_exact_over_any_topology(program, workers, shape, faults):
    rng = np.random.default_rng(workers)
    net = network(program, workers, faults=faults, seed=workers, **shape)
    for _ in range(2):
        all_reduce(net, contributions(rng, workers, MIXED))
    net.begin_epoch(absent=[1])
    assert {node.name for node in shape_of(net.plan).descend()} == {
        switch.name for switch in net.plan.switches if switch.commands
    }


@pytest.mark.parametrize(
    ("program", "request_", "match"),
    [
        ("tree", Request(workers=17, topology="fat-tree"), "a fat-tree of 4 has 16 hosts"),
        ("tree", Request(workers=2, topology="fat-tree", ports=3), "a fat-tree of 3-port"),
        ("tree", Request(workers=2, topology="fat-tree", racks=2), "does not take; it takes ports"),
        ("tree", Request(workers=1, topology="dumbbell"), "at least 2"),
        ("tree", Request(workers=2, ports=4), "ports is 4, which a tree does not take"),
        ("tree", Request(workers=2, topology="fat"), "unknown topology 'fat'"),
        ("tree", Request(workers=2, topology="leaf-spine", depth=2), "it takes racks and spines"),
        ("tree", Request(workers=2, topology="leaf-spine:spines=0"), "0 spines; give 1 to"),
        ("tree", Request(workers=2, topology="leaf-spine:spines=x"), "'x'; give an integer"),
        ("tree", Request(workers=2, topology="leaf-spine:spines"), "write NAME, or NAME:KEY=VALUE"),
        ("slots", Request(workers=2, topology="tree"), "topology is tree; slots knows one switch"),
        ("slots", Request(workers=2, topology="fat-tree"), "knows one switch only"),
    ],
)
def test_networks_that_cannot_be(program, request_, match):
    with pytest.raises(InputError, match=match):
        make_plan(program, 32, request_)


@pytest.mark.parametrize(
    ("program", "jobs", "request_", "match"),
    [
        ("slots", 3, Request(workers=2, window=512), "beside the 1024 slots of other jobs"),
    ],
)
def test_jobs_that_cannot_be(program, jobs, request_, match):
    with pytest.raises(InputError, match=match):
        plan_jobs(program, 32, request_, jobs)


def test_programs_of_others_may_serve_one_job_alone(monkeypatch):
    monkeypatch.setattr(type(aggregation_of("hashed")), "shares", False)
    with pytest.raises(InputError, match="2 jobs: hashed serves one job"):
        plan_jobs("hashed", 32, Request(workers=2), 2)


def test_many_jobs_of_hashed_have_ports_and_addresses_of_their_own():
    shared = plan_jobs("hashed", 32, Request(workers=16), 30)
    ends = Counter(end for link in shared.links for end in link)
    assert set(ends.values()) == {1}
    assert len({host.endpoint.ip for host in shared.hosts}) == len(shared.hosts) == 510
    with pytest.raises(InputError, match="Choose fewer jobs"):
        plan_jobs("hashed", 32, Request(workers=16), 31)


def test_two_jobs_have_nothing_in_common():
    shared = plan_jobs("tree", 32, Request(workers=4, topology="dumbbell"), jobs=2)
    first, second = shared.jobs
    assert (first.job.number, second.job.number) == (1, 2)
    assert first.window == second.window == 512
    assert (first.job.slot_base, second.job.slot_base) == (0, 512)
    assert [host.name for host in shared.hosts] == [f"h{i}" for i in range(1, 9)]
    assert len(shared.links) == 9
    assert len(plan_jobs("slots", 32, Request(workers=2), 3).jobs[2].hosts) == 2
    again = Request(workers=4, topology="dumbbell", window=512, existing_jobs=(first,))
    with pytest.raises(InputError, match="there is a job 1 already"):
        make_plan("tree", 32, again)


@pytest.mark.parametrize(
    ("program", "request_", "jobs", "room"),
    [
        ("slots", Request(workers=30), 17, 510),
        ("tree", Request(workers=30, racks=1, depth=1), 17, 510),
        # All ports but 100, which leads up, and those of the switches below.
        ("tree", Request(workers=32, topology="dumbbell"), 31, 992),
        ("tree", Request(workers=30, racks=3), 50, 1500),
    ],
)
def test_as_many_jobs_as_there_are_ports_for(program, request_, jobs, room):
    shared = plan_jobs(program, 32, request_, jobs)
    assert len(shared.hosts) == room == len({host.endpoint.ip for host in shared.hosts})
    ends = Counter(end for link in shared.links for end in link)
    assert set(ends.values()) == {1}
    full = f"beside the {room} of .* ports for {room}. Choose fewer|too few ports .*: 1 to 510"
    with pytest.raises(InputError, match=full):
        plan_jobs(program, 32, request_, jobs + 1)


def test_one_job_of_several_goes_on_under_another_epoch():
    shared = plan_jobs("tree", 32, Request(workers=4, topology="dumbbell"), jobs=2)
    first, second = shared.jobs
    renewed, _ = aggregation_of("tree").next_epoch(second, frozenset({1}), lambda *_: ())
    assert shared.with_job(renewed).jobs == (first, renewed)
    assert renewed.job.epoch == second.job.epoch + 1


def test_a_program_for_one_job_serves_one():
    (plan,) = plan_jobs("hashed", 32, Request(workers=2)).jobs
    assert plan == make_plan("hashed", 32, Request(workers=2))


@pytest.mark.parametrize(
    ("program", "shape", "links"),
    [
        ("slots", {}, {1}),
        ("tree", {"racks": 2}, {2}),
        ("tree", {"racks": 4, "depth": 3}, {3}),
        ("tree", {"topology": "dumbbell"}, {1, 2}),  # its root is one of its two switches
        ("tree", {"topology": "fat-tree"}, {3}),
    ],
)
def test_how_far_workers_are_from_the_root(program, shape, links):
    plan = make_plan(program, 32, Request(workers=4, **shape))
    assert {plan.distance(host) for host in plan.workers} == links


def joined(shared: SharedPlan):
    """The network with the ends of all jobs' workers, and by job which are whose."""
    switches = {}
    for planned in shared.switches:
        switches[planned.name] = Switch(load_program(planned.program.json()))
        for line in planned.commands:
            switches[planned.name].command(line)
    places, ends, whose = {}, {}, []
    for plan in shared.jobs:
        mine = {}
        for host in plan.hosts:
            number = len(places) + 1
            place = plan.attachment(host)
            places[number] = SwitchPort(place.node, place.port)
            mine[number] = aggregation_of(plan.aggregation).worker_end(plan, host, PATIENT)
        ends |= mine
        whose.append(list(mine.values()))
    transport = NetworkTransport(
        {name: switch.process_batch for name, switch in switches.items()},
        places,
        [(SwitchPort(*a), SwitchPort(*b)) for a, b in shared.jobs[0].trunks()],
    )
    return transport, ends, whose


@pytest.mark.repeats("the same with other topologies", but=["tree-shape0-2", "slots-*"])
@pytest.mark.parametrize(
    ("program", "shape", "jobs"),
    [
        ("tree", {"topology": "dumbbell"}, 2),
        ("tree", {"topology": "fat-tree"}, 2),
        ("tree", {"racks": 2}, 3),
        ("slots", {}, 3),
    ],
)
def test_jobs_at_once_have_their_own_sums(program, shape, jobs):
    rng = np.random.default_rng(jobs)
    shared = plan_jobs(program, 32, Request(workers=4, window=8, **shape), jobs)
    transport, ends, whose = joined(shared)
    bad = FaultyTransport(transport, BAD, rng)
    now = 0.0
    for _ in range(2):
        given = [contributions(rng, 4, MIXED) for _ in whose]
        for mine, theirs in zip(whose, given, strict=True):
            for end, segments in zip(mine, theirs, strict=True):
                end.start(segments, now)
        now = drive(ends, bad, now)
        for mine, theirs in zip(whose, given, strict=True):
            for index, segment in enumerate(theirs[0]):
                words = combine(segment.operation, [each[index].words for each in theirs])
                for end in mine:
                    np.testing.assert_array_equal(end.results()[index], words)
    assert sum(end.counters.retransmissions for end in ends.values()) > 0
