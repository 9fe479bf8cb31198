"""A compiled program in the loop of other compiled code, without a step of Python between batches.

``JitEngine.inline`` makes a frame ready, with the arguments that stay. ``run_inline`` writes those
that change and calls the program, as ``native.Frame`` does from Python.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from innet.core.numba_cache import njit

Words = NDArray[np.int64]

#: Numbers of arguments: those before are the packets received, those between what is sent.
FIRST, CLOCK = 3, 9
_ELEMENTS, _ROWS, _COLUMNS = 2, 5, 6  # words of an array of two dimensions, see ``native``


class InlineProgram(NamedTuple):
    """A compiled program and its frame.

    Attributes:
        entry: address of the program's C function.
        frame: (n,) int64, the words of ``native.Frame``.
        starts: (k + 1,) int64: where in them each of the arguments begins, and what is returned.
        out: (rows, stride) uint8; ``out_length``, ``out_port``: (rows,) int32: what leaves.
    """

    entry: int
    frame: Words
    starts: Words
    out: NDArray[np.uint8]
    out_length: NDArray[np.int32]
    out_port: NDArray[np.int32]


def _call(context: Any, entry: Any, frame: Any) -> Any:  # noqa: ARG001 - as Numba calls it
    """Call the C function at the address ``entry`` with the address ``frame``."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        words = ir.IntType(64).as_pointer()
        function = ir.FunctionType(ir.IntType(32), [words]).as_pointer()
        return builder.call(
            builder.inttoptr(values[0], function), [builder.inttoptr(values[1], words)]
        )

    return types.int32(types.int64, types.int64), code


_enter: Any = intrinsic(_call)


@njit(cache=True, nogil=True)
def run_inline(program: InlineProgram, first: int, count: int, clock: int) -> tuple[int, int, int]:
    """Run the packets from ``first`` on of ``count``, as many as there is room for what leaves.

    They lie in the memory that ``Engine.inline`` was given. Lengths and ports must be right.

    Args:
        program: what ``InlineSwitch.begin`` gave.
        first: number of a packet.
        count: how many there are, those before ``first`` included.
        clock: microseconds.

    Returns:
        which packet is next; how many rows of ``out`` are filled; 0, or not if there was no
        memory for it.
    """
    frame, starts = program.frame, program.starts
    for argument in range(FIRST):
        at = starts[argument]
        is_matrix = argument == 0
        frame[at + _ELEMENTS] = count * (frame[at + _COLUMNS] if is_matrix else 1)
        frame[at + _ROWS] = count
    frame[starts[FIRST]] = first
    frame[starts[CLOCK]] = clock
    frame[-1] = 0
    failed = _enter(program.entry, frame.ctypes.data)
    returned = starts[-1]
    return int(frame[returned]), int(frame[returned + 1]), int(failed)
