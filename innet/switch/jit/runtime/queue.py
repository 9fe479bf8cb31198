"""Packets that wait, for emitted code: rows of words, and arrays that grow.

A packet that waits is a row of ``width`` words: first the words named here, then every variable of
the packet, as ``emit.queue`` lays them out. All arrays are flat.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from innet.switch.jit.runtime.core import copy, get, inlined, put
from innet.switch.jit.traits import NO_SESSION

__all__ = [  # what emitted code may import
    "AT",
    "BASE",
    "CLONE",
    "DECIDE",
    "EGRESS",
    "FIRST",
    "LAST",
    "PORT",
    "RECEIVED",
    "REENTERED",
    "SIZE",
    "clear",
    "compact",
    "has_session",
    "push",
    "reserve",
    "reserve_row",
]

#: What the emitted function does next: a packet from outside, one that was resubmitted or
#: recirculated, the parser for a clone of what ingress received, what ingress decided, or a packet
#: that waits for egress.
RECEIVED, REENTERED, CLONE, DECIDE, EGRESS = range(5)

#: First words of a row. The packet's bytes are ``SIZE`` of ``data`` from ``BASE`` on, of which the
#: parser took ``AT``. It goes to ``PORT``, or where that is -1, to the replicas ``FIRST`` .. ``LAST
#: - 1`` of multicast, of which ``FIRST`` moves on.
BASE, SIZE, AT, PORT, FIRST, LAST = range(6)


@inlined
def reserve(array: Any, used: int, more: int) -> Any:
    """``array``, or a longer one that starts with its ``used`` elements, with room for ``more``."""
    if used + more <= len(array):
        return array
    longer = np.empty(2 * (used + more), array.dtype)
    copy(longer, 0, array, 0, used * array.itemsize)
    return longer


@inlined
def clear(rows: Any, first: int, last: int) -> None:
    """Zero the words ``first`` .. ``last - 1``."""
    for place in range(first, last):
        put(rows, place, 0)


@inlined
def push(  # noqa: PLR0917 - called by emitted code only
    queue: Any, head: int, tail: int, rows: Any, place: int, width: int
) -> Any:
    """Append the row at ``place`` of ``rows`` to those that wait, ``head`` .. ``tail - 1`` of
    ``queue``; returns all three as they are then.
    """
    if (tail + 1) * width > len(queue):
        waiting = tail - head
        moved = np.empty(max(len(queue), 2 * (waiting + 1) * width), np.int64)
        copy(moved, 0, queue, 8 * head * width, 8 * waiting * width)
        queue, head, tail = moved, 0, waiting
    copy(queue, 8 * tail * width, rows, 8 * place, 8 * width)
    return queue, head, tail + 1


@inlined
def compact(  # noqa: PLR0917 - called by emitted code only
    data: Any, more: int, queue: Any, head: int, tail: int, width: int
) -> Any:
    """The bytes of the packets that wait, at the start of a new array with room for ``more``.

    Returns it and how much of it is used. Rows next to each other may share their bytes.
    """
    held = 0
    before = -1
    for row in range(head, tail):
        base = get(queue, row * width + BASE)
        if base != before:
            held += get(queue, row * width + SIZE)
        before = base
    moved = np.empty(max(len(data), 2 * (held + more)), np.uint8)
    used = 0
    start = 0
    before = -1
    for row in range(head, tail):
        base = get(queue, row * width + BASE)
        if base != before:
            size = get(queue, row * width + SIZE)
            copy(moved, used, data, base, size)
            start = used
            used += size
        before = base
        put(queue, row * width + BASE, start)
    return moved, used


@inlined
def has_session(sessions: Any, session: int) -> Any:
    """Whether the control plane made mirror session ``session``."""
    return 2 * session < len(sessions) and get(sessions, 2 * session) != NO_SESSION


@inlined
def reserve_row(out: Any, produced: int, size: int) -> Any:
    """``out``, or a larger matrix that starts with its ``produced`` rows, with one more row of at
    least ``size`` bytes.
    """
    stride = out.shape[1]
    if produced < len(out) and size <= stride:
        return out
    wider = stride if size <= stride else max(2 * stride, size)
    larger = np.empty((max(len(out), 2 * (produced + 1)), wider), np.uint8)
    for row in range(produced):
        copy(larger, row * wider, out, row * stride, stride)
    return larger
