"""Which packets share no state, by the program alone; and the same program on several threads."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from innet import programs
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.switch import Switch, inline, ir, load_program, load_text
from innet.switch.sharding import EntryBit, Sharding, offset_in, sharding_of
from innet.topology import Request, make_plan
from innet.wire import pack

ROOT = Path(__file__).parents[3]
RAW = bytes(12) + b"\x88\xb5"
OVER_IP = bytes(12) + b"\x08\x00\x45" + bytes(8) + bytes([17]) + bytes(10) + bytes(2) + b"\xbe\xef"


def shipped(name: str, values: int) -> ir.Program:
    return load_text(programs.find(name, values).text())


def example(name: str) -> ir.Program:
    return load_program(ROOT / "p4" / "examples" / f"{name}.json")


@pytest.mark.parametrize(("name", "values"), [("slots", 32), ("collectives", 64)])
def test_slots_share_nothing_with_each_other(name, values):
    program = shipped(name, values)
    found = sharding_of(program)
    assert found.reason == ""
    assert found.field is not None
    assert program.name_of(found.field) == "innet.slot"
    assert found.bits == tuple(range(16))
    action = next(i for i, each in enumerate(program.actions) if each.name.endswith(".admit"))
    base = [each.name for each in program.actions[action].parameters].index("slot_base")
    assert found.zeros == tuple(frozenset({EntryBit(action, base, bit)}) for bit in range(16))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda: shipped("harvest", 64), "packets are cloned, resubmitted or recirculated"),
        (lambda: shipped("hashed", 32), "the index of register .*aggregators.key is no field"),
        (lambda: example("balance"), "the index of register Balance.loads is no field"),
        (lambda: example("consensus"), "the index of register Consensus.next_instance is no field"),
        (lambda: example("cache"), "digests such as hot_key_t leave in the order of packets"),
    ],
)
def test_what_forbids_it_is_named(program, said):
    found = sharding_of(program())
    assert found.field is None
    assert re.match(said, found.reason)


def test_a_program_without_state_has_no_field():
    assert sharding_of(example("forward")) == Sharding()


def test_an_example_of_a_user():
    program = example("aggregation")
    found = sharding_of(program)
    assert found.field is not None
    assert program.name_of(found.field) == "chunk.slot"
    assert not any(found.zeros)


def two_registers(program: ir.Program, change) -> ir.Program:
    """The program with another index of its first register in one action."""
    actions = list(program.actions)
    for number, action in enumerate(actions):
        for position, primitive in enumerate(action.primitives):
            if isinstance(primitive, ir.RegisterRead) and primitive.register == 0:
                primitives = list(action.primitives)
                primitives[position] = replace(primitive, index=change(primitive.index))
                actions[number] = replace(action, primitives=tuple(primitives))
                fingerprint = f"{program.fingerprint} {change}"
                return replace(program, actions=tuple(actions), fingerprint=fingerprint)
    raise AssertionError


@pytest.mark.parametrize(
    "change",
    [
        lambda _: ir.Const(3),
        lambda index: ir.Binary(ir.DataOperator.SHIFT_LEFT, index, ir.Const(1)),
        lambda index: ir.Binary(ir.DataOperator.XOR, index, ir.Const(1 << 20)),
        lambda index: ir.Binary(ir.DataOperator.ADD, index, ir.Const(1)),
        lambda index: ir.RegisterElement(1, index),
    ],
)
def test_one_access_elsewhere_forbids_it(change):
    """A number, a shift, a carry, what is in a register: a cell may be that of another slot."""
    program = two_registers(shipped("slots", 32), change)
    found = sharding_of(program)
    if "XOR" in str(change(ir.Const(0))):  # another cell, by bits above the slot's
        assert found.reason == ""
        return
    assert "register SlotsIngress.pool.chunk" in found.reason


def test_entries_are_looked_at():
    program = shipped("slots", 32)
    found, plan = sharding_of(program), make_plan("slots", 32, Request(workers=2, window=16))
    switch = Switch(program)
    assert found.broken_by(switch.state, 0xFFFF) is None
    job = replace(plan.job, slot_base=32)
    switch.commands("\n".join(job.commands(0)))
    assert found.broken_by(switch.state, 31) is None
    assert found.broken_by(switch.state, 63) == "SlotsIngress.admission.admission"


def test_where_the_field_is():
    program = shipped("slots", 32)
    field = sharding_of(program).field
    assert field is not None
    assert offset_in(program, field, RAW, 14 + 32) == 8 * (14 + 12)
    assert offset_in(program, field, OVER_IP, 42 + 32) == 8 * (42 + 12)
    assert offset_in(program, field, RAW[:13], 14 + 32) is None
    assert offset_in(program, field, RAW, 14 + 31) is None
    assert offset_in(program, field, bytes(14), 200) is None


def traffic(plan, rng, count):
    """Random packets of all workers, of few chunks; some of them are damaged."""
    slots, parts = plan.job.slots, []
    for worker, host in enumerate(plan.workers):
        chunks = np.sort(rng.integers(1, 3 * slots, count))
        frames = pack(
            plan.layout, host.endpoint, host.peer,
            rng.integers(-(2**31), 2**31, (count, plan.layout.values)).astype(np.int32),
            operation=ReduceOp.SUM, job=plan.job.number, epoch=plan.job.epoch,
            sequence=chunks.astype(np.uint32), slot=(chunks % slots).astype(np.uint16),
            slot_version=(chunks // slots & 1).astype(np.uint8), worker=worker,
        )  # fmt: skip
        damaged = np.flatnonzero(rng.random(count) < 0.05)
        frames[damaged, rng.integers(0, frames.shape[1], len(damaged))] ^= 1
        parts.append(frames)
    order = rng.permuted(np.repeat(np.arange(len(parts)), count))
    rows = np.array([np.cumsum(order == worker) for worker in range(len(parts))])
    data = np.array([parts[worker][rows[worker, i] - 1] for i, worker in enumerate(order)])
    length = np.full(len(data), data.shape[1], np.int32)
    return PacketBatch(data, length, (order + 1).astype(np.int32))


def run_all(program, count):
    """What leaves when compiled code runs the first ``count`` packets of its memory."""
    left, first = [], 0
    while first < count:
        first, produced, failed = inline.run_inline(program, first, count, 5)
        assert failed == 0
        out = PacketBatch(program.out, program.out_length, program.out_port)
        left += out.take(np.arange(produced)).to_packets()
    return left


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_leave_what_one_leaves(threads):
    """The same packets in the same order for each slot, the same registers and counters."""
    program = shipped("slots", 32)
    plan = make_plan("slots", 32, Request(workers=3, window=16))
    rng = np.random.default_rng(threads)
    one, many = (Switch(program) for _ in range(2))
    for each in (one, many):
        each.commands("\n".join(plan.job.commands(0)))
    memory = [
        PacketBatch(np.zeros((900, 300), np.uint8), *np.zeros((2, 900), np.int32))
        for _ in range(threads)
    ]
    running = [many.inline(each, beside=number > 0) for number, each in enumerate(memory)]
    at = 42 + 13  # the low byte of the slot's number
    with ThreadPoolExecutor(threads) as pool:
        for is_admitted in (True, True, False):
            if not is_admitted:  # what the control plane changes reaches all threads
                one.table_clear("admission")
                many.table_clear("admission")
            batch = traffic(plan, rng, 300)
            one.state.clock = 5
            expected = one.process_batch(batch).to_packets()
            programs_ = [each.begin() for each in running]
            counts = []
            for number, each in enumerate(memory):
                mine = np.flatnonzero(batch.data[:, at] % threads == number)
                each.data[: len(mine), : batch.data.shape[1]] = batch.data[mine]
                each.length[: len(mine)] = batch.length[mine]
                each.port[: len(mine)] = batch.port[mine]
                counts.append(len(mine))
            found = [x for part in pool.map(run_all, programs_, counts) for x in part]
            for each in running:
                each.end()
            assert len(found) == len(expected)
            assert (len(found) > 200) == is_admitted
            for slot in range(16):
                there, here = ([x for x in each if x[1][at] == slot] for each in (expected, found))
                assert there == here
            for mine, its in zip(one.state.registers, many.state.registers, strict=True):
                np.testing.assert_array_equal(mine, its)
            for mine, its in zip(one.state.counters, many.state.counters, strict=True):
                np.testing.assert_array_equal(mine, its)
            assert one.statistics == many.statistics
            assert one.counters["dropped"].packets[1:4].sum() > 0
