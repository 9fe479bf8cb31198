"""The beginning of a packet's way: fresh fields, the parser, checksums.

``base`` and ``size`` say in emitted text where the packet lies in ``data``, ``at`` how much of it
the parser has taken.
"""

from __future__ import annotations

from typing import Any

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.layout import START, WIDTH
from innet.switch.jit.lower.actions import LONGEST, PACKET_LENGTH
from innet.switch.jit.lower.program import STATES_VISITED
from innet.switch.jit.lower.requests import REQUESTS
from innet.switch.jit.lower.stacks import packet_scalars
from innet.switch.jit.traits import STATISTICS
from innet.switch.jit.tree import mentions, walk

#: What ``LONGEST`` is as long as nobody truncates: more than any packet has.
ENDLESS = hex((1 << 63) - 1)


class Arrival:
    """Writes what happens before ingress.

    Args:
        statements: writes bodies, and knows where everything is.
        rolled: the whole program.
    """

    def __init__(self, statements: Statements, rolled: lowered.Plan) -> None:
        self.statements = statements
        self.plan = rolled
        self.writer = statements.writer
        self.layout = statements.layout
        self.program = statements.program
        self.live = statements.live

    def count(self) -> None:
        """A packet came in."""
        self.writer.line(f"statistics[{STATISTICS['packets_in']}] += 1")
        self.writer.line(f"statistics[{STATISTICS['bytes_in']}] += size")

    def zero(self) -> None:
        """Nothing is parsed, every field is 0."""
        line = self.writer.line
        self._zero_fields()
        line("at = 0")
        line(f"parser_error = {self.program.errors['NoError']}")
        length_counts = mentions(self.plan.bodies, PACKET_LENGTH)
        if length_counts or self.program.standard.packet_length in self.live:
            line(f"{PACKET_LENGTH.name} = size")
        if mentions(self.plan.bodies, STATES_VISITED):
            line(f"{STATES_VISITED.name} = 0")
        for request, nothing in REQUESTS.items():
            if mentions(self.plan.bodies, request):
                line(f"{request.name} = {nothing}")
        if mentions(self.plan.bodies, LONGEST):
            line(f"{LONGEST.name} = {ENDLESS}")

    def set_ingress_port(self) -> None:
        """The port that the packet came from."""
        reference = self.program.standard.ingress_port
        self.statements.set_field(reference, "arrived", 0, (1 << 31) - 1)

    def set_received(self) -> None:
        """What else the switch says of a packet from outside."""
        standard = self.program.standard
        self.statements.set_field(standard.packet_length, "size", 0, (1 << 31) - 1)
        self.statements.set_field(standard.ingress_global_timestamp, "clock", 0, (1 << 63) - 1)

    def parse(self) -> None:
        """Headers from bytes."""
        self.writer.line("# parser")
        self.statements.region(self.plan.parser)
        self.statements.drop_failed(self.plan.parser, "dropped_ingress")

    def set_parser_error(self) -> None:
        """Count and tell an error of the parser."""
        with self.writer.block(f"if parser_error != {self.program.errors['NoError']}:"):
            self.writer.line(f"statistics[{STATISTICS['parser_errors']}] += 1")
        reference = self.program.standard.parser_error
        self.statements.set_field(reference, "parser_error", 0, (1 << 32) - 1)

    def zero_arrays_of_absent_headers(self) -> None:
        """Fields of a header that was not extracted read as 0."""
        for array in self.layout.arrays:
            if not self.program.headers[array.header].metadata and not self._parser_uses(array):
                valid = self.layout.name(array.header, ir.VALID)
                with self.writer.block(f"if not {valid}:"):
                    self._fill(array.name, array.count)

    def verify(self) -> None:
        """Checksums of what came."""
        if not self.plan.verify:
            return
        self.writer.line("# checksums")
        self.statements.body(self.plan.verify)
        error = self.program.standard.checksum_error
        assert error is not None
        with self.writer.block(f"if {self.statements.expressions.field_text(error)} != 0:"):
            self.writer.line(f"statistics[{STATISTICS['checksum_errors']}] += 1")

    def _zero_fields(self) -> None:
        """Every variable starts at 0; several share a line."""
        names = [scalar.name for scalar in packet_scalars(self.program, self.plan.bodies)]
        for header, instance in enumerate(self.program.headers):
            for field in range(len(self.program.type_of(header).fields)):
                reference = ir.FieldRef(header, field)
                if reference in self.live and self.layout.array(header, field) is None:
                    name = self.layout.name(header, field)
                    if self.layout.limbs(header, field) == 1:
                        names.append(name)
                    else:
                        self.writer.line(f"{name} = {self.layout.zero(header, field)}")
            if self.program.type_of(header).variable is not None:
                names.append(self.layout.name(header, WIDTH))
            if not instance.metadata:
                self.writer.line(f"{self.layout.name(header, ir.VALID)} = False")
                if header in self.layout.untouched:
                    names.append(self.layout.name(header, START))
        for start in range(0, len(names), 5):
            self.writer.line(f"{' = '.join(names[start : start + 5])} = 0")
        for array in self.layout.arrays:
            early = self.program.headers[array.header].metadata or self._parser_uses(array)
            if early:
                self._fill(array.name, array.count)

    def _parser_uses(self, array: Any) -> bool:
        return any(
            isinstance(node, ir.FieldRef | lowered.Lane | lowered.SetValid)
            and node.header == array.header
            for node in walk(self.plan.parser)
        )

    def _fill(self, name: str, count: int) -> None:
        with self.writer.lanes(count):
            self.writer.line(f"{name}[k] = 0")
