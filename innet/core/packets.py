"""A batch of raw packets: the form in which bytes move between hosts, transport and switch.

Nothing here knows what the bytes mean. ``innet.wire`` gives them meaning for workers; a P4 program
gives them meaning in the switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from innet.core.errors import InputError

MAX_PORT = 510
"""The highest port of a switch: v1model has 9-bit ports, and 511 means "drop"."""

_BYTES = np.dtype(np.uint8)
_NUMBERS = np.dtype(np.int32)
_TIMES = np.dtype(np.int64)
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class PacketBatch:
    """``n`` packets in arrival order.

    Attributes:
        data: shape (n, stride), uint8. Row i holds packet i; bytes past its length have no
            meaning. May be read-only, and any strides will do (C-contiguous is fastest).
        length: shape (n,), int32, bytes; 0 <= length <= stride, which the switch checks.
        port: shape (n,), int32. The switch port a packet arrives at or leaves from.
        origin: shape (n,), int32, or None where it is not known. For what a switch sent: the row of
            the batch received that each packet stems from; -1: of one that was received before.
        time: shape (n,), int64, nanoseconds, or None. For what a switch sent in a call with times:
            when each packet left.
        extra: shape (n,), int32, or None for none: bytes by which each packet is longer than
            ``length``: payload at its end that it does not carry. They count wherever a packet's
            length does: on lines, in queues, and in programs.

    Raises:
        InputError: an array of another shape or dtype, or arrays of different n.
    """

    data: NDArray[np.uint8]
    length: NDArray[np.int32]
    port: NDArray[np.int32]
    origin: NDArray[np.int32] | None = None
    time: NDArray[np.int64] | None = None
    extra: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        # Compiled code trusts these shapes: it reads past the arrays where they do not agree.
        _require("data", self.data, _BYTES, 2)
        _require("length", self.length, _NUMBERS, 1)
        _require("port", self.port, _NUMBERS, 1)
        if not len(self.data) == len(self.length) == len(self.port):
            raise InputError(
                f"a batch needs one row of data, one length and one port per packet; found "
                f"{len(self.data)} rows, {len(self.length)} lengths and {len(self.port)} ports"
            )
        if self.origin is not None:
            _require("origin", self.origin, _NUMBERS, 1)
            if len(self.origin) != len(self.length):
                raise InputError(
                    f"a batch of {len(self.length)} packets has {len(self.origin)} origins"
                )
        if self.time is not None:
            _require("time", self.time, _TIMES, 1)
            if len(self.time) != len(self.length):
                raise InputError(
                    f"a batch of {len(self.length)} packets has {len(self.time)} times"
                )
        if self.extra is not None:
            _require("extra", self.extra, _NUMBERS, 1)
            if len(self.extra) != len(self.length):
                raise InputError(
                    f"a batch of {len(self.length)} packets has extra bytes of {len(self.extra)}"
                )

    def __len__(self) -> int:
        return len(self.length)

    @classmethod
    def empty(cls, stride: int = 0) -> PacketBatch:
        return cls(np.empty((0, stride), np.uint8), np.empty(0, np.int32), np.empty(0, np.int32))

    @classmethod
    def uniform(cls, data: NDArray[np.uint8], port: int | NDArray[np.int32]) -> PacketBatch:
        """Packets that all fill their row; ``port`` is one port for all or an array (n,)."""
        _require("data", data, _BYTES, 2)
        count, stride = data.shape
        is_number = isinstance(port, int) and 0 <= port <= _INT32.max
        ports = np.array(port, np.int32) if is_number else _ports(port)
        if ports.shape not in ((), (count,)):
            raise InputError(f"{count} packets need one port or {count}, not {ports.shape}")
        each = np.empty(count, np.int32)
        each[:] = ports
        return cls(np.ascontiguousarray(data), np.full(count, stride, np.int32), each)

    @classmethod
    def from_packets(cls, packets: Iterable[tuple[int, bytes]]) -> PacketBatch:
        """From (port, bytes) pairs of any lengths; InputError where they are something else."""
        try:
            pairs = list(packets)
            stride = max((len(payload) for _, payload in pairs), default=0)
            data = np.zeros((len(pairs), stride), np.uint8)
            for row, (_, payload) in zip(data, pairs, strict=True):
                row[: len(payload)] = np.frombuffer(payload, np.uint8)
        except (TypeError, ValueError) as error:
            raise InputError(f"packets are pairs of a port and bytes: {error}") from None
        length = np.array([len(payload) for _, payload in pairs], np.int32)
        return cls(data, length, _ports([port for port, _ in pairs]))

    @classmethod
    def concatenate(cls, batches: Sequence[PacketBatch]) -> PacketBatch:
        """One batch after the other; rows are widened to the widest stride."""
        filled = [batch for batch in batches if len(batch)]
        if not filled:
            return cls.empty(max((batch.data.shape[1] for batch in batches), default=0))
        if len(filled) == 1:
            return filled[0]
        stride = max(batch.data.shape[1] for batch in filled)
        data = np.zeros((sum(map(len, filled)), stride), np.uint8)
        row = 0
        for batch in filled:
            data[row : row + len(batch), : batch.data.shape[1]] = batch.data
            row += len(batch)
        return cls(
            data,
            np.concatenate([batch.length for batch in filled]),
            np.concatenate([batch.port for batch in filled]),
            _joined([batch.origin for batch in filled]),
            _joined([batch.time for batch in filled]),
            _joined_extra(filled),
        )

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> PacketBatch:
        """The packets at ``rows`` (indices, in that order, or a mask)."""
        origin = None if self.origin is None else self.origin[rows]
        time = None if self.time is None else self.time[rows]
        extra = None if self.extra is None else self.extra[rows]
        return PacketBatch(self.data[rows], self.length[rows], self.port[rows], origin, time, extra)

    def to_packets(self) -> list[tuple[int, bytes]]:
        """As (port, bytes) pairs, for tests and for people."""
        return [
            (int(port), row[:length].tobytes())
            for port, length, row in zip(self.port, self.length, self.data, strict=True)
        ]


def _joined(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """One after the other; not known where one of them is not."""
    known = [each for each in parts if each is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _joined_extra(batches: Sequence[PacketBatch]) -> NDArray[np.int32] | None:
    """One after the other; a batch without extra bytes has none in each packet."""
    if all(batch.extra is None for batch in batches):
        return None
    return np.concatenate(
        [
            np.zeros(len(batch), np.int32) if batch.extra is None else batch.extra
            for batch in batches
        ]
    )


def _require(name: str, array: object, dtype: np.dtype[Any], ndim: int) -> None:
    if not isinstance(array, np.ndarray):
        raise InputError(f"{name} of a batch must be a NumPy array, not {type(array).__name__}")
    if array.dtype != dtype or array.ndim != ndim:
        shape = "(n, stride)" if ndim == 2 else "(n,)"
        raise InputError(
            f"{name} of a batch must be {dtype} of shape {shape}; found {array.dtype} of shape "
            f"{array.shape}"
        )


def _ports(ports: ArrayLike) -> NDArray[np.int32]:
    """As int32; InputError where that would change a number."""
    try:
        found = np.asarray(ports)
    except ValueError:  # lists of different lengths
        raise InputError("a port is one integer per packet") from None
    if found.size == 0:
        return found.astype(np.int32)
    if found.dtype.kind not in "iu":
        raise InputError(
            f"a port is an integer of 32 bits; found {found.dtype} {found.flat[0]!r:.40}"
        )
    if found.min() < _INT32.min or found.max() > _INT32.max:
        raise InputError(f"a port is an integer of 32 bits; found {found.min()}..{found.max()}")
    return found.astype(np.int32)
