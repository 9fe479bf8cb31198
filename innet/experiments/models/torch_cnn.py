"""The demonstration's network in PyTorch: same parameters, same function, autograd's gradient.

See ``innet.experiments.models.cnn`` for the architecture. A training may use either gradient; a
test holds them together.
"""

from __future__ import annotations

from innet.experiments.models.cnn import SHAPES, SIDE
from innet.torch.tensors import Parameters, gradient_of, torch

functional = torch.nn.functional


def _loss(at: Parameters, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    x = images.reshape(-1, 1, SIDE, SIDE)
    for layer in ("conv1", "conv2"):
        kernel = at[f"{layer}.weight"].permute(3, 2, 0, 1)  # to channels out, in, rows, columns
        x = functional.relu(functional.conv2d(x, kernel, at[f"{layer}.bias"], padding=1))
    x = functional.max_pool2d(x, 2).permute(0, 2, 3, 1).flatten(1)  # channels last, as in NumPy
    x = functional.relu(x @ at["dense1.weight"] + at["dense1.bias"])
    x = x @ at["dense2.weight"] + at["dense2.bias"]
    return functional.cross_entropy(x, labels)


# Mean cross-entropy of a batch and its gradient, as ``innet.experiments.models.cnn.gradient``.
gradient = gradient_of(_loss, SHAPES)
