"""Balanced trees of switches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from innet.core.errors import InputError
from innet.topology.topologies import RACK, Shape, Topology, TreeNode, default_racks, part

MAX_DEPTH = 8
MAX_SWITCHES = 4096


class BalancedTree(Topology):
    """Racks below a root, in levels; s1 is the root."""

    options = ("racks", "depth")
    arguments = ("workers", *options)

    def shape(self, workers: int, racks: int | None = None, depth: int | None = None) -> Shape:
        """See ``Topology``. By default two levels and two racks."""
        return Shape(tree_of(workers, racks, depth))


def tree_of(workers: int, racks: int | None = None, depth: int | None = None) -> TreeNode:
    """The root of a balanced tree with ``racks`` leaves and ``depth`` levels.

    Args:
        workers: number of workers, assigned to the leaves in order.
        racks: leaves, 1 .. workers; by default 2, if workers and depth allow it, or one for every
            32 workers.
        depth: levels of switches, 1 .. 8. A tree of one level is one switch. By default 2, or more
            if there are so many racks that a switch would have more than 32 below it.

    Raises:
        InputError: more racks than workers, several in one level, or too many switches.
    """
    if depth is None:
        leaves = default_racks(workers) if racks is None else racks
        levels = range(2, MAX_DEPTH + 1)
        depth = next((each for each in levels if leaves <= RACK ** (each - 1)), MAX_DEPTH)
    if not 1 <= depth <= MAX_DEPTH:
        raise InputError(f"a depth of {depth}; a tree has 1 to {MAX_DEPTH} levels.")
    if racks is None:
        racks = default_racks(workers) if depth > 1 else 1
    if not 1 <= racks <= workers:
        raise InputError(f"{racks} racks for {workers} workers; give 1 to {workers}.")
    if depth == 1 and racks > 1:
        raise InputError(f"{racks} racks need at least 2 levels; the depth is 1.")
    # From the root down, each level is larger by the same factor.
    sizes = (
        [math.ceil(racks ** (level / (depth - 1))) for level in range(depth)]
        if racks > 1
        else [1] * depth
    )
    if sum(sizes) > MAX_SWITCHES:
        raise InputError(f"a tree of {sum(sizes)} switches; choose at most {MAX_SWITCHES}.")
    below: Sequence[TreeNode] = ()
    first = sum(sizes)
    for size in reversed(sizes):
        first -= size
        level = []
        for position in range(size):
            index = first + position
            if below:
                children = tuple(below[i] for i in part(len(below), size, position))
                spread = range(children[0].workers.start, children[-1].workers.stop)
            else:
                children, spread = (), part(workers, size, position)
            level.append(TreeNode(f"s{index + 1}", index, spread, children))
        below = level
    return below[0]
