"""Error feedback ``momentum``: momentum accumulates where nothing is sent, and is reset elsewhere.

Lin et al., "Deep gradient compression: Reducing the communication bandwidth for distributed
training", ICLR 2018, arXiv 1712.01887, sections 3.2 (momentum correction, local clipping) and 3.3
(momentum factor masking).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field

from innet.codecs.checks import check_selected
from innet.codecs.error_feedback.residual import Residual, loaded, residual_of
from innet.codecs.optional_methods import ObservesGradient
from innet.codecs.parts import (
    INCLUDES_LARGEST,
    LEAVES_RESIDUAL,
    Capabilities,
    Floats,
    Ints,
    PartContext,
    Selector,
    SelectSteps,
)
from innet.core.errors import GradientError, StateError
from innet.core.numbers import FLOAT32_MAX
from innet.core.settings import Settings

_STRETCH = 1 << 16  # elements that go through all three steps before they leave the cache


class MomentumSettings(Settings):
    """Momentum and clipping of a gradient before it is accumulated.

    Attributes:
        momentum: share of the last velocity in the next one, 0 to below 1. The optimizer that takes
            the sum must not have a second momentum.
        clip: largest norm of the sum of all workers' gradients, in their unit: each is scaled down
            to a norm of clip / sqrt(workers). Without, nothing is clipped.
    """

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    clip: Annotated[float, Field(gt=0)] | None = None


class Momentum(Residual):
    """With a velocity u and a residual v, both zero at first, and a gradient g:

        u <- momentum · u + g        v <- v + u        x = v

    and u = 0, v = x - sent where the selector sends. So with selectors that send x itself, sent +
    new v == x, bit for bit. Every operation is one of float32, rounded once. If an exchange
    is given up, u and v are as if nothing had been selected. So they are at coordinates that were
    sent but not applied.

    The clipping by N^(-1/2) is for gradients of N workers that are independent, whose sum then has
    a norm of about ``clip``; the norm is that of the whole gradient, in float64. Of the paper's
    clipping we know only this factor, so there is no clipping by default. With momentum = 0
    and no clipping this is ``residual``.
    """

    name = "momentum"
    capabilities = Capabilities(
        requires={
            LEAVES_RESIDUAL: "momentum correction is for what the selector leaves behind, and "
            "this one leaves nothing; use error_feedback 'none'."
        }
    )
    settings = MomentumSettings

    def __init__(self, parameters: MomentumSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self.velocity: Floats | None = None
        self._momentum = np.float32(parameters.momentum)
        self._clip = parameters.clip
        self._masked = np.empty(0, np.float32)  # the velocity where the last selection was made

    def with_parameters(self, parameters: Settings) -> Self:
        """Its arrays are not copied."""
        assert isinstance(parameters, MomentumSettings)
        part = type(self)(parameters, self.context)
        part.residual, part._reach, part.velocity = self.residual, self._reach, self.velocity
        return part

    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> SelectSteps:
        """What the selector chooses of the residual; u and v are updated in place.

        Raises:
            StateError: the residual belongs to a gradient of another length.
            GradientError: the sums may leave float32; nothing has changed.
        """
        self.check(gradient)
        if self.residual is None or self.velocity is None:
            self.residual = np.zeros(gradient.size, np.float32)
            self.velocity = np.zeros(gradient.size, np.float32)
        # From here on the gradient is in both, wherever the exchange may end.
        self._reach = FLOAT32_MAX
        fresh = self._clipped(gradient, workers)
        for start in range(0, fresh.size, _STRETCH):
            part = slice(start, start + _STRETCH)
            velocity, residual = self.velocity[part], self.residual[part]
            velocity *= self._momentum
            velocity += fresh[part]
            residual += velocity
        if isinstance(selector, ObservesGradient):
            selector.observe(self.velocity)
        selected = yield from selector.choose(self.residual, workers)
        check_selected(selected, gradient.size, f"selector {selector.name!r}")
        indices, values = selected
        index = slice(None) if indices is None else indices
        before = self.residual[index].copy()
        self._sent, self._masked = (indices, before), self.velocity[index].copy()
        # A selector that sends everything may return x itself: subtract into a new array first.
        rest = residual_of(before, values)
        values = values if indices is not None else values.copy()
        self.residual[index] = rest
        self.velocity[index] = 0
        if INCLUDES_LARGEST in selector.capabilities.provides and selector.verbatim:
            fastest, *_ = self.context.kernels.absmax_nnz(self.velocity)
            self._reach = _reach(float(np.int32(fastest).view(np.float32)), values)
        return indices, values

    def rollback(self) -> None:
        """As if nothing had been selected: the gradient is in the velocity and the residual."""
        if self._sent is not None and self.velocity is not None:
            indices, _ = self._sent
            self.velocity[slice(None) if indices is None else indices] = self._masked
            self._reach = FLOAT32_MAX
        super().rollback()

    def commit(self, applied: Ints | None) -> None:
        if applied is not None and self._sent is not None and self.velocity is not None:
            indices, _ = self._sent
            if indices is None:
                indices = np.arange(self._masked.size, dtype=np.int32)
            lost = ~np.isin(indices, applied, assume_unique=True)
            self.velocity[indices[lost]] = self._masked[lost]
        super().commit(applied)

    def state_dict(self) -> dict[str, Any]:
        velocity = None if self.velocity is None else self.velocity.copy()
        return {**super().state_dict(), "velocity": velocity}

    def checks_finite(self, selector: Selector[Any]) -> bool:
        del selector
        return False

    def snapshot(self) -> dict[str, Any]:
        return self.state_dict()  # it adds to both in place

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._expect(state, {"residual", "velocity"})
        velocity, residual = (loaded(state[key], key) for key in ("velocity", "residual"))
        sizes = [None if each is None else each.size for each in (velocity, residual)]
        if sizes[0] != sizes[1]:
            raise StateError(
                f"the saved velocity and residual have {sizes[0]} and {sizes[1]} elements; they "
                "are of different tensor layouts."
            )
        super().load_state_dict({"residual": residual})
        self.velocity = velocity
        if velocity is not None:
            self._reach = _reach(self._reach, velocity)

    def _clipped(self, gradient: Floats, workers: int) -> Floats:
        """The gradient, scaled down where it is longer than its share of the clipping norm."""
        if self._clip is None:
            return gradient
        _, squares = self.context.kernels.moments(gradient, 0.0, 0.0)
        length, longest = math.sqrt(squares), self._clip / math.sqrt(workers)
        if length <= longest:
            return gradient
        return (gradient * np.float64(longest / length)).astype(np.float32)

    def _check_sum(self, gradient: Floats, residual: Floats) -> None:
        """Clipping is not known here, so the magnitudes are added up: whatever part of the gradient
        is taken, no sum is larger.
        """
        if self.velocity is None:
            return
        with np.errstate(over="ignore"):
            magnitudes = np.abs(self.velocity) * self._momentum
            magnitudes += np.abs(residual)
            magnitudes += np.abs(gradient)
        *_, bad = self.context.kernels.absmax_nnz(magnitudes)
        if bad >= 0:
            raise GradientError(
                f"the gradient of worker {self.context.worker} may overflow float32 at index {bad} "
                f"({gradient[bad]}, with velocity {self.velocity[bad]} and residual "
                f"{residual[bad]}); scale the gradients down."
            )


def _reach(largest: float, values: Floats) -> float:
    """Twice the largest magnitude: what ``Residual`` knows to be harmless in one addition, u and v,
    half as large, are in the two that follow each other here.
    """
    return 2 * max(largest, float(np.abs(values).max(initial=0)))
