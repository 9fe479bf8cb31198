"""The arithmetic of overlap, against what it must be by hand."""

from __future__ import annotations

import numpy as np
import pytest

from innet.scenarios.timeline import iterate


def run(ready, network, *, backward, encode=0.0, decode=0.0, forward=1.0, **given):
    """An iteration in which each bucket takes ``network`` seconds from the slowest worker on."""
    workers = len(given.get("begin", (0.0, 0.0)))

    def reduce(bucket, starts):
        return np.full(workers, starts.max() + network[bucket])

    return iterate(
        np.array(given.get("begin", (0.0,) * workers)),
        np.array(given.get("paused", (0.0,) * workers)),
        np.array(given.get("factors", (1.0,) * workers)),
        forward=forward,
        ready=ready,
        backward=backward,
        encode=[encode] * len(ready),
        decode=[decode] * len(ready),
        reduce=reduce,
    )


def test_a_fast_network_exposes_the_last_bucket_alone():
    times = run([1, 2, 3], [0.25, 0.25, 0.25], backward=3)
    assert times.backward.tolist() == [4, 4]
    assert times.end.tolist() == [4.25, 4.25]  # compute, and the last bucket


def test_a_slow_network_sums_bucket_after_bucket_from_the_first_one_on():
    times = run([1, 2, 3], [5, 6, 7], backward=3)
    assert times.end.tolist() == [2 + 5 + 6 + 7] * 2
    assert [bucket.started.tolist() for bucket in times.buckets] == [[2, 2], [7, 7], [13, 13]]
    assert (times.end - times.backward).tolist() == [16, 16]


def test_codecs_take_time_before_and_after_the_network():
    times = run([1, 2], [5, 6], backward=2, encode=0.5, decode=0.25)
    assert times.end.tolist() == [2 + (0.5 + 5 + 0.25) + (0.5 + 6 + 0.25)] * 2


def test_all_workers_wait_for_a_slow_one():
    times = run([1, 2], [1, 1], backward=2, factors=(1.0, 3.0))
    assert times.backward.tolist() == [3, 9]
    (first, second) = times.buckets
    assert first.ready.tolist() == [2, 6]
    assert first.summed.tolist() == [7, 7]
    assert second.started.tolist() == [7, 9]
    assert times.end.tolist() == [10, 10]


def test_pauses_and_late_begins_delay_a_worker():
    times = run([1], [1], backward=1, begin=(0.0, 2.0), paused=(5.0, 0.0))
    assert times.forward.tolist() == [6, 3]
    assert times.end.tolist() == [8, 8]


def test_the_backward_pass_may_go_on_after_the_last_sum():
    times = run([1], [0.5], backward=4)
    assert times.buckets[0].decoded.tolist() == [2.5, 2.5]
    assert times.end == pytest.approx([5, 5])
