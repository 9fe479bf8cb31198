"""Hosts whose protocol is a function under Numba, for millions of packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from innet.core.buffers import address_of
from innet.core.errors import InputError
from innet.core.numba_cache import njit
from innet.sim.scripts import CalledHost
from innet.sim.state import CALL, byte_rows_view, bytes_view, calls_view, ints_view

NEVER, DONE = -1, -2
"""Times that a compiled host may return: it is not to be called by itself; and it is done."""


class CompiledHost(CalledHost):
    """A host with a function ``(now, frame, memory, out, lengths)`` that returns ``(sent, wake)``.

    It is called at time 0 and at the time that it returned, with an empty ``frame``, and for each
    frame that has come.

    Args:
        name: of the host.
        function: plain Python that Numba compiles. Its arguments: picoseconds; uint8 (n,),
            the frame; int64 (m,), the host's own memory; uint8 (rows, longest), to be filled with
            frames to send; int64 (rows,), their lengths. It returns how many of them to send, and
            the time of its next call if nothing comes: picoseconds, ``NEVER`` or ``DONE``.
        memory: int64 (m,), or m: of zeros. The function reads and writes it.
        rows: most frames that a call sends.
        longest: bytes of a frame.

    Attributes:
        memory: int64 (m,).

    Raises:
        InputError: Numba cannot compile the function; says why.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., tuple[int, int]],
        memory: ArrayLike | int,
        rows: int,
        longest: int,
    ) -> None:
        self.name = name
        words = np.zeros(memory, np.int64) if isinstance(memory, int) else memory
        self.memory = np.ascontiguousarray(words, np.int64)
        self._out = np.zeros((rows, longest), np.uint8)
        self._lengths = np.zeros(rows, np.int64)
        self._function = _c_function(name, function)
        self.entry = self._function.address
        self.call: NDArray[Any] = np.zeros(1, CALL)
        here = self.call[0]
        here["memory"], here["words"] = address_of(self.memory), len(self.memory)
        here["out"], here["rows"], here["stride"] = address_of(self._out), rows, longest
        here["lengths"] = address_of(self._lengths)


def _c_function(name: str, function: Callable[..., tuple[int, int]]) -> Any:
    """What calls a function with what a CALL says."""
    compiled: Any = njit(nogil=True)(function)

    def entry(address: int) -> int:
        call = calls_view(address, 1)[0]
        sent, wake = compiled(
            call.time,
            bytes_view(call.frame, call.length),
            ints_view(call.memory, call.words),
            byte_rows_view(call.out, call.rows, call.stride),
            ints_view(call.lengths, call.rows),
        )
        call.sent = sent
        call.wake = wake
        return 0

    try:
        return numba.cfunc("int32(int64)")(entry)
    except numba.core.errors.NumbaError as error:
        raise InputError(
            f"Numba cannot compile {getattr(function, '__name__', function)} of {name}: {error}"
        ) from None
