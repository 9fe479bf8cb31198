"""Registered topologies as ``mn --topo`` builds them."""

from __future__ import annotations

import pytest
from support.mininet import needs_mininet

from innet.core.errors import InputError
from innet.topology import TOPOLOGIES

pytestmark = needs_mininet


@pytest.mark.parametrize(
    ("name", "numbers", "hosts", "switches"),
    [
        ("innet_star", (), 4, 1),
        ("innet_star", (3,), 3, 1),
        ("innet_tree", (8, 4, 3), 8, 7),
        ("innet_leafspine", (6, 3, 2), 6, 5),
        ("innet_fattree", (4,), 16, 20),
        ("innet_fattree", (2, 2), 2, 5),
        ("innet_dumbbell", (4, 2), 8, 2),
    ],
)
def test_numbers_behind_the_name(name, numbers, hosts, switches):
    from innet.mininet.topologies import TOPOS  # noqa: PLC0415 - Mininet may be missing

    topo = TOPOS[name](*numbers)
    assert (len(topo.hosts()), len(topo.switches())) == (hosts, switches)


def test_all_that_are_registered_are_there():
    from innet.mininet.topologies import TOPOS  # noqa: PLC0415 - Mininet may be missing

    assert list(TOPOS) == ["innet_" + name.replace("-", "") for name in TOPOLOGIES]
    with pytest.raises(InputError, match="tree takes workers, racks, depth of integers"):
        TOPOS["innet_tree"](1, 2, 3, 4)
