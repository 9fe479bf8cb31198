"""Workers' codecs in threads: the same results, states and errors as one after the other."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

from innet import Collective
from innet.core.errors import StateError
from innet.core.threads import cores, in_parts, parallel_map, while_others_wait

SIZE = 70_000  # large enough for threads


def test_results_come_in_order_from_several_threads():
    meeting = threading.Barrier(3, timeout=30)

    def work(number):
        meeting.wait()  # nobody passes before all three have begun
        return number, threading.get_ident()

    with parallel_map(3) as run:
        results = list(run(work, range(3)))
    assert [number for number, _ in results] == [0, 1, 2]
    assert len({thread for _, thread in results}) == 3
    assert cores() >= 1


def test_one_thread_is_the_callers():
    with parallel_map(1) as run:
        assert list(run(lambda _: threading.get_ident(), range(2))) == [threading.get_ident()] * 2


@pytest.mark.parametrize("codec", ["lhc", "topk", "gs-sgd", "sidco-gp", "qsgd"])
def test_threads_change_nothing(codec):
    rng = np.random.default_rng(0)
    job = [rng.standard_normal(SIZE).astype(np.float32) for _ in range(3)]
    ends = []
    for threads in (1, 3):
        collective = Collective(workers=3, codec=codec, threads=threads)
        totals = [collective.all_reduce(job)[0].tobytes() for _ in range(2)]
        ends.append((totals, [pickle.dumps(each.state_dict()) for each in collective.codecs]))
    assert ends[0] == ends[1]


def test_an_error_in_a_thread_is_raised_and_the_codecs_are_as_before():
    class BrokenError(Exception):
        pass

    collective = Collective(workers=3, codec="topk", threads=3)
    job = [np.ones(SIZE, np.float32)] * 3
    collective.all_reduce(job)
    before = [pickle.dumps(codec.state_dict()) for codec in collective.codecs]

    def fail(_answers, _workers):
        raise BrokenError

    collective.codecs[1].quantizer.agree = fail
    with pytest.raises(BrokenError):
        collective.all_reduce(job)
    with pytest.raises(StateError, match="BrokenError"):
        collective.all_reduce(job)
    assert [pickle.dumps(codec.state_dict()) for codec in collective.codecs] == before


def test_work_is_done_in_parts_while_others_wait():
    begun = []

    def work(begin, end):
        begun.append((begin, end))

    in_parts(work, 1000, 64)
    assert begun == [(0, 1000)], "the other cores may be busy"
    begun.clear()
    with while_others_wait(1):
        in_parts(work, 1000, 64)
        in_parts(work, 60, 64)
    half = -(-1000 // 128) * 64
    expected = [(0, half), (half, 1000)] if cores() > 1 else [(0, 1000)]
    assert sorted(begun[:-1]) == expected
    assert begun[-1] == (0, 60)
    begun.clear()
    in_parts(work, 1000, 64)
    assert begun == [(0, 1000)]
