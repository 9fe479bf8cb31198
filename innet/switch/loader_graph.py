"""The control flow between tables, conditionals and action calls: it must come to an end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from innet.errors import ProgramError
from innet.switch import ir

_Step = ir.Table | ir.Conditional | ir.ActionCall
_Graph = Mapping[ir.Node, tuple[ir.Node | None, ...]]


def refuse_cycles(
    tables: tuple[ir.Table, ...],
    conditionals: tuple[ir.Conditional, ...],
    calls: tuple[ir.ActionCall, ...],
) -> None:
    """P4 has no loops outside the parser, and a packet would never leave one: ProgramError, with
    the names along it, where a node leads back to itself.
    """
    graph: dict[ir.Node, tuple[ir.Node | None, ...]] = {}
    names: dict[ir.Node, str] = {}
    kinds: tuple[tuple[ir.NodeKind, Sequence[_Step]], ...] = (
        (ir.NodeKind.TABLE, tables),
        (ir.NodeKind.CONDITIONAL, conditionals),
        (ir.NodeKind.ACTION_CALL, calls),
    )
    for kind, nodes in kinds:
        for number, each in enumerate(nodes):
            graph[ir.Node(kind, number)] = _following(each)
            names[ir.Node(kind, number)] = each.name
    cycle = _cycle(graph)
    if cycle:
        path = " -> ".join(names[node] for node in cycle)
        raise ProgramError(
            f"pipelines: expected tables and conditionals without a cycle, found {path}"
        )


def _following(node: _Step) -> tuple[ir.Node | None, ...]:
    if isinstance(node, ir.Table):
        return (*node.next, node.hit, node.miss, node.base_default_next)
    if isinstance(node, ir.Conditional):
        return (node.if_true, node.if_false)
    return (node.next,)


def _cycle(graph: _Graph) -> list[ir.Node]:
    """The nodes along some cycle, the first again at the end; nothing when there is none."""
    finished: set[ir.Node] = set()
    for root in graph:
        if root in finished:
            continue
        # The path from the root, in order, with what is still to be visited after each node.
        path: dict[ir.Node, Iterator[ir.Node | None]] = {root: iter(graph[root])}
        while path:
            node, rest = next(reversed(path.items()))
            successor = next((each for each in rest if each not in finished and each), None)
            if successor is None:
                finished.add(node)
                del path[node]
            elif successor in path:
                nodes = list(path)
                return [*nodes[nodes.index(successor) :], successor]
            else:
                path[successor] = iter(graph[successor])
    return []
