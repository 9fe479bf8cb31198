"""Parts and presets of others that are not what they have to be, told to who writes them."""

from __future__ import annotations

import numpy as np
import pytest
from support.lockstep import all_reduce

import innet
from innet.codecs import PARTS, build_codec
from innet.codecs.carriers.dense import Dense
from innet.codecs.optional_methods import ChoosesFromSum
from innet.codecs.parts import (
    INT32,
    KEEPS_ZEROS,
    LEAVES_RESIDUAL,
    ONE_INTEGER_PER_ELEMENT,
    Capabilities,
    Quantizer,
    Scaling,
    Selector,
    Total,
)
from innet.core.errors import ConfigError, InputError
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.registry import Registry
from innet.core.settings import Settings

JOB = [np.arange(1, 31, dtype=np.float32)] * 2


class First(Selector):
    name = "first"
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL}))

    def select(self, x):
        return np.arange(10, dtype=np.int32), x[:10]


class Longs(First):
    def select(self, x):
        return np.arange(10), x[:10]


class Lists(First):
    def select(self, x):
        return list(range(10)), x[:10]


class Doubles(First):
    def select(self, x):
        return np.arange(10, dtype=np.int32), x[:10].astype(np.float64)


class TooFew(First):
    def select(self, x):
        return np.arange(10, dtype=np.int32), x[:9]


class Descending(First):
    def select(self, x):
        return np.arange(10, dtype=np.int32)[::-1].copy(), x[9::-1]


class Twice(First):
    def select(self, x):
        return np.array([3, 3, 4], np.int32), x[[3, 3, 4]]


class Outside(First):
    def select(self, x):
        return np.array([1, 30], np.int32), x[:2]


class Negative(First):
    def select(self, x):
        return np.array([-1, 2], np.int32), x[:2]


class Alone(First):
    def select(self, x):
        del x
        return np.arange(10, dtype=np.int32)


class Asking(Outside):
    """As a selector does that asks the network first."""

    local = False


class OfTheSum(First, ChoosesFromSum):
    """As a selector does that finds its places without the sum of gradient and memory."""

    def chunks_of_sum(self, size, workers):
        del size, workers
        return np.empty((0, 3), np.int64)

    def choose_from_sum(self, gradient, memory, workers, largest):
        del gradient, memory, workers, largest
        yield from ()
        return np.array([2, 1 << 30], np.int32), None


@pytest.mark.parametrize("error_feedback", ["none", "residual", "momentum", "lowpass"])
@pytest.mark.parametrize(
    ("selector", "match"),
    [
        (Longs, r"indices from selector 'first' are int64 \(10,\); expected is int32 \(10,\)"),
        (Lists, r"indices from selector 'first' are list; expected is int32 \(10,\)"),
        (Doubles, r"values from selector 'first' are float64 \(10,\); expected is float32"),
        (TooFew, r"values from selector 'first' are float32 \(9,\); expected is float32 \(10,\)"),
        (Descending, r"indices from selector 'first' do not ascend within 0 \.\. 29; sort them"),
        (Twice, "do not ascend"),
        (Outside, "do not ascend within"),
        (Negative, "do not ascend within"),
        (Asking, "do not ascend within"),
        (Alone, "what selector 'first' chose is of type ndarray; expected is a pair of indices"),
    ],
)
def test_a_choice_that_is_none(selector, match, error_feedback):
    """Whatever it is given to: an error feedback takes the indices for its memory first."""
    codec = build_codec({"selector": "topk", "carrier": "lhc", "error_feedback": error_feedback})
    codec.selector = selector(Settings(), codec._context)
    with pytest.raises(InputError, match=match):
        next(codec.exchange(JOB[0], 2))


def test_a_choice_of_a_sum_that_is_none():
    codec = build_codec({"selector": "topk", "carrier": "lhc", "error_feedback": "lowpass"})
    codec.selector = OfTheSum(Settings(), codec._context)
    with pytest.raises(InputError, match=r"from selector 'first' do not ascend within 0 \.\. 29"):
        next(codec.exchange(JOB[0], 2))


class Rounded(Scaling):
    scale = 1.0

    def quantize(self, values):
        return np.rint(values).astype(np.int32)

    def dequantize(self, integers):
        return integers / 1


class InDoubles(Quantizer):
    name = "in-doubles"
    capabilities = Capabilities(provides=frozenset({INT32, ONE_INTEGER_PER_ELEMENT, KEEPS_ZEROS}))

    def largest_integer(self, workers):
        return (2**31 - 1) // workers

    def announce(self, selection):
        del selection
        return []

    def agree(self, answers, workers):
        del answers, workers
        return Rounded()


@pytest.mark.parametrize(
    ("carrier", "gradient"), [("dense", JOB[0]), ("lhc", np.eye(1, 3000, 7, dtype=np.float32)[0])]
)
def test_values_of_another_dtype(carrier, gradient):
    codecs = [build_codec({"carrier": carrier}, worker=worker) for worker in range(2)]
    for codec in codecs:
        codec.quantizer = InDoubles(Settings(), codec._context)
    with pytest.raises(InputError, match="values from quantizer 'in-doubles' are float64"):
        all_reduce(codecs, [gradient] * 2)


class AsFloats(Rounded):
    def quantize(self, values):
        return np.sign(values)


class OneTooFew(Rounded):
    def quantize(self, values):
        return super().quantize(values)[1:]


@pytest.mark.parametrize("carrier", ["dense", "lhc", "union", "block"])
@pytest.mark.parametrize(
    ("scaling", "match"), [(AsFloats, r"float32 \(30,\)"), (OneTooFew, r"int32 \(29,\)")]
)
def test_integers_that_are_none_or_too_few(carrier, scaling, match):
    codec = build_codec({"carrier": carrier})
    codec.quantizer = InDoubles(Settings(), codec._context)
    codec.quantizer.agree = lambda answers, workers: scaling()
    match = f"integers from quantizer 'in-doubles' are {match}; expected is int32 \\(30,\\)"
    with pytest.raises(InputError, match=match):
        all_reduce([codec], JOB[:1])


def test_what_a_quantizer_announces_and_agrees_on():
    codec = build_codec({"selector": "all"})
    codec.quantizer = InDoubles(Settings(), codec._context)
    codec.quantizer.agree = lambda answers, workers: 3
    match = "what quantizer 'in-doubles' agrees on is of type int; expected is a Scaling"
    with pytest.raises(InputError, match=match):
        all_reduce([codec], JOB[:1])
    segment = Segment(ReduceOp.MAX, np.ones(1, np.int32))
    for wrong in (segment, None, [segment, 3]):
        codec.quantizer.announce = lambda selection, wrong=wrong: wrong
        with pytest.raises(InputError, match=r"'in-doubles' announces is .*expected is a list of"):
            all_reduce([codec], JOB[:1])


class Short(Dense):
    def carry(self, *arguments):
        total = yield from super().carry(*arguments)
        return Total(total.integers[:-1])


def test_sums_of_another_length():
    network = innet.Collective(workers=2)
    for codec in network.codecs:
        codec.carrier = Short(Settings(), codec._context)
    match = r"sums from carrier 'dense' are int32 \(29,\); expected is int32 \(30,\)"
    with pytest.raises(InputError, match=match):
        network.all_reduce(JOB)


class OneMoreRound(Dense):
    def carry(self, *arguments):
        total = yield from super().carry(*arguments)
        if self.context.worker == 1:
            yield [Segment(ReduceOp.SUM, np.ones(5, np.int32))]
        return total


def test_rounds_that_not_all_workers_take():
    network = innet.Collective(workers=2)
    for codec in network.codecs:
        codec.carrier = OneMoreRound(Settings(), codec._context)
    match = r"worker 1 begins a further round, that of worker 0 has ended; .* on all workers"
    with pytest.raises(InputError, match=match):
        network.all_reduce(JOB)


class TestRegistered:
    @pytest.fixture
    def selectors(self, monkeypatch):
        registry = Registry("selector", "innet.nobody")
        registry.register("all", "innet.codecs.selectors.all:All")
        monkeypatch.setitem(PARTS, "selector", registry)
        return registry

    @pytest.fixture
    def presets(self, monkeypatch):
        registry = Registry("codec", "innet.nobody")
        registry.register("dense", {**build_codec().spec})
        monkeypatch.setattr("innet.codecs.build.PRESETS", registry)
        return registry

    def test_a_part_that_is_no_class_of_its_kind(self, selectors):
        selectors.register("seven", 7)
        selectors.register("carrier", Dense)
        for name in ("seven", "carrier"):
            match = rf"selector '{name}' is registered as .*derived from innet\.codecs\.parts\.Sel"
            with pytest.raises(ConfigError, match=match):
                build_codec({"selector": name})

    def test_a_part_that_lacks_a_method(self, selectors):
        selectors.register("idle", type("Idle", (Selector,), {"name": "idle"}))
        with pytest.raises(
            ConfigError, match=r"selector 'idle': its class Idle lacks \['select'\]"
        ):
            build_codec({"selector": "idle"})

    def test_a_part_without_a_name(self, selectors):
        nameless = {"select": First.select}
        selectors.register("nameless", type("Nameless", (Selector,), nameless))
        match = r"selector 'nameless': its class Nameless lacks \['name'\]"
        with pytest.raises(ConfigError, match=match):
            build_codec({"selector": "nameless"})

    @pytest.mark.parametrize("preset", [7, {"selectr": "all"}])
    def test_a_preset_that_is_none(self, presets, preset):
        presets.register("theirs", preset)
        with pytest.raises(
            ConfigError, match=r"codec 'theirs' is registered as .* out of selector"
        ):
            build_codec("theirs")

    def test_a_presets_other_parts_are_those_of_dense(self, presets):
        presets.register("theirs", {"carrier": "lhc"})
        assert build_codec("theirs").describe() == "theirs"
