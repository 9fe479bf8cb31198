"""Optimizers of ``torch.optim``, by name, for models whose parameters are one flat vector."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ConfigError, UnknownNameError
from innet.core.registry import split_name
from innet.torch.tensors import torch, unflatten

_OTHERWISE = {"Optimizer", "LBFGS", "SparseAdam"}  # no optimizer, or they need more than a gradient


def optimizer_named(described: str) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """The class and its settings, from a text such as "adamw:weight_decay=0.1".

    Raises:
        UnknownNameError: PyTorch has no optimizer of that name, in whatever case.
        ConfigError: a setting that the optimizer does not have, or its learning rate.
    """
    name, settings = split_name(described)
    known = {
        each.lower(): found
        for each, found in vars(torch.optim).items()
        if inspect.isclass(found)
        and issubclass(found, torch.optim.Optimizer)
        and each not in _OTHERWISE
    }
    if name.lower() not in known:
        raise UnknownNameError("optimizer", name, sorted(known))
    found = known[name.lower()]
    if "lr" in settings:
        raise ConfigError(f"optimizer {described!r}: give lr as learning_rate instead.")
    allowed = sorted(inspect.signature(found).parameters.keys() - {"params", "lr"})
    for each in settings:
        if each not in allowed:
            raise ConfigError(
                f"optimizer {name}: unknown key {each!r}. Known: {', '.join(allowed)}."
            )
    return found, settings


def default_rate(described: str) -> float:
    """The learning rate that PyTorch gives the optimizer.

    Raises:
        UnknownNameError, ConfigError: as ``optimizer_named``.
    """
    return float(inspect.signature(optimizer_named(described)[0]).parameters["lr"].default)


class FlatOptimizer:
    """Steps of an optimizer of PyTorch, on a flat vector in place.

    Args:
        described: as ``optimizer_named`` takes it.
        parameters: shape (elements,). The optimizer gets each layer as a tensor in its memory.
        shapes: of the layers.
        learning_rate: until the first step.

    Raises:
        ConfigError: settings, or shapes of layers, that the optimizer refuses.
    """

    def __init__(
        self,
        described: str,
        parameters: NDArray[np.float32],
        shapes: Mapping[str, tuple[int, ...]],
        learning_rate: float,
    ) -> None:
        kind, settings = optimizer_named(described)
        self._shapes = shapes
        self._layers = unflatten(torch.from_numpy(parameters), shapes)
        make: Any = kind
        try:
            self._optimizer = make([*self._layers.values()], lr=learning_rate, **settings)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(f"optimizer {described!r} cannot be used: {error}") from None

    def step(self, mean: NDArray[np.float32], learning_rate: float) -> None:
        """One step with the mean gradient, shape (elements,)."""
        for name, piece in unflatten(torch.from_numpy(mean), self._shapes).items():
            self._layers[name].grad = piece
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
