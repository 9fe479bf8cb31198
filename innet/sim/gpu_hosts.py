"""Hosts with several GPUs, whose local links (NVLink) are faster than the network: their graphs.

GPU i is one of host i // gpus, and a host's network cards are shared among its GPUs in order. The
ends of a message are GPUs. Two of one host have a local link between them, through a switch that
does not block; others send through their cards.

A host's switch may also sum what its GPUs send, and give all of them what one does, as NVSwitch
does for NCCL's NVLS. It is an end of messages, too: those of hosts come after all GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from innet.core.errors import InputError
from innet.core.numbers import is_int
from innet.sim.messages import (
    HIERARCHY_PIECES,
    TREE_CHUNK,
    GraphBuilder,
    Ints,
    MessageGraph,
    SentElements,
    chunks,
    double_tree,
    hierarchical_all_reduce,
    part_of,
    trees_all_reduce,
)
from innet.sim.network import SECOND


@dataclass(frozen=True, slots=True)
class GpuHosts:
    """How many GPUs hosts have, and how they are joined.

    Attributes:
        hosts: how many there are.
        gpus: of each.
        nics: network cards of each; a divisor of ``gpus``, each for as many of them.
        rate: bits per second of a GPU's local link, each way.
        latency: seconds from a message's last bit on a local link to its delivery.

    Raises:
        InputError: numbers that no host has.
    """

    hosts: int
    gpus: int
    nics: int = 1
    rate: float = 3.6e12
    latency: float = 6e-7

    def __post_init__(self) -> None:
        for name in ("hosts", "gpus", "nics"):
            number = getattr(self, name)
            if not is_int(number) or number < 1:
                raise InputError(f"{name} is {number!r}; give 1 or more.")
        if self.gpus % self.nics:
            raise InputError(
                f"{self.nics} network cards for {self.gpus} GPUs of a host; give a divisor, such "
                f"as 1 or {self.gpus}."
            )

    @property
    def total(self) -> int:
        """GPUs of all hosts."""
        return self.hosts * self.gpus

    @property
    def ends(self) -> int:
        """GPUs, and the hosts' local switches, which have the numbers after them."""
        return self.total + self.hosts

    @property
    def latency_ticks(self) -> int:
        """Picoseconds of ``latency``, of which a local switch is half of the way."""
        return max(2, round(self.latency * SECOND))

    def host(self, end: ArrayLike) -> NDArray[np.int32]:
        """The hosts of GPUs or local switches."""
        given = np.asarray(end)
        return np.where(given < self.total, given // self.gpus, given - self.total).astype(np.int32)

    def nic(self, end: ArrayLike) -> NDArray[np.int32]:
        """The network cards of GPUs; of a local switch the first one of its host, which stands for
        it where it is no matter of the network.
        """
        given = np.asarray(end)
        place = np.where(given < self.total, given % self.gpus * self.nics // self.gpus, 0)
        return (self.host(given) * self.nics + place).astype(np.int32)

    def nics_of(self, graph: MessageGraph) -> int:
        """The highest number of a card that a graph uses, plus 1.

        Raises:
            InputError: a message has an end that is no GPU and no local switch of these hosts, or
                one of different hosts has a local switch as an end.
        """
        if graph.hosts > self.ends:
            raise InputError(
                f"a message names GPU {graph.hosts - 1}; there are GPUs 0 to {self.total - 1}."
            )
        across = self.host(graph.source) != self.host(graph.destination)
        if (np.maximum(graph.source, graph.destination)[across] >= self.total).any():
            raise InputError("a local switch reaches the GPUs of its own host alone.")
        ends = np.concatenate([graph.source, graph.destination])
        return int(self.nic(ends).max(initial=-1)) + 1

    def local_ticks(self, graph: MessageGraph) -> Ints:
        """Of each message within a host, picoseconds on a local link; -1 of others, and of those
        that are work at their source.
        """
        takes_link = self.is_local(graph) & (graph.source != graph.destination)
        return np.where(takes_link, self.ticks(graph.bytes), -1)

    def is_local(self, graph: MessageGraph) -> NDArray[np.bool_]:
        """Of each message, whether it stays within a host."""
        same: NDArray[np.bool_] = self.host(graph.source) == self.host(graph.destination)
        return same

    def ticks(self, size: ArrayLike) -> Ints:
        """Picoseconds that so many bytes take on a local link."""
        taken: Ints = np.ceil(np.asarray(size) * (8 * SECOND / self.rate)).astype(np.int64)
        return taken

    def pieces(self, size: int) -> int:
        """Into how many pieces that follow each other a gradient of so many bytes is cut: each has
        ``TREE_CHUNK`` bytes for each GPU of a host or more, and there are at most
        ``HIERARCHY_PIECES``.
        """
        return max(1, min(HIERARCHY_PIECES, size // (self.gpus * TREE_CHUNK)))


# ------------------------------------------------------------------ graphs


def gpu_ring_all_reduce(
    where: GpuHosts,
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
) -> MessageGraph:
    """NCCL's rings: through all GPUs of a host, and then to the next one; a ring for each card.

    Ring r has an equal part of the gradient. It enters a host at the first GPU of card r and leaves
    it at the GPU before that one, so that each card has one ring that comes and one that goes.

    Args:
        where: the GPUs.
        elements: of the gradient.
        dtype: as of ``innet.sim.messages.ring_all_reduce``.
        reduce_cost: likewise.

    Raises:
        InputError, UnknownNameError: arguments that are none.
    """
    kind, n = SentElements.of(dtype), where.total
    starts, parts = chunks(elements, where.nics)
    built = GraphBuilder(kind)
    first = np.arange(where.nics)[:, None] * (where.gpus // where.nics)
    within = np.tile((first + np.arange(where.gpus)) % where.gpus, where.hosts)
    rings = np.arange(n) // where.gpus * where.gpus + within  # (rings, GPUs), in their order
    own = np.arange(n)
    before: Ints | None = None
    for step in range(2 * (n - 1)):
        offset, length = part_of(starts[:, None], parts[:, None], n, own - step)
        delay = kind.cost(length, reduce_cost) if 0 < step < n else 0
        now = built.add(
            rings, np.roll(rings, -1, 1), offset, length, reduces=step < n - 1, delay=delay
        )
        if before is not None:
            built.wait(now, np.roll(before, 1, 1))
        before = now
    return built.build()


def gpu_tree_all_reduce(
    where: GpuHosts,
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
    chunk: int = TREE_CHUNK,
) -> MessageGraph:
    """NCCL's double binary trees: of hosts, and a chain of the GPUs within each of them.

    There are two for each card, each with an equal part of the gradient, cut into chunks as in
    ``innet.sim.messages.nccl_tree_all_reduce``. The chain of card r ends at its first GPU, which
    is the host's in the tree.

    Arguments and errors are those of ``gpu_ring_all_reduce``; ``chunk``: bytes of a message.
    """
    parents = []
    for card in range(where.nics):
        first = card * (where.gpus // where.nics)
        for tree in double_tree(where.hosts):
            above = np.full(where.total, -1)
            for place in range(where.gpus):
                own = np.arange(where.hosts) * where.gpus + (first + place) % where.gpus
                if place:
                    above[own] = own - own % where.gpus + (first + place - 1) % where.gpus
                else:
                    up = np.array(tree)
                    above[own] = np.where(up >= 0, up * where.gpus + first, -1)
            parents.append(above.tolist())
    return trees_all_reduce(
        range(where.total), parents, elements, dtype=dtype, reduce_cost=reduce_cost, chunk=chunk
    )


def gpu_hierarchical_all_reduce(
    where: GpuHosts,
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
    nvls: bool = False,
) -> MessageGraph:
    """A reduce-scatter in each host, rings across hosts for each of its GPUs, and all-gathers.

    The gradient goes through them in pieces: see ``GpuHosts.pieces``.

    Arguments and errors are those of ``gpu_ring_all_reduce``; ``nvls``: within hosts their switches
    sum and multicast, instead of rings.
    """
    kind = SentElements.of(dtype)
    return hierarchical_all_reduce(
        np.arange(where.total).reshape(where.hosts, -1).tolist(),
        elements,
        dtype=kind,
        reduce_cost=reduce_cost,
        pieces=where.pieces(int(kind.bytes(elements))),
        switches=range(where.total, where.ends) if nvls else (),
    )
