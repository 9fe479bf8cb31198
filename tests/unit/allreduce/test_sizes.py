"""Sizes of rounds, and all-reduces in thin packets that have nothing but sizes."""

from __future__ import annotations

import numpy as np
import pytest

from innet import Collective
from innet.allreduce.sizes import (
    RoundSizes,
    combined,
    extrapolated,
    modelled_sizes,
    round_sizes,
    scaled,
)
from innet.codecs import build_codec
from innet.core.errors import InputError, StalledError, StateError
from innet.core.reduce_op import ReduceOp, Segment, SizedSegment

CODECS = ["dense", "exact", "lhc", "topk", "gs-sgd", "powersgd", "dense:quantizer=optimistic"]


def gradients(size, workers=3, density=0.05):
    rng = np.random.default_rng(1)
    return [
        np.where(rng.random(size) < density, rng.standard_normal(size), 0).astype(np.float32)
        for _ in range(workers)
    ]


def segment(operation, *words):
    return Segment(operation, np.array(words, np.int32))


@pytest.mark.parametrize("codec", CODECS)
def test_a_thin_collective_sums_and_counts_as_a_full_one(codec):
    full = Collective(workers=3, codec=codec, network="100g")
    thin = Collective(workers=3, codec=codec, network="100g", thin=True)
    for size in (5000, 5000):  # the second time with residuals
        vectors = gradients(size)
        total, report = full.all_reduce(vectors)
        same, other = thin.all_reduce(vectors)
        assert np.array_equal(total, same)
        for name in (
            "rounds", "packets_sent", "packets_received", "bytes_sent", "bytes_dense",
            "values_per_packet", "elements", "selected", "union",
        ):  # fmt: skip
            assert getattr(other, name) == getattr(report, name), name
        assert (report.exact, other.exact) == (True, None)
        assert "sizes" not in report.details
        assert other.details["sizes"] == "codec"


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_are_what_the_codec_sends(codec):
    vectors = gradients(4000)
    sizes = round_sizes(codec, vectors)
    _, report = Collective(workers=3, codec=codec, network="100g").all_reduce(vectors)
    sent = Collective(workers=3, codec=codec, network="100g", thin=True).all_reduce_sizes(sizes)
    assert (sizes.elements, sizes.source) == (4000, "codec")
    assert (sent.packets_sent, sent.bytes_sent) == (report.packets_sent, report.bytes_sent)
    assert (sent.rounds, sent.elements) == (report.rounds, 4000)
    assert sent.simulated.packets == report.simulated.packets
    assert sent.details == {"sizes": "codec"}


def test_codecs_that_are_given_are_those_of_the_all_reduce():
    codecs = [build_codec("topk", worker=worker) for worker in range(3)]
    assert round_sizes(codecs, gradients(3000)).elements == 3000
    with pytest.raises(StateError, match="3000"):  # their residuals have that size now
        round_sizes(codecs, gradients(2000))


def test_overflow_makes_an_optimistic_codec_repeat_the_round():
    codec = {"preset": "dense", "quantizer": {"name": "optimistic", "headroom": 1}}
    vectors = [np.full(100, 1.0, np.float32) for _ in range(4)]
    total, report = Collective(workers=4, codec=codec, network="100g").all_reduce(vectors)
    thin = Collective(workers=4, codec=codec, network="100g", thin=True)
    same, other = thin.all_reduce(vectors)
    assert np.array_equal(total, same)
    assert (other.rounds, other.packets_sent) == (report.rounds, report.packets_sent)
    assert report.rounds == len(round_sizes(codec, vectors).rounds) == 4  # one, then 1, 2 and 4


def test_rounds_are_combined_as_switches_do():
    high = 2**31 - 1
    result = combined(
        {
            0: [segment(ReduceOp.SUM, high, 1), segment(ReduceOp.OR, 1), segment(ReduceOp.MAX, 5)],
            4: [segment(ReduceOp.SUM, 1, 2), segment(ReduceOp.OR, 2), segment(ReduceOp.MAX, -5)],
        }
    )
    assert [each.tolist() for each in result.words[0]] == [[-(2**31), 3], [3], [5]]
    assert result.words.keys() == {0, 4}
    assert result.words[0][0] is not result.words[4][0]
    assert result.overflowed
    fine = combined({0: [segment(ReduceOp.SUM, high)], 1: [segment(ReduceOp.SUM, -1)]})
    assert not fine.overflowed


def test_workers_who_disagree_on_a_round_would_wait_for_ever():
    with pytest.raises(StalledError, match="different operations or numbers of words"):
        combined({0: [segment(ReduceOp.SUM, 1)], 1: [segment(ReduceOp.SUM, 1, 2)]})


def test_scaled_sizes():
    sizes = RoundSizes(10, ((SizedSegment(ReduceOp.MAX, 3),), (SizedSegment(ReduceOp.SUM, 7),)))
    larger = scaled(sizes, 2.5)
    assert larger.elements == 25
    assert [[each.size for each in one] for one in larger.rounds] == [[8], [18]]
    assert (larger.words, larger.source) == (26, "modelled")
    with pytest.raises(InputError, match="factor of 0"):
        scaled(sizes, 0)


def test_segments_grow_as_they_did_between_the_samples():
    one, two = (
        RoundSizes(n, (tuple(SizedSegment(ReduceOp.SUM, size) for size in (3, 2 * n, root, 0)),))
        for n, root in ((100, 10), (400, 20))
    )
    found = extrapolated(one, two, 6400)
    assert [each.size for each in found.rounds[0]] == [3, 12_800, 80, 0]
    assert (found.elements, found.source) == (6400, "modelled")


def test_samples_of_other_rounds_lead_nowhere():
    one = RoundSizes(10, ((SizedSegment(ReduceOp.MAX, 3),),))
    two = RoundSizes(20, ((SizedSegment(ReduceOp.SUM, 3),),))
    with pytest.raises(InputError, match="take other rounds"):
        extrapolated(one, two, 100)
    with pytest.raises(InputError, match="take other rounds"):
        extrapolated(one, one, 100)


@pytest.mark.parametrize("codec", ["dense", "exact"])
def test_sizes_of_dense_codecs_are_modelled_exactly(codec):
    found = modelled_sizes(codec, gradients, 12_345, sample=1000)
    assert found.rounds == round_sizes(codec, gradients(12_345)).rounds
    assert found.source == "modelled"


def test_sizes_of_a_sketch_are_modelled_closely():
    found = modelled_sizes("lhc", gradients, 200_000, sample=40_000)
    exact = round_sizes("lhc", gradients(200_000))
    assert abs(found.words - exact.words) < 0.02 * exact.words
    assert (found.source, exact.source) == ("modelled", "codec")


def test_small_gradients_are_not_modelled():
    assert modelled_sizes("dense", gradients, 1000, sample=1000).source == "codec"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: round_sizes("dense", []), "no gradients"),
        (lambda: round_sizes([build_codec()], gradients(5)), "1 codecs for 3 gradients"),
        (lambda: modelled_sizes("dense", gradients, 0), "at least 1 and 8"),
        (lambda: modelled_sizes("dense", gradients, 5, sample=7), "at least 1 and 8"),
        (lambda: Collective(thin=True), "thin packets are for networks in simulated time"),
        (
            lambda: Collective(network="100g").all_reduce_sizes(RoundSizes(1, ())),
            "make this Collective thin",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_packets_of_a_thin_collective_have_any_size():
    collective = Collective(workers=2, network="100g", thin=True, values_per_packet=2229)
    _, report = collective.all_reduce(gradients(22_290, workers=2))
    assert report.values_per_packet == 2229
    assert report.packets_sent == 2 * (10 + 1)  # and a handshake
