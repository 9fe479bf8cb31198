"""The programmable switch model: compiled P4 (BMv2 JSON) in, packets through.

It knows nothing of innet's own packet format: a program says what bytes mean. ``Switch`` is the way
in; ``ir`` is the typed form of a program, which two engines run: one that interprets it packet by
packet, and one that compiles it.

Tools use what is exported here, ``ir`` (with ``ir.text`` and ``ir.tree``), ``trace`` and
``inspect`` alone, and what ``Switch.record`` returns (``recording``). Compiled code that runs
switches in its own loop uses ``inline``, and the words of ``traffic_manager``.
"""

from __future__ import annotations

from innet.switch.control.control_plane import ControlPlane
from innet.switch.engine import Statistics, SwitchState
from innet.switch.frontend.loader import load_program, load_text, read_document
from innet.switch.state.ageing import IdleTimeout
from innet.switch.switch import Switch, is_compiled, unsupported
from innet.switch.traffic_manager import QueueState

__all__ = [
    "ControlPlane",
    "IdleTimeout",
    "QueueState",
    "Statistics",
    "Switch",
    "SwitchState",
    "is_compiled",
    "load_program",
    "load_text",
    "read_document",
    "unsupported",
]
