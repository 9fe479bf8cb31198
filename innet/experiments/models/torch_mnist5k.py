"""A convolutional network for 5,000 digits of MNIST.

28 × 28 ─ conv 3×3 ─ ReLU ─ pool ─ conv 3×3 ─ ReLU ─ pool ─ dense ─ ReLU ─ dense ─ 10 logits
            (16)           14×14     (32)            7×7     (96)
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from innet.experiments.models.mnist5k import CLASSES, SIDE, load
from innet.experiments.models.model import Model, Recipe, check_framework
from innet.experiments.samples import Samples
from innet.records import ACCURACY
from innet.torch.tensors import Parameters, gradient_of, tensor, torch, views

functional = torch.nn.functional

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
        scores = _logits(views(tensor(flat), SHAPES), tensor(samples.inputs)).numpy()
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
