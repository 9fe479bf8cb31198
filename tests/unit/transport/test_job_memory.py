"""Workers of one machine that decode equal words once, and what may go wrong between them."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from innet.transport import job_memory
from innet.transport.job_memory import ENTRIES, ENTRY, SIZE, DecodeOncePerHost
from innet.transport.rings import create_sealed, map_sealed

WORDS = (np.arange(4000, dtype=np.int32), np.ones(3, np.int32))
FOUND = (np.arange(70_000, dtype=np.int32), np.full(5, -1, np.int32), np.zeros(0, np.int32))


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.fixture
def memory(closing_descriptor):
    return map_sealed(closing_descriptor, SIZE, "of a job")


@pytest.fixture
def closing_descriptor():
    descriptor = create_sealed(SIZE)
    yield descriptor
    os.close(descriptor)


def decoder(calls, found=FOUND):
    def decode():
        calls.append(None)
        return tuple(each.copy() for each in found)

    return decode


def assert_same(found, expected=FOUND):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_one_worker_decodes_and_the_others_copy(memory):
    calls = []
    workers = [DecodeOncePerHost(memory) for _ in range(4)]
    for turn in range(3):
        words = (WORDS[0] + turn, WORDS[1])
        for worker in workers:
            found = worker("how", words, decoder(calls))
            assert_same(found)
            found[0][:] = -5  # what a worker changes is its own
        assert len(calls) == turn + 1
    assert [worker.saved for worker in workers] == [0, 3, 3, 3]


@pytest.mark.parametrize("futex", [True, False], ids=["futex", "no futex"])
def test_workers_that_come_meanwhile_wait(memory, monkeypatch, futex):
    """Where the processor's number of futex is not known, they look again and again."""
    monkeypatch.setattr(job_memory, "_PATIENCE", 60.0)
    if not futex:
        monkeypatch.setattr(job_memory, "_FUTEX", None)
    looks, look = [], job_memory._look
    waits = threading.Event()

    def looking(state):
        looks.append(None)
        waits.set()
        return look(state)

    begun, calls, late = threading.Event(), [], DecodeOncePerHost(memory)

    def slow():
        monkeypatch.setattr(job_memory, "_look", looking)
        begun.set()
        assert waits.wait(30)
        return decoder(calls)()

    def come_late():
        assert begun.wait(30)
        found.append(late("how", WORDS, decoder(calls)))

    found = []
    other = threading.Thread(target=come_late)
    other.start()
    assert_same(DecodeOncePerHost(memory)("how", WORDS, slow))
    other.join(30)
    assert_same(found[0])
    assert (len(calls), late.saved) == (1, 1)


def test_a_sleeping_worker_is_woken(memory):
    """It would sleep for minutes otherwise."""
    state, woken = memory.ctypes.data, []
    job_memory._publish(state, 2)
    sleeper = threading.Thread(
        target=lambda: woken.append(job_memory._wait_while(state, 2, 300.0)), daemon=True
    )
    sleeper.start()
    sleeper.join(0.05)  # asleep by now, or not yet: both must end
    job_memory._publish(state, 3)
    job_memory._wake(state)
    sleeper.join(30)
    assert woken == [3]
    assert job_memory._wait_while(state, 3, 0.001) == 3  # time is up


def test_other_words_and_other_ways_are_decoded_anew(memory, monkeypatch):
    """Also where the labels are the same."""
    monkeypatch.setattr(job_memory, "_label", lambda *_: 7)
    first, second, calls = DecodeOncePerHost(memory), DecodeOncePerHost(memory), []
    first("how", WORDS, decoder(calls))
    changed = (WORDS[0].copy(), WORDS[1])
    changed[0][1234] ^= 1
    other = (np.full(3, 9, np.int32),)
    assert_same(second("how", changed, decoder(calls, other)), other)
    assert_same(second("how", WORDS[:1], decoder(calls, other)), other)
    assert len(calls) == 3
    assert second.saved == 0


def test_another_way_has_another_label(memory):
    calls = []
    DecodeOncePerHost(memory)("how", WORDS, decoder(calls))
    DecodeOncePerHost(memory)("else", WORDS, decoder(calls))
    assert len(calls) == 2


def test_who_dies_while_it_decodes_keeps_nobody_waiting(memory, monkeypatch):
    """Its entry is not used again, as nobody knows whether it still writes there."""
    monkeypatch.setattr(job_memory, "_PATIENCE", 0.01)
    calls, kept = [], []

    def killed(*_):
        raise Killed

    monkeypatch.setattr(job_memory, "_publish", lambda *_: kept.append(None))  # it cannot any more
    with pytest.raises(Killed):
        DecodeOncePerHost(memory)("how", WORDS, killed)
    monkeypatch.undo()
    monkeypatch.setattr(job_memory, "_PATIENCE", 0.01)
    monkeypatch.setattr(job_memory, "_PER_WORD", 0.0)
    for _ in range(2):
        assert_same(DecodeOncePerHost(memory)("how", WORDS, decoder(calls)))
    assert len(calls) == 2
    # What has another label and the same entry is decoded by each, without waiting.
    label = job_memory._label("how", WORDS)
    monkeypatch.setattr(job_memory, "_label", lambda *_: label + ENTRIES)
    assert_same(DecodeOncePerHost(memory)("how", WORDS, decoder(calls)))
    assert len(calls) == 3
    # The other entries are used as before.
    monkeypatch.setattr(job_memory, "_label", lambda *_: label + 1)
    for _ in range(2):
        assert_same(DecodeOncePerHost(memory)("how", WORDS, decoder(calls)))
    assert len(calls) == 4


def test_who_fails_to_decode_leaves_the_entry_to_others(memory):
    calls = []

    def failing():
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it is the decoder's own
        DecodeOncePerHost(memory)("how", WORDS, failing)
    for _ in range(2):
        assert_same(DecodeOncePerHost(memory)("how", WORDS, decoder(calls)))
    assert len(calls) == 1


def test_a_result_that_does_not_fit_is_decoded_by_each(memory):
    calls = []
    large = (np.zeros(ENTRY // 4, np.int32),)
    for _ in range(2):
        assert DecodeOncePerHost(memory)("how", WORDS, decoder(calls, large))[0].size == ENTRY // 4
    assert len(calls) == 2


def test_what_anybody_writes_there_leads_to_no_wrong_access(memory):
    """Lengths of any kind, and results that the carrier refuses."""
    rng = np.random.default_rng(3)
    calls = []
    first = DecodeOncePerHost(memory)
    first("how", WORDS, decoder(calls))
    begin = job_memory._label("how", WORDS) % ENTRIES * ENTRY
    counts = first._counts(begin)
    right = counts.copy()
    for _ in range(200):
        counts[:] = rng.choice([-(2**63), -1, 0, 1, 2, 3, 4000, 2**31, 2**62, 2**63 - 1], 18)
        assert_same(DecodeOncePerHost(memory)("how", WORDS, decoder(calls)))
    counts[:] = right
    before = len(calls)
    assert_same(DecodeOncePerHost(memory)("how", WORDS, decoder(calls), lambda _: False))
    assert len(calls) == before + 1


def test_what_is_written_anew_while_it_is_copied_is_not_used(memory):
    """Another decoding takes the entry between the comparison of words and the end of the copy."""
    calls = []
    first = DecodeOncePerHost(memory)
    first("how", WORDS, decoder(calls))

    class Overtaken(DecodeOncePerHost):
        def _read(self, begin, words):
            copied = super()._read(begin, words)
            job_memory._publish(self.memory.ctypes.data + begin, 99)
            copied[0][:] = 0  # as torn as can be
            return copied

    assert_same(Overtaken(memory)("how", WORDS, decoder(calls)))
    assert len(calls) == 2
