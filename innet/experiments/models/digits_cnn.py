"""Handwritten digits that need no download, learnt by a small convolutional network.

The images are those inside scikit-learn: 1,797 gray images of 8 × 8 pixels by 43 people (UCI
Machine Learning Repository, "Optical Recognition of Handwritten Digits", test part).

The network is written twice: in NumPy with its gradient written out, because PyTorch is optional
and several hundred megabytes to install; and in PyTorch with autograd's gradient. Both have the
same parameters, and a test holds the two gradients together.

    8 × 8 × 1 ─ conv 3×3 ─ ReLU ─ conv 3×3 ─ ReLU ─ max pool 2×2 ─ dense ─ ReLU ─ dense ─ 10 logits
                 (16)               (32)              4 × 4 × 32      (96)

All parameters live in one flat vector, since that is what an all-reduce sums; ``unflatten`` gives
its parts by name. Images are stored channels last, so that the 3 × 3 × channels patch under an
output pixel (im2col) is nine contiguous runs, and a convolution is one matrix product. Every NumPy
function works in the dtype of the parameters: float32 to train, float64 to check the gradient by
finite differences.
"""

from __future__ import annotations

import gzip
import importlib.util
import math
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from innet.core.registry import Registry
from innet.experiments.models.model import (
    Data,
    Gradient,
    Model,
    Part,
    Recipe,
    Samples,
    Vector,
    split,
)
from innet.records import ACCURACY

# What computes the network's gradients. PyTorch is slow to import, and so is only where it is
# asked for.
FRAMEWORKS: Registry[Gradient] = Registry("framework", "innet.frameworks")
FRAMEWORKS.register("numpy", "innet.experiments.models.digits_cnn:gradient")
FRAMEWORKS.register("torch", "innet.experiments.models.digits_cnn:torch_gradient")

_SPLIT_SEED = 1797  # the split is part of the data set, so that runs of different seeds compare
_ONE_IN = 5  # images are kept for testing
_WHITE = 16.0  # pixels count from 0 to 16

SIDE = 8  # pixels, of the images
CLASSES = 10
_FIRST, _SECOND, _HIDDEN = 16, 32, 96  # channels, channels, units
_POOLED = SIDE // 2
_KERNEL = 3

SHAPES: dict[str, tuple[int, ...]] = {
    "conv1.weight": (_KERNEL, _KERNEL, 1, _FIRST),  # rows, columns, channels in, channels out
    "conv1.bias": (_FIRST,),
    "conv2.weight": (_KERNEL, _KERNEL, _FIRST, _SECOND),
    "conv2.bias": (_SECOND,),
    "dense1.weight": (_POOLED * _POOLED * _SECOND, _HIDDEN),  # inputs, outputs
    "dense1.bias": (_HIDDEN,),
    "dense2.weight": (_HIDDEN, CLASSES),
    "dense2.bias": (CLASSES,),
}
SIZE = sum(math.prod(shape) for shape in SHAPES.values())  # 55,018 parameters

Real = TypeVar("Real", np.float32, np.float64)
Scalar = TypeVar("Scalar", bound=np.generic)


def model(framework: str | None = None) -> Model:
    """The demonstration's network; ``framework`` is numpy unless it is given.

    Raises:
        UnknownNameError: no such framework.
        MissingToolError: the framework is not installed.
    """
    return Model(
        name="digits-cnn",
        title="a CNN learns handwritten digits",
        shapes=SHAPES,
        metric=ACCURACY,
        recipe=Recipe(batch_size=16, learning_rate=0.05, momentum=0.9, epochs=15),
        load=load,
        initial=initial,
        gradient=FRAMEWORKS.get(framework or "numpy"),
        evaluate=evaluate,
        chance=1 / CLASSES,
        long=Recipe(batch_size=16, learning_rate=0.05, momentum=0.9, epochs=60, decay="cosine"),
    )


def load(part: Part = "test") -> Data:
    """1,438 images to train on and 359 to test, the same each time.

    Args:
        part: with "validation" the 1,438 alone, split once more: 1,151 and 287.

    Returns:
        Images, shape (n, 8, 8), float32 in [0, 1], and their labels, shape (n,), int64 in 0..9.
    """
    table = _table()
    images = table[:, :-1].reshape(-1, SIDE, SIDE)
    samples = Samples((images / _WHITE).astype(np.float32), table[:, -1].astype(np.int64))
    data = split(samples, _SPLIT_SEED, _ONE_IN)
    return data if part == "test" else split(data.train, _SPLIT_SEED, _ONE_IN)


def _table() -> NDArray[np.float64]:
    """The images that scikit-learn has, one in each row, with its label behind it."""
    package = importlib.util.find_spec("sklearn")
    for folder in package.submodule_search_locations or () if package else ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():  # without scikit-learn, whose import takes a second
            with gzip.open(file, "rt") as lines:
                return np.loadtxt(lines, delimiter=",")
    from sklearn import datasets  # noqa: PLC0415 - it may have its data elsewhere

    raw = datasets.load_digits()
    return np.column_stack((raw.data, raw.target))


def evaluate(parameters: Vector, samples: Samples) -> float:
    """The accuracy."""
    return accuracy(parameters, samples.inputs, samples.targets)


def unflatten(flat: NDArray[Scalar]) -> dict[str, NDArray[Scalar]]:
    """The named parts of a flat vector of shape (SIZE,), without copying."""
    parts, start = {}, 0
    for name, shape in SHAPES.items():
        end = start + math.prod(shape)
        parts[name] = flat[start:end].reshape(shape)
        start = end
    return parts


def initial(rng: np.random.Generator) -> NDArray[np.float32]:
    """Fresh parameters: weights normal with variance 2 / inputs (He et al., 2015), biases zero."""
    flat = np.zeros(SIZE, np.float32)
    for name, part in unflatten(flat).items():
        if name.endswith("weight"):
            inputs = math.prod(part.shape[:-1])
            part[...] = rng.standard_normal(part.shape) * math.sqrt(2 / inputs)
    return flat


def logits(flat: NDArray[Real], images: NDArray[np.float32]) -> NDArray[Real]:
    """Scores of shape (n, CLASSES) for images of shape (n, SIDE, SIDE)."""
    return _forward(unflatten(flat), images)[-1]


def accuracy(
    flat: NDArray[np.float32], images: NDArray[np.float32], labels: NDArray[np.int64]
) -> float:
    """Share of the images that are classified correctly, 0 to 1."""
    return float(np.mean(logits(flat, images).argmax(axis=1) == labels))


def gradient(
    flat: NDArray[Real], images: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[float, NDArray[Real]]:
    """Mean cross-entropy of a batch, and its gradient.

    Args:
        flat: parameters, shape (SIZE,).
        images: shape (n, SIDE, SIDE), n > 0.
        labels: shape (n,), 0 .. CLASSES - 1.

    Returns:
        The loss, and the gradient with the shape and dtype of ``flat``.
    """
    at = unflatten(flat)
    patches1, ramp1, patches2, ramp2, pooled, hidden, scores = _forward(at, images)
    result = np.empty_like(flat)
    to = unflatten(result)

    loss, back = _cross_entropy(scores, labels)
    np.matmul(hidden.T, back, out=to["dense2.weight"])
    back.sum(axis=0, out=to["dense2.bias"])
    back = (back @ at["dense2.weight"].T) * (hidden > 0)
    np.matmul(pooled.T, back, out=to["dense1.weight"])
    back.sum(axis=0, out=to["dense1.bias"])
    back = _unpool(ramp2, back @ at["dense1.weight"].T) * (ramp2 > 0)

    rows = back.reshape(-1, _SECOND)
    np.matmul(patches2.T, rows, out=to["conv2.weight"].reshape(-1, _SECOND))
    rows.sum(axis=0, out=to["conv2.bias"])
    spread = rows @ at["conv2.weight"].reshape(-1, _SECOND).T
    rows = (_fold(spread, ramp1.shape) * (ramp1 > 0)).reshape(-1, _FIRST)
    np.matmul(patches1.T, rows, out=to["conv1.weight"].reshape(-1, _FIRST))
    rows.sum(axis=0, out=to["conv1.bias"])
    return loss, result


def _forward(
    at: dict[str, NDArray[Real]], images: NDArray[np.float32]
) -> tuple[NDArray[Real], ...]:
    """The scores, last, and before them what the gradient needs."""
    dtype = at["conv1.weight"].dtype
    count = len(images)
    patches1 = _patches(images.astype(dtype).reshape(count, SIDE, SIDE, 1))
    ramp1 = _convolve(patches1, at["conv1.weight"], at["conv1.bias"])
    patches2 = _patches(ramp1)
    ramp2 = _convolve(patches2, at["conv2.weight"], at["conv2.bias"])
    pooled = _corners(ramp2).max(axis=0).reshape(count, -1)
    hidden = np.maximum(pooled @ at["dense1.weight"] + at["dense1.bias"], 0)
    scores = hidden @ at["dense2.weight"] + at["dense2.bias"]
    return patches1, ramp1, patches2, ramp2, pooled, hidden, scores


def _patches(images: NDArray[Real]) -> NDArray[Real]:
    """im2col with a border of one zero pixel: (n, s, s, c) to (n·s·s, 9·c)."""
    count, side, _, channels = images.shape
    padded = np.zeros((count, side + 2, side + 2, channels), images.dtype)
    padded[:, 1:-1, 1:-1] = images
    result = np.empty((count, side, side, _KERNEL, _KERNEL, channels), images.dtype)
    for row in range(_KERNEL):
        for column in range(_KERNEL):
            result[:, :, :, row, column] = padded[:, row : row + side, column : column + side]
    return result.reshape(count * side * side, -1)


def _fold(patches: NDArray[Real], shape: tuple[int, ...]) -> NDArray[Real]:
    """The transpose of ``_patches``: adds up, for each pixel, what all patches say of it."""
    count, side, _, channels = shape
    split = patches.reshape(count, side, side, _KERNEL, _KERNEL, channels)
    padded = np.zeros((count, side + 2, side + 2, channels), patches.dtype)
    for row in range(_KERNEL):
        for column in range(_KERNEL):
            padded[:, row : row + side, column : column + side] += split[:, :, :, row, column]
    return padded[:, 1:-1, 1:-1]


def _convolve(patches: NDArray[Real], weight: NDArray[Real], bias: NDArray[Real]) -> NDArray[Real]:
    """3 × 3 convolution and ReLU: patches (n·s·s, 9·c) to (n, s, s, channels out)."""
    out = patches @ weight.reshape(-1, weight.shape[-1])
    out += bias
    np.maximum(out, 0, out=out)
    return out.reshape(-1, SIDE, SIDE, weight.shape[-1])


def _corners(images: NDArray[Real]) -> NDArray[Real]:
    """The four pixels of each 2 × 2 window: (n, s, s, c) to (4, n, s/2, s/2, c)."""
    return np.stack([images[:, row::2, column::2] for row in (0, 1) for column in (0, 1)])


def _unpool(images: NDArray[Real], back: NDArray[Real]) -> NDArray[Real]:
    """Gradient of max pooling: goes to the first of the window's largest pixels."""
    chosen = _corners(images).argmax(axis=0)
    gradient_of_pooled = back.reshape(chosen.shape)
    result = np.empty_like(images)
    for corner in range(4):
        row, column = divmod(corner, 2)
        result[:, row::2, column::2] = gradient_of_pooled * (chosen == corner)
    return result


def _cross_entropy(scores: NDArray[Real], labels: NDArray[np.int64]) -> tuple[float, NDArray[Real]]:
    """Mean cross-entropy and its gradient with respect to the scores, shape (n, CLASSES)."""
    count = len(labels)
    shifted = scores - scores.max(axis=1, keepdims=True)  # so that exp cannot overflow
    powers = np.exp(shifted)
    sums = powers.sum(axis=1, keepdims=True)
    rows = np.arange(count)
    loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
    back = powers / sums
    back[rows, labels] -= 1
    back /= count
    return loss, back


# ----------------------------------------------------------------------------
# The same network in PyTorch.


def __getattr__(name: str) -> Gradient:
    """``torch_gradient``: the same as ``gradient``, made when it is first asked for.

    Raises:
        MissingToolError: PyTorch is not installed.
    """
    if name != "torch_gradient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from innet.torch.tensors import Parameters, gradient_of, torch  # noqa: PLC0415 - optional

    functional = torch.nn.functional

    def loss(at: Parameters, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = images.reshape(-1, 1, SIDE, SIDE)
        for layer in ("conv1", "conv2"):
            kernel = at[f"{layer}.weight"].permute(3, 2, 0, 1)  # channels out, in, rows, columns
            x = functional.relu(functional.conv2d(x, kernel, at[f"{layer}.bias"], padding=1))
        x = functional.max_pool2d(x, 2).permute(0, 2, 3, 1).flatten(1)  # channels last, as NumPy
        x = functional.relu(x @ at["dense1.weight"] + at["dense1.bias"])
        x = x @ at["dense2.weight"] + at["dense2.bias"]
        return functional.cross_entropy(x, labels)

    return gradient_of(loss, SHAPES)
