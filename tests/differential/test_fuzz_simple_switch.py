"""Both engines do what simple_switch does, whatever arrives and whatever it is told.

Programs of one feature each, packets made to fit them and mangled, commands made to fit what the
switch holds: every output byte, its port, the order at each port, what commands are refused, the
handles that are given out, and at the end registers and counters are equal.

INNET_FUZZ_SEEDS (1) and INNET_FUZZ_PACKETS (400) in the environment say how long to look.
"""

from __future__ import annotations

import os

import pytest
from support import fuzz
from support.bmv2 import needs_simple_switch, require_checked_indices
from support.old_json import aged
from support.tiers import tiered

SEEDS = int(os.environ.get("INNET_FUZZ_SEEDS", "1"))
PACKETS = int(os.environ.get("INNET_FUZZ_PACKETS", "400"))

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.timeout(0 if SEEDS > 2 else 300),
    needs_simple_switch,
]


#: Programs whose packets name indices, also of cells that there are not.
INDEXED = ("fuzz_counters", "fuzz_meters", "fuzz_registers")


RECORDED = "recordings of simple_switch (tests/golden/switch), and the same with other programs"


@pytest.mark.repeats("the recordings of simple_switch in tests/golden", but=["fuzz_multicast"])
@pytest.mark.parametrize(
    "name", tiered(fuzz.NAMES, ["fuzz_loops", "fuzz_multicast", "fuzz_priorities"], RECORDED)
)
def test_equals_simple_switch(name):
    if name in INDEXED:
        require_checked_indices()
    for seed in range(SEEDS):
        case = fuzz.make_case(name, seed, PACKETS)
        trace = fuzz.simple_switch(case)
        for engine in fuzz.engines(name):
            left = fuzz.compare(case, trace, engine)
            assert left > 0, f"{name}: nothing left, so nothing was compared"


@pytest.mark.parametrize("name", tiered(fuzz.NAMES, ["fuzz_profiles"], RECORDED))
def test_equals_simple_switch_told_by_thrift(name):
    pytest.importorskip("thrift", reason="Thrift's library is not installed")
    if name in INDEXED:
        require_checked_indices()
    case = fuzz.make_case(name, SEEDS, min(PACKETS, 100))
    trace = fuzz.simple_switch(case, thrift=True)
    assert fuzz.compare(case, trace, "interpret") > 0


@pytest.mark.parametrize(
    "name",
    tiered(
        ["fuzz_loops", "fuzz_profiles", "fuzz_signed", "fuzz_wide"],
        ["fuzz_profiles"],
        "the same with another program",
    ),
)
def test_older_json_equals_simple_switch(name, monkeypatch):
    """Without a version, with P4_14's primitives and with action profiles in their tables."""
    new = fuzz.document
    monkeypatch.setattr(fuzz, "document", lambda each: aged(new(each), unmasked=True))
    case = fuzz.make_case(name, SEEDS, min(PACKETS, 100))
    assert fuzz.compare(case, fuzz.simple_switch(case), "interpret") > 0


@pytest.mark.repeats("the differences that other benches find")
def test_a_difference_is_seen():
    """The comparison itself: a packet, a register, a counter and a refusal that differ."""
    case = fuzz.make_case("fuzz_loops", 0, 40)
    fuzz.compare(case, fuzz.simple_switch(case), "interpret")
    for change in (_change_packet, _change_register, _change_counter, _change_refusal):
        changed = fuzz.simple_switch(case)
        change(changed)
        with pytest.raises(AssertionError):
            fuzz.compare(case, changed, "interpret")


def _change_packet(trace):
    answer = next(answer for answer in trace.answers[0] if answer)
    port = next(iter(answer))
    answer[port][0] = answer[port][0][:-1] + b"?!"


def _change_register(trace):
    trace.state.registers["I.total"][0] += 1


def _change_counter(trace):
    packets, size = trace.state.counters["I.types"][0]
    trace.state.counters["I.types"][0] = (packets, size + 1)


def _change_refusal(trace):
    trace.handles[0][0] = None if trace.handles[0][0] is not None else ""
