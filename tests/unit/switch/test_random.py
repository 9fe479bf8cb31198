"""random(): the stream itself, its ranges, and that both engines and a seed agree on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numba import njit

from innet.switch import Switch
from innet.switch.jit.runtime import externs
from innet.switch.state.hashes import next_word, uniform

PROGRAM = Path(__file__).parents[2] / "programs" / "jit_digests.json"


def state(word: int) -> np.ndarray:
    return np.array([word], np.uint64)


@njit
def compiled_word(found):
    return externs.next_word(found)


@njit
def compiled_number(found, low, high):
    return externs.uniform(found, low, high)


def test_the_words_are_those_of_splitmix64() -> None:
    """From its authors' reference implementation in C, started at 0 and at 1234567."""
    found = state(0)
    assert [next_word(found) for _ in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]
    found = state(1234567)
    assert [next_word(found) for _ in range(2)] == [6457827717110365317, 3203168211198807973]


def test_compiled_words_are_the_same() -> None:
    one, other = state((1 << 64) - 5), state((1 << 64) - 5)
    for _ in range(1000):
        word = compiled_word(other.view(np.int64))
        assert word % (1 << 64) == next_word(one)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (7, 7), (0, 1), (3, 9), (0, (1 << 64) - 1), ((1 << 63) - 2, (1 << 63) + 2)],
)
def test_every_number_of_a_range_comes_equally_often(low: int, high: int) -> None:
    one, other = state(1), state(1)
    count = 3000
    drawn = [uniform(one, low, high) for _ in range(count)]
    compiled = [
        compiled_number(other.view(np.int64), wrapped(low), wrapped(high)) for _ in range(count)
    ]
    assert [number % (1 << 64) for number in compiled] == drawn
    assert low <= min(drawn) <= max(drawn) <= high
    # Ten parts of the range, or its numbers where there are fewer: within five standard deviations.
    parts = min(10, high - low + 1)
    held = np.bincount([(number - low) * parts // (high - low + 1) for number in drawn])
    assert len(held) == parts
    assert abs(held - count / parts).max() <= 5 * (count / parts) ** 0.5


def wrapped(number: int) -> np.int64:
    return np.uint64(number).view(np.int64)


def test_a_seed_decides_what_is_drawn() -> None:
    packets = [(0, bytes([8 | 128, 0, 0, 0, 0, *bytes(8)]))] * 5

    def digests(engine: str, seed: int) -> list[tuple[str, tuple[int, ...]]]:
        switch = Switch.load(PROGRAM, engine, seed=seed)
        assert switch.process(packets) == []
        return switch.take_digests()

    first = digests("jit", 1)
    assert len(first) == 5
    assert len(set(first)) == 5
    assert {name for name, _ in first} == {"drawn_t"}
    assert digests("jit", 1) == digests("interpret", 1) == first != digests("jit", 2)
