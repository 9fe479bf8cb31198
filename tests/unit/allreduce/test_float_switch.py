"""All-reduces of floats through the program fpisa."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.lockstep import all_reduce

import innet
from innet.allreduce.report import comparison
from innet.codecs import build_codec
from innet.core.errors import CompositionError, GradientError, InputError
from innet.core.float_sums import FORMATS, of_floats, sum_in_order, to_bits, to_floats, to_words
from innet.network import Faults
from innet.processes.outcomes import load, save

FLOATS = {name: {"preset": "fpisa", "quantizer": {"format": name}} for name in FORMATS}
ROUNDING = {"float32": 2.0**-22, "bf16": 2.0**-8, "fp16": 2.0**-11}


def collective(workers: int, codec: object, **settings: object) -> innet.Collective:
    return innet.Collective(
        workers=workers, codec=codec, program="fpisa", values_per_packet=32, **settings
    )


def gradients(workers: int, size: int = 1001) -> list[np.ndarray]:
    rng = np.random.default_rng(workers)
    return list(rng.standard_normal((workers, size)).astype(np.float32))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "faults", [None, Faults(loss=0.1, duplicate=0.1, jitter=1e-3)], ids=["", "bad"]
)
def test_sums_of_each_format(name: str, faults: Faults | None) -> None:
    network = collective(5, FLOATS[name], faults=faults)
    job = gradients(5)
    total, report = network.all_reduce(job)
    sent = [to_floats(FORMATS[name], of_floats(FORMATS[name], each)) for each in job]
    exact = np.sum(sent, axis=0, dtype=np.float64)
    largest = np.max(np.abs(sent), axis=0)
    assert (np.abs(total - exact) <= ROUNDING[name] * np.abs(exact) + largest * 2.0**-22).all()
    assert report.exact is None
    assert report.order_error is not None
    assert (report.order_error > 0) == (name == "float32")
    assert (report.retransmissions > 0) == (faults is not None)
    words = 1001 if name == "float32" else 501
    assert report.bytes_sent >= 4 * words


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_sums_rounded_by_chance_have_no_bias(name: str) -> None:
    """All elements alike: each worker's number and the sum lie between two of the format."""
    codec = {"preset": "fpisa", "quantizer": {"format": name, "rounding": "stochastic"}}
    value, size = np.float32(1 + 2.0**-12), 64_000
    total, report = collective(3, codec).all_reduce([np.full(size, value)] * 3)
    assert report.exact is None
    ulp = 2.0 ** (-6 if name == "bf16" else -9)
    assert set(total.tolist()) <= {3 + each * ulp / 2 for each in range(-2, 7)}
    error = abs(float(total.mean()) - 3 * float(value))
    assert error < 5 * ulp / np.sqrt(size)
    nearest, _ = collective(3, FLOATS[name]).all_reduce([np.full(size, value)] * 3)
    assert abs(float(nearest.mean()) - 3 * float(value)) > 5 * ulp / np.sqrt(size)


def test_float32_is_not_rounded_by_chance() -> None:
    with pytest.raises(InputError, match="Choose format=bf16 or fp16"):
        collective(2, {"preset": "fpisa", "quantizer": {"rounding": "stochastic"}})


def test_one_order_without_faults() -> None:
    """In memory the workers' packets arrive in the order of the workers."""
    job = gradients(4, 64)
    form = FORMATS["float32"]
    words = [to_words(form, of_floats(form, each)) for each in job]
    expected = to_floats(form, to_bits(form, sum_in_order(form.operation, words)))
    total, _ = collective(4, "fpisa").all_reduce(job)
    np.testing.assert_array_equal(total, expected)


def test_sums_beyond_the_format_are_infinite_and_counted() -> None:
    job = [np.array([60_000, -60_000, 1, 2**-24, 0], np.float32)] * 2
    total, report = collective(2, FLOATS["fp16"]).all_reduce(job)
    assert total.tolist() == [np.inf, -np.inf, 2, 2**-23, 0]
    assert report.infinite == 2
    assert report.exact is None


def test_numbers_beyond_the_format_are_refused_on_all_workers() -> None:
    network = collective(2, FLOATS["fp16"])
    with pytest.raises(GradientError, match=r"magnitude of 70000, which fp16 cannot hold"):
        network.all_reduce([np.ones(4, np.float32), np.full(4, 70_000, np.float32)])


def test_a_worker_that_leaves() -> None:
    """The others go on in the job's next epoch, through the same slots."""
    network = collective(3, FLOATS["bf16"])
    job = [np.full(500, 2.0**each, np.float32) for each in range(3)]
    assert network.all_reduce(job)[0].tolist() == [7.0] * 500
    network.leave(1)
    assert network.all_reduce(job)[0].tolist() == [5.0] * 500


def test_integers_are_summed_as_before() -> None:
    job = gradients(3)
    _, report = collective(3, "exact").all_reduce(job)
    assert report.exact is True
    assert report.order_error is None


def test_where_floats_are_not_added() -> None:
    with pytest.raises(CompositionError, match="slots adds integers only; choose program fpisa"):
        innet.Collective(workers=2, codec="fpisa")
    with pytest.raises(CompositionError, match="choose carrier dense"):
        collective(2, {"preset": "fpisa", "carrier": "packed"})
    with pytest.raises(InputError, match="takes 1 to 32"):
        collective(33, "fpisa")


@pytest.mark.parametrize("codec", ["fpisa", "dense"])
def test_outcomes_of_processes_are_compared_as_here(codec: str, tmp_path: Path) -> None:
    job = gradients(2, 64)
    codecs = [build_codec(codec, worker=worker) for worker in range(2)]
    outcomes = all_reduce(codecs, job)
    for worker, outcome in enumerate(outcomes):
        save(tmp_path / f"{worker}.npz", outcome)
    loaded = [load(tmp_path / f"{worker}.npz") for worker in range(2)]
    assert comparison(job, loaded) == comparison(job, outcomes)
    assert comparison(job, loaded)["exact"] is (True if codec == "dense" else None)
