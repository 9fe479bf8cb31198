"""Virtual environments of P4Runtime clients, which cannot be installed beside each other.

Each is made once, with pinned versions, and kept in ~/.cache/innet/test-venvs (or in the folder
that INNET_TEST_VENVS names). Where the package index cannot be reached, the test is skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SECONDS = 600
# PTF, and p4runtime-shell with what its old gRPC code needs.
SHELL_AND_PTF = (
    "ptf==0.12.0",
    "scapy==2.5.0",
    "p4runtime-shell==0.0.6",
    "protobuf==3.20.3",
    "grpcio==1.85.3",
    "setuptools==75.1.0",
)


def python_with(name, *requirements):
    """The Python of an environment that has these requirements."""
    root = Path(os.environ.get("INNET_TEST_VENVS", Path.home() / ".cache/innet/test-venvs"))
    root.mkdir(parents=True, exist_ok=True)
    key = "\n".join([sys.version, sys.prefix, *requirements])
    folder = root / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    python, done = folder / "bin" / "python", folder / "complete"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process makes it, others wait
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            # Without a pip of its own, and without compiling what is never imported.
            make = [sys.executable, "-m", "venv", "--without-pip", folder]
            subprocess.run(make, check=True, timeout=_SECONDS)
            words = [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
            words += ["--no-compile", "--disable-pip-version-check"]
            made = subprocess.run(
                [*words, *requirements],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            if made.returncode:
                last = (made.stderr.strip().splitlines() or ["no message"])[-1]
                pytest.skip(f"{name} cannot be installed from the package index: {last}")
            done.touch()
    return python


def run(python, script, *arguments):
    """What a script prints that such an environment runs; an error if it fails."""
    done = subprocess.run(
        [python, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
