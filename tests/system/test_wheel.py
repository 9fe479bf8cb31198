"""The wheel, built from the source distribution, runs the demonstration in an environment with
nothing but what it declares.
"""

from __future__ import annotations

import email
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


def link_requirements(folder):
    """Link into the environment's ``folder`` what an installer would put there beside innet: the
    distributions that it requires, those that they require, and no other. They are this
    environment's.
    """
    (innet,) = importlib.metadata.distributions(name="innet", path=[str(folder)])
    waiting = [Requirement(each) for each in innet.requires]
    linked = set()
    while waiting:
        wanted = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        assert not wanted.extras  # of whose requirements this knows nothing
        found = importlib.metadata.distribution(wanted.name)
        assert found.version in wanted.specifier
        if found.name in linked:
            continue
        linked.add(found.name)
        for top in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            (folder / top).symlink_to(found.locate_file(top))
        waiting += map(Requirement, found.requires or ())


def copy_compiled(folder):
    """Numba's code of the same functions, as far as tests before this one have compiled them."""
    for kind in ("nbi", "nbc"):  # an index first: what it names is there already
        for path in (ROOT / "innet").rglob(f"__pycache__/*.{kind}"):
            there = folder / path.relative_to(ROOT)
            there.parent.mkdir(exist_ok=True)
            shutil.copy(path, there)


@pytest.mark.parametrize(
    "source",
    ["linked", pytest.param("index", marks=pytest.mark.repeats("the same without an index"))],
)
def test_demo_from_the_wheel(tmp_path, source):
    """What the wheel requires is linked from this environment, or installed by pip."""
    # Without --wheel the wheel is built from the source distribution, which is built first.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path]
    run(*build, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("innet-*.whl")
    (archive_path,) = tmp_path.glob("innet-*.tar.gz")
    with tarfile.open(archive_path) as archive:  # one can test from it, and build the documentation
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CITATION.cff", "Makefile", "mkdocs.yml"} <= held
    assert {"docs/index.md", "docs/tools/hooks.py", "p4/slots.p4", "tests/conftest.py"} <= held
    with zipfile.ZipFile(wheel) as archive:  # their type hints are for users' checkers
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        extras = email.message_from_bytes(archive.read(metadata)).get_all("Provides-Extra")
    assert {"innet/py.typed", "innet/p4runtime/protocol.binpb"} <= names
    assert "innet/docs/slots.md" in names
    assert "torch" in extras
    assert not {"dev", "docs"} & {*extras}, "what developers need is no extra of users"
    assert {name.split("/")[0].split("-")[0] for name in names} == {"innet"}
    venv.create(tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    # This environment's pip: that of the other one would take as long to install as NumPy. What is
    # never imported need not be compiled.
    pip = [sys.executable, "-m", "pip", "--python", python]
    pip += ["install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    if source == "index":
        run(*pip, "-c", ROOT / "constraints.txt", wheel, folder=tmp_path)
    else:
        run(*pip, "--no-deps", "--no-index", wheel, folder=tmp_path)
        (packages,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
        link_requirements(packages)
        copy_compiled(packages)
    # Elsewhere than in the checkout, so that nothing is found there.
    innet = tmp_path / "empty" / "bin" / "innet"
    assert "slots-64" in run(innet, "p4", "list", folder=tmp_path)
    assert "SwitchML" in run(innet, "help", "slots", folder=tmp_path)
    run(innet, "demo", "--iterations", "5", folder=tmp_path)
    record = json.loads((tmp_path / "innet-out" / "demo.json").read_text())
    assert len(record["runs"]) == 3
    for run_ in record["runs"][1:]:
        assert all(step["exact"] for step in run_["steps"])
    assert (tmp_path / "innet-out" / "demo.pcap").stat().st_size > 1000
