"""All that can happen to two or three workers on a few slots: no wrong sum, no deadlock.

The exploration is of a model of a few lines (``support.slot_model``). What the model says of a
switch and of a worker is then put to the compiled P4 program and to ``SlotClient``: every pair of a
slot's contents and a contribution, and every pair of a worker's state and a result, that was met.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from support.exploring import each_model
from support.slot_model import Cell, Contribution, Explored, Model, Result, WrongSumError, explore
from support.tiers import tiered

from innet import programs
from innet.core.reduce_op import ReduceOp, Segment
from innet.protocol import JobMembership, SlotClient
from innet.protocol.admission import Job, WorkerPort
from innet.switch import Switch
from innet.wire import Endpoint, HeaderFlag, PacketLayout, pack, parse_strict

LAYOUT = PacketLayout(32)

# Workers, slots, chunks. Each slot has two copies: with so many chunks each is taken over.
WAITING = [Model(2, 1, 6), Model(2, 2, 8), Model(3, 1, 5), Model(3, 2, 7)]
PARTIAL = [Model(2, 1, 4, partial=True), Model(2, 2, 4, partial=True)]
FORGETTING = [Model(2, 1, 4, restarts=1), Model(2, 2, 4, restarts=1), Model(3, 1, 3, restarts=2)]


def name(model: Model) -> str:
    kind = "partial-" if model.partial else "restart-" if model.restarts else ""
    return f"{kind}{model.workers}-{model.window}-{model.chunks}"


@cache
def explored(model: Model) -> Explored:
    return explore(model)


@each_model(WAITING, name)
def test_every_interleaving_is_exact_and_ends(model: Model) -> None:
    """Any packet lost, repeated or delayed for any time; no state from which it does not end."""
    found = explored(model)
    assert found.stuck == 0
    assert found.states > 30 * model.window


@each_model(PARTIAL, name)
def test_partial_results_are_the_same_for_all(model: Model) -> None:
    """Whoever asks for what is there, whenever: all who get a chunk's result get the same one."""
    found = explored(model)
    assert any(result.bitmap != model.full_bitmap for _, result in found.results)


@each_model(FORGETTING, name)
def test_a_switch_that_forgets_stalls_the_job_at_worst(model: Model) -> None:
    found = explored(model)
    assert 0 < found.stuck < found.states  # for these there is the next epoch


def test_the_exploration_finds_what_is_wrong_with_switchml() -> None:
    """Without sequences a duplicate that comes late enough counts for a newer chunk."""
    with pytest.raises(WrongSumError):
        explore(Model(2, 1, 4, remembers=False))


# ---------------------------------------------------------------- the model is the program


def job_of(model: Model) -> Job:
    members = [WorkerPort(i + 1, Endpoint.of_worker(i)) for i in range(model.workers)]
    return Job(members, number=7, epoch=3, slots=model.window)


def frame_of(model: Model, sent: Contribution) -> bytes:
    values = np.zeros((1, LAYOUT.values), np.int32)
    values[0, : model.workers] = model.words(sent)
    return pack(
        LAYOUT,
        Endpoint.of_worker(sent.worker),
        Endpoint.of_switch(),
        values,
        operation=ReduceOp.SUM,
        job=7,
        epoch=3,
        sequence=sent.chunk + 1,
        slot=sent.chunk % model.window,
        slot_version=sent.chunk // model.window % 2,
        worker=sent.worker,
        flags=HeaderFlag.PARTIAL if sent.partial else HeaderFlag(0),
    )[0].tobytes()


def put_cell(switch: Switch, index: int, cell: Cell) -> None:
    """Make the registers say what the model says; an empty cell is that of another owner."""
    registers = switch.registers
    pool = "SlotsIngress.pool."
    owner = 7 << 16 | 3 if cell.sequence else 0
    signature = int(ReduceOp.SUM) << 28 | LAYOUT.values << 17 | cell.closed << 16
    registers[pool + "chunk"][index] = owner << 32 | cell.sequence
    registers[pool + "worker_bitmap"][index] = signature << 32 | cell.bitmap
    registers[pool + "count"][index] = cell.bitmap.bit_count()
    for worker, total in enumerate(cell.totals):
        registers[f"SlotsIngress.values.value{worker}"][index] = total


def get_cell(switch: Switch, index: int, workers: int) -> Cell:
    registers = switch.registers
    pool = "SlotsIngress.pool."
    signature, bitmap = divmod(int(registers[pool + "worker_bitmap"][index]), 2**32)
    assert registers[pool + "count"][index] == bitmap.bit_count()
    return Cell(
        int(registers[pool + "chunk"][index]) % 2**32,
        bitmap,
        bool(signature >> 16 & 1),
        tuple(int(registers[f"SlotsIngress.values.value{w}"][index]) for w in range(workers)),
    )


@pytest.mark.parametrize("engine", tiered(["jit", "interpret"], ["jit"], "the same compiled"))
@each_model([*WAITING, *PARTIAL, *FORGETTING], name)
def test_the_model_is_the_switch_program(model: Model, engine: str) -> None:
    switch = Switch.load(programs.find("slots", LAYOUT.values).json(), engine=engine)
    for command in job_of(model).commands():
        switch.command(command)
    for cell, sent in sorted(explored(model).cells):
        index = model.place(sent.chunk)
        put_cell(switch, index, cell)
        answers = switch.process([(sent.worker + 1, frame_of(model, sent))])
        after, answer = model.arrive(cell, sent)
        assert get_cell(switch, index, model.workers) == after
        results = {}
        for port, data in answers:
            header = parse_strict(LAYOUT, data).header
            values = parse_strict(LAYOUT, data).values[0]
            assert port == int(header["worker"][0]) + 1
            assert int(header["count"][0]) == int(header["bitmap"][0]).bit_count()
            complete = int(header["bitmap"][0]) == model.full_bitmap
            assert bool(header["flags"][0] & HeaderFlag.PARTIAL) != complete
            results[port - 1] = Result(
                int(header["sequence"][0]) - 1,
                int(header["bitmap"][0]),
                tuple(values[: model.workers].tolist()),
            )
        if answer is None:
            assert results == {}
        else:
            addressees = range(model.workers) if answer.to is None else (answer.to,)
            assert results == dict.fromkeys(addressees, answer.result)


def result_frame(model: Model, result: Result, worker: int) -> np.ndarray:
    values = np.zeros((1, LAYOUT.values), np.int32)
    values[0, : model.workers] = result.totals
    complete = result.bitmap == model.full_bitmap
    return pack(
        LAYOUT,
        Endpoint.of_switch(),
        Endpoint.of_worker(worker),
        values,
        operation=ReduceOp.SUM,
        job=7,
        epoch=3,
        sequence=result.chunk + 1,
        slot=result.chunk % model.window,
        slot_version=result.chunk // model.window % 2,
        worker=worker,
        flags=HeaderFlag.RESULT if complete else HeaderFlag.RESULT | HeaderFlag.PARTIAL,
        bitmap=result.bitmap,
        count=result.bitmap.bit_count(),
    )


@each_model([*WAITING, *PARTIAL, *FORGETTING], name)
def test_the_model_is_the_worker(model: Model) -> None:
    full = model.full_bitmap
    for received, result in explored(model).results:
        worker = SlotClient(
            LAYOUT,
            JobMembership(0, model.workers, job=7, epoch=3, window=model.window),
            source=Endpoint.of_worker(0),
            switch=Endpoint.of_switch(),
        )
        words = np.zeros(model.chunks * LAYOUT.values, np.int32)
        worker.start([Segment(ReduceOp.SUM, words)], 0.0)
        sent = set(parse_strict(LAYOUT, worker.outgoing(0.0)).header["sequence"].tolist())
        for chunk in sorted(received):
            known = Result(chunk, full, model.total(chunk, full))
            assert worker.receive(result_frame(model, known, 0), 0.0) == 1
            sent |= set(parse_strict(LAYOUT, worker.outgoing(0.0)).header["sequence"].tolist())
        assert sent == {chunk + 1 for chunk in model.sent(received)}
        accepted = worker.receive(result_frame(model, result, 0), 0.0)
        assert accepted == model.accepts(received, result)
