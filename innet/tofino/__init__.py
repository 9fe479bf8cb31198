"""Would a compiled program fit one pipe of a Tofino 1? An estimate, with its reasons.

``estimate`` reads p4c's JSON for BMv2. Amounts come from papers and public talks. The
vendor's compiler has rules that are not public: it may refuse what passes here, or fit what fails
here.
"""

from __future__ import annotations

from innet.tofino.estimate import estimate
from innet.tofino.report import PIPE, Estimate, Finding, Pipe, Severity, Usage

__all__ = ["PIPE", "Estimate", "Finding", "Pipe", "Severity", "Usage", "estimate"]
