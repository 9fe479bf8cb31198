"""What every codec owes: every preset, and every registered part in some codec.

The second tier has every two parts that may be together, in some codec.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from support import gradients, majority_vote
from support.lockstep import all_reduce, integer_oracle, promised, sent_oracle
from support.tiers import examples

from innet import kernels as kernel_sets
from innet.codecs import PARTS, PRESETS, build_codec
from innet.codecs.parts import INCLUDES_LARGEST, check_composition
from innet.core.errors import CompositionError, GradientError, InputError
from innet.core.reduce_op import ReduceOp


def legal_combinations():
    """Those that ``build_codec`` does not refuse. Of two thousand it builds only as many as are
    needed to know what each part says of itself.
    """
    said = {}
    for names in itertools.product(*(registry.names() for registry in PARTS.values())):
        spec = dict(zip(PARTS, names, strict=True))
        try:
            if spec.items() - said.keys():
                codec = build_codec(spec)
                said |= {(kind, spec[kind]): getattr(codec, kind).capabilities for kind in PARTS}
            check_composition({kind: (name, said[kind, name]) for kind, name in spec.items()})
        except CompositionError:
            continue
        yield spec


def together(spec, count):
    """The parts of ``spec``, ``count`` at a time."""
    return set(itertools.combinations(sorted(spec.items()), count))


def covering(count, known=()):
    """So many of the legal combinations that any ``count`` parts that occur together in one of them
    do so here, or in ``known``.
    """
    each = [(spec, together(spec, count)) for spec in legal_combinations()]
    left = set().union(*(its_parts for _, its_parts in each))
    left -= set().union(*(together(spec, count) for spec in known))
    often = Counter()
    chosen = []
    while left:
        # Of specs as good as each other, one whose selector occurs least so far.
        best, its_parts = max(
            each, key=lambda one: (len(one[1] & left), -often[one[0]["selector"]])
        )
        left -= its_parts
        often[best["selector"]] += 1
        chosen.append(best)
    return chosen


@cache
def specs():
    """The presets, and what they lack for every part to occur."""
    names = PRESETS.names()
    presets = [
        {kind: part["name"] for kind, part in build_codec(name).spec.items()} for name in names
    ]
    with majority_vote.registered():  # a quantizer of one's own, which is not linear
        return [*names, *covering(1, presets)]


def more_specs():
    """Such that every two parts occur: what goes wrong between parts goes wrong between two."""
    with majority_vote.registered():
        return [spec for spec in covering(2) if spec not in specs()]


def pytest_generate_tests(metafunc):
    if "spec" in metafunc.fixturenames:
        chosen = specs()
        if metafunc.config.getoption("--all"):
            mark = pytest.mark.repeats("the same with each part in some codec")
            chosen = [*chosen, *(pytest.param(spec, marks=mark) for spec in more_specs())]
        metafunc.parametrize("spec", chosen, ids=str)


@pytest.fixture(autouse=True, scope="module")
def _quantizer_of_ones_own():
    with majority_vote.registered():
        yield


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def assert_same_outcome(one, other):
    assert one.sum.tobytes() == other.sum.tobytes()
    np.testing.assert_array_equal(one.integer_sum, other.integer_sum)
    assert (one.scale, one.rounds, one.details) == (other.scale, other.rounds, other.details)


def test_the_presets_are_here():
    assert set(PRESETS.names()) >= {"dense", "lhc", "topk"}
    assert any("majority-vote" in each.values() for each in specs() if isinstance(each, dict))
    assert len(specs()) >= 8  # so that a rule that refuses everything does not pass


def within_reach(spec, job):
    """The gradients, as far as the quantizer takes them."""
    reach = build_codec(spec).quantizer.reach
    return [np.clip(each, -reach, reach).astype(np.float32) for each in job]


@settings(max_examples=examples(16))
@given(st.data())
def test_the_decoded_sum_is_the_sum(spec, data):
    job = within_reach(spec, data.draw(gradients.jobs(large=True)))
    size = job[0].size
    before = [gradient.copy() for gradient in job]
    outcomes = all_reduce(workers(spec, len(job)), job)

    # In integers, exactly, and without overflow.
    oracle = integer_oracle(outcomes, outcomes[0].contribution.size)
    assert np.abs(oracle).max(initial=0) <= 2**31 - 1
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.integer_sum, oracle)
        assert_same_outcome(outcome, outcomes[0])

    # Zeros have no sign.
    assert not np.signbit(outcomes[0].sum[outcomes[0].sum == 0]).any()

    # In floats, as near as the quantizer says, and the rounding to float32.
    if outcomes[0].scale and not build_codec(spec).capabilities()["linear"]:
        # What it stands for is the quantizer's affair. It is finite where the sum of the workers'
        # norms is far from float32's end: rotations and factors of length 1 add no more than that.
        largest = max(float(np.abs(gradient).max(initial=0)) for gradient in job)
        if 16 * len(job) * np.sqrt(2 * size) * largest < gradients.LARGEST:
            assert np.isfinite(outcomes[0].sum).all()
    elif outcomes[0].scale:
        exact = sent_oracle(outcomes, size)
        fits, tolerance = promised(build_codec(spec), job, outcomes)
        assert (np.abs(outcomes[0].sum[fits] - exact[fits]) <= tolerance[fits]).all()
    else:
        largest = INCLUDES_LARGEST in build_codec(spec).selector.capabilities.provides
        assert not any(each.any() for each in (job if largest else [o.sent for o in outcomes]))
        assert not outcomes[0].sum.any()
    for gradient, copy in zip(job, before, strict=True):
        assert gradient.tobytes() == copy.tobytes()


CROWDS = [33, 64, 1024, 32768]  # workers


@st.composite
def crowds(draw, workers):
    """Gradients, and how many of so many workers have each: one the first, who may lead."""
    size = draw(st.sampled_from([1, 17, 100, 257]))
    kinds = ["extreme", "equal", "normal", "heavy"]
    different = draw(st.integers(2, 4))
    job = [draw(gradients.vectors(size, draw(st.sampled_from(kinds)))) for _ in range(different)]
    cuts = sorted(draw(st.sets(st.integers(2, workers - 1), min_size=0, max_size=different - 2)))
    edges = [0, 1, *cuts, workers]
    return job[: len(edges) - 1], [end - begin for begin, end in itertools.pairwise(edges)]


def stated(function, count):
    """What a codec says of so many workers; or None, and how many it takes instead."""
    try:
        return function(count), count
    except InputError as error:
        refusal = re.search(rf"sums up to (\d+) workers, not {count}; choose .*\.$", str(error))
    return None, int(refusal[1])


@settings(max_examples=4)
@given(st.data())
def test_sums_of_many_workers_fit(spec, data):
    """Exact, and without overflow on the way; or refused, with the number of workers that fit."""
    for count in CROWDS:
        note(f"{count} workers")
        check_crowd(spec, count, data)


def check_crowd(spec, count, data):
    codec = build_codec(spec)
    bits, most = stated(codec.value_bits, count)
    if bits is None:
        assert most < count
        codec.value_bits(most)
        assert stated(codec.value_bits, most + 1) == (None, most)
        return
    assert 2 <= bits <= 32
    job, counts = data.draw(crowds(count))
    job, codecs = within_reach(spec, job), workers(spec, len(job))
    repeats = False

    def check_sums(segments):
        nonlocal repeats
        repeats |= codec.quantizer.name == "optimistic" and codecs[0].may_overflow
        for column in zip(*segments, strict=True):
            if column[0].operation is ReduceOp.SUM and not (codecs[0].may_overflow or codec.wraps):
                words = np.stack([each.words for each in column]).astype(np.int64)
                # The worst order of arrival: all of one sign come first.
                for one_sign in (np.maximum(words, 0), np.minimum(words, 0)):
                    assert (np.abs(np.array(counts) @ one_sign) <= 2**31 - 1).all()

    outcomes = all_reduce(codecs, job, check_sums, counts=counts)
    oracle = integer_oracle(outcomes, outcomes[0].contribution.size, counts)
    assert np.abs(oracle).max(initial=0) <= 2**31 - 1
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.integer_sum, oracle)
        assert_same_outcome(outcome, outcomes[0])
        largest = np.abs(outcome.contribution.integers.astype(np.int64)).max(initial=0)
        assert largest < 2 ** (bits - 1)
        assert count * largest <= 2**31 - 1 or repeats


@pytest.mark.parametrize("name", PARTS["quantizer"].names())
@pytest.mark.parametrize("count", [1, 2, 4, 32, *CROWDS])
def test_every_quantizer_states_its_bits(name, count):
    quantizer = build_codec(f"dense:quantizer={name}").quantizer
    largest, _ = stated(quantizer.largest_integer, count)
    if largest is None:
        return
    assert largest >= 1
    assert quantizer.value_bits(count) == largest.bit_length() + 1
    assert largest * count <= 2**31 - 1 or name in {"optimistic", "float"}


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_shapes_and_dtypes(spec, size):
    job = [np.linspace(-1, 1, size, dtype=np.float32) for _ in range(3)]
    for outcome, gradient in zip(all_reduce(workers(spec, 3), job), job, strict=True):
        assert (outcome.sum.dtype, outcome.sum.shape) == (np.float32, (size,))
        own = outcome.contribution
        assert (outcome.integer_sum.dtype, outcome.integer_sum.shape) == (np.int32, (own.size,))
        assert (own.integers.dtype, outcome.sent.dtype) == (np.int32, np.float32)
        expected = (own.size,) if own.indices is None else own.indices.shape
        assert own.integers.shape == expected
        verbatim = build_codec(spec).selector.verbatim
        if outcome.indices is None:
            assert outcome.sent.shape == gradient.shape
            assert outcome.sent.tobytes() == gradient.tobytes() or not verbatim
        else:
            assert outcome.indices.dtype == np.int32
            assert outcome.indices.shape == outcome.sent.shape
            assert (np.diff(outcome.indices) > 0).all()
            if verbatim:
                np.testing.assert_array_equal(outcome.sent, gradient[outcome.indices])
        assert isinstance(outcome.scale, float)
        assert outcome.encode_seconds >= 0
        assert outcome.decode_seconds >= 0
        json.dumps(outcome.details)


def test_what_is_not_finite_is_refused_and_changes_nothing(spec):
    """Also by those who let an error feedback look, and by those who remember a gradient
    already.
    """
    codec = build_codec(spec)
    gradient = np.linspace(-1, 1, 50, dtype=np.float32)
    broken = gradient.copy()
    broken[7] = np.nan
    for _ in range(2):
        with pytest.raises(GradientError, match="at index 7"):
            next(codec.exchange(broken, 1))
        (outcome,) = all_reduce([codec], [gradient])
        assert np.isfinite(outcome.sum).all()


def test_an_empty_gradient_takes_no_round(spec):
    codecs = workers(spec, 4)
    for outcome in all_reduce(codecs, [np.empty(0, np.float32)] * 4):
        assert outcome.rounds == 0
        assert outcome.sum.size == 0
    for codec in codecs:
        codec.load_state_dict(codec.state_dict())


def test_zeros_take_the_selectors_and_the_handshake_alone(spec):
    least, most = build_codec(spec).selector.capabilities.rounds
    for outcome in all_reduce(workers(spec, 4), [np.zeros(100, np.float32)] * 4):
        assert least <= outcome.rounds - 1 <= most
        assert not outcome.sum.any()


def test_rounds_are_as_declared(spec):
    least, most = build_codec(spec).capabilities()["rounds"]
    rng = np.random.default_rng(0)
    codecs = workers(spec, 2)
    for density in (1, 0.1, 0.01):
        keep = rng.random((2, 5000)) < density
        job = list(np.where(keep, rng.standard_normal((2, 5000)), 0).astype(np.float32))
        assert least <= all_reduce(codecs, job)[0].rounds <= most


def test_a_fixed_size_is_that_of_any_gradient(spec):
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((2, 5000)).astype(np.float32)
    # Not so sparse that who looks at a hundredth of the elements sees zeros alone: these end early.
    sparse = np.where(rng.random((2, 5000)) < 0.1, noise, np.float32(0))
    sizes = []
    for job in (noise, sparse):
        sent = []
        all_reduce(workers(spec, 2), list(job), watch=lambda own, to=sent: to.extend(own[0]))
        sizes.append(sum(each.words.size for each in sent))
    assert sizes[0] == sizes[1] or not build_codec(spec).capabilities()["fixed_size"]


@pytest.mark.parametrize("kernels", [name for name in kernel_sets.names() if name != "reference"])
def test_the_kernels_make_no_difference(spec, kernels):
    rng = np.random.default_rng(1)
    job = [np.where(rng.random(3000) < 0.05, rng.standard_normal(3000), 0).astype("f4")] * 3
    segments = {}
    outcomes = {}
    for name in ("reference", kernels):
        sent = segments.setdefault(name, [])
        outcomes[name] = all_reduce(
            workers(spec, 3, kernels=name),
            job,
            watch=lambda each, sent=sent: sent.append(
                [[(s.operation, s.words.tobytes()) for s in own] for own in each]
            ),
        )[0]
    assert segments["reference"] == segments[kernels]
    assert_same_outcome(outcomes["reference"], outcomes[kernels])


def test_state_survives_and_runs_repeat(spec):
    rng = np.random.default_rng(2)
    jobs = [
        list(np.where(rng.random((3, 4000)) < 0.1, rng.standard_normal((3, 4000)), 0).astype("f4"))
        for _ in range(5)
    ]
    through = workers(spec, 3)
    whole = [all_reduce(through, job) for job in jobs]
    first = workers(spec, 3)
    for job in jobs[:3]:
        all_reduce(first, job)
    states = [codec.state_dict() for codec in first]
    for job in jobs:  # what was taken is a copy
        all_reduce(first, job)
    second = workers(spec, 3)
    for codec, state in zip(second, states, strict=True):
        codec.load_state_dict(state)
    for job, expected in zip(jobs[3:], whole[3:], strict=True):
        for mine, theirs in zip(all_reduce(second, job), expected, strict=True):
            assert_same_outcome(mine, theirs)


def test_what_is_held_back_may_stay_so(spec):
    """Of elements whose gradients are zero on all workers; the others are reduced as ever."""
    codecs = workers(spec, 3)
    spans = [slice(5, 40), slice(200, 201)]
    apart = np.zeros(300, bool)
    for span in spans:
        apart[span] = True
    rng = np.random.default_rng(4)
    for step in range(5):
        jobs = [rng.laplace(size=300).astype(np.float32) for _ in codecs]
        if step % 2 == 0:
            all_reduce(codecs, jobs)
            continue
        for gradient in jobs:
            gradient[apart] = 0
        before = [codec.error_feedback.remembered() for codec in codecs]
        with contextlib.ExitStack() as held:
            for codec in codecs:
                held.enter_context(codec.holding_back(spans))
                for each in codec.error_feedback.remembered().values():
                    assert not each[apart].any()
            outcomes = all_reduce(codecs, jobs)
        for codec, old in zip(codecs, before, strict=True):
            new = codec.error_feedback.remembered()
            assert new.keys() == old.keys()
            for key in old:
                np.testing.assert_array_equal(new[key][apart], old[key][apart])
            codec.check(jobs[0])
        if codecs[0].selector.verbatim and codecs[0].error_feedback.name == "residual":
            changed = [codec.error_feedback.residual[~apart] for codec in codecs]
            assert any(
                not np.array_equal(new, old["residual"][~apart])
                for new, old in zip(changed, before, strict=True)
            )
        assert len(outcomes) == 3


def test_the_description_is_one_line_and_rebuilds_it(spec):
    codec = build_codec(spec)
    assert "\n" not in codec.describe()
    json.dumps(codec.spec)
    json.dumps(codec.capabilities())
    assert build_codec(codec.spec).spec == codec.spec


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in PARTS for name in PARTS[kind].names()]
)
def test_every_part_documents_itself(kind, name):
    part = PARTS[kind].get(name)
    assert part.kind == kind
    assert part.name == name, f"it is registered as {name!r}, and its class has another name"
    assert part.__doc__
    for key in part.settings.model_fields:
        documented = f"{key}:" in (part.settings.__doc__ or "")
        assert documented, f"{kind} {name}: {key} is not documented"
