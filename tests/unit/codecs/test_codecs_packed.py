"""The carrier for small integers: lanes, extremes, how many workers fit, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import gradients
from support.kernels import assert_same
from support.lockstep import all_reduce, integer_oracle
from support.tiers import examples

import innet
from innet import codecs, kernels
from innet.codecs import PRESETS, build_codec
from innet.codecs.parts import (
    LEAVES_RESIDUAL,
    SAME_INDICES,
    Capabilities,
    Contribution,
    Selector,
    Stopwatch,
)
from innet.core.errors import CompositionError
from innet.core.reduce_op import combine
from innet.core.settings import Settings

naive = kernels.get("reference")
compiled = [kernels.get(name) for name in kernels.names() if name != "reference"]


def summed(contributions, workers=None):
    """The carrier alone: total and the words of the first worker."""
    workers = len(contributions) if workers is None else workers
    carriers = [build_codec("qsgd").carrier for _ in contributions]
    stages = [
        carrier.carry(own, [], workers, Stopwatch(lambda: 0.0, "encode"))
        for carrier, own in zip(carriers, contributions, strict=True)
    ]
    segments = [next(each)[0] for each in stages]
    answer = combine(segments[0].operation, [each.words for each in segments])
    with pytest.raises(StopIteration) as stop:
        stages[0].send([answer])
    return stop.value.value, segments[0].words


@pytest.mark.parametrize("fast", compiled, ids=lambda module: module.__name__)
@given(st.data())
def test_the_kernels_are_those_of_the_oracle(fast, data):
    bits = data.draw(st.integers(2, 32))
    lanes = data.draw(st.integers(1, 32 // bits))
    size = data.draw(gradients.sizes(large=True))
    rng = np.random.default_rng(data.draw(gradients.seeds))
    integers = rng.integers(1 - 2 ** (bits - 1), 2 ** (bits - 1), size).astype(np.int32)
    words = naive.pack(integers, lanes, bits)
    assert words.size == -(-size // lanes)
    assert_same(fast.pack(integers, lanes, bits), words)
    assert_same(naive.unpack(words, size, lanes, bits), integers)
    assert_same(fast.unpack(words, size, lanes, bits), integers)


def bits_after_bits(fast, bits, size, seed):
    rng = np.random.default_rng(seed)
    integers = rng.integers(0, 2**bits, size).astype(np.int32)
    words = naive.pack_bits(integers, bits)
    assert words.size == -(-size * bits // 32)
    assert_same(fast.pack_bits(integers, bits), words)
    assert_same(naive.unpack_bits(words, size, bits), integers)
    assert_same(fast.unpack_bits(words, size, bits), integers)


@pytest.mark.parametrize("fast", compiled, ids=lambda module: module.__name__)
@settings(max_examples=examples(30))  # the reference takes its time
@given(st.integers(1, 31), gradients.sizes(), gradients.seeds)
def test_bits_after_bits(fast, bits, size, seed):
    bits_after_bits(fast, bits, size, seed)


@pytest.mark.parametrize("fast", compiled, ids=lambda module: module.__name__)
@settings(max_examples=10)  # the reference takes its time
@given(st.integers(1, 31), st.sampled_from(gradients.LARGE_SIZES), gradients.seeds)
def test_bits_after_bits_of_large_arrays(fast, bits, size, seed):
    bits_after_bits(fast, bits, size, seed)


def test_the_stream_of_bits_is_as_it_is_described():
    words = naive.pack_bits(np.array([1, 2, 3, 127, 5], np.int32), 7)
    stream = 1 + (2 << 7) + (3 << 14) + (127 << 21) + (5 << 28)
    assert words.view(np.uint32).tolist() == [stream % 2**32, stream >> 32]


def test_the_words_are_as_they_are_described():
    integers = np.array([-3, 0, 3, 1, -1], np.int32)
    # Three lanes of ten bits in two words.
    assert naive.pack(integers, 3, 10).tolist() == [-3 + 3 * 2**10 - 2**20, 0 + 2**10]


@given(st.integers(1, 40), st.sampled_from([1, 7, 15, 127, 2**20]), st.integers(1, 200))
def test_extremes_reach_into_no_other_lane_and_leave_no_word(workers, bound, size):
    extreme = np.full(size, bound, np.int32)
    extreme[::3] = -bound
    (total, words) = summed([Contribution(size, None, extreme, bound=bound)] * workers)
    np.testing.assert_array_equal(total.integers, workers * extreme)
    assert np.abs(words.astype(np.int64) * workers).max() < 2**31
    bits = total.details["lane_bits"]
    assert 2 ** (bits - 2) <= workers * bound < 2 ** (bits - 1)
    assert total.details["lanes"] == 32 // bits
    assert words.size == -(-size // total.details["lanes"])


def test_who_is_missing_counts_as_zero():
    """Partial results: what has been added up is right, whoever is not in it."""
    own = Contribution(5, None, np.array([7, -7, 0, 1, -1], np.int32), bound=7)
    (total, _) = summed([own] * 3, workers=8)
    assert total.integers.tolist() == [21, -21, 0, 3, -3]


def test_as_many_workers_as_int32_has_room_for_need_a_word_each():
    workers = 2**31 - 1
    carrier = build_codec("qsgd").carrier
    own = Contribution(3, None, np.array([1, 0, -1], np.int32), bound=1)
    stages = carrier.carry(own, [], workers, Stopwatch(lambda: 0.0, "encode"))
    (segment,) = next(stages)
    assert segment.words.tolist() == [1, 0, -1]
    with pytest.raises(StopIteration) as stop:
        stages.send([segment.words * np.int32(workers)])
    assert stop.value.value.integers.tolist() == [workers, 0, -workers]


@pytest.mark.parametrize(
    ("workers", "levels", "lanes"), [(1, 127, 4), (4, 127, 3), (4, 7, 5), (8, 1, 6), (32, 127, 2)]
)
def test_qsgd_sends_so_many_words(workers, levels, lanes):
    spec = {"preset": "qsgd", "quantizer": {"levels": levels}}
    codecs = [build_codec(spec, worker=worker) for worker in range(workers)]
    rng = np.random.default_rng(3)
    job = list(rng.standard_normal((workers, 1000)).astype(np.float32))
    rounds = []
    outcomes = all_reduce(codecs, job, watch=lambda each: rounds.append(each[0][0].words.size))
    assert rounds == [3, -(-1000 // lanes)]
    np.testing.assert_array_equal(outcomes[0].integer_sum, integer_oracle(outcomes, 1000))


class EverySeventh(Selector[Settings]):
    """The coordinates 0, 7, 14, ..., whatever the gradient."""

    name = "seventh"
    capabilities = Capabilities(provides=frozenset({SAME_INDICES, LEAVES_RESIDUAL}))

    def select(self, x):
        indices = np.arange(0, x.size, 7, dtype=np.int32)
        return indices, x[indices]


@pytest.mark.parametrize(("selector", "words"), [(EverySeventh, 48), ("topk", 334)])
def test_only_shared_indices_save_words(monkeypatch, selector, words):
    if not isinstance(selector, str):
        monkeypatch.setitem(codecs.PARTS["selector"]._loaded, "seventh", selector)
        selector = "seventh"
    spec = {
        "selector": selector,
        "quantizer": "qsgd",
        "carrier": "packed",
        "error_feedback": "residual",
    }
    rng = np.random.default_rng(3)
    job = list(rng.standard_normal((4, 1000)).astype(np.float32))
    rounds = []
    outcomes = all_reduce(
        [build_codec(spec, worker=worker) for worker in range(4)],
        job,
        watch=lambda each: rounds.append(each[0][0].words.size),
    )
    assert rounds[-1] == words
    np.testing.assert_array_equal(outcomes[0].integer_sum, integer_oracle(outcomes, 1000))


@pytest.mark.parametrize("quantizer", ["fixed", "exact"])
def test_integers_that_fill_a_word_are_refused(quantizer):
    with pytest.raises(CompositionError, match="nothing to pack"):
        build_codec({"quantizer": quantizer, "carrier": "packed"})


@pytest.mark.parametrize(
    ("codec", "said"),
    [
        ("topk:quantizer=qsgd,levels=127", "small integers of qsgd save no bytes: carrier lhc"),
        ("scalecom:quantizer=qsgd", "carrier packed puts several into a word"),
        ("topk:quantizer=qsgd,carrier=packed", "packed sends every element, also those that topk"),
        ("threshold:quantizer=signsgd", "Quantizer fixed is more exact with as many bytes"),
    ],
)
def test_parts_that_save_nothing_together_are_told(codec, said):
    (hint,) = build_codec(codec).hints()
    assert said in hint
    gradients = [np.linspace(-1, 1, 500, dtype=np.float32)] * 2
    _, report = innet.all_reduce(gradients, codec=codec)
    assert report.details["hints"] == (hint,)


def test_presets_need_no_hint():
    assert [name for name in PRESETS if build_codec(name).hints()] == []
    _, report = innet.all_reduce([np.ones(100, np.float32)] * 2, codec="qsgd")
    assert "hints" not in report.details
