"""The script of docs/own-training.md, alone and with emulated workers."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from support import fork_server

from innet.records import TrainingRecord

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN, EMULATED = (
    (EXAMPLES / f"{name}_training.py").read_text(encoding="utf-8") for name in ("own", "emulated")
)
OF_THE_CODEC = ("import numpy", "innet.codecs", "class AboveMean", "SELECTORS.register")


def statements(text, without=()):
    """How many there are, docstrings aside."""
    top = [
        each
        for each in ast.parse(text).body
        if not any(words in ast.unparse(each) for words in without)
    ]
    return sum(
        isinstance(node, ast.stmt) and not isinstance(getattr(node, "value", None), ast.Constant)
        for each in top
        for node in ast.walk(each)
    )


def test_a_script_of_sixty_lines_becomes_an_emulation_by_five_more():
    assert len(OWN.splitlines()) == 60
    assert statements(EMULATED, without=OF_THE_CODEC) == statements(OWN) + 5


@pytest.mark.repeats("the page's example in test_docs.py, and test_emulation.py")
@pytest.mark.xdist_group("forked")
def test_the_emulation_runs(tmp_path):
    """With 16 workers and all four codecs, but few iterations and one seed."""
    small = EMULATED.replace("EPOCHS, BATCH = 6, 128", "EPOCHS, BATCH = 1, 480")
    small = small.replace("seeds=3", "seeds=1")
    assert small.count("BATCH = 1, 480") == small.count("seeds=1") == 1
    alone = "import torch\ntorch.set_num_threads(1)\n"  # threads wait long for each other in CI
    done = fork_server.run([sys.executable, "-c", alone + small], tmp_path)
    assert done.returncode == 0, done.stderr
    record = TrainingRecord.load(tmp_path / "innet-out/emulation.json")
    assert [run.settings["method"] for run in record.runs] == [
        "plain float32",
        "dense",
        "topk",
        "qsgd",
        "topk:selector=above-mean",
    ]
    for run in record.runs:
        assert (len(run.steps), run.settings["seed"]) == (3, 0)
        assert run.simulated["25g"].compute > 3 * 500e-6  # as some of 16 workers are slower
        assert run.title in done.stdout
    assert "Accuracy over simulated time" in done.stdout
