"""Quantizer thc: its table, its rotation, its error, its bounds, and what is fed back."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from support import gradients
from support.kernels import assert_same
from support.lockstep import all_reduce, shares
from support.tiers import examples

from innet import kernels
from innet.codecs import build_codec
from innet.codecs.quantizers.thc import ThcSettings, table, table_reach
from innet.core.errors import CompositionError, ConfigError, InputError
from innet.kernels.layout.hadamard import padded

# Importing it takes a second, in each process that does so.
BY_SCIPY = pytest.mark.xdist_group("scipy.stats")

naive = kernels.get("reference")
compiled = [kernels.get(name) for name in kernels.names() if name != "reference"]
each_compiled = pytest.mark.parametrize("fast", compiled, ids=lambda module: module.__name__)


def codecs(count, seed=0, **quantizer):
    spec = {"preset": "thc", "quantizer": quantizer}
    return [build_codec(spec, seed=seed, worker=worker) for worker in range(count)]


# ------------------------------------------------------------------ kernels


@BY_SCIPY
def test_the_oracle_multiplies_by_hadamards_matrix():
    x = np.arange(-5, 11, dtype=np.float32)
    signs = naive.hadamard_inverse(np.eye(1, 16, dtype=np.int32)[0], np.ones(1), 16, 3, 16)
    assert set(np.abs(signs)) == {1.0}
    assert set(signs) == {-1.0, 1.0}
    product = scipy.linalg.hadamard(16) @ (signs * x)
    np.testing.assert_array_equal(naive.hadamard(x, np.ones(1), 16, 3), product)


@each_compiled
@settings(max_examples=examples(40))
@given(st.data())
def test_the_kernels_are_those_of_the_oracle(fast, data):
    x = data.draw(gradients.vectors(data.draw(gradients.sizes(large=True)), "normal"))
    block = data.draw(st.sampled_from((16, 64, 4096)))
    key = data.draw(st.integers(0, 2**64 - 1))
    assert_same(fast.block_squares(x, block), naive.block_squares(x, block))
    scales = np.random.default_rng(1).uniform(0.5, 1, -(-x.size // block)) * 2**27 / block
    rotated = naive.hadamard(x, scales, block, key)
    assert rotated.size == padded(x.size, block)
    assert_same(fast.hadamard(x, scales, block, key), rotated)
    back = rotated // block
    steps = 1 / scales
    assert_same(
        fast.hadamard_inverse(back, steps, block, key, x.size),
        naive.hadamard_inverse(back, steps, block, key, x.size),
    )
    entries = np.array(data.draw(st.sampled_from(([0, 1], [0, 2, 5, 9], range(16)))), np.int32)
    coarse = 3 / (scales * math.sqrt(block))
    quantized = naive.quantize_to_table(rotated, coarse, entries, block, key)
    assert_same(fast.quantize_to_table(rotated, coarse, entries, block, key), quantized)
    assert set(quantized) <= set(entries)


@given(st.data())
def test_back_and_forth_is_the_identity_in_integers(data):
    x = data.draw(gradients.vectors(data.draw(gradients.sizes()), "integers"))
    ones = np.ones(-(-x.size // 64))
    rotated = naive.hadamard(x, ones, 64, 5)
    lengths = np.full(ones.size, 64.0)
    lengths[x.size // 64 :] = padded(x.size % 64, 64)
    assert_same(naive.hadamard_inverse(rotated, 1 / lengths, 64, 5, x.size), x + np.float32(0))


# ------------------------------------------------------------------ the table


def variance(entries, reach):
    """Of a truncated normal value that is rounded by chance, by numerical integration."""
    places = (2 * np.array(entries) / entries[-1] - 1) * reach
    return sum(
        scipy.integrate.quad(lambda z, a=a, b=b: (z - a) * (b - z) * scipy.stats.norm.pdf(z), a, b)[
            0
        ]
        for a, b in itertools.pairwise(places)
    )


@BY_SCIPY
@pytest.mark.parametrize(("bits", "granularity"), [(2, 9), (2, 10), (3, 12), (3, 15)])
def test_no_symmetric_table_is_better(bits, granularity):
    reach = table_reach(1 / 32)
    found = table(bits, granularity, reach)
    inner = range(1, (granularity + 1) // 2)
    others = []
    for lower in itertools.combinations(inner, 2 ** (bits - 1) - 1):
        half = (0, *lower)
        others.append((*half, *(granularity - each for each in reversed(half))))
    assert found in others
    assert variance(found, reach) == pytest.approx(min(variance(each, reach) for each in others))


def test_the_default_table_is_the_one_of_the_papers_public_code():
    defaults = ThcSettings()
    found = table(defaults.bits, defaults.granularity, table_reach(defaults.truncated))
    assert found == (0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30)


@pytest.mark.parametrize(("bits", "granularity"), [(1, 1), (1, 8), (4, 15), (4, 30), (8, 1023)])
def test_tables_are_symmetric_and_ascending(bits, granularity):
    entries = table(bits, granularity, table_reach(1 / 32))
    assert len(entries) == 2**bits
    assert (entries[0], entries[-1]) == (0, granularity)
    assert all(a < b for a, b in itertools.pairwise(entries))
    assert [granularity - each for each in reversed(entries)] == list(entries)


@BY_SCIPY
def test_the_reach_leaves_the_share_out():
    assert 2 * scipy.stats.norm.sf(table_reach(1 / 32)) == pytest.approx(1 / 32)


# ------------------------------------------------------------------ the whole


@BY_SCIPY
def test_the_error_is_that_of_the_table():
    """Of rounding and of what is beyond the table, for normal values: within five per cent."""
    x = np.random.default_rng(0).laplace(size=100 * 4096).astype(np.float32)
    (outcome,) = all_reduce(codecs(1), [x])
    reach = table_reach(1 / 32)
    beyond = (
        2 * scipy.integrate.quad(lambda z: (z - reach) ** 2 * scipy.stats.norm.pdf(z), reach, 12)[0]
    )
    expected = variance(table(4, 30, reach), reach) + beyond
    error = np.sum((outcome.sum - x.astype(np.float64)) ** 2) / np.sum(x.astype(np.float64) ** 2)
    assert error == pytest.approx(expected, rel=0.05)


def test_rounding_has_no_bias_where_nothing_is_beyond_the_table():
    """Within five standard errors, of which chance exceeds one in two million."""
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    runs = 1500
    sums = np.array(
        [all_reduce(codecs(1, seed, truncated=1e-9, block=64), [x])[0].sum for seed in range(runs)],
        np.float64,
    )
    deviation = sums.std(axis=0) / math.sqrt(runs)
    assert (np.abs(sums.mean(axis=0) - x) <= 5 * deviation).all()


def test_what_is_lost_is_fed_back():
    (codec,) = codecs(1)
    rng = np.random.default_rng(2)
    sent, given_ = np.zeros(3000), np.zeros(3000)
    for _ in range(20):
        x = rng.standard_normal(3000).astype(np.float32)
        (outcome,) = all_reduce([codec], [x])
        residual = codec.error_feedback.residual
        carried = x if not given_.any() else outcome.sent
        np.testing.assert_array_equal(residual, carried - outcome.represented)
        sent += outcome.represented
        given_ += x
    np.testing.assert_allclose(sent + residual, given_, atol=1e-4)
    assert np.linalg.norm(residual) < 0.3 * np.linalg.norm(x)  # and does not grow


def test_an_exchange_that_is_given_up_leaves_all_of_the_gradient():
    (codec,) = codecs(1)
    x = np.random.default_rng(2).standard_normal(100).astype(np.float32)
    exchange = codec.exchange(x, 1)
    first = next(exchange)
    exchange.send([each.words for each in first])
    exchange.close()
    np.testing.assert_array_equal(codec.error_feedback.residual, x)


@pytest.mark.parametrize("error_feedback", ["none", "lowpass", "momentum"])
def test_other_feedbacks_take_what_the_integers_stand_for(error_feedback):
    spec = {"preset": "thc", "error_feedback": error_feedback}
    x = np.random.default_rng(4).standard_normal(500).astype(np.float32)
    codec = build_codec(spec)
    (outcome,) = all_reduce([codec], [x])
    if error_feedback != "none":
        share = 0.1 if error_feedback == "lowpass" else 1
        rest = share * (x.astype(np.float64) - outcome.represented)
        np.testing.assert_allclose(codec.error_feedback.residual, rest, atol=1e-6)


@pytest.mark.parametrize("workers", [1, 3, 32])
@pytest.mark.parametrize("largest", [gradients.TINIEST, 1.0, 1e30])
def test_extremes_stay_within_their_bounds(workers, largest):
    """All weight on one value, or spread out: what makes a rotated block as large as it can be."""
    for x in (np.full(5000, largest), np.eye(1, 5000)[0] * largest):
        job = [x.astype(np.float32)] * workers
        outcomes = all_reduce(codecs(workers), job)
        for outcome in outcomes:
            assert np.abs(outcome.contribution.integers).max() <= 15
        total = np.sum(shares(outcomes, 5000), axis=0)
        np.testing.assert_allclose(
            outcomes[0].sum, total, rtol=1e-5, atol=workers * (1e-6 * largest + 2.0**-149)
        )


def test_the_rotation_of_whole_blocks_of_one_sign_does_not_overflow():
    signs = naive.hadamard_inverse(np.eye(1, 8192, dtype=np.int32)[0], np.ones(1), 8192, 9, 8192)
    scale = np.array([2.0**30 / 8192])
    for name in kernels.names():
        rotated = kernels.get(name).hadamard(signs, scale, 8192, 9)  # all of it in one coordinate
        assert rotated[0] == 2**30
        assert not rotated[1:].any()


def test_too_many_workers_are_refused():
    (codec,) = codecs(1, block=8192, granularity=1023)
    exchange = codec.exchange(np.ones(10, np.float32), 257)
    first = next(exchange)
    with pytest.raises(InputError, match="up to 256 workers, not 257; choose granularity 1020 or"):
        exchange.send([each.words for each in first])


@pytest.mark.parametrize(
    ("parameters", "workers", "choose"),
    [
        ({}, 32768, "granularity 15 or block 2048, or less"),
        ({}, 65536, "block 1024, or less"),  # a granularity below 15 has no 16 entries
        ({"bits": 8, "granularity": 1023}, 2**17, "block 16, or less"),
        ({"bits": 8, "granularity": 1023}, 2**18, "quantizer 'qsgd' or 'fixed'"),
    ],
)
def test_the_error_says_what_has_room(parameters, workers, choose):
    codec = build_codec({"preset": "thc", "quantizer": parameters})
    with pytest.raises(InputError, match=f"not {workers}; choose {choose}\\."):
        codec.value_bits(workers)
    for instead in re.findall(r"(granularity|block) (\d+)", choose):
        changed = {**parameters, instead[0]: int(instead[1])}
        assert build_codec({"preset": "thc", "quantizer": changed}).value_bits(workers) >= 2
        changed[instead[0]] *= 2 if instead[0] == "block" else 1
        changed[instead[0]] += instead[0] == "granularity"
        with pytest.raises(InputError, match="sums up to"):
            build_codec({"preset": "thc", "quantizer": changed}).value_bits(workers)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bits": 0}, "bits"),
        ({"bits": 9}, "bits"),
        ({"granularity": 14}, "2\\*\\*bits - 1"),
        ({"granularity": 1024}, "granularity"),
        ({"truncated": 0.0}, "truncated"),
        ({"truncated": 1.0}, "truncated"),
        ({"block": 100}, "power of two"),
        ({"block": 8}, "block"),
        ({"block": 16384}, "block"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ConfigError, match=message):
        codecs(1, **parameters)


def test_the_ends_of_their_ranges_are_taken():
    for bits, granularity, block in ((1, 1, 16), (4, 15, 8192), (8, 1023, 16)):
        (codec,) = codecs(1, bits=bits, granularity=granularity, block=block)
        (outcome,) = all_reduce([codec], [np.linspace(-1, 1, 20, dtype=np.float32)])
        assert np.isfinite(outcome.sum).all()


@pytest.mark.parametrize("other", [{"selector": "topk"}, {"carrier": "lhc"}])
def test_what_cannot_be_rotated_together_is_refused(other):
    with pytest.raises(CompositionError):
        build_codec({"preset": "thc", **other})
