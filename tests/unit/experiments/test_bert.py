"""benchmarks.bert: an iteration of BERT-large beside another simulator, once."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bert import THEIRS, Draws, by_hand, by_packets, network


def test_packets_take_as_long_as_arithmetic_says():
    assert by_packets(Draws(), network()) == pytest.approx(by_hand(Draws()), rel=2e-4)


def test_the_other_simulator_lies_within_what_is_drawn():
    rng = np.random.default_rng(1)
    seconds = np.array([by_hand(Draws(rng)) for _ in range(300)])
    assert abs(THEIRS - seconds.mean()) < seconds.std()
    assert by_hand(Draws()) < seconds.mean(), "the slower worker decides"
