"""Codecs by layer: the sums are those of the groups' codecs, each run by itself, bit for bit."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lockstep import all_reduce, integer_oracle
from support.tiers import examples

import innet
from innet.allreduce.collective import Collective
from innet.allreduce.sizes import modelled_sizes, round_sizes
from innet.cli.options import with_layers
from innet.codecs import PRESETS, build_codec
from innet.codecs.build import LAYERS, spec_of_unit
from innet.codecs.by_layer import CodecByLayer, JoinedRound, assigned
from innet.core.errors import (
    ConfigError,
    GradientError,
    InputError,
    NetworkError,
    StateError,
    UnknownNameError,
)
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.schedules import Steps

MODEL = {
    "conv.weight": (8, 3, 3),
    "conv.bias": (8,),
    "lstm.weight": (20, 30),
    "lstm.bias": (30,),
    "fc.weight": (10, 30),
    "fc.bias": (10,),
}
SIZE = sum(math.prod(shape) for shape in MODEL.values())
MIXED = {"layers": {"*.bias": "dense", "lstm.*": "topk:ratio=0.05", "*": "scalecom:rate=20"}}


def workers(spec, count=3, layers=MODEL, **keywords):
    return [build_codec(spec, worker=each, layers=layers, **keywords) for each in range(count)]


def jobs(count, number=3, size=SIZE, seed=0):
    rng = np.random.default_rng(seed)
    return [list(rng.standard_normal((number, size), np.float32)) for _ in range(count)]


def parts_of(codec, gradient):
    """The gradients of the groups, cut by the names of their layers."""
    edges = np.cumsum([0, *(math.prod(shape) for shape in MODEL.values())])
    cut = dict(zip(MODEL, np.split(gradient, edges[1:-1]), strict=True))
    return [np.concatenate([cut[name] for name in group.layers]) for group in codec.groups]


def alone(codecs, job):
    """The sum of the model's gradient by the groups' codecs, one all-reduce for each group."""
    edges = np.cumsum([0, *(math.prod(shape) for shape in MODEL.values())])
    starts = dict(zip(MODEL, edges, strict=False))
    total = np.empty(SIZE, np.float32)
    pieces = [parts_of(codecs[0], gradient) for gradient in job]
    for number, group in enumerate(codecs[0].groups):
        outcomes = all_reduce(
            [codec.groups[number].codec for codec in codecs], [each[number] for each in pieces]
        )
        done = 0
        for name in group.layers:
            length = math.prod(MODEL[name])
            piece = outcomes[0].sum[done : done + length]
            total[starts[name] : starts[name] + length] = piece
            done += length
    return total


# ----------------------------------------------------------------------------
# The contract, over compositions.


OF_INTEGERS = [name for name in PRESETS.names() if not build_codec(name).sends_floats]


@settings(max_examples=examples(25))
@given(
    first=st.sampled_from(OF_INTEGERS),
    second=st.sampled_from(OF_INTEGERS),
    pattern=st.sampled_from(["*.bias", "lstm.*", "[cf]*.weight", "fc.bias"]),
    seed=st.integers(0, 99),
)
def test_sums_are_those_of_each_group_alone(first, second, pattern, seed):
    spec = {"layers": {pattern: first, "*": second}}
    codecs, others = workers(spec, seed=seed), workers(spec, seed=seed)
    for job in jobs(3, seed=seed):
        before = [gradient.copy() for gradient in job]
        outcomes = all_reduce(codecs, job)
        expected = alone(others, job)
        assert all(outcome.sum.tobytes() == expected.tobytes() for outcome in outcomes)
        oracle = integer_oracle(outcomes, outcomes[0].contribution.size)
        np.testing.assert_array_equal(outcomes[0].integer_sum, oracle)
        least, most = codecs[0].capabilities()["rounds"]
        assert least <= outcomes[0].rounds <= most
        for outcome, gradient in zip(outcomes, job, strict=True):
            assert outcome.indices is None or (np.diff(outcome.indices) > 0).all()
            assert outcome.sent.shape == (SIZE,) if outcome.indices is None else True
            json.dumps(outcome.details)
            if outcome.indices is not None and seed % 2 == 0:
                assert outcome.indices[-1] < gradient.size
        assert [each.tobytes() for each in job] == [each.tobytes() for each in before]


@pytest.mark.parametrize("preset", PRESETS.names())
def test_one_pattern_for_all_is_that_codec(preset):
    by_layer, plain = workers({"layers": {"*": preset}}), workers(preset)
    for job in jobs(2):
        one, other = all_reduce(by_layer, job)[0], all_reduce(plain, job)[0]
        assert one.sum.tobytes() == other.sum.tobytes()
        assert (one.rounds, one.scale) == (other.rounds, other.scale)
        np.testing.assert_array_equal(one.integer_sum, other.integer_sum)


@pytest.mark.parametrize(
    "spec", [MIXED, {"layers": {"lstm.*": "dgc", "*.bias": "lhc"}, "preset": "powersgd"}], ids=str
)
def test_state_survives_and_a_failed_exchange_leaves_the_gradient(spec):
    steps = jobs(4)
    first = workers(spec)
    all_reduce(first, steps[0])
    second = workers(spec)
    for codec, other in zip(second, first, strict=True):
        codec.load_state_dict(other.state_dict())
        assert build_codec(codec.spec, layers=MODEL).spec == codec.spec
    third = [codec.state_dict() for codec in first]
    one, other = all_reduce(first, steps[1])[0], all_reduce(second, steps[1])[0]
    assert one.sum.tobytes() == other.sum.tobytes()
    # Given up in any round: as the groups' codecs, each given up.
    for stop in range(1, one.rounds + 1):
        codecs, groups = workers(spec), workers(spec)
        for mine, theirs, saved in zip(codecs, groups, third, strict=True):
            mine.load_state_dict(saved)
            theirs.load_state_dict(saved)
        give_up(codecs, steps[2], stop)
        for codec, gradient in zip(groups, steps[2], strict=True):
            for group, piece in zip(codec.groups, parts_of(codec, gradient), strict=True):
                exchange = group.codec.exchange(piece, 3)
                next(exchange)
                exchange.close()
        sums = [all_reduce(each, steps[3])[0].sum.tobytes() for each in (codecs, groups)]
        assert sums[0] == sums[1]


def give_up(codecs, job, rounds):
    """Run so many rounds; then the network fails."""

    def watch(segments):
        nonlocal rounds
        rounds -= 1
        if rounds == 0:
            raise NetworkError

    with pytest.raises(NetworkError):
        all_reduce(codecs, job, watch)
    # The generators are closed with the frames that hold them.


def test_sums_that_may_overflow_repeat_without_disturbing_the_others():
    """LHC's sums wrap around, so they must not share a round with those of ``optimistic``."""
    spec = {"layers": {"lstm.*": "dense:quantizer=optimistic,headroom=1", "*": "lhc"}}
    codecs, others = workers(spec), workers(spec)
    for job in jobs(2):
        same = [np.abs(gradient) for gradient in job]  # of one sign: sums are large
        outcome = all_reduce(codecs, same)[0]
        assert outcome.sum.tobytes() == alone(others, same).tobytes()


# ----------------------------------------------------------------------------
# Which layer gets what.


def test_the_first_match_decides_and_equal_codecs_are_one_group():
    some_topk = {"preset": "topk", "selector": {"ratio": 0.05}}
    patterns = {"fc.bias": some_topk, "*.bias": "dense", "lstm.*": "topk:ratio=0.05"}
    codec = build_codec({"layers": patterns, "preset": "scalecom", "rate": 20}, layers=MODEL)
    assert isinstance(codec, CodecByLayer)
    assert codec.by_layer() == {
        "conv.weight": "scalecom(rate=20)",
        "conv.bias": "dense",
        "lstm.weight": "topk(ratio=0.05)",
        "lstm.bias": "dense",
        "fc.weight": "scalecom(rate=20)",
        "fc.bias": "topk(ratio=0.05)",
    }
    assert [group.layers for group in codec.groups] == [
        ("conv.weight", "fc.weight"),
        ("conv.bias", "lstm.bias"),
        ("lstm.weight", "fc.bias"),
    ]
    assert codec.describe() == (
        "scalecom(rate=20) (others) + dense (*.bias) + topk(ratio=0.05) (lstm.* fc.bias)"
    )


def test_parameters_may_stand_beside_the_parts():
    spec = {"selector": "topk", "ratio": 0.25, "error_feedback": "residual"}
    assert build_codec(spec).selector.parameters.ratio == 0.25
    assert build_codec({"preset": "topk", "ratio": 0.25}).describe() == "topk(ratio=0.25)"
    with pytest.raises(ConfigError, match=r"layers is ambiguous|unknown key 'ratoi'"):
        build_codec({"preset": "topk", "ratoi": 0.25})


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"layers": {"*.bias": "dense"}}, r"no pattern matches 'conv.weight', 'lstm.weight'"),
        ({"layers": {"gru.*": "dense", "*": "topk"}}, r"'gru\.\*' decides .* it matches no layer"),
        ({"layers": {"*": "dense", "*.bias": "topk"}}, r"'\*\.bias' .* earlier patterns match"),
        ({"layers": {}}, "no mapping of patterns to codecs"),
        ({"layers": "dense"}, "no mapping of patterns to codecs"),
        ({"layers": {"*": MIXED}}, "has patterns itself"),
        ({"layers": {"*": "topk:ratio=2"}}, "ratio"),
    ],
)
def test_what_does_not_fit_the_model_is_named(spec, says):
    with pytest.raises(ConfigError, match=says):
        build_codec(spec, layers=MODEL)


def test_unknown_codecs_and_unknown_layers_are_refused():
    with pytest.raises(UnknownNameError, match="topp"):
        build_codec({"layers": {"*": "topp"}}, layers=MODEL)
    with pytest.raises(ConfigError, match=r"layers=\{name: shape"):
        build_codec(MIXED)
    assert assigned(["1", "*"], ["0", "1"], has_rest=False) == [1, 0]  # without names, numbers


def test_workers_with_other_patterns_are_told_so():
    """Also where all sizes are equal: the layers' names are in the digest."""
    layers = {"a": 40, "b": 40}
    codecs = [
        build_codec({"layers": {one: "dense", "*": "lhc"}}, worker=worker, layers=names)
        for worker, (one, names) in enumerate([("a", layers), ("b", {"b": 40, "a": 40})])
    ]
    with pytest.raises(InputError, match="disagree"):
        all_reduce(codecs, [np.ones(80, np.float32)] * 2)


def test_a_gradient_that_is_refused_changes_nothing():
    codec = build_codec(MIXED, layers=MODEL)
    x = np.ones(SIZE, np.float32)
    x[90] = np.nan
    with pytest.raises(GradientError, match="index 90"):
        next(codec.exchange(x, 1))
    with pytest.raises(StateError, match="elements together"):
        codec.check(np.ones(5, np.float32))
    (outcome,) = all_reduce([codec], [np.ones(SIZE, np.float32)])
    assert np.isfinite(outcome.sum).all()
    huge = np.full(SIZE, 3e38, np.float32)
    all_reduce([codec], [huge])
    with pytest.raises(GradientError, match=r"overflow.*elements of the layers 'lstm.weight'"):
        codec.check(huge)


def test_an_empty_gradient_and_zeros():
    assert all_reduce(workers(MIXED), [np.empty(0, np.float32)] * 3)[0].rounds == 0
    outcome = all_reduce(workers(MIXED), [np.zeros(SIZE, np.float32)] * 3)[0]
    assert outcome.scale == 0
    assert not outcome.sum.any()


def test_state_of_others_is_refused():
    codec = build_codec(MIXED, layers=MODEL)
    state = codec.state_dict()
    other = {**MODEL, "fc.bias": (11,)}
    for spec, layers, says in [
        (MIXED, other, "layers"),
        ({"layers": {**MIXED["layers"], "*.bias": "lhc"}}, MODEL, "is of a codec"),
    ]:
        with pytest.raises(StateError, match=says):
            build_codec(spec, layers=layers).load_state_dict(state)
    with pytest.raises(StateError, match="not of a codec by layer"):
        codec.load_state_dict(build_codec("dense").state_dict())
    with pytest.raises(StateError, match="seed 0"):
        build_codec(MIXED, layers=MODEL, seed=1).load_state_dict(state)


def test_a_schedule_of_one_group_may_change():
    scheduled = {**MIXED["layers"], "lstm.*": {"preset": "topk", "ratio": Steps({0: 0.5, 2: 0.05})}}
    codecs = workers({"layers": scheduled})
    sent = [all_reduce(codecs, job)[0].groups[2].indices.size for job in jobs(3)]
    assert sent == [300, 300, 30]
    fixed = workers(MIXED)
    for codec, saved in zip(fixed, codecs, strict=True):
        codec.load_state_dict(saved.state_dict())
    one, other = (all_reduce(each, jobs(1)[0])[0].sum.tobytes() for each in (codecs, fixed))
    assert one == other


# ----------------------------------------------------------------------------
# Rounds, networks, sizes, units.


def test_short_segments_share_packets_and_long_ones_are_not_copied():
    def words(size):
        return np.arange(size, dtype=np.int32)

    long = words(5000)
    groups = [
        [Segment(ReduceOp.MAX, words(3)), Segment(ReduceOp.SUM, long)],
        [Segment(ReduceOp.SUM, words(7))],
        [Segment(ReduceOp.MAX, words(2)), Segment(ReduceOp.SUM, words(4))],
    ]
    joined = JoinedRound(groups)
    assert [(each.operation, each.words.size) for each in joined.segments] == [
        (ReduceOp.SUM, 5000),
        (ReduceOp.MAX, 5),
        (ReduceOp.SUM, 11),
    ]
    assert joined.segments[0].words is long
    answers = joined.split([each.words + 1 for each in joined.segments])
    for group, answer in zip(groups, answers, strict=True):
        for segment, found in zip(group, answer, strict=True):
            np.testing.assert_array_equal(found, segment.words + 1)


def test_over_the_switch_with_the_report():
    collective = Collective(workers=3, codec=MIXED, layers=MODEL)
    plain = workers(MIXED)
    for job in jobs(2):
        total, report = collective.all_reduce(job)
        assert report.exact
        assert total.tobytes() == alone(plain, job).tobytes()
    assert report.details["layers"]["lstm.bias"] == "dense"
    assert [each["codec"] for each in report.details["groups"]] == [
        "scalecom(rate=20)", "dense", "topk(ratio=0.05)",
    ]  # fmt: skip
    assert report.rounds == 3  # ScaleCom's indices, then all handshakes, then all sums
    other = Collective(workers=3, codec=MIXED, layers=MODEL)
    other.load_state_dict(collective.state_dict())
    job = jobs(1, seed=5)[0]
    assert other.all_reduce(job)[0].tobytes() == collective.all_reduce(job)[0].tobytes()


def test_sizes_without_values_are_those_with_them():
    job = jobs(1)[0]
    sizes = round_sizes(MIXED, job, layers=MODEL)
    sent = []
    all_reduce(
        workers(MIXED), job, watch=lambda each: sent.append(sum(s.words.size for s in each[0]))
    )
    assert [sum(segment.size for segment in each) for each in sizes.rounds] == sent
    _, report = innet.all_reduce(job, MIXED, layers=MODEL, network="100g", thin=True)
    assert report.details["sizes"] == "codec"
    with pytest.raises(ConfigError, match=r"layers=\{name"):
        modelled_sizes(MIXED, lambda size: [np.ones(size, np.float32)], 100)


def test_a_unit_of_a_model_has_the_patterns_of_its_layers():
    spec = {**MIXED, "layers": {**MIXED["layers"]}}
    unit = spec_of_unit(spec, first=False, names=["lstm.weight", "fc.weight"])
    assert list(unit[LAYERS]) == ["lstm.*", "*"]
    assert unit[LAYERS]["*"]["selector"]["first_dense"] is False
    with_rest = {"layers": {"*.bias": "dense"}, "preset": "topk"}
    assert spec_of_unit(with_rest, first=True, names=["fc.weight"])["selector"]["name"] == "topk"


def test_the_option_of_commands():
    assert with_layers("topk", ["*.bias=dense", "lstm.*=topk:ratio=0.5"]) == {
        "preset": "topk",
        "layers": {"*.bias": "dense", "lstm.*": "topk:ratio=0.5"},
    }
    before = {"preset": "topk", "layers": {"a": "dense", "b": "lhc"}}
    assert list(with_layers(before, ["c=qsgd", "b=dense"])["layers"].items()) == [
        ("c", "qsgd"), ("b", "dense"), ("a", "dense"),
    ]  # fmt: skip
    for wrong in (["dense"], ["=dense"], ["a="], ["a=dense", "a=lhc"]):
        with pytest.raises(ConfigError, match="--layer"):
            with_layers("topk", wrong)


def test_what_each_group_holds_back_may_stay_so():
    layers = {"a": (10,), "b": (20,), "c": (10,), "d": (5,)}
    spec = {"preset": "topk", "ratio": 0.2, "layers": {"b": "dense", "d": "topk:ratio=0.5"}}
    codecs = [build_codec(spec, worker=worker, layers=layers) for worker in range(2)]
    rng = np.random.default_rng(1)
    all_reduce(codecs, [rng.normal(size=45).astype(np.float32) for _ in codecs])
    spans = [slice(0, 10), slice(40, 45)]  # a and d; of b and c nothing
    before = [group.codec.error_feedback.remembered() for group in codecs[0].groups]
    gradients = [rng.normal(size=45).astype(np.float32) for _ in codecs]
    for gradient in gradients:
        gradient[:10] = gradient[40:] = 0
    with codecs[0].holding_back(spans), codecs[1].holding_back(spans):
        outcomes = all_reduce(codecs, gradients)
    assert not outcomes[0].sum[:10].any()
    assert not outcomes[0].sum[40:].any()
    after = [group.codec.error_feedback.remembered() for group in codecs[0].groups]
    kept = {}
    for group, old, new in zip(codecs[0].groups, before, after, strict=True):
        if "residual" in old:
            kept[group.layers] = old["residual"] == new["residual"]
    assert kept[("a", "c")][:10].all()
    assert not kept[("a", "c")][10:].all()
    assert kept[("d",)].all()
