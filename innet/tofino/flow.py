"""The steps of ingress or egress as a graph: order, what can follow what, what decides what."""

from __future__ import annotations

from functools import cached_property

from innet.switch import ir


class Flow:
    """One pipeline. Steps are numbered in an order in which none comes before one it follows."""

    def __init__(self, program: ir.Program, pipeline: ir.Pipeline) -> None:
        self.program = program
        self.name = pipeline.name
        self.nodes: tuple[ir.Node, ...] = self._sorted(pipeline.initial)
        index = {node: i for i, node in enumerate(self.nodes)}
        self.next: tuple[tuple[int | None, ...], ...] = tuple(
            tuple(
                dict.fromkeys(None if each is None else index[each] for each in self._after(node))
            )
            for node in self.nodes
        )

    def _after(self, node: ir.Node) -> list[ir.Node | None]:
        match node.kind:
            case ir.NodeKind.CONDITIONAL:
                conditional = self.program.conditionals[node.index]
                return [conditional.if_true, conditional.if_false]
            case ir.NodeKind.ACTION_CALL:
                return [self.program.action_calls[node.index].next]
            case ir.NodeKind.TABLE:
                table = self.program.tables[node.index]
                if table.by_hit:
                    return [table.hit, table.miss]
                missed = [] if table.default is not None else [table.base_default_next]
                return [*table.next, *missed]

    def _sorted(self, initial: ir.Node | None) -> tuple[ir.Node, ...]:
        """Depth first, each step after all that it leads to; then turned round."""
        done: dict[ir.Node, None] = {}
        pending: list[tuple[ir.Node | None, bool]] = [(initial, False)]
        while pending:
            node, left = pending.pop()
            if node is None or node in done:
                continue
            if left:
                done[node] = None
                continue
            pending.append((node, True))
            pending.extend((each, False) for each in self._after(node))
        return tuple(reversed(done))

    def title(self, step: int) -> str:
        """The name of a step."""
        node = self.nodes[step]
        match node.kind:
            case ir.NodeKind.TABLE:
                return self.program.tables[node.index].name
            case ir.NodeKind.CONDITIONAL:
                return self.program.conditionals[node.index].name
            case ir.NodeKind.ACTION_CALL:
                return self.program.action_calls[node.index].name

    def actions(self, step: int) -> tuple[int, ...]:
        """What a step may run: one of these."""
        node = self.nodes[step]
        match node.kind:
            case ir.NodeKind.TABLE:
                table = self.program.tables[node.index]
                default = () if table.default is None else (table.default.action,)
                return tuple(dict.fromkeys((*table.actions, *default)))
            case ir.NodeKind.ACTION_CALL:
                return (self.program.action_calls[node.index].action,)
            case ir.NodeKind.CONDITIONAL:
                return ()

    @cached_property
    def followers(self) -> tuple[frozenset[int], ...]:
        """For each step, all that may come after it for the same packet."""
        found: list[frozenset[int]] = [frozenset()] * len(self.nodes)
        for step in reversed(range(len(self.nodes))):
            after: set[int] = set()
            for each in self.next[step]:
                if each is not None:
                    after |= {each} | found[each]
            found[step] = frozenset(after)
        return tuple(found)

    @cached_property
    def deciders(self) -> tuple[frozenset[int], ...]:
        """For each step, those before it that decide whether it runs."""
        return tuple(
            frozenset(
                other
                for other in range(step)
                if len(self.next[other]) > 1
                and step in self.followers[other]
                and self._avoidable(other, step)
            )
            for step in range(len(self.nodes))
        )

    def _avoidable(self, start: int, step: int) -> bool:
        """Whether a way from ``start`` to the end leaves ``step`` out."""
        pending, seen = [start], {step}
        while pending:
            for each in self.next[pending.pop()]:
                if each is None:
                    return True
                if each not in seen:
                    seen.add(each)
                    pending.append(each)
        return False
