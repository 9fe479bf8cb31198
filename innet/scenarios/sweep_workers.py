"""Where the points of a sweep run: in this process, in processes of this machine, or on a cluster.

A task is a call of a function with keyword arguments, pickled; its answer is JSON. A pool takes
tasks and yields their answers as they come. A task whose process ends is answered with the reason,
so that the sweep can try it again; other tasks do not notice.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import pickle
import queue
import selectors
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from innet._version import __version__
from innet.core.child_process import ChildProcess, die_with_parent
from innet.core.errors import (
    CompositionError,
    InnetError,
    InputError,
    MissingToolError,
    NetworkError,
    OutputError,
)
from innet.core.files import atomic_write
from innet.core.threads import cores
from innet.records import Machine
from innet.records.report import Frozen

_ANSWER_SECONDS = 60.0  # for a line that a process has begun to write
_CONNECT_SECONDS = 10  # for a Dask scheduler to answer
_POLL_SECONDS = 2.0  # after which it is looked whether a cluster still has workers
# A process has this number of threads by default, and each of the others would have as many.
_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Function = Callable[..., Any]
"""Takes settings as keyword arguments; returns a record, a report or a dict."""

_one_at_a_time = threading.Lock()


class Answer(Frozen):
    """What became of a task.

    Attributes:
        innet: version of innet that ran it.
        machine: where it ran; None if its process ended.
        record: what the function returned; None if it failed.
        error: why it failed.
        again: whether another attempt may succeed.
    """

    innet: str = __version__
    machine: Machine | None = None
    record: dict[str, Any] | None = None
    error: str = ""
    again: bool = False


def pickled(function: Function, settings: Mapping[str, Any]) -> bytes:
    """A task, for a process that can import ``function`` by its name.

    Raises:
        InputError: the function is not importable, or a setting cannot be pickled.
    """
    if function.__module__ == "__main__" or "<" in function.__qualname__:
        raise InputError(
            f"{function.__qualname__} cannot be imported by other processes; put the function into "
            "a module, at its top level, or use jobs=1."
        )
    try:
        return pickle.dumps((function, dict(settings)))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InputError(f"a setting cannot be sent to another process: {error}.") from None


def run_task(task: bytes) -> str:
    """Run a task here; an ``Answer`` as JSON. A process runs one task at a time."""
    with _one_at_a_time:
        try:
            function, settings = pickle.loads(task)  # noqa: S301 - from the process that began it
        except Exception as error:
            found = Answer(error=f"the task cannot be read: {type(error).__name__}: {error}")
        else:
            found = run_here(function, settings)
        return found.model_dump_json()


def run_here(function: Function, settings: Mapping[str, Any]) -> Answer:
    """Call ``function`` with ``settings``; whatever it raises is in the answer."""
    try:
        record = as_json(function(**settings))
    except InnetError as error:
        # The same settings would be refused again.
        refused = isinstance(error, InputError | CompositionError | MissingToolError)
        refused = refused and not isinstance(error, OutputError)
        return Answer(machine=Machine.here(), error=str(error), again=not refused)
    except Exception as error:
        return Answer(machine=Machine.here(), error=f"{type(error).__name__}: {error}", again=True)
    return Answer(machine=Machine.here(), record=record)


def as_json(record: Any) -> dict[str, Any]:
    """A record, a report or a mapping as JSON.

    Raises:
        InputError: it is neither.
    """
    if hasattr(record, "model_dump_json"):
        record = json.loads(record.model_dump_json())
    if not isinstance(record, dict):
        raise InputError(
            f"the function returned {type(record).__name__}; it must return a record or a dict."
        )
    try:
        document: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"what the function returned is no JSON: {error}.") from None
    return document


class Pool(Protocol):
    """What runs tasks. It is a context, in which all that it has started is ended at the end."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def submit(self, key: str, function: Function, settings: Mapping[str, Any]) -> None:
        """Add the task of calling ``function`` with ``settings``."""

    def answers(self) -> Iterator[tuple[str, Answer]]:
        """Keys and answers, in the order in which they come, until no task is left.

        Tasks may be added meanwhile.
        """


class ThisProcess:
    """This process, which runs one task after the other."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Function, Mapping[str, Any]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()

    def submit(self, key: str, function: Function, settings: Mapping[str, Any]) -> None:
        self._waiting.append((key, function, settings))

    def answers(self) -> Iterator[tuple[str, Answer]]:
        while self._waiting:
            key, function, settings = self._waiting.popleft()
            yield key, run_here(function, settings)


class ProcessPool:
    """Processes of this machine, each with one task at a time.

    They are spawned, not forked: Numba's threads and compiled code do not survive a fork. They
    do not import the caller's main module, so scripts need no guard.

    Args:
        jobs: processes; by default one for each core.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs or cores()
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._working: dict[ChildProcess, str] = {}
        self._idle: list[ChildProcess] = []
        self._started = 0
        self._folder = Path()

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="innet-sweep-"))
        return self

    def __exit__(self, *error: object) -> None:
        for each in (*self._working, *self._idle):
            each.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pids(self) -> list[int]:
        """Of the processes that have a task."""
        return [each.pid for each in self._working]

    def submit(self, key: str, function: Function, settings: Mapping[str, Any]) -> None:
        self._waiting.append((key, pickled(function, settings)))

    def answers(self) -> Iterator[tuple[str, Answer]]:
        while self._waiting or self._working:
            while self._waiting and len(self._working) < self._jobs:
                self._begin(*self._waiting.popleft())
            with selectors.DefaultSelector() as selector:
                for each in self._working:
                    selector.register(each.fileno(), selectors.EVENT_READ, each)
                ready = [found.data for found, _ in selector.select()]
            for each in ready:
                yield self._working[each], self._answer(each)

    def _begin(self, key: str, task: bytes) -> None:
        process = self._idle.pop() if self._idle else self._start()
        self._working[process] = key
        task_line = {"task": base64.b64encode(task).decode(), "answer": str(self._file(process))}
        process.send(task_line)

    def _start(self) -> ChildProcess:
        self._started += 1
        threads = str(max(1, cores() // self._jobs))
        return ChildProcess(
            f"process {self._started} of the sweep",
            [sys.executable, "-m", __name__],
            self._folder / f"{self._started}.log",
            environment={
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                **{name: os.environ.get(name, threads) for name in _THREADS},
            },
            dies_with_parent=False,  # it sees to that itself: here there are threads
        )

    def _file(self, process: ChildProcess) -> Path:
        return process.log.with_suffix(".json")

    def _answer(self, process: ChildProcess) -> Answer:
        del self._working[process]
        try:
            process.read_line(_ANSWER_SECONDS, "done")
            found = Answer.model_validate_json(self._file(process).read_bytes())
        except InnetError as error:
            process.kill()
            return Answer(error=str(error), again=True)
        self._idle.append(process)
        return found


class DaskPool:
    """The workers of a Dask cluster. Its scheduler gives the tasks of lost workers to others.

    Args:
        address: of the scheduler, such as tcp://10.0.0.1:8786.
        patience: seconds to wait while the cluster has no worker.

    Raises:
        MissingToolError: Dask is not installed.
        NetworkError: no Dask scheduler answers there.
    """

    def __init__(self, address: str, patience: float = 60.0) -> None:
        try:
            distributed = importlib.import_module("distributed")  # optional; it has no type hints
        except ImportError:
            raise MissingToolError(
                "dask", "--scheduler", "Install it by: pip install 'innet[dask]'."
            ) from None
        self._address, self._patience = address, patience
        self._lost = distributed.KilledWorker
        self._keys: dict[Any, str] = {}
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            self._client = distributed.Client(
                address, timeout=_CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:
            raise NetworkError(
                f"no Dask scheduler answers at {address!r} ({error}); start one by `dask "
                "scheduler`, and give the address that it prints, such as tcp://10.0.0.1:8786."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._client.status == "running":
            self._client.cancel([*self._keys])
        self._client.close()

    def submit(self, key: str, function: Function, settings: Mapping[str, Any]) -> None:
        future = self._client.submit(run_task, pickled(function, settings), pure=False)
        self._keys[future] = key
        future.add_done_callback(self._done.put)

    def answers(self) -> Iterator[tuple[str, Answer]]:
        idle_since: float | None = None
        while self._keys:
            try:
                future = self._done.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                idle_since = self._idle_since(idle_since)
                continue
            yield self._keys.pop(future), self._answer(future)

    def _idle_since(self, earlier: float | None) -> float | None:
        """Since when the cluster has had no worker; None while it has some.

        Raises:
            NetworkError: for too long, or the scheduler is gone.
        """
        if self._client.status != "running":
            raise NetworkError(f"the Dask scheduler at {self._address} is gone.")
        if self._client.scheduler_info()["workers"]:
            return None
        now = time.monotonic()
        if earlier is not None and now - earlier > self._patience:
            raise NetworkError(
                f"the Dask scheduler at {self._address} has had no worker for "
                f"{self._patience:.0f} s; start some by `dask worker {self._address} --nthreads 1`."
            )
        return now if earlier is None else earlier

    def _answer(self, future: Any) -> Answer:
        try:
            found = Answer.model_validate_json(future.result())
        except Exception as error:
            # One that Dask calls lost it has tried on several workers already.
            said = f"{type(error).__name__}: {error}"
            return Answer(error=said, again=not isinstance(error, self._lost))
        if found.innet != __version__:
            return Answer(
                error=f"a Dask worker has innet {found.innet}, and this is {__version__}; install "
                "the same version everywhere."
            )
        return found


def main() -> None:
    """A process of ``ProcessPool``: tasks come as lines of JSON, answers go to files."""
    die_with_parent()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a simulation prints is no answer
    for line in sys.stdin:
        given = json.loads(line)
        answer = run_task(base64.b64decode(given["task"]))
        with atomic_write(given["answer"]) as temporary:
            temporary.write_text(answer, encoding="utf-8")
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    main()
