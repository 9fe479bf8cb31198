"""Tables, conditionals and pipelines, as the interpreter runs them."""

from __future__ import annotations

from collections.abc import Callable

from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.interpreter.actions import ActionCompiler, Run
from innet.switch.interpreter.expressions import ExpressionCompiler
from innet.switch.interpreter.packet import Layout, Packet
from innet.switch.state.tables import BYTES, PACKETS, Reference, Target

Visit = Callable[[Packet], ir.Node | None]
"""Does what a node does and says which comes next."""


class PipelineUnit:
    """Runs ingress and egress."""

    def __init__(
        self,
        layout: Layout,
        state: SwitchState,
        expressions: ExpressionCompiler,
        actions: ActionCompiler,
    ) -> None:
        self.layout = layout
        self.state = state
        self.make = expressions
        self.calculations = actions.calculations
        program = layout.program
        self.bodies: list[Run] = [actions.run_all(each.primitives) for each in program.actions]
        self.visits: dict[ir.Node, Visit] = {}
        for i in range(len(program.tables)):
            self.visits[ir.Node(ir.NodeKind.TABLE, i)] = self._table(i)
        for i, conditional in enumerate(program.conditionals):
            self.visits[ir.Node(ir.NodeKind.CONDITIONAL, i)] = self._conditional(conditional)
        for i, call in enumerate(program.action_calls):
            self.visits[ir.Node(ir.NodeKind.ACTION_CALL, i)] = self._action_call(call)

    def run(self, pipeline: ir.Pipeline, packet: Packet) -> None:
        node = pipeline.initial
        while node is not None and not packet.exit:
            node = self.visits[node](packet)

    def _conditional(self, conditional: ir.Conditional) -> Visit:
        condition = self.make.boolean(conditional.condition)
        if_true, if_false = conditional.if_true, conditional.if_false
        return lambda packet: if_true if condition(packet) else if_false

    def _action_call(self, call: ir.ActionCall) -> Visit:
        body, after = self.bodies[call.action], call.next

        def visit(packet: Packet) -> ir.Node | None:
            packet.arguments = ()
            body(packet)
            return after

        return visit

    def _table(self, index: int) -> Visit:
        table = self.state.tables[index]
        parts = [self._key_part(key) for key in table.table.keys]
        bodies = self.bodies
        counters, color = table.counters, self._direct_meter(table.table)
        choose = self._choice(table.table)

        def visit(packet: Packet) -> ir.Node | None:
            found = table.lookup([part(packet) for part in parts]) if parts else None
            action = choose(packet, table.default if found is None else found.action)
            if found is not None:
                if counters is not None:
                    counters[found.index, PACKETS] += 1
                    counters[found.index, BYTES] += packet.ingress_length
                color(packet, found.index)
            if action is None:
                return table.next_node(None, hit=found is not None)
            packet.arguments = action.arguments
            bodies[action.action](packet)
            return table.next_node(action.action, hit=found is not None)

        return visit

    def _choice(self, table: ir.Table) -> Callable[[Packet, Target | None], ir.ActionEntry | None]:
        """The action that an entry stands for; None when it stands for an empty group."""
        profile = self.state.profile_of(table)
        hashed: Callable[[Packet], int] | None = None
        if profile is not None and profile.profile.selector is not None:
            assert table.action_profile is not None
            hashed = self.calculations.compile(
                self.layout.program.selector_hash(table.action_profile)
            )

        def choose(packet: Packet, target: Target | None) -> ir.ActionEntry | None:
            if not isinstance(target, Reference):
                return target
            assert profile is not None, "only indirect tables hold references"
            if not target.group:
                return profile.resolve(table, target.handle)
            if not profile.groups[target.handle]:
                return None
            assert hashed is not None, "only profiles with a selector have groups"
            return profile.resolve(table, profile.choose(target.handle, hashed(packet)))

        return choose

    def _direct_meter(self, table: ir.Table) -> Callable[[Packet, int], None]:
        """What the meter of a table does on a hit, before the entry's action."""
        if table.meter is None:
            return lambda _, __: None
        meter, state = self.state.meters[table.meter], self.state
        assert meter.array.result is not None
        store = self.make.store(meter.array.result)
        return lambda packet, index: store(
            packet, meter.execute(index, packet.ingress_length, state.clock)
        )

    def _key_part(self, key: ir.TableKey) -> Callable[[Packet], int]:
        header = key.field.header
        if key.field.field == ir.VALID:
            return lambda packet: int(packet.valid[header])
        index, every = self.layout.slot(key.field).index, (1 << key.width) - 1
        # A field of an invalid header matches as 0, whatever it last held.
        return lambda packet: packet.fields[index] & every if packet.valid[header] else 0
