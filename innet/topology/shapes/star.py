"""One switch."""

from __future__ import annotations

from innet.topology.topologies import Shape, Topology, TreeNode


class Star(Topology):
    """One switch, s1, with all workers."""

    def shape(self, workers: int) -> Shape:
        """See ``Topology``."""
        return Shape(TreeNode("s1", 0, range(workers)))
