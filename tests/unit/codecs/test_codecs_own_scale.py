"""Quantizers that ask nobody: a scale of their own choice, whatever the workers' values are."""

from __future__ import annotations

import numpy as np
import pytest
from support.lockstep import all_reduce

from innet.codecs import build_codec
from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    ONE_INTEGER_PER_ELEMENT,
    Capabilities,
    Quantizer,
    Scaling,
)
from innet.core.settings import Settings


class Eighths(Scaling):
    scale = 8.0

    def quantize(self, values):
        return np.rint(values * np.float32(8)).astype(np.int32)

    def dequantize(self, integers):
        return (integers / 8).astype(np.float32)


class InEighths(Quantizer[Settings]):
    name = "in-eighths"
    capabilities = Capabilities(provides=frozenset({INT32, ONE_INTEGER_PER_ELEMENT, KEEPS_ZEROS}))

    def largest_integer(self, workers):
        return (2**31 - 1) // workers

    def announce(self, selection):
        del selection
        return []

    def agree(self, answers, workers):
        del answers, workers
        return Eighths()


def codecs(carrier, selector="all", error_feedback="none"):
    for worker in range(3):
        spec = {"selector": selector, "carrier": carrier, "error_feedback": error_feedback}
        codec = build_codec(spec, worker=worker)
        codec.quantizer = InEighths(Settings(), codec._context)
        yield codec


each_carrier = pytest.mark.parametrize("carrier", ["dense", "shared", "block", "lhc", "union"])


@each_carrier
@pytest.mark.parametrize("size", [1, 700])
def test_zeros_are_summed_to_zero(carrier, size):
    workers = list(codecs(carrier))
    zeros, ones = np.zeros(size, np.float32), np.ones(size, np.float32)
    for job in ([zeros] * 3, [ones, zeros, ones], [zeros] * 3):
        for outcome in all_reduce(workers, job):
            np.testing.assert_array_equal(outcome.sum, sum(job))


@each_carrier
def test_an_empty_gradient_takes_no_round(carrier):
    watched = []
    job = [np.empty(0, np.float32)] * 3
    for outcome in all_reduce(list(codecs(carrier)), job, watched.append):
        assert outcome.rounds == 0
        assert outcome.sum.shape == (0,)
    assert not watched


@pytest.mark.parametrize("carrier", ["lhc", "union"])
def test_what_is_selected_of_zeros_is_summed_to_zero(carrier):
    workers = list(codecs(carrier, selector="topk", error_feedback="residual"))
    for outcome in all_reduce(workers, [np.zeros(700, np.float32)] * 3):
        assert not outcome.sum.any()
