"""The record of what happened to each packet of a simulated network, for the player.

Numbers of many packets are columns, packed into one string: JSON lists of them would take ten times
the room, and a browser seconds to read.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from innet.core.errors import InputError
from innet.records.record import Record
from innet.records.report import Frozen

RECORDING = "innet.recording"
"""Format of the record that ``innet view`` shows."""

FATES = (
    "received",
    "passed on",
    "dropped by the program",
    "found the queue full",
    "lost on the link",
    "left by a port without a link",
    "came to a switch without a program",
    "on its way at the end",
    "not known",
)
"""What became of a packet that was put onto a link, by its number in the column ``fate``."""
(
    RECEIVED,
    PASSED_ON,
    BY_PROGRAM,
    QUEUE_FULL,
    LOST_ON_LINK,
    NO_LINK,
    NO_PROGRAM,
    UNDER_WAY,
    NOT_KNOWN,
) = range(len(FATES))


class RecordedNode(Frozen):
    """A host or a switch.

    Attributes:
        name: as people know it.
        kind: which of them.
        program: what a switch runs; "" for hosts and switches without one.
    """

    name: str
    kind: Literal["host", "switch"]
    program: str = ""


class RecordedLink(Frozen):
    """A link in one direction.

    Attributes:
        source, target: positions in ``nodes``.
        source_port, target_port: of switches; None for hosts.
        rate: bits per second.
        delay: picoseconds, with the pipeline of the switch at its end.
    """

    source: int
    target: int
    source_port: int | None = None
    target_port: int | None = None
    rate: int
    delay: int


class LayoutField(Frozen):
    """A field of a header.

    Attributes:
        name: as the program calls it.
        width: bits.
        notation: how people read it.
    """

    name: str
    width: int
    notation: Literal["number", "mac", "ipv4"] = "number"


class HeaderLayout(Frozen):
    """A header in a packet.

    Attributes:
        name: as the program calls it.
        offset: bits before it.
        fields: one behind the other.
    """

    name: str
    offset: int
    fields: tuple[LayoutField, ...]


class PackedColumn(Frozen):
    """A column of whole numbers in ``data``: planes of one byte for each row, the lowest first.

    Attributes:
        name: of the column.
        rows: how many numbers there are.
        width: planes.
        base: to be added to each number.
        is_delta: the numbers are differences, each from the one before.
    """

    name: str
    rows: int
    width: int
    base: int = 0
    is_delta: bool = False


class RecordingRecord(Record):
    """What happened to each packet of a simulated network. Times are picoseconds.

    Columns with a row for each packet that was put onto a link, in order of ``time``:

    - ``link``: position in ``links``; ``time``: when its first bit was put onto the link;
    - ``flight``: how much later its last bit has come, and passed the pipeline of the switch there;
      ``again``: likewise its duplicate, 0 without one;
    - ``length``: bytes of the frame, without check sequence; ``frame``: which bytes, -1 for packets
      without bytes; ``layout``: position in ``layouts``, -1: its headers are not known;
    - ``flow``: -1 for packets of programs; ``cause``: the row of the packet that came to the switch
      and caused this one, -1: a host sent it, or it is not known; ``copy_of_cause``: 1 if that
      packet's duplicate did;
    - ``fate``: of ``FATES``; ``damaged``: 1 if faults changed its bytes on the way; ``way``:
      position in ``ways``, -1: not known.

    Of each packet or copy that found a queue full: ``full_time``, ``full_link``, the link behind
    the queue, and ``full_cause``, a row as above. Of each change of a watched cell:
    ``change_time``, ``change_watch``, and of its value the lower and upper 32 bits, ``change_low``
    and ``change_high``. Of each frame ``frame_length``: bytes kept; they lie one behind the other
    in ``bytes``.

    Attributes:
        nodes, links: the network.
        watches: names of watched cells.
        first_values: what they held at the beginning.
        begin, end: picoseconds.
        packets: recorded, lost ones included.
        left_out: packets that came after those that were recorded.
        cut: bytes kept of each frame at most; None: all.
        layouts: of headers.
        ways: lines that say what a switch did with a packet.
        columns: what is in ``data``, in order.
        data: the columns behind each other, as zlib and base64 have them.
    """

    formats: ClassVar[tuple[str, ...]] = (RECORDING,)

    format: Literal["innet.recording"] = "innet.recording"
    nodes: tuple[RecordedNode, ...]
    links: tuple[RecordedLink, ...]
    watches: tuple[str, ...] = ()
    first_values: tuple[int, ...] = ()
    begin: int
    end: int
    packets: int
    left_out: int = 0
    cut: int | None = None
    layouts: tuple[tuple[HeaderLayout, ...], ...] = ()
    ways: tuple[tuple[str, ...], ...] = ()
    columns: tuple[PackedColumn, ...] = Field(default=(), repr=False)
    data: str = Field(default="", repr=False)

    @classmethod
    def packed(cls, columns: Mapping[str, NDArray[Any]], **fields: Any) -> Self:
        """A record of these columns, each of whole numbers below 2^63."""
        packed = [_pack(name, np.asarray(values)) for name, values in columns.items()]
        planes = zlib.compress(b"".join(data for _, data in packed))
        described = tuple(column for column, _ in packed)
        return cls(columns=described, data=base64.b64encode(planes).decode(), **fields)

    def unpacked(self) -> dict[str, NDArray[np.int64]]:
        """The columns by name, int64.

        Raises:
            InputError: ``data`` is damaged.
        """
        try:
            data = zlib.decompress(base64.b64decode(self.data, validate=True))
        except (ValueError, zlib.error) as error:
            raise InputError(f"the recording's data are damaged: {error}.") from None
        found, begin = {}, 0
        for column in self.columns:
            end = begin + column.rows * column.width
            if end > len(data):
                raise InputError(f"the recording's data are damaged: {column.name} is cut short.")
            planes = np.frombuffer(data[begin:end], np.uint8).reshape(column.width, column.rows)
            values = np.full(column.rows, column.base, np.int64)
            for place, plane in enumerate(planes):
                values += plane.astype(np.int64) << 8 * place
            found[column.name] = np.cumsum(values) if column.is_delta else values
            begin = end
        return found


def _pack(name: str, values: NDArray[Any]) -> tuple[PackedColumn, bytes]:
    """A column, and its planes."""
    numbers = values.astype(np.int64)
    is_delta = name.endswith("time")
    if is_delta:
        numbers = np.diff(numbers, prepend=0)
    base = int(numbers.min()) if len(numbers) else 0
    offsets = (numbers - base).astype(np.uint64)
    most = int(offsets.max()) if len(offsets) else 0
    width = (most.bit_length() + 7) // 8
    planes = offsets.astype("<u8").view(np.uint8).reshape(len(offsets), 8)[:, :width]
    column = PackedColumn(name=name, rows=len(offsets), width=width, base=base, is_delta=is_delta)
    return column, np.ascontiguousarray(planes.T).tobytes()
