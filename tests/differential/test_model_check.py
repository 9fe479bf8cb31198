"""All that can happen to two or three workers on a few slots: no wrong sum, no deadlock.

Of all-reduces, and of chunks with an owner: reduce, broadcast and barrier.

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
from support.traffic import without_values

from innet import programs
from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp, Segment
from innet.protocol import JobMembership, SlotClient
from innet.protocol.admission import Job, WorkerPort
from innet.switch import Switch, ir, load_program
from innet.wire import WITHOUT_VALUES, Endpoint, HeaderFlag, PacketLayout, pack, parse_strict

# Workers, slots, chunks. Each slot has two copies: with so many chunks each is taken over.
WAITING = [Model(2, 1, 6), Model(2, 2, 8), Model(3, 1, 5)]
PARTIAL = [Model(2, 1, 4, partial=True)]
FORGETTING = [Model(2, 1, 4, restarts=1), Model(3, 1, 3, restarts=2)]
LARGER_WAITING = [Model(3, 2, 7)]
LARGER_PARTIAL = [Model(2, 2, 4, partial=True)]
LARGER_FORGETTING = [Model(2, 2, 4, restarts=1)]
ALL = [*WAITING, *PARTIAL, *FORGETTING]
LARGER = [*LARGER_WAITING, *LARGER_PARTIAL, *LARGER_FORGETTING]

# With owners: each kind takes over the others' slots, and so do sums. Operations side by side
# differ, as chunks of different owners of one take turns.
THREE = ((CollectiveOp.REDUCE, 0), (CollectiveOp.BROADCAST, 1), (CollectiveOp.BARRIER, 0))
MIXED = (
    (CollectiveOp.BROADCAST, 0), (ReduceOp.SUM, None), (CollectiveOp.BARRIER, 1),
    (CollectiveOp.REDUCE, 1), (ReduceOp.SUM, None), (CollectiveOp.REDUCE, 0),
)  # fmt: skip
WAITING += [Model(2, 1, 6, kinds=THREE), Model(2, 1, 9, kinds=MIXED), Model(3, 1, 5, kinds=THREE)]
PARTIAL += [Model(2, 1, 4, partial=True, kinds=THREE)]
FORGETTING += [Model(2, 1, 4, restarts=1, kinds=THREE)]
LARGER_WAITING = [Model(2, 2, 8, kinds=THREE), Model(3, 2, 7, kinds=MIXED)]
LARGER_PARTIAL = [
    Model(2, 1, 5, partial=True, kinds=MIXED),
    Model(2, 2, 4, partial=True, kinds=THREE),
]
LARGER_FORGETTING = [
    Model(2, 2, 4, restarts=1, kinds=MIXED),
    Model(3, 1, 3, restarts=2, kinds=THREE),
]
ALL = [*WAITING, *PARTIAL, *FORGETTING]
LARGER = [*LARGER_WAITING, *LARGER_PARTIAL, *LARGER_FORGETTING]


def name(model: Model) -> str:
    kind = "partial-" if model.partial else "restart-" if model.restarts else ""
    kinds = f"-owners-{len(model.kinds)}" if model.has_owners else ""
    return f"{kind}{model.workers}-{model.window}-{model.chunks}{kinds}"


def layout_of(model: Model) -> PacketLayout:
    return PacketLayout(64, has_owners=True) if model.has_owners else PacketLayout(32)


@cache
def explored(model: Model) -> Explored:
    return explore(model)


@each_model(WAITING, name, larger=LARGER_WAITING)
def test_every_interleaving_is_exact_and_ends(model: Model) -> None:
    """Any packet lost, repeated or delayed for any time; no state from which it does not end."""
    found = explored(model)
    assert found.stuck == 0
    assert found.states > 30 * model.window


@each_model(PARTIAL, name, larger=LARGER_PARTIAL)
def test_partial_results_are_the_same_for_all(model: Model) -> None:
    """Whoever asks for what is there, whenever: all who get a chunk's result get the same one."""
    found = explored(model)
    assert any(result.bitmap != model.full_bitmap for *_, result in found.results)


@each_model(FORGETTING, name, larger=LARGER_FORGETTING)
def test_a_switch_that_forgets_stalls_the_job_at_worst(model: Model) -> None:
    found = explored(model)
    assert 0 < found.stuck < found.states  # for these there is the next epoch


def test_the_exploration_finds_what_is_wrong_with_switchml() -> None:
    """Without sequences a duplicate that comes late enough counts for a newer chunk."""
    with pytest.raises(WrongSumError):
        explore(Model(2, 1, 4, remembers=False))


def test_the_exploration_finds_values_that_another_chunk_left() -> None:
    with pytest.raises(WrongSumError):
        explore(Model(2, 1, 4, kinds=THREE[:1], clears=False))


# ---------------------------------------------------------------- the model is the program


@cache
def program(name: str) -> ir.Program:
    return load_program(programs.find(name, {"slots": 32, "collectives": 64}[name]).json())


def job_of(model: Model) -> Job:
    members = [WorkerPort(i + 1, Endpoint.of_worker(i)) for i in range(model.workers)]
    return Job(members, number=7, epoch=3, slots=model.window)


def frame_of(model: Model, sent: Contribution) -> bytes:
    frame = packed(
        model,
        sent.chunk,
        model.words(sent),
        sent.worker,
        is_result=False,
        flags=HeaderFlag.PARTIAL if sent.partial else HeaderFlag(0),
    )
    if model.has_owners and not model.sends(sent.worker, sent.chunk):
        return without_values(layout_of(model), frame)
    return frame


def packed(
    model: Model, chunk: int, words: tuple[int, ...], worker: int, *, is_result: bool, **fields: int
) -> bytes:
    """A whole frame of a chunk, from a worker or to one."""
    layout = layout_of(model)
    operation, owner = model.kind(chunk)
    values = np.zeros((1, layout.values), np.int32)
    values[0, : model.workers] = words
    ends = Endpoint.of_worker(worker), Endpoint.of_switch()
    return pack(
        layout,
        *(ends[::-1] if is_result else ends),
        values,
        operation=operation,
        job=7,
        epoch=3,
        sequence=chunk + 1,
        slot=chunk % model.window,
        slot_version=chunk // model.window % 2,
        worker=worker,
        exponent=owner or 0,
        **fields,
    )[0].tobytes()


def put_cell(model: Model, switch: Switch, index: int, cell: Cell) -> None:
    """Make the registers say what the model says; an empty cell is that of another owner."""
    registers = switch.registers
    pool = "SlotsIngress.pool."
    tenant = 7 << 16 | 3 if cell.sequence else 0
    operation, owner = model.kind(max(0, cell.sequence - 1))
    signature = int(operation) << 28 | layout_of(model).values << 17 | cell.closed << 16
    registers[pool + "chunk"][index] = tenant << 32 | cell.sequence
    registers[pool + "worker_bitmap"][index] = signature << 32 | cell.bitmap
    registers[pool + "count"][index] = cell.bitmap.bit_count()
    registers[pool + "exponent"][index] = owner or 0
    if model.has_owners:
        registers[pool + "owner"][index] = owner or 0
    for worker, total in enumerate(cell.totals):
        registers[f"SlotsIngress.values.value{worker}"][index] = total


def get_cell(model: Model, switch: Switch, index: int) -> Cell:
    registers = switch.registers
    pool = "SlotsIngress.pool."
    sequence = int(registers[pool + "chunk"][index]) % 2**32
    signature, bitmap = divmod(int(registers[pool + "worker_bitmap"][index]), 2**32)
    assert registers[pool + "count"][index] == bitmap.bit_count()
    operation, owner = model.kind(sequence - 1)
    assert signature >> 28 == operation
    if owner is not None:
        assert registers[pool + "owner"][index] == owner
    return Cell(
        sequence,
        bitmap,
        bool(signature >> 16 & 1),
        tuple(int(registers[f"SlotsIngress.values.value{w}"][index]) for w in range(model.workers)),
    )


@pytest.mark.parametrize("engine", tiered(["jit", "interpret"], ["jit"], "the same compiled"))
@each_model(ALL, name, larger=LARGER)
def test_the_model_is_the_switch_program(model: Model, engine: str) -> None:
    layout = layout_of(model)
    switch = Switch.load(program("collectives" if model.has_owners else "slots"), engine=engine)
    for command in job_of(model).commands():
        switch.command(command)
    for cell, sent in sorted(explored(model).cells):
        index = model.place(sent.chunk)
        put_cell(model, switch, index, cell)
        answers = switch.process([(sent.worker + 1, frame_of(model, sent))])
        after, answer = model.arrive(cell, sent)
        assert get_cell(model, switch, index) == after
        results = {}
        for port, data in answers:
            header = parse_strict(layout, data).header
            values = parse_strict(layout, data).values[0]
            is_bare = len(data) == layout.bare_size
            assert bool(header["operation"][0] & WITHOUT_VALUES) == is_bare
            assert header["exponent"][0] == (model.kind(sent.chunk)[1] or 0)
            assert port == int(header["worker"][0]) + 1
            assert int(header["count"][0]) == int(header["bitmap"][0]).bit_count()
            complete = int(header["bitmap"][0]) == model.full_bitmap
            assert bool(header["flags"][0] & HeaderFlag.PARTIAL) != complete
            results[port - 1] = Result(
                int(header["sequence"][0]) - 1,
                int(header["bitmap"][0]),
                None if is_bare else tuple(values[: model.workers].tolist()),
            )
        if answer is None:
            assert results == {}
        else:
            addressees = range(model.workers) if answer.to is None else (answer.to,)
            assert results == {each: model.told(answer.result, each) for each in addressees}


def result_frame(model: Model, result: Result, worker: int) -> PacketBatch:
    complete = result.bitmap == model.full_bitmap
    frame = packed(
        model,
        result.chunk,
        result.totals or (0,) * model.workers,
        worker,
        is_result=True,
        flags=HeaderFlag.RESULT if complete else HeaderFlag.RESULT | HeaderFlag.PARTIAL,
        bitmap=result.bitmap,
        count=result.bitmap.bit_count(),
    )
    if result.totals is None:
        frame = without_values(layout_of(model), frame)
    return PacketBatch.from_packets([(0, frame)])


@each_model(ALL, name, larger=LARGER)
def test_the_model_is_the_worker(model: Model) -> None:
    full, layout = model.full_bitmap, layout_of(model)
    kinds = [model.kind(chunk) for chunk in range(model.chunks)]
    words = np.zeros(layout.values, np.int32)

    def sent_by(worker: SlotClient) -> set[int]:
        frames = parse_strict(layout, worker.outgoing(0.0))
        return {int(sequence) - 1 for sequence in frames.header["sequence"]}

    for index, received, result in explored(model).results:
        worker = SlotClient(
            layout,
            JobMembership(index, model.workers, job=7, epoch=3, window=model.window),
            source=Endpoint.of_worker(index),
            switch=Endpoint.of_switch(),
        )
        worker.start([Segment(operation, words, owner) for operation, owner in kinds], 0.0)
        sent = sent_by(worker)
        for chunk in sorted(received):
            known = model.told(Result(chunk, full, model.total(chunk, full)), index)
            assert worker.receive(result_frame(model, known, index), 0.0) == 1
            sent |= sent_by(worker)
        assert sent == set(model.sent(received))
        accepted = worker.receive(result_frame(model, result, index), 0.0)
        assert accepted == model.accepts(index, received, result)
