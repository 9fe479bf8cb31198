"""Rows of packet batches, in compiled code: whose they are, and where they go."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.compiled import njit
from innet.fabric.system_calls import Arrival

_SPREAD = np.int64(0x9E37_79B9_7F4A_7C15 - (1 << 64))  # 2**64 over the golden ratio, odd


@njit(cache=True, nogil=True)
def by_port(
    port: NDArray[np.int32], places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Rows ordered by port, those of a port as they came.

    Args:
        port: (n,) int32.
        places: (m,) int64: a number below m for each port that exists, -1 for the others.

    Returns:
        rows, in their new order; the place of each; how many rows have a port that does not exist.
    """
    starts = np.zeros(len(places) + 1, np.int64)
    unknown = 0
    for row in range(len(port)):
        place = places[port[row]] if 0 <= port[row] < len(places) else -1
        if place < 0:
            unknown += 1
        else:
            starts[place + 1] += 1
    for place in range(len(places)):
        starts[place + 1] += starts[place]
    rows = np.empty(len(port) - unknown, np.int64)
    place_of = np.empty(len(port) - unknown, np.int64)
    for row in range(len(port)):
        place = places[port[row]] if 0 <= port[row] < len(places) else -1
        if place >= 0:
            at = starts[place]
            starts[place] += 1
            rows[at] = row
            place_of[at] = place
    return rows, place_of, unknown


@njit(cache=True, nogil=True)
def place_of(key: int, keys: NDArray[np.int64]) -> int:
    """Where a table of a power of two of ``keys`` (0: none) has ``key``, or room for it."""
    mask = len(keys) - 1
    place = (key * _SPREAD >> 32) & mask
    while keys[place] not in (0, key):
        place = (place + 1) & mask
    return int(place)


class Senders(NamedTuple):
    """Whose packets are taken.

    Attributes:
        keys: (n,) int64, a table of senders, as ``place_of`` reads it.
        ports: (n,) int32: the port that each of them is.
    """

    keys: NDArray[np.int64]
    ports: NDArray[np.int32]


@njit(cache=True, nogil=True)
def keep_known(
    count: int, arrival: Arrival, port: NDArray[np.int32], segment: int, senders: Senders
) -> tuple[int, int]:
    """Keep the packets of known senders that have the right length.

    Args:
        count: how many packets there are.
        arrival: an Arrival; its rows are moved together.
        port: (rows,) int32, filled in.
        segment: bytes of a right packet.
        senders: a Senders.

    Returns:
        how many are kept, the first rows, in the order in which they came; how many of the right
        length were of unknown senders.
    """
    data, length, sender = arrival
    kept, unknown = 0, 0
    last = np.int64(-1)
    found = np.int32(-1)
    for row in range(count):
        if length[row] != segment:
            continue
        if sender[row] != last:
            last = sender[row]
            place = place_of(last, senders.keys)
            found = senders.ports[place] if senders.keys[place] == last else np.int32(-1)
        if found < 0:
            unknown += 1
            continue
        if kept != row:
            data[kept] = data[row]
        port[kept] = found
        kept += 1
    return kept, unknown
