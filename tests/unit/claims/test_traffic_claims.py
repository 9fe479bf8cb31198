"""Claims about what codecs send and remember, on small models."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from support import gradients

from innet.claims.claim import ClaimContext, ReproduceOptions
from innet.claims.papers import paper_of
from innet.claims.traffic import (
    ElementRates,
    Lossless,
    Similarity,
    WireRates,
    nearest_sums,
)
from innet.claims.training import Variants
from innet.core.errors import InputError
from innet.core.settings import validate
from innet.experiments.models.model import layer_type
from innet.experiments.summing import by_type

QUICK = ClaimContext(paper_of("lhc"), ReproduceOptions(quick=True), None)
FULL = ClaimContext(paper_of("lhc"), ReproduceOptions(seeds=1), None)


@given(gradients.vectors(60))
def test_the_nearest_sums_are_those_of_rational_numbers(x):
    rows = list((x / 64).reshape(3, 20))
    for found, column in zip(nearest_sums(rows), zip(*rows, strict=True), strict=True):
        true = sum((Fraction(float(each)) for each in column), Fraction(0))
        for neighbor in (np.nextafter(found, np.float32(s)) for s in (-np.inf, np.inf)):
            if np.isfinite(neighbor):
                off = abs(Fraction(float(neighbor)) - true)
                assert abs(Fraction(float(found)) - true) <= off


def test_a_sum_that_float64_rounds_to_halfway_goes_to_the_right_side():
    tiny = 2.0**-60
    for sign in (1, -1):
        rows = [np.array([each], np.float32) for each in (1.0, 2.0**-24, sign * tiny)]
        assert nearest_sums(rows)[0] == (1 + 2.0**-23 if sign > 0 else 1)
        rows[0] += np.float32(2.0**-23)  # an odd neighbor below
        assert nearest_sums(rows)[0] == 1 + (2 if sign > 0 else 1) * 2.0**-23


def test_lossless_sums_are_told_from_fixed_point():
    settings = {
        "kind": "lossless",
        "model": "digits-cnn",
        "workers": 2,
        "codecs": {"dense": "dense", "exact": "exact"},
        "subject": "exact",
        "min_ratio": 0.4,
    }
    found = validate(Lossless, settings).finding(FULL)
    assert found.holds is True
    assert found.numbers["exact"]["nearest"] == 1
    assert found.numbers["dense"]["nearest"] < 1
    wrong = validate(Lossless, {**settings, "subject": "dense"}).finding(FULL)
    assert wrong.holds is False


def test_rates_on_the_wire():
    settings = {"kind": "wire-rates", "codec": "scalecom", "elements": 100_000, "workers": 2}
    found = validate(WireRates, {**settings, "rates": {"65": 45, "100": 99}}).finding(FULL)
    assert found.holds is False
    assert 45 < found.numbers["65"] < found.numbers["100"] < 82
    assert validate(WireRates, {**settings, "rates": {"65": 45}}).finding(FULL).holds is True


def test_types_of_layers_and_what_is_counted_of_them():
    shapes = {"conv.weight": (2, 3, 3, 4), "lstm.weight_hh": (10, 20), "dense": (5, 8), "b": (6,)}
    kinds = ["convolution", "recurrent", "matrix", "vector"]
    assert [layer_type(*each) for each in shapes.items()] == kinds
    bits, elements = by_type(shapes, (24, None, 16, 0), 2)
    assert bits == {"convolution": 24, "matrix": 16, "vector": 0}
    assert elements == {"convolution": 144, "matrix": 80, "vector": 12}


def test_rates_need_a_codec_whose_paper_counts_so():
    measure = ElementRates(kind="element-rates", model="digits-cnn", workers=2, codec="topk")
    with pytest.raises(InputError, match="choose adacomp"):
        measure.finding(QUICK)


def test_rates_by_type_while_a_model_trains():
    measure = ElementRates(
        kind="element-rates", model="digits-cnn", workers=2, published={"matrix": 2}
    )
    found = measure.finding(QUICK)
    assert found.holds is None
    assert set(found.numbers["by_type"]) == {"convolution", "matrix", "vector"}
    assert len(found.numbers["by_epoch"]) == 2
    assert found.numbers["by_type"]["matrix"] > found.numbers["words"] > 1


def test_memories_of_equal_gradients_are_similar():
    found = Similarity(kind="similarity", model="digits-cnn", workers=2).finding(QUICK)
    assert found.holds is None
    assert -1 <= found.numbers["least"] <= found.numbers["mean"] <= found.numbers["most"] <= 1
    assert len(found.series[0].y) == 8


@pytest.mark.parametrize(("subject", "allowed"), [("same", 0.0), ("too fast", 50.0)])
def test_variants_are_compared_with_a_reference(subject, allowed):
    settings = {
        "kind": "variants",
        "model": "digits-cnn",
        "workers": 2,
        "methods": {
            "plain": {"batch": 9},
            "same": {"codec": "exact", "batch": 9},
            "too fast": {"rate": 1e9, "batch": 9},
        },
        "subject": subject,
        "reference": "plain",
        "max_score_drop": allowed,
        "epochs": 1,
    }
    with np.errstate(all="ignore"):
        found = validate(Variants, settings).finding(FULL)
    assert found.holds is (subject == "same")
    assert "too fast diverges" in found.measured
    assert found.numbers["too fast"] == [None]


def test_a_reference_that_does_not_learn_itself_shows_nothing():
    settings = {
        "kind": "variants",
        "model": "digits-cnn",
        "workers": 2,
        "methods": {
            "plain": {"batch": 3},
            "frozen": {"rate": 1e-9, "batch": 3},
            "frozen, exact": {"rate": 1e-9, "batch": 3, "codec": "exact"},
        },
        "subject": "frozen, exact",
        "reference": "frozen",
        "max_score_drop": 1.0,
        "epochs": 1,
    }
    assert validate(Variants, settings).finding(FULL).holds is True
    found = validate(Variants, {**settings, "learns": 5.0}).finding(FULL)
    assert found.holds is False
    assert found.criterion.endswith("worse than frozen, which is at most 5 worse than plain")
