"""The slot protocol in a few lines, small enough to explore all that can ever happen.

The network is the set of all packets ever sent: any of them may arrive at any time, any number of
times, or never. That covers loss, duplication, reordering, delay of any length and retransmission
(which sends what is in the set already). A contribution is a bit of its own, two bits wide, so that
a total tells what it was made of, and counted twice it shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from innet.core.reduce_op import CollectiveOp, ReduceOp

Kind: TypeAlias = tuple[ReduceOp | CollectiveOp, int | None]
"""What is done with a chunk, and who owns it."""


class Cell(NamedTuple):
    """What a switch holds for one copy of a slot. ``totals``: one word for each worker."""

    sequence: int
    bitmap: int
    closed: bool
    totals: tuple[int, ...]


class Result(NamedTuple):
    """What a switch says of a chunk; ``totals`` is None for a worker who gets no values."""

    chunk: int
    bitmap: int
    totals: tuple[int, ...] | None


class Contribution(NamedTuple):
    """What a worker sends of a chunk; ``partial``: whoever is in is enough."""

    worker: int
    chunk: int
    partial: bool


class Answer(NamedTuple):
    """A result and whom it goes to: one worker, or all (None)."""

    result: Result
    to: int | None


class State(NamedTuple):
    """Everything: the switch, what each worker has received (chunk, bitmap), and what was sent."""

    cells: tuple[Cell, ...]
    received: tuple[tuple[tuple[int, int], ...], ...]
    results: frozenset[Result]
    restarts: int


Move: TypeAlias = tuple[str, object]


class WrongSumError(AssertionError):
    """A worker took something for a sum that is none."""


@dataclass(frozen=True)
class Model:
    """The protocol for some small numbers.

    Args:
        workers, window, chunks: how many of each.
        partial: workers may ask for what is there.
        restarts: how often the switch may lose its registers.
        remembers: the switch knows the sequence of what it holds; without, it is SwitchML.
        kinds: what is done with the chunks, in turn.
        clears: a packet without values clears what another chunk left.
    """

    workers: int
    window: int
    chunks: int
    partial: bool = False
    restarts: int = 0
    remembers: bool = True
    kinds: tuple[Kind, ...] = ((ReduceOp.SUM, None),)
    clears: bool = True
    empty: Cell = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "empty", Cell(0, 0, False, (0,) * self.workers))

    @property
    def has_owners(self) -> bool:
        """Whether chunks have owners, so that workers differ."""
        return any(owner is not None for _, owner in self.kinds)

    @property
    def full_bitmap(self) -> int:
        return (1 << self.workers) - 1

    def place(self, chunk: int) -> int:
        """Where a chunk's cell is: slot and version."""
        return chunk % self.window * 2 + chunk // self.window % 2

    def kind(self, chunk: int) -> Kind:
        """What is done with a chunk, and who owns it."""
        return self.kinds[chunk % len(self.kinds)]

    def sends(self, worker: int, chunk: int) -> bool:
        """Whether a worker sends values of a chunk."""
        operation, owner = self.kind(chunk)
        if operation == CollectiveOp.BARRIER:
            return False
        return owner is None or (worker == owner) == (operation == CollectiveOp.BROADCAST)

    def gets(self, worker: int, chunk: int) -> bool:
        """Whether a worker gets values of a chunk."""
        operation, owner = self.kind(chunk)
        if operation == CollectiveOp.BARRIER:
            return False
        return owner is None or not self.sends(worker, chunk)

    def words(self, sent: Contribution) -> tuple[int, ...]:
        """The values of a contribution; zeros if it has none."""
        return tuple(
            (1 << 2 * sent.chunk) * (worker == sent.worker and self.sends(worker, sent.chunk))
            for worker in range(self.workers)
        )

    def total(self, chunk: int, bitmap: int) -> tuple[int, ...]:
        """The sum of a chunk over the workers in ``bitmap``, as far as they send values."""
        return tuple(
            (1 << 2 * chunk) * (bitmap >> w & 1 and self.sends(w, chunk))
            for w in range(self.workers)
        )

    def told(self, result: Result, worker: int) -> Result:
        """What a worker is told of a result."""
        return result if self.gets(worker, result.chunk) else result._replace(totals=None)

    # ---------------------------------------------------------------- the switch

    def arrive(self, cell: Cell, sent: Contribution) -> tuple[Cell, Answer | None]:
        """A contribution reaches the cell that its chunk belongs to."""
        fresh = sent.chunk + 1 > cell.sequence
        if sent.chunk + 1 < cell.sequence:
            return cell, None
        if fresh:
            held = cell.totals
            cell = self.empty._replace(sequence=sent.chunk + 1)
            is_barrier = self.kind(sent.chunk)[0] == CollectiveOp.BARRIER
            if is_barrier or not (self.clears or self.sends(sent.worker, sent.chunk)):
                cell = cell._replace(totals=held)  # of a barrier nobody is told
        bit = 1 << sent.worker
        known = cell.bitmap & bit or cell.closed
        was_closed = cell.closed or cell.bitmap == self.full_bitmap
        if not known:
            totals = tuple(a + b for a, b in zip(cell.totals, self.words(sent), strict=True))
            cell = cell._replace(bitmap=cell.bitmap | bit, totals=totals)
        cell = cell._replace(closed=cell.closed or sent.partial)
        if cell.bitmap != self.full_bitmap and not cell.closed:
            return cell, None
        result = Result(sent.chunk, cell.bitmap, cell.totals)
        return cell, Answer(result, sent.worker if was_closed else None)

    def arrive_forgetful(
        self, cells: tuple[Cell, ...], sent: Contribution
    ) -> tuple[tuple[Cell, ...], Answer | None]:
        """As SwitchML does it: an empty bitmap means a new chunk; the other copy's bit is cleared.

        What it answers is taken for the chunk of the packet that made it.
        """
        place = self.place(sent.chunk)
        bit = 1 << sent.worker
        own, other = cells[place], cells[place ^ 1]
        fresh, seen = not own.bitmap, bool(own.bitmap & bit)
        base = (0,) * self.workers if fresh else own.totals
        if not seen:
            base = tuple(a + b for a, b in zip(base, self.words(sent), strict=True))
        own = own._replace(bitmap=own.bitmap | bit, totals=base)
        other = other._replace(bitmap=other.bitmap & ~bit)
        changed = list(cells)
        changed[place], changed[place ^ 1] = own, other
        if own.bitmap != self.full_bitmap:
            return tuple(changed), None
        return tuple(changed), Answer(Result(sent.chunk, own.bitmap, own.totals), None)

    # ---------------------------------------------------------------- the workers

    def sent(self, received: frozenset[int]) -> list[int]:
        """Chunks that a worker has sent once it has received these."""
        return [
            chunk
            for chunk in range(self.chunks)
            if chunk < self.window or chunk - self.window in received
        ]

    def accepts(self, worker: int, received: frozenset[int], result: Result) -> bool:
        """Whether a worker that has received these takes ``result``."""
        is_open = result.chunk in self.sent(received) and result.chunk not in received
        return is_open and self.gets(worker, result.chunk) == (result.totals is not None)

    # ---------------------------------------------------------------- all that can happen

    def start(self) -> State:
        cells = (self.empty,) * (2 * self.window)
        return State(cells, ((),) * self.workers, frozenset(), 0)

    def moves(self, state: State) -> Iterator[tuple[Move, State]]:
        """Whatever may happen next, unless it changes nothing."""
        for worker, own in enumerate(state.received):
            have = frozenset(chunk for chunk, _ in own)
            for chunk in self.sent(have):
                for partial in (False, True) if self.partial else (False,):
                    packet = Contribution(worker, chunk, partial)
                    yield ("arrives", packet), self._contributed(state, packet)
            for result in state.results:
                if self.accepts(worker, have, result):
                    yield ("received", (worker, result)), self._received(state, worker, result)
        if state.restarts < self.restarts:
            cells = (self.empty,) * len(state.cells)
            yield ("restart", None), state._replace(cells=cells, restarts=state.restarts + 1)

    def _contributed(self, state: State, packet: Contribution) -> State:
        if self.remembers:
            place = self.place(packet.chunk)
            cell, answer = self.arrive(state.cells[place], packet)
            cells = (*state.cells[:place], cell, *state.cells[place + 1 :])
        else:
            cells, answer = self.arrive_forgetful(state.cells, packet)
        results = state.results
        if answer is not None:
            to = range(self.workers) if answer.to is None else (answer.to,)
            results |= {self.told(answer.result, worker) for worker in to}
        return state._replace(cells=cells, results=results)

    def _received(self, state: State, worker: int, result: Result) -> State:
        if result.totals not in (None, self.total(result.chunk, result.bitmap)):
            raise WrongSumError(f"worker {worker} took {result} for a sum")
        if not self.partial and result.bitmap != self.full_bitmap:
            raise WrongSumError(f"{result} lacks a worker")
        for own in state.received:
            if dict(own).get(result.chunk, result.bitmap) != result.bitmap:
                raise WrongSumError(f"workers hold different sums of chunk {result.chunk}")
        received = list(state.received)
        received[worker] = tuple(sorted((*received[worker], (result.chunk, result.bitmap))))
        return state._replace(received=tuple(received))


@dataclass
class Explored:
    """All that can be reached.

    Attributes:
        states: how many.
        moves: how many transitions lead from them to others.
        stuck: states in which the job would not finish though nothing were lost any more.
        cells: every (cell, contribution) that met.
        results: every (worker, chunks received, result) that met. Where chunks have no owners, all
            workers are worker 0.
    """

    states: int = 0
    moves: int = 0
    stuck: int = 0
    cells: set[tuple[Cell, Contribution]] = field(default_factory=set)
    results: set[tuple[int, frozenset[int], Result]] = field(default_factory=set)


def explore(model: Model) -> Explored:
    """Every interleaving, breadth first.

    Raises:
        WrongSumError: there is one in which a worker takes a wrong sum.
    """
    start = model.start()
    known = {start}
    queue = deque([start])
    explored = Explored()
    while queue:
        state = queue.popleft()
        have = [frozenset(chunk for chunk, _ in own) for own in state.received]
        explored.results.update(
            (worker * model.has_owners, own, result)
            for worker, own in enumerate(have)
            for result in state.results
        )
        explored.stuck += model.remembers and not finishes(model, state)
        for (name, what), following in model.moves(state):
            if name == "arrives":
                assert isinstance(what, Contribution)
                explored.cells.add((state.cells[model.place(what.chunk)], what))
            if following == state:
                continue
            explored.moves += 1
            if following not in known:
                known.add(following)
                queue.append(following)
    explored.states = len(known)
    return explored


def finishes(model: Model, state: State) -> bool:
    """Whether the job ends if all that is under way is lost, and from then on nothing is.

    Workers send again what they have no result of; every answer reaches whom it goes to.
    """
    cells = list(state.cells)
    received = [{chunk for chunk, _ in own} for own in state.received]
    moved = True
    while moved:
        moved = False
        for worker in range(model.workers):
            for chunk in model.sent(frozenset(received[worker])):
                if chunk in received[worker]:
                    continue
                place = model.place(chunk)
                cell, answer = model.arrive(cells[place], Contribution(worker, chunk, False))
                moved |= cell != cells[place]
                cells[place] = cell
                if answer is None:
                    continue
                for other in range(model.workers) if answer.to is None else (answer.to,):
                    result = model.told(answer.result, other)
                    if model.accepts(other, frozenset(received[other]), result):
                        received[other].add(chunk)
                        moved = True
    return all(len(own) == model.chunks for own in received)
