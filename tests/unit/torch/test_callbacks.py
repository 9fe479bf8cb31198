"""Futures whose callbacks run in threads of their own, in the order in which work was begun."""

from __future__ import annotations

import gc
import threading
import time

import pytest

torch = pytest.importorskip("torch")

from innet.core.errors import StateError  # noqa: E402 - after importorskip
from innet.torch import callbacks  # noqa: E402
from innet.torch.callbacks import CallbackThreads  # noqa: E402
from innet.torch.future import FutureError, SettableFuture  # noqa: E402

SECONDS = 20.0


def futures(threads, count):
    return [SettableFuture(threads) for _ in range(count)]


def test_callbacks_run_in_the_order_in_which_work_was_begun():
    threads = CallbackThreads()
    made, seen = futures(threads, 5), []
    chained = [each.then(lambda _, k=k: seen.append(k)) for k, each in enumerate(made)]
    for each in (made[3], made[1], made[0], made[4], made[2]):
        each.complete(None)
    for each in chained:
        each.wait()
    assert seen == [0, 1, 2, 3, 4]


def test_one_without_callbacks_is_complete_at_once_when_it_is_its_turn():
    threads = CallbackThreads()
    first, second, third = futures(threads, 3)
    first.complete(1)
    assert first.done()
    third.complete(3)
    assert not third.done(), "the second comes before it"
    second.complete(2)
    assert third.wait() == 3
    assert (first.value(), second.value()) == (1, 2)


def test_one_that_never_comes_holds_up_the_others_for_a_while_only(monkeypatch):
    monkeypatch.setattr(callbacks, "_PATIENCE", 2.0)
    threads = CallbackThreads()
    _, second, third = futures(threads, 3)
    second.complete(2)
    assert second.wait() == 2
    third.complete(3)
    end = time.monotonic() + 1.5  # less than it would wait again
    while not third.done() and time.monotonic() < end:
        time.sleep(0.01)
    assert third.done(), "what was waited for in vain is waited for no more"


def test_callbacks_may_wait_for_work_that_they_begin():
    threads = CallbackThreads()
    (first,) = futures(threads, 1)

    def begin(_):
        inner = SettableFuture(threads)
        assert inner.origin.name == "0.0"
        threading.Timer(0.01, inner.complete, (5,)).start()
        return inner.then(lambda done: done.value() + 1).wait()

    chained = first.then(begin)
    first.complete(None)
    assert chained.wait() == 6


@pytest.mark.parametrize("complete_before", [True, False])
def test_work_has_one_name_wherever_its_callback_runs(complete_before):
    """In the program's thread, where the future was complete when it got the callback."""
    threads = CallbackThreads()
    (first,) = futures(threads, 1)
    if complete_before:
        first.complete(None)
    names, ran_in = [], []

    def begin(_):
        ran_in.append(threading.current_thread())
        names.append(threads.begin().name)

    chained = first.then(begin).then(begin)
    if not complete_before:
        first.complete(None)
    chained.wait()
    assert names == ["0.0", "0.1"]
    assert threads.begin().name == "1"
    assert all((each is threading.main_thread()) == complete_before for each in ran_in)


def test_work_begun_in_callbacks_of_another_ones_threads():
    one, other = CallbackThreads(), CallbackThreads()
    (first,) = futures(one, 1)
    first.complete(None)
    name = first.then(lambda _: other.begin().name).wait()
    assert name != other.begin().name
    assert name == "of another 0.0"


def test_a_failure_is_raised_by_whoever_uses_the_result():
    threads = CallbackThreads()
    (future,) = futures(threads, 1)
    chained = future.then(lambda done: done.value()).then(lambda done: done.value())
    future.fail(StateError("nobody came"))
    for use in (
        future.wait,
        future.value,
        chained.wait,
        lambda: torch.futures.wait_all([chained])[0] + 1,  # PyTorch reads it in C++
        lambda: torch.stack(torch.futures.wait_all([chained])),
    ):
        with pytest.raises(FutureError, match="StateError: nobody came"):
            use()
    assert "nobody came" in repr(torch.futures.wait_all([future])[0])


def test_threads_end_when_there_is_nothing_to_do(monkeypatch):
    monkeypatch.setattr(callbacks, "_REST", 0.05)
    before = threading.active_count()
    threads = CallbackThreads()
    made = futures(threads, 3)
    for each in [each.then(lambda _: None) for each in made]:
        assert not each.done()
    for each in made:
        each.complete(None)
    until = time.monotonic() + SECONDS
    while threading.active_count() > before:
        assert time.monotonic() < until
        time.sleep(0.01)
    del made, threads
    gc.collect()
