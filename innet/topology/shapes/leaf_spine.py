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
    chosen_roots,
    default_racks,
    part,
)


class LeafSpine(Topology):
    """Leaf switches with the workers, each linked to all spine switches. spine1 is the root.

    With ``trees`` so many spines are roots of a job's trees, from spine ``root`` on, and each sums
    its part of the slots. The other spines and their links carry no packets.
    """

    options = ("racks", "spines", "trees", "root")
    arguments = ("workers", "racks", "spines")

    def shape(
        self,
        workers: int,
        racks: int | None = None,
        spines: int = 2,
        trees: int = 1,
        root: int = 1,
    ) -> Shape:
        """See ``Topology``. By default two spines, and two leaves or one for every 32 workers."""
        if racks is None:
            racks = default_racks(workers)
        if not 1 <= racks <= workers:
            raise InputError(f"{racks} racks for {workers} workers; give 1 to {workers}.")
        if not 1 <= spines <= MAX_NEIGHBORS:
            raise InputError(f"{spines} spines; give 1 to {MAX_NEIGHBORS}.")
        roots = chosen_roots(trees, root, spines, "spine")
        return _joined([part(workers, racks, i) for i in range(racks)], spines, roots)

    def traffic_shape(self, hosts: int, racks: int = 2, spines: int = 2) -> Shape:
        """See ``Topology``. Where leaves differ in their number of hosts, the first have more."""
        if not 1 <= racks <= hosts:
            raise InputError(f"{hosts} hosts at {racks} switches; give at least {racks} hosts.")
        if spines < 1:
            raise InputError(f"{spines} spines; give at least 1.")
        # From the end, because ``part`` lets the last parts be the larger ones.
        ends = [hosts - part(hosts, racks, i).start for i in reversed(range(racks))]
        return _joined([range(a, b) for a, b in pairwise([0, *ends])], spines, range(1))


def _joined(parts: Sequence[range], spines: int, roots: range) -> Shape:
    """A leaf for each part of the workers, and links from each of them to all spines.

    The first of ``roots`` is linked as the root of a tree, the others in their order behind it.
    """
    leaves = tuple(TreeNode(f"leaf{i + 1}", i + 1, workers) for i, workers in enumerate(parts))
    names = [f"spine{(roots.start + i) % spines + 1}" for i in range(spines)]
    everybody = range(parts[-1].stop)
    return Shape(
        TreeNode(names[0], 0, everybody, leaves),
        spare=tuple(names[len(roots) :]),
        unused_links=tuple(
            PlannedLink(Port(leaf.name, SPARE_UP + i), Port(names[i], SPARE_DOWN + j))
            for i in range(1, spines)
            for j, leaf in enumerate(leaves)
        ),
        others=tuple(
            TreeNode(
                names[i],
                len(leaves) + i,
                everybody,
                leaves,
                tuple((SPARE_DOWN + j, SPARE_UP + i) for j in range(len(leaves))),
            )
            for i in range(1, len(roots))
        ),
    )
