"""Topologies by name: their switches, and the tree of switches that a job uses.

A topology is one class. When it is registered below, or by an entry point of another distribution
in the group "innet.topologies", its name can be used for every network:
``Collective(topology=...)``, ``innet allreduce`` and ``innet net --topology``, ``mn --topo
innet_...``, and a job's settings.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from innet.core.errors import ConfigError, InputError
from innet.core.numbers import not_an_int
from innet.core.registry import Registry, split_name
from innet.core.settings import BITMAP_BITS
from innet.sim import Network
from innet.topology.plan import Link, Port

MAX_DEPTH = 8
MAX_SWITCHES = 4096  # of a tree
MAX_NEIGHBORS = 200  # switches below one, or above it: this number of ports is kept for each
MAX_FAT_TREE = 52  # ports of its switches: 35,152 hosts
SPARE_UP, SPARE_DOWN = 201, 301  # first ports for ``Shape.unused_links``, which no job uses
_RACK = BITMAP_BITS  # by default no switch of a tree has more workers or switches below it


@dataclass(frozen=True, slots=True)
class Node:
    """A switch and the subtree below it.

    Attributes:
        name: unique, and not h1, h2, ..., which are hosts.
        index: 0 for the root, then 1, 2, ..., each once. It determines the switch's addresses.
        workers: indices of all workers below, in order, without gaps; at least one.
        children: the switches directly below; empty for a leaf. Workers that no child has are at
            the switch itself.
    """

    name: str
    index: int
    workers: range
    children: tuple[Node, ...] = ()

    @property
    def mask(self) -> int:
        """The workers below, as bits; those of the header's bitmap in jobs of up to 32 workers."""
        return (1 << self.workers.stop) - (1 << self.workers.start)

    @property
    def local_workers(self) -> tuple[int, ...]:
        """The workers at the switch's own ports, which no child has; for a leaf all workers."""
        theirs = {worker for child in self.children for worker in child.workers}
        return tuple(worker for worker in self.workers if worker not in theirs)

    @property
    def height(self) -> int:
        """Levels of switches below this one."""
        return max((1 + child.height for child in self.children), default=0)

    @property
    def identity(self) -> int:
        """The identifier of the switch for its parent: the index of the first worker below."""
        return self.workers.start

    def descend(self) -> Iterator[Node]:
        """This switch and all switches below, parents first."""
        yield self
        for child in self.children:
            yield from child.descend()

    def with_parents(self, parent: Node | None = None) -> Iterator[tuple[Node, Node | None]]:
        """This switch and all switches below, with the parent of each, by index of the switch."""
        pairs = [(self, parent)]
        for node, _ in pairs:
            pairs += [(child, node) for child in node.children]
        yield from sorted(pairs, key=lambda pair: pair[0].index)


@dataclass(frozen=True, slots=True)
class Shape:
    """A network of switches.

    Attributes:
        root: root of the tree that jobs use.
        spare: names of the switches that jobs do not use.
        unused_links: links that jobs do not use, at ports from ``SPARE_UP`` or ``SPARE_DOWN``.
            Lower ports are for workers and the tree.
    """

    root: Node
    spare: tuple[str, ...] = ()
    unused_links: tuple[Link, ...] = ()


class Topology(ABC):
    """Base class of topologies, stateless.

    Attributes:
        options: names of integer options besides the number of workers: the settings "racks",
            "depth" and "ports", or others, given as in "leaf-spine:spines=3".
        arguments: arguments of ``mn --topo`` in their order: "workers", "jobs" and options.
        jobs: default number of jobs of ``innet net``.
        is_bottleneck: in simulated time, links between switches are as fast as those of hosts
            unless the network has a ``trunk_rate``; otherwise fast enough for all hosts.
    """

    options: ClassVar[tuple[str, ...]] = ()
    arguments: ClassVar[tuple[str, ...]] = ("workers",)
    jobs: ClassVar[int] = 1
    is_bottleneck: ClassVar[bool] = False

    @abstractmethod
    def shape(self, workers: int, *args: Any, **options: Any) -> Shape:
        """The network for a number of workers of one job. Missing options have defaults.

        Raises:
            InputError: an invalid number.
        """

    def workers(self, *args: Any, **options: Any) -> int:
        """Default number of workers of ``mn --topo``."""
        del args, options
        return 4


TOPOLOGIES: Registry[type[Topology]] = Registry("topology", "innet.topologies")
"""Topologies by name. Entry points: "innet.topologies"."""


def topology_of(name: str | None) -> Topology:
    """The topology of a name with or without options; the star for None.

    Raises:
        UnknownNameError: no such topology.
        ConfigError: another distribution's object that is not a Topology.
    """
    name = split_name(name or "star")[0]
    found: object = TOPOLOGIES.get(name)
    if not (isinstance(found, type) and issubclass(found, Topology)):
        raise ConfigError(
            f"topology {name!r} is registered as {found!r}; it has to be a class derived from "
            "innet.topology.Topology."
        )
    if lacking := sorted(found.__abstractmethods__):
        raise ConfigError(f"topology {name!r}: its class {found.__qualname__} lacks {lacking}.")
    return found()


def with_bottleneck(network: Network, topology: str | None) -> Network:
    """The simulated network of a topology: with the ``trunk_rate`` of one that is a bottleneck.

    Raises:
        UnknownNameError, ConfigError: as ``topology_of``.
    """
    if network.trunk_rate is None and topology_of(topology).is_bottleneck:
        return replace(network, trunk_rate=network.rate)
    return network


def shape(name: str, workers: int, options: Mapping[str, int | None]) -> Shape:
    """The network of a topology's name for a number of workers.

    Args:
        name: name of a topology, with or without options.
        workers: workers of one job.
        options: further options; None means not given.

    Raises:
        UnknownNameError: no such topology.
        ConfigError: the topology's result is not a valid network.
        InputError: an unknown option or an invalid number.
    """
    topology = topology_of(name)
    name, named = split_name(name)
    given = {key: value for key, value in options.items() if value is not None} | named
    for key, value in given.items():
        if key not in topology.options:
            takes = " and ".join(topology.options) or "no options"
            raise InputError(f"{key} is {value}, which a {name} does not take; it takes {takes}.")
        if not isinstance(value, int):
            raise not_an_int(value, f"{key} of the topology {name}")
    return _checked(topology.shape(workers, **given), workers, f"topology {name!r}")


def _checked(found: object, workers: int, who: str) -> Shape:
    """The network of a topology, checked to be routable."""
    if not isinstance(found, Shape):
        raise ConfigError(f"{who}: its shape is a {type(found).__name__}; return a Shape.")
    nodes = list(found.root.descend())
    indices = [node.index for node in nodes]
    if indices[0] != 0 or sorted(indices) != list(range(len(nodes))):
        raise ConfigError(
            f"{who}: its switches have the indices {indices}; give the root 0, and the others 1 to "
            f"{len(nodes) - 1}, each once."
        )
    if found.root.workers != range(workers):
        raise ConfigError(
            f"{who}: its root {found.root.name} has the workers {list(found.root.workers)}; give "
            f"it all, range({workers})."
        )
    for node in nodes:
        if len(node.children) > MAX_NEIGHBORS:
            raise InputError(
                f"{len(node.children)} switches below {node.name}; a switch has ports for "
                f"{MAX_NEIGHBORS} of them. Choose fewer racks, or more levels."
            )
        below = [worker for child in node.children for worker in child.workers]
        if len(set(below)) != len(below) or not set(below) <= set(node.workers):
            raise ConfigError(
                f"{who}: {node.name} has the workers {list(node.workers)}, and the switches below "
                f"have {below}; give each of them a separate part."
            )
        if not node.workers:
            raise ConfigError(
                f"{who}: no worker is below {node.name}; list it in Shape.spare instead."
            )
    return found


class Star(Topology):
    """One switch, s1, with all workers."""

    def shape(self, workers: int) -> Shape:
        """See ``Topology``."""
        return Shape(Node("s1", 0, range(workers)))


class Tree(Topology):
    """Racks below a root, in levels; s1 is the root."""

    options = ("racks", "depth")
    arguments = ("workers", *options)

    def shape(self, workers: int, racks: int | None = None, depth: int | None = None) -> Shape:
        """See ``Topology``. By default two levels and two racks."""
        return Shape(tree_of(workers, racks, depth))


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
        leaves = [Node(f"leaf{i + 1}", i + 1, _part(workers, racks, i)) for i in range(racks)]
        spare = range(1, spines)
        return Shape(
            Node("spine1", 0, range(workers), tuple(leaves)),
            spare=tuple(f"spine{i + 1}" for i in spare),
            unused_links=tuple(
                Link(Port(leaf.name, SPARE_UP + i), Port(f"spine{i + 1}", SPARE_DOWN + j))
                for i in spare
                for j, leaf in enumerate(leaves)
            ),
        )


class Dumbbell(Topology):
    """Two switches and the link between them, half of the workers at each; s1 is the root."""

    arguments = ("workers", "jobs")
    jobs = 2
    is_bottleneck = True

    def shape(self, workers: int) -> Shape:
        """See ``Topology``. It needs a worker on each side."""
        if workers < 2:
            raise InputError("a dumbbell has workers on both sides: give at least 2.")
        right = Node("s2", 1, range((workers + 1) // 2, workers))
        return Shape(Node("s1", 0, range(workers), (right,)))


class FatTree(Topology):
    """A three-level fat-tree of switches with ``ports`` ports, and the tree that jobs use.

    It has ``ports`` pods of half as many edge switches (e1, e2, ...) and aggregation switches (a1,
    a2, ...), and a quarter of ``ports`` squared core switches (c1, c2, ...). Sums go from the edge
    to the first aggregation switch of the pod and to core c1. The other switches and links carry no
    packets. Workers are distributed evenly over pods and edge switches.

    Source: Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network Architecture",
    SIGCOMM 2008, section 3.
    """

    options = ("ports",)
    arguments = ("ports", "workers")

    def workers(self, ports: int = 4) -> int:
        """See ``Topology``: one worker at every host, and at most 32."""
        return min(ports**3 // 4, BITMAP_BITS)

    def shape(self, workers: int, ports: int = 4) -> Shape:
        """See ``Topology``. The number of ports is even."""
        if ports % 2 or not 2 <= ports <= MAX_FAT_TREE:
            raise InputError(f"a fat-tree of {ports}-port switches; give 2, 4, ... {MAX_FAT_TREE}.")
        half = ports // 2
        edges = ports * half
        if not 1 <= workers <= edges * half:
            raise InputError(
                f"{workers} workers; a fat-tree of {ports} has {edges * half} hosts. Choose other "
                "--ports."
            )
        racks: dict[int, list[int]] = {}
        for worker in range(workers):
            racks.setdefault(worker * edges // workers, []).append(worker)
        pods = sorted({edge // half for edge in racks})
        first_edge = 1 + len(pods)
        leaves = {
            edge: Node(f"e{edge + 1}", first_edge + number, range(found[0], found[-1] + 1))
            for number, (edge, found) in enumerate(racks.items())
        }
        tops = []
        for number, pod in enumerate(pods, start=1):
            below = tuple(leaves[edge] for edge in leaves if edge // half == pod)
            spread = range(below[0].workers.start, below[-1].workers.stop)
            tops.append(Node(f"a{pod * half + 1}", number, spread, below))
        root = Node("c1", 0, range(workers), tuple(tops))
        taken = {node.name for node in root.descend()}
        names = (
            [f"c{i + 1}" for i in range(half * half)]
            + [f"a{i + 1}" for i in range(edges)]
            + [f"e{i + 1}" for i in range(edges)]
        )
        return Shape(
            root,
            spare=tuple(name for name in names if name not in taken),
            unused_links=tuple(link for link in _fat_tree_links(half) if not _in_tree(link, taken)),
        )


def _fat_tree_links(half: int) -> list[Link]:
    """All links between switches of a fat-tree, at the ports for unused links."""
    links = []
    for pod in range(2 * half):
        for i in range(half):
            top = f"a{pod * half + i + 1}"
            for j in range(half):
                edge, core = f"e{pod * half + j + 1}", f"c{i * half + j + 1}"
                links += [
                    Link(Port(edge, SPARE_UP + i), Port(top, SPARE_DOWN + j)),
                    Link(Port(top, SPARE_UP + j), Port(core, SPARE_DOWN + pod)),
                ]
    return links


def _in_tree(link: Link, taken: set[str]) -> bool:
    """Whether the tree uses this link, which then has other ports: the first uplink."""
    return link.a.port == SPARE_UP and {link.a.node, link.b.node} <= taken


TOPOLOGIES.register("star", Star)
TOPOLOGIES.register("tree", Tree)
TOPOLOGIES.register("leaf-spine", LeafSpine)
TOPOLOGIES.register("fat-tree", FatTree)
TOPOLOGIES.register("dumbbell", Dumbbell)


# ----------------------------------------------------------------------------
# Trees.


def tree_of(workers: int, racks: int | None = None, depth: int | None = None) -> Node:
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
        depth = next((each for each in levels if leaves <= _RACK ** (each - 1)), MAX_DEPTH)
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


def default_racks(workers: int) -> int:
    """Number of leaves for this number of workers: 2, or one for every 32."""
    return max(min(2, workers), -(-workers // _RACK))


def _part(total: int, parts: int, position: int) -> range:
    """The ``position``-th of ``parts`` nearly equal parts of ``range(total)``."""
    return range(total * position // parts, total * (position + 1) // parts)
