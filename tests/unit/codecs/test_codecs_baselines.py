"""RedSync, GaussianK, random k, signSGD with majority vote, and EF21."""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce
from support.tiers import examples

import innet
from innet.codecs import build_codec
from innet.codecs.selectors.randomk import random_subset
from innet.core.errors import GradientError, StateError

# Importing it takes a second, in each process that does so.
BY_SCIPY = pytest.mark.xdist_group("scipy.stats")


def selected(name, x, **parameters):
    return build_codec({"preset": name, "selector": parameters}).selector.select(x)


def normal(size, seed=0):
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


# ----------------------------------------------------------------------------
# Thresholds.

each_threshold = pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("redsync", {}),
        ("redsync", {"search": "trimmed"}),
        ("gaussiank", {}),
        ("gaussiank", {"fit": "magnitudes"}),
    ],
)


@each_threshold
@settings(max_examples=examples(25))
@given(st.data())
def test_what_is_selected_is_all_that_reaches_a_threshold(name, parameters, data):
    x = data.draw(gradients.vectors(data.draw(gradients.sizes())))
    indices, values = selected(name, x, ratio=data.draw(st.floats(0.001, 1)), **parameters)
    assert (np.diff(indices) > 0).all()
    assert values.tobytes() == x[indices].tobytes()
    assert bool(indices.size) == x.any()
    rest = np.delete(np.abs(x), indices)
    if indices.size and rest.size:
        assert np.abs(values).min() >= rest.max()


@each_threshold
def test_layers_are_searched_by_themselves(name, parameters):
    x, y = normal(30_000), 1e-3 * normal(20_000, 1)
    both = np.concatenate([x, y]).astype(np.float32)
    indices, _ = selected(name, both, layers=[30_000, 20_000], **parameters)
    assert indices[indices < 30_000].tolist() == selected(name, x, **parameters)[0].tolist()
    alone, _ = selected(name, both[30_000:], **parameters)
    assert (indices[indices >= 30_000] - 30_000).tolist() == alone.tolist()
    codec = build_codec({"preset": name, "selector": {"layers": [3, 4], **parameters}})
    with pytest.raises(StateError, match="7 elements together, the gradient 8"):
        codec.check(np.ones(8, np.float32))


def test_redsync_stops_between_k_and_twice_k():
    for ratio in (0.1, 0.01, 0.001):
        for seed in range(3):
            count = selected("redsync", normal(100_000, seed), ratio=ratio)[0].size
            assert 1e5 * ratio <= count < 2e5 * ratio


def test_redsync_with_few_halvings_is_far_off():
    """With SIDCo's tolerance of 0.2 an interval of 1/8 is the last: of a heavy tail too few."""
    heavy = np.random.default_rng(0).standard_t(2, 100_000).astype(np.float32)
    coarse = selected("redsync", heavy, ratio=0.01, tolerance=0.2)[0].size
    fine = selected("redsync", heavy, ratio=0.01)[0].size
    assert coarse < 200 < 1000 <= fine < 2000


def test_redsync_trimmed_is_top_k():
    x = normal(10_000)
    for step in (0.05, 0.2, 0.7):
        indices, _ = selected("redsync", x, ratio=0.03, search="trimmed", step=step)
        assert indices.tolist() == selected("topk", x, ratio=0.03)[0].tolist()


@BY_SCIPY
def test_gaussiank_selects_the_share_of_a_normal_distribution():
    x = normal(1_000_000) + np.float32(0.01)
    for ratio in (0.1, 0.01, 0.001):
        indices, values = selected("gaussiank", x, ratio=ratio, refinements=1)
        threshold = x.mean(dtype=float) + scipy.stats.norm.isf(ratio / 2) * x.std(dtype=float)
        assert np.abs(values).min() == pytest.approx(threshold, rel=1e-3)
        assert indices.size == pytest.approx(1e6 * ratio, rel=0.12)


def test_gaussiank_refines_three_times_and_takes_what_it_tried_last():
    heavy = np.random.default_rng(0).laplace(size=100_000).astype(np.float32)
    first = 3.29 * np.sqrt(2)  # 0.0095 of a Laplace distribution reach that, 9.5 times too many
    tried = [first, first * 1.5, first * 1.5**2]  # 0.00093: near 0.001
    indices, values = selected("gaussiank", heavy, ratio=0.001)
    assert np.abs(values).min() == pytest.approx(tried[1], rel=0.02)
    assert 2 / 3 <= indices.size / 100 <= 4 / 3
    # Fitted to magnitudes, whose mean is not 0, it starts higher.
    _, values = selected("gaussiank", heavy, ratio=0.001, fit="magnitudes", refinements=1)
    assert np.abs(values).min() == pytest.approx(1 + 3.29, rel=0.02)


# ----------------------------------------------------------------------------
# Random k.


@settings(max_examples=examples(60))
@given(st.integers(1, 400), st.data())
def test_a_random_subset_has_different_members(size, data):
    count, key = data.draw(st.integers(0, size)), data.draw(st.integers(0, 2**64 - 1))
    found = random_subset(size, count, key)
    assert (found.dtype, found.size) == (np.int32, count)
    assert len(set(found.tolist())) == count
    assert (np.diff(found) > 0).all()
    assert count == 0 or 0 <= found[0] <= found[-1] < size


@BY_SCIPY
@pytest.mark.parametrize("count", [1, 3, 7, 9])
def test_all_subsets_are_equally_probable(count):
    drawn = [random_subset(10, count, key) for key in range(4000)]
    times = np.bincount(np.concatenate(drawn), minlength=10)
    assert scipy.stats.chisquare(times).pvalue > 1e-4
    if count == 3:
        sets = np.unique([row @ [100, 10, 1] for row in drawn], return_counts=True)[1]
        assert sets.size == 120
        assert scipy.stats.chisquare(sets).pvalue > 1e-4


def test_all_workers_choose_the_same_and_others_each_time():
    codecs = [build_codec("randomk", seed=5, worker=worker) for worker in range(3)]
    seen = []
    for step in range(3):
        outcomes = all_reduce(codecs, [normal(5000, 3 * step + i) for i in range(3)])
        assert len({outcome.indices.tobytes() for outcome in outcomes}) == 1
        assert outcomes[0].details == {"form": "shared", "shared": 50}  # no index was sent
        seen.append(outcomes[0].indices.tobytes())
    assert len(set(seen)) == 3
    other = all_reduce([build_codec("randomk", seed=6)], [normal(5000)])
    assert other[0].indices.tobytes() != seen[0]


def test_after_a_while_each_coordinate_was_sent():
    codec = build_codec({"preset": "randomk", "selector": {"ratio": 0.1}})
    gradient, total = normal(200), np.zeros(200)
    for _ in range(150):
        (outcome,) = all_reduce([codec], [gradient])
        total += outcome.sum
    rest = codec.state_dict()["parts"]["error_feedback"]["residual"]
    assert (total != 0).all()
    np.testing.assert_allclose(total + rest, 150 * gradient.astype(float), rtol=1e-4, atol=1e-5)


# ----------------------------------------------------------------------------
# Signs and votes.


@settings(max_examples=examples(40))
@given(st.data())
def test_the_majority_decides(data):
    workers, size = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 50))
    job = [data.draw(gradients.vectors(size)) for _ in range(workers)]
    scale = data.draw(st.sampled_from([1.0, 0.001]))
    spec = {"preset": "signsgd", "quantizer": {"scale": scale}}
    outcomes = all_reduce([build_codec(spec, worker=w) for w in range(workers)], job)
    votes = np.sign(np.sum([np.sign(each) for each in job], axis=0))
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.sum, votes * np.float32(scale * workers))


@pytest.mark.parametrize(("workers", "lanes"), [(1, 16), (4, 8), (8, 6), (64, 4)])
def test_signs_share_words(workers, lanes):
    sent = []
    codecs = [build_codec("signsgd", worker=w) for w in range(workers)]
    job = [normal(960, w) for w in range(workers)]
    all_reduce(codecs, job, lambda own: sent.append(own[0][0].words.size))
    assert sent[-1] == 960 // lanes


# ----------------------------------------------------------------------------
# EF21.


def test_ef21_is_the_papers_algorithm():
    """Against it written out in float64, with top-k; nothing is rounded where numbers are small."""
    rng = np.random.default_rng(0)
    codecs = [build_codec("ef21:k=5,quantizer=exact,carrier=dense", worker=w) for w in range(3)]
    states = np.zeros((3, 40))
    for _ in range(12):
        job = rng.integers(-1000, 1000, (3, 40)).astype(np.float32) / 8
        for state, gradient in zip(states, job, strict=True):
            difference = gradient - state
            top = np.argsort(-np.abs(difference), kind="stable")[:5]
            state[top] += difference[top]
        for outcome in all_reduce(codecs, list(job)):
            np.testing.assert_array_equal(outcome.sum, states.sum(axis=0))


def test_ef21_finds_a_gradient_that_stays():
    codecs = [build_codec("ef21:ratio=0.1", worker=w) for w in range(3)]
    job = [normal(2000, w) for w in range(3)]
    errors = []
    for _ in range(12):
        outcome = all_reduce(codecs, job)[0]
        errors.append(np.abs(outcome.sum - np.sum(job, axis=0, dtype=float)).max())
    assert errors[0] > 1
    assert errors[-1] < 1e-5


def test_ef21_forgets_an_exchange_that_is_given_up():
    one, other = build_codec("ef21"), build_codec("ef21")
    for seed in range(2):
        all_reduce([one], [normal(300, seed)])
        all_reduce([other], [normal(300, seed)])
    exchange = one.exchange(normal(300, 9), 1)
    next(exchange)
    exchange.close()
    (first,), (second,) = (all_reduce([each], [normal(300, 3)]) for each in (one, other))
    assert first.sum.tobytes() == second.sum.tobytes()


def test_who_is_away_keeps_its_estimate_in_the_total():
    network = innet.Collective(workers=3, codec="ef21:ratio=0.5")
    jobs = np.random.default_rng(0).standard_normal((4, 3, 400)).astype(np.float32)
    network.all_reduce(list(jobs[0]))
    network.leave(1)
    network.all_reduce(list(jobs[1]))
    network.rejoin(1)
    result, report = network.all_reduce(list(jobs[2]))
    assert report.exact
    states = [each.state_dict()["parts"]["error_feedback"] for each in network.codecs]
    assert {state["step"] for state in states} == {3}
    assert len({state["total"].tobytes() for state in states}) == 1
    estimates = np.sum([state["estimate"] for state in states], axis=0, dtype=float)
    np.testing.assert_allclose(states[0]["total"], estimates, atol=1e-5)
    np.testing.assert_array_equal(np.ravel(result), states[0]["total"])


def test_ef21_refuses_what_does_not_fit():
    codec = build_codec("ef21")
    all_reduce([codec], [np.full(9, gradients.LARGEST, np.float32)])
    before = codec.state_dict()
    with pytest.raises(GradientError, match="minus its estimate overflows float32 at index 0"):
        codec.check(np.full(9, -gradients.LARGEST, np.float32))
    with pytest.raises(StateError, match="has 9 elements, the gradient 8"):
        codec.check(np.ones(8, np.float32))
    np.testing.assert_equal(codec.state_dict(), before)
    state = codec.state_dict()
    state["parts"]["error_feedback"]["total"] = np.zeros(8, np.float32)
    with pytest.raises(StateError, match="9 elements, the total 8"):
        codec.load_state_dict(state)
