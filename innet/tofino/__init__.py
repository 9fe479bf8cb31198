"""Does a program fit one pipe of a Tofino 1? An estimate, and the compiler's verdict.

``estimate`` reads p4c's JSON for BMv2. Amounts come from papers and public talks. The vendor's
compiler has rules that are not public: it may refuse what passes here, or fit what fails here.
``compile_for_tofino`` runs that compiler, which is part of p4c, where it is installed.
"""

from __future__ import annotations

from innet.tofino.compiler import (
    CompilerMessage,
    CompilerVerdict,
    architecture,
    compile_for_tofino,
    find_compiler,
    read_reports,
)
from innet.tofino.estimate import estimate
from innet.tofino.report import PIPE, Estimate, FitFinding, Pipe, Severity, Usage

__all__ = [
    "PIPE",
    "CompilerMessage",
    "CompilerVerdict",
    "Estimate",
    "FitFinding",
    "Pipe",
    "Severity",
    "Usage",
    "architecture",
    "compile_for_tofino",
    "estimate",
    "find_compiler",
    "read_reports",
]
