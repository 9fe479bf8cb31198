"""Top-k against sorting, where sampling misleads and ties abound."""

from __future__ import annotations

import numpy as np
import pytest

from innet import kernels
from innet.kernels.cpu import topk
from innet.kernels.cpu.topk import list_threshold, new_lists

SIZE = 100_003

cpu = kernels.get("cpu")


def sorted_choice(x, k):
    order = sorted(range(x.size), key=lambda i: (-abs(x[i]), i))
    return sorted(order[:k])


def hidden_from_a_sample(rng):
    """A few huge values where most samples see none: the guess is far too low."""
    x = np.full(SIZE, 1e-3, np.float32)
    x[rng.choice(SIZE, 50, replace=False)] = rng.standard_normal(50) * 1e6
    return x


def ascending(rng):
    return np.linspace(-1, 1, SIZE, dtype=np.float32)


def few_nonzeros(rng):
    x = np.zeros(SIZE, np.float32)
    x[rng.choice(SIZE, 20, replace=False)] = 1
    return x


def two_levels(rng):
    return rng.choice(np.array([1, -1, 2, -2], np.float32), SIZE)


def striped(rng):
    x = np.zeros(SIZE, np.float32)
    x[::64] = rng.standard_normal(len(x[::64]))
    return x


def rounded(rng):
    """Ties wherever the selection may end."""
    return np.round(rng.standard_normal(SIZE) * 16).astype(np.float32)


def alike_as_neighbors(rng):
    return np.repeat(rng.standard_normal(SIZE // 8 + 1).astype(np.float32), 8)[:SIZE]


def denormals(rng):
    bits = rng.integers(0, 2**20, SIZE, dtype=np.uint32)
    return bits.view(np.float32)


@pytest.mark.repeats("the same with other k", but=["*-1", "*-1000"])
@pytest.mark.parametrize("k", [1, 100, 1000, 24_000, 60_000])
@pytest.mark.parametrize(
    "make",
    [
        hidden_from_a_sample,
        ascending,
        few_nonzeros,
        two_levels,
        striped,
        rounded,
        alike_as_neighbors,
        denormals,
    ],
)
def test_equals_sorting(make, k):
    x = make(np.random.default_rng(k))
    expected = sorted_choice(x, k)
    indices, values = cpu.top_k(x, k)
    assert indices.tolist() == expected
    assert values.tobytes() == x[expected].tobytes()
    indices, values, found = cpu.top_k_residual(x, np.zeros_like(x), k)
    assert indices.tolist() == expected
    assert values.tobytes() == x[expected].tobytes()
    rest = x.copy()
    rest[expected] = 0
    np.testing.assert_array_equal(found, rest)


def test_infinite_sums_count_as_the_largest():
    gradient = np.full(SIZE, 3e38, np.float32)
    residual = np.zeros(SIZE, np.float32)
    residual[[7, 99_999]] = 3e38
    indices, values, _ = cpu.top_k_residual(gradient, residual, 2)
    assert indices.tolist() == [7, 99_999]
    assert np.isposinf(values).all()


@pytest.mark.parametrize("make", [lambda rng: rng.standard_normal(SIZE, np.float32), rounded])
@pytest.mark.parametrize("size", [topk._SMALL, 1 << 16, SIZE])
@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.2])
def test_the_guess_suffices(make, size, ratio):
    """Else what is selected is as right, but takes several times as long."""
    x = make(np.random.default_rng(size))[:size]
    k = int(ratio * size)
    guess = topk._guess(x, np.zeros_like(x), k)
    place, found = list_threshold(x, guess.least, new_lists(guess.room), (0, 0))
    assert place == size
    assert k <= found <= 2 * k + size // 8
    assert guess.likely >= guess.least


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 1000, 20_000])
@pytest.mark.parametrize(
    ("least", "bound"), [(0, 2**31), (0x3F800000, 0x3F801000), (0x7F7FFFFF, 0x7F800002), (0, 2)]
)
def test_the_kth_magnitude_is_that_of_sorting(size, least, bound):
    """Whatever the range: all bits, few, infinity and what is no number, hardly any."""
    rng = np.random.default_rng(size)
    bits = rng.integers(least, bound, size, dtype=np.uint32)
    x = (bits | rng.integers(0, 2, size, dtype=np.uint32) << np.uint32(31)).view(np.float32)
    order = np.argsort(-bits.astype(np.int64), kind="stable")
    for k in {1, size // 3 + 1, size}:
        last = order[k - 1]
        assert topk._kth_magnitude(x, k) == (bits[last], last)
