"""When workers compute, encode, send and decode in an iteration: the arithmetic of overlap.

A worker does one thing at a time with its gradients: it encodes a bucket, waits for its sum and
decodes it, and begins the next bucket then. Its backward pass goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""Seconds, shape (workers,)."""

Reduce = Callable[[int, Times], Times]
"""Sum a bucket: its number, and when each worker can send; when each worker has the sum."""


@dataclass(frozen=True, slots=True)
class BucketTimes:
    """When each worker did what with a bucket; see ``innet.records.Bucket``."""

    ready: Times
    started: Times
    encoded: Times
    summed: Times
    decoded: Times


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """When each worker did what in an iteration; see ``innet.records.Iteration``."""

    begin: Times
    paused: Times
    forward: Times
    backward: Times
    end: Times
    buckets: tuple[BucketTimes, ...]


def iterate(
    begin: Times,
    paused: Times,
    factors: Times,
    *,
    forward: float,
    ready: Sequence[float],
    backward: float,
    encode: Sequence[float],
    decode: Sequence[float],
    reduce: Reduce,
) -> IterationTimes:
    """The times of one iteration.

    Args:
        begin: when each worker begins.
        paused: for how long it stands still first.
        factors: how many times as long it computes.
        forward: seconds of a forward pass.
        ready: for each bucket, seconds from the begin of a backward pass to its last gradient;
            ascending.
        backward: seconds of a backward pass.
        encode: seconds that each bucket takes.
        decode: likewise.
        reduce: sums the buckets, one after the other.
    """
    forwarded = begin + paused + factors * forward
    free = forwarded  # when the worker is done with the bucket before
    done = []
    for number, (after, encoding, decoding) in enumerate(zip(ready, encode, decode, strict=True)):
        is_ready = forwarded + factors * after
        started = np.maximum(is_ready, free)
        encoded = started + encoding
        summed = reduce(number, encoded)
        free = summed + decoding
        done.append(BucketTimes(is_ready, started, encoded, summed, free))
    computed = forwarded + factors * backward
    return IterationTimes(
        begin, paused, forwarded, computed, np.maximum(computed, free), tuple(done)
    )
