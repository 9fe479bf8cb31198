"""Words that are made of floats as packets leave, and floats of sums as they arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from innet import kernels
from innet.codecs import SumOptions, build_codec
from innet.codecs.codec import check_answers
from innet.codecs.quantizers.fixed import always_finite
from innet.core.errors import InputError
from innet.core.reduce_op import FloatSegment, ReduceOp, Segment
from innet.protocol import JobMembership, SlotClient, Timing
from innet.protocol.message import Message
from innet.wire import HEADER, Endpoint, HeaderFlag, PacketLayout, pack
from innet.wire.layout import offset_of

REFERENCE = kernels.get("reference")
FLOATS = hnp.arrays(
    np.float32,
    st.integers(1, 70),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
LAYOUT = PacketLayout(8)
MEMBER = JobMembership(worker=0, workers=2, job=7, epoch=9, window=16)
_BEGIN = LAYOUT.header_offset + offset_of("sequence")
SEQUENCE = slice(_BEGIN, _BEGIN + 4)
PAYLOAD = LAYOUT.header_offset + HEADER.itemsize
ME, SWITCH = Endpoint.of_worker(0), Endpoint.of_switch()


def segment_of(values: np.ndarray, workers: int = 2) -> FloatSegment:
    """With the scale of quantizer ``fixed``, if nobody's values are larger."""
    largest, bound = float(np.abs(values).max()), (2**31 - 1) // workers
    scale, step = (bound / largest, largest / bound) if largest else (1.0, 1.0)
    return FloatSegment(values, scale, step, REFERENCE.quantize)


def started(segment: Segment) -> SlotClient:
    client = SlotClient(LAYOUT, MEMBER, source=ME, switch=SWITCH, timing=Timing())
    client.start([segment], 0.0)
    return client


@given(FLOATS)
def test_frames_are_those_of_quantized_words(values: np.ndarray) -> None:
    later = segment_of(values)
    words = REFERENCE.quantize(values, later.scale)
    frames = started(later).outgoing(0.0)
    np.testing.assert_array_equal(frames, started(Segment(ReduceOp.SUM, words)).outgoing(0.0))
    assert later._words is None, "no array of all words was made"


@given(FLOATS, st.randoms(use_true_random=False))
def test_sums_are_those_of_dequantized_words(values: np.ndarray, random) -> None:
    """In whatever order results come."""
    later = segment_of(values)
    client = started(later)
    client.outgoing(0.0)
    chunks = -(-values.size // 8)
    sums = np.zeros((chunks, 8), np.int32)
    rng = np.random.default_rng(random.randrange(2**32))
    sums.reshape(-1)[: values.size] = rng.integers(-(2**31), 2**31, values.size)
    order = list(range(chunks))
    random.shuffle(order)
    for chunk in order:
        assert later.sums is None
        client.receive(result(chunk, sums[chunk], values.size), 0.0)
    (kept,) = client.results()
    assert kept.size == 0, "sums are kept as floats alone"
    expected = REFERENCE.dequantize(sums.reshape(-1)[: values.size], later.step)
    np.testing.assert_array_equal(later.sums.view(np.int32), expected.view(np.int32))


@given(FLOATS, st.randoms(use_true_random=False))
def test_sums_over_the_values_leave_what_may_be_sent_again(values: np.ndarray, random) -> None:
    """A result ends the need for the values in its place, and for no others."""
    later = segment_of(values.copy())
    later.overwrite()
    words = REFERENCE.quantize(values, later.scale)
    client = started(later)
    first = client.outgoing(0.0)
    waiting = list(range(len(first)))
    random.shuffle(waiting)
    sums = 2 * np.pad(words, (0, 8 * len(first) - values.size)).reshape(-1, 8)
    now, seen = 0.0, 0
    while waiting:
        now = client.next_deadline()
        for frame in client.outgoing(now):
            chunk = int.from_bytes(frame[SEQUENCE]) - 1
            assert chunk in waiting
            np.testing.assert_array_equal(frame[PAYLOAD:], first[chunk, PAYLOAD:])
            seen += 1
        chunk = waiting.pop()
        assert client.receive(result(chunk, sums[chunk], values.size), now) == 1
    client.results()
    assert seen, "some were sent again"
    expected = REFERENCE.dequantize(2 * words, later.step)
    np.testing.assert_array_equal(later.values.view(np.int32), expected.view(np.int32))
    assert later.sums is later.values


@given(
    st.floats(2.0**-149, float(np.finfo(np.float32).max), width=32),
    st.integers(1, 40),
    st.one_of(st.integers(-40, 40).map(lambda power: 2.0**power), st.floats(-9, 9)),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40),
)
def test_a_factor_on_the_way_changes_no_bit(largest, workers, factor, sums) -> None:
    bound = (2**31 - 1) // workers
    later = FloatSegment(
        np.ones(1, np.float32), bound / largest, largest / bound, REFERENCE.quantize
    )
    if not always_finite(later.step):
        return
    words = np.array(sums, np.int32)
    with np.errstate(over="ignore"):
        after = REFERENCE.dequantize(words, later.step) * np.float32(factor)
        if later.multiply(factor):
            on_the_way = REFERENCE.dequantize(words, later.step)
            np.testing.assert_array_equal(on_the_way.view(np.int32), after.view(np.int32))


def test_which_factors_may_be_on_the_way() -> None:
    def may(step: float, factor: float) -> bool:
        segment = FloatSegment(np.ones(1, np.float32), 1 / step, step, REFERENCE.quantize)
        done = segment.multiply(factor)
        assert segment.step == (step * factor if done else step)
        return done

    assert may(1e-9, 0.25)
    assert may(1e-9, 1.0)
    assert may(1e-9, 1024.0)
    for factor in (1 / 3, 0.0, -0.5, float("inf"), float("nan")):
        assert not may(1e-9, factor), "no power of two"
    assert not may(2.0**-126, 0.5), "a product would be subnormal"
    assert not may(2.0**-127, 2.0), "a sum would be subnormal"


def result(chunk: int, values: np.ndarray, size: int) -> np.ndarray:
    return pack(
        LAYOUT, SWITCH, ME, values[np.newaxis], operation=ReduceOp.SUM, job=7, epoch=9,
        sequence=chunk + 1, slot=chunk % 16, slot_version=chunk // 16 % 2, flags=HeaderFlag.RESULT,
        bitmap=3, worker=0, count=2, elements=min(8, size - 8 * chunk),
    )  # fmt: skip


def test_a_result_with_a_wrong_checksum_leaves_nothing() -> None:
    later = segment_of(np.arange(1, 9, dtype=np.float32))
    client = started(later)
    client.outgoing(0.0)
    torn = result(0, np.full(8, 5, np.int32), 8)
    torn[0, -1] ^= 1
    assert client.receive(torn, 0.0) == 0
    assert client.receive(result(0, np.arange(8, dtype=np.int32), 8), 0.0) == 1
    client.results()
    np.testing.assert_array_equal(
        later.sums, REFERENCE.dequantize(np.arange(8, dtype=np.int32), later.step)
    )


def test_settled_words_are_all_there_and_the_sums_are_left_to_others() -> None:
    later = segment_of(np.linspace(-1, 1, 20, dtype=np.float32))
    message = Message([later], 8)
    assert message.words.size == 0
    message.settle()
    message.settle()
    np.testing.assert_array_equal(message.words, REFERENCE.quantize(later.values, later.scale))
    assert message.combined.shape == (3, 8)
    message.combined[:] = np.arange(24).reshape(3, 8)
    assert message.results()[0].tolist() == list(range(20))
    assert later.sums is None


def test_beside_other_segments_words_are_made_first() -> None:
    later = segment_of(np.linspace(-1, 1, 5, dtype=np.float32))
    message = Message([later, Segment(ReduceOp.OR, np.ones(3, np.int32))], 4)
    np.testing.assert_array_equal(message.words[:5], later.words)
    assert message.words[8:11].tolist() == [1, 1, 1]
    message.results()
    assert later.sums is None


def test_a_codec_defers_only_if_its_caller_lets_it() -> None:
    gradient = np.linspace(-3, 5, 100, dtype=np.float32)
    for spec, may_defer, defers in (
        ("dense", True, True), ("dense", False, False), ("lhc", True, False), ("topk", True, False),
        ({"preset": "dense", "quantizer": "optimistic"}, True, True),
        ("powersgd", True, False),  # its residual may use the same memory
    ):  # fmt: skip
        options = SumOptions() if may_defer else None
        steps = build_codec(spec).exchange(gradient, 2, options=options)
        segments, seen = next(steps), False
        try:
            while True:
                seen |= any(isinstance(each, FloatSegment) for each in segments)
                segments = steps.send([each.words for each in segments])
        except StopIteration:
            pass
        assert seen is defers, spec


def test_answers_of_sums_that_were_made_are_empty() -> None:
    later = segment_of(np.ones(5, np.float32))
    nothing, words = np.empty(0, np.int32), np.ones(5, np.int32)
    check_answers([later], [words])
    with pytest.raises(InputError, match="the network answered"):
        check_answers([later], [nothing])
    later.arrived(np.ones(5, np.float32))
    check_answers([later], [nothing])
    with pytest.raises(InputError, match="the network answered"):
        check_answers([later], [words])
