"""Workers of one process decode equal words once; what they get is what each decodes by itself."""

from __future__ import annotations

import numpy as np
import pytest

import innet
from innet.codecs.decode_once import DecodeOnce

WORDS = (np.arange(4, dtype=np.int32), np.ones(3, np.int32))


def decoder(calls):
    def decode():
        calls.append(len(calls))
        return np.full(2, len(calls), np.int32), np.arange(3, dtype=np.int32)

    return decode


def test_equal_words_are_decoded_once_for_each_round_of_all_workers():
    once, calls = DecodeOnce(3), []
    for turn in range(2):
        found = [once("a", WORDS, decoder(calls)) for _ in range(3)]
        assert len(calls) == turn + 1
        for each in found:
            np.testing.assert_array_equal(each[0], turn + 1)
            each[0][:] = -1  # what one worker changes is its own
    assert once.saved == 4
    assert once._known == {}  # nothing is kept when all have asked


def test_other_words_or_another_layout_are_decoded_anew():
    once, calls = DecodeOnce(4), []
    words = tuple(each.copy() for each in WORDS)
    once("a", words, decoder(calls))
    words[1][2] += 1  # the caller's array is used again, for something else
    once("a", words, decoder(calls))
    once("b", words, decoder(calls))
    assert len(calls) == 3
    assert once.saved == 0


def test_what_nobody_asks_for_again_does_not_pile_up():
    once, calls = DecodeOnce(2), []
    for number in range(1000):
        once(number, WORDS, decoder(calls))
    assert len(once._known) <= 64


@pytest.mark.parametrize(
    "codec",
    ["lhc", "topk:ratio=0.05", {"preset": "topk", "carrier": {"name": "lhc", "index": "bitmap"}}],
)
def test_a_collective_gets_what_workers_get_that_decode_for_themselves(codec):
    rng = np.random.default_rng(3)
    made = [
        innet.Collective(workers=4, codec=codec, seed=2, threads=2, decode_once=once)
        for once in (True, False)
    ]
    for turn in range(3):
        gradients = [
            (rng.standard_normal(6000) * (rng.random(6000) < 0.05)).astype(np.float32)
            for _ in range(4)
        ]
        (shared, report), (each, other) = (one.all_reduce(gradients) for one in made)
        np.testing.assert_array_equal(shared, each)
        assert report.exact
        assert other.exact
        assert made[0].codecs[0]._context.decoding.saved == 3 * (turn + 1)
        for one, two in zip(made[0].codecs, made[1].codecs, strict=True):
            np.testing.assert_equal(one.state_dict(), two.state_dict())
    assert made[1].codecs[0]._context.decoding is None
