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
                self._writers[way, port] = CaptureWriter(path, nano=True)

    def write(self, arrived: PacketBatch, left: PacketBatch) -> None:
        """Append a batch and its output. All arriving packets have different time stamps.

        So a replay of the captures has the order in which the switch took the packets.
        """
        self._clock = max(time.time_ns(), self._clock)
        times = self._clock + np.arange(len(arrived), dtype=np.int64)
        self._clock += len(arrived)
        for way, packets in (("in", arrived), ("out", left)):
            when = times if way == "in" else np.full(len(packets), times[-1], np.int64)
            for port in np.unique(packets.port).tolist():
                if (way, port) in self._writers:
                    rows = np.flatnonzero(packets.port == port)
                    self._writers[way, port].write(packets.data, packets.length, when, rows)

    def close(self) -> None:
        for each in self._writers.values():
            each.close()
