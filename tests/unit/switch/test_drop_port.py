"""A switch that drops packets to another port than 511."""

from __future__ import annotations

from pathlib import Path

import pytest

from innet.switch import Switch, load_program

PROGRAM = load_program(Path(__file__).parents[3] / "p4" / "examples" / "forward.json")
FIRST, OTHER, UNKNOWN = (bytes(5) + bytes([i]) + bytes(8) for i in range(3))


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize("port", [511, 7])
def test_packets_to_the_drop_port_are_dropped(engine, port):
    switch = Switch(PROGRAM.with_drop_port(port), engine)
    for address, to in ((FIRST, 7), (OTHER, 511)):
        switch.table_add("addresses", "forward", [int.from_bytes(address[:6])], [to])
    sent = switch.process([(1, FIRST), (1, OTHER), (1, UNKNOWN)])
    assert sent == ([(7, FIRST)] if port == 511 else [(511, OTHER)])
    assert switch.statistics.dropped_ingress == 2


def test_caches_keep_programs_with_different_drop_ports_apart():
    assert PROGRAM.with_drop_port(511) is PROGRAM
    prints = {PROGRAM.with_drop_port(port).fingerprint for port in (511, 7, 8)}
    assert len(prints) == 3
