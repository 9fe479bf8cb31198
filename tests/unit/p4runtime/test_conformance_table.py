"""The conformance table of docs/p4rt-checks.md: each row names tests, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NO_TEST = {"varbit, headers, unions, stacks, error, translated types in registers and digests"}


COMPARED = 214  # cases of others' suites


def rows(section="## Conformance"):
    page = (ROOT / "docs" / "p4rt-checks.md").read_text(encoding="utf-8")
    table = page.partition(section)[2].partition("\n\n| ")[2].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def defined():
    """The names of tests and their classes."""
    folder = Path(__file__).parent
    source = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    return set(re.findall(r"^\s*(?:def|class) (test_\w+|Test\w+)", source, re.MULTILINE))


def require(tests, names, what):
    """Each name in a cell is a file of tests, a test, or a class of tests."""
    for name in re.findall(r"`([^`]+)`", tests):
        path = ROOT / name if "/" in name else Path(__file__).parent / name
        assert path.is_file() if name.endswith(".py") else name in names, (what, name)


def test_each_row_names_tests_that_exist():
    found, names = rows(), defined()
    assert len(found) > 35
    for _, requirement, _, tests in found:
        assert "`" in tests or requirement in NO_TEST, requirement
        require(tests, names, requirement)


def test_the_cases_of_others_add_up_and_have_tests():
    *found, total = rows("## Test cases of BMv2, PI and finsy")
    names = defined()
    assert len(found) > 12
    sums = [0] * 5
    for subject, *counts, tests in found:
        numbers = [int(each or 0) for each in counts]
        assert numbers[0] == sum(numbers[1:]), subject
        assert "`" in tests or not numbers[1] + numbers[2], subject
        require(tests, names, subject)
        sums = [had + each for had, each in zip(sums, numbers, strict=True)]
    assert [int(each) for each in total[1:6]] == sums
    assert sums[0] == COMPARED
