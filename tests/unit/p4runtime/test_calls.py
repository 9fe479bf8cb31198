"""The queue of requests between the gRPC server's loop and the thread that runs the switch."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from innet.p4runtime import calls
from innet.p4runtime.calls import CallQueue
from innet.p4runtime.status import Code, StatusError


def steps(done, name, count=0):
    """A request that notes its end, after so many stops."""
    for _ in range(count):
        yield
    done.append(name)
    return name


def failing():
    raise StatusError(Code.NOT_FOUND, "there is none")
    yield


@pytest.fixture(autouse=True)
def a_slice_is_long_enough(monkeypatch):
    """Whatever else the machine does meanwhile."""
    monkeypatch.setattr(calls, "_SLICE_SECONDS", 60.0)


class Woken:
    """Counts how often the thread of the switch was woken."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1


def with_queue(test):
    """Run a coroutine function with a queue of its own loop."""
    woken = Woken()

    async def main():
        await test(CallQueue(asyncio.get_running_loop(), woken), woken)

    asyncio.run(main())


async def code(answer):
    with pytest.raises(StatusError) as error:
        await answer
    return error.value.code


def test_requests_are_carried_out_in_order_and_answered():
    async def test(queue, woken):
        done = []
        answers = [queue.submit(steps(done, name, name)) for name in (3, 1, 2)]
        refused = queue.submit(failing())
        assert woken.times == 4
        queue.run()
        assert done == [3, 1, 2]
        assert await asyncio.gather(*answers) == [3, 1, 2]
        assert await code(refused) is Code.NOT_FOUND

    with_queue(test)


@pytest.mark.parametrize(("is_atomic", "most"), [(False, 1), (True, 3)])
def test_packets_may_pass_in_a_long_request_unless_it_is_atomic(monkeypatch, is_atomic, most):
    """A clock that moves on by a slice at each stop."""
    now = [0.0]
    monkeypatch.setattr(calls, "_SLICE_SECONDS", 0.005)
    monkeypatch.setattr(calls, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def long(done):
        for number in range(3):
            now[0] += 1.0
            done.append(number)
            yield
        return "end"

    async def test(queue, woken):
        done = []
        answer = queue.submit(long(done), is_atomic=is_atomic)
        seen = []
        while not answer.done() and len(seen) < 9:
            had, times = len(done), woken.times
            queue.run()
            seen.append(len(done) - had)
            # What is not done yet asks to be gone on with.
            assert woken.times - times == int(queue._current is not None)
            queue._tell()
        assert await answer == "end"
        assert max(seen) == most

    with_queue(test)


def test_answers_that_come_together_wake_the_loop_once():
    async def test(queue, woken):
        loop, calls_made = asyncio.get_running_loop(), []
        call = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *given: calls_made.append(given) or call(*given)
        done = []
        answers = [queue.submit(steps(done, name)) for name in range(50)]
        queue.run()
        assert len(calls_made) == 1
        assert await asyncio.gather(*answers) == list(range(50))
        assert woken.times == 50

    with_queue(test)


def test_what_nobody_waits_for_is_not_begun():
    async def test(queue, _):
        done = []
        first, second = (queue.submit(steps(done, name)) for name in "ab")
        first.cancel()
        queue.run()
        assert await second == "b"
        assert done == ["b"]

    with_queue(test)


def test_too_many_are_refused(monkeypatch):
    monkeypatch.setattr(calls, "_MOST_PENDING", 3)

    async def test(queue, _):
        answers = [queue.submit(steps([], name)) for name in range(3)]
        with pytest.raises(StatusError) as error:
            queue.submit(steps([], 3))
        assert error.value.code is Code.RESOURCE_EXHAUSTED
        queue.run()
        assert await asyncio.gather(*answers) == [0, 1, 2]
        later = queue.submit(steps([], 3))
        queue.run()
        assert await later == 3

    with_queue(test)


def test_one_that_waits_for_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(calls, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(calls, "_LOOK_SECONDS", 0.01)

    async def test(queue, _):
        done = []
        answer = queue.submit(steps(done, "late"))
        assert await asyncio.wait_for(code(answer), 60) is Code.DEADLINE_EXCEEDED
        queue.run()
        assert done == []
        assert not queue._waiting

    with_queue(test)


def test_the_end_refuses_those_that_wait_and_all_later_ones():
    async def test(queue, _):
        answers = [queue.submit(steps([], name)) for name in "ab"]
        queue.close()
        for each in answers:
            assert await code(each) is Code.UNAVAILABLE
        with pytest.raises(StatusError) as error:
            queue.submit(steps([], "c"))
        assert error.value.code is Code.UNAVAILABLE

    with_queue(test)
