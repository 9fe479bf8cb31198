"""Error feedback ``residual``: what was not sent is added to the next gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from innet.codecs.checks import check_gradient, check_selected
from innet.codecs.optional_methods import SelectsFromSum
from innet.codecs.parts import (
    INCLUDES_LARGEST,
    LEAVES_RESIDUAL,
    Capabilities,
    ErrorFeedback,
    Floats,
    Ints,
    PartContext,
    Selector,
    SelectSteps,
    SparseValues,
)
from innet.core.errors import GradientError, StateError
from innet.core.numbers import FLOAT32_MAX
from innet.core.settings import Settings

# Half the distance to the float32 that would follow the largest: what is smaller cannot push a
# finite gradient over the edge.
HARMLESS = 2.0**103


class Residual(ErrorFeedback[Settings]):
    """With x = gradient + residual: sent + new residual == x, bit for bit.

    The selected float32 values are subtracted from the residual. The quantizer's error is fed back
    only if the quantizer asks for it: "sent" is then the value that the integers represent
    (``Scaling.represented``). In this case, and if a selector sends other values than those of x
    (``Selector.verbatim``), the residual is x - sent, rounded to float32.
    """

    name = "residual"
    capabilities = Capabilities(
        requires={
            LEAVES_RESIDUAL: "a residual keeps what the selector leaves behind, and this one "
            "leaves nothing; use error_feedback 'none'."
        }
    )

    def __init__(self, parameters: Settings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self.residual: Floats | None = None
        self._reach = 0.0  # no element of the residual is larger in magnitude
        self._sent: tuple[Ints | None, Floats] | None = None

    def check(self, gradient: Floats) -> None:
        """See ``choose``; nothing is changed."""
        if self.residual is None:
            return
        if self.residual.size != gradient.size:
            raise StateError(
                f"the residual of worker {self.context.worker} has {self.residual.size} elements, "
                f"the gradient {gradient.size}; use one codec for each tensor layout."
            )
        if self._reach >= HARMLESS:
            self._check_sum(gradient, self.residual)

    def checks_finite(self, selector: Selector[Any]) -> bool:
        return selector.local and selector.verbatim and selector.selects_nonfinite

    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> SelectSteps:
        """What the selector chooses of gradient + residual. A new array becomes the residual.

        Raises:
            StateError: the residual belongs to a gradient of another length.
            GradientError: gradient + residual is beyond float32, or the gradient is not finite; the
                residual is unchanged.
        """
        self.check(gradient)
        residual = self._so_far(gradient)
        # From here on the gradient is in the residual, wherever the exchange may end.
        if selector.local and selector.verbatim:
            (indices, values), rest = self._select(selector, gradient, residual)
            if selector.selects_nonfinite and not np.isfinite(values).all():
                self._check_sum(gradient, residual)
            self.residual, self._sent = rest, (indices, values)
        else:
            self.residual, _ = self.context.kernels.add_scaled(residual, gradient, 1.0)
            self._reach = FLOAT32_MAX
            selected = yield from selector.choose(self.residual, workers)
            check_selected(selected, gradient.size, f"selector {selector.name!r}")
            indices, values = selected
            index = slice(None) if indices is None else indices
            before = self.residual[index].copy()
            self._sent = indices, before
            # A selector that sends everything may return x itself: subtract into a new array first.
            rest = residual_of(before, values)
            values = values if indices is not None else values.copy()
            self.residual[index] = rest
        # The largest element was among the selected, so it is no smaller than what stays.
        known = INCLUDES_LARGEST in selector.capabilities.provides and selector.verbatim
        self._reach = float(np.abs(values).max(initial=0)) if known else FLOAT32_MAX
        return indices, values

    def set_sent(self, values: Floats) -> None:
        if self._sent is not None and self.residual is not None:
            indices, before = self._sent
            index = slice(None) if indices is None else indices
            self.residual[index] = residual_of(before, values)
            self._reach = FLOAT32_MAX

    def rollback(self) -> None:
        """Put what was selected back: the gradient is in the residual, as if k had been 0."""
        if self._sent is not None and self.residual is not None:
            indices, values = self._sent
            self.residual[slice(None) if indices is None else indices] = values
        self._sent = None

    def commit(self, applied: Ints | None) -> None:
        if applied is not None and self._sent is not None and self.residual is not None:
            indices, values = self._sent
            if indices is None:
                indices = np.arange(values.size, dtype=np.int32)
            lost = ~np.isin(indices, applied, assume_unique=True)
            self.residual[indices[lost]] = values[lost]
            self._reach = FLOAT32_MAX
        self._sent = None

    def state_dict(self) -> dict[str, Any]:
        return {"residual": None if self.residual is None else self.residual.copy()}

    def snapshot(self) -> dict[str, Any]:
        return {"residual": self.residual}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._expect(state, {"residual"})
        residual = loaded(state["residual"], "residual")
        self.residual = residual
        self._reach = 0.0 if residual is None else float(np.abs(residual).max(initial=0))
        self._sent = None

    def _select(
        self, selector: Selector[Any], gradient: Floats, residual: Floats
    ) -> tuple[SparseValues, Floats]:
        """What it selects of gradient + residual; and a new array with the rest."""
        if isinstance(selector, SelectsFromSum):
            return selector.select_from_sum(gradient, residual)
        rest, _ = self.context.kernels.add_scaled(residual, gradient, 1.0)
        selected = selector.select(rest)
        check_selected(selected, rest.size, f"selector {selector.name!r}")
        indices, values = selected
        if indices is None:
            return (None, rest), np.zeros_like(rest)
        rest[indices] = 0
        return (indices, values), rest

    def _so_far(self, gradient: Floats) -> Floats:
        return np.zeros(gradient.size, np.float32) if self.residual is None else self.residual

    def _check_sum(self, gradient: Floats, residual: Floats) -> None:
        check_gradient(gradient, self.context.worker)
        with np.errstate(over="ignore"):
            *_, bad = self.context.kernels.absmax_nnz(gradient + residual)
        if bad >= 0:
            raise GradientError(
                f"the gradient of worker {self.context.worker} plus its residual overflows float32 "
                f"at index {bad} ({gradient[bad]} + {residual[bad]}); scale the gradients down."
            )


def residual_of(x: Floats, sent: Floats) -> Floats:
    """X - sent, at most float32's largest number: what a selector or a quantizer makes of elements
    near it may have the other sign.
    """
    with np.errstate(over="ignore"):
        rest: Floats = x - sent
    return np.clip(rest, -FLOAT32_MAX, FLOAT32_MAX, out=rest)


def loaded(array: Any, what: str) -> Floats | None:
    """A copy of an array out of a saved state; None stands for none yet.

    Raises:
        StateError: it is not what is held back of a gradient; names it as ``what``.
    """
    if array is None:
        return None
    floats: Floats = np.array(array)
    if floats.dtype != np.float32 or floats.ndim != 1:
        raise StateError(
            f"the saved {what} is {floats.dtype} of shape {floats.shape}, not float32 of one "
            "dimension."
        )
    if not np.isfinite(floats).all():
        raise StateError(f"the saved {what} has values that are not finite.")
    return floats
