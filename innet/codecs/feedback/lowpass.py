"""Feedback ``lowpass``: a residual that takes in only a part of what was not sent.

Chen et al., "ScaleCom: Scalable sparsified gradient compression for communication-efficient
distributed training", NeurIPS 2020, Algorithm 1.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from innet.codecs.capabilities import REST, Capabilities
from innet.codecs.feedback.residual import Residual, left_over
from innet.codecs.parts import Choice, Context, Floats, Ints, Selector
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
        self._exchange: tuple[Floats, Floats] | None = None  # gradient and x while one runs

    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> Choice:
        """What the selector chooses of memory + gradient.

        Raises:
            StateError: the memory belongs to a gradient of another length.
            GradientError: memory + gradient is beyond float32; the memory is unchanged.
        """
        self.check(gradient)
        if self.residual is None:
            self.residual = np.zeros(gradient.size, np.float32)
        x = self.residual + gradient
        self._exchange = gradient, x
        selector.observe(gradient)
        indices, values = yield from selector.choose(x, workers)
        self._sent = indices, values
        return indices, values

    def amend(self, values: Floats) -> None:
        if self._sent is not None:
            self._sent = self._sent[0], values

    def undo(self) -> None:
        """All of x stays in the memory, as ``residual`` does it."""
        if self._exchange is not None:
            _, self.residual = self._exchange
            self._reach = _FLOAT32_MAX
        self._exchange = self._sent = None

    def settle(self, applied: Ints | None) -> None:
        """Filter: what did not count is as if it had not been sent."""
        if self._sent is None or self._exchange is None or self.residual is None:
            return
        indices, values = self._sent
        gradient, x = self._exchange
        if applied is not None:
            places = np.arange(values.size, dtype=np.int32) if indices is None else indices
            counted = np.isin(places, applied, assume_unique=True)
            indices, values = places[counted], values[counted]
        place = slice(None) if indices is None else indices
        memory = self.residual
        # Adding 0 makes a +0 of -0, which ``residual`` has where everything was sent.
        rest = left_over(x[place], values)
        kept = (1 - self._beta) * memory[place] + self._beta * rest + np.float32(0)
        memory += self._beta * gradient
        memory[place] = kept
        self._reach = _FLOAT32_MAX
        self._exchange = self._sent = None
