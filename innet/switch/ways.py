"""The way of a packet through a switch: parser, tables and actions, without its own values.

It is what packets with the same fate have in common, so that a recording of many packets keeps
few. ``way_lines`` has the words of ``trace.Event``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.switch.engine import SwitchState
from innet.switch.jit.records import (
    EGRESS_STEPS,
    HAND_OVER_WORDS,
    INGRESS_STEPS,
    NUMBER,
    Kind,
    head,
    split,
)
from innet.switch.recording import Decoder, Handles
from innet.switch.trace import FORMATS, Event

_LINES = {
    **{
        kind: FORMATS[kind]
        for kind in (
            *("parser_error", "checksums", "if", "set_valid", "set_invalid"),
            *("request_drop", "request_exit", "clone", "unknown_session", "multicast"),
            *("unknown_group", "resubmit", "recirculate", "egress", "drop"),
        )
    },
    "ingress": "ingress: {instance_type} packet at port {port}",
    "state": "state {state}",
    "extract": "extract {header}",
    "select": "select → {next}",
    "transition": FORMATS["transition"],
    "hit": "table {table}: hit entry {entry}",
    "miss": "table {table}: miss",
    "action": "action {action}",
    "queue_full": "queue of port {port}: full",
    "digest": "digest {learn_list}",
    "sent": "sent to port {port}",
}

#: Words behind the head of a record that its line says.
_SAID = {
    Kind.INGRESS: (INGRESS_STEPS, INGRESS_STEPS + 1),
    Kind.EGRESS: (EGRESS_STEPS, EGRESS_STEPS + 1),
    Kind.MULTICAST: (1, 2),
    **dict.fromkeys(
        (Kind.PARSER_ERROR, Kind.HIT, Kind.CLONE, Kind.UNKNOWN_SESSION, Kind.UNKNOWN_GROUP), (1,)
    ),
    **dict.fromkeys((Kind.QUEUE_FULL, Kind.SENT), (1,)),
}
_PASSES = (head(Kind.INGRESS, 0), head(Kind.EGRESS, 0))
_BUFFER_WORDS = 4 * HAND_OVER_WORDS
_MOST_SHAPES = 16  # that are compared with a pass; further ones are read instead


def way_lines(events: Iterable[Event]) -> tuple[str, ...]:
    """The lines of a packet's events that other packets have, too."""
    return tuple(_LINES[each.kind].format(**_shown(each)) for each in events if each.kind in _LINES)


def _shown(event: Event) -> dict[str, object]:
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in event.values.items()
    }


class _Shape(NamedTuple):
    """What passes of one way, and as long, look like.

    Attributes:
        places: of the words that say what there is, and how long it is.
        words: their bytes.
        size: of the pass, words.
        way: its number.
    """

    places: NDArray[np.int64]
    words: bytes
    size: int
    way: int


class WayRecorder:
    """A ``RecordSink`` that keeps the ways of packets.

    Args:
        state: of the switch.

    Attributes:
        buffer: for ``jit.emit``.
    """

    def __init__(self, state: SwitchState) -> None:
        self.buffer = np.zeros(_BUFFER_WORDS, np.int64)
        self._state, self._decoder = state, Decoder(state.program)
        self._versions: list[int] = []
        self._handles: Handles = []
        self._shapes: dict[tuple[int, int], list[_Shape]] = {}
        self._ways: dict[tuple[str, ...], int] = {}
        self._passes: list[tuple[int, int]] = []  # packets, and ways

    def take(self, count: int) -> None:
        """See ``RecordSink.take``."""
        lost, self.buffer[-1] = int(self.buffer[-1]), 0
        if lost or not count:
            return  # of what was lost nobody knows to which packets it belonged
        # Shapes name entries by rows, which other entries may have now.
        versions = [each.version for each in self._state.tables]
        if versions != self._versions:
            self._versions, self._shapes = versions, {}
            self._handles = [each.handles_by_row() for each in self._state.tables]
        words, start = self.buffer[:count], 0
        while start < count:
            shape = self._shape(words, start)
            self._passes.append((int(words[start + NUMBER]), shape.way))
            start += shape.size

    def _shape(self, words: NDArray[np.int64], start: int) -> _Shape:
        """That of the pass that begins at ``start``."""
        kind = int(words[start])
        length = int(words[start + INGRESS_STEPS + 2]) if kind == _PASSES[0] else 0
        known = self._shapes.setdefault((kind, length), [])
        for place, shape in enumerate(known):
            end = start + shape.size
            if end > len(words) or (end < len(words) and int(words[end]) not in _PASSES):
                continue
            if words[start + shape.places].tobytes() == shape.words:
                if place:
                    known.insert(0, known.pop(place))
                return shape
        shape = self._read(words, start)
        known.insert(0, shape)
        del known[_MOST_SHAPES:]
        return shape

    def _read(self, words: NDArray[np.int64], start: int) -> _Shape:
        """The same, record by record."""
        read = words[start : start + HAND_OVER_WORDS].tolist()
        at, places = 0, []
        while at < len(read) and (at == 0 or read[at] not in _PASSES):
            kind, site = split(read[at])
            places += [at, *(at + each for each in _SAID.get(Kind(kind), ()))]
            if kind in (Kind.LOG, Kind.ADVANCE):  # descriptions of their values
                described = at + 1
                count = len(self._decoder.messages[site].values) if kind == Kind.LOG else 1
                for _ in range(count):
                    places.append(described)
                    described += 1 + (read[described] >> 1)
            elif (size := self._decoder.size_of(read[at])) < 0:  # the number of bytes
                places.append(at - size)
            at = self._decoder.end(read, at, kind, site)
        found = np.array(places, np.int64)
        events = self._decoder.reader(0).events(read[:at], self._handles)
        way = self._ways.setdefault(way_lines(events), len(self._ways))
        return _Shape(found, words[start + found].tobytes(), at, way)

    def ways(self) -> dict[int, tuple[str, ...]]:
        """By number of packet: the lines of its passes, in their order."""
        passes: dict[int, list[int]] = defaultdict(list)
        for packet, way in self._passes:
            passes[packet].append(way)
        lines = list(self._ways)
        return {
            packet: tuple(line for way in ways for line in lines[way])
            for packet, ways in passes.items()
        }
