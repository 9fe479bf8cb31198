"""AdaScale's gain: its sums are exact, and it is the paper's formula."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lockstep import all_reduce

import innet
from innet.allreduce.collective import Collective
from innet.codecs import build_codec
from innet.codecs.adascale import AdaScale, moments_of, square_of_words, square_words
from innet.core.errors import CompositionError, InputError, StateError

SQUARES = st.one_of(
    st.just(0.0),
    st.floats(2.0**-298, 2.0**287),
    st.builds(math.ldexp, st.floats(0.5, 1, exclude_max=True), st.integers(-297, 287)),
)


@given(st.lists(SQUARES, min_size=1, max_size=8), st.integers(1, 4096))
def test_sums_of_words_are_exact(squares, repeats):
    words = [square_words(each) for each in squares]
    assert all(each.dtype == np.int32 and each.max() < 2**15 for each in words)
    total = np.sum(words, axis=0, dtype=np.int64) * repeats
    assert total.max() < 2**31  # of 32,768 workers
    exact = sum(map(Fraction, squares)) * repeats
    assert square_of_words(total.astype(np.int32)) == float(exact)


def formula(gradients):
    """Johnson et al., 2020, in float64: from the gradients themselves."""
    g = np.asarray(gradients, np.float64)
    s = len(g)
    mean = g.mean(axis=0)
    variance = (g**2).sum() / (s - 1) - s / (s - 1) * (mean**2).sum()
    square = (mean**2).sum() - variance / s
    return variance, square, (variance + square) / (variance / s + square)


def draws(workers, size=3000, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    expected = rng.standard_normal(size)
    return [(expected + noise * rng.standard_normal(size)).astype("f4") for _ in range(workers)]


@pytest.mark.parametrize("codec", ["exact", "dense", "lhc"])
@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_the_gain_is_that_of_the_formula(codec, workers, noise):
    gradients = draws(workers, noise=noise)
    _, report = innet.all_reduce(gradients, codec=codec, gain=True)
    variance, square, gain = formula(gradients)
    assert report.details["gain"] == pytest.approx(gain, rel=1e-5)
    assert 1 < gain < workers
    squares = report.details["squares"]
    assert squares["workers"] == pytest.approx(float(np.square(gradients, dtype=np.float64).sum()))
    assert moments_of(squares["workers"], squares["sum"], workers) == pytest.approx(
        (variance, square), rel=1e-5
    )
    # sigma² = 3000 · noise², mu² = 3000, give or take.
    assert gain == pytest.approx((noise**2 + 1) / (noise**2 / workers + 1), rel=0.1)


def test_equal_gradients_gain_nothing_and_noise_gains_the_workers():
    one = draws(1)[0]
    assert innet.all_reduce([one] * 4, codec="exact", gain=True)[1].details["gain"] == 1
    rng = np.random.default_rng(1)
    noise = [rng.standard_normal(20000).astype("f4") for _ in range(4)]
    assert innet.all_reduce(noise, codec="exact", gain=True)[1].details["gain"] > 3.5
    zeros = [np.zeros(50, np.float32)] * 4
    assert innet.all_reduce(zeros, gain=True)[1].details["gain"] == 1
    assert innet.all_reduce([one], gain=True)[1].details["gain"] == 1


def test_of_a_codec_that_selects_it_is_of_what_is_sent():
    codecs = [build_codec("scalecom", worker=worker, gain=True) for worker in range(3)]
    for step in range(3):
        outcomes = all_reduce(codecs, draws(3, seed=step))
        sent = [outcome.sent for outcome in outcomes]
        variance, square, _ = formula(sent)
        squares = outcomes[0].details["squares"]
        found = moments_of(squares["workers"], squares["sum"], 3)
        assert found == pytest.approx((variance, square), rel=1e-4)


def test_by_layer_squares_add_up():
    gradients = draws(3, size=500)
    layers = {"a": 200, "b": 300}
    spec = {"layers": {"a": "exact", "b": "dense"}}
    _, report = innet.all_reduce(gradients, spec, layers=layers, gain=True)
    assert report.details["gain"] == pytest.approx(formula(gradients)[2], rel=1e-5)


def test_averages_follow_the_smoothing_and_their_state():
    collective = Collective(workers=3, codec="exact", gain=True)
    averages = None
    for step in range(4):
        gradients = draws(3, seed=step, noise=1 + step)
        if step == 2:
            other = Collective(workers=3, codec="exact", gain=True)
            other.load_state_dict(collective.state_dict())
            collective = other
        _, report = collective.all_reduce(gradients)
        found = np.array(formula(gradients)[:2])
        averages = found if averages is None else 0.997 * averages + 0.003 * found
        variance, square = averages
        expected = (variance + square) / (variance / 3 + square)
        assert report.details["gain"] == pytest.approx(expected, rel=1e-6)
    assert collective.adascale.steps > 4


def test_without_it_nothing_changes():
    gradients = draws(2, size=100)
    total, report = innet.all_reduce(gradients)
    assert "gain" not in report.details
    assert total.tobytes() == innet.all_reduce(gradients, gain=True)[0].tobytes()


def test_workers_must_all_measure_it():
    codecs = [build_codec("dense", worker=worker, gain=worker == 0) for worker in range(2)]
    with pytest.raises((InputError, AssertionError), match=r"disagree|different"):
        all_reduce(codecs, draws(2, size=64))


@pytest.mark.parametrize("codec", ["powersgd", "adacomp", "signsgd", "ef21"])
def test_codecs_without_such_sums_are_refused(codec):
    with pytest.raises(CompositionError, match="AdaScale's gain"):
        build_codec(codec, gain=True)


def test_numbers_out_of_range():
    for wrong in (0, -1):
        with pytest.raises(InputError, match="at least 1"):
            AdaScale(wrong)
    with pytest.raises(InputError, match="smoothing"):
        AdaScale(4, smoothing=1.0)
    assert AdaScale(4).smoothing == pytest.approx(0.996)
    assert AdaScale(2000).smoothing == 0
    with pytest.raises(StateError, match="is of 3 workers"):
        AdaScale(4).load_state_dict(AdaScale(3).state_dict())
    with pytest.raises(StateError, match="state_dict"):
        AdaScale(4).load_state_dict({})
