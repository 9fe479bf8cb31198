"""Noise, damaged packets, impostors and two hostile jobs beside an honest one: no effect at all.

INNET_ATTACK_PACKETS (60000) in the environment says how many packets attack while the honest job
runs.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from support.naive_wire import ended

from innet import programs
from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp, Segment, combine
from innet.network import drive
from innet.network.faults import corrupt, truncate
from innet.protocol import JobMembership, SlotClient
from innet.protocol.admission import Job, WorkerPort
from innet.switch import Switch
from innet.transport.memory import MemoryTransport
from innet.wire import WITHOUT_VALUES, Endpoint, HeaderFlag, PacketLayout, pack

COUNT = int(os.environ.get("INNET_ATTACK_PACKETS", "60000"))
SLOTS = 16
UNADMITTED_PORT = 9  # nobody is admitted there
BATCH = 512
WORDS = np.array([0, 1, -1, 2**31 - 1, -(2**31), 2**30], np.int32)

pytestmark = pytest.mark.timeout(0 if COUNT > 1_000_000 else 300)


def member(port: int) -> WorkerPort:
    return WorkerPort(port, Endpoint.of_worker(port - 1))


HONEST = Job([member(1), member(2)], number=1, epoch=4, slots=SLOTS, group=1)
HOSTILE = [
    Job([member(3), member(4)], number=2, epoch=4, slot_base=SLOTS, slots=SLOTS, group=2),
    Job([member(5), member(6)], number=3, epoch=0, slot_base=2 * SLOTS, slots=SLOTS, group=3),
]


class Attackers:
    """Makes packets of both kinds: what must be dropped, and what hostile jobs may send."""

    def __init__(self, values: int, seed: int, *, has_owners: bool = False) -> None:
        self.values = values
        self.layouts = [
            PacketLayout(values, framing, has_owners=has_owners) for framing in ("udp", "raw")
        ]
        self.rng = np.random.default_rng(seed)
        self.heard = PacketBatch.empty()  # the last that the honest workers sent

    def claim(
        self, count: int, owner: Job, *, slots: int, ports: np.ndarray, **fixed: object
    ) -> PacketBatch:
        """Well-formed packets that claim to be of ``owner``, with whatever fields."""
        rng = self.rng
        layout = self.layouts[int(rng.integers(2))]
        chunk = rng.integers(0, 2**32, count)
        last = max(CollectiveOp) if layout.has_owners else max(ReduceOp)
        fields = {
            "operation": rng.integers(1, last + 1, count).astype(np.uint8),
            "job": np.full(count, owner.number, np.uint16),
            "epoch": owner.epoch,
            "sequence": chunk.astype(np.uint32),
            "slot": rng.integers(0, slots, count).astype(np.uint16),
            "slot_version": rng.integers(0, 2, count).astype(np.uint8),
            "worker": rng.integers(0, 2, count).astype(np.uint16),
            "elements": rng.integers(1, self.values + 1, count).astype(np.uint16),
            "flags": rng.choice(
                [0, HeaderFlag.PARTIAL, HeaderFlag.OVERFLOW, HeaderFlag.ECN], count
            ).astype(np.uint8),
            "exponent": rng.integers(0, 2 if layout.has_owners else 2**16, count).astype(np.uint16),
            "message": rng.integers(0, 3, count).astype(np.uint16),
            **fixed,
        }
        frames = pack(
            layout,
            Endpoint.of_worker(int(rng.integers(6))),
            Endpoint.of_switch(),
            rng.choice(WORDS, (count, self.values)),
            **fields,
        )
        batch = PacketBatch.uniform(frames, ports.astype(np.int32))
        return self.some_without_values(layout, batch) if layout.has_owners else batch

    def some_without_values(self, layout: PacketLayout, batch: PacketBatch) -> PacketBatch:
        """Packets of chunks with an owner, most of them with values if who sends them has some."""
        header = layout.view(batch.data)["innet"]
        operation = header["operation"].copy()
        is_owner = header["worker"] == header["exponent"]
        sends = is_owner == (operation == CollectiveOp.BROADCAST)
        sends &= operation != CollectiveOp.BARRIER
        bare = (operation > max(ReduceOp)) & (sends == (self.rng.random(len(batch)) < 0.1))
        header["operation"][bare] |= WITHOUT_VALUES
        batch.data[bare, : layout.bare_size] = ended(layout, batch.data[bare])
        batch.length[bare] = layout.bare_size
        return batch

    def droppable(self, count: int) -> PacketBatch:
        """Each of these is to be dropped."""
        rng = self.rng
        each = count // 5
        hostile_ports = rng.integers(3, 7, each)
        noise = PacketBatch(
            rng.integers(0, 256, (each, 400), np.uint8),
            rng.integers(0, 401, each, dtype=np.int32),
            rng.integers(0, UNADMITTED_PORT, each, dtype=np.int32),
        )
        parts = [
            noise,
            # They speak for the honest workers, from their own ports.
            self.claim(each, HONEST, slots=SLOTS, ports=hostile_ports),
            # Any job's packets, from where nobody is admitted.
            self.claim(
                each,
                HONEST,
                slots=2**16,
                ports=np.full(each, UNADMITTED_PORT),
                job=rng.integers(0, 5, each).astype(np.uint16),
            ),
            # Their own job, in others' slots.
            *(
                self.claim(
                    each // 2,
                    job,
                    slots=1,
                    ports=np.array([job.members[0].port] * (each // 2)),
                    worker=0,
                    slot=rng.integers(SLOTS, 2**16, each // 2).astype(np.uint16),
                )
                for job in HOSTILE
            ),
        ]
        if len(self.heard):
            parts.append(self.damaged(each))
        return PacketBatch.concatenate(parts)

    def damaged(self, count: int) -> PacketBatch:
        """What the honest workers sent, with wrong bits or cut short, from their own ports."""
        rng = self.rng
        heard = self.heard.take(rng.integers(0, len(self.heard), count))
        rows = np.arange(count)
        if rng.integers(2):
            return truncate(heard, rows, rng)
        # Behind the addresses of Ethernet and UDP, which no checksum covers.
        first = self.layouts[0].header_offset
        inner = PacketBatch(
            np.ascontiguousarray(heard.data[:, first:]), heard.length - first, heard.port
        )
        data = heard.data.copy()
        data[:, first:] = corrupt(inner, rows, rng).data
        return PacketBatch(data, heard.length, heard.port)

    def lawful(self, count: int) -> PacketBatch:
        """What hostile workers may do: anything, in their own jobs."""
        job = HOSTILE[int(self.rng.integers(2))]
        workers = self.rng.integers(0, 2, count)
        ports = np.array([each.port for each in job.members])[workers]
        return self.claim(count, job, slots=SLOTS, ports=ports, worker=workers.astype(np.uint16))


OWNED = [
    (CollectiveOp.REDUCE, 0),
    (CollectiveOp.REDUCE, 1),
    (CollectiveOp.BROADCAST, 0),
    (CollectiveOp.BROADCAST, 1),
    (CollectiveOp.BARRIER, 0),
]


@pytest.mark.repeats("the same with harvest and collectives", but=["slots-64"])
@pytest.mark.parametrize(
    ("program", "values"),
    [
        ("slots", 64),
        ("harvest", 64),
        ("harvest", 256),
        ("collectives", 64),
    ],
)
def test_the_honest_job_is_exact_and_every_attack_is_counted(program: str, values: int) -> None:
    switch = Switch.load(programs.find(program, values).json(), engine="jit")
    node = 0
    for job in (HONEST, *HOSTILE):
        for command in job.commands(node):
            switch.command(command)
        node += len(job.members)
    has_owners = program == "collectives"
    attackers = Attackers(values, 1, has_owners=has_owners)
    attacks = 0
    dropped = switch.counters["SlotsIngress.dropped"].packets

    def under_attack(batch: PacketBatch) -> PacketBatch:
        nonlocal attacks
        bad = attackers.droppable(BATCH)
        before = int(dropped.sum())
        assert len(switch.process_batch(bad)) == 0
        assert int(dropped.sum()) - before == len(bad)
        allowed = attackers.lawful(BATCH // 4)
        answers = switch.process_batch(allowed)
        assert set(answers.port.tolist()) <= {3, 4, 5, 6}
        attacks += len(bad) + len(allowed)
        attackers.heard = batch.take(np.arange(len(batch)))
        before = int(dropped.sum())
        results = switch.process_batch(batch)
        assert int(dropped.sum()) == before
        return results

    transport = MemoryTransport(under_attack, [1, 2])
    workers = {
        each.port: SlotClient(
            attackers.layouts[0],
            JobMembership(index, 2, HONEST.number, HONEST.epoch, SLOTS),
            source=each.endpoint,
            switch=Endpoint.of_switch(),
        )
        for index, each in enumerate(HONEST.members)
    }
    rng = np.random.default_rng(2)
    rounds = 0
    while attacks < COUNT:
        contributions = [
            [
                Segment(operation, rng.integers(-(2**31), 2**31, 5000).astype(np.int32))
                for operation in ReduceOp
            ]
            + [
                Segment(operation, rng.integers(-(2**31), 2**31, 1500).astype(np.int32), owner)
                for operation, owner in OWNED
                if has_owners
            ]
            for _ in workers
        ]
        for end, segments in zip(workers.values(), contributions, strict=True):
            end.start(segments, 0.0)
        drive(workers, transport, 0.0)
        for index, operation in enumerate(ReduceOp):
            words = [segments[index].words for segments in contributions]
            expected = combine(operation, words)
            for end in workers.values():
                np.testing.assert_array_equal(end.results()[index], expected)
        for index, (operation, owner) in enumerate(OWNED * has_owners, len(ReduceOp)):
            # Of two workers: what the other one sent, for the owner of a reduce, and the other
            # way round.
            whose = 1 - owner if operation == CollectiveOp.REDUCE else owner
            found = list(workers.values())[1 - whose].results()[index]
            if operation != CollectiveOp.BARRIER:
                np.testing.assert_array_equal(found, contributions[whose][index].words)
        rounds += 1
    for end in workers.values():
        # Nothing but their own results has reached them, each once, and nothing was sent twice.
        assert end.counters.refused == {}
        assert end.counters.duplicates == end.counters.retransmissions == 0
        assert end.counters.results == end.counters.received == end.counters.sent
    assert (dropped > 0).sum() >= 6
    assert rounds > 1 or COUNT < 10_000
