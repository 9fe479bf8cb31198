"""The process group ``innet`` and the memory of codecs, in two and three processes.

Every collective over tensors of every form, callbacks, hooks around innet's, and that nothing of a
gradient is lost.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from support.rank_checks import hold_checks, names_of_checks

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

SUPPORT = Path(__file__).parents[1] / "support"

pytestmark = pytest.mark.xdist_group("ddp")  # one at a time: each has many processes
with_three = pytest.mark.repeats("the same with three ranks")


@pytest.mark.parametrize("ranks", [3, pytest.param(2, marks=with_three)])
@pytest.mark.parametrize("script", ["group_checks", "memory_checks"])
def test_checks(script, ranks, tmp_path):
    path = SUPPORT / f"{script}.py"
    hold_checks(path, tmp_path, ranks, names_of_checks(path), timeout=280)
