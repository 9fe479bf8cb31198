"""A network of P4 switches and hosts of one's own, in simulated time; see ``bed``."""

from __future__ import annotations

from innet.testbed.bed import Testbed
from innet.testbed.compiled import DONE, NEVER

__all__ = ["DONE", "NEVER", "Testbed"]
