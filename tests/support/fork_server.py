"""innet's programs, forked from a process that has imported what they need.

``python -m MODULE`` takes one to two seconds of a processor for imports before it does anything.
Where the start of the interpreter is not what a test is about, it starts the program here.
With INNET_FORK=no every program is started as users start it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import multiprocessing
import multiprocessing.forkserver
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

_PRELOADED = [
    "innet.cli.allreduce",
    "innet.cli.app",
    "innet.cli.experiments",
    "innet.cli.net",
    "innet.cli.p4",
    "innet.cli.simulate",
    "innet.cli.switch",
    "innet.experiments.comparison",
    "innet.experiments.demo",
    "innet.experiments.models",
    "innet.claims.reproduce",
    "innet.scenarios.throughput",
    "innet.experiments.training",
    "innet.kernels.cpu",
    "innet.processes.allreduce",
    "innet.processes.parameter_server",
    "innet.processes.training",
    "innet.service.server",
    "innet.simple_switch.process",
    "innet.simple_switch.start",
    "innet.switch.jit.compiler",
    "innet.transport.socket_loop",
    "innet.wire.scapy_layers",
    "sklearn.linear_model",
    __name__,  # the last: it sets what the others imported aside
]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(_PRELOADED)
_libc = ctypes.CDLL(None, use_errno=True)
FORKS = os.environ.get("INNET_FORK") != "no"

gc.freeze()  # what forks of this process would otherwise look at, and so copy


class ForkedProgram:
    """As much of ``subprocess.Popen`` as innet's ``ChildProcess`` and the tests use.

    Args:
        command: ``[PYTHON, "-m", MODULE, ...]``, perhaps after ``["mnexec", "-a", PID]``; or
            ``[PYTHON, "-c", TEXT]``.
        stdin, stdout, stderr: a file, a descriptor, DEVNULL; PIPE for the first two.
        env, cwd, start_new_session, preexec_fn: as there.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        start_new_session: bool = False,
        preexec_fn: Any = None,
    ) -> None:
        node = None
        if command[:2] == ["mnexec", "-a"]:
            node, command = int(command[2]), command[3:]
        assert command[0] == sys.executable
        assert command[1] in {"-m", "-c"}
        self.args = command
        self.stdin: Any = None
        self.stdout: Any = None
        theirs = []
        opened = []
        for number, (name, given) in enumerate(
            {"stdin": stdin, "stdout": stdout, "stderr": stderr}.items()
        ):
            if given == subprocess.PIPE:
                ends = os.pipe()
                theirs.append(ends[number > 0])
                opened.append(ends[number > 0])
                mode = "rb" if number else "wb"
                setattr(self, name, os.fdopen(ends[number == 0], mode, 0 if number == 0 else -1))
            elif given == subprocess.DEVNULL:
                opened.append(os.open(os.devnull, os.O_RDWR))
                theirs.append(opened[-1])
            else:
                theirs.append(number if given is None else given.fileno())
        start_server()
        start = _Start(
            how=command[1],
            program=command[2],
            arguments=list(command[3:]),
            files=theirs,
            environment=dict(os.environ if env is None else env),
            folder=str(cwd or Path.cwd()),
            node=node,
            start_new_session=start_new_session,
            preexec_fn=preexec_fn,
        )
        self._process = _CONTEXT.Process(target=start)
        self._process.start()
        for each in opened:
            os.close(each)
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended since, as with subprocess
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Start:
    """What the forked process does; with what it needs, to be pickled on the way there."""

    def __init__(self, *, files: list[int], **what: Any) -> None:
        self._files = files
        self._what = what

    def __getstate__(self) -> dict[str, Any]:
        return {"_files": [DupFd(each) for each in self._files], "_what": self._what}

    def __call__(self) -> None:
        what = self._what
        # It would keep the server running after whoever started it has ended.
        os.close(multiprocessing.forkserver._forkserver._forkserver_alive_fd)
        for number, file in enumerate([each.detach() for each in self._files]):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(what["environment"])
        if what["start_new_session"]:
            os.setsid()
        if what["preexec_fn"] is not None:
            what["preexec_fn"]()
        if what["node"] is not None:
            _enter(what["node"])
        os.chdir(what["folder"])
        for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
            buffering = 1 if number == 2 else -1
            setattr(sys, name, os.fdopen(number, mode, buffering, closefd=False))
        program = what["program"]
        sys.argv = [program if what["how"] == "-m" else "-c", *what["arguments"]]
        try:
            if what["how"] == "-m":
                sys.modules.pop(program, None)  # to run it as a program, without a warning
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            else:
                sys.modules["__main__"] = main = types.ModuleType("__main__")
                exec(compile(program, "<string>", "exec"), vars(main))
        finally:
            atexit._run_exitfuncs()


def _enter(pid: int) -> None:
    """The namespaces of a Mininet node, as ``mnexec -a`` does."""
    for name in ("net", "mnt"):
        namespace = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        if _libc.setns(namespace, 0):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name} of {pid}")
        os.close(namespace)


def start_server() -> None:
    """Where it does not run: with this process's path, by which it finds what to import."""
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if path is not None:
            os.environ["PYTHONPATH"] = path


def is_python_module(command: Sequence[str]) -> bool:
    return list(command[:2]) == [sys.executable, "-m"] and command[2].split(".")[0] == "innet"


def run(
    command: Sequence[str], folder: str | Path, say: str | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run`` with its output captured as text."""
    if not FORKS:
        return subprocess.run(
            command, cwd=folder, input=say or "", capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        program = ForkedProgram(
            command, stdin=subprocess.PIPE, stdout=out, stderr=errors, cwd=folder
        )
        try:
            program.stdin.write((say or "").encode())  # less than a pipe holds
            program.stdin.close()
            status = program.wait(timeout)
        finally:
            program.kill()
        said = []
        for each in (out, errors):
            each.seek(0)
            said.append(each.read().decode())
    return subprocess.CompletedProcess(command, status, *said)


def start_program(command: Sequence[str], **options: Any) -> Any:
    """As ``subprocess.Popen``: a ``ForkedProgram`` where the command is one of innet's."""
    words = command[3:] if command[:2] == ["mnexec", "-a"] else command
    if is_python_module(words):
        return ForkedProgram(command, **options)
    return subprocess.Popen(command, **options)
