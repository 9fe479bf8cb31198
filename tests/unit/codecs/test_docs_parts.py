"""The parts of docs/extending.md keep what every part promises; undeclared ones do so, too."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from support.lockstep import all_reduce, integer_oracle, promised, sent_oracle

from innet.codecs import PARTS, QUANTIZERS, build_codec
from innet.codecs.parts import Capabilities, Quantizer, Scaling
from innet.codecs.presets import PRESETS
from innet.core.errors import CompositionError
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.registry import Registry

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"
EXAMPLES = {
    "selector": ("AboveMean", "above-mean"),
    "quantizer": ("PowerOfTwo(", "power-of-two"),
    "carrier": ("Trimmed", "trimmed"),
    "error_feedback": ("Fading(", "fading"),
}
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
def example(request, monkeypatch):
    """Registered for this test alone; returns the names of the parts that it can be tried with."""
    kind = request.param
    fresh = Registry(kind, "innet.nobody")
    for name in PARTS[kind]:
        fresh.register(name, PARTS[kind].get(name))
    monkeypatch.setitem(PARTS, kind, fresh)
    monkeypatch.setattr(f"innet.codecs.{PARTS_NAMES[kind]}", fresh)
    marker, name = EXAMPLES[kind]
    (code,) = re.findall(
        rf"```python\n((?:(?!```).)*?class {re.escape(marker)}.*?)```", PAGE.read_text(), re.DOTALL
    )
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), {"__name__": "example"})
    return kind, name


PARTS_NAMES = {
    "selector": "SELECTORS",
    "quantizer": "QUANTIZERS",
    "carrier": "CARRIERS",
    "error_feedback": "ERROR_FEEDBACK",
}
each_example = pytest.mark.parametrize("example", EXAMPLES, indirect=True)
USUAL = {
    "selector": ["all", "topk", "scalecom", "gtopk"],
    "quantizer": ["fixed", "exact", "qsgd"],
    "carrier": ["dense", "lhc", "shared"],
    "error_feedback": ["none", "residual", "momentum"],
}


def compositions(kind, name):
    """The legal ones of this part with the usual others."""
    choices = [[name] if each == kind else USUAL[each] for each in PARTS]
    for names in itertools.product(*choices):
        spec = dict(zip(PARTS, names, strict=True))
        try:
            build_codec(spec)
        except CompositionError:
            continue
        yield spec


def check_sums(spec, job):
    codecs = [build_codec(spec, worker=worker) for worker in range(len(job))]
    least, most = codecs[0].capabilities()["rounds"]
    for _ in range(2):
        outcomes = all_reduce(codecs, job)
        size = outcomes[0].contribution.size
        np.testing.assert_array_equal(outcomes[0].integer_sum, integer_oracle(outcomes, size))
        if outcomes[0].scale:
            assert least <= outcomes[0].rounds <= most
            fits, tolerance = promised(codecs[0], job, outcomes)
            error = np.abs(outcomes[0].sum - sent_oracle(outcomes, job[0].size))
            assert (error[fits] <= tolerance[fits]).all()
    return codecs


@each_example
def test_sums_are_those_of_what_was_selected_in_the_rounds_declared(example):
    found = list(compositions(*example))
    assert len(found) >= 4
    for spec, x in itertools.product(found, GRADIENTS.values()):
        check_sums(spec, [x.astype(np.float32), -x.astype(np.float32) / 4])


@each_example
def test_saved_state_gives_the_same_bits(example):
    rng = np.random.default_rng(1)
    jobs = [list(rng.standard_normal((2, 300)).astype(np.float32)) for _ in range(3)]
    for spec in compositions(*example):
        first = [build_codec(spec, worker=worker) for worker in range(2)]
        all_reduce(first, jobs[0])
        second = [build_codec(spec, worker=worker) for worker in range(2)]
        for mine, theirs in zip(second, first, strict=True):
            mine.load_state_dict(theirs.state_dict())
        # An exchange that is given up leaves the gradient where the next one finds it.
        for codec in (*first, *second):
            exchange = codec.exchange(jobs[1][0], 2)
            next(exchange)
            exchange.close()
        bits = [all_reduce(codecs, jobs[2])[0].sum.tobytes() for codecs in (first, second)]
        assert bits[0] == bits[1]


class Whole(Scaling):
    """Rounds to whole numbers of the largest magnitude / 1,000."""

    def __init__(self, largest):
        self.scale = 1000 / largest if largest else 0.0

    def quantize(self, values):
        return np.rint(values * np.float64(self.scale)).astype(np.int32)

    def dequantize(self, integers):
        return (integers / (self.scale or 1.0)).astype(np.float32) + np.float32(0)


class Undeclared(Quantizer):
    """The three abstract methods, and nothing else."""

    name = "undeclared"

    def largest_integer(self, workers):
        return 1000

    def announce(self, selection):
        return [Segment(ReduceOp.MAX, np.array([selection.magnitude], np.int32))]

    def agree(self, answers, workers):
        return Whole(float(answers[0].view(np.float32)[0]))


def test_a_quantizer_needs_no_declarations(monkeypatch):
    monkeypatch.setitem(QUANTIZERS._loaded, "undeclared", Undeclared)
    specs = list(compositions("quantizer", "undeclared"))
    assert {spec["carrier"] for spec in specs} >= {"dense", "shared"}
    for spec, x in itertools.product(specs, GRADIENTS.values()):
        check_sums(spec, [x.astype(np.float32), -x.astype(np.float32) / 4])


class Mute(Undeclared):
    """It declares too little."""

    name = "mute"
    capabilities = Capabilities()


def test_one_that_declares_too_little_is_told_what(monkeypatch):
    monkeypatch.setitem(QUANTIZERS._loaded, "mute", Mute)
    with pytest.raises(CompositionError, match="the switch adds 32-bit integers"):
        build_codec("dense:quantizer=mute")


def test_the_readme_counts_the_codecs():
    said = re.findall(
        r"(\d+) codecs", (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    )
    assert said == [str(len(PRESETS.names()))] * len(said) != []
