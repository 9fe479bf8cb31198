"""Hypothesis strategies: the gradients of a job's workers, with all that makes them awkward."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

FLOAT32 = np.finfo(np.float32)
LARGEST = float(FLOAT32.max)
TINIEST = float(FLOAT32.smallest_subnormal)

# One below, at and above what kernels do at a time: words of a bitmap, vectors, blocks of lanes.
SIZES = (0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 65, 257, 1001, 4099)
# Large enough for the sampled path of top-k, and past a multiple of its stretches.
LARGE_SIZES = (1 << 15, (1 << 15) + 1, 70_001)

EXTREMES = (
    0.0, -0.0, TINIEST, -TINIEST, 3 * TINIEST, float(FLOAT32.smallest_normal), 1e-30, -1.0, 1.0,
    1.0000001, 1e30, LARGEST, -LARGEST, LARGEST / 2, 2.0**-24, 16777217.0,
)  # fmt: skip

KINDS = ("normal", "normal", "heavy", "equal", "zero", "extreme", "integers", "blocks")

seeds = st.integers(0, 2**32 - 1)


def sizes(large: bool = False) -> st.SearchStrategy[int]:
    """Numbers of elements: the edges, anything small, and large ones if wanted."""
    choices = [st.sampled_from(SIZES), st.integers(0, 600)]
    if large:
        choices.append(st.sampled_from(LARGE_SIZES))
    return st.one_of(choices)


def densities() -> st.SearchStrategy[float]:
    """Shares of elements that are not zero: both ends, and what is typical between."""
    return st.sampled_from((0.0, 0.001, 0.01, 0.05, 0.3, 1.0))


def parts_of(size: int) -> tuple[NDArray[np.int64], ...]:
    """Parts of so many elements with their chunks, for ``add_scaled_argmax``: none, all, some."""
    if not size:
        return (np.empty((0, 3), np.int64),)
    third = max(1, size // 3)
    some = [(0, third, 3), (min(third + 1, size - 1), size, 100)]
    return tuple(np.array(each, np.int64) for each in ([(0, size, 16)], some))


class Recipe(NamedTuple):
    """What a gradient looks like, but for its random numbers."""

    kind: str
    value: float  # of all elements, where they are equal
    density: float


@st.composite
def recipes(draw: st.DrawFn, kind: str | None = None) -> Recipe:
    kind = draw(st.sampled_from(KINDS)) if kind is None else kind
    value = draw(st.sampled_from(EXTREMES)) if kind == "equal" else 0.0
    return Recipe(kind, value, 0.0 if kind in {"equal", "zero"} else draw(densities()))


def make(recipe: Recipe, size: int, seed: int | list[int]) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    kind = recipe.kind
    if kind == "equal":
        return np.full(size, recipe.value, np.float32)
    if kind == "zero":
        return np.zeros(size, np.float32)
    if kind == "extreme":
        values = rng.choice(np.array(EXTREMES, np.float32), size)
    elif kind == "integers":
        values = rng.integers(-3, 4, size).astype(np.float32)  # many equal magnitudes
    elif kind == "heavy":
        values = (rng.standard_cauchy(size) * 10.0 ** rng.integers(-20, 20)).astype(np.float32)
    else:
        values = rng.standard_normal(size).astype(np.float32)
    keep = rng.random(size) < recipe.density
    if kind == "blocks":  # rows of an embedding: runs of neighbors that are zero together
        keep = np.repeat(rng.random(-(-size // 16)) < recipe.density, 16)[:size]
    return np.where(keep, values, np.float32(0))


@st.composite
def vectors(draw: st.DrawFn, size: int, kind: str | None = None) -> NDArray[np.float32]:
    """One gradient of ``size`` elements."""
    return make(draw(recipes(kind)), size, draw(seeds))


@st.composite
def jobs(draw: st.DrawFn, max_workers: int = 32, large: bool = False) -> list[NDArray[np.float32]]:
    """The gradients of 1 to ``max_workers`` workers, all of one size.

    Up to four look different; of more workers, several look alike, with other numbers: drawing
    takes longer than most codecs do.
    """
    workers = draw(st.sampled_from([n for n in (1, 2, 3, 4, 8, 31, 32) if n <= max_workers]))
    size = draw(sizes(large and workers <= 4))
    same_support, seed = draw(st.booleans()), draw(seeds)
    different = [draw(recipes()) for _ in range(min(workers, 4))]
    gradients = [
        make(recipe, size, [seed, worker])
        for worker, recipe in zip(range(workers), itertools.cycle(different), strict=False)
    ]
    if same_support:
        keep = gradients[0] != 0
        gradients = [np.where(keep, each, np.float32(0)) for each in gradients]
    return gradients
