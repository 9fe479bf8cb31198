"""Networks in simulated time, with the compiled P4 program as the switch."""

from __future__ import annotations

import importlib
from typing import Any

from innet.sim.network import PRESETS, Network, network_of

__all__ = ["PRESETS", "Network", "network_of"]


def __getattr__(name: str) -> Any:
    """``Testbed`` stands on this folder, and is imported when somebody asks for it here."""
    if name == "Testbed":
        return importlib.import_module("innet.testbed").Testbed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
