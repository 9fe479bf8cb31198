"""The LHC carrier: sizing, the dense form, stalls and their repair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce, integer_oracle, sent_oracle
from support.tiers import tiered

from innet import kernels
from innet.codecs import build_codec
from innet.codecs.carriers.support_size import SupportSize, _unit
from innet.core.errors import StateError
from innet.core.reduce_op import ReduceOp

TOO_SMALL = {"name": "lhc", "cells_per_item": 0.5, "spread": 0.0, "pair_stalls": 1.0}


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def sparse(rng, size, items, count=1):
    each = np.zeros((count, size), np.float32)
    for row in each:
        row[rng.choice(size, items, replace=False)] = rng.standard_normal(items)
    return list(each)


@pytest.mark.parametrize(
    "selector",
    tiered(["all", {"name": "topk", "ratio": 0.02}], ["all"], "the same with all elements"),
)
@given(st.data())
def test_a_stall_is_repaired_exactly(selector, data):
    job = data.draw(gradients.jobs(max_workers=8))
    spec = {"selector": selector, "carrier": TOO_SMALL}
    outcomes = all_reduce(workers(spec, len(job), seed=data.draw(st.integers(0, 99))), job)
    oracle = integer_oracle(outcomes, job[0].size)
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.integer_sum, oracle)


def test_a_repair_is_one_round_of_the_missing_items_alone():
    rng = np.random.default_rng(0)
    job = sparse(rng, 20_000, 300, count=4)
    rounds = []
    outcomes = all_reduce(workers({"carrier": TOO_SMALL}, 4), job, watch=rounds.append)
    details = outcomes[0].details
    assert details["repair_rounds"] == 1
    assert outcomes[0].rounds == len(rounds) == 3
    assert 0 < details["stalled_items"] <= details["union"] + details["false_positives"]
    (repair,) = rounds[2][0]
    assert repair.operation is ReduceOp.SUM
    assert repair.words.size == details["repair_words"] < details["stalled_items"]
    np.testing.assert_array_equal(outcomes[3].integer_sum, integer_oracle(outcomes, 20_000))


def test_stalls_differ_from_one_all_reduce_to_the_next():
    codecs = workers({"carrier": {**TOO_SMALL, "cells_per_item": 1.0}}, 2)
    job = sparse(np.random.default_rng(3), 5000, 200, count=2)
    stalled = {all_reduce(codecs, job)[0].details["stalled_items"] for _ in range(6)}
    assert len(stalled) > 1


def test_the_hashes_have_the_carriers_seed_if_it_has_one():
    job = sparse(np.random.default_rng(4), 5000, 50, count=2)
    sent = []
    for own, of_codec in ((7, 0), (7, 1), (8, 0), (None, 0), (None, 1)):
        rounds = []
        carrier = {"name": "lhc", "seed": own}
        all_reduce(workers({"carrier": carrier}, 2, seed=of_codec), job, watch=rounds.append)
        sent.append(b"".join(each.words.tobytes() for each in rounds[1][0]))
    assert sent[0] == sent[1]
    assert len(set(sent)) == 4


def test_index_and_sketch_travel_in_one_round():
    rounds = []
    job = sparse(np.random.default_rng(1), 10_000, 100, count=3)
    outcomes = all_reduce(workers("lhc", 3), job, watch=rounds.append)
    assert [[segment.operation for segment in own[0]] for own in rounds] == [
        [ReduceOp.MAX, ReduceOp.SUM],
        [ReduceOp.OR, ReduceOp.SUM],
    ]
    assert [segment.words.size for segment in rounds[0][0]] == [4, 1]
    assert outcomes[0].details["union"] == np.count_nonzero(np.any(job, axis=0))


@pytest.mark.parametrize("density", [0.9, 1.0])
def test_a_dense_union_travels_densely(density):
    rng = np.random.default_rng(2)
    job = [(rng.random(999) < density).astype(np.float32) for _ in range(2)]
    rounds = []
    outcomes = all_reduce(workers("lhc", 2), job, watch=rounds.append)
    assert outcomes[0].details["form"] == "dense"
    assert rounds[-1][0][0].words.size == 999
    np.testing.assert_array_equal(outcomes[0].sum, job[0] + job[1])


def test_the_overlap_is_learnt():
    # Eight equal supports of 12 %: taken to be disjoint they fill 96 %, so the first time is dense.
    rng = np.random.default_rng(4)
    (support,) = sparse(rng, 20_000, 2400)
    job = [np.where(support != 0, rng.standard_normal(20_000), 0).astype("f4") for _ in range(8)]
    codecs = workers("lhc", 8)
    first, second = (all_reduce(codecs, job)[0] for _ in range(2))
    assert first.details["form"] == "dense"
    assert second.details["form"] == "sketch"
    assert second.details["union"] == 2400
    assert 2400 <= second.details["union_expected"] <= 2650
    forgetful = workers({"carrier": {"name": "lhc", "remember": False}}, 8)
    assert [all_reduce(forgetful, job)[0].details["form"] for _ in range(2)] == ["dense"] * 2


def test_an_overlap_that_vanishes_is_repaired():
    rng = np.random.default_rng(5)
    codecs = workers("lhc", 4)
    same = sparse(rng, 50_000, 1000) * 4
    all_reduce(codecs, same)
    outcomes = all_reduce(codecs, sparse(rng, 50_000, 1000, count=4))
    assert outcomes[0].details["stalled_items"] > 1000
    np.testing.assert_array_equal(outcomes[0].integer_sum, integer_oracle(outcomes, 50_000))
    assert all_reduce(codecs, sparse(rng, 50_000, 1000, count=4))[0].details["stalled_items"] == 0


def test_sparse_gradients_arrive_as_they_were():
    # What "lossless" means for the preset: the quantizer's half step is all there is.
    rng = np.random.default_rng(6)
    job = sparse(rng, 30_000, 900, count=4)
    outcomes = all_reduce(workers("lhc", 4), job)
    half_steps = 4 * 0.5 / outcomes[0].scale
    exact = sent_oracle(outcomes, 30_000)
    error = np.abs(outcomes[0].sum - exact)
    assert (error <= half_steps * 1.01 + np.abs(exact) * 2.0**-24).all()


# 400 tries of each size, of which 1 % may stall; four more are within three standard deviations.
@pytest.mark.repeats("the same with other sizes", but=["1-*", "8-True", "300-False", "1000-True"])
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("items", [1, 2, 8, 50, 300, 1000, 3000])
def test_stalls_are_rare_at_every_size(items, blocks):
    carrier = build_codec("lhc").carrier
    cpu = kernels.get("cpu")
    rng = np.random.default_rng(items)
    stalls = 0
    for _ in range(400):
        size = 64 * items + 640
        dense = np.zeros(size, np.int32)
        if blocks:  # runs of 16 neighbors, as the rows of an embedding
            starts = 16 * rng.choice(size // 16, -(-items // 16), replace=False)
            places = (starts[:, None] + np.arange(16)).ravel()[:items]
        else:
            places = rng.choice(size, items, replace=False)
        dense[places] = 1
        layout = carrier.sizing(SupportSize(items, items, size)).layout
        carrier._sketches += 1
        stalls += bool(
            cpu.lhc_peel(*cpu.lhc_encode(None, dense, size, layout), size, layout)[1].any()
        )
    assert stalls <= 8


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (10, 32), (2**26, 31), (2**26, 32), (2**31 - 1, 1), (2**31 - 1, 32)]
)
def test_counts_of_all_workers_fit_an_int32(size, count):
    unit = _unit(size, count)
    assert count * -(-size // unit) <= 2**31 - 1
    assert unit == 1 or size * count > 2**30


@pytest.mark.parametrize("size", [10**6, 2**31 - 1])
def test_the_largest_gradients_are_planned_without_overflow(size):
    carrier = build_codec("lhc").carrier
    assert carrier.sizing(SupportSize(size, 32 * size, size)) is None
    plan = carrier.sizing(SupportSize(size // 1000, size // 250, size))
    assert plan is not None
    assert plan.words < size // 100
    assert plan.layout.coupled == (size > 10**6)


@pytest.mark.parametrize(
    "wrong", [{"overlap": "x", "sketches": 0}, {"overlap": None, "sketches": -1}, {"overlap": 0.5}]
)
def test_damaged_state_is_refused(wrong):
    codec = build_codec("lhc")
    state = codec.state_dict()
    state["parts"]["carrier"] = wrong
    with pytest.raises(StateError):
        codec.load_state_dict(state)
