"""Workers sum vectors in a switch, over links that lose packets: aggregation.p4 and its hosts.

    python p4/examples/aggregation.py

The protocol is SwitchML's (NSDI 2021) with a header of its own: none of innet's workers, codecs or
programs are used. A worker has a window of slots, and sends a chunk again if no sum comes in time.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from innet.sim import Testbed

PROGRAM = Path(__file__).with_suffix(".json")
HEADER = struct.Struct(">6s6sHBBHI")  # Ethernet; worker, version, slot, offset
TYPE = 0x88B5
VALUES, SLOTS = 8, 64
TIMEOUT = 100e-6


def make(workers: int, loss: float, seed: int):
    """A switch with workers around it."""
    bed = Testbed("10g", seed=seed)
    ports = " ".join(str(port) for port in range(1, workers + 1))
    switch = bed.switch(
        "s1",
        PROGRAM,
        commands=[
            f"table_set_default job set_workers {workers}",
            "mc_mgrp_create 1",
            f"mc_node_create 0 {ports}",
            "mc_node_associate 1 0",
        ],
    )
    hosts = [bed.host(f"h{number}") for number in range(1, workers + 1)]
    for port, host in enumerate(hosts, start=1):
        bed.link(host, switch, port=port, loss=loss)
    return bed, hosts


def begin(host, number: int, vector: np.ndarray):
    """Let a host sum its vector with those of the others; its task returns the sum, and how many
    chunks it sent again.
    """
    chunks = np.ascontiguousarray(vector, ">i4").reshape(-1, VALUES)

    @host.run
    async def sum_vector():
        result = np.zeros_like(chunks)
        waiting = {}  # by slot: chunk, version, when to send it again
        again = 0

        def send(slot: int) -> None:
            chunk, version, _ = waiting[slot]
            head = HEADER.pack(bytes(6), bytes(6), TYPE, number, version, slot, chunk)
            host.send(head + chunks[chunk].tobytes())
            waiting[slot] = chunk, version, host.now + TIMEOUT

        for slot in range(min(SLOTS, len(chunks))):
            waiting[slot] = slot, 0, 0.0
            send(slot)
        while waiting:
            due = min(time for _, _, time in waiting.values())
            frame = await host.receive(timeout=max(0.0, due - host.now))
            if frame is None:
                for slot in [s for s, (_, _, time) in waiting.items() if time <= host.now]:
                    send(slot)
                    again += 1
                continue
            *_, slot, offset = HEADER.unpack_from(frame)
            chunk, version, _ = waiting.get(slot, (-1, 0, 0))
            if chunk != offset:
                continue  # a sum that came before
            result[chunk] = np.frombuffer(frame, ">i4", VALUES, HEADER.size)
            if chunk + SLOTS < len(chunks):
                waiting[slot] = chunk + SLOTS, 1 - version, 0.0
                send(slot)
            else:
                del waiting[slot]
        return result.reshape(-1).astype(np.int32), again

    return sum_vector


def run(workers: int = 4, elements: int = 8_000, loss: float = 1e-3, seed: int = 1):
    """Sum random vectors; returns the bed, the tasks, and what the sum must be."""
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-1000, 1000, (workers, elements), dtype=np.int32)
    bed, hosts = make(workers, loss, seed)
    tasks = [begin(host, n, vectors[n]) for n, host in enumerate(hosts)]
    bed.run()
    return bed, tasks, vectors.sum(axis=0, dtype=np.int32)


if __name__ == "__main__":
    bed, tasks, expected = run()
    for task in tasks:
        result, again = task.result()
        assert (result == expected).all()
        print(f"{task.node.name}: the sum is right; {again} chunks were sent again")
    print(f"{len(expected)} elements in {bed.now * 1e6:.1f} us of simulated time")
