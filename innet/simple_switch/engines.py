"""Which engine runs a program, and the process that compiles for it.

    python -m innet.simple_switch.engines program.json DROP_PORT [logged]

compiles a program into the cache; ``logged``: the build whose packets are logged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.core.child_process import PYTHON, die_with_parent
from innet.core.engines import EngineName
from innet.core.errors import ProgramError
from innet.core.packets import PacketBatch
from innet.simple_switch.port_forwarding import PortForwarding
from innet.switch import Switch, ir, load_program
from innet.switch.sharding import sharding_of
from innet.transport.raw import Ports

_PROCESSORS = 4  # of the machine's for each thread that forwards, as in a switch service


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine runs a program.

    Attributes:
        engine: the one that runs packets now.
        compiles: whether a process is to compile for the other meanwhile.
        told: (level, line) for the log, in this order.
    """

    engine: EngineName
    compiles: bool
    told: tuple[tuple[str, str], ...] = ()


def choose_engine(
    wanted: str,
    *,
    uncompilable: Sequence[str],
    is_compiled: bool,
    has_loop: bool,
) -> EngineChoice:
    """The engine for a program.

    Args:
        wanted: "auto", "jit" or "interpret".
        uncompilable: why the program cannot be compiled; empty if it can.
        is_compiled: whether the program's machine code is on disk.
        has_loop: whether that of the loop around it is.
    """
    if wanted == "interpret":
        return EngineChoice("interpret", compiles=False)
    if uncompilable:
        why = "The interpreter runs packets, as it cannot be compiled: "
        return EngineChoice(
            "interpret", False, tuple(("warn", why + reason) for reason in uncompilable)
        )
    if wanted == "jit":  # what is not compiled is compiled before the first packet
        return EngineChoice("jit", compiles=False)
    if is_compiled:
        return EngineChoice("jit", compiles=not has_loop)
    why = "The interpreter runs packets until the program is compiled"
    return EngineChoice("interpret", True, (("info", why),))


def choose_threads(program: ir.Program, wanted: int | None, ports: int) -> tuple[int, str]:
    """How many threads forward packets, and why, as the end of a sentence.

    Args:
        program: what runs.
        wanted: how many at most; None: one for each four processors, as hosts need the others.
        ports: how many have an interface, of which each belongs to a thread; 1 where packets of
            the CPU port, lines of a log or captures need one order.
    """
    processors = len(os.sched_getaffinity(0))
    threads = min(ports, max(1, processors // _PROCESSORS) if wanted is None else wanted)
    if threads <= 1:
        return 1, "one was asked for, or there is one port or a log, or too few processors"
    found = sharding_of(program)
    if found.reason or found.field is not None:
        return 1, found.reason or "packets of several ports share its registers"
    return threads, "packets share no state, and each thread has ports of its own"


class Compilation:
    """A process that compiles a program for the jit engine.

    Of several that compile the same program, one does, and the others wait for its result.
    """

    def __init__(self, config: str, drop_port: int, *, logged: bool = False) -> None:
        self._result: str | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="innet-compile-")
        path = Path(self._folder.name) / "program.json"
        path.write_text(config, encoding="utf-8")
        words = [PYTHON, "-m", "innet.simple_switch.engines", str(path), str(drop_port)]
        words += ["logged"] if logged else []
        self._process = subprocess.Popen(  # noqa: S603 - this Python, no shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread holds a lock it needs
        )

    def result(self) -> str | None:
        """None while it runs; then why it failed, "" if it did not."""
        if self._result is None and self._process.poll() is not None:
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode(errors="replace").strip()
            self._process.stderr.close()
            self._folder.cleanup()
            self._result = "" if self._process.returncode == 0 else said or "it was killed"
        return self._result

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.result()  # which removes its files


def warm(switch: Switch) -> None:
    """Load both forms of the program now, not when a packet waits."""
    switch.process_batch(PacketBatch.empty())
    switch.process_batch(PacketBatch.empty(), times=[], until=switch.traffic_manager.now)


def parse_config(config: str) -> dict[str, Any]:
    """A program's JSON; ProgramError if it is none, or holds no object."""
    try:
        found = json.loads(config)
    except ValueError as error:
        raise ProgramError(f"that is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ProgramError("that is no compiled P4 program: it holds no JSON object")
    return found


def compile_program(path: Path, drop_port: int, *, logged: bool) -> None:
    """Compile a program into the cache, for the processes that wait for it."""
    os.nice(5)
    document = parse_config(path.read_text(encoding="utf-8"))
    program = load_program(document).with_drop_port(drop_port)
    switch = Switch(program, "interpret" if logged else "jit")
    if logged:
        switch.log_packets(document, lambda *_: None, engine="jit")
    warm(switch)
    ports = Ports({}, lambda *_: None)
    PortForwarding(ports, switch, 0.0, write_log=switch.write_log if logged else None)
    ports.close()


if __name__ == "__main__":
    compile_program(Path(sys.argv[1]), int(sys.argv[2]), logged=sys.argv[3:] == ["logged"])
