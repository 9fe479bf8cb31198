"""The built wheel, alone in an empty environment, runs the demonstration."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command, folder, seconds=280):
    result = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_demo_from_the_wheel(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    run(*build, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("innet-*.whl")
    with zipfile.ZipFile(wheel) as archive:  # their type hints are for users' checkers
        names = set(archive.namelist())
    assert "innet/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"innet"}
    venv.create(tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    # This environment's pip: that of the other one would take as long to install as NumPy. What is
    # never imported need not be compiled.
    pip = [sys.executable, "-m", "pip", "--python", python]
    pip += ["install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    constraints = ROOT / "constraints.txt"
    try:
        run(*pip, "-c", constraints, wheel, folder=tmp_path)
    except AssertionError as error:
        if "NewConnectionError" in str(error) or "Name or service" in str(error):
            pytest.skip("no package index can be reached")
        raise
    # Elsewhere than in the checkout, so that nothing is found there.
    innet = tmp_path / "empty" / "bin" / "innet"
    assert "slots-64" in run(innet, "p4", "list", folder=tmp_path)
    run(innet, "demo", "--iterations", "5", folder=tmp_path)
    record = json.loads((tmp_path / "innet-out" / "demo.json").read_text())
    assert len(record["runs"]) == 3
    for run_ in record["runs"][1:]:
        assert all(step["exact"] for step in run_["steps"])
    assert (tmp_path / "innet-out" / "demo.pcap").stat().st_size > 1000
