"""The steps of one packet: received, parsed, verified; and of each copy: egress metadata, deparser.

The loops over packets are made of these steps: the plain one (``program``) and the one around a
queue (``queue``). In emitted text ``base`` and ``size`` say where the packet lies in
``data``, ``at`` how many of its bytes the parser has taken, ``leaves`` the port that it goes to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from innet.switch import ir
from innet.switch.ir.tree import mentions, walk
from innet.switch.jit import lowered
from innet.switch.jit.emit.headers import emit_stores, emit_varbit_header, header_parts
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.lower.actions import LEARN_LIST, MAX_LENGTH, REQUESTS
from innet.switch.jit.lower.headers import PACKET_LENGTH, packet_scalars
from innet.switch.jit.lower.program import STATES_VISITED
from innet.switch.jit.lowered import START, WIDTH
from innet.switch.jit.records import BYTES_BEGIN, BYTES_END, MARKED, Kind, drop_site, flag_words
from innet.switch.jit.traits import digest_words
from innet.switch.state.replication import MAX_REPLICATION_PORT
from innet.switch.traffic_manager import MAX_PRIORITIES

#: ``MAX_LENGTH`` of a packet that is not truncated: more than any packet has.
UNLIMITED = hex((1 << 63) - 1)


class PacketLoop(ABC):
    """Writes the body of the emitted function: the steps that both loops are made of.

    Args:
        statements: writes bodies, and knows where everything is.
        rolled: the whole program.
        scratch: how many bytes hashes need besides a packet's own.
    """

    #: Whether the function itself enlarges the buffer of digests.
    digests_grow = True

    def __init__(self, statements: Statements, rolled: lowered.Regions, scratch: int) -> None:
        self.statements = statements
        self.lowered = rolled
        self.scratch = scratch
        self.writer = statements.writer
        self.layout = statements.layout
        self.expressions = statements.expressions
        self.program = statements.program
        self.live = statements.live
        self.count = statements.count

    @abstractmethod
    def emit(self) -> None:
        """All packets of a batch."""

    def uses(self, scalar: Any) -> bool:
        """Whether the program has a variable beside its fields."""
        return mentions(self.lowered.bodies, scalar)

    @property
    def counts_length(self) -> bool:
        """Whether ``PACKET_LENGTH`` is needed."""
        return self.uses(PACKET_LENGTH) or self.program.standard.packet_length in self.live

    # ── Before ingress ──

    def receive(self) -> None:
        """Count a packet that came in."""
        self.count("packets_in")
        self.count("bytes_in", "size")

    def reset(self) -> None:
        """Reset the parser, all fields to 0, and all requests to the switch."""
        line = self.writer.line
        self._zero_fields()
        line("at = 0")
        line(f"parser_error = {self.program.errors['NoError']}")
        if self.counts_length:
            line(f"{PACKET_LENGTH.name} = {self.expressions.length}")
        if self.uses(STATES_VISITED):
            line(f"{STATES_VISITED.name} = 0")
        for request, nothing in REQUESTS.items():
            if self.uses(request):
                line(f"{request.name} = {nothing}")
        if self.uses(MAX_LENGTH):
            line(f"{MAX_LENGTH.name} = {UNLIMITED}")

    def set_ingress_port(self) -> None:
        """Set the ingress port."""
        reference = self.program.standard.ingress_port
        self.statements.set_field(reference, "arrived", 0, (1 << 31) - 1)

    def set_packet_length(self) -> None:
        """Set the packet length."""
        reference = self.program.standard.packet_length
        self.statements.set_field(reference, f"({self.expressions.length})", 0, (1 << 31) - 1)

    def set_ingress_timestamp(self) -> None:
        """Set the ingress timestamp."""
        reference = self.program.standard.ingress_global_timestamp
        self.statements.set_field(reference, "clock", 0, (1 << 63) - 1)

    def parse(self) -> None:
        """Write the parser."""
        self.writer.line("# parser")
        self.statements.region(self.lowered.parser)
        self.statements.drop_failed(self.lowered.parser, "dropped_ingress")

    def set_parser_error(self) -> None:
        """Count an error of the parser, and set parser_error."""
        with self.writer.block(f"if parser_error != {self.program.errors['NoError']}:"):
            self.count("parser_errors")
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
        """Verify checksums."""
        if not self.lowered.verify:
            return
        self.writer.line("# checksums")
        self.statements.body(self.lowered.verify)
        error = self.program.standard.checksum_error
        assert error is not None
        correct = f"1 if {self.expressions.field_text(error)} == 0 else 0"
        self.writer.note(Kind.CHECKSUMS, correct)
        with self.writer.block(f"if {self.expressions.field_text(error)} != 0:"):
            self.count("checksum_errors")

    def _zero_fields(self) -> None:
        """Every variable starts at 0; several share a line."""
        names = [scalar.name for scalar in packet_scalars(self.program, self.lowered.bodies)]
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
                if header in self.layout.passthrough:
                    names.append(self.layout.name(header, START))
        for start in range(0, len(names), 5):
            self.writer.line(f"{' = '.join(names[start : start + 5])} = 0")
        # Arrays of other headers are filled by their extraction, or zeroed after the parser.
        for array in self.layout.arrays:
            if self.program.headers[array.header].metadata or self._parser_uses(array):
                self._fill(array.name, array.count)

    def _parser_uses(self, array: Any) -> bool:
        return any(
            isinstance(node, ir.FieldRef | lowered.Lane | lowered.SetValid)
            and node.header == array.header
            for node in walk(self.lowered.parser)
        )

    def _fill(self, name: str, count: int) -> None:
        with self.writer.lanes(count):
            self.writer.line(f"{name}[k] = 0")

    # ── Ingress and after ──

    def ingress(self) -> None:
        """The program's ingress, after which an assertion that failed drops the packet."""
        self.writer.line("# ingress")
        self.writer.note(Kind.PIPELINE_START, 0)
        self.statements.pipeline(self.lowered.ingress)
        self.statements.drop_failed(self.lowered.ingress, "dropped_ingress")
        self.writer.note(Kind.PIPELINE_END, 0)

    def find_copies(self, group: str) -> None:
        """The copies of a multicast group: ``first_copy`` to ``last_copy``, ``copies`` of them."""
        line = self.writer.line
        line("first_copy = last_copy = 0")
        with self.writer.block(f"if {group} < len(group_start) - 1:"):
            line(f"first_copy = group_start[{group}]")
            line(f"last_copy = group_start[{group} + 1]")
        line("copies = last_copy - first_copy")
        self.count("replicated", "copies")

    def digest(self) -> None:
        """Append the digest that ingress requested to ``digests``, of which ``digested`` words are
        used.

        A digest is the number of its learn list, then the words of each field, the most significant
        one first. ``traits.decode_digests`` reads them.
        """
        if not self.uses(LEARN_LIST):
            return
        line = self.writer.line
        word = "if"
        for number, learn_list in enumerate(self.program.learn_lists):
            head = f"{word} {LEARN_LIST.name} == {learn_list.id}:  # {learn_list.name}"
            with self.writer.block(head):
                sizes = [digest_words(self.program, each) for each in learn_list.elements]
                size = 1 + sum(sizes)
                if self.digests_grow:
                    line(f"digests = reserve(digests, digested, int64({size}))")
                line(f"put(digests, digested, {number})")
                offset = 1
                for reference, words in zip(learn_list.elements, sizes, strict=True):
                    name = "put" if words == 1 else "put_words"
                    text = self.expressions.data(reference).at(64 * words)
                    line(f"{name}(digests, digested + {offset}, {text})")
                    offset += words
                cells = (f"get(digests, digested + {each})" for each in range(1, size))
                self.writer.note(Kind.DIGEST, number, *cells)
                line(f"digested += {size}")
            word = "elif"
        if self.writer.recording:
            with self.writer.block(f"{word} {LEARN_LIST.name} != 0:"):
                self.writer.note(Kind.UNKNOWN_DIGEST, 0, LEARN_LIST.name)

    # ── Around egress ──

    def set_constant(self, reference: ir.FieldRef | None, value: int) -> None:
        """The switch itself writes a number, if the program has the field."""
        self.statements.set_field(reference, str(int(value)), value, value)

    def set_egress_metadata(self, *, queued: bool = False) -> None:
        """Set the metadata of a copy to port ``leaves`` before egress.

        ``queued``: it comes from a queue, and variables say how long it waited there.
        """
        standard = self.program.standard
        self.statements.set_field(standard.egress_port, "leaves", 0, MAX_REPLICATION_PORT)
        self.set_constant(standard.egress_spec, self.program.drop_port + 1)
        if standard.packet_length in self.live:
            self.statements.statement(lowered.SetInteger(standard.packet_length, PACKET_LENGTH))
        latest = (1 << 63) - 1
        set_field = self.statements.set_field
        set_field(standard.egress_global_timestamp, "clock", 0, latest)
        set_field(standard.enq_timestamp, "enqueued" if queued else "clock", 0, latest)
        if queued:
            set_field(standard.deq_timedelta, "(clock - enqueued)", 0, latest)
            set_field(standard.enq_qdepth, "depth_before", 0, latest)
            set_field(standard.deq_qdepth, "depth_after", 0, latest)
            set_field(standard.qid, "priority", 0, MAX_PRIORITIES - 1)
            return
        for field in (standard.enq_qdepth, standard.deq_timedelta, standard.deq_qdepth):
            self.set_constant(field, 0)
        if standard.priority is not None and standard.priority in self.live:
            priority = self.expressions.field_text(standard.priority)
            set_field(standard.qid, priority, 0, MAX_PRIORITIES - 1)
        else:
            self.set_constant(standard.qid, 0)

    def egress(self) -> None:
        """The program's egress, after which an assertion that failed drops the copy."""
        self.writer.note(Kind.PIPELINE_START, 1)
        self.statements.pipeline(self.lowered.egress)
        self.statements.drop_failed(self.lowered.egress, "dropped_egress")
        self.writer.note(Kind.PIPELINE_END, 1)

    def update(self) -> None:
        """Drop the packet if egress marked it to drop; otherwise update its checksums."""
        spec = self.expressions.field_text(self.program.standard.egress_spec)
        with self.writer.block(f"if {spec} == {self.program.drop_port}:"):
            self.count("dropped_egress")
            self.writer.note(Kind.DROP, drop_site(MARKED, "dropped_egress"))
            self.writer.line("continue")
        self.writer.note(Kind.DEPARSING)
        self.statements.pipeline(self.lowered.update)
        self.statements.drop_failed(self.lowered.update, "dropped_egress")

    def deparse(self, start: str) -> None:
        """Write the packet's bytes to ``out`` from byte ``start`` on; ``to`` is the end."""
        line = self.writer.line
        line("# deparser")
        line(f"to = {start}")
        line("start = to")
        for header in self.program.deparser.order:
            if self.program.headers[header].metadata:
                continue
            with self.writer.block(f"if {self.layout.name(header, ir.VALID)}:"):
                if self.program.type_of(header).variable is not None:
                    emit_varbit_header(self.writer, self.expressions, header)
                    continue
                parts = header_parts(self.expressions, header, leaving=True)
                size = emit_stores(self.writer, "out", "to", parts)
                line(f"to += {size}")
        # The payload follows unchanged.
        with self.writer.block("if size > at:"):
            line("copy(out, to, data, base + at, size - at)")
            line("to += size - at")
        if self.writer.recording:
            self._note_deparsed()

    def note_pass_bytes(self, data: str, start: str, size: str) -> None:
        """The bytes of a pass: what came in, or what the deparser made."""
        line = self.writer.line
        line(f"put(events, pass_start + {BYTES_BEGIN}, recorded)")
        self.writer.note_bytes(data, start, size)
        line(f"put(events, pass_start + {BYTES_END}, recorded)")

    def _note_deparsed(self) -> None:
        """The record of the deparser: which headers it wrote, how much came behind, and all."""
        order = self.program.deparser.order
        flags = [
            "True" if self.program.headers[each].metadata else self.layout.name(each, ir.VALID)
            for each in order
        ]
        words = [
            " | ".join(f"((1 if {flags[i]} else 0) << {i - each.start})" for i in each)
            for each in flag_words(len(order))
        ]
        self.writer.note(Kind.DEPARSE, 0, *words, "size - at")
        self.note_pass_bytes("out", "start", "to - start")

    def send(self, origin: str) -> None:
        """Send the bytes in ``out``; ``origin`` is the index of the received packet in the
        batch.
        """
        line = self.writer.line
        line("sent = to - start")
        if self.uses(MAX_LENGTH):
            line(f"sent = min(sent, {MAX_LENGTH.name})")
        line("out_length[produced] = sent")
        line("out_port[produced] = leaves")
        line(f"out_origin[produced] = {origin}")
        self.writer.note(Kind.SENT, 0, "leaves", "sent")
        line("produced += 1")
        self.count("packets_out")
        self.count("bytes_out", "sent")
