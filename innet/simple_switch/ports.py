"""Where ``innet simple-switch`` gets its packets from, if not from network interfaces.

``FilePorts`` are capture files (simple_switch's ``--use-files``), ``MessagePorts`` are messages of
nanomsg (``--packet-in``). Both have the methods of ``innet.transport.raw.Ports`` that the switch
process calls.

Source of formats and order: BMv2's pcap_file.cpp and dev_mgr_packet_in.cpp.
"""

from __future__ import annotations

import enum
import heapq
import os
import queue
import select
import struct
import threading
import time
from collections.abc import Callable, Mapping
from itertools import repeat
from pathlib import Path

from innet.core.errors import InnetError, UnsupportedError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.core.pcap import PcapReader
from innet.simple_switch.nanomsg import Pair
from innet.tools.captures import CaptureWriter

_MOST_WAITING = 1024  # packets; simple_switch's input buffer holds as many


class _EpollPorts:
    """Waits for its own descriptor and for some of others."""

    def __init__(self) -> None:
        self.interfaces: dict[int, str] = {}
        self.woken = False
        self.dropped = self.undelivered = 0
        self._own = -1
        self._epoll = select.epoll()

    def watch(self, descriptor: int) -> None:
        """End the wait of ``receive`` also when this descriptor is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def _watch_own(self, descriptor: int) -> None:
        self._own = descriptor
        self.watch(descriptor)

    def _wait(self, timeout: float) -> bool:
        """Whether its own descriptor is readable."""
        ready = [descriptor for descriptor, _ in self._epoll.poll(timeout)]
        self.woken = any(descriptor != self._own for descriptor in ready)
        return self._own in ready

    def poll_interfaces(self) -> None:
        """Nothing: none of these ports goes."""

    def lost(self) -> int:
        """0: what waits in a file or a message queue is not lost on arrival."""
        return 0


# ----------------------------------------------------------------------------
# Files.


class FilePorts(_EpollPorts):
    """Packets from IFACE_in.pcap, and to IFACE_out.pcap, for each interface.

    They come in the order of their times, as fast as they are taken; the times do not matter else.
    A packet is taken when the next one of its file is known, or that there is none.

    Args:
        interfaces: by port.
        seconds: to wait before the first packet.
        folder: of the files.

    Raises:
        InputError, PacketError: a file cannot be read, or is no pcap file.
        OutputError: one cannot be written.
    """

    def __init__(
        self, interfaces: Mapping[int, str], seconds: float, folder: Path = Path()
    ) -> None:
        super().__init__()
        self._folder = folder
        self._seconds = seconds
        self._readers: list[tuple[int, PcapReader]] = []
        self._writers: dict[int, CaptureWriter] = {}
        self._arrived: queue.Queue[tuple[int, bytes]] = queue.Queue(_MOST_WAITING)
        self._error: InnetError | None = None
        self._started = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._watch_own(self._bell)
        try:
            for port, name in interfaces.items():
                self._open(port, name)
        except BaseException:
            self.close()
            raise

    def _open(self, port: int, name: str) -> None:
        path = self._folder / f"{name}_in.pcap"
        self._readers.append((port, PcapReader(path, f"--use-files: {path}")))
        path = self._folder / f"{name}_out.pcap"
        self._writers[port] = CaptureWriter(path, nano=False, replace=True)
        self._writers[port].flush()
        self.interfaces[port] = name

    def start(self) -> None:
        """Read from now on; called when the switch has a program."""
        self._started = True
        threading.Thread(target=self._read, name="files", daemon=True).start()

    def _read(self) -> None:
        time.sleep(self._seconds)
        try:
            # The first file with the earliest packet, as simple_switch looks for it.
            found = [zip(repeat(port), iter(reader.read, None)) for port, reader in self._readers]
            for port, record in heapq.merge(*found, key=lambda arrival: arrival[1].time):
                self._arrived.put((port, record.data))
                os.eventfd_write(self._bell, 1)
        except InnetError as error:
            self._error = error
            os.eventfd_write(self._bell, 1)
        finally:
            self._close_readers()

    def _close_readers(self) -> None:
        for _, reader in self._readers:
            reader.close()

    def receive(self, timeout: float) -> PacketBatch:
        """What was read, or is within ``timeout`` seconds.

        Raises:
            PacketError: a file is damaged. All packets before the damage were returned.
        """
        if self._wait(timeout):
            os.eventfd_read(self._bell)
        found: list[tuple[int, bytes]] = []
        while len(found) < _MOST_WAITING:
            try:
                found.append(self._arrived.get_nowait())
            except queue.Empty:
                break
        if not found and self._error is not None:
            raise self._error
        return PacketBatch.from_packets(found)

    def send(self, packets: PacketBatch) -> None:
        """Write packets to the files of their ports; others are lost."""
        for port, data in packets.to_packets():
            writer = self._writers.get(port)
            if writer is None:
                self.undelivered += 1
            else:
                writer.write_packet(time.time_ns(), data)
        for each in self._writers.values():
            each.flush()

    def add(self, port: int, interface: str) -> None:  # noqa: ARG002 - refused
        """Not while files are read."""
        raise UnsupportedError("ports cannot be added while packets come from files.")

    def remove(self, port: int) -> None:  # noqa: ARG002 - refused
        """Nor this."""
        raise UnsupportedError("ports cannot be removed while packets come from files.")

    def is_up(self, port: int) -> bool:
        return port in self.interfaces

    def close(self) -> None:
        for each in self._writers.values():
            each.close()
        self._epoll.close()
        if not self._started:  # else its thread does, when it does not wait for a pipe any more
            self._close_readers()


# ----------------------------------------------------------------------------
# Messages of nanomsg.

_MESSAGE = struct.Struct("<iii")
_NOT_SUPPORTED = 1


class _MessageType(enum.IntEnum):
    PORT_ADD = 0
    PORT_REMOVE = 1
    PORT_STATUS = 2
    PACKET_IN = 3
    PACKET_OUT = 4
    INFO_REQ = 5
    INFO_REP = 6


class MessagePorts(_EpollPorts):
    """Packets as messages of a nanomsg PAIR socket.

    A message is a header of three 32-bit integers, little-endian: its type, a port, and the length
    of the packet (or a status). The bytes of the packet follow. Ports need not be announced.

    Args:
        address: of nanomsg, such as ipc:///tmp/packets.ipc.
        log: takes a level and a line about a message that is not understood.

    Raises:
        MissingToolError: there is no nanomsg.
        NetworkError: the address cannot be used.
    """

    def __init__(self, address: str, log: Callable[[str, str], None]) -> None:
        super().__init__()
        self._log = log
        self._down: set[int] = set()
        self._pair = Pair(address)
        self._watch_own(self._pair.fileno())

    def receive(self, timeout: float) -> PacketBatch:
        """Packets that have arrived, or arrive within ``timeout`` seconds."""
        found: list[tuple[int, bytes]] = []
        if self._wait(timeout):
            while len(found) < _MOST_WAITING and (message := self._pair.receive()) is not None:
                packet = self._take(message)
                if packet is not None:
                    found.append(packet)
        return PacketBatch.from_packets(found)

    def _take(self, message: bytes) -> tuple[int, bytes] | None:
        if len(message) < _MESSAGE.size:
            self._log("error", f"message of {len(message)} bytes has no header")
            return None
        kind, port, more = _MESSAGE.unpack_from(message)
        match kind:
            case _MessageType.PACKET_IN:
                data = message[_MESSAGE.size :][: max(more, 0)]
                if len(data) == more and 0 <= port <= MAX_PORT:
                    return port, data
                self._log("error", f"message for port {port} with {len(data)} of {more} bytes")
            case _MessageType.PORT_ADD:
                self.interfaces.setdefault(port, "N/A")
            case _MessageType.PORT_REMOVE:
                self.interfaces.pop(port, None)
                self._down.discard(port)
            case _MessageType.PORT_STATUS:
                if port in self.interfaces and more in (0, 1):
                    (self._down.discard if more else self._down.add)(port)
                elif more not in (0, 1):
                    self._log("error", "Unknown port status requested")
            case _MessageType.INFO_REQ:
                answer = _MESSAGE.pack(_MessageType.INFO_REP, port, more)
                self._pair.send(answer + struct.pack("<i", _NOT_SUPPORTED))
            case _MessageType.PACKET_OUT | _MessageType.INFO_REP:
                self._log("error", f"Invalid {_MessageType(kind).name} message received")
            case _:
                self._log("error", "Unknown message type")
        return None

    def send(self, packets: PacketBatch) -> None:
        """Send each packet as a message."""
        for port, data in packets.to_packets():
            self._pair.send(_MESSAGE.pack(_MessageType.PACKET_OUT, port, len(data)) + data)

    def add(self, port: int, interface: str) -> None:  # noqa: ARG002 - refused
        """Not this way: a message announces ports."""
        raise UnsupportedError("ports come by messages while --packet-in is used.")

    def remove(self, port: int) -> None:  # noqa: ARG002 - refused
        """Nor this."""
        raise UnsupportedError("ports go by messages while --packet-in is used.")

    def is_up(self, port: int) -> bool:
        return port not in self._down

    def close(self) -> None:
        self._pair.close()
        self._epoll.close()
