"""What every codec does with input at the edge, and with what is wrong; docs/codecs.md says it."""

from __future__ import annotations

from typing import get_args

import annotated_types
import numpy as np
import pytest
from support import gradients
from support.lockstep import all_reduce, integer_oracle, promised, sent_oracle

import innet
from innet.allreduce.report import is_exact
from innet.codecs import PARTS, PRESETS, build_codec
from innet.core.errors import ConfigError, GradientError, InputError, StateError
from innet.core.reduce_op import combine

each_preset = pytest.mark.parametrize("preset", PRESETS.names())

PART_NAMES = [(kind, name) for kind, registry in PARTS.items() for name in registry.names()]
each_part = pytest.mark.parametrize(("kind", "name"), PART_NAMES)

# Refused though they are within the range that is declared.
ALSO_REFUSED = {"lhc.lanes": [3], "gs-sgd.rows": [4], "sketched-sgd.rows": [4], "thc.block": [24]}
EDGES = {
    "one element": np.array([-2.5], np.float32),
    "one zero": np.zeros(1, np.float32),
    "all zero": np.zeros(700, np.float32),
    "all negative zero": np.full(700, -0.0, np.float32),
    "all equal": np.full(700, 0.3, np.float32),
    "the smallest denormals": np.full(700, gradients.TINIEST, np.float32),
    "denormals": (np.arange(-350, 350) * gradients.TINIEST).astype(np.float32),
    "one of many": np.eye(1, 700, 600, dtype=np.float32)[0],
}


def numbers(kind, name):
    """The parameters of a part that are one number each, or None: name, int or float, bounds."""
    for field, about in PARTS[kind].get(name).settings.model_fields.items():
        wanted, bounds = about.annotation, about.metadata
        if type(None) in get_args(wanted):  # Annotated[int, Field(...)] | None
            inner = get_args(get_args(wanted)[0])
            wanted, bounds = inner[0], getattr(inner[-1], "metadata", [])
        if wanted in (int, float):
            yield field, wanted, bounds


def out_of_range(wanted, bound):
    """A number that the bound excludes, next to it."""
    match bound:
        case annotated_types.Ge(least):
            return least - 1 if wanted is int else least - 0.1
        case annotated_types.Le(most):
            return most + 1 if wanted is int else max(most + 0.1, most * 1.1)
        case annotated_types.Gt(end) | annotated_types.Lt(end):
            return wanted(end)


def wrong_parameters():
    for kind, name in PART_NAMES:
        for field, wanted, bounds in numbers(kind, name):
            wrong = [out_of_range(wanted, each) for each in bounds]
            for value in wrong + ALSO_REFUSED.get(f"{name}.{field}", []):
                yield pytest.param(kind, name, field, value, id=f"{name}.{field}={value}")


@pytest.mark.parametrize(("kind", "name", "field", "value"), list(wrong_parameters()))
def test_parameters_out_of_range_are_refused_by_name(kind, name, field, value):
    with pytest.raises(ConfigError, match=field):
        build_codec({kind: {"name": name, field: value}})


@each_part
def test_every_number_has_a_range_and_takes_no_other_thing(kind, name):
    for field, wanted, bounds in numbers(kind, name):
        assert bounds, f"{kind} {name}: {field} has no range, such as Field(ge=1)"
        wrong = ["1", *((np.nan, np.inf, -np.inf) if wanted is float else (1.5,))]
        for value in wrong:
            with pytest.raises(ConfigError, match=field):
                build_codec({kind: {"name": name, field: value}})


@pytest.mark.parametrize("preset", ["topk", "gtopk", "gs-sgd", "sketched-sgd"])
@pytest.mark.parametrize("k", [5, 6, 10**9])
def test_a_k_of_all_or_more_sends_everything(preset, k):
    x = np.array([1, -2, 0, 4, 0.5], np.float32)
    spec = {"preset": preset, "selector": {"k": k}}
    outcomes = all_reduce([build_codec(spec, worker=worker) for worker in range(3)], [x] * 3)
    np.testing.assert_allclose(outcomes[0].sum, 3 * x, rtol=1e-6)


@each_preset
@pytest.mark.parametrize("edge", EDGES)
def test_edges_are_summed_like_everything_else(preset, edge):
    codecs = [build_codec(preset, worker=worker) for worker in range(3)]
    job = [EDGES[edge], -3 * EDGES[edge], EDGES[edge] * 0]
    before, allowed = np.zeros_like(job[0]), 0.0
    for _ in range(3):  # the residuals are at the edge, too
        outcomes = all_reduce(codecs, job)
        size = outcomes[0].contribution.size
        np.testing.assert_array_equal(outcomes[0].integer_sum, integer_oracle(outcomes, size))
        assert np.isfinite(outcomes[0].sum).all()
        assert not np.signbit(outcomes[0].sum[outcomes[0].sum == 0]).any()
        exact = sent_oracle(outcomes, job[0].size)
        if preset == "signsgd":  # the majority, worth one for each worker
            votes = np.sum([np.sign(x) for x in job], axis=0)
            np.testing.assert_array_equal(outcomes[0].sum, 3 * np.sign(votes))
        elif (
            codecs[0].error_feedback.name == "ef21"
        ):  # the sum of states, which what is sent changes
            step = promised(codecs[0], job, outcomes)[1] if outcomes[0].scale else 0.0
            step = step + np.spacing(np.abs(outcomes[0].sum))  # the sum is kept in float32
            moved = outcomes[0].sum.astype(np.float64) - before
            assert (np.abs(moved - exact) <= step).all()
            before, allowed = outcomes[0].sum, allowed + step
            states = np.sum([each.error_feedback.estimate for each in codecs], axis=0, dtype="f8")
            assert (np.abs(before - states) <= allowed).all()
        elif codecs[0].sends_floats:  # what lies below the guard bits may be cut off
            assert is_exact(outcomes) is None
            np.testing.assert_allclose(outcomes[0].sum, exact, rtol=2**-22)
        elif outcomes[0].scale:
            assert codecs[0].capabilities()["linear"]
            fits, tolerance = promised(codecs[0], job, outcomes)
            assert fits.all()
            assert (np.abs(outcomes[0].sum - exact) <= tolerance).all()
        else:
            assert codecs[0].capabilities()["linear"]
            assert not outcomes[0].sum.any()


@each_preset
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_and_changes_nothing(preset, value):
    rng = np.random.default_rng(0)
    jobs = [list(rng.standard_normal((2, 500)).astype(np.float32)) for _ in range(2)]
    wrong = jobs[0][1].copy()
    wrong[37] = value
    asked, spared = ([build_codec(preset, worker=worker) for worker in range(2)] for _ in range(2))
    all_reduce(asked, jobs[0])
    all_reduce(spared, jobs[0])
    with pytest.raises(GradientError, match=f"worker 1 is {value} at index 37"):
        next(asked[1].exchange(wrong, 2))
    for one, other in zip(all_reduce(asked, jobs[1]), all_reduce(spared, jobs[1]), strict=True):
        assert one.sum.tobytes() == other.sum.tobytes()


# ------------------------------------------------------------------ workers that disagree


@each_preset
def test_a_worker_of_another_seed_is_noticed_by_all(preset):
    """Every segment has the length of the others' here: without a check the sum would be wrong."""
    program, values = ("fpisa", 32) if preset == "fpisa" else ("slots", 64)
    network = innet.Collective(workers=3, codec=preset, program=program, values_per_packet=values)
    network.codecs[1] = build_codec(preset, worker=1, seed=5)
    job = [np.linspace(-1, 1, 3000, dtype=np.float32)] * 3
    with pytest.raises(InputError, match=r"codecs disagree; that of worker 0 is: .*seed 0"):
        network.all_reduce(job)
    with pytest.raises(StateError, match="failed half-way"):
        network.all_reduce(job)


def opened(codec, size=3000, workers=2):
    """An exchange, up to its handshake, and the words it sends in that."""
    exchange = codec.exchange(np.linspace(-1, 1, size, dtype=np.float32), workers)
    return exchange, next(exchange)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"spec": "topk"}, {"spec": {"preset": "topk", "selector": {"ratio": 0.02}}}),
        ({"spec": "topk"}, {"spec": {"preset": "topk", "carrier": {"lanes": 8}}}),
        ({"spec": "topk"}, {"spec": "gtopk"}),
        ({"spec": "topk"}, {"spec": "threshold"}),
        ({"spec": "qsgd"}, {"spec": {"preset": "qsgd", "quantizer": {"levels": 7}}}),
        ({"spec": "lhc"}, {"spec": "lhc", "seed": 1}),
        ({"spec": "sidco-e", "layers": [3000]}, {"spec": "sidco-e", "layers": [1000, 2000]}),
        ({"spec": "adacomp", "layers": [3000]}, {"spec": "adacomp", "layers": [(100, 30)]}),
    ],
    ids=str,
)
def test_what_workers_must_have_in_common(one, other):
    pairs = [opened(build_codec(worker=i, **each)) for i, each in enumerate((one, other))]
    columns = zip(*(segments for _, segments in pairs), strict=True)
    answers = [combine(own[0].operation, [each.words for each in own]) for own in columns]
    for worker, (exchange, _) in enumerate(pairs):
        with pytest.raises(InputError, match=f"codecs disagree; that of worker {worker} is"):
            exchange.send(answers)


@pytest.mark.parametrize("preset", ["lhc", "qsgd", "thc"])
def test_states_of_different_times_are_noticed(preset):
    job = [np.eye(1, 3000, 7, dtype=np.float32)[0]] * 2
    codecs = [build_codec(preset, worker=worker) for worker in range(2)]
    all_reduce(codecs, job)
    codecs[1] = build_codec(preset, worker=1)  # as a worker that starts again without its state
    pairs = [opened(codec) for codec in codecs]
    columns = zip(*(segments for _, segments in pairs), strict=True)
    answers = [combine(own[0].operation, [each.words for each in own]) for own in columns]
    with pytest.raises(InputError, match="states of one time"):
        pairs[0][0].send(answers)


def test_other_numbers_of_workers_are_noticed():
    pairs = [opened(build_codec("dense", worker=worker), workers=2 + worker) for worker in range(2)]
    answer = np.maximum(*(segments[0].words for _, segments in pairs))
    with pytest.raises(InputError, match="3000 elements, 2 workers"):
        pairs[0][0].send([answer])


def test_kernels_and_spelt_out_defaults_are_no_disagreement():
    spelt = {"preset": "topk", "selector": {"ratio": None, "k": None}, "carrier": {"name": "lhc"}}
    codecs = [build_codec("topk"), build_codec(spelt, worker=1, kernels="reference")]
    job = [np.linspace(-1, 1, 300, dtype=np.float32)] * 2
    assert all_reduce(codecs, job)[0].sum.any()
