"""From a graph of steps to nested statements: the same for actions, pipelines and parsers.

p4c writes an ``if`` as jumps (in actions) or as nodes that name their successors (in pipelines and
parsers). Where branches meet again is a node's immediate post-dominator: everything up to it is a
branch's body, it and what follows comes after. A loop of an action becomes a ``While``, which is
one step of the graph around it.

A graph that is not nested would repeat its shared parts. When that gets large, when a loop is
entered in two places, or when a parser has a cycle (over a stack), the steps become numbered blocks
of one loop instead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from innet.switch import ir
from innet.switch.jit.lowered import (
    Blocks,
    Body,
    Goto,
    If,
    IntVariable,
    Leave,
    SetInteger,
    Statement,
    While,
)

Step = TypeVar("Step", bound=Hashable)

#: How many times over a graph may be written before blocks are used instead.
REPEATS = 2
#: Loops inside each other. Python compiles 20, and the emitted function has some around them.
DEEPEST = 10

Successors = Callable[[Step], tuple[Step | None, ...]]
Write = Callable[[Step, tuple[Body, ...]], Body]


def structure(
    initial: Step | None, successors: Successors[Step], write: Write[Step], tick: Body = ()
) -> Body:
    """The statements of a graph; one with a cycle becomes blocks.

    Args:
        initial: the first step, None for an empty graph.
        successors: the steps after a step; None is the end of the graph.
        write: the statements of one step, given a body for each of its successors. A step with one
            successor is given an empty body, what follows is appended.
        tick: put before each step where the graph has a cycle.
    """
    if initial is None:
        return ()
    order = _topological(initial, successors)
    if order is None:
        return _blocks(initial, successors, write, tick)
    try:
        return _nested(order, successors, write)
    except _NotNestedError:
        return _blocks(initial, successors, write, ())


def structure_loops(
    initial: Step | None,
    successors: Successors[Step],
    write: Write[Step],
    after_loop: Callable[[Body], Body],
) -> Body:
    """As ``structure``, but a cycle becomes a ``While`` where it can.

    ``after_loop`` gives what comes directly after a ``While`` or ``Blocks``.
    """
    if initial is None:
        return ()
    try:
        return _with_loops(initial, successors, write, after_loop, 0)
    except _NotNestedError:
        blocks = _blocks(initial, successors, write, ())
        return (*blocks, *after_loop(blocks))


class _NotNestedError(Exception):
    """Nesting would repeat too much, or a loop is entered in two places."""


# ── Without cycles ───────────────────────────────────────────────────────────────────────────────


def _nested(order: list[Step], successors: Successors[Step], write: Write[Step]) -> Body:
    """The statements of an acyclic graph in topological order."""
    joins = _joins(order, successors)
    return _StepWriter(successors, write, joins, REPEATS * len(order) + 8).body(order[0], None)


class _StepWriter(Generic[Step]):
    def __init__(
        self,
        successors: Successors[Step],
        write: Write[Step],
        joins: Mapping[Step, Step | None],
        budget: int,
    ) -> None:
        self.successors = successors
        self.write = write
        self.joins = joins
        self.budget = budget

    def body(self, step: Step | None, end: Step | None) -> Body:
        statements: list[Statement] = []
        while step != end and step is not None:
            self.budget -= 1
            if self.budget < 0:
                raise _NotNestedError
            following = self.successors(step)
            join = self.joins[step]
            bodies = tuple(self.body(successor, join) for successor in following)
            statements.extend(self.write(step, bodies))
            step = join
        return tuple(statements)


def _topological(initial: Step, successors: Successors[Step]) -> list[Step] | None:
    """Reachable steps, each before its successors; None when there is a cycle."""
    finished: dict[Step, bool] = {}
    order: list[Step] = []
    stack: list[tuple[Step, int]] = [(initial, 0)]
    finished[initial] = False
    while stack:
        step, position = stack.pop()
        following = successors(step)
        if position == len(following):
            finished[step] = True
            order.append(step)
            continue
        stack.append((step, position + 1))
        successor = following[position]
        if successor is None:
            continue
        if successor not in finished:
            finished[successor] = False
            stack.append((successor, 0))
        elif not finished[successor]:
            return None
    order.reverse()
    return order


def _joins(order: list[Step], successors: Successors[Step]) -> dict[Step, Step | None]:
    """Immediate post-dominators of an acyclic graph given in topological order; None is the end.

    A branch that always leaves the loop around it meets no other, and does not count.
    """
    joins: dict[Step, Step | None] = {}
    depth: dict[Step | None, int] = {None: 0}
    leaving: set[Step | None] = set()
    for step in reversed(order):
        every = successors(step)
        following = [each for each in every if each not in leaving]
        if not following:
            leaving.add(step)
            joins[step] = every[0] if len(every) == 1 else None
            continue
        common = following[0]
        for other in following[1:]:
            left, right = common, other
            while left != right:
                if depth[left] >= depth[right] and left is not None:
                    left = joins[left]
                elif right is not None:
                    right = joins[right]
            common = left
        joins[step] = common
        depth[step] = depth[common] + 1
    return joins


# ── Loops ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Loop:
    """Steps that reach each other, of which ``entry`` comes first.

    ``exits`` are the steps that they leave to, each once; None is the end of the graph.
    """

    entry: Any
    steps: frozenset[Any]
    exits: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Exit:
    """In the graph of a loop's body: the exit of that number. Nothing follows it."""

    number: int


def _with_loops(
    initial: Any,
    successors: Successors[Any],
    write: Write[Any],
    after_loop: Callable[[Body], Body],
    depth: int,
) -> Body:
    """The statements of a graph that is inside ``depth`` loops."""
    order = _topological(initial, successors)
    if order is not None:
        return _nested(order, successors, write)
    if depth == DEEPEST:
        raise _NotNestedError
    # Of several exits, the one that a loop took.
    taken: Any = IntVariable(f"exit_{depth}", 0, 1 << 16)

    def body_of(loop: _Loop) -> Body:
        """One time round. What leads to the entry again ends it."""

        def inner_successors(step: Any) -> tuple[Any, ...]:
            if isinstance(step, _Exit):
                return ()
            return tuple(
                None if each == loop.entry
                else each if each in loop.steps
                else _Exit(loop.exits.index(each))
                for each in successors(step)
            )  # fmt: skip

        def inner_write(step: Any, bodies: tuple[Body, ...]) -> Body:
            if not isinstance(step, _Exit):
                return write(step, bodies)
            if len(loop.exits) == 1:
                return (Leave(),)
            return (SetInteger(taken, ir.Const(step.number)), Leave())

        return _with_loops(loop.entry, inner_successors, inner_write, after_loop, depth + 1)

    # Around them each loop is one step.
    loops = {loop.entry: loop for loop in _loops(initial, successors)}

    def outer_successors(step: Any) -> tuple[Any, ...]:
        return loops[step].exits if step in loops else successors(step)

    def outer_write(step: Any, bodies: tuple[Body, ...]) -> Body:
        if step not in loops:
            return write(step, bodies)
        loop: Body = (While(body_of(loops[step])),)
        following: Body = bodies[-1] if len(bodies) > 1 else ()
        for number in reversed(range(len(bodies) - 1)):
            this_one = ir.Compare(ir.Comparison.EQ, taken, ir.Const(number))
            following = (If(this_one, bodies[number], following),)
        return (*loop, *after_loop(loop), *following)

    order = _topological(initial, outer_successors)
    assert order is not None, "every cycle is in a loop"
    return _nested(order, outer_successors, outer_write)


def _loops(initial: Any, successors: Successors[Any]) -> list[_Loop]:
    """The outermost loops of a graph."""
    components = _components(initial, successors)
    edges = [
        (step, each) for component in components for step in component for each in successors(step)
    ]
    loops = []
    for component in components:
        steps = frozenset(component)
        if len(steps) == 1 and component[0] not in successors(component[0]):
            continue
        entries = {each for step, each in edges if step not in steps and each in steps}
        entries |= {initial} & steps
        if len(entries) > 1:
            raise _NotNestedError
        exits = dict.fromkeys(each for step, each in edges if step in steps and each not in steps)
        loops.append(_Loop(entries.pop(), steps, tuple(exits)))
    return loops


def _components(initial: Any, successors: Successors[Any]) -> list[list[Any]]:
    """The strongly connected components (Tarjan), without recursion."""
    number: dict[Any, int] = {initial: 0}
    lowest: dict[Any, int] = {initial: 0}
    unfinished = [initial]
    finished: set[Any] = set()
    components: list[list[Any]] = []
    stack = [(initial, 0)]
    while stack:
        step, position = stack.pop()
        following = successors(step)
        if position < len(following):
            stack.append((step, position + 1))
            successor = following[position]
            if successor is None or successor in finished:
                continue
            if successor not in number:
                number[successor] = lowest[successor] = len(number)
                unfinished.append(successor)
                stack.append((successor, 0))
            else:
                lowest[step] = min(lowest[step], number[successor])
            continue
        if stack:
            before = stack[-1][0]
            lowest[before] = min(lowest[before], lowest[step])
        if lowest[step] == number[step]:
            start = unfinished.index(step)
            components.append(unfinished[start:])
            finished.update(unfinished[start:])
            del unfinished[start:]
    return components


# ── Blocks ───────────────────────────────────────────────────────────────────────────────────────


def _blocks(initial: Step, successors: Successors[Step], write: Write[Step], tick: Body) -> Body:
    """One block for each reachable step; each body for a successor is a ``Goto``."""
    numbers: dict[Step, int] = {initial: 0}
    pending = [initial]
    while pending:
        for successor in successors(pending.pop()):
            if successor is not None and successor not in numbers:
                numbers[successor] = len(numbers)
                pending.append(successor)
    blocks = []
    for step, number in numbers.items():
        gotos = tuple(
            Goto(-1 if successor is None else numbers[successor]) for successor in successors(step)
        )
        statements = write(step, tuple((goto,) for goto in gotos))
        if len(gotos) == 1:
            statements = (*statements, gotos[0])
        blocks.append((number, (*tick, *statements)))
    return (Blocks(0, tuple(blocks)),)
