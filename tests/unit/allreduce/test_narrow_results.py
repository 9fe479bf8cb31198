"""Results in fewer bits: the codes of the formats, the residual, and all-reduces with them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import innet
from innet.allreduce.narrow_results import NarrowResults, codes_of, numbers_of
from innet.cli.app import app
from innet.core.errors import InnetError, StateError, UnknownNameError
from innet.kernels.layout.formats import FORMATS


def types():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return {
        "bf16": (ml_dtypes.bfloat16, np.uint16),
        "fp16": (np.float16, np.uint16),
        "fp8-e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
        "fp8-e5m2": (ml_dtypes.float8_e5m2, np.uint8),
        "mxfp6-e2m3": (ml_dtypes.float6_e2m3fn, np.uint8),
        "mxfp6-e3m2": (ml_dtypes.float6_e3m2fn, np.uint8),
        "mxfp4": (ml_dtypes.float4_e2m1fn, np.uint8),
    }


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8-e4m3", "fp8-e5m2", "mxfp6-e2m3", "mxfp4"])
def test_codes_are_those_of_ml_dtypes(name):
    kind, word = types()[name]
    form = FORMATS[name]
    codes = np.arange(2**form.width).astype(word)
    with np.errstate(invalid="ignore"):
        values = codes.view(kind).astype(np.float32)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(codes_of(values[finite], form), codes[finite])
    again = numbers_of(codes[finite].astype(np.int32), form)
    assert again.tobytes() == values[finite].tobytes()


@pytest.mark.parametrize("name", ["int8", "mxint8"])
def test_integers_are_twos_complements(name):
    form = FORMATS[name]
    numbers = (np.arange(-127, 128) * form.smallest).astype(np.float32)
    codes = codes_of(numbers, form)
    np.testing.assert_array_equal(codes.astype(np.uint8).view(np.int8), np.arange(-127, 128))
    np.testing.assert_array_equal(numbers_of(codes, form), numbers)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000])
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_rounded_away_comes_later(name, size):
    """The results of many sums add up to the sums, but for the last residual."""
    rng = np.random.default_rng(size)
    owner, given, got = NarrowResults(name), np.zeros(size), np.zeros(size)
    for _ in range(20):
        sums = (rng.standard_normal(size) * 10.0 ** rng.uniform(-4, 0, size)).astype(np.float32)
        data, rest = owner.narrow(sums)
        assert data.dtype == np.uint8
        assert data.size == owner.size(size)
        given += sums
        got += owner.widen(data, size)
        owner.commit(rest)
    np.testing.assert_allclose(got + rest, given, atol=1e-5)
    largest = np.abs(given).max(initial=0)
    assert np.abs(rest).max(initial=0) <= largest / (2 if name == "mxfp4" else 4)


def test_infinite_sums_and_formats_that_do_not_reach():
    owner = NarrowResults("fp16")
    data, rest = owner.narrow(np.array([np.inf, -np.inf, 1e6], np.float32))
    np.testing.assert_array_equal(owner.widen(data, 3), [65504, -65504, 65504])
    assert rest[2] == np.float32(1e6 - 65504)


def test_state():
    owner = NarrowResults("mxfp4")
    _, rest = owner.narrow(np.linspace(-1, 1, 50, dtype=np.float32))
    owner.commit(rest)
    again = NarrowResults("mxfp4")
    again.load_state_dict(owner.state_dict())
    np.testing.assert_array_equal(again.residual, rest)
    with pytest.raises(StateError, match="mxfp4, these bf16"):
        NarrowResults("bf16").load_state_dict(owner.state_dict())
    with pytest.raises(StateError, match=r"49 elements.* is of 50"):
        owner.narrow(np.ones(49, np.float32))
    with pytest.raises(UnknownNameError, match="mxfp5"):
        NarrowResults("mxfp5")


# ----------------------------------------------------------------------------
# All-reduces with such results.


@pytest.mark.parametrize("codec", ["dense", "mxfp8-e4m3", "exact", "scalecom"])
@pytest.mark.parametrize("results", ["bf16", "mxfp4"])
def test_a_sum_in_another_format(codec, results):
    """The bytes that come back are the format's, and over time the sums are right."""
    rng = np.random.default_rng(1)
    given, got = np.zeros(5000), np.zeros(5000)
    network = innet.Collective(workers=3, codec=codec, results=results)
    wide = innet.Collective(workers=3, codec=codec)
    for _ in range(8):
        job = list(rng.standard_normal((3, 5000)).astype(np.float32))
        total, report = network.all_reduce(job)
        whole, _ = wide.all_reduce(job)
        assert report.exact
        assert report.details["results"] == results
        given += whole
        got += total
    rest = np.concatenate([each.residual for each in network._results])
    np.testing.assert_allclose(got + rest, given, atol=2e-5)
    # A sum of three numbers of eight bits has few enough for bf16.
    assert (np.abs(rest).max() > 0) == ((codec, results) != ("mxfp8-e4m3", "bf16"))
    # Each sum has few bits: a block of bf16's has 8 of them.
    if results == "bf16":
        assert not (total.view(np.int32) & 0xFFFF).any()


def test_bytes_of_results():
    """Half the bytes back of bf16, an eighth of mxfp4, in packets that end with their values."""
    job = [np.ones(64_000, np.float32)] * 4
    received = {}
    for results in (None, "bf16", "mxfp4"):
        program = "collectives"
        network = innet.Collective(workers=4, program=program, results=results, network="100g")
        received[results] = network.all_reduce(job)[1]
    down = {results: report.simulated.bytes for results, report in received.items()}
    assert down[None] > down["bf16"] > down["mxfp4"]


def test_the_state_goes_on_with_the_same_bits():
    rng = np.random.default_rng(1)
    jobs = [list(rng.standard_normal((2, 100)).astype(np.float32)) for _ in range(4)]
    one = innet.Collective(workers=2, codec="bf16", results="mxfp8-e4m3")
    for job in jobs[:2]:
        one.all_reduce(job)
    other = innet.Collective(workers=2, codec="bf16", results="mxfp8-e4m3")
    other.load_state_dict(one.state_dict())
    for job in jobs[2:]:
        assert one.all_reduce(job)[0].tobytes() == other.all_reduce(job)[0].tobytes()
    with pytest.raises(StateError):
        innet.Collective(workers=2, codec="bf16").load_state_dict(one.state_dict())


def test_another_size_or_other_workers_are_refused_before_anything_is_sent():
    network = innet.Collective(workers=3, codec="mxfp4:error_feedback=residual", results="bf16")
    job = [np.full(9, 1 / 3, np.float32)] * 3
    network.all_reduce(job)
    kept = [codec.error_feedback.residual.tobytes() for codec in network.codecs]
    with pytest.raises(StateError, match=r"part of the sum has 4 elements.* is of 3"):
        network.all_reduce([np.ones(12, np.float32)] * 3)
    assert kept == [codec.error_feedback.residual.tobytes() for codec in network.codecs]
    network.all_reduce(job)
    network.leave(1)
    with pytest.raises(StateError, match="a new one where workers leave"):
        network.all_reduce(job)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"program": "slots"}, "slots-64 knows no all-reduce with results in another format"),
        ({"codec": "lhc"}, "sends words that are not those of single elements"),
        ({"results": "bf17"}, "unknown number format 'bf17'"),
    ],
)
def test_what_has_no_such_results(arguments, message):
    with pytest.raises(InnetError, match=message):
        innet.Collective(**{"workers": 2, "results": "bf16", **arguments})


def test_the_command():
    runner = CliRunner()
    done = runner.invoke(app, ["allreduce", "--results", "bf16", "--size", "1000", "--json"])
    report = json.loads(done.stdout)
    assert report["details"]["results"] == "bf16"
    assert report["program"] == "collectives-64"
    done = runner.invoke(app, ["allreduce", "--results", "bf16", "--size", "1000"])
    assert re.search(r"^ +results +bf16$", done.stdout, re.MULTILINE)
    done = runner.invoke(app, ["allreduce", "--results", "bf16", "--collective", "barrier"])
    assert "--results is of all-reduces" in str(done.exception)
