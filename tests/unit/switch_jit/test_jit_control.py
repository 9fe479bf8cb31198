"""Graphs of steps become nested statements that run the same steps."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiers import seeds

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.lower.control_flow import structure

Graph = dict[int, tuple[int | None, ...]]


def written(graph: Graph) -> lowered.Body:
    """Each step counts itself in register <step>; with two successors it asks flag f<step>."""

    def write(step: int, bodies: tuple[lowered.Body, ...]) -> lowered.Body:
        mark = lowered.CountPacket(step, ir.Const(0))
        if len(bodies) == 1:
            return (mark,)
        return (mark, lowered.If(lowered.BoolVariable(f"f{step}"), bodies[0], bodies[1]))

    return structure(0, graph.__getitem__, write)


def run_graph(graph: Graph, flags: dict[str, bool], limit: int) -> list[int]:
    path: list[int] = []
    step: int | None = 0
    while step is not None and len(path) < limit:
        path.append(step)
        following = graph[step]
        step = following[0] if len(following) == 1 or flags[f"f{step}"] else following[1]
    return path


def run_body(body: lowered.Body, flags: dict[str, bool], limit: int) -> list[int]:
    path: list[int] = []

    def run(statements: lowered.Body) -> int:
        goto = -1
        for statement in statements:
            match statement:
                case lowered.CountPacket(step):
                    path.append(step)
                case lowered.If(lowered.BoolVariable(name), then, otherwise):
                    goto = run(then if flags[name] else otherwise)
                case lowered.Goto(block):
                    goto = block
                case lowered.Blocks(first, blocks):
                    at = first
                    while at >= 0 and len(path) < limit:
                        at = run(dict(blocks)[at])
        return goto

    run(body)
    return path[:limit]


@pytest.mark.parametrize("seed", seeds(60, 20))
@pytest.mark.parametrize("cyclic", [False, True])
def test_same_steps_in_the_same_order(seed: int, cyclic: bool) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 14))

    def successor(step: int) -> int | None:
        low = 0 if cyclic else step + 1
        chosen = int(rng.integers(low, size + 1))
        return chosen if chosen < size else None

    graph: Graph = {
        step: tuple(successor(step) for _ in range(rng.integers(1, 3))) for step in range(size)
    }
    body = written(graph)
    for _ in range(20):
        flags = {f"f{step}": bool(rng.integers(2)) for step in range(size)}
        assert run_body(body, flags, 40) == run_graph(graph, flags, 40)


def test_diamond_is_nested_without_repetition() -> None:
    body = written({0: (1, 2), 1: (3,), 2: (3,), 3: (None,)})
    assert body == (
        lowered.CountPacket(0, ir.Const(0)),
        lowered.If(
            lowered.BoolVariable("f0"),
            (lowered.CountPacket(1, ir.Const(0)),),
            (lowered.CountPacket(2, ir.Const(0)),),
        ),
        lowered.CountPacket(3, ir.Const(0)),
    )


def test_ladder_falls_back_to_blocks() -> None:
    """Branches that cross again and again would double in size with each step."""
    rungs = 12
    graph: Graph = {0: (1, 2)}
    for i in range(rungs):
        left, right = 2 * i + 1, 2 * i + 2
        last = i == rungs - 1
        graph[left] = (None, None) if last else (left + 2, right + 2)
        graph[right] = (None, None) if last else (right + 2, left + 2)
    assert isinstance(written(graph)[0], lowered.Blocks)


def test_empty() -> None:
    assert structure(None, lambda _: (), lambda _, __: ()) == ()
