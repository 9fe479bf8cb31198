"""The compiled P4 programs on the built-in switch give what the slot pool's oracle gives.

Random traffic with repeats, stale, mangled, truncated and unadmitted packets; answers are compared
byte for byte and in order, then every register cell and the counters of dropped packets.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.slot_oracle import (
    CHECKSUM,
    MALFORMED,
    MISMATCH,
    NOT_ADMITTED,
    NOT_INNET,
    SLOT_RANGE,
    STALE,
    TRUNCATED,
    SlotOracle,
)
from support.tiers import examples, tiered
from support.traffic import Packet, contribution, job_of, resealed, traffic

from innet import programs
from innet.core.packets import PacketBatch
from innet.protocol.admission import Job, WorkerPort
from innet.switch import Switch, ir, load_program
from innet.wire import Endpoint, PacketLayout

REGISTERS = "SlotsIngress.pool."
REGISTER_NAMES = ("chunk", "worker_bitmap", "count", "exponent", "marks")
VALUES = "SlotsIngress.values.value"
ENGINES = ["interpret", "jit"]


@cache
def program(values: int, name: str) -> ir.Program:
    return load_program(programs.find(name, values).json())


class Pair:
    """Switch and oracle with the same tables, fed the same packets."""

    def __init__(self, values: int, engine: str, jobs: list[Job], name: str = "slots") -> None:
        self.values = values
        self.switch = Switch.load(program(values, name), engine)
        self.oracle = SlotOracle(
            values, has_owners=name == "collectives", adds_floats=name == "fpisa"
        )
        node = 0
        for job in jobs:
            for line in job.commands(first_node=node, new_ports=node == 0):
                self.switch.command(line)
                self.oracle.command(line)
            node += len(job.members)

    def set_sequences(self, job: Job, sequence: int) -> None:
        """As a job that ran up to there leaves the registers."""
        tenant = job.number << 16 | job.epoch
        chunks = self.switch.registers[REGISTERS + "chunk"]
        chunks[:] = tenant << 32 | sequence
        for index in range(len(chunks)):
            copy = self.oracle.copy(*divmod(index, 2))
            copy.tenant, copy.sequence = tenant, sequence

    def feed(self, packets: list[Packet], sizes: list[int] | None = None) -> list[Packet]:
        """Both process ``packets``, the switch in batches of ``sizes``; equal in all respects."""
        answers: list[Packet] = []
        left = packets
        for size in [*(sizes or []), len(packets)]:
            batch, left = left[:size], left[size:]
            answers += self.switch.process_batch(PacketBatch.from_packets(batch)).to_packets()
        expected = [answer for packet in packets for answer in self.oracle.one(*packet)]
        assert answers == expected
        self.compare_state()
        return answers

    def compare_state(self) -> None:
        registers = self.switch.registers
        size = len(registers[REGISTERS + "count"])
        copies = [self.oracle.copies.get(index) for index in range(size)]
        names = [*REGISTER_NAMES, *(["owner"] if self.oracle.has_owners else [])]
        for name in names:
            expected = [0 if copy is None else getattr(copy, name) for copy in copies]
            control = "marks" if name == "marks" else "pool"
            found = registers[f"SlotsIngress.{control}.{name}"]
            np.testing.assert_array_equal(found, expected, name)
        nothing = np.zeros(self.values, np.uint32)
        expected_values = [nothing if copy is None else copy.values for copy in copies]
        values = np.stack([registers[f"{VALUES}{i}"] for i in range(self.values)], axis=1)
        np.testing.assert_array_equal(values, expected_values)
        dropped = self.switch.counters["SlotsIngress.dropped"].packets
        assert dropped.tolist() == [self.oracle.dropped[reason] for reason in range(len(dropped))]


def layouts(values: int, name: str = "slots") -> list[PacketLayout]:
    kind = {"has_owners": name == "collectives", "adds_floats": name == "fpisa"}
    return [PacketLayout(values, framing, **kind) for framing in ("udp", "raw")]


SIZES = [(values, workers) for values in (32, 64, 256) for workers in (1, 2, 5, 32)]


@pytest.mark.repeats(
    "the same with other numbers of workers and values",
    but=["interpret-32-5", "jit-32-5", "jit-64-2", "jit-64-32"],
)
@pytest.mark.parametrize(
    ("engine", "values", "workers"),
    tiered(
        [(engine, *size) for engine in ENGINES for size in SIZES],
        [*(("jit", *size) for size in SIZES), ("interpret", 32, 1), ("interpret", 32, 5)],
        "the same compiled, and interpreted with few values",
    ),
)
def test_random_traffic(engine: str, values: int, workers: int) -> None:
    chunks = {32: 150, 64: 100, 256: 40}[values]
    rng = np.random.default_rng([values, workers])
    job = job_of(workers)
    packets = traffic(rng, layouts(values), job, chunks if workers < 32 else 14)
    pair = Pair(values, engine, [job])
    answers = pair.feed(packets, rng.integers(0, 60, 10).tolist())
    assert len(answers) >= workers * 10
    assert {port for port, _ in answers} == set(range(1, workers + 1))
    assert pair.oracle.dropped  # the traffic does hold packets to drop


@pytest.mark.parametrize(
    ("engine", "values", "workers"),
    tiered(
        [(engine, values, n) for engine in ENGINES for values in (64, 256) for n in (1, 2, 5, 32)],
        [("jit", 64, 1), ("jit", 64, 5), ("interpret", 64, 2)],
        "the same compiled, with some workers and few values",
    ),
)
def test_random_traffic_of_chunks_with_owners(engine: str, values: int, workers: int) -> None:
    rng = np.random.default_rng([values, workers, 1])
    job = job_of(workers)
    chunks = {1: 200, 2: 60, 5: 120, 32: 40}[workers]
    packets = traffic(rng, layouts(values, "collectives"), job, chunks)
    pair = Pair(values, engine, [job], "collectives")
    answers = pair.feed(packets, rng.integers(0, 60, 10).tolist())
    assert {port for port, _ in answers} == set(range(1, workers + 1))
    bare = {len(data) for _, data in answers} & {46, 74}
    assert bare == {46, 74}  # results that end with the header, in both framings
    assert {MALFORMED, MISMATCH} <= set(pair.oracle.dropped) or workers == 1


@pytest.mark.parametrize(
    ("engine", "workers"),
    tiered(
        [(engine, workers) for engine in ENGINES for workers in (1, 2, 5, 32)],
        [("jit", 1), ("jit", 5), ("interpret", 2)],
        "the same compiled, and interpreted with few workers",
    ),
)
def test_random_traffic_of_floats(engine: str, workers: int) -> None:
    """Integers, float32, bf16 and fp16 through the same slots, rounded both ways; partial sums."""
    rng = np.random.default_rng([workers, 2])
    job = job_of(workers)
    chunks = {1: 60, 2: 50, 5: 60, 32: 30}[workers]
    packets = traffic(rng, layouts(32, "fpisa"), job, chunks)
    pair = Pair(32, engine, [job], "fpisa")
    answers = pair.feed(packets, rng.integers(0, 60, 10).tolist())
    layout = layouts(32, "fpisa")[1]
    operations = {data[layout.header_offset + 3] for _, data in answers if data[12] == 0x88}
    assert operations >= {7, 8, 9, 10, 11}


@settings(max_examples=examples(25))
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 6),
    first=st.sampled_from([0, 1000, 2**31 - 20, 2**32 - 13, 2**32 + 7]),
    sizes=st.lists(st.integers(0, 50), max_size=5),
)
@pytest.mark.parametrize(
    ("engine", "name", "values"),
    tiered(
        [(engine, *each) for engine in ENGINES for each in (("slots", 32), ("collectives", 64))],
        [("jit", "slots", 32)],
        "the same compiled, and random traffic",
    ),
)
def test_any_traffic_at_any_point_of_the_sequence(
    engine: str, name: str, values: int, seed: int, workers: int, first: int, sizes: list[int]
) -> None:
    job = job_of(workers)
    pair = Pair(values, engine, [job], name)
    pair.set_sequences(job, first % 2**32)
    pair.feed(traffic(np.random.default_rng(seed), layouts(values, name), job, 30, first), sizes)


@pytest.mark.repeats("the same interpreted", but=["*-jit"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("framing", ["udp", "raw"])
@pytest.mark.parametrize("hidden", [False, True], ids=["damaged", "hostile"])
def test_every_byte_of_the_headers_damaged(engine: str, framing: str, hidden: bool) -> None:
    """Each byte in turn, three ways, between two good packets of the same chunk.

    As a cable damages it; and with the checksum set right, as a hostile worker would send it.
    """
    rng = np.random.default_rng(8)
    job = job_of(2)
    layout = PacketLayout(32, framing)
    packets: list[Packet] = []
    chunk = 0
    sequence = range(layout.header_offset + 8, layout.header_offset + 12)
    # The sequence last: damaged, it may carry a slot far ahead, and good packets are then stale.
    for offset in sorted(range(layout.values_offset + 4), key=sequence.__contains__):
        for flip in (0x01, 0x80, 0xFF):
            first, second = (
                contribution(rng, layout, job, worker, chunk, 1 + chunk % 3, 20)
                for worker in (0, 1)
            )
            damaged = bytearray(second[1])
            damaged[offset] ^= flip
            wrong = resealed(layout, bytes(damaged)) if hidden else bytes(damaged)
            packets += [first, (second[0], wrong), second, (first[0], wrong)]
            chunk += 1
    pair = Pair(32, engine, [job])
    assert len(pair.feed(packets)) > chunk
    if not hidden:
        # Outside of what checksums cover: Ethernet's header and the UDP length.
        expected = {NOT_INNET, CHECKSUM, NOT_ADMITTED} | (
            {MALFORMED} if framing == "udp" else set()
        )
    else:
        expected = {NOT_INNET, MALFORMED, NOT_ADMITTED, SLOT_RANGE, STALE, MISMATCH}
        expected |= {CHECKSUM} if framing == "udp" else set()
    assert set(pair.oracle.dropped) == expected


@pytest.mark.parametrize("engine", tiered(ENGINES, ["jit"], "the same compiled"))
@pytest.mark.parametrize("framing", ["udp", "raw"])
@pytest.mark.parametrize("hidden", [False, True], ids=["damaged", "hostile"])
def test_every_byte_of_a_packet_without_values_damaged(
    engine: str, framing: str, hidden: bool
) -> None:
    """As above, with packets that end with the header, of the owner and of others in turn."""
    rng = np.random.default_rng(12)
    job = job_of(2)
    layout = PacketLayout(64, framing, has_owners=True)
    packets: list[Packet] = []
    chunk = 0
    sequence = range(layout.header_offset + 8, layout.header_offset + 12)
    for offset in sorted(range(layout.bare_size), key=sequence.__contains__):
        for flip in (0x01, 0x80, 0xFF):
            # Worker 1 sends none: it owns what is reduced, and not what is broadcast.
            operation = 4 + chunk % 3
            first, second = (
                contribution(
                    rng, layout, job, worker, chunk, operation, 20, owner=5 - operation & 1
                )
                for worker in (0, 1)
            )
            assert len(second[1]) == layout.bare_size
            damaged = bytearray(second[1])
            damaged[offset] ^= flip
            wrong = resealed(layout, bytes(damaged)) if hidden else bytes(damaged)
            packets += [first, (second[0], wrong), second, (first[0], wrong)]
            chunk += 1
    pair = Pair(64, engine, [job], "collectives")
    assert len(pair.feed(packets)) > chunk
    if not hidden:
        # What takes away the mark for no values leaves a packet that is too short.
        expected = {NOT_INNET, CHECKSUM, NOT_ADMITTED, TRUNCATED} | (
            {MALFORMED} if framing == "udp" else set()
        )
    else:
        expected = {NOT_INNET, TRUNCATED, MALFORMED, NOT_ADMITTED, SLOT_RANGE, STALE, MISMATCH}
        expected |= {CHECKSUM} if framing == "udp" else set()
    assert set(pair.oracle.dropped) == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_every_truncation(engine: str, framing: str) -> None:
    rng = np.random.default_rng(9)
    job = job_of(2)
    layout = PacketLayout(32, framing)
    first, second = (contribution(rng, layout, job, worker, 0, 1) for worker in (0, 1))
    cut = [(second[0], second[1][:length]) for length in range(layout.frame_size)]
    pair = Pair(32, engine, [job])
    assert pair.feed([first, *cut]) == []
    assert pair.oracle.dropped == {TRUNCATED: layout.frame_size}
    assert len(pair.feed([second])) == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_garbage(engine: str) -> None:
    rng = np.random.default_rng(10)
    pair = Pair(64, engine, [job_of(3)])
    garbage = [(int(rng.integers(0, 5)), rng.bytes(int(rng.integers(0, 400)))) for _ in range(500)]
    assert pair.feed(garbage) == []
    assert not pair.oracle.copies


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_beside_each_other_are_not_admitted(engine: str) -> None:
    """Two jobs on the same ports; each also claims the other's slots, epoch and workers."""
    rng = np.random.default_rng(11)
    members = [WorkerPort(port, Endpoint.of_worker(port - 1)) for port in (1, 2, 3)]
    jobs = [
        Job(members, number=1, epoch=0, slot_base=0, slots=4, group=1),
        Job(members[:2], number=2, epoch=9, slot_base=4, slots=4, group=2),
    ]
    packets: list[Packet] = []
    for job, other in (jobs, jobs[::-1]):
        own = traffic(rng, layouts(32), job, 40)
        disguised = Job(
            members[: len(job.members)], other.number, job.epoch, slots=16, group=other.group
        )
        packets += own + traffic(rng, layouts(32), disguised, 10)
    shuffled = [packets[row] for row in rng.permutation(len(packets))]
    pair = Pair(32, engine, jobs[:1])
    for line in jobs[1].commands(first_node=3, new_ports=False):
        pair.switch.command(line)
        pair.oracle.command(line)
    assert pair.feed(shuffled)
    assert pair.oracle.dropped[NOT_ADMITTED] > 50
