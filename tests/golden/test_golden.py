"""The built-in switch answers what simple_switch answered: every packet, every register.

The recordings are made by record.py, which says with which versions.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from support.tiers import tiered

from innet import programs
from innet.switch import Switch

RECORDINGS = sorted(Path(__file__).parent.glob("*.json.gz"))
NAMES = [path.name.partition(".")[0] for path in RECORDINGS]


def load(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()))


def test_there_are_recordings():
    assert len(RECORDINGS) >= 5


@pytest.mark.repeats(
    "the same interpreted, and with more values",
    but=["*-32-*-jit", "slots-32-*-interpret", "harvest-64-*-jit"],
)
@pytest.mark.parametrize(
    ("name", "engine"),
    tiered(
        [(name, engine) for name in NAMES for engine in ("interpret", "jit")],
        [
            *((name, "jit") for name in NAMES if "-1024-" not in name),
            *((name, "interpret") for name in NAMES if "-32-" in name),
        ],
        "the same interpreted with 32 values, and compiled",
    ),
)
def test_equals_simple_switch(name, engine):
    path = Path(__file__).parent / f"{name}.json.gz"
    golden = load(path)
    program = programs.catalogue()[golden["program"]]
    assert program.sha256 == golden["sha256"], "the program has changed: run tests/golden/record.py"
    switch = Switch.load(program.json(), engine=engine)
    for command in golden["commands"]:
        switch.command(command)
    packets = [(port, bytes.fromhex(data)) for port, data in golden["packets"]]

    answers = defaultdict(list)
    for port, data in switch.process(packets):
        answers[str(port)].append(data.hex())

    expected = {port: sent for port, sent in golden["answers"].items() if sent}
    if not golden.get("in_order", True):
        answers, expected = (
            {port: sorted(sent) for port, sent in each.items()} for each in (answers, expected)
        )
    assert dict(answers) == expected
    for name, cells in golden["registers"].items():
        values = switch.registers[name]
        found = {str(i): int(values[i]) for i in np.flatnonzero(values)}
        assert found == cells, name
