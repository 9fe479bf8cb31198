"""Models by their layers' shapes, their buckets, and workers that are slower than others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from innet.core.errors import ConfigError, InputError, UnknownNameError
from innet.scenarios import workload
from innet.scenarios.workload import Stragglers, Workload, WorkloadLayer, buckets, load

# What the papers, the makers of the public code and others say: torchvision's documentation for
# ResNet-50 and VGG, Hugging Face's for BERT (uncased) and GPT-2, and for the LSTM and NCF what the
# public volumes of the GRACE experiments are, divided by 4. The sizes of DeepFM and NMT, and within
# half a per cent that of LSTM-2048-512, are Zen's.
PUBLISHED = {
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "deepfm": 282_000_000,
    "gpt2": 124_439_808,
    "lstm-lm1b": 425_957_759,
    "lstm-ptb": 66_034_000,
    "ncf": 31_832_577,
    "nmt": 143_000_000,
    "resnet20": 269_722,
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
}
# Multiplications of a sample, in billions, as the papers have them: ResNet-50 "3.8" without the
# shortcuts' convolutions and with the stride elsewhere, VGG-16 15.5 and VGG-19 19.6.
MULTIPLICATIONS = {"resnet50": 4.1, "resnet20": 0.041, "vgg16": 15.5, "vgg19": 19.6}


def test_the_published_numbers_are_of_all_models():
    assert workload.names() == sorted(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_have_as_many_parameters_as_published(name):
    model = load(name)
    assert model.elements == PUBLISHED[name]
    assert 0 < model.forward < model.seconds
    assert model.source
    assert len({layer.name for layer in model.layers}) == len(model.layers)


@pytest.mark.parametrize("name", MULTIPLICATIONS)
def test_models_multiply_as_often_as_published(name):
    multiplications = sum(layer.macs for layer in load(name).layers) / 1e9
    assert multiplications == pytest.approx(MULTIPLICATIONS[name], rel=0.02)


def test_the_lstm_has_the_shapes_of_pytorch():
    torch = pytest.importorskip("torch")
    shapes = [tuple(each.shape) for each in torch.nn.LSTM(1500, 1500, 2).parameters()]
    inner = [shape for layer in load("lstm-ptb").layers[1:-1] for shape in layer.shapes]
    assert inner == shapes


@pytest.mark.parametrize("by", ["flops", "parameters"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_backward_pass_computes_layer_after_layer_in_its_time(name, by):
    model = load(name)
    done = model.backward_times(by)
    assert len(done) == len(model.layers)
    assert np.all(np.diff(done) >= 0)
    assert done[-1] == model.seconds - model.forward


def test_times_of_layers_are_in_proportion_to_their_weights():
    model = Workload(
        "m",
        (WorkloadLayer("a", ((30,),), 100), WorkloadLayer("b", ((10,),), 300)),
        6.0,
        2.0,
        "test",
        False,
    )
    assert [layer.name for layer in model.backward] == ["b", "a"]
    assert model.backward_times("flops").tolist() == [3.0, 4.0]
    assert model.backward_times("parameters").tolist() == [1.0, 4.0]
    halved = model.with_seconds(3.0)
    assert (halved.seconds, halved.forward) == (3.0, 1.0)


@pytest.mark.parametrize(
    ("cap", "first"), [(None, None), (25.0, 1.0), (1.0, None), (0.01, None), (200.0, 5.0)]
)
@pytest.mark.parametrize("name", PUBLISHED)
def test_buckets_are_those_of_pytorch(name, cap, first):
    torch = pytest.importorskip("torch")
    distributed = pytest.importorskip("torch.distributed")
    model = load(name)
    shapes = [
        shape
        for layer in reversed(model.layers)
        for shape in reversed(layer.shapes)
        if math.prod(shape)
    ]
    default = cap is None
    limits = [
        distributed._DEFAULT_FIRST_BUCKET_BYTES if default else int((first or cap) * workload.MIB),
        int((cap or 25) * workload.MIB),
    ]
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    expected, _ = distributed._compute_bucket_assignment_by_size(tensors, limits)
    assert [each.shapes for each in buckets(model, cap, first)] == [
        tuple(shapes[index] for index in bucket) for bucket in expected
    ]


def test_buckets_name_the_layers_whose_gradients_they_hold():
    layers = (
        WorkloadLayer("a", ((4,), (2,))),
        WorkloadLayer("b", ((0,),), 5),
        WorkloadLayer("c", ((3,), (8,))),
    )
    model = Workload("m", layers, 1.0, 0.5, "test", False)
    found = buckets(model, 4 * 10 / workload.MIB)
    assert [each.shapes for each in found] == [((8,), (3,)), ((2,), (4,))]
    assert [each.layers for each in found] == [(0, 0), (2, 2)]
    assert [each.elements for each in found] == [11, 6]


MODEL = """
title = "two layers"
source = "here"
parameters = {parameters}
[compute]
seconds = 1.0
{compute}
source = "guess"
assumed = true
[[blocks]]
name = "part{{}}"
numbers = [3, 4]
parameters = [{{ name = "fc.weight", shape = [4, 5], positions = 2, macs = 7 }}]
"""


def written(path, **given):
    path.write_text(MODEL.format(**{"parameters": 40, "compute": "", **given}))
    return path


def test_a_model_of_ones_own_is_read_from_a_file(tmp_path):
    model = load(str(written(tmp_path / "mine.toml")))
    assert model.title == "two layers"
    assert model.layers == (
        WorkloadLayer("part3.fc", ((4, 5),), 47),
        WorkloadLayer("part4.fc", ((4, 5),), 47),
    )
    assert model.forward == pytest.approx(1 / 3)
    assert model.assumed


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"parameters": 41}, "40 elements, but parameters = 41"),
        ({"compute": "forward = 2.0"}, "longer than compute.seconds"),
        ({"compute": "second = 2.0"}, "unknown key 'compute.second'"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused(tmp_path, given, said):
    with pytest.raises(ConfigError, match=said):
        load(written(tmp_path / "mine.toml", **given))


def test_unknown_models_and_files_are_named():
    with pytest.raises(UnknownNameError, match="resnet50"):
        load("resnet51")
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load("none.toml")


def factors(described, iteration=1, *, workers=10_000, seed=0):
    return Stragglers(described, (), workers, seed).factors(iteration)


def test_distributions_have_their_parameters():
    assert np.all(factors("none") == 1)
    tail = factors("exponential:mean=0.5")
    assert tail.min() >= 1
    assert tail.mean() == pytest.approx(1.5, rel=0.03)
    normal = np.log(factors("lognormal:sigma=0.3"))
    assert normal.std() == pytest.approx(0.3, rel=0.03)
    assert normal.mean() == pytest.approx(0, abs=0.02)
    assert factors("fixed:worker=2,factor=4", workers=4).tolist() == [1, 1, 4, 1]


@pytest.mark.parametrize("name", ["exponential", "lognormal"])
def test_draws_depend_on_seed_and_iteration(name):
    first = factors(name, 3)
    assert np.array_equal(first, factors(name, 3))
    assert not np.array_equal(first, factors(name, 4))
    assert not np.array_equal(first, factors(name, 3, seed=1))
    assert np.array_equal(factors(f"{name}:per=run", 3), factors(f"{name}:per=run", 4))


def test_pauses_are_of_one_worker_and_one_iteration():
    stragglers = Stragglers("none", ("1:2:0.5", "1:2:0.25", "0:3:1"), 2, 0)
    assert [stragglers.pauses(number).tolist() for number in (1, 2, 3)] == [
        [0, 0],
        [0, 0.75],
        [1, 0],
    ]


@pytest.mark.parametrize("text", ["", "1:1:-1", "1:0:1", "-1:1:1", "1:1:inf", "1:1:nan", "a:1:1"])
def test_pauses_of_another_form_are_refused(text):
    with pytest.raises(InputError, match="WORKER:ITERATION:SECONDS"):
        Stragglers("none", (text,), 4, 0)
