"""The conformance table of docs/p4runtime.md: each row names tests, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NO_TEST = {"varbit, headers, unions, stacks, error, translated types in registers and digests"}


def rows():
    page = (ROOT / "docs" / "p4runtime.md").read_text(encoding="utf-8")
    table = page.partition("## Conformance")[2].partition("\n\n- ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_each_row_names_tests_that_exist():
    folder = Path(__file__).parent
    source = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    defined = set(re.findall(r"^\s*(?:def|class) (test_\w+|Test\w+)", source, re.MULTILINE))
    found = rows()
    assert len(found) > 35
    for _, requirement, _, tests in found:
        names = re.findall(r"`([^`]+)`", tests)
        assert names or requirement in NO_TEST, requirement
        for name in names:
            path = ROOT / name if "/" in name else folder / name
            assert path.is_file() if name.endswith(".py") else name in defined, (requirement, name)
