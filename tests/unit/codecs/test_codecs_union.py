"""The carrier that asks for the union first: forms, words, rounds, what it remembers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce, integer_oracle

from innet.codecs import build_codec
from innet.codecs.parts import Contribution, Stopwatch
from innet.core.errors import StateError
from innet.core.reduce_op import ReduceOp

SPEC = {"carrier": "union"}
TOPK = {"preset": "topk", "carrier": "union"}


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def sparse(seed, size, items, count):
    rng = np.random.default_rng(seed)
    each = np.zeros((count, size), np.float32)
    for row in each:
        row[rng.choice(size, items, replace=False)] = rng.standard_normal(items)
    return list(each)


@pytest.mark.repeats(
    "each quantizer with each selector",
    but=["selector1-fixed", "all-exact", "selector1-optimistic"],
)
@pytest.mark.parametrize("quantizer", ["fixed", "exact", "optimistic"])
@pytest.mark.parametrize("selector", ["all", {"name": "topk", "ratio": 0.02}])
@given(st.data())
def test_any_support_arrives(quantizer, selector, data):
    job = data.draw(gradients.jobs(max_workers=4))
    index = data.draw(st.sampled_from(("auto", "bitmap", "bloom")))
    spec = {
        "selector": selector,
        "quantizer": quantizer,
        "carrier": {"name": "union", "index": index},
    }
    outcomes = all_reduce(workers(spec, len(job)), job)
    oracle = integer_oracle(outcomes, outcomes[0].contribution.size)
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.integer_sum, oracle)


def test_the_index_goes_first_and_then_the_sums_of_the_union():
    job = [np.zeros(100, np.float32) for _ in range(2)]
    job[0][[3, 50]] = 1, -1
    job[1][[50, 99]] = -1, 0.5
    rounds = []
    outcomes = all_reduce(workers({"carrier": {"name": "union", "index": "bitmap"}}, 2), job,
                          watch=rounds.append)  # fmt: skip
    _, indices, values = rounds
    assert [own[0].operation for own in indices] == [ReduceOp.OR] * 2
    assert [own[0].words.view(np.uint32).tolist() for own in indices] == [
        [1 << 3, 1 << 18, 0, 0], [0, 1 << 18, 0, 1 << 3]
    ]  # fmt: skip
    assert [own[0].operation for own in values] == [ReduceOp.SUM] * 2
    assert [np.sign(own[0].words).tolist() for own in values] == [[1, -1, 0], [0, -1, 1]]
    assert outcomes[0].sum[[3, 50, 99]].tolist() == [1, -2, 0.5]
    assert outcomes[1].details["union"] == 3


def test_what_takes_the_fewest_words_goes():
    for items, index in ((1000, "bloom"), (30_000, "bitmap")):
        codecs = workers(SPEC, 4)
        for _ in range(2):  # the second time the overlap is known
            outcomes = all_reduce(codecs, sparse(1, 200_000, items, 4))
        details = outcomes[0].details
        assert (details["form"], details["index"]) == ("union", index)
        assert details["false_positives"] < details["union"] / 4
        if index == "bitmap":
            assert details["index_bits"] == 200_000
    (outcome, *_) = all_reduce(workers(SPEC, 4), sparse(1, 2000, 1900, 4))
    assert outcome.details["form"] == "dense"
    (outcome, *_) = all_reduce(workers({"preset": "scalecom", "carrier": "union"}, 2),
                               sparse(1, 2000, 1900, 2))  # fmt: skip
    assert outcome.details == {"form": "list", "items": 20}


def test_what_went_densely_tells_how_much_supports_overlap():
    codecs, job = workers(SPEC, 4), sparse(3, 2000, 1300, 1) * 4
    forms = [all_reduce(codecs, job)[0].details["form"] for _ in range(2)]
    assert forms == ["dense", "union"]


def test_one_round_more_and_fewer_words_than_a_sketch():
    job, sent = sparse(2, 100_000, 2000, 4), {}
    for spec in ("topk", TOPK):
        rounds = []
        all_reduce(workers(spec, 4), job, watch=rounds.append)
        words = sum(each.words.size for own in rounds for each in own[0])
        sent[str(spec)] = len(rounds), words
    (sketch, union) = sent.values()
    assert union[0] == sketch[0] + 1
    assert union[1] < 0.96 * sketch[1]


def test_integers_that_are_all_zero_take_no_further_round():
    carrier = build_codec(SPEC).carrier
    nothing = Contribution(64, np.array([3], np.int32), np.zeros(1, np.int32))
    answers = [np.array([1], np.int32), np.array([2], np.int32)]
    stages = carrier.carry(nothing, answers, 2, Stopwatch(lambda: 0.0, "encode"))
    (index,) = next(stages)
    assert not index.words.any()
    with pytest.raises(StopIteration) as stop:
        stages.send([index.words])
    assert stop.value.value.indices.size == 0
    assert stop.value.value.details["union"] == 0


def test_the_state_is_the_overlap():
    codec = build_codec(TOPK)
    state = codec.state_dict()
    assert state["parts"]["carrier"] == {"overlap": None, "sketches": 0}
    all_reduce([codec], sparse(0, 1000, 100, 1))
    after = codec.state_dict()["parts"]["carrier"]
    assert after["overlap"] == pytest.approx(1)
    codec.load_state_dict(state)
    assert codec.state_dict()["parts"]["carrier"] == state["parts"]["carrier"]
    state["parts"]["carrier"]["overlap"] = -1.0
    with pytest.raises(StateError, match="overlap"):
        codec.load_state_dict(state)
