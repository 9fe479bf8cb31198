"""Packets through slow queues leave as simple_switch let them leave: order, depths, drops, times.

The recordings are made by record_queues.py.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.queue_scenarios import (
    MARGIN,
    MILLISECOND,
    PROGRAMS,
    SCENARIOS,
    Scenario,
    ambiguities,
    check,
)

from innet.switch.frontend.loader import fingerprint

GOLDEN = json.loads(gzip.decompress((Path(__file__).parent / "queues.json.gz").read_bytes()))


def recorded(name):
    case = GOLDEN["scenarios"][name]
    answers = {
        int(port): [(time, bytes.fromhex(data)) for time, data in sent]
        for port, sent in case["answers"].items()
    }
    return Scenario.from_json(case["scenario"]), answers


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize("name", GOLDEN["scenarios"])
def test_equals_simple_switch(name, engine):
    scenario, answers = recorded(name)
    check(scenario, engine, answers)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_recordings_are_of_these_scenarios(name):
    scenario, _ = recorded(name)
    assert scenario == SCENARIOS[name](), "the scenario changed: run record_queues.py"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_recordings_are_of_these_programs(name):
    document = json.loads(PROGRAMS[name].read_text(encoding="utf-8"))
    assert fingerprint(document) == GOLDEN["fingerprints"][name], "run record_queues.py"


def test_the_recordings_have_what_they_are_for():
    """Packets that waited behind others, were marked, were dropped, had a priority, went round."""
    records, ecn, lost = [], set(), 0
    for name in GOLDEN["scenarios"]:
        scenario, answers = recorded(name)
        sent = [data for each in answers.values() for _, data in each]
        if scenario.program == "ecn":
            ecn |= {data[15] & 3 for data in sent}
        else:
            lost += sum(len(step.packets) for step in scenario.steps) > len(sent)
            for data in sent:
                records += [data[start : start + 31] for start in range(7, 7 + 31 * data[6], 31)]
    assert ecn == {0, 2, 3}
    assert {each[0] for each in records} == {0, 1, 2, 5}  # instance types; of ingress, 4 and 6
    assert {each[3] for each in records} >= {0, 1, 2, 3}  # qid
    assert {each[4] for each in records} == {0, 1, 2, 3}  # marks
    assert max(int.from_bytes(each[15:19], "big") for each in records) > 900_000
    assert lost >= 2


@pytest.mark.parametrize("name", ["depths", "priorities", "copies", "ecn"])
def test_what_is_wrong_is_seen(name):
    """The comparison fails where a packet is missing, too late, or has another depth."""
    scenario, answers = recorded(name)
    port = max(answers, key=lambda each: len(answers[each]))
    sent = answers[port]
    (first, data), *rest = sent
    changed = bytes([*data[:12], data[12] ^ 1, *data[13:]])
    for wrong in (
        rest,
        [sent[1], sent[0], *sent[2:]],
        [(first - 200 * MILLISECOND, data), *rest],
        [(first, changed), *rest],
    ):
        with pytest.raises(AssertionError):
            check(scenario, "interpret", {**answers, port: wrong})


def test_events_that_are_too_close_are_found():
    scenario = SCENARIOS["depths"]()
    first, *rest = scenario.steps
    for at, ambiguous in ((125 - MARGIN // MILLISECOND - 1, False), (125 - 5, True), (125, True)):
        step = type(first)(at, rest[0].packets)
        steps = (first, step)
        found = ambiguities(Scenario(scenario.program, scenario.commands, steps))
        assert bool(found) is ambiguous
