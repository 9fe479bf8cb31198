"""The lab's levels as tests: python -m pytest test_lab.py"""

from pathlib import Path

import pytest

from innet.lab import check

HERE = Path(__file__).parent


@pytest.mark.parametrize("part", ["switch", "workers"])
@pytest.mark.parametrize("level", [1, 2, 3])
def test_level(level: int, part: str) -> None:
    (checked,) = check(HERE, levels=[level]).levels
    finding = getattr(checked, part)
    assert finding is None, f"\n{finding}"
