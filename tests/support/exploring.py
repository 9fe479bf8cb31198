"""All that can ever happen to a small network: every order, loss, repetition and delay of packets.

The network is the set of all packets ever sent: each of them may arrive at any time, any number of
times, or never. Two reductions make the number of states small and change no answer. More packets
can only do more: a state is left out where one with the same contents of all nodes and at least the
same packets is known. And what only sends packets, and changes no node, is done at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import pytest

BITS = 16  # of a total, for each worker: two for each chunk


def each_model(
    models: Iterable[Any], name: Callable[[Any], str], *, larger: Iterable[Any] = ()
) -> pytest.MarkDecorator:
    """Run a test with each of the models; with the ``larger`` ones in the second tier.

    All tests of a model run in the same process of pytest-xdist: exploring it takes most of their
    time, and is done once in a process.
    """
    marks = {each: [pytest.mark.repeats("the same with smaller networks")] for each in larger}
    return pytest.mark.parametrize(
        "model",
        [
            pytest.param(
                each,
                id=name(each),
                marks=[pytest.mark.xdist_group(f"{name(each)} explored"), *marks.get(each, ())],
            )
            for each in (*models, *marks)
        ],
    )


class WrongSumError(AssertionError):
    """A worker took something for a sum that is none."""


class Part(NamedTuple):
    """A sum on its way to the root, of the workers in ``bits``.

    ``again``: sent again. ``request``: so many levels of switches are to send what is there.
    """

    chunk: int
    bits: int
    total: int
    again: bool = False
    request: int = 0


class Result(NamedTuple):
    """A result on its way to the workers."""

    chunk: int
    bits: int
    total: int


class Sent(NamedTuple):
    """A packet that is on a link, for as long as anybody likes: to which node, and what.

    A worker's number is in a tuple of its own.
    """

    to: Any
    what: Part | Result


Received: TypeAlias = tuple[tuple[int, int], ...]
"""What a worker has: (chunk, who is in it)."""


class Nodes(Protocol):
    """What all nodes hold: a named tuple."""

    received: tuple[Received, ...]

    def _replace(self, **changes: Any) -> Any: ...


Held = TypeVar("Held", bound=Nodes)


@dataclass(frozen=True)
class Job(ABC, Generic[Held]):
    """A job on a small network, of which a protocol is made by ``start``, ``steps``, ``arrives``.

    Args:
        racks: the workers of each switch that has some.
        window, chunks: how many.
        partial: workers may ask for what is there.
        restarts: how often a switch may lose its registers.
    """

    racks: tuple[tuple[int, ...], ...]
    window: int
    chunks: int
    partial: bool = field(default=False, kw_only=True)
    restarts: int = field(default=0, kw_only=True)

    @cached_property
    def workers(self) -> int:
        return sum(map(len, self.racks))

    @cached_property
    def full_bitmap(self) -> int:
        return (1 << self.workers) - 1

    def place(self, chunk: int) -> int:
        """Where a chunk is: slot and copy."""
        return chunk % self.window * 2 + chunk // self.window % 2

    def total(self, chunk: int, bits: int) -> int:
        """The sum of a chunk: a bit of its own, two wide, for each worker and chunk."""
        return sum(1 << BITS * w + 2 * chunk for w in range(self.workers) if bits >> w & 1)

    def sent(self, received: Received) -> list[int]:
        """Chunks that a worker has sent once it has received these."""
        have = {chunk for chunk, _ in received}
        return [c for c in range(self.chunks) if c < self.window or c - self.window in have]

    def takes(self, nodes: Held, worker: int, result: Result) -> Held | None:
        """The worker receives a result; None if it does not want it.

        Raises:
            WrongSumError: it is wrong, or another than somebody else has.
        """
        own = nodes.received[worker]
        if result.chunk not in self.sent(own) or result.chunk in dict(own):
            return None
        if result.total != self.total(result.chunk, result.bits):
            raise WrongSumError(f"worker {worker} took {result} for a sum")
        if not self.partial and result.bits != self.full_bitmap:
            raise WrongSumError(f"{result} lacks a worker")
        for other in nodes.received:
            if dict(other).get(result.chunk, result.bits) != result.bits:
                raise WrongSumError(f"workers hold different sums of chunk {result.chunk}")
        received = list(nodes.received)
        received[worker] = tuple(sorted((*own, (result.chunk, result.bits))))
        return cast("Held", nodes._replace(received=tuple(received)))

    def deliver(self, nodes: Held, to: Any, packet: Part | Result) -> Held:
        """A packet reaches a switch or server, with all that follows, none of it lost."""
        nodes, sent = self.arrives(nodes, to, packet)
        for further, what in sent:
            if isinstance(further, tuple):
                assert isinstance(what, Result)
                nodes = self.takes(nodes, further[0], what) or nodes
            else:
                nodes = self.deliver(nodes, further, what)
        return nodes

    @abstractmethod
    def start(self) -> Held:
        """Nothing was sent yet."""

    @abstractmethod
    def arrives(self, nodes: Held, to: Any, packet: Part | Result) -> tuple[Held, list[Sent]]:
        """A packet reaches a switch or server; what is then held, and sent."""

    @abstractmethod
    def steps(self, nodes: Held, packets: frozenset[Sent]) -> Iterator[tuple[Held, list[Sent]]]:
        """What can happen next.

        Raises:
            WrongSumError: a worker takes a wrong sum.
        """

    def matter(self, nodes: Held, packets: frozenset[Sent]) -> frozenset[Sent]:
        """``packets`` without such as can never again change a node or lead to one that does."""
        del nodes
        return packets

    @abstractmethod
    def finishes(self, nodes: Held) -> bool:
        """Whether the job ends if all packets are lost, and from then on none is."""


@dataclass
class Explored:
    """All that can be reached.

    Attributes:
        contents: different contents of all nodes.
        states: these with the packets under way, without those that another state covers.
        moves: steps that were tried.
        stuck: contents from which the job would not finish though nothing were lost any more.
    """

    contents: int = 0
    states: int = 0
    moves: int = 0
    stuck: int = 0
    known: dict[Any, list[frozenset[Sent]]] = field(default_factory=dict, repr=False)


def explore(model: Job[Any], *, ends: bool = True) -> Explored:
    """Every interleaving.

    Args:
        model: what to explore.
        ends: find out from which states the job would not end.

    Raises:
        WrongSumError: there is one in which a worker takes a wrong sum.
    """
    found = Explored()
    waiting: list[tuple[Any, frozenset[Sent]]] = [(model.start(), frozenset())]
    while waiting:
        nodes, packets = waiting.pop()
        if any(packets <= other for other in found.known.get(nodes, ())):
            continue
        following: list[tuple[Any, frozenset[Sent]]] = []
        settled = False
        while not settled:  # until nothing more is sent that changes no node
            settled = True
            following.clear()
            for after, sent in model.steps(nodes, packets):
                found.moves += 1
                if after == nodes:
                    if not packets.issuperset(sent):
                        packets |= frozenset(sent)
                        settled = False
                else:
                    following.append((after, frozenset(sent)))
        covers = found.known.setdefault(nodes, [])
        if not covers and ends:
            found.stuck += not model.finishes(nodes)
        covers[:] = [other for other in covers if not other <= packets]
        covers.append(packets)
        found.states += 1
        waiting += [(after, model.matter(after, packets | sent)) for after, sent in following]
    found.contents = len(found.known)
    return found
