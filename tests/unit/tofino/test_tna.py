"""The programs for a Tofino 1: packets are those of the others, and p4c's compiler takes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
@pytest.mark.parametrize(("program", "most"), [("slots", 6), ("tree", 10)])
def test_the_compiler_takes_them(program, most, tmp_path):
    subprocess.run(
        [
            COMPILER, "--target", "tofino", "--arch", "tna", "-g", "-DPER_PASS=8",
            "-o", str(tmp_path), str(P4 / "tna" / f"{program}.p4"),
        ],
        check=True,
        timeout=900,
        capture_output=True,
    )  # fmt: skip
    report = json.loads((tmp_path / "pipe" / "logs" / "resources.json").read_text())
    stages = report["resources"]["mau"]["mau_stages"]
    used = [bool(stage["rams"]["srams"]) for stage in stages]
    assert 0 < len(stages) - used[::-1].index(True) <= most
