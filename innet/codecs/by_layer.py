"""A codec for each layer of a model, by patterns over the layers' names.

    codec = {"preset": "scalecom", "layers": {"*.bias": "dense", "lstm.*": "topk:ratio=0.01"}}

The first pattern that matches a layer's name decides; other layers have the codec besides
``layers``. Layers with equal codecs form a group, whose gradients one codec sums as one. All groups
take part in the same rounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from innet import kernels
from innet.codecs.checks import GradientStats, check_form, check_gradient, gradient_stats
from innet.codecs.codec import Codec, ExchangeOutcome, Stages, SumOptions, check_answers
from innet.codecs.layers import Shapes, check_layers, sizes
from innet.codecs.parts import Contribution, Floats, Ints, Total
from innet.codecs.scheduled import spec_as_text, without_schedules
from innet.core.errors import (
    CompositionError,
    ConfigError,
    GradientError,
    OverflowedError,
    StateError,
)
from innet.core.reduce_op import Operation, Segment

_STATE_VERSION = 1
_JOINED = 4096  # words; longer segments are not copied to share a packet with others
_FEW = 4  # names of layers in a message

# ----------------------------------------------------------------------------
# Which layer gets which description.


def first_matches(patterns: Sequence[str], names: Sequence[str]) -> list[int | None]:
    """For each name the index of the first pattern that matches it; None if none does."""
    return [
        next((i for i, pattern in enumerate(patterns) if fnmatchcase(name, pattern)), None)
        for name in names
    ]


def assigned(patterns: Sequence[str], names: Sequence[str], *, has_rest: bool) -> list[int | None]:
    """For each layer the index of the first pattern that matches its name; None for the rest.

    Args:
        patterns: as in a shell: ``*`` for any text, ``?`` for a character, ``[ab]`` for one of
            several. Case counts.
        names: of the layers.
        has_rest: whether layers that no pattern matches have a codec.

    Raises:
        ConfigError: a layer without a codec, or a pattern without a layer; names it.
    """
    found = first_matches(patterns, names)
    for index, pattern in enumerate(patterns):
        if index in found:
            continue
        earlier = any(fnmatchcase(name, pattern) for name in names)
        why = "earlier patterns match its layers" if earlier else "it matches no layer"
        raise ConfigError(
            f"codec: the pattern {pattern!r} decides for no layer, as {why}; the layers are "
            f"{_listed(names)}."
        )
    left = [name for name, index in zip(names, found, strict=True) if index is None]
    if left and not has_rest:
        raise ConfigError(
            f"codec: no pattern matches {_listed(left)}; add a last pattern '*', or name a codec "
            "for the rest (preset)."
        )
    return found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_FEW]))
    return f"{shown} and {len(names) - _FEW} more" if len(names) > _FEW else shown


@dataclass(slots=True)
class LayerGroup:
    """Layers that one codec sums as one gradient.

    Attributes:
        codec: of the group.
        layers: names of its layers.
        spans: slices of the model's gradient, ascending; neighbors are joined.
        size: elements of all its layers.
    """

    codec: Codec
    layers: tuple[str, ...]
    spans: tuple[slice, ...]
    size: int = field(init=False)
    _starts: Ints = field(init=False)  # of the spans in the group's gradient
    _shifts: Ints = field(init=False)  # from there to the model's gradient

    def __post_init__(self) -> None:
        lengths = [span.stop - span.start for span in self.spans]
        starts = list(accumulate(lengths, initial=0))
        self.size = starts.pop()
        self._starts = np.array(starts, np.int32)
        self._shifts = np.array([span.start for span in self.spans], np.int32) - self._starts

    def take(self, gradient: Floats) -> Floats:
        """The group's part of the model's gradient; a view if it lies in one piece."""
        if not gradient.size:
            return gradient
        if len(self.spans) == 1:
            return gradient[self.spans[0]]
        return np.concatenate([gradient[span] for span in self.spans])

    def put(self, model: Floats, values: Floats) -> None:
        """Write the group's values into an array of the model's size."""
        start = 0
        for span in self.spans if values.size else ():
            stop = start + span.stop - span.start
            model[span] = values[start:stop]
            start = stop

    def within(self, spans: Sequence[slice]) -> list[slice]:
        """What of these slices of the model's gradient is the group's, in the group's gradient."""
        found = []
        for shift, own in zip(self._shifts.tolist(), self.spans, strict=True):
            for span in spans:
                start, stop = max(own.start, span.start), min(own.stop, span.stop)
                if start < stop:
                    found.append(slice(start - shift, stop - shift))
        return found

    def positions(self, indices: Ints | None) -> Ints:
        """Indices in the model's gradient for those in the group's; None for all."""
        if indices is None:
            indices = np.arange(self.size, dtype=np.int32)
        spans = np.searchsorted(self._starts, indices, side="right") - 1
        found: Ints = indices + self._shifts[spans]
        return found


def spans_of(layers: Sequence[int], shapes: Shapes) -> tuple[slice, ...]:
    """Where these layers lie in the gradient of all; neighbors are joined."""
    edges = list(pairwise(accumulate(sizes(shapes), initial=0)))
    found: list[slice] = []
    for layer in layers:
        start, stop = edges[layer]
        if found and found[-1].stop == start:
            found[-1] = slice(found[-1].start, stop)
        else:
            found.append(slice(start, stop))
    return tuple(found)


def scope_of(names: Sequence[str], shapes: Shapes, number: int) -> str:
    """What the digest of a group's codec says of the group, the same on all workers."""
    text = repr((list(names), shapes, number))
    return f"group {number} of the layers, {hashlib.sha256(text.encode()).hexdigest()[:16]}"


# ----------------------------------------------------------------------------
# The rounds of all groups as one.


class JoinedRound:
    """The segments of several groups as those of one round.

    Short ones of equal operation become one segment, as each segment takes a packet at least.

    Attributes:
        segments: of the round.
    """

    def __init__(self, groups: Sequence[Sequence[Segment]]) -> None:
        self._groups = groups
        self._joined: dict[Operation, int] = {}  # positions in ``segments``
        self.segments: list[Segment] = []
        short: dict[Operation, list[Ints]] = {}
        for segment in (each for group in groups for each in group):
            if segment.words.size < _JOINED:
                short.setdefault(segment.operation, []).append(segment.words)
            else:
                self.segments.append(segment)
        for operation, words in short.items():
            self._joined[operation] = len(self.segments)
            self.segments.append(Segment(operation, np.concatenate(words)))

    def split(self, answers: Sequence[Ints]) -> list[list[Ints]]:
        """The answers to each group's segments."""
        left = {operation: answers[index] for operation, index in self._joined.items()}
        long = iter(answers)
        found: list[list[Ints]] = []
        for group in self._groups:
            found.append([])
            for segment in group:
                size = segment.words.size
                if size < _JOINED:
                    words = left[segment.operation]
                    found[-1].append(words[:size])
                    left[segment.operation] = words[size:]
                else:
                    found[-1].append(next(long))
        return found


class CodecByLayer(Codec):
    """One worker's codec of a model whose layers have several codecs.

    Its sum is that of the groups' codecs, each run by itself, bit for bit. A round of several
    groups takes as long as that of the longest.

    Args:
        groups: in the order of their first layers.
        names: of all layers.
        layers: their shapes.
        spec: the complete description.
        labels: for each group the patterns that its layers matched.
        seed: of the first group's hashes.
        worker: index of the worker.

    Attributes:
        groups: the codecs, and which layers they have.
    """

    def __init__(
        self,
        *,
        groups: Sequence[LayerGroup],
        names: Sequence[str],
        layers: Shapes,
        spec: Mapping[str, Any],
        labels: Sequence[Sequence[str]],
        seed: int,
        worker: int,
    ) -> None:
        self.groups = tuple(groups)
        self.names = tuple(names)
        self._layers = layers
        self._whole_spec = spec
        self._seed = seed
        self._worker = worker
        self._busy = False
        self._may_overflow = False
        self._label = " + ".join(
            f"{group.codec.describe()} ({' '.join(label)})"
            for group, label in zip(groups, labels, strict=True)
        )

    # ------------------------------------------------------------------ what it is

    @property
    def codecs(self) -> tuple[Codec, ...]:
        """The groups' codecs."""
        return tuple(group.codec for group in self.groups)

    @property
    def wraps(self) -> bool:
        return any(codec.wraps for codec in self.codecs)

    @property
    def sends_floats(self) -> bool:
        return any(codec.sends_floats for codec in self.codecs)

    @property
    def keeps_state(self) -> bool:
        return any(codec.keeps_state for codec in self.codecs)

    @property
    def momentum(self) -> bool | None:
        kinds = {codec.momentum for codec in self.codecs}
        return kinds.pop() if len(kinds) == 1 else None

    def value_bits(self, workers: int) -> int:
        return max(codec.value_bits(workers) for codec in self.codecs)

    @property
    def spec(self) -> dict[str, Any]:
        return deepcopy(dict(self._whole_spec))

    def describe(self) -> str:
        return self._label

    def by_layer(self) -> dict[str, str]:
        """The description of each layer's codec, by the layer's name, in the model's order."""
        found = {name: group.codec.describe() for group in self.groups for name in group.layers}
        return {name: found[name] for name in self.names}

    def hints(self) -> tuple[str, ...]:
        found = [hint for group in self.groups for hint in group.codec.hints()]
        return tuple(dict.fromkeys(found))

    def counted_bits(self, outcome: ExchangeOutcome) -> tuple[int | None, ...] | None:
        found: dict[str, int | None] = {}
        for group, each in zip(self.groups, outcome.groups, strict=True):
            counted = group.codec.counted_bits(each)
            if counted is not None:
                found.update(zip(group.layers, counted, strict=True))
        return tuple(found.get(name) for name in self.names) if found else None

    def capabilities(self) -> dict[str, Any]:
        """Those that hold for all layers.

        Rounds: the most that are possible if groups do not share any but the first.
        """
        each = [codec.capabilities() for codec in self.codecs]
        joined: dict[str, Any] = {
            key: all(one[key] for one in each)
            for key in ("summable", "fixed_size", "lossless", "linear")
        }
        rounds = [one["rounds"] for one in each]
        widths = [one["integer_width"] for one in each if one["integer_width"]]
        bounds = dict.fromkeys(one["overflow_bound"] for one in each if one["overflow_bound"])
        return {
            **joined,
            "rounds": [
                max(least for least, _ in rounds),
                1 + sum(most - 1 for _, most in rounds),
            ],
            "integer_width": max(widths, default=None),
            "overflow_bound": ", ".join(bounds) or None,
            "index": ", ".join(dict.fromkeys(one["index"] for one in each if one["index"])) or None,
            "metadata": " + ".join(one["metadata"] for one in each),
        }

    # ------------------------------------------------------------------ an all-reduce

    def check_sharded(self) -> None:
        raise CompositionError(
            "a codec by layer has parts of the gradient by layer, not by shard; choose one codec "
            "for all layers, or sum by all_reduce."
        )

    def check(self, gradient: Floats) -> None:
        if self._busy:
            raise StateError(
                f"the codec of worker {self._worker} has an exchange under way; finish or close "
                "that one first."
            )
        check_layers(self._layers, gradient.size, self._worker)
        for group in self.groups:
            with _of_group(group):
                group.codec.check(group.take(gradient))

    def exchange(
        self,
        gradient: Floats,
        workers: int,
        *,
        rank: int | None = None,
        checked: bool = False,
        options: SumOptions | None = None,
    ) -> Stages:
        """See ``Codec.exchange``: the groups' exchanges, round by round together. Their segments
        are joined, so nothing is done on the way.
        """
        if options is not None and options.stats is not None:
            check_form(gradient, self._worker)
        elif not checked:
            check_gradient(gradient, self._worker)
        self.check(gradient)
        gradient = np.ascontiguousarray(gradient)
        pieces = [group.take(gradient) for group in self.groups]
        before = [codec.snapshot() for codec in self.codecs]
        exchanges = [
            codec.exchange(piece, workers, rank=rank, checked=True)
            for codec, piece in zip(self.codecs, pieces, strict=True)
        ]
        outcomes: dict[int, ExchangeOutcome] = {}
        self._busy = True
        try:
            rounds = yield from self._rounds(exchanges, outcomes)
        except BaseException:
            for exchange in exchanges:
                exchange.close()
            for index in outcomes:
                _undo(self.codecs[index], before[index], pieces[index], workers, rank)
            raise
        finally:
            self._busy = False
        factor = 1.0 if options is None else options.factor
        in_order = [outcomes[each] for each in sorted(outcomes)]
        return self._joined(gradient, in_order, rounds, factor)

    def examine(self, gradient: Floats) -> tuple[GradientStats, int]:
        """See ``Codec.examine``. The codec of each group reads its part again."""
        return gradient_stats(kernels.get("cpu"), gradient)

    @contextmanager
    def holding_back(self, spans: Sequence[slice]) -> Iterator[None]:
        with ExitStack() as held:
            for group in self.groups if spans else ():
                held.enter_context(group.codec.holding_back(group.within(spans)))
            yield

    @property
    def may_overflow(self) -> bool:
        return self._may_overflow

    def _rounds(
        self, exchanges: Sequence[Stages], outcomes: dict[int, ExchangeOutcome]
    ) -> Generator[list[Segment], list[Ints], int]:
        """Run the exchanges; fills ``outcomes``, and returns the number of rounds."""
        waiting: dict[int, list[Segment]] = {}

        def advance(index: int, answers: list[Ints] | OverflowedError | None) -> None:
            exchange = exchanges[index]
            try:
                with _of_group(self.groups[index]):
                    if answers is None:
                        waiting[index] = next(exchange)
                    elif isinstance(answers, OverflowedError):
                        waiting[index] = exchange.throw(answers)
                    else:
                        waiting[index] = exchange.send(answers)
            except StopIteration as stop:
                outcomes[index] = stop.value

        for index in range(len(exchanges)):
            advance(index, None)
        rounds = 0
        while waiting:
            # The switch says of a whole round whether a sum has left int32. So sums that may take
            # a round without those that wrap around.
            may = [index for index in waiting if self.codecs[index].may_overflow]
            now = may or list(waiting)
            joined = JoinedRound([waiting.pop(index) for index in now])
            self._may_overflow = bool(may)
            rounds += 1
            answers: Sequence[list[Ints] | OverflowedError]
            try:
                received = yield joined.segments
            except OverflowedError as error:
                answers = [error] * len(now)
            else:
                check_answers(joined.segments, received)
                answers = joined.split(received)
            finally:
                self._may_overflow = False
            for index, answer in zip(now, answers, strict=True):
                advance(index, answer)
        return rounds

    def _joined(
        self, gradient: Floats, outcomes: Sequence[ExchangeOutcome], rounds: int, factor: float
    ) -> ExchangeOutcome:
        """The outcome of the model's gradient, by whose factor nothing was multiplied."""
        pairs = list(zip(self.groups, outcomes, strict=True))
        total = np.empty(gradient.size, np.float32)
        for group, outcome in pairs:
            group.put(total, outcome.sum)
        indices, (sent, represented) = _selected(gradient, pairs)
        applied = None
        if gradient.size and any(outcome.applied is not None for outcome in outcomes):
            applied = np.sort(
                np.concatenate([group.positions(outcome.applied) for group, outcome in pairs])
            )
        scales = [outcome.scale for outcome in outcomes if outcome.scale]
        details = {
            "layers": self.by_layer(),
            "groups": [
                {
                    "codec": group.codec.describe(),
                    "layers": len(group.layers),
                    "elements": group.size,
                    "rounds": outcome.rounds,
                    **outcome.details,
                }
                for group, outcome in pairs
            ],
        }
        squares = [outcome.details.get("squares") for outcome in outcomes]
        if all(squares):
            keys = ("workers", "sum")
            details["squares"] = {key: sum(each[key] for each in squares if each) for key in keys}
        contribution, summed = _concatenated(outcomes)
        return ExchangeOutcome(
            sum=total,
            total=Total(summed.integers, details, summed.indices),
            scale=min(scales, default=0.0),
            indices=indices,
            sent=sent,
            represented=represented,
            contribution=contribution,
            applied=applied,
            rounds=rounds,
            infinite=sum(outcome.infinite for outcome in outcomes),
            details=details,
            encode_seconds=sum(outcome.encode_seconds for outcome in outcomes),
            decode_seconds=sum(outcome.decode_seconds for outcome in outcomes),
            factor_left=factor,
            groups=tuple(outcomes),
        )

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        return self._state_of([codec.state_dict() for codec in self.codecs])

    def snapshot(self) -> dict[str, Any]:
        return self._state_of([codec.snapshot() for codec in self.codecs])

    def _state_of(self, groups: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "version": _STATE_VERSION,
            "seed": self._seed,
            "layers": dict(zip(self.names, self._layers, strict=True)),
            "spec": spec_as_text(self._whole_spec),
            "groups": groups,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._check_state(state)
        before = self.snapshot()["groups"]
        try:
            for codec, saved in zip(self.codecs, state["groups"], strict=True):
                codec.load_state_dict(saved)
        except BaseException:
            for codec, saved in zip(self.codecs, before, strict=True):
                codec.load_state_dict(saved)
            raise

    def adopt(self, state: Mapping[str, Any]) -> None:
        self._check_state(state)
        for codec, saved in zip(self.codecs, state["groups"], strict=True):
            codec.adopt(saved)

    def _check_state(self, state: Mapping[str, Any]) -> None:
        if self._busy:
            raise StateError("an exchange is under way; finish or close it before loading state.")
        saved = state.get("groups") if isinstance(state, Mapping) else None
        if not isinstance(saved, Sequence) or state.get("version") != _STATE_VERSION:
            raise StateError(
                "the saved state is not of a codec by layer of this innet; give what state_dict "
                "returned."
            )
        layers = dict(zip(self.names, self._layers, strict=True))
        theirs = {name: tuple(shape) for name, shape in dict(state.get("layers") or {}).items()}
        mine = {"seed": self._seed, "number of groups": len(self.groups)}
        given = {"seed": state.get("seed"), "number of groups": len(saved)}
        if theirs != layers or list(theirs) != list(layers):
            raise StateError(
                f"the saved state is of a model with the layers {_listed(list(theirs))}, this one "
                f"has {_listed(self.names)}; build the codec that the state was saved from."
            )
        for key, value in mine.items():
            if given[key] != value:
                raise StateError(
                    f"the saved state is of a codec with {key} {given[key]!r}, this one has "
                    f"{value!r}; build the codec that the state was saved from."
                )
        theirs_spec, spec = without_schedules(state.get("spec"), self._whole_spec)
        if theirs_spec != spec:
            raise StateError(
                f"the saved state is of a codec {theirs_spec!r}, this one is {spec!r}; build the "
                "codec that the state was saved from."
            )


@contextmanager
def _of_group(group: LayerGroup) -> Generator[None]:
    """Say of a refused gradient which layers its index is of."""
    try:
        yield
    except GradientError as error:
        raise GradientError(
            f"{error} (The index counts the elements of the layers {_listed(group.layers)}.)"
        ) from None


def _undo(
    codec: Codec, before: Mapping[str, Any], gradient: Floats, workers: int, rank: int | None
) -> None:
    """As if the codec's exchange, which is complete, had been given up: the gradient is in its
    error feedback.
    """
    codec.load_state_dict(before)
    exchange = codec.exchange(gradient, workers, rank=rank, checked=True)
    for _ in exchange:
        break
    exchange.close()


def _selected(
    gradient: Floats, pairs: Sequence[tuple[LayerGroup, ExchangeOutcome]]
) -> tuple[Ints | None, tuple[Floats, Floats | None]]:
    """Indices, sent values and what the integers stand for, of the model's gradient."""
    if not gradient.size:
        return np.empty(0, np.int32), (gradient, None)
    outcomes = [outcome for _, outcome in pairs]
    values = [[outcome.sent for outcome in outcomes]]
    if any(outcome.represented is not None for outcome in outcomes):
        values.append([o.sent if o.represented is None else o.represented for o in outcomes])
    if all(outcome.indices is None for outcome in outcomes):
        found = []
        for each in values:
            dense = np.empty(gradient.size, np.float32)
            for (group, _), value in zip(pairs, each, strict=True):
                group.put(dense, value)
            found.append(dense)
        if all(group.codec.is_verbatim for group, _ in pairs):
            found[0] = gradient
        return None, (found[0], found[1] if len(found) > 1 else None)
    indices = np.concatenate([group.positions(outcome.indices) for group, outcome in pairs])
    order = np.argsort(indices)
    joined = [np.concatenate(each)[order] for each in values]
    return indices[order], (joined[0], joined[1] if len(joined) > 1 else None)


def _concatenated(outcomes: Sequence[ExchangeOutcome]) -> tuple[Contribution, Total]:
    """Contributions and totals, one group's behind the other's."""
    size = sum(outcome.contribution.size for outcome in outcomes)
    starts = list(accumulate((outcome.contribution.size for outcome in outcomes), initial=0))

    def joined(parts: Sequence[Contribution | Total]) -> tuple[Ints, Ints | None]:
        integers = np.concatenate([part.integers for part in parts])
        if all(part.indices is None for part in parts):
            return integers, None
        indices = [
            (np.arange(stop - start, dtype=np.int32) if part.indices is None else part.indices)
            + np.int32(start)
            for part, (start, stop) in zip(parts, pairwise(starts), strict=True)
        ]
        return integers, np.concatenate(indices)

    integers, indices = joined([outcome.contribution for outcome in outcomes])
    totals, places = joined([outcome.total for outcome in outcomes])
    return Contribution(size, indices, integers), Total(totals, {}, places)
