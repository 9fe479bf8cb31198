"""Zeros of gradients that are sparse by themselves: not quantized where nobody sends them."""

from __future__ import annotations

import numpy as np
import pytest
from support.lockstep import all_reduce, integer_oracle

from innet.codecs import build_codec
from innet.codecs import codec as codecs
from innet.codecs.error_feedback.none import NoErrorFeedback
from innet.codecs.quantizers.fixed import FixedScaling

SIZE = 5000


def job():
    """Three workers with 0, 3 and 8 % of the elements, and as many negative zeros."""
    rng = np.random.default_rng(1)
    each = np.zeros((3, SIZE), np.float32)
    for row, items in zip(each, (0, SIZE * 3 // 100, SIZE * 8 // 100), strict=True):
        places = rng.choice(SIZE, 2 * items, replace=False)
        row[places[:items]] = rng.standard_normal(items)
        row[places[items:]] = -0.0
    return list(each)


def reduced(carrier, quantizer):
    """What the workers sent, word by word, and the outcomes."""
    spec = {"selector": "all", "quantizer": quantizer, "carrier": carrier, "error_feedback": "none"}
    rounds = []
    own = [build_codec(spec, worker=worker) for worker in range(3)]
    outcomes = all_reduce(own, job(), watch=rounds.append)
    words = [segment.words.tolist() for each in rounds for sent in each for segment in sent]
    return words, outcomes


@pytest.mark.parametrize("quantizer", ["fixed", "exact"])
@pytest.mark.parametrize("carrier", ["lhc", "union"])
def test_the_same_words_travel_as_if_all_were_quantized(carrier, quantizer, monkeypatch):
    words, outcomes = reduced(carrier, quantizer)
    limbs = outcomes[0].contribution.limbs
    for outcome in outcomes:
        assert outcome.contribution.integers.size <= SIZE * 8 // 100 * limbs
        assert outcome.indices is None
        np.testing.assert_array_equal(outcome.integer_sum, integer_oracle(outcomes, SIZE * limbs))
    monkeypatch.setattr(codecs, "_MANY", SIZE + 1)
    expected, whole = reduced(carrier, quantizer)
    assert whole[1].contribution.integers.size == SIZE * limbs
    assert words == expected
    np.testing.assert_array_equal(outcomes[0].sum, whole[0].sum)


def test_a_gradient_that_is_not_sparse_is_quantized_whole():
    gradient = np.ones(80, np.float32)
    gradient[11:] = 0  # more than an eighth
    (outcome,) = all_reduce([build_codec("lhc")], [gradient])
    assert outcome.contribution.indices is None


def test_a_carrier_that_sends_zeros_gets_them():
    (outcome,) = all_reduce([build_codec("dense")], [np.eye(1, 80, dtype=np.float32)[0]])
    assert outcome.contribution.indices is None


def test_feedback_is_told_of_all_that_was_selected(monkeypatch):
    told = []
    monkeypatch.setattr(
        FixedScaling, "represented", lambda self, own: self.dequantize(own.integers)
    )
    monkeypatch.setattr(NoErrorFeedback, "set_sent", lambda _, values: told.append(values))
    gradient = np.zeros(100, np.float32)
    gradient[[3, 50, 99]] = 1.5, -2.0, 0.25
    (outcome,) = all_reduce([build_codec("lhc")], [gradient])
    assert outcome.contribution.indices.tolist() == [3, 50, 99]
    np.testing.assert_allclose(told[0], gradient, rtol=1e-6)
    assert outcome.represented is told[0]
