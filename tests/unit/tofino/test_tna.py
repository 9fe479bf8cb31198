"""The programs for a Tofino 1: packets are those of the others, and p4c's compiler takes them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from innet import tofino

P4 = Path(__file__).parents[3] / "p4"
COMPILER = "p4c-barefoot"


def fields(path):
    """Names and bits of the innet header in a P4 source."""
    header = re.search(r"header innet_t \{(.*?)\n\}", path.read_text(), re.DOTALL)
    return [(name, int(bits)) for bits, name in re.findall(r"bit<(\d+)> +(\w+);", header[1])]


def test_packets_are_those_of_the_other_programs():
    usual, here = (
        fields(P4 / "include" / "headers.p4"),
        fields(P4 / "tna" / "include" / "header.p4"),
    )
    job = [name for name, _ in usual].index("job")
    assert usual[job : job + 2] == [("job", 16), ("epoch", 16)]
    assert here == [*usual[:job], ("owner", 32), *usual[job + 2 :]]


def test_reasons_for_drops_are_those_of_the_other_programs():
    def reasons(path):
        return dict(re.findall(r"const bit<8> (DROP_\w+) += (\d+);", path.read_text()))

    usual, here = reasons(P4 / "tree.p4"), reasons(P4 / "tna" / "tree.p4")
    assert here
    assert here.items() <= usual.items()


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
@pytest.mark.parametrize(
    ("program", "defines", "stages", "alus"),
    [
        ("slots", {"PER_PASS": 8}, 6, 16),
        ("slots", {"PER_PASS": 32}, 12, 40),
        ("tree", {"PER_PASS": 8}, 9, 17),
        ("tree", {"PER_PASS": 16}, 10, 25),
        ("harvest", {}, 12, 40),
        ("harvest256", {}, 12, 40),
        ("fpisa", {"PER_PASS": 1}, 12, 10),
    ],
    ids=["slots-8", "slots-32", "tree-8", "tree-16", "harvest-64", "harvest-256", "fpisa-1"],
)
def test_the_compiler_takes_them(program, defines, stages, alus):
    verdict = tofino.compile_for_tofino(P4 / "tna" / f"{program}.p4", defines)
    assert verdict.refusals == ()
    used = {each.resource: each.used for each in verdict.usages}
    assert (used["stages"], used["stateful ALUs"]) == (stages, alus)


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
def test_shifts_of_two_floats_are_too_many_instructions():
    verdict = tofino.compile_for_tofino(P4 / "tna" / "fpisa.p4", {"PER_PASS": 2})
    (refusal,) = verdict.refusals
    assert "could not fit within the instruction memory" in str(refusal)
