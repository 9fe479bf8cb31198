"""The forms of harvest do what slots.p4 does, whenever the second pass of a packet comes.

Passes of harvest-256 in any order are explored in ``test_model_check_harvest``.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.bmv2 import needs_simple_switch
from support.tiers import seeds, tiered
from support.traffic import Packet, job_of, traffic

from innet import Collective, programs
from innet.bmv2 import simple_switch
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.network import Faults
from innet.protocol.admission import Job
from innet.switch import Switch, ir, load_program
from innet.wire import Endpoint, PacketLayout, pack, parse_strict

LATE, OVERTAKEN = 9, 10
REGISTERS = ["pool.chunk", "pool.worker_bitmap", "pool.count", "pool.exponent", "marks.marks"]


@cache
def program(name: str, values: int) -> ir.Program:
    return load_program(programs.find(name, values).json())


def ready(name: str, number: int, job: Job, engine: str) -> Switch:
    switch = Switch.load(program(name, number), engine)
    for command in job.commands():
        switch.command(command)
    return switch


def layouts(number: int) -> list[PacketLayout]:
    return [PacketLayout(number), PacketLayout(number, "raw")]


def part(cells: np.ndarray, number: int, which: int) -> np.ndarray:
    """The cells of quarter ``which`` of 256 values, or all of fewer."""
    return cells if number == 64 else cells.reshape(4, -1)[which]


def values(switch: Switch, name: str, number: int) -> np.ndarray:
    """Of all slots, (slots and versions, ``number``) uint32."""
    registers = {each.rsplit(".", 1)[-1]: cells for each, cells in switch.registers.items()}
    if name == "slots":
        return np.stack([registers[f"value{i}"] for i in range(number)], axis=1)
    found = []
    for which in range(number // 64):
        pairs = [part(registers[f"pair{i}"], number, which) for i in range(32)]
        found += [each & 0xFFFFFFFF for each in pairs] + [each >> np.uint64(32) for each in pairs]
    return np.stack(found, axis=1)


def whole(packets: list[Packet], number: int) -> list[Packet]:
    """Without those that have bytes behind the values, which harvest-256 takes for damaged."""
    return [
        (port, data)
        for port, data in packets
        if number == 64
        or len(data)
        <= PacketLayout(number, "udp" if data[12:14] == b"\x08\0" else "raw").frame_size
    ]


CASES = [(64, 1), (64, 3), (64, 32), (256, 1), (256, 5)]


@pytest.mark.repeats("the same interpreted", but=["jit-*"])
@pytest.mark.parametrize(
    ("engine", "number", "workers"),
    tiered(
        [(engine, *case) for engine in ("interpret", "jit") for case in CASES],
        [*(("jit", *case) for case in CASES), ("interpret", 64, 3), ("interpret", 256, 1)],
        "the same compiled, and interpreted with other numbers of workers",
    ),
)
def test_all_that_it_does_is_what_slots_does(engine: str, number: int, workers: int) -> None:
    """Packets bit for bit and in the same order, registers and drops."""
    rng = np.random.default_rng(workers)
    job = job_of(workers)
    chunks = 14 if workers == 32 else 200 if number == 64 else 60
    packets = PacketBatch.from_packets(whole(traffic(rng, layouts(number), job, chunks), number))
    direct = ready("slots", number, job, "jit")
    pairs = ready("harvest", number, job, engine)
    expected, found = (each.process_batch(packets).to_packets() for each in (direct, pairs))
    assert len(expected) > 10 * workers
    assert found == expected
    for name in REGISTERS:
        cells = pairs.registers[f"SlotsIngress.{name}"]
        if name in ("pool.chunk", "pool.worker_bitmap"):
            cells = part(cells, number, 0)
        elif name == "marks.marks":
            cells = part(cells, number, 3)
        np.testing.assert_array_equal(cells, direct.registers[f"SlotsIngress.{name}"])
    found_values = values(pairs, "harvest", number)
    np.testing.assert_array_equal(found_values, values(direct, "slots", number))
    dropped = [each.counters["SlotsIngress.dropped"].packets.tolist() for each in (pairs, direct)]
    assert dropped[0] == [*dropped[1], 0]
    more = pairs.statistics.as_dict()["recirculated"]
    if number == 64:  # one more pass for each packet that is answered
        assert 0 < more <= len(expected)
    else:  # three more for each that is let in, seven for each that is answered
        let_in = len(packets) - sum(dropped[0]) + dropped[0][LATE]
        answered = (
            len(expected) - (workers - 1) * pairs.statistics.as_dict()["replicated"] // workers
        )
        assert more == 3 * let_in + 7 * answered


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
        out = self.switch.process([(510, b"")])  # which is dropped as such
        for name, cells in self.switch.registers.items():
            np.testing.assert_array_equal(cells, before[name], name)
        return out


@pytest.mark.parametrize("seed", seeds(3))
def test_whenever_the_second_pass_comes(seed: int) -> None:
    """It changes nothing, and gives what slots.p4 gave, or nothing once another chunk is there."""
    rng = np.random.default_rng(seed)
    job = job_of(3, slots=1)
    direct = ready("slots", 64, job, "jit")
    late = Late(ready("harvest", 64, job, "interpret"))
    overtaken = late.switch.counters["SlotsIngress.dropped"].packets
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

    for packet in traffic(rng, layouts(64), job, 120):
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


@pytest.mark.repeats("the same with other codecs", but=["dense-*"])
@pytest.mark.parametrize(
    ("codec", "number"), [("dense", 64), ("lhc", 64), ("scalecom", 64), ("dense", 256)]
)
def test_sums_over_a_bad_network_are_those_of_slots(codec: str, number: int) -> None:
    rng = np.random.default_rng(5)
    gradients = [rng.standard_normal(3000).astype(np.float32) for _ in range(4)]
    faults = Faults(loss=0.1, duplicate=0.1, reorder=0.2)
    totals = []
    for name in ("slots", "harvest"):
        collective = Collective(
            workers=4, codec=codec, program=name, values_per_packet=number, faults=faults, seed=3
        )
        total, report = collective.all_reduce(gradients)
        assert report.exact
        assert report.retransmissions > 0
        totals.append(total)
    np.testing.assert_array_equal(*totals)


@pytest.mark.bmv2
@needs_simple_switch
@pytest.mark.parametrize("number", [64, 256])
def test_simple_switch_lets_others_in_between_and_sums_are_right(number: int) -> None:
    """A window of chunks of four workers at once, each packet twice: all that leaves is exact."""
    rng = np.random.default_rng(number)
    job, layout = job_of(4, slots=16), PacketLayout(number)
    values = rng.integers(-(2**31), 2**31, (16, 4, number)).astype(np.int32)
    rounds = []
    for chunk in range(16):
        frames = [
            pack(
                layout,
                member.endpoint,
                Endpoint.of_switch(),
                values[chunk, worker][None],
                operation=ReduceOp.SUM,
                job=job.number,
                epoch=job.epoch,
                sequence=chunk + 1,
                slot=chunk,
                slot_version=0,
                worker=worker,
            )[0].tobytes()
            for worker, member in enumerate(job.members)
        ]
        rounds += [(i + 1, frames[i]) for i in rng.permutation(np.tile(np.arange(4), 2))]
    document = programs.find("harvest", number).json()
    answer = simple_switch.run(document, rounds, job.commands())
    heard = [parse_strict(layout, data) for sent in answer.packets.values() for data in sent]
    assert {int(each.header["sequence"][0]) for each in heard} == set(range(1, 17))
    for each in heard:
        header = each.header[0]
        chunk = int(header["sequence"]) - 1
        assert (header["bitmap"], header["count"]) == (0b1111, 4)
        np.testing.assert_array_equal(each.values[0], values[chunk].sum(axis=0, dtype=np.int32))
