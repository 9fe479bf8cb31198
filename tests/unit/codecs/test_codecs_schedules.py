"""Parameters that follow schedules: the laws of codecs hold, and state survives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lockstep import all_reduce, integer_oracle
from support.tiers import examples

from innet.allreduce.collective import Collective
from innet.codecs import PARTS, build_codec
from innet.codecs.presets import BUILT_IN
from innet.codecs.scheduled import _numeric
from innet.core.errors import ConfigError, InputError, StateError
from innet.core.schedules import Exponential, Function, Linear, Steps


def workers(spec, count=2, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def jobs(count, size=400, seed=0, number=2):
    rng = np.random.default_rng(seed)
    return [list(rng.standard_normal((number, size), np.float32)) for _ in range(count)]


def bits(codecs, each):
    return [all_reduce(codecs, job)[0].sum.tobytes() for job in each]


RATIOS = st.sampled_from(
    [
        "exponential(0.25, 0.01, steps=3)",
        "linear(0.01, 1, steps=4)",
        "cosine(0.5, 0.02, steps=2)",
        "steps({0: 1, 2: 0.01, 3: 0.3})",
        "warmup(0.05, steps=2, start=0.9)",
    ]
)


@settings(max_examples=examples(25))
@given(
    preset=st.sampled_from(["topk", "dgc", "gtopk", "sidco-e"]),
    ratio=RATIOS,
    size=st.integers(1, 300),
    seed=st.integers(0, 1000),
)
def test_sent_and_rest_are_the_gradient_and_the_rest_before(preset, ratio, size, seed):
    """Bit for bit, in every step of a schedule."""
    spec = {
        "preset": preset,
        "selector": {"ratio": ratio},
        "error_feedback": {"name": "residual"},
    }
    codecs = workers(spec)
    before = [np.zeros(size, np.float32)] * 2
    for job in jobs(5, size, seed):
        outcomes = all_reduce(codecs, job)
        for worker, (codec, outcome) in enumerate(zip(codecs, outcomes, strict=True)):
            x = job[worker] + before[worker]
            sent = np.zeros(size, np.float32)
            indices = slice(None) if outcome.indices is None else outcome.indices
            sent[indices] = outcome.sent
            if outcome.applied is not None:  # others return to the residual
                sent[np.setdiff1d(np.arange(size), outcome.applied)] = 0
            rest = codec.error_feedback.residual
            assert (sent + rest).tobytes() == (x + np.float32(0)).tobytes()
            before[worker] = rest


def test_momentum_and_filter_follow_theirs():
    """In each step as a codec with that parameter does, from the same state."""
    for spec, key, schedule in [
        ("dgc", "momentum", Linear(0.5, 0.9, 3)),
        ("scalecom:rate=20", "beta", Linear(1, 0.1, 3)),
    ]:
        base = build_codec(spec).spec
        scheduled = {**base, "error_feedback": {**base["error_feedback"], key: schedule}}
        codecs = workers(scheduled)
        for step, job in enumerate(jobs(5)):
            state = [codec.state_dict() for codec in codecs]
            fixed = workers(
                {**base, "error_feedback": {**base["error_feedback"], key: schedule(step)}}
            )
            for codec, saved in zip(fixed, state, strict=True):
                codec.load_state_dict(saved)
            mine, theirs = bits(codecs, [job]), bits(fixed, [job])
            assert mine == theirs
            assert (
                codecs[0].error_feedback.residual.tobytes()
                == fixed[0].error_feedback.residual.tobytes()
            )


def numeric_parameters():
    for kind, registry in PARTS.items():
        for name in registry.names():
            for key, field in registry.get(name).settings.model_fields.items():
                if _numeric(field.annotation):
                    yield pytest.param(kind, name, key, id=f"{name}.{key}")


VALUES = {
    "ratio": (0.3, 0.05), "k": (40, 7), "rows": (5, 3), "columns": (40, 90), "candidates": (3, 2),
    "bin": (20, 60), "matrix_bin": (100, 50), "scale_factor": (2.0, 3.0), "rank": (2, 1),
    "sample": (0.5, 0.2), "warmup_steps": (0, 2), "rate": (10, 40), "warmup": (1, 0),
    "first": (0.25, 0.5), "stages": (2, 1), "every": (5, 2), "threshold": (1.0, 2.0),
    "headroom": (2, 8), "levels": (3, 9), "bits": (4, 3), "granularity": (30, 40),
    "truncated": (0.03, 0.1), "block": (32, 64), "margin": (1.2, 2.0), "seed": (3, 4),
    "hashes": (3, 4), "cells_per_item": (2.0, 3.0), "spread": (1.0, 2.0),
    "pair_stalls": (0.1, 0.2), "lanes": (1, 2), "beta": (1.0, 0.2), "momentum": (0.5, 0.9),
    "clip": (10.0, 20.0),
}  # fmt: skip


def two_numbers(kind, name, key):
    """Two different ones, if they are known; of parts that came later, the default."""
    default = PARTS[kind].get(name).settings.model_fields[key].default
    return VALUES.get(key, (default, default))


def composition(kind, name):
    """A preset with this part, or one that suits it."""
    for preset, parts in BUILT_IN.items():
        if parts[kind] == name:
            return preset
    return "topk" if kind == "selector" else "dense"


@pytest.mark.parametrize(("kind", "name", "key"), list(numeric_parameters()))
def test_every_number_can_follow_a_schedule(kind, name, key):
    """Sums stay those of the integers that were sent, and state can be saved at every step."""
    first, later = two_numbers(kind, name, key)
    if first is None:
        pytest.fail(f"add two numbers for {name}.{key} to VALUES")
    scheduled = {"name": name, key: Steps({0: first, 2: later})}
    spec = {"preset": composition(kind, name), kind: scheduled}
    codecs = workers(spec, layers=[(20, 15), (100,)])
    steps = jobs(5)
    for step, job in enumerate(steps):
        assert getattr(getattr(codecs[0], kind).parameters, key) == (first if step < 3 else later)
        outcomes = all_reduce(codecs, job)
        oracle = integer_oracle(outcomes, outcomes[0].contribution.size)
        np.testing.assert_array_equal(outcomes[0].integer_sum, oracle)
        if step == 2:
            resumed = workers(spec, layers=[(20, 15), (100,)])
            for codec, other in zip(resumed, codecs, strict=True):
                codec.load_state_dict(other.state_dict())
            expected = bits(codecs, steps[3:])
            assert bits(resumed, steps[3:]) == expected
            return


def test_a_resumed_run_follows_the_schedule_from_where_it_was():
    steps = jobs(6, number=3)
    spec = "topk:ratio=exponential(0.5, 0.02, steps=4)"
    through = Collective(workers=3, codec=spec)
    expected = [through.all_reduce(job)[0].tobytes() for job in steps]
    first = Collective(workers=3, codec=spec)
    for job in steps[:2]:
        first.all_reduce(job)
    second = Collective(workers=3, codec=spec)
    second.load_state_dict(first.state_dict())
    assert [second.all_reduce(job)[0].tobytes() for job in steps[2:]] == expected[2:]


@pytest.mark.parametrize("before", ["topk:ratio=linear(0.5, 0.1, steps=9)", "topk:ratio=0.3"])
def test_state_survives_another_schedule(before):
    """A resumed run is as one that had the other schedule from there on."""
    steps = jobs(5)
    other = {
        "preset": "topk",
        "selector": {"ratio": Function(lambda step: 0.4 if step < 3 else 0.05)},
    }
    codecs = workers(before)
    bits(codecs, steps[:2])
    rest = [codec.error_feedback.residual.copy() for codec in codecs]
    resumed = workers(other)
    for codec, saved in zip(resumed, codecs, strict=True):
        codec.load_state_dict(saved.state_dict())
    counts = []
    for job in steps[2:]:
        sums = [np.asarray(each) for each in job]
        outcomes = all_reduce(resumed, job)
        counts.append(outcomes[0].indices.size)
        x = sums[0] + rest[0]
        np.testing.assert_array_equal(outcomes[0].sent, x[outcomes[0].indices])
        rest = [codec.error_feedback.residual.copy() for codec in resumed]
    assert counts == [160, 20, 20]


def test_a_parameter_without_a_schedule_may_not_differ():
    saved = build_codec("topk:ratio=0.3").state_dict()
    with pytest.raises(StateError, match=r"0\.3"):
        build_codec("topk:ratio=0.2").load_state_dict(saved)


def test_workers_with_other_numbers_are_told_so_in_that_all_reduce():
    codecs = [
        build_codec({"preset": "topk", "selector": {"ratio": Function(each)}}, worker=worker)
        for worker, each in enumerate([lambda step: 0.1, lambda step: 0.1 if step < 1 else 0.2])
    ]
    for codec in codecs:
        codec.selector.name  # noqa: B018 - both are there
    # Their descriptions differ in nothing that can be compared, but for the numbers.
    codecs[1]._composition = codecs[0]._composition
    first, second = jobs(2)
    all_reduce(codecs, first)
    with pytest.raises(InputError, match=r"disagree; .*all-reduce 1 with .*'ratio': 0\.1"):
        all_reduce(codecs, second)


def test_a_failed_all_reduce_does_not_count():
    codec = build_codec({"preset": "topk", "selector": {"ratio": Exponential(0.5, 0.01, 3)}})
    x = np.ones(100, np.float32)
    for _ in range(3):
        exchange = codec.exchange(x, 1)
        next(exchange)
        exchange.close()
    (outcome,) = all_reduce([codec], [x])
    assert outcome.indices.size == 50


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("topk:ratio=linear(0.5, 2, steps=3)", r"ratio .*in all-reduce 3, by ratio = linear"),
        ("topk:ratio=sawtooth(1)", "there is no sawtooth"),
        ({"preset": "lhc", "carrier": {"hashing": Linear(0, 1, 2)}}, "hashing is no number"),
        ({"preset": "topk", "selector": {"ration": Linear(0, 1, 2)}}, "ration"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_when_it_is_built(spec, says):
    with pytest.raises(ConfigError, match=says):
        build_codec(spec)


def test_whole_numbers_are_rounded():
    codecs = workers("topk:k=linear(10, 5, steps=10)")
    counts = [all_reduce(codecs, job)[0].indices.size for job in jobs(4)]
    assert counts == [10, 10, 9, 8]  # 9.5 and 8.5 go to even numbers
