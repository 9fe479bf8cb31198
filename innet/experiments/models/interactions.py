"""Who liked what: synthetic interactions with Zipf popularity and a planted structure.

Users and items have hidden vectors, normal in HIDDEN dimensions; item i has popularity 1 / rank. A
user takes items without replacement, each with a probability proportional to

    popularity · exp(TASTE · (user · item) / √HIDDEN),

so that a model that learns the vectors ranks better than one that knows the popularity alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from innet.experiments.models.model import Part
from innet.experiments.samples import Data, Samples

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
