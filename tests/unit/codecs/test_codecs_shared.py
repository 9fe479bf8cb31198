"""The carrier for coordinates that all workers know: words, sums, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from support.lockstep import all_reduce, integer_oracle

from innet import codecs
from innet.codecs import build_codec
from innet.codecs.parts import LEAVES_RESIDUAL, SAME_INDICES, Capabilities, Selector
from innet.core.reduce_op import ReduceOp
from innet.core.settings import Settings


class EverySeventh(Selector[Settings]):
    """The coordinates 0, 7, 14, ..., whatever the gradient."""

    name = "seventh"
    capabilities = Capabilities(provides=frozenset({SAME_INDICES, LEAVES_RESIDUAL}))

    def select(self, x):
        indices = np.arange(0, x.size, 7, dtype=np.int32)
        return indices, x[indices]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(codecs.PARTS["selector"]._loaded, "seventh", EverySeventh)


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


@pytest.mark.parametrize("quantizer", ["fixed", "exact"])
@pytest.mark.parametrize("error_feedback", ["none", "residual"])
@pytest.mark.parametrize("size", [1, 6, 8, 1000])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_sum_is_that_of_the_chosen(quantizer, error_feedback, size, count):
    spec = {
        "selector": "seventh", "quantizer": quantizer, "carrier": "shared", "error_feedback":
        error_feedback
    }  # fmt: skip
    rng = np.random.default_rng(size)
    # Integers, whose sum float32 holds.
    job = [rng.integers(-50, 51, size).astype(np.float32) for _ in range(count)]
    job[0][0] = 100
    rounds = []
    outcomes = all_reduce(workers(spec, count), job, watch=rounds.append)
    chosen = -(-size // 7)
    expected = np.zeros(size, np.float32)
    expected[::7] = np.sum(job, axis=0)[::7]
    for outcome in outcomes:
        if quantizer == "exact":
            np.testing.assert_array_equal(outcome.sum, expected)
        np.testing.assert_allclose(outcome.sum, expected, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(
            outcome.integer_sum, integer_oracle(outcomes, outcome.contribution.size)
        )
        assert outcome.details == {
            "form": "shared", "shared": chosen * outcome.contribution.limbs
        }  # fmt: skip
    assert [len(own) for own in rounds[-1]] == [1] * count
    (segment,) = rounds[-1][0]
    assert segment.operation is ReduceOp.SUM
    assert segment.words.size == chosen * outcomes[0].contribution.limbs


def test_several_limbs_keep_their_places():
    spec = {"selector": "seventh", "quantizer": "exact", "carrier": "shared"}
    job = [np.full(20, value, np.float32) for value in (1e30, 1.0, -1e30, 2.0**-60)]
    (outcome, *_) = all_reduce(workers(spec, 4), job)
    assert outcome.contribution.limbs > 1
    assert outcome.sum[[0, 7, 14]].tolist() == [1.0] * 3
    assert np.count_nonzero(outcome.sum) == 3


def test_where_everything_is_chosen_the_form_is_dense():
    rounds = []
    job = [np.arange(10, dtype=np.float32)] * 2
    (outcome, _) = all_reduce(workers({"carrier": "shared"}, 2), job, watch=rounds.append)
    assert outcome.details == {"form": "dense"}
    assert rounds[-1][0][0].words.size == 10
    np.testing.assert_allclose(outcome.sum, 2 * job[0], rtol=1e-6)


@pytest.mark.parametrize("quantizer", ["fixed", "exact"])
def test_extremes_of_the_integers_do_not_overflow(quantizer):
    spec = {"selector": "seventh", "quantizer": quantizer, "carrier": "shared"}
    job = [np.full(15, np.finfo(np.float32).max / 64, np.float32)] * 32
    outcomes = all_reduce(workers(spec, 32), job)
    oracle = integer_oracle(outcomes, outcomes[0].contribution.size)
    assert np.abs(oracle).max() <= 2**31 - 1
    np.testing.assert_array_equal(outcomes[7].integer_sum, oracle)
