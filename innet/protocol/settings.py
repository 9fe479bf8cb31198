"""A worker's membership in a job, and its timing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from innet.core.errors import InputError
from innet.core.numbers import is_real
from innet.core.settings import (
    BITMAP_BITS,
    GIVE_UP,
    MAX_PRIORITY,
    MAX_WINDOW,
    MAX_WORKERS,
    TIMEOUT,
    WindowControl,
    too_many_workers,
)

REORDERING = 1e-3
"""Seconds of reordering to expect between machines whose network keeps packets in order."""

TAIL_PROBE = 0.01
"""Seconds, longer than most round trips between machines of a cluster."""


@dataclass(frozen=True, slots=True)
class JobMembership:
    """A worker's membership in a job.

    Args:
        worker: index of this worker, 0 .. workers - 1.
        workers: how many the job has, 1 .. 32,768.
        job: the job's number, 16 bits.
        epoch: epoch of the job, 16 bits. A job that gave up, or whose switch lost its registers,
            continues in the next epoch (``Job.next_epoch``) with new clients.
        window: slots of the job, a power of two up to 65536: the most chunks under way at once.
        absent: indices of workers that do not take part in this epoch. Bits and indices of the
            others do not change.
        bit: which bit of a result's bitmap names this worker; by default its index, in jobs of up
            to 32 workers.
        priority: of the job's packets, 0 to 7; switches may serve higher ones first.

    Raises:
        InputError: a number out of range.
    """

    worker: int
    workers: int
    job: int = 0
    epoch: int = 0
    window: int = 256
    absent: frozenset[int] = frozenset()
    bit: int | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        if self.workers > MAX_WORKERS:
            raise InputError(too_many_workers(self.workers))
        if self.bit is None and self.workers > BITMAP_BITS:
            raise InputError(too_many_workers(self.workers, most=BITMAP_BITS))
        _require("the number of workers", self.workers, 1, MAX_WORKERS)
        _require("the worker's index", self.worker, 0, self.workers - 1)
        _require("the job's number", self.job, 0, 0xFFFF)
        _require("the epoch", self.epoch, 0, 0xFFFF)
        _require("the window", self.window, 1, MAX_WINDOW)
        _require("the priority", self.priority, 0, MAX_PRIORITY)
        if self.window & (self.window - 1):
            raise InputError(f"the window is {self.window} slots; choose a power of two.")
        if self.worker in self.absent:
            raise InputError(f"worker {self.worker} is absent, so it has no worker's end.")
        if self.bit is not None:
            _require("the worker's bit", self.bit, 0, BITMAP_BITS - 1)

    @property
    def present(self) -> tuple[int, ...]:
        """Indices of the workers that take part, ascending."""
        return tuple(index for index in range(self.workers) if index not in self.absent)

    @property
    def bitmap(self) -> int:
        """The same workers as bits; those of the header's bitmap in jobs of up to 32 workers."""
        return bitmap_of(self.workers, self.absent)


def bitmap_of(workers: int, absent: Iterable[int]) -> int:
    """Bits of the indices 0 .. workers - 1 that are not ``absent``."""
    everybody = (1 << workers) - 1
    return everybody & ~sum(1 << index for index in absent if 0 <= index < workers)


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts, in seconds of the caller's clock.

    Args:
        timeout: how long a chunk waits for its result before it is sent again. A short timeout
            recovers faster from loss; one below the round trip sends everything twice. Adaptive
            timers start with it.
        backoff: factor on a chunk's timeout after each retransmission, at least 1. It limits copies
            while other workers are late.
        max_timeout: upper limit of the timeout with backoff.
        give_up: how long after its first transmission a chunk may lack its result.
        adaptive: timeouts follow the measured round trips, as in TCP (RFC 6298).
        min_timeout: lower limit of an adaptive timeout, unless ``timeout`` is shorter.
        reordering: how long to wait for a chunk's result after the result of a later chunk, before
            the chunk is assumed lost and sent again (RFC 8985); at most the timeout. Choose more
            than the network's reordering. None: only the timeout is used.
        tail_probe: how long the last chunk of an all-reduce waits before it is sent again, once,
            before its timeout (RFC 8985, section 7): its result shows which earlier chunks were
            lost. At least twice the measured round trip, at most the timeout; the timeout before
            any measurement. None: only the timeout is used.
        window_control: "fixed": as many chunks under way as the job has slots. "aimd": fewer with
            congestion: half after a window with a mark, one more after a window without.
        partial_after: how long after its first transmission a chunk waits for late workers, before
            this worker requests a partial result. Each further level of switches is asked after
            half as long again. None: wait for all.

    Raises:
        InputError: a duration that is not positive and finite, a factor below 1, or an unknown
            window control.
    """

    timeout: float = 0.01
    backoff: float = 2.0
    max_timeout: float = 1.0
    give_up: float = GIVE_UP
    adaptive: bool = True
    min_timeout: float = 1e-3
    reordering: float | None = None
    tail_probe: float | None = None
    window_control: WindowControl = "fixed"
    partial_after: float | None = None

    def __post_init__(self) -> None:
        durations = ["timeout", "max_timeout", "give_up", "min_timeout"]
        durations += [
            name
            for name in ("partial_after", "reordering", "tail_probe")
            if getattr(self, name) is not None
        ]
        for name in durations:
            seconds = getattr(self, name)
            if not (_is_finite(seconds) and seconds > 0):
                raise InputError(f"{name} is {seconds!r} s; give a positive number.")
        if not (_is_finite(self.backoff) and self.backoff >= 1):
            raise InputError(f"backoff is {self.backoff!r}; give a number that is at least 1.")
        if self.max_timeout < self.timeout:
            raise InputError(
                f"max_timeout is {self.max_timeout} s, below the timeout of {self.timeout} s."
            )
        if self.partial_after is not None and self.partial_after >= self.give_up:
            raise InputError(
                f"partial_after is {self.partial_after} s, but after {self.give_up} s a worker has "
                "given up; choose a shorter one."
            )
        if self.window_control not in get_args(WindowControl):
            known = " or ".join(repr(name) for name in get_args(WindowControl))
            raise InputError(f"unknown window control {self.window_control!r}; choose {known}.")


def network_timing(
    timeout: float = TIMEOUT, give_up: float = GIVE_UP, partial_after: float | None = None
) -> Timing:
    """Timing for real networks, whose hosts may wait longer for a processor than for packets.

    Args:
        timeout: also the lower limit of the adaptive timeout.
        give_up: as ``Timing`` takes it.
        partial_after: likewise.

    Raises:
        InputError: a value that ``Timing`` refuses.
    """
    return Timing(
        timeout=timeout,
        min_timeout=timeout,
        max_timeout=max(2.0, timeout),
        give_up=give_up,
        reordering=REORDERING,
        tail_probe=TAIL_PROBE,
        partial_after=partial_after,
    )


def _is_finite(number: object) -> bool:
    return is_real(number) and math.isfinite(number)


def _require(what: str, number: int, low: int, high: int) -> None:
    if not low <= number <= high:
        raise InputError(f"{what} is {number}; it must be in {low} .. {high}.")
