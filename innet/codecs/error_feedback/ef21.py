"""Error feedback ``ef21``: what is sent corrects an estimate of the gradient, and the sum of the
estimates is the result.

Richtárik, Sokolov, Fatkhullin: EF21: A new, simpler, theoretically better, and practically faster
error feedback, NeurIPS 2021, arXiv 2106.05203, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from innet.codecs.checks import check_selected
from innet.codecs.error_feedback.residual import HARMLESS, loaded
from innet.codecs.optional_methods import ReplacesSum
from innet.codecs.parts import (
    LEAVES_RESIDUAL,
    Capabilities,
    ErrorFeedback,
    Floats,
    Ints,
    PartContext,
    Selector,
    SelectSteps,
    SparseValues,
    loaded_step,
)
from innet.core.errors import GradientError, StateError
from innet.core.numbers import FLOAT32_INFINITY, FLOAT32_MAX
from innet.core.settings import Settings


class Ef21(ErrorFeedback[Settings], ReplacesSum):
    """Each worker has an estimate h of its gradient, 0 at first, and the sum H of all workers'.

        c = selected of (gradient - h)        h <- h + c        H <- H + sum of the workers' c

    H is the result of the all-reduce. It is dense, although only c is sent. All workers have the
    same H: they add the same decoded sums, in float32. The estimates are kept in float32, too.

    H differs from the sum of the estimates by the rounding of the quantizer and of float32. This
    error adds up over the all-reduces; nothing corrects it. With quantizers ``fixed``, ``exact``
    and ``thc`` (whose error goes into h) it stays near the rounding of float32. A quantizer with
    few levels whose error is not fed back is a poor choice here.

    An exchange that is given up changes nothing. A worker that is left out of an all-reduce keeps
    its estimate, and the others' H still contains it. A worker that comes back takes over the
    others' H. The estimate of a worker that has left for good remains in H.

    Differences with the paper: h starts at 0 instead of a compressed first gradient; the first
    all-reduce makes it that. There is no server: H is kept by all workers.
    """

    name = "ef21"
    capabilities = Capabilities(
        requires={
            LEAVES_RESIDUAL: "an estimate is for selectors that leave something behind, and this "
            "one leaves nothing; use error_feedback 'none'."
        },
        linear=False,
    )

    def __init__(self, parameters: Settings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self.estimate: Floats | None = None
        self.total: Floats | None = None
        self._step = 0
        self._reach = 0.0  # no element of the estimate is larger in magnitude
        self._sent: SparseValues | None = None
        self._next_total: Floats | None = None

    def check(self, gradient: Floats) -> None:
        for array in (self.estimate, self.total):
            if array is not None and array.size != gradient.size:
                raise StateError(
                    f"the estimate of worker {self.context.worker} has {array.size} elements, the "
                    f"gradient {gradient.size}; use one codec for each tensor layout."
                )
        if self._reach >= HARMLESS:
            self._difference(gradient)

    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> SelectSteps:
        """What the selector chooses of gradient - estimate.

        Raises:
            StateError: the estimate belongs to a gradient of another length.
            GradientError: gradient - estimate is beyond float32; nothing has changed.
        """
        self._sent = self._next_total = None
        difference = self._difference(gradient)
        selected = yield from selector.choose(difference, workers)
        check_selected(selected, gradient.size, f"selector {selector.name!r}")
        self._sent = selected
        return selected

    def set_sent(self, values: Floats) -> None:
        if self._sent is not None:
            self._sent = self._sent[0], values

    def result(self, total: Floats) -> Floats:
        before = np.zeros_like(total) if self.total is None else self.total
        self._next_total = _sum(before, total)
        return self._next_total.copy()

    def rollback(self) -> None:
        self._sent = self._next_total = None

    def commit(self, applied: Ints | None) -> None:
        if self._sent is None or self._next_total is None:
            return
        (indices, values), size = self._sent, self._next_total.size
        if applied is not None:
            positions = np.arange(size, dtype=np.int32) if indices is None else indices
            kept = np.isin(positions, applied, assume_unique=True)
            indices, values = positions[kept], values[kept]
        # A new array: a snapshot may hold the one before.
        new = np.zeros(size, np.float32) if self.estimate is None else self.estimate.copy()
        index = slice(None) if indices is None else indices
        values = _sum(new[index], values)
        new[index] = values
        self._reach = max(self._reach, float(np.abs(values).max(initial=0)))
        self.estimate, self.total = new, self._next_total
        self._step += 1
        self._sent = self._next_total = None

    def common(self) -> tuple[object, ...]:
        return (self._step,)

    def adopt(self, state: Mapping[str, Any]) -> None:
        self._step, self.total = loaded_step(state), loaded(state["total"], "total")

    def state_dict(self) -> dict[str, Any]:
        return {
            key: array if array is None or isinstance(array, int) else array.copy()
            for key, array in self.snapshot().items()
        }

    def snapshot(self) -> dict[str, Any]:
        return {"step": self._step, "estimate": self.estimate, "total": self.total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._expect(state, {"step", "estimate", "total"})
        step = loaded_step(state)
        estimate, total = (loaded(state[key], key) for key in ("estimate", "total"))
        if estimate is not None and total is not None and estimate.size != total.size:
            raise StateError(
                f"the saved estimate has {estimate.size} elements, the total {total.size}; they "
                "are of different tensor layouts."
            )
        self._step, self.estimate, self.total = step, estimate, total
        self._reach = 0.0 if estimate is None else float(np.abs(estimate).max(initial=0))
        self._sent = self._next_total = None

    def _difference(self, gradient: Floats) -> Floats:
        """Gradient - estimate, a new array.

        Raises:
            GradientError: it is beyond float32.
        """
        if self.estimate is None:
            return gradient.copy()
        difference, bits = self.context.kernels.add_scaled(gradient, self.estimate, -1.0)
        if bits >= FLOAT32_INFINITY:
            *_, bad = self.context.kernels.absmax_nnz(difference)
            raise GradientError(
                f"the gradient of worker {self.context.worker} minus its estimate overflows "
                f"float32 at index {bad} ({gradient[bad]} - {self.estimate[bad]}); scale the "
                "gradients down."
            )
        return difference


def _sum(one: Floats, other: Floats) -> Floats:
    """The sum, at most float32's largest number: an infinite one would stay so for ever."""
    with np.errstate(over="ignore"):
        both: Floats = one + other
    return np.clip(both, -FLOAT32_MAX, FLOAT32_MAX, out=both)
