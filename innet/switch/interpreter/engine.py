"""The interpreter: one packet at a time, exactly as simple_switch does it.

It is slow and easy to read, and the reference of the compiled engine. Integers are Python's, so
fields may have any width. simple_switch's behavior partly depends on timing or on reused memory.
Here it is defined: without times packets never queue (queue depths and times are 0), a resubmitted
or recirculated packet is processed before the next received one, and fields that a packet never set
are 0.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import MAX_LOOPS, InstanceType, SwitchState, check_lengths
from innet.switch.interpreter.expressions import (
    CalculationCompiler,
    ChecksumUnit,
    ExpressionCompiler,
    Store,
)
from innet.switch.interpreter.packet import FieldLayout, Packet, PacketOrigin
from innet.switch.interpreter.packet_log import PacketLog
from innet.switch.interpreter.parser import DeparserUnit, ParserUnit
from innet.switch.interpreter.pipeline import ActionCompiler, FailedAssertionError, PipelineUnit
from innet.switch.interpreter.tracing import Rest, Trace
from innet.switch.state import hashes
from innet.switch.state.replication import MirrorSession
from innet.switch.trace import MARKED_TO_DROP
from innet.switch.traffic_manager import (
    BY_DSCP,
    DEPTH,
    FOREVER,
    MARKED,
    PRECEDED,
    QUEUE_WORDS,
    admit,
    is_congested,
    mark_congestion,
    postponement,
    recirculate,
    resize,
    stand_in,
    withdraw,
)

_FAILED_ASSERTION = "an assertion failed"
_LOOPED = "too many clones, resubmissions and recirculations"


@dataclass(order=True, slots=True)
class _Waiting:
    """A copy that waits for egress; the order is that of departure.

    Attributes:
        departure: time at which it leaves its queue, in nanoseconds, unless it is postponed.
        rank: 0 for the highest priority.
        number: how many copies were enqueued before it.
        port, priority: its queue.
        depth: packets in the queue before it.
        enqueued: time in nanoseconds.
        length: bytes.
        planned: the word ``PRECEDED`` of its queue when its departure was planned.
        congested: whether it found more bytes than the queue's ECN threshold.

    A packet that recirculates is one, too, with port -1: it enters ingress at ``departure``.
    """

    departure: int
    rank: int
    number: int
    port: int = field(compare=False)
    priority: int = field(compare=False)
    depth: int = field(compare=False)
    enqueued: int = field(compare=False)
    length: int = field(compare=False)
    planned: int = field(compare=False)
    congested: bool = field(compare=False)
    packet: Packet = field(compare=False)


class _Sent(NamedTuple):
    """A packet that left: port, bytes, time, the number of the received packet, extra bytes."""

    port: int
    data: bytes
    time: int
    number: int
    extra: int


def _extra_of(batch: PacketBatch) -> list[int]:
    return [0] * len(batch) if batch.extra is None else batch.extra.tolist()


def _batch(sent: list[_Sent], first: int) -> PacketBatch:
    """The packets that left as a batch; ``first`` is the number of the call's first packet."""
    batch = PacketBatch.from_packets([(each.port, each.data) for each in sent])
    origin = [each.number - first if each.number >= first else -1 for each in sent]
    extra = None
    if any(each.extra for each in sent):
        extra = np.array([each.extra for each in sent], np.int32)
    return PacketBatch(
        batch.data, batch.length, batch.port, np.array(origin, np.int32), extra=extra
    )


class InterpretEngine:
    """An ``engine.Engine`` that executes the program packet by packet.

    Args:
        trace: called for every event. It costs time, so ``Switch`` makes a second interpreter over
            the same state for the packets that it traces.

    Attributes:
        received: packets so far; the next one has this number in traces.
    """

    def __init__(self, program: ir.Program, state: SwitchState, trace: Trace | None = None) -> None:
        self.program = program
        self.state = state
        self.trace = trace
        self.log = trace if isinstance(trace, PacketLog) else None
        self.layout = layout = FieldLayout(program)
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
        self._egress: list[_Waiting] = []  # a heap
        self._enqueued = 0  # copies so far
        self.received = 0
        # Calls without times bypass the queues.
        self._timed = False
        self._now = 0

    @staticmethod
    def unsupported(program: ir.Program) -> list[str]:
        """Constructs of ``program`` that the interpreter lacks, each with where it is used."""
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
        self._timed = False
        first = self.received
        out: list[_Sent] = []
        for (port, data), extra in zip(batch.to_packets(), _extra_of(batch), strict=True):
            self._receive(port, data, extra)
            out += self._run_due(self._now)
        return _batch(out, first)

    def process_timed(
        self, batch: PacketBatch, times: NDArray[np.int64], until: int
    ) -> PacketBatch:
        """Run packets at their arrival times, and due copies; see ``engine.Engine``."""
        check_lengths(batch)
        self.state.time()
        self._timed = True
        manager = self.state.traffic_manager
        self._now = manager.now
        first = self.received
        out: list[_Sent] = []
        arrivals = zip(batch.to_packets(), _extra_of(batch), times.tolist(), strict=True)
        for (port, data), extra, time in arrivals:
            out += self._run_due(time)
            self._set_time(time)
            self._receive(port, data, extra)
        out += self._run_due(until)
        if until < FOREVER:
            self._set_time(until)
        manager.now = self._now
        self.state.clock = self.state.traffic_manager.clock(self._now)
        sent = _batch(out, first)
        left = np.array([each.time for each in out], np.int64)
        return PacketBatch(sent.data, sent.length, sent.port, sent.origin, left, sent.extra)

    @property
    def waiting(self) -> int:
        """The number of copies that wait for egress."""
        return len(self._egress)

    @property
    def next_departure(self) -> int | None:
        """The departure time of the next copy, in nanoseconds."""
        return self._egress[0].departure if self._egress else None

    @staticmethod
    def inline(packets: PacketBatch, *, beside: bool = False) -> None:
        """None: compiled code cannot run the interpreter."""

    @staticmethod
    def inline_queues(packets: PacketBatch, *, timed: bool = True) -> None:
        """The same."""

    def _set_time(self, time: int) -> None:
        """Advance the time to ``time``, in nanoseconds."""
        self._now = max(self._now, time)
        self.state.clock = self.state.traffic_manager.clock(self._now)
        self.state.time()

    def _receive(self, port: int, data: bytes, extra: int) -> None:
        """Run ingress of one packet, once more for each time that it is resubmitted."""
        statistics = self.state.statistics
        statistics.packets_in += 1
        statistics.bytes_in += len(data)
        packet = Packet(self.layout, data, port, PacketOrigin(self.received))
        self.received += 1
        self.standard.ingress_port(packet, port)
        packet.lengthen(extra)
        self.standard.packet_length(packet, packet.length)
        self.standard.ingress_global_timestamp(packet, self.state.clock)
        self._ingress.append(packet)
        self._run_all_ingress()

    def _run_all_ingress(self) -> None:
        try:
            while self._ingress:
                self._run_ingress(self._ingress.popleft())
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Drop packets after an interruption, such as Ctrl-C, so that they do not leave with the
        next call.
        """
        self._ingress.clear()
        self._egress.clear()
        self.state.traffic_manager.clear()

    def _stamp(self, trace: Trace, packet: Packet) -> None:
        """Set the packet and the time of following events."""
        if self.log is not None:
            self.log.about(packet.origin.number, packet.copy_number)
        trace.packet, trace.time = packet.origin.number, self._now if self._timed else None

    def _run_due(self, limit: int) -> list[_Sent]:
        """Run egress of copies that leave their queues by ``limit``; returns the packets that
        leave.
        """
        statistics = self.state.statistics
        out: list[_Sent] = []
        while self._egress and self._egress[0].departure <= limit:
            waiting = heapq.heappop(self._egress)
            if self._is_postponed(waiting):
                heapq.heappush(self._egress, waiting)
                continue
            if self._timed:
                self._set_time(waiting.departure)
            if waiting.port < 0:
                self._ingress.append(waiting.packet)
                self._run_all_ingress()
                continue
            try:
                sent = self._run_egress(waiting)
            except BaseException:
                self._forget()
                raise
            if sent is not None:
                packet = waiting.packet
                extra = packet.extra_after_truncate()
                if self._timed:
                    self._resize(waiting, len(sent) + extra)
                out.append(_Sent(waiting.port, sent, self._now, packet.origin.number, extra))
                statistics.packets_out += 1
                statistics.bytes_out += len(sent)
            self._run_all_ingress()
        return out

    def _is_postponed(self, waiting: _Waiting) -> bool:
        """Whether packets of higher priorities go first; its departure is then planned again."""
        if not self._timed or waiting.port < 0:
            return False
        manager = self.state.traffic_manager
        queue = manager.first_word(waiting.port, waiting.priority)
        later = int(postponement(manager.queues, queue, waiting.planned))
        waiting.departure += later
        waiting.planned += later
        return later != 0

    def _resize(self, left: _Waiting, length: int) -> None:
        """Let a copy that has left take its line for ``length`` bytes; others move up behind it."""
        manager = self.state.traffic_manager
        queue = manager.first_word(left.port, left.priority)
        if length == left.length or resize(manager.queues, queue, left.length, length) >= 0:
            return
        words = manager.priorities * QUEUE_WORDS  # of a port
        for each in self._egress:
            place = manager.first_word(each.port, each.priority)
            is_behind = each.port >= 0 and place // words == queue // words
            if is_behind and postponement(manager.queues, place, each.planned) < 0:
                self._is_postponed(each)
        heapq.heapify(self._egress)

    # ── Ingress ──

    # What follows the controls is "Pseudocode for what happens at the end of ingress and egress
    # processing" in BMv2's simple_switch.md.

    def _run_ingress(self, packet: Packet) -> None:
        statistics, standard = self.state.statistics, self.standard
        # Step 1: the parser, and the control that verifies checksums.
        received, received_length = packet.data, packet.length
        packet.hit_time = self.state.clock
        if self.trace is not None:
            self._stamp(self.trace, packet)
            kind, port = standard.instance_type_of(packet), packet.ingress_port
            self.trace("ingress", instance_type=kind, port=port, length=len(received))
        if not self._passes(self.parser.parse, packet):
            self._drop("ingress", _FAILED_ASSERTION)
            return
        statistics.parser_errors += packet.error != self.parser.no_error
        standard.parser_error(packet, packet.error)
        correct = self.checksums.verify(packet)
        statistics.checksum_errors += not correct
        if self.log is not None:
            self.log.line("debug", "Parser 'parser': end")
        standard.checksum_error(packet, int(not correct))
        if self.trace is not None and self.checksums.verifiers:
            self.trace("checksums", correct=correct)
        # Step 2: the ingress control.
        if not self._passes(self.pipelines.run, self.program.ingress, packet):
            self._drop("ingress", _FAILED_ASSERTION)
            return
        packet.exit = False
        # Step 3: its requests, which are read before clones are made: clone, digest, resubmission.
        egress_spec, group = standard.egress_spec_of(packet), standard.mcast_grp_of(packet)
        if packet.clone_session is not None:
            self._clone_ingress(packet, received, received_length)
        if packet.learn_list:
            self._learn(packet)
        if packet.resubmit:
            self._resubmit(packet, received, received_length)
            return
        # Step 4: the traffic manager: multicast, drop or one egress port.
        if self.log is not None:
            asked = f"Egress port is {egress_spec}"
            self.log.line("debug", "Multicast requested for packet" if group else asked)
        if group:
            standard.instance_type(packet, InstanceType.REPLICATED)
            self._multicast(packet, group)
        elif egress_spec == self.program.drop_port:
            self._drop("ingress", MARKED_TO_DROP)
        else:
            standard.instance_type(packet, InstanceType.NORMAL)
            self._enqueue(egress_spec, packet)

    def _drop(self, pipeline: str, reason: str) -> None:
        """Count a dropped packet."""
        if pipeline == "ingress":
            self.state.statistics.dropped_ingress += 1
        else:
            self.state.statistics.dropped_egress += 1
        if self.trace is not None:
            self.trace("drop", pipeline=pipeline, reason=reason)

    def _passes(self, run: Callable[Rest, None], *args: Rest.args, **kwargs: Rest.kwargs) -> bool:
        """Run a part of the program; returns False if an assertion failed in it."""
        try:
            run(*args, **kwargs)
        except FailedAssertionError:
            self.state.statistics.failed_assertions += 1
            return False
        return True

    def _keep_fields(self, source: Packet, target: Packet, field_list: int) -> None:
        """Copy the fields of a field list; nothing if the list does not exist."""
        for reference in self.field_lists.get(field_list, ()):
            if reference.field == ir.VALID:
                continue
            index = self.layout.slot(reference).index
            target.fields[index] = source.fields[index]

    def _may_loop(self, packet: Packet) -> bool:
        if packet.origin.loops >= MAX_LOOPS:
            self.state.statistics.looped += 1
            return False
        packet.origin.loops += 1
        return True

    def _requested_clone(self, packet: Packet) -> tuple[MirrorSession | None, int]:
        """Session and field list of a requested clone; None if there is no such session, or after
        too many loops.
        """
        number, field_list = packet.clone_session or 0, packet.clone_field_list
        packet.clone_session, packet.clone_field_list = None, 0
        session = self.state.replication.sessions.get(number)
        if self.trace is not None:
            self.trace("unknown_session" if session is None else "clone", session=number)
        return (session if session is not None and self._may_loop(packet) else None), field_list

    def _clone_ingress(self, packet: Packet, received: bytes, received_length: int) -> None:
        if self.log is not None:
            self.log.line("debug", "Cloning packet at ingress")
        session, field_list = self._requested_clone(packet)
        if session is None:
            return
        if self.trace is not None:
            self.trace("parse_clone", length=len(received))
        clone = Packet(self.layout, received, packet.ingress_port, packet.origin)
        clone.ingress_length = packet.ingress_length
        clone.length, clone.extra = received_length, packet.extra
        self.standard.ingress_port(clone, packet.ingress_port)
        if self.log is not None:
            self.log.about(clone.origin.number, clone.copy_number)
        if not self._passes(self.parser.parse, clone):
            self._drop("ingress", _FAILED_ASSERTION)
            return
        if self.log is not None:
            self.checksums.verify(clone)  # only for its lines
            self.log.line("debug", "Parser 'parser': end")
        self.layout.reset_metadata(clone)
        self._keep_fields(packet, clone, field_list)
        self.standard.instance_type(clone, InstanceType.INGRESS_CLONE)
        clone.clear_requests()
        self.state.statistics.cloned += 1
        self._mirror(packet, clone, session.port, session.group)

    def _mirror(self, packet: Packet, clone: Packet, port: int | None, group: int | None) -> None:
        if self.trace is not None:
            self._stamp(self.trace, packet)
        if group is not None:
            if self.log is not None:
                self.log.line("debug", f"Cloning packet to MGID {group}")
                self.log.about(clone.origin.number, clone.copy_number)
            self._multicast(clone, group)
            if self.trace is not None:
                self._stamp(self.trace, packet)
        if port is not None:
            if self.log is not None:
                self.log.line("debug", f"Cloning packet to egress port {port}")
            self._enqueue(port, clone)

    def _learn(self, packet: Packet) -> None:
        number = self.learn_lists.get(packet.learn_list)
        if self.log is not None:
            self.log.learning(packet.learn_list, is_known=number is not None)
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
        if not self._may_loop(packet):
            self._drop("ingress", _LOOPED)
            return
        again = Packet(self.layout, received, packet.ingress_port, packet.origin)
        again.ingress_length = packet.ingress_length
        again.length, again.extra = received_length, packet.extra
        self._keep_fields(packet, again, packet.resubmit)
        self.standard.instance_type(again, InstanceType.RESUBMITTED)
        self.standard.packet_length(again, received_length)
        self.state.statistics.resubmitted += 1
        self._enter_again(again)

    def _enter_again(self, packet: Packet) -> None:
        """Run ingress of a packet next, or when it has passed the recirculation port."""
        manager, arrival = self.state.traffic_manager, -1
        if self._timed:
            arrival = int(recirculate(manager.queues, self._now, packet.length))
        if arrival < 0:
            self._ingress.append(packet)
            return
        number, self._enqueued = self._enqueued, self._enqueued + 1
        place = (-1, -1, 0, self._now, packet.length, 0, False)
        heapq.heappush(self._egress, _Waiting(arrival, manager.priorities, number, *place, packet))

    def _multicast(self, packet: Packet, group: int) -> None:
        replicas = self.state.replication.replicas(group)
        self.state.statistics.unknown_groups += not replicas
        if self.log is not None:
            is_known = group in self.state.replication.groups
            self.log.replicating(group, len(replicas), is_known=is_known)
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
        manager, priority = self.state.traffic_manager, self.standard.priority_of(packet)
        if priority == 0 and manager.queues[-BY_DSCP]:
            priority = min(packet.type_of_service >> 5, manager.priorities - 1)
        if priority >= manager.priorities:
            if self.log is not None:
                self.log.plain("error", "Priority out of range, dropping packet")
            self._drop("ingress", "no queue of that priority")
            return
        depth, departure, planned, congested = 0, self._now, 0, False
        carried = packet.length - packet.extra
        length = max(carried + self._longer_by(packet, carried), 0)
        if self._timed:
            queue = manager.first_word(port, priority)
            depth = int(manager.queues[queue + DEPTH])
            congested = bool(is_congested(manager.queues, queue))
            departure = int(admit(manager.queues, queue, self._now, length))
            if departure < 0:
                self.state.statistics.dropped_queue += 1
                if self.trace is not None:
                    self.trace("queue_full", port=port, priority=priority, depth=depth)
                return
            planned = int(manager.queues[queue + PRECEDED])
            if self.trace is not None:
                wait = departure - self._now
                self.trace("enqueue", port=port, priority=priority, depth=depth, wait=wait)
        rank = manager.priorities - 1 - priority
        number, self._enqueued = self._enqueued, self._enqueued + 1
        place = (port, priority, depth, self._now, length, planned, congested)
        heapq.heappush(self._egress, _Waiting(departure, rank, number, *place, packet))

    def _longer_by(self, packet: Packet, carried: int) -> int:
        """Bytes by which a packet is longer than those that it carries now."""
        before = packet.ingress_length - packet.extra
        return int(stand_in(self.state.traffic_manager.queues, before, carried, packet.extra))

    # ── Egress ──

    def _run_egress(self, waiting: _Waiting) -> bytes | None:
        """Run egress of a copy; returns the packet that leaves, or None."""
        # Step 1: out of the queue.
        standard, packet, port = self.standard, waiting.packet, waiting.port
        enqueued, depth = self.state.clock, 0
        if self.trace is not None:
            self._stamp(self.trace, packet)
        if self._timed:
            manager = self.state.traffic_manager
            queue = manager.first_word(port, waiting.priority)
            depth = int(withdraw(manager.queues, queue, self._now, waiting.length))
            enqueued = manager.clock(waiting.enqueued)
            if self.trace is not None:
                self.trace("dequeue", waited=self._now - waiting.enqueued, depth=depth)
        if self.trace is not None:
            kind = standard.instance_type_of(packet)
            self.trace("egress", instance_type=kind, port=port)
        # Step 2: the standard metadata, and the egress control.
        packet.hit_time = enqueued
        standard.egress_global_timestamp(packet, self.state.clock)
        standard.enq_timestamp(packet, enqueued)
        standard.enq_qdepth(packet, waiting.depth)
        standard.deq_timedelta(packet, self.state.clock - enqueued)
        standard.deq_qdepth(packet, depth)
        standard.qid(packet, waiting.priority)
        standard.egress_port(packet, port)
        standard.egress_spec(packet, self.program.drop_port + 1)
        standard.packet_length(packet, packet.length)
        if not self._passes(self.pipelines.run, self.program.egress, packet):
            self._drop("egress", _FAILED_ASSERTION)
            return None
        # Step 3: its requests: clone and drop come before the deparser, recirculation after it.
        if packet.clone_session is not None:
            self._clone_egress(packet)
        if standard.egress_spec_of(packet) == self.program.drop_port:
            self._drop("egress", MARKED_TO_DROP)
            return None
        if not self._passes(self.deparser.deparse, packet):
            self._drop("egress", _FAILED_ASSERTION)
            return None
        if waiting.congested:
            manager = self.state.traffic_manager
            marked = mark_congestion(packet.data)
            queue = manager.first_word(port, waiting.priority)
            manager.queues[queue + MARKED] += marked is not packet.data
            packet.data = marked
        if packet.recirculate:
            self._recirculate(packet)
            return None
        packet.extra = self._longer_by(packet, len(packet.data))
        data = packet.data[: packet.length_after_truncate()]
        if self.trace is not None:
            self.trace("sent", port=port, length=len(data), data=data)
        return data

    def _clone_egress(self, packet: Packet) -> None:
        if self.log is not None:
            self.log.line("debug", "Cloning packet at egress")
        session, field_list = self._requested_clone(packet)
        if session is None:
            return
        clone = packet.copy(self.layout)
        self.layout.reset_metadata(clone)
        self._keep_fields(packet, clone, field_list)
        self.standard.instance_type(clone, InstanceType.EGRESS_CLONE)
        self.state.statistics.cloned += 1
        self._mirror(packet, clone, session.port, session.group)

    def _recirculate(self, packet: Packet) -> None:
        if self.trace is not None:
            self.trace("recirculate")
        if not self._may_loop(packet):
            self._drop("egress", _LOOPED)
            return
        again = Packet(self.layout, packet.data, packet.ingress_port, packet.origin)
        again.lengthen(packet.extra)
        self._keep_fields(packet, again, packet.recirculate)
        self.standard.instance_type(again, InstanceType.RECIRCULATED)
        self.standard.packet_length(again, again.length)
        self.state.statistics.recirculated += 1
        self._enter_again(again)


class _StandardFields:
    """Writers and readers of the standard metadata. Fields that the program lacks are ignored."""

    def __init__(
        self, standard: ir.StandardMetadata, make: ExpressionCompiler, layout: FieldLayout
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
        """The origin of the packet in traces."""
        kind = 0 if self._instance_type is None else packet.fields[self._instance_type]
        return InstanceType(kind).name.lower().replace("_", " ")

    def mcast_grp_of(self, packet: Packet) -> int:
        return 0 if self._mcast_grp is None else packet.fields[self._mcast_grp]

    def priority_of(self, packet: Packet) -> int:
        return 0 if self._priority is None else packet.fields[self._priority]


def _ignore(_: Packet, __: int) -> None:
    """Writes nothing."""
