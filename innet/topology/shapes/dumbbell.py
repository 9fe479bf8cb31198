"""Two switches and the link between them, the bottleneck."""

from __future__ import annotations

from innet.core.errors import InputError
from innet.topology.topologies import Shape, Topology, TreeNode


class Dumbbell(Topology):
    """Two switches and the link between them, half of the workers at each; s1 is the root."""

    arguments = ("workers", "jobs")
    jobs = 2
    is_bottleneck = True

    def shape(self, workers: int) -> Shape:
        """See ``Topology``. It needs a worker on each side."""
        if workers < 2:
            raise InputError("a dumbbell has workers on both sides: give at least 2.")
        right = TreeNode("s2", 1, range((workers + 1) // 2, workers))
        return Shape(TreeNode("s1", 0, range(workers), (right,)))
