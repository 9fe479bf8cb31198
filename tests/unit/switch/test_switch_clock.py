"""The time that a switch is told: also by NumPy's integers, and nothing that is none."""

from __future__ import annotations

import time

import numpy as np
import pytest
from support.switch_cases import program

from innet.core.errors import InputError
from innet.switch import Switch

NANOSECONDS = np.array([3_000, 7_500_000, (1 << 48) * 1000], np.int64)


@pytest.fixture(params=["interpret", "jit"])
def switch(request: pytest.FixtureRequest) -> Switch:
    """Stamps packets with the time of their arrival, in 48 bits."""
    return Switch.load(program("tools_clock"), request.param)


def arrived(switch: Switch) -> int:
    ((_, data),) = switch.process([(1, b"\x02")])
    return int.from_bytes(data[1:7], "big")


def test_times_as_captures_have_them(switch: Switch) -> None:
    """Elements of an array are integers of NumPy's own, and sums with them are."""
    for clock, expected in zip(NANOSECONDS // 1000, (3, 7500, 0), strict=True):
        switch.state.clock = clock
        assert arrived(switch) == expected
        assert str(switch.trace(1, b"\x02")[-1]).endswith(f"{expected:012x}" * 2)
    switch.state.clock = 0
    for expected in (60_000, 120_000):
        switch.state.clock += np.int64(60_000)
        assert arrived(switch) == expected


@pytest.mark.parametrize("clock", [1 << 63, -(1 << 63) - 1, 1.0, np.float64(7), "1", None])
def test_what_is_no_time_is_refused(switch: Switch, clock: object) -> None:
    switch.state.clock = clock
    with pytest.raises(InputError, match="microseconds"):
        arrived(switch)
    with pytest.raises(InputError, match="microseconds"):
        switch.trace(1, b"\x02")
    switch.state.clock = int(time.monotonic() * 1e6)
    assert arrived(switch) == switch.state.clock & (1 << 48) - 1
