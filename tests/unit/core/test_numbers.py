"""Durations as text."""

from __future__ import annotations

import pytest

from innet.core.errors import InputError
from innet.core.numbers import nanoseconds, number_list


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", 0),
        ("7ns", 7),
        ("20us", 20_000),
        ("20 µs", 20_000),
        (" 1.5ms ", 1_500_000),
        ("0.000000001s", 1),
        ("2s", 2_000_000_000),
    ],
)
def test_durations(text, expected):
    assert nanoseconds(text, "it") == expected


@pytest.mark.parametrize("text", ["", "5", "ms", "-1s", "1,5ms", "1e3s", "1m", "1s2ms"])
def test_durations_that_are_none(text):
    with pytest.raises(InputError, match=r"the gap is '.*'; write it with its unit"):
        nanoseconds(text, "the gap")


@pytest.mark.parametrize("text", ["0.5ns", "1.0000000001s", "1000000001s"])
def test_durations_that_nanoseconds_do_not_hold(text):
    with pytest.raises(InputError, match="whole nanoseconds up to 30 years"):
        nanoseconds(text, "the gap")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([5, 3], "3, 5"),
        (range(16), ", ".join(map(str, range(16)))),
        ([40, *range(20)], "0 to 19, 40"),
        (range(0, 80, 2), ", ".join(map(str, range(0, 32, 2))) + " and 24 more"),
    ],
)
def test_numbers_in_a_sentence(numbers, text):
    assert number_list(numbers) == text
