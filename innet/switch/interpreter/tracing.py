"""The interpreter's hook for the events of ``innet.switch.trace``.

An interpreter that is made with a ``Trace`` calls it with the kind of each event and its values.
One without makes the same closures without these calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from innet.switch import ir
from innet.switch.interpreter.packet import Packet
from innet.switch.trace import Event, notation

Result = TypeVar("Result")
Rest = ParamSpec("Rest")

MOST_EVENTS = 100_000
"""Events of one packet that are kept; a loop of thousands of parser states has more."""

_REQUESTS: dict[type, tuple[str, dict[str, str]]] = {
    ir.Clone: ("request_clone", {"session": "clone_session", "field_list": "clone_field_list"}),
    ir.Resubmit: ("request_resubmit", {"field_list": "resubmit"}),
    ir.Recirculate: ("request_recirculate", {"field_list": "recirculate"}),
    ir.Digest: ("request_digest", {"learn_list": "learn_list"}),
    ir.Truncate: ("request_truncate", {"length": "truncated"}),
    ir.MarkToDrop: ("request_drop", {}),
    ir.Exit: ("request_exit", {}),
}
"""Primitives that request something: the event, and the attribute of ``Packet`` with each value."""


class Trace:
    """Collects the events of a packet, and finds out what changed in it.

    Attributes:
        packet, time: of the events that come next, as in ``Event``.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.packet: int | None = None
        self.time: int | None = None
        fields = [
            (f"{header.name}.{field.name}", field.width)
            for header in program.headers
            for field in program.header_types[header.type].fields
        ]
        self._fields = [(name, notation(name, width)) for name, width in fields]
        self._events: list[Event] = []
        self._left_out = 0

    def __call__(self, kind: str, /, **values: Any) -> None:
        """The hook: this happened."""
        if len(self._events) < MOST_EVENTS:
            self._events.append(Event(kind, values, self.packet, self.time))
        else:
            self._left_out += 1

    def take(self) -> list[Event]:
        """The events since the last call."""
        if self._left_out:
            self._events.append(Event("cut", {"left_out": self._left_out}))
        taken, self._events, self._left_out = self._events, [], 0
        return taken

    def changes(
        self, run: Callable[Concatenate[Packet, Rest], Result], primitive: object = None
    ) -> Callable[Concatenate[Packet, Rest], Result]:
        """``run``, followed by events for its request and its changes."""
        kind, attributes = _REQUESTS.get(type(primitive), ("", {}))

        def traced(packet: Packet, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Result:
            fields, valid = list(packet.fields), list(packet.valid)
            result = run(packet, *args, **kwargs)
            if kind:
                self(kind, **{name: getattr(packet, each) for name, each in attributes.items()})
            self.tell_changes(packet, fields, valid)
            return result

        return traced

    def tell_changes(self, packet: Packet, fields: list[int], valid: list[bool]) -> None:
        """Events for changes of fields and validity since the last call."""
        if valid != packet.valid:
            headers = zip(self.program.headers, valid, packet.valid, strict=True)
            for header, was_valid, is_valid in headers:
                if was_valid != is_valid:
                    self("set_valid" if is_valid else "set_invalid", header=header.name)
        if fields != packet.fields:
            slots = zip(self._fields, fields, packet.fields, strict=True)
            for (name, shown), old, new in slots:
                if old != new:
                    self("field", field=name, old=shown(old), new=shown(new))

    def extracted(self, packet: Packet, header: int, first: int, data: bytes) -> None:
        """Event for a header that was filled, whose fields begin at ``first``."""
        names = self.program.type_of(header).fields
        slots = range(first, first + len(names))
        values = {
            each.name: self._fields[slot][1](packet.fields[slot])
            for each, slot in zip(names, slots, strict=True)
        }
        self("extract", header=self.program.headers[header].name, fields=values, data=data)
