"""All that can happen to hashed.p4 in small networks: no wrong sum, no deadlock.

As ``test_model_check`` for the slot pool: a model of a page (``support.hashed_model``) is explored,
and every pair of a node's contents and a packet that was met is put to the compiled program on both
engines, and to the parameter server. The second tier explores larger networks
too, which takes some minutes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from support import hashed_model
from support.exploring import Explored, Part, Result, WrongSumError, each_model, explore
from support.hashed_model import SERVER, Aggregator, Copy, HashedModel
from support.tiers import tiered

from innet.core.reduce_op import ReduceOp
from innet.protocol import SlotRegisters
from innet.protocol.parameter_server import ALL_WORKERS, ParameterServer
from innet.switch import Switch
from innet.topology import Plan, Request, make_plan
from innet.wire import Endpoint, HeaderFlag, PacketLayout, pack, parse_strict

LAYOUT = PacketLayout(32)
JOB, EPOCH = 7, 3
SUMMED = int(ReduceOp.SUM) << 12 | LAYOUT.values  # register ``chunk_signature``

PAIR = ((0,), (1,))
HASHED = [
    HashedModel(((0, 1),), 1, 5),
    HashedModel(((0, 1, 2),), 1, 2),
    HashedModel(((0, 1),), 1, 3, restarts=1),
    HashedModel(((0, 1),), 1, 2, partial=True),
    HashedModel(PAIR, 1, 1, partial=True, restarts=1),
]
LARGER = [
    HashedModel(((0, 1),), 2, 3),
    HashedModel(PAIR, 1, 3),
    HashedModel(((0, 1),), 2, 5),
    HashedModel(((0, 1),), 2, 5, places=2),
    HashedModel(((0, 1, 2),), 1, 3),
    HashedModel(PAIR, 1, 4),
    HashedModel(PAIR, 2, 3),
    HashedModel(PAIR, 1, 3, restarts=1),
    HashedModel(((0, 1),), 1, 3, partial=True),
    HashedModel(PAIR, 1, 2, partial=True),
]


def name(model: HashedModel) -> str:
    racks = "".join(str(len(rack)) for rack in model.racks)
    kind = "-partial" * model.partial + "-restart" * model.restarts
    return f"{racks}-{model.window}-{model.chunks}{kind}"


@cache
def explored(model: HashedModel) -> Explored:
    return explore(model, ends=not model.partial)


@each_model(HASHED, name, larger=LARGER)
def test_every_interleaving_is_exact_and_ends(model: HashedModel) -> None:
    """Any packet lost, repeated or delayed for any time; switches that forget; partial results."""
    found = explored(model)
    assert found.stuck == 0
    done = [
        nodes for nodes in found.known if all(len(own) == model.chunks for own in nodes.received)
    ]
    assert done
    if model.partial:  # and everybody can be missing
        lacking = {bits for nodes in done for own in nodes.received for _, bits in own}
        assert lacking == set(range(1, 1 << model.workers))


def test_the_exploration_finds_what_is_wrong() -> None:
    """A server that adds whatever comes."""
    with pytest.raises(WrongSumError):
        explore(HashedModel(((0, 1, 2),), 1, 1, looks=False))


# ---------------------------------------------------------------- the model is the program


def words(total: int, workers: int) -> list[int]:
    return [total >> 16 * worker & 0xFFFF for worker in range(workers)]


def total_of(values: list[int]) -> int:
    return sum(int(value) << 16 * worker for worker, value in enumerate(values))


def frame(
    model: HashedModel,
    packet: Part | Result,
    *,
    worker: int,
    said: int,
) -> bytes:
    """A packet of the model; ``said`` is what its header's bitmap holds."""
    values = np.zeros((1, LAYOUT.values), np.int32)
    values[0, : model.workers] = words(packet.total, model.workers)
    flags = HeaderFlag.RESULT
    if isinstance(packet, Part):
        flags = HeaderFlag.RESEND if packet.again else HeaderFlag(0)
        if packet.request:
            flags |= HeaderFlag.PARTIAL | HeaderFlag(packet.request - 1 << 6)
    elif packet.bits != (1 << model.workers) - 1:
        flags |= HeaderFlag.PARTIAL
    return pack(
        LAYOUT,
        Endpoint.of_worker(0),
        Endpoint.of_switch(),
        values,
        operation=ReduceOp.SUM,
        job=JOB,
        epoch=EPOCH,
        sequence=packet.chunk + 1,
        slot=packet.chunk % model.window,
        slot_version=packet.chunk // model.window % 2,
        worker=worker,
        flags=flags,
        bitmap=said,
        count=said.bit_count(),
    )[0].tobytes()


def heard(model: HashedModel, answers: list[tuple[int, bytes]]) -> dict[int, tuple]:
    """By port: (chunk, bitmap, total, flags)."""
    found = {}
    for port, data in answers:
        batch = parse_strict(LAYOUT, data)
        header = batch.header[0]
        assert int(header["count"]) == int(header["bitmap"]).bit_count()
        total = total_of(batch.values[0, : model.workers].tolist())
        flags = int(header["flags"])
        found[port] = (int(header["sequence"]) - 1, int(header["bitmap"]), total, flags)
    assert len(found) == len(answers)
    return found


def plan_of(model: HashedModel) -> Plan:
    request = Request(
        workers=model.workers,
        racks=len(model.racks) if len(model.racks) > 1 else None,
        window=model.window,
        job=JOB,
        epoch=EPOCH,
    )
    return make_plan("hashed", LAYOUT.values, request)


def switches(model: HashedModel, engine: str) -> Iterator[Switch]:
    """Those of the racks, then the one above."""
    plan = plan_of(model)
    for planned in (*plan.switches[1:], plan.switches[0]):
        switch = Switch.load(planned.program.json(), engine=engine)
        for command in planned.commands:
            switch.command(command)
        yield switch


def below(racks: tuple[tuple[int, ...], ...], switch: int) -> list[int]:
    """The ports below a switch; the one above the racks is numbered behind them."""
    if len(racks) > 1 and switch == len(racks):
        return [101 + rack for rack in range(len(racks))]
    return [worker + 1 for worker in racks[switch]]


def sender(model: HashedModel, switch: int, packet: Part | Result) -> tuple[int, int, int]:
    """(port, index, what its bitmap says) of a packet that reaches a switch."""
    racks = model.racks
    first = next(w for w in range(model.workers) if packet.bits >> w & 1)
    if isinstance(packet, Result):
        worker = 0 if switch == len(racks) else racks[switch][0]
        return 100, worker, packet.bits
    if len(racks) > 1 and switch == len(racks):
        rack = next(i for i, workers in enumerate(racks) if first in workers)
        return 101 + rack, first, packet.bits
    return first + 1, first, 0


@pytest.mark.parametrize("engine", tiered(["jit", "interpret"], ["jit"], "the same compiled"))
@each_model(HASHED, name, larger=LARGER)
def test_the_model_is_hashed(model: HashedModel, engine: str) -> None:
    explored(model)
    nodes = list(switches(model, engine))
    for at, held, packet in sorted((each for each in model.met if each[0] != SERVER), key=repr):
        switch = nodes[at]
        key = struct.pack(">HHI", JOB, EPOCH, packet.chunk + 1)
        index = zlib.crc32(key) % len(switch.registers["aggregators.key"])
        put_aggregator(switch, index, held, model.workers)
        port, worker, said = sender(model, at, packet)
        if isinstance(packet, Result):
            worker = ALL_WORKERS
        answers = heard(
            model, switch.process([(port, frame(model, packet, worker=worker, said=said))])
        )
        if isinstance(packet, Result):
            assert get_aggregator(switch, index, model.workers) == (
                hashed_model.FREE if held.chunk == packet.chunk else held
            )
            flags = HeaderFlag.RESULT | (packet.bits != model.full_bitmap) * HeaderFlag.PARTIAL
            assert answers == dict.fromkeys(below(model.racks, at), (*packet, int(flags)))
            continue
        after, up = model.add(at, held, packet)
        assert get_aggregator(switch, index, model.workers) == after
        if up is None:
            assert answers == {}
        else:
            (flags,) = (answer[3] for answer in answers.values())
            assert bool(flags & HeaderFlag.RESEND) == up.again
            request = int(HeaderFlag.PARTIAL) | up.request - 1 << 6 if up.request else 0
            assert flags & (HeaderFlag.PARTIAL | HeaderFlag.URGENCY) == request
            assert answers == {100: (up.chunk, up.bits, up.total, flags)}


def put_aggregator(switch: Switch, index: int, held: Aggregator, workers: int) -> None:
    registers = switch.registers
    key = 0 if held.chunk is None else JOB << 48 | EPOCH << 32 | held.chunk + 1
    registers["aggregators.key"][index] = key
    registers["aggregators.chunk_signature"][index] = SUMMED
    registers["aggregators.bitmap"][index] = held.bits
    registers["aggregators.count"][index] = held.bits.bit_count()
    for worker, value in enumerate(words(held.total, workers)):
        registers[f"HashedIngress.values.value{worker}"][index] = value


def get_aggregator(switch: Switch, index: int, workers: int) -> Aggregator:
    registers = switch.registers
    key = int(registers["aggregators.key"][index])
    if not key:
        return hashed_model.FREE
    values = [registers[f"HashedIngress.values.value{worker}"][index] for worker in range(workers)]
    bits = int(registers["aggregators.bitmap"][index])
    assert registers["aggregators.count"][index] == bits.bit_count()
    return Aggregator((key & 0xFFFF_FFFF) - 1, bits, total_of(values))


@each_model(HASHED, name, larger=LARGER)
def test_the_model_is_the_server(model: HashedModel) -> None:
    explored(model)
    plan = plan_of(model)
    for _, held, packet in sorted((each for each in model.met if each[0] == SERVER), key=repr):
        server = ParameterServer(
            LAYOUT,
            workers=model.workers,
            job=JOB,
            epoch=EPOCH,
            window=plan.window,
            source=Endpoint.of_server(),
            switch=Endpoint.of_switch(),
        )
        put_copy(server, model.place(packet.chunk), held, model)
        _, worker, _ = sender(model, model.top, packet)
        data = frame(model, packet, worker=worker, said=packet.bits)
        server.receive(np.frombuffer(data, np.uint8)[None], 0.0)
        after, answer = model.serve(held, packet)
        place = divmod(model.place(packet.chunk), 2)
        assert server.registers(*place) == SlotRegisters(after.sequence, after.bits)
        said = [(each, row.tobytes()) for each, row in enumerate(server.outgoing(0.0))]
        if answer is None:
            assert said == []
            continue
        partial = answer.bits != model.full_bitmap
        flags = int(HeaderFlag.RESULT) | partial * int(HeaderFlag.PARTIAL)
        assert heard(model, said) == {0: (*answer, flags)}
        to = int(parse_strict(LAYOUT, said[0][1]).header["worker"][0])
        was_closed = held.closed and held.sequence == packet.chunk + 1
        assert to == (worker if was_closed else ALL_WORKERS)


def put_copy(server: ParameterServer, copy: int, held: Copy, model: HashedModel) -> None:
    """Bring the server to what the model's holds."""
    if not held.sequence:
        return
    part = Part(held.sequence - 1, held.bits, held.total, True, 2 * held.closed)
    data = frame(model, part, worker=0, said=held.bits)
    server.receive(np.frombuffer(data, np.uint8)[None], 0.0)
    server.outgoing(0.0)
    assert server.registers(*divmod(copy, 2)) == SlotRegisters(held.sequence, held.bits)
