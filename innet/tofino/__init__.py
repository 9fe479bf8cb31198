"""Would a compiled program fit one pipe of a Tofino 1? An estimate, with its reasons.

``estimate`` reads p4c's JSON for BMv2. Amounts are those that papers and public talks give; the
vendor's compiler has rules that are not public, so that it may refuse what passes here, and find
ways that are not looked for here.
"""

from __future__ import annotations

from innet.tofino.estimate import estimate
from innet.tofino.report import PIPE, Estimate, Finding, Pipe, Severity, Usage

__all__ = ["PIPE", "Estimate", "Finding", "Pipe", "Severity", "Usage", "estimate"]
