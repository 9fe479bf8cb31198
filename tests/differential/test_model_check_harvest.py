"""All that can happen to packets of harvest.p4 with 256 values, each of which takes many passes.

As ``test_model_check`` for the slot pool: a model of a page (``support.harvest_model``) is explored
with every pass as a step of its own. Then the compiled program walks along with the model, pass by
pass. The second tier explores larger numbers too, which takes some minutes.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.exploring import Result, WrongSumError, each_model, explore
from support.harvest_model import SWITCH, Cell, Forth, HarvestModel, Inside
from support.traffic import job_of

from innet import programs
from innet.core.reduce_op import ReduceOp
from innet.protocol.admission import Job
from innet.switch import Switch, ir, load_program
from innet.wire import Endpoint, HeaderFlag, PacketLayout, pack, parse_strict

PAIR, THREE = ((0, 1),), ((0, 1, 2),)
WAITING = [
    HarvestModel(PAIR, 1, 4),
    HarvestModel(PAIR, 2, 2, parts=2),
]
PARTIAL = [
    HarvestModel(PAIR, 1, 1, partial=True),
    HarvestModel(THREE, 1, 1, parts=2, partial=True),
]
FORGETTING = [HarvestModel(PAIR, 1, 1, parts=2, restarts=1)]
LARGER_WAITING = [
    HarvestModel(THREE, 1, 2, parts=2),
    HarvestModel(PAIR, 1, 4, parts=4),
    HarvestModel(PAIR, 2, 4),
    HarvestModel(THREE, 1, 3, parts=2),
]
LARGER_PARTIAL = [
    HarvestModel(PAIR, 1, 1, parts=4, partial=True),
    HarvestModel(PAIR, 1, 2, parts=4, partial=True),
    HarvestModel(PAIR, 2, 2, parts=2, partial=True),
    HarvestModel(THREE, 1, 1, partial=True),
]
LARGER_FORGETTING = [
    HarvestModel(PAIR, 1, 1, restarts=1),
    HarvestModel(PAIR, 1, 2, parts=2, restarts=1),
]


def name(model: HarvestModel) -> str:
    kind = "-partial" * model.partial + "-restart" * model.restarts
    return f"{model.workers}-{model.window}-{model.chunks}-of-{model.parts}{kind}"


@each_model([*WAITING, *PARTIAL], name, larger=[*LARGER_WAITING, *LARGER_PARTIAL])
def test_every_interleaving_is_exact_and_ends(model: HarvestModel) -> None:
    """Any packet lost, repeated or delayed for any time, between any two passes; and when somebody
    asks for what is there, all get the same. What left int32 in any part is told.
    """
    found = explore(model)
    assert found.stuck == 0
    done = [
        nodes for nodes in found.known if all(len(own) == model.chunks for own in nodes.received)
    ]
    assert done
    lacking = {bits for nodes in done for own in nodes.received for _, bits in own}
    assert lacking == (set(range(1, 1 << model.workers)) if model.partial else {model.full_bitmap})


@each_model(FORGETTING, name, larger=LARGER_FORGETTING)
def test_a_switch_that_forgets_stalls_the_job_at_worst(model: HarvestModel) -> None:
    found = explore(model)
    assert 0 < found.stuck < found.contents  # for these there is the next epoch


def test_without_a_look_at_every_part_sums_are_wrong() -> None:
    """Once a switch has forgotten what was in some of the parts."""
    with pytest.raises(WrongSumError):
        explore(HarvestModel(PAIR, 1, 1, parts=2, restarts=1, looks=False))


def test_where_each_part_is_closed_on_its_own_jobs_hang() -> None:
    """A part that was closed lacks a worker who is in another."""
    found = explore(HarvestModel(PAIR, 1, 1, parts=2, partial=True, decides=False))
    assert found.stuck > 0


# ---------------------------------------------------------------- the model is the program

LAYOUT = PacketLayout(256)
PARTS, VALUES = 4, 64  # and of each of them
REGISTERS = "SlotsIngress."
EXTREME = 31  # worker 0 and 1 together leave int32 here, in part 2


@cache
def program() -> ir.Program:
    return load_program(programs.find("harvest", LAYOUT.values).json())


class Walk:
    """The compiled program and the model of it, which take the same steps."""

    def __init__(self, model: HarvestModel, job: Job) -> None:
        self.model, self.job, self.nodes = model, job, model.start()
        self.switch = Switch.load(program(), "interpret")
        for command in job.commands():
            self.switch.command(command)
        self.engine: Any = self.switch._engine
        self.inside: list[tuple[Any, Inside]] = []  # the program's packet, and the model's
        self.met: Counter[tuple[str, int, str]] = Counter()
        self.round: list[Any] = []
        recirculate = self.engine._recirculate

        def wait(packet: Any) -> None:
            recirculate(packet)
            self.round.append(self.engine._ingress.pop())

        self.engine._recirculate = wait

    def values(self, worker: int, chunk: int) -> np.ndarray:
        """Of one contribution, (4, 64) int32: a word of its own for each worker, in both halves."""
        values = np.zeros((PARTS, VALUES), np.int32)
        for half in (0, VALUES // 2):
            values[:, half + worker] = 1 << 2 * chunk
        values[2, EXTREME] = (2**31 - 1, 1, 0)[worker]
        return values

    def arrive(self, packet: Forth) -> None:
        frame = pack(
            LAYOUT,
            self.job.members[packet.worker].endpoint,
            Endpoint.of_switch(),
            self.values(packet.worker, packet.chunk).reshape(1, -1),
            operation=ReduceOp.SUM,
            job=self.job.number,
            epoch=self.job.epoch,
            sequence=packet.chunk + 1,
            slot=packet.chunk % self.model.window,
            slot_version=packet.chunk // self.model.window % 2,
            worker=packet.worker,
            flags=HeaderFlag.PARTIAL if packet.request else HeaderFlag(0),
        )
        self.follow(packet, (packet.worker + 1, frame[0].tobytes()))

    def go_on(self, number: int) -> None:
        """One more pass of a packet inside of the switch."""
        real, packet = self.inside.pop(number)
        self.engine._ingress.append(real)
        self.follow(packet, (510, b""))  # which is dropped as such

    def follow(self, packet: Inside, given: tuple[int, bytes]) -> None:
        answers = self.switch.process([given])
        self.nodes, sent = self.model.arrives(self.nodes, SWITCH, packet)
        results = [each for each in sent if isinstance(each.what, Result)]
        for each in sent:
            if not isinstance(each.what, Result):
                self.inside.append((self.round.pop(), each.what))
        assert not self.round
        assert {port for port, _ in answers} == {each.to[0] + 1 for each in results}
        for _, data in answers:
            self.check(results[0].what, data)
        for each in results:
            self.nodes = self.model.takes(self.nodes, each.to[0], each.what) or self.nodes
        place = self.model.place(packet.chunk)
        assert self.cell(place, packet.part) == self.nodes.cells[place][packet.part]._replace(
            marks=0
        )
        became = type(sent[0].what).__name__ if sent else ""
        self.met[type(packet).__name__, packet.part, became] += 1

    def check(self, result: Result, data: bytes) -> None:
        """What left is the result: header, all words, flags."""
        batch = parse_strict(LAYOUT, data)
        header = batch.header[0]
        workers = [w for w in range(self.model.workers) if result.bits >> w & 1]
        total = sum(self.values(w, result.chunk).astype(np.int64) for w in workers)
        np.testing.assert_array_equal(batch.values[0].reshape(4, -1), total.astype(np.int32))
        assert (header["sequence"], header["bitmap"]) == (result.chunk + 1, result.bits)
        assert header["count"] == len(workers)
        partial = result.bits != self.model.full_bitmap
        flags = (
            HeaderFlag.RESULT
            | partial * HeaderFlag.PARTIAL
            | ({0, 1} <= set(workers)) * HeaderFlag.OVERFLOW
        )
        assert HeaderFlag(int(header["flags"])) == flags

    def cell(self, place: int, part: int) -> Cell:
        """What the registers say, but for marks."""
        index = (self.job.slot_base << 1) + place
        registers = self.switch.registers
        at = index + part * len(registers[REGISTERS + "pool.count"])
        signature, bits = divmod(int(registers[REGISTERS + "pool.worker_bitmap"][at]), 2**32)
        halves = [0, 0]
        for worker in range(self.model.workers):
            pair = int(registers[f"{REGISTERS}values.pair{worker}"][at])
            halves[0] |= pair % 2**32 << 16 * worker
            halves[1] |= pair >> 32 << 16 * worker
        assert halves[0] == halves[1]
        sequence = int(registers[REGISTERS + "pool.chunk"][at]) % 2**32
        return Cell(sequence, bits, bool(signature >> 16 & 1), halves[0], 0)

    def restart(self) -> None:
        """The registers are lost; packets inside of the switch are not."""
        for cells in self.switch.registers.values():
            cells[:] = 0
        self.nodes = self.model.start()._replace(received=self.nodes.received)


@pytest.mark.repeats("the same without restarts", but=["True"])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_program_walks_along_with_the_model(restarts: bool) -> None:
    """Three workers, two slots, many packets between some two of their passes."""
    rng = np.random.default_rng(restarts)
    met: Counter[Any] = Counter()
    for _ in range(6):
        model = HarvestModel(THREE, 2, 7, partial=not restarts, parts=PARTS)
        walk = Walk(model, job_of(3))
        for _ in range(250):
            drawn = rng.random()
            if walk.inside and drawn < 0.72:
                walk.go_on(int(rng.integers(len(walk.inside))))
            elif walk.inside and drawn < 0.75:
                walk.inside.pop(int(rng.integers(len(walk.inside))))
            elif restarts and drawn < 0.76:
                walk.restart()
            else:
                worker = int(rng.integers(3))
                sent = model.sent(walk.nodes.received[worker])[-4:]
                request = model.partial and rng.random() < 0.1
                walk.arrive(Forth(worker, int(rng.choice(sent)), request=bool(request)))
        met += walk.met
    for part in range(PARTS):  # and some that gave up
        assert met["Forth", part, "Forth" if part < PARTS - 1 else "Back"] > 3
        assert met["Back", part, "Back" if part else "Result"] > 3
    assert met["Forth", PARTS - 1, ""] > 3
    if restarts:
        assert any(met["Back", part, ""] for part in range(PARTS))


def test_every_pass_asks_whether_the_job_is_in_that_epoch() -> None:
    """A packet of an epoch that ends between two of its passes touches nothing any more."""
    for passes in (1, 3, 4, 5, 10):
        walk = Walk(HarvestModel(((0,),), 1, 1, parts=PARTS), job_of(1))
        walk.arrive(Forth(0, 0))
        for _ in range(passes - 1):
            walk.go_on(0)
        for entry in walk.switch.table_entries("SlotsIngress.admission.admission"):
            walk.switch.command(f"table_delete SlotsIngress.admission.admission {entry.handle}")
        before = {each: cells.copy() for each, cells in walk.switch.registers.items()}
        real, _ = walk.inside.pop()
        walk.engine._ingress.append(real)
        assert walk.switch.process([(510, b"")]) == []
        assert not walk.round
        dropped = walk.switch.counters["SlotsIngress.dropped"].packets
        assert dropped[5] == 1
        for each, cells in walk.switch.registers.items():
            np.testing.assert_array_equal(cells, before[each], each)
