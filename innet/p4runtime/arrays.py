"""Indexed counters, meters and registers, and the messages of their values.

Source: P4Runtime 1.5, sections "CounterEntry", "MeterEntry", "RegisterEntry".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from innet.p4runtime.context import PipelineContext, Undo, only_modify
from innet.p4runtime.messages import config, p4
from innet.p4runtime.p4info import ArrayInfo
from innet.p4runtime.status import Code, StatusError, invalid, unimplemented
from innet.p4runtime.values import decode
from innet.switch.engine import cell_value, set_cell
from innet.switch.state.meters import MeterRate

_UNITS = config.CounterSpec
_METER = config.MeterSpec
_MOST = (1 << 63) - 1
_MICROSECONDS = 1_000_000


def counter_values(data: Any) -> tuple[int, int]:
    """(packets, bytes) of a CounterData."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid("a counter cannot be negative")
    return data.packet_count, data.byte_count


def counter_data(spec: Any, packets: int, size: int) -> Any:
    """A CounterData with what the counter's unit says; what int64 does not hold is its most."""
    message = p4.CounterData()
    if spec.unit != _UNITS.BYTES:
        message.packet_count = min(packets, _MOST)
    if spec.unit != _UNITS.PACKETS:
        message.byte_count = min(size, _MOST)
    return message


def meter_rates(info: Any, given: Any) -> list[MeterRate]:
    """The rates of a MeterConfig for a meter of P4Info, in ascending order."""
    name = info.preamble.name
    values = (given.cir, given.cburst, given.pir, given.pburst, given.eburst)
    if any(value < 0 for value in values):
        raise invalid(f"the rates and bursts of meter {name} cannot be negative")
    if info.spec.type != _METER.TWO_RATE_THREE_COLOR and (given.pir, given.pburst) != (
        given.cir,
        given.cburst,
    ):
        raise invalid(f"meter {name} has a single rate: pir and pburst equal cir and cburst")
    if given.eburst:
        if info.spec.type == _METER.SINGLE_RATE_THREE_COLOR:
            raise unimplemented(f"meter {name}: there is no excess burst in BMv2's meters")
        raise invalid(f"meter {name} takes no eburst, which is for single-rate three-color meters")
    if given.cir > given.pir:
        raise invalid(f"meter {name}: the peak rate is below the committed one")
    return [
        MeterRate(given.cir / _MICROSECONDS, given.cburst),
        MeterRate(given.pir / _MICROSECONDS, given.pburst),
    ]


def meter_config(rates: list[MeterRate]) -> Any:
    """The MeterConfig of a cell's rates."""
    low, high = rates[0], rates[-1]
    return p4.MeterConfig(
        cir=round(low.per_microsecond * _MICROSECONDS),
        cburst=low.burst,
        pir=round(high.per_microsecond * _MICROSECONDS),
        pburst=high.burst,
    )


def refuse_color_counts(message: Any, field: str = "counter_data") -> None:
    """UNIMPLEMENTED for a message with MeterCounterData, packets counted by their color."""
    if message.HasField(field):
        raise unimplemented("meters count no packets by color here")


class Arrays:
    """Writes and reads counters, meters and registers."""

    def __init__(self, context: PipelineContext) -> None:
        self._switch, self._index, self._ports = context
        self._control = context.control

    # ── Counters ──

    def write_counter(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        """An update of a CounterEntry; without an index, of all cells."""
        only_modify(kind, "a counter")
        found = self._index.find("counter", self._index.counters, entry.counter_id)
        index = self._given(found, entry)
        if not entry.HasField("data"):
            return None
        packets, size = counter_values(entry.data)
        cells = self._switch.state.counters[found.position]
        before = cells.copy() if want_undo else None
        if index is None:
            cells[:] = (packets, size)
        else:
            self._control.counter_write(found.name, index, packets, size)
        return None if before is None else lambda: cells.__setitem__(slice(None), before)

    def read_counters(self, wanted: Any) -> Iterator[Any]:
        """CounterEntry messages."""
        for found, index in self._wanted(
            "counter", self._index.counters, wanted.counter_id, wanted
        ):
            message = p4.CounterEntry(counter_id=found.id)
            message.index.index = self._told(found, index)
            values = self._control.counter_read(found.name, index)
            message.data.CopyFrom(counter_data(found.info.spec, *values))
            yield message

    # ── Meters ──

    def write_meter(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        """An update of a MeterEntry; without an index, of all cells."""
        only_modify(kind, "a meter")
        refuse_color_counts(entry)
        found = self._index.find("meter", self._index.meters, entry.meter_id)
        index = self._given(found, entry)
        rates = meter_rates(found.info, entry.config) if entry.HasField("config") else None
        state = self._switch.state.meters[found.position]
        before = (state.rates.copy(), state.cells.copy()) if want_undo else None
        if rates is None:
            self._control.meter_reset(found.name, index)
        elif index is None:
            self._control.meter_array_set_rates(found.name, rates)
        else:
            self._control.meter_set_rates(found.name, index, rates)
        if before is None:
            return None

        def undo() -> None:
            state.rates[:], state.cells[:] = before

        return undo

    def read_meters(self, wanted: Any) -> Iterator[Any]:
        """MeterEntry messages."""
        refuse_color_counts(wanted)
        for found, index in self._wanted("meter", self._index.meters, wanted.meter_id, wanted):
            message = p4.MeterEntry(meter_id=found.id)
            message.index.index = self._told(found, index)
            rates = self._control.meter_get_rates(found.name, index)
            if rates:
                message.config.CopyFrom(meter_config(rates))
            yield message

    # ── Registers ──

    def write_register(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        """An update of a RegisterEntry; without an index, of all cells."""
        only_modify(kind, "a register")
        found = self._index.find("register", self._index.registers, entry.register_id)
        index = self._given(found, entry)
        if not entry.HasField("data"):
            raise invalid(f"an update of register {found.name} needs data")
        assert found.type is not None
        value = 0
        fields = found.type.decode(entry.data, f"register {found.name}")
        for field, width in zip(fields, found.type.widths, strict=True):
            value = value << width | field
        cells = self._switch.state.registers[found.position]
        before = cells.copy() if want_undo else None
        first, last = (0, found.size) if index is None else (index, index + 1)
        if cells.ndim == 1:
            cells[first:last] = value
        else:
            for cell in range(first, last):
                set_cell(cells, cell, value)
        return None if before is None else lambda: cells.__setitem__(slice(None), before)

    def read_registers(self, wanted: Any) -> Iterator[Any]:
        """RegisterEntry messages."""
        among = self._index.registers
        for found, index in self._wanted("register", among, wanted.register_id, wanted):
            assert found.type is not None
            message = p4.RegisterEntry(register_id=found.id)
            message.index.index = self._told(found, index)
            value = cell_value(self._switch.state.registers[found.position], index)
            fields = []
            for width in reversed(found.type.widths):
                fields.append(value & ((1 << width) - 1))
                value >>= width
            message.data.CopyFrom(found.type.encode(reversed(fields)))
            yield message

    # ── Indices ──

    def _given(self, found: ArrayInfo, entry: Any) -> int | None:
        """The cell that an entry names; None for all."""
        if not entry.HasField("index"):
            return None
        index: int = entry.index.index
        if index < 0:
            raise invalid(f"index {index} of {found.name} is negative")
        if found.index is not None:
            what = f"the index of {found.name}"
            index = found.index.decode(index.to_bytes(8, "big"), what)
        if index >= found.size:
            raise StatusError(
                Code.OUT_OF_RANGE, f"index {index} is not in 0..{found.size - 1} of {found.name}"
            )
        return index

    def _told(self, found: ArrayInfo, index: int) -> int:
        return index if found.index is None else decode(found.index.encode(index), 64, found.name)

    def _wanted(
        self, kind: str, among: Mapping[int, ArrayInfo], number: int, entry: Any
    ) -> Iterator[tuple[ArrayInfo, int]]:
        arrays = [self._index.find(kind, among, number)] if number else list(among.values())
        for found in arrays:
            index = self._given(found, entry) if number else None
            cells = range(found.size) if index is None else (index,)
            for cell in cells:
                yield found, cell
