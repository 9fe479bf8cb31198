"""The carrier of non-zero blocks: which blocks travel, ragged ends, the kernels behind it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce, integer_oracle

from innet import kernels
from innet.codecs import build_codec
from innet.codecs.parts import Contribution
from innet.core.errors import ConfigError
from innet.core.reduce_op import ReduceOp

SPEC = {"carrier": "block"}


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def with_ones_at(size, *places):
    gradient = np.zeros(size, np.float32)
    gradient[list(places)] = 1
    return gradient


@pytest.mark.repeats("each quantizer with each selector", but=["all-fixed", "selector1-exact"])
@pytest.mark.parametrize("quantizer", ["fixed", "exact"])
@pytest.mark.parametrize("selector", ["all", {"name": "topk", "ratio": 0.02}])
@given(st.data())
def test_any_support_arrives(quantizer, selector, data):
    job = data.draw(gradients.jobs(max_workers=4))
    block = data.draw(st.sampled_from((1, 3, 16, 256, 1000)))
    spec = {
        "selector": selector,
        "quantizer": quantizer,
        "carrier": {"name": "block", "block": block},
    }
    outcomes = all_reduce(workers(spec, len(job)), job)
    oracle = integer_oracle(outcomes, outcomes[0].contribution.size)
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.integer_sum, oracle)


def test_only_the_blocks_of_the_union_travel():
    # 1000 elements are blocks of 256, 256, 256 and 232; the second is zero everywhere.
    job = [with_ones_at(1000, 0, 999), with_ones_at(1000, 600)]
    rounds = []
    outcomes = all_reduce(workers(SPEC, 2), job, watch=rounds.append)
    _, bitmaps, blocks = rounds
    assert [own[0].operation for own in bitmaps] == [ReduceOp.OR] * 2
    assert [own[0].words.tolist() for own in bitmaps] == [[0b1001], [0b0100]]
    assert [own[0].operation for own in blocks] == [ReduceOp.SUM] * 2
    assert blocks[0][0].words.size == 256 + 256 + 232
    assert outcomes[1].details == {"form": "blocks", "blocks": 4, "union_blocks": 3}
    assert outcomes[1].sum.tolist() == (job[0] + job[1]).tolist()


def test_a_union_of_all_blocks_is_the_dense_form():
    job = [with_ones_at(600, 0, 300), with_ones_at(600, 599)]
    rounds = []
    (outcome, _) = all_reduce(workers(SPEC, 2), job, watch=rounds.append)
    assert outcome.details == {"form": "dense", "blocks": 3, "union_blocks": 3}
    assert rounds[-1][0][0].words.size == 600
    assert outcome.sum.tolist() == (job[0] + job[1]).tolist()


@pytest.mark.parametrize("size", [1, 255, 256])
def test_a_single_block_needs_no_bitmap(size):
    (outcome,) = all_reduce(workers(SPEC, 1), [with_ones_at(size, size - 1)])
    assert (outcome.rounds, outcome.details) == (2, {"form": "dense"})
    assert outcome.sum[-1] == 1


def test_values_that_are_rounded_to_zero_take_no_block():
    job = [with_ones_at(1024, 3) + np.float32(1e-12)] * 3
    (outcome, *_) = all_reduce(workers(SPEC, 3), job)
    assert outcome.details["union_blocks"] == 1


def test_nothing_but_the_bitmap_travels_where_no_integer_is_left():
    carrier = build_codec(SPEC).carrier
    watch = type("Watch", (), {"enter": lambda self, phase: None})()
    rounds = carrier.carry(Contribution(600, None, np.zeros(600, np.int32)), [], 1, watch)
    (bitmap,) = next(rounds)
    with pytest.raises(StopIteration) as stop:
        rounds.send([bitmap.words])
    assert stop.value.value.details == {"form": "blocks", "blocks": 3, "union_blocks": 0}
    assert not stop.value.value.integers.any()


def test_extremes_of_the_integers_survive():
    job = [np.where(np.arange(2000) < 300, np.float32(3e38), np.float32(0))] * 2
    outcomes = all_reduce(workers(SPEC, 2), job)
    assert outcomes[0].integer_sum.max() == 2**31 - 2
    np.testing.assert_array_equal(outcomes[0].integer_sum, integer_oracle(outcomes, 2000))


@pytest.mark.parametrize("block", [0, 2**20 + 1, 1.5])
def test_impossible_blocks_are_refused(block):
    with pytest.raises(ConfigError, match="block = "):
        build_codec({"carrier": {"name": "block", "block": block}})


@pytest.mark.parametrize("name", kernels.names())
@given(st.data())
def test_the_kernels_gather_and_scatter_blocks(name, data):
    each = kernels.get(name)
    x = data.draw(gradients.vectors(data.draw(gradients.sizes())))
    integers = x.view(np.int32)
    block = data.draw(st.sampled_from((1, 2, 31, 256)))
    pieces = [integers[i : i + block] for i in range(0, integers.size, block)]
    bitmap = each.block_bitmap(integers, block)
    assert (bitmap.dtype, bitmap.size) == (np.int32, -(-len(pieces) // 32))
    present = [number for number, piece in enumerate(pieces) if piece.any()]
    assert each.bitmap_to_indices(bitmap, len(pieces)).tolist() == present
    chosen = np.array(present[::2], np.int32)
    kept = np.isin(np.arange(integers.size) // block, chosen)
    words = each.gather_blocks(integers, chosen, block)
    assert words.tolist() == [word for number in chosen for word in pieces[number].tolist()]
    dense = each.scatter_blocks(chosen, words, block, integers.size)
    np.testing.assert_array_equal(dense, np.where(kept, integers, 0))
