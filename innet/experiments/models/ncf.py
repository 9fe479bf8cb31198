"""Collaborative filtering on synthetic interactions with Zipf popularity and a planted structure.

The data: users and items have hidden vectors, normal in HIDDEN dimensions; item i has popularity
1 / rank. A user takes items without replacement, each with a probability proportional to

    popularity · exp(TASTE · (user · item) / √HIDDEN),

so that a model that learns the vectors ranks better than one that knows the popularity alone.

The model is neural collaborative filtering (He et al., WWW 2017), a product of embeddings beside a
network:

    user, item ─ embeddings of their own ─ product ──────────────┐
    user, item ─ embeddings of their own ─ dense ─ ReLU ─ dense ─┴─ dense ─ 1 logit
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from innet.experiments.models.model import Data, Model, Part, Recipe, Samples, check_framework
from innet.records import HIT_RATE
from innet.torch.tensors import Parameters, gradient_of, tensor, torch, unflatten

functional = torch.nn.functional

USERS, ITEMS = 2000, 1000
NEGATIVES = 4  # items that a user did not take beside each that they took, as in the paper
RIVALS = 99  # items that a user did not take, among which the held-out one is to be found
TAKEN = 22  # items of each user: two are held out
HIDDEN = 4
TASTE = 4.0
_SEED = 1031


def load(part: Part = "test") -> Data:
    """20 interactions of each user to train on, and one to judge by.

    Args:
        part: "test" holds each user's last interaction, "validation" the one before; neither is
            ever trained on.

    Returns:
        To train on: rows of a user, an item that they took and NEGATIVES that they did not, int64,
        shape (n, 2 + NEGATIVES), with targets 1 and 0, float32, shape (n, 1 + NEGATIVES). To judge
        by: rows of a user, the held-out item and RIVALS others, shape (USERS, 2 + RIVALS), with
        the place of the held-out item, 0, as target.
    """
    rng = np.random.default_rng(_SEED)
    keys = _keys(rng)
    order = np.argsort(-keys, axis=1)
    taken, refused = order[:, :TAKEN], order[:, TAKEN:]
    # The keys order the items by liking: shuffled, so that what is held out is not the dullest.
    taken = rng.permuted(taken, axis=1)
    held_out = taken[:, -1 if part == "test" else -2]
    train = taken[:, :-2]
    users = np.arange(USERS)
    rivals = np.stack([rng.choice(row, RIVALS, replace=False) for row in refused])
    negatives = np.stack([rng.choice(row, (train.shape[1], NEGATIVES)) for row in refused])
    rows = np.empty((USERS, train.shape[1], 2 + NEGATIVES), np.int64)
    rows[:, :, 0] = users[:, None]
    rows[:, :, 1] = train
    rows[:, :, 2:] = negatives
    rows = rng.permutation(rows.reshape(-1, 2 + NEGATIVES))
    liked = np.zeros((len(rows), 1 + NEGATIVES), np.float32)
    liked[:, 0] = 1
    judged = np.column_stack([users, held_out, rivals])
    return Data(Samples(rows, liked), Samples(judged, np.zeros(USERS, np.int64)))


def _keys(rng: np.random.Generator) -> NDArray[np.float64]:
    """Gumbel's trick: the items of the largest keys are a draw without replacement."""
    user = rng.standard_normal((USERS, HIDDEN))
    item = rng.standard_normal((ITEMS, HIDDEN))
    popularity = -np.log(rng.permutation(ITEMS) + 1.0)
    liking = TASTE * (user @ item.T) / math.sqrt(HIDDEN)
    keys: NDArray[np.float64] = popularity + liking + rng.gumbel(size=(USERS, ITEMS))
    return keys


def hit_rate(ranked: NDArray[np.float32], best: int = 10) -> float:
    """Share of users whose held-out item is among the ``best`` of those they are offered.

    Args:
        ranked: scores, shape (users, 1 + RIVALS), those of the held-out items first; among equal
            scores the held-out item comes last.
        best: how long the list is that a user looks at.
    """
    ahead = np.count_nonzero(ranked[:, 1:] >= ranked[:, :1], axis=1)
    return float(np.mean(ahead < best))


# ----------------------------------------------------------------------------
# The model.

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
        chance=10 / (1 + RIVALS),
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
        scores = _scores(unflatten(tensor(flat), SHAPES), tensor(samples.inputs))
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
