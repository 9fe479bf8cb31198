"""Registered topologies as ``mn --topo`` builds them."""

from __future__ import annotations

import pytest
from support.mininet import needs_mininet

from innet.core.errors import InputError
from innet.core.packets import MAX_PORT
from innet.topology import TOPOLOGIES, Request, make_plan

pytestmark = needs_mininet

INTERFACE_NAME = 16  # bytes of an interface's name, with its final zero: netdevice(7)


@pytest.mark.parametrize(
    ("name", "numbers", "hosts", "switches"),
    [
        ("innet_star", (), 4, 1),
        ("innet_star", (3,), 3, 1),
        ("innet_tree", (8, 4, 3), 8, 7),
        ("innet_tree", (64,), 64, 3),
        ("innet_tree", (1100,), 1100, 1 + 6 + 35),
        ("innet_leafspine", (6, 3, 2), 6, 5),
        ("innet_leafspine", (100,), 100, 4 + 2),
        ("innet_fattree", (4,), 16, 20),
        ("innet_fattree", (2, 2), 2, 5),
        ("innet_dumbbell", (4, 2), 8, 2),
    ],
)
def test_numbers_behind_the_name(name, numbers, hosts, switches):
    from innet.mininet.topologies import TOPOS  # noqa: PLC0415 - Mininet may be missing

    topo = TOPOS[name](*numbers)
    assert (len(topo.hosts()), len(topo.switches())) == (hosts, switches)
    for _, _, ends in topo.links(withInfo=True):
        for node, port in ((ends["node1"], ends["port1"]), (ends["node2"], ends["port2"])):
            assert 0 <= port <= MAX_PORT
            assert len(f"{node}-eth{port}") < INTERFACE_NAME


def test_all_that_are_registered_are_there():
    from innet.mininet.topologies import TOPOS  # noqa: PLC0415 - Mininet may be missing

    assert list(TOPOS) == ["innet_" + name.replace("-", "") for name in TOPOLOGIES]
    with pytest.raises(InputError, match="tree takes workers, racks, depth of integers"):
        TOPOS["innet_tree"](1, 2, 3, 4)
    with pytest.raises(InputError, match="The program for larger jobs is tree"):
        TOPOS["innet_star"](33)


def test_packets_that_grow_more_than_simple_switch_can():
    from mininet.topo import Topo  # noqa: PLC0415 - Mininet may be missing

    from innet.mininet.topologies import add_plan  # noqa: PLC0415

    def built(values, switch):
        topo = Topo()
        add_plan(topo, make_plan("collectives", values, Request(workers=2)), switch=switch)
        return topo

    with pytest.raises(InputError, match=r"collectives-256 are up to 1,024 bytes longer"):
        built(256, "bmv2")
    assert len(built(64, "bmv2").switches()) == len(built(256, "builtin").switches()) == 1
