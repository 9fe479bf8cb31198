"""Count sketches: kernels, heavy hitters, the exact second round, what never overflows."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import gradients
from support.lockstep import all_reduce, integer_oracle

from innet import kernels
from innet.codecs import build_codec
from innet.core.errors import ConfigError, InputError, StateError
from innet.core.reduce_op import ReduceOp
from innet.kernels import CountLayout
from innet.kernels.reference import count_sketch

FROZEN = "e24b41fe3ea8070e449adf7bb4909aaf8bda2332d14974381119ba3f88704b34"
SELECTORS = ("gs-sgd", "sketched-sgd")
each_selector = pytest.mark.parametrize("name", SELECTORS)
each_kernels = pytest.mark.parametrize("each", [kernels.get(name) for name in kernels.names()])


def spec_of(name, **parameters):
    return {
        "selector": {"name": name, **parameters},
        "quantizer": "exact",
        "carrier": "shared",
        "error_feedback": "residual",
    }


def workers(spec, count, **keywords):
    return [build_codec(spec, worker=worker, **keywords) for worker in range(count)]


def zipf(rng, size):
    """Magnitudes 1, 1/2, 1/3, ... with random signs, in random places."""
    return (rng.permutation(1 / np.arange(1.0, size + 1)) * rng.choice([-1, 1], size)).astype("f4")


def shares(rng, whole, count):
    """Vectors of ``count`` workers that add up to nearly ``whole``, each unlike it."""
    noise = rng.standard_normal((count, whole.size)) * 1e-3
    return list((whole / count + noise - noise.mean(axis=0)).astype(np.float32))


def places(i, layout):
    """Column and sign of element i in each row, in Python's integers."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    block, lane = divmod(i, layout.lanes)
    for row in range(layout.rows):
        z = mix((block * golden + mix((layout.seed + (row + 1) * golden) & mask)) & mask)
        column = ((z & 0xFFFFFFFF) * layout.columns >> 32) + lane
        yield column % layout.columns, -1 if z >> (64 - layout.lanes + lane) & 1 else 1


@st.composite
def layouts(draw, size):
    return CountLayout(
        draw(st.sampled_from((3, 5, 31))),
        draw(st.sampled_from((1, 2, 3, 64, 255, 256, 300, max(1, size // 10)))),
        draw(st.integers(0, 2**63 - 1)),
    )


@each_kernels
@given(st.data())
def test_the_kernels_follow_the_definition(each, data):
    size = data.draw(st.integers(0, 60))
    # Integers up to 2**24 stay integers whatever power of two they are scaled by.
    x = np.random.default_rng(data.draw(gradients.seeds)).integers(-1000, 1001, size).astype("f4")
    layout = data.draw(layouts(size))
    cells = np.zeros((layout.rows, layout.columns))
    for i in range(size):
        for row, (column, sign) in enumerate(places(i, layout)):
            cells[row, column] += sign * float(x[i])
    found = each.count_sketch_encode(x, layout)
    assert found.dtype == np.float32
    assert found.tolist() == cells.ravel().tolist()
    estimates = each.count_sketch_estimate(found.astype(np.int32), size, layout)
    assert estimates.dtype == np.float32
    expected = [
        np.median([sign * cells[row, col] for row, (col, sign) in enumerate(places(i, layout))])
        for i in range(size)
    ]
    assert estimates.tolist() == expected


@given(st.data())
def test_the_kernels_agree_bit_for_bit(data):
    naive, cpu = kernels.get("reference"), kernels.get("cpu")
    size = data.draw(gradients.sizes(large=True))
    x = data.draw(gradients.vectors(size))
    layout = data.draw(layouts(size))
    before = x.copy()
    cells = cpu.count_sketch_encode(x, layout)
    assert cells.tobytes() == naive.count_sketch_encode(x, layout).tobytes()
    assert np.isfinite(cells).all()
    assert x.tobytes() == before.tobytes()
    words = np.random.default_rng(size).integers(1 - 2**31, 2**31, layout.cells).astype(np.int32)
    estimates = cpu.count_sketch_estimate(words, size, layout)
    assert estimates.tobytes() == naive.count_sketch_estimate(words, size, layout).tobytes()


@each_kernels
def test_cells_beyond_float32_are_held_at_its_largest(each):
    largest = np.finfo(np.float32).max
    cells = each.count_sketch_encode(np.full(1000, largest, np.float32), CountLayout(3, 1, 0))
    assert set(np.abs(cells)) <= {largest}
    tiny = np.full(3, 1e-45, np.float32)
    assert set(np.abs(each.count_sketch_encode(tiny, CountLayout(3, 1, 0)))) <= {
        tiny[0],
        3 * tiny[0],
    }


@pytest.mark.parametrize("columns", [64, 320])
def test_rows_and_signs_are_as_good_as_random(columns):
    layout = CountLayout(5, columns, 1)
    size, lanes = 200_000, layout.lanes
    places, negative = count_sketch._places(size, layout)
    signs = np.where(negative, -1.0, 1.0)
    deviation = np.sqrt(size)
    # Columns are drawn by the block: what they add up to varies as if there were fewer.
    few = 5 * np.sqrt(lanes * size / columns)
    assert (np.abs(signs.sum(axis=1)) < 5 * deviation).all()
    for row in range(5):
        for other in range(row):
            assert abs((signs[row] * signs[other]).sum()) < 5 * deviation
            meet = np.count_nonzero(places[row] == places[other])
            assert abs(meet - size / columns) < few
        blocks = size / lanes / columns
        counts = np.bincount(places[row, 3::lanes], minlength=columns)
        assert ((counts - blocks) ** 2).sum() / blocks < columns + 5 * np.sqrt(2 * columns)
        for apart in (lanes, lanes + 1, 3 * lanes - 1, 50 * lanes + 7):
            meet = np.count_nonzero(places[row, apart:] == places[row, :-apart])
            assert abs(meet - size / columns) < few
            assert abs((signs[row, apart:] * signs[row, :-apart]).sum()) < 5 * deviation


@pytest.mark.parametrize("columns", [60, 300])
def test_estimates_are_right_on_average_and_vary_as_they_should(columns):
    # Of one row: the other elements' squares over the columns, for it is they that may collide.
    rng, cpu = np.random.default_rng(0), kernels.get("cpu")
    x = rng.integers(-100, 101, 2000).astype(np.float32)
    errors = []
    for seed in range(200):
        layout = CountLayout(3, columns, seed)
        cells = cpu.count_sketch_encode(x, layout).reshape(3, -1)[0]
        column, negative = (each[0] for each in count_sketch._places(x.size, layout))
        errors.append(np.where(negative, -1, 1) * cells[column] - x)
    expected = np.square(x, dtype=np.float64).sum() / columns
    assert abs(np.mean(errors)) < 5 * np.sqrt(expected / 200 / 2000)
    assert 0.95 < np.var(errors) / expected < 1.02


def test_a_sketch_that_is_frozen():
    # What is sent must not change unnoticed: other implementations have to hash in the same way.
    x = np.arange(1000, dtype=np.float32)
    words = kernels.get("cpu").count_sketch_encode(x, CountLayout(3, 300, 2**63 - 1))
    assert hashlib.sha256(words.tobytes()).hexdigest() == FROZEN


def test_memory_stays_below_twice_the_gradient():
    size = 1 << 20
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    layout = build_codec(spec_of("gs-sgd", ratio=0.01)).selector.layout(size)
    cpu = kernels.get("cpu")
    cells = cpu.count_sketch_encode(x, layout).astype(np.int32)  # compiled before it is measured
    cpu.count_sketch_estimate(cells, size, layout)
    for kernel in (
        lambda: cpu.count_sketch_encode(x, layout), lambda: cpu.count_sketch_estimate(cells, size,
            layout)
    ):  # fmt: skip
        tracemalloc.start()
        kernel()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * x.nbytes


@each_selector
@pytest.mark.parametrize("count", [1, 4, 16])
def test_heavy_hitters_of_a_zipf_vector_are_found(name, count):
    rng = np.random.default_rng(count)
    whole = zipf(rng, 100_000)
    job = shares(rng, whole, count)
    total = np.sum(job, axis=0, dtype=np.float64)
    order = np.argsort(-np.abs(total)).tolist()
    for columns, certain in ((1000, 40), (10_000, 80)):
        spec = spec_of(name, k=100, columns=columns)
        (outcome, *_) = all_reduce(workers(spec, count), job)
        found = set(np.flatnonzero(outcome.sum).tolist())
        assert len(found) == 100
        # The cells' noise falls with the root of the columns, and so what stands out of it.
        assert set(order[:certain]) <= found


@each_selector
def test_the_second_round_is_exact(name):
    rng = np.random.default_rng(7)
    job = [rng.integers(-1000, 1001, 20_000).astype(np.float32) for _ in range(3)]
    outcomes = all_reduce(workers(spec_of(name, k=50), 3), job)
    total = np.sum(job, axis=0)
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.indices, outcomes[0].indices)
        chosen = outcome.indices if outcome.applied is None else outcome.applied
        assert chosen.size == 50
        expected = np.zeros(20_000, np.float32)
        expected[chosen] = total[chosen]
        np.testing.assert_array_equal(outcome.sum, expected)
        np.testing.assert_array_equal(
            outcome.integer_sum, integer_oracle(outcomes, outcome.contribution.size)
        )


def test_of_the_candidates_the_k_largest_count_and_the_others_stay():
    rng = np.random.default_rng(8)
    job = [rng.standard_normal(20_000).astype(np.float32) for _ in range(3)]
    codecs = workers(spec_of("sketched-sgd", k=50, candidates=3), 3)
    outcomes = all_reduce(codecs, job)
    sums = np.sum([gradient.astype(np.float64) for gradient in job], axis=0)
    candidates, applied = outcomes[0].indices, outcomes[0].applied
    assert (candidates.size, applied.size) == (150, 50)
    best = candidates[np.argsort(-np.abs(sums[candidates]))[:50]]
    assert sorted(best) == applied.tolist()
    for codec, gradient in zip(codecs, job, strict=True):
        rest = gradient.copy()
        rest[applied] = 0
        assert codec.error_feedback.residual.tobytes() == rest.tobytes()


@each_selector
def test_rounds_and_words(name):
    rounds = []
    job = shares(np.random.default_rng(9), zipf(np.random.default_rng(9), 50_000), 3)
    codecs = workers({**spec_of(name, k=20, rows=3, columns=400), "quantizer": "fixed"}, 3)
    outcomes = all_reduce(codecs, job, watch=rounds.append)
    sent = [[(each.operation, each.words.size) for each in own[1]] for own in rounds]
    values = 80 if name == "sketched-sgd" else 20
    assert sent == [
        [(ReduceOp.MAX, 1)],
        [(ReduceOp.SUM, 1200)],
        [(ReduceOp.MAX, 2 + 1)],
        [(ReduceOp.SUM, values)],
    ]
    assert outcomes[0].rounds == 4
    assert codecs[0].capabilities()["rounds"] == [1, 4]


@each_selector
@pytest.mark.parametrize("count", [1, 32])
def test_the_sum_of_the_sketches_cannot_overflow(name, count):
    # All workers' cells are as large as they can be, and of one sign.
    x = np.zeros(5000, np.float32)
    x[::7] = np.finfo(np.float32).max
    spec = {**spec_of(name, k=10), "error_feedback": "none"}
    exact = []

    def add_up(segments):
        if segments[0][0].operation is ReduceOp.SUM:
            exact.append(np.sum([own[0].words.astype(np.int64) for own in segments], axis=0))

    outcomes = all_reduce(workers(spec, count), [x] * count, watch=add_up)
    sketch = exact[0]
    assert 2**31 - 1 - 2 * count < np.abs(sketch).max() <= 2**31 - 1
    if count > 1:
        assert np.isinf(outcomes[0].sum).any()


@each_selector
def test_where_a_sketch_saves_nothing_everything_is_sent(name):
    job = [np.arange(1, 51, dtype=np.float32)] * 2
    outcomes = all_reduce(workers(spec_of(name, k=1), 2), job)
    assert outcomes[0].indices is None
    assert outcomes[0].rounds == 2
    assert outcomes[1].sum[49] == 100
    left = 49 if name == "sketched-sgd" else 0
    codecs = workers(spec_of(name, k=1), 1)
    all_reduce(codecs, job[:1])
    assert np.count_nonzero(codecs[0].error_feedback.residual) == left


@each_selector
def test_zeros_select_the_first_after_one_round(name):
    codecs = workers(spec_of(name, k=3), 2)
    outcomes = all_reduce(codecs, [np.zeros(10_000, np.float32)] * 2)
    assert outcomes[0].rounds == 2
    assert outcomes[0].indices.tolist() == list(range(outcomes[0].indices.size))
    assert not outcomes[0].sum.any()


@each_selector
def test_everything_arrives_in_the_end(name):
    rng = np.random.default_rng(10)
    gradient = np.where(rng.random(2000) < 0.02, rng.integers(1, 100, 2000), 0).astype("f4")
    codecs = workers(spec_of(name, k=10), 1)
    total = all_reduce(codecs, [gradient])[0].sum
    for _ in range(30):
        total = total + all_reduce(codecs, [np.zeros(2000, np.float32)])[0].sum
    assert total.tolist() == gradient.tolist()


@each_selector
def test_each_all_reduce_hashes_in_another_way(name):
    codec = build_codec(spec_of(name, k=3))
    layouts = [codec.selector.layout(10_000)]
    all_reduce([codec], [np.ones(10_000, np.float32)])
    layouts.append(codec.selector.layout(10_000))
    assert layouts[0].seed != layouts[1].seed
    other = build_codec(spec_of(name, k=3))
    other.load_state_dict(codec.state_dict())
    assert other.selector.layout(10_000) == layouts[1]


@each_selector
def test_what_a_worker_selects_alone(name):
    selector = build_codec(spec_of(name, k=2, columns=1000)).selector
    x = np.zeros(10_000, np.float32)
    x[[70, 9000]] = 5, -6
    indices, values = selector.select(x)
    assert {70, 9000} <= set(indices.tolist())
    assert values.tobytes() == x[indices].tobytes()


@each_selector
@pytest.mark.parametrize("step", [-1, 1.0, True, None])
def test_damaged_state_is_refused(name, step):
    codec = build_codec(spec_of(name))
    state = codec.state_dict()
    state["parts"]["selector"] = {"step": step}
    with pytest.raises(StateError, match="number of all-reduces"):
        codec.load_state_dict(state)


@each_selector
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rows": 4}, "rows must be odd"),
        ({"rows": 1}, "rows = 1"),
        ({"rows": 33}, "rows = 33"),
        ({"columns": 0}, "columns = 0"),
        ({"ratio": 0.1, "k": 3}, "not both"),
    ],
)
def test_what_cannot_be_is_refused(name, parameters, message):
    with pytest.raises(ConfigError, match=message):
        build_codec(spec_of(name, **parameters))


@pytest.mark.parametrize("wrong", [(4, 1, 0), (1, 1, 0), (3, 0, 0), (3, 2**30, 0), (3, 1, -1)])
def test_impossible_layouts_are_refused(wrong):
    with pytest.raises(InputError):
        CountLayout(*wrong)


def test_momentum_and_error_are_zeroed_where_the_sum_counted():
    """Against the paper's update, in float64: u = m·u + g, v += u, both 0 at the k that counted."""
    rng = np.random.default_rng(11)
    size, count = 3000, 2
    spec = {"preset": "sketched-sgd", "selector": {"k": 20, "columns": 200}}
    codecs = workers(spec, count)
    u, v = np.zeros((2, count, size))
    for _ in range(4):
        job = [rng.standard_normal(size).astype(np.float32) for _ in range(count)]
        outcomes = all_reduce(codecs, job)
        u = 0.9 * u + job
        v = v + u
        applied = outcomes[0].applied
        assert applied.size == 20
        np.testing.assert_allclose(outcomes[0].sum[applied], v.sum(axis=0)[applied], rtol=1e-5)
        assert np.count_nonzero(outcomes[0].sum) == 20
        u[:, applied] = v[:, applied] = 0
        for codec, velocity, error in zip(codecs, u, v, strict=True):
            np.testing.assert_allclose(codec.error_feedback.velocity, velocity, rtol=0, atol=1e-5)
            np.testing.assert_allclose(codec.error_feedback.residual, error, rtol=0, atol=1e-5)
            assert not codec.error_feedback.velocity[applied].any()
            assert not codec.error_feedback.residual[applied].any()
