"""Meters: colors over time, rates that are refused, and both engines over the same cells."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from support.switch_cases import program

from innet.core.errors import ControlError, ProgramError
from innet.switch import Switch, ir
from innet.switch.frontend.loader import load_program
from innet.switch.jit.runtime.externs import execute_meter
from innet.switch.state.meters import MAX_TOKENS, MeterRate, MeterState


def meter_of(rates: int, *, of_bytes: bool = False, size: int = 4) -> MeterState:
    return MeterState(ir.MeterArray("m", size, of_bytes, rates, None, None))


def test_a_cell_without_rates_is_green():
    assert meter_of(2).execute(3, 100, 10**6) == 0


def test_bursts_then_rates():
    meter = meter_of(2)
    meter.set_rates([1], [MeterRate(0.001, 2), MeterRate(0.01, 4)])
    # Two fit both bursts, two more the larger one.
    assert [meter.execute(1, 60, 0) for _ in range(5)] == [0, 0, 1, 1, 2]
    # After 100 microseconds there is one token of the higher rate, a tenth of the lower.
    assert [meter.execute(1, 60, 100) for _ in range(2)] == [1, 2]
    assert meter.execute(1, 60, 999) == 1
    # A thousand microseconds give one of the lower rate; buckets never hold more than a burst.
    assert meter.execute(1, 60, 1000) == 0
    assert [meter.execute(1, 60, 10**9) for _ in range(5)] == [0, 0, 1, 1, 2]
    assert meter.execute(0, 60, 0) == 0


def test_small_rates_lose_nothing_by_being_looked_at_often():
    meter = meter_of(1)
    meter.set_rates([0], [MeterRate(0.3, 1)])
    meter.execute(0, 1, 0)
    colors = [meter.execute(0, 1, clock) for clock in range(1, 1001)]
    assert colors.count(0) == 300


def test_bytes_and_three_rates():
    meter = meter_of(3, of_bytes=True)
    meter.set_rates(slice(None), [MeterRate(0.0, 100), MeterRate(0.0, 200), MeterRate(0.0, 300)])
    assert [meter.execute(2, 60, 5) for _ in range(6)] == [0, 1, 1, 2, 2, 3]
    # A packet that the highest rate has no room for takes nothing from the lower ones.
    assert meter.execute(2, 301, 5) == 3
    assert meter.execute(2, 40, 5) == 3


def test_time_that_goes_backwards_adds_nothing():
    meter = meter_of(1)
    meter.set_rates([0], [MeterRate(1.0, 5)])
    assert [meter.execute(0, 1, 100) for _ in range(6)] == [0, 0, 0, 0, 0, 1]
    assert meter.execute(0, 1, 50) == 1
    assert meter.execute(0, 1, 100) == 1
    assert meter.execute(0, 1, -(10**6)) == 1
    assert meter.execute(0, 1, 101) == 0


@njit
def compiled(rates, cells, count, index, amount, clock):
    return execute_meter(rates, cells, count, index, amount, clock)


RATES = st.one_of(
    st.sampled_from([0.0, 1e-9, 0.001, 0.1, 1 / 3, 1.0, 7.5, 1e12]), st.floats(0, 1e300)
)
BURSTS = st.one_of(st.integers(0, 2000), st.integers(0, MAX_TOKENS))
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1500), st.integers(-5, 10**6)), max_size=30
)


@given(st.integers(1, 3), st.booleans(), st.data(), STEPS)
def test_the_compiled_meter_is_the_same(count, of_bytes, data, steps):
    pair = [meter_of(count, of_bytes=of_bytes) for _ in range(2)]
    for cell in range(3):
        rates = sorted(data.draw(st.lists(RATES, min_size=count, max_size=count)))
        chosen = [MeterRate(rate, data.draw(BURSTS)) for rate in rates]
        for meter in pair:
            meter.set_rates([cell], chosen)
    clock = 0
    for cell, size, step in steps:
        clock += step
        first, second = pair
        amount = size if of_bytes else 1
        got = compiled(second.rates.ravel(), second.cells.ravel(), count, cell, amount, clock)
        assert got == first.execute(cell, size, clock)
        np.testing.assert_array_equal(first.cells, second.cells)


# ── The control plane ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def document():
    return program("switch_meters")


@pytest.fixture
def switch(document):
    return Switch.load(document, engine="interpret")


def test_rates_are_read_as_they_were_set(switch):
    assert switch.command("meter_get_rates by_packets 3") == ""
    switch.command("meter_set_rates by_packets 3 0.5:10 2:20")
    assert switch.command("meter_get_rates I.by_packets 3") == (
        "0: info rate = 0.5, burst size = 10\n1: info rate = 2.0, burst size = 20"
    )
    assert switch.control.meter_get_rates("by_packets", 4) == []
    switch.command("meter_array_set_rates by_packets 1:1 1:1")
    assert switch.control.meter_get_rates("by_packets", 199) == [MeterRate(1.0, 1)] * 2


def test_direct_meters_are_named_by_the_handles_of_entries(switch):
    handle = switch.table_add("exact_table", "metered", [1], [9])
    switch.command(f"meter_set_rates exact_meter {handle} 1:1 1:1")
    switch.table_delete("exact_table", handle)
    for command in ("meter_set_rates exact_meter 0 1:1 1:1", "meter_get_rates exact_meter 0"):
        with pytest.raises(ControlError, match="no entry with handle 0"):
            switch.command(command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("meter_set_rates nothing 0 1:1 1:1", "nothing"),
        ("meter_set_rates by_packets 200 1:1 1:1", "index 200 is not in 0..199"),
        ("meter_set_rates by_packets -1 1:1 1:1", "index -1"),
        ("meter_set_rates by_packets 0 1:1", "has 2 rates, not 1"),
        ("meter_set_rates by_packets 0 2:1 1:1", "must ascend"),
        ("meter_set_rates by_packets 0 -1:1 1:1", "-1.0 is no rate"),
        ("meter_set_rates by_packets 0 nan:1 1:1", "nan is no rate"),
        ("meter_set_rates by_packets 0 1:1 inf:1", "inf is no rate"),
        ("meter_set_rates by_packets 0 1:-1 1:1", "burst size -1"),
        ("meter_set_rates by_packets 0 1:1.5 1:1", "'1:1.5' is no RATE:BURST"),
        ("meter_set_rates by_packets 0 1 1:1", "'1' is no RATE:BURST"),
        ("meter_array_set_rates by_packets 2:1 1:1", "must ascend"),
        ("meter_get_rates by_packets 200", "index 200"),
    ],
)
def test_what_is_refused_changes_nothing(switch, command, message):
    with pytest.raises(ControlError, match=message):
        switch.command(command)
    assert not any(meter.cells.any() for meter in switch.state.meters)


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_an_index_out_of_bounds_leaves_the_target(document, engine):
    switch = Switch.load(document, engine=engine)
    switch.command("meter_array_set_rates by_packets 0:0 0:0")
    [(_, inside)] = switch.process([(0, bytes([199, 0, 0, 0, 1]))])
    [(_, outside)] = switch.process([(0, bytes([200, 0, 0, 0, 1]))])
    assert (inside[5], outside[5]) == (2, 0)  # p4c passes a temporary, which is 0


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_a_meter_of_three_rates_in_a_program(document, engine):
    more = copy.deepcopy(document)
    more["meter_arrays"][0]["rate_count"] = 3
    switch = Switch.load(more, engine=engine)
    switch.command("meter_set_rates by_packets 1 0:1 0:2 0:3")
    sent = switch.process([(0, bytes([1, 0, 0, 0, 1]))] * 4)
    assert [data[5] for _, data in sent] == [0, 1, 2, 3]


def test_a_direct_meter_must_be_bound_to_its_table(document):
    wrong = copy.deepcopy(document)
    wrong["pipelines"][0]["tables"] = [
        table | {"direct_meters": "I.by_bytes"} if table["name"] == "I.exact_table" else table
        for table in wrong["pipelines"][0]["tables"]
    ]
    with pytest.raises(ProgramError, match=r"I\.exact_table, I\.by_bytes, is not bound"):
        load_program(wrong)
