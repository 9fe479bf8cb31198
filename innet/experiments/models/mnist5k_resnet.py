"""ResNet-20 on the 5,000 digits of ``mnist5k``.

The network is that of He et al. (CVPR 2016) for CIFAR-10: a convolution, three stages of three
residual blocks with 16, 32 and 64 channels, global average pooling, and a linear layer. Shortcuts
between stages have no parameters (the paper's option A). Two things differ:

- Group normalization (Wu and He, ECCV 2018) takes the place of batch normalization, whose running
  statistics are no parameters and would not travel in an all-reduce.
- Images have one channel of 28 × 28 pixels instead of three of 32 × 32.

The last normalization of each block begins with weight zero, so that each block begins as the
identity (Goyal et al., 2017, arXiv 1706.02677).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from innet.experiments.models.mnist5k import CLASSES, SIDE, load
from innet.experiments.models.model import Model, Recipe, Samples, check_framework
from innet.records import ACCURACY
from innet.torch.tensors import Parameters, gradient_of, tensor, torch, unflatten

functional = torch.nn.functional

_STAGES = (16, 32, 64)  # channels
_BLOCKS = 3  # residual blocks of a stage
_GROUPS = 4  # of a normalization
_EVALUATED = 250  # images at once, which bounds the memory


def _blocks() -> Iterator[tuple[str, int, int]]:
    """The name, channels in and channels out of each residual block."""
    channels = _STAGES[0]
    for stage, wider in enumerate(_STAGES, 1):
        for block in range(1, _BLOCKS + 1):
            yield f"stage{stage}.block{block}", channels, wider
            channels = wider


def _shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}

    def convolution(name: str, channels: int, wider: int) -> None:
        found[f"{name}.weight"] = (wider, channels, 3, 3)
        found[f"{name}.norm.weight"] = (wider,)
        found[f"{name}.norm.bias"] = (wider,)

    convolution("first", 1, _STAGES[0])
    for name, channels, wider in _blocks():
        convolution(f"{name}.conv1", channels, wider)
        convolution(f"{name}.conv2", wider, wider)
    found["dense.weight"] = (CLASSES, _STAGES[-1])
    found["dense.bias"] = (CLASSES,)
    return found


SHAPES = _shapes()

_RECIPE = Recipe(batch_size=16, learning_rate=0.1, momentum=0.9, epochs=20, decay="cosine")


def model(framework: str | None = None) -> Model:
    """269,434 parameters; ``framework`` can be nothing but torch."""
    check_framework("mnist5k-resnet", framework, "torch")
    return Model(
        name="mnist5k-resnet",
        title="ResNet-20 learns 5,000 digits of MNIST",
        shapes=SHAPES,
        metric=ACCURACY,
        recipe=_RECIPE,
        load=load,
        initial=initial,
        gradient=gradient_of(_loss, SHAPES),
        evaluate=accuracy,
        chance=1 / CLASSES,
        long=_RECIPE,
    )


def initial(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Convolutions normal with variance 2 / inputs (He et al., 2015), biases zero.

    Normalizations have weight one, but zero at the end of a block.
    """

    def part(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.floating]:
        if name.endswith("norm.weight") and ".conv2." not in name:
            return np.ones(shape)
        if name.endswith(("norm.weight", "bias")):
            return np.zeros(shape)
        return rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))

    parts = [part(name, shape) for name, shape in SHAPES.items()]
    return np.concatenate([each.ravel() for each in parts]).astype(np.float32)


def accuracy(flat: npt.NDArray[np.float32], samples: Samples) -> float:
    """Share of the images that are classified correctly."""
    at = unflatten(tensor(flat), SHAPES)
    found = []
    with torch.no_grad():
        for start in range(0, len(samples), _EVALUATED):
            images = tensor(samples.inputs[start : start + _EVALUATED])
            found.append(_logits(at, images).argmax(dim=1).numpy())
    return float(np.mean(np.concatenate(found) == samples.targets))


def _loss(at: Parameters, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(_logits(at, images), labels)


def _logits(at: Parameters, images: torch.Tensor) -> torch.Tensor:
    def convolution(x: torch.Tensor, name: str, stride: int = 1) -> torch.Tensor:
        x = functional.conv2d(x, at[f"{name}.weight"], stride=stride, padding=1)
        return functional.group_norm(x, _GROUPS, at[f"{name}.norm.weight"], at[f"{name}.norm.bias"])

    x = functional.relu(convolution(images.reshape(-1, 1, SIDE, SIDE), "first"))
    for name, channels, wider in _blocks():
        stride = 1 if channels == wider else 2
        y = functional.relu(convolution(x, f"{name}.conv1", stride))
        y = convolution(y, f"{name}.conv2")
        if channels != wider:  # every second pixel, and zeros in the new channels
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, wider - channels))
        x = functional.relu(x + y)
    return functional.linear(x.mean(dim=(2, 3)), at["dense.weight"], at["dense.bias"])
