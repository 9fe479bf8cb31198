"""Message graphs: what baselines send, and what each message waits for.

A collective without a switch that sums (ring, halving-doubling, parameter server, all-gather,
gTop-k's tree) is a set of messages between hosts. A message waits for messages that its source
receives, and for messages that its source sends: for the former until they are delivered, for the
latter until the source knows so. It starts when it waits for none any more, its time ``earliest``
has come, and ``delay`` has passed since then. A message whose source is its destination takes no
network: it is work at that host, or a point where others are waited for.

Gradients are cut into chunks of elements as MPI and Gloo cut them: of n chunks, the first ones
have an element more if n does not divide. A chunk without elements is a message without bytes,
which is sent all the same.

The graph also says what each message carries, so that it can be run on arrays: a range of
elements, which the destination sums to its own or takes over in place of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from innet.core.errors import InputError, UnknownNameError
from innet.core.numbers import is_int, is_real
from innet.kernels.layout.formats import FORMATS, MX_BLOCK, NumberFormat
from innet.sim.network import SECOND

Ints = NDArray[np.int64]
_PIECES_AHEAD = 2  # of a hierarchy's messages between two hosts, pieces under way at a time


@dataclass(frozen=True, slots=True)
class SentElements:
    """How elements travel: their bytes in a message, and what it takes to sum them.

    Attributes:
        bits: of an element.
        block: elements of a message that share a scale; 0 for all of them.
        scale_bytes: of a scale; 0 without scales.
        lossless: by how many times a coder without loss shortens the elements, at least 1.
        index_bytes: of the index that comes with each element of a sparse gradient.
        hop_cost: picoseconds that a host takes for an element that is summed on its way, to decode
            what came and to encode the sum.
    """

    bits: int
    block: int = 0
    scale_bytes: int = 0
    lossless: float = 1.0
    index_bytes: int = 0
    hop_cost: float = 0.0

    @classmethod
    def of(cls, dtype: str | SentElements) -> SentElements:
        """Those of a type by its name; what is none of a name itself.

        Raises:
            UnknownNameError: no such type.
        """
        if isinstance(dtype, SentElements):
            return dtype
        if dtype not in ELEMENTS:
            raise UnknownNameError("element type", dtype, ELEMENTS)
        return ELEMENTS[dtype]

    def bytes(self, elements: ArrayLike) -> Ints:
        """Those of messages of so many elements: codes without gaps, scales and indices."""
        number = np.asarray(elements, np.int64)
        codes = -(-number * self.bits // 8)
        if self.lossless != 1.0:
            codes = np.ceil(codes / self.lossless).astype(np.int64)
        scales = -(-number // self.block) if self.block else number > 0
        size: Ints = codes + self.scale_bytes * scales + self.index_bytes * number
        return size

    def cost(self, elements: ArrayLike, reduce_cost: float) -> Ints:
        """Picoseconds to sum so many elements that came.

        Args:
            elements: int64, any shape.
            reduce_cost: picoseconds for each of their bytes.

        Raises:
            InputError: a cost that is none.
        """
        if not is_real(reduce_cost) or not math.isfinite(reduce_cost) or reduce_cost < 0:
            raise InputError(
                f"reduce_cost is {reduce_cost!r}; give picoseconds per byte, 0 or more."
            )
        number = np.asarray(elements, np.int64)
        taken = self.bytes(number) * float(reduce_cost) + number * self.hop_cost
        ticks: Ints = np.rint(taken).astype(np.int64)
        return ticks


def _elements_of(form: NumberFormat) -> SentElements:
    """A number format's: scales are E8M0, a byte, or a float32 where they are no powers of two."""
    block = MX_BLOCK if form.scaled == "block" else 0
    return SentElements(form.width, block, 4 if form.scaled == "linear" else 1)


ELEMENTS: Mapping[str, SentElements] = MappingProxyType(
    {"float32": SentElements(32), "float16": SentElements(16), "bfloat16": SentElements(16)}
    | {name: _elements_of(form) for name, form in FORMATS.items() if form.scaled != "no"}
)
"""How elements travel, by the name of their type or number format."""


@dataclass(frozen=True, slots=True)
class MessageGraph:
    """Messages, (n,) each, in an order in which none depends on a later one.

    Attributes:
        source, destination: int32, numbers of hosts. Equal for work that takes no network.
        bytes: int64, payload.
        dependencies: int32, how many messages it waits for.
        first, dependents: int64 (n + 1,) and (m,): those that wait for message i are
            ``dependents[first[i] : first[i + 1]]``.
        delay: int64, picoseconds from when it may start to its start: the cost of summing what
            came. Delays at a host overlap.
        earliest: int64, picoseconds before which it does not start.
        offset, elements: int64, the range that it carries.
        reduces: bool, whether the destination sums the range to its own.
    """

    source: NDArray[np.int32]
    destination: NDArray[np.int32]
    bytes: Ints
    dependencies: NDArray[np.int32]
    first: Ints
    dependents: Ints
    delay: Ints
    earliest: Ints
    offset: Ints
    elements: Ints
    reduces: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def hosts(self) -> int:
        """The highest number of a host, plus 1."""
        return int(max(self.source.max(initial=-1), self.destination.max(initial=-1))) + 1

    def connections(self) -> tuple[NDArray[np.int32], int]:
        """Which messages share a connection: those of the same source and destination.

        Returns:
            int32 (n,), the number of each message's connection; how many there are.
        """
        pairs = self.source.astype(np.int64) * self.hosts + self.destination
        found, number = np.unique(pairs, return_inverse=True)
        return number.astype(np.int32), len(found)

    def starting(self, seconds: ArrayLike) -> MessageGraph:
        """The same, where no host sends before its time.

        Args:
            seconds: of each host, or one for all.

        Raises:
            InputError: a time that is none, or not one for each host.
        """
        times = np.asarray(seconds, np.float64)
        if times.ndim > 1 or (times.ndim == 1 and len(times) < self.hosts):
            raise InputError(
                f"start times have the shape {times.shape}; give one for each of the "
                f"{self.hosts} hosts, or one for all."
            )
        if not (np.isfinite(times).all() and (times >= 0).all() and (times < 1e6).all()):
            raise InputError("a start time is not from 0 to 1e6 seconds; give seconds.")
        ticks = np.broadcast_to(np.rint(times * SECOND).astype(np.int64), max(times.size, 1))
        at_source = ticks[self.source] if times.ndim else np.full(len(self), ticks[0])
        return replace(self, earliest=np.maximum(self.earliest, at_source))


class GraphBuilder:
    """Messages and their dependencies, added in blocks.

    Args:
        kind: how elements travel.
    """

    def __init__(self, kind: SentElements) -> None:
        self._kind = kind
        self._columns: list[tuple[NDArray[np.int64], ...]] = []
        self._edges: list[tuple[Ints, Ints]] = []
        self._size = 0

    def add(
        self,
        source: ArrayLike,
        destination: ArrayLike,
        offset: ArrayLike,
        elements: ArrayLike,
        *,
        reduces: bool = False,
        delay: ArrayLike = 0,
        beside: ArrayLike = 0,
    ) -> Ints:
        """Add messages; returns their numbers, in the shape that the arguments have together.

        ``beside`` is elements that take their bytes in a message, too, but are none that it sums or
        replaces.
        """
        given = np.broadcast_arrays(source, destination, offset, elements, reduces, delay, beside)
        self._columns.append(tuple(np.asarray(each, np.int64).ravel() for each in given))
        numbers = self._size + np.arange(given[0].size).reshape(given[0].shape)
        self._size += given[0].size
        return numbers

    def wait(self, later: ArrayLike, earlier: ArrayLike) -> None:
        """Let each of ``later`` wait for the one of ``earlier`` at its place."""
        pairs = np.broadcast_arrays(np.asarray(earlier, np.int64), np.asarray(later, np.int64))
        self._edges.append((pairs[0].ravel(), pairs[1].ravel()))

    def build(self) -> MessageGraph:
        """The graph of all that was added."""
        columns = [np.concatenate(column) for column in zip(*self._columns, strict=True)]
        if not columns:
            columns = [np.zeros(0, np.int64)] * 7
        source, destination, offset, elements, reduces, delay, beside = columns
        return _graph(
            source,
            destination,
            self._kind.bytes(elements + beside),
            _joined([earlier for earlier, _ in self._edges]),
            _joined([later for _, later in self._edges]),
            delay=delay,
            earliest=np.zeros(self._size, np.int64),
            offset=offset,
            elements=elements,
            reduces=reduces != 0,
        )


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _graph(
    source: Ints,
    destination: Ints,
    size: Ints,
    earlier: Ints,
    later: Ints,
    **columns: NDArray[np.generic],
) -> MessageGraph:
    """A graph from its edges: ``later[i]`` waits for ``earlier[i]``."""
    count = len(source)
    order = np.argsort(earlier, kind="stable")
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(earlier, minlength=count), out=first[1:])
    return MessageGraph(
        source=source.astype(np.int32),
        destination=destination.astype(np.int32),
        bytes=size,
        dependencies=np.bincount(later, minlength=count).astype(np.int32),
        first=first,
        dependents=later[order],
        **columns,  # type: ignore[arg-type] # the caller's, by their names
    )


def transfers(
    source: Sequence[int], destination: Sequence[int], size: Sequence[int], start: Sequence[float]
) -> MessageGraph:
    """Messages that wait for none: of so many bytes each, and not before ``start``, seconds.

    Raises:
        InputError: a size or a time that no message has.
    """
    bytes_, seconds = np.asarray(size, np.int64), np.asarray(start, np.float64)
    if (bytes_ < 1).any() or not ((seconds >= 0) & (seconds < 1e6)).all():
        raise InputError("a message has 1 byte or more, and starts from 0 to 1e6 seconds.")
    none, zeros = np.zeros(0, np.int64), np.zeros(len(bytes_), np.int64)
    return _graph(
        np.asarray(source, np.int64),
        np.asarray(destination, np.int64),
        bytes_,
        none,
        none,
        delay=zeros,
        earliest=np.rint(seconds * SECOND).astype(np.int64),
        offset=zeros,
        elements=zeros,
        reduces=np.zeros(len(bytes_), np.bool_),
    )


# ------------------------------------------------------------------ collectives


def ring_all_reduce(
    hosts: int | Sequence[int],
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
) -> MessageGraph:
    """Reduce-scatter and all-gather around a ring (Patarasuk and Yuan 2009), as NCCL's and Gloo's.

    In step s of 2(n − 1), host i sends chunk i − s to host i + 1; it has received that chunk in
    step s − 1.

    Args:
        hosts: their numbers in the order of the ring, or how many.
        elements: of the gradient.
        dtype: of its elements, a name of ``ELEMENTS``, or how they travel.
        reduce_cost: picoseconds that a host takes to sum a byte of what came.

    Raises:
        InputError, UnknownNameError: arguments that are none.
    """
    ring = _hosts(hosts)
    kind = SentElements.of(dtype)
    offset, length = chunks(_count(elements, "elements"), len(ring))
    built, n = GraphBuilder(kind), len(ring)
    before = np.zeros(0, np.int64)
    for step in range(2 * (n - 1)):
        which = (np.arange(n) - step) % n
        delay = kind.cost(length[which], reduce_cost) if 0 < step < n else 0
        now = built.add(
            ring,
            np.roll(ring, -1),
            offset[which],
            length[which],
            reduces=step < n - 1,
            delay=delay,
        )
        if step:
            built.wait(now, np.roll(before, 1))
        before = now
    return built.build()


def halving_doubling_all_reduce(
    hosts: int | Sequence[int],
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
) -> MessageGraph:
    """Recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005, section 4.5).

    With n no power of two, of the first 2r hosts the even ones give all they have to the odd ones
    before, and are given the sum after; r is n less the power of two below it.

    A step of a host is an exchange, as by ``MPI_Sendrecv``: the next one begins when what it sent
    is acknowledged, too. Otherwise hosts that are a little ahead would send to partners that still
    receive from others, which halves both rates, and each step would double who is late.

    Arguments and errors are those of ``ring_all_reduce``.
    """
    every, kind = _hosts(hosts), SentElements.of(dtype)
    total, n = _count(elements, "elements"), len(every)
    power = 1 << (n.bit_length() - 1)
    rest = n - power
    givers, takers = every[0 : 2 * rest : 2], every[1 : 2 * rest : 2]
    within = np.concatenate([takers, every[2 * rest :]])
    built = GraphBuilder(kind)
    received: list[Ints] = []  # numbers of the messages to each of ``within``, -1 for none
    costs = np.zeros(power, np.int64)  # of the summing before the next message
    if rest:
        now = built.add(givers, takers, 0, total, reduces=True)
        received.append(np.concatenate([now, np.full(power - rest, -1)]))
        costs[:rest] = kind.cost(np.full(rest, total), reduce_cost)
    exchanged: Ints | None = None  # what was sent in the step before
    rank = np.arange(power)
    bounds = np.append(chunks(total, power)[0], total)
    distances = [power >> step for step in range(1, power.bit_length())]
    for halving in (True, False):
        for distance in distances if halving else reversed(distances):
            # Chunks that host and partner share, and the half of them that is the other's.
            low = rank // distance * distance
            if halving:
                low ^= distance
            begin, end = bounds[low], bounds[low + distance]
            partner = rank ^ distance
            now = built.add(
                within, within[partner], begin, end - begin, reduces=halving, delay=costs
            )
            _after(built, now, received)
            if exchanged is not None:
                built.wait(now, exchanged)
            exchanged = now
            received.append(now[partner])
            costs = np.zeros(power, np.int64)
            if halving:
                costs = kind.cost((end - begin)[partner], reduce_cost)
    if rest:
        now = built.add(takers, givers, 0, total, delay=costs[:rest])
        _after(built, now, [each[:rest] for each in received])
    return built.build()


def _after(built: GraphBuilder, now: Ints, received: Sequence[Ints]) -> None:
    """Messages wait for all that their sources have received."""
    for each in received:
        built.wait(now[each >= 0], each[each >= 0])


def parameter_server(
    hosts: int | Sequence[int],
    servers: Sequence[int],
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
) -> MessageGraph:
    """Workers push gradients to servers, which sum them and send the sums back.

    Args:
        hosts: the workers, or how many.
        servers: hosts of the servers, each of which sums a chunk of the gradient: other hosts, or
            workers (all of them: as BytePS without additional hosts). A server's own gradient
            takes no network.
        elements: of the gradient.
        dtype: of its elements.
        reduce_cost: picoseconds that a server takes to sum a byte. What came earlier is summed
            while the next comes, so the last gradient's summing delays the answer.

    Raises:
        InputError, UnknownNameError: arguments that are none.
    """
    workers, kind = _hosts(hosts), SentElements.of(dtype)
    places = _hosts(servers)
    offset, length = chunks(_count(elements, "elements"), len(places))
    built = GraphBuilder(kind)
    # Each worker begins with another server, so that they do not all send to one at first; and so
    # do the servers with the workers.
    turn = (np.arange(len(workers))[:, None] + np.arange(len(places))) % len(places)
    source = np.broadcast_to(workers[:, None], turn.shape)
    away = source != places[turn]
    pushes = built.add(
        source[away], places[turn][away], offset[turn][away], length[turn][away], reduces=True
    )
    # A message of the server to itself: all have come, and are summed.
    summed = built.add(places, places, 0, 0, delay=kind.cost(length, reduce_cost))
    built.wait(summed[turn[away]], pushes)
    turn = (np.arange(len(places))[:, None] + np.arange(len(workers))) % len(workers)
    which = np.broadcast_to(np.arange(len(places))[:, None], turn.shape)
    away = workers[turn] != places[:, None]
    pulls = built.add(
        places[which][away], workers[turn][away], offset[which][away], length[which][away]
    )
    built.wait(pulls, summed[which[away]])
    return built.build()


def all_gather(
    hosts: int | Sequence[int],
    elements_per_host: ArrayLike,
    *,
    dtype: str | SentElements = "float32",
) -> MessageGraph:
    """Each host's elements to all hosts, around a ring: sparse gradients that no one sums.

    A sparse gradient's element is an index and a value: with 32 bits each, count them as two.

    Args:
        hosts: as of ``ring_all_reduce``.
        elements_per_host: how many each of them has. The range of a message is that in the
            concatenation of all.
        dtype: of the elements.

    Raises:
        InputError, UnknownNameError: arguments that are none.
    """
    ring, kind = _hosts(hosts), SentElements.of(dtype)
    length = np.asarray(elements_per_host)
    if length.dtype.kind not in "iu" or length.shape != (len(ring),) or (length < 0).any():
        raise InputError(
            f"elements_per_host must be {len(ring)} integers of 0 or more, one for each host."
        )
    length = length.astype(np.int64)
    offset = np.concatenate([[0], np.cumsum(length)[:-1]])
    built, n = GraphBuilder(kind), len(ring)
    before = np.zeros(0, np.int64)
    for step in range(n - 1):
        which = (np.arange(n) - step) % n
        now = built.add(ring, np.roll(ring, -1), offset[which], length[which])
        if step:
            built.wait(now, np.roll(before, 1))
        before = now
    return built.build()


def gtopk_tree(
    hosts: int | Sequence[int],
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
) -> MessageGraph:
    """gTop-k's all-reduce (Shi et al., ICDCS 2019): pairs merge up a tree, and the root broadcasts.

    In step j of ⌈log₂ n⌉, host i + 2^j gives its gradient to host i, for each i that 2^(j+1)
    divides, and the two are merged to as many elements. The sum goes back by the same tree, one
    message of a host after the other. With k values and k indices of 32 bits, ``elements`` is 2k.
    On dense arrays, merging is summing.

    Arguments and errors are those of ``ring_all_reduce``; ``reduce_cost`` is that of merging.
    """
    every, kind = _hosts(hosts), SentElements.of(dtype)
    total, n = _count(elements, "elements"), len(every)
    steps = (n - 1).bit_length()
    merging = int(kind.cost(total, reduce_cost))
    built = GraphBuilder(kind)
    received: list[list[int]] = [[] for _ in range(n)]
    given = np.full(n, -1)  # the last message that a host sent down
    for step in range(steps):
        targets = np.arange(0, n - (1 << step), 2 << step)
        sources = targets + (1 << step)
        now = built.add(
            every[sources], every[targets], 0, total, reduces=True, delay=merging if step else 0
        )
        for message, source, target in zip(now.tolist(), sources, targets, strict=True):
            built.wait(np.full(len(received[source]), message), received[source])
            received[target].append(message)
    for step in reversed(range(steps)):
        sources = np.arange(0, n - (1 << step), 2 << step)
        targets = sources + (1 << step)
        first = step == steps - 1  # from the root, which has merged
        now = built.add(every[sources], every[targets], 0, total, delay=merging if first else 0)
        for message, source, target in zip(now.tolist(), sources, targets, strict=True):
            if given[source] >= 0:
                built.wait(message, given[source])
            built.wait(np.full(len(received[source]), message), received[source])
            received[target].append(message)
            given[source] = message
    return built.build()


def direct_all_gather(
    hosts: int | Sequence[int], elements: int, *, dtype: str | SentElements = "float32"
) -> MessageGraph:
    """Each host sends its part to each other one, beginning with the next: n - 1 messages.

    Args:
        hosts: as of ``ring_all_reduce``.
        elements: of all parts together, which differ by one at most.
        dtype: of the elements.

    Raises:
        InputError, UnknownNameError: arguments that are none.
    """
    every, kind = _hosts(hosts), SentElements.of(dtype)
    offset, length = chunks(_count(elements, "elements"), len(every))
    built, own = GraphBuilder(kind), np.arange(len(every))
    for distance in range(1, len(every)):
        built.add(every, np.roll(every, -distance), offset[own], length[own])
    return built.build()


def pat_all_gather(
    hosts: int | Sequence[int], elements: int, *, dtype: str | SentElements = "float32"
) -> MessageGraph:
    """NCCL's parallel aggregated trees, after Jeaugey: PAT: a new algorithm for all-gather and
    reduce-scatter operations at scale, 2025, https://arxiv.org/abs/2506.20252.

    Each host's part goes to all by a binomial tree that begins at that host. All trees take the
    same steps, of the power of two below n, then half of it, and so on: in each a host sends all
    parts that it has, and that the host so far ahead needs. So the first messages, which go
    farthest, carry one part, and the last ones half of all. A step begins when the messages of the
    one before are acknowledged. NCCL sends fewer parts at a time where its buffers are full, which
    takes more steps; here they have room.

    Arguments and errors are those of ``direct_all_gather``.
    """
    return _trees(hosts, elements, dtype, scatters=False)


def _trees(
    hosts: int | Sequence[int], elements: int, dtype: str | SentElements, *, scatters: bool
) -> MessageGraph:
    """An all-gather by binomial trees, or a reduce-scatter, which goes from their leaves."""
    every, kind = _hosts(hosts), SentElements.of(dtype)
    n = len(every)
    offset, length = chunks(_count(elements, "elements"), n)
    built, owner = GraphBuilder(kind), np.arange(n)
    # Messages by their owner's number; trees' nodes by how far they are ahead of the owner.
    came: list[list[Ints]] = [[] for _ in range(n)]
    before: list[tuple[int, Ints]] = []  # of the last step: where they were sent, and which
    steps = [1 << step for step in range(max(0, n - 1).bit_length())]
    for distance in steps if scatters else steps[::-1]:
        sent = []
        for near in range(0, n - distance, 2 * distance):
            begin, end = (near + distance, near) if scatters else (near, near + distance)
            source, target = every[(owner + begin) % n], every[(owner + end) % n]
            now = built.add(source, target, offset[owner], length[owner], reduces=scatters)
            for earlier in came[begin]:
                built.wait(now, earlier)
            for place, earlier in before:  # of the same host, for another owner
                built.wait(now, np.roll(earlier, place - begin))
            came[end].append(now)
            sent.append((begin, now))
        before = sent
    return built.build()


def as_reduce_scatter(gather: MessageGraph) -> MessageGraph:
    """The reduce-scatter whose messages are those of an all-gather, in opposite directions and
    order: what was handed on is summed. For graphs whose messages wait for what came alone.
    """
    last = len(gather) - 1
    earlier = np.repeat(np.arange(len(gather)), np.diff(gather.first))
    columns = {
        name: getattr(gather, name)[::-1].copy()
        for name in ("delay", "earliest", "offset", "elements")
    }
    return _graph(
        gather.destination[::-1].astype(np.int64),
        gather.source[::-1].astype(np.int64),
        gather.bytes[::-1].copy(),
        last - gather.dependents,
        last - earlier,
        **columns,
        reduces=np.ones(len(gather), np.bool_),
    )


TREE_CHUNK = 512 << 10
"""Bytes of a chunk of NCCL's tree: an eighth of its buffer of 4 MiB (NCCL_BUFFSIZE)."""


def nccl_tree_all_reduce(
    hosts: int | Sequence[int],
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
    chunk: int = TREE_CHUNK,
) -> MessageGraph:
    """NCCL's double binary tree: each half of the gradient is summed up a tree, and sent down it.

    Two trees with the same hosts, after Sanders, Speck and Träff, Two-tree algorithms for full
    bandwidth broadcast, reduction and scan, Parallel Computing 2009: a host that sends nothing on
    in one of them is inside the other. A tree's half is cut into chunks, which follow each other
    through it. A host sends a chunk up when it has summed those of its children, and down when it
    has that of its parent, and one after the other: a host gives its link to all messages that may
    be sent, and so would have all chunks arrive together at the end.

    In NCCL trees are of machines, and within one GPUs are in a chain. Here each host is one; see
    ``innet.sim.gpu_hosts`` for hosts with several.

    Arguments and errors are those of ``ring_all_reduce``; ``chunk``: bytes, 1 element or more.
    """
    trees = double_tree(len(_hosts(hosts)))
    return trees_all_reduce(
        hosts, trees, elements, dtype=dtype, reduce_cost=reduce_cost, chunk=chunk
    )


def trees_all_reduce(
    hosts: int | Sequence[int],
    trees: Sequence[Sequence[int]],
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
    chunk: int = TREE_CHUNK,
) -> MessageGraph:
    """The same by any trees, each of which has an equal part of the gradient.

    Args:
        hosts: as of ``ring_all_reduce``.
        trees: of each, the parents of the hosts by their places among them, -1 for the root.
        elements: of the gradient.
        dtype: of its elements.
        reduce_cost: as of ``ring_all_reduce``.
        chunk: bytes of a message, 1 element or more.

    Raises:
        InputError, UnknownNameError: arguments that are none.
    """
    every, kind = _hosts(hosts), SentElements.of(dtype)
    total, n = _count(elements, "elements"), len(every)
    least = int(kind.bytes(1))
    if not is_int(chunk) or chunk < least:
        raise InputError(f"chunk is {chunk!r}; give bytes, {least} or more.")
    built = GraphBuilder(kind)
    starts, halves = chunks(total, len(trees))
    for half, parents in enumerate(trees):
        pieces = max(1, -(-int(kind.bytes(halves[half])) // chunk))
        offset, length = chunks(int(halves[half]), pieces)
        offset = offset + starts[half]
        cost = kind.cost(length, reduce_cost)
        children: list[list[int]] = [[] for _ in range(n)]
        for child, parent in enumerate(parents):
            if parent >= 0:
                children[parent].append(child)
        # From the leaves to the root; a message waits for those of the children.
        order = _from_leaves(parents)
        up: dict[int, Ints] = {}
        for host in order[:-1]:
            delay = cost if children[host] else 0
            to = every[parents[host]]
            up[host] = built.add(every[host], to, offset, length, reduces=True, delay=delay)
            built.wait(up[host][1:], up[host][:-1])
            for child in children[host]:
                built.wait(up[host], up[child])
        down: dict[int, Ints] = {}
        for host in reversed(order):
            for child in children[host]:
                is_root = parents[host] < 0
                delay = cost if is_root else 0
                down[child] = built.add(every[host], every[child], offset, length, delay=delay)
                built.wait(down[child][1:], down[child][:-1])
                for earlier in [up[each] for each in children[host]] if is_root else [down[host]]:
                    built.wait(down[child], earlier)
    return built.build()


def double_tree(n: int) -> tuple[list[int], list[int]]:
    """Each host's parent in two binary trees, -1 for the root.

    In the first a host hangs below the one from which it differs by its lowest bit that is set; so
    hosts with odd numbers are its leaves. The other is that of the hosts in opposite order, or if
    their number is odd one further on.
    """
    first = [-1] * n
    for host in range(1, n):
        lowest = host & -host
        above = (host ^ lowest) | (lowest << 1)
        first[host] = above if above < n else host ^ lowest
    place = [(host - 1) % n if n % 2 else n - 1 - host for host in range(n)]  # in the first tree
    at = {where: host for host, where in enumerate(place)}
    second = [at[first[where]] if first[where] >= 0 else -1 for where in place]
    return first, second


def _from_leaves(parents: Sequence[int]) -> list[int]:
    """The hosts of a tree, each after its children; the root is the last one."""
    depths = []
    for host in range(len(parents)):
        depth, above = 0, host
        while parents[above] >= 0:
            depth, above = depth + 1, parents[above]
        depths.append(depth)
    return sorted(range(len(parents)), key=lambda host: -depths[host])


HIERARCHY_PIECES = 16
"""Pieces of a gradient that follow each other through a hierarchy, at most."""


def hierarchical_all_reduce(
    groups: Sequence[Sequence[int]],
    elements: int,
    *,
    dtype: str | SentElements = "float32",
    reduce_cost: float = 0.0,
    pieces: int = 1,
    switches: Sequence[int] = (),
) -> MessageGraph:
    """A reduce-scatter in each group, rings across groups for each chunk, and all-gathers.

    As NCCL and Horovod do it with the GPUs of a machine, also with hosts of a rack: links between
    groups carry each chunk once around a ring of groups. Within a group there are rings; or its
    switch sums and multicasts, as NVSwitch does for NCCL's NVLS. It then takes all that a member
    has, and gives each of them its chunk of the sum; and back likewise.

    Args:
        groups: hosts of each, all of the same number.
        elements: of the gradient.
        dtype: of its elements.
        reduce_cost: as of ``ring_all_reduce``.
        pieces: into which the gradient is cut. A host begins with a message of a piece when that of
            the last piece but one is acknowledged, so that links of groups and those between them
            are busy at the same time.
        switches: a host for each group's switch, which has no gradient; none for rings.

    Raises:
        InputError, UnknownNameError: arguments that are none, or groups of different sizes.
    """
    sizes = {len(group) for group in groups}
    if len(sizes) != 1:
        raise InputError(f"groups have {sorted(sizes)} hosts; give groups of the same size.")
    if switches and len(switches) != len(groups):
        raise InputError(f"{len(switches)} switches of {len(groups)} groups; give one for each.")
    if not is_int(pieces) or pieces < 1:
        raise InputError(f"pieces is {pieces!r}; give 1 or more.")
    _hosts([*(host for group in groups for host in group), *switches])  # all of them differ
    kind, (several, members) = SentElements.of(dtype), (len(groups), len(groups[0]))
    every = np.broadcast_to(np.array(groups, np.int64), (pieces, several, members))
    starts, counts = (each[:, None, None] for each in chunks(_count(elements, "elements"), pieces))
    built = GraphBuilder(kind)
    group, member = np.arange(several)[:, None], np.arange(members)[None, :]

    def add(source: Ints, target: Ints, offset: Ints, length: Ints, **more: Any) -> Ints:
        now = built.add(*np.broadcast_arrays(source, target, offset, length), **more)
        built.wait(now[_PIECES_AHEAD:], now[:-_PIECES_AHEAD])
        return now

    def ring(steps: range, before: list[Ints], *, reduces: bool) -> list[Ints]:
        for step in steps:
            offset, length = part_of(starts, counts, members, member - step)
            is_summed = step > 0 and (reduces or (step == members - 1 and several == 1))
            cost = kind.cost(length, reduce_cost) if is_summed else 0
            now = add(every, np.roll(every, -1, 2), offset, length, reduces=reduces, delay=cost)
            for each in before:
                built.wait(now, each)
            before = [np.roll(now, 1, 2)]
        return before

    # Step 1: within each group, each member gets the group's sum of a chunk.
    if switches and members > 1:
        center = np.array(switches, np.int64)[:, None]
        own = np.broadcast_to(member, every.shape)
        summed = _summed_by_switches(add, built, every, center, (starts, counts))
    else:
        own = np.broadcast_to((member + 1) % members, every.shape)
        summed = ring(range(members - 1), [], reduces=True)
    # Step 2: a ring of groups for each chunk.
    offset, length = part_of(starts, counts, members, own)
    before = summed
    for step in range(2 * (several - 1)):
        within_first, within_count = part_of(offset, length, several, group - step)
        cost = kind.cost(within_count, reduce_cost) if 0 < step < several else 0
        if step == 0 and members > 1 and not switches:
            cost = kind.cost(length, reduce_cost)
        now = add(
            every, np.roll(every, -1, 1), within_first, within_count,
            reduces=step < several - 1, delay=cost,
        )  # fmt: skip
        for each in [*before[-1:], *(summed if 0 < step < several else [])]:
            built.wait(now, each)
        # All parts of the chunk, which may come in any order, are there before it is given on.
        before = [*(before if step >= several - 1 else []), np.roll(now, 1, 1)]
    # Step 3: within each group, all members get all chunks.
    if switches and members > 1:
        given = add(every, center, offset, length)
        for each in before:
            built.wait(given, each)
        taken = add(center, every, starts, counts)
        for shift in range(members):
            built.wait(taken, np.roll(given, shift, 2))
    else:
        ring(range(members - 1, 2 * (members - 1)), before, reduces=False)
    return built.build()


def _summed_by_switches(
    add: Callable[..., Ints],
    built: GraphBuilder,
    every: Ints,
    center: Ints,
    piece: tuple[Ints, Ints],
) -> list[Ints]:
    """Messages to the switches of groups, and those with the sums of the members' own chunks.

    A switch reads a member's own chunk, too. That is bytes of the message, but none of its
    elements: in ``MessageGraph`` what comes is summed to what the member still has.
    """
    (starts, counts), members = piece, every.shape[2]
    offset, length = part_of(starts, counts, members, np.arange(members))
    behind = offset + length
    sent = [
        add(every, center, starts, offset - starts, reduces=True),
        add(every, center, behind, starts + counts - behind, reduces=True, beside=length),
    ]
    now = add(center, every, offset, length, reduces=True)
    for each in sent:
        for shift in range(members):
            built.wait(now, np.roll(each, shift, 2))
    return [now]


def part_of(offset: Ints, length: Ints, parts: int, which: Ints) -> tuple[Ints, Ints]:
    """Part ``which`` (modulo the number of parts) of each range: its offset and length."""
    number = which % parts
    small, more = length // parts, length % parts
    return offset + number * small + np.minimum(number, more), small + (number < more)


# ------------------------------------------------------------------ NCCL's protocols


@dataclass(frozen=True, slots=True)
class NcclProtocol:
    """How NCCL's kernels hand data on, and what it counts for a hop (``hwLatencies`` in its
    ``src/graph/tuning.cc``, 2.30).

    Attributes:
        widening: bytes that are sent for a byte of data: "ll" has a flag of 4 bytes beside 4 bytes
            of data, "ll128" one of 8 beside 120.
        ring, tree: microseconds of a hop between hosts.
        local_ring, local_tree: the same over NVLink.
    """

    widening: float
    ring: float
    tree: float
    local_ring: float
    local_tree: float


NCCL_PROTOCOLS: Mapping[str, NcclProtocol] = MappingProxyType(
    {
        "ll": NcclProtocol(2.0, 2.7, 5.0, 0.6, 0.6),
        "ll128": NcclProtocol(128 / 120, 4.0, 8.5, 1.9, 1.25),
        "simple": NcclProtocol(1.0, 14.0, 14.0, 3.4, 4.0),
    }
)
"""NCCL's protocols by name."""


def with_protocol(
    graph: MessageGraph, protocol: str, is_local: NDArray[np.bool_], *, tree: bool = False
) -> MessageGraph:
    """The same messages as one of NCCL's protocols sends them.

    What a hop takes is added to what its links take. NCCL's figure has a little of that in it.

    Args:
        graph: of an algorithm of NCCL's.
        protocol: a name of ``NCCL_PROTOCOLS``.
        is_local: bool (n,), which messages stay within a host.
        tree: whether it is a tree; otherwise it is a ring.

    Raises:
        UnknownNameError: no such protocol.
    """
    if protocol not in NCCL_PROTOCOLS:
        raise UnknownNameError("protocol of NCCL", protocol, NCCL_PROTOCOLS)
    how = NCCL_PROTOCOLS[protocol]
    across, local = (how.tree, how.local_tree) if tree else (how.ring, how.local_ring)
    hop = np.where(is_local, local, across) * (SECOND / 1e6)
    hop = np.where(graph.source == graph.destination, 0.0, hop)
    return replace(
        graph,
        bytes=np.ceil(graph.bytes * how.widening).astype(np.int64),
        delay=graph.delay + np.rint(hop).astype(np.int64),
    )


# ------------------------------------------------------------------ several of them


def together(graphs: Sequence[MessageGraph], *, in_order: bool = False) -> MessageGraph:
    """One graph of several, such as those of a model's buckets.

    Args:
        graphs: of the same hosts. Their ranges of elements are those of separate arrays.
        in_order: whether a host begins with a graph when it has received all of the one before,
            as the collectives of one stream do. Otherwise they run side by side.
    """
    if not graphs:
        raise InputError("no graphs are given; give at least one.")
    names = ("source", "destination", "bytes", "delay", "earliest", "offset", "elements", "reduces")
    columns = {name: [getattr(graph, name) for graph in graphs] for name in names}
    earlier, later, base, ends = [], [], 0, []
    for graph in graphs:
        earlier.append(base + np.repeat(np.arange(len(graph)), np.diff(graph.first)))
        later.append(base + graph.dependents)
        ends.append(base)
        base += len(graph)
    hosts = max(graph.hosts for graph in graphs)
    order = np.zeros(base, np.int64)
    for number, graph in enumerate(graphs):
        order[ends[number] : ends[number] + len(graph)] = 2 * number
        if in_order and number + 1 < len(graphs):
            # A message of each host to itself: it has received all of this graph.
            gates = base + np.arange(hosts)
            for name in names:
                columns[name].append(np.zeros(hosts, getattr(graph, name).dtype))
            columns["source"][-1] = columns["destination"][-1] = np.arange(hosts, dtype=np.int32)
            earlier.append(ends[number] + np.arange(len(graph)))
            later.append(gates[graph.destination])
            following = graphs[number + 1]
            earlier.append(gates[following.source])
            later.append(ends[number] + len(graph) + np.arange(len(following)))
            if number:  # hosts that receive nothing of this one have waited for the one before
                earlier.append(gates - hosts)
                later.append(gates)
            order = np.append(order, np.full(hosts, 2 * number + 1))
            base += hosts
    # Gates stand between the graphs, so that none depends on a later one.
    place = np.argsort(order, kind="stable")
    new = np.empty_like(place)
    new[place] = np.arange(base)
    joined = {name: np.concatenate(parts)[place] for name, parts in columns.items()}
    return _graph(
        joined.pop("source"),
        joined.pop("destination"),
        joined.pop("bytes"),
        new[_joined(earlier)],
        new[_joined(later)],
        **joined,
    )


# ------------------------------------------------------------------ closed forms


def ring_seconds(
    n: int,
    size: float,
    rate: float,
    latency: float = 0.0,
    reduce_cost: float = 0.0,
    *,
    hop: float = 0.0,
) -> float:
    """How long a ring takes over ideal links, with chunks of the same size.

    Args:
        n: hosts.
        size: bytes of the gradient, or bytes on the wire.
        rate: bits per second of each host's link.
        latency: seconds from a message's last bit on the wire to its delivery.
        reduce_cost: picoseconds per byte.
        hop: seconds in which a host decodes a chunk and encodes its sum.
    """
    chunk = size / n
    steps = 2 * (n - 1)
    summing = (n - 1) * (chunk * reduce_cost / SECOND + hop)
    return steps * (8 * chunk / rate + latency) + summing


def halving_doubling_seconds(
    n: int, size: float, rate: float, latency: float = 0.0, reduce_cost: float = 0.0
) -> float:
    """The same of recursive halving and doubling, on a network without oversubscription.

    ``latency`` is also that of an acknowledgement, which a host waits for before its next
    step. With n no power of two, hosts that have their own part from the start begin at
    once and share links with others, which takes a few percent more.
    """
    power = 1 << (n.bit_length() - 1)
    steps, part = power.bit_length() - 1, size * (power - 1) / power
    seconds = 16 * part / rate + max(0, 4 * steps - 1) * latency + part * reduce_cost / SECOND
    if power < n:
        # The first acknowledgements are back before those who were given something have sent.
        seconds += 16 * size / rate + latency + size * reduce_cost / SECOND
    return seconds


def parameter_server_seconds(
    n: int,
    size: float,
    rate: float,
    latency: float = 0.0,
    *,
    servers: int = 1,
    colocated: bool = False,
    reduce_cost: float = 0.0,
) -> float:
    """The same of a parameter server: its links, or the workers', are the bottleneck.

    Args:
        n: workers.
        size: bytes of the gradient.
        rate: bits per second of each host's link.
        latency: seconds from a message's last bit on the wire to its delivery.
        servers: hosts among which the gradient is divided.
        colocated: whether they are workers; as many as those, then.
        reduce_cost: picoseconds per byte.
    """
    shard = size / servers
    at_server = (n - 1 if colocated else n) * shard
    at_worker = size - shard if colocated else size
    once = 8 * max(at_server, at_worker) / rate + latency
    return 2 * once + shard * reduce_cost / SECOND


def all_gather_seconds(sizes: ArrayLike, rate: float, latency: float = 0.0) -> float:
    """The same of an all-gather around a ring; a lower bound if sizes differ.

    Args:
        sizes: bytes of each host.
        rate: bits per second of each host's link.
        latency: as of ``ring_seconds``.
    """
    given = np.asarray(sizes, np.float64)
    return float(8 * (given.sum() - given.min()) / rate + (len(given) - 1) * latency)


def gtopk_seconds(
    n: int, size: float, rate: float, latency: float = 0.0, reduce_cost: float = 0.0
) -> float:
    """The same of gTop-k's tree, for n a power of two.

    ``size`` is the bytes of k values and indices. ``latency`` is also that of an acknowledgement,
    which the root waits for before it sends to the next host.
    """
    steps = (n - 1).bit_length()
    once = 8 * size / rate
    return 2 * steps * once + (3 * steps - 1) * latency + steps * size * reduce_cost / SECOND


# ------------------------------------------------------------------ by name

ALGORITHMS: Mapping[str, Callable[..., MessageGraph]] = MappingProxyType(
    {
        "ring": ring_all_reduce,
        "halving-doubling": halving_doubling_all_reduce,
        "gtopk-tree": gtopk_tree,
        "nccl-tree": nccl_tree_all_reduce,
    }
)
"""All-reduces that are called with hosts and elements alone."""


def _ring_all_gather(
    hosts: int | Sequence[int], elements: int, *, dtype: str | SentElements = "float32"
) -> MessageGraph:
    parts = chunks(_count(elements, "elements"), len(_hosts(hosts)))[1]
    return all_gather(hosts, parts, dtype=dtype)


ALL_GATHERS: Mapping[str, Callable[..., MessageGraph]] = MappingProxyType(
    {"ring": _ring_all_gather, "direct": direct_all_gather, "pat": pat_all_gather}
)
"""All-gathers of as many elements from each host, called with hosts and all elements."""
REDUCE_SCATTERS: Mapping[str, Callable[..., MessageGraph]] = MappingProxyType(
    {
        "ring": lambda *given, **more: as_reduce_scatter(_ring_all_gather(*given, **more)),
        "direct": lambda *given, **more: as_reduce_scatter(direct_all_gather(*given, **more)),
        "pat": lambda hosts, elements, *, dtype="float32": _trees(
            hosts, elements, dtype, scatters=True
        ),
    }
)
"""The reduce-scatters that belong to them."""


def chunks(elements: int, parts: int) -> tuple[Ints, Ints]:
    """Offsets and lengths of a gradient's chunks: the first ones have an element more."""
    length = np.full(parts, elements // parts, np.int64)
    length[: elements % parts] += 1
    return np.concatenate([[0], np.cumsum(length)[:-1]]).astype(np.int64), length


def _hosts(hosts: int | Sequence[int]) -> Ints:
    given = range(hosts) if is_int(hosts) else hosts
    numbers = [int(host) if is_int(host) else -1 for host in given]  # type: ignore[union-attr] # an int is a range by now
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise InputError(
            f"hosts are {hosts!r}; give how many (1 or more), or different numbers of 0 or more."
        )
    return np.array(numbers, np.int64)


def _count(number: int, name: str) -> int:
    if not is_int(number) or number < 0:
        raise InputError(f"{name} is {number!r}; give an integer of 0 or more.")
    return int(number)
