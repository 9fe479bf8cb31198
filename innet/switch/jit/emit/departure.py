"""The end of a packet's way: what the switch tells egress, and headers back to bytes."""

from __future__ import annotations

from innet.switch import ir
from innet.switch.engine import DROP_PORT
from innet.switch.jit import lowered
from innet.switch.jit.emit.bytes import emit_header, emit_stores, header_parts
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.lower.actions import LONGEST, PACKET_LENGTH
from innet.switch.jit.traits import STATISTICS
from innet.switch.jit.tree import mentions


class Departure:
    """Writes what happens to a copy around egress.

    Args:
        statements: writes bodies, and knows where everything is.
        rolled: the whole program.
    """

    def __init__(self, statements: Statements, rolled: lowered.Plan) -> None:
        self.statements = statements
        self.plan = rolled
        self.writer = statements.writer
        self.program = statements.program

    def count(self, name: str, by: str = "1") -> None:
        """Add to one of the switch's statistics."""
        self.writer.line(f"statistics[{STATISTICS[name]}] += {by}")

    def set_constant(self, reference: ir.FieldRef | None, value: int) -> None:
        """The switch itself writes a number, if the program has the field."""
        self.statements.set_field(reference, str(int(value)), value, value)

    def set_metadata(self) -> None:
        """What a copy that goes to port ``leaves`` is told before egress."""
        standard = self.program.standard
        self.statements.set_field(standard.egress_port, "leaves", 0, DROP_PORT)
        self.set_constant(standard.egress_spec, DROP_PORT + 1)
        if standard.packet_length in self.statements.live:
            self.statements.statement(lowered.Assign(standard.packet_length, PACKET_LENGTH))
        for field in (standard.egress_global_timestamp, standard.enq_timestamp):
            self.statements.set_field(field, "clock", 0, (1 << 63) - 1)
        for field in (standard.enq_qdepth, standard.deq_timedelta, standard.deq_qdepth):
            self.set_constant(field, 0)
        self.set_constant(standard.qid, 0)

    def deparse(self, start: str) -> None:
        """The packet's bytes to ``out`` from byte ``start`` on; ``to`` ends up behind them."""
        line = self.writer.line
        line("# deparser")
        line(f"to = {start}")
        line("start = to")
        for header in self.program.deparser.order:
            if self.program.headers[header].metadata:
                continue
            with self.writer.block(f"if {self.statements.layout.name(header, ir.VALID)}:"):
                if self.program.type_of(header).variable is not None:
                    emit_header(self.writer, self.statements.expressions, header)
                    continue
                parts = header_parts(self.statements.expressions, header, leaving=True)
                size = emit_stores(self.writer, "out", "to", parts)
                line(f"to += {size}")
        with self.writer.block("if size > at:"):
            line("copy(out, to, data, base + at, size - at)")
            line("to += size - at")

    def send(self) -> None:
        """What stands in ``out`` leaves."""
        line = self.writer.line
        line("sent = to - start")
        if mentions(self.plan.bodies, LONGEST):
            line(f"sent = min(sent, {LONGEST.name})")
        line("out_length[produced] = sent")
        line("out_port[produced] = leaves")
        line("out_origin[produced] = i - 1")
        line("produced += 1")
        self.count("packets_out")
        self.count("bytes_out", "sent")
