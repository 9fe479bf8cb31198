"""Units: the parameters that are coded together, for the whole training.

DistributedDataParallel hands out gradients in buckets, and changes them: the first iteration's may
hold the whole model, the others' are made anew in the order in which gradients came. What a codec
holds back belongs to parameters, so it cannot depend on buckets. Units are cut once, from the
buckets of the first iteration; a unit is reduced when buckets have brought all of its parameters,
and a bucket is done when all units are that it has parameters of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs import SELECTORS, Codec, CodecSpec, ModelLayers
from innet.codecs.compose import normalise
from innet.core import buffers
from innet.torch.tensors import torch

Shape = tuple[int, ...]


@dataclass(slots=True)
class Unit:
    """Parameters in the order of the model.

    Attributes:
        index: units are numbered in the order in which they were cut.
        shapes: of its parameters; () for one number.
        codec: with what it holds back of them.
        gradient: room for theirs, shape (size,), float32.
    """

    index: int
    shapes: tuple[Shape, ...]
    codec: Codec
    sizes: list[int] = field(init=False)
    gradient: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = [numel(shape) for shape in self.shapes]
        # Kept: to touch fresh memory in every iteration takes longer than to copy into it. At the
        # beginning of a cache line: a codec reads it a third faster than where NumPy might put it.
        self.gradient = buffers.empty(self.size, np.float32)

    @property
    def size(self) -> int:
        """Elements of all its parameters."""
        return sum(self.sizes)


def numel(shape: Shape) -> int:
    """Elements of a parameter."""
    return torch.Size(shape).numel()


def layers(shapes: Sequence[Shape]) -> ModelLayers | None:
    """The shapes as a codec takes them: one number is a layer of one element, and a parameter
    without elements none.
    """
    return [shape or (1,) for shape in shapes if numel(shape)] or None


def cut(sizes: Sequence[int], enough: float) -> list[range]:
    """Where to cut a bucket of parameters into units of ``enough`` elements.

    From the end, since the gradients of the last parameters come first. As in PyTorch's buckets,
    the parameter with which a unit has enough is its last one.

    Args:
        sizes: elements of each parameter, in the order of the model.
        enough: elements; infinity makes one unit of all.

    Returns:
        Indices of the parameters of each unit, that of the last parameters first.
    """
    parts: list[range] = []
    stop, filled = len(sizes), 0
    for index in reversed(range(len(sizes))):
        filled += sizes[index]
        if filled >= enough:
            parts.append(range(index, stop))
            stop, filled = index, 0
    if stop:
        parts.append(range(stop))
    return parts


def spec_of_unit(spec: CodecSpec, *, first: bool) -> CodecSpec:
    """The codec's description for one unit.

    Args:
        spec: as the user gave it, for the whole model.
        first: whether the unit begins with the model's first parameter. Selectors that treat a
            model's first layer in another way (``first_dense``) must not do so in every unit.
    """
    described: dict[str, dict[str, Any]] = normalise(spec)
    selector = described["selector"]
    if not first and "first_dense" in SELECTORS.get(selector["name"]).settings.model_fields:
        selector = {**selector, "first_dense": False}
    return {**described, "selector": selector}
