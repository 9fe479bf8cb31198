"""What happens to a packet in a switch, event by event, as ``Switch.trace`` tells it.

``FORMATS`` has the line that people read for each kind; ``Event.as_dict`` is for programs.
``interpreter.tracing`` collects the events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

FORMATS = {
    # Ingress and the parser
    "ingress": "ingress: {instance_type} packet of {length} bytes at port {port}",
    "parse_clone": "clone: {length} bytes as they were received",
    "state": "state {state} at byte {position}",
    "extract": "extract {header}: {fields}",
    "select": "select ({key}) → {next}",
    "transition": "→ {next}",
    "parser_error": "parser error {error}",
    "checksums": "checksums correct: {correct}",
    # Tables and actions
    "if": "if ({condition}): {result}",
    "hit": "table {table} ({key}): hit entry {entry}",
    "miss": "table {table} ({key}): miss",
    "action": "action {action}({arguments})",
    "field": "{field}: {old:#x} → {new:#x}",
    "set_valid": "{header} becomes valid",
    "set_invalid": "{header} becomes invalid",
    "log": "log: {text}",
    # State that outlives the packet
    "register_read": "register {register}[{index}] reads {value:#x}",
    "register_write": "register {register}[{index}]: {old:#x} → {new:#x}",
    "counter": "counter {counter}[{index}] now {packets} packets, {bytes} bytes",
    "meter": "meter {meter}[{index}] {color}",
    "out_of_bounds": "{array}[{index}] out of bounds",
    # Requests of primitives, handled at the end of the pipeline
    "request_clone": "requests a clone (session {session}, field list {field_list})",
    "request_resubmit": "requests resubmission (field list {field_list})",
    "request_recirculate": "requests recirculation (field list {field_list})",
    "request_digest": "requests a digest (learn list {learn_list})",
    "request_truncate": "requests truncation (length {length})",
    "request_drop": "requests drop",
    "request_exit": "requests the end of the pipeline",
    # What the switch does
    "clone": "clone to session {session}",
    "unknown_session": "clone to unknown session {session}",
    "multicast": "multicast group {group}: {copies} copies",
    "unknown_group": "multicast group {group}: unknown or empty",
    "replica": "copy for port {port} rid {rid}",
    "enqueue": "queue of port {port}, priority {priority}: {depth} before it, leaves in {wait} ns",
    "queue_full": "queue of port {port}, priority {priority}: full with {depth}",
    "dequeue": "left the queue after {waited} ns, {depth} behind it",
    "resubmit": "resubmitted",
    "recirculate": "recirculated",
    "digest": "digest {learn_list}: {values}",
    "egress": "egress: {instance_type} packet for port {port}",
    "deparse": "deparse ({headers}) + {payload} bytes: {data}",
    "drop": "dropped in {pipeline}: {reason}",
    "sent": "sent to port {port}: {length} bytes {data}",
    "cut": "... and {left_out} events more",
}
"""Every kind of event, and the line for people, with the names of its values."""

MARKED_TO_DROP = "marked to drop"
"""The reason of a drop that the program asked for."""

COLORS = {0: "green", 1: "yellow", 2: "red"}
"""Names of colors of meters; further colors are numbers."""

_MAC_NAME = re.compile(r"mac|addr|eth|src|dst|source|dest|sha|tha|sender|target", re.IGNORECASE)
_TIME_NAME = re.compile(r"time|stamp", re.IGNORECASE)


class MacAddress(int):
    """A number that lines for people show as aa:bb:cc:dd:ee:ff."""

    def __format__(self, _: str) -> str:
        return (self & ((1 << 48) - 1)).to_bytes(6, "big").hex(":")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: a key of ``FORMATS``, and its values by name.

    Names are those of the program; ``fields``, ``key`` and ``arguments`` map names to numbers.

    Attributes:
        packet: which of the packets that were traced so far it happened to or came from, from 0.
        time: when, in nanoseconds; None without times.
    """

    kind: str
    values: Mapping[str, Any]
    packet: int | None = field(default=None, compare=False)
    time: int | None = field(default=None, compare=False)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __str__(self) -> str:
        """A line for people."""
        shown = {name: _for_people(value) for name, value in self.values.items()}
        return FORMATS[self.kind].format(**shown)

    def as_dict(self) -> dict[str, Any]:
        """For programs: the kind as ``event``, bytes in hexadecimal, numbers as numbers."""
        values = {n: v.hex() if isinstance(v, bytes) else v for n, v in self.values.items()}
        return {"event": self.kind, **values}


def _for_people(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case bool():
            return str(value).lower()
        case dict():
            return ", ".join(f"{name} {number:#x}" for name, number in value.items())
        case tuple():
            return ", ".join(f"{v:#x}" if isinstance(v, int) else str(v) for v in value)
    return value


def notation(name: str, width: int) -> Callable[[int], int]:
    """How a field's value is shown: 48 bits with the name of a MAC address as one."""
    if width == 48 and _MAC_NAME.search(name) and not _TIME_NAME.search(name):
        return MacAddress
    return int
