"""``Switch``: a compiled P4 program with its state, an engine, and a control plane."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from innet.core.engines import EngineName
from innet.core.errors import InputError, UnknownNameError, UnsupportedError
from innet.core.not_copyable import NotCopyable
from innet.core.packets import MAX_PORT, PacketBatch
from innet.switch import ir
from innet.switch.control import commands
from innet.switch.control.builtin import BuiltinControlPlane
from innet.switch.control.values import Key, Names, Number
from innet.switch.engine import (
    Engine,
    Statistics,
    SwitchState,
    refusal,
)
from innet.switch.frontend.loader import load_program
from innet.switch.ir.check import check_references
from innet.switch.state.ageing import AgeingMonitor, IdleTimeout
from innet.switch.state.tables import BYTES, PACKETS, RuntimeEntry
from innet.switch.trace import Event
from innet.switch.traffic_manager import FOREVER, TrafficManager

if TYPE_CHECKING:
    from innet.switch.inline import InlineQueueSwitch, InlineSwitch
    from innet.switch.interpreter.packet_log import PacketLog
    from innet.switch.jit import JitEngine
    from innet.switch.record_log import LineWriter, RecordLog
    from innet.switch.recording import Recording


class CounterCells(NamedTuple):
    """Views of a counter array's cells, shape (size,), uint64 each."""

    packets: NDArray[np.uint64]
    bytes: NDArray[np.uint64]


_Cells = TypeVar("_Cells")


class _ByName(Mapping[str, _Cells]):
    """Arrays of a program by name.

    A name may be shortened to an ending at a dot that only one of them has; any other is an
    UnknownNameError.
    """

    def __init__(self, names: Names[Any], cells: Iterable[_Cells]) -> None:
        self._names, self._cells = names, list(cells)

    def __getitem__(self, name: str) -> _Cells:
        position = self._names.find(name)
        if position is None:
            raise UnknownNameError(self._names.kind, name, list(self))
        return self._cells[position]

    def __iter__(self) -> Iterator[str]:
        return (each.name for each in self._names.things)

    def __len__(self) -> int:
        return len(self._cells)


class Registers(_ByName[NDArray[Any]]):
    """Register arrays by name, as views of shape (size,): uint8, uint16, uint32 or uint64, the
    first that holds the width.

    Wider ones are uint64 of shape (size, words), the most significant word of a cell first.

    Writing to a view writes to the switch.
    """

    def __init__(self, state: SwitchState) -> None:
        super().__init__(Names("register", state.program.registers), state.registers)


class CounterArrays(_ByName[CounterCells]):
    """Counter arrays by name; direct ones are indexed by ``RuntimeEntry.index``."""

    def __init__(self, state: SwitchState) -> None:
        cells = (CounterCells(each[:, PACKETS], each[:, BYTES]) for each in state.counters)
        super().__init__(Names("counter", state.program.counters), cells)


#: Where engines are. One that is not asked for is not imported, since a new process should be ready
#: before anybody waits for it.
_ENGINES = {
    "jit": ("innet.switch.jit", "JitEngine"),
    "interpret": ("innet.switch.interpreter.engine", "InterpretEngine"),
}


def _engine_class(name: str) -> type[Engine]:
    if name in _ENGINES:
        module, kind = _ENGINES[name]
        return cast("type[Engine]", getattr(importlib.import_module(module), kind))
    raise UnknownNameError("switch engine", name, ("jit", "interpret"))


def unsupported(program: ir.Program, engine: EngineName) -> list[str]:
    """What ``program`` uses that an engine does not have, each with where it is used."""
    return _engine_class(engine).unsupported(program)


def is_compiled(program: ir.Program, *, logged: bool = False) -> bool:
    """Whether the jit engine's machine code is on this machine already, also that for times.

    ``logged``: that which logs packets (``Switch.log_packets``), and which records.
    """
    from innet.switch.jit import cache  # noqa: PLC0415 - as engines are imported

    if logged:
        return cache.load(program, recording=True) is not None
    return cache.load(program) is not None and cache.load(program, True) is not None


def _generator(seed: int) -> np.random.Generator:
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise InputError(f"the switch's seed is a whole number from 0 on, not {seed!r}") from None


def _nanoseconds(times: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Times as int64; InputError where they are anything else."""
    is_plain = isinstance(times, np.ndarray) and times.dtype == np.int64 and times.ndim == 1
    if is_plain and (len(times) == 0 or 0 <= times[0] <= times[-1] < FOREVER):
        return np.asarray(times)  # what is between them is compared by the caller
    try:
        found = np.asarray(times)
    except (ValueError, OverflowError):
        found = np.empty(0, object)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise InputError(
            f"times= are whole numbers of nanoseconds, one for each packet; found {found.dtype} of "
            f"shape {found.shape}. From seconds: (seconds * 1e9).astype(np.int64)"
        )
    if found.size and not (int(found.min()) >= 0 and int(found.max()) < FOREVER):
        raise InputError(f"times= are 0 to {FOREVER - 1} ns; found {found.min()}..{found.max()}")
    return found.astype(np.int64)


def _backward(now: int, arrivals: NDArray[np.int64], end: int) -> InputError:
    """The error for the first time that is before another."""
    times = [now, *arrivals.tolist(), end]
    first = next(i for i, time in enumerate(times[1:]) if time < times[i])
    what = "until=" if first == len(arrivals) else f"packet {first}"
    return InputError(
        f"time runs forward: {what} is at {times[first + 1]} ns, and the switch is at "
        f"{times[first]} ns by then"
    )


def _nanosecond(time: int) -> int:
    return int(_nanoseconds([time])[0])


class _Interpreted:
    """Tells what happens to packets that it interprets."""

    def __init__(self, program: ir.Program, state: SwitchState) -> None:
        # Imported when asked for, as engines are.
        from innet.switch.interpreter.engine import InterpretEngine  # noqa: PLC0415
        from innet.switch.interpreter.tracing import Trace  # noqa: PLC0415

        if reasons := InterpretEngine.unsupported(program):
            raise UnsupportedError(refusal("interpret", reasons))
        self._trace = Trace(program)
        self.engine: Engine = InterpretEngine(program, state, self._trace)

    def take(self) -> list[Event]:
        """The events since the last call."""
        return self._trace.take()


class _Recorded:
    """The same of packets that machine code runs and records."""

    def __init__(self, program: ir.Program, state: SwitchState) -> None:
        from innet.switch.jit import JitEngine  # noqa: PLC0415 - as above
        from innet.switch.recording import Decoder, MemoryRecorder  # noqa: PLC0415

        if reasons := JitEngine.unsupported(program):
            raise UnsupportedError(refusal("jit", reasons))
        self._recorder, self._decoder = MemoryRecorder(state), Decoder(program)
        self.engine: JitEngine = JitEngine(program, state, self._recorder)

    def take(self) -> list[Event]:
        """The events since the last call, at most as many as the interpreter keeps."""
        from innet.switch.interpreter import tracing  # noqa: PLC0415 - as above

        told = self._recorder.recording(self._decoder).events()
        if (left_out := len(told) - tracing.MOST_EVENTS) > 0:
            told[tracing.MOST_EVENTS :] = [Event("cut", {"left_out": left_out})]
        return told

    def forget(self) -> None:
        """Let the next recording begin here."""
        self._recorder.recording(self._decoder)
        self._first = self.engine.received

    def recording(self) -> Recording:
        """What was recorded since then."""
        return self._recorder.recording(self._decoder, self._first)


class Switch(NotCopyable):
    """A programmable switch that runs a compiled P4 program.

    Not safe to use from several threads at once.

    Attributes:
        program: the typed form of what is loaded.
        engine_name: ``jit`` or ``interpret``.
        state: everything that outlives a packet; shared with the engine.
        control: the control plane, typed. ``command`` is the same as text.
        registers, counters: by name.
    """

    instead_of_a_copy = (
        "load the program again (Switch.load), and replay its commands and registers there"
    )

    def __init__(
        self,
        program: ir.Program,
        engine: EngineName = "jit",
        *,
        seed: int = 0,
        priority_queues: int = 1,
    ) -> None:
        kind = _engine_class(engine)
        check_references(program)
        reasons = kind.unsupported(program)
        if reasons:
            others = (name for name in _ENGINES if not _engine_class(name).unsupported(program))
            raise UnsupportedError(refusal(engine, reasons, next(others, None)))
        self.program = program
        self.engine_name: EngineName = engine
        self.state = SwitchState(program, _generator(seed), priority_queues)
        self.control = BuiltinControlPlane(self.state)
        self.registers = Registers(self.state)
        self.counters = CounterArrays(self.state)
        self._engine = kind(program, self.state)
        self._tracer: _Interpreted | _Recorded | None = None
        self._record_log: RecordLog | None = None

    @classmethod
    def load(
        cls,
        program: str | Path | Mapping[str, Any] | ir.Program,
        engine: EngineName = "jit",
        *,
        seed: int = 0,
        priority_queues: int = 1,
    ) -> Switch:
        """A switch that runs ``program``.

        Args:
            program: a file of BMv2 JSON (plain, gzip or xz), the JSON as text or parsed, or a
                loaded program.
            engine: ``jit`` compiles the program, ``interpret`` walks it.
            seed: of the ``random()`` that programs may call.
            priority_queues: egress queues per port, 1 to 32. A packet whose
                ``standard_metadata.priority`` is not below it is dropped.

        Raises:
            ProgramError: that is no compiled P4 program.
            UnsupportedError: it uses something that the engine does not have.
            UnknownNameError: there is no such engine.
            InputError: the seed is no whole number, or negative; a number of queues that no port
                can have.
        """
        return cls(load_program(program), engine, seed=seed, priority_queues=priority_queues)

    # ── Packets ──

    def process(
        self,
        packets: Iterable[tuple[int, bytes]],
        *,
        times: Sequence[int] | NDArray[np.int64] | None = None,
        until: int | None = None,
    ) -> list[tuple[int, bytes]]:
        """Run (port, bytes) pairs in order; returns what leaves, as (port, bytes).

        Whatever the bytes are, the program decides what becomes of them; none raises, unless the
        program has a loop that they make endless.

        Args:
            packets: in arrival order.
            times: when each arrives, in nanoseconds, not descending. Then packets wait in the
                egress queues (``traffic_manager``) before they leave, and programs see depths and
                times. Without it nothing waits, and one time, ``state.clock``, serves the call.
            until: with times: what leaves its queue later than that, in nanoseconds, waits for the
                next call. By default everything leaves.

        Raises:
            InputError: a port that the switch does not have, or what is no pair of port and bytes;
                times that are no such; a call without times while packets wait.
            EndlessLoopError: see ``Engine.process``.
        """
        batch = PacketBatch.from_packets(packets)
        return self.process_batch(batch, times=times, until=until).to_packets()

    def process_batch(
        self,
        batch: PacketBatch,
        *,
        times: Sequence[int] | NDArray[np.int64] | None = None,
        until: int | None = None,
    ) -> PacketBatch:
        """The same for a batch, which is the fast way in.

        With times, ``time`` of the batch returned says when each packet left.

        Raises:
            InputError: as ``process``.
        """
        if times is not None:
            self._require_untraced()
        else:
            self._require_nothing_waits()
        return self._run(self._engine, batch, times, until)

    def _run(
        self,
        engine: Engine,
        batch: PacketBatch,
        times: Sequence[int] | NDArray[np.int64] | None,
        until: int | None,
    ) -> PacketBatch:
        """Let an engine run packets, in whose queues no others wait."""
        ports = batch.port
        if len(batch) and not 0 <= int(ports.min()) <= int(ports.max()) <= MAX_PORT:
            raise InputError(
                f"packets arrive at ports {int(ports.min())}..{int(ports.max())}; a switch has "
                f"ports 0..{MAX_PORT}"
            )
        if times is not None:
            return self._run_timed(engine, batch, times, until)
        if until is not None:
            raise InputError("until= needs times= as well; for what waits alone, call run_until()")
        return engine.process(batch)

    def _require_nothing_waits(self) -> None:
        """For calls without times."""
        if waiting := self.waiting:
            leave = "run_until()" if self._engine.waiting else "trace_until()"
            raise InputError(
                f"{waiting} packets wait in the switch's egress queues, and a call without times "
                f"would pass them by; {leave} lets them leave first"
            )

    def _require_untraced(self) -> None:
        """For calls with times."""
        if self._traced_waiting:
            raise InputError(
                f"{self._traced_waiting} packets that were traced wait in the switch's egress "
                "queues, where others cannot meet them; trace_until() lets them leave first"
            )

    def _run_timed(
        self,
        engine: Engine,
        batch: PacketBatch,
        times: Sequence[int] | NDArray[np.int64],
        until: int | None,
    ) -> PacketBatch:
        now = self.traffic_manager.now
        arrivals = _nanoseconds(times)
        if len(arrivals) != len(batch):
            raise InputError(f"times= has {len(arrivals)} times for {len(batch)} packets")
        end = FOREVER if until is None else _nanosecond(until)
        start, last = (arrivals[0], arrivals[-1]) if len(arrivals) else (now, now)
        if start < now or end < last or (arrivals[1:] < arrivals[:-1]).any():
            raise _backward(now, arrivals, end)
        return engine.process_timed(batch, arrivals, end)

    def run_until(self, until: int | None = None) -> PacketBatch:
        """Let what waits in the egress queues leave, up to a time in nanoseconds.

        Returns what left, with ``time``; by default until nothing waits.

        Raises:
            InputError: a time that is no whole number, or before what has happened.
        """
        self._require_untraced()
        return self._run_timed(self._engine, PacketBatch.empty(), np.zeros(0, np.int64), until)

    @property
    def waiting(self) -> int:
        """Packets that wait in egress queues since calls with times, each copy counted, and those
        that recirculate.
        """
        return self._engine.waiting + self._traced_waiting

    @property
    def _traced_waiting(self) -> int:
        return 0 if self._tracer is None else self._tracer.engine.waiting

    @property
    def next_departure(self) -> int | None:
        """When the next of them leaves, in nanoseconds; None when nothing waits."""
        if self._tracer is not None and self._tracer.engine.waiting:
            return self._tracer.engine.next_departure
        return self._engine.next_departure

    def inline(self, packets: PacketBatch, *, beside: bool = False) -> InlineSwitch | None:
        """``Engine.inline``: the program in the loop of other compiled code."""
        return self._engine.inline(packets, beside=beside)

    def inline_queues(
        self, packets: PacketBatch, *, timed: bool = True
    ) -> InlineQueueSwitch | None:
        """``Engine.inline_queues``: the same with egress queues and times."""
        return self._engine.inline_queues(packets, timed=timed)

    def trace(self, port: int, data: bytes, *, time: int | None = None) -> list[Event]:
        """Run one packet and tell everything that happens to it and to what it causes, in order.

        The interpreter runs it on the switch's own tables, registers and counters; under the engine
        jit machine code that records does, if it is on this machine already (``record``). Both tell
        the same. ``str()`` of an event is a line for people.

        Args:
            port: where the packet arrives.
            data: its bytes.
            time: when it arrives, in nanoseconds. Then it meets the packets that were traced before
                it in the egress queues: the events begin with those of packets that leave until
                then, and ``Event.packet`` and ``Event.time`` tell them apart. What waits afterwards
                appears in the next call, or in ``trace_until``.

        Raises:
            InputError: a port that the switch does not have, or no port and bytes at all; a time
                that is no such; packets wait that this one could not meet.
            UnsupportedError: the interpreter does not have something that the program uses.
        """
        packet = PacketBatch.from_packets([(port, data)])
        ((port, data),) = packet.to_packets()
        if not 0 <= port <= MAX_PORT:
            raise InputError(f"a packet arrives at port {port}; a switch has ports 0..{MAX_PORT}")
        if time is not None:
            return self._trace_timed(packet, time)
        self._require_nothing_waits()
        tracer = self._tracing()
        tracer.take()  # a packet that was interrupted may have left events
        tracer.engine.process(packet)
        return tracer.take()

    def trace_until(self, until: int | None = None) -> list[Event]:
        """Let traced packets leave the egress queues, up to a time in nanoseconds; tells the same.

        By default until nothing waits.

        Raises:
            InputError: a time that is no whole number, or before what has happened.
        """
        return self._trace_timed(PacketBatch.empty(), until)

    def _trace_timed(self, packet: PacketBatch, until: int | None) -> list[Event]:
        """Run the packet, if there is one, at ``until``, and what leaves until then."""
        self._require_traced_alone()
        end = FOREVER if until is None else _nanosecond(until)
        arrivals = np.full(len(packet), end, np.int64)
        if end < self.traffic_manager.now:
            raise _backward(self.traffic_manager.now, arrivals, end)
        tracer = self._tracing()
        tracer.take()
        tracer.engine.process_timed(packet, arrivals, end)
        return tracer.take()

    def _require_traced_alone(self) -> None:
        """For calls with times whose packets are traced or recorded."""
        if self._engine.waiting:
            raise InputError(
                f"{self._engine.waiting} packets wait in the switch's egress queues that are not "
                "traced, where a traced one cannot meet them; run_until() lets them leave first"
            )

    def _tracing(self) -> _Interpreted | _Recorded:
        if self._tracer is None:
            is_recorded = self.engine_name == "jit" and is_compiled(self.program, logged=True)
            kind = _Recorded if is_recorded else _Interpreted
            self._tracer = kind(self.program, self.state)
        return self._tracer

    def record(
        self,
        batch: PacketBatch,
        *,
        times: Sequence[int] | NDArray[np.int64] | None = None,
        until: int | None = None,
    ) -> tuple[PacketBatch, Recording]:
        """``process_batch``, and everything that happens to the packets, at machine code's speed.

        A build of the program that records runs them. It is compiled at the first call, which takes
        about twice as long as the program itself, and kept on this machine.

        Args:
            batch: in arrival order.
            times: as for ``process``.
            until: as for ``process``.

        Returns:
            What leaves, and the recording. In this packets have their number in the call; what an
            earlier call left in the egress queues has a negative one.

        Raises:
            InputError: as ``process_batch``; other packets wait in the egress queues, where these
                could not meet them.
            UnsupportedError: the program uses something that cannot be compiled.
        """
        if not isinstance(self._tracer, _Recorded):
            self._require_untraced()
            self._tracer = _Recorded(self.program, self.state)
        if times is not None:
            self._require_traced_alone()
        else:
            self._require_nothing_waits()
        self._tracer.forget()
        left = self._run(self._tracer.engine, batch, times, until)
        return left, self._tracer.recording()

    def log_packets(
        self,
        document: Mapping[str, Any],
        write: Callable[[str, str], None],
        *,
        engine: EngineName = "interpret",
        writer: LineWriter | None = None,
        is_late: bool = False,
    ) -> PacketLog:
        """Write the lines of simple_switch's log about each packet from now on. All state stays.

        Args:
            document: the program's JSON, which has the places in its source.
            write: takes the lines: level and text, as in ``packet_log.Write``.
            engine: runs the packets. ``jit`` does so by the build that ``record`` uses, which is
                compiled now if it is not on this machine.
            writer: takes the lines of packets that ``jit`` runs, as text; by default ``write``
                takes one after the other.
            is_late: lines of packets that ``jit`` runs wait for ``write_log``.

        Raises:
            UnsupportedError: the engine does not have something that the program uses.
            InputError: packets wait in egress queues.
        """
        # Imported when asked for, as engines are.
        from innet.switch.interpreter.engine import InterpretEngine  # noqa: PLC0415
        from innet.switch.interpreter.packet_log import PacketLog  # noqa: PLC0415

        received = 0
        if isinstance(self._engine, InterpretEngine):
            received = self._engine.received
        elif self._record_log is not None:
            received = self._record_log.received
        self._find_engine(engine)
        log = PacketLog(document, self.program, self.state, write)
        self.engine_name = engine
        if engine == "interpret":
            self._engine = InterpretEngine(self.program, self.state, log)
            self._engine.received = received
            return log
        from innet.switch.jit import JitEngine  # noqa: PLC0415
        from innet.switch.record_log import RecordLog, SeparateLines  # noqa: PLC0415

        writer = writer or SeparateLines(write)
        self._record_log = RecordLog(document, self.state, writer, received, is_late=is_late)
        self._engine = JitEngine(self.program, self.state, self._record_log)
        return log

    def write_log(self) -> None:
        """Write the lines that wait; before tables are changed, which they are about."""
        if self._record_log is not None:
            self._record_log.write()

    def use_engine(self, engine: EngineName) -> None:
        """Let another engine run the packets from now on. All state stays.

        Raises:
            UnsupportedError: the program uses something that the engine does not have.
            InputError: packets wait in egress queues, which belong to an engine.
        """
        self._engine = self._find_engine(engine)(self.program, self.state)
        self._record_log = None
        self.engine_name = engine

    def _find_engine(self, engine: EngineName) -> type[Engine]:
        """The class of an engine that can take over now."""
        if self.waiting:
            raise InputError(
                f"{self.waiting} packets wait in the switch's egress queues; run_until() lets them "
                "leave before another engine takes over"
            )
        kind = _engine_class(engine)
        if reasons := kind.unsupported(self.program):
            raise UnsupportedError(refusal(engine, reasons))
        return kind

    @property
    def traffic_manager(self) -> TrafficManager:
        """The egress queues: capacities, rates and what was dropped."""
        return self.state.traffic_manager

    @property
    def statistics(self) -> Statistics:
        """What happened to packets so far."""
        return self.state.statistics

    def reset_statistics(self) -> None:
        """Count from 0 again; registers and counters of the program stay."""
        for name in self.state.statistics.as_dict():
            setattr(self.state.statistics, name, 0)
        self.traffic_manager.reset_drops()

    def take_digests(self) -> list[tuple[str, tuple[int, ...]]]:
        """(learn list, values) of the digests since the last call, in order."""
        taken = [
            (self.program.learn_lists[number].name, values) for number, values in self.state.digests
        ]
        self.state.digests.clear()
        return taken

    @property
    def ageing(self) -> AgeingMonitor:
        """The sweep for idle entries, which has come to ``state.clock``; ``sweep_interval_ms`` can
        be set.
        """
        self.state.time()
        return self.state.ageing

    def take_idle_timeouts(self) -> list[IdleTimeout]:
        """What sweeps found up to ``state.clock`` since the last call, in order.

        A sweep comes every ``ageing.sweep_interval_ms`` (1,000) of the clock. It looks at the
        entries of tables with ``support_timeout`` that ``table_set_timeout`` gave a timeout.
        """
        self.state.time()
        return self.state.ageing.take()

    # ── Control ──

    def command(self, line: str) -> str:
        """Run one command in the dialect of simple_switch_CLI; returns what it prints.

        Raises:
            ControlError: it was refused, and nothing was changed.
        """
        return commands.run(self.control, line)

    def commands(self, text: str) -> str:
        """Run one command per line, up to the first that is refused (ControlError names it)."""
        return commands.run_all(self.control, text)

    def table_add(
        self,
        table: str,
        action: str,
        keys: Sequence[Key],
        parameters: Sequence[Number] = (),
        priority: int | None = None,
    ) -> int:
        """``ControlPlane.table_add``."""
        return self.control.table_add(table, action, keys, parameters, priority)

    def table_set_default(self, table: str, action: str, parameters: Sequence[Number] = ()) -> None:
        """``ControlPlane.table_set_default``."""
        self.control.table_set_default(table, action, parameters)

    def table_modify(
        self, table: str, action: str, handle: int, parameters: Sequence[Number] = ()
    ) -> None:
        """``ControlPlane.table_modify``."""
        self.control.table_modify(table, action, handle, parameters)

    def table_delete(self, table: str, handle: int) -> None:
        """Remove an entry; ControlError if no entry has that handle."""
        self.control.table_delete(table, handle)

    def table_clear(self, table: str) -> None:
        """Remove all entries; the default stays."""
        self.control.table_clear(table)

    def table_entries(self, table: str) -> list[RuntimeEntry]:
        """The entries of a table, by index."""
        return self.control.table_entries(table)

    def multicast_group(self, group: int, replicas: Iterable[tuple[int, int]]) -> None:
        """``ControlPlane.multicast_group``."""
        self.control.multicast_group(group, replicas)

    def mirror_session(
        self, session: int, port: int | None = None, group: int | None = None
    ) -> None:
        """Say where clones of a session go: to a port, to a multicast group, or both."""
        self.control.mirroring_add(session, port, group)
