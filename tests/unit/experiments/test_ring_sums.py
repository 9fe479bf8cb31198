"""Rings of few bits: what they sum, what a lossless coder saves, and trainings with them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from innet.core.errors import ConfigError
from innet.core.settings import TrainSettings
from innet.core.vnmse import vnmse
from innet.experiments import train
from innet.experiments.ring_sums import HopRounding, RingReducer, lossless_ratio, ring_sum
from innet.experiments.simulated_time import TimedRing, networks_of
from innet.scenarios.baselines import Baseline
from innet.sim.baselines import simulate_messages
from innet.sim.messages import ELEMENTS, ring_all_reduce

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml-dtypes, of the group dev, is not installed")
E4M3, E2M1 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn


def gradients(workers, size, seed=0):
    rng = np.random.default_rng(seed)
    scales = np.exp(rng.standard_normal(size))
    return [(scales * rng.standard_normal(size)).astype(np.float32) for _ in range(workers)]


def by_ml_dtypes(numbers, dtype, emax, largest, block):
    """Numbers as an MX message has them, by the specification's formula and ml_dtypes."""
    decoded = np.zeros_like(numbers)
    for begin in range(0, numbers.size, block):
        part = numbers[begin : begin + block]
        most = np.abs(part).max()
        scale = 2.0 ** (math.floor(math.log2(most)) - emax) if most else 1.0
        held = np.clip(part / scale, -largest, largest)
        decoded[begin : begin + block] = held.astype(dtype).astype(np.float32) * scale
    return decoded


@pytest.mark.parametrize(
    ("dtype", "element", "emax", "largest"),
    [("mxfp8-e4m3", E4M3, 8, 448.0), ("mxfp4", E2M1, 2, 6.0)],
)
@pytest.mark.parametrize(("workers", "size"), [(1, 40), (3, 301), (5, 3)])
def test_a_ring_of_mx_decodes_adds_and_encodes_at_each_hop(
    dtype, element, emax, largest, workers, size
):
    given = gradients(workers, size)
    rounding = HopRounding(dtype)

    def coded(numbers):
        return by_ml_dtypes(numbers, element, emax, largest, 32)

    expected = np.zeros(size, np.float32)
    for first, rows in enumerate(np.array_split(np.arange(size), workers)):
        here = coded(given[first][rows])
        for hop in range(1, workers):
            here = coded(here + given[(first + hop) % workers][rows])
        expected[rows] = here
    np.testing.assert_array_equal(ring_sum(given, rounding, rounding.own), expected)


@pytest.mark.parametrize("dtype", [name for name in ELEMENTS if name != "float32"])
def test_rounding_again_changes_nothing(dtype):
    numbers = gradients(1, 1000)[0]
    rounding = HopRounding(dtype)
    once = rounding(numbers)
    bits = ELEMENTS[dtype].bits
    assert 0 < vnmse(once, [numbers]) < 4.0 ** (4 - min(bits, 8) / 2)
    np.testing.assert_array_equal(rounding(once), once)
    assert rounding(np.zeros(40, np.float32)).tolist() == [0] * 40
    assert rounding(numbers[:0]).size == 0


def test_a_ring_of_float32_and_one_that_is_coded_without_loss_round_as_float32_does():
    given = gradients(4, 1000)
    total, report = RingReducer("ring:lossless=1.2")(given)
    assert report is None
    np.testing.assert_array_equal(total, ring_sum(given, lambda each: each))
    assert vnmse(total, given) < 1e-13


def test_chance_is_without_bias_where_the_nearest_loses_what_is_small():
    """Of 16 workers one has 256, the others 0.5, less than half a step of bfloat16 at 256."""
    given = [np.full(1600, 0.5, np.float32) for _ in range(16)]
    given[0][:] = 256
    true = 256 + 15 * 0.5
    nearest, _ = RingReducer("ring-bfloat16")(given)
    # Where the large number comes first all others are lost.
    assert nearest[:100].tolist() == [256] * 100
    ring = RingReducer("ring-bfloat16:rounding=stochastic", seed=3)
    by_chance, _ = ring(given)
    assert set(by_chance[:100].tolist()) != {256.0}
    # A hop's variance is at most that of a coin between two neighbors, 2 apart: 1.
    assert abs(by_chance.mean() - true) < 5 * math.sqrt(15 / 1600)
    assert abs(nearest.mean() - true) > 1
    assert ring.vnmse == vnmse(by_chance, given)
    again, _ = ring(given)
    assert (again != by_chance).any()
    np.testing.assert_array_equal(
        by_chance, RingReducer("ring-bfloat16:rounding=stochastic", seed=3)(given)[0]
    )


def test_what_is_not_finite_stays():
    numbers = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    for dtype in ("bfloat16", "mxfp8-e4m3", "int8"):
        np.testing.assert_array_equal(HopRounding(dtype, by_chance=True)(numbers), numbers)


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 32), ("bfloat16", 16)])
def test_a_coder_without_loss_saves_the_exponents_entropy(dtype, bits):
    (numbers,) = gradients(1, 100_000)
    exponents = np.frexp(numbers)[1]
    counts = np.unique(exponents, return_counts=True)[1] / numbers.size
    entropy = -(counts * np.log2(counts)).sum()
    # Huffman's code is longer, by 2 % of the whole at most; rounding moves few exponents.
    expected = bits / (bits - 8 + entropy)
    assert 0.98 * expected < lossless_ratio([numbers], dtype) < 1.01 * expected
    assert lossless_ratio([numbers[:50_000], numbers[50_000:]], dtype) == pytest.approx(
        lossless_ratio([numbers], dtype), rel=0.01
    )


def test_what_has_no_structure_is_not_coded_longer():
    noise = np.random.default_rng(0).integers(0, 1 << 32, 10_000, np.uint32).view(np.float32)
    assert lossless_ratio([noise]) == 1
    assert lossless_ratio([np.ones(10_000, np.float32)]) > 7  # a bit for each byte, nearly
    assert lossless_ratio([noise[:0]]) == 1
    with pytest.raises(ConfigError, match="float16 is not measured"):
        lossless_ratio([noise], "float16")


def test_rings_are_timed_with_what_is_measured():
    settings = TrainSettings(networks=("10g",), workers=4, encode_time=1e-10, decode_time=2e-10)
    ring = TimedRing(settings, networks_of(settings), 8000, "ring:lossless=measured")
    for measured, lossless in ((1.251, 1.25), (1.6, 1.6)):
        kind = Baseline.of("ring:lossless=measured").elements(300.0, lossless)
        assert (kind.lossless, kind.hop_cost) == (lossless, 300)
        run = simulate_messages(ring_all_reduce(4, 8000, dtype=kind), "10g")
        assert ring.take(measured)["10g"].seconds == run.seconds


def test_a_training_has_their_errors_and_what_was_measured():
    names = ("ring-bfloat16", "ring-mxfp8-e4m3", "ring-mxfp4:rounding=stochastic")
    measured = "ring:lossless=measured"
    record = train(
        workers=2, codecs=["dense"], networks=["10g"], baselines=[*names, measured], epochs=1,
        batch_size=350,
    )  # fmt: skip
    means = []
    for name in (*names, measured):
        run = record.run(f"{name}-seed-0")
        assert all(step.vnmse is not None and step.exact is None for step in run.steps)
        means.append(sum(step.vnmse or 0 for step in run.steps) / len(run.steps))
        assert run.simulated["10g"].network > 0
    assert 1e-16 < means[3] < 1e-12 < means[0] < 1e-4 < means[1] < 1e-2 < means[2] < 1
    assert 1.05 < record.run(f"{measured}-seed-0").settings["lossless"] < 2
    assert record.run(f"{measured}-seed-0").title == "float32, lossless measured (ring), seed 0"
    assert record.run("plain-seed-0").steps[0].vnmse is None
