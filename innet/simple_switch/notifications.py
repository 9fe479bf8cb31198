"""What simple_switch tells controllers unasked: digests, idle entries, and ports.

Messages go out by nanomsg's publish/subscribe. ``LearnLists`` keeps digests until there are enough
of them, as BMv2's learning engine does.

Source: the headers of messages in BMv2's learning.h, ageing.h, port_monitor.cpp.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from innet.simple_switch.nanomsg import Publisher
from innet.switch import ir

_LEARN = struct.Struct("<4sqiiQI")
_AGEING = struct.Struct("<4sqiQiI")
_PORTS = struct.Struct("<4sqI16x")
_HANDLE = struct.Struct("<I")
_STATUS = struct.Struct("<ii")
_CONTEXT = 0
_PORT_UP, _PORT_DOWN = 1, 0
_TIMEOUT_MS = 1000  # of a list's buffer, by default


class Notifications:
    """The messages of one switch.

    Args:
        address: of nanomsg, such as ipc:///tmp/bmv2-0-notifications.ipc.
        device_id: goes into every message.

    Attributes:
        address: the same.

    Raises:
        MissingToolError: there is no nanomsg.
        NetworkError: the address cannot be used.
    """

    def __init__(self, address: str, device_id: int) -> None:
        self.address = address
        self._device_id = device_id
        self._ageing_buffers = 0
        self._socket = Publisher(address)

    def close(self) -> None:
        self._socket.close()

    def digest(self, learn_list: int, buffer: int, samples: Sequence[bytes]) -> None:
        """The samples of a buffer of a learn list."""
        count = len(samples)
        header = _LEARN.pack(b"LEA|", self._device_id, _CONTEXT, learn_list, buffer, count)
        self._socket.send(header + b"".join(samples))

    def idle(self, table: int, handles: Sequence[int]) -> None:
        """Entries of a table (its id in the JSON) that were not hit for their timeout."""
        number, self._ageing_buffers = self._ageing_buffers, self._ageing_buffers + 1
        header = _AGEING.pack(b"AGE|", self._device_id, _CONTEXT, number, table, len(handles))
        self._socket.send(header + b"".join(_HANDLE.pack(each) for each in handles))

    def ports(self, changed: Mapping[int, bool]) -> None:
        """Ports that went up (true) or down, in the order of their numbers."""
        header = _PORTS.pack(b"PRT|", self._device_id, len(changed))
        statuses = [
            _STATUS.pack(port, _PORT_UP if is_up else _PORT_DOWN)
            for port, is_up in sorted(changed.items())
        ]
        self._socket.send(header + b"".join(statuses))


@dataclass(slots=True)
class _LearnList:
    """One list.

    Attributes:
        widths: bytes of each field of a sample.
        known: samples that were taken and not acknowledged; they are not taken again.
        sent: those of each buffer that went out.
        samples: of the buffer that is being filled.
        started: when its first sample came.
    """

    number: int
    widths: tuple[int, ...]
    size: int = 1
    timeout: float = _TIMEOUT_MS / 1e3
    buffer: int = 0
    known: set[bytes] = field(default_factory=set)
    sent: dict[int, list[bytes | None]] = field(default_factory=dict)
    samples: list[bytes] = field(default_factory=list)
    started: float = 0.0


class LearnLists:
    """The learn lists of a program.

    Args:
        program: what is loaded; None for none.
        send: called with list, buffer and samples when a buffer is full or timed out.
    """

    def __init__(
        self, program: ir.Program | None, send: Callable[[int, int, Sequence[bytes]], None]
    ) -> None:
        self._send = send
        self._lists: dict[int, _LearnList] = {}
        self._by_position: list[_LearnList] = []
        if program is None:
            return
        for each in program.learn_lists:
            widths = tuple((program.field(e).width + 7) // 8 for e in each.elements)
            self._lists[each.id] = _LearnList(each.id, widths)
            self._by_position.append(self._lists[each.id])

    def take(self, digests: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Add digests, as ``SwitchState.digests`` has them."""
        for position, values in digests:
            found = self._by_position[position]
            pairs = zip(values, found.widths, strict=True)
            sample = b"".join(value.to_bytes(width, "big") for value, width in pairs)
            if sample in found.known:
                continue
            found.known.add(sample)
            if not found.samples:
                found.started = time.monotonic()
            found.samples.append(sample)
            if len(found.samples) >= found.size:
                self._flush(found)

    def _flush(self, found: _LearnList) -> None:
        samples, found.samples = found.samples, []
        number, found.buffer = found.buffer, found.buffer + 1
        found.sent[number] = list(samples)
        self._send(found.number, number, samples)

    def _deadlines(self) -> list[tuple[float, _LearnList]]:
        lists = self._lists.values()
        return [(e.started + e.timeout, e) for e in lists if e.samples and e.timeout > 0]

    def run_due(self) -> float | None:
        """Send what timed out; seconds until the next buffer does, None for none."""
        now = time.monotonic()
        for due, each in self._deadlines():
            if due <= now:
                self._flush(each)
        return min((due - now for due, _ in self._deadlines()), default=None)

    # ── Calls of the control plane; KeyError for a list that does not exist ──

    def ack(self, learn_list: int, buffer: int, samples: Sequence[int]) -> None:
        """Acknowledge samples of a buffer, by position: the same values are reported again."""
        found = self._lists[learn_list]
        sent = found.sent.get(buffer, [])
        for position in samples:
            if 0 <= position < len(sent):
                sample = sent[position]
                if sample is not None:
                    found.known.discard(sample)
                sent[position] = None
        if sent and not any(sent):
            del found.sent[buffer]

    def ack_buffer(self, learn_list: int, buffer: int) -> None:
        """Acknowledge all samples of a buffer."""
        found = self._lists[learn_list]
        self.ack(learn_list, buffer, range(len(found.sent.get(buffer, ()))))

    def set_timeout(self, learn_list: int, milliseconds: int) -> None:
        """Send a buffer that long after its first sample; 0: only when it is full."""
        self._lists[learn_list].timeout = max(0, milliseconds) / 1e3

    def set_buffer_size(self, learn_list: int, samples: int) -> None:
        """Send a buffer when it holds that many samples."""
        found = self._lists[learn_list]
        found.size = max(1, samples)
        if len(found.samples) >= found.size:
            self._flush(found)
