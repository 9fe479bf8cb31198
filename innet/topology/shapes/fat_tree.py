"""A fat-tree of three levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from innet.core.errors import InputError
from innet.core.settings import BITMAP_BITS
from innet.topology.plan import PlannedLink, Port
from innet.topology.topologies import (
    SPARE_DOWN,
    SPARE_UP,
    Shape,
    Topology,
    TreeNode,
    chosen_roots,
)

MAX_FAT_TREE = 52  # ports of its switches: 35,152 hosts


class FatTree(Topology):
    """A three-level fat-tree of switches with ``ports`` ports, and the tree that jobs use.

    It has ``ports`` pods of half as many edge switches (e1, e2, ...) and aggregation switches (a1,
    a2, ...), and a quarter of ``ports`` squared core switches (c1, c2, ...). Sums go from the edge
    to the first aggregation switch of the pod and to core c1. With ``trees`` they go to so many
    cores, from core ``root`` on, and by as many aggregation switches of each pod as possible; each
    core sums its part of the slots. The other switches and links carry no packets. Workers are
    distributed evenly over pods and edge switches.

    Source: Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network Architecture",
    SIGCOMM 2008, section 3.
    """

    options = ("ports", "trees", "root")
    arguments = ("ports", "workers")

    def workers(self, ports: int = 4) -> int:
        """See ``Topology``: one worker at every host, and at most 32."""
        return min(ports**3 // 4, BITMAP_BITS)

    def shape(self, workers: int, ports: int = 4, trees: int = 1, root: int = 1) -> Shape:
        """See ``Topology``. The number of ports is even."""
        # Step 1: the numbers.
        if ports % 2 or not 2 <= ports <= MAX_FAT_TREE:
            raise InputError(f"a fat-tree of {ports}-port switches; give 2, 4, ... {MAX_FAT_TREE}.")
        half = ports // 2
        edges = ports * half
        if not 1 <= workers <= edges * half:
            raise InputError(
                f"{workers} workers; a fat-tree of {ports} has {edges * half} hosts. Choose other "
                "--ports."
            )
        roots = chosen_roots(trees, root, half * half, "core")
        # Step 2: the edge switches with their workers, by pod.
        racks: dict[int, list[int]] = {}
        for worker in range(workers):
            racks.setdefault(worker * edges // workers, []).append(worker)
        pods = sorted({edge // half for edge in racks})
        first_edge = 1 + len(pods)
        leaves = {
            edge: TreeNode(f"e{edge + 1}", first_edge + number, range(found[0], found[-1] + 1))
            for number, (edge, found) in enumerate(racks.items())
        }
        # Step 3: the trees. Each next one goes by the next aggregation switch of each pod.
        first_top, first_core = divmod(roots.start, half)
        later = count(first_edge + len(leaves))  # indices of what the first tree does not have
        tops: dict[int, tuple[TreeNode, ...]] = {}  # by number in the pod: one of each pod
        found: list[TreeNode] = []
        for number in range(len(roots)):
            top, core = (first_top + number) % half, (first_core + number // half) % half
            if top not in tops:
                tops[top] = _tops(leaves, pods, half, top, later if found else None)
            name, below = f"c{top * half + core + 1}", tops[top]
            links = tuple((SPARE_DOWN + pod, SPARE_UP + core) for pod in pods) if found else ()
            index = next(later) if found else 0
            found.append(TreeNode(name, index, range(workers), below, links))
        # Step 4: what is left.
        in_first = {node.name for node in found[0].descend()}
        in_any = {node.name for root_node in found for node in root_node.descend()}
        names = (
            [f"c{i + 1}" for i in range(half * half)]
            + [f"a{i + 1}" for i in range(edges)]
            + [f"e{i + 1}" for i in range(edges)]
        )
        return Shape(
            found[0],
            spare=tuple(name for name in names if name not in in_any),
            unused_links=tuple(
                link for link in _fat_tree_links(half) if not in_first.issuperset(link.ends)
            ),
            others=tuple(found[1:]),
        )


def _tops(
    leaves: Mapping[int, TreeNode],
    pods: Sequence[int],
    half: int,
    top: int,
    later: Iterator[int] | None,
) -> tuple[TreeNode, ...]:
    """Aggregation switch ``top`` of each pod; the first tree's without ``later``."""
    nodes = []
    for number, pod in enumerate(pods, start=1):
        edges = [edge for edge in leaves if edge // half == pod]
        below = tuple(leaves[edge] for edge in edges)
        spread = range(below[0].workers.start, below[-1].workers.stop)
        name = f"a{pod * half + top + 1}"
        if later is None:
            nodes.append(TreeNode(name, number, spread, below))
        else:
            links = tuple((SPARE_DOWN + edge % half, SPARE_UP + top) for edge in edges)
            nodes.append(TreeNode(name, next(later), spread, below, links))
    return tuple(nodes)


def _fat_tree_links(half: int) -> list[PlannedLink]:
    """All links between switches of a fat-tree, at the ports for unused links."""
    links = []
    for pod in range(2 * half):
        for i in range(half):
            top = f"a{pod * half + i + 1}"
            for j in range(half):
                edge, core = f"e{pod * half + j + 1}", f"c{i * half + j + 1}"
                links += [
                    PlannedLink(Port(edge, SPARE_UP + i), Port(top, SPARE_DOWN + j)),
                    PlannedLink(Port(top, SPARE_UP + j), Port(core, SPARE_DOWN + pod)),
                ]
    return links
