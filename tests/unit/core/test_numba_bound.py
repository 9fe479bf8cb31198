"""innet replaces private classes of Numba, so each new Numba is read before it is allowed."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]


def test_numba_is_one_that_was_read():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (numba,) = (each for each in map(Requirement, project["dependencies"]) if each.name == "numba")
    installed = importlib.metadata.version("numba")
    assert installed in numba.specifier, (
        f"Numba {installed} is not in {numba.specifier}. Read what changed in numba.core's "
        "caching, codegen, compiler and typed_passes, from which innet/core/numba_cache.py and "
        "innet/switch/jit/codegen.py derive classes. Run tests/unit/core/test_numba_cache.py, "
        "tests/unit/switch_jit and tests/unit/kernels. Then raise the bound in pyproject.toml, and "
        "the version in constraints.txt."
    )
