"""Results that leave many others behind in the switch's own queues are marked."""

from __future__ import annotations

import numpy as np
import pytest
from support.traffic import job_of

from innet import programs
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.switch import Switch
from innet.wire import Endpoint, Framing, HeaderFlag, PacketLayout, pack, parse_strict

DEPTH = 32  # ECN_DEPTH of the program
CHUNKS = 48


def results_of(framing: Framing, *, listens: bool, rate: int, engine) -> dict[int, list[int]]:
    """The flags of the results that leave by each port, in their order."""
    layout, job = PacketLayout(32, framing), job_of(2, slots=64)
    switch = Switch.load(programs.find("slots", 32).json(), engine)
    switch.commands("\n".join(job.commands()))
    switch.command(f"set_queue_rate {rate}")
    packets = []
    for chunk in range(CHUNKS):
        for worker, member in enumerate(job.members):
            (frame,) = pack(
                layout,
                member.endpoint,
                Endpoint.of_switch(),
                np.full((1, 32), worker + chunk, np.int32),
                operation=ReduceOp.SUM,
                job=job.number,
                epoch=job.epoch,
                sequence=chunk + 1,
                slot=chunk,
                slot_version=0,
                worker=worker,
                listens=listens,
            )
            packets.append((member.port, frame.tobytes()))
    times = np.arange(len(packets)) * 1000
    left = switch.process_batch(PacketBatch.from_packets(packets), times=times)
    flags = parse_strict(layout, left).header["flags"]
    return {port: flags[left.port == port].tolist() for port in (1, 2)}


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_marked_while_so_many_wait_behind(engine):
    marks = [int(HeaderFlag.ECN)] * (CHUNKS - DEPTH) + [0] * DEPTH
    sent = results_of("udp", listens=True, rate=1000, engine=engine)
    assert {port: [each & HeaderFlag.ECN for each in flags] for port, flags in sent.items()} == {
        1: marks,
        2: marks,
    }


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_not_marked_without_need(engine):
    for listens, rate in ((False, 1000), (True, 10_000_000)):
        for flags in results_of("udp", listens=listens, rate=rate, engine=engine).values():
            assert len(flags) == CHUNKS
            assert not any(each & HeaderFlag.ECN for each in flags)
