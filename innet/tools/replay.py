"""Replay of captures through a switch, with an output capture for each port."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, OutputError
from innet.core.packets import MAX_PORT, PacketBatch
from innet.switch import QueueState, Switch, ir
from innet.switch.ir.tree import walk
from innet.tools.captures import CaptureReader, CaptureSource, CaptureWriter, Timed, merge


def reads_clock(program: ir.Program) -> bool:
    """Whether ``program`` uses the switch's clock."""
    if program.meters or any(table.support_timeout for table in program.tables):
        return True
    standard = program.standard
    clocks = {
        standard.ingress_global_timestamp,
        standard.egress_global_timestamp,
        standard.enq_timestamp,
    } - {None}
    parts = (
        program.parser,
        program.deparser,
        program.actions,
        program.tables,
        program.conditionals,
        program.calculations,
        program.checksums,
        program.field_lists,
        program.learn_lists,
    )
    full = {each.header for each in clocks if each is not None}
    return any(
        (isinstance(node, ir.FieldRef) and node in clocks)
        or (isinstance(node, ir.HeaderRef) and node.header in full)
        for node in walk(parts)
    )


# ----------------------------------------------------------------------------
# The replay.
#
# The switch's clock is the captures' time, in microseconds since the first packet of all captures.
# A packet that leaves has the time of the packet that caused it. In a timed replay it has the time
# at which it leaves.

_PORT_IN_NAME = re.compile(r"(?:^|[^A-Za-z])(?:p|port|pcap|veth)[_-]?(\d+)(?:[_-]in)?$")

Progress = Callable[[int, int], None]
"""Called with the packets, and the bytes of captures, read so far."""


@dataclass(frozen=True, slots=True)
class Input:
    """A capture.

    Attributes:
        path: of the file.
        port: the ingress port of its packets; None: from the file's name (p3_in.pcap), or from the
            interfaces of a pcapng.
    """

    path: Path
    port: int | None = None


@dataclass(slots=True)
class ReplayTraffic:
    """Counts of one port. ``silent``: packets that came in but caused none to leave; not counted in
    a timed replay.
    """

    packets_in: int = 0
    bytes_in: int = 0
    silent: int = 0
    packets_out: int = 0
    bytes_out: int = 0


@dataclass(slots=True)
class Summary:
    """The result of a replay.

    Attributes:
        ports: by port.
        cut: packets that were truncated when they were captured.
        switch_seconds: time in the switch; ``seconds`` is the total.
        capture_seconds: between the time stamps of the first and the last packet.
        files: the captures written, by port.
        timed: packets waited in the egress queues.
        queues: of a timed replay: the queues that were used, in their final state.
        waiting: packets in the queues when the last packet arrived.
        drain_seconds: from then until the last departure.
    """

    ports: dict[int, ReplayTraffic] = field(default_factory=dict)
    cut: int = 0
    switch_seconds: float = 0.0
    seconds: float = 0.0
    capture_seconds: float = 0.0
    files: dict[int, Path] = field(default_factory=dict)
    timed: bool = False
    queues: list[QueueState] = field(default_factory=list)
    waiting: int = 0
    drain_seconds: float = 0.0

    def total(self, name: str) -> int:
        """The sum of an attribute of ``ReplayTraffic`` over the ports."""
        return sum(int(getattr(each, name)) for each in self.ports.values())


class Replay:
    """A replay of captures.

        with Replay(inputs, folder) as replay:
            summary = replay.run(switch)

    The constructor opens the captures and creates the folder, so that errors are found before a
    program is compiled.

    Args:
        inputs: at least one capture; merged in order of time stamps.
        out: an empty or new folder, for p3_out.pcap and so on.

    Raises:
        InputError: a file cannot be read, holds no packets, or has no port; the
            folder cannot be written or is not empty.
        PacketError: a file is not a capture, or is damaged.
    """

    def __init__(self, inputs: Sequence[Input], out: Path) -> None:
        self.out = out
        with ExitStack() as stack:
            self.sources = stack.enter_context(open_sources(inputs))
            _make_empty(out)
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run(
        self,
        switch: Switch,
        batch: int = 4096,
        progress: Progress | None = None,
        *,
        timed: bool = False,
    ) -> Summary:
        """Play all captures through ``switch``, whose control plane is already configured.

        Args:
            switch: its clock is set, and its statistics are updated.
            batch: most packets in one call of the switch.
            progress: called after each batch.
            timed: packets arrive at the times at which they were captured (the first at 0) and wait
                in the egress queues; time stamps that are written are those of departure.

        Raises:
            InputError: a file cannot be written.
            PacketError: a capture is damaged. All packets before the damage were replayed.
        """
        if batch < 1:
            raise InputError(f"a batch of {batch} packets: choose at least 1.")
        begun = time.perf_counter()
        captures = [source.capture for source in self.sources]
        player = (_TimedPlayer if timed else _Player)(switch, self.out, captures)
        with closing(player):
            for captured in merge(self.sources, batch):
                player.play(captured)
                if progress is not None:
                    read = sum(each.position for each in captures)
                    progress(player.summary.total("packets_in"), read)
            player.finish()
        player.summary.seconds = time.perf_counter() - begun
        player.summary.cut = sum(source.cut for source in self.sources)
        return player.summary


@contextmanager
def open_sources(inputs: Sequence[Input]) -> Iterator[list[CaptureSource]]:
    """The opened captures, each with the port of its packets.

    Raises:
        InputError: a file cannot be read, holds no packets, or has no port.
        PacketError: a file is not a capture, or is damaged.
    """
    with ExitStack() as stack:
        captures = [stack.enter_context(CaptureReader(each.path)) for each in inputs]
        sources = [
            CaptureSource(capture, _port(each, capture))
            for each, capture in zip(inputs, captures, strict=True)
        ]
        for source in sources:
            if source.ended:
                raise InputError(f"{source.path} holds no packets.")
        yield sources


def _port(given: Input, capture: CaptureReader) -> int | None:
    port = given.port
    if port is None:
        stem = given.path.name.removesuffix(".gz").rpartition(".")[0] or given.path.name
        found = _PORT_IN_NAME.search(stem)
        port = int(found[1]) if found else None
    if port is None and not capture.is_pcapng:
        raise InputError(
            f"{given.path}: at which port do its packets arrive? Say --port 0, or call the file "
            "p0_in.pcap."
        )
    if port is not None and not 0 <= port <= MAX_PORT:
        raise InputError(f"{given.path} at port {port}: a switch has ports 0..{MAX_PORT}.")
    return port


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder} is not empty; name a new folder for what is written.")
    except OSError as error:
        raise OutputError.of(folder, error) from None


class _Player:
    """Runs batches and writes captures."""

    def __init__(self, switch: Switch, out: Path, captures: Sequence[CaptureReader]) -> None:
        self.switch = switch
        self.out = out
        self.summary = Summary()
        self._nano = any(each.nano for each in captures)
        self._link_type = captures[0].link_type
        self._stepwise = reads_clock(switch.program)
        self._writers: dict[int, CaptureWriter] = {}
        self._first: int | None = None

    def play(self, captured: Timed) -> None:
        """Play a batch."""
        packets = captured.packets
        times = self._since_first(captured)
        begun = time.perf_counter()
        left = self._process(packets, times)
        self.summary.switch_seconds += time.perf_counter() - begun
        answered = np.zeros(len(packets), np.bool_)
        answered[_origins(left)] = True
        self._count(packets, answered)
        self._write(left, captured.time[_origins(left)])

    def finish(self) -> None:
        """Called after the last batch."""

    def _since_first(self, captured: Timed) -> NDArray[np.int64]:
        """Arrival times of packets, in nanoseconds since the first of all."""
        if self._first is None:
            self._first = int(captured.clock[0])
        self.summary.capture_seconds = (int(captured.clock[-1]) - self._first) / 1e9
        return captured.clock - self._first

    def _process(self, packets: PacketBatch, times: NDArray[np.int64]) -> PacketBatch:
        clock = times // 1000
        parts = []
        for rows in self._steps(clock):
            self.switch.state.clock = int(clock[rows.stop - 1])
            left = self.switch.process_batch(
                PacketBatch(packets.data[rows], packets.length[rows], packets.port[rows])
            )
            origin = _origins(left) + np.int32(rows.start)
            parts.append(PacketBatch(left.data, left.length, left.port, origin))
        return PacketBatch.concatenate(parts)

    def _steps(self, clock: NDArray[np.int64]) -> Iterator[slice]:
        """The packets of each call: all, or one microsecond's if the program reads the clock."""
        if not self._stepwise:
            yield slice(0, len(clock))
            return
        ends = [*(np.flatnonzero(np.diff(clock)) + 1).tolist(), len(clock)]
        for first, last in zip([0, *ends], ends, strict=False):
            yield slice(first, last)

    def _count(self, came: PacketBatch, answered: NDArray[np.bool_]) -> None:
        for port in np.unique(came.port).tolist():
            mine = came.port == port
            traffic = self.summary.ports.setdefault(port, ReplayTraffic())
            traffic.packets_in += int(mine.sum())
            traffic.bytes_in += int(came.length[mine].sum(dtype=np.int64))
            traffic.silent += int((mine & ~answered).sum())

    def _write(self, left: PacketBatch, time_of: NDArray[np.int64]) -> None:
        for port in np.unique(left.port).tolist():
            chosen = np.flatnonzero(left.port == port)
            traffic = self.summary.ports.setdefault(port, ReplayTraffic())
            traffic.packets_out += len(chosen)
            traffic.bytes_out += int(left.length[chosen].sum(dtype=np.int64))
            if port not in self._writers:
                path = self.out / f"p{port}_out.pcap"
                self._writers[port] = CaptureWriter(
                    path, nano=self._nano, link_type=self._link_type
                )
                self.summary.files[port] = path
            self._writers[port].write(left.data, left.length, time_of, chosen)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class _TimedPlayer(_Player):
    """Runs batches in time: packets wait in the egress queues, also those of earlier batches."""

    def __init__(self, switch: Switch, out: Path, captures: Sequence[CaptureReader]) -> None:
        super().__init__(switch, out, captures)
        self.summary.timed = True
        self._nano = True  # departures are exact to the nanosecond
        self._last = 0

    def play(self, captured: Timed) -> None:
        times = self._since_first(captured)
        self._last = int(times[-1])
        begun = time.perf_counter()
        left = self.switch.process_batch(captured.packets, times=times, until=self._last)
        self.summary.switch_seconds += time.perf_counter() - begun
        # While packets wait, it is unknown which of them cause no packet.
        self._count(captured.packets, np.ones(len(times), np.bool_))
        self._write_departures(left)

    def finish(self) -> None:
        """Let all waiting packets leave."""
        self.summary.waiting = self.switch.waiting
        begun = time.perf_counter()
        left = self.switch.run_until()
        self.summary.switch_seconds += time.perf_counter() - begun
        self._write_departures(left)
        self.summary.queues = self.switch.traffic_manager.used_queues()

    def _write_departures(self, left: PacketBatch) -> None:
        assert left.time is not None
        assert self._first is not None
        if len(left):
            self.summary.drain_seconds = max(0, int(left.time[-1]) - self._last) / 1e9
            self._write(left, left.time + self._first)


def _origins(left: PacketBatch) -> NDArray[np.int32]:
    return np.empty(0, np.int32) if left.origin is None else left.origin
