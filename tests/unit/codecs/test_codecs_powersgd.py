"""Selector powersgd: kernels, bases, the iteration, layers, what is fed back, state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import gradients
from support.kernels import assert_same
from support.lockstep import all_reduce
from support.tiers import examples

import innet
from innet import kernels
from innet.codecs import build_codec
from innet.codecs.selectors.powersgd import directions, layers_of, orthonormal
from innet.core.errors import ConfigError, StateError

naive = kernels.get("reference")
compiled = [kernels.get(name) for name in kernels.names() if name != "reference"]


def codecs(count, layers=None, seed=0, quantizer="fixed", **selector):
    spec = {"preset": "powersgd", "selector": selector, "quantizer": quantizer}
    return [build_codec(spec, worker=w, layers=layers, seed=seed) for w in range(count)]


def low_rank(rows, columns, rank, seed=0):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    return matrix.astype(np.float32).ravel()


# ------------------------------------------------------------------ kernels


@pytest.mark.parametrize("fast", compiled, ids=lambda module: module.__name__)
@settings(max_examples=examples(40))
@given(st.data())
def test_the_kernels_are_those_of_the_oracle(fast, data):
    rows, columns, rank = (
        data.draw(st.sampled_from(sizes)) for sizes in ((1, 7, 60), (1, 31, 32, 33, 1100), (1, 3))
    )
    x, p, q = (
        data.draw(gradients.vectors(size)) for size in (rows * columns, rank * rows, rank * columns)
    )
    assert_same(fast.project_rows(x, columns, q), naive.project_rows(x, columns, q))
    assert_same(fast.project_columns(x, columns, p), naive.project_columns(x, columns, p))
    assert_same(fast.factor_product(p, q, rank), naive.factor_product(p, q, rank))


def test_the_oracle_multiplies_matrices():
    rng = np.random.default_rng(0)
    x, p, q = (rng.standard_normal(shape).astype("f4") for shape in ((8, 70), (3, 8), (3, 70)))
    np.testing.assert_allclose(
        naive.project_rows(x.ravel(), 70, q.ravel()), (q @ x.T).ravel(), 1e-4
    )
    np.testing.assert_allclose(
        naive.project_columns(x.ravel(), 70, p.ravel()), (p @ x).ravel(), 1e-4, 1e-5
    )
    np.testing.assert_allclose(
        naive.factor_product(p.ravel(), q.ravel(), 3), (p.T @ q).ravel(), 1e-4, 1e-5
    )


# ------------------------------------------------------------------ bases


@pytest.mark.parametrize("scale", [1e-38, 1.0, 1e37])
@pytest.mark.parametrize("alike", [0.0, 0.999, 0.999999])
def test_columns_become_orthonormal(scale, alike):
    rng = np.random.default_rng(1)
    columns = rng.standard_normal((4, 200)) * (1 - alike) + alike * rng.standard_normal(200)
    basis = orthonormal((columns * scale).astype(np.float32), naive).astype(np.float64)
    kept = basis.any(axis=1)
    assert kept[:2].all() or alike > 0.99999
    np.testing.assert_allclose(basis @ basis.T, np.diag(kept), atol=3e-7)


def test_a_column_that_depends_on_others_becomes_zero():
    one = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    basis = orthonormal(np.stack([one, 2 * one, np.zeros(50, np.float32)]), naive)
    assert basis[0].any()
    assert not basis[1:].any()


def test_empty_columns_are_drawn_anew_the_same_on_all_workers():
    basis = np.zeros((2, 40), np.float32)
    basis[1, 3] = -7
    drawn = directions(basis, naive, seed=1, step=2, layer=0)
    np.testing.assert_allclose((drawn.astype(np.float64) ** 2).sum(axis=1), 1, rtol=1e-6)
    assert drawn[1, 3] == -1
    assert_same(drawn, directions(basis, naive, seed=1, step=2, layer=0))
    for other in ({"seed": 2}, {"step": 3}, {"layer": 1}):
        changed = directions(basis, naive, **({"seed": 1, "step": 2, "layer": 0} | other))
        assert abs(float(changed[0] @ drawn[0])) < 0.6
        assert_same(changed[1], drawn[1])


# ------------------------------------------------------------------ layers


@pytest.mark.parametrize(
    ("shape", "cut"),
    [((3, 3, 16, 32), (144, 32)), ((32, 16, 3, 3), (32, 144)), ((512, 96), (512, 96))],
)
def test_shapes_are_cut_where_the_factors_are_smallest(shape, cut):
    (layer,) = layers_of((shape,), int(np.prod(shape)), 2)
    assert (layer.rows, layer.columns) == cut
    assert layer.rank == 2


def test_vectors_and_small_matrices_go_as_they_are():
    shapes = ((100,), (3, 5), (40, 30), (4, 4))
    ranks = [layer.rank for layer in layers_of(shapes, 1331, 2)]
    assert ranks == [0, 0, 2, 0]  # 2 · (4 + 4) is no less than 16
    rng = np.random.default_rng(0)
    job = list(rng.standard_normal((3, 1331)).astype(np.float32))
    rounds = []
    outcomes = all_reduce(
        codecs(3, shapes), job, watch=lambda each: rounds.append([s.words.size for s in each[0]])
    )
    # The largest of P; P; the handshake; and Q with what goes as it is.
    assert rounds == [[1], [80], [2 + 1], [60 + 131]]
    whole = np.r_[0:115, 1315:1331]
    np.testing.assert_allclose(outcomes[0].sum[whole], np.sum(job, axis=0)[whole], atol=1e-5)
    for outcome, x in zip(outcomes, job, strict=True):
        np.testing.assert_array_equal(outcome.sent[whole], x[whole])


def test_a_gradient_of_unknown_shape_is_a_square():
    (layer,) = layers_of(None, 1000, 1)
    assert (layer.rows, layer.columns, layer.rank) == (32, 32, 1)
    assert layer.matrix(np.ones(1000, np.float32)).sum() == 1000
    (one,) = layers_of(None, 1, 1)
    assert one.rank == 0
    assert layers_of(None, 0, 1) == []


# ------------------------------------------------------------------ the iteration


@pytest.mark.parametrize("quantizer", ["fixed", "exact"])
def test_a_matrix_of_low_rank_arrives_at_once(quantizer):
    job = [low_rank(60, 40, 2) * np.float32(weight) for weight in (1, 2, -5)]
    outcomes = all_reduce(codecs(3, [(60, 40)], quantizer=quantizer), job)
    expected = np.sum(job, axis=0)
    np.testing.assert_allclose(outcomes[0].sum, expected, atol=1e-5 * np.abs(expected).max())


def test_the_best_approximation_is_found_by_and_by():
    rng = np.random.default_rng(5)
    u, _ = np.linalg.qr(rng.standard_normal((50, 50)))
    v, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    values = 0.7 ** np.arange(30)
    matrix = (u[:, :30] * values) @ v.T
    best = np.sqrt((values[3:] ** 2).sum())
    workers = codecs(2, [(50, 30), (7,), (30, 50)], rank=3)  # each goes on from its own factors
    errors = []
    for _ in range(25):
        for codec in workers:
            codec.error_feedback.residual = None  # the same matrices every time, and nothing else
        x = np.concatenate([matrix.ravel(), np.ones(7), 3 * matrix.T.ravel()])
        outcomes = all_reduce(workers, [(x / 2).astype(np.float32)] * 2)
        wrong = outcomes[0].sum - x
        errors.append([np.linalg.norm(wrong[:1500]), np.linalg.norm(wrong[1507:]) / 3])
    assert min(errors[0]) > 1.05 * best
    assert errors[-1] == pytest.approx([best, best], rel=1e-3)


def test_with_feedback_all_arrives_in_the_mean():
    """Of a constant gradient, what is behind does not grow, so its share of the sum shrinks."""
    x = np.random.default_rng(6).standard_normal(600).astype(np.float32)
    (codec,) = codecs(1, [(30, 20)])
    total = np.zeros(600)
    for step in range(1, 61):
        (outcome,) = all_reduce([codec], [x])
        total += outcome.sum
        if step in (20, 60):
            error = np.linalg.norm(total / step - x) / np.linalg.norm(x)
            assert error < (0.35 if step == 20 else 0.15)


def test_what_is_sent_and_what_stays_make_the_whole():
    rng = np.random.default_rng(7)
    job = list(rng.standard_normal((3, 1000)).astype(np.float32))
    workers = codecs(3, [(40, 20), (200,)])
    for codec, outcome, x in zip(workers, all_reduce(workers, job), job, strict=True):
        np.testing.assert_array_equal(codec.error_feedback.residual, x - outcome.sent)
        # What is sent is a projection: what stays is at right angles to it, column by column.
        sent, rest = (
            each[:800].reshape(40, 20) for each in (outcome.sent, codec.error_feedback.residual)
        )
        np.testing.assert_allclose((sent * rest).sum(axis=0), 0, atol=1e-4)


@pytest.mark.parametrize("others", [{"quantizer": "thc"}, {"quantizer": "qsgd"}])
def test_the_factors_may_be_quantized_further(others):
    spec = {"preset": "powersgd", "carrier": "packed", **others}
    gradient = [low_rank(200, 100, 2)] * 2
    total, report = innet.all_reduce(gradient, codec=spec, layers=[(200, 100)])
    assert report.exact
    assert report.compression > 25
    error = np.linalg.norm(total - 2 * gradient[0]) / np.linalg.norm(2 * gradient[0])
    assert error < 0.25


def test_an_exchange_that_is_given_up_changes_no_basis():
    (codec,) = codecs(1, [(30, 20)])
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal((2, 600)).astype(np.float32)
    all_reduce([codec], [x])
    before = codec.state_dict()["parts"]
    exchange = codec.exchange(y, 1)
    answers = [each.words for each in next(exchange)]
    for _ in range(2):
        answers = [each.words for each in exchange.send(answers)]
    exchange.close()
    after = codec.state_dict()["parts"]
    np.testing.assert_array_equal(after["selector"]["basis"], before["selector"]["basis"])
    assert after["selector"]["step"] == before["selector"]["step"]
    np.testing.assert_array_equal(
        after["error_feedback"]["residual"], before["error_feedback"]["residual"] + y
    )


# ------------------------------------------------------------------ mistakes


def test_another_layout_is_refused():
    (codec,) = codecs(1)
    all_reduce([codec], [np.ones(400, np.float32)])
    with pytest.raises(StateError, match="factors of worker 0's codec have 40 elements"):
        codec.check(np.ones(900, np.float32))
    state = codec.state_dict()
    state["parts"]["selector"]["basis"] = np.ones((2, 2))
    with pytest.raises(StateError, match="saved basis"):
        codec.load_state_dict(state)


@pytest.mark.parametrize("rank", [0, -1, 1025, 1.5])
def test_ranks_out_of_range_are_refused(rank):
    with pytest.raises(ConfigError, match="rank"):
        codecs(1, rank=rank)
