"""Topologies of traffic files: all that are registered, their ports, and one of somebody's own."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import innet
from innet.core.errors import ConfigError, InputError
from innet.scenarios.jobs import simulate_jobs
from innet.scenarios.simulate import simulate
from innet.scenarios.traffic import simulate_traffic
from innet.scenarios.traffic_file import read_scenario
from innet.topology import PlannedLink, Port, Shape, Topology, TreeNode
from innet.topology.topologies import SPARE_DOWN, SPARE_UP, TOPOLOGIES

FLOW = "[[flow]]\nsource = 0\ndestination = {}\nsize = 100\npackets = 9\ninterval = 1e-6\n"


def scenario(folder, topology, last=1):
    path = folder / "flows.toml"
    path.write_text(f"[topology]\n{topology}\n{FLOW.format(last)}")
    return path


def cables(path):
    """Ends of all cables, as text, and all ports by switch."""
    found, ports = [], {}
    for cable in read_scenario(path).cables:
        far = f"{cable.other}:{cable.other_port}" if cable.host is None else f"host {cable.host}"
        found.append(f"{cable.switch}:{cable.port} {far}")
        ports.setdefault(cable.switch, []).append(cable.port)
        if cable.host is None:
            ports.setdefault(cable.other, []).append(cable.other_port)
    return found, ports


class Ring(Topology):
    """Three switches, each with a link to both others; all hosts but one are at the last."""

    options = ("chord",)

    def shape(self, workers: int, chord: int = 1) -> Shape:
        """See ``Topology``."""
        ends = TreeNode("left", 1, range(1)), TreeNode("right", 2, range(1, workers))
        link = PlannedLink(Port("left", SPARE_UP), Port("right", SPARE_DOWN))
        return Shape(TreeNode("top", 0, range(workers), ends), (), (link,) * chord)


@pytest.fixture
def _ring(monkeypatch):
    monkeypatch.setitem(TOPOLOGIES._loaded, "ring", Ring)


@pytest.mark.usefixtures("_ring")
def test_a_topology_of_ones_own_is_known_to_all_reduces_traffic_jobs_and_baselines(tmp_path):
    total, report = innet.all_reduce(
        [np.full(40, n, np.float32) for n in (1, 2, 3)], topology="ring"
    )
    assert (total == 6).all()
    assert report.exact
    path = scenario(tmp_path, 'kind = "ring"\nhosts = 3')
    found, _ = cables(path)
    hosts = ["left:1 host 0", "right:1 host 1", "right:2 host 2"]
    assert found == [*hosts, "left:2 right:3", "left:3 top:1", "right:4 top:2"]
    (flow,) = simulate_traffic(path).flows
    assert flow.received == 9
    # The chord is a shorter way than that over the root, which jobs take.
    without = scenario(tmp_path, 'kind = "ring:chord=0"\nhosts = 3')
    (longer,) = simulate_traffic(without).flows
    assert longer.mean_delay > flow.mean_delay
    record = simulate(workers=3, size=2000, topology="ring", baselines=("ring",))
    assert record.exact
    assert record.baselines["ring"].simulated.packets > 0
    jobs = simulate_jobs([{}, {}], workers=3, size=2000, topology="ring", program="tree", thin=True)
    assert len(jobs.jobs) == 2


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_each_topology_carries_traffic_and_numbers_its_ports_without_gaps(tmp_path, name):
    path = scenario(tmp_path, f'kind = "{name}"\nhosts = 6', last=5)
    found, ports = cables(path)
    assert sum("host" in cable for cable in found) == 6
    for used in ports.values():
        assert sorted(used) == list(range(1, len(used) + 1))
    (flow,) = simulate_traffic(path).flows
    assert flow.received == 9


def test_a_fat_tree_has_all_its_links_and_paths(tmp_path):
    found, ports = cables(scenario(tmp_path, 'kind = "fat-tree"\nports = 4\nhosts = 16'))
    assert len(found) == 48
    assert Counter(len(used) for used in ports.values()) == {4: 20}
    assert found[16:18] == ["e1:3 a1:1", "e1:4 a2:1"]


def test_a_leaf_spine_is_as_in_files_that_were_written_before(tmp_path):
    old, _ = cables(scenario(tmp_path, 'kind = "leaf_spine"\nhosts = 5\nleaves = 2\nspines = 2'))
    hosts = [f"leaf1:{n} host {n - 1}" for n in (1, 2, 3)] + ["leaf2:1 host 3", "leaf2:2 host 4"]
    trunks = ["leaf1:4 spine1:1", "leaf1:5 spine2:1", "leaf2:3 spine1:2", "leaf2:4 spine2:2"]
    assert old == hosts + trunks
    new, _ = cables(scenario(tmp_path, 'kind = "leaf-spine"\nhosts = 5\nracks = 2'))
    assert new == old
    wide, _ = cables(scenario(tmp_path, 'kind = "leaf_spine"\nhosts = 300\nleaves = 300'))
    assert len(wide) == 900
    dumbbell, _ = cables(scenario(tmp_path, 'kind = "dumbbell"\nhosts = 3'))
    assert dumbbell == ["s1:1 host 0", "s1:2 host 1", "s2:1 host 2", "s1:3 s2:2"]


@pytest.mark.parametrize(
    ("topology", "match"),
    [
        ('kind = "grid"\nhosts = 2', "unknown topology 'grid'"),
        ('kind = "star"', "topology.hosts is missing; say how many hosts the star has"),
        ('kind = "star"\nhosts = 2\nleaves = 2', "leaves is 2, which a star does not take"),
        ('kind = "tree"\nhosts = 2\nspines = 2', "spines is 2, .* it takes racks and depth"),
        ('kind = "leaf-spine"\nhosts = 4\nleaves = 2\nracks = 2', "leaves and racks are the same"),
        ('kind = "leaf_spine"\nhosts = 2\nleaves = 3', "2 hosts at 3 switches; give at least 3"),
        ('kind = "leaf-spine:spines=0"\nhosts = 2', "0 spines; give at least 1"),
        ('kind = "fat-tree"\nhosts = 17', "17 workers; a fat-tree of 4 has 16 hosts"),
        ('kind = "star"\nhosts = 511', "would need 511 ports, and has 510"),
        ('kind = "star"\nhosts = 2\nhost_cores = 1.5', r"topology\.host_cores"),
        ('kind = "star"\nhosts = 2\nspeed = 1', r"unknown key 'topology\.speed'"),
        ('kind = "star"\nhosts = 2\n[faults]\nmark = 2', "mark is 2; a probability is in 0 .. 1"),
        ('kind = "star"\nhosts = 2\n[faults]\nloss = 0.1', r"unknown key 'faults\.loss'"),
    ],
)
def test_what_no_network_has_is_named(tmp_path, topology, match):
    with pytest.raises((ConfigError, InputError), match=f"flows\\.toml: .*{match}"):
        read_scenario(scenario(tmp_path, topology))
