"""What ``innet switch explain --trace`` shows: packets on their way, event by event."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain

from innet.cli.output import out
from innet.errors import InputError
from innet.switch import Switch, ir
from innet.switch import trace_events as events
from innet.switch.trace_events import Event, as_document
from innet.tools.merge import merged
from innet.tools.opening import Commands
from innet.tools.replay import Input, open_sources

_STARTS = (events.IngressStarted, events.CloneParsed, events.EgressStarted)
_DEEPER = (events.FieldChanged, events.ValidityChanged, events.Requested, events.Logged)


def show(
    program: ir.Program,
    packets: Sequence[str],
    capture: Input | None,
    commands: Commands,
    *,
    as_json: bool,
) -> None:
    """Run packets one by one and print what happens.

    As JSON it is one document per packet, each on a line of its own.

    Raises:
        InputError: nothing to trace, a packet that is not PORT:HEX, or a capture without packets.
        ControlError: a command was refused.
    """
    if not packets and capture is None:
        raise InputError("nothing to trace: name a --packet PORT:HEX or a --pcap FILE.")
    stated = [_packet(text) for text in packets]
    switch = Switch(program, "interpret")
    commands.run(switch)
    for number, (port, data) in enumerate(chain(stated, _captured(switch, capture))):
        told = switch.trace(port, data)
        if as_json:
            print(json.dumps({"packet": number, "events": [as_document(each) for each in told]}))
        else:
            _print(number, told)


def _packet(text: str) -> tuple[int, bytes]:
    port, colon, digits = text.partition(":")
    try:
        if not colon or not port.strip().isdecimal():
            raise ValueError
        return int(port), bytes.fromhex(digits)
    except ValueError:
        raise InputError(f"--packet {text[:60]}: write it as PORT:HEX, such as 0:0a0b0c.") from None


def _captured(switch: Switch, capture: Input | None) -> Iterator[tuple[int, bytes]]:
    """The packets of a capture; the switch's clock goes with them."""
    if capture is None:
        return
    with open_sources([capture]) as sources:
        first: int | None = None
        for timed in merged(sources, 256):
            for packet, time in zip(timed.packets.to_packets(), timed.clock.tolist(), strict=True):
                first = time if first is None else first
                switch.state.clock = (time - first) // 1000
                yield packet


def _print(number: int, told: list[Event]) -> None:
    out.print(f"packet {number}", style="bold", highlight=False)
    for event in told:
        depth = 1 if isinstance(event, _STARTS) else 3 if isinstance(event, _DEEPER) else 2
        style = {events.Sent: "green", events.Dropped: "red"}.get(type(event))
        line = "  " * depth + str(event)
        out.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
