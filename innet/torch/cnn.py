"""The demonstration's network in PyTorch: same parameters, same function, autograd's gradient.

See ``innet.experiments.cnn`` for the architecture. A training may use either gradient; a test holds
them together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.errors import MissingToolError
from innet.experiments.cnn import SIDE, Real, views

try:
    import torch
    from torch.nn import functional
except ImportError as error:
    raise MissingToolError(
        "PyTorch",
        "gradients computed by PyTorch",
        "Install it by: pip install 'innet[torch]', or choose the framework numpy.",
    ) from error


def gradient(
    flat: NDArray[Real], images: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[float, NDArray[Real]]:
    """Mean cross-entropy of a batch, and its gradient.

    Args:
        flat: parameters in the layout of ``innet.experiments.cnn``, shape (SIZE,).
        images: shape (n, SIDE, SIDE), n > 0.
        labels: shape (n,), 0 .. CLASSES - 1.

    Returns:
        The loss, and the gradient with the shape and dtype of ``flat``.
    """
    # Copied: torch would share the memory, and warns of arrays that are not writeable.
    leaf = torch.from_numpy(flat.copy()).requires_grad_()
    at = _views(leaf)
    x = torch.from_numpy(images.astype(flat.dtype)).reshape(-1, 1, SIDE, SIDE)
    for layer in ("conv1", "conv2"):
        kernel = at[f"{layer}.weight"].permute(3, 2, 0, 1)  # to channels out, in, rows, columns
        x = functional.relu(functional.conv2d(x, kernel, at[f"{layer}.bias"], padding=1))
    x = functional.max_pool2d(x, 2).permute(0, 2, 3, 1).flatten(1)  # channels last, as in NumPy
    x = functional.relu(x @ at["dense1.weight"] + at["dense1.bias"])
    x = x @ at["dense2.weight"] + at["dense2.bias"]
    loss = functional.cross_entropy(x, torch.from_numpy(labels.copy()))
    (result,) = torch.autograd.grad(loss, leaf)
    found: NDArray[Real] = result.numpy()
    return float(loss.detach()), found


def _views(leaf: torch.Tensor) -> dict[str, torch.Tensor]:
    """The named parts, as ``innet.experiments.cnn.views`` cuts them."""
    places = views(np.arange(leaf.numel()))
    return {
        name: leaf[place.flat[0] : place.flat[0] + place.size].reshape(place.shape)
        for name, place in places.items()
    }
