"""Schedules: their numbers, their texts, and what is refused."""

from __future__ import annotations

import math
import pickle

import pytest

from innet.core.errors import ConfigError, InputError
from innet.core.schedules import (
    Cosine,
    Exponential,
    Function,
    Linear,
    Steps,
    WarmUp,
    is_schedule,
    parse,
)


def test_their_numbers():
    assert [Linear(1, 0, 4)(t) for t in (0, 1, 2, 4, 9)] == [1, 0.75, 0.5, 0, 0]
    assert [Cosine(1, 0, 4)(t) for t in (0, 2, 4, 9)] == [1, 0.5, 0, 0]
    assert Cosine(1, 0, 4)(1) == pytest.approx((1 + math.cos(math.pi / 4)) / 2, abs=1e-9)
    # As DGC's ratios (Lin et al., section 3.3): each a quarter of the one before.
    ratios = [Exponential(0.25, 0.25 / 256, 4)(t) for t in range(6)]
    assert ratios == pytest.approx([1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 1024, 1 / 1024])
    assert [Steps({2: 0.5, 0: 1})(t) for t in range(4)] == [1, 1, 0.5, 0.5]
    warm = WarmUp(Cosine(0.4, 0.2, 10), 4, start=1.0)
    assert [warm(t) for t in (0, 2, 4, 14, 20)] == [1.0, 0.7, 0.4, 0.2, 0.2]
    assert [WarmUp(0.9, 2)(t) for t in range(3)] == [0, 0.45, 0.9]
    assert Function(lambda step: step / 2)(3) == 1.5


EACH = [
    Linear(1, 0.1, 20),
    Cosine(0.1, 1e-5, 7),
    Exponential(0.25, 0.01, steps=40),
    Steps({0: 1, 5: 0.25}),
    WarmUp(0.9, 3),
    WarmUp(Steps({0: 0.5, 2: 0.1}), 3, start=1),
]


@pytest.mark.parametrize("schedule", EACH, ids=str)
def test_their_text_and_their_pickle_are_the_same_schedule(schedule):
    assert is_schedule(str(schedule))
    assert parse(str(schedule)) == schedule
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert parse(schedule) is schedule


def test_what_is_written_by_name_is_read():
    assert parse("exponential(0.25, 0.01, steps=40)") == Exponential(0.25, 0.01, 40)
    assert parse(" warmup(cosine(1, 0.5, steps=9), steps=3, start=2) ") == WarmUp(
        Cosine(1, 0.5, 9), 3, 2
    )
    assert parse("auto") is None
    assert parse(0.5) is None


@pytest.mark.parametrize(
    ("text", "says"),
    {
        "linear(1, 0.1)": "missing",
        "linear(1, 0.1, steps=0)": "steps is 0; give a number of all-reduces from 1 on",
        "linear('a', 0.1, steps=2)": "start is 'a'; give a number",
        "exponential(0, 1, steps=3)": "numbers above 0",
        "steps({1: 0.5})": "the first from step 0",
        "sawtooth(1, 2)": "there is no sawtooth",
        "linear(open, 1, 2)": "malformed",
        "linear(1, 2": None,
    }.items(),
)
def test_a_text_that_is_none_is_refused(text, says):
    if says is None:
        assert parse(text) is None  # not of that form: the parameter's model refuses it
        return
    with pytest.raises(ConfigError, match=says) as error:
        parse(text)
    assert "exponential(START, END, steps=N)" in str(error.value)


def test_a_function_that_gives_no_number_is_named():
    with pytest.raises(InputError, match="gave None at step 3; it must give a number"):
        Function({3: None}.get)(3)
