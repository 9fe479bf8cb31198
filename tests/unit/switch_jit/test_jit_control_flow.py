"""Graphs of steps as nested statements, which visit the steps in the order of the graph."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tiers import examples

from innet.switch import ir
from innet.switch.ir.tree import walk
from innet.switch.jit import lowered
from innet.switch.jit.lower.control_flow import DEEPEST, structure, structure_loops

Graph = list[tuple[int | None, ...]]
"""For each step those after it; None is the end."""

LONGEST = 200
"""Steps after which a walk ends."""


class _EndedError(Exception):
    """The walk is as long as it may be."""


class _Leave(Exception):  # noqa: N818 - it is no error
    """``Leave``: to the end of the ``While`` around it."""


class Walk:
    """What runs: the steps visited, and what is chosen at those with two successors."""

    def __init__(self, choices: list[bool]) -> None:
        self.choices = choices
        self.visited: list[int] = []

    def visit(self, step: int) -> None:
        self.visited.append(step)
        if len(self.visited) == LONGEST:
            raise _EndedError

    def choose(self) -> bool:
        return self.choices[len(self.visited) % len(self.choices)]


def steps_of(graph: Graph, choices: list[bool]) -> list[int]:
    """The steps that the graph itself visits."""
    walk_ = Walk(choices)
    step: int | None = 0
    try:
        while step is not None:
            walk_.visit(step)
            following = graph[step]
            step = following[0] if len(following) == 1 or walk_.choose() else following[1]
    except _EndedError:
        pass
    return walk_.visited


def steps_run(body: lowered.Body, choices: list[bool]) -> list[int]:
    """The steps that statements visit: a step is a
    ``CountPacket``, a choice an ``If`` of a flag."""
    walk_ = Walk(choices)
    variables: dict[str, int] = {}
    block = 0

    def run(statements: lowered.Body) -> None:
        nonlocal block
        for statement in statements:
            match statement:
                case lowered.CountPacket(step, _):
                    walk_.visit(step)
                case lowered.If(lowered.BoolVariable(), then, otherwise):
                    run(then if walk_.choose() else otherwise)
                case lowered.If(
                    ir.Compare(_, lowered.IntVariable(name, _, _), ir.Const(number)), then, no
                ):
                    run(then if variables[name] == number else no)
                case lowered.SetInteger(lowered.IntVariable(name, _, _), ir.Const(number)):
                    variables[name] = number
                case lowered.While(inner):
                    with contextlib.suppress(_Leave):
                        while True:
                            run(inner)
                case lowered.Leave():
                    raise _Leave
                case lowered.Blocks(first, blocks):
                    block = first
                    while block >= 0:
                        run(dict(blocks)[block])
                case lowered.Goto(number):
                    block = number
                case _:
                    raise AssertionError(statement)

    with contextlib.suppress(_EndedError):
        run(body)
    return walk_.visited


def nothing(_: lowered.Body) -> lowered.Body:
    return ()


def structured(graph: Graph, *, loops: bool) -> lowered.Body:
    def write(step: int, bodies: tuple[lowered.Body, ...]) -> lowered.Body:
        visit = lowered.CountPacket(step, ir.Const(0))
        if len(bodies) == 1:
            return (visit,)
        return (visit, lowered.If(lowered.BoolVariable("choice"), bodies[0], bodies[1]))

    if loops:
        return structure_loops(0, graph.__getitem__, write, nothing)
    return structure(0, graph.__getitem__, write)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph: of loops in loops, of loops with two entries, without an end."""
    count = draw(st.integers(1, 12))
    ends = st.one_of(st.none(), st.integers(0, count - 1))
    graph: Graph = []
    for step in range(count):
        onward = step + 1 if step + 1 < count else None
        following = [draw(st.one_of(st.just(onward), ends))]
        if draw(st.booleans()):
            following.append(draw(ends))
        graph.append(tuple(dict.fromkeys(following)))
    return graph


CHOICES = st.lists(st.booleans(), min_size=1, max_size=30)


@settings(deadline=None, max_examples=examples(400))
@given(graphs(), CHOICES)
@example([(1, 3), (2,), (1, 3), (2, None)], [False, True])  # a loop that is entered in two places
@example([(0,)], [True])
@example([(1, None), (2, 0), (1, None)], [True, True, False])
def test_any_graph(graph: Graph, choices: list[bool]) -> None:
    expected = steps_of(graph, choices)
    assert steps_run(structured(graph, loops=True), choices) == expected
    assert steps_run(structured(graph, loops=False), choices) == expected


def test_loops_of_p4c_need_no_blocks() -> None:
    """Two loops, the inner one left by break and by return, the outer one by continue."""
    graph: Graph = [(1, 9), (2, 8), (3, 8), (4,), (5, 7), (6, 7), (None,), (4, 8), (0,), (None,)]
    body = structured(graph, loops=True)
    assert not any(isinstance(node, lowered.Blocks) for node in walk(body))
    assert sum(isinstance(node, lowered.While) for node in walk(body)) == 2


def test_too_deep_a_nest_becomes_blocks() -> None:
    def nest(depth: int) -> Graph:
        """``depth`` loops, each the whole body of the one around it."""
        inner: Graph = [(step + 1,) for step in range(depth)]
        back: list[tuple[Any, ...]] = [(depth - 1 - i, depth + i + 1) for i in range(depth - 1)]
        return [*inner, *back, (0, None)]

    for depth, blocks in ((DEEPEST, 0), (DEEPEST + 1, 1)):
        body = structured(nest(depth), loops=True)
        assert sum(isinstance(node, lowered.Blocks) for node in walk(body)) == blocks
        choices = [True, False, False]
        assert steps_run(body, choices) == steps_of(nest(depth), choices)
