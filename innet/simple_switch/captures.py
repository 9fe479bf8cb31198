"""Captures of a switch's interfaces, as simple_switch's option --pcap makes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import OutputError
from innet.core.numba_cache import njit
from innet.core.packets import PacketBatch
from innet.core.pcap_kernels import write_records
from innet.tools.captures import CaptureWriter
from innet.transport.system_calls import by_port, real_time, write_bytes

_Packets = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]


class CaptureFiles(NamedTuple):
    """What compiled code needs of ``Captures``.

    Attributes:
        files: (k, 2) int64: descriptors for what arrives and for what leaves, by place.
        places: (m,) int64: the place of each port, -1 where there is none.
        clock: (1,) int64: the time of the next packet at least, in nanoseconds since 1970.
        failed: (2,) int64: errno of the first call that failed, or 0; the number of its file.
    """

    files: NDArray[np.int64]
    places: NDArray[np.int64]
    clock: NDArray[np.int64]
    failed: NDArray[np.int64]

    @classmethod
    def none(cls) -> CaptureFiles:
        """Of no interface."""
        empty = np.zeros(0, np.int64)
        return cls(empty.reshape(0, 2), empty, np.zeros(1, np.int64), np.zeros(2, np.int64))


class Captures:
    """Captures of every interface, separate for arriving and leaving packets, named as by
    simple_switch.

    Args:
        folder: for s1-eth1_in.pcap, s1-eth1_out.pcap and so on; existing files are replaced.
        interfaces: by port.

    Attributes:
        compiled: for compiled code, which calls ``capture``.

    Raises:
        OutputError: a file cannot be written.
    """

    def __init__(self, folder: Path, interfaces: Mapping[int, str]) -> None:
        self._writers: list[CaptureWriter] = []
        for name in interfaces.values():
            for way in ("in", "out"):
                path = folder / f"{name}_{way}.pcap"
                path.unlink(missing_ok=True)
                writer = CaptureWriter(path, nano=True)
                writer.flush()
                self._writers.append(writer)
        files = np.array([each.fileno() for each in self._writers], np.int64)
        places = np.full(max(interfaces, default=0) + 1, -1, np.int64)
        places[list(interfaces)] = np.arange(len(interfaces))
        none = CaptureFiles.none()
        self.compiled = none._replace(files=files.reshape(-1, 2), places=places)

    def write(self, arrived: PacketBatch, left: PacketBatch) -> None:
        """Append what arrived and what left, as ``capture`` does.

        Raises:
            OutputError: a file could not be written.
        """
        first, second = (
            (np.ascontiguousarray(each.data), each.length, each.port) for each in (arrived, left)
        )
        if capture(self.compiled, first, second):
            self.fail()

    def fail(self) -> None:
        """Raise the OutputError of the file that ``capture`` could not write."""
        number, file = self.compiled.failed.tolist()
        raise OutputError.of(self._writers[file].path, OSError(number, os.strerror(number)))

    def close(self) -> None:
        for each in self._writers:
            each.close()


@njit(cache=True, nogil=True)
def capture(captures: CaptureFiles, arrived: _Packets, left: _Packets) -> int:
    """Append what arrived and what left. All arriving packets have different time stamps.

    The files hold them at once, whatever ends the process: p4-utils ends switches by SIGKILL.
    A replay of the captures has the order in which the switch took the packets.

    Args:
        captures: files, and the clock, which is moved on.
        arrived: bytes (n, stride), lengths (n,) and ports (n,) of packets. Those of ports without a
            capture are left out.
        left: likewise.

    Returns:
        0, or not if a file could not be written; ``captures.failed`` says which.
    """
    if len(captures.files) == 0:
        return 0
    words = np.zeros(2, np.int64)
    clock = max(real_time(words), captures.clock[0])
    end = clock + max(len(arrived[2]), 1)
    captures.clock[0] = end
    for way in range(2):
        data, length, port = arrived if way == 0 else left
        times = np.empty(len(port), np.int64)
        for row in range(len(port)):
            times[row] = clock + row if way == 0 else end - 1
        # One call for each file.
        rows, places, _ = by_port(port, captures.places)
        begin = 0
        while begin < len(rows):
            until = begin + 1
            while until < len(rows) and places[until] == places[begin]:
                until += 1
            records = write_records(data, length, length, times, rows[begin:until], 1)
            number = write_bytes(captures.files[places[begin], way], records)
            if number != 0 and captures.failed[0] == 0:
                captures.failed[0] = number
                captures.failed[1] = 2 * places[begin] + way
            begin = until
    return int(captures.failed[0])
