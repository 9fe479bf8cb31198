"""tree and hashed beside strangers: what is mangled or hostile touches no sum and is counted."""

from __future__ import annotations

import os

import numpy as np
import pytest
from support.networks import all_reduce, contributions, network
from support.traffic import without_values

from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.topology import EmulatedNetwork
from innet.wire import Endpoint, HeaderFlag, pack, seal

# INNET_MANGLED=1000000 is the long run; docs/tree.md says what it gave.
MANGLED = int(os.environ.get("INNET_MANGLED", "100000"))
BATCH = 10_000
SHAPE = [(ReduceOp.SUM, 500), (ReduceOp.MAX, 100), (ReduceOp.OR, 40)]
OWNED = [(each, 300, owner) for owner, each in enumerate(CollectiveOp)]


def dropped(net: EmulatedNetwork, switch: str) -> int:
    return int(net.switches[switch].counters["dropped"].packets.sum())


def genuine(net: EmulatedNetwork, rng: np.random.Generator, number: int, **changes) -> np.ndarray:
    """What workers of the job could send, of any chunk."""
    job = net.plan.job
    chunk = rng.integers(0, 200, number)
    fields = {
        "operation": rng.integers(1, 4, number).astype(np.uint8),
        "job": job.number,
        "epoch": job.epoch,
        "sequence": (chunk + 1).astype(np.uint32),
        "slot": (chunk % job.slots).astype(np.uint16),
        "slot_version": (chunk // job.slots & 1).astype(np.uint8),
        "worker": rng.integers(0, 4, number).astype(np.uint16),
        "flags": (rng.integers(0, 2, number) * int(HeaderFlag.RESEND)).astype(np.uint8),
        **changes,
    }
    words = rng.integers(-(2**31), 2**31, (number, net.plan.layout.values)).astype(np.int32)
    return pack(net.plan.layout, Endpoint.of_worker(0), Endpoint.of_switch(), words, **fields)


def mangled(net: EmulatedNetwork, rng: np.random.Generator, count: int) -> PacketBatch:
    """Packets none of which may be let in: damaged, cut short, random, or from a strange port."""
    frames = genuine(net, rng, count)
    size = frames.shape[1]
    rows = np.arange(count)
    kind = rng.integers(0, 4, count)
    length = np.full(count, size, np.int32)
    port = rng.choice(np.array([1, 2, 3, 4, 100, 101, 102], np.int32), count)
    # One byte of the innet header or values: a checksum always tells.
    place = rng.integers(net.plan.layout.header_offset, size, count)
    flip = rng.integers(1, 256, count).astype(np.uint8)
    damaged = kind == 0
    frames[rows[damaged], place[damaged]] ^= flip[damaged]
    cut = kind == 1
    length[cut] = rng.integers(0, size, int(cut.sum()))
    noise = kind == 2
    frames[noise] = rng.integers(0, 256, (int(noise.sum()), size)).astype(np.uint8)
    frames[noise, 12:14] = 0x99  # of a protocol that nobody speaks
    port[kind == 3] = rng.integers(200, 511, int((kind == 3).sum()))
    return PacketBatch(frames, length, port)


@pytest.mark.parametrize(
    ("program", "shape"),
    [
        ("tree", {"racks": 2}),
        ("tree", {"topology": "leaf-spine:racks=2,spines=3,trees=3"}),
        ("hashed", {"racks": 2}),
    ],
    ids=["tree", "three trees", "hashed"],
)
def test_mangled_packets_change_nothing_and_are_all_counted(program, shape):
    rng = np.random.default_rng(5)
    net = network(program, 4, **shape)
    sent = 0
    while sent < MANGLED:
        count = min(BATCH, MANGLED - sent)
        for switch in net.switches:
            before = dropped(net, switch)
            batch = mangled(net, rng, count)
            assert len(net.switches[switch].process_batch(batch)) == 0
            assert dropped(net, switch) - before == count
        sent += count
        all_reduce(net, contributions(rng, 4, SHAPE))
    for end in net.workers:
        assert end.counters.retransmissions == 0
        assert end.counters.refused == {}


def admit_hostile(net: EmulatedNetwork, program: str, number: int, port: int) -> None:
    """A job of one worker at ``port`` of every switch, with slots beside those of the honest."""
    for switch in net.switches.values():
        if program != "hashed":
            family = "TreeIngress.admission"
            lines = [
                f"table_add {family}.admission {family}.admit_worker {port} {number} 0 0 => 1",
                f"table_add {family}.position {family}.set_root {number} 0 => 1 {number} 8 7 0 1 1",
            ]
            if net.plan.layout.has_owners:
                place = f"{number} 0->3 => 0 0 0 1"
                lines.append(f"table_add {family}.owners {family}.owner_below {place}")
        else:
            near, down = "HashedIngress.admission", "HashedIngress.result_forwarding"
            lines = [
                f"table_add {near}.worker_admission {near}.admit_worker {port} {number} 0 0 => 1",
                # It says that three more are to come, so that what it takes is never complete.
                f"table_add {near}.position {near}.set_position {number} 0 => 15 {number} 100 16",
                f"table_add {down}.route {down}.forward {number} 0 0 => {port}",
            ]
        lines.append(f"mc_mgrp_create {number}")
        for line in lines:
            switch.command(line)


def hostile(net: EmulatedNetwork, rng: np.random.Generator, number: int, port: int) -> PacketBatch:
    """Packets with right checksums and any fields: of its own job, and posing as the honest one."""
    count = 500
    job, layout = net.plan.job, net.plan.layout
    own = rng.random(count) < 0.5
    frames = genuine(
        net,
        rng,
        count,
        job=np.where(own, number, job.number).astype(np.uint16),
        epoch=np.where(own, 0, job.epoch).astype(np.uint16),
        sequence=rng.integers(0, 2**32, count).astype(np.uint32),
        slot=rng.integers(0, 40, count).astype(np.uint16),
        worker=rng.choice(np.array([0, 0, 1, 2, 3, 0xFFFF], np.uint16), count),
        bitmap=rng.choice(np.array([0, 0, 1, 3, 15], np.uint32), count),
        count=rng.integers(0, 5, count).astype(np.uint16),
        operation=rng.integers(1, 7 if layout.has_owners else 4, count).astype(np.uint8),
        exponent=rng.integers(0, 5, count).astype(np.uint16),
        flags=rng.choice(np.array([0, 0, 2, 4, 8, 16, 17, 32, 96, 228], np.uint8), count),
    )
    seal(layout, frames)
    batch = PacketBatch.uniform(frames, port)
    for row in np.flatnonzero(rng.random(count) < 0.3 * layout.has_owners):
        bare = without_values(layout, frames[row].tobytes())
        batch.data[row, : len(bare)], batch.length[row] = np.frombuffer(bare, np.uint8), len(bare)
    return batch


@pytest.mark.parametrize(
    ("program", "shape"),
    [
        ("tree", {"racks": 2}),
        ("tree", {"topology": "leaf-spine:racks=2,spines=3,trees=3"}),
        ("collectives-tree", {"racks": 2}),
        ("adaptive-tree", {"topology": "leaf-spine:racks=2,spines=2,trees=2"}),
        ("hashed", {"racks": 2}),
    ],
    ids=["tree", "three trees", "collectives-tree", "adaptive-tree", "hashed"],
)
def test_two_hostile_jobs_beside_an_honest_one(program, shape):
    rng = np.random.default_rng(6)
    owned = program == "collectives-tree"
    net = network(program, 4, window=8, values=64 if owned else 32, **shape)
    jobs = {8: 20, 9: 21}
    for number, port in jobs.items():
        admit_hostile(net, program, number, port)
    inner = {name: switch.process_batch for name, switch in net.switches.items()}
    leaked: list[int] = []

    def beset(name: str):
        def process(batch: PacketBatch) -> PacketBatch:
            for number, port in jobs.items():
                leaving = inner[name](hostile(net, rng, number, port))
                # To itself, or up to a server, and never to a worker of the honest job.
                leaked.extend(set(leaving.port.tolist()) - {port, 100})
            return inner[name](batch)

        return process

    for name, switch in net.switches.items():
        switch.process_batch = beset(name)
    for _ in range(3):
        all_reduce(net, contributions(rng, 4, SHAPE + OWNED * owned))
    assert not leaked
    leaf = net.plan.attachment(net.plan.hosts[0]).node
    assert dropped(net, leaf) > 1000
    if program == "hashed":
        taken = net.switches[leaf].registers["aggregators.key"] >> np.uint64(48)
        assert np.isin(taken, [8, 9]).sum() > 500
