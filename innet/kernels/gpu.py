"""Whether the CUDA kernels can run here, and what is missing; checked before they are imported."""

from __future__ import annotations

from importlib.util import find_spec

from innet.core.errors import MissingToolError

_FOR = 'kernels="cuda"'


def missing() -> MissingToolError | None:
    """Why the CUDA kernels cannot run here, with the remedy; None if they can."""
    if find_spec("numba_cuda") is None:
        return MissingToolError("numba-cuda", _FOR, "Run: pip install 'innet[cuda]'")
    from numba import cuda  # noqa: PLC0415 - half a second that only those who ask should wait

    if not cuda.is_available():
        return MissingToolError(
            "A CUDA GPU with its driver",
            _FOR,
            'Run it where nvidia-smi lists a GPU, or use kernels="cpu". (Numba-cuda\'s simulator '
            "runs the CUDA kernels without a GPU, slowly: set NUMBA_ENABLE_CUDASIM=1 before Python "
            "starts.)",
        )
    return None
