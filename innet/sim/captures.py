"""Captures of simulated links: one pcap for each direction, with times in nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, OutputError, StateError
from innet.core.pcap import pcap_header
from innet.core.pcap_kernels import write_records
from innet.sim.flows import Flow, udp_frame
from innet.sim.network import SECOND
from innet.sim.simulation import Simulation

_NANOSECOND = 1000  # picoseconds
_HEADERS = 42  # bytes of Ethernet, IPv4 and UDP


class LinkCaptures:
    """Capture files of all links of a simulation, in a folder.

    A link's file is named by its ends, such as ``host0-to-s1.1.pcap`` or ``s1.3-to-s2.1.pcap``
    (switch and port). It holds each packet that was put onto the link, lost ones included, at the
    time of its first bit. Packets of flows without bytes have the headers of UDP packets there, and
    are cut behind them; so are thin packets behind what they carry.

    Args:
        simulation: whose packets are recorded from now on.
        folder: is made if need be. Captures of the same names are replaced.

    Attributes:
        packets: how many were written.
        files: their paths, in the order of the links.

    Raises:
        InputError: the folder cannot be made.
        OutputError: a file cannot be written.
    """

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        self.packets = 0
        self._simulation = simulation
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make {folder}: {error.strerror or error}.") from None
        self.files = [
            folder / f"{_plain(link.source)}-to-{_plain(link.target)}.pcap"
            for link in simulation.link_counts()
        ]
        for path in self.files:
            try:
                path.write_bytes(pcap_header(nano=True))
            except OSError as error:
                raise OutputError.of(path, error) from None
        simulation.trace(self._write)

    def _write(self, records: NDArray[Any], data: NDArray[np.uint8]) -> None:
        """Append packets to the files of their links."""
        packets, carried = with_headers(records, data, self._simulation.known_flows)
        lengths, times = records["length"].copy(), records["time"] // _NANOSECOND
        order = np.argsort(records["link"], kind="stable")
        links, first = np.unique(records["link"][order], return_index=True)
        for link, rows in zip(links, np.split(order, first[1:]), strict=True):
            path = self.files[link]
            try:
                with path.open("ab") as file:
                    file.write(write_records(packets, carried, lengths, times, rows, 1).data)
            except OSError as error:
                raise OutputError.of(path, error) from None
        self.packets += len(records)


@contextmanager
def record_links(
    simulation: Simulation, frames: list[tuple[float, int, bytes]], limit: int | None
) -> Iterator[None]:
    """Record the packets of the program on hosts' links while the context is open.

    Args:
        simulation: whose packets.
        frames: filled when the context closes: seconds, host + 1, bytes, by time and then by link.
        limit: the most packets to record.

    Raises:
        StateError: packets are already being recorded.
    """
    if simulation.is_traced:
        raise StateError("packets are being recorded already; close that context first.")
    hosts = simulation.cables_of_hosts()
    found: list[tuple[int, int, bytes]] = []

    def keep(records: NDArray[Any], data: NDArray[np.uint8]) -> None:
        for record, row in zip(records, data, strict=True):
            if record["flow"] < 0:
                taken = row[: int(record["carried"])].tobytes()
                found.append((int(record["time"]), int(record["link"]), taken))
        if limit is not None and len(found) > 2 * limit + len(records):
            found[:] = sorted(found, key=_when)[:limit]

    simulation.trace(keep, list(hosts))
    try:
        yield
    finally:
        simulation.stop_trace()
        found.sort(key=_when)
        frames.extend(
            (time / SECOND, hosts[link // 2] + 1, taken) for time, link, taken in found[:limit]
        )


def _when(packet: tuple[int, int, bytes]) -> tuple[int, int]:
    return packet[:2]


def _plain(end: str) -> str:
    """The name of a link's end, for names of files."""
    return re.sub(r"[^\w.]", "", end.replace(":", "."))


def with_headers(
    records: NDArray[Any], data: NDArray[np.uint8], flows: Sequence[Any]
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """What captures hold of packets, and how many bytes: those of flows without bytes are headers,
    and zeros where it is not known whose.
    """
    plain = records["flow"] >= 0
    if not plain.any():
        return data, records["carried"].copy()
    headers = np.zeros((len(flows) + 1, _HEADERS), np.uint8)  # the last: of packets of no flow
    for row, flow in zip(headers, flows, strict=False):
        if isinstance(flow, Flow):
            frame = udp_frame(flow.source, flow.destination, flow.size)
            row[:] = np.frombuffer(frame[:_HEADERS], np.uint8)
    packets = np.empty((len(data), max(data.shape[1], _HEADERS)), np.uint8)
    packets[:, : data.shape[1]] = data
    packets[plain, :_HEADERS] = headers[np.minimum(records["flow"][plain], len(flows))]
    return packets, np.where(plain, np.int32(_HEADERS), records["carried"])
