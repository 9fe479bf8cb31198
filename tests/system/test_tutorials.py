"""Tutorials run as they stand, and say what their pages on the site say."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest
from support import fork_server
from support.tiers import tiered

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
NAMES = sorted(each.stem for each in TUTORIALS.glob("*.py"))
_SPEC = importlib.util.spec_from_file_location("notebooks", ROOT / "docs/tools/notebooks.py")
notebooks = importlib.util.module_from_spec(_SPEC)
sys.modules["notebooks"] = notebooks
_SPEC.loader.exec_module(notebooks)


def blocks(text):
    """The code and the outputs of a page, in order: (language, text)."""
    return re.findall(r"^```(py|sh|text)\n(.*?)\n```$", text, re.DOTALL | re.MULTILINE)


def constant(text):
    """Without what differs from machine to machine: numbers, units of time, and white space."""
    words = re.sub(r"\d[\d.,e+-]*", " ", text)
    return " ".join(re.sub(r"(?<!\w)(ns|µs|us|ms|s|min)(?!\w)", " ", words).split())


@pytest.mark.xdist_group("forked")  # by the server of the docs' programs
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    tiered(
        NAMES,
        ["own-codec"],
        "what the tutorial shows, in the tests of that",
    ),
)
def test_tutorial(name, tmp_path):
    """In a process of its own, as a reader's is; the tests' warnings are errors elsewhere.

    The process is forked: imports take longer than most of what tutorials do.
    """
    if name == "train-ddp":
        pytest.importorskip("torch")
    arguments = [str(ROOT / "docs/tools/notebooks.py"), "--into", str(tmp_path), name]
    script = (
        f"import runpy, sys; sys.argv = {arguments}; runpy.run_path(sys.argv[0], None, '__main__')"
    )
    done = fork_server.run([sys.executable, "-c", script], tmp_path, timeout=580)
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.md")
    now, page = made.read_text(), (TUTORIALS / f"{name}.md").read_text()
    skipped = os.geteuid() != 0  # a cell that needs root has its output from an earlier run
    assert len(blocks(now)) == len(blocks(page)) or skipped
    for (kind, text), (kind_of_page, text_of_page) in zip(blocks(now), blocks(page), strict=False):
        if skipped and kind != kind_of_page:
            break
        assert kind == kind_of_page
        if kind == "text":
            assert constant(text) == constant(text_of_page)
        else:
            assert text == text_of_page
    figures = {each.name for each in (tmp_path / "images").glob("*.svg")}
    assert figures == {each.name for each in (TUTORIALS / "images").glob(f"{name}-[0-9].svg")}


def test_pages_are_made_from_their_notebooks():
    """Text, which running does not compare."""
    for name in NAMES:
        page = (TUTORIALS / f"{name}.md").read_text()
        for cell in notebooks.parse((TUTORIALS / f"{name}.py").read_text()):
            _, _, text = (
                cell.source.rpartition("\n\n") if cell.kind == "markdown" else ("", "", cell.source)
            )
            assert text in page, f"{name}: run python docs/tools/notebooks.py {name}"


def test_a_notebook_for_jupyter():
    text = '# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n\n# %% language="bash"\n# ls\n'
    document = json.loads(notebooks.to_ipynb(text))
    assert [each["cell_type"] for each in document["cells"]] == ["markdown", "code", "code"]
    sources = ["".join(each["source"]) for each in document["cells"]]
    assert sources == ["# Title\n\nText.", "x = 1", "%%bash\nls"]


def test_a_cell_that_fails_is_noticed(tmp_path):
    with contextlib.chdir(tmp_path):
        with pytest.raises(AssertionError, match="exit 3"):
            notebooks.run([notebooks.Cell("bash", "exit 3")])
        with pytest.raises(ZeroDivisionError):
            notebooks.run([notebooks.Cell("python", "1 / 0")])
