"""Where ``innet simple-switch`` gets its packets from, if not from network interfaces.

``FilePorts`` are capture files (simple_switch's ``--use-files``), ``MessagePorts`` are messages of
nanomsg (``--packet-in``). Both have the methods of ``innet.transport.raw.Ports`` that the switch
process calls.

Source of formats and order: BMv2's pcap_file.cpp and dev_mgr_packet_in.cpp.
"""

from __future__ import annotations

import enum
import os
import queue
import select
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from innet.bmv2.nanomsg import Pair
from innet.core.errors import InnetError, InputError, OutputError, PacketError, UnsupportedError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.tools.captures import warn_of_link

_MOST_WAITING = 1024  # packets; simple_switch's input buffer holds as many
_FILE = struct.Struct("<IHHiIII")
_RECORD = {"<": struct.Struct("<IIII"), ">": struct.Struct(">IIII")}
_MAGIC = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}  # and the nanoseconds of a fraction's unit
_ETHERNET = 1
_LONGEST = 1 << 18
_NANOSECONDS = 1_000_000_000


class SwitchPorts(Protocol):
    """What the switch process calls; see ``innet.transport.raw.Ports``."""

    @property
    def interfaces(self) -> Mapping[int, str]: ...
    @property
    def woken(self) -> bool: ...
    @property
    def dropped(self) -> int: ...
    @property
    def undelivered(self) -> int: ...
    def lost(self) -> int: ...
    def add(self, port: int, interface: str) -> None: ...
    def remove(self, port: int) -> None: ...
    def is_up(self, port: int) -> bool: ...
    def poll_interfaces(self) -> None: ...
    def watch(self, descriptor: int) -> None: ...
    def receive(self, timeout: float) -> PacketBatch: ...
    def send(self, packets: PacketBatch) -> None: ...
    def close(self) -> None: ...


class _Waiting:
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


class Record(NamedTuple):
    """A packet of a capture: its time in nanoseconds, and its bytes."""

    time: int
    data: bytes


class PcapReader:
    """A pcap file or pipe, read packet by packet as it grows.

    Raises:
        InputError: it cannot be read.
        PacketError: it is no pcap file, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: IO[bytes] = path.open("rb")
            head = self._file.read(_FILE.size)
        except OSError as error:
            raise InputError(f"--use-files: {path} cannot be read: {error.strerror}.") from None
        for order in "<>":
            magic = struct.unpack_from(f"{order}I", head.ljust(4, b"\0"))[0]
            if len(head) == _FILE.size and magic in _MAGIC:
                self._order, self._unit = order, _MAGIC[magic]
                warn_of_link(path, struct.unpack_from(f"{order}I", head, 20)[0] & 0xFFFF)
                return
        self._file.close()
        raise PacketError(f"--use-files: {path} is no pcap file.")

    def read(self) -> Record | None:
        """The next packet; None at the end. It waits for one if the file is a pipe."""
        record = _RECORD[self._order]
        head = self._file.read(record.size)
        if not head:
            return None
        if len(head) == record.size:
            seconds, fraction, kept, length = record.unpack(head)
            if kept != length:
                raise PacketError(
                    f"--use-files: {self.path} has a packet of {length} bytes of which only {kept} "
                    "were captured; capture whole packets."
                )
            if kept > _LONGEST:
                raise PacketError(f"--use-files: {self.path} claims a packet of {kept} bytes.")
            data = self._file.read(kept)
            if len(data) == kept:
                return Record(seconds * _NANOSECONDS + fraction * self._unit, data)
        raise PacketError(f"--use-files: {self.path} ends within a packet.")

    def close(self) -> None:
        self._file.close()


class PcapWriter:
    """A pcap file that gets packets as they leave.

    Raises:
        OutputError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("wb")
            self._file.write(_FILE.pack(0xA1B2C3D4, 2, 4, 0, 0, _LONGEST, _ETHERNET))
            self._file.flush()
        except OSError as error:
            raise OutputError.of(path, error) from None

    def write(self, data: bytes) -> None:
        seconds, nanoseconds = divmod(time.time_ns(), _NANOSECONDS)
        head = _RECORD["<"].pack(seconds, nanoseconds // 1000, len(data), len(data))
        try:
            self._file.write(head + data)
        except OSError as error:
            raise OutputError.of(self._path, error) from None

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class FilePorts(_Waiting):
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
        self._writers: dict[int, PcapWriter] = {}
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
        self._readers.append((port, PcapReader(self._folder / f"{name}_in.pcap")))
        self._writers[port] = PcapWriter(self._folder / f"{name}_out.pcap")
        self.interfaces[port] = name

    def start(self) -> None:
        """Read from now on; called when the switch has a program."""
        self._started = True
        threading.Thread(target=self._read, name="files", daemon=True).start()

    def _read(self) -> None:
        time.sleep(self._seconds)
        try:
            next_of = {port: reader.read() for port, reader in self._readers}
            readers = dict(self._readers)
            while True:
                known = [(each.time, port) for port, each in next_of.items() if each is not None]
                if not known:
                    return
                # The first file with the earliest packet, as simple_switch looks for it.
                earliest = min(when for when, _ in known)
                port = next(port for when, port in known if when == earliest)
                record = next_of[port]
                assert record is not None
                self._arrived.put((port, record.data))
                os.eventfd_write(self._bell, 1)
                next_of[port] = readers[port].read()
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
                writer.write(data)
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


class _Kind(enum.IntEnum):
    PORT_ADD = 0
    PORT_REMOVE = 1
    PORT_STATUS = 2
    PACKET_IN = 3
    PACKET_OUT = 4
    INFO_REQ = 5
    INFO_REP = 6


class MessagePorts(_Waiting):
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
            case _Kind.PACKET_IN:
                data = message[_MESSAGE.size :][: max(more, 0)]
                if len(data) == more and 0 <= port <= MAX_PORT:
                    return port, data
                self._log("error", f"message for port {port} with {len(data)} of {more} bytes")
            case _Kind.PORT_ADD:
                self.interfaces.setdefault(port, "N/A")
            case _Kind.PORT_REMOVE:
                self.interfaces.pop(port, None)
                self._down.discard(port)
            case _Kind.PORT_STATUS:
                if port in self.interfaces and more in (0, 1):
                    (self._down.discard if more else self._down.add)(port)
                elif more not in (0, 1):
                    self._log("error", "Unknown port status requested")
            case _Kind.INFO_REQ:
                answer = _MESSAGE.pack(_Kind.INFO_REP, port, more)
                self._pair.send(answer + struct.pack("<i", _NOT_SUPPORTED))
            case _Kind.PACKET_OUT | _Kind.INFO_REP:
                self._log("error", f"Invalid {_Kind(kind).name} message received")
            case _:
                self._log("error", "Unknown message type")
        return None

    def send(self, packets: PacketBatch) -> None:
        """Send each packet as a message."""
        for port, data in packets.to_packets():
            self._pair.send(_MESSAGE.pack(_Kind.PACKET_OUT, port, len(data)) + data)

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
