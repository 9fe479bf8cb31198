"""A model's layers, told to the codec once: who uses them, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import innet
from innet.codecs import build_codec
from innet.codecs.optional_methods import ObservesGradient
from innet.codecs.selectors.scalecom import rate_of
from innet.core.errors import ConfigError, InputError, StateError
from innet.experiments.models import digits_cnn
from innet.experiments.summing import NetworkReducer

SHAPES = ((3, 3, 4, 5), (40, 30), (30,))
SIZES = tuple(math.prod(shape) for shape in SHAPES)


def gradient(seed=0):
    """Layers of very different magnitudes."""
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal(size) * 10.0 ** (3 * i) for i, size in enumerate(SIZES)]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("preset", ["adacomp", "dgc", "scalecom", "sidco-e", "sidco-p"])
def test_layers_told_to_the_codec_are_those_of_its_parts(preset):
    told = build_codec(preset, layers=SIZES).selector
    own = build_codec({"preset": preset, "selector": {"layers": list(SIZES)}}).selector
    whole = build_codec(preset).selector
    x = gradient()
    for selector in (told, own, whole):
        if isinstance(selector, ObservesGradient):
            selector.observe(x)
    indices = [selector.select(x)[0] for selector in (told, own, whole)]
    np.testing.assert_array_equal(indices[0], indices[1])
    assert not np.array_equal(indices[0], indices[2])
    starts = np.cumsum((0, *SIZES))
    assert all(np.histogram(indices[0], starts)[0])  # something of each layer


def test_a_parts_own_layers_come_first():
    both = build_codec({"preset": "sidco-e", "selector": {"layers": [1380, 30]}}, layers=SIZES)
    assert both.selector.layers == ((1380,), (30,))


def test_matrices_have_the_wide_bins_of_adacomp():
    of_shapes, of_sizes = (build_codec("adacomp", layers=each).selector for each in (SHAPES, SIZES))
    assert [width for _, width in of_shapes._layers(sum(SIZES))] == [50, 500, 50]
    assert [width for _, width in of_sizes._layers(sum(SIZES))] == [50, 50, 50]


def test_scalecoms_rates_follow_from_the_operations():
    assert [rate_of(flops) for flops in (1e6, 196, 195.9, 128, 127.9, 0)] == [
        25, 25, 50, 50, 400, 400
    ]  # fmt: skip
    spec = {"preset": "scalecom", "selector": {"flops": [500.0, 150.0, 2.0]}}
    selector = build_codec(spec, layers=SHAPES).selector
    codes = [code for _, code in selector._division(sum(SIZES)).layers]
    rates = [1 if code is None else code.chunk for code in codes]
    assert rates == [1, 50, 400]  # the first is dense
    with pytest.raises(ConfigError, match="as many rates as layers"):
        build_codec(spec, layers=SHAPES[:2])
    with pytest.raises(ConfigError, match="either rates or flops"):
        build_codec({"preset": "scalecom", "selector": {"flops": [1.0], "rates": [2]}}, layers=[9])


def test_the_collective_tells_its_codecs():
    jobs = [gradient(seed) for seed in range(3)]
    _, whole = innet.all_reduce(jobs, codec="scalecom")
    _, layered = innet.all_reduce(jobs, codec="scalecom", layers=SHAPES)
    assert whole.details["shared"] == -(-sum(SIZES) // 100)
    assert layered.details["shared"] == SIZES[0] + 12 + 1
    assert layered.exact


def test_training_tells_the_networks_layers():
    settings = innet.core.settings.TrainingSettings(workers=2)
    made = []

    class AllReducer:
        def __init__(self, **arguments):
            made.append(arguments)

        def all_reduce(self, gradients):
            return gradients[0], None

    shapes = digits_cnn.model().shapes
    NetworkReducer("scalecom", settings, shapes, seed=0, networks={}, make=AllReducer)
    assert list(made[0]["layers"].items()) == list(digits_cnn.SHAPES.items())


@pytest.mark.parametrize("layers", [[], [0], [3, -1], [()], [(3, 0)], [2.0], [True], ["ab"]])
def test_what_is_no_layer_is_refused(layers):
    with pytest.raises(InputError, match="layer"):
        build_codec("dense", layers=layers)


@pytest.mark.parametrize("codec", ["dense", "sidco-e"])
def test_a_gradient_of_other_layers_is_refused_before_anything_is_sent(codec):
    network = innet.Collective(workers=2, codec=codec, layers=[5, (2, 3)])
    with pytest.raises(StateError, match="worker 0's codec have 11 elements together, the grad"):
        network.all_reduce([np.ones(10, np.float32)] * 2)
    total, _ = network.all_reduce([np.ones(11, np.float32)] * 2)
    assert total.max() > 1.9


def test_layers_of_one_element_are_layers_and_an_empty_gradient_has_none():
    for size in (4, 0):
        network = innet.Collective(workers=2, codec="scalecom", layers=[1, (1, 3)])
        total, report = network.all_reduce([np.ones(size, np.float32)] * 2)
        assert total[:1].tolist() == [2.0][:size]  # the first layer is sent whole
        assert (report.rounds > 0) == (size > 0)


def test_a_state_of_other_layers_is_refused():
    state = build_codec("adacomp", layers=[(2, 3), 4]).state_dict()
    build_codec("adacomp", layers=[(2, 3), 4]).load_state_dict(state)
    for other in ([(3, 2), 4], [10], None):
        with pytest.raises(StateError, match="layers"):
            build_codec("adacomp", layers=other).load_state_dict(state)
