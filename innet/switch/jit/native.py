"""Machine code of compiled programs, which runs without Numba. This module does not import Numba.

A compiled program is one C function, ``int32 enter(int64 *frame)``. The frame holds the arguments,
then what the function returns, then a word for Numba's own use. An integer is one word. An array is
what Numba makes of it: owner of the memory (0: none), 0, number of elements, bytes of an element,
address, then the lengths and the strides of its dimensions. The function returns 0, or the
number of an error: from ``ENDLESS`` down for a loop without end, others for lack of memory.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import accumulate
from math import prod
from operator import index
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from innet.core.buffers import address_of

ENTER = "innet_enter"
"""The symbol of the function."""
RELEASE = "innet_release"
"""The symbol of the function ``void release(void *owner)``, which gives memory back."""

ENDLESS = -1000
"""Error numbers from here down: a loop without end, at site ``ENDLESS - number``. Numba's own are
above."""

Kind = tuple[str, int]
Value = int | NDArray[Any]

#: Words of an array before its dimensions.
_HEADER = 5


@dataclass(frozen=True, slots=True)
class MachineCode:
    """A compiled program as stored on disk.

    Attributes:
        growth: bytes by which a packet may leave longer.
        row: words of a waiting packet; 0 without queues.
        arguments, returned: dtype and number of dimensions of each; 0 dimensions for an integer.
        needs_numba: the code calls Numba's runtime, which must be started first.
        code: an object file for this processor, with the symbols ``ENTER`` and ``RELEASE``.
    """

    growth: int
    row: int
    arguments: tuple[Kind, ...]
    returned: tuple[Kind, ...]
    needs_numba: bool
    code: bytes

    def header(self) -> dict[str, Any]:
        """All but the code, as JSON knows it."""
        names = [each.name for each in fields(self) if each.name != "code"]
        return {name: value for name, value in asdict(self).items() if name in names}


def word_count(kind: Kind) -> int:
    """The number of frame words of an argument or a result."""
    _, dimensions = kind
    return _HEADER + 2 * dimensions if dimensions else 1


class EndlessError(Exception):
    """A loop of the program ran too often; ``site`` is the number of its backward jump."""

    def __init__(self, site: int) -> None:
        super().__init__(site)
        self.site = site


class NativeProgram:
    """A compiled program in memory.

    Attributes:
        compiled: the stored program.
        entry: address of the function, as long as this lives.
    """

    def __init__(self, compiled: MachineCode) -> None:
        self.compiled = compiled
        self._engine = _engine(compiled)
        self.entry: int = self._engine.get_function_address(ENTER)
        release = self._engine.get_function_address(RELEASE)
        self._enter = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.entry)
        self._release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(release)

    def frame(self) -> Frame:
        """A new frame for calls, of which one thread may use one at a time."""
        return Frame(self)

    def enter(self, address: int) -> int:
        """Run with the frame at ``address``; returns 0, or the number of an error."""
        return int(self._enter(address))

    def release(self, owner: int) -> None:
        """Release memory that a call returned."""
        self._release(owner)


class Frame:
    """Words for the calls of one compiled program.

    Attributes:
        count: of arguments.
        entry: address of the program's function.
        memory: shape (n,), int64: the frame.
        starts: where in it each argument begins, and last what is returned.
    """

    def __init__(self, native: NativeProgram) -> None:
        self._native = native
        compiled = native.compiled
        self.count = len(compiled.arguments)
        self._kinds = [(np.dtype(dtype), dimensions) for dtype, dimensions in compiled.arguments]
        self.entry = native.entry
        self.starts = list(accumulate(map(word_count, compiled.arguments), initial=0))
        returned = sum(map(word_count, compiled.returned))
        self.memory = np.zeros(self.starts[-1] + returned + 1, dtype=np.int64)
        self._bytes = self.memory.data
        self._address = address_of(self.memory)
        self._returned = self.memory[self.starts[-1] : -1]

    def words(self, first: int, values: Iterable[Value]) -> list[int]:
        """The words of arguments from number ``first`` on.

        Raises:
            TypeError: an argument has another type or shape. The compiled program does not check
                arguments.
        """
        words: list[int] = []
        for value, (dtype, dimensions) in zip(values, self._kinds[first:], strict=False):
            if not dimensions:
                words.append(_integer(value))
                continue
            if isinstance(value, int):
                raise TypeError(f"the compiled program takes an array, not {value}")
            shape = value.shape
            if value.dtype != dtype or len(shape) != dimensions or not value.flags.c_contiguous:
                raise TypeError(
                    f"the compiled program takes a C-contiguous array of {dtype} with "
                    f"{dimensions} dimensions, not one of {value.dtype}, shape {shape}"
                )
            address = address_of(value)
            words += (0, 0, value.size, value.itemsize, address, *shape, *value.strides)
        return words

    def write(self, first: int, words: Sequence[int]) -> None:
        """Write the words of arguments from number ``first`` on; arrays must outlive the call."""
        struct.pack_into(f"{len(words)}q", self._bytes, 8 * self.starts[first], *words)

    def put(self, first: int, values: Sequence[Value]) -> None:
        """``write`` of ``words``."""
        self.write(first, self.words(first, values))

    def call(self, passed: Mapping[int, NDArray[Any]]) -> list[Value]:
        """Run the program with the arguments that were written.

        Args:
            passed: the arrays among them that the program may return, which are then what is
                returned here, by address.

        Raises:
            EndlessError: a loop without end.
            MemoryError: it could not allocate memory.
        """
        self.memory[-1] = 0
        if error := self._native.enter(self._address):
            if error <= ENDLESS:
                raise EndlessError(ENDLESS - error)
            raise MemoryError("the compiled program could not allocate memory")
        words = self._returned.tolist()
        results: list[Value] = []
        at = 0
        for kind in self._native.compiled.returned:
            end = at + word_count(kind)
            results.append(self._result(words[at:end], kind, passed))
            at = end
        return results

    def _result(self, words: list[int], kind: Kind, passed: Mapping[int, NDArray[Any]]) -> Value:
        dtype, dimensions = kind
        if not dimensions:
            return words[0]
        owner, _, _, _, address = words[:_HEADER]
        if not owner:
            return passed[address]
        shape = tuple(words[_HEADER : _HEADER + dimensions])
        memory = _ReturnedMemory(
            self._native, owner, address, prod(shape) * np.dtype(dtype).itemsize
        )
        return np.asarray(memory).view(dtype).reshape(shape)


def _integer(value: Value) -> int:
    """Also of NumPy's integers, which have a shape and an address as arrays do."""
    try:
        return index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"the compiled program takes an integer, not {kind}") from None


class _ReturnedMemory:
    """Memory that a compiled program returned; it is released with the last view of it."""

    def __init__(self, native: NativeProgram, owner: int, address: int, size: int) -> None:
        self._native = native
        self._owner = owner
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
        }

    def __del__(self) -> None:
        self._native.release(self._owner)


def _engine(compiled: MachineCode) -> Any:
    """LLVM's linker with the object file in it."""
    _start_llvm()
    if compiled.needs_numba:
        start_numba()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(compiled.code))
    engine.finalize_object()
    return engine


@cache
def _start_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def start_numba() -> None:
    """Make LLVM know the functions of Numba's runtime."""
    registry = importlib.import_module("numba.core.registry")
    runtime = importlib.import_module("numba.core.runtime")
    runtime.rtsys.initialize(registry.cpu_target.target_context)
