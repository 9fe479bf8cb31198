"""Commands of registers, counters and meters for a running simple_switch."""

from __future__ import annotations

from typing import Any

from innet.bmv2.runtime import Runtime, command
from innet.core.errors import ControlError
from innet.switch.control.command_table import Arguments, integer
from innet.switch.control.commands_meters import rate


@command("register_read")
def _register_read(switch: Runtime, words: Arguments) -> str:
    name = switch.program.registers[switch.registers.find(words[0])].name
    if len(words) == 1:
        cells = switch.standard("bm_register_read_all", name)
        return f"{words[0]}= " + ", ".join(map(str, cells))
    index = integer(words[1], "the index")
    return f"{words[0]}[{index}]= {switch.standard('bm_register_read', name, index)}"


@command("register_write")
def _register_write(switch: Runtime, words: Arguments) -> str:
    name = switch.program.registers[switch.registers.find(words[0])].name
    index, value = integer(words[1], "the index"), integer(words[2], "the value")
    if not -(1 << 63) <= value < 1 << 64:
        raise ControlError(f"{value} does not fit a register")
    value -= (value >> 63 > 0) << 64  # travels as a signed integer
    switch.standard("bm_register_write", name, index, value)
    return ""


@command("register_reset")
def _register_reset(switch: Runtime, words: Arguments) -> str:
    found = switch.program.registers[switch.registers.find(words[0])]
    switch.standard("bm_register_reset", found.name)
    return ""


def _of_counter(switch: Runtime, word: str) -> tuple[str, str, bool]:
    """The calls' name for what a counter array belongs to: itself, or its table."""
    array = switch.program.counters[switch.counters.find(word)]
    if array.table is None:
        return "bm_counter_{}", array.name, False
    return "bm_mt_{}_counter", switch.program.tables[array.table].name, True


@command("counter_read")
def _counter_read(switch: Runtime, words: Arguments) -> str:
    call, name, _ = _of_counter(switch, words[0])
    index = integer(words[1], "the index")
    cell = switch.standard(call.format("read"), name, index)
    return f"{words[0]}[{index}]= ({cell['bytes']} bytes, {cell['packets']} packets)"


@command("counter_write")
def _counter_write(switch: Runtime, words: Arguments) -> str:
    call, name, _ = _of_counter(switch, words[0])
    index, packets, size = (integer(word, "a counter") for word in words[1:])
    switch.standard(call.format("write"), name, index, {"packets": packets, "bytes": size})
    return ""


@command("counter_reset")
def _counter_reset(switch: Runtime, words: Arguments) -> str:
    _, name, direct = _of_counter(switch, words[0])
    switch.standard("bm_mt_reset_counters" if direct else "bm_counter_reset_all", name)
    return ""


def _of_meter(switch: Runtime, word: str) -> tuple[str, str]:
    """The same for a meter array."""
    array = switch.program.meters[switch.meters.find(word)]
    if array.table is None:
        return "bm_meter_{}_rates", array.name
    return "bm_mt_{}_meter_rates", switch.program.tables[array.table].name


def _rates(words: Arguments) -> list[dict[str, Any]]:
    found = [rate(word) for word in words]
    return [{"per_microsecond": each.per_microsecond, "burst": each.burst} for each in found]


@command("meter_set_rates")
def _meter_set_rates(switch: Runtime, words: Arguments) -> str:
    call, name = _of_meter(switch, words[0])
    index = integer(words[1], "the index")
    switch.standard(call.format("set"), name, index, _rates(words[2:]))
    return ""


@command("meter_array_set_rates")
def _meter_array_set_rates(switch: Runtime, words: Arguments) -> str:
    name = switch.program.meters[switch.meters.find(words[0])].name
    switch.standard("bm_meter_array_set_rates", name, _rates(words[1:]))
    return ""


@command("meter_get_rates")
def _meter_get_rates(switch: Runtime, words: Arguments) -> str:
    index = integer(words[1], "the index")
    call, name = _of_meter(switch, words[0])
    rates = switch.standard(call.format("get"), name, index)
    return "\n".join(
        f"{position}: info rate = {each['per_microsecond']}, burst size = {each['burst']}"
        for position, each in enumerate(rates)
    )
