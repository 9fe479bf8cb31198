"""`make` says what is wrong with an environment that cannot be used."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_python_of_the_environment_is_gone(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for file in (tmp_path / "pyproject.toml", tmp_path / "constraints.txt", programs / "pip"):
        file.touch()
    (tmp_path / ".venv" / ".ready").touch()
    (programs / "python").symlink_to(tmp_path / "gone")

    def make() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "setup"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    done = make()
    assert done.returncode != 0
    assert ".venv was made with a Python that is no longer there. Run make clean" in done.stdout
    (programs / "python").unlink()
    (programs / "python").symlink_to(sys.executable)
    assert make().returncode == 0
