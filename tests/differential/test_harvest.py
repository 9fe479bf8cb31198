"""harvest.p4 does what slots.p4 does, whenever the second pass of a packet comes."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.traffic import Packet, job_of, traffic

from innet import Collective, programs
from innet.fabric import Faults
from innet.packets import PacketBatch
from innet.protocol.admission import Job
from innet.switch import Switch, ir, load_program
from innet.wire import Layout

VALUES = 64
OVERTAKEN = 10
LAYOUTS = [Layout(VALUES), Layout(VALUES, "raw")]
REGISTERS = ["pool.chunk", "pool.members", "pool.count", "pool.exponent", "marks.marks"]


@cache
def program(name: str) -> ir.Program:
    return load_program(programs.find(name, VALUES).json())


def ready(name: str, job: Job, engine: str) -> Switch:
    switch = Switch.load(program(name), engine)
    for command in job.commands():
        switch.command(command)
    return switch


def values(switch: Switch, name: str) -> np.ndarray:
    """Of all slots, (slots and versions, 64) uint32."""
    registers = {each.rsplit(".", 1)[-1]: cells for each, cells in switch.registers.items()}
    if name == "slots":
        return np.stack([registers[f"value{i}"] for i in range(VALUES)], axis=1)
    pairs = np.stack([registers[f"pair{i}"] for i in range(VALUES // 2)], axis=1)
    return np.concatenate([pairs & 0xFFFFFFFF, pairs >> np.uint64(32)], axis=1)


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize("workers", [1, 3, 32])
def test_all_that_it_does_is_what_slots_does(engine: str, workers: int) -> None:
    """Packets bit for bit and in the same order, registers and refusals."""
    rng = np.random.default_rng(workers)
    job = job_of(workers)
    packets = PacketBatch.from_packets(traffic(rng, LAYOUTS, job, 200 if workers < 32 else 14))
    direct, pairs = ready("slots", job, "jit"), ready("harvest", job, engine)
    expected, found = (each.process_batch(packets).to_packets() for each in (direct, pairs))
    assert len(expected) > 10 * workers
    assert found == expected
    for name in REGISTERS:
        np.testing.assert_array_equal(
            pairs.registers[f"SlotsIngress.{name}"], direct.registers[f"SlotsIngress.{name}"]
        )
    np.testing.assert_array_equal(values(pairs, "harvest"), values(direct, "slots"))
    refused = [each.counters["SlotsIngress.refused"].packets.tolist() for each in (pairs, direct)]
    assert refused[0] == [*refused[1], 0]
    # One more pass for each packet that is answered.
    answered = pairs.statistics.as_dict()["recirculated"]
    assert 0 < answered <= len(expected)


def held_by_another(switch: Switch, answer: Packet) -> bool:
    """Whether the slot of a result holds another chunk by now."""
    data = answer[1]
    start = 42 if data[12:14] == b"\x08\x00" else 14
    job, epoch, sequence, slot, version = struct.unpack_from(">HHIHB", data, start + 4)
    chunk = (job << 16 | epoch) << 32 | sequence
    index = (job_of(1, slots=1).slot_base | slot) << 1 | version
    return int(switch.registers["SlotsIngress.pool.chunk"][index]) != chunk


class Late:
    """A switch whose second passes come when they are called for."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.engine: Any = switch._engine
        self.ingress = self.engine._ingress
        self.waiting: list[Any] = []
        recirculate = self.engine._recirculate

        def wait(packet: Any) -> None:
            recirculate(packet)
            self.waiting.append(self.ingress.pop())

        self.engine._recirculate = wait

    def receive(self, packet: Packet) -> list[Packet]:
        return self.switch.process([packet])

    def second_pass(self, number: int) -> list[Packet]:
        """What the waiting packet ``number`` leads to; no register changes by it."""
        before = {name: cells.copy() for name, cells in self.switch.registers.items()}
        self.ingress.append(self.waiting.pop(number))
        out = self.switch.process([(510, b"")])  # which is refused as such
        for name, cells in self.switch.registers.items():
            np.testing.assert_array_equal(cells, before[name], name)
        return out


@pytest.mark.parametrize("seed", range(3))
def test_whenever_the_second_pass_comes(seed: int) -> None:
    """It changes nothing, and gives what slots.p4 gave, or nothing once another chunk is there."""
    rng = np.random.default_rng(seed)
    job = job_of(3, slots=1)
    direct, late = ready("slots", job, "jit"), Late(ready("harvest", job, "interpret"))
    overtaken = late.switch.counters["SlotsIngress.refused"].packets
    promised: list[list[Packet]] = []
    given = 0

    def second_pass() -> None:
        nonlocal given
        number = int(rng.integers(len(promised)))
        before = int(overtaken[OVERTAKEN])
        out, expected = late.second_pass(number), promised.pop(number)
        if int(overtaken[OVERTAKEN]) == before:
            assert out == expected
            given += 1
        else:
            assert out == []
            assert held_by_another(late.switch, expected[0])

    for packet in traffic(rng, LAYOUTS, job, 120):
        expected = direct.process([packet])
        assert late.receive(packet) == []
        if expected:
            promised.append(expected)
        assert len(late.waiting) == len(promised)
        while promised and rng.random() < 0.25:
            second_pass()
    while promised:
        second_pass()
    assert given > 40
    assert overtaken[OVERTAKEN] > 3


@pytest.mark.parametrize("codec", ["dense", "lhc", "scalecom"])
def test_sums_over_a_bad_network_are_those_of_slots(codec: str) -> None:
    rng = np.random.default_rng(5)
    gradients = [rng.standard_normal(3000).astype(np.float32) for _ in range(4)]
    faults = Faults(loss=0.1, duplicate=0.1, reorder=0.2)
    totals = []
    for name in ("slots", "harvest"):
        collective = Collective(
            workers=4, codec=codec, program=name, values_per_packet=VALUES, faults=faults, seed=3
        )
        total, report = collective.all_reduce(gradients)
        assert report.exact
        assert report.retransmissions > 0
        totals.append(total)
    np.testing.assert_array_equal(*totals)
