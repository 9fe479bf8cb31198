"""Holds the checks of a script that ``support.ranks`` runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path


def names_of_checks(script: Path) -> list[str]:
    """Importing them would import all of torch."""
    return re.findall(r"^@check\ndef (\w+)\(", script.read_text(), re.MULTILINE)


def run(command, timeout, **environment):
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "PYTHONWARNINGS": "ignore", "INNET_JOBS": "8", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def hold_checks(script, folder, ranks, names, timeout, **environment):
    """Fails with what each rank said and did, if any check failed or came to no end."""
    until = time.monotonic() + timeout - 20  # to end the ranks, who would outlive who is killed
    done = run([sys.executable, script, folder, until, ranks, *names], timeout, **environment)
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    said = [
        f"rank {rank}, {name}: {outcome}"
        for rank, each in found.items()
        for name, outcome in each.items()
        if outcome != "passed"
    ]
    said.append(done.stdout)  # who was the first to fail, or who came to no end
    for path in sorted(folder.glob("*.txt")):
        if not (stacks := path.read_text()):
            continue
        passed = sum(outcome == "passed" for outcome in found.get(path.stem, {}).values())
        name = names[min(passed, len(names) - 1)]
        said.append(f"rank {path.stem} was here, in {name}:\n{stacks}")
    assert done.returncode == 0, "\n".join([*said, done.stderr])
    assert found == {str(rank): dict.fromkeys(names, "passed") for rank in range(ranks)}
