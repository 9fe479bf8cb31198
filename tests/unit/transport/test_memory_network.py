"""Several switches in one transport: packets find their way, are counted, meet faults on trunks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from innet.core.errors import InputError, StalledError
from innet.core.packets import PacketBatch
from innet.network import Direction, Faults
from innet.transport.memory import NetworkTransport, SwitchPort


def by_table(table):
    """A switch that sends what arrives at a port to all ports that ``table`` names for it."""

    def process(batch: PacketBatch) -> PacketBatch:
        return PacketBatch.from_packets(
            (out, data) for port, data in batch.to_packets() for out in table.get(port, ())
        )

    return process


def packets(port: int, *texts: bytes) -> PacketBatch:
    return PacketBatch.from_packets([(port, text) for text in texts])


def line_of_three(**settings):
    """Hosts 1 and 2 at switch a, 3 at switch c; a - b - c."""
    return NetworkTransport(
        {
            "a": by_table({1: [9], 2: [1, 9], 9: [1, 2]}),
            "b": by_table({1: [2], 2: [1]}),
            "c": by_table({1: [5], 5: [1, 7]}),
        },
        {1: SwitchPort("a", 1), 2: SwitchPort("a", 2), 3: SwitchPort("c", 5)},
        [
            (SwitchPort("a", 9), SwitchPort("b", 1)),
            (SwitchPort("b", 2), SwitchPort("c", 1)),
        ],
        **settings,
    )


def test_packets_cross_switches_in_order():
    seen = []
    transport = line_of_three(tap=lambda way, batch, now: seen.append((way, len(batch), now)))
    transport.send(packets(1, b"x", b"yy"), 0.0)
    transport.send(packets(2, b"z"), 0.0)
    assert transport.wait(0.0, 5.0) == 0.0
    arrived = transport.receive(0.0).to_packets()
    assert [data for port, data in arrived if port == 3] == [b"x", b"yy", b"z"]
    assert [data for port, data in arrived if port == 1] == [b"z"]
    transport.send(packets(3, b"back"), 1.0)
    assert transport.receive(1.0).to_packets() == [(1, b"back"), (2, b"back")]
    assert transport.undelivered == 1  # the copy for port 7 of c
    assert transport.to_switch.packets.tolist() == [0, 2, 1, 1]
    assert transport.to_hosts.packets.tolist() == [0, 2, 1, 3]
    assert transport.to_hosts.bytes.tolist() == [0, 5, 4, 4]
    assert seen == [
        (Direction.TO_SWITCH, 2, 0.0),
        (Direction.TO_SWITCH, 1, 0.0),
        (Direction.TO_HOST, 4, 0.0),
        (Direction.TO_SWITCH, 1, 1.0),
        (Direction.TO_HOST, 2, 1.0),
    ]
    assert transport.wait(1.0, 5.0) == 5.0


def test_trunks_lose_delay_and_repeat():
    rng = np.random.default_rng(0)
    transport = line_of_three(faults=Faults(loss=0.5, duplicate=0.5, delay=0.25, tick=0), rng=rng)
    transport.send(packets(1, *[bytes([i]) for i in range(200)]), 0.0)
    assert len(transport.receive(0.0)) == 0
    assert transport.wait(0.0, math.inf) == 0.25
    assert len(transport.receive(0.25)) == 0
    assert transport.wait(0.25, math.inf) == 0.5
    arrived = transport.receive(0.5).to_packets()
    faults = transport.trunk_faults
    assert {port for port, _ in arrived} == {3}
    assert len(arrived) == faults.arrived - (faults.entered - 200)
    assert faults.lost > 50
    assert faults.duplicated > 50
    assert transport.wait(0.5, math.inf) == math.inf


def test_equal_seeds_give_equal_fates():
    def run(seed):
        transport = line_of_three(faults=Faults(loss=0.3), rng=np.random.default_rng(seed))
        transport.send(packets(1, *[bytes([i]) for i in range(100)]), 0.0)
        return transport.receive(0.0).to_packets()

    assert run(1) == run(1) != run(2)


def test_packets_that_go_round_are_found_out():
    around = by_table({1: [2], 2: [1], 3: [1]})
    transport = NetworkTransport(
        {"a": around, "b": around},
        {1: SwitchPort("a", 3)},
        [(SwitchPort("a", i), SwitchPort("b", i)) for i in (1, 2)],
    )
    transport.send(packets(1, b"x"), 0.0)
    with pytest.raises(StalledError, match="packets loop between the switches a, b"):
        transport.receive(0.0)


def test_bad_networks_are_refused():
    switch = {"a": by_table({})}
    place = SwitchPort("a", 1)
    with pytest.raises(InputError, match="give at least one"):
        NetworkTransport(switch, {})
    with pytest.raises(InputError, match="no switch 'b'"):
        NetworkTransport(switch, {1: SwitchPort("b", 1)})
    with pytest.raises(InputError, match="no port 511"):
        NetworkTransport(switch, {1: SwitchPort("a", 511)})
    with pytest.raises(InputError, match="port 1 of a is used twice"):
        NetworkTransport(switch, {1: place, 2: place})
    with pytest.raises(InputError, match="port 1 of a is used twice"):
        NetworkTransport(switch, {1: place}, [(SwitchPort("a", 2), place)])
    others = [SwitchPort("a", port) for port in (2, 3, 4)]
    with pytest.raises(InputError, match="port 2 of a is used twice"):
        NetworkTransport(switch, {1: place}, [(others[0], others[1]), (others[0], others[2])])
    with pytest.raises(InputError, match="faults need rng"):
        NetworkTransport(switch, {1: place}, faults=Faults())
    with pytest.raises(InputError, match="no host 2"):
        NetworkTransport(switch, {1: place}).send(packets(2, b"x"), 0.0)
