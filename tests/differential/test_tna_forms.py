"""The TNA forms of the programs (p4/tna) answer as the v1model programs do, packet by packet.

``support.tna`` executes the TNA sources; the v1model programs run on the built-in switch.
``support/tna/compare.py`` lists what may differ.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.networks import switch_traffic
from support.tiers import seeds, tiered
from support.tna import RECIRCULATION_PORT
from support.tna.compare import (
    BesideFloats,
    BesideHarvest,
    BesideHarvest256,
    BesideSlots,
    BesideTree,
)
from support.tna.jobs import P4, TnaFloats, TnaHarvest, TnaHarvest256, TnaSlots, TnaTree
from support.traffic import Packet, contribution, job_of, resealed, traffic

from innet import programs
from innet.core.float_sums import FloatSum
from innet.protocol.admission import Job, WorkerPort
from innet.switch import Switch, ir, load_program
from innet.wire import Endpoint, HeaderFlag, PacketLayout

LAYOUT = PacketLayout(32, "raw")
FLOATS = PacketLayout(32, "raw", adds_floats=True)

pytestmark = pytest.mark.xdist_group("tna")  # one process reads and translates the sources


@cache
def program(name: str, values: int) -> ir.Program:
    return load_program(programs.find(name, values).json())


@cache
def bad_tree(seed: int, **shape: int):
    return switch_traffic("tree", 32, seed, framing="raw", **shape)


def beside(jobs: list[Job], seed: int = 0, folder: Path = P4) -> BesideSlots:
    tna = TnaSlots(seed=seed, folder=folder, PER_PASS=32, SLOT_BITS=10)
    return BesideSlots(tna, Switch.load(program("slots", 32), "interpret"), 32, jobs)


def random_packets(rng: np.random.Generator, job: Job, chunks: int, layout: PacketLayout = LAYOUT):
    """``support.traffic``, with right checksums: the TNA form checks none."""
    return [(port, resealed(layout, data)) for port, data in traffic(rng, [layout], job, chunks)]


@pytest.mark.parametrize("seed", seeds(12))
def test_loss_repeats_reordering_partial_results_and_mangled_packets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    job = job_of(int(rng.integers(1, 7)))
    both = beside([job], seed)
    sent = [each for each in random_packets(rng, job, 24) if rng.random() > 0.1]
    for place in rng.integers(0, len(sent) - 1, len(sent) // 4):
        sent[place], sent[place + 1] = sent[place + 1], sent[place]
    both.feed(sent)
    both.compare_state()
    assert both.added > 20
    assert both.answered > 20


def test_several_jobs_with_the_same_slot_numbers() -> None:
    rng = np.random.default_rng(1)
    jobs = [
        Job([WorkerPort(3 * n + i, Endpoint.of_worker(i)) for i in range(1, 4)],
            number=number, epoch=1, slot_base=16 * n, slots=slots, group=n + 1)
        for n, (number, slots) in enumerate([(1, 16), (2, 8), (2**15, 16)])
    ]  # fmt: skip
    both = beside(jobs)
    sent = [each for job in jobs for each in random_packets(rng, job, 12)]
    # From another job's port, and with another job's slots.
    sent += [(int(rng.integers(1, 10)), data) for _, data in sent[:40]]
    both.feed([sent[i] for i in rng.permutation(len(sent))])
    both.compare_state()
    assert both.added > 60


def test_another_epoch_finds_what_the_last_one_left() -> None:
    rng = np.random.default_rng(2)
    job = job_of(3)
    both = beside([job])
    both.feed(random_packets(rng, job, 12))
    later = job_of(3, epoch=4)
    both.jobs = [later]
    for table in both.tna.tables.values():
        if table.name == "admission":
            table.clear()
    both.v1model.command("table_clear SlotsIngress.admission.admission")
    for line in later.commands():
        if "admission" in line:
            both.tna.command(line)
            both.v1model.command(line)
    both.feed(random_packets(rng, job, 3))  # of the epoch before
    both.feed(random_packets(rng, later, 12))
    both.compare_state()


@pytest.mark.parametrize("ahead", [1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])
@pytest.mark.parametrize("held", [0, 5, 2**31 - 1, 2**31, 2**32 - 1])
def test_serial_arithmetic_at_its_ends(held: int, ahead: int) -> None:
    job = job_of(2, slots=1)
    both = beside([job])
    rng = np.random.default_rng(held + ahead)
    for chunk in (held, held + ahead):
        sequence = (chunk + 1) % 2**32
        port, frame = contribution(rng, LAYOUT, job, 0, 0, 1)
        changed = bytearray(frame)
        changed[22:26] = sequence.to_bytes(4)
        both.one(port, resealed(LAYOUT, bytes(changed)))
    both.compare_state()


def test_sums_at_the_ends_of_int32() -> None:
    """They stay there, whatever comes later; the v1model program wraps and flags."""
    job = job_of(3)
    both = beside([job])
    rng = np.random.default_rng(3)
    for chunk, first in enumerate([2**31 - 1, -(2**31), 2**30, -(2**30) - 1, 0]):
        for worker, value in enumerate((first, first, -first)):
            port, frame = contribution(rng, LAYOUT, job, worker, chunk, 1)
            words = np.full(32, np.clip(value, -(2**31), 2**31 - 1), ">i4").tobytes()
            both.one(port, resealed(LAYOUT, frame[:46] + words))
    both.compare_state()
    assert both.ends == 32 * 4


# ── Floats ───────────────────────────────────────────────────────────────────────────────────────


def float_packets(rng: np.random.Generator, job: Job, chunks: int) -> list[Packet]:
    """Contributions of float32, some lost, repeated or reordered; any bits, or near each other."""
    sent = []
    for chunk in range(chunks):
        partial = HeaderFlag.PARTIAL if rng.random() < 0.1 else HeaderFlag(0)
        for worker in range(len(job.members)):
            for _ in range(int(rng.integers(3))):
                port, frame = contribution(
                    rng, FLOATS, job, worker, chunk, FloatSum.FLOAT32, 32, flags=partial
                )
                values = rng.standard_normal(32) * 2.0 ** rng.integers(-12, 12, 32)
                words = values.astype(">f4").tobytes()
                if rng.random() < 0.3:
                    words = rng.integers(0, 2**32, 32, dtype=np.uint32).astype(">u4").tobytes()
                sent.append((port, resealed(FLOATS, frame[:46] + words)))
    for place in rng.integers(0, len(sent) - 1, len(sent) // 4):
        sent[place], sent[place + 1] = sent[place + 1], sent[place]
    return sent


def beside_floats(jobs: list[Job], seed: int = 0, folder: Path = P4) -> BesideFloats:
    tna = TnaFloats(seed=seed, folder=folder, PER_PASS=32, SLOT_BITS=10)
    return BesideFloats(tna, Switch.load(program("fpisa", 32), "interpret"), 32, jobs)


@pytest.mark.parametrize("seed", seeds(6))
def test_floats_are_added_approximately(seed: int) -> None:
    """Chunks, members and results as in the v1model program; sums as FPISA-A makes them."""
    rng = np.random.default_rng(seed)
    both = beside_floats([job_of(int(rng.integers(2, 7)))], seed)
    both.feed(float_packets(rng, both.jobs[0], 10))
    both.compare_state()
    assert both.added > 8
    assert both.answered > 8


@pytest.mark.parametrize(
    ("numbers", "sum_"),
    [
        ([1.5, 2.25], 3.75),
        ([1.0, -1.0], 0.0),
        ([1.0, -(2.0**-30)], 1 - 2.0**-23),  # cut off towards minus infinity
        ([1.0, 2.0**7], 129.0),  # moved to the left, into the headroom
        ([1.0, 2.0**8], 256.0),  # overwrites
        ([2.0**8, 1.0], 257.0),
        ([2.0**-149, 2.0**-149], 0.0),  # no subnormal results
        ([2.0**-126, 2.0**-149], 2.0**-126 + 2.0**-149),
        ([3e38, 3e38], np.inf),
        ([-3e38, -3e38], -np.inf),
        ([np.inf, 1.0], np.nan),
        ([1.0, -np.inf, 3e38], np.nan),
        ([2e38, np.nan, 3e38], np.nan),
        ([1.0, 254.0], 255.0),
        ([1.0, 255.0, 1.0], np.nan),  # the headroom is full
        ([-1.0, -255.0], np.nan),
    ],
)
def test_sums_of_floats_by_a_tofino(numbers: list[float], sum_: float) -> None:
    job = job_of(len(numbers))
    both = beside_floats([job])
    rng = np.random.default_rng(0)
    for worker, number in enumerate(numbers):
        port, frame = contribution(rng, FLOATS, job, worker, 0, FloatSum.FLOAT32, 32)
        words = np.full(32, number, ">f4").tobytes()
        both.one(port, resealed(FLOATS, frame[:46] + words))
    both.compare_state()
    [held] = both.values.values()
    found = np.array([both._result(held[0])], np.uint32).view(np.float32)
    np.testing.assert_array_equal(found, np.float32([sum_]))


def mutated(tmp_path: Path, file: str, right: str, wrong: str) -> Path:
    """A copy of p4/tna with a mistake."""
    folder = tmp_path / "p4" / "tna"
    shutil.copytree(P4, folder)
    shutil.copytree(P4.parent / "include", tmp_path / "p4" / "include")
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong))
    return folder


@pytest.mark.repeats(
    "the same with other mistakes",
    but=["slots.p4-CLOSED*", "include/chunk.p4-*", "include/slot.p4-*"],
)
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("slots.p4", "@pa_auto_init_metadata", ""),
        ("slots.p4", "CLOSED, 0, _, _): answer", "CLOSED, 0, _, _): publish"),
        ("include/parser.p4", "intrinsic.egress_rid - 1", "intrinsic.egress_rid"),
        ("include/chunk.p4", "- held.sequence > 0", "- held.sequence >= 0"),
        ("include/values.p4", "if (held != MOST && held != LEAST)", "if (held != MOST)"),
        ("include/slot.p4", "max(held, hdr.innet.exponent)", "hdr.innet.exponent"),
        ("include/slot_members.p4", "held.signature | CLOSED", "held.signature"),
    ],
)  # fmt: skip
def test_the_bench_finds_mistakes(file: str, right: str, wrong: str, tmp_path: Path) -> None:
    folder = mutated(tmp_path, file, right, wrong)

    def run() -> None:
        for seed in range(4):
            both = beside([job_of(4)], seed, folder)
            both.feed(random_packets(np.random.default_rng(seed), both.jobs[0], 24))
            both.compare_state()

    with pytest.raises(AssertionError):
        run()


@pytest.mark.parametrize(
    ("shape", "seed", "loses_registers"),
    tiered(
        [({"racks": 2}, 3, False), ({"racks": 2}, 4, True), ({"depth": 3}, 4, True)],
        [({"racks": 2}, 4, True)],
        "the same with two levels, of which registers are lost",
    ),
)
def test_switches_of_a_tree_in_a_bad_network(
    shape: dict[str, int], seed: int, loses_registers: bool
) -> None:
    """What each switch of a v1model network saw, given to both programs."""
    plan, seen = bad_tree(seed, **shape)
    ends = 0
    for switch in plan.switches:
        both = BesideTree(
            TnaTree(PER_PASS=32, SLOT_BITS=10),
            Switch.load(program("tree", 32), "interpret"),
            32,
            switch.commands,
            plan.job.slot_base,
        )
        sent = [(port, resealed(LAYOUT, data)) for port, data in seen[switch.name]]
        half = len(sent) // 2
        both.feed(sent[:half])
        both.compare_state()
        assert both.added > 10
        assert both.answered > 10
        if loses_registers:
            both.lose_registers()
        both.feed(sent[half:])
        both.compare_state()
        ends += both.ends
    assert ends


def harvests(job: Job, seed: int = 0) -> BesideHarvest:
    v1model = Switch.load(program("harvest", 64), "interpret")
    return BesideHarvest(TnaHarvest(seed, SLOT_BITS=10), v1model, 64, [job])


@pytest.mark.parametrize("seed", seeds(6))
def test_64_values_in_pairs_in_several_passes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    job = job_of(int(rng.integers(1, 7)))
    both = harvests(job, seed)
    sent = [
        each for each in random_packets(rng, job, 16, PacketLayout(64, "raw")) if rng.random() > 0.1
    ]
    both.feed(sent)
    both.compare_state()
    assert both.added > 15
    assert both.answered > 15


def test_a_packet_that_a_newer_chunk_overtakes_between_two_passes() -> None:
    """It is dropped, and changes nothing."""
    layout = PacketLayout(64, "raw")
    job = job_of(1, slots=1)
    tna = TnaHarvest(SLOT_BITS=10)
    for line in job.commands():
        tna.command(line)
    rng = np.random.default_rng(0)
    older, newer = (contribution(rng, layout, job, 0, chunk, 1) for chunk in (0, 2))
    [(port, between)] = tna.one_pass(*older)
    assert port == RECIRCULATION_PORT
    [(_, answer)] = tna.process(*newer)
    assert answer[46:] == newer[1][46:]
    assert tna.process(port, between) == []
    [counter] = tna.counters.values()
    assert counter == {10: 1}
    assert tna.process(*newer)[0][1][46:] == newer[1][46:]


# ---------------------------------------------------------------- 256 values

WIDE = PacketLayout(256, "raw")
QUARTER = 46 + 4 * 64  # headers and the values of one pass


def wide_harvests(jobs: list[Job], seed: int = 0, folder: Path = P4) -> BesideHarvest256:
    v1model = Switch.load(program("harvest", 256), "interpret")
    return BesideHarvest256(TnaHarvest256(seed, folder, SLOT_BITS=10), v1model, jobs)


def wide_packets(rng: np.random.Generator, job: Job, chunks: int) -> list[Packet]:
    """Without those that end behind the first quarter, or have more bytes: they have a test."""
    sent = random_packets(rng, job, chunks, WIDE)
    return [(port, data) for port, data in sent if len(data) in {*range(QUARTER), WIDE.frame_size}]


def interleaved(
    both: BesideHarvest256, sent: list[Packet], rng: np.random.Generator, restart: bool = False
) -> None:
    """Others arrive, and go on, between any two passes of a packet; some are lost there."""
    for place, packet in enumerate(sent):
        both.arrive(*packet, eager=bool(rng.integers(2)))
        while both.inside and rng.random() < 0.8:
            number = int(rng.integers(len(both.inside)))
            if rng.random() < 0.02:
                both.lose(number)
            else:
                both.go_on(number, eager=bool(rng.integers(2)))
        if restart and place == len(sent) // 2:
            both.lose_registers()
    while both.inside:
        both.go_on(int(rng.integers(len(both.inside))), eager=bool(rng.integers(2)))
    both.compare_state()


@pytest.mark.repeats("64 values in several passes")
@pytest.mark.parametrize("seed", seeds(4))
def test_256_values_with_others_between_the_passes(seed: int) -> None:
    """Loss, repeats, reordering, partial results, mangled packets; a slot that is used again."""
    rng = np.random.default_rng(seed)
    job = job_of(int(rng.integers(2, 6)), slots=2)
    both = wide_harvests([job], seed)
    sent = [each for each in wide_packets(rng, job, 8) if rng.random() > 0.1]
    interleaved(both, sent, rng, restart=seed % 2 == 1)
    assert both.added > 50
    assert both.answered > 8
    assert both.overtaken > 0
    assert both.ends > 0


@pytest.mark.repeats("the parser's answers with 64 values, in several passes")
def test_256_values_of_packets_that_nobody_sends() -> None:
    """The parser looks at the header of the first pass, up to the ends of what is sent."""
    rng = np.random.default_rng(9)
    job = job_of(1)
    both = wide_harvests([job])
    port, frame = contribution(rng, WIDE, job, 0, 0, 1)
    for at, wrong in (
        (17, b"\0"), (17, b"\4"),  # operation
        (28, b"\2"),  # slot version
        (29, b"\x10"),  # a result
        (38, b"\0\0"), (38, b"\1\1"), (38, b"\xff\xff"),  # elements
    ):  # fmt: skip
        changed = frame[:at] + wrong + frame[at + len(wrong) :]
        both.arrive(port, resealed(WIDE, changed))
    assert (both.dropped, both.inside) == (7, [])
    for chunk, elements in enumerate((1, 63, 64, 65, 127, 128, 255, 256)):
        both.one(*contribution(rng, WIDE, job, 0, chunk, 1, elements))
    assert both.answered == 8
    both.compare_state()


def test_256_values_of_two_jobs_with_the_same_slot_numbers() -> None:
    rng = np.random.default_rng(5)
    jobs = [
        Job([WorkerPort(3 * n + i, Endpoint.of_worker(i)) for i in range(1, 4)],
            number=number, epoch=1, slot_base=2 * n, slots=2, group=n + 1)
        for n, number in enumerate([1, 2**15])
    ]  # fmt: skip
    both = wide_harvests(jobs)
    sent = [each for job in jobs for each in wide_packets(rng, job, 4)]
    interleaved(both, [sent[i] for i in rng.permutation(len(sent))], rng)
    assert both.added > 50
    assert both.answered > 3


def test_256_values_of_a_job_that_ends_between_two_passes() -> None:
    """Every pass asks for admission, and a packet that is not admitted any more changes nothing."""
    rng = np.random.default_rng(6)
    job = job_of(1)
    for passes in (1, 4, 6):
        both = wide_harvests([job])
        both.arrive(*contribution(rng, WIDE, job, 0, 0, 1))
        for _ in range(passes - 1):
            both.go_on(0)
        both.tna.find("admission").clear()
        both.v1model.command("table_clear SlotsIngress.admission.admission")
        both.go_on(0)
        assert (both.dropped, both.inside) == (1, [])
        both.compare_state()


@pytest.mark.parametrize("operation", [1, 2, 3])
def test_passes_of_a_packet_with_256_values(operation: int) -> None:
    """Four to be added, seven to return; eight, where the fourth has not read high words."""
    rng = np.random.default_rng(7)
    job = job_of(2)
    tna = TnaHarvest256(SLOT_BITS=10)
    for line in job.commands():
        tna.command(line)

    def passes(packet: Packet) -> tuple[int, int]:
        """How many, and the bytes recirculated without the header of 10 between passes."""
        out, number, carried = tna.one_pass(*packet), 1, 0
        while out and out[0][0] == RECIRCULATION_PORT:
            [(port, between)] = out
            carried += len(between) - 10
            out, number = tna.one_pass(port, between), number + 1
        return number, carried

    first, second = (contribution(rng, WIDE, job, worker, 0, operation) for worker in (0, 1))
    down = 814 + 558 + 302
    back = 302 + 302 + 2 * 558 + 2 * 814 + 1070
    assert passes(first) == (4, down)
    more = operation == 2
    assert passes(second) == (11 + more, down + back + 302 * more)
    assert passes(second) == (12, down + back + 302)


def test_256_values_too_few_or_too_many() -> None:
    """The TNA form does not know the length: it adds whole quarters, as if the packet had been lost
    behind them; and what comes behind the values stays behind the result's.
    """
    rng = np.random.default_rng(8)
    job = job_of(1)
    tna = TnaHarvest256(SLOT_BITS=10)
    for line in job.commands():
        tna.command(line)
    port, frame = contribution(rng, WIDE, job, 0, 0, 1)
    for quarters in (1, 2, 3):
        assert tna.process(port, frame[: QUARTER + 256 * (quarters - 1) + 5]) == []
    assert tna.registers["HarvestIngress.slot.count"].cells[16] == 0
    [(_, answer)] = tna.process(port, frame)
    assert answer[46:] == frame[46:]
    assert int.from_bytes(answer[36:38]) == 1  # count
    longer = contribution(rng, WIDE, job, 0, 1, 1)
    [(_, answer)] = tna.process(port, longer[1] + b"behind")
    assert answer[46:] == longer[1][46:] + b"behind"


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    tiered(
        [
            ("harvest256.p4", "meta.add = 0;", ""),
            ("harvest256.p4", "hdr.harvest.port: exact", "intrinsic.ingress_port: exact"),
            ("harvest256.p4", "present(STEP_SKIP, 0)", "present(STEP_ADD, 0)"),
            ("include/slot.p4", "meta.other == 1 || meta.before !=", "meta.before !="),
            ("include/slot.p4", "|| meta.before != hdr.harvest.bitmap", ""),
            ("include/parser.p4", "(STEP_ADD, PARTS - 1): last_part", "(STEP_ADD, 1): last_part"),
        ],
        [("harvest256.p4", "meta.add = 0;", "")],
        "the same with another mistake",
    ),
)  # fmt: skip
def test_the_bench_finds_mistakes_between_passes(
    file: str, right: str, wrong: str, tmp_path: Path
) -> None:
    folder = mutated(tmp_path, file, right, wrong)

    def run() -> None:
        for seed in range(4):
            rng = np.random.default_rng(seed)
            job = job_of(4, slots=1)
            both = wide_harvests([job], seed, folder)
            interleaved(both, wide_packets(rng, job, 6), rng, restart=True)

    with pytest.raises(AssertionError):
        run()
