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


def repeats(ranks):
    return pytest.mark.repeats(f"the same with {ranks} ranks")


@pytest.mark.parametrize(
    ("script", "ranks"),
    [
        ("group_checks", 3),
        pytest.param("group_checks", 2, marks=repeats(3)),
        ("memory_checks", 2),
        pytest.param("memory_checks", 3, marks=repeats(2)),
    ],
)
def test_checks(script, ranks, tmp_path):
    path = SUPPORT / f"{script}.py"
    hold_checks(path, tmp_path, ranks, names_of_checks(path), timeout=280)
