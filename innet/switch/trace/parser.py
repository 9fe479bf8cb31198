"""The parser of an interpreter that tells what it does."""

from __future__ import annotations

from typing import Any

from innet.switch import ir
from innet.switch.interpreter.packet import Packet
from innet.switch.interpreter.parser import Operation, ParserUnit, State
from innet.switch.trace import events
from innet.switch.trace.units import Log


class TracedParser(ParserUnit):
    """Tells of states, headers and errors."""

    def __init__(self, log: Log, *units: Any) -> None:
        self.log = log
        super().__init__(*units)
        self._error_names = {code: name for name, code in self.errors.items()}

    def parse(self, packet: Packet) -> None:
        super().parse(packet)
        if packet.error != self.no_error:
            name = self._error_names.get(packet.error, str(packet.error))
            self.log.add(events.ParserStopped(name))

    def _state(self, state: ir.ParserState) -> State:
        plain = super()._state(state)
        quiet = [self._key_part(part) for part in state.key]
        states, log = self.program.parser.states, self.log

        def announce(packet: Packet) -> None:
            log.add(events.StateEntered(state.name, packet.position))

        def follow(packet: Packet) -> int | None:
            values = tuple(part(packet) for part in quiet)
            after = plain.follow(packet)
            log.add(events.Selected(values, None if after is None else states[after].name))
            return after

        return State((announce, *plain.operations), follow)

    def _operation(self, operation: ir.ParserOperation) -> Operation:
        run, log = super()._operation(operation), self.log
        if isinstance(operation, ir.Extract):
            return self._extraction(operation, run)
        if not isinstance(operation, ir.SetFromLookahead):
            # Nothing else changes a packet but primitives, and those tell of it themselves.
            return run

        def told(packet: Packet) -> int | None:
            before = log.snapshot(packet)
            error = run(packet)
            log.changes(before, packet)
            return error

        return told

    def _extraction(self, operation: ir.Extract, run: Operation) -> Operation:
        log = self.log

        def told(packet: Packet) -> int | None:
            _, valid = log.snapshot(packet)
            position = packet.position
            error = run(packet)
            if error is None:
                header = self._extracted(operation, packet)
                data = packet.data[position : packet.position]
                log.add(events.HeaderExtracted(*self._described(header, packet), data))
                valid[header] = True
                log.changes((packet.fields, valid), packet)  # other members of a union
            return error

        return told

    def _extracted(self, operation: ir.Extract, packet: Packet) -> int:
        """The header that an extraction has just filled."""
        match operation.target:
            case ir.HeaderRef(header):
                return header
            case ir.StackNext(stack):
                return self.program.stacks[stack].headers[packet.stack_counts[stack] - 1]
            case ir.UnionStackNext(stack, position):
                unions = self.program.union_stacks[stack].unions
                union = unions[packet.union_stack_counts[stack] - 1]
                return self.program.unions[union].headers[position]

    def _described(self, header: int, packet: Packet) -> tuple[str, tuple[tuple[str, int], ...]]:
        """A header's name, and its fields with their values."""
        names = [each.name for each in self.program.type_of(header).fields]
        values = packet.fields[self.layout.fields_of(header)]
        return self.program.headers[header].name, tuple(zip(names, values, strict=True))
