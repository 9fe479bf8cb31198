"""The switch service as a process: its main function, and ``LocalSwitch``, which starts one.

``innet switch serve`` calls ``serve``. A process that needs a switch on its machine, such as rank 0
of a process group, starts a ``LocalSwitch``: ``python -m innet.service.process``, which reads its
settings from standard input and ends with its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from innet.core.child_process import ChildProcess
from innet.core.errors import ConfigError, InnetError, NetworkError, StalledError
from innet.core.settings import ServiceSettings, validate
from innet.core.waiting import PATIENCE
from innet.service.connections import resolve

if TYPE_CHECKING:  # to start a service one need not import what runs in it
    from innet.service.server import SwitchService
    from innet.service.slot_partition import SlotPartitions

# The first start compiles, perhaps on a busy machine. A process that ends is noticed at once, so
# only a process that hangs is waited for this long.
START_SECONDS = 300.0
_END_SECONDS = 15.0
_LOST_SECONDS = 5.0  # for a process whose connections have ended
_LONGEST_REST = 10.0  # for workers that are still connected when the parent has ended
_LISTENING = "listening at "
_REFUSING = "cannot start: "
_NUMBERS = {"values_per_packet": "INNET_VALUES", "jobs": "INNET_JOBS"}
_VARIABLES = {**_NUMBERS, "program": "INNET_PROGRAM"}

# ------------------------------------------------------------------ in the service's process


def serve(settings: ServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT; says on standard output where it listens.

    Raises:
        InnetError: the service cannot be started.
    """
    with contextlib.ExitStack() as stack:
        service = _started(settings, stack)
        if settings.metrics is not None:
            from innet.service.statistics import exporting  # noqa: PLC0415 - needed for this only

            ask: Callable[[], dict[str, object]] = lambda: service.ask(service.statistics)  # noqa: E731
            where = stack.enter_context(exporting(resolve(settings.metrics), ask))
            _note(f"metrics at http://{where}/metrics")
        _say_where(service)
        parts = service.partitions
        _note(
            f"{parts.program.name}: {parts.jobs} jobs of up to {parts.workers} workers, "
            f"{parts.slots} slots each; {'a key is needed' if service.has_key else 'no key'}."
        )
        many = "1 thread forwards" if service.threads == 1 else f"{service.threads} threads forward"
        _note(f"{many}: {service.threads_reason}.")
        advise(parts)
        service.run()


def main() -> int:
    """Serve the parent process; returns the exit status.

    The first line of standard input is the settings. Once standard input is closed, the service
    ends as soon as no worker is connected.
    """
    try:
        settings = validate(ServiceSettings, json.loads(sys.stdin.readline()))
        with contextlib.ExitStack() as stack:
            service = _started(settings, stack)
            _say_where(service)
            threading.Thread(target=_end_with_input, args=(service,), daemon=True).start()
            service.run()
    except InnetError as error:
        print(f"{_REFUSING}{' '.join(str(error).split())}", flush=True)
        return 1
    return 0


def _started(settings: ServiceSettings, stack: contextlib.ExitStack) -> SwitchService:
    from innet.service.server import SwitchService  # noqa: PLC0415 - as above

    service = SwitchService(settings)
    stack.callback(service.close)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    return service


def _say_where(service: SwitchService) -> None:
    print(f"{_LISTENING}{service.address}", flush=True)


def _end_with_input(service: SwitchService) -> None:
    while sys.stdin.readline():
        pass
    until = time.monotonic() + _LONGEST_REST
    while service.has_workers and time.monotonic() < until:
        time.sleep(0.05)
    service.stop()


def advise(partitions: SlotPartitions) -> None:
    """Print a note if the system gives the socket too little memory."""
    workers = partitions.workers
    window, wanted = (
        each.window(workers) for each in (partitions, replace(partitions, max_queued=None))
    )
    if window < wanted:
        _note(
            f"Only {partitions.max_queued} packets may wait here, so {workers} workers of a job "
            f"would have {window} packets each under way instead of {wanted}, which is "
            "slower. For more: sysctl -w net.core.rmem_max=67108864, on the workers' machines too."
        )


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# ------------------------------------------------------------------ in the process that starts it

_lock = threading.Lock()
_running: list[LocalSwitch] = []  # at most one


def local_switch() -> LocalSwitch:
    """The local switch of this process. It is started if there is none, or if it has ended.

    Raises:
        NetworkError: it does not start.
    """
    with _lock:
        if not _running:
            atexit.register(end_local_switch)
        _running[:] = [each for each in _running if each.is_running]
        if not _running:
            _running.append(LocalSwitch())
        return _running[0]


def await_end(address: str) -> None:
    """Wait a few seconds for the local switch at an address to end, if it is this process's.

    Its workers see closed connections before its parent sees the process end.
    """
    with _lock:
        for each in _running:
            if each.address == address:
                each.wait(_LOST_SECONDS)


def end_local_switch() -> None:
    """End it after its workers have left."""
    with _lock:
        while _running:
            _running.pop().close()


class LocalSwitch:
    """A switch service on the loopback interface, in a process that this one has started.

    It lives as long as this process does, and a little longer if workers are still connected.
    The environment variables ``INNET_VALUES``, ``INNET_JOBS`` and ``INNET_PROGRAM`` set
    ``values_per_packet``, ``jobs`` and ``program`` of its ``ServiceSettings``.

    Attributes:
        address: HOST:PORT.
        key: the key that workers need to join.

    Raises:
        ConfigError: one of the variables cannot be used.
        NetworkError: it does not start.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self.key = secrets.token_hex(16)
        given: dict[str, int | str] = {
            key: _number(name) if key in _NUMBERS else os.environ[name]
            for key, name in _VARIABLES.items()
            if os.environ.get(name)
        }
        settings = validate(
            ServiceSettings,
            {"listen": "127.0.0.1:0", "key": self.key, **given},
            source=", ".join(_VARIABLES[key] for key in given),
        )
        with tempfile.TemporaryDirectory(prefix="innet-") as folder:
            self._process = ChildProcess(
                "the switch process",
                [sys.executable, "-P", "-m", "innet.service.process"],
                Path(folder, "errors.txt"),
                environment={"INNET_SWITCH": ""},
                dies_with_parent=False,  # it ends by itself, once its workers have left
            )
            try:
                # Other users cannot see what is written to standard input.
                self._process.write_line(settings.model_dump_json(exclude_unset=True))
                line = self._hear()
            except StalledError as error:
                self._process.kill()
                raise NetworkError(
                    f"{error} Where the machine is too busy for it, start one before, with "
                    "`innet switch serve`, and set INNET_SWITCH."
                ) from None
            except BaseException:
                self._process.kill()
                raise
        if line.startswith(_REFUSING):
            self._process.kill()
            raise _refusal(line.removeprefix(_REFUSING), given)
        self.address = line.removeprefix(_LISTENING)

    def _hear(self) -> str:
        try:
            return self._process.read_line(min(PATIENCE, START_SECONDS), "listening")
        except StalledError:
            if START_SECONDS > PATIENCE:
                logging.getLogger("innet").warning("waiting for the switch process to start ...")
        return self._process.read_line(START_SECONDS, "listening")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process.running

    def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has ended."""
        return self._process.wait(seconds)

    def close(self) -> None:
        """End the process. A forked process does nothing, as its parent still needs the switch."""
        if os.getpid() != self._owner:
            return
        self._process.close_input()
        self._process.wait(_END_SECONDS)
        self._process.kill()


def _refusal(reason: str, given: Mapping[str, object]) -> InnetError:
    """Why the service does not start. ``given``: by setting, what variables ask for."""
    if not given:
        return NetworkError(f"the switch process cannot start: {reason}")
    said = ", ".join(f"{_VARIABLES[key]}={value}" for key, value in given.items())
    return ConfigError(f"the switch process cannot start with {said}: {reason}")


def _number(variable: str) -> int:
    text = os.environ[variable]
    if not text.isdecimal():
        raise ConfigError(f"{variable} is {text!r}; give a number.")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
