"""Methods that some parts of a codec have besides those of their base class.

A part that has them derives from the class here, too. Parts without them are complete: what happens
then is said here. These are classes, not protocols: Python 3.11 takes 20 us or more to see whether
an object has the methods of a protocol, and a codec asks several times in an all-reduce.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from innet.codecs.parts import (
    Contribution,
    Floats,
    Ints,
    Longs,
    Scaling,
    Selection,
    SelectSumSteps,
    SparseValues,
)

# ----------------------------------------------------------------------------
# Of selectors.


class ObservesGradient(ABC):
    """A selector that wants the gradient besides x, the gradient with what error feedback adds."""

    @abstractmethod
    def observe(self, gradient: Floats) -> None:
        """Receives the gradient before each selection; of momentum the velocity.

        It may be read until the selection is made. It must not be modified.

        Args:
            gradient: shape (d,).
        """


class SelectsFromSum(ABC):
    """A selector that adds residual and gradient in the pass that selects. For others error
    feedback adds them first.
    """

    @abstractmethod
    def select_from_sum(self, gradient: Floats, residual: Floats) -> tuple[SparseValues, Floats]:
        """``Selector.select`` of gradient + residual, and the rest.

        Returns:
            Indices and values; a new array with the sum, its selected elements set to zero.
        """


class ChoosesFromSum(ABC):
    """A selector that needs few of the sums of memory and gradient. For others error feedback
    ``lowpass`` adds all of them.
    """

    @abstractmethod
    def chunks_of_sum(self, size: int, workers: int) -> Longs:
        """Parts of memory + gradient of whose chunks ``choose_from_sum`` wants the largest, for
        ``Kernels.add_scaled_argmax``: shape (p, 3), int64.
        """

    @abstractmethod
    def choose_from_sum(
        self, gradient: Floats, memory: Floats, workers: int, largest: Ints
    ) -> SelectSumSteps:
        """``Selector.choose`` of memory + gradient.

        Args:
            gradient: shape (d,).
            memory: shape (d,).
            workers: number of workers that take part.
            largest: the index of the largest magnitude of the sum in each of the chunks of
                ``chunks_of_sum``, ascending.

        Returns:
            Indices and values. If the values are None, the sums at the indices are sent.
        """


class SendsCoefficients(ABC):
    """A selector that sends coefficients from which the elements are computed. Others send the
    chosen elements.
    """

    @abstractmethod
    def to_coefficients(self, selected: SparseValues, size: int) -> tuple[int, SparseValues]:
        """The values to quantize and send for the result of ``Selector.choose``.

        Returns:
            The number of coordinates; indices and values of those that are sent.
        """

    @abstractmethod
    def from_coefficients(self, values: Floats, size: int) -> Floats:
        """The gradient, shape (size,), from coefficients.

        It is called with the decoded sum, and with the dequantized integers of this worker.
        """


class AppliesPart(ABC):
    """A selector that decides from the sum what of it is applied. Of others all is."""

    @abstractmethod
    def applied_indices(self, total: Floats) -> Ints | None:
        """The coordinates of the decoded sum, shape (d,), that are applied; ascending, None for
        all.

        The others are zero in the result, and the values that workers sent for them return to the
        error feedback. All workers have the same sum, so they return the same indices.
        """


class CountsBits(ABC):
    """A selector whose paper counts another coding than words that a switch can sum."""

    @abstractmethod
    def counted_bits(self, indices: Ints | None, size: int) -> tuple[int, ...]:
        """What the paper counts for this worker's selection, in bits by layer.

        The layers are those of the context; a gradient without layers is one.

        Args:
            indices: as ``Selector.select`` returned them.
            size: elements of the gradient.
        """


# ----------------------------------------------------------------------------
# Of an error feedback, and of a quantizer's scaling.


class ReplacesSum(ABC):
    """An error feedback whose result is not the decoded sum."""

    @abstractmethod
    def result(self, total: Floats) -> Floats:
        """The result of the all-reduce from the decoded sum, shape (d,).

        It is called once in each successful all-reduce, before ``ErrorFeedback.commit``, with the
        same sum on all workers. It must not change what ``state_dict`` returns.
        """


class Defers(ABC):
    """A scaling whose integers can be made as they are sent."""

    @abstractmethod
    def defer(self, selection: Selection) -> Contribution | None:
        """``Scaling.contribute`` by a ``FloatSegment``; None if these integers cannot be made
        later.
        """


class RepeatsAfterOverflow(ABC):
    """A scaling with ``may_overflow``."""

    @abstractmethod
    def after_overflow(self) -> Scaling:
        """The scaling to use after a sum exceeded int32."""
