"""The process group ``innet`` and the memory of codecs, in two processes.

Every collective over tensors of every form, callbacks, hooks around innet's, and that nothing of a
gradient is lost.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from support.rank_checks import hold_checks, names_of_checks
from support.tiers import tiered

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

SUPPORT = Path(__file__).parents[1] / "support"

pytestmark = pytest.mark.xdist_group("ddp")  # one at a time: each has many processes


@pytest.mark.timeout(620)
@pytest.mark.parametrize("ranks", tiered([2, 3], [2], "the same with two ranks"))
def test_checks(ranks, tmp_path):
    names = [
        name
        for script in ("group_checks", "memory_checks", "hook_checks")
        for name in names_of_checks(SUPPORT / f"{script}.py")
        if name != "all_hooks"
    ]
    script = SUPPORT / "group_and_memory_checks.py"
    names += ["some_cases", "some_cases_with_owners", "hooks_of_shards_by_a_switch"]
    hold_checks(script, tmp_path, ranks, names, timeout=600)


@pytest.mark.repeats("some cases of the battery, by the same switch")
@pytest.mark.parametrize("ranks", [2, 3])
def test_checks_with_owners(ranks, tmp_path):
    """Those of the group, where the switch does reduce-scatters, gathers, broadcasts and so on."""
    script = SUPPORT / "group_checks.py"
    names = names_of_checks(script)
    hold_checks(script, tmp_path, ranks, names, timeout=280, INNET_PROGRAM="collectives")


@pytest.mark.repeats("some of its cases")
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_battery(ranks, tmp_path):
    """Every collective of PyTorch with every setting, beside gloo."""
    names = ["all_cases", "all_cases_with_owners"] if ranks > 1 else ["all_cases"]
    hold_checks(SUPPORT / "battery_checks.py", tmp_path, ranks, names, timeout=280)


@pytest.mark.repeats("the hooks of fully_shard with two ranks, and codecs in memory")
@pytest.mark.parametrize("ranks", [2, 4])
def test_shards(ranks, tmp_path):
    """Sharded models by a switch that does reduce-scatters and all-gathers, beside gloo."""
    script = SUPPORT / "shard_checks.py"
    hold_checks(script, tmp_path, ranks, names_of_checks(script), timeout=280)


@pytest.mark.timeout(320)
@pytest.mark.repeats("some of its cases")
def test_hooks(tmp_path):
    """Every option of DistributedDataParallel with every kind of parameter, beside gloo."""
    hold_checks(SUPPORT / "hook_checks.py", tmp_path, 2, ["all_hooks"], timeout=300)
