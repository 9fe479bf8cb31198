"""``innet.core.float_sums`` beside sums in plain Python, number by number."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.float_oracle import noise_of, sums_of, words_of

from innet.core.float_sums import (
    FORMATS,
    FloatSum,
    SlotSum,
    are_possible,
    of_floats,
    order_error,
    packet_noise,
    sum_in_order,
    to_bits,
    to_floats,
    to_words,
)
from innet.core.reduce_op import combine

NAMES = tuple(FORMATS)


def words(name: str, *numbers: float) -> np.ndarray:
    form = FORMATS[name]
    return to_words(form, of_floats(form, np.array(numbers, np.float32)))


def floats(name: str, summed: np.ndarray) -> list[float]:
    form = FORMATS[name]
    return to_floats(form, to_bits(form, summed)).tolist()


def contributions(name: str, kind: str, workers: int, seed: int) -> list[np.ndarray]:
    """Random words of 48 numbers: any bits, of close exponents, tiny, or that cancel."""
    rng, form = np.random.default_rng(seed), FORMATS[name]
    if kind == "bits":
        return list(rng.integers(-(2**31), 2**31, (workers, 48 // form.per_word), dtype=np.int32))
    values = rng.standard_normal((workers, 48)).astype(np.float32)
    if kind == "close":
        values *= np.float32(2) ** rng.integers(-3, 12, values.shape)
    if kind == "tiny":
        values = np.ldexp(
            values, rng.integers(*((-26, -12) if form.bias else (-149, -120)), values.shape)
        )
    if kind == "cancel" and workers > 1:
        values[1] = -values[0] * np.float32(1 + 2**-12)
    return [words(name, *row) for row in values.astype(np.float32)]


@given(
    name=st.sampled_from(NAMES),
    kind=st.sampled_from(["normal", "bits", "close", "tiny", "cancel"]),
    workers=st.integers(1, 32),
    seed=st.integers(0, 2**32),
)
def test_as_in_plain_python(name: str, kind: str, workers: int, seed: int) -> None:
    sent, form = contributions(name, kind, workers, seed), FORMATS[name]
    found = combine(form.operation, sent)
    sums = sums_of(form.operation, sent)
    assert found.view(np.uint32).tolist() == words_of(form.operation, sums)
    assert are_possible(form.operation, sent, found)
    if form.stochastic is not None:
        found = sum_in_order(form.stochastic, sent, sequence=seed)
        assert found.view(np.uint32).tolist() == words_of(form.stochastic, sums, seed)
        assert are_possible(form.stochastic, sent, found)


@pytest.mark.parametrize("sequence", [0, 1, 2**31, 2**32 - 1])
def test_random_numbers_of_a_packet(sequence: int) -> None:
    expected = [noise_of(sequence, place) for place in range(1, 129)]
    assert packet_noise(sequence, 128).tolist() == expected


def test_random_numbers_are_even_and_unrelated() -> None:
    """Of packets, of places in a packet, and of both halves of a word; in 4,096 packets."""
    noise = np.array([packet_noise(sequence, 128) for sequence in range(1, 4097)]) / 2**32
    deviation = 1 / math.sqrt(12)
    # Means of rows and columns: within five standard errors.
    assert np.abs(noise.mean(axis=0) - 0.5).max() < 5 * deviation / math.sqrt(4096)
    assert np.abs(noise.mean(axis=1) - 0.5).max() < 5 * deviation / math.sqrt(128)
    counts = np.histogram(noise, bins=256, range=(0, 1))[0]
    expected = noise.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 5 * math.sqrt(2 * 255)
    centered = noise - 0.5
    for one, other in (
        (centered[:-1], centered[1:]),
        (centered[:, :-1], centered[:, 1:]),
        (centered[:-1, 1:], centered[1:, :-1]),
    ):
        correlation = (one * other).mean() / deviation**2
        assert abs(correlation) < 5 / math.sqrt(one.size)


@pytest.mark.parametrize("operation", [FloatSum.BF16_STOCHASTIC, FloatSum.FP16_STOCHASTIC])
def test_rounding_by_chance_has_no_bias(operation: FloatSum) -> None:
    """Over 20,000 packets the mean of a rounded sum is the sum; rounded half to even it is not."""
    name = "bf16" if operation is FloatSum.BF16_STOCHASTIC else "fp16"
    form, packets = FORMATS[name], 20_000
    values = [1.0, 2.0 ** -(form.fraction + 2)], [-3.0, -(2.0 ** -(form.fraction + 1))]
    sums, noise = [], [packet_noise(sequence, 2) for sequence in range(packets)]
    for place, column in enumerate(values):
        held = SlotSum(form, packets)
        for value in column:
            held.add(np.full(packets, of_floats(form, np.array([value], np.float32))[0]))
        drawn = np.array([each[place] for each in noise])
        sums.append(to_floats(form, held.read(drawn)).astype(np.float64))
        exact, last = sum(column), 2.0 ** (place - form.fraction)
        assert {*sums[place]} == {column[0], column[0] + math.copysign(last, column[0])}
        error = abs(sums[place].mean() - exact) / last
        assert error < 5 * 0.5 / math.sqrt(packets)
        nearest = to_floats(form, held.read())[0]
        assert abs(nearest - exact) / last == 0.25


@pytest.mark.parametrize("name", NAMES)
def test_one_contribution_is_its_own_sum(name: str) -> None:
    """But -0.0, and what NaN carries."""
    form = FORMATS[name]
    bits = np.arange(2**16, dtype=np.uint32)
    if form.bits == 32:
        bits = np.concatenate([bits, bits << 16, bits * 65537])
    sums = to_bits(form, sum_in_order(form.operation, [to_words(form, bits)]))
    expected = to_floats(form, bits)
    np.testing.assert_array_equal(to_floats(form, sums), expected)
    assert not np.signbit(to_floats(form, sums)[expected == 0]).any()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_finite_number(name: str) -> None:
    largest = floats(
        name, to_words(FORMATS[name], np.array([FORMATS[name].infinity - 1], np.uint32))
    )[0]
    inf, nan = math.inf, math.nan
    columns = [  # contributions of each worker, and the sum
        (1.0, inf, 2.0, inf),
        (-inf, -1.0, 0.0, -inf),
        (inf, -inf, 1.0, nan),
        (1.0, nan, inf, nan),
        (largest, largest, 0.0, inf),
        (-largest, -largest, 1.0, -inf),
        (largest, largest, -largest, largest),  # only the sum is rounded, so no inf in between
        (0.0, -0.0, 0.0, 0.0),
    ]
    rows = np.array(columns, np.float32).T
    sent = [words(name, *row) for row in rows[:3]]
    operation = FORMATS[name].operation
    np.testing.assert_array_equal(floats(name, sum_in_order(operation, sent)), rows[3])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [2, 32])
def test_cut_off_at_most_a_unit_for_each_addition(name: str, workers: int) -> None:
    """Below the exact sum, or half of the result's last bit above it."""
    form, rng = FORMATS[name], np.random.default_rng(workers)
    values = [np.ldexp(rng.standard_normal(64), rng.integers(-8, 8, 64)) for _ in range(workers)]
    sent = [words(name, *row.astype(np.float32)) for row in values]
    added = [floats(name, each) for each in sent]
    found = floats(name, sum_in_order(form.operation, sent))
    for numbers, sum_ in zip(zip(*added, strict=True), found, strict=True):
        exact = sum(map(Fraction, numbers))
        unit = Fraction(2) ** (max(math.frexp(number)[1] for number in numbers) - 1 - 25)
        half = Fraction(2) ** (math.frexp(sum_)[1] - 1 - form.fraction) / 2
        assert -(workers - 1) * unit - half <= Fraction(sum_) - exact <= half


def test_the_order_of_arrival_matters() -> None:
    """What is small is cut off beside what is large, unless it comes together first."""
    small = [words("float32", 2.0**-26)] * 8
    large = [words("float32", 1.0)]
    operation = FORMATS["float32"].operation
    last = floats("float32", sum_in_order(operation, small + large))
    first = floats("float32", sum_in_order(operation, large + small))
    assert last == [1 + 2.0**-23]
    assert first == [1.0]
    assert order_error(operation, small + large) == pytest.approx(2.0**-23)
    assert order_error(operation, large) == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_sums_that_no_order_explains(name: str) -> None:
    operation = FORMATS[name].operation
    sent = [words(name, 1.0, 2.0), words(name, 3.0, 0.5)]
    assert are_possible(operation, sent, words(name, 4.0, 2.5))
    for wrong in ((4.25, 2.5), (4.0, math.inf), (4.0, math.nan), (-4.0, 2.5)):
        assert not are_possible(operation, sent, words(name, *wrong))
