"""From the end of ingress on: what becomes of a packet, and each copy of it through egress."""

from __future__ import annotations

from innet.switch import ir
from innet.switch.engine import DROP_PORT, InstanceType
from innet.switch.jit import lowered
from innet.switch.jit.emit.arrival import ENDLESS
from innet.switch.jit.emit.bytes import emit_forgotten
from innet.switch.jit.emit.departure import Departure
from innet.switch.jit.emit.digests import emit_digest
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.layout import WIDTH, ArrayVariable
from innet.switch.jit.liveness import written_fields
from innet.switch.jit.lower.actions import LONGEST, PACKET_LENGTH
from innet.switch.jit.lower.requests import LEARN_LIST
from innet.switch.jit.lower.stacks import packet_scalars
from innet.switch.jit.tree import mentions, walk


class Copies:
    """Writes the end of a packet's way.

    Args:
        statements: writes bodies, and knows where everything is.
        rolled: the whole program.
    """

    def __init__(self, statements: Statements, rolled: lowered.Plan) -> None:
        self.statements = statements
        self.plan = rolled
        self.writer = statements.writer
        self.layout = statements.layout
        self.expressions = statements.expressions
        self.program = statements.program
        self.live = statements.live
        self.departure = Departure(statements, rolled)

    def emit(self) -> None:
        """Decide where the packet goes, then run its copies through egress."""
        if mentions(self.plan.bodies, LEARN_LIST):
            emit_digest(self.writer, self.expressions)
        group = self.program.standard.mcast_grp
        spec = self.expressions.field_text(self.program.standard.egress_spec)
        if group is None:
            self._unicast(spec)
        else:
            name = self.expressions.field_text(group)
            with self.writer.block(f"if {name} != 0:"):
                self._multicast(name)
            with self.writer.block("else:"):
                self._unicast(spec)
        self._drop_by_priority()
        self._egress(spec)

    def _multicast(self, group: str) -> None:
        line = self.writer.line
        line("first_copy = last_copy = 0")
        with self.writer.block(f"if {group} < len(group_start) - 1:"):
            line(f"first_copy = group_start[{group}]")
            line(f"last_copy = group_start[{group} + 1]")
        line("copies = last_copy - first_copy")
        self.departure.count("replicated", "copies")
        with self.writer.block("if copies == 0:"):
            self.departure.count("unknown_groups")
            line("continue")
        if mentions(self.plan.bodies, LONGEST):
            # What ingress truncated is not cut in the copies.
            line(f"{LONGEST.name} = {ENDLESS}")
        self.departure.set_constant(self.program.standard.instance_type, InstanceType.REPLICATED)

    def _unicast(self, spec: str) -> None:
        line = self.writer.line
        with self.writer.block(f"if {spec} == {DROP_PORT}:"):
            self.departure.count("dropped_ingress")
            line("continue")
        line("copies = 0")
        line("first_copy = 0")
        line("last_copy = 1")
        self.departure.set_constant(self.program.standard.instance_type, InstanceType.NORMAL)

    def _drop_by_priority(self) -> None:
        """simple_switch has one queue per port and drops what asks for another."""
        priority = self.program.standard.priority
        if priority is None or priority not in self.live:
            return
        with self.writer.block(f"if {self.expressions.field_text(priority)} != 0:"):
            self.departure.count("dropped_ingress", "last_copy - first_copy")
            self.writer.line("continue")

    # ── Egress ──

    def _egress(self, spec: str) -> None:
        line = self.writer.line
        line("# egress")
        line(f"leaves = {spec}")
        kept = self._kept_between_copies()
        for name in kept:
            line(f"{name}_kept = {name}")
        arrays = self._arrays_kept_between_copies()
        for array in arrays:
            line(f"{array.name}_kept = {array.name}.copy()")
        with self.writer.block("for copy_number in range(first_copy, last_copy):"):
            for name in kept:
                line(f"{name} = {name}_kept")
            for array in arrays:
                line(f"{array.name}[:] = {array.name}_kept")
            with self.writer.block("if copies > 0:"):
                line("leaves = replica_port[copy_number]")
                rid = self.program.standard.egress_rid
                self.statements.set_field(rid, "replica_rid[copy_number]", 0, 0xFFFF)
                emit_forgotten(self.writer, self.expressions)
            self.departure.set_metadata()
            self.statements.pipeline(self.plan.egress)
            self.statements.drop_failed(self.plan.egress, "dropped_egress")
            with self.writer.block(f"if {spec} == {DROP_PORT}:"):
                self.departure.count("dropped_egress")
                line("continue")
            self.statements.pipeline(self.plan.update)
            self.statements.drop_failed(self.plan.update, "dropped_egress")
            self.departure.deparse("produced * out_stride")
            self.departure.send()

    def _kept_between_copies(self) -> list[str]:
        """Variables that egress changes and that the next copy must find as ingress left them."""
        if self.program.standard.mcast_grp is None:
            return []
        bodies = (self.plan.egress, self.plan.update)
        fields, headers = written_fields(bodies)
        names = [
            self.layout.name(field.header, field.field)
            for field in sorted(fields, key=lambda field: (field.header, field.field))
            if (field in self.live or field.field == WIDTH)
            and self.layout.array(field.header, field.field) is None
        ]
        names += [self.layout.name(header, ir.VALID) for header in sorted(headers)]
        for scalar in (PACKET_LENGTH, LONGEST):
            if any(node == scalar for node in walk(bodies)):
                names.append(scalar.name)
        return names + [scalar.name for scalar in packet_scalars(self.program, bodies)]

    def _arrays_kept_between_copies(self) -> list[ArrayVariable]:
        if self.program.standard.mcast_grp is None:
            return []
        fields, _ = written_fields((self.plan.egress, self.plan.update))
        written = {self.layout.array(field.header, field.field) for field in fields}
        return [array for array in self.layout.arrays if array in written]
