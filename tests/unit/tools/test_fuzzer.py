"""Guided packets go the ways of the parser, so that a program's features are reached."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support import fuzz
from support.state_fuzzer import StateFuzzer

from innet.switch import Switch, load_program


@pytest.mark.parametrize(
    ("name", "place"), [("fuzz_parser", 0), ("fuzz_stacks", 0), ("fuzz_unions", 0)]
)
def test_packets_take_many_ways(name, place):
    program = load_program(fuzz.document(name))
    fuzzer = StateFuzzer(program, np.random.default_rng(1))
    switch = Switch(program, "interpret")
    kinds = Counter(data[place] for _, data in switch.process(fuzzer.packets(400)) if data)
    assert len(kinds) >= 5, kinds


def test_a_value_set_is_hit():
    program = load_program(fuzz.document("fuzz_parser"))
    fuzzer = StateFuzzer(program, np.random.default_rng(2))
    switch = Switch(program, "interpret")
    switch.commands("pvs_add nines 0x0aa")
    fuzzer.members = [sorted(each) for each in switch.state.value_sets]
    traces = [int.from_bytes(data[1:3], "big") for _, data in switch.process(fuzzer.packets(400))]
    assert sum(trace & 0x4000 != 0 for trace in traces) > 3


def test_an_action_profile_that_no_table_uses_stays_empty():
    document = fuzz.document("fuzz_profiles")
    document["pipelines"][0]["action_profiles"].append(
        {"name": "I.unused", "id": 99, "max_size": 16}
    )
    switch = Switch.load(document, "interpret")
    StateFuzzer(switch.program, np.random.default_rng(1)).fill([switch.state], entries=4)
    assert [len(each.members) for each in switch.state.profiles][-1] == 0
    assert len(switch.state.profiles[0].members) > 0


def test_some_are_mangled():
    program = load_program(fuzz.document("fuzz_varbit"))
    fuzzer = StateFuzzer(program, np.random.default_rng(3))
    packet = fuzzer.packet()
    lengths = [len(fuzzer.mutate(packet)) - len(packet) for _ in range(2000)]
    assert min(lengths) == -len(packet)
    assert max(lengths) == 10_000 - len(packet)
    assert lengths.count(0) > 1000
