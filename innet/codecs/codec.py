"""A codec: four parts, and the sequence in which one all-reduce uses them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from innet import kernels as kernel_sets
from innet.codecs.adascale import square_of_words, square_words
from innet.codecs.checks import (
    GradientStats,
    check_array,
    check_form,
    check_gradient,
    check_selected,
    gradient_stats,
)
from innet.codecs.handshake import ConfigDigest, Handshake
from innet.codecs.layers import check_layers
from innet.codecs.optional_methods import (
    AppliesPart,
    CountsBits,
    Defers,
    ObservesGradient,
    RepeatsAfterOverflow,
    ReplacesSum,
    SendsCoefficients,
)
from innet.codecs.parts import (
    FLOAT_WORDS,
    KEEPS_ZEROS,
    LEAVES_RESIDUAL,
    MAY_OVERFLOW,
    ONE_INTEGER_PER_ELEMENT,
    SAME_INDICES,
    SMALL_INTEGERS,
    Carrier,
    Clock,
    Contribution,
    ErrorFeedback,
    Floats,
    Ints,
    PartContext,
    Quantizer,
    Scaling,
    Selection,
    Selector,
    SelectSteps,
    SparseValues,
    Stopwatch,
    Total,
    joined_capabilities,
    loaded_step,
)
from innet.codecs.scheduled import (
    ScheduledSettings,
    scheduled_keys,
    spec_as_text,
    without_schedules,
)
from innet.core.errors import CompositionError, InputError, OverflowedError, StateError
from innet.core.not_copyable import NotCopyable
from innet.core.reduce_op import FloatSegment, ReduceOp, Segment
from innet.core.settings import validate
from innet.core.shards import Shards

_STATE_VERSION = 3
_ELEMENTWISE = {ONE_INTEGER_PER_ELEMENT, KEEPS_ZEROS}  # what is zero need not be decoded
_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)
_MANY = 8  # elements for each that is not zero: then they are listed, and the zeros not quantized


@dataclass(frozen=True, slots=True)
class SumOptions:
    """What the caller of an all-reduce knows of its gradient, and would do with the sum.

    The gradient does not change before the all-reduce has ended. So its words may be made as they
    are sent, and the caller's work be done as sums arrive, in the same pass over the memory.

    Attributes:
        stats: what ``Codec.examine`` found in the gradient, if it is finite; it is then not read
            for this again. None if nobody has asked.
        keep_integers: the outcome has the integers of the sum (``integer_sum``). Otherwise they may
            become floats as they arrive, which is faster (``FloatSegment``).
        factor: the caller multiplies the sum by it, unless ``ExchangeOutcome.factor_left`` says
            that this was done on the way.
        overwrite: the sum may be written over the gradient, which is then lost, also if the
            all-reduce fails.
        shards: the worker needs the sum of its own part only, as in a reduce-scatter. The sum of
            others' parts is then this worker's gradient, quantized.
    """

    stats: GradientStats | None = None
    keep_integers: bool = False
    factor: float = 1.0
    overwrite: bool = False
    shards: Shards | None = None


_NO_OPTIONS = SumOptions(keep_integers=True)


@dataclass(frozen=True, slots=True)
class ExchangeOutcome:
    """One worker's result of an all-reduce. The caller may keep the arrays.

    Attributes:
        sum: shape (d,), float32: the decoded sum, or what the error feedback makes of it; in the
            gradient's memory, if the options say ``overwrite`` and it was decoded into that.
        total: the sum of all workers' integers; ``integer_sum`` is its dense form.
        scale: integers per unit of the gradient; 0 if everything was zero.
        indices: shape (m,), int32, ascending: this worker's selection; None for everything.
        sent: shape (m,), float32: the selected values. If everything was selected it is the
            caller's gradient itself, and where that may be overwritten, it was.
        represented: shape (m,), float32: this worker's dequantized integers, if the quantizer's
            error is fed back; otherwise None. Without error feedback only with ``keep_integers``.
        contribution: this worker's integers and their indices.
        applied: shape (a,), int32, ascending: the coordinates of the sum that are applied, if the
            selector decides that from the sum; the others are 0 in ``sum``. None for all.
        rounds: rounds over the network.
        infinite: number of elements of the sum beyond float32.
        details: what the carrier reports, by name.
        encode_seconds: seconds until the last words of the main round were sent.
        decode_seconds: seconds after that, without the network's time.
        factor_left: what the caller has still to multiply the sum by: the options' ``factor``, or 1
            if that was done on the way.
        groups: of a codec by layer, the outcomes of its groups; otherwise empty.
    """

    sum: Floats
    total: Total
    scale: float
    indices: Ints | None
    sent: Floats
    represented: Floats | None
    contribution: Contribution
    applied: Ints | None
    rounds: int
    infinite: int
    details: dict[str, Any]
    encode_seconds: float
    decode_seconds: float
    factor_left: float = 1.0
    groups: tuple[ExchangeOutcome, ...] = ()

    @property
    def integer_sum(self) -> Ints:
        """The sum of integers, dense: int32, shape (d,) or the size of contributions."""
        return self.total.dense(kernel_sets.get("cpu"), self.contribution.size)


Stages = Generator[list[Segment], list[Ints], ExchangeOutcome]


class _Sums(NamedTuple):
    """What is to be decoded: integers of contributions of that size, for ``size`` coordinates."""

    total: Total
    scaling: Scaling
    integers: int
    size: int


class _Finished(NamedTuple):
    """The sum as the caller gets it: multiplied by the options' factor or not. ``applied`` and
    ``infinite`` are those of ``ExchangeOutcome``.
    """

    result: Floats
    applied: Ints | None
    infinite: int
    multiplied: bool


class Codec(NotCopyable):
    """One worker's codec, with its state between all-reduces.

    ``innet.codecs.build_codec`` makes it. The codecs of all workers of a job have the same
    description and seed, and take part in the same all-reduces.
    """

    instead_of_a_copy = "build another from its spec (build_codec), and load its state_dict there"

    def __init__(
        self,
        *,
        selector: Selector[Any],
        quantizer: Quantizer[Any],
        carrier: Carrier[Any],
        error_feedback: ErrorFeedback[Any],
        spec: Mapping[str, Mapping[str, Any]],
        context: PartContext,
        clock: Clock,
        settings: Mapping[str, ScheduledSettings],
        description: str | None = None,
        scope: str = "",
        gain: bool = False,
    ) -> None:
        self.selector = selector
        self.quantizer = quantizer
        self.carrier = carrier
        self.error_feedback = error_feedback
        self._spec = spec
        self._context = context
        self._clock = clock
        self._settings = settings
        self._scheduled = any(each.schedules for each in settings.values())
        self._step = 0  # completed all-reduces
        self._one_in = _MANY if KEEPS_ZEROS in carrier.capabilities.requires else None
        self._busy = False
        self._may_overflow = False
        self._options = _NO_OPTIONS  # of the exchange under way
        self._multiplies = False  # sums on the way, by the options' factor
        self._seed_and_layers = f"seed {context.seed}"
        if context.layers is not None:
            self._seed_and_layers += f", layers {context.layers}"
        if scope:  # what of a model it is for, the same on all workers
            self._seed_and_layers += f", {scope}"
        self._gain = gain
        if gain:
            self._check_gain()
            self._seed_and_layers += ", with squares for the gain"
        self._composition = " + ".join(
            part.describe(settings[kind].schedules) for kind, part in self._parts().items()
        )
        self._description = description or self._composition

    @property
    def wraps(self) -> bool:
        """Whether it needs sums modulo 2**32; see ``Capabilities``."""
        return any(part.capabilities.wraps for part in self._parts().values())

    @property
    def sends_floats(self) -> bool:
        """Whether its words are floats, which the switch has to add as such."""
        return FLOAT_WORDS in self.quantizer.capabilities.provides

    @property
    def may_overflow(self) -> bool:
        """Whether sums of the current round may exceed int32. If one did, ``OverflowedError`` must
        be thrown into ``exchange`` on all workers instead of the answers. It then repeats the
        round.
        """
        return self._may_overflow

    @property
    def keeps_state(self) -> bool:
        """Whether what was not sent is kept for later all-reduces of the same tensor."""
        leaves = LEAVES_RESIDUAL in self.selector.capabilities.provides
        return leaves or self.error_feedback.name != "none"

    @property
    def momentum(self) -> bool | None:
        """Whether the codec has the momentum, which the optimizer must not have then; None if it
        has it for some layers only.
        """
        return self.error_feedback.name == "momentum"

    @property
    def is_verbatim(self) -> bool:
        """Whether what is sent are elements as they are."""
        return self.selector.verbatim

    def by_layer(self) -> dict[str, str]:
        """The description of each layer's codec, by the layer's name; empty if all have this."""
        return {}

    def value_bits(self, workers: int) -> int:
        """Bits of a worker's integer, with its sign, for this number of workers.

        Raises:
            InputError: the quantizer has no room for that number; says what to choose instead.
        """
        return self.quantizer.value_bits(workers)

    def hints(self) -> tuple[str, ...]:
        """What of its parts saves nothing together, a sentence or two each; mostly none."""
        quantizer, carrier, selector = self.quantizer, self.carrier, self.selector
        chooses = SAME_INDICES not in selector.capabilities.provides
        if carrier.name == "packed" and chooses:
            return (
                f"Carrier packed sends every element, also those that {selector.name} leaves out. "
                "Carrier lhc sends those that are chosen, each as a word of 32 bits.",
            )
        if quantizer.scale_block and selector.name != "all":
            return (
                f"Quantizer {quantizer.name} announces a word for each {quantizer.scale_block} "
                f"elements of the gradient, though {selector.name} sends few of them; block=0 has "
                "one scale for all.",
            )
        if SMALL_INTEGERS in quantizer.capabilities.provides and carrier.name != "packed":
            remedy = (
                "packed, which packs integers, would send every element. Quantizer fixed is more "
                "exact with as many bytes."
                if chooses
                else "carrier packed puts several into a word."
            )
            return (
                f"The small integers of {quantizer.name} save no bytes: carrier {carrier.name} "
                f"sends each as a word of 32 bits; {remedy}",
            )
        return ()

    def counted_bits(self, outcome: ExchangeOutcome) -> tuple[int | None, ...] | None:
        """What the selector's paper counts for an outcome of this codec, in bits by layer.

        None for layers, or for all, of which only the bytes on the wire are counted.
        """
        if not isinstance(self.selector, CountsBits):
            return None
        return self.selector.counted_bits(outcome.indices, outcome.sum.size)

    @property
    def spec(self) -> dict[str, Any]:
        """The complete description from which ``build_codec`` makes this codec."""
        return {kind: dict(part) for kind, part in self._spec.items()}

    def describe(self) -> str:
        """One line: the preset's name or the parts, with parameters that are not defaults."""
        return self._description

    def capabilities(self) -> dict[str, Any]:
        """The capabilities of the composition; see ``Capabilities``."""
        return joined_capabilities(part.capabilities for part in self._parts().values())

    def check_sharded(self) -> None:
        """Refuse a codec of whose sum no worker can decode a part alone.

        Raises:
            CompositionError: names the part, and why.
        """
        elementwise = KEEPS_ZEROS in self.quantizer.capabilities.provides
        reasons = (
            (self.selector, isinstance(self.selector, SendsCoefficients), "computes elements from "
             "coefficients of all"),
            (self.selector, isinstance(self.selector, AppliesPart), "decides by the whole sum what "
             "is applied"),
            (self.quantizer, not elementwise, "mixes elements"),
            (self.quantizer, MAY_OVERFLOW in self.quantizer.capabilities.provides, "repeats sums "
             "that leave int32, which only a shard's owner sees"),
            (self.carrier, not self.carrier.scatters, "sends words that are not those of single "
             "elements"),
            (self.error_feedback, isinstance(self.error_feedback, ReplacesSum), "needs the whole "
             "sum"),
        )  # fmt: skip
        for part, is_so, reason in reasons:
            if is_so:
                raise CompositionError(
                    f"{part.kind} {part.name!r} {reason}, so no worker can have a part of the sum "
                    "alone; choose another codec, such as dense, exact, qsgd or scalecom, or sum "
                    "by all_reduce."
                )
        if self._gain:
            raise CompositionError("AdaScale's gain needs the whole sum; leave the gain out.")

    def check(self, gradient: Floats) -> None:
        """Refuse what ``exchange`` would refuse before its first round. It changes nothing.

        Callers with several codecs check all before they start an exchange, as an aborted exchange
        leaves its gradient in the error feedback.

        Args:
            gradient: as for ``exchange``; it has passed ``check_gradient``.

        Raises:
            GradientError: the sum of the gradient and the residual is too large.
            StateError: the residual or the layers have another size, or another exchange of this
                codec is under way.
        """
        if self._busy:
            raise StateError(
                f"the codec of worker {self._context.worker} has an exchange under way; finish or "
                "close that one first."
            )
        check_layers(self._context.layers, gradient.size, self._context.worker)
        self.selector.check(gradient)
        self.error_feedback.check(gradient)

    def exchange(
        self,
        gradient: Floats,
        workers: int,
        *,
        rank: int | None = None,
        checked: bool = False,
        options: SumOptions | None = None,
    ) -> Stages:
        """One all-reduce, without I/O.

        A generator: it yields the segments of a round, is sent the combined words of each segment,
        and returns the outcome. The generators of all workers run in lock-step: they yield equally
        often, and their segments have equal operations and lengths. An empty gradient takes no
        rounds. A codec has one exchange at a time. An exchange that is closed early, or into which
        an error is thrown, leaves the gradient in the error feedback.

        Args:
            gradient: shape (d,), float32, finite. It is not modified.
            workers: number of workers that take part, at least 1.
            rank: this worker's position among them, 0 .. workers - 1; by default its index. It is
                needed if other workers have left.
            checked: the caller has called ``check_gradient``. Otherwise the codec does, or its
                error feedback. A gradient with ``options.stats`` is checked, too.
            options: what else may be done. By default the gradient is read before the first
                rounds only, all words are made before they are sent, and integers are kept.

        Raises:
            GradientError: see ``check_gradient`` and ``check``; nothing has changed.
            StateError: the residual has another size, or another exchange of this codec is under
                way.
            InputError: no workers; the network's answers have other lengths than the segments; or
                the workers' codecs differ.
        """
        if not 1 <= workers < 2**31:
            raise InputError(f"{workers} workers; an all-reduce needs at least 1.")
        self._follow_schedules()
        self._options = options or _NO_OPTIONS
        seen = self._options.stats
        if seen is not None or (not checked and self.error_feedback.checks_finite(self.selector)):
            check_form(gradient, self._context.worker)
        elif not checked:
            seen = check_gradient(gradient, self._context.worker, self._listed_one_in())
        self.check(gradient)
        self.selector.rank = rank
        self._multiplies = False
        watch = Stopwatch(self._clock, "encode")
        stages = self._stages(np.ascontiguousarray(gradient), seen, workers, watch)
        self._busy = True
        try:
            outcome = yield from _driven(stages, watch)
        except BaseException:
            self.error_feedback.rollback()
            raise
        finally:
            self._busy = False
            self._options = _NO_OPTIONS  # their statistics may hold arrays
        self._step += 1
        return outcome

    def examine(self, gradient: Floats) -> tuple[GradientStats, int]:
        """The pass over a gradient that ``exchange`` begins with, for callers that need it earlier.

        Args:
            gradient: shape (d,), float32, C-contiguous.

        Returns:
            What it found, and the first index that is not finite, or -1.
        """
        return gradient_stats(kernel_sets.get("cpu"), gradient, self._listed_one_in())

    @contextmanager
    def holding_back(self, spans: Sequence[slice]) -> Iterator[None]:
        """Let all-reduces leave out what the error feedback remembers of some elements.

        Meanwhile nothing is remembered of them, and afterwards the same as before. So nothing is
        lost where the sum is not used, as that of a parameter to which no worker has a gradient.

        Args:
            spans: of the elements, whose gradients are 0 in these all-reduces on all workers.
        """
        before = self.error_feedback.remembered() if spans else {}
        self.error_feedback.remember({key: _with(each, spans) for key, each in before.items()})
        try:
            yield
        finally:
            if before:
                feedback = self.error_feedback  # a schedule may have replaced it
                after = feedback.remembered()
                feedback.remember(
                    {key: _with(each, spans, before[key]) for key, each in after.items()}
                )

    def _listed_one_in(self) -> int | None:
        """The ``one_in`` of ``check_gradient``; None if each worker selects elements of its own."""
        return self._one_in if SAME_INDICES in self.selector.capabilities.provides else None

    def state_dict(self) -> dict[str, Any]:
        """The complete state between all-reduces, as copies; contains NumPy arrays."""
        state = self._state({kind: part.state_dict() for kind, part in self._parts().items()})
        return {**state, "spec": deepcopy(spec_as_text(self._spec))}

    def snapshot(self) -> dict[str, Any]:
        """The state with as few copies as possible, to be loaded into this codec if the next
        all-reduce fails.
        """
        return self._state({kind: part.snapshot() for kind, part in self._parts().items()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from ``state_dict``.

        Parameters that follow a schedule here or did so there may differ. The schedules are
        followed from the number of all-reduces that were complete.

        Raises:
            StateError: the state has another version, or is of a codec with other parts,
                parameters, layers or seed. Nothing has changed.
        """
        self._check_state(state)
        parts = {kind: self._at_saved(kind, part, state) for kind, part in self._parts().items()}
        before = {kind: part.snapshot() for kind, part in parts.items()}
        try:
            for kind, part in parts.items():
                part.load_state_dict(state["parts"][kind])
        except BaseException:
            for kind, part in parts.items():
                part.load_state_dict(before[kind])
            raise
        for kind, part in parts.items():
            parameters = self._settings[kind].at(state["step"])
            same = parameters == part.parameters
            setattr(self, kind, part if same else part.with_parameters(parameters))
        self._step = state["step"]

    def _at_saved(self, kind: str, part: Any, state: Mapping[str, Any]) -> Any:
        """A part with the parameters that it had when the state was saved; itself if they are the
        same.
        """
        numbers = state["numbers"].get(kind, {})
        given = {key: each for key, each in state["spec"][kind].items() if key != "name"}
        if not (scheduled_keys(given) or self._settings[kind].schedules):
            return part
        settings = self._settings[kind]
        parameters = validate(settings.model, {**given, **numbers}, settings.source)
        return part if parameters == part.parameters else type(part)(parameters, self._context)

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Catch up with the workers who continued without this one.

        The state that must be the same on all workers (the number of all-reduces, factors of
        PowerSGD) is taken from ``state``, the saved state of another worker. The residual of this
        worker does not change.

        Raises:
            StateError: the state is of a codec with other parts, parameters, layers or seed.
        """
        self._check_state(state)
        for kind, part in self._parts().items():
            part.adopt(state["parts"][kind])
        self._step = state["step"]

    def _follow_schedules(self) -> None:
        """Give the parts the parameters of the next all-reduce.

        All are computed before a part changes.
        """
        if not self._scheduled or self._busy:
            return
        parameters = {
            kind: settings.at(self._step)
            for kind, settings in self._settings.items()
            if settings.schedules
        }
        for kind, each in parameters.items():
            part = getattr(self, kind)
            if each != part.parameters:
                setattr(self, kind, part.with_parameters(each))

    def _numbers(self) -> dict[str, dict[str, Any]]:
        """The current numbers of parameters that follow schedules, by part."""
        return {
            kind: {key: getattr(part.parameters, key) for key in self._settings[kind].schedules}
            for kind, part in self._parts().items()
            if self._settings[kind].schedules
        }

    def _parts(self) -> dict[str, Any]:
        return {
            "selector": self.selector,
            "quantizer": self.quantizer,
            "carrier": self.carrier,
            "error_feedback": self.error_feedback,
        }

    def _state(self, parts: dict[str, Any]) -> dict[str, Any]:
        return {
            "version": _STATE_VERSION,
            "seed": self._context.seed,
            "layers": self._context.layers,
            "spec": self._spec,
            "step": self._step,
            "numbers": self._numbers(),
            "parts": parts,
        }

    def _check_state(self, state: Mapping[str, Any]) -> None:
        if self._busy:
            raise StateError("an exchange is under way; finish or close it before loading state.")
        if not isinstance(state, Mapping):
            raise StateError(
                f"the codec's saved state is a {type(state).__name__}; give what state_dict "
                "returned."
            )
        if state.get("version") != _STATE_VERSION:
            raise StateError(
                f"the codec's saved state has version {state.get('version')!r}; this innet reads "
                f"{_STATE_VERSION}."
            )
        theirs, spec = without_schedules(state.get("spec"), self._spec)
        mine = {"spec": spec, "seed": self._context.seed, "layers": self._context.layers}
        saved = {**state, "spec": theirs}
        for key, value in mine.items():
            if saved.get(key) != value:
                raise StateError(
                    f"the saved state is of a codec with {key} {saved.get(key)!r}, this one has "
                    f"{value!r}; build the codec that the state was saved from."
                )
        loaded_step(state)
        if not isinstance(state.get("numbers"), Mapping):
            raise StateError(
                "the codec's saved state lacks the numbers of its schedules; give what state_dict "
                "returned, whole."
            )
        parts = state.get("parts")
        known = parts if isinstance(parts, Mapping) else {}
        lacking = [kind for kind in self._parts() if not isinstance(known.get(kind), Mapping)]
        if lacking:
            raise StateError(
                f"the codec's saved state lacks that of the {', '.join(lacking)}; give what "
                "state_dict returned, whole."
            )

    def _common(self, size: int, workers: int) -> str:
        """The configuration that must be the same on all workers, for one all-reduce."""
        config = [f"{self._composition}, {size} elements, {workers} workers", self._seed_and_layers]
        if self._scheduled:
            config.append(f"all-reduce {self._step} with {self._numbers()}")
        for kind, part in self._parts().items():
            if state := part.common():
                config.append(f"state of the {kind} {state}")
        return ", ".join(config)

    def _stages(
        self, gradient: Floats, seen: GradientStats | None, workers: int, watch: Stopwatch
    ) -> Stages:
        """The stages of the exchange. ``seen``: statistics of the gradient, if known."""
        # Step 1, the selection. The error feedback adds what earlier all-reduces have not sent,
        # and the selector may ask the network.
        indices, values = yield from self.choose(gradient, workers)
        selection, seen = self._to_send(gradient, (indices, values), seen)
        whole = selection.values is gradient

        # Step 2, the handshake: one round for all that must be agreed on before words are made. An
        # empty gradient takes no round, as nobody else would notice a difference.
        digest = ConfigDigest(self._common(gradient.size, workers), self._context.worker)
        handshake = Handshake(
            digest.announce(),
            _segments(self.quantizer.announce(selection), self.quantizer),
            _segments(self.carrier.announce(selection, workers), self.carrier),
            self._announced_squares(values),
        )
        answers = (yield handshake.segments) if gradient.size else handshake.own_answers()
        of_digest, of_quantizer, of_carrier, of_squares = handshake.split(answers)
        digest.check(of_digest)
        scaling = _agreed(self.quantizer, of_quantizer, workers)

        # Step 3, integers through the network; again with a smaller scale if a sum has left int32.
        nonzero = _without_zeros(selection, seen)
        shared = SAME_INDICES in self.selector.capabilities.provides and nonzero is selection
        overflows = 0
        while True:
            local = self._contribution(scaling, nonzero, shared, whole)
            feeds = self.error_feedback.name != "none" or self._options.keep_integers
            feeds = feeds and bool(scaling.scale) and gradient.size > 0
            represented = scaling.represented(local) if feeds else None
            if not (scaling.scale and gradient.size):
                total = Total.zero()
                break
            self._may_overflow = scaling.may_overflow
            try:
                total = yield from self.carrier.carry(local, of_carrier, workers, watch)
                break
            except OverflowedError:
                overflows += 1
                scaling = _after_overflow(scaling)
            finally:
                self._may_overflow = False
        if overflows:
            total.details["overflows"] = overflows

        # Step 4: what the integers do not say of the values goes to the error feedback.
        if represented is not None:
            represented = self._fed_back(represented, selection, nonzero, gradient.size)

        # Step 5, from the sum of integers to that of gradients.
        watch.enter("decode")
        sums = _Sums(total, scaling, local.size, selection.size)
        done = self._finished(sums, gradient, of_squares)
        watch.stop()
        return ExchangeOutcome(
            sum=done.result,
            total=total,
            scale=scaling.scale,
            indices=indices,
            sent=values,
            represented=represented,
            contribution=local,
            applied=done.applied,
            rounds=watch.rounds,
            infinite=done.infinite,
            details=total.details,
            encode_seconds=watch.seconds.get("encode", 0.0),
            decode_seconds=watch.seconds.get("decode", 0.0),
            factor_left=1.0 if done.multiplied else self._options.factor,
        )

    def choose(self, gradient: Floats, workers: int) -> SelectSteps:
        """The first step of ``exchange``: what selector and error feedback choose to send.

        Returns:
            Indices and values, checked, as kernels rely on their form. The error feedback waits for
            its ``commit`` or ``rollback``.
        """
        if isinstance(self.selector, ObservesGradient):
            self.selector.observe(gradient)
        selected = yield from self.error_feedback.choose(self.selector, gradient, workers)
        check_selected(selected, gradient.size, f"selector {self.selector.name!r}")
        return selected

    def _to_send(
        self, gradient: Floats, selected: SparseValues, seen: GradientStats | None
    ) -> tuple[Selection, GradientStats]:
        """What is sent of the chosen elements, themselves or their coefficients, and its
        statistics: those of the gradient if that is sent as it is.
        """
        size, (indices, numbers) = gradient.size, selected
        if isinstance(self.selector, SendsCoefficients):
            size, (indices, numbers) = self.selector.to_coefficients(selected, size)
        if seen is None or numbers is not gradient:
            one_in = self._one_in if indices is None else None
            seen, _ = gradient_stats(self._context.kernels, numbers, one_in)
        return Selection(size, indices, numbers, seen.magnitude, seen.nonzero), seen

    def _contribution(
        self, scaling: Scaling, selection: Selection, shared: bool, whole: bool
    ) -> Contribution:
        """The integers of a selection, checked, as carriers rely on their form.

        ``whole``: the selected values are the gradient array itself.
        """
        # Error feedback may use the memory of the values once they are chosen.
        defers = self.carrier.takes_floats and self.error_feedback.name == "none"
        defers = defers and not self._options.keep_integers and self._options.shards is None
        if defers and isinstance(scaling, Defers):
            later = scaling.defer(selection)
            if later is not None:
                if whole and isinstance(later.words, FloatSegment):
                    self._arrange(later.words, scaling)
                return replace(later, shared=True) if shared else later
        local = scaling.contribute(selection)
        if scaling.scale:
            count = local.size if local.indices is None else local.indices.size
            who = f"integers from quantizer {self.quantizer.name!r}"
            check_array(local.integers, _INT32, count, who)
        if self._options.shards is not None:
            local = replace(local, shards=self._options.shards, worker=self._context.worker)
        return replace(local, shared=True) if shared else local

    def _arrange(self, words: FloatSegment, scaling: Scaling) -> None:
        """Let what the caller would do be done on the way, if sums that are made there are the
        codec's result.
        """
        if not self._takes_sums_as_they_are():
            return
        if self._options.overwrite and not scaling.may_overflow:  # else the round may be repeated
            words.overwrite()
        # An infinite sum stays infinite, whatever it is multiplied by.
        self._multiplies = scaling.finite and words.multiply(self._options.factor)

    def _fed_back(
        self, represented: Floats, selection: Selection, nonzero: Selection, size: int
    ) -> Floats:
        """Tell the error feedback the dequantized integers of the whole selection."""
        if nonzero is not selection and nonzero.indices is not None:
            bits = represented.view(np.int32)
            scattered = self._context.kernels.scatter(nonzero.indices, bits, selection.size)
            represented = scattered.view(np.float32)
        represented = self._elements(represented, size)
        self.error_feedback.set_sent(represented)
        return represented

    def _finished(self, sums: _Sums, gradient: Floats, squares: list[Ints]) -> _Finished:
        """Decode the sums, and tell selector and error feedback that the all-reduce succeeded."""
        values = self._sparse_values(sums)
        if values is not None and self._may_write_over(gradient):
            infinite = 0 if sums.scaling.finite else self._infinite(values)
            self.error_feedback.commit(None)  # it may read the gradient
            self.selector.commit()
            result = self._written_over(gradient, sums.total, values)
            return _Finished(result, None, infinite, multiplied=True)
        decoded = self._decoded(sums, values)
        result, applied = self._applied(decoded, gradient.size)
        sums.total.details.update(self._squares(squares, result, applied))
        if isinstance(self.error_feedback, ReplacesSum):
            result = self.error_feedback.result(result)
        infinite = 0
        if result is not decoded:
            infinite = self._infinite(result)
        elif not sums.scaling.finite:
            infinite = self._infinite(decoded if values is None else values)
        self.error_feedback.commit(applied)
        self.selector.commit()
        multiplied = self._multiplies and sums.total.sums is not None
        return _Finished(result, applied, infinite, multiplied=multiplied)

    def _sparse_values(self, sums: _Sums) -> Floats | None:
        """The sum at ``total.indices``, where it is zero elsewhere; None if that is not known."""
        total = sums.total
        if total.sums is not None or total.indices is None:
            return None
        if not self.quantizer.capabilities.provides >= _ELEMENTWISE:
            return None
        who = f"sums from carrier {self.carrier.name!r}"
        check_array(total.integers, _INT32, total.indices.size, who)
        values = sums.scaling.dequantize(total.integers)
        who = f"values from quantizer {self.quantizer.name!r}"
        check_array(values, _FLOAT32, total.indices.size, who)
        return values

    def _may_write_over(self, gradient: Floats) -> bool:
        """Whether the sum may take the gradient's place as it is decoded."""
        return (
            self._options.overwrite
            and gradient.flags.writeable
            and self._takes_sums_as_they_are()
            and not isinstance(self.error_feedback, ReplacesSum)
        )

    def _takes_sums_as_they_are(self) -> bool:
        return not (isinstance(self.selector, SendsCoefficients | AppliesPart) or self._gain)

    def _written_over(self, gradient: Floats, total: Total, values: Floats) -> Floats:
        """The sum, multiplied as the caller would, in the gradient's memory."""
        assert total.indices is not None
        values = values * np.float32(self._options.factor)
        kernels, out = self._context.kernels, gradient.view(np.int32)
        kernels.scatter(total.indices, values.view(np.int32), gradient.size, out)
        return gradient

    def _decoded(self, sums: _Sums, values: Floats | None) -> Floats:
        """The sum as float32, dense; ``values`` are those that may be non-zero, if known."""
        kernels, total = self._context.kernels, sums.total
        if total.sums is not None:
            who = f"values from carrier {self.carrier.name!r}"
            check_array(total.sums, _FLOAT32, sums.size, who)
            return total.sums
        if values is not None and total.indices is not None:
            return kernels.scatter(total.indices, values.view(np.int32), sums.size).view(np.float32)
        count = sums.integers if total.indices is None else total.indices.size
        check_array(total.integers, _INT32, count, f"sums from carrier {self.carrier.name!r}")
        restored = sums.scaling.restore(total.dense(kernels, sums.integers), sums.size)
        who = f"values from quantizer {self.quantizer.name!r}"
        check_array(restored, _FLOAT32, sums.size, who)
        return restored

    def _applied(self, decoded: Floats, size: int) -> tuple[Floats, Ints | None]:
        """The gradient of the decoded sum, and the coordinates that are applied."""
        result = self._elements(decoded, size)
        if not isinstance(self.selector, AppliesPart):
            return result, None
        applied = self.selector.applied_indices(result)
        return (result if applied is None else _only(result, applied)), applied

    def _elements(self, values: Floats, size: int) -> Floats:
        """The elements of a gradient of that size, if coefficients were sent instead."""
        if isinstance(self.selector, SendsCoefficients):
            return self.selector.from_coefficients(values, size)
        return values

    def _check_gain(self) -> None:
        """Refuse AdaScale's gain where the sum is not that of values as they were sent.

        Raises:
            CompositionError: names the part.
        """
        changes = isinstance(self.error_feedback, ReplacesSum)
        for part, wrong in (
            (self.selector, not self.selector.verbatim),
            (self.quantizer, not self.quantizer.capabilities.linear),
            (self.error_feedback, changes),
        ):
            if wrong:
                raise CompositionError(
                    f"{part.kind} {part.name!r} gives no sum of the values that are sent, which "
                    "AdaScale's gain is computed from; choose another codec, such as dense or "
                    "scalecom, or leave the gain out."
                )

    def _announced_squares(self, values: Floats) -> list[Segment]:
        """The sum of the squares of the values to send, for AdaScale's gain."""
        if not self._gain:
            return []
        _, squares = self._context.kernels.moments(values, 0.0, 0.0)
        return [Segment(ReduceOp.SUM, square_words(squares))]

    def _squares(
        self, answers: list[Ints], result: Floats, applied: Ints | None
    ) -> dict[str, dict[str, float]]:
        """The details for AdaScale's gain: none where a part of the sum was not applied."""
        if not answers or applied is not None:
            return {}
        _, of_sum = self._context.kernels.moments(result, 0.0, 0.0)
        return {"squares": {"workers": square_of_words(answers[0]), "sum": of_sum}}

    def _infinite(self, values: Floats) -> int:
        """The number of infinite values, without a temporary array if there are none."""
        _, _, first = self._context.kernels.absmax_nnz(values)
        return int(np.isinf(values[first:]).sum()) if first >= 0 else 0


def _with(values: Floats, spans: Sequence[slice], others: Floats | None = None) -> Floats:
    """A copy of the values, with the others' in the spans; 0 for None."""
    copy = values.copy()
    for span in spans:
        copy[span] = 0 if others is None else others[span]
    return copy


def _segments(announced: object, part: Quantizer[Any] | Carrier[Any]) -> list[Segment]:
    """The announcement of a part, checked to be segments."""
    if not (isinstance(announced, list) and all(isinstance(each, Segment) for each in announced)):
        raise InputError(
            f"what {part.kind} {part.name!r} announces is {announced!r}; expected is a list of "
            "innet.core.reduce_op.Segment."
        )
    return announced


def _agreed(quantizer: Quantizer[Any], answers: list[Ints], workers: int) -> Scaling:
    """The scaling of a quantizer, checked."""
    scaling: object = quantizer.agree(answers, workers)
    if not isinstance(scaling, Scaling):
        raise InputError(
            f"what quantizer {quantizer.name!r} agrees on is of type {type(scaling).__name__}; "
            "expected is a Scaling."
        )
    return scaling


def _after_overflow(scaling: Scaling) -> Scaling:
    """The scaling for the next try, after a sum has left int32."""
    if not isinstance(scaling, RepeatsAfterOverflow):
        raise AssertionError(f"{type(scaling).__name__} promises that no sum leaves int32")
    return scaling.after_overflow()


def _only(values: Floats, indices: Ints) -> Floats:
    """The values at the indices, and 0 elsewhere."""
    left = np.zeros_like(values)
    left[indices] = values[indices]
    return left


def _without_zeros(selection: Selection, seen: GradientStats) -> Selection:
    """The selection without zeros, if everything was selected and most of it is zero. Quantizer and
    carrier then process only the other elements.
    """
    if seen.nonzeros is None or selection.indices is not None:
        return selection
    indices, values = seen.nonzeros
    return replace(selection, indices=indices, values=values)


def _driven(stages: Stages, watch: Stopwatch) -> Stages:
    """Run the stages: measure time without the network, count rounds, check the answers."""
    answers: list[Ints] | None = None
    overflowed: OverflowedError | None = None
    while True:
        watch.start()
        try:
            if overflowed is not None:
                segments = stages.throw(overflowed)
            else:
                segments = next(stages) if answers is None else stages.send(answers)
        except StopIteration as stop:
            outcome: ExchangeOutcome = stop.value
            return outcome
        watch.pause()
        overflowed = None
        try:
            answers = yield segments
        except OverflowedError as error:
            overflowed = error
            continue
        check_answers(segments, answers)


def check_answers(segments: list[Segment], answers: list[Ints]) -> None:
    """Refuse answers that do not have the segments' lengths, by an InputError."""
    matching = len(answers) == len(segments)
    for segment, answer in zip(segments, answers, strict=False):
        summed = isinstance(segment, FloatSegment) and segment.sums is not None
        matching &= answer.shape == (0 if summed else segment.size,) and answer.dtype == _INT32
    if not matching:
        sent = [(segment.size,) for segment in segments]
        received = [answer.shape for answer in answers]
        raise InputError(
            f"the network answered {received} to segments of {sent} int32 words; all workers "
            "must use codecs of the same description and seed."
        )
