"""Threads that run the parts of a window together, in compiled code.

The nodes of a network are in parts, and a window is over when all of them were run once. A thread
takes the parts that are its own first, as their data are in its core's caches, and then those that
no other one has begun. So a thread that the machine has no core for keeps nobody waiting, unless it
has begun a part.

Threads share words of memory (``TEAM_WORDS``), each in a cache line of its own: which window is
open, how many parts were run so far, and for each part the window that it was begun in last.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.sim.atomic import add, load, replace
from innet.switch.inline import call_at

_LINE = 8  # words of a cache line
OPEN, RUN, OVER, THREADS, YIELD, SLEEP, STEALS, BEGUN = (_LINE * 8 * line for line in range(8))
"""Where words of a team begin, in bytes: the number of the window that is open, from 1 on; parts
that were run, in all windows; whether no window follows; threads; the addresses of the C functions
that let others run, and that let one sleep for microseconds; whether threads take each other's
parts; and the window that each part was begun in last."""

_LOOKS = 1 << 10  # at a word, before a thread lets others run in between: some microseconds
_YIELDS = 1 << 7  # how often it does, before it sleeps in between
_NAP = 20  # microseconds


def make_team(threads: int, parts: int, *, steals: bool = True) -> NDArray[np.int64]:
    """The words of a team.

    Args:
        threads: how many there are.
        parts: of each window.
        steals: whether a thread takes parts of others.
    """
    words = np.zeros((BEGUN // 8) + _LINE * parts, np.int64)
    words[THREADS // 8], words[STEALS // 8] = threads, steals
    library = ctypes.CDLL(None)
    for word, function in ((YIELD, library.sched_yield), (SLEEP, library.usleep)):
        words[word // 8] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return words


@njit(cache=True, nogil=True)
def begin_window(team: int) -> int:
    """Open the next window to all threads; returns its number."""
    return int(add(team + OPEN, 1) + 1)


@njit(cache=True, nogil=True)
def takes_part(team: int, part: int, window: int) -> bool:
    """Whether the thread that asks is the one to run a part in a window."""
    begun = team + BEGUN + 8 * _LINE * part
    return bool(load(begun) == window - 1 and replace(begun, window - 1, window))


@njit(cache=True, nogil=True)
def end_part(team: int) -> None:
    """A part was run."""
    add(team + RUN, 1)


@njit(cache=True, nogil=True)
def _pause(team: int, looks: int) -> None:
    """Wait a little, after so many looks in vain."""
    if looks >= _LOOKS + _YIELDS:
        call_at(load(team + SLEEP), _NAP)
    elif looks >= _LOOKS:
        call_at(load(team + YIELD), 0)


@njit(cache=True, nogil=True)
def wait_for_parts(team: int, parts: int) -> None:
    """Wait until others have run the parts of this window that they have begun."""
    looks, all_parts = 0, load(team + OPEN) * parts
    while load(team + RUN) < all_parts:
        _pause(team, looks)
        looks += 1


@njit(cache=True, nogil=True)
def next_window(team: int, seen: int) -> int:
    """Wait for a window after ``seen``; returns its number, or -1 if none follows."""
    looks = 0
    while True:
        window = load(team + OPEN)
        if window != seen:
            return int(window)
        if load(team + OVER) != 0:
            return -1
        _pause(team, looks)
        looks += 1


@njit(cache=True, nogil=True)
def end_windows(team: int) -> None:
    """Let other threads return."""
    add(team + OVER, 1)
