"""A tree of switches whose bitmaps name children, small enough to explore all that can happen.

tree.p4 (docs/tree.md) is this model with ``Rule.FENCE`` and ``root_fence``: a switch's bitmap has
a bit for each child, a worker or a switch below it, and each switch on the way down puts the bitmap
of its own children into the result. A switch that has lost its registers could then say of a worker
that it is in a sum when it is not. The fence prevents that; docs/tree.md says what else would.

The network is the set of all packets ever sent: each of them may arrive at any time, any number of
times, or never. That covers loss, duplication, reordering, any delay and retransmission. Workers
may stay silent for ever, which covers late and dead ones. Switches may lose all registers at any
moment and keep their tables. The exploration goes breadth first, so that a counterexample is one of
the shortest. As in ``exploring``, a state is left out where one with the same contents of all nodes
and at least the same packets is known.

    python -m support.child_bits_model      # in tests/: larger networks, by hand
"""

from __future__ import annotations

import enum
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeAlias

from support.exploring import BITS, WrongSumError

ROOT = 0
Tree: TypeAlias = tuple[Any, ...]
"""Nested: a switch is a tuple of its children, a worker is its number."""

RACK: Tree = ((0, 1),)
RACKS: Tree = ((0, 1), (2,))
EVEN_RACKS: Tree = ((0, 1), (2, 3))
TALL_RACK: Tree = (((0, 1),),)
POD: Tree = (((0, 1), (2,)),)
PODS: Tree = (((0, 1),), ((2,),))


class Rule(enum.Enum):
    """How a switch finds its own children in a result that says that the switch is in it."""

    COMPLETE = "all, if the result lacks nobody; else its register, if it has sent a sum up"
    FENCE = "as COMPLETE, if the switch has kept its registers since the epoch began"


class Slot(NamedTuple):
    """What a switch holds for one copy of a slot.

    Attributes:
        sequence: of its chunk; 0 for none.
        bits: the children that are in; in a result, those that are in the result.
        mode: 1 nothing is added any more, 2 it is the result, 4 that lacks workers.
        count: workers that are in.
        total: their sum.
    """

    sequence: int = 0
    bits: int = 0
    mode: int = 0
    count: int = 0
    total: int = 0


EMPTY = Slot()


class Up(NamedTuple):
    """A sum on its way to the root.

    Attributes:
        to: the switch it goes to.
        child: which of that switch's children sends it.
        request: so many levels of switches are to send what is there.
        up: always true; named tuples are equal by their fields alone, and no Up equals a Down.
    """

    to: int
    child: int
    chunk: int
    count: int
    total: int
    request: int = 0
    up: bool = True


class Down(NamedTuple):
    """A result on its way to the workers.

    Attributes:
        to: a switch, or ``~worker``.
        bits: the sender's children that are in.
        lacks: not all workers are in.
    """

    to: int
    chunk: int
    bits: int
    count: int
    total: int
    lacks: bool


Packet: TypeAlias = Up | Down
Effect: TypeAlias = tuple[Slot, tuple[Packet, ...]]


Received: TypeAlias = tuple[tuple[int, int], ...]
"""What a worker has: (chunk, the sum)."""


class Nodes(NamedTuple):
    """What all nodes hold.

    Attributes:
        slots: of each switch.
        lives: of each switch: 0 if it holds the fence, as of the epoch's beginning; each loss of
            its registers adds 1. Below 0: it was not given the fence yet.
        received: of each worker.
        restarts: how often a switch has lost its registers.
    """

    slots: tuple[tuple[Slot, ...], ...]
    lives: tuple[int, ...]
    received: tuple[Received, ...]
    restarts: int


@dataclass(frozen=True)
class ChildBits:
    """The protocol for some small numbers.

    Args:
        tree: who is below whom.
        rule: see there.
        window, chunks: how many.
        partial: workers may ask for what is there.
        restarts: how often switches may lose their registers, all together.
        counts: the root tells by the count whether workers are missing; otherwise by its bitmap.
        root_fence: a root that has lost its registers refuses everything.
        fence_first: switches hold the fence before they let the first packet in.
    """

    tree: Tree
    rule: Rule
    window: int = 1
    chunks: int = 1
    partial: bool = field(default=False, kw_only=True)
    restarts: int = field(default=0, kw_only=True)
    counts: bool = field(default=True, kw_only=True)
    root_fence: bool = field(default=False, kw_only=True)
    fence_first: bool = field(default=True, kw_only=True)
    met: dict[tuple[Slot, int, Packet], Effect] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    delivered: dict[tuple[Nodes, int, int, int], Nodes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Of each switch: a switch's number, or ``~worker``. The root is the first."""
        found: list[tuple[int, ...]] = []

        def walk(switch: Tree) -> int:
            number = len(found)
            found.append(())
            found[number] = tuple(
                walk(child) if isinstance(child, tuple) else ~child for child in switch
            )
            return number

        walk(self.tree)
        return tuple(found)

    @property
    def name(self) -> str:
        """What distinguishes it from others, for tests."""
        tree = str(self.tree).replace(" ", "").replace(",)", ")")
        kinds = [
            "partial" * self.partial,
            f"restarts{self.restarts}" * bool(self.restarts),
            "root-fence" * self.root_fence,
        ]
        name = f"{self.rule.name.lower()}-{tree}-{self.window}-{self.chunks}"
        return "-".join([name, *filter(None, kinds)])

    @cached_property
    def above(self) -> dict[int, tuple[int, int]]:
        """Of each node but the root: the switch above it, and which of its children it is."""
        return {
            child: (switch, place)
            for switch, children in enumerate(self.children)
            for place, child in enumerate(children)
        }

    @cached_property
    def workers(self) -> int:
        return sum(child < 0 for children in self.children for child in children)

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Levels of switches below each switch."""
        heights = [0] * len(self.children)
        for switch in reversed(range(len(self.children))):
            below = [child for child in self.children[switch] if child > 0]
            heights[switch] = 1 + max(heights[child] for child in below) if below else 0
        return tuple(heights)

    def full(self, switch: int) -> int:
        return (1 << len(self.children[switch])) - 1

    def place(self, chunk: int) -> int:
        """Where a chunk is: slot and copy."""
        return chunk % self.window * 2 + chunk // self.window % 2

    def value(self, worker: int, chunk: int) -> int:
        """A worker's contribution: a bit of its own, two wide, so that a sum shows its parts."""
        return 1 << BITS * worker + 2 * chunk

    def describe(self, packet: Packet) -> str:
        """A packet that arrives, in words."""
        who = [w for w in range(self.workers) if packet.total & self.value(w, packet.chunk)]
        what = f"{who} of chunk {packet.chunk}"
        if isinstance(packet, Up):
            asks = f", which asks {packet.request} levels" if packet.request else ""
            return f"switch {packet.to} gets the sum {what}{asks}"
        to = f"switch {packet.to}" if packet.to >= 0 else f"worker {~packet.to}"
        return f"{to} gets the result {what} with bitmap {packet.bits:b}"

    # ---------------------------------------------------------------- a switch

    def arrive(self, slot: Slot, life: int, packet: Packet) -> Effect:
        """A packet reaches a switch in the ``life``-th life after its first, at the chunk's slot.

        What is then in the slot, and what the switch sends.
        """
        key = (slot, life, packet)
        effect = self.met.get(key)
        if effect is None:
            fenced = self.root_fence and packet.to == ROOT
            if packet.chunk + 1 < slot.sequence or (fenced and life != 0):
                effect = slot, ()
            elif isinstance(packet, Up):
                effect = self._contribution(slot, packet)
            else:
                effect = self._result(slot, life, packet)
            self.met[key] = effect
        return effect

    def _taken_over(self, slot: Slot, chunk: int) -> Slot:
        return slot if slot.sequence == chunk + 1 else Slot(chunk + 1)

    def _contribution(self, slot: Slot, packet: Up) -> Effect:
        switch, bit = packet.to, 1 << packet.child
        slot = self._taken_over(slot, packet.chunk)
        shut = bool(slot.mode & 1)
        reads = shut or bool(slot.bits & bit)
        if not reads:
            slot = slot._replace(
                bits=slot.bits | bit,
                count=slot.count + packet.count,
                total=slot.total + packet.total,
            )
        closes = packet.request > self.heights[switch]
        if closes and not slot.mode & 1:
            slot = slot._replace(mode=slot.mode | 1)
        missing = slot.bits != self.full(switch)
        if missing and not slot.mode & 1:
            return slot, ()
        if switch != ROOT and not slot.mode & 2:
            above, place = self.above[switch]
            return slot, (Up(above, place, packet.chunk, slot.count, slot.total, packet.request),)
        if switch == ROOT:
            lacks = slot.count != self.workers if self.counts else missing
            slot = slot._replace(mode=slot.mode & 1 | 4 * lacks)
        to_all = not reads or (switch == ROOT and missing and not shut)
        return slot, self._told(switch, slot, None if to_all else packet.child)

    def _result(self, slot: Slot, life: int, packet: Down) -> Effect:
        switch = packet.to
        held = slot
        slot = self._taken_over(slot, packet.chunk)
        inside = packet.bits >> self.above[switch][1] & 1
        bits = slot.bits
        if not inside:
            bits = 0
        elif not packet.lacks:
            bits = self.full(switch)
        elif (not slot.mode & 1 and bits != self.full(switch)) or (
            self.rule is Rule.FENCE and life != 0
        ):
            return held, ()  # the switch does not know whom of its children the result means
        mode = 3 | 4 * packet.lacks
        slot = slot._replace(bits=bits, mode=mode, count=packet.count, total=packet.total)
        return slot, self._told(switch, slot, None)

    def _told(self, switch: int, slot: Slot, only: int | None) -> tuple[Packet, ...]:
        """The result in a slot, to one child or all."""
        return tuple(
            Down(
                child,
                slot.sequence - 1,
                slot.bits,
                slot.count,
                slot.total,
                bool(slot.mode & 4),
            )
            for place, child in enumerate(self.children[switch])
            if only is None or place == only
        )

    # ---------------------------------------------------------------- a worker

    def sent(self, received: Received) -> list[int]:
        """Chunks that a worker may have sent once it has received these."""
        have = [chunk for chunk, _ in received]
        return [c for c in range(self.chunks) if c < self.window or c - self.window in have]

    def awaited(self, received: Received) -> list[int]:
        """Chunks that it may have sent, and has not received."""
        have = [chunk for chunk, _ in received]
        return [c for c in self.sent(received) if c not in have]

    def contribution(self, worker: int, chunk: int, request: int = 0) -> Up:
        return Up(*self.above[~worker], chunk, 1, self.value(worker, chunk), request)

    def takes(self, nodes: Nodes, packet: Down) -> Nodes:
        """A result reaches a worker, which takes it if it waits for it."""
        worker, chunk = ~packet.to, packet.chunk
        own = nodes.received[worker]
        if chunk not in self.awaited(own):
            return nodes
        received = list(nodes.received)
        received[worker] = tuple(sorted((*own, (chunk, packet.total))))
        return nodes._replace(received=tuple(received))

    def check(self, nodes: Nodes, packet: Down) -> None:
        """What a worker takes is right.

        Raises:
            WrongSumError: it is wrong, says something of this worker that is wrong, or is another
                one than somebody else has.
        """
        worker, chunk = ~packet.to, packet.chunk
        inside = [w for w in range(self.workers) if packet.total & self.value(w, chunk)]
        if packet.total != sum(self.value(w, chunk) for w in inside):
            raise WrongSumError(f"worker {worker} takes something else for a sum")
        if packet.count != len(inside) or packet.lacks != (len(inside) < self.workers):
            raise WrongSumError(f"worker {worker} is told of another number than are in")
        if packet.lacks and not self.partial:
            raise WrongSumError(f"worker {worker} takes a sum that lacks others")
        told = bool(packet.bits >> self.above[~worker][1] & 1)
        if told and worker not in inside:
            raise WrongSumError(f"worker {worker} is told that it is in, and it is not")
        if not told and worker in inside:
            raise WrongSumError(f"worker {worker} is told that it is not in, and it is")
        for other in nodes.received:
            if any(chunk == each and packet.total != total for each, total in other):
                raise WrongSumError(f"workers hold different sums of chunk {chunk}")

    # ---------------------------------------------------------------- all that can happen

    def start(self) -> Nodes:
        """Nothing was sent yet. The control plane has just begun an epoch on all switches."""
        switches = len(self.children)
        slots = ((EMPTY,) * (2 * self.window),) * switches
        return Nodes(slots, (int(self.fence_first) - 1,) * switches, ((),) * self.workers, 0)

    def arrives(self, nodes: Nodes, packet: Packet) -> tuple[Nodes, tuple[Packet, ...]]:
        """A packet reaches a node; what is then held, and sent."""
        switch = packet.to
        if switch < 0:
            assert isinstance(packet, Down)
            return self.takes(nodes, packet), ()
        place = self.place(packet.chunk)
        held = nodes.slots[switch]
        slot, sent = self.arrive(held[place], nodes.lives[switch], packet)
        if slot != held[place]:
            nodes = self.put(nodes, switch, place, slot)
        return nodes, sent

    def put(self, nodes: Nodes, switch: int, place: int, slot: Slot) -> Nodes:
        """The same with another content of a slot."""
        slots = list(nodes.slots)
        held = slots[switch]
        slots[switch] = (*held[:place], slot, *held[place + 1 :])
        return Nodes(tuple(slots), nodes.lives, nodes.received, nodes.restarts)

    def contributions(self, worker: int, received: Received) -> Iterator[Up]:
        """What a worker may send at any time once it has received these."""
        for chunk in self.sent(received):
            for request in range(self.heights[ROOT] + 2 if self.partial else 1):
                yield self.contribution(worker, chunk, request)

    def events(self, nodes: Nodes) -> Iterator[tuple[str, Nodes]]:
        """What may happen to a switch at any time: it loses its registers, or gets the fence."""
        for switch, life in enumerate(nodes.lives):
            lives = list(nodes.lives)
            if nodes.restarts < self.restarts:
                slots = list(nodes.slots)
                slots[switch] = (EMPTY,) * (2 * self.window)
                lives[switch] = life + (life >= 0)
                yield (
                    f"switch {switch} restarts",
                    nodes._replace(
                        slots=tuple(slots), lives=tuple(lives), restarts=nodes.restarts + 1
                    ),
                )
            if life < 0:
                lives[switch] = 0
                yield f"switch {switch} gets the fence", nodes._replace(lives=tuple(lives))

    def matters(self, nodes: Nodes, to: int, chunk: int) -> bool:
        """Whether a chunk's packet to a node may still change a node, or lead to one that does."""
        if to < 0:
            return all(chunk != each for each, _ in nodes.received[~to])
        if nodes.restarts < self.restarts:
            return True
        return chunk + 1 >= nodes.slots[to][self.place(chunk)].sequence

    # ---------------------------------------------------------------- the end of it

    def deliver(self, nodes: Nodes, packet: Packet) -> Nodes:
        """A packet reaches a node, with all that follows, none of it lost."""
        nodes, sent = self.arrives(nodes, packet)
        for further in sent:
            nodes = self.deliver(nodes, further)
        return nodes

    def _contribute(self, nodes: Nodes, worker: int, chunk: int, request: int) -> Nodes:
        """A worker sends a chunk, with all that follows, none of it lost."""
        key = nodes, worker, chunk, request
        after = self.delivered.get(key)
        if after is None:
            after = self.deliver(nodes, self.contribution(worker, chunk, request))
            self.delivered[key] = after
        return after

    def finishes(self, nodes: Nodes, dead: int | None = None) -> bool:
        """Whether all workers but ``dead`` have all chunks, if what is under way is lost, and
        nothing from then on.

        They ask for what is there once nothing else helps, level by level.
        """
        request = 0
        while True:
            before = nodes
            for worker in range(self.workers):
                if worker == dead:
                    continue
                for chunk in self.sent(nodes.received[worker]):
                    if all(chunk != each for each, _ in nodes.received[worker]):
                        nodes = self._contribute(nodes, worker, chunk, request)
            if all(len(own) == self.chunks or w == dead for w, own in enumerate(nodes.received)):
                return True
            if nodes != before:
                request = 0
            elif self.partial and request <= self.heights[ROOT]:
                request += 1
            else:
                return False


@dataclass
class Explored:
    """All that can be reached.

    Attributes:
        reached: different contents of all nodes.
        states: these with the packets under way, without those that another state covers.
        moves: steps that were tried.
        stuck: contents from which the job would not end though nothing were lost any more.
        stuck_without: (contents, worker): likewise, if this worker is dead from then on; where
            switches do not restart.
        ends: contents in which all workers have all results.
        met: every pair of a slot and a packet that reached it in some life of the switch, and what
            comes of it.
    """

    reached: list[Nodes] = field(default_factory=list, repr=False)
    states: int = 0
    moves: int = 0
    stuck: list[Nodes] = field(default_factory=list, repr=False)
    stuck_without: list[tuple[Nodes, int]] = field(default_factory=list, repr=False)
    ends: list[Nodes] = field(default_factory=list, repr=False)
    met: dict[tuple[Slot, int, Packet], Effect] = field(default_factory=dict, repr=False)


class CounterexampleError(Exception):
    """A way to something wrong.

    Attributes:
        error: what is wrong.
        steps: how it comes about: packets that arrive, and switches that restart.
    """

    def __init__(self, error: WrongSumError, steps: list[str]) -> None:
        super().__init__("\n".join([str(error), *steps]))
        self.error = error
        self.steps = steps


class _Slot:
    """A slot's content in some life of its switch, and what comes of each packet there, by number.

    Attributes:
        tried, changing, sending: masks of packets: of all that came; that change the slot; that do
            not and make the switch send something.
        after: of those that change it: what is then there.
        sent: a mask of what is sent.
    """

    def __init__(self) -> None:
        self.tried = self.changing = self.sending = 0
        self.after: dict[int, Slot] = {}
        self.sent: dict[int, int] = {}


class _Part(NamedTuple):
    """What follows from what one node holds.

    Attributes:
        spent: the (node, chunk) whose packets change nothing any more.
        slots: of a switch, for each chunk: the (node, chunk), and what is in the chunk's slot.
        awaited: of a worker: the (node, chunk) that it still takes.
        contributed: a mask of what a worker may send.
    """

    spent: tuple[tuple[int, int], ...]
    slots: tuple[tuple[tuple[int, int], _Slot], ...] = ()
    awaited: tuple[tuple[int, int], ...] = ()
    contributed: int = 0


class _Contents:
    """Contents of all nodes that were reached.

    Attributes:
        parts: of the nodes.
        covers: packets under way, none of which covers another one.
        contributed: what workers may send.
        after: of each packet that changes a node: what is then held, and a mask of what is sent.
        events: what else may happen, and what is then held.
    """

    def __init__(self, nodes: Nodes, parts: list[_Part]) -> None:
        self.nodes = nodes
        self.parts = parts
        self.covers: list[int] = []
        self.contributed = 0
        for part in parts:
            self.contributed |= part.contributed
        self.after: dict[int, tuple[_Contents, int]] = {}
        self.events: list[tuple[str, _Contents]] = []


class _Reachable:
    """All contents that were met and all packets, with their numbers.

    A set of packets is a number's bits, and what was found out of a slot's content and a packet is
    used again for all other contents with the same slot.
    """

    def __init__(self, model: ChildBits) -> None:
        self.model = model
        self.packets: list[Packet] = []
        self.to: defaultdict[tuple[int, int], int] = defaultdict(int)  # node, chunk: all for it
        self._numbers: dict[Packet, int] = {}
        self._slots: dict[tuple[int, int, Slot, int], _Slot] = {}
        self._parts: dict[tuple[object, ...], _Part] = {}
        self._contents: dict[Nodes, _Contents] = {}

    def mask(self, sent: Iterable[Packet]) -> int:
        bits = 0
        for packet in sent:
            number = self._numbers.get(packet)
            if number is None:
                number = self._numbers[packet] = len(self.packets)
                self.packets.append(packet)
                self.to[packet.to, packet.chunk] |= 1 << number
            bits |= 1 << number
        return bits

    def contents(self, nodes: Nodes) -> _Contents:
        found = self._contents.get(nodes)
        if found is None:
            parts = []
            restarting = nodes.restarts < self.model.restarts
            for switch, (held, life) in enumerate(zip(nodes.slots, nodes.lives, strict=True)):
                key: tuple[object, ...] = switch, held, life, restarting
                parts.append(self._parts.get(key) or self._part(key, nodes, switch))
            for worker, received in enumerate(nodes.received):
                key = ~worker, received
                parts.append(self._parts.get(key) or self._part(key, nodes, ~worker))
            found = self._contents[nodes] = _Contents(nodes, parts)
        return found

    def _part(self, key: tuple[object, ...], nodes: Nodes, node: int) -> _Part:
        model, chunks = self.model, range(self.model.chunks)
        spent = tuple((node, chunk) for chunk in chunks if not model.matters(nodes, node, chunk))
        if node < 0:
            received = nodes.received[~node]
            awaited = tuple((node, chunk) for chunk in model.awaited(received))
            contributed = self.mask(model.contributions(~node, received))
            part = _Part(spent, awaited=awaited, contributed=contributed)
        else:
            slots = []
            for chunk in chunks:
                place = model.place(chunk)
                slot = node, place, nodes.slots[node][place], nodes.lives[node]
                slots.append(((node, chunk), self._slots.setdefault(slot, _Slot())))
            part = _Part(spent, tuple(slots))
        self._parts[key] = part
        return part

    def arrive(self, contents: _Contents, packets: int) -> tuple[int, int]:
        """Packets reach the nodes, one of them each time: a mask of those that change something,
        and of what the others make the switches send.
        """
        changing = sent = 0
        for part in contents.parts:
            for node in part.awaited:
                changing |= packets & self.to[node]
            for node, slot in part.slots:
                here = packets & self.to[node]
                if here & ~slot.tried:
                    self._try(contents.nodes, slot, here & ~slot.tried)
                changing |= here & slot.changing
                for number in _ones(here & slot.sending):
                    sent |= slot.sent[number]
        return changing, sent

    def _try(self, nodes: Nodes, slot: _Slot, packets: int) -> None:
        slot.tried |= packets
        for number in _ones(packets):
            packet = self.packets[number]
            held = nodes.slots[packet.to][self.model.place(packet.chunk)]
            after, sent = self.model.arrive(held, nodes.lives[packet.to], packet)
            slot.sent[number] = self.mask(sent)
            if after != held:
                slot.changing |= 1 << number
                slot.after[number] = after
            elif sent:
                slot.sending |= 1 << number

    def following(self, contents: _Contents, number: int) -> tuple[_Contents, int]:
        """A packet that changes something arrives: what is then held, and a mask of what is sent.

        Raises:
            WrongSumError: a worker takes what it must not take.
        """
        found = contents.after.get(number)
        if found is None:
            packet, nodes = self.packets[number], contents.nodes
            if packet.to < 0:
                assert isinstance(packet, Down)
                self.model.check(nodes, packet)
                found = self.contents(self.model.takes(nodes, packet)), 0
            else:
                slot = contents.parts[packet.to].slots[packet.chunk][1]
                place = self.model.place(packet.chunk)
                nodes = self.model.put(nodes, packet.to, place, slot.after[number])
                found = self.contents(nodes), slot.sent[number]
            contents.after[number] = found
        return found

    def left(self, contents: _Contents, packets: int) -> int:
        """``packets`` without those that can change nothing any more."""
        for part in contents.parts:
            for node in part.spent:
                packets &= ~self.to[node]
        return packets


def explore(model: ChildBits, *, ends: bool = True) -> Explored:
    """Every interleaving, breadth first.

    Args:
        model: what to explore.
        ends: find out from which states the job would not end.

    Raises:
        CounterexampleError: there is one in which a worker takes what it must not take.
    """
    found = Explored()
    reachable = _Reachable(model)
    history: list[tuple[int, Packet | str]] = [(-1, "")]
    waiting = deque([(reachable.contents(model.start()), 0, 0)])
    while waiting:
        contents, under_way, state = waiting.popleft()
        if any(under_way & ~other == 0 for other in contents.covers):
            continue
        if not contents.covers:
            found.reached.append(contents.nodes)
            contents.events = [
                (what, reachable.contents(after)) for what, after in model.events(contents.nodes)
            ]
            if ends:
                _look_at_the_end(model, contents.nodes, found)
        following: list[tuple[_Contents, int, Packet | str]] = [
            (after, 0, what) for what, after in contents.events
        ]
        todo = contents.contributed | under_way
        changing = 0
        while todo:
            found.moves += todo.bit_count()
            now, sent = reachable.arrive(contents, todo)
            changing |= now
            todo = sent & ~under_way
            under_way |= sent
        for number in reversed(list(_ones(changing))):
            packet = reachable.packets[number]
            try:
                following.append((*reachable.following(contents, number), packet))
            except WrongSumError as error:
                steps = _steps(model, history, state, packet)
                raise CounterexampleError(error, steps) from None
        contents.covers[:] = [other for other in contents.covers if other & ~under_way]
        contents.covers.append(under_way)
        found.states += 1
        for after, sent, what in following:
            left = reachable.left(after, under_way | sent)
            if not any(left & ~other == 0 for other in after.covers):
                history.append((state, what))
                waiting.append((after, left, len(history) - 1))
    found.met = model.met
    return found


def _look_at_the_end(model: ChildBits, nodes: Nodes, found: Explored) -> None:
    if not model.finishes(nodes):
        found.stuck.append(nodes)
    found.stuck_without += [
        (nodes, dead)
        for dead in range(model.workers if model.partial and not model.restarts else 0)
        if not model.finishes(nodes, dead)
    ]
    if all(len(own) == model.chunks for own in nodes.received):
        found.ends.append(nodes)


@cache
def explored(model: ChildBits) -> Explored:
    """``explore``, once for each model."""
    return explore(model)


def _ones(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _steps(
    model: ChildBits, history: list[tuple[int, Packet | str]], state: int, last: Packet
) -> list[str]:
    steps: list[Packet | str] = [last]
    while state > 0:
        state, what = history[state]
        steps.append(what)
    return [what if isinstance(what, str) else model.describe(what) for what in reversed(steps)]


LARGE = [
    ChildBits(tree, Rule.FENCE, window, chunks, partial=True, restarts=restarts, root_fence=True)
    for tree, window, chunks, restarts in (
        (RACK, 1, 3, 1),
        (RACKS, 1, 3, 0),
        (RACKS, 2, 2, 0),
        (EVEN_RACKS, 1, 1, 1),
        (POD, 1, 1, 2),
        (PODS, 1, 1, 2),
        (PODS, 1, 2, 0),
    )
]


def main() -> None:
    """Explore larger networks, and say what was found."""
    for model in LARGE:
        began = time.perf_counter()
        found = explore(model)
        print(
            f"{model.name}: {len(found.reached):,} contents, {found.states:,} states,"
            f" {found.moves:,} moves, {len(found.stuck):,} stuck,"
            f" {time.perf_counter() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
