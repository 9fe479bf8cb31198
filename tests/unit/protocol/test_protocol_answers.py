"""The compiled forms of what a worker's end does with packets equal the naive ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.naive_answers import REFERENCE, STEP, answer_to, fields_of, taken
from support.naive_answers import overtaken as naively_overtaken
from support.naive_wire import ended, packed
from support.tiers import examples

from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp
from innet.protocol.compiled import fill, take
from innet.protocol.counters import PacketVerdict, Stats
from innet.protocol.message import sequence_of
from innet.protocol.settings import Timing
from innet.protocol.slot_client import SlotState
from innet.protocol.timers import SlotTimers, overtake
from innet.wire import (
    CONGESTED,
    HEADER,
    WITHOUT_VALUES,
    Endpoint,
    FrameRefusal,
    HeaderFlag,
    PacketLayout,
    pack,
    seal,
)
from innet.wire.parsing import frames_of, rules

WINDOW = 8
CLOCK = 5.0, 1.0  # the time, and how long a chunk of the first window may have waited
HERE, THERE = Endpoint.of_worker(0), Endpoint.of_switch()


def slots_by_chance(rng, base, end):
    """Slots somewhere in the middle of an all-reduce of the chunks from ``base`` to ``end``."""
    cursor = base + rng.integers(end - base)
    slots = np.arange(WINDOW)
    chunk = cursor - (cursor - slots) % WINDOW
    state = rng.integers(0, 3, WINDOW).astype(np.uint8)
    state[chunk < base] = SlotState.IDLE
    return {
        "chunk": chunk,
        "state": state,
        "queue": np.zeros(WINDOW, np.int64),
        "sends": rng.integers(1, 3, WINDOW).astype(np.int32),
        "first_sent": rng.uniform(3.0, 5.0, WINDOW),
        "resend_at": rng.uniform(5.0, 6.0, WINDOW),
        "give_up_at": rng.uniform(7.0, 8.0, WINDOW),
    }


def as_compiled(slots, reordering=None):
    """The slots as compiled code takes them, the timers of ``slots`` and others."""
    timers = SlotTimers(WINDOW, Timing(timeout=1.0, adaptive=False, reordering=reordering))
    sends, first_sent, last_sent, timeout, resend_at, give_up_at, held, pace = timers.state
    state = (
        slots.get("sends", sends),
        slots.get("first_sent", first_sent),
        slots.get("last_sent", last_sent),
        slots.get("timeout", timeout),
        slots.get("resend_at", resend_at),
        slots.get("give_up_at", give_up_at),
        held,
        pace,
    )
    return (slots["chunk"], slots["state"], slots["queue"]), state


OPERATIONS = [1, 2, 3, 4, 5]
WITHOUT = [WITHOUT_VALUES | each for each in CollectiveOp]


def chunks_by_chance(rng, count, values, *, has_owners=False):
    operations = np.array(OPERATIONS + WITHOUT if has_owners else OPERATIONS[:3], np.uint8)
    return {
        "operation": rng.choice(operations, count),
        "elements": rng.integers(1, values + 1, count).astype(np.uint16),
        "words": np.zeros((count, values), np.int32),
        "who": np.zeros(count, np.uint32),
    }


def results_by_chance(rng, layout, count, member, slots, chunks):
    """Frames that answer what is asked, most of them with some field that is wrong."""
    slot = rng.integers(WINDOW, size=count)
    chunk = slots["chunk"][slot]
    index = np.clip(chunk - member[4], 0, len(chunks["operation"]) - 1)
    fields = dict(zip(("job", "epoch", "worker", "count"), member[:4].tolist(), strict=True))
    fields |= {"flags": np.full(count, HeaderFlag.RESULT), "slot": slot, "bitmap": 0b1111}
    fields |= {"sequence": sequence_of(chunk), "slot_version": chunk // WINDOW & 1}
    operation = np.array([answer_to(int(each)) for each in chunks["operation"][index]], np.uint8)
    fields |= {"operation": operation % WITHOUT_VALUES, "elements": chunks["elements"][index]}
    values = rng.integers(-(2**31), 2**31, (count, layout.values)).astype(np.int32)
    frames = pack(layout, THERE, HERE, values, **fields)
    header = layout.view(frames)["innet"]
    header["operation"] = operation
    names = ("flags", "job", "epoch", "worker", "count", "slot", "slot_version", "operation",
             "elements")  # fmt: skip
    for row in np.flatnonzero(rng.random(count) < 0.5):
        name = names[rng.integers(len(names))]
        bit = 0 if name == "slot_version" else rng.integers(5)  # it has one bit
        header[name][row] = header[name][row] ^ (1 << bit)
    moved = rng.random(count) < 0.2
    steps = rng.choice([-WINDOW, -1, 1, WINDOW], count).astype(np.uint32)
    header["sequence"][moved] = header["sequence"].astype(np.uint32)[moved] + steps[moved]
    header["flags"][rng.random(count) < 0.1] |= np.uint8(HeaderFlag.PARTIAL | HeaderFlag.ECN)
    if layout.framing == "udp":
        marked = rng.random(count) < 0.1  # the checksum of the IP header is wrong then, or right
        layout.view(frames)["ipv4"]["tos"][marked] = CONGESTED
        layout.view(frames)["ipv4"]["checksum"][marked & (rng.random(count) < 0.8)] -= CONGESTED
    seal(layout, frames)
    length = np.full(count, layout.frame_size, np.int32)
    # Those without values, and some that should have some, or the other way round.
    bare = (header["operation"] >= WITHOUT_VALUES) ^ (rng.random(count) < 0.05)
    bare &= layout.has_owners
    frames[bare, : layout.bare_size] = ended(layout, frames[bare])
    length[bare] = layout.bare_size
    frames[rng.random(count) < 0.05, layout.bare_size - 1] ^= np.uint8(1)
    length[rng.random(count) < 0.05] -= 1
    return PacketBatch(frames, length, np.zeros(count, np.int32))


def verdicts_of_both(framing, seed, base, *, has_owners=False):
    """Let both forms take the same results, compare all that they leave, and say the verdicts."""
    rng = np.random.default_rng(seed)
    layout = PacketLayout(5, framing, has_owners=has_owners)
    end = base + int(rng.integers(1, 30))
    member = np.array([513, 2, 1, 4, base, end, 15 if framing == "udp" else -1], np.int64)
    slots = slots_by_chance(rng, base, end)
    chunks = chunks_by_chance(rng, end - base, layout.values, has_owners=has_owners)
    packets = results_by_chance(rng, layout, 30, member, slots, chunks)
    # Of a quarter, what the values stand for is not wanted; the last chunk may be shorter.
    wanted = (end - base) * layout.values - int(rng.integers(layout.values))
    is_wanted = rng.random() < 0.75 and not has_owners
    chunks["sums"] = np.full(wanted if is_wanted else 0, 0.25, np.float32)
    naive_slots, naive_chunks = fields_of(slots), fields_of(chunks)
    # Chunks with owners lie elsewhere than in their order.
    places = rng.permutation((end - base) * has_owners).astype(np.int32)
    if has_owners:
        chunks["words"] = chunks["words"][np.argsort(places)].copy()
    expected = taken(layout, packets, member.tolist(), naive_slots, naive_chunks, CLOCK)
    stats = np.zeros(Stats.LENGTH, np.int64)
    stats[Stats.MARKED] = -1
    clock = np.array([*CLOCK, -1.0, -np.inf, -1.0])
    terms = rules(layout), member
    answers = take(
        frames_of(packets), terms, as_compiled(slots),
        (*chunks.values(), np.array([9.0, STEP]), places), (stats, clock),
    )  # fmt: skip
    if has_owners:
        chunks["words"] = chunks["words"][places]
    assert answers == expected.verdicts.count(PacketVerdict.ANSWER)
    assert stats[: len(PacketVerdict)].tolist() == [
        expected.verdicts.count(each) for each in PacketVerdict
    ]
    refused = stats[Stats.REFUSED : Stats.REFUSED + len(FrameRefusal)]
    assert refused.tolist() == [expected.refusals.count(each) for each in FrameRefusal]
    assert stats[Stats.FLAGS] == expected.flags
    assert stats[Stats.SHORT] == (packets.length < layout.frame_size).sum()
    assert stats[Stats.MARKED] == expected.marked
    assert slots.pop("queue")[: stats[Stats.QUEUED]].tolist() == expected.queue
    assert clock[2] == expected.waited
    assert tuple(clock[3:]) == expected.newest
    for name, array in (slots | chunks).items():
        np.testing.assert_array_equal(array, (naive_slots | naive_chunks)[name], err_msg=name)
    return set(expected.verdicts)


@pytest.mark.parametrize("framing", ["udp", "raw"])
@settings(max_examples=examples(100))
@given(
    seed=st.integers(0, 10_000),
    base=st.sampled_from([0, 7, 2**31, 2**32 - 3, 2**32]),
    has_owners=st.booleans(),
)
def test_taken_as_naively(framing, seed, base, has_owners):
    verdicts_of_both(framing, seed, base, has_owners=has_owners)


@pytest.mark.parametrize("has_owners", [False, True])
def test_every_verdict_was_given(has_owners):
    """So the test before compares what there is to compare."""
    seen = set()
    for seed in range(60):
        seen |= verdicts_of_both("udp", seed, 7, has_owners=has_owners)
    assert seen == set(PacketVerdict)


@settings(max_examples=examples(100))
@given(seed=st.integers(0, 10_000), base=st.sampled_from([0, 7, 2**31, 2**32 - 3, 2**32]))
def test_overtaken_as_naively(seed, base):
    rng = np.random.default_rng(seed)
    slots = slots_by_chance(rng, base, base + int(rng.integers(1, 30)))
    timers = {
        "timeout": rng.choice([0.1, 0.2, -0.1], WINDOW),
        "last_sent": rng.choice([3.0, 4.0, 4.5, 5.0], WINDOW),
    }
    newest = float(rng.choice([3.0, 4.0, 4.5, -np.inf])), float(rng.choice(slots["chunk"]))
    naive_slots, naive_timers = fields_of(slots), fields_of(timers)
    reordering = float(rng.choice([0.1, 0.9]))
    clock = np.array([*CLOCK, -1.0, *newest])
    found = overtake(*as_compiled(slots | timers, reordering), clock)
    assert found == naively_overtaken(naive_slots, naive_timers, newest, CLOCK[0], reordering)
    for name, array in (slots | timers).items():
        np.testing.assert_array_equal(array, (naive_slots | naive_timers)[name], err_msg=name)


@pytest.mark.parametrize("framing", ["udp", "raw"])
@given(
    seed=st.integers(0, 10_000),
    base=st.sampled_from([0, 7, 2**32 - 3]),
    has_owners=st.booleans(),
)
def test_filled_as_naively(framing, seed, base, has_owners):
    rng = np.random.default_rng(seed)
    layout = PacketLayout(int(rng.integers(1, 12)), framing, has_owners=has_owners)
    count = int(rng.integers(1, 30))
    slots = slots_by_chance(rng, base, base + count)["chunk"]
    which = rng.permutation(np.flatnonzero((slots >= base) & (slots < base + count)))
    chunks = chunks_by_chance(rng, count, layout.values, has_owners=has_owners)
    owners = rng.integers(0, 2**16, count * has_owners).astype(np.uint16)
    words = rng.integers(-(2**31), 2**31, count * layout.values).astype(np.int32)
    missing = int(rng.integers(layout.values))
    scale, floats = 3.7e9, np.empty(0, np.float32)
    given_words = words[: len(words) - missing].copy()
    if rng.random() < 0.5 and not has_owners:  # the words are made of floats
        floats = rng.uniform(-0.5, 0.5, len(given_words)).astype(np.float32)
        words[: len(floats)] = REFERENCE.quantize(floats, scale)
        given_words = np.empty(0, np.int32)
    padded = words.copy()
    padded[len(words) - missing :] = 0
    flags = rng.integers(0, 256, len(which)).astype(np.uint8)
    fields = {"job": 513, "epoch": 3, "worker": 2, "message": 999}
    here = Endpoint(HERE.mac, f"10.0.{rng.integers(256)}.{rng.integers(256)}")
    zeros = np.zeros((1, layout.values), np.int32)
    outer = pack(layout, here, THERE, zeros, operation=1, job=0, epoch=0, sequence=0, slot=0,
                 slot_version=0, worker=0)[:1, : layout.header_offset]  # fmt: skip
    head = packed(layout, outer, fields, zeros)
    layout.view(head)["innet"]["checksum"] = 0
    frames = np.full((len(which), layout.frame_size), 0xAA, np.uint8)
    lengths = np.zeros(len(which), np.int32)
    places = rng.permutation(count * has_owners).astype(np.int32)
    numbers = np.array([scale, 9.0])
    bare = fill(
        frames,
        lengths,
        head[0, : layout.values_offset].copy(),
        (which, flags),
        (slots, base),
        (given_words, chunks["operation"], chunks["elements"], owners, floats, numbers, places),
    )
    chunk = slots[which]
    fields |= {"sequence": sequence_of(chunk), "slot": which, "flags": flags}
    fields |= {"slot_version": chunk // WINDOW % 2}
    fields |= {name: chunks[name][chunk - base] for name in ("operation", "elements")}
    if has_owners:
        fields["exponent"] = owners[chunk - base]
    where = places[chunk - base] if has_owners else chunk - base
    values = padded.reshape(count, layout.values)[where]
    expected = packed(layout, outer, fields, values)
    ends = fields["operation"] >= WITHOUT_VALUES
    assert bare == ends.sum()
    assert lengths.tolist() == np.where(ends, layout.bare_size, layout.frame_size).tolist()
    np.testing.assert_array_equal(frames[~ends], expected[~ends])
    np.testing.assert_array_equal(frames[ends, : layout.bare_size], ended(layout, expected[ends]))
    assert layout.values_offset - layout.header_offset == HEADER.itemsize
