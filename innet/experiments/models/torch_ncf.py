"""Neural collaborative filtering (He et al., WWW 2017): a product of embeddings beside a network.

user, item ─ embeddings of their own ─ product ──────────────┐
user, item ─ embeddings of their own ─ dense ─ ReLU ─ dense ─┴─ dense ─ 1 logit
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from innet.experiments.models.interactions import ITEMS, USERS, hit_rate, load
from innet.experiments.models.model import Model, Recipe, check_framework
from innet.experiments.samples import Samples
from innet.records import HIT_RATE
from innet.torch.tensors import Parameters, gradient_of, tensor, torch, views

functional = torch.nn.functional

_FACTORS, _HIDDEN = 16, 16
SHAPES = {
    "product.user": (USERS, _FACTORS),
    "product.item": (ITEMS, _FACTORS),
    "network.user": (USERS, _FACTORS),
    "network.item": (ITEMS, _FACTORS),
    "dense1.weight": (_HIDDEN, 2 * _FACTORS),  # outputs, inputs
    "dense1.bias": (_HIDDEN,),
    "dense2.weight": (1, _FACTORS + _HIDDEN),
    "dense2.bias": (1,),
}


def model(framework: str | None = None) -> Model:
    """96,561 parameters; ``framework`` can be nothing but torch."""
    check_framework("ncf", framework, "torch")
    return Model(
        name="ncf",
        title="collaborative filtering learns who takes what",
        shapes=SHAPES,
        metric=HIT_RATE,
        recipe=Recipe(batch_size=64, learning_rate=10.0, momentum=0.9, epochs=4),
        load=load,
        initial=initial,
        gradient=gradient_of(_loss, SHAPES),
        evaluate=_hit_rate,
    )


def initial(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Embeddings normal with a deviation of 0.1, weights with variance 2 / inputs, biases zero."""
    parts = []
    for name, shape in SHAPES.items():
        if name.endswith("bias"):
            part = np.zeros(shape)
        else:
            embedding = name.endswith(("user", "item"))
            part = rng.standard_normal(shape) * (0.1 if embedding else math.sqrt(2 / shape[1]))
        parts.append(part.ravel())
    return np.concatenate(parts).astype(np.float32)


def _hit_rate(flat: npt.NDArray[np.float32], samples: Samples) -> float:
    with torch.no_grad():
        scores = _scores(views(tensor(flat), SHAPES), tensor(samples.inputs))
    return hit_rate(scores.numpy())


def _loss(at: Parameters, rows: torch.Tensor, liked: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(_scores(at, rows), liked)


def _scores(at: Parameters, rows: torch.Tensor) -> torch.Tensor:
    """A logit for each item of each row, shape (n, items): a row is a user and the items."""
    users, items = rows[:, :1].expand(-1, rows.shape[1] - 1), rows[:, 1:]

    def both(branch: str) -> tuple[torch.Tensor, torch.Tensor]:
        return (
            functional.embedding(users, at[f"{branch}.user"]),
            functional.embedding(items, at[f"{branch}.item"]),
        )

    user, item = both("product")
    deep = torch.cat(both("network"), dim=-1)
    deep = functional.relu(functional.linear(deep, at["dense1.weight"], at["dense1.bias"]))
    joined = torch.cat([user * item, deep], dim=-1)
    return functional.linear(joined, at["dense2.weight"], at["dense2.bias"]).squeeze(-1)
