"""Error feedback ``lowpass``: a residual that accumulates only a part of the unsent values.

Chen et al., "ScaleCom: Scalable sparsified gradient compression for communication-efficient
distributed training", NeurIPS 2020, Algorithm 1.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import Field

from innet.codecs.checks import check_indices, check_selected
from innet.codecs.error_feedback.residual import Residual, residual_of
from innet.codecs.optional_methods import ChoosesFromSum
from innet.codecs.parts import (
    LEAVES_RESIDUAL,
    Capabilities,
    Floats,
    Ints,
    PartContext,
    Selector,
    SelectSteps,
    SelectSumSteps,
    SparseValues,
)
from innet.core.numbers import FLOAT32_INFINITY, FLOAT32_MAX
from innet.core.settings import Settings


class LowPassSettings(Settings):
    """The filter.

    Attributes:
        beta: share of the new in the memory, above 0, at most 1. 1 is error feedback ``residual``;
            the paper uses 0.1 to 0.3, and 0.1 for large batches.
    """

    beta: Annotated[float, Field(gt=0, le=1)] = 0.1


class _Filtered(NamedTuple):
    """What the memory becomes (kept) if x itself (local) is sent where it is known by now that
    something is; none of it is larger in magnitude than ``largest``.
    """

    memory: Floats
    gradient: Floats
    kept: Floats
    local: Floats
    largest: float


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

    An exchange that is given up leaves all of x in the memory, as with ``residual``. State and
    errors are those of ``residual``. It takes twice the memory of a gradient while an all-reduce
    runs.
    """

    name = "lowpass"
    capabilities = Capabilities(
        requires={
            LEAVES_RESIDUAL: "a memory keeps what the selector leaves behind, and this one leaves "
            "nothing; use error_feedback 'none'."
        }
    )
    settings = LowPassSettings

    def __init__(self, parameters: LowPassSettings, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._beta = np.float32(parameters.beta)
        self._gradient: Floats | None = None  # while an exchange is under way
        self._filtered: _Filtered | None = None

    def with_parameters(self, parameters: Settings) -> Self:
        """Its memory is not copied."""
        assert isinstance(parameters, LowPassSettings)
        part = type(self)(parameters, self.context)
        part.residual, part._reach = self.residual, self._reach
        return part

    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> SelectSteps:
        """What the selector chooses of memory + gradient.

        Raises:
            StateError: the memory belongs to a gradient of another length.
            GradientError: memory + gradient is beyond float32, or the gradient is not finite; the
                memory is unchanged.
        """
        self.check(gradient)
        memory = self._so_far(gradient)
        # What is taken in where nothing is sent, before anybody knows where that is: so whether the
        # gradient is finite is seen in the reading that has to be, and while another one leads.
        # The memory is read once, for this and for what the selector looks for in the sum.
        chunks = np.empty((0, 3), np.int64)
        if isinstance(selector, ChoosesFromSum):
            chunks = selector.chunks_of_sum(gradient.size, workers)
        taken, bits, largest = self.context.kernels.add_scaled_argmax(
            memory, gradient, float(self._beta), chunks
        )
        if bits >= FLOAT32_INFINITY:
            self._check_sum(gradient, memory)
        self.residual, self._gradient = memory, gradient
        indices, values = yield from self._selected(selector, gradient, memory, workers, largest)
        if indices is not None:
            check_indices(indices, np.size(indices), gradient.size, f"selector {selector.name!r}")
        filtered = self._filtered = self._filter(memory, gradient, indices, taken, bits)
        sent = filtered.local if values is None or selector.verbatim else values
        self._sent = indices, sent
        return indices, sent

    def _selected(
        self,
        selector: Selector[Any],
        gradient: Floats,
        memory: Floats,
        workers: int,
        largest: Ints,
    ) -> SelectSumSteps:
        """What it chooses of memory + gradient; values None for the sums themselves."""
        if isinstance(selector, ChoosesFromSum):
            return (yield from selector.choose_from_sum(gradient, memory, workers, largest))
        total, _ = self.context.kernels.add_scaled(memory, gradient, 1.0)
        selected = yield from selector.choose(total, workers)
        check_selected(selected, total.size, f"selector {selector.name!r}")
        return selected

    def checks_finite(self, selector: Selector[Any]) -> bool:
        del selector
        return True

    def set_sent(self, values: Floats) -> None:
        if self._sent is not None:
            self._sent = self._sent[0], values

    def rollback(self) -> None:
        """All of x stays in the memory, as ``residual`` does it."""
        if self._gradient is not None and self.residual is not None:
            self.residual, _ = self.context.kernels.add_scaled(self.residual, self._gradient, 1.0)
            self._reach = FLOAT32_MAX
        self._gradient = self._filtered = self._sent = None

    def commit(self, applied: Ints | None) -> None:
        """Filter: what did not count is as if it had not been sent."""
        if self._sent is None or self._filtered is None:
            return
        filtered, (_, values) = self._filtered, self._sent
        self.residual, self._reach = filtered.kept, filtered.largest
        if applied is not None or values is not filtered.local:
            self._reach = max(self._reach, self._filter_anew(filtered, self._sent, applied))
        self._gradient = self._filtered = self._sent = None

    def _filter(
        self, memory: Floats, gradient: Floats, indices: Ints | None, taken: Floats, bits: int
    ) -> _Filtered:
        """If x is sent at the indices, None for everywhere. ``bits`` are of the largest magnitude
        of ``taken``, memory + beta · gradient.
        """
        kernels = self.context.kernels
        if indices is not None:
            beta = float(self._beta)
            kept, local, there = kernels.low_pass(memory, gradient, beta, indices, taken)
            bits = max(bits, there)
        else:
            local, _ = kernels.add_scaled(memory, gradient, 1.0)
            # Adding 0 makes a +0 of -0, which ``residual`` has where everything was sent.
            kept = (1 - self._beta) * memory + np.float32(0)
            bits, *_ = kernels.absmax_nnz(kept)
        largest = float(np.int32(bits).view(np.float32))
        return _Filtered(memory, gradient, kept, local, largest)

    def _filter_anew(self, filtered: _Filtered, sent: SparseValues, applied: Ints | None) -> float:
        """Correct the new memory where other values than x were sent, or did not count.

        Returns:
            The largest magnitude there.
        """
        indices, values = sent
        index = slice(None) if indices is None else indices
        memory, gradient = filtered.memory[index], filtered.gradient[index]
        rest = residual_of(filtered.local, values)
        new = (1 - self._beta) * memory + self._beta * rest + np.float32(0)
        if applied is not None:
            positions = np.arange(values.size, dtype=np.int32) if indices is None else indices
            counted = np.isin(positions, applied, assume_unique=True)
            new = np.where(counted, new, memory + self._beta * gradient)
        filtered.kept[index] = new
        return float(np.abs(new).max(initial=0))
