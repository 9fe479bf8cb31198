"""Hashes and checksums over header fields, as the interpreter runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.interpreter.expressions import ExpressionCompiler
from innet.switch.interpreter.packet import HeaderCodec, Layout, Packet

Bits = tuple[int, int]
"""A number and how many bits of it count."""


class CalculationCompiler:
    """Makes a function of a packet for every calculation of a program."""

    def __init__(self, layout: Layout, state: SwitchState) -> None:
        self.layout = layout
        self.program = layout.program
        self.state = state
        self.codecs = [HeaderCodec(layout, i) for i in range(len(self.program.headers))]

    def compile(self, index: int) -> Callable[[Packet], int]:
        """The value of hash ``index`` of ``Program.hashes``."""
        gather = [self._input(each) for each in self.program.hashes[index].inputs]
        state = self.state.hashes[index]
        return lambda packet: state.value(_join(part(packet) for part in gather))

    def _input(self, source: ir.CalculationInput) -> Callable[[Packet], Bits | bytes]:
        if isinstance(source, ir.CalculationConstant):
            bits = (source.value, source.width)
            return lambda _: bits
        if isinstance(source, ir.Payload):
            return lambda packet: packet.data[: packet.kept()]
        header = source.header
        if isinstance(source, ir.HeaderRef):
            codec = self.codecs[header]

            def whole(packet: Packet) -> Bits:
                if not packet.valid[header]:
                    return (0, 0)
                data = codec.emit(packet)
                return (int.from_bytes(data, "big"), 8 * len(data))

            return whole
        return self._field(source)

    def _field(self, source: ir.FieldRef) -> Callable[[Packet], Bits]:
        header = source.header
        if source.field == ir.VALID:
            return lambda packet: (1, 1) if packet.valid[header] else (0, 0)
        slot = self.layout.slot(source)
        index, width, variable = slot.index, slot.spec.width, slot.spec.variable

        def field(packet: Packet) -> Bits:
            if not packet.valid[header]:
                return (0, 0)
            bits = packet.variable_widths[header] if variable else width
            return (packet.fields[index] & ((1 << bits) - 1), bits)

        return field


def _join(parts: Iterable[Bits | bytes]) -> bytes:
    """The parts one after the other, with zero bits up to a whole byte before bytes and the end."""
    number = width = 0
    payload = b""
    for part in parts:
        if isinstance(part, bytes):
            payload = part
        else:
            value, bits = part
            number = number << bits | value
            width += bits
    size = (width + 7) // 8
    return (number << (8 * size - width)).to_bytes(size, "big") + payload


class ChecksumUnit:
    """Verifies checksums after parsing and updates them before deparsing."""

    def __init__(
        self, layout: Layout, expressions: ExpressionCompiler, calculations: CalculationCompiler
    ) -> None:
        self.verifiers: list[Callable[[Packet], bool]] = []
        self.updaters: list[Callable[[Packet], None]] = []
        for checksum in layout.program.checksums:
            condition = expressions.boolean(checksum.condition or ir.BoolConst(value=True))
            calculate = calculations.compile(checksum.calculation)
            if checksum.verify:
                self.verifiers.append(_verifier(layout, checksum, condition, calculate))
            if checksum.update:
                store = expressions.store(checksum.target)
                self.updaters.append(_updater(condition, calculate, store))

    def verify(self, packet: Packet) -> bool:
        """Whether all checksums are right."""
        return all(verifier(packet) for verifier in self.verifiers)

    def update(self, packet: Packet) -> None:
        for updater in self.updaters:
            updater(packet)


def _verifier(
    layout: Layout,
    checksum: ir.Checksum,
    condition: Callable[[Packet], bool],
    calculate: Callable[[Packet], int],
) -> Callable[[Packet], bool]:
    slot = layout.slot(checksum.target)
    every = (1 << slot.spec.width) - 1

    def verify(packet: Packet) -> bool:
        if not packet.valid[slot.header] or not condition(packet):
            return True
        return calculate(packet) == packet.fields[slot.index] & every

    return verify


def _updater(
    condition: Callable[[Packet], bool],
    calculate: Callable[[Packet], int],
    store: Callable[[Packet, int], None],
) -> Callable[[Packet], None]:
    def update(packet: Packet) -> None:
        if condition(packet):
            store(packet, calculate(packet))

    return update
