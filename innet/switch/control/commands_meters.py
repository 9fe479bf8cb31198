"""Commands of meters, in the dialect of simple_switch_CLI."""

from __future__ import annotations

from innet.core.errors import ControlError
from innet.switch.control.command_table import Arguments, command, integer
from innet.switch.control.control_plane import ControlPlane
from innet.switch.state.meters import Rate


def rate(text: str) -> Rate:
    """A meter's rate, written RATE:BURST."""
    per_microsecond, separator, burst = text.partition(":")
    try:
        if separator:
            return Rate(float(per_microsecond), int(burst))
    except ValueError:
        pass
    raise ControlError(f"{text!r} is no RATE:BURST, such as 0.5:100, with the rate per microsecond")


@command("meter_set_rates", "METER INDEX RATE:BURST ...", 2, None)
def _meter_set_rates(control: ControlPlane, words: Arguments) -> str:
    index = integer(words[1], "the index")
    control.meter_set_rates(words[0], index, [rate(word) for word in words[2:]])
    return ""


@command("meter_array_set_rates", "METER RATE:BURST ...", 1, None)
def _meter_array_set_rates(control: ControlPlane, words: Arguments) -> str:
    control.meter_array_set_rates(words[0], [rate(word) for word in words[1:]])
    return ""


@command("meter_get_rates", "METER INDEX", 2, 2)
def _meter_get_rates(control: ControlPlane, words: Arguments) -> str:
    rates = control.meter_get_rates(words[0], integer(words[1], "the index"))
    return "\n".join(
        f"{position}: info rate = {rate.per_microsecond}, burst size = {rate.burst}"
        for position, rate in enumerate(rates)
    )
