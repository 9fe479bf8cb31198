"""Leaf switches, each linked to all spine switches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from innet.core.errors import InputError
from innet.topology.plan import PlannedLink, Port
from innet.topology.topologies import (
    MAX_NEIGHBORS,
    SPARE_DOWN,
    SPARE_UP,
    Shape,
    Topology,
    TreeNode,
    default_racks,
    part,
)


class LeafSpine(Topology):
    """Leaf switches with the workers, each linked to all spine switches. spine1 is the root.

    The other spines and their links carry no packets.
    """

    options = ("racks", "spines")
    arguments = ("workers", *options)

    def shape(self, workers: int, racks: int | None = None, spines: int = 2) -> Shape:
        """See ``Topology``. By default two spines, and two leaves or one for every 32 workers."""
        if racks is None:
            racks = default_racks(workers)
        if not 1 <= racks <= workers:
            raise InputError(f"{racks} racks for {workers} workers; give 1 to {workers}.")
        if not 1 <= spines <= MAX_NEIGHBORS:
            raise InputError(f"{spines} spines; give 1 to {MAX_NEIGHBORS}.")
        return _joined([part(workers, racks, i) for i in range(racks)], spines)

    def traffic_shape(self, hosts: int, racks: int = 2, spines: int = 2) -> Shape:
        """See ``Topology``. Where leaves differ in their number of hosts, the first have more."""
        if not 1 <= racks <= hosts:
            raise InputError(f"{hosts} hosts at {racks} switches; give at least {racks} hosts.")
        if spines < 1:
            raise InputError(f"{spines} spines; give at least 1.")
        # From the end, because ``part`` lets the last parts be the larger ones.
        ends = [hosts - part(hosts, racks, i).start for i in reversed(range(racks))]
        return _joined([range(a, b) for a, b in pairwise([0, *ends])], spines)


def _joined(parts: Sequence[range], spines: int) -> Shape:
    """A leaf for each part of the workers, and links from each of them to all spines."""
    leaves = [TreeNode(f"leaf{i + 1}", i + 1, workers) for i, workers in enumerate(parts)]
    spare = range(1, spines)
    return Shape(
        TreeNode("spine1", 0, range(parts[-1].stop), tuple(leaves)),
        spare=tuple(f"spine{i + 1}" for i in spare),
        unused_links=tuple(
            PlannedLink(Port(leaf.name, SPARE_UP + i), Port(f"spine{i + 1}", SPARE_DOWN + j))
            for i in spare
            for j, leaf in enumerate(leaves)
        ),
    )
