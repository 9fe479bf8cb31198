"""A fat-tree of three levels."""

from __future__ import annotations

from innet.core.errors import InputError
from innet.core.settings import BITMAP_BITS
from innet.topology.plan import PlannedLink, Port
from innet.topology.topologies import SPARE_DOWN, SPARE_UP, Shape, Topology, TreeNode

MAX_FAT_TREE = 52  # ports of its switches: 35,152 hosts


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
            edge: TreeNode(f"e{edge + 1}", first_edge + number, range(found[0], found[-1] + 1))
            for number, (edge, found) in enumerate(racks.items())
        }
        tops = []
        for number, pod in enumerate(pods, start=1):
            below = tuple(leaves[edge] for edge in leaves if edge // half == pod)
            spread = range(below[0].workers.start, below[-1].workers.stop)
            tops.append(TreeNode(f"a{pod * half + 1}", number, spread, below))
        root = TreeNode("c1", 0, range(workers), tuple(tops))
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


def _in_tree(link: PlannedLink, taken: set[str]) -> bool:
    """Whether the tree uses this link, which then has other ports: the first uplink."""
    return link.a.port == SPARE_UP and {link.a.node, link.b.node} <= taken
