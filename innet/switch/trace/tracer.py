"""Watches the interpreter: every packet leaves a list of typed events.

The units of a plain interpreter know nothing of this. ``TraceEngine`` is an interpreter made of
units that do the same and tell what they do; it shares the state of the switch that it is made for,
so that a traced packet reads and changes the same tables, registers and counters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.engine import InstanceType, SwitchState, cell_value
from innet.switch.interpreter.engine import InterpretEngine, Parts
from innet.switch.interpreter.expressions import (
    UINT64,
    CalculationCompiler,
    ChecksumUnit,
    Data,
    ExpressionCompiler,
    Store,
)
from innet.switch.interpreter.packet import Layout, Packet
from innet.switch.interpreter.parser import DeparserUnit
from innet.switch.trace import events
from innet.switch.trace.events import Event
from innet.switch.trace.parser import TracedParser
from innet.switch.trace.units import Log, TracedActions, TracedPipelines


class TraceEngine(InterpretEngine):
    """An interpreter that tells what it does."""

    def __init__(self, program: ir.Program, state: SwitchState) -> None:
        self.log = Log(Layout(program))
        parts = Parts(
            expressions=partial(_TracedExpressions, self.log),
            actions=partial(TracedActions, self.log),
            checksums=partial(_TracedChecksums, self.log),
            parser=partial(TracedParser, self.log),
            pipelines=partial(TracedPipelines, self.log),
            deparser=partial(_TracedDeparser, self.log),
        )
        super().__init__(program, state, parts)
        self._instance_type = self.layout.slot(program.standard.instance_type).index

    def trace(self, port: int, data: bytes) -> list[Event]:
        """Run one packet, and everything that it leads to; what happened."""
        self.log.clear()
        self.state.time()  # before a packet reads it
        self._receive(port, data)
        return self.log.take()

    def _kind(self, packet: Packet) -> InstanceType:
        return InstanceType(packet.fields[self._instance_type])

    # ── Ingress ──

    def _run_ingress(self, packet: Packet) -> None:
        kind = self._kind(packet)
        self.log.add(events.IngressStarted(kind, packet.ingress_port, len(packet.data)))
        self._telling_drops("ingress", lambda: super(TraceEngine, self)._run_ingress(packet))

    def _telling_drops(self, pipeline: str, run: Callable[[], Any]) -> Any:
        """Run it, and tell why the packet was dropped, if it was."""
        before = self.state.statistics.as_dict()
        result = run()
        after = self.state.statistics.as_dict()
        grown = {name: after[name] - before[name] for name in after}
        for _ in range(grown[f"dropped_{pipeline}"]):
            self.log.add(events.Dropped(pipeline, _reason(grown)))
        return result

    def _clone_ingress(self, packet: Packet, received: bytes, received_length: int) -> None:
        if self._tell_clone(packet):
            self.log.add(events.CloneParsed(len(received)))
        super()._clone_ingress(packet, received, received_length)

    def _tell_clone(self, packet: Packet) -> bool:
        """Whether the session exists."""
        session = packet.clone_session or 0
        exists = session in self.state.replication.sessions
        self.log.add(events.Cloned(session, exists))
        return exists

    def _learn(self, packet: Packet) -> None:
        held = len(self.state.digests)
        super()._learn(packet)
        for number, values in self.state.digests[held:]:
            name = self.program.learn_lists[number].name
            self.log.add(events.Digested(name, values))

    def _resubmit(self, packet: Packet, received: bytes, received_length: int) -> None:
        self.log.add(events.ComesAgain(resubmitted=True))
        super()._resubmit(packet, received, received_length)

    def _multicast(self, packet: Packet, group: int) -> None:
        self.log.add(events.Replicated(group, self.state.replication.replicas(group)))
        super()._multicast(packet, group)

    # ── Egress ──

    def _run_egress(self, port: int, packet: Packet) -> list[tuple[int, bytes]]:
        self.log.add(events.EgressStarted(self._kind(packet), port))
        sent: list[tuple[int, bytes]] = self._telling_drops(
            "egress", lambda: super(TraceEngine, self)._run_egress(port, packet)
        )
        for leaves, data in sent:
            self.log.add(events.Sent(leaves, data))
        return sent

    def _clone_egress(self, packet: Packet) -> None:
        self._tell_clone(packet)
        super()._clone_egress(packet)

    def _recirculate(self, packet: Packet) -> None:
        self.log.add(events.ComesAgain(resubmitted=False))
        super()._recirculate(packet)


def _reason(grown: dict[str, int]) -> str:
    """Why a packet was dropped, by the counts that grew."""
    if grown["failed_assertions"]:
        return "an assertion failed"
    if grown["looped"]:
        return "too many clones, resubmissions and recirculations"
    return "marked to drop"


class _TracedExpressions(ExpressionCompiler):
    """Tells of register cells that are read inside expressions."""

    def __init__(self, log: Log, layout: Layout, registers: tuple[NDArray[Any], ...]) -> None:
        self.log = log
        super().__init__(layout, registers)

    def data(self, node: ir.DataExpression) -> Data:
        read = super().data(node)
        if not isinstance(node, ir.RegisterElement):
            return read
        index = self.log.quiet(self.registers).data(node.index)
        cells, name = self.registers[node.register], self.program.registers[node.register].name

        def told(packet: Packet) -> int:
            value = read(packet)
            i = index(packet) & UINT64
            self.log.add(events.RegisterRead(name, i, value if i < len(cells) else None))
            return value

        return told

    def _store_register(self, target: ir.RegisterElement) -> Store:
        write = super()._store_register(target)
        position = self.log.quiet(self.registers).data(target.index)
        cells = self.registers[target.register]
        name = self.program.registers[target.register].name

        def told(packet: Packet, value: int) -> None:
            i = position(packet) & UINT64
            old = cell_value(cells, i) if i < len(cells) else None
            write(packet, value)
            new = None if old is None else cell_value(cells, i)
            self.log.add(events.RegisterWritten(name, i, old, new))

        return told


class _TracedChecksums(ChecksumUnit):
    """Tells whether checksums are right, and which were updated."""

    def __init__(
        self,
        log: Log,
        layout: Layout,
        expressions: ExpressionCompiler,
        calculations: CalculationCompiler,
    ) -> None:
        self.log = log
        super().__init__(layout, expressions, calculations)

    def verify(self, packet: Packet) -> bool:
        correct = super().verify(packet)
        if self.verifiers:
            self.log.add(events.ChecksumsVerified(correct))
        return correct

    def update(self, packet: Packet) -> None:
        before = self.log.snapshot(packet)
        super().update(packet)
        self.log.changes(before, packet)


class _TracedDeparser(DeparserUnit):
    """Tells what a packet is put together of."""

    def __init__(self, log: Log, *units: Any) -> None:
        self.log = log
        super().__init__(*units)

    def deparse(self, packet: Packet) -> None:
        payload = len(packet.data)
        super().deparse(packet)
        headers = self.log.program.headers
        names = tuple(
            headers[codec.header].name for codec in self.codecs if packet.valid[codec.header]
        )
        self.log.add(events.Deparsed(names, payload, packet.data))
