"""Networks in simulated time, with the compiled P4 program as the switch."""

from __future__ import annotations

from innet.sim.network import PRESETS, Network, network_of

__all__ = ["PRESETS", "Network", "network_of"]
