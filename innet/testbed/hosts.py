"""Hosts of a testbed: coroutines that send and receive frames, and UDP sockets."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from innet.core.errors import InputError, StateError
from innet.sim.flows import LONGEST_FRAME, MOST_PAYLOAD, udp_frame
from innet.sim.scripts import ScriptedHost, ScriptPort
from innet.sim.state import BYTE_ONE, SHORTEST_FRAME
from innet.testbed.tasks import FOREVER, BedNode, BedTimer, HostTask, suspended, ticks_of

_IPV4, _UDP = b"\x08\x00\x45", 17  # without options
_HEADERS = 42  # bytes of Ethernet, IPv4 without options, and UDP
_BROADCAST = "ff:ff:ff:ff:ff:ff"

Match = Callable[[bytes], bool]


class _Reader:
    """A task that waits for a frame."""

    __slots__ = ("match", "task", "timer")

    def __init__(self, task: HostTask, match: Match | None) -> None:
        self.task, self.match = task, match
        self.timer: BedTimer | None = None


class BedInbox:
    """What has come, and the tasks that wait for more; in order.

    Args:
        node: whose it is.
        room: how many wait at most; what comes then is dropped.

    Attributes:
        dropped: how many were.
    """

    def __init__(self, node: BedNode, room: int) -> None:
        self._node, self._room = node, room
        self._waiting: deque[Any] = deque()
        self._readers: deque[_Reader] = deque()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: Any) -> None:
        """Something comes: the first task that waits for it goes on with it, or it waits."""
        for reader in self._readers:
            if reader.match is None or reader.match(item):
                self._readers.remove(reader)
                if reader.timer is not None:
                    reader.timer.call = None
                reader.task.step(item)
                return
        if len(self._waiting) < self._room:
            self._waiting.append(item)
        else:
            self.dropped += 1

    async def get(self, timeout: float | None = None, match: Match | None = None) -> Any:
        """The first thing that matches; None at the time-out."""
        node, waiting = self._node, self._waiting
        task = node.current  # refuses tasks of others
        if waiting:
            if match is None:
                return waiting.popleft()
            for at, item in enumerate(waiting):
                if match(item):
                    del waiting[at]
                    return item
        reader = _Reader(task, match)
        if timeout is not None:
            due = node.ticks + ticks_of(timeout, "a time-out")
            reader.timer = node._at(due, lambda: self._give_up(reader))
        self._readers.append(reader)
        return await suspended

    def _give_up(self, reader: _Reader) -> None:
        self._readers.remove(reader)
        reader.task.step(None)


class Datagram(NamedTuple):
    """What a UDP socket received.

    Attributes:
        payload: its bytes.
        address: from where, such as "10.0.0.1".
        port: likewise.
        mac: the Ethernet address of the sender.
    """

    payload: bytes
    address: str
    port: int
    mac: str


class BedSocket:
    """A UDP port of a host; see ``BedHost.udp``.

    Attributes:
        port: its number.
    """

    def __init__(self, host: BedHost, port: int, room: int) -> None:
        self._host, self.port = host, port
        self._inbox = BedInbox(host, room)

    @property
    def dropped(self) -> int:
        """Datagrams that found no room."""
        return self._inbox.dropped

    def send(self, payload: bytes, address: str, port: int, *, mac: str | None = None) -> None:
        """Send a datagram now.

        Args:
            payload: its bytes.
            address: a host's, as ``BedHost.ip`` has it, or any other.
            port: there.
            mac: the Ethernet address that the frame goes to; by default that of the host with the
                address, or all hosts (broadcast) if none has it.
        """
        host = self._host
        if not 0 <= port <= 0xFFFF:
            raise InputError(f"UDP port {port} is none; give 0 to 65535.")
        if len(payload) > MOST_PAYLOAD:
            raise InputError(f"a datagram of {len(payload)} bytes; UDP takes {MOST_PAYLOAD}.")
        target = host.mac_of(address) if mac is None else mac
        host.send(
            udp_frame(
                0,
                1,
                len(payload),
                ethernet=(_number(host.mac, ":", 16), _number(target, ":", 16)),
                ipv4=(_number(host.ip, ".", 10), _number(address, ".", 10)),
                ports=(self.port, port),
                payload=payload,
            )
        )

    def receive(self, timeout: float | None = None) -> Coroutine[Any, Any, Any]:
        """Await it for the next ``Datagram``; None at the time-out, in seconds."""
        return self._inbox.get(timeout)

    def deliver(self, frame: bytes) -> None:
        """A datagram for this port has come."""
        source_port, _, length = struct.unpack_from(">HHH", frame, 34)
        payload = frame[_HEADERS : _HEADERS + max(0, length - 8)]
        address = ".".join(map(str, frame[26:30]))
        self._inbox.put(Datagram(payload, address, source_port, frame[6:12].hex(":")))


class BedHost(BedNode, ScriptedHost):
    """A host, whose coroutines send and receive frames.

    A frame is what Ethernet carries, from the addresses on, without check sequence. A packet takes
    of the host what the network says (``host_receive``, ``host_send``), one after the other.

    Args:
        name: of the host.
        number: of it in the bed, from 1: 10.0.0.1, 02:00:00:00:00:01.
        longest: bytes of the longest frame that it may send.
        room: frames that wait for a task of the host at most; what comes then is dropped.

    Attributes:
        ip, mac: its addresses.
        sent, received: frames, and ``sent_bytes``, ``received_bytes``.
    """

    def __init__(self, name: str, number: int, longest: int, room: int) -> None:
        super().__init__(name)
        high, low = divmod(number, 256)
        self.ip, self.mac = f"10.0.{high}.{low}", f"02:00:00:00:{high:02x}:{low:02x}"
        self._longest = longest
        self._inbox = BedInbox(self, room)
        self._sockets: dict[int, BedSocket] = {}
        self._directory: Mapping[str, str] = {}
        self._ports: list[ScriptPort] = []
        self._numbers: list[int] = []  # of its links' ends in the network
        # Frames that have come, and when; the one that the host works on, and until when.
        self._come: deque[tuple[int, bytes]] = deque()
        self._in_work: bytes | None = None
        self._done_at = FOREVER
        self._free = self._late = 0
        self._out: list[tuple[list[int], list[bytes]]] = []
        self._worked = 0
        self._is_running = False
        self._pace = self._paced = 0
        self.sent = self.received = self.sent_bytes = self.received_bytes = 0

    # ------------------------------------------------------------------ for coroutines

    def send(self, packet: Any, *, link: int = 0, at: float | None = None) -> None:
        """Send a frame, as soon as the host has done with what came before.

        Args:
            packet: bytes, or a packet of scapy.
            link: which of the host's links, in the order in which they were made.
            at: simulated seconds; by default now.

        Raises:
            InputError: too short or too long for a frame, or a link that there is not.
            StateError: another host's coroutine calls this.
        """
        frame = packet if type(packet) is bytes else bytes(packet)
        if not SHORTEST_FRAME <= len(frame) <= self._longest:
            raise InputError(
                f"{self.name} is to send a frame of {len(frame)} bytes; here they have "
                f"{SHORTEST_FRAME} to {self._longest}: Testbed(frame_size=...) allows up to "
                f"{LONGEST_FRAME}."
            )
        if not self._is_running:
            self._require_no_time()
            at = 0.0 if at is None else at
        elif at is None:
            self._put(frame, link)
            return
        self.at(at, lambda: self._put(frame, link))

    def receive(
        self, timeout: float | None = None, *, match: Match | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Await it for the next frame, as bytes.

        Args:
            timeout: seconds until there is None instead; by default it waits for ever.
            match: says of a frame whether it is wanted; others wait for other calls.
        """
        return self._inbox.get(timeout, match)

    def udp(self, port: int | None = None, *, room: int = 4096) -> BedSocket:
        """Open a UDP port: its datagrams do not come to ``receive`` then.

        Args:
            port: its number; by default a free one from 49152 on.
            room: datagrams that wait for ``BedSocket.receive`` at most.

        Raises:
            InputError: it is open already, or no port has this number.
        """
        if port is None:
            port = next(p for p in range(49152, 65536) if p not in self._sockets)
        if port in self._sockets or not 0 < port < 65536:
            why = "is open already" if port in self._sockets else "is none; give 1 to 65535"
            raise InputError(f"UDP port {port} of {self.name} {why}.")
        self._sockets[port] = BedSocket(self, port, room)
        return self._sockets[port]

    def pace(self, rate: float | None) -> None:
        """Let frames leave at a rate, bits per second, evenly spaced; None: as fast as they can."""
        self._pace = 0 if rate is None else round(rate)

    def mac_of(self, ip: str) -> str:
        """The Ethernet address of the host with an IP address; broadcast if there is none."""
        return self._directory.get(ip, _BROADCAST)

    @property
    def waiting(self) -> int:
        """Frames that wait for ``receive``."""
        return len(self._inbox)

    @property
    def dropped(self) -> int:
        """Frames that were dropped as too many waited for ``receive`` or a socket."""
        return self._inbox.dropped + sum(each.dropped for each in self._sockets.values())

    # ------------------------------------------------------------------ events

    def _detach(self) -> None:
        self._ports.clear()
        self._out.clear()

    def attach(self, ports: ScriptPort) -> None:
        self._ports.append(ports)
        self._ports.sort(key=_number_of)  # in the order in which its links were made
        self._out.append(([], []))

    def run_window(self, until: int) -> None:
        """Do what happens before a time: arrivals, the end of work on a frame, timers."""
        # Step 1: take what comes. Of several links, what came first is first.
        come = self._ports[0].take(until)
        if len(self._ports) > 1:
            for port in self._ports[1:]:
                come += port.take(until)
            come.sort(key=_time_of)
        self._come.extend(come)
        # Step 2: one event after the other, in order of time.
        self._is_running = True
        try:
            self._run_events(until)
        finally:
            self._is_running = False
        # Step 3: hand over what it sends, and say when it is to be called again.
        for port, (times, frames) in zip(self._ports, self._out, strict=True):
            if frames:
                port.put(times, frames)
                times.clear()
                frames.clear()
        first = self._ports[0]
        first.plan(min(self._next_timer(), self._done_at))
        for port in self._ports[1:]:
            port.plan(FOREVER)
        if self._worked:
            first.worked(self._worked)
            self._worked = 0
        if self._left == 0:
            first.close(self.ticks)

    def _run_events(self, until: int) -> None:
        """Arrivals, the end of work on a frame, timers: one after the other.

        The host takes up a frame when it has answered the one before.
        """
        port, come, timers = self._ports[0], self._come, self._timers
        while True:
            due = timers[0][0] if timers else FOREVER
            done = self._done_at
            if done == FOREVER and come and come[0][0] <= due:
                time, self._in_work = come.popleft()
                self._done_at = self._work_on(port, port.receives, len(self._in_work), time)
            elif done <= due:
                if done >= until:
                    return
                frame = self._in_work
                assert frame is not None, "it is done with it"
                self.ticks, self._done_at = done, FOREVER
                self.received += 1
                self.received_bytes += len(frame)
                if self._sockets:
                    self._deliver(frame)
                else:
                    self._inbox.put(frame)
            elif due >= until:
                return
            else:
                self._run_timer()

    def _deliver(self, frame: bytes) -> None:
        """The host has done with a frame that has come."""
        is_udp = len(frame) >= _HEADERS and frame[12:15] == _IPV4 and frame[23] == _UDP
        socket = self._sockets.get(frame[36] << 8 | frame[37]) if is_udp else None
        if socket is None:
            self._inbox.put(frame)
        else:
            socket.deliver(frame)

    def _work_on(self, port: ScriptPort, took: int, length: int, now: int) -> int:
        """When the host has done with a frame that it begins with at ``now``, or later."""
        if port.byte:
            took += port.byte * length // BYTE_ONE
        self._worked += took
        self._free = done = (self._free if self._free > now else now) + took
        if port.jitter == 0:
            return done
        self._late = max(self._late, done + port.late())
        return self._late

    def _put(self, frame: bytes, link: int) -> None:
        """Send a frame now."""
        if not 0 <= link < len(self._ports):
            raise InputError(
                f"{self.name} has no link {link}; it has {len(self._ports)}, counted from 0."
            )
        port = self._ports[link]
        length = len(frame)
        leaves = self._work_on(port, port.sends, length, self.ticks)
        if self._pace:
            leaves = max(leaves, self._paced)
            self._paced = leaves + port.wire_time(length, self._pace)
        times, frames = self._out[link]
        times.append(leaves)
        frames.append(frame)
        self.sent += 1
        self.sent_bytes += length

    def _require_no_time(self) -> None:
        if self._ports:
            raise StateError(
                f"{self.name}.send is called when it is not {self.name}'s turn: call it in a "
                f"coroutine of {self.name}."
            )


def _number_of(port: ScriptPort) -> int:
    return port.number


def _time_of(arrival: tuple[int, bytes]) -> int:
    return arrival[0]


def _number(address: str, separator: str, base: int) -> int:
    try:
        return int.from_bytes(bytes(int(part, base) for part in address.split(separator)), "big")
    except ValueError:
        raise InputError(
            f"{address!r} is no address; give one such as 10.0.0.1 or 02:00:00:00:00:01."
        ) from None
