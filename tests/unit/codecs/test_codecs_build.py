"""From a description to a codec, and what is refused on the way."""

from __future__ import annotations

import re

import numpy as np
import pytest

from innet import codecs
from innet.codecs import build_codec, check_gradient
from innet.codecs.carriers.dense import Dense
from innet.codecs.parts import Capabilities, check_composition
from innet.core.errors import (
    CompositionError,
    ConfigError,
    GradientError,
    InputError,
    StateError,
    UnknownNameError,
)


@pytest.fixture
def registered(monkeypatch):
    """Register parts for one test."""

    def register(kind, name, part):
        monkeypatch.setitem(codecs.PARTS[kind]._loaded, name, part)

    return register


@pytest.mark.parametrize(
    ("spec", "description"),
    [
        ("dense", "dense"),
        ("lhc", "lhc"),
        ("topk", "topk"),
        ({}, "dense"),
        ({"carrier": "lhc"}, "lhc"),
        (
            {"preset": "topk", "selector": {"ratio": 0.05}},
            "topk(ratio=0.05)",
        ),
        ({"preset": "topk", "carrier": "dense"}, "topk + fixed + dense + residual"),
        (
            {"selector": {"name": "topk", "k": 7}, "carrier": {"name": "lhc", "lanes": 4}},
            "topk(k=7) + fixed + lhc(lanes=4) + none",
        ),
        (
            {"preset": "topk", "selector": {"k": 7}, "carrier": {"lanes": 4}},
            "topk(k=7, lanes=4)",
        ),
        (
            {"preset": "gs-sgd", "selector": {"rows": 3}},
            "gs-sgd(rows=3)",
        ),
    ],
)
def test_descriptions(spec, description):
    codec = build_codec(spec)
    assert codec.describe() == description
    assert build_codec(codec.spec).describe() == description


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("lhcc", UnknownNameError, r"codec 'lhcc'\. Did you mean 'lhc'\? Known.*: .*dense"),
        ({"preset": "x"}, UnknownNameError, "Known.*: .*dense"),
        ("union", ConfigError, "'union' is no codec but a carrier,.* such as dense:carrier=union"),
        ("sampled", ConfigError, "no codec but a selector,.* such as topk:selector=sampled"),
        ({"selector": "topkk"}, UnknownNameError, "selector 'topkk'.*Did you mean 'topk'.*all"),
        ({"quantizer": "floaty"}, UnknownNameError, "Known: .*fixed"),
        ({"carrier": "pigeon"}, UnknownNameError, "Known: .*dense, .*lhc"),
        ({"error_feedback": "loud"}, UnknownNameError, "Known: .*none, .*residual"),
        ({"quantiser": "exact"}, ConfigError, "'quantiser' is called 'quantizer'"),
        ({"feedback": "none"}, ConfigError, "'feedback' is called 'error_feedback'"),
        ({"feedback": {"beta": 0.1}}, ConfigError, "'feedback' is called 'error_feedback'"),
        ({"selectr": "all"}, ConfigError, r"'selectr'\. Did you mean 'selector'\?.*quantizer"),
        (
            {"preset": "topk", "selector": {"ratoi": 0.1}},
            ConfigError,
            r"selector 'topk': unknown key 'ratoi'\. Did you mean 'ratio'\? Known: k, ratio",
        ),
        ({"selector": {"name": "all", "ratio": 0.1}}, ConfigError, "selector 'all'.*'ratio'"),
        ({"selector": {"name": "topk", "ratio": 0}}, ConfigError, "ratio = 0"),
        ({"selector": {"name": "topk", "ratio": 1.5}}, ConfigError, "ratio = 1.5"),
        ({"selector": {"name": "topk", "ratio": "0.1"}}, ConfigError, "ratio = '0.1'"),
        ({"selector": {"name": "topk", "k": 0}}, ConfigError, "k = 0"),
        ({"selector": {"name": "topk", "k": 3, "ratio": 0.1}}, ConfigError, "not both"),
        ({"carrier": {"name": "lhc", "lanes": 12}}, ConfigError, "power of two"),
        ({"carrier": {"name": "lhc", "cells_per_item": 0}}, ConfigError, "cells_per_item = 0"),
        ({"selector": 3}, ConfigError, "selector = 3"),
        ({"selector": {"name": 3}}, ConfigError, "name = 3"),
        (7, ConfigError, "int"),
    ],
)
def test_what_is_wrong_is_named(spec, error, message):
    with pytest.raises(error, match=message):
        build_codec(spec)


def test_a_residual_needs_something_that_is_left_over():
    with pytest.raises(
        CompositionError,
        match=r"'residual' needs 'leaves a residual'.*error_feedback 'none'.*'all'",
    ):
        build_codec({"selector": "all", "error_feedback": "residual"})


def test_a_carrier_without_an_index_needs_equal_indices():
    with pytest.raises(CompositionError, match=r"'shared' needs 'same indices'.*selector 'topk'"):
        build_codec({"selector": "topk", "carrier": "shared"})
    assert build_codec({"carrier": "shared"}).describe() == "all + fixed + shared + none"


def test_what_a_switch_cannot_sum_is_refused(registered):
    class Entropy(Dense):
        name = "entropy"
        capabilities = Capabilities(summable=False)

    registered("carrier", "entropy", Entropy)
    with pytest.raises(CompositionError, match="'entropy' makes words that a switch cannot sum"):
        build_codec({"carrier": "entropy"})


def test_a_part_may_satisfy_what_another_requires():
    needy = Capabilities(requires={"x": "it must."})
    with pytest.raises(CompositionError, match="it must"):
        check_composition({"carrier": ("a", needy)})
    provider = Capabilities(provides=frozenset("x"))
    check_composition({"carrier": ("a", needy), "selector": ("b", provider)})


def test_capabilities_are_data():
    assert build_codec("topk").capabilities() == {
        "summable": True,
        "fixed_size": False,
        "lossless": True,
        "linear": True,
        "rounds": [1, 3],
        "integer_width": 32,
        "overflow_bound": "floor((2**31 - 1) / N)",
        "index": "bitmap, Bloom filter or none",
        "metadata": "2 + 1 + at most ceil(d / 32) + 2",
    }


def test_integers_of_as_many_limbs_as_it_takes_are_of_no_fixed_size():
    assert build_codec("dense").capabilities()["fixed_size"]
    assert not build_codec("exact").capabilities()["fixed_size"]


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(InputError, match="seed"):
        build_codec("lhc", seed=seed)


def test_no_workers_are_refused():
    with pytest.raises(InputError, match="0 workers"):
        next(build_codec().exchange(np.ones(3, np.float32), 0))


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        ([1.0], "worker 5 is a list"),
        (np.ones(3), "worker 5 is float64"),
        (np.ones(3, ">f4"), "worker 5 is >f4"),
        (
            np.ma.array(np.ones(3, np.float32), mask=[0, 1, 0]),
            r"worker 5 is a masked array.*\.filled\(0\)",
        ),
        (np.ones((2, 3), np.float32), r"worker 5 has shape \(2, 3\)"),
        (np.array([0, 1, np.nan, np.inf], np.float32), "worker 5 is nan at index 2"),
        (np.array([-np.inf, np.nan], np.float32), "worker 5 is -inf at index 0"),
    ],
)
def test_gradients_that_no_codec_can_take(gradient, message):
    with pytest.raises(GradientError, match=message):
        check_gradient(gradient, 5)
    codec = build_codec("topk", worker=5)
    with pytest.raises(GradientError, match=message):
        next(codec.exchange(gradient, 1))
    assert codec.error_feedback.residual is None


def test_views_with_strides_are_taken():
    x = np.arange(20, dtype=np.float32)[::2]
    exchange = build_codec("dense").exchange(x, 1)
    answers = [segment.words for segment in next(exchange)]
    (segment,) = exchange.send(answers)
    with pytest.raises(StopIteration) as stop:
        exchange.send([segment.words])
    np.testing.assert_allclose(stop.value.value.sum, x, rtol=1e-6)


def test_answers_of_other_lengths_are_refused():
    exchange = build_codec("dense").exchange(np.ones(3, np.float32), 2)
    next(exchange)
    with pytest.raises(InputError, match="same description and seed"):
        exchange.send([np.zeros(2, np.int32)])


def test_seconds_are_those_of_the_clock_without_the_network():
    ticks = iter(range(1000))
    carrier = {"name": "lhc", "index": "bitmap"}
    codec = build_codec({"carrier": carrier}, clock=lambda: float(next(ticks)))
    exchange = codec.exchange(np.eye(1, 4000, dtype=np.float32).ravel(), 1)
    answers = [segment.words for segment in next(exchange)]
    for _ in range(100):
        next(ticks)  # the network takes its time
    answers = [segment.words for segment in exchange.send(answers)]
    with pytest.raises(StopIteration) as stop:
        exchange.send(answers)
    outcome = stop.value.value
    # A tick passes between two readings. Three stretches of encoding: until the handshake, until
    # the main round, and of its answers until the carrier says that it decodes; which it does, and
    # the codec once more when it is back, so that there are two of decoding.
    assert (outcome.encode_seconds, outcome.decode_seconds) == (3.0, 2.0)


@pytest.mark.parametrize("wrong", [{"version": 1}, {"seed": 5}, {"spec": {}}])
def test_state_of_another_codec_is_refused(wrong):
    codec = build_codec("topk")
    with pytest.raises(StateError):
        codec.load_state_dict({**codec.state_dict(), **wrong})


@pytest.mark.parametrize("parts", [None, {}, {"selector": {}, "quantizer": None}])
def test_an_incomplete_state_is_refused(parts):
    codec = build_codec("topk")
    whole = codec.state_dict()
    for take in (codec.load_state_dict, codec.adopt):
        with pytest.raises(
            StateError, match=r"lacks that of the .*carrier, error_feedback; give what"
        ):
            take({**whole, "parts": parts})
        for wrong in (None, [whole]):
            with pytest.raises(StateError, match="give what state_dict returned"):
                take(wrong)


def test_state_that_fails_half_way_changes_nothing():
    codec = build_codec("topk")
    state = codec.state_dict()
    state["parts"]["carrier"] = {"overlap": 0.5, "sketches": 3}
    state["parts"]["error_feedback"] = {"residue": None}
    with pytest.raises(StateError, match="residue"):
        codec.load_state_dict(state)
    assert codec.carrier.state_dict() == {"overlap": None, "sketches": 0}


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        ("topk:ratio=0.05", {"preset": "topk", "selector": {"ratio": 0.05}}),
        ("topk:selector.ratio=0.5,carrier=dense", {
            "preset": "topk", "selector": {"ratio": 0.5}, "carrier": "dense"
        }),
        ("dense:carrier=lhc,hashes=4", {
            "preset": "dense", "carrier": {"name": "lhc", "hashes": 4}
        }),
        ({"preset": "topk:ratio=0.05", "selector": {"k": None}}, {
            "preset": "topk", "selector": {"ratio": 0.05, "k": None}
        }),
    ],
)  # fmt: skip
def test_parameters_behind_a_name(text, mapping):
    assert build_codec(text).spec == build_codec(mapping).spec


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("topk:ratoi=1", "unknown parameter 'ratoi'. Did you mean 'ratio'"),
        ("topk:carier.hashes=1", "unknown parameter 'carier.hashes'"),
        ("topk:", "write NAME, or NAME:KEY=VALUE"),
        ("topk:ratio", "write NAME, or NAME:KEY=VALUE"),
        ("topk:ratio=7", "ratio = 7 cannot be used"),
    ],
)
def test_parameters_that_nobody_knows(text, match):
    with pytest.raises(ConfigError, match=re.escape(match)):
        build_codec(text)
