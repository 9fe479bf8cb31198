"""The built-in switch as a service: one process, a UDP socket for frames, TCP for control.

A loop moves batches of frames through the program, sleeps if there are none, and answers clients
between batches. Its only timers are those for silent clients.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ipaddress
import os
import queue
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from innet import programs
from innet.core.errors import InnetError, InputError, NetworkError, StalledError
from innet.core.packets import PacketBatch
from innet.core.settings import ServiceSettings
from innet.service.connections import Client, Connections, Received, key_of, resolve
from innet.service.coordinator import JobCoordinator, JobMember, Jobs
from innet.service.forwarding import Forwarding, Wake
from innet.service.hosted_switch import Hosted, HostedSwitch
from innet.service.hosted_tree import HostedTrees
from innet.service.protocol import HELLO, TOKEN, Message, check_proof, check_versions, decode
from innet.service.slot_partition import SlotPartitions, check_servable, is_of_trees, plan_of
from innet.service.statistics import Parts, PortTraffic, statistics
from innet.transport.peers import Address, Peer, PeerPorts
from innet.transport.transports import (
    AUTO,
    AUTOMATIC,
    JoinedWorker,
    SwitchEnd,
    checked_transport,
    offer_key,
    provider_of,
)
from innet.wire import PacketLayout

T = TypeVar("T")

_TURN = 1.0  # seconds between two looks at silent clients, and at what a signal has asked for
_LOOKS = 64  # at frames, before clients are looked at again
_BACKLOG = 1024  # connections that wait to be accepted: all workers of a job may start at once
# Of the machine's for each thread that forwards. Workers that share memory with the switch need the
# others: where threads wait for a processor, packets that pass those of another one are sent again.
_CORES = 4
_PORT_TRIES = 20  # to find a port that is free for both protocols


class SwitchService:
    """A service. It listens after the constructor, and serves in ``run``.

    Args:
        settings: of the service.

    Attributes:
        address: the address that it listens at.
        layout: of the frames that the program takes, with framing "raw".
        threads: how many forward.
        threads_reason: why so many, as the end of a sentence.
        ports: those of workers over UDP and over shared memory.

    Raises:
        NetworkError: the address is not this machine's, or the port is in use.
        InputError: the settings do not fit each other, there is no transport of that name, or no
            key although other machines can reach the address.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        # Step 1: settings that do not fit are refused before anything is opened.
        check_servable(settings.program)  # rather than to ask for another number of values first
        transport = checked_transport(settings.transport)
        program = programs.find(settings.program, settings.values_per_packet)
        self.partitions = SlotPartitions.divide(program, settings.jobs, settings.workers_max)
        self._key = key_of(settings.key, settings.key_file)
        address = resolve(settings.listen)
        if self._key is None and not ipaddress.IPv4Address(address.ip).is_loopback:
            raise InputError(
                f"{address.ip} can be reached from other machines, and without a key anybody there "
                "could join; give a key (--key-file), or listen on 127.0.0.1."
            )
        self.refused = 0
        self._begun = time.monotonic()
        self._asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Step 2: sockets, the switch, and the ends of its transports. What the socket for frames
        # holds limits the windows of workers.
        self._ends: dict[str, SwitchEnd] = {}  # of transports, by name
        listener, data = _listen(address)
        self._wake, self._woken = socket.socketpair()  # other threads wake this one
        with contextlib.ExitStack() as opened:
            for sock in (listener, data, self._wake, self._woken):
                opened.callback(sock.close)
            self._wake.setblocking(False)
            self._woken.setblocking(False)
            self.address = Address(*listener.getsockname())
            self.layout = layout = PacketLayout(
                settings.values_per_packet, "raw", has_owners=program.has_owners
            )
            self.ports = PeerPorts(data, layout, ports=self.partitions.ports)
            opened.callback(self.ports.close)
            self.partitions = replace(
                self.partitions, max_queued=self.ports.room, max_window=settings.window
            )
            hosted = HostedTrees if is_of_trees(program.program) else HostedSwitch
            self._switch: Hosted = hosted(self.partitions, settings.engine)
            self._traffic = PortTraffic(layout.header_offset, self.partitions.ports)
            for name in AUTOMATIC if transport == AUTO else (transport,):
                end = provider_of(name).listen(self)
                if end is not None:
                    self._ends[name] = end
                    opened.callback(end.close)
            self.threads, self.threads_reason, memory = self._spread(settings.threads)
            self._forwarding = Forwarding(
                *(self.ports, self._switch, self._traffic, self._ends.values(), memory),
                left=self._rouse,
            )
            opened.callback(self._forwarding.close)
            self._selector = selectors.EpollSelector()  # of all but frames
            self._connections = Connections(listener, self._selector, self.partitions.ports)
            opened.pop_all()
        # Step 3: what ends a sleep besides frames: other threads, and the transports' hellos.
        self._selector.register(self._woken, selectors.EVENT_READ)
        for end in self._ends.values():
            for descriptor in end.descriptors():
                self._selector.register(descriptor, selectors.EVENT_READ, end)
        self._jobs = Jobs(
            self,
            self.partitions.jobs,
            self.partitions.workers,
            self._connections.send,
            offers=self._offers(required=transport != AUTO),
            released=self._release,
        )
        self._running = True
        self._is_closed = False

    def _spread(self, wanted: int | None) -> tuple[int, str, list[PacketBatch]]:
        """How many threads forward, the reason if it is one, and the memory of each."""
        cores = len(os.sched_getaffinity(0))
        threads = max(1, cores // _CORES) if wanted is None else wanted
        if threads == 1:
            return 1, "one was asked for" if wanted else f"workers need the {cores} processors", []
        others = [name for name in self._ends if name not in AUTOMATIC]
        if others:
            return 1, f"packets of transport {others[0]} pass through Python", []
        spread = self._switch.spread(self.ports.head, self.ports.least)
        threads = min(threads, spread.mask + 1)
        if spread.reason or threads == 1:
            return 1, spread.reason or "a job has too few slots", []
        place = spread.bit, spread.shift, spread.mask
        said = f"packets are spread by {spread.field}"
        return threads, said, self.ports.open_lanes(threads, *place)

    def _offers(self, *, required: bool) -> Message:
        """What workers who join have to know of the transports, by key.

        Args:
            required: this service takes nothing else.
        """
        found: Message = {}
        for name, end in self._ends.items():
            offer = end.offer()
            if offer is not None:
                found[offer_key(name, provider_of(name))] = {**offer, "required": required}
        return found

    @property
    def has_key(self) -> bool:
        """Whether clients must know a key."""
        return self._key is not None

    @property
    def has_workers(self) -> bool:
        """Whether there is a job."""
        return any(True for _ in self._jobs)

    def stop(self) -> None:
        """Make ``run`` return. May be called from a signal handler or another thread."""
        self._running = False
        self._rouse()

    def run(self) -> None:
        """Serve until ``stop``. Frames that have arrived by then are still answered."""
        try:
            look = time.monotonic() + _TURN
            while self._running:
                self._forward(look)
                ready = self._selector.select(0)
                if ready or time.monotonic() >= look or not self._running:
                    self._forwarding.pause()
                self._turn(ready)
                if time.monotonic() >= look:
                    look = time.monotonic() + _TURN
                    for client in self._connections.expire(time.monotonic()):
                        self._jobs.gone(client.number)
            self._forward()
            self._forwarding.pause()
            for client in list(self._connections):
                self._connections.dismiss(client, {"stopping": True})
        finally:
            self.close()

    def close(self) -> None:
        """Close all connections. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._forwarding.close()
        self._connections.close_all()
        self.ports.close()
        for end in self._ends.values():
            end.close()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics; ``docs/service.md`` explains all keys."""
        parts = Parts(self._switch, self.partitions, self.ports, self._jobs, self._traffic)
        return {
            "switch": {
                "address": str(self.address),
                "program": self.partitions.program.name,
                "seconds": round(time.monotonic() - self._begun, 3),
                "clients": len(self._connections),
                "refused_requests": self.refused,
                "threads": self.threads,
                "threads_reason": self.threads_reason,
                "jobs_max": self.partitions.jobs,
                "workers_max": self.partitions.workers,
            },
            **statistics(parts, time.monotonic()),
        }

    def ask(self, question: Callable[[], T], seconds: float = 5.0) -> T:
        """Call ``question`` in the thread of ``run``, between two batches.

        Raises:
            StalledError: it took longer than ``seconds``; or whatever the question raises.
        """
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def reply() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                answer.set_exception(error)

        self._asked.put(reply)
        self._rouse()
        try:
            return answer.result(seconds)
        except concurrent.futures.TimeoutError:
            if answer.done():
                raise
            raise StalledError(f"the switch service did not answer within {seconds:g} s.") from None

    def _rouse(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    # ------------------------------------------------------------------ called by jobs

    def begin_epoch(self, job: JobCoordinator) -> Message:
        """See ``Switches``."""
        peers: dict[int, Peer] = {}
        for worker in job.present:
            address = job.members[worker].address
            assert address is not None  # it is ready
            peers[self.partitions.port(job.partition, worker)] = address
        self._assign(job, peers)
        description = self.partitions.describe(job)
        self._switch.begin(job.partition, plan_of(description))
        return description

    def late_workers(self, job: JobCoordinator) -> frozenset[int]:
        """See ``Switches``."""
        return self._switch.late_workers(job.partition)

    def _assign(self, job: JobCoordinator, peers: Mapping[int, Peer]) -> None:
        """Let the ports of a job be those of peers, at all transports."""
        ports = self._ports_of(job)
        self.ports.assign(ports, peers)
        for end in self._ends.values():
            for port in ports:
                end.assign(port, peers.get(port))

    def _ports_of(self, job: JobCoordinator) -> range:
        return range(
            self.partitions.port(job.partition, 0), self.partitions.port(job.partition + 1, 0)
        )

    def end_job(self, job: JobCoordinator) -> None:
        """See ``Switches``."""
        self._switch.end(job.partition)
        self._assign(job, {})
        for port in self._ports_of(job):
            self._traffic.reset(port)
        for end in self._ends.values():
            end.end_job(job.partition)

    # ------------------------------------------------------------------ the loop

    def _turn(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        received = Received()
        for key, events in ready:
            if key.data is self._connections:
                self._connections.accept(time.monotonic())
            elif isinstance(key.data, Client):
                self._connections.serve(key.data, events, received)
            elif isinstance(key.data, SwitchEnd):
                self._serve(key.data)
            else:
                self._answer_threads()
        for client, line in received.lines:
            if not client.closing:  # since a line before this one: it would take a session for ever
                self._answer(client, line)
        for client in received.gone:
            self._jobs.gone(client.number)

    def _forward(self, until: float = 0.0) -> None:
        """Move frames until there is something else to do, or none arrive before ``until``."""
        looks, wake = _LOOKS, Wake(self._selector.fileno(), until)
        while looks:
            looks = self._forwarding.run(looks, wake)
            if self.ports.unknown_datagrams:
                self._forwarding.pause()
                for end in self._ends.values():
                    self._serve(end)
                self.ports.unknown_datagrams.clear()

    def _answer_threads(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        with contextlib.suppress(queue.Empty):
            while True:
                self._asked.get_nowait()()

    def _serve(self, end: SwitchEnd) -> None:
        """Let a transport handle what has arrived there."""
        packets = end.serve()
        if packets is None or not len(packets):
            return
        self.ports.counts.received += len(packets)
        right = packets.length == self.layout.frame_size
        if self.layout.has_owners:
            right |= packets.length == self.layout.bare_size
        if not right.all():
            self.ports.counts.wrong_length += int((~right).sum())
            packets = packets.take(right)
        self._forwarding.process(packets)

    # ------------------------------------------------------------------ called by transports

    def joined(self, hello: bytes) -> JoinedWorker | None:
        """See ``ServiceSide``."""
        found = self._jobs.joined(hello[len(HELLO) :]) if _is_hello(hello) else None
        if found is None:
            return None
        job, member = found
        window = self.partitions.window(job.workers)
        return JoinedWorker(job.partition, window, member.address)

    def admit(self, hello: bytes, peer: Peer) -> bool:
        """See ``ServiceSide``."""
        return _is_hello(hello) and self._jobs.hello(hello[len(HELLO) :], peer)

    def _release(self, member: JobMember) -> None:
        """A worker is gone."""
        if member.address is not None:
            for end in self._ends.values():
                end.release(member.address)

    # ------------------------------------------------------------------ control

    def _answer(self, client: Client, line: bytes) -> None:
        try:
            message = decode(line)
            if client.deadline is not None:
                self._first(client, message)
            else:
                self._later(client, message)
        except InnetError as error:
            self.refused += 1
            self._jobs.gone(client.number)
            self._connections.dismiss(client, {"error": str(error)})

    def _first(self, client: Client, message: Message) -> None:
        client.deadline = None
        check_versions(message, "the client")
        check_proof(message, client.nonce, self._key)
        kind = message.get("request")
        if kind == "join":
            self._jobs.join(client.number, message)
        elif kind == "statistics":
            self._connections.send(client.number, {"statistics": self.statistics()})
        else:
            raise InputError(
                f"a connection begins with a request to join, or for statistics, not {kind!r:.40}."
            )

    def _later(self, client: Client, message: Message) -> None:
        kind = message.get("request")
        if kind == "renew":
            self._jobs.renew(client.number, message)
        elif kind == "leave":
            self._jobs.gone(client.number, left=True)
            self._connections.dismiss(client, {"left_job": True})
        elif kind == "statistics":
            self._connections.send(client.number, {"statistics": self.statistics()})
        elif kind == "read":
            self._connections.send(client.number, self._read(client, message))
        else:
            raise InputError(f"unknown request {kind!r:.40}.")

    def _read(self, client: Client, message: Message) -> Message:
        switch, name, index = (message.get(key) for key in ("switch", "register", "index"))
        if not (isinstance(switch, str) and isinstance(name, str) and isinstance(index, int)):
            raise InputError("a register has a switch, a name and an index.")
        partition = self._jobs.partition_of(client.number)
        return {"value": self._switch.read_register(partition, switch, name, index)}


def _is_hello(text: bytes) -> bool:
    return len(text) == len(HELLO) + TOKEN and text.startswith(HELLO)


def _listen(where: Address) -> tuple[socket.socket, socket.socket]:
    """A TCP and a UDP socket at the same address and port."""
    tries = 1 if where.udp_port else _PORT_TRIES
    for last in range(tries - 1, -1, -1):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # Connections of an earlier service may still be closing.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(tuple(where))
            data.bind(listener.getsockname())
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            data.close()
            if last:
                continue
            raise NetworkError(
                f"cannot listen at {where}: {error.strerror}. The address must "
                "be one of this machine's, and the port free for TCP and UDP."
            ) from None
        return listener, data
    raise AssertionError("the last try returns or raises")
