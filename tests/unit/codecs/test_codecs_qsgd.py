"""Quantizer qsgd: no overflow at the extremes, the promised mean, and its random numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce

from innet import kernels
from innet.codecs import build_codec
from innet.codecs.quantizers.qsgd import QsgdScaling
from innet.core.errors import ConfigError, StateError

INT32_MAX = 2**31 - 1
LEVELS = (1, 3, 127, 2**20 - 1, 2**20)
LARGEST = (
    gradients.TINIEST,
    3 * gradients.TINIEST,
    float(np.nextafter(np.float32(1), np.float32(0))),
    1.0,
    float(np.nextafter(np.float32(1), np.float32(2))),
    gradients.LARGEST,
)


def codecs(count, seed=0, **quantizer):
    spec = {"preset": "qsgd", "quantizer": quantizer}
    return [build_codec(spec, seed=seed, worker=worker) for worker in range(count)]


@pytest.mark.parametrize("name", kernels.names())
@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("largest", LARGEST)
def test_the_extremes_stay_within_the_levels_and_zeros_remain(name, levels, largest):
    x = np.tile(np.array([largest, -largest, 0.0, -0.0], np.float32), 500)
    integers = QsgdScaling(kernels.get(name), largest, levels, 5).quantize(x)
    assert np.abs(integers).max() == levels
    assert (np.sign(integers[np.abs(integers) > 0]) == np.sign(x[np.abs(integers) > 0])).all()
    assert not integers[x == 0].any()


@given(st.data())
def test_no_magnitude_exceeds_the_levels_and_no_value_is_a_step_off(data):
    largest = data.draw(st.floats(gradients.TINIEST, gradients.LARGEST, width=32))
    levels = data.draw(st.integers(1, 2**20))
    share = data.draw(st.lists(st.floats(-1, 1, width=32), min_size=1))
    x = (np.array(share) * largest).astype(np.float32)
    x = x[np.abs(x) <= largest]
    key = data.draw(st.integers(0, 2**64 - 1))
    integers = QsgdScaling(kernels.get("cpu"), largest, levels, key).quantize(x)
    assert np.abs(integers).max(initial=0) <= levels
    assert (np.abs(integers - x.astype(np.float64) / largest * levels) <= 1 + 2.0**-30).all()


@pytest.mark.parametrize("workers", [1, 2, 2047, 2048, 65_535, INT32_MAX])
@pytest.mark.parametrize("levels", LEVELS)
def test_the_levels_make_room_for_the_workers(workers, levels):
    (codec,) = codecs(1, levels=levels)
    one = [np.array([1.0], np.float32).view(np.int32)]
    chosen = codec.quantizer.agree(one, workers).scale
    assert chosen == min(levels, INT32_MAX // workers)
    assert chosen * workers <= INT32_MAX


def test_the_mean_over_seeds_is_the_value():
    """Within five standard errors, of which chance exceeds one in two million."""
    x = np.array([1.0, 0.3, -0.3, 0.001, -0.7773, 0.0], np.float32)
    levels, seeds = 3, 4000
    sums = [all_reduce(codecs(2, seed, levels=levels), [x, x])[0].sum for seed in range(seeds)]
    fraction = np.abs(x.astype(np.float64)) * levels % 1
    deviation = np.sqrt(2 * fraction * (1 - fraction) / seeds) / levels
    error = np.abs(np.mean(sums, axis=0, dtype=np.float64) - 2 * x.astype(np.float64))
    assert (error <= 5 * deviation + 1e-6).all()


def test_small_values_that_rounding_to_the_nearest_would_lose_arrive_in_the_mean():
    x = np.full(100_000, 0.001, np.float32)
    x[0] = 1
    (outcome,) = all_reduce(codecs(1, levels=10), [x])
    assert outcome.sum[1:].mean() == pytest.approx(0.001, rel=5 / math.sqrt(1000))
    assert set(np.unique(outcome.integer_sum)) == {0, 1, 10}


def test_workers_seeds_and_all_reduces_round_independently():
    x = np.full(10_000, 0.5, np.float32)
    x[0] = 1
    job = codecs(2, levels=1)
    rounded = [each.contribution.integers for _ in range(2) for each in all_reduce(job, [x, x])]
    rounded += [each.contribution.integers for each in all_reduce(codecs(2, 1, levels=1), [x, x])]
    assert len(rounded) == 6
    agreement = [np.mean(a == b) for i, a in enumerate(rounded) for b in rounded[:i]]
    assert all(0.47 < each < 0.53 for each in agreement)  # six standard deviations


def test_neighbors_round_independently():
    x = np.full(100_001, 0.5, np.float32)
    up = QsgdScaling(kernels.get("cpu"), 1.0, 1, 9).quantize(x) - 0.5
    for distance in (1, 2, 32, 1000):
        assert abs(np.mean(up[distance:] * up[:-distance])) < 0.25 * 5 / math.sqrt(99_000)


@pytest.mark.parametrize("levels", [0, -1, 2**20 + 1, 1.5])
def test_levels_out_of_range_are_refused(levels):
    with pytest.raises(ConfigError, match="levels"):
        codecs(1, levels=levels)


@pytest.mark.parametrize("step", [-1, 1.0, None, True])
def test_a_state_that_is_no_count_is_refused(step):
    (codec,) = codecs(1)
    state = codec.state_dict()
    assert state["parts"]["quantizer"] == {"step": 0}
    state["parts"]["quantizer"]["step"] = step
    with pytest.raises(StateError, match="not a count"):
        codec.load_state_dict(state)
