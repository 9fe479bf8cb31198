"""innet: an in-network aggregation emulator with a programmable switch model.

Workers compress gradients into integer packets, P4 switch programs sum them in the network, workers
decode the sum:

    import innet
    total, report = innet.all_reduce([gradient_0, gradient_1], codec="lhc")

``Collective`` is the same for many iterations; ``EmulatedTraining`` gives a training script of
one's own workers, codecs and networks; ``simulate`` says what all-reduces and training
iterations take in simulated time, ``sweep`` what they take over many settings;
``innet.switch.Switch`` runs compiled P4 programs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from innet._version import __version__

if TYPE_CHECKING:
    from innet.allreduce.collective import Collective, all_reduce
    from innet.core import schedules
    from innet.experiments.emulation import EmulatedTraining
    from innet.scenarios.simulate import simulate
    from innet.scenarios.sweeps import sweep

__all__ = [
    "Collective",
    "EmulatedTraining",
    "__version__",
    "all_reduce",
    "schedules",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: Numba alone takes longer to import than `innet --help` may take.
    if name in ("Collective", "all_reduce"):
        return getattr(importlib.import_module("innet.allreduce.collective"), name)
    if name == "EmulatedTraining":
        return importlib.import_module("innet.experiments.emulation").EmulatedTraining
    if name == "schedules":
        return importlib.import_module("innet.core.schedules")
    if name == "simulate":
        return importlib.import_module("innet.scenarios.simulate").simulate
    if name == "sweep":
        return importlib.import_module("innet.scenarios.sweeps").sweep
    raise AttributeError(f"module 'innet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
