"""The actions and the pipelines of an interpreter that tells what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.engine import cell_value
from innet.switch.interpreter.expressions import UINT32, ExpressionCompiler
from innet.switch.interpreter.packet import Layout, Packet
from innet.switch.interpreter.pipeline import ActionCompiler, PipelineUnit, Run, Step, Visit
from innet.switch.ir.text import Text
from innet.switch.state.tables import BYTES, PACKETS
from innet.switch.trace import events
from innet.switch.trace.events import Event

MOST_EVENTS = 100_000
"""Events of one packet that are kept; a loop of thousands of parser states has more."""

Snapshot = tuple[list[int], list[bool]]
"""The fields and the validity of all headers."""


class Log:
    """Collects events, and finds names for what changed."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.program = layout.program
        self._names = [
            f"{header.name}.{field.name}"
            for header in self.program.headers
            for field in self.program.header_types[header.type].fields
        ]
        self.clear()

    def clear(self) -> None:
        self._events: list[Event] = []
        self._left_out = 0

    def add(self, event: Event) -> None:
        if len(self._events) < MOST_EVENTS:
            self._events.append(event)
        else:
            self._left_out += 1

    def take(self) -> list[Event]:
        """What was collected."""
        return [*self._events, *([events.TraceCut(self._left_out)] if self._left_out else [])]

    def quiet(self, registers: tuple[NDArray[Any], ...]) -> ExpressionCompiler:
        """Makes expressions that tell nothing, for what is evaluated only to be told."""
        return ExpressionCompiler(self.layout, registers)

    @staticmethod
    def snapshot(packet: Packet) -> Snapshot:
        return list(packet.fields), list(packet.valid)

    def changes(self, before: Snapshot, packet: Packet) -> None:
        """Tell what is different since then."""
        fields, valid = before
        if valid != packet.valid:
            for header, (old, new) in zip(
                self.program.headers, zip(valid, packet.valid, strict=True), strict=True
            ):
                if old != new:
                    self.add(events.ValidityChanged(header.name, new))
        if fields != packet.fields:
            for name, left, right in zip(self._names, fields, packet.fields, strict=True):
                if left != right:
                    self.add(events.FieldChanged(name, left, right))


class TracedActions(ActionCompiler):
    """Tells what primitives change, read and ask for."""

    def __init__(self, log: Log, *units: Any) -> None:
        self.log = log
        super().__init__(*units)
        self.quiet = log.quiet(self.state.registers)

    def step(self, primitive: ir.Primitive) -> Step:
        run, log = super().step(primitive), self.log
        if isinstance(primitive, ir.Jump | ir.JumpIfZero | ir.NoOp):
            return run
        told_before, told_after = self._before(primitive), self._after(primitive)

        def told(packet: Packet) -> int | None:
            told_before(packet)
            before = log.snapshot(packet)
            result = run(packet)
            told_after(packet)
            log.changes(before, packet)
            return result

        return told

    def _before(self, primitive: ir.Primitive) -> Run:
        """What is told before the primitive runs, as it changes what it looks at."""
        log, data = self.log, self.quiet.data
        match primitive:
            case ir.RegisterRead(_, register, position):
                index, cells = data(position), self.state.registers[register]
                name = self.program.registers[register].name

                def read(packet: Packet) -> None:
                    i = index(packet) & UINT32
                    value = cell_value(cells, i) if i < len(cells) else None
                    log.add(events.RegisterRead(name, i, value))

                return read
            case ir.RegisterWrite(register, position, value):
                index, cells = data(position), self.state.registers[register]
                name, written = self.program.registers[register].name, data(value)
                every = (1 << self.program.registers[register].width) - 1

                def write(packet: Packet) -> None:
                    i, new = index(packet) & UINT32, written(packet) & every
                    if i < len(cells):
                        log.add(events.RegisterWritten(name, i, cell_value(cells, i), new))
                    else:
                        log.add(events.RegisterWritten(name, i, None, None))

                return write
            case ir.Assert(condition):
                holds = self.quiet.boolean(condition)

                def check(packet: Packet) -> None:
                    if not holds(packet):
                        log.add(events.Requested("the end of the packet: a failed assertion"))

                return check
        return _nothing

    def _after(self, primitive: ir.Primitive) -> Run:
        log, data = self.log, self.quiet.data
        match primitive:
            case ir.Count(counter, position):
                index, cells = data(position), self.state.counters[counter]
                name = self.program.counters[counter].name
                return lambda packet: log.add(counted(name, index(packet) & UINT32, cells))
            case ir.ExecuteMeter(meter, position, target):
                index, color = data(position), data(target)
                array = self.program.meters[meter]

                def executed(packet: Packet) -> None:
                    i = index(packet) & UINT32
                    inside = color(packet) if i < array.size else None
                    log.add(events.MeterExecuted(array.name, i, inside))

                return executed
            case ir.LogMessage(text, parts):
                values = [data(part) for part in parts]
                return lambda packet: log.add(
                    events.Logged(_filled(text, [value(packet) for value in values]))
                )
        return self._requested(primitive)

    def _requested(self, primitive: ir.Primitive) -> Run:
        """What the switch is asked to do with the packet later."""
        wishes: dict[type, tuple[str, tuple[str, ...]]] = {
            ir.Clone: ("a clone", ("session", "field_list")),
            ir.Resubmit: ("resubmission", ("field_list",)),
            ir.Recirculate: ("recirculation", ("field_list",)),
            ir.Digest: ("a digest", ("learn_list",)),
            ir.Truncate: ("truncation", ("length",)),
            ir.MarkToDrop: ("dropping", ()),
            ir.Exit: ("the pipeline's end", ()),
        }
        if type(primitive) not in wishes:
            return _nothing
        what, names = wishes[type(primitive)]
        values = [(name, self.quiet.data(getattr(primitive, name))) for name in names]
        return lambda packet: self.log.add(
            events.Requested(what, tuple((name, value(packet)) for name, value in values))
        )


def counted(name: str, index: int, cells: NDArray[Any]) -> events.Counted:
    """What a counter, whose cells are in columns PACKETS and BYTES, holds now."""
    if index >= len(cells):
        return events.Counted(name, index, None, None)
    return events.Counted(name, index, int(cells[index, PACKETS]), int(cells[index, BYTES]))


def _nothing(_: Packet) -> None:
    """Nothing to tell."""


def _filled(text: str, values: list[int]) -> str:
    """``text`` with each {} replaced by the next value."""
    for value in values:
        text = text.replace("{}", str(value), 1)
    return text


class TracedPipelines(PipelineUnit):
    """Tells of conditions, tables and actions."""

    def __init__(self, log: Log, *units: Any) -> None:
        self.log = log
        super().__init__(*units)
        self.bodies[:] = [
            self._announced(action, body)
            for action, body in zip(log.program.actions, self.bodies, strict=True)
        ]

    def _announced(self, action: ir.Action, body: Run) -> Run:
        names = [parameter.name for parameter in action.parameters]

        def run(packet: Packet) -> None:
            arguments = tuple(zip(names, packet.arguments, strict=True))
            self.log.add(events.ActionRun(action.name, arguments))
            body(packet)

        return run

    def _action_call(self, call: ir.ActionCall) -> Visit:
        visit, name = super()._action_call(call), self.log.program.actions[call.action].name

        def told(packet: Packet) -> ir.Node | None:
            self.log.add(events.ActionRun(name, ()))
            return visit(packet)

        return told

    def _conditional(self, conditional: ir.Conditional) -> Visit:
        visit = super()._conditional(conditional)
        holds = self.log.quiet(self.state.registers).boolean(conditional.condition)
        name, text = conditional.name, Text(self.log.program).of(conditional.condition)

        def told(packet: Packet) -> ir.Node | None:
            self.log.add(events.ConditionTested(name, text, holds(packet)))
            return visit(packet)

        return told

    def _table(self, index: int) -> Visit:
        visit, table = super()._table(index), self.state.tables[index]
        names = [key.name for key in table.table.keys]
        parts = [self._key_part(key) for key in table.table.keys]

        def told(packet: Packet) -> ir.Node | None:
            key = [part(packet) for part in parts]
            found = table.lookup(key) if key else None
            pairs = tuple(zip(names, key, strict=True))
            handle = None if found is None else found.handle
            self.log.add(events.TableApplied(table.table.name, pairs, handle))
            return visit(packet)

        return told

    def _direct_meter(self, table: ir.Table) -> Callable[[Packet, int], None]:
        """Tells of direct counters as well, which have just counted when this is called."""
        run, log, program = super()._direct_meter(table), self.log, self.log.program
        counter = None if table.counter is None else self.state.counters[table.counter]

        def told(packet: Packet, index: int) -> None:
            before = log.snapshot(packet)
            run(packet, index)
            if counter is not None and table.counter is not None:
                name = program.counters[table.counter].name
                log.add(counted(name, index, counter))
            if table.meter is not None:
                meter = program.meters[table.meter]
                assert meter.result is not None
                color = packet.fields[self.layout.slot(meter.result).index]
                log.add(events.MeterExecuted(meter.name, index, color))
            log.changes(before, packet)

        return told
