"""These tests run on a GPU, or in numba-cuda's simulator, in a process of its own.

``tests/unit/kernels/test_cuda_simulated.py`` starts that process where there is no GPU.
"""

from __future__ import annotations

import os
import sys

import pytest

from innet import kernels

collect_ignore_glob = [] if "cuda" in kernels.names() else ["test_*.py"]

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    from support import cuda_simulator

    cuda_simulator.install()
    # Often enough that threads overtake each other. One core: the interpreter runs one of them at a
    # time, and handing it from core to core costs more than what they compute.
    sys.setswitchinterval(1e-4)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def pytest_collection_modifyitems(items):
    for item in items:
        # The simulator computes with scalars of NumPy, which warn where integers wrap around.
        item.add_marker(pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"))
