"""The selector of docs/extending.md keeps the promises that it is an example of."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support.lockstep import all_reduce, integer_oracle, promised, sent_oracle

from innet.codecs import PARTS, SELECTORS, build_codec
from innet.core.registry import Registry

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"
GRADIENTS = {
    "none": np.empty(0),
    "one": np.array([-2.5]),
    "zeros": np.zeros(700),
    "constant": np.full(700, 0.3),
    "huge": np.linspace(-1e38, 1e38, 700),
    "a few": np.eye(1, 700, 600)[0],
    "laplace": np.random.default_rng(0).laplace(size=700),
}


@pytest.fixture
def example(monkeypatch):
    """Registered for this test alone."""
    fresh = Registry("selector", "innet.nobody")
    fresh.register("all", SELECTORS.get("all"))
    monkeypatch.setattr("innet.codecs.SELECTORS", fresh)
    monkeypatch.setitem(PARTS, "selector", fresh)
    (code,) = re.findall(r"```python\n(.*?class AboveMean.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("name", GRADIENTS)
def test_sums_are_those_of_what_it_selects_and_the_largest_is_selected(name):
    spec = {"selector": "above-mean", "carrier": "lhc", "error_feedback": "residual"}
    codecs = [build_codec(spec, worker=worker) for worker in range(2)]
    x = GRADIENTS[name].astype(np.float32)
    for _ in range(2):
        outcomes = all_reduce(codecs, [x, -x / 4])
        size = outcomes[0].contribution.size
        np.testing.assert_array_equal(outcomes[0].integer_sum, integer_oracle(outcomes, size))
        if outcomes[0].scale:
            fits, tolerance = promised(codecs[0], [x, -x / 4], outcomes)
            error = np.abs(outcomes[0].sum - sent_oracle(outcomes, x.size))
            assert (error[fits] <= tolerance[fits]).all()
        else:
            assert not x.any()
