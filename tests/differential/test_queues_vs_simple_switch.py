"""Egress queues beside simple_switch's, live: packets at given times, by hand and by chance.

A scenario takes two seconds, since simple_switch's queues follow the clock.
``INNET_FUZZ_SEEDS=100`` looks longer.
"""

from __future__ import annotations

import os

import pytest
from support.bmv2 import needs_simple_switch
from support.queue_scenarios import (
    FUZZED,
    SCENARIOS,
    compare,
    fuzz_scenario,
    random_scenario,
)
from support.tiers import tiered

COUNT = int(os.environ.get("INNET_FUZZ_SEEDS", "0"))
SEEDS = range(1000, 1000 + (COUNT or 6))
FUZZ_SEEDS = COUNT or 1

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.timeout(0 if COUNT else 120),
    needs_simple_switch,
]


@pytest.mark.parametrize(
    "name", tiered(SCENARIOS, list(SCENARIOS)[:1], "the recordings of them (tests/golden/switch)")
)
def test_scenarios_by_hand(name):
    assert compare(SCENARIOS[name]())


@pytest.mark.parametrize("name", tiered(FUZZED, list(FUZZED)[:1], "the same with another program"))
def test_other_programs(name):
    for seed in SEEDS[:FUZZ_SEEDS]:
        scenario = fuzz_scenario(name, seed)
        assert compare(scenario)


@pytest.mark.parametrize("seed", tiered(SEEDS, SEEDS[:1], "the same with another seed"))
def test_scenarios_by_chance(seed):
    assert compare(random_scenario(seed))
