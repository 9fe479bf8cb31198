"""The base classes of a codec's parts, and their capabilities.

    gradient ─ error feedback, selector ─► Selection ─ quantizer ─► Contribution ─ carrier ─► Total

A part belongs to one worker's codec. The operations and lengths of the segments that it sends
depend only on data that is the same on all workers: its settings, the gradient's size, the number
of workers and the answers of the network. So all workers send equal segments without coordination.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from innet.codecs.decode_once import Decoding
from innet.codecs.layers import Shapes
from innet.core.errors import CompositionError, StateError
from innet.core.float_sums import FloatSum
from innet.core.numbers import FLOAT32_MAX, is_int
from innet.core.reduce_op import FloatSegment, ReduceOp, Segment
from innet.core.settings import Settings
from innet.core.shards import Shards
from innet.kernels import Kernels

# Properties that parts provide and require. Other distributions' parts may add properties.

# Of selectors.
SAME_INDICES = "same indices"
"""Capability: all workers select the same coordinates."""
INCLUDES_LARGEST = "includes the largest"
"""Capability: the element of largest magnitude is always selected."""
COEFFICIENTS = "coefficients"
"""Capability: the values sent are factors from which the elements are computed."""
# Of selectors and quantizers.
LEAVES_RESIDUAL = "leaves a residual"
"""Capability: a residual remains that a later all-reduce can send."""
# Of quantizers.
INT32 = "int32"
"""Capability: int32 words whose sum over the workers fits, one or several for each element."""
ONE_INTEGER_PER_ELEMENT = "one integer per element"
"""Capability: each element is one integer."""
SMALL_INTEGERS = "small integers"
"""Capability: the integers have a known bound, usually far below that of int32."""
STOCHASTIC_ROUNDING = "stochastic rounding"
"""Capability: values are rounded up or down at random, not to the nearest integer."""
MAY_OVERFLOW = "may overflow"
"""Capability: sums may leave int32, and are repeated with smaller integers then."""
KEEPS_ZEROS = "keeps zeros"
"""Capability: each integer belongs to one element, and is zero if the element is zero."""
FLOAT_WORDS = "float words"
"""Capability: the words are floats, which the switch adds as such (``FloatSum``)."""
ROUNDED_ONCE = "rounded once"
"""Capability: the decoded sum is the float32 nearest to the true sum of what was selected."""
# Of carriers.
SUMS_FLOATS = "sums floats"
"""Capability: words are summed by the operation that the contribution names."""
ONE_VALUE_PER_WORD = "one value per word"
"""Capability: each word of a sum is one integer of one element."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one part declares. The defaults are neutral.

    Attributes:
        provides: properties that other parts may rely on.
        requires: properties that some part must provide, each with the reason.
        summable: the network can combine its words without knowing indices.
        fixed_size: the number of words depends on the gradient's size alone.
        rounds: the fewest and the most rounds that it adds to the handshake, which every codec has.
        integer_width: bits of its integers, None if it makes none.
        overflow_bound: the largest magnitude of these integers, for N workers, as a formula.
        index: how the receiver knows which coordinates arrived: "none", "bitmap", ...
        metadata: words besides values, for d elements, as a formula.
        lossless: the integers arrive exactly.
        linear: the decoded sum is the sum of the workers' values, each with an error of at most
            1 / ``Scaling.scale``. A quantizer whose sums mean something else (a majority vote, for
            example) declares False, and so does an error feedback with another ``result``. The
            sums are then not compared.
        wraps: its sums are modulo 2**32. Switches that saturate sums do not suit it.
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
        parts: name and capabilities by kind ("selector", "carrier", ...).

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
    """The capabilities of a codec, for display and for JSON."""
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
# Data that parts exchange.

Floats = NDArray[np.float32]
"""An array of float32."""
Ints = NDArray[np.int32]
"""An array of int32."""
Longs = NDArray[np.int64]
"""An array of int64."""
CarrySteps = Generator[list[Segment], list[Ints], "Total"]
"""What `Carrier.carry` returns: yields segments, is sent combined words, returns the total."""
SparseValues = tuple[Ints | None, Floats]
"""Ascending indices (None for all), and the values to send for them."""
SelectSteps = Generator[list[Segment], list[Ints], SparseValues]
"""What `Selector.choose` returns: it may yield segments, and returns coordinates and values."""
SelectSumSteps = Generator[list[Segment], list[Ints], tuple[Ints | None, Floats | None]]
"""As `SelectSteps`, of selectors that know the sum already."""

P = TypeVar("P", bound=Settings)
"""The settings of a part."""


@dataclass(frozen=True, slots=True)
class PartContext:
    """Arguments of a part besides its settings.

    Attributes:
        kernels: the functions that work on arrays.
        seed: for parts that hash; the same on all workers.
        worker: index of the worker, for messages and for random numbers that differ by worker.
        layers: shapes of the model's layers in the order of the gradient, None if unknown.
        decoding: what the workers of this process share to decode equal words once; None for what
            ``decoding_by`` has set, or each for itself.
    """

    kernels: Kernels
    seed: int = 0
    worker: int = 0
    layers: Shapes | None = None
    decoding: Decoding | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The values that a worker sends, before they are quantized.

    Attributes:
        size: number of coordinates: elements of the gradient, or coefficients.
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
    """A worker's integers: ``words`` (m,) at ``indices`` (m,) of ``size``; None for all.

    ``words`` may be a ``FloatSegment``, of which they are made later; ``integers`` are the words
    themselves. ``size`` is the gradient's size times ``limbs``, the number of integers per element.
    ``shared``: the indices are the same on all workers. ``bound``: the largest magnitude of any
    worker's integers, if the quantizer knows it. ``shards``: each worker needs the sum of its own
    part only, this one is ``worker``; carriers that ``scatters`` look at it. ``operation``: by
    which words are summed; carrier dense looks at it.
    """

    size: int
    indices: Ints | None
    words: Ints | FloatSegment
    limbs: int = 1
    shared: bool = False
    bound: int | None = None
    shards: Shards | None = None
    worker: int = 0
    operation: ReduceOp | FloatSum = ReduceOp.SUM

    @property
    def integers(self) -> Ints:
        """The integers, shape (m,). Of a ``FloatSegment`` as long as its values are unchanged."""
        return self.words.words if isinstance(self.words, FloatSegment) else self.words


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of the workers' contributions, and details for reports.

    Attributes:
        integers: shape (m,), int32; empty if there are ``sums``.
        details: by name.
        indices: shape (m,), int32, ascending: indices of the integers, all others are zero; None
            for all indices, as many as the contributions' size.
        sums: shape (m,), float32: what the integers stand for, if that was made as they arrived.
    """

    integers: Ints
    details: dict[str, Any] = field(default_factory=dict)
    indices: Ints | None = None
    sums: Floats | None = None

    @classmethod
    def zero(cls) -> Total:
        """The sum where all elements of all workers are zero. Most quantizers know, and need no
        carrier then; those with a scale of their own choice do not, and a carrier may.
        """
        return cls(np.empty(0, np.int32), {"form": "zero"}, np.empty(0, np.int32))

    def dense(self, kernels: Kernels, size: int) -> Ints:
        """All integers as a dense array of that size.

        Raises:
            StateError: only what they stand for was kept.
        """
        if self.sums is not None:
            raise StateError(
                "the integers of this sum were not kept, as their floats were made when they "
                "arrived; make the worker with Worker(keep_integers=True)."
            )
        if self.indices is None:
            return self.integers
        return kernels.scatter(self.indices, self.integers, size)


class Part(ABC, Generic[P]):
    """Base class of all parts.

    Attributes:
        kind: "selector", "quantizer", "carrier" or "error_feedback".
        name: its registered name.
        capabilities: what it provides and requires.
        settings: the model of its parameters; unknown ones are refused.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    capabilities: ClassVar[Capabilities] = Capabilities()
    settings: ClassVar[type[Settings]] = Settings

    def __init__(self, parameters: P, context: PartContext) -> None:
        self.parameters = parameters
        self.context = context

    def describe(self, schedules: Mapping[str, object] = MappingProxyType({})) -> str:
        """The name, and the parameters that differ from the defaults or follow schedules."""
        given = {**self.parameters.model_dump(exclude_defaults=True), **schedules}
        inside = ", ".join(f"{key}={value}" for key, value in given.items())
        return f"{self.name}({inside})" if inside else self.name

    def with_parameters(self, parameters: P) -> Self:
        """This part with other parameters and the same state, for the next all-reduces.

        The codec calls it between all-reduces when a parameter follows a schedule. Override it if
        the state depends on the parameters, or if loading it takes time. It may return itself,
        changed.
        """
        part = type(self)(parameters, self.context)
        part.load_state_dict(self.snapshot())
        return part

    def common(self) -> tuple[object, ...]:
        """The state that must be the same on all workers; empty if there is none.

        Workers compare a hash of its text in every all-reduce.
        """
        return ()

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Adopt the state that must be the same on all, from another worker's saved state."""
        del state

    def state_dict(self) -> dict[str, Any]:
        """The state that is kept between all-reduces, as copies."""
        return {}

    def snapshot(self) -> dict[str, Any]:
        """``state_dict`` for the duration of one all-reduce: arrays that the part does not write to
        are not copied.
        """
        return self.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of ``state_dict`` or ``snapshot``.

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

    Most selectors use only data of their worker and implement ``select``. A selector that uses the
    network implements ``choose`` and sets ``local = False``. What few selectors need besides is in
    ``innet.codecs.optional_methods``.

    Attributes:
        local: only ``select`` is implemented.
        verbatim: the values sent are those of x, so they leave no residual.
        selects_nonfinite: ``select`` always selects the largest element, and treats NaN as larger
            than any number.
        rank: position of this worker among those who take part in the current all-reduce, from 0;
            None if it is the worker's index. The codec sets it.
        capabilities: unless the class says otherwise, it leaves a residual.
    """

    kind = "selector"
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL}))
    local: ClassVar[bool] = True
    verbatim: ClassVar[bool] = True
    selects_nonfinite: ClassVar[bool] = False
    rank: int | None = None

    def check(self, gradient: Floats) -> None:
        """Refuse a gradient that ``choose`` cannot use. It changes nothing.

        Raises:
            StateError: the selector's parameters or state are for another tensor layout.
        """

    @abstractmethod
    def select(self, x: Floats) -> SparseValues:
        """Ascending indices (None for all) and their values. It must not modify x."""

    def choose(self, x: Floats, workers: int) -> SelectSteps:
        """``select`` with rounds over the network. It must not modify x.

        It yields segments, is sent the combined words, and returns the same as ``select``. An empty
        gradient takes no rounds.
        """
        del workers
        yield from ()
        return self.select(x)

    def select_alone(self, x: Floats) -> SparseValues:
        """``choose`` of a single worker without a network, for a ``select`` that takes rounds."""
        choice = self.choose(x, 1)
        try:
            segments = next(choice)
            while True:
                segments = choice.send([segment.words for segment in segments])
        except StopIteration as stop:
            selected: SparseValues = stop.value
            return selected

    def commit(self) -> None:
        """The selection was summed; called once in each successful all-reduce."""


class Scaling(ABC):
    """The scale of one all-reduce, the same on all workers.

    Attributes:
        scale: integers per unit; 0 if all values of all workers are zero, and then nothing more is
            sent. ``quantize`` and ``dequantize`` are still called, and return zeros. A quantizer
            with a fixed scale may always give that.
        may_overflow: sums may exceed int32; the caller of the exchange checks for it, and the
            scaling has ``after_overflow`` (``innet.codecs.optional_methods``).
        finite: no integer stands for more than float32's largest number.
        bound: the largest magnitude of any worker's integers, None if unknown.
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

    def contribute(self, selection: Selection) -> Contribution:
        """The integers of a selection. Override it if an element has several integers."""
        integers = self.quantize(selection.values)
        return Contribution(selection.size, selection.indices, integers, bound=self.bound)

    def represented(self, contribution: Contribution) -> Floats | None:
        """The dequantized integers of this worker, for each value of the selection, if the error
        should be fed back; otherwise None.
        """
        del contribution
        return None

    def restore(self, total: Ints, size: int) -> Floats:
        """The sum of the workers' contributions as float32, shape (size,)."""
        del size
        return self.dequantize(total)


class Quantizer(Part[P]):
    """Decides how floats become integers.

    Attributes:
        capabilities: unless the class says otherwise, its integers are int32 words whose sum fits,
            and nothing is known of how many an element has.
        reach: the largest magnitude that it takes; a gradient beyond it is refused by a
            GradientError, on all workers.
    """

    kind = "quantizer"
    reach: float = FLOAT32_MAX
    capabilities = Capabilities(provides=frozenset({INT32}), integer_width=32)

    @property
    def scale_block(self) -> int:
        """Consecutive elements of the gradient for which it announces a word, whichever of them are
        selected; 0 if it announces none for blocks.
        """
        return 0

    @abstractmethod
    def largest_integer(self, workers: int) -> int:
        """The largest magnitude of a worker's integer when this number takes part, at least 1.

        The sum of all workers' integers and each partial sum stay in int32, unless
        ``Scaling.may_overflow`` says otherwise.

        Raises:
            InputError: no integers are small enough for this number of workers. The message says
                for how many they are, and what to choose instead.
        """

    def value_bits(self, workers: int) -> int:
        """Bits of an integer, with its sign, for this number of workers.

        Raises:
            InputError: as ``largest_integer``.
        """
        return self.largest_integer(workers).bit_length() + 1

    @abstractmethod
    def announce(self, selection: Selection) -> list[Segment]:
        """Segments that the workers combine before they can quantize; may be empty."""

    @abstractmethod
    def agree(self, answers: list[Ints], workers: int) -> Scaling:
        """The scaling from the combined announcements.

        Args:
            answers: an array for each segment of ``announce``, of its length.
            workers: the number of workers that take part.
        """


class Carrier(Part[P]):
    """Decides how integers become words that a switch can sum without knowing indices.

    Attributes:
        capabilities: unless the class says otherwise, it sends int32 words in one round.
        takes_floats: it can send a ``FloatSegment`` as it is.
        scatters: its words are those of elements, so that each worker can get the sum of a part of
            them alone: it sends them by ``innet.codecs.carriers.dense.sum_integers``.
    """

    kind = "carrier"
    takes_floats: ClassVar[bool] = False
    scatters: ClassVar[bool] = False
    capabilities = Capabilities(requires={INT32: "the switch adds 32-bit integers."}, rounds=(0, 1))

    @abstractmethod
    def announce(self, selection: Selection, workers: int) -> list[Segment]:
        """Segments that the workers combine before the carrier knows its number of words."""

    @abstractmethod
    def carry(
        self, contribution: Contribution, answers: list[Ints], workers: int, watch: Stopwatch
    ) -> CarrySteps:
        """One all-reduce of integers that are not all zero.

        Yields segments, is sent the combined words, and returns the total.

        Args:
            contribution: this worker's integers.
            answers: the combined announcements.
            workers: the number of workers that take part.
            watch: a stopwatch that is started when decoding begins.
        """


class ErrorFeedback(Part[P]):
    """Decides what happens to the values that were not sent.

    Its result is the decoded sum, unless it has ``result`` (``innet.codecs.optional_methods``).
    """

    kind = "error_feedback"

    def check(self, gradient: Floats) -> None:
        """Refuse a gradient that ``choose`` cannot use. It changes nothing.

        Raises:
            GradientError, StateError: the gradient or the residual is invalid.
        """

    def checks_finite(self, selector: Selector[Any]) -> bool:
        """Whether ``choose`` itself refuses a gradient that is not finite, before anything changes.
        The codec then skips its own check.
        """
        del selector
        return False

    @abstractmethod
    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> SelectSteps:
        """The selection from the gradient and the residual."""

    def set_sent(self, values: Floats) -> None:
        """Receives the values that were sent instead of those that were selected.

        These are the dequantized integers of the last selection, if the quantizer's error should be
        fed back.
        """
        del values

    def remembered(self) -> dict[str, Floats]:
        """What is kept for each element of the gradient: the arrays of ``snapshot``, by name, shape
        (d,). Not to be changed. Empty before the first all-reduce.
        """
        return {key: each for key, each in self.snapshot().items() if isinstance(each, np.ndarray)}

    def remember(self, arrays: Mapping[str, Floats | None]) -> None:
        """Take the place of ``remembered``; None for nothing."""
        if arrays:
            self.load_state_dict({**self.snapshot(), **arrays})

    def rollback(self) -> None:
        """The last selection did not arrive. Keep it for the next all-reduce."""

    def commit(self, applied: Ints | None) -> None:
        """The last selection arrived, and the coordinates ``applied`` of it (None: all) were
        applied. Keep the values of the others for the next all-reduce.
        """
        del applied


# ----------------------------------------------------------------------------
# Parts that count all-reduces, for new hashes, taking turns, or warm-up.


class StepCounter(Part[P]):
    """A part whose only state is ``self._step``, a number of all-reduces that starts at 0.

    Of a selector it counts those that succeeded. A quantizer increments it in ``agree``.
    """

    def __init__(self, parameters: P, context: PartContext) -> None:
        super().__init__(parameters, context)
        self._step = 0

    def commit(self) -> None:
        """See ``Selector.commit``."""
        self._step += 1

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
    step = state.get("step")
    if not is_int(step) or step < 0:
        raise StateError(f"the saved number of all-reduces is {step!r}, not a count.")
    return step


# ----------------------------------------------------------------------------
# Seconds of an exchange by phase. The clock is passed in.

Clock = Callable[[], float]  # seconds, from any origin, never going back
"""A function that returns seconds from any origin, never going back."""


class Stopwatch:
    """Adds up seconds by phase; it is stopped during rounds over the network.

    Attributes:
        seconds: by phase.
        rounds: number of rounds over the network.
    """

    def __init__(self, clock: Clock, phase: str) -> None:
        self.seconds: dict[str, float] = {}
        self.rounds = 0
        self._clock = clock
        self._phase = phase
        self._since: float | None = None

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        running = self._since is not None
        self.stop()
        self._phase = phase
        if running:
            self.start()

    def start(self) -> None:
        self._since = self._clock()

    def pause(self) -> None:
        """A round over the network begins; ``start`` ends it."""
        self.stop()
        self.rounds += 1

    def stop(self) -> None:
        if self._since is not None:
            spent = self._clock() - self._since
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + spent
            self._since = None
