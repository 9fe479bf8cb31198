"""The interpreter: one packet at a time, exactly as simple_switch does it.

Slow and easy to read; what the compiled engine is checked against. Integers are Python's, so that
fields may have any width. Where simple_switch depends on timing or on memory that it recycles, this
is what happens here instead: packets never queue (queue depths and times are 0), a resubmitted or
recirculated packet comes before the next received one, and fields that a packet never set are 0.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import DROP_PORT, MAX_LOOPS, InstanceType, SwitchState, check_lengths
from innet.switch.interpreter.expressions import (
    CalculationCompiler,
    ChecksumUnit,
    ExpressionCompiler,
    Store,
)
from innet.switch.interpreter.packet import Layout, Packet
from innet.switch.interpreter.parser import DeparserUnit, ParserUnit
from innet.switch.interpreter.pipeline import ActionCompiler, FailedAssertionError, PipelineUnit
from innet.switch.state import hashes
from innet.switch.state.replication import MirrorSession
from innet.switch.trace import Trace

_MARKED = "marked to drop"
_FAILED_ASSERTION = "an assertion failed"
_LOOPED = "too many clones, resubmissions and recirculations"


class InterpretEngine:
    """An ``engine.Engine`` that walks the program for every packet.

    Args:
        trace: called for every event. It costs time, so ``Switch`` makes a second interpreter over
            the same state for the packets that it traces.
    """

    def __init__(self, program: ir.Program, state: SwitchState, trace: Trace | None = None) -> None:
        self.program = program
        self.state = state
        self.trace = trace
        self.layout = layout = Layout(program)
        self.expressions = ExpressionCompiler(layout, state.registers, trace)
        calculations = CalculationCompiler(layout, state)
        actions = ActionCompiler(layout, state, self.expressions, calculations)
        self.checksums = ChecksumUnit(layout, self.expressions, calculations)
        self.parser = ParserUnit(layout, state, self.expressions, actions)
        self.pipelines = PipelineUnit(layout, state, self.expressions, actions)
        self.deparser = DeparserUnit(layout, self.checksums, actions)
        self.standard = _StandardFields(program.standard, self.expressions, layout)
        self.field_lists = {
            each.id: [e for e in each.elements if isinstance(e, ir.FieldRef)]
            for each in program.field_lists
        }
        self.learn_lists = {each.id: i for i, each in enumerate(program.learn_lists)}
        self._ingress: deque[Packet] = deque()
        self._egress: deque[tuple[int, Packet]] = deque()
        self._loops = 0

    @staticmethod
    def unsupported(program: ir.Program) -> list[str]:
        """What ``program`` uses that the interpreter does not have, each with where it is used."""
        reasons = [f"extern instance {name}" for name in program.externs]
        for action in program.actions:
            reasons += [
                f"primitive {primitive.name} in action {action.name}"
                for primitive in action.primitives
                if isinstance(primitive, ir.ExternCall)
            ]
        for state in program.parser.states:
            reasons += [
                f"primitive {operation.name} in parser state {state.name}"
                for operation in state.operations
                if isinstance(operation, ir.ExternCall)
            ]
        reasons += [
            f"primitive {operation.name} in the deparser"
            for operation in program.deparser.operations
            if isinstance(operation, ir.ExternCall)
        ]
        reasons += [
            f"algorithm {each.algorithm} of calculation {each.name}"
            for each in program.hashes
            if each.algorithm not in hashes.RESULT_BITS
        ]
        return reasons

    def process(self, batch: PacketBatch) -> PacketBatch:
        """Run packets in arrival order; see ``engine.Engine``."""
        check_lengths(batch)
        self.state.time()  # before a packet reads it
        out: list[tuple[int, bytes]] = []
        origin: list[int] = []
        for row, (port, data) in enumerate(batch.to_packets()):
            out += self._receive(port, data)
            origin += [row] * (len(out) - len(origin))
        sent = PacketBatch.from_packets(out)
        return PacketBatch(sent.data, sent.length, sent.port, np.array(origin, np.int32))

    @staticmethod
    def inline(packets: PacketBatch) -> None:
        """Compiled code cannot run what is not compiled."""

    def _receive(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        """Run one packet, and all that it causes; returns what leaves."""
        statistics = self.state.statistics
        statistics.packets_in += 1
        statistics.bytes_in += len(data)
        packet = Packet(self.layout, data, port)
        self.standard.ingress_port(packet, port)
        self.standard.packet_length(packet, len(data))
        self.standard.ingress_global_timestamp(packet, self.state.clock)
        self._ingress.append(packet)
        self._loops = 0
        out: list[tuple[int, bytes]] = []
        try:
            while self._ingress or self._egress:
                if self._ingress:
                    self._run_ingress(self._ingress.popleft())
                else:
                    out += self._run_egress(*self._egress.popleft())
        except BaseException:  # as from a keyboard: what is left does not come out with the next
            self._ingress.clear()
            self._egress.clear()
            raise
        statistics.packets_out += len(out)
        statistics.bytes_out += sum(len(sent) for _, sent in out)
        return out

    # ── Ingress ──

    def _run_ingress(self, packet: Packet) -> None:
        statistics, standard = self.state.statistics, self.standard
        received, received_length = packet.data, packet.length
        if self.trace is not None:
            kind, port = standard.instance_type_of(packet), packet.ingress_port
            self.trace("ingress", instance_type=kind, port=port, length=len(received))
        if not self._parse(packet):
            self._drop("ingress", _FAILED_ASSERTION)
            return
        statistics.parser_errors += packet.error != self.parser.no_error
        standard.parser_error(packet, packet.error)
        correct = self.checksums.verify(packet)
        statistics.checksum_errors += not correct
        standard.checksum_error(packet, int(not correct))
        if self.trace is not None and self.checksums.verifiers:
            self.trace("checksums", correct=correct)
        if not self._run_pipeline(self.program.ingress, packet):
            self._drop("ingress", _FAILED_ASSERTION)
            return
        packet.exit = False
        # Requests are read before clones are made, and handled in this order.
        egress_spec, group = standard.egress_spec_of(packet), standard.mcast_grp_of(packet)
        if packet.clone_session is not None:
            self._clone_ingress(packet, received, received_length)
        if packet.learn_list:
            self._learn(packet)
        if packet.resubmit:
            self._resubmit(packet, received, received_length)
        elif group:
            standard.instance_type(packet, InstanceType.REPLICATED)
            self._multicast(packet, group)
        elif egress_spec == DROP_PORT:
            self._drop("ingress", _MARKED)
        else:
            standard.instance_type(packet, InstanceType.NORMAL)
            self._enqueue(egress_spec, packet)

    def _drop(self, pipeline: str, reason: str) -> None:
        """Count a packet that ends here."""
        if pipeline == "ingress":
            self.state.statistics.dropped_ingress += 1
        else:
            self.state.statistics.dropped_egress += 1
        if self.trace is not None:
            self.trace("drop", pipeline=pipeline, reason=reason)

    def _parse(self, packet: Packet) -> bool:
        """False when an assertion failed."""
        try:
            self.parser.parse(packet)
        except FailedAssertionError:
            self.state.statistics.failed_assertions += 1
            return False
        return True

    def _run_pipeline(self, pipeline: ir.Pipeline, packet: Packet) -> bool:
        """False when an assertion failed."""
        try:
            self.pipelines.run(pipeline, packet)
        except FailedAssertionError:
            self.state.statistics.failed_assertions += 1
            return False
        return True

    def _keep_fields(self, source: Packet, target: Packet, field_list: int) -> None:
        """Copy what a field list names; a list that does not exist names nothing."""
        for reference in self.field_lists.get(field_list, ()):
            if reference.field == ir.VALID:
                continue
            index = self.layout.slot(reference).index
            target.fields[index] = source.fields[index]

    def _may_loop(self) -> bool:
        if self._loops >= MAX_LOOPS:
            self.state.statistics.looped += 1
            return False
        self._loops += 1
        return True

    def _requested_clone(self, packet: Packet) -> tuple[MirrorSession | None, int]:
        """Session and field list of a requested clone; None: no such session, or too many loops."""
        number, field_list = packet.clone_session or 0, packet.clone_field_list
        packet.clone_session, packet.clone_field_list = None, 0
        session = self.state.replication.sessions.get(number)
        if self.trace is not None:
            self.trace("unknown_session" if session is None else "clone", session=number)
        return (session if session is not None and self._may_loop() else None), field_list

    def _clone_ingress(self, packet: Packet, received: bytes, received_length: int) -> None:
        session, field_list = self._requested_clone(packet)
        if session is None:
            return
        if self.trace is not None:
            self.trace("parse_clone", length=len(received))
        clone = Packet(self.layout, received, packet.ingress_port)
        clone.ingress_length = packet.ingress_length
        clone.length = received_length
        self.standard.ingress_port(clone, packet.ingress_port)
        if not self._parse(clone):
            self._drop("ingress", _FAILED_ASSERTION)
            return
        self.layout.reset_metadata(clone)
        self._keep_fields(packet, clone, field_list)
        self.standard.instance_type(clone, InstanceType.INGRESS_CLONE)
        clone.clear_requests()
        self.state.statistics.cloned += 1
        self._mirror(clone, session.port, session.group)

    def _mirror(self, clone: Packet, port: int | None, group: int | None) -> None:
        if group is not None:
            self._multicast(clone, group)
        if port is not None:
            self._enqueue(port, clone)

    def _learn(self, packet: Packet) -> None:
        number = self.learn_lists.get(packet.learn_list)
        if number is None:
            return
        values = []
        for reference in self.program.learn_lists[number].elements:
            every = (1 << self.program.field(reference).width) - 1
            values.append(packet.fields[self.layout.slot(reference).index] & every)
        self.state.digests.append((number, tuple(values)))
        if self.trace is not None:
            name = self.program.learn_lists[number].name
            self.trace("digest", learn_list=name, values=tuple(values))

    def _resubmit(self, packet: Packet, received: bytes, received_length: int) -> None:
        if self.trace is not None:
            self.trace("resubmit")
        if not self._may_loop():
            self._drop("ingress", _LOOPED)
            return
        again = Packet(self.layout, received, packet.ingress_port)
        again.ingress_length = packet.ingress_length
        again.length = received_length
        self._keep_fields(packet, again, packet.resubmit)
        self.standard.instance_type(again, InstanceType.RESUBMITTED)
        self.standard.packet_length(again, received_length)
        self.state.statistics.resubmitted += 1
        self._ingress.append(again)

    def _multicast(self, packet: Packet, group: int) -> None:
        replicas = self.state.replication.replicas(group)
        self.state.statistics.unknown_groups += not replicas
        if self.trace is not None:
            kind = "multicast" if replicas else "unknown_group"
            self.trace(kind, group=group, copies=len(replicas))
        for port, rid in replicas:
            if self.trace is not None:
                self.trace("replica", port=port, rid=rid)
            self.standard.egress_rid(packet, rid)
            self.state.statistics.replicated += 1
            self._enqueue(port, packet.copy(self.layout))

    def _enqueue(self, port: int, packet: Packet) -> None:
        standard = self.standard
        if standard.priority_of(packet):
            # simple_switch has one queue per port unless it is told otherwise.
            self._drop("ingress", "no queue of that priority")
            return
        standard.enq_timestamp(packet, self.state.clock)
        standard.enq_qdepth(packet, 0)
        self._egress.append((port, packet))

    # ── Egress ──

    def _run_egress(self, port: int, packet: Packet) -> list[tuple[int, bytes]]:
        standard = self.standard
        if self.trace is not None:
            kind = standard.instance_type_of(packet)
            self.trace("egress", instance_type=kind, port=port)
        standard.egress_global_timestamp(packet, self.state.clock)
        standard.deq_timedelta(packet, 0)
        standard.deq_qdepth(packet, 0)
        standard.qid(packet, 0)
        standard.egress_port(packet, port)
        standard.egress_spec(packet, DROP_PORT + 1)
        standard.packet_length(packet, packet.length)
        if not self._run_pipeline(self.program.egress, packet):
            self._drop("egress", _FAILED_ASSERTION)
            return []
        if packet.clone_session is not None:
            self._clone_egress(packet)
        if standard.egress_spec_of(packet) == DROP_PORT:
            self._drop("egress", _MARKED)
            return []
        if not self._deparse(packet):
            self._drop("egress", _FAILED_ASSERTION)
            return []
        if packet.recirculate:
            self._recirculate(packet)
            return []
        data = packet.data[: packet.length_after_truncate()]
        if self.trace is not None:
            self.trace("sent", port=port, length=len(data), data=data)
        return [(port, data)]

    def _deparse(self, packet: Packet) -> bool:
        """False when an assertion failed."""
        try:
            self.deparser.deparse(packet)
        except FailedAssertionError:
            self.state.statistics.failed_assertions += 1
            return False
        return True

    def _clone_egress(self, packet: Packet) -> None:
        session, field_list = self._requested_clone(packet)
        if session is None:
            return
        clone = packet.copy(self.layout)
        self.layout.reset_metadata(clone)
        self._keep_fields(packet, clone, field_list)
        self.standard.instance_type(clone, InstanceType.EGRESS_CLONE)
        self.state.statistics.cloned += 1
        self._mirror(clone, session.port, session.group)

    def _recirculate(self, packet: Packet) -> None:
        if self.trace is not None:
            self.trace("recirculate")
        if not self._may_loop():
            self._drop("egress", _LOOPED)
            return
        again = Packet(self.layout, packet.data, packet.ingress_port)
        self._keep_fields(packet, again, packet.recirculate)
        self.standard.instance_type(again, InstanceType.RECIRCULATED)
        self.standard.packet_length(again, again.length)
        self.state.statistics.recirculated += 1
        self._ingress.append(again)


class _StandardFields:
    """Writers and readers of the metadata that the switch itself uses; fields that the program does
    not have are ignored.
    """

    def __init__(
        self, standard: ir.StandardMetadata, make: ExpressionCompiler, layout: Layout
    ) -> None:
        def writer(reference: ir.FieldRef | None) -> Store:
            return _ignore if reference is None else make.store(reference)

        self.ingress_port = writer(standard.ingress_port)
        self.egress_spec = writer(standard.egress_spec)
        self.egress_port = writer(standard.egress_port)
        self.packet_length = writer(standard.packet_length)
        self.instance_type = writer(standard.instance_type)
        self.parser_error = writer(standard.parser_error)
        self.checksum_error = writer(standard.checksum_error)
        self.egress_rid = writer(standard.egress_rid)
        self.ingress_global_timestamp = writer(standard.ingress_global_timestamp)
        self.egress_global_timestamp = writer(standard.egress_global_timestamp)
        self.enq_timestamp = writer(standard.enq_timestamp)
        self.enq_qdepth = writer(standard.enq_qdepth)
        self.deq_timedelta = writer(standard.deq_timedelta)
        self.deq_qdepth = writer(standard.deq_qdepth)
        self.qid = writer(standard.qid)

        def index(reference: ir.FieldRef | None) -> int | None:
            return None if reference is None else layout.slot(reference).index

        self._egress_spec = layout.slot(standard.egress_spec).index
        self._instance_type = index(standard.instance_type)
        self._mcast_grp = index(standard.mcast_grp)
        self._priority = index(standard.priority)

    def egress_spec_of(self, packet: Packet) -> int:
        return packet.fields[self._egress_spec]

    def instance_type_of(self, packet: Packet) -> str:
        """Where the packet comes from, as a trace names it."""
        kind = 0 if self._instance_type is None else packet.fields[self._instance_type]
        return InstanceType(kind).name.lower().replace("_", " ")

    def mcast_grp_of(self, packet: Packet) -> int:
        return 0 if self._mcast_grp is None else packet.fields[self._mcast_grp]

    def priority_of(self, packet: Packet) -> int:
        return 0 if self._priority is None else packet.fields[self._priority]


def _ignore(_: Packet, __: int) -> None:
    """Writes nothing."""
