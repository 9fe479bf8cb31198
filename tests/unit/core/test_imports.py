"""What is imported before it is needed, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import innet", ("numba", "torch", "scapy", "typer")),
        # Compiled code, which takes seconds to load.
        ("import innet; innet.all_reduce", ("torch", "innet.sim.state", "innet.protocol.compiled")),
    ],
)
def test_what_takes_long_waits_until_it_is_needed(statement: str, absent: tuple[str, ...]) -> None:
    code = f"import sys; {statement}; print([each for each in {absent!r} if each in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout == "[]\n"
