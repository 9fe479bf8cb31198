"""Updates over P4Runtime as a controller sees them, with client and switch in separate processes.

    python -m benchmarks.p4runtime_updates [--written 100000] [--kind exact]... [--json]
    python -m benchmarks.p4runtime_updates --requests [--kind exact]... [--json]
    sudo python -m benchmarks.p4runtime_updates --interfaces [--kind exact]... [--json]

The first writes entries into an empty table in batches of 1,000 and tells the elapsed time from the
first request to the last answer. The requests are built before. It tells the processor time of the
switch's process, too, which other programs on the machine hardly change.

With ``--requests`` each request has one update. Beside the switch there is a gRPC server whose
Write does nothing, on the same loop, which is the bound for a server in Python. The same client
sends the same requests to both in turn, one after the other or several under way.

With ``--interfaces`` a host sends windows of frames through two cables and ``innet
simple-switch-grpc`` to another, and the next window when all have come. Parts without
requests, with 1,000 updates a second of the table that the frames are looked up in, and with the
same requests to the bare server take turns. Every frame has a
number: a frame that is lost or comes twice ends the run with status 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import socket
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Annotated, Any, NamedTuple

import grpc
import numpy as np
import typer

from benchmarks.common import Row, show
from benchmarks.drop_in import FAR, NEAR, cables, enter_namespace, processor_time
from benchmarks.table_updates import KINDS, PROGRAM, keys, start_of_frame, table_entry
from innet.core.errors import InnetError
from innet.core.packets import PacketBatch
from innet.p4runtime.client import P4RuntimeClient
from innet.p4runtime.messages import p4, p4info_from_text
from innet.p4runtime.server import new_event_loop
from innet.transport.raw import Ports

BATCH = 1000  # entries of a request
PATIENCE = 60.0  # seconds
FRAME = 64  # bytes
NUMBER = 16  # where a frame's number is
CHANGES = 2000  # different updates, again and again
APART = 100  # an entry is deleted so many updates after it was inserted
PER_SECOND = 1000


@contextlib.contextmanager
def running(interfaces: tuple[str, ...] = ()) -> Iterator[tuple[int, str]]:
    """A switch process; its id and the address of its gRPC server."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    words = [sys.executable, "-m", "innet.simple_switch.grpc_process", "--no-p4"]
    for port, name in enumerate(interfaces, 1):
        words += ["-i", f"{port}@{name}"]
    words += ["--engine", "jit", "--thrift-port", "0", "--", "--grpc-server-addr", address]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)  # noqa: S603 - this Python
    try:
        end = time.monotonic() + PATIENCE
        while not _answers(address):
            if time.monotonic() > end or process.poll() is not None:
                raise InnetError("innet simple-switch-grpc did not start")
            time.sleep(0.1)
        yield process.pid, address
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def bare_server() -> Iterator[tuple[int, str]]:
    """A process whose gRPC server answers a Write without looking at it; id and address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_barely, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(PATIENCE):
            raise InnetError("the bare gRPC server did not start")
        assert process.pid is not None
        yield process.pid, ours.recv()
    finally:
        process.kill()
        process.join()


def _serve_barely(pipe: Connection) -> None:
    async def write(data: bytes, context: Any) -> bytes:  # noqa: ARG001 - as gRPC calls it
        return b""

    async def serve() -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers = {"Write": grpc.unary_unary_rpc_method_handler(write)}
        handler = grpc.method_handlers_generic_handler("p4.v1.P4Runtime", handlers)
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        pipe.send(f"127.0.0.1:{port}")
        await server.wait_for_termination()

    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(serve())


def _answers(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def connected(address: str) -> P4RuntimeClient:
    """A controller that has set the program."""
    path = PROGRAM.with_suffix(".p4info.txtpb")
    client = P4RuntimeClient(address, p4info_from_text(path.read_text(encoding="utf-8"), path.name))
    client.set_program(PROGRAM.read_bytes())
    return client


def request(updates: list[tuple[str, Any]]) -> bytes:
    """A WriteRequest of the primary controller."""
    made = p4.WriteRequest(election_id=p4.Uint128(low=1))
    for kind, entity in updates:
        made.updates.add(type=kind, entity=entity)
    return bytes(made.SerializeToString())


def written(kind: str, count: int) -> tuple[float, float]:
    """Seconds for so many entries: elapsed, and of the switch's processor time."""
    with running() as (process, address), connected(address) as client:
        entities = [table_entry(client, kind, key, i) for i, key in enumerate(keys(kind, count))]
        updates = [("INSERT", entity) for entity in entities]
        requests = [request(updates[i : i + BATCH]) for i in range(0, count, BATCH)]
        with grpc.insecure_channel(address) as channel:
            write = channel.unary_unary("/p4.v1.P4Runtime/Write")
            client.write()  # an answer comes when the program is there
            used, begun = processor_time(process), time.perf_counter()
            for each in requests:
                write(each, timeout=PATIENCE)
            elapsed = time.perf_counter() - begun
            used = processor_time(process) - used
        table = p4.TableEntry(table_id=entities[0].table_entry.table_id)
        there = sum(1 for _ in client.read(p4.Entity(table_entry=table)))
        if there != count:
            raise InnetError(f"{there} of {count} entries are there")
        return elapsed, used


# ----------------------------------------------------------------------------
# Requests of few updates.


def changes_of(client: P4RuntimeClient, kind: str, entries: int, batch: int) -> list[bytes]:
    """Fill a table; requests that insert and delete other entries, to be sent again and again.

    No request must come after one of the ``APART`` before it. So they may be under way at once.
    """
    every = [
        table_entry(client, kind, key, i)
        for i, key in enumerate(keys(kind, entries + CHANGES // 2))
    ]
    for first in range(0, entries, BATCH):
        client.write(*(("INSERT", each) for each in every[first : min(first + BATCH, entries)]))
    changes = []
    for first in range(entries, len(every), APART):
        for word in ("INSERT", "DELETE"):
            changes += [(word, each) for each in every[first : first + APART]]
    return [request(changes[i : i + batch]) for i in range(0, CHANGES, batch)]


class Requests:
    """Sends requests again and again, ``most`` under way at once."""

    def __init__(self, channel: grpc.Channel, made: list[bytes], batch: int) -> None:
        self._write = channel.unary_unary("/p4.v1.P4Runtime/Write")
        self._made = itertools.cycle(made)
        self._batch = batch

    def send(
        self, seconds: float, most: int, per_second: float = float("inf")
    ) -> tuple[int, float]:
        """Updates that were made, and the elapsed time."""
        begun, done = time.perf_counter(), 0
        under_way: deque[Any] = deque()
        while (passed := time.perf_counter() - begun) < seconds:
            if done > passed * per_second:
                time.sleep(done / per_second - passed)
            if most == 1:
                self._write(next(self._made), timeout=PATIENCE)
            else:
                under_way.append(self._write.future(next(self._made), timeout=PATIENCE))
                if len(under_way) == most:
                    under_way.popleft().result()
            done += self._batch
        for each in under_way:
            each.result()
        return done, time.perf_counter() - begun


def requests(kind: str, entries: int, pairs: int) -> Iterator[Row]:
    """Requests of one update to the switch and to a server that does nothing, in turn."""
    with (
        running() as (switch, address),
        bare_server() as (bare, there),
        connected(address) as client,
    ):
        made = changes_of(client, kind, entries, 1)
        with grpc.insecure_channel(address) as ours, grpc.insecure_channel(there) as theirs:
            sides = ((Requests(ours, made, 1), switch), (Requests(theirs, made, 1), bare))
            for most in (1, 16):
                found = []
                for _ in range(pairs + 1):  # the first is not counted
                    part = []
                    for sender, process in sides:
                        used = processor_time(process)
                        done, seconds = sender.send(1.0, most)
                        part += [done / seconds, (processor_time(process) - used) / done]
                    found.append(part)
                rate, cost, bound, bare_cost = (
                    statistics.median(column) for column in zip(*found[1:], strict=True)
                )
                ratio = statistics.median(each[0] / each[2] for each in found[1:])
                name = f"{kind}, {most} under way"
                remark = f"{cost * 1e6:.0f} us of the process's processor time each"
                yield Row(
                    f"{name}, a server that does nothing",
                    bound,
                    "requests/s",
                    f"{bare_cost * 1e6:.0f} us",
                    1.0,
                )
                yield Row(f"{name}, the switch", rate, "requests/s", remark, ratio)


# ----------------------------------------------------------------------------
# Beside packets of interfaces.


class Load(NamedTuple):
    """What a controller does: entries of its table, updates of a request, most requests at once."""

    kind: str
    entries: int
    batch: int
    most: int


def control(pipe: Connection, addresses: tuple[str, str], load: Load) -> None:
    """A controller's process: fills a table, then updates it for as long as it is told to.

    It takes seconds and the number of a server from ``pipe``, and answers with the updates made.
    """
    with (
        connected(addresses[0]) as client,
        grpc.insecure_channel(addresses[0]) as ours,
        grpc.insecure_channel(addresses[1]) as theirs,
    ):
        made = changes_of(client, load.kind, load.entries, load.batch)
        senders = [Requests(each, made, load.batch) for each in (ours, theirs)]
        pipe.send(0)
        while (asked := pipe.recv()) is not None:
            seconds, which = asked
            pipe.send(senders[which].send(seconds, load.most, PER_SECOND)[0])


class Sender:
    """Hosts at both ends: sends windows of numbered frames, and takes them at the other end."""

    def __init__(self, kind: str, entries: int, window: int) -> None:
        self.ports = Ports({0: NEAR[0], 1: FAR[0]})
        self._window = window
        rng = np.random.default_rng(0)
        every = list(keys(kind, entries + CHANGES // 2))[:entries]
        starts = [start_of_frame(kind, every[i]) for i in rng.integers(entries, size=window)]
        self._data = np.zeros((window, FRAME), np.uint8)
        for row, start in zip(self._data, starts, strict=True):
            row[: len(start)] = np.frombuffer(start, np.uint8)
        self._data[:, 12:14] = (0x88, 0xB5)
        self._numbers = np.zeros(window, np.int64)
        self._sent = 0
        self._length = np.full(window, FRAME, np.int32)
        self._from = np.zeros(window, np.int32)

    def turn(self, patience: float) -> bool:
        """Send a window; whether all of it came, each frame once."""
        numbers = np.arange(self._sent, self._sent + self._window)
        self._data[:, NUMBER : NUMBER + 8] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
        self.ports.send(PacketBatch(self._data, self._length, self._from))
        first, self._sent = self._sent, self._sent + self._window
        seen, came, end = np.zeros(self._window, np.int64), 0, time.monotonic() + patience
        while came < self._window:
            if time.monotonic() > end:
                return False
            batch = self.ports.receive(0.05)
            data = batch.data[batch.port == 1, NUMBER : NUMBER + 8]
            places = np.ascontiguousarray(data).view(">i8").ravel() - first
            if len(places) and not (places.min() >= 0 and places.max() < self._window):
                return False
            np.add.at(seen, places, 1)
            came += len(places)
        return bool((seen == 1).all())


def beside_packets(load: Load, window: int, pairs: int) -> Iterator[Row]:
    """The rates of packets without requests, with updates, and with requests to another server."""
    context = multiprocessing.get_context("spawn")
    with (
        cables(NEAR, FAR),
        bare_server() as (_, there),
        running((NEAR[1], FAR[1])) as (_, address),
    ):
        ours, theirs = context.Pipe()
        controller = context.Process(
            target=control, args=(theirs, (address, there), load), daemon=True
        )
        controller.start()
        sender = Sender(load.kind, load.entries, window)
        try:
            if not ours.poll(PATIENCE):
                raise InnetError(f"the controller did not fill the table in {PATIENCE:g} s")
            ours.recv()
            end = time.monotonic() + PATIENCE
            while not sender.turn(0.2):  # frames before the first look-up structure is there
                if time.monotonic() > end:
                    raise InnetError("the switch forwards nothing")
            found = [
                (
                    _rate(sender, None, 0, window)[0],
                    *_rate(sender, ours, 0, window),
                    *_rate(sender, ours, 1, window),
                )
                for _ in range(pairs)
            ]
            ours.send(None)
        finally:
            sender.ports.close()
            controller.kill()
            controller.join()
    without, updated, updates, beside, asked = (
        statistics.median(column) for column in zip(*found, strict=True)
    )
    ratio = statistics.median(each[1] / each[0] for each in found)
    bound = statistics.median(each[3] / each[0] for each in found)
    name = f"{load.kind}, updates {load.batch} at a time"
    yield Row(f"{load.kind}, no requests", without, "packets/s", "", 1.0)
    remark = f"{asked:,.0f} updates/s"
    yield Row(f"{name}, a server that does nothing", beside, "packets/s", remark, bound)
    remark = f"{updates:,.0f} updates/s"
    yield Row(f"{name}, the switch", updated, "packets/s", remark, ratio)


def _rate(
    sender: Sender, controller: Connection | None, server: int, window: int
) -> tuple[float, float]:
    """Packets and updates per second, for a second."""
    if controller is not None:
        controller.send((1.0, server))
    begun, frames = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < 1.0:
        if not sender.turn(PATIENCE):
            raise InnetError("a frame was lost or came twice")
        frames += window
    made = 0.0
    if controller is not None:
        if not controller.poll(PATIENCE):
            raise InnetError("the controller did not end")
        made = controller.recv() / passed
    return frames / passed, made


def main(  # noqa: PLR0917 - options of a command
    kind: Annotated[list[str] | None, typer.Option(help="Of the table; all by default.")] = None,
    count: Annotated[int, typer.Option("--written", help="Entries that are written.")] = 100_000,
    interfaces: Annotated[bool, typer.Option(help="Updates beside packets.")] = False,
    one_each: Annotated[
        bool, typer.Option("--requests", help="Requests of one update, without packets.")
    ] = False,
    entries: Annotated[int, typer.Option(help="Entries of the table beside packets.")] = 10_000,
    batch: Annotated[int, typer.Option(help="Updates of a request beside packets.")] = 10,
    under_way: Annotated[int, typer.Option(help="Most requests at once beside packets.")] = 1,
    window: Annotated[int, typer.Option(help="Most frames under way.")] = 256,
    pairs: Annotated[int, typer.Option(help="Seconds without and with updates.")] = 10,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure and print."""
    rows: list[Row] = []
    try:
        if interfaces:
            enter_namespace()
        for each in kind or KINDS:
            if interfaces:
                rows += beside_packets(Load(each, entries, batch, under_way), window, pairs)
            elif one_each:
                rows += requests(each, entries, pairs)
            else:
                elapsed, used = written(each, count)
                remark = f"{elapsed:.2f} s; {used:.2f} s of the switch's processor time"
                rows.append(Row(each, count / elapsed, "entries/s", remark, 10.0 / elapsed))
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    if interfaces:
        title = f"tables of {entries:,} entries, frames of {FRAME} bytes, {window} under way"
        show(title, "packets, of those without requests", rows, as_json)
    elif one_each:
        title = f"requests of one update, tables of {entries:,} entries"
        show(title, "of a server that does nothing", rows, as_json)
    else:
        show(f"{count:,} entries over P4Runtime", "10 s, over the time", rows, as_json)


if __name__ == "__main__":
    typer.run(main)
