"""The oracles of a report: right at the edges of their blocks, and small."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from support.lockstep import all_reduce

from innet.allreduce import report
from innet.codecs import build_codec
from innet.core.vnmse import vnmse

SIZE = 130  # three blocks of 64, the last one short
CODECS = ["dense", "exact", "topk", "thc", "gtopk"]


def outcomes(codec, gradients):
    codecs = [build_codec(codec, worker=worker) for worker in range(len(gradients))]
    return all_reduce(codecs, gradients)


@pytest.fixture
def gradients(monkeypatch):
    monkeypatch.setattr(report, "_BLOCK", 64)
    rng = np.random.default_rng(5)
    return [rng.standard_normal(SIZE).astype(np.float32) for _ in range(3)]


def wrong_at(outcome, index):
    """The same outcome with one integer of the sum that is not right."""
    total = outcome.total
    integers = total.integers.copy()
    integers[index] += 1
    return replace(outcome, total=replace(total, integers=integers))


@pytest.mark.parametrize("codec", CODECS)
def test_one_wrong_integer_of_one_worker_is_seen(gradients, codec):
    right = outcomes(codec, gradients)
    assert report.is_exact(right)
    for index in {0, 63, 64, 127, 128, -1} & set(range(-1, right[1].total.integers.size)):
        assert not report.is_exact([right[0], wrong_at(right[1], index), right[2]])


def test_a_sum_that_is_too_short_is_not_exact(gradients):
    right = outcomes("dense", gradients)
    total = replace(right[0].total, integers=right[0].total.integers[:-1])
    assert not report.is_exact([right[0], replace(right[1], total=total), right[2]])


@pytest.mark.parametrize("codec", CODECS)
def test_errors_are_those_of_whole_arrays(gradients, codec):
    found = outcomes(codec, gradients)
    sent = np.zeros((len(found), SIZE))
    for row, outcome in zip(sent, found, strict=True):
        row[slice(None) if outcome.indices is None else outcome.indices] = outcome.sent
    counts = np.ones(SIZE, np.bool_)
    if found[0].applied is not None:
        counts[:] = False
        counts[found[0].applied] = True
    decoded = found[0].sum.astype(np.float64)
    errors = report.errors(gradients, found)
    inputs = np.sum(gradients, axis=0, dtype=np.float64)
    for end, true in (("", inputs), ("_sent", np.where(counts, sent.sum(axis=0), 0.0))):
        assert errors[f"max_abs_error{end}"] == np.abs(decoded - true).max()
        expected = ((decoded - true) ** 2).sum() / (true**2).sum()
        assert errors[f"vnmse{end}"] == pytest.approx(expected, rel=1e-12)
    assert errors["vnmse"] == pytest.approx(vnmse(found[0].sum, gradients), rel=1e-12)


@pytest.mark.parametrize("codec", ["dense", "topk"])
def test_they_take_little_memory_beside_large_gradients(codec):
    large = [np.ones(4_000_000, np.float32), np.ones(4_000_000, np.float32)]
    found = outcomes(codec, large)
    tracemalloc.start()
    try:
        assert report.is_exact(found)
        report.errors(large, found)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < large[0].nbytes / 2
