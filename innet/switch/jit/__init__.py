"""The compiled engine of the switch model: BMv2 JSON to Numba."""

from innet.switch.jit.engine import JitEngine

__all__ = ["JitEngine"]
