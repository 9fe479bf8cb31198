"""Does a program fit one pipe of a Tofino 1? An estimate, and the compiler's verdict.

``estimate`` reads p4c's JSON for BMv2. Amounts come from papers and public talks. The vendor's
compiler has rules that are not public: it may refuse what passes here, or fit what fails here.
``compile_for_tofino`` runs that compiler, which is part of p4c, where it is installed.
"""

from __future__ import annotations

from innet.tofino.compiler import (
    Refusal,
    Verdict,
    architecture,
    compile_for_tofino,
    find_compiler,
    read_reports,
)
from innet.tofino.estimate import estimate
from innet.tofino.report import PIPE, Estimate, Finding, Pipe, Severity, Usage

__all__ = [
    "PIPE",
    "Estimate",
    "Finding",
    "Pipe",
    "Refusal",
    "Severity",
    "Usage",
    "Verdict",
    "architecture",
    "compile_for_tofino",
    "estimate",
    "find_compiler",
    "read_reports",
]
