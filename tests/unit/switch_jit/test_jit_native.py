"""Machine code that runs without Numba: arguments, results and memory."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from innet.core.buffers import address_of
from innet.switch.engine import MAX_BACKWARD_JUMPS
from innet.switch.jit import cache, codegen, compiler
from innet.switch.jit.native import EndlessError, MachineCode, NativeProgram

SOURCE = """
import numpy as np
from numba import njit

GROWTH, ROW = 3, 5

@njit("Tuple((int64, int64[::1], uint8[:, ::1]))(int64[::1], int64, uint8[:, ::1])")
def process(given, count, bytes_):
    if count == 0:
        return 0, given, bytes_
    made = np.empty(count, np.int64)
    made[:] = given[0]
    made[-1] = -1
    return len(made), made[1:], np.zeros((2, 3), np.uint8)
"""
GIVEN = np.arange(7, 10)
BYTES = np.zeros((4, 5), np.uint8)
PASSED = {address_of(each): each for each in (GIVEN, BYTES)}


@pytest.fixture(scope="module")
def made() -> MachineCode:
    return compiler.compile_source(SOURCE, Path("made.py"))


def test_what_is_known_of_it(made: MachineCode) -> None:
    assert (made.growth, made.row) == (3, 5)
    assert made.arguments == (("int64", 1), ("int64", 0), ("uint8", 2))
    assert made.returned == (("int64", 0), ("int64", 1), ("uint8", 2))
    assert not made.needs_numba
    assert cache.deserialize(cache.serialize(made)) == made


def test_arrays_that_were_passed_come_back(made: MachineCode) -> None:
    frame = NativeProgram(made).frame()
    frame.put(0, [GIVEN, 0, BYTES])
    number, array, matrix = frame.call(PASSED)
    assert number == 0
    assert array is GIVEN
    assert matrix is BYTES


def test_arrays_of_its_own(made: MachineCode) -> None:
    frame = NativeProgram(made).frame()
    frame.put(0, [GIVEN, 4, BYTES])
    number, array, matrix = frame.call(PASSED)
    frame.put(1, [5])
    again = frame.call(PASSED)[1]
    del frame
    assert isinstance(array, np.ndarray)
    assert isinstance(again, np.ndarray)
    assert isinstance(matrix, np.ndarray)
    assert (number, array.tolist(), again.tolist()) == (4, [7, 7, -1], [7, 7, 7, -1])
    assert matrix.tolist() == [[0, 0, 0], [0, 0, 0]]
    array[0] = 1
    assert array.tolist() == [1, 7, -1]


def test_memory_is_given_back(made: MachineCode) -> None:
    frame = NativeProgram(made).frame()
    frame.put(0, [GIVEN, 1 << 20, BYTES])
    for round_ in range(100):
        frame.call(PASSED)
        if round_ == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # of 800,000 KiB


def test_memory_that_cannot_be_had(made: MachineCode) -> None:
    frame = NativeProgram(made).frame()
    frame.put(0, [GIVEN, 1 << 58, BYTES])
    with pytest.raises(MemoryError, match="the compiled program"):
        frame.call(PASSED)


@pytest.mark.parametrize(
    "wrong",
    [
        [GIVEN.astype(np.int32), 0, BYTES],
        [GIVEN[::2], 0, BYTES],
        [GIVEN, 0, BYTES[0]],
        [GIVEN, 0, BYTES.T],
        [3, 0, BYTES],
        [GIVEN, GIVEN, BYTES],
    ],
)
def test_wrong_arguments_go_no_further(made: MachineCode, wrong: list[int]) -> None:
    with pytest.raises(TypeError, match="the compiled program takes"):
        NativeProgram(made).frame().put(0, wrong)


def test_calls_into_a_runtime_unknown_to_innet(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a version of Numba may make it that has the memory of arrays in another way."""
    monkeypatch.setattr(codegen, "_OWN_RUNTIME", frozenset())
    made = compiler.compile_source(SOURCE, Path("made.py"))
    assert made.needs_numba
    frame = NativeProgram(made).frame()
    frame.put(0, [GIVEN, 4, BYTES])
    array = frame.call(PASSED)[1]
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [7, 7, -1]


def test_an_endless_loop_ends_the_call_with_the_number_of_its_place() -> None:
    source = """
from numba import njit
from innet.switch.jit.runtime.core import count_jump

GROWTH, ROW = 0, 0

@njit
def inner(place, turns):
    jumps = 0
    for _ in range(turns):
        jumps = count_jump(jumps, place)
    return jumps

@njit("Tuple((int64, int64))(int64, int64)")
def process(place, turns):
    return inner(place, turns), 0
"""
    frame = NativeProgram(compiler.compile_source(source, Path("endless.py"))).frame()
    frame.put(0, [7, MAX_BACKWARD_JUMPS])
    assert frame.call({})[0] == MAX_BACKWARD_JUMPS
    frame.put(0, [7, MAX_BACKWARD_JUMPS + 1])
    with pytest.raises(EndlessError) as caught:
        frame.call({})
    assert caught.value.site == 7
