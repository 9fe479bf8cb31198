"""AdaComp: bins, what is sent for them, and how much that is in the long run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce

from innet import kernels as kernel_sets
from innet.allreduce.collective import Collective
from innet.codecs import build_codec
from innet.core.errors import ConfigError, StateError

TINIEST = float(np.finfo(np.float32).smallest_subnormal)


def codec(**parameters):
    return build_codec({"preset": "adacomp", "selector": parameters})


def by_the_paper(g, fresh, width):
    """The selection of one layer, bin by bin, in Python."""
    picked, maxima = [], []
    for start in range(0, g.size, width):
        bin_ = range(start, min(start + width, g.size))
        largest = max(abs(float(g[i])) for i in bin_)
        if largest > 0:
            maxima.append(largest)
            picked += [i for i in bin_ if abs(float(g[i]) + float(fresh[i])) >= largest]
    mean = np.float32(np.mean(maxima)) if maxima else np.float32(0)
    return picked, [float(np.sign(g[i]) * mean) for i in picked]


@pytest.mark.parametrize("name", kernel_sets.names())
@given(st.data())
def test_the_kernel(name, data):
    size = data.draw(gradients.sizes())
    x, gradient = (data.draw(gradients.vectors(size)) for _ in range(2))
    chunk = data.draw(st.sampled_from((1, 2, 15, 16, 17, 31, 50, 64, 500, 1500, 2**31 - 1)))
    weight = data.draw(st.sampled_from((0.0, 0.5, 1.0)))
    kernels = kernel_sets.get(name)
    maxima = np.abs(x[kernels.chunk_argmax(x, chunk)])
    assert maxima.tolist() == [max(abs(x[i : i + chunk])) for i in range(0, size, chunk)]
    expected = [
        i
        for i in range(size)
        if maxima[i // chunk] > 0
        and abs(float(x[i]) + weight * float(gradient[i])) >= float(maxima[i // chunk])
    ]
    indices, found = kernels.select_above_chunk_max(x, gradient, weight, chunk)
    assert found.tobytes() == maxima.tobytes()
    assert indices.dtype == np.int32
    assert indices.tolist() == expected


@given(st.data())
def test_what_is_sent_and_what_stays(data):
    size = data.draw(gradients.sizes())
    width = data.draw(st.sampled_from((1, 50, 500)))
    mine = codec(bin=width)
    residual = np.zeros(size, np.float32)
    for _ in range(3):
        gradient = data.draw(gradients.vectors(size, kind="normal"))
        x = gradient + residual
        picked, values = by_the_paper(x, gradient, width)
        (outcome,) = all_reduce([mine], [gradient])
        assert outcome.indices.tolist() == picked
        np.testing.assert_allclose(outcome.sent, values, rtol=1e-6)
        expected = x.copy()
        expected[picked] -= outcome.sent
        residual = mine.error_feedback.residual.copy()
        assert residual.tobytes() == expected.tobytes()


def test_by_hand():
    """Two bins of three; what the first round left behind decides the second."""
    mine = codec(bin=3)
    (outcome,) = all_reduce([mine], [np.array([4, 1, -3, 1, 0, -2], np.float32)])
    assert outcome.indices.tolist() == [0, 2, 3, 5]  # |2 dW| >= 4 and >= 2
    assert outcome.sent.tolist() == [3, -3, 3, -3]
    assert mine.error_feedback.residual.tolist() == [1, 1, 0, -2, 0, 1]
    # G = 0.5 1.5 0 | -3 0 1, H = 0 2 0 | -4 0 1
    (outcome,) = all_reduce([mine], [np.array([-0.5, 0.5, 0, -1, 0, 0], np.float32)])
    assert outcome.indices.tolist() == [1, 3]
    assert outcome.sent.tolist() == [2.25, -2.25]
    assert mine.error_feedback.residual.tolist() == [0.5, -0.75, 0, -0.75, 0, 1]


@pytest.mark.parametrize("error_feedback", ["none", "residual", "momentum", "lowpass"])
def test_one_magnitude_is_sent_whatever_the_feedback(error_feedback):
    mine = build_codec(
        {"selector": {"name": "adacomp", "bin": 10}, "error_feedback": error_feedback}
    )
    rng = np.random.default_rng(0)
    for _ in range(2):
        (outcome,) = all_reduce([mine], [rng.standard_normal(500).astype(np.float32)])
        assert outcome.sent.size > 50
        assert len(set(np.abs(outcome.sent).tolist())) == 1


def test_a_gradient_that_opposes_all_waits():
    mine = codec(bin=2)
    mine.error_feedback.residual = np.array([5, 4], np.float32)
    (outcome,) = all_reduce([mine], [np.array([-1, -1], np.float32)])
    assert outcome.indices.size == 0
    assert outcome.sum.tolist() == [0, 0]
    assert mine.error_feedback.residual.tolist() == [4, 3]


def test_an_exchange_that_is_given_up_keeps_all_of_it():
    mine = codec(bin=2)
    exchange = mine.exchange(np.array([5, 4, 3], np.float32), 2)
    next(exchange)
    exchange.close()
    assert mine.error_feedback.residual.tolist() == [5, 4, 3]


def test_layers_have_their_own_bins_and_means():
    mine = codec(layers=[4, 6], bins=[2, 3])
    x = np.array([1, 0, 3, 0, 10, 0, 0, 0, 0, -30], np.float32)
    (outcome,) = all_reduce([mine], [x])
    assert outcome.indices.tolist() == [0, 2, 4, 9]
    assert outcome.sent.tolist() == [2, 2, 20, -20]


# Share sent: of a bin of 50 in the steady state, of 500 after 20 to 30 all-reduces, from when on it
# falls slowly: a share of 1 % brings the whole residual along only once in a hundred all-reduces.
@pytest.mark.parametrize(
    ("width", "data", "share", "later"),
    [
        (50, "laplace", 0.078, 0.0775),
        (50, "normal", 0.0995, 0.0995),
        (500, "laplace", 0.0129, 0.0105),
        (500, "normal", 0.0146, 0.0119),
    ],
)
def test_the_share_that_is_sent(width, data, share, later):
    rng = np.random.default_rng(7)
    mine = codec(bin=width)
    size = 50_000
    shares = []
    for _ in range(150):
        x = rng.laplace(size=size) if data == "laplace" else rng.standard_normal(size)
        choice = mine.choose(x.astype(np.float32), 1)
        with pytest.raises(StopIteration) as end:
            next(choice)
        mine.error_feedback.commit(None)
        shares.append(end.value.value[0].size / size)
    assert np.mean(shares[20:30]) == pytest.approx(share, rel=0.06)
    assert np.mean(shares[-15:]) == pytest.approx(later, rel=0.06)


@pytest.mark.parametrize("scale_factor", [1.0, 2.0, 1000.0])
def test_degenerate_data(scale_factor):
    def run(x):
        return all_reduce([codec(scale_factor=scale_factor)], [x])[0]

    for size in (0, 1, 777):
        assert run(np.zeros(size, np.float32)).indices.size == 0
    for value in (-1.0, TINIEST, gradients.LARGEST):
        outcome = run(np.full(777, value, np.float32))
        assert outcome.indices.tolist() == list(range(777))
        assert (outcome.sent == np.float32(value)).all()
    lone = np.zeros(100_000, np.float32)
    lone[99_999] = -TINIEST  # the mean over all bins would round to zero
    outcome = run(lone)
    assert outcome.sum[99_999] == -np.float32(TINIEST)
    opposite = np.array([gradients.LARGEST, -gradients.LARGEST] * 60, np.float32)
    assert np.abs(run(opposite).sent).max() == np.float32(gradients.LARGEST)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="as many bins as layers"):
        codec(layers=[3, 4], bins=[2])
    with pytest.raises(ConfigError, match="scale_factor"):
        codec(scale_factor=0.5)
    mine = codec(layers=[3, 4])
    with pytest.raises(StateError, match="7 elements together, the gradient 8"):
        next(mine.exchange(np.ones(8, np.float32), 1))
    assert mine.error_feedback.residual is None


LAYERS = {"conv": (2, 3, 3, 4), "dense": (5, 8), "bias": (6,)}  # 72, 40 and 6 elements


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({}, (24, 32, 8)), ({"matrix_bin": 64}, (24, 16, 8)), ({"bin": 65}, (48, 32, 16)),
     ({"layers": [118], "bin": 65}, (48, 32, 16)),
     ({"layers": [110, 8], "bins": [65, 64]}, (48, 24, 8))],
)  # fmt: skip
def test_the_papers_bits_by_layer(parameters, expected):
    one = build_codec({"preset": "adacomp", "selector": parameters}, layers=LAYERS)
    chosen = np.array([0, 70, 71, 100, 111, 117], np.int32)
    assert one.selector.counted_bits(chosen, 118) == expected
    everything = one.selector.counted_bits(None, 118)
    assert len(everything) == 3
    assert everything[0] == 72 * expected[0] // 3


def test_bits_without_layers_and_of_codecs_that_count_none():
    chosen = np.array([3, 5], np.int32)
    assert codec().selector.counted_bits(chosen, 9) == (16,)
    assert codec().selector.counted_bits(np.empty(0, np.int32), 0) == (0,)
    topk = build_codec("topk")
    (outcome,) = all_reduce([topk], [np.ones(9, np.float32)])
    assert topk.counted_bits(outcome) is None


def test_layers_of_a_codec_by_layer_are_counted_where_adacomp_has_them():
    spec = {"preset": "adacomp", "layers": {"dense": "topk", "bias": "adacomp:bin=100"}}
    rng = np.random.default_rng(1)
    job = [rng.standard_normal(118, np.float32) for _ in range(3)]
    _, report = Collective(workers=3, codec=spec, layers=LAYERS).all_reduce(job)
    of_conv, of_dense, of_bias = report.details["counted_bits"]
    assert of_dense is None
    assert of_conv % 8 == 0 < of_conv
    assert of_bias % 16 == 0 < of_bias
    _, report = Collective(workers=3, codec="topk", layers=LAYERS).all_reduce(job)
    assert "counted_bits" not in report.details
