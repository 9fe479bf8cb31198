"""Feedback ``lowpass``: a residual that takes in only a part of what was not sent.

Chen et al., "ScaleCom: Scalable sparsified gradient compression for communication-efficient
distributed training", NeurIPS 2020, Algorithm 1.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from innet.codecs.capabilities import REST, Capabilities
from innet.codecs.feedback.residual import Residual, left_over
from innet.codecs.parts import Choice, Context, Floats, Ints, Selector, gathered
from innet.config import Settings

_FLOAT32_MAX = float(np.finfo(np.float32).max)


class LowPassSettings(Settings):
    """The filter.

    Attributes:
        beta: share of the new in the memory, above 0, at most 1. 1 is feedback ``residual``; the
            paper uses 0.1 to 0.3, and 0.1 for large batches.
    """

    beta: Annotated[float, Field(gt=0, le=1)] = 0.1


class LowPass(Residual):
    """A worker selects of x = m + g, its memory and its gradient, and then

        m <- (1 - beta) · m + beta · (m + g - sent).

    This first-order filter is the update of the paper's Algorithm 1 as the project's specification
    of it states it. It is the same filter as m <- m + beta · (g - sent). Computed, in float32:

    - where nothing was sent, m + beta · g, the second form;
    - where the element was sent as it was, (1 - beta) · m, to which both forms come;
    - where another value than x was sent, (1 - beta) · m + beta · (x - sent), the first form.

    With beta = 1 these are x, 0 and x - sent: ``residual``, bit for bit. With a smaller beta it is
    not true that sent + new memory = x: the memory forgets (1 - beta) · g of what was not sent, and
    keeps (1 - beta) · m of what was.

    An all-reduce that fails leaves all of x in the memory, as with ``residual``. State and errors
    are those of ``residual``. It takes twice the memory of a gradient while an all-reduce runs.
    """

    name = "lowpass"
    capabilities = Capabilities(
        requires={
            REST: "a memory keeps what the selector leaves behind, and this one leaves nothing; "
            "use feedback 'none'."
        }
    )
    settings = LowPassSettings

    def __init__(self, parameters: LowPassSettings, context: Context) -> None:
        super().__init__(parameters, context)
        self._beta = np.float32(parameters.beta)
        # While one runs: the gradient, the memory as it is where nothing is sent, its largest.
        self._exchange: tuple[Floats, Floats, float] | None = None
        self._own: Floats | None = None  # x where something was sent, if it is known

    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> Choice:
        """What the selector chooses of memory + gradient.

        Raises:
            StateError: the memory belongs to a gradient of another length.
            GradientError: memory + gradient is beyond float32, or the gradient is not finite; the
                memory is unchanged.
        """
        self.check(gradient)
        memory, kernels = self._so_far(gradient), self.context.kernels
        kept, bits = kernels.add_scaled(memory, gradient, float(self._beta))
        largest = float(np.int32(bits).view(np.float32))
        if not math.isfinite(largest):
            self._check_sum(gradient, memory)
        self.residual = memory
        self._exchange = gradient, kept, largest
        selector.observe(gradient)
        indices, values = yield from selector.choose_from_sum(gradient, memory, workers)
        self._sent = indices, values
        self._own = values if selector.verbatim else None
        return indices, values

    def notices(self, selector: Selector[Any]) -> bool:
        del selector
        return True

    def amend(self, values: Floats) -> None:
        if self._sent is not None:
            self._sent = self._sent[0], values

    def undo(self) -> None:
        """All of x stays in the memory, as ``residual`` does it."""
        if self._exchange is not None and self.residual is not None:
            gradient, *_ = self._exchange
            self.residual, _ = self.context.kernels.add_scaled(self.residual, gradient, 1.0)
            self._reach = _FLOAT32_MAX
        self._exchange = self._sent = self._own = None

    def settle(self, applied: Ints | None) -> None:
        """Filter: what did not count is as if it had not been sent."""
        if self._sent is None or self._exchange is None or self.residual is None:
            return
        indices, values = self._sent
        gradient, kept, largest = self._exchange
        own = self._own
        if applied is not None:
            places = np.arange(values.size, dtype=np.int32) if indices is None else indices
            counted = np.isin(places, applied, assume_unique=True)
            indices, values = places[counted], values[counted]
            own = None if own is None else own[counted]
        memory = self._at(self.residual, indices)
        if own is None:
            own = memory + self._at(gradient, indices)
        # Adding 0 makes a +0 of -0, which ``residual`` has where everything was sent.
        rest = left_over(own, values)
        new = (1 - self._beta) * memory + self._beta * rest + np.float32(0)
        kept[slice(None) if indices is None else indices] = new
        self.residual = kept
        self._reach = max(largest, float(np.abs(new).max(initial=0)))
        self._exchange = self._sent = self._own = None

    def _at(self, x: Floats, indices: Ints | None) -> Floats:
        return x if indices is None else gathered(self.context.kernels, x, indices)
