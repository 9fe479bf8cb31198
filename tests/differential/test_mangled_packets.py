"""No packet, whatever its bytes and its length, stops the compiled engine or makes it differ.

INNET_MANGLED_PACKETS (6000) in the environment says how many packets the compiled engine gets in
all; the interpreter gets up to 250 of each program's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from support import fuzz
from support.fuzz_commands import Controller, outcome
from support.state_fuzzer import StateFuzzer

from innet import programs
from innet.core.packets import PacketBatch
from innet.switch import Switch, load_program

COUNT = int(os.environ.get("INNET_MANGLED_PACKETS", "6000"))
SLOTS = ["slots-64", "collectives-64"]
NAMES = [*SLOTS, "fuzz_stacks", "fuzz_parser", "fuzz_varbit", "fuzz_ends", "fuzz_profiles"]
LONGEST = 10_000
BATCH = 500
INTERPRETED = 250

pytestmark = pytest.mark.timeout(0 if COUNT > 6000 else 300)


def batches(fuzzer: StateFuzzer, rng: np.random.Generator, count: int) -> Iterator[PacketBatch]:
    """Packets of 0 .. ``LONGEST`` bytes: random ones, and such that fit the program, mangled."""
    pool = [fuzzer.packet() for _ in range(200)]
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        data = rng.integers(0, 256, (size, LONGEST), np.uint8)
        length = rng.integers(0, LONGEST + 1, size, dtype=np.int32)
        length[rng.random(size) < 0.7] %= 300
        for row in np.flatnonzero(rng.random(size) < 0.8):
            packet = pool[int(rng.integers(len(pool)))]
            data[row, : len(packet)] = np.frombuffer(packet, np.uint8)
            shift = int(rng.integers(-8, 9)) * int(rng.integers(2))
            length[row] = min(max(0, len(packet) + shift), LONGEST)
            data[row, rng.integers(0, len(packet) + 1, rng.integers(3))] ^= np.uint8(
                1 << rng.integers(8)
            )
        ports = rng.integers(0, fuzz.PORTS, size, dtype=np.int32)
        yield PacketBatch(data, length, ports)


@pytest.mark.repeats("the same with other programs", but=["slots-*", "fuzz_varbit"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_stops_the_engines(name):
    document = programs.catalogue()[name].json() if name in SLOTS else fuzz.document(name)
    program = load_program(document)
    rng = np.random.default_rng(list(name.encode()))
    fuzzer = StateFuzzer(program, rng)
    interpreted, compiled = Switch(program, "interpret"), Switch(program, "jit")
    for command, _ in Controller(interpreted, fuzzer, rng, fuzz.PORTS).run(60):
        outcome(compiled, command)
    seen = left = 0
    for batch in batches(fuzzer, rng, COUNT // len(NAMES)):
        rows = np.arange(min(len(batch), INTERPRETED)) if seen == 0 else np.arange(0)
        first, rest = batch.take(rows), batch.take(np.arange(len(rows), len(batch)))
        expected = interpreted.process_batch(first).to_packets()
        assert compiled.process_batch(first).to_packets() == expected
        if seen == 0:
            assert compiled.statistics.as_dict() == interpreted.statistics.as_dict()
        left += len(expected) + len(compiled.process_batch(rest))
        seen += len(batch)
    assert seen == COUNT // len(NAMES)
    assert compiled.statistics.packets_in == seen
    # A slot program drops what is no aggregation packet of a job that was admitted.
    assert left > 0 or name in SLOTS
