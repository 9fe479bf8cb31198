"""The compiled judgement of packets equals the naive one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.naive_answers import judged

from innet.protocol.answers import Verdict, judge
from innet.protocol.slots import SlotState
from innet.wire import HEADER, Flag

WINDOW = 8
seen: set[Verdict] = set()


def asked_by_chance(rng, base, chunks):
    """Slots somewhere in the middle of an all-reduce of ``chunks`` chunks from ``base`` on."""
    cursor = base + rng.integers(chunks)
    slots = np.arange(WINDOW)
    chunk = cursor - (cursor - slots) % WINDOW
    state = rng.integers(0, 3, WINDOW).astype(np.uint8)
    state[chunk < base] = SlotState.IDLE
    operation = rng.integers(1, 4, chunks).astype(np.uint8)
    return chunk, state, operation, rng.integers(1, 9, chunks).astype(np.uint16)


def results_of(rng, count, member, asked):
    """Headers that answer what is asked, most of them with some field that is wrong."""
    chunk, _, operation, elements = asked
    slot = rng.integers(WINDOW, size=count)
    index = np.clip(chunk[slot] - member[4], 0, len(operation) - 1)
    header = np.zeros(count, HEADER)
    header["flags"] = Flag.RESULT
    for name, mine in zip(("job", "epoch", "worker", "count"), member[:4], strict=True):
        header[name] = mine
    header["slot"] = slot
    header["sequence"] = (chunk[slot] + 1).astype(np.uint32)
    header["slot_version"] = chunk[slot] // WINDOW & 1
    header["operation"], header["elements"] = operation[index], elements[index]
    names = ("flags", "job", "epoch", "worker", "count", "slot", "slot_version", "operation",
             "elements")  # fmt: skip
    for row in np.flatnonzero(rng.random(count) < 0.5):
        name = names[rng.integers(len(names))]
        header[name][row] = header[name][row] ^ (1 << rng.integers(5))
    moved = rng.random(count) < 0.2
    steps = rng.choice([-WINDOW, -1, 1, WINDOW], count).astype(np.uint32)
    header["sequence"][moved] = header["sequence"].astype(np.uint32)[moved] + steps[moved]
    partial = rng.random(count) < 0.1
    header["flags"][partial] |= np.uint8(Flag.PARTIAL)
    return header


@settings(max_examples=200)
@given(seed=st.integers(0, 10_000), base=st.sampled_from([0, 7, 2**31, 2**32 - 3, 2**32]))
def test_judged_as_naively(seed, base):
    rng = np.random.default_rng(seed)
    asked = asked_by_chance(rng, base, int(rng.integers(1, 30)))
    member = np.array([513, 2, 1, 4, base], np.int64)
    header = results_of(rng, 30, member, asked)
    readable = rng.random(30) > 0.05
    verdict = judge(
        header.view(np.uint8).reshape(-1, HEADER.itemsize),
        (~readable).astype(np.uint8),
        member,
        asked,
    )
    expected = judged(header, readable, member.tolist(), asked)
    assert [Verdict(each) for each in verdict] == expected
    seen.update(expected)


def test_every_verdict_was_given():
    """So the test before compares what there is to compare."""
    test_judged_as_naively()
    assert seen == set(Verdict)
