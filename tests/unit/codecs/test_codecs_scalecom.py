"""ScaleCom: who leads, what is chosen, that choosing and adding up are exchangeable, the filter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce

import innet
from innet import kernels
from innet.codecs import build_codec
from innet.codecs.selectors.packed_indices import ChunkCode, SortedCode
from innet.core.errors import ConfigError, GradientError, InputError, StateError
from innet.core.reduce_op import ReduceOp


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def job_of(rng, count, size):
    return list(rng.standard_normal((count, size)).astype(np.float32))


def scalecom(**selector):
    return {"preset": "scalecom", "selector": selector}


def test_the_workers_lead_in_turn():
    codecs = workers({**scalecom(rate=10, exact=True), "error_feedback": "none"}, 3)
    rng = np.random.default_rng(0)
    for step in range(7):
        job = job_of(rng, 3, 100)
        outcomes = all_reduce(codecs, job)
        expected = sorted(np.argsort(-np.abs(job[step % 3]), kind="stable")[:10])
        for outcome, gradient in zip(outcomes, job, strict=True):
            assert outcome.indices.tolist() == expected
            assert outcome.sent.tobytes() == gradient[expected].tobytes()


@pytest.mark.parametrize(
    ("parameters", "indices"),
    # Ten positions in chunks of 100 take 7 bits each; with ``exact`` 6 bits and a bitmap.
    [({}, 3), ({"exact": True}, 2 + 1), ({"rate": 1000}, 1), ({"rate": 2}, 16)],
)
def test_the_leaders_indices_travel_packed_in_a_round_of_their_own(parameters, indices):
    rounds = []
    job = job_of(np.random.default_rng(1), 3, 1000)
    all_reduce(workers(scalecom(**parameters), 3), job, watch=rounds.append)
    choice, handshake, words = rounds
    assert [own[0].operation for own in choice] == [ReduceOp.OR] * 3
    assert [own[0].words.size for own in choice] == [1 + indices] * 3  # counted, whoever leads
    assert [bool(own[0].words.any()) for own in choice] == [True, False, False]
    assert choice[0][0].words[0] == 1  # worker 0 leads
    if parameters:
        return
    assert [segment.operation for segment in handshake[0]] == [ReduceOp.MAX]
    assert [(each.operation, each.words.size) for each in words[0]] == [(ReduceOp.SUM, 10)]


@pytest.mark.parametrize("exact", [False, True])
@given(st.data())
def test_to_choose_and_to_average_are_exchangeable(exact, data):
    """compress(mean(x)) == mean(compress(x)), where compress is what the leader's choice I makes
    of any vector: its elements at I, zeros elsewhere. With quantizer ``exact`` the sums are exact.
    """
    size = data.draw(st.integers(1, 300))
    count = data.draw(st.sampled_from((2, 4, 8)))  # a division by these is exact
    rng = np.random.default_rng(data.draw(gradients.seeds))
    job = list(rng.integers(-1000, 1001, (count, size)).astype(np.float32))
    spec = {**scalecom(rate=data.draw(st.sampled_from((1, 3, 7, 400))), exact=exact)}
    spec |= {"quantizer": "exact"}
    (outcome, *_) = all_reduce(workers(spec, count), job)
    mean = np.sum(job, axis=0) / np.float32(count)
    chosen = slice(None) if outcome.indices is None else outcome.indices
    compressed = np.zeros(size, np.float32)
    compressed[chosen] = mean[chosen]
    np.testing.assert_array_equal(outcome.sum / np.float32(count), compressed)


CODES = st.one_of(
    st.builds(ChunkCode, st.integers(1, 3000), st.integers(1, 500)),
    st.integers(1, 3000).flatmap(
        lambda size: st.builds(SortedCode, st.just(size), st.integers(1, size))
    ),
)


@pytest.mark.parametrize("kernel_set", kernels.names())
@given(CODES, gradients.seeds)
def test_packed_indices_arrive(kernel_set, code, seed):
    rng = np.random.default_rng(seed)
    if isinstance(code, SortedCode):
        indices = np.sort(rng.choice(code.size, code.count, replace=False)).astype(np.int32)
        assert 32 * code.words <= code.count * (math.log2(code.size / code.count) + 2) + 64
    else:
        starts = np.arange(0, code.size, code.chunk)
        indices = rng.integers(starts, np.minimum(starts + code.chunk, code.size), dtype=np.int32)
    some = kernels.get(kernel_set)
    words = code.encode(indices, some)
    assert words.size == code.words
    assert words.tobytes() == code.encode(indices, kernels.get("reference")).tobytes()
    assert code.decode(words, some).tolist() == indices.tolist()


@pytest.mark.parametrize(("rate", "least"), [(65, 50), (100, 80), (400, 250)])
def test_on_the_wire_a_rate_is_little_less_than_its_name(rate, least):
    job = [np.zeros(1_000_000, np.float32)] * 2
    job[0][::7] = 1
    _, report = innet.all_reduce(job, codec=scalecom(rate=rate))
    assert report.compression >= least


@pytest.mark.parametrize("exact", [False, True])
@given(st.data())
def test_words_of_two_leaders_are_no_choice(exact, data):
    """Whatever words arrive, the workers choose elements of the gradient or raise an error."""
    codecs = workers({**scalecom(rate=5, exact=exact), "error_feedback": "none"}, 2)
    exchange = codecs[1].exchange(np.ones(33, np.float32), 2)
    ((segment),) = next(exchange)
    rng = np.random.default_rng(data.draw(gradients.seeds))
    words = rng.integers(-(2**31), 2**31, segment.words.size).astype(np.int32)
    words[0] = data.draw(st.sampled_from((1, 1, 1, 0, 2, 3)))
    refused = False
    try:
        exchange.send([words])
    except InputError as error:
        refused = "not exactly one worker led" in str(error)
    assert refused or words[0] == 1
    exchange.close()


def test_the_union_stays_k_where_that_of_topk_grows():
    rng = np.random.default_rng(2)
    common = rng.standard_normal(20_000)
    every = [(common + rng.standard_normal(20_000)).astype(np.float32) for _ in range(64)]
    grown = []
    for count in (1, 2, 4, 8, 16, 32, 64):
        union = {}
        for selector in ({"name": "topk", "k": 200}, {"name": "scalecom", "rate": 100}):
            codecs = workers({"selector": selector, "error_feedback": "none"}, count)
            outcomes = all_reduce(codecs, every[:count])
            union[selector["name"]] = len(set().union(*(each.indices for each in outcomes)))
        assert union["scalecom"] == 200
        grown.append(union["topk"])
    assert grown[0] == 200
    assert grown == sorted(set(grown))
    assert grown[-1] > 20 * 200


@pytest.mark.parametrize(
    ("parameters", "size", "expected"),
    [
        ({"rate": 4}, 10, [1, 7, 8]),  # chunks 0-3, 4-7 and 8-9; the first of equal magnitudes
        ({"rate": 4, "exact": True}, 10, [1, 2]),
        ({"rate": 100}, 10, [1]),
        ({"rate": 100, "exact": True}, 10, [1]),
        ({"rate": 5, "layers": [5, 5]}, 10, [0, 1, 2, 3, 4, 7]),
        ({"rate": 5, "layers": [5, 5], "first_dense": False}, 10, [1, 7]),
        ({"layers": [5, 3, 2], "rates": [9, 1, 2]}, 10, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ({"layers": [10], "rates": [5]}, 10, [1, 7]),
    ],
)
def test_what_is_chosen(parameters, size, expected):
    x = np.array([1, -9, 9, 0, 2, -1, 3, 5, 4, -4], np.float32)[:size]
    spec = {**scalecom(**parameters), "error_feedback": "none"}
    assert build_codec(spec).selector.select(x)[0].tolist() == expected
    for outcome in all_reduce(workers(spec, 3), [x, -x[::-1].copy(), x * 0]):
        assert outcome.indices.tolist() == expected


@pytest.mark.parametrize("error_feedback", ["none", "residual", "lowpass"])
@pytest.mark.parametrize("spec", [{"warmup": 2}, {"rate": 1}, {"layers": [4, 6], "rates": [1, 1]}])
def test_where_everything_is_sent_nothing_is_asked(spec, error_feedback):
    codecs = workers(
        {**scalecom(**spec), "quantizer": "exact", "error_feedback": error_feedback}, 2
    )
    job = job_of(np.random.default_rng(3), 2, 10)
    outcomes = [all_reduce(codecs, job)[0] for _ in range(3)]
    assert [outcome.indices is None for outcome in outcomes[:2]] == [True, True]
    assert [outcome.rounds for outcome in outcomes[:2]] == [2, 2]
    if error_feedback != "lowpass":  # which keeps a part of what was sent
        assert [each.sum.tobytes() for each in outcomes[:2]] == [(job[0] + job[1]).tobytes()] * 2
    if "warmup" in spec:
        assert outcomes[2].indices.size == 1
        assert outcomes[2].rounds == 3


def test_equal_values_and_zeros_have_defined_choices():
    for value in (0.0, 1.0, 1e-45):
        outcomes = all_reduce(workers(scalecom(rate=4), 2), [np.full(8, value, np.float32)] * 2)
        assert outcomes[1].indices.tolist() == [0, 4]


def test_a_leader_that_fails_leads_again():
    codecs = workers({**scalecom(rate=2), "error_feedback": "residual"}, 2)
    x = np.array([1, 2, 3, 4], np.float32)
    all_reduce(codecs, [x, -x])
    exchanges = [codec.exchange(x, 2) for codec in codecs]
    for exchange in exchanges:
        next(exchange)
        exchange.close()
    assert [codec.selector.leader(2) for codec in codecs] == [1, 1]
    (outcome, _) = all_reduce(codecs, [x * 0, np.array([9, 0, 0, 9], np.float32)])
    assert outcome.indices.tolist() == [0, 3]


@pytest.mark.parametrize("numbers", [(0, 0), (0, 2), (1, 1)])
def test_workers_that_are_not_numbered_are_found_out(numbers):
    codecs = [build_codec(scalecom(rate=2), worker=number) for number in numbers]
    x = np.arange(8, dtype=np.float32)
    with pytest.raises(InputError, match="build_codec's worker"):
        all_reduce(codecs, [x, x[::-1].copy()])


def test_other_layers_than_the_gradients_are_refused_before_anything_changes():
    codec = build_codec(scalecom(layers=[3, 4]), worker=2)
    with pytest.raises(StateError, match=r"worker 2's codec have 7 elements together, the grad"):
        next(codec.exchange(np.ones(8, np.float32), 3))
    assert codec.error_feedback.residual is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rate": 0}, "rate = 0"),
        ({"rate": 2.5}, "rate = 2.5"),
        ({"rate": 2**64}, "rate = 18446744073709551616 .* below 2147483648"),
        ({"layers": [3, 0]}, "layers"),
        ({"layers": []}, "layers"),
        ({"layers": [3, 4], "rates": [2]}, "as many rates as layers"),
        ({"rates": [2]}, "as many rates as layers"),
        ({"warmup": -1}, "warmup = -1"),
    ],
)
def test_what_cannot_be_is_refused(parameters, message):
    with pytest.raises(ConfigError, match=message):
        build_codec(scalecom(**parameters))


@pytest.mark.parametrize("step", [-1, 1.0, True, None])
def test_damaged_state_is_refused(step):
    codec = build_codec("scalecom")
    state = codec.state_dict()
    state["parts"]["selector"] = {"step": step}
    with pytest.raises(StateError, match="number of all-reduces"):
        codec.load_state_dict(state)


@pytest.mark.repeats("the same with topk", but=["scalecom"])
@pytest.mark.parametrize("selector", ["topk", "scalecom"])
@given(st.data())
def test_a_filter_with_beta_1_is_the_residual(selector, data):
    size, count = data.draw(gradients.sizes()), data.draw(st.sampled_from((1, 2, 3)))
    chosen = {"topk": {"name": "topk", "ratio": 0.3}, "scalecom": {"name": "scalecom", "rate": 3}}
    spec = {"selector": chosen[selector]}
    filtered = workers({**spec, "error_feedback": {"name": "lowpass", "beta": 1.0}}, count)
    plain = workers({**spec, "error_feedback": "residual"}, count)
    for _ in range(4):
        job = [data.draw(gradients.vectors(size, kind="heavy")) for _ in range(count)]
        for one, other in zip(all_reduce(filtered, job), all_reduce(plain, job), strict=True):
            assert one.sum.tobytes() == other.sum.tobytes()
            assert one.sent.tobytes() == other.sent.tobytes()
        for one, other in zip(filtered, plain, strict=True):
            assert one.error_feedback.residual.tobytes() == other.error_feedback.residual.tobytes()


def test_the_filter_is_that_of_algorithm_1():
    rng = np.random.default_rng(5)
    codecs = workers({**scalecom(rate=4), "error_feedback": {"name": "lowpass", "beta": 0.1}}, 2)
    memories = np.zeros((2, 50))
    for _ in range(5):
        job = job_of(rng, 2, 50)
        outcomes = all_reduce(codecs, job)
        for memory, gradient, outcome, codec in zip(memories, job, outcomes, codecs, strict=True):
            sent = np.zeros(50)
            sent[outcome.indices] = outcome.sent
            memory[:] = 0.9 * memory + 0.1 * (memory + gradient - sent)
            np.testing.assert_allclose(codec.error_feedback.residual, memory, rtol=0, atol=1e-6)


def test_a_filtered_exchange_that_is_given_up_keeps_everything():
    codec = build_codec({**scalecom(rate=2), "error_feedback": {"name": "lowpass", "beta": 0.5}})
    x = np.array([1, -3, 2, 4], np.float32)
    all_reduce([codec], [x])
    memory = codec.error_feedback.residual.copy()
    assert memory.tolist() == [0.5, 0, 1, 0]
    exchange = codec.exchange(x, 1)
    next(exchange)
    exchange.close()
    assert codec.error_feedback.residual.tobytes() == (memory + x).tobytes()
    with pytest.raises(StateError, match="has 4 elements, the gradient 5"):
        next(codec.exchange(np.ones(5, np.float32), 1))


@pytest.mark.parametrize("rounds", [1, 2, 3])  # of the choice, the handshake, the sums
def test_a_filtered_exchange_keeps_everything_wherever_it_ends(rounds):
    codecs = workers({**scalecom(rate=2), "error_feedback": {"name": "lowpass", "beta": 0.5}}, 2)
    x = np.array([1, -3, 2, 4], np.float32)
    all_reduce(codecs, [x, x])
    memories = [codec.error_feedback.residual.copy() for codec in codecs]
    exchanges = [codec.exchange(x, 2) for codec in codecs]
    segments = [next(exchange) for exchange in exchanges]
    for _ in range(rounds - 1):
        leaders = [each.words for each in segments[1]]  # worker 1 leads; both have the same x
        segments = [exchange.send(leaders) for exchange in exchanges]
    for codec, exchange, memory in zip(codecs, exchanges, memories, strict=True):
        exchange.close()
        assert codec.error_feedback.residual.tobytes() == (memory + x).tobytes()


def test_where_everything_is_sent_a_part_of_the_memory_stays():
    error_feedback = {"name": "lowpass", "beta": 0.25}
    codec = build_codec(
        {**scalecom(warmup=1), "quantizer": "exact", "error_feedback": error_feedback}
    )
    x = np.array([1, -3, 2, -4], np.float32)
    exchange = codec.exchange(x, 1)
    next(exchange)
    exchange.close()  # all of x is in the memory
    (outcome,) = all_reduce([codec], [x])
    assert outcome.indices is None
    assert outcome.sum.tolist() == (2 * x).tolist()
    assert codec.error_feedback.residual.tolist() == (0.75 * x).tolist()


def test_a_filter_takes_what_did_not_count_for_not_sent():
    codec = build_codec({"selector": {"name": "topk", "k": 3}, "error_feedback": "lowpass"})
    error_feedback, beta = codec.error_feedback, np.float32(0.1)
    memory = error_feedback.residual = np.array([1, -2, 3, 4], np.float32)
    gradient = np.array([5, -6, 7, 0.5], np.float32)
    with pytest.raises(StopIteration) as chosen:
        next(error_feedback.choose(codec.selector, gradient, 1))
    indices, values = chosen.value.value
    assert indices.tolist() == [0, 1, 2]
    assert values.tolist() == [6, -8, 10]
    error_feedback.set_sent(values - np.float32(0.25))
    error_feedback.commit(np.array([0, 2], np.int32))
    new = memory + beta * gradient
    new[[0, 2]] = (1 - beta) * memory[[0, 2]] + beta * np.float32(0.25)
    assert error_feedback.residual.tobytes() == new.tobytes()


def test_a_filtered_memory_that_overflows_is_refused():
    codec = build_codec({**scalecom(rate=2), "error_feedback": {"name": "lowpass", "beta": 1.0}})
    x = np.array([3e38, 2e38], np.float32)
    all_reduce([codec], [x])
    with pytest.raises(GradientError, match="overflows float32 at index 1"):
        next(codec.exchange(x, 1))
    assert codec.error_feedback.residual.tolist() == [0, float(np.float32(2e38))]


@pytest.mark.parametrize("beta", [0, 1.5, -0.1])
def test_a_filter_needs_a_share(beta):
    with pytest.raises(ConfigError, match="beta = "):
        build_codec({"preset": "scalecom", "error_feedback": {"beta": beta}})


@pytest.mark.parametrize("name", kernels.names())
@given(st.data())
def test_the_largest_of_each_chunk(name, data):
    x = data.draw(gradients.vectors(data.draw(gradients.sizes())))
    chunk = data.draw(st.sampled_from((1, 2, 17, 5000)))
    expected = [
        max(range(i, min(i + chunk, x.size)), key=lambda j: (abs(x[j]), -j))
        for i in range(0, x.size, chunk)
    ]
    found = kernels.get(name).chunk_argmax(x, chunk)
    assert found.dtype == np.int32
    assert found.tolist() == expected
