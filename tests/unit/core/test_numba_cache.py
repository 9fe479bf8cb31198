"""Functions that Numba compiles for innet: what is on disk is never old, and never in the way."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.typed_passes import NativeLowering
from support import fork_server

from innet.core.numba_cache import defer_signals, njit
from innet.switch.jit.codegen import StraightPipeline

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.xdist_group("forked")  # with the docs' programs, from one server

CALLED = """
from innet.core.numba_cache import njit
from innet.constants import STEP
@njit(cache=True)
def step(x):
    return x + STEP
def divide(x, y):
    return x / y
"""
CALLER = """
from innet.called import (
    step,
)
from innet.core.numba_cache import njit
@njit(cache=True)
def twice(x):
    return step(step(x))
if __name__ == "innet.caller":
    print(twice(0), sum(twice.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of the same name, in which nothing was compiled before."""
    folder = tmp_path / "innet"
    core = folder / "core"
    core.mkdir(parents=True)
    for each in (folder, core):
        (each / "__init__.py").touch()
    for name in ("compile_notice.py", "numba_cache.py", "process_lock.py", "waiting.py"):
        shutil.copy(ROOT / "innet" / "core" / name, core)
    (folder / "constants.py").write_text("STEP = 1\n")
    (folder / "called.py").write_text(CALLED)
    (folder / "caller.py").write_text(CALLER)
    return folder


# What Numba imports takes longer than all that is tested here: processes are forked from one that
# has done so, and import the package in innet's place.
IMPORT = """
import sys
for name in [each for each in sys.modules if each.split(".")[0] == "innet"]:
    del sys.modules[name]
sys.path.insert(0, ".")
sys.dont_write_bytecode = True  # Python dates sources by the second
import innet.caller
"""


class Process:
    """A process that imports the package's ``caller``."""

    def __init__(self, package: Path, environment: dict[str, str]) -> None:
        plain = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
        with (package.parent / f"said{next(_NUMBERS)}").open("w+") as said:
            self._said = os.fdopen(os.dup(said.fileno()))
            self._process = fork_server.ForkedProgram(
                [sys.executable, "-c", IMPORT],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=package.parent,
                env={**plain, **environment},
            )

    def finish(self) -> tuple[int, int]:
        """What the function gave, and how many compiled functions were found."""
        status = self._process.wait(120)
        with self._said:
            self._said.seek(0)
            said = self._said.read()
        assert status == 0, said
        result, found = said.splitlines()[-1].split()  # after what is told, if anything is
        return int(result), int(found)


_NUMBERS = itertools.count()


def start(package: Path, **environment: str) -> Process:
    return Process(package, environment)


def run(package: Path, **environment: str) -> tuple[int, int]:
    return start(package, **environment).finish()


def test_of_processes_at_the_same_time_one_compiles(package: Path) -> None:
    processes = [start(package) for _ in range(3)]
    assert sorted(each.finish() for each in processes) == [(2, 0), (2, 1), (2, 1)]
    assert not list(package.rglob("*.lock"))


def test_code_of_other_files_is_not_used_when_they_changed(package: Path) -> None:
    assert run(package) == (2, 0)
    assert run(package) == (2, 1)
    (package / "constants.py").write_text("STEP = 5\n")
    assert run(package) == (10, 0)


def test_damaged_files_are_made_anew(package: Path) -> None:
    run(package)
    for each in (package / "__pycache__").glob("*.nb[ic]"):
        each.write_bytes(each.read_bytes()[:-20])
    assert run(package) == (2, 0)
    assert run(package) == (2, 1)


def test_an_inner_function_has_no_machine_code(package: Path) -> None:
    assert run(package) == (2, 0)
    step, twice = sorted((package / "__pycache__").glob("*.nbc"))
    assert step.name.startswith("called.step-")
    assert b"ELF" not in step.read_bytes()
    assert b"ELF" in twice.read_bytes()
    assert run(package) == (2, 1)


def test_an_inner_function_is_found_by_the_next_caller(package: Path) -> None:
    run(package)
    (kept,) = (package / "__pycache__").glob("called.step-*.nbc")
    before = kept.stat().st_mtime_ns
    with (package / "caller.py").open("a") as file:
        file.write("    print(end='')\n")
    assert run(package) == (2, 0)
    assert kept.stat().st_mtime_ns == before


def _root(x: int) -> int:
    if x < 0:
        raise ValueError("below zero")
    return int(x**0.5)


def test_python_may_call_an_inner_function() -> None:
    root = njit()(_root)
    twice = njit()(lambda x: root(root(x)))
    assert twice(16) == 2
    assert root(16) == 4
    with pytest.raises(ValueError, match="below zero"):
        root(-1)


Numbers: Any = tuple[np.ndarray, np.ndarray]


def test_references_are_not_counted_where_nothing_is_allocated() -> None:
    """Nor does a function become such a one since its first caller is."""

    @njit(nogil=True)
    def fresh(arrays: Numbers, size: int) -> np.ndarray:
        return np.full(size, arrays[0][0])

    @njit(nogil=True, allocates=False)
    def moved(arrays: Numbers, turns: int) -> int:
        for turn in range(turns):
            one, other = arrays
            one[turn:][0] += other[turn:][0]
        return len(arrays[0])

    @njit(nogil=True, allocates=False)
    def calls(arrays: Numbers, size: int) -> int:
        return moved(arrays, 1) + len(fresh(arrays, size))

    arrays = np.arange(3.0), np.ones(3)
    assert calls(arrays, 4) == 3 + 4
    assert arrays[0].tolist() == [1, 1, 2]
    assert fresh(arrays, 2).tolist() == [1, 1]
    for function, counts in ((fresh, True), (moved, False)):
        if function is moved:
            moved(arrays, 0)  # Python calls another form of it than compiled functions do
        (code,) = function.inspect_llvm().values()
        assert ("NRT_" in code) is counts, function


def test_a_signature_is_compiled_when_it_is_needed_and_no_other() -> None:
    @njit("f8(f8[::1], i8)")
    def at(numbers: np.ndarray, where: int) -> float:
        return float(numbers[where])

    dispatcher: Any = at
    assert not dispatcher.overloads
    with pytest.raises(TypeError, match="No matching definition"):
        at(np.arange(3), 1)  # integers would be read as floats
    with pytest.raises(TypeError, match="not enough arguments"):
        dispatcher(np.arange(3.0))
    assert at(np.arange(3.0), np.uint8(2)) == 2
    with pytest.raises(TypeError, match="No matching definition"):
        at(np.arange(6.0)[::2], 1)
    assert [str(each) for each in dispatcher.signatures] == [
        "(Array(float64, 1, 'C', False, aligned=True), int64)"
    ]


def test_a_compiled_function_calls_one_with_a_signature() -> None:
    @njit("f8(f8)")
    def half(x: float) -> float:
        return x / 2

    @njit()
    def quarter(x: int) -> float:
        return half(half(x))

    assert quarter(6) == 1.5
    assert half(3) == 1.5


def test_an_inner_function_raises_through_its_caller() -> None:
    root = njit()(_root)
    with pytest.raises(ValueError, match="below zero") as caught:
        njit()(lambda x: 1 + root(x))(-3)
    assert caught.value.args == ("below zero",)


def _root_of_this_test_alone(x: int) -> int:
    if x < 0:
        raise ValueError("below zero", x)
    return int(x**0.5)


def test_an_inner_function_raises_with_arguments_of_run_time() -> None:
    root = njit()(_root_of_this_test_alone)
    with pytest.raises(ValueError, match="below zero") as caught:
        njit()(lambda x: 1 + root(x))(-3)
    assert caught.value.args == ("below zero", -3)


def test_it_raises_so_from_disk_as_well(package: Path) -> None:
    (package / "caller.py").write_text(RAISING)
    assert run(package) == (-3, 0)
    assert run(package) == (-3, 1)


RAISING = """
from innet.core.numba_cache import njit
@njit(cache=True)
def root(x):
    if x < 0:
        raise ValueError("below zero", x)
    return int(x**0.5)
@njit(cache=True)
def caller(x):
    return 1 + root(x)
if __name__ == "innet.caller":
    try:
        caller(-3)
    except ValueError as error:
        print(error.args[1], sum(caller.stats.cache_hits.values()))
"""


def test_who_wants_to_say_so_is_told_of_what_is_not_on_disk(package: Path) -> None:
    (package / "caller.py").write_text(HOOKED)
    assert run(package) == (2, 1)
    assert run(package) == (2, 0)


HOOKED = """
from contextlib import contextmanager
from innet.core import waiting
from innet.core.numba_cache import njit
told = []
@contextmanager
def compiling():
    told.append(None)
    yield
waiting.hooks.compiling = compiling
@njit(cache=True)
def increment(x):
    return x + 1
if __name__ == "innet.caller":
    print(increment(1), len(told))
"""


def test_the_same_function_with_other_options_is_other_code(package: Path) -> None:
    decorators = "njit(cache=True, error_model='numpy')", "njit(cache=True)"
    (package / "caller.py").write_text(DIVIDING.replace("DECORATOR", decorators[0]))
    assert run(package) == (1, 0)
    (package / "caller.py").write_text(DIVIDING.replace("DECORATOR", decorators[1]))
    assert run(package) == (0, 0)


# ``called`` stays as it is, and so does the function's file.
DIVIDING = """
from innet import called
from innet.core.numba_cache import njit
divide = DECORATOR(called.divide)
if __name__ == "innet.caller":
    try:
        result = divide(1.0, 0.0) > 0
    except ZeroDivisionError:
        result = 0
    print(int(result), sum(divide.stats.cache_hits.values()))
"""


def test_no_place_to_write_to(package: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    (package / "__pycache__").touch()
    nowhere = {"XDG_CACHE_HOME": str(blocked), "PYTHONDONTWRITEBYTECODE": "1"}
    assert run(package, **nowhere, INNET_CACHE_DIR=str(blocked)) == (2, 0)
    named = {**nowhere, "INNET_CACHE_DIR": str(tmp_path / "named")}
    assert run(package, **named) == (2, 0)
    assert run(package, **named) == (2, 1)


def test_a_full_disk_costs_time_only(package: Path) -> None:
    with (package / "core" / "numba_cache.py").open("a") as file:
        file.write(FULL)
    assert run(package) == (2, 0)


FULL = """
def _full(self, name, data):
    raise OSError(28, "No space left on device")
_Files._save_data = _full
"""


def test_kernels_say_that_compiling_is_turned_off() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "innet", "allreduce", "--size", "100", "--engine", "interpret"],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith('error: the kernels "cpu" are compiled with Numba, which NUMBA_')


@pytest.fixture
def heeding() -> Iterator[None]:
    """Interruptions raise KeyboardInterrupt, also where a shell started the tests without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeding")
@pytest.mark.parametrize(
    "decorate", [njit(), numba.njit(pipeline_class=StraightPipeline)], ids=["own", "emitted"]
)
def test_an_interruption_waits_for_llvm(
    monkeypatch: pytest.MonkeyPatch, decorate: Callable[[Any], Any]
) -> None:
    lowered = []

    def interrupted(self: NativeLowering, state: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        lowered.append(run_pass(self, state))
        return True

    run_pass = NativeLowering.run_pass
    monkeypatch.setattr(NativeLowering, "run_pass", interrupted)
    function = decorate(lambda x: x + 1)
    with pytest.raises(KeyboardInterrupt):
        function(1)
    assert len(lowered) == 1
    monkeypatch.undo()
    assert function(1) == 2


def test_a_termination_waits_each_time() -> None:
    reached = []

    def work() -> None:
        for step in range(3):
            signal.raise_signal(signal.SIGTERM)  # `timeout` sends two
            reached.append(step)

    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    try:
        with pytest.raises(SystemExit, match="3"):
            defer_signals(work)()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert reached == [0, 1, 2]


@pytest.mark.usefixtures("heeding")
def test_a_second_interruption_does_not_wait() -> None:
    reached = []

    def work() -> None:
        for step in range(3):
            reached.append(step)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        defer_signals(work)()
    assert reached == [0, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
