"""Networks by name: which of their switches a job's tree takes, and what else is there."""

from __future__ import annotations

from dataclasses import dataclass

from innet.core.errors import InputError, UnknownNameError
from innet.topology.plan import Link, Port
from innet.topology.wiring import Node, tree_of

MAX_FAT_TREE = 12  # ports of its switches: 180 switches, which have addresses
_SPARE_UP, _SPARE_DOWN = 201, 301  # first ports of links that no job uses


@dataclass(frozen=True, slots=True)
class Shape:
    """A network of switches.

    Attributes:
        root: of the tree that jobs use.
        spare: switches that they do not use, by name.
        cables: links that they do not use.
    """

    root: Node
    spare: tuple[str, ...] = ()
    cables: tuple[Link, ...] = ()


def shape(
    topology: str | None,
    workers: int,
    *,
    racks: int | None = None,
    depth: int | None = None,
    ports: int | None = None,
) -> Shape:
    """The network ``topology`` for so many workers.

    Args:
        topology: its name; None is a tree.
        workers: of one job.
        racks: of a tree; see ``innet.topology.wiring.tree_of``.
        depth: likewise.
        ports: of each switch of a fat-tree, by default 4.

    Raises:
        InputError: a number that does not fit, or belongs to another network.
    """
    if ports is not None and topology != "fat-tree":
        raise InputError(f"{ports} ports of each switch: only a fat-tree is told that.")
    if topology in ("fat-tree", "dumbbell") and (racks is not None or depth is not None):
        raise InputError(f"racks and depth are those of a tree; a {topology} has its own.")
    if topology == "fat-tree":
        return fat_tree(4 if ports is None else ports, workers)
    if topology == "dumbbell":
        return dumbbell(workers)
    if topology not in (None, "tree"):
        raise UnknownNameError("topology", topology, ("dumbbell", "fat-tree", "tree"))
    return Shape(tree_of(workers, racks, depth))


def dumbbell(workers: int) -> Shape:
    """Two switches and the link between them, half of the workers at each; s1 is the root.

    Raises:
        InputError: a single worker, who is at one side only.
    """
    if workers < 2:
        raise InputError("a dumbbell has workers on both sides: give at least 2.")
    right = Node("s2", 1, range((workers + 1) // 2, workers))
    return Shape(Node("s1", 0, range(workers), (right,)))


def fat_tree(ports: int, workers: int) -> Shape:
    """A three-level fat-tree of switches with ``ports`` ports, and the tree inside that jobs use.

    It has ``ports`` pods of half as many edge switches (e1, e2, ...) and aggregation switches (a1,
    a2, ...), and a quarter of ``ports`` squared core switches (c1, c2, ...). Sums climb from the
    edge to the first aggregation switch of their pod and to core c1; the other switches and links
    are there and carry nothing. The workers are spread over pods and edge switches evenly.

    Source: Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network Architecture",
    SIGCOMM 2008, section 3.

    Raises:
        InputError: an odd number of ports, or more workers than hosts.
    """
    if ports % 2 or not 2 <= ports <= MAX_FAT_TREE:
        raise InputError(f"a fat-tree of {ports}-port switches; give 2, 4, ... {MAX_FAT_TREE}.")
    half = ports // 2
    edges = ports * half
    if not 1 <= workers <= edges * half:
        raise InputError(f"{workers} workers; a fat-tree of {ports} has {edges * half} hosts.")
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
        cables=tuple(link for link in _cables(half) if not _in_tree(link, taken)),
    )


def _cables(half: int) -> list[Link]:
    """All links between the switches of a fat-tree, at the ports that spare ones have."""
    links = []
    for pod in range(2 * half):
        for i in range(half):
            top = f"a{pod * half + i + 1}"
            for j in range(half):
                edge, core = f"e{pod * half + j + 1}", f"c{i * half + j + 1}"
                links += [
                    Link(Port(edge, _SPARE_UP + i), Port(top, _SPARE_DOWN + j)),
                    Link(Port(top, _SPARE_UP + j), Port(core, _SPARE_DOWN + pod)),
                ]
    return links


def _in_tree(link: Link, taken: set[str]) -> bool:
    """Whether the tree has this link, at ports of its own: the first way up of what it has."""
    return link.a.port == _SPARE_UP and {link.a.node, link.b.node} <= taken
