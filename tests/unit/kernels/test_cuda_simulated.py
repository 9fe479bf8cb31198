"""The CUDA kernels in numba-cuda's simulator, and what is said where they cannot run."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from innet import kernels
from innet.codecs import build_codec
from innet.core.errors import MissingToolError
from innet.kernels import gpu

TESTS = Path(__file__).parents[2]


def test_the_kernels_pass_their_tests_in_the_simulator(request):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    # The simulator is chosen before numba-cuda is imported, so it takes a process of its own.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/cuda"]
        + ["--all"] * request.config.getoption("--all"),
        cwd=TESTS.parent,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.repeats("the kernels' tests in the simulator, by the check for a GPU")
def test_the_check_for_a_gpu_compares_every_kernel(tmp_path):
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    found = tmp_path / "cuda.json"
    options = ["--check", "--sizes", "0,1,31", "--output", str(found)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.cuda", *options],
        cwd=TESTS.parent,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    compared = json.loads(found.read_text())["compared"]
    names = {name for name in vars(kernels.Kernels) if not name.startswith("_")}
    assert {(each["kernel"], each["size"]) for each in compared} == {
        (name, size) for name in names for size in (0, 1, 31)
    }
    assert all(each["same"] for each in compared)


@pytest.mark.repeats("the checks of DistributedDataParallel, by the check for a GPU")
def test_the_check_for_a_gpu_sums_gradients():
    """Without one, on the CPU."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.cuda_sums", "switch", "cpu"],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["codec"] for each in found] == ["exact", "dense", "topk", "lhc"]
    assert found[0]["exact"]
    assert all(each["on_device"] for each in found)


def test_without_numba_cuda_the_error_says_how_to_get_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(gpu, "find_spec", lambda name: None if name == "numba_cuda" else find(name))
    with pytest.raises(MissingToolError, match=r"numba-cuda is not installed.*innet\[cuda\]"):
        kernels.get("cuda")
    with pytest.raises(MissingToolError):
        build_codec("topk", kernels="cuda")
    assert kernels.names() == ["cpu", "reference"]


def test_without_a_gpu_the_error_says_so(monkeypatch):
    cuda = pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    with pytest.raises(MissingToolError, match=r"GPU.*nvidia-smi.*NUMBA_ENABLE_CUDASIM"):
        kernels.get("cuda")
    assert kernels.names() == ["cpu", "reference"]
