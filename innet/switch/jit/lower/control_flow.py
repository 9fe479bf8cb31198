"""From a graph of steps to nested statements: the same for actions, pipelines and parsers.

p4c writes an ``if`` as jumps (in actions) or as nodes that name their successors (in pipelines and
parsers). Where branches meet again is a node's immediate post-dominator: everything up to it is a
branch's body, it and what follows comes after. A graph that is not nested would repeat its shared
parts; when that gets large, or when the graph has a cycle (a parser over a stack), the steps become
numbered blocks of one loop instead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from innet.switch.jit.lowered import Blocks, Body, Goto, Statement

Step = TypeVar("Step", bound=Hashable)

#: How many times over a graph may be written before blocks are used instead.
REPEATS = 2

Successors = Callable[[Step], tuple[Step | None, ...]]
Write = Callable[[Step, tuple[Body, ...]], Body]


def structure(
    initial: Step | None, successors: Successors[Step], write: Write[Step], tick: Body = ()
) -> Body:
    """The statements of a graph.

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
    joins = _joins(order, successors)
    writer = _Writer(successors, write, joins, REPEATS * len(order) + 8)
    try:
        return writer.body(initial, None)
    except _TooLargeError:
        return _blocks(initial, successors, write, ())


class _TooLargeError(Exception):
    """Nesting would repeat too much."""


class _Writer(Generic[Step]):
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
                raise _TooLargeError
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
    """Immediate post-dominators of an acyclic graph given in topological order; None is the end."""
    joins: dict[Step, Step | None] = {}
    depth: dict[Step | None, int] = {None: 0}
    for step in reversed(order):
        following = successors(step)
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
