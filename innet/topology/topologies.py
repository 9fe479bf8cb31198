"""Topologies by name: their switches, and the tree of switches that a job uses.

A topology is one class. When it is registered below, or by an entry point of another distribution
in the group "innet.topologies", its name can be used for every network:
``Collective(topology=...)``, ``innet allreduce`` and ``innet net --topology``, ``mn --topo
innet_...``, a job's settings, jobs and baselines in simulated time, and ``kind`` of a traffic file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from innet.core.errors import ConfigError, InputError
from innet.core.numbers import not_an_int
from innet.core.registry import Registry, split_name
from innet.core.settings import BITMAP_BITS
from innet.sim import Network
from innet.topology.plan import PlannedLink, Port

MAX_NEIGHBORS = 200  # switches below one, or above it: this number of ports is kept for each
SPARE_UP, SPARE_DOWN = 201, 301  # first ports for ``Shape.unused_links``, which no job uses
ALL = "all"  # of the option "trees": one for each switch that can be a root
RACK = BITMAP_BITS  # by default no switch of a tree has more workers or switches below it


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A switch and the subtree below it.

    Attributes:
        name: unique, and not h1, h2, ..., which are hosts.
        index: 0 for the root, then 1, 2, ..., each once. It determines the switch's addresses.
        workers: indices of all workers below, in order, without gaps; at least one.
        children: the switches directly below; empty for a leaf. Workers that no child has are at
            the switch itself.
        links: of each child, the port here and the port there; empty for the usual ones, which are
            those of a job's first tree.
    """

    name: str
    index: int
    workers: range
    children: tuple[TreeNode, ...] = ()
    links: tuple[tuple[int, int], ...] = ()

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

    def descend(self) -> Iterator[TreeNode]:
        """This switch and all switches below, parents first."""
        yield self
        for child in self.children:
            yield from child.descend()

    def with_parents(
        self, parent: TreeNode | None = None
    ) -> Iterator[tuple[TreeNode, TreeNode | None]]:
        """This switch and all switches below, with the parent of each, by index of the switch."""
        pairs = [(self, parent)]
        for node, _ in pairs:
            pairs += [(child, node) for child in node.children]
        yield from sorted(pairs, key=lambda pair: pair[0].index)


@dataclass(frozen=True, slots=True)
class Shape:
    """A network of switches.

    Attributes:
        root: root of the tree that jobs use, or of the first of several.
        spare: names of the switches that jobs do not use.
        unused_links: links that the first tree does not use, at ports from ``SPARE_UP`` or
            ``SPARE_DOWN``. Lower ports are for workers and that tree.
        others: roots of further trees over the same leaves, for programs that spread their slots
            over all of them. Their links are among the ``unused_links``, from the lower switch to
            the upper one; a switch of several trees has the same index in all.
    """

    root: TreeNode
    spare: tuple[str, ...] = ()
    unused_links: tuple[PlannedLink, ...] = ()
    others: tuple[TreeNode, ...] = ()

    @property
    def roots(self) -> tuple[TreeNode, ...]:
        """The roots of all trees."""
        return (self.root, *self.others)


class Topology(ABC):
    """Base class of topologies, stateless.

    Attributes:
        options: names of integer options besides the number of workers: the settings "racks",
            "depth" and "ports", or others, given as in "leaf-spine:spines=3". "trees" may be
            "all" where a topology has it, which its ``shape`` gets as 0.
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

    def traffic_shape(self, hosts: int, *args: Any, **options: Any) -> Shape:
        """The network of a traffic file; by default that of a job with a worker at each host.

        Switches may have more neighbors than in a job's network, as no ports are kept for others.

        Raises:
            InputError: an invalid number.
        """
        return self.shape(hosts, *args, **options)

    def workers(self, *args: Any, **options: Any) -> int:
        """Default number of workers of ``mn --topo``."""
        del args, options
        return 4


TOPOLOGIES: Registry[type[Topology]] = Registry("topology", "innet.topologies")
"""Topologies by name. Entry points: "innet.topologies"."""
TOPOLOGIES.register("star", "innet.topology.shapes.star:Star")
TOPOLOGIES.register("tree", "innet.topology.shapes.tree:BalancedTree")
TOPOLOGIES.register("leaf-spine", "innet.topology.shapes.leaf_spine:LeafSpine")
TOPOLOGIES.register("fat-tree", "innet.topology.shapes.fat_tree:FatTree")
TOPOLOGIES.register("dumbbell", "innet.topology.shapes.dumbbell:Dumbbell")


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
    topology, given = _with_options(name, options)
    found = _checked(topology.shape(workers, **given), workers, name)
    for node in found.root.descend():
        if len(node.children) > MAX_NEIGHBORS:
            raise InputError(
                f"{len(node.children)} switches below {node.name}; a switch has ports for "
                f"{MAX_NEIGHBORS} of them. Choose fewer racks, or more levels."
            )
    return found


def traffic_shape(name: str, hosts: int, options: Mapping[str, int | None]) -> Shape:
    """The network of a topology's name for the hosts of a traffic file, its "workers".

    Raises:
        UnknownNameError, ConfigError, InputError: as ``shape``.
    """
    topology, given = _with_options(name, options)
    for key in ("trees", "root"):
        if key in given:
            raise InputError(
                f"{key} is {given[key]}, but nothing is summed here, and packets take all switches "
                f"of a {split_name(name)[0]}; leave it out."
            )
    return _checked(topology.traffic_shape(hosts, **given), hosts, name)


def _with_options(name: str, options: Mapping[str, int | None]) -> tuple[Topology, dict[str, int]]:
    """The topology of a name, and the options in the name and beside it, checked."""
    topology = topology_of(name)
    name, named = split_name(name)
    given = {key: value for key, value in options.items() if value is not None} | named
    for key, value in given.items():
        if key not in topology.options:
            takes = " and ".join(topology.options) or "no options"
            raise InputError(f"{key} is {value}, which a {name} does not take; it takes {takes}.")
        if (key, value) == ("trees", ALL):
            given[key] = 0
        elif not isinstance(value, int):
            raise not_an_int(value, f"{key} of the topology {name}")
    return topology, given


def _checked(found: object, workers: int, name: str) -> Shape:
    """The network of a topology, checked to be routable."""
    who = f"topology {split_name(name)[0]!r}"
    if not isinstance(found, Shape):
        raise ConfigError(f"{who}: its shape is a {type(found).__name__}; return a Shape.")
    nodes = list({node.name: node for root in found.roots for node in root.descend()}.values())
    indices = [node.index for node in nodes]
    if indices[0] != 0 or sorted(indices) != list(range(len(nodes))):
        raise ConfigError(
            f"{who}: its switches have the indices {indices}; give the root 0, and the others 1 to "
            f"{len(nodes) - 1}, each once."
        )
    for root in found.roots:
        if root.workers != range(workers):
            raise ConfigError(
                f"{who}: its root {root.name} has the workers {list(root.workers)}; give "
                f"it all, range({workers})."
            )
    known = {*found.unused_links}
    for root in found.others:
        for node in root.descend():
            for child, (port, up_port) in zip(node.children, node.links, strict=False):
                link = PlannedLink(Port(child.name, up_port), Port(node.name, port))
                if port >= SPARE_DOWN and link not in known:
                    raise ConfigError(
                        f"{who}: {root.name} is the root of a tree with the link {link}; list it "
                        "in Shape.unused_links."
                    )
    for node in nodes:
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


def default_racks(workers: int) -> int:
    """Number of leaves for this number of workers: 2, or one for every 32."""
    return max(min(2, workers), -(-workers // RACK))


def chosen_roots(trees: int, root: int, most: int, kind: str) -> range:
    """Which of ``most`` switches are roots, from 0: they follow each other, and 0 follows the last.

    Args:
        trees: how many; 0 for all.
        root: the first of them, from 1.
        most: how many switches can be a root.
        kind: what these are called, for errors.

    Raises:
        InputError: a number out of range.
    """
    if not 0 <= trees <= most:
        raise InputError(f"{trees} trees over {most} {kind}s; give 1 to {most}, or all.")
    if not 1 <= root <= most:
        raise InputError(f"the first root is {kind} {root}; give 1 to {most}.")
    return range(root - 1, root - 1 + (trees or most))


def part(total: int, parts: int, position: int) -> range:
    """The ``position``-th of ``parts`` nearly equal parts of ``range(total)``."""
    return range(total * position // parts, total * (position + 1) // parts)
