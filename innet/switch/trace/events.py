"""What can happen to a packet in a switch, as ``Switch.trace`` tells it, in the order of time.

Names are those of the program. ``str()`` of an event is a line for people; ``as_document`` is for
programs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from innet.switch.engine import InstanceType


@dataclass(frozen=True, slots=True)
class IngressStarted:
    """A packet comes to the parser: received (NORMAL), resubmitted or recirculated."""

    kind: InstanceType
    port: int
    length: int

    def __str__(self) -> str:
        return f"ingress: {_kind(self.kind)} of {self.length} bytes at port {self.port}"


@dataclass(frozen=True, slots=True)
class CloneParsed:
    """The parser runs again, for a clone that ingress made."""

    length: int

    def __str__(self) -> str:
        return f"clone: {self.length} bytes as they were received"


@dataclass(frozen=True, slots=True)
class StateEntered:
    """The parser enters a state with ``position`` bytes taken."""

    state: str
    position: int

    def __str__(self) -> str:
        return f"state {self.state} at byte {self.position}"


@dataclass(frozen=True, slots=True)
class HeaderExtracted:
    """``data`` became a header; ``fields`` are (name, value)."""

    header: str
    fields: tuple[tuple[str, int], ...]
    data: bytes

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value:#x}" for name, value in self.fields)
        return f"extract {self.header}: {values or 'no fields'}"


@dataclass(frozen=True, slots=True)
class Selected:
    """The parser's way on: ``values`` of the key, and the next state (None: accept)."""

    values: tuple[int, ...]
    state: str | None

    def __str__(self) -> str:
        values = ", ".join(f"{value:#x}" for value in self.values)
        key = f"select ({values}) " if self.values else ""
        return f"{key}→ {self.state or 'accept'}"


@dataclass(frozen=True, slots=True)
class ParserStopped:
    """An error ended the parser."""

    error: str

    def __str__(self) -> str:
        return f"parser error {self.error}"


@dataclass(frozen=True, slots=True)
class ChecksumsVerified:
    """Whether all checksums that the program verifies are right."""

    correct: bool

    def __str__(self) -> str:
        return f"checksums {'right' if self.correct else 'wrong'}"


@dataclass(frozen=True, slots=True)
class ConditionTested:
    """``if`` in a control; ``condition`` as P4 would write it."""

    name: str
    condition: str
    outcome: bool

    def __str__(self) -> str:
        return f"if ({self.condition}): {'true' if self.outcome else 'false'}"


@dataclass(frozen=True, slots=True)
class TableApplied:
    """A table looked for ``key``, (name, value) of each field; ``entry``: the handle of what it
    hit, None for a miss.
    """

    table: str
    key: tuple[tuple[str, int], ...]
    entry: int | None

    def __str__(self) -> str:
        key = ", ".join(f"{name} {value:#x}" for name, value in self.key)
        found = "miss" if self.entry is None else f"hit entry {self.entry}"
        return f"table {self.table} ({key}): {found}"


@dataclass(frozen=True, slots=True)
class ActionRun:
    """An action starts, with ``arguments`` (name, value)."""

    action: str
    arguments: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"action {self.action}({', '.join(f'{n} {v:#x}' for n, v in self.arguments)})"


@dataclass(frozen=True, slots=True)
class FieldChanged:
    """A field of a header or of metadata got another value."""

    field: str
    old: int
    new: int

    def __str__(self) -> str:
        return f"{self.field}: {self.old:#x} → {self.new:#x}"


@dataclass(frozen=True, slots=True)
class ValidityChanged:
    """A header became valid or invalid."""

    header: str
    valid: bool

    def __str__(self) -> str:
        return f"{self.header} becomes {'valid' if self.valid else 'invalid'}"


@dataclass(frozen=True, slots=True)
class RegisterRead:
    """A register cell was read; ``value`` None: the index is out of bounds."""

    register: str
    index: int
    value: int | None

    def __str__(self) -> str:
        value = "out of bounds" if self.value is None else f"reads {self.value:#x}"
        return f"register {self.register}[{self.index}] {value}"


@dataclass(frozen=True, slots=True)
class RegisterWritten:
    """A register cell was written; None: the index is out of bounds."""

    register: str
    index: int
    old: int | None
    new: int | None

    def __str__(self) -> str:
        where = f"register {self.register}[{self.index}]"
        if self.old is None or self.new is None:
            return f"{where} out of bounds"
        return f"{where}: {self.old:#x} → {self.new:#x}"


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter's cell now holds this; ``packets`` and ``size`` (bytes) None: out of bounds."""

    counter: str
    index: int
    packets: int | None
    size: int | None

    def __str__(self) -> str:
        held = "out of bounds"
        if self.packets is not None:
            held = f"now {self.packets} packets, {self.size} bytes"
        return f"counter {self.counter}[{self.index}] {held}"


@dataclass(frozen=True, slots=True)
class MeterExecuted:
    """A meter colored the packet: 0 green, 1 yellow, 2 red; None: out of bounds."""

    meter: str
    index: int
    color: int | None

    def __str__(self) -> str:
        colors = {0: "green", 1: "yellow", 2: "red", None: "out of bounds"}
        return f"meter {self.meter}[{self.index}] {colors.get(self.color, self.color)}"


@dataclass(frozen=True, slots=True)
class Requested:
    """A primitive asked the switch for something: ``what`` with its values, by name."""

    what: str
    values: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value}" for name, value in self.values)
        return f"asks for {self.what}" + (f" ({values})" if values else "")


@dataclass(frozen=True, slots=True)
class Logged:
    """``log_msg``, with its values in their places."""

    text: str

    def __str__(self) -> str:
        return f"log: {self.text}"


@dataclass(frozen=True, slots=True)
class Cloned:
    """A copy is made for a mirror session; where the session does not exist, none is."""

    session: int
    exists: bool

    def __str__(self) -> str:
        return f"clone to {'' if self.exists else 'unknown '}session {self.session}"


@dataclass(frozen=True, slots=True)
class Replicated:
    """Copies for a multicast group: (port, replication id) of each."""

    group: int
    replicas: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        copies = ", ".join(f"port {port} rid {rid}" for port, rid in self.replicas)
        return f"multicast group {self.group}: {copies or 'unknown or empty'}"


@dataclass(frozen=True, slots=True)
class ComesAgain:
    """The packet goes through ingress once more: ``resubmitted`` as it was received, else as it
    would leave (recirculated).
    """

    resubmitted: bool

    def __str__(self) -> str:
        return "resubmitted" if self.resubmitted else "recirculated"


@dataclass(frozen=True, slots=True)
class Digested:
    """The values of a learn list went to the control plane."""

    learn_list: str
    values: tuple[int, ...]

    def __str__(self) -> str:
        return f"digest {self.learn_list}: {', '.join(f'{value:#x}' for value in self.values)}"


@dataclass(frozen=True, slots=True)
class EgressStarted:
    """A packet, or a copy of it, comes to egress on its way to a port."""

    kind: InstanceType
    port: int

    def __str__(self) -> str:
        return f"egress: {_kind(self.kind)} for port {self.port}"


@dataclass(frozen=True, slots=True)
class Deparsed:
    """The packet was put together of its valid headers, in this order, and its payload."""

    headers: tuple[str, ...]
    payload: int
    data: bytes

    def __str__(self) -> str:
        parts = " + ".join([*self.headers, f"{self.payload} bytes"])
        return f"deparse {parts}: {self.data.hex()}"


@dataclass(frozen=True, slots=True)
class Dropped:
    """The packet ends here. ``pipeline``: ingress or egress."""

    pipeline: str
    reason: str

    def __str__(self) -> str:
        return f"dropped in {self.pipeline}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Sent:
    """A packet leaves."""

    port: int
    data: bytes

    def __str__(self) -> str:
        return f"sent to port {self.port}: {len(self.data)} bytes {self.data.hex()}"


@dataclass(frozen=True, slots=True)
class TraceCut:
    """More happened than is told; ``left_out`` events."""

    left_out: int

    def __str__(self) -> str:
        return f"... and {self.left_out} events more"


Event = (
    IngressStarted
    | CloneParsed
    | StateEntered
    | HeaderExtracted
    | Selected
    | ParserStopped
    | ChecksumsVerified
    | ConditionTested
    | TableApplied
    | ActionRun
    | FieldChanged
    | ValidityChanged
    | RegisterRead
    | RegisterWritten
    | Counted
    | MeterExecuted
    | Requested
    | Logged
    | Cloned
    | Replicated
    | ComesAgain
    | Digested
    | EgressStarted
    | Deparsed
    | Dropped
    | Sent
    | TraceCut
)


def as_document(event: Event) -> dict[str, Any]:
    """An event for programs: its class as ``event``, bytes in hexadecimal."""
    document: dict[str, Any] = {"event": type(event).__name__}
    for each in dataclasses.fields(event):
        value = getattr(event, each.name)
        if isinstance(value, bytes):
            value = value.hex()
        elif isinstance(value, InstanceType):
            value = value.name.lower()
        elif each.name in ("fields", "key", "arguments") and isinstance(value, tuple):
            value = dict(value)
        document[each.name] = value
    return document


def _kind(kind: InstanceType) -> str:
    return "packet" if kind is InstanceType.NORMAL else f"{kind.name.lower().replace('_', ' ')}"
