"""The built-in switch logs about packets what simple_switch logged, line by line.

The recordings are made by record_logs.py.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support import switch_logs

from innet.switch.frontend.loader import fingerprint

GOLDEN = json.loads(gzip.decompress((Path(__file__).parent / "logs.json.gz").read_bytes()))


def test_there_are_recordings():
    assert {each["program"] for each in GOLDEN["logs"]} == set(switch_logs.PROGRAMS)


@pytest.mark.parametrize("recording", GOLDEN["logs"], ids=lambda each: each["program"])
def test_the_lines_are_simple_switchs(recording):
    document = switch_logs.document_of(recording["program"])
    assert fingerprint(document) == recording["fingerprint"], "run record_logs.py"
    rounds = [
        (commands, [(port, bytes.fromhex(data)) for port, data in packets])
        for commands, packets in recording["rounds"]
    ]
    found, _ = switch_logs.by_packet(switch_logs.of_built_in(document, rounds))
    assert found == recording["lines"]


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param(
            each,
            id=each["program"],
            marks=()
            if each["program"] in switch_logs.COMPILED
            else pytest.mark.repeats("the same with the other programs"),
        )
        for each in GOLDEN["logs"]
    ],
)
def test_so_are_those_of_machine_code(recording):
    document = switch_logs.document_of(recording["program"])
    rounds = [
        (commands, [(port, bytes.fromhex(data)) for port, data in packets])
        for commands, packets in recording["rounds"]
    ]
    found, _ = switch_logs.by_packet(switch_logs.of_built_in(document, rounds, "jit"))
    assert found == recording["lines"]
