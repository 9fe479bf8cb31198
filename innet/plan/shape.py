"""The shape of a tree of switches: who is below whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from innet.errors import InputError

MAX_DEPTH = 8
MAX_SWITCHES = 200  # addresses and switch ports that are kept for them


@dataclass(frozen=True, slots=True)
class Node:
    """A switch with what is below it.

    Attributes:
        name: s1 is the root; then level by level, from left to right.
        index: 0 for the root, in the same order.
        workers: indices of all workers below, in order, without gaps.
        children: the switches right below; empty for a leaf.
    """

    name: str
    index: int
    workers: range
    children: tuple[Node, ...] = ()

    @property
    def mask(self) -> int:
        """The workers below, as bits of the header's bitmap."""
        return sum(1 << worker for worker in self.workers)

    @property
    def own(self) -> tuple[int, ...]:
        """The workers at its own ports: of a leaf all, else those that no child has."""
        theirs = {worker for child in self.children for worker in child.workers}
        return tuple(worker for worker in self.workers if worker not in theirs)

    @property
    def height(self) -> int:
        """Levels of switches below this one."""
        return max((1 + child.height for child in self.children), default=0)

    @property
    def identity(self) -> int:
        """What the switch above calls this one: the index of the first worker below."""
        return self.workers.start

    def descend(self) -> Iterator[Node]:
        """This switch and all below, each before its children."""
        yield self
        for child in self.children:
            yield from child.descend()

    def with_parents(self, parent: Node | None = None) -> Iterator[tuple[Node, Node | None]]:
        """This switch and all below with the one right above each, by index of the switch."""
        pairs = [(self, parent)]
        for node, _ in pairs:
            pairs += [(child, node) for child in node.children]
        yield from sorted(pairs, key=lambda pair: pair[0].index)


def tree_of(workers: int, racks: int | None = None, depth: int | None = None) -> Node:
    """The root of a tree with ``racks`` leaves and ``depth`` levels, as even as can be.

    Args:
        workers: spread over the leaves in order.
        racks: leaves, 1 .. workers; 2 if there are workers for it and the depth allows it.
        depth: levels of switches, 1 .. 8; by default 2. A tree of one level is one switch.

    Raises:
        InputError: more racks than workers, several in one level, or too many switches.
    """
    if depth is None:
        depth = 2
    if not 1 <= depth <= MAX_DEPTH:
        raise InputError(f"a depth of {depth}; a tree has 1 to {MAX_DEPTH} levels.")
    if racks is None:
        racks = min(2, workers) if depth > 1 else 1
    if not 1 <= racks <= workers:
        raise InputError(f"{racks} racks for {workers} workers; give 1 to {workers}.")
    if depth == 1 and racks > 1:
        raise InputError(f"{racks} racks need at least 2 levels; the depth is 1.")
    # From the root downwards, each level grows by the same factor.
    sizes = (
        [math.ceil(racks ** (level / (depth - 1))) for level in range(depth)]
        if racks > 1
        else [1] * depth
    )
    if sum(sizes) > MAX_SWITCHES:
        raise InputError(f"a tree of {sum(sizes)} switches; at most {MAX_SWITCHES} have addresses.")
    below: Sequence[Node] = ()
    first = sum(sizes)
    for size in reversed(sizes):
        first -= size
        level = []
        for position in range(size):
            index = first + position
            if below:
                children = tuple(below[i] for i in _part(len(below), size, position))
                spread = range(children[0].workers.start, children[-1].workers.stop)
            else:
                children, spread = (), _part(workers, size, position)
            level.append(Node(f"s{index + 1}", index, spread, children))
        below = level
    return below[0]


def _part(total: int, parts: int, position: int) -> range:
    """The ``position``-th of ``parts`` nearly equal parts of ``range(total)``."""
    return range(total * position // parts, total * (position + 1) // parts)
