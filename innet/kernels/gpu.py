"""Whether the CUDA kernels can run here, and what is missing; checked before they are imported."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.util import find_spec

from innet.core.errors import MissingToolError

_FOR = 'kernels="cuda"'


def missing() -> MissingToolError | None:
    """Why the CUDA kernels cannot run here, with the remedy; None if they can."""
    if find_spec("numba_cuda") is None:
        return MissingToolError("numba-cuda", _FOR, "Run: pip install 'innet[cuda]'")
    if not _has_driver() or not _has_gpu():
        return MissingToolError(
            "A CUDA GPU with its driver",
            _FOR,
            'Run it where nvidia-smi lists a GPU, or use kernels="cpu". (Numba-cuda\'s simulator '
            "runs the CUDA kernels without a GPU, slowly: set NUMBA_ENABLE_CUDASIM=1 before Python "
            "starts.)",
        )
    return None


def _has_driver() -> bool:
    """Whether asking Numba makes sense, which takes half a second to import."""
    if os.environ.get("NUMBA_ENABLE_CUDASIM") or os.environ.get("NUMBA_CUDA_DRIVER"):
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return sys.platform != "linux"  # elsewhere it has other names
    return True


def _has_gpu() -> bool:
    from numba import cuda  # noqa: PLC0415 - see above

    return bool(cuda.is_available())
