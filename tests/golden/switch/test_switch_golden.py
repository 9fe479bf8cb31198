"""The feature programs behave as on simple_switch: every packet on every port, every register.

The traces are made by record.py.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest
from support.switch_cases import CASES, program

from innet.switch import Switch, load_program
from innet.switch.frontend.loader import fingerprint


def load(name: str) -> dict:
    path = Path(__file__).parent / f"{name}.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize("name", CASES)
def test_equals_simple_switch(name, engine):
    case, golden = CASES[name], load(name)
    document = program(name)
    assert fingerprint(document) == golden["fingerprint"], "the program changed: run record.py"
    switch = Switch.load(load_program(document), engine=engine)
    for command in case.commands:
        switch.command(command)
    packets = [(port, bytes.fromhex(data)) for port, data in golden["packets"]]
    assert packets == case.packets(), "the packets changed: run record.py"

    answers = defaultdict(list)
    for port, data in switch.process(packets):
        answers[str(port)].append(data.hex())

    order = list if case.ordered else sorted
    assert set(answers) == set(golden["answers"])
    for port, sent in golden["answers"].items():
        assert order(answers[port]) == order(sent), f"port {port}"
    for register, cells in golden["registers"].items():
        found = [switch.control.register_read(register, i) for i in range(len(cells))]
        assert found == cells, register
        assert len(switch.registers[register]) == len(cells), register


def test_the_traces_have_what_they_are_for():
    """Every port is answered to, and nothing is merely dropped."""
    for name in CASES:
        golden = load(name)
        assert sum(map(len, golden["answers"].values())) > len(golden["packets"]) / 3, name
