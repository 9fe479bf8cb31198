"""float16 and bfloat16 are summed as float32, and rounded once, to nearest, ties to even."""

from __future__ import annotations

import re

import numpy as np
import pytest

import innet
from innet.allreduce.collective import Collective
from innet.core.errors import GradientError

torch = pytest.importorskip("torch")


def draws(workers=3, size=500):
    return np.random.default_rng(7).standard_normal((workers, size)).astype(np.float16)


def test_float16_arrays_are_summed_as_float32():
    inputs = list(draws().reshape(3, 20, 25))
    total, report = innet.all_reduce(inputs, codec="exact")
    assert (total.dtype, total.shape) == (np.float16, (20, 25))
    assert report.exact
    # Sums of three float16 are exact in float64, so this is the sum, rounded once.
    expected = np.sum(inputs, axis=0, dtype=np.float64).astype(np.float32).astype(np.float16)
    np.testing.assert_array_equal(total, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_come_back_as_tensors(dtype):
    inputs = [torch.from_numpy(each).to(dtype) for each in draws()]
    total, report = innet.all_reduce(inputs, codec="exact")
    assert report.exact
    assert total.dtype == dtype
    expected = torch.stack([each.double() for each in inputs]).sum(0).float().to(dtype)
    assert torch.equal(total, expected)


def test_arrays_and_tensors_together_give_what_the_first_worker_has():
    array, tensor = np.array([1.5, -2.0], np.float32), torch.tensor([0.25, 4.0])
    first, _ = innet.all_reduce([array, tensor])
    assert isinstance(first, np.ndarray)
    second, _ = innet.all_reduce([tensor, array])
    assert isinstance(second, torch.Tensor)
    np.testing.assert_array_equal(first, second.numpy())
    np.testing.assert_allclose(first, [1.75, 2.0], rtol=1e-6)
    with pytest.raises(GradientError, match="worker 1 is float32, that of worker 0 float16"):
        innet.all_reduce([array.astype(np.float16), tensor])


def test_lists_are_told_what_to_pass():
    given = [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(GradientError, match="worker 0 is a list") as caught:
        innet.all_reduce(given)
    (hint,) = re.findall(r"np\.asarray\(.*\)", str(caught.value))
    total, _ = innet.all_reduce([eval(hint, {"np": np, "gradient": each}) for each in given])
    np.testing.assert_allclose(total, [4, 6], rtol=1e-6)


def test_ties_go_to_even_and_what_is_too_large_becomes_infinite():
    large = [2048, 2048, 65504]  # float16 has 2048, 2050, 2052, and no number above 65504
    inputs = [np.array(large, np.float16), np.array([1, 3, 65504], np.float16)]
    total, _ = innet.all_reduce(inputs, codec="exact")
    assert total.tolist() == [2048, 2052, np.inf]


def test_error_feedback_keeps_what_float16_cannot():
    """The codec's state is float32: nothing is lost between all-reduces."""
    collective = Collective(workers=2, codec="topk")
    collective.all_reduce(list(draws(2)))
    assert collective.codecs[0].error_feedback.residual.dtype == np.float32


def test_other_dtypes_are_refused_with_what_to_pass():
    x = np.ones(4)
    with pytest.raises(GradientError, match=r"float64, not float32; convert it with .astype"):
        innet.all_reduce([x, x])
    with pytest.raises(GradientError, match=r"tensor of torch.float64; pass .*tensor.float\(\)"):
        innet.all_reduce([torch.ones(4, dtype=torch.float64)] * 2)
    with pytest.raises(GradientError, match=r"sparse tensor; pass tensor.to_dense\(\)"):
        innet.all_reduce([torch.ones(4).to_sparse()] * 2)
    with pytest.raises(GradientError, match="worker 1 is float16, that of worker 0 float32"):
        innet.all_reduce([x.astype("f4"), x.astype("f2")])


def test_the_hints_work():
    tensor = torch.ones(4, dtype=torch.float64)
    total, _ = innet.all_reduce([tensor.float()] * 2)
    assert torch.equal(total, torch.full((4,), 2.0))
