"""Trainers of others with innet's hook, in two processes, through a switch process."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "support" / "trainer_checks.py"
CHECKS = re.findall(r"^@check\ndef (\w+)\(", SCRIPT.read_text(), re.MULTILINE)
GUIDE = (ROOT / "docs" / "trainers.md").read_text()
COMMANDS = re.findall(r"^\$ torchrun --standalone --nproc-per-node 4 (\S+)$", GUIDE, re.MULTILINE)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

pytestmark = pytest.mark.xdist_group("ddp")  # one at a time: each has many processes


def torchrun(*arguments):
    safe = "1"  # without the script's folder on the path: Transformers looks for a package kernels
    return subprocess.run(
        [*TORCHRUN, "--standalone", "--nproc-per-node", "2", *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONWARNINGS": "ignore",
            "PYTHONSAFEPATH": safe,
            "INNET_JOBS": "8",
        },
        capture_output=True,
        text=True,
        timeout=600,  # of a busy machine on which nothing is compiled yet
        check=False,
    )


def installed(name):
    return importlib.util.find_spec(name.partition("_")[0]) is not None


@pytest.mark.timeout(620)
def test_trainers_train_as_a_loop_does(tmp_path):
    """Losses, resumed checkpoints and errors, of those that are installed.

    All in one run: it takes longer to start two processes than to make the checks.
    """
    names = [name for name in CHECKS if installed(name)]
    if not names:
        pytest.skip("neither accelerate, transformers nor lightning is installed")
    done = torchrun(SCRIPT, tmp_path, *names)
    found = {path.stem: json.loads(path.read_text()) for path in sorted(tmp_path.glob("?.json"))}
    said = "\n".join(outcome for each in found.values() for outcome in each.values())
    assert done.returncode == 0, f"{said}\n{done.stderr}"
    assert found == {str(rank): dict.fromkeys(names, "passed") for rank in range(2)}


def test_there_is_an_example_of_each():
    assert [Path(each).stem for each in COMMANDS] == [
        "accelerate_ddp", "transformers_ddp", "lightning_ddp"
    ]  # fmt: skip
    for each in COMMANDS:
        assert len((ROOT / each).read_text().splitlines()) <= 60


@pytest.mark.skipif(
    not os.environ.get("INNET_LONG"), reason="takes minutes; set INNET_LONG=1 to run it"
)
@pytest.mark.timeout(620)
@pytest.mark.parametrize("example", COMMANDS)
def test_command(example):
    if not installed(Path(example).stem):
        pytest.skip(f"{Path(example).stem.partition('_')[0]} is not installed")
    done = torchrun(ROOT / example)
    assert done.returncode == 0, done.stderr
    (said,) = re.findall(r"(\d\d\.\d)% (?:were right|of the training images are right)$",
                         done.stdout.strip().splitlines()[-1])  # fmt: skip
    assert float(said) > 50  # of ten classes; the checks say more
