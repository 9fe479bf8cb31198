"""Digests: which are enabled, their buffers, and the lists that were not acknowledged yet.

Source: P4Runtime 1.5, section "DigestEntry".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from innet.p4runtime.context import DELETE, INSERT, PipelineContext, Undo
from innet.p4runtime.messages import copied, p4
from innet.p4runtime.p4info import DigestInfo
from innet.p4runtime.status import already_exists, invalid, not_found

_MOST_IN_LIST = 4096
_MOST_UNACKNOWLEDGED = 65536
"""Lists and messages that are remembered at most; more are forgotten, the oldest first."""

_Sample = tuple[int, ...]


@dataclass(slots=True)
class _Digest:
    """An enabled digest."""

    info: DigestInfo
    config: Any
    list_id: int = 0
    buffer: dict[_Sample, None] = field(default_factory=dict)
    started: int = 0
    sent: OrderedDict[int, tuple[int, list[_Sample]]] = field(default_factory=OrderedDict)
    """Unacknowledged lists: when they were sent, and what was in them."""
    cache: dict[_Sample, int] = field(default_factory=dict)
    """The list that each of their messages was in."""

    @property
    def most(self) -> int:
        return min(self.config.max_list_size or _MOST_IN_LIST, _MOST_IN_LIST)

    @property
    def due(self) -> int | None:
        """When the buffer is sent, in nanoseconds; None for an empty one."""
        return self.started + self.config.max_timeout_ns if self.buffer else None


class Digests:
    """Writes and reads DigestEntry, and makes DigestList messages.

    Args:
        context: of the pipeline.
        send: takes DigestList messages.
    """

    def __init__(self, context: PipelineContext, send: Callable[[Any], None]) -> None:
        self._index = context.ids
        self._send = send
        self._enabled: dict[int, _Digest] = {}  # by id
        self._by_position: dict[int, _Digest] = {}

    def write(self, kind: int, entry: Any, want_undo: bool) -> Undo | None:
        """An update of a DigestEntry."""
        info = self._index.find("digest", self._index.digests, entry.digest_id)
        digest = self._enabled.get(info.id)
        if kind == INSERT and digest is not None:
            raise already_exists(f"digest {info.name} is enabled already")
        if kind != INSERT and digest is None:
            raise not_found(f"digest {info.name} is not enabled")
        before = p4.DigestEntry(digest_id=info.id)
        if digest is not None:
            before.config.CopyFrom(digest.config)
        if kind == DELETE:
            del self._enabled[info.id], self._by_position[info.position]
            return (lambda: self.write(INSERT, before, False)) if want_undo else None
        config = entry.config
        if min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0:
            raise invalid(f"the times and sizes of digest {info.name} cannot be negative")
        if digest is None:
            made = _Digest(info, copied(config))
            self._enabled[info.id] = self._by_position[info.position] = made
            return lambda: self.write(DELETE, entry, False)
        digest.config = copied(config)
        return lambda: self.write(p4.Update.MODIFY, before, False)

    def read(self, wanted: Any) -> Iterator[Any]:
        """DigestEntry messages of enabled digests."""
        if wanted.digest_id:
            self._index.find("digest", self._index.digests, wanted.digest_id)
        for number, digest in self._enabled.items():
            if wanted.digest_id in (0, number):
                message = p4.DigestEntry(digest_id=number)
                message.config.CopyFrom(digest.config)
                yield message

    def take(self, digests: Sequence[tuple[int, _Sample]], now: int) -> None:
        """Add what the data plane sent, as ``SwitchState.digests`` has it, at a time in ns."""
        for position, values in digests:
            digest = self._by_position.get(position)
            if digest is None:
                continue
            self._forget(digest, now)
            sample = tuple(values)
            if sample in digest.buffer or sample in digest.cache:
                continue
            if not digest.buffer:
                digest.started = now
            digest.buffer[sample] = None
            if digest.config.max_timeout_ns == 0 or len(digest.buffer) >= digest.most:
                self._flush(digest, now)

    def run_due(self, now: int) -> int | None:
        """Send what timed out; returns when the next buffer does, None for none."""
        for digest in self._enabled.values():
            if digest.due is not None and digest.due <= now:
                self._flush(digest, now)
        return min((e.due for e in self._enabled.values() if e.due is not None), default=None)

    def acknowledge(self, message: Any) -> None:
        """A DigestListAck; nothing happens for a list that is not known.

        Raises:
            StatusError: there is no such digest.
        """
        info = self._index.find("digest", self._index.digests, message.digest_id)
        digest = self._enabled.get(info.id)
        if digest is not None and message.list_id in digest.sent:
            self._drop(digest, message.list_id)

    def forget(self) -> None:
        """Forget unacknowledged lists: there is another controller."""
        for digest in self._enabled.values():
            digest.sent.clear()
            digest.cache.clear()

    def _flush(self, digest: _Digest, now: int) -> None:
        samples = list(digest.buffer)
        digest.buffer.clear()
        digest.list_id += 1
        message = p4.DigestList(digest_id=digest.info.id, list_id=digest.list_id, timestamp=now)
        for sample in samples:
            message.data.append(digest.info.type.encode(iter(sample)))
        if digest.config.ack_timeout_ns:
            digest.sent[digest.list_id] = (now, samples)
            digest.cache.update(dict.fromkeys(samples, digest.list_id))
            while len(digest.cache) > _MOST_UNACKNOWLEDGED:
                self._drop(digest, next(iter(digest.sent)))
        self._send(message)

    def _forget(self, digest: _Digest, now: int) -> None:
        """Forget lists whose acknowledgement timed out."""
        while digest.sent:
            number, (sent, _) = next(iter(digest.sent.items()))
            if now - sent < digest.config.ack_timeout_ns:
                return
            self._drop(digest, number)

    def _drop(self, digest: _Digest, number: int) -> None:
        _, samples = digest.sent.pop(number)
        for sample in samples:
            digest.cache.pop(sample, None)
