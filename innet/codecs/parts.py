"""What a codec is composed of: the base classes of its parts, and their capabilities.

    gradient ─ error feedback, selector ─► Selection ─ quantizer ─► Contribution ─ carrier ─► Total

A part belongs to one worker's codec. Whatever changes the words that are sent, it decides by data
that is the same on all workers: its settings, the gradient's size, the number of workers and what
the network answered. So all workers send segments of equal operations and lengths without being
told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from innet.codecs.checks import check_selected
from innet.codecs.layers import Shapes
from innet.core.errors import CompositionError, StateError
from innet.core.numbers import is_int
from innet.core.reduce_op import Segment
from innet.core.settings import Settings
from innet.kernels import Kernels

# Properties that parts provide and require. Third parties' parts may add their own words.

# Of selectors.
SAME_INDICES = "same indices"  # all workers select the same coordinates
INCLUDES_LARGEST = "includes the largest"  # the element of largest magnitude is always selected
COEFFICIENTS = "coefficients"  # what is sent is not elements but factors that make them
# Of selectors and quantizers: something stays behind that a later all-reduce can send.
LEAVES_RESIDUAL = "leaves a residual"
# Of quantizers.
INT32 = "int32"  # int32 words whose sum over the workers fits, one or several for each element
ONE_INTEGER_PER_ELEMENT = "one integer per element"
SMALL_INTEGERS = "small integers"  # their bound is known, and usually far below int32's
# Values are rounded to either neighbor, not to the nearest alone.
STOCHASTIC_ROUNDING = "stochastic rounding"
# The integers of an element belong to it alone, and are zero where it is zero.
KEEPS_ZEROS = "keeps zeros"
# Of carriers: each word of a sum is one integer of one element, and nothing else.
ONE_VALUE_PER_WORD = "one value per word"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one part declares. Defaults are those of a part that does not care.

    Attributes:
        provides: properties that other parts may rely on.
        requires: properties that some part must provide, each with the reason.
        summable: what leaves the part can be combined in the network, without knowing indices.
        fixed_size: how many words it sends depends on the gradient's size alone.
        rounds: how many exchanges over the network it adds, the fewest and the most, besides the
            handshake, which every codec has.
        integer_width: bits of the integers it makes, None where it makes none.
        overflow_bound: the largest magnitude of these integers, for N workers, as a formula.
        index: how the receiver knows which coordinates arrived: "none", "bitmap", ...
        metadata: words besides values, for d elements, as a formula.
        lossless: the integers arrive exactly.
        linear: the decoded sum is the sum of the workers' values, each off by a step of
            1 / ``Scaling.scale`` at most. A quantizer whose sums mean something else (a vote by
            majority, say) declares False: nobody then compares the two.
        wraps: its sums may leave int32 and mean what they are modulo 2**32; switches that keep
            such sums at the end of the range are not for it.
    """

    provides: frozenset[str] = frozenset()
    requires: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    summable: bool = True
    fixed_size: bool = True
    rounds: tuple[int, int] = (0, 0)
    integer_width: int | None = None
    overflow_bound: str | None = None
    index: str | None = None
    metadata: str = "0"
    lossless: bool = True
    linear: bool = True
    wraps: bool = False


def check_composition(parts: Mapping[str, tuple[str, Capabilities]]) -> None:
    """Refuse parts that cannot work together.

    Args:
        parts: by kind ("selector", "carrier", ...) the name and the capabilities.

    Raises:
        CompositionError: names the part, what it needs, why, and which parts were chosen.
    """
    provided = frozenset[str]().union(*(each.provides for _, each in parts.values()))
    chosen = ", ".join(f"{kind} {name!r}" for kind, (name, _) in parts.items())
    for kind, (name, each) in parts.items():
        for needed, reason in each.requires.items():
            if needed not in provided:
                raise CompositionError(
                    f"{kind} {name!r} needs {needed!r}, which no other part provides: {reason} "
                    f"(chosen: {chosen})"
                )
        if not each.summable:
            raise CompositionError(
                f"{kind} {name!r} makes words that a switch cannot sum; choose another {kind} "
                f"(chosen: {chosen})"
            )


def joined_capabilities(parts: Iterable[Capabilities]) -> dict[str, Any]:
    """The capabilities of a whole codec, for people and for JSON."""
    each = list(parts)
    return {
        "summable": all(part.summable for part in each),
        "fixed_size": all(part.fixed_size for part in each),
        "lossless": all(part.lossless for part in each),
        "linear": all(part.linear for part in each),
        # One is the handshake.
        "rounds": [1 + sum(part.rounds[end] for part in each) for end in (0, 1)],
        "integer_width": next((part.integer_width for part in each if part.integer_width), None),
        "overflow_bound": next((part.overflow_bound for part in each if part.overflow_bound), None),
        "index": next((part.index for part in each if part.index), None),
        # Two words are the digest of the configuration.
        "metadata": " + ".join(["2", *(part.metadata for part in each if part.metadata != "0")]),
    }


# ----------------------------------------------------------------------------
# What passes between the parts.

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
CarrySteps = Generator[list[Segment], list[Ints], "Total"]
SparseValues = tuple[Ints | None, Floats]
"""Indices, ascending (None for all), and what is to be sent for them."""
SelectSteps = Generator[list[Segment], list[Ints], SparseValues]
SelectSumSteps = Generator[list[Segment], list[Ints], tuple[Ints | None, Floats | None]]

P = TypeVar("P", bound=Settings)


@dataclass(frozen=True, slots=True)
class Context:
    """What a part is built with besides its settings.

    Attributes:
        kernels: the functions that work on arrays.
        seed: for parts that hash; the same on all workers.
        worker: whose codec it is, for messages and for randomness that workers do not share.
        layers: shapes of the model's layers in the order of the gradient, None if not known.
    """

    kernels: Kernels
    seed: int = 0
    worker: int = 0
    layers: Shapes | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What a worker sends this time, before it is quantized.

    Attributes:
        size: coordinates in all: elements of the gradient, or coefficients that stand for it.
        indices: shape (m,), int32, ascending; None for all, 0 .. size - 1.
        values: shape (m,), float32.
        magnitude: the bits of max |values| as an integer, in the order of the magnitudes.
        nonzero: how many of the values are not zero.
    """

    size: int
    indices: Ints | None
    values: Floats
    magnitude: int
    nonzero: int


@dataclass(frozen=True, slots=True)
class Contribution:
    """A worker's integers: ``integers`` (m,) at ``indices`` (m,) of ``size``; None for all.

    ``size`` is the gradient's times ``limbs``: so many integers the quantizer makes of an element.
    ``shared`` where the selector says that the indices are the same on all workers. ``bound`` is
    the largest magnitude of any worker's integers, where the quantizer knows it.
    """

    size: int
    indices: Ints | None
    integers: Ints
    limbs: int = 1
    shared: bool = False
    bound: int | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of the workers' contributions; and what is worth reporting.

    Attributes:
        integers: shape (m,), int32.
        details: by name.
        indices: shape (m,), int32, ascending: where the integers belong, the others being zero;
            None for all, of which there are as many as the contributions' size.
    """

    integers: Ints
    details: dict[str, Any] = field(default_factory=dict)
    indices: Ints | None = None

    def dense(self, kernels: Kernels, size: int) -> Ints:
        """All integers, of contributions of that size."""
        if self.indices is None:
            return self.integers
        return kernels.scatter(self.indices, self.integers, size)


class Part(ABC, Generic[P]):
    """What all parts have.

    Attributes:
        kind: "selector", "quantizer", "carrier" or "error_feedback".
        name: under which it is registered.
        capabilities: what it can do and what it needs.
        settings: the model of its parameters; unknown ones are refused.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    capabilities: ClassVar[Capabilities] = Capabilities()
    settings: ClassVar[type[Settings]] = Settings

    def __init__(self, parameters: P, context: Context) -> None:
        self.parameters = parameters
        self.context = context

    def describe(self) -> str:
        """The name, and the parameters that differ from the defaults."""
        given = self.parameters.model_dump(exclude_defaults=True)
        inside = ", ".join(f"{key}={value}" for key, value in given.items())
        return f"{self.name}({inside})" if inside else self.name

    def common(self) -> tuple[object, ...]:
        """What the part remembers that must be the same on all workers; empty if nothing must.

        Workers compare a hash of it, as text, in every all-reduce.
        """
        return ()

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Take over from the saved state of another worker's part what must be the same on all."""
        del state

    def state_dict(self) -> dict[str, Any]:
        """What the part remembers from one all-reduce to the next; copies."""
        return {}

    def snapshot(self) -> dict[str, Any]:
        """``state_dict`` for as long as one all-reduce: without copies of arrays that the part
        replaces by others and does not write to.
        """
        return self.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` or ``snapshot`` returned.

        Raises:
            StateError: the state is not this part's.
        """
        self._expect(state, set())

    def _expect(self, state: Mapping[str, Any], keys: set[str]) -> None:
        if set(state) != keys:
            raise StateError(
                f"the saved state of {self.kind} {self.name!r} has the entries "
                f"{sorted(state) or 'none'}, not {sorted(keys) or 'none'}; it is another part's."
            )


class Selector(Part[P]):
    """Decides which coordinates are sent.

    Most selectors look at their own worker's data alone: they implement ``select``. One that asks
    the network first implements ``choose`` and says so by ``local = False``.

    Attributes:
        local: ``select`` is all there is.
        verbatim: the values sent are those of x, so that nothing of them stays behind.
        selects_nonfinite: what ``select_from_sum`` selects includes the largest element, and it
            takes a NaN for larger than anything.
        rank: this worker's place among those who take part in the all-reduce under way, from 0 on;
            None where the workers' numbers are their places. The codec sets it.
    """

    kind = "selector"
    local: ClassVar[bool] = True
    verbatim: ClassVar[bool] = True
    selects_nonfinite: ClassVar[bool] = False
    rank: int | None = None

    def check(self, gradient: Floats) -> None:
        """Refuse a gradient that ``choose`` could not take. Changes nothing.

        Raises:
            StateError: the selector's parameters or its memory are for another tensor layout.
        """

    def observe(self, gradient: Floats) -> None:
        """Receives the gradient alone before each choice; the error feedback calls it.

        The x that is chosen from is this gradient plus what was held back. The gradient may be read
        until the choice is made. It must not be modified.
        """

    @abstractmethod
    def select(self, x: Floats) -> SparseValues:
        """Indices, ascending (None for all), and the values there; x is not modified."""

    def select_from_sum(self, gradient: Floats, residual: Floats) -> tuple[SparseValues, Floats]:
        """``select`` of gradient + residual, and the rest: that sum with the selected elements set
        to zero, a new array. Override it where one pass can do both.
        """
        rest, _ = self.context.kernels.add_scaled(residual, gradient, 1.0)
        selected = self.select(rest)
        check_selected(selected, rest.size, f"selector {self.name!r}")
        indices, values = selected
        if indices is None:
            return (None, rest), np.zeros_like(rest)
        rest[indices] = 0
        return (indices, values), rest

    def choose(self, x: Floats, workers: int) -> SelectSteps:
        """What to send, after as many rounds over the network as it takes; x is not modified.

        Yields segments, is sent the combined words, and returns what ``select`` returns. An empty
        gradient takes no round.
        """
        del workers
        yield from ()
        return self.select(x)

    def choose_from_sum(self, gradient: Floats, memory: Floats, workers: int) -> SelectSumSteps:
        """``choose`` of memory + gradient. Override it where few of the sums are needed, or none.

        If the values are None, the sums at the indices are sent.
        """
        total, _ = self.context.kernels.add_scaled(memory, gradient, 1.0)
        selected = yield from self.choose(total, workers)
        check_selected(selected, total.size, f"selector {self.name!r}")
        return selected

    def to_coefficients(self, selected: SparseValues, size: int) -> tuple[int, SparseValues]:
        """What is quantized and sent for what ``choose`` returned.

        By default the chosen elements themselves. Override it together with ``from_coefficients``
        where coefficients are sent instead of elements.

        Returns:
            How many coordinates there are; which of them are sent, with which values.
        """
        return size, selected

    def from_coefficients(self, values: Floats, size: int) -> Floats:
        """The gradient, shape (size,), that values of those coordinates stand for.

        It is called with the decoded sum, and with what a worker's own integers stand for.
        """
        del size
        return values

    def applied_indices(self, total: Floats) -> Ints | None:
        """Which coordinates of the decoded sum, shape (d,), count; ascending, None for all.

        The others are zero in the result, and what workers sent for them counts as not sent. All
        workers see the same sum, and so return the same.
        """
        del total
        return None


class Scaling(ABC):
    """A quantizer's agreement with the other workers for one all-reduce.

    Attributes:
        scale: integers per unit; 0 when every value of every worker is zero, and then nothing
            more is sent. ``quantize`` and ``dequantize`` are called all the same, and return zeros.
            A quantizer with a scale of its own choice, which asks nobody, does not know, and may
            give it always.
        may_overflow: sums may leave int32; whoever runs the exchange looks whether one did.
        finite: whatever the integers, none stands for more than float32's largest number.
        bound: the largest magnitude of any worker's integers, None if not known.
    """

    scale: float
    may_overflow: bool = False
    finite: bool = False
    bound: int | None = None

    @abstractmethod
    def quantize(self, values: Floats) -> Ints:
        """Integers, of the same shape, whose sum over all workers cannot overflow."""

    @abstractmethod
    def dequantize(self, integers: Ints) -> Floats:
        """The sum of the workers' integers as float32."""

    def after_overflow(self) -> Scaling:
        """What to go on with after a sum has left int32; of scalings that may overflow only."""
        raise AssertionError(f"{type(self).__name__} promises that no sum leaves int32")

    def contribute(self, selection: Selection) -> Contribution:
        """The integers of a selection. Override it where an element takes several."""
        integers = self.quantize(selection.values)
        return Contribution(selection.size, selection.indices, integers, bound=self.bound)

    def represented(self, contribution: Contribution) -> Floats | None:
        """What this worker's own integers stand for, for each value of the selection, where the
        difference is to be fed back; None where it is not.
        """
        del contribution
        return None

    def restore(self, total: Ints, size: int) -> Floats:
        """The sum of the workers' contributions as float32, shape (size,)."""
        del size
        return self.dequantize(total)


class Quantizer(Part[P]):
    """Decides how floats become integers."""

    kind = "quantizer"

    @abstractmethod
    def announce(self, selection: Selection) -> list[Segment]:
        """What the workers must combine before they can quantize: a list, empty if nothing."""

    @abstractmethod
    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        """What follows from the combined announcements.

        Args:
            answers: an array for each segment of ``announce``, of its length.
            workers: how many take part.
        """


class Carrier(Part[P]):
    """Decides how chosen integers become words that a switch can sum without knowing indices."""

    kind = "carrier"

    @abstractmethod
    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        """What the workers must combine before the carrier can size its words."""

    @abstractmethod
    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> CarrySteps:
        """One all-reduce of integers that are not all zero.

        Yields segments, is sent the combined words, and returns the total.

        Args:
            contribution: this worker's integers.
            answers: the combined announcements.
            workers: how many take part.
            watch: to be told when decoding begins.
        """


class ErrorFeedback(Part[P]):
    """Decides what happens to what was not sent."""

    kind = "error_feedback"

    def check(self, gradient: Floats) -> None:
        """Refuse a gradient that ``choose`` could not take. Changes nothing.

        Raises:
            GradientError, StateError: what is wrong with the gradient, or with what was held back.
        """

    def checks_finite(self, selector: Selector[Any]) -> bool:
        """Whether ``choose`` itself refuses a gradient that is not finite, before anything has
        changed. The codec then spares the reading for that check.
        """
        del selector
        return False

    @abstractmethod
    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> SelectSteps:
        """What the selector chooses of the gradient and of what was held back."""

    def set_sent(self, values: Floats) -> None:
        """These values were sent, not those that were selected.

        Called with what the integers of the last selection stand for, if the quantizer wants its
        error to be fed back.
        """
        del values

    def rollback(self) -> None:
        """The last selection did not arrive: keep it for the next time."""

    def commit(self, applied: Ints | None) -> None:
        """The last selection arrived; of it, only the coordinates in ``applied`` counted (None:
        all). What the worker sent for others is kept for the next time.
        """
        del applied


# ----------------------------------------------------------------------------
# Parts that count the all-reduces: to hash anew, to take turns, to warm up.


class StepCounter(Part[P]):
    """``self._step`` is a number of all-reduces, 0 at first, and all of the part's state.

    The part itself decides when one counts. A selector adds 1 in ``applied_indices``, which is
    called once in each all-reduce that succeeds.
    """

    def __init__(self, parameters: P, context: Context) -> None:
        super().__init__(parameters, context)
        self._step = 0

    def common(self) -> tuple[object, ...]:
        return (self._step,)

    def adopt(self, state: Mapping[str, Any]) -> None:
        self._step = loaded_step(state)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._expect(state, {"step"})
        self._step = loaded_step(state)


def loaded_step(state: Mapping[str, Any]) -> int:
    """The entry "step" of a saved state.

    Raises:
        StateError: it is not a number of all-reduces.
    """
    step = state["step"]
    if not is_int(step) or step < 0:
        raise StateError(f"the saved number of all-reduces is {step!r}, not a count.")
    return step


# ----------------------------------------------------------------------------
# Where the seconds of an exchange go. The clock is passed in.

Clock = Callable[[], float]  # seconds, from any origin, never going back


class Stopwatch:
    """Adds up seconds by phase; stands still while the network has its turn.

    Attributes:
        seconds: by phase.
        rounds: how often the network had its turn.
    """

    def __init__(self, clock: Clock, phase: str) -> None:
        self.seconds: dict[str, float] = {}
        self.rounds = 0
        self._clock = clock
        self._phase = phase
        self._since: float | None = None

    def enter(self, phase: str) -> None:
        """What follows counts for this phase."""
        running = self._since is not None
        self.stop()
        self._phase = phase
        if running:
            self.start()

    def start(self) -> None:
        self._since = self._clock()

    def pause(self) -> None:
        """The network has its turn, until ``start``."""
        self.stop()
        self.rounds += 1

    def stop(self) -> None:
        if self._since is not None:
            spent = self._clock() - self._since
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + spent
            self._since = None
