"""Captures of a switch's interfaces, as simple_switch's option --pcap makes them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from innet.core.packets import PacketBatch
from innet.tools.captures import CaptureWriter


class Captures:
    """Captures of every interface, separate for arriving and leaving packets, named as by
    simple_switch.

    Args:
        folder: for s1-eth1_in.pcap, s1-eth1_out.pcap and so on; existing files are replaced.
        interfaces: by port.

    Raises:
        InputError: a file cannot be written.
    """

    def __init__(self, folder: Path, interfaces: Mapping[int, str]) -> None:
        self._writers: dict[tuple[str, int], CaptureWriter] = {}
        self._clock = 0
        for port, name in interfaces.items():
            for way in ("in", "out"):
                path = folder / f"{name}_{way}.pcap"
                path.unlink(missing_ok=True)
                writer = CaptureWriter(path, nano=True)
                writer.flush()
                self._writers[way, port] = writer

    def write(self, arrived: PacketBatch, left: PacketBatch) -> None:
        """Append what arrived and what left. All arriving packets have different time stamps.

        The files hold them at once, whatever ends the process: p4-utils ends switches by SIGKILL.
        A replay of the captures has the order in which the switch took the packets.
        """
        self._clock = max(time.time_ns(), self._clock)
        times = self._clock + np.arange(len(arrived), dtype=np.int64)
        self._clock += max(len(arrived), 1)
        for way, packets in (("in", arrived), ("out", left)):
            last = np.full(len(packets), self._clock - 1, np.int64)
            when = times if way == "in" else last
            for port in set(packets.port.tolist()):
                if (writer := self._writers.get((way, port))) is not None:
                    rows = np.flatnonzero(packets.port == port)
                    writer.write(packets.data, packets.length, when, rows)
                    writer.flush()

    def close(self) -> None:
        for each in self._writers.values():
            each.close()
