"""The parser and the deparser, as the interpreter runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.engine import MAX_PARSER_STATES, SwitchState
from innet.switch.interpreter.expressions import ChecksumUnit, ExpressionCompiler, Find
from innet.switch.interpreter.packet import FieldLayout, HeaderCodec, Packet
from innet.switch.interpreter.packet_log import PacketLog
from innet.switch.interpreter.pipeline import ActionCompiler, Run
from innet.switch.ir.text import Text
from innet.switch.trace import notation

Operation = Callable[[Packet], int | None]
"""Returns the code of the error that stops the parser, or None."""
MAX_LENGTH = (1 << 31) - 1
"""Most bits of a varbit field; longer lengths are reduced to this."""
Transitions = Callable[[Packet], int | None]


@dataclass(frozen=True, slots=True)
class StateUnit:
    """The operations of a parser state, and its transition."""

    operations: tuple[Operation, ...]
    follow: Transitions


class ParserUnit:
    """Runs the parser of a program."""

    def __init__(
        self,
        layout: FieldLayout,
        state: SwitchState,
        expressions: ExpressionCompiler,
        actions: ActionCompiler,
    ) -> None:
        self.layout = layout
        self.program = layout.program
        self.value_sets = state.value_sets
        self.make = expressions
        self.actions = actions
        self.trace = actions.trace
        self.log = actions.log
        self.codecs = [HeaderCodec(layout, i) for i in range(len(self.program.headers))]
        self.errors = self.program.errors
        self.no_error = self.errors["NoError"]
        self.states = [self._state(each) for each in self.program.parser.states]

    def parse(self, packet: Packet) -> None:
        """Fill headers from the packet's bytes, set its error code, leave the payload."""
        packet.error = self.no_error
        packet.position = 0
        if self.log is not None:
            self.log.line("debug", "Parser 'parser': start")
        number = self.program.parser.initial
        for _ in range(MAX_PARSER_STATES):
            if number is None:
                break
            current = self.states[number]
            for operation in current.operations:
                error = operation(packet)
                if error is not None:
                    packet.error = error
                    break
            else:
                number = current.follow(packet)
                continue
            break
        else:
            packet.error = self.errors["ParserTimeout"]
        packet.data = packet.data[packet.position :]
        if self.trace is not None and packet.error != self.no_error:
            names = {code: name for name, code in self.errors.items()}
            self.trace("parser_error", error=names.get(packet.error, str(packet.error)))

    def _state(self, state: ir.ParserState) -> StateUnit:
        operations = tuple(self._operation(each) for each in state.operations)
        follow, trace = self._transitions(state), self.trace
        if trace is None:
            return StateUnit(operations, follow)
        if self.log is not None:
            return self._logged(self.log, state, operations, follow)
        text = Text(self.program)
        key = [
            (self._key_part(part), notation(text.of(part.source), part.width)) for part in state.key
        ]
        states = self.program.parser.states

        def enter(packet: Packet) -> None:
            trace("state", state=state.name, position=packet.position)

        def traced(packet: Packet) -> int | None:
            values = tuple(shown(part(packet)) for part, shown in key)
            after = follow(packet)
            name = "accept" if after is None else states[after].name
            if values:
                trace("select", key=values, next=name)
            else:
                trace("transition", next=name)
            return after

        return StateUnit((enter, *operations), traced)

    def _logged(
        self,
        log: PacketLog,
        state: ir.ParserState,
        operations: Sequence[Operation],
        follow: Transitions,
    ) -> StateUnit:
        """The state with lines for its operations and its transition."""
        told = [
            self._logged_operation(log, state, position, run)
            for position, run in enumerate(operations)
        ]
        key = [self._key_part(part) for part in state.key]

        def enter(_: Packet) -> None:
            log.entering(state)

        def choose(packet: Packet) -> int | None:
            log.chosen_by(state, [part(packet) for part in key])
            log.line("trace", f"Bytes parsed: {packet.position}")
            return follow(packet)

        return StateUnit((enter, *told), choose)

    def _logged_operation(
        self, log: PacketLog, state: ir.ParserState, position: int, run: Operation
    ) -> Operation:
        operation = state.operations[position]
        if isinstance(operation, ir.Extract | ir.Verify | ir.Advance):
            return run  # their own functions tell what there is to tell
        if isinstance(operation, ir.SetFromLookahead | ir.Assign | ir.AssignVariable):
            assert isinstance(operation.target, ir.FieldRef)
            setting = log.parser_set(state.name, position)
            index = self.layout.slot(operation.target).index

            def assign(packet: Packet) -> int | None:
                error = run(packet)
                if error is None:
                    log.line("debug", setting.replace("{}", str(packet.fields[index])))
                return error

            return assign
        body = log.parser_method(state.name, position)

        def call(packet: Packet) -> int | None:
            log.line("debug", f"Executing method {body.name}")
            log.line("trace", body.title)
            log.line("trace", body.primitives[0])
            return run(packet)

        return call

    # ── Operations ──

    def _operation(self, operation: ir.ParserOperation) -> Operation:
        if isinstance(operation, ir.Extract):
            return self._extract(operation)
        if isinstance(operation, ir.SetFromLookahead):
            run = self._set_from_lookahead(operation)
            return run if self.trace is None else self.trace.changes(run)
        if isinstance(operation, ir.Verify):
            return self._verify(operation)
        if isinstance(operation, ir.Advance):
            return self._advance(operation)
        step = self.actions.compile(operation)

        def primitive(packet: Packet) -> None:
            step(packet)

        return primitive

    def _extract(self, operation: ir.Extract) -> Operation:
        target = operation.target
        if isinstance(target, ir.HeaderRef):
            header = target.header
            return self._extract_to(lambda _: header, operation.length)
        if isinstance(target, ir.StackNext):
            elements = self.program.stacks[target.stack].headers
            return self._extract_next(target.stack, elements, operation.length, of_unions=False)
        unions = self.program.union_stacks[target.union_stack].unions
        members = tuple(self.program.unions[union].headers[target.position] for union in unions)
        return self._extract_next(target.union_stack, members, operation.length, of_unions=True)

    def _extract_next(
        self,
        stack: int,
        elements: tuple[int, ...],
        length: ir.DataExpression | None,
        *,
        of_unions: bool,
    ) -> Operation:
        full = self.errors["StackOutOfBounds"]

        def counts(packet: Packet) -> list[int]:
            return packet.union_stack_counts if of_unions else packet.stack_counts

        log = self.log
        extract = self._extract_to(
            lambda packet: elements[counts(packet)[stack]], length, is_told=log is not None
        )

        def extract_next(packet: Packet) -> int | None:
            if counts(packet)[stack] >= len(elements):
                return full
            if log is not None:
                header = elements[counts(packet)[stack]]
                log.extracting_next(stack, header, of_unions=of_unions)
            error = extract(packet)
            if error is None:
                counts(packet)[stack] += 1
            return error

        return extract_next

    def _extract_to(
        self, find: Find, length: ir.DataExpression | None, *, is_told: bool = False
    ) -> Operation:
        """Extracts to the header found; ``is_told``: the log has its line already."""
        codecs, mark_valid = self.codecs, self.layout.mark_valid
        too_short = self.errors["PacketTooShort"]
        bits_of = None if length is None else self.make.data(length)
        bad_length = self.errors["ParserInvalidArgument"]
        too_long = self.errors["HeaderTooShort"]
        log = self.log

        # P4_16, "Data extraction": of fixed width, or of variable width with a length. The errors
        # are the specification's, in BMv2's order.
        def extract(packet: Packet) -> int | None:
            codec = codecs[find(packet)]
            # BMv2 reads the length as an int, which larger numbers saturate: 2**31 bits and more
            # are 2**31 - 1 bits and so an invalid argument, not a packet that is too short.
            bits = 0 if bits_of is None else min(bits_of(packet), MAX_LENGTH)
            if bits % 8:
                if log is not None:
                    why = "needs to be a multiple of 8"
                    log.line("error", f"VL field bitwidth {bits} {why}")
                return bad_length
            # BMv2 counts what an earlier extraction put into the variable field, too.
            size = self.layout.bytes_of(packet, codec.header) + bits // 8
            if bits < 0 or len(packet.data) - packet.position < size:
                return too_short
            if 0 < codec.type.max_bytes < size:
                return too_long
            codec.extract(packet, packet.position, bits)
            packet.position += self.layout.bytes_of(packet, codec.header)
            mark_valid(packet, codec.header)
            return None

        # An interpreter without a trace runs this alone; a log needs its line before, a trace the
        # fields after it.
        trace, start = self.trace, self.layout.start
        if trace is None:
            return extract
        if log is not None:
            if is_told:
                return extract

            def logged(packet: Packet) -> int | None:
                log.extracting(find(packet), variable=bits_of is not None)
                return extract(packet)

            return logged

        def traced(packet: Packet) -> int | None:
            header, position, valid = find(packet), packet.position, list(packet.valid)
            error = extract(packet)
            if error is None:
                data = packet.data[position : packet.position]
                trace.extracted(packet, header, start[header], data)
                valid[header] = True  # the only change is to other members of its union
                trace.tell_changes(packet, packet.fields, valid)
            return error

        return traced

    def _set_from_lookahead(self, operation: ir.SetFromLookahead) -> Operation:
        store, source = self.make.store(operation.target), operation.source
        too_short = self.errors["PacketTooShort"]
        needed = (source.width + 7) // 8
        spec = self.program.field(operation.target)
        extracted_as_is = spec.signed and spec.width == source.width

        def set_field(packet: Packet) -> int | None:
            if len(packet.data) - packet.position < needed:
                return too_short
            value = _peek(packet, source)
            if extracted_as_is and value >> (source.width - 1):
                value -= 1 << source.width
            store(packet, value)
            return None

        return set_field

    def _verify(self, operation: ir.Verify) -> Operation:
        condition, error = self.make.boolean(operation.condition), self.make.data(operation.error)
        return lambda packet: None if condition(packet) else error(packet)

    def _advance(self, operation: ir.Advance) -> Operation:
        bits_of = self.make.data(operation.bits)
        bad, too_short = self.errors["ParserInvalidArgument"], self.errors["PacketTooShort"]
        log = self.log

        def advance(packet: Packet) -> int | None:
            bits = bits_of(packet)
            if bits % 8:
                if log is not None:
                    why = "must be a multiple of 8"
                    log.line("error", f"advance bits amount {bits} {why}")
                return bad
            if log is not None:
                log.line("debug", f"Advancing by {bits // 8} bytes")
            if bits < 0 or len(packet.data) - packet.position < bits // 8:
                return too_short
            packet.position += bits // 8
            return None

        return advance

    # ── Transitions ──

    def _transitions(self, state: ir.ParserState) -> Transitions:
        default = state.default
        if not state.key:
            return lambda _: default
        parts = [self._key_part(part) for part in state.key]
        cases = [(each.values, each.masks, each.value_set, each.next) for each in state.transitions]
        widths = [part.width for part in state.key]

        def follow(packet: Packet) -> int | None:
            key = [part(packet) for part in parts]
            for values, masks, value_set, after in cases:
                if value_set is not None:
                    if self._in_set(key, masks, widths, self.value_sets[value_set]):
                        return after
                elif all(k & m == v for k, m, v in zip(key, masks, values, strict=True)):
                    return after
            return default

        return follow

    def _key_part(self, part: ir.KeyPart) -> Callable[[Packet], int]:
        source = part.source
        if isinstance(source, ir.Lookahead):
            return lambda packet: _peek(packet, source)
        read, every = self.make.data(source), (1 << part.width) - 1
        return lambda packet: read(packet) & every

    @staticmethod
    def _in_set(
        key: list[int], masks: tuple[int, ...], widths: list[int], members: set[int]
    ) -> bool:
        for member in members:
            left = member
            for value, mask, width in zip(
                reversed(key), reversed(masks), reversed(widths), strict=True
            ):
                if value & mask != left & ((1 << width) - 1) & mask:
                    break
                left >>= width
            else:
                return True
        return False


def _peek(packet: Packet, source: ir.Lookahead) -> int:
    """The next bits; zeros after the packet's end."""
    first = packet.position + source.offset // 8
    skipped = source.offset % 8
    size = (skipped + source.width + 7) // 8
    ahead = packet.data[first : first + size].ljust(size, b"\0")
    shift = 8 * size - skipped - source.width
    return int.from_bytes(ahead, "big") >> shift & ((1 << source.width) - 1)


class DeparserUnit:
    """Puts the headers of a packet before its payload."""

    def __init__(
        self, layout: FieldLayout, checksums: ChecksumUnit, actions: ActionCompiler
    ) -> None:
        self.trace = trace = actions.trace
        self.log = actions.log
        self.headers = layout.program.headers
        self.update: Run = checksums.update if trace is None else trace.changes(checksums.update)
        deparser = layout.program.deparser
        self.run: Run = actions.run_deparser(deparser.operations)
        self.codecs = [HeaderCodec(layout, header) for header in deparser.order]

    def deparse(self, packet: Packet) -> None:
        """Set ``packet.data`` to the complete packet."""
        if self.log is not None:
            self.log.line("debug", "Deparser 'deparser': start")
        self.update(packet)
        self.run(packet)
        payload = len(packet.data)
        valid = [codec for codec in self.codecs if packet.valid[codec.header]]
        if self.log is not None:
            for codec in valid:
                name = self.headers[codec.header].name
                self.log.line("debug", f"Deparsing header '{name}'")
            self.log.line("debug", "Deparser 'deparser': end")
        packet.data = b"".join([codec.emit(packet) for codec in valid]) + packet.data
        if self.trace is not None:
            names = tuple(self.headers[codec.header].name for codec in valid)
            self.trace("deparse", headers=names, payload=payload, data=packet.data)
