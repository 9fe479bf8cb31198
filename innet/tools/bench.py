"""Speed of a program on both engines, and on simple_switch if it is installed.

All run the same packets. Times are measured in this process. The time of simple_switch is that
between the first and the last packet it sends, by its own clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from innet.bmv2 import simple_switch
from innet.core.engines import EngineName
from innet.core.errors import InputError, MissingToolError, ProgramError
from innet.core.packets import PacketBatch
from innet.switch import Switch, SwitchState, ir, unsupported
from innet.tools.captures import merge
from innet.tools.files import Commands
from innet.tools.fuzz import Fuzzer
from innet.tools.replay import Input, open_sources

_DISTINCT = 4096  # packets that are made; more repeat them
_PORTS = 8
_REPEATS = 5  # of the compiled engine, of which the best counts
_LEAST_SECONDS = 1.0  # that the interpreter runs, unless it is through before
_MOST_FOR_BMV2 = 20_000
_START_SECONDS = 300.0  # for a new process to be ready


@dataclass(frozen=True, slots=True)
class EngineRate:
    """The rate of one engine or tool.

    Attributes:
        name: of the engine or tool.
        packets: number of timed packets.
        seconds: their duration; None if unknown.
        note: why it is unknown.
    """

    name: str
    packets: int
    seconds: float | None
    note: str = ""

    @property
    def per_second(self) -> float | None:
        return self.packets / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class StartTimes:
    """A new process that loads the program on the compiled engine and runs one packet.

    Attributes:
        cold: seconds, with imports, if the program is not in the cache.
        warm: the same if it is.
        memory: bytes by which the (warm) process grew since the program was loaded.
    """

    cold: float
    warm: float
    memory: int


@dataclass(frozen=True, slots=True)
class StateSize:
    """Bytes of a switch's registers, counters and meters, and its number of table entries."""

    registers: int
    counters: int
    meters: int
    entries: int


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The result of ``measure``. ``start`` is None if the compiled engine refuses the program."""

    rates: tuple[EngineRate, ...]
    start: StartTimes | None
    state_size: StateSize
    answered: float
    """Packets out per packet in, on the interpreter."""


def fuzzed_packets(program: ir.Program, count: int, seed: int) -> list[tuple[int, bytes]]:
    """Random packets that follow the parser's paths."""
    rng = np.random.default_rng(seed)
    fuzzer = Fuzzer(program, rng)
    distinct = [(int(rng.integers(_PORTS)), fuzzer.packet()) for _ in range(min(count, _DISTINCT))]
    return [distinct[i % len(distinct)] for i in range(count)]


def captured_packets(capture: Input, count: int) -> list[tuple[int, bytes]]:
    """``count`` packets of a capture, repeated if it has fewer."""
    packets: list[tuple[int, bytes]] = []
    with open_sources([capture]) as sources:
        for timed in merge(sources, _DISTINCT):
            packets += timed.packets.to_packets()
            if len(packets) >= count:
                break
    return [packets[i % len(packets)] for i in range(count)]


def measure(
    document: Mapping[str, Any],
    program: ir.Program,
    packets: Sequence[tuple[int, bytes]],
    commands: Commands,
    batch: int = 4096,
    *,
    priority_queues: int = 1,
) -> Iterator[EngineRate | BenchResult]:
    """Measure all in sequence; yields each rate, and returns the measurement.

    Args:
        document: the program's JSON, for simple_switch and for new processes.
        program: the same, loaded.
        packets: (port, bytes), at least one.
        commands: control-plane commands for all.
        batch: packets in one call of the built-in switch.
        priority_queues: egress queues per port, for all.

    Raises:
        ControlError: a command was refused.
        UnsupportedError: no engine runs the program.
    """
    if not packets or batch < 1:
        raise InputError("nothing to measure: choose at least 1 packet and batches of 1.")
    batches = [
        PacketBatch.from_packets(packets[i : i + batch]) for i in range(0, len(packets), batch)
    ]

    def ready(engine: EngineName) -> Switch:
        switch = Switch(program, engine, priority_queues=priority_queues)
        commands.run(switch)
        return switch

    rates: list[EngineRate] = []
    start = None
    if refused := unsupported(program, "jit"):
        rates.append(EngineRate("jit", 0, None, f"refuses the program: {refused[0]}"))
    else:
        start = _start(document)
        rates.append(_built_in(ready("jit"), "jit", batches))
    yield rates[-1]
    if refused := unsupported(program, "interpret"):
        rates.append(EngineRate("interpret", 0, None, f"refuses the program: {refused[0]}"))
        switch = ready("jit")
    else:
        switch = ready("interpret")
        few = [PacketBatch.from_packets(packets[i : i + 64]) for i in range(0, len(packets), 64)]
        rates.append(_interpreted(switch, few))
    yield rates[-1]
    reference = ready("jit" if start else "interpret")
    rates.append(_simple_switch(document, packets[:_MOST_FOR_BMV2], commands, reference))
    yield rates[-1]
    statistics = switch.statistics
    answered = statistics.packets_out / max(1, statistics.packets_in)
    yield BenchResult(tuple(rates), start, state_size(switch.state), answered)


def _built_in(switch: Switch, name: str, batches: list[PacketBatch]) -> EngineRate:
    """The best of several rounds over all batches, after a warm-up round."""
    best = float("inf")
    for repeat in range(_REPEATS + 1):
        begun = time.perf_counter()
        for batch in batches:
            switch.process_batch(batch)
        if repeat:
            best = min(best, time.perf_counter() - begun)
    return EngineRate(name, sum(map(len, batches)), best)


def _interpreted(switch: Switch, batches: list[PacketBatch]) -> EngineRate:
    begun = time.perf_counter()
    packets = 0
    for batch in batches:
        switch.process_batch(batch)
        packets += len(batch)
        if time.perf_counter() - begun > _LEAST_SECONDS:
            break
    return EngineRate("interpret", packets, time.perf_counter() - begun)


def _simple_switch(
    document: Mapping[str, Any],
    packets: Sequence[tuple[int, bytes]],
    commands: Commands,
    reference: Switch,
) -> EngineRate:
    """The rate of simple_switch. It needs to know the output ports, which ``reference`` finds."""
    try:
        name = f"simple_switch {simple_switch.version()}"
        lines = [line for line in commands.lines if line.split("#")[0].strip()]
        ports = {port for port, _ in reference.process(packets)}
        answer = simple_switch.run(
            document,
            list(packets),
            lines,
            ports=ports,
            priority_queues=reference.traffic_manager.priorities,
        )
    except (MissingToolError, InputError) as error:  # it is not there, or of no use
        return EngineRate("simple_switch", 0, None, str(error))
    except ProgramError as error:
        return EngineRate(name, 0, None, str(error))
    if not answer.seconds:
        return EngineRate(
            name, 0, None, "sent fewer than two packets, so that there is no time to tell"
        )
    return EngineRate(name, len(packets), answer.seconds)


def state_size(state: SwitchState) -> StateSize:
    """The size of a switch's state."""
    return StateSize(
        registers=sum(group.matrix.nbytes for group in state.register_groups),
        counters=sum(counter.nbytes for counter in state.counters),
        meters=sum(meter.rates.nbytes + meter.cells.nbytes for meter in state.meters),
        entries=sum(len(table) for table in state.tables),
    )


# ── New processes ──

_STARTING = """
import os, sys, time
begun = time.perf_counter()
from innet.switch import Switch, load_program
def resident():
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
before = resident()
switch = Switch(load_program(sys.argv[1]), "jit")
switch.process([(0, b"")])
print(time.perf_counter() - begun, resident() - before)
"""


def _start(document: Mapping[str, Any]) -> StartTimes:
    """Start two processes, one after the other, with an empty cache."""
    with tempfile.TemporaryDirectory(prefix="innet-bench-") as folder:
        path = Path(folder) / "program.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        environment = {**os.environ, "INNET_CACHE_DIR": folder}
        cold, _ = _started(path, environment)
        warm, memory = _started(path, environment)
    return StartTimes(cold, warm, memory)


def _started(path: Path, environment: dict[str, str]) -> tuple[float, int]:
    """Seconds and bytes of a new process."""
    try:
        result = subprocess.run(  # noqa: S603 - this interpreter, no shell
            [sys.executable, "-c", _STARTING, str(path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise ProgramError(f"the program was not compiled in {_START_SECONDS:g} s") from None
    except subprocess.CalledProcessError as error:
        raise ProgramError(f"a new process could not run it: {error.stderr[-500:]}") from None
    seconds, memory = result.stdout.split()
    return float(seconds), int(memory)
