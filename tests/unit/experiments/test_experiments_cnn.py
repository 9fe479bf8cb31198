"""The network's gradient against finite differences and against PyTorch's."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from innet.core.errors import MissingToolError
from innet.experiments.models import digits_cnn
from innet.experiments.models.digits_cnn import FRAMEWORKS

RNG_SEED = 3
HAS_TORCH = importlib.util.find_spec("torch") is not None


def a_batch(rng: np.random.Generator, count: int = 5) -> tuple[np.ndarray, np.ndarray]:
    images = rng.random((count, digits_cnn.SIDE, digits_cnn.SIDE), np.float32)
    return images, rng.integers(0, digits_cnn.CLASSES, count)


def parameters(rng: np.random.Generator, dtype: type = np.float64) -> np.ndarray:
    """Biases too are not zero, so that a forgotten one shows."""
    return (digits_cnn.initial(rng) + 0.05 * rng.standard_normal(digits_cnn.SIZE)).astype(dtype)


def test_images_are_those_of_scikit_learn_wherever_it_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sklearn import datasets  # noqa: PLC0415 - as the function that is tested

    found, raw = digits_cnn._table(), datasets.load_digits()
    monkeypatch.setattr(digits_cnn.importlib.util, "find_spec", lambda _: None)
    for table in (found, digits_cnn._table()):
        assert np.array_equal(table[:, :-1], raw.data)
        assert np.array_equal(table[:, -1], raw.target)


def test_views_tile_the_vector_in_order() -> None:
    flat = np.arange(digits_cnn.SIZE)
    joined = np.concatenate([part.ravel() for part in digits_cnn.unflatten(flat).values()])
    assert np.array_equal(joined, flat)
    assert all(np.shares_memory(part, flat) for part in digits_cnn.unflatten(flat).values())
    assert 40_000 <= digits_cnn.SIZE <= 70_000


def test_initial_weights_keep_the_variance_and_biases_are_zero() -> None:
    for name, part in digits_cnn.unflatten(digits_cnn.initial(np.random.default_rng(0))).items():
        if name.endswith("bias"):
            assert not part.any()
        else:
            inputs = np.prod(part.shape[:-1])
            assert part.var() == pytest.approx(2 / inputs, rel=0.25)


@pytest.mark.parametrize("name", list(digits_cnn.SHAPES))
def test_gradient_equals_finite_differences(name: str) -> None:
    rng = np.random.default_rng(RNG_SEED)
    flat = parameters(rng)
    images, labels = a_batch(rng)
    _, found = digits_cnn.gradient(flat, images, labels)
    place = digits_cnn.unflatten(np.arange(digits_cnn.SIZE))[name].ravel()
    chosen = rng.choice(place, min(24, len(place)), replace=False)
    step = 1e-6
    for index in chosen:
        around = []
        for sign in (1, -1):
            moved = flat.copy()
            moved[index] += sign * step
            around.append(digits_cnn.gradient(moved, images, labels)[0])
        expected = (around[0] - around[1]) / (2 * step)
        assert found[index] == pytest.approx(expected, rel=1e-5, abs=2e-9)
    assert found[place].any()


def test_loss_is_the_cross_entropy_of_the_logits() -> None:
    rng = np.random.default_rng(RNG_SEED)
    flat = parameters(rng)
    images, labels = a_batch(rng)
    scores = digits_cnn.logits(flat, images)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = -np.log(probabilities[np.arange(len(labels)), labels]).mean()
    assert digits_cnn.gradient(flat, images, labels)[0] == pytest.approx(expected, rel=1e-12)


def test_gradient_of_a_batch_is_the_mean_of_its_images() -> None:
    rng = np.random.default_rng(RNG_SEED)
    flat = parameters(rng)
    images, labels = a_batch(rng, 4)
    _, whole = digits_cnn.gradient(flat, images, labels)
    each = [digits_cnn.gradient(flat, images[i : i + 1], labels[i : i + 1])[1] for i in range(4)]
    np.testing.assert_allclose(whole, np.mean(each, axis=0), atol=1e-14)


def test_float32_stays_float32_and_near_float64() -> None:
    rng = np.random.default_rng(RNG_SEED)
    flat = parameters(rng, np.float32)
    images, labels = a_batch(rng, 16)
    loss, found = digits_cnn.gradient(flat, images, labels)
    exact_loss, exact = digits_cnn.gradient(flat.astype(np.float64), images, labels)
    assert found.dtype == np.float32
    assert loss == pytest.approx(exact_loss, rel=1e-5)
    assert np.abs(found - exact).max() < 1e-5 * np.abs(exact).max()


def test_huge_scores_give_a_finite_loss() -> None:
    rng = np.random.default_rng(RNG_SEED)
    flat = parameters(rng) * 50
    images, labels = a_batch(rng)
    loss, found = digits_cnn.gradient(flat, images, labels)
    assert np.isfinite(loss)
    assert np.isfinite(found).all()


def test_inputs_are_not_changed() -> None:
    rng = np.random.default_rng(RNG_SEED)
    flat = parameters(rng)
    images, labels = a_batch(rng)
    kept = flat.copy(), images.copy(), labels.copy()
    for array in (flat, images, labels):
        array.flags.writeable = False
    digits_cnn.gradient(flat, images, labels)
    for array, copy in zip((flat, images, labels), kept, strict=True):
        assert np.array_equal(array, copy)


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
class TestTorch:
    def test_float64_gradients_agree(self) -> None:
        rng = np.random.default_rng(RNG_SEED)
        flat = parameters(rng)
        images, labels = a_batch(rng, 16)
        flat.flags.writeable = images.flags.writeable = labels.flags.writeable = False
        loss, found = digits_cnn.gradient(flat, images, labels)
        torch_loss, torch_found = FRAMEWORKS.get("torch")(flat, images, labels)
        assert loss == pytest.approx(torch_loss, rel=1e-12)
        assert torch_found.dtype == np.float64
        np.testing.assert_allclose(found, torch_found, atol=1e-13)

    def test_float32_gradients_agree(self) -> None:
        rng = np.random.default_rng(RNG_SEED)
        flat = parameters(rng, np.float32)
        images, labels = a_batch(rng, 16)
        _, found = digits_cnn.gradient(flat, images, labels)
        _, torch_found = FRAMEWORKS.get("torch")(flat, images, labels)
        assert torch_found.dtype == np.float32
        assert np.abs(found - torch_found).max() < 1e-5 * np.abs(found).max()


def test_without_torch_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # makes its import fail
    monkeypatch.delitem(sys.modules, "innet.torch.tensors", raising=False)
    monkeypatch.setattr(FRAMEWORKS, "_loaded", {})
    with pytest.raises(MissingToolError, match=r"pip install 'innet\[torch\]'"):
        FRAMEWORKS.get("torch")
