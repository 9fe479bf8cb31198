"""What the training scripts of others do, in two processes: with the hooks, and with the group."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from support.rank_checks import hold_checks, run

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

SUPPORT = Path(__file__).parents[1] / "support"
SCRIPT = SUPPORT / "script_checks.py"
SITUATIONS = re.findall(r"^@situation\(.*\ndef (\w+)\(", SCRIPT.read_text(), re.MULTILINE)

pytestmark = [
    pytest.mark.xdist_group("ddp"),  # one at a time: each has many processes
    pytest.mark.repeats("the checks of DistributedDataParallel, in scripts as people write them"),
]


@pytest.mark.timeout(620)
def test_scripts_train_as_with_gloo(tmp_path):
    """All in one run, since it takes longer to start the processes than to train."""
    assert len(SITUATIONS) > 20
    hold_checks(SCRIPT, tmp_path, 2, SITUATIONS, timeout=600)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("way", "dying"), [("switch", 0), ("hook", 1), ("group", 0)])
def test_a_training_goes_on_after_torchrun_has_started_the_ranks_anew(tmp_path, way, dying):
    """Rank 0 takes the switch that it has started with it. PyTorch 2.13 gives new ranks the store
    of the old ones, in which gloo finds old addresses, unless it is told otherwise.
    """
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    script = [SUPPORT / "elastic_script.py", tmp_path, way, dying]
    command = [sys.executable, "-m", "torch.distributed.run", *options, *script]
    done = run(command, 180, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["attempt"] == 1
    assert found["found"] == found["expected"]
