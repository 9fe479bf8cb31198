"""Random traffic on several threads leaves what it leaves on one, for programs that allow it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.engines import agree
from support.state_fuzzer import StateFuzzer
from support.tiers import tiered

from innet.core.packets import PacketBatch
from innet.switch import inline, load_program
from innet.switch.engine import SwitchState
from innet.switch.jit import JitEngine
from innet.switch.sharding import offset_in, sharding_of

FOLDER = Path(__file__).parents[1] / "programs"
LONG, ROWS, STRIDE, THREADS = 60, 300, 10_000, 3
#: Without state, and with registers that belong to a field of the packet.
STATELESS = ("jit_tables", "fuzz_counters", "fuzz_multicast", "fuzz_profiles", "fuzz_parser")
SHARDED = ("switch_state", "as_bmv2_indices")


def memory():
    return PacketBatch(np.zeros((ROWS, STRIDE), np.uint8), *np.zeros((2, ROWS), np.int32))


def run_all(given):
    """What leaves when compiled code runs the first packets of its memory, as (port, bytes)."""
    program, count = given
    left, first = [], 0
    while first < count:
        first, produced, failed = inline.run_inline(program, first, count, 77)
        assert failed == 0
        out = PacketBatch(program.out, program.out_length, program.out_port)
        left += out.take(np.arange(produced)).to_packets()
    return left


def field_of(data, at, width, mask):
    """The bits of ``mask`` of a field of a packet."""
    return int.from_bytes(data, "big") >> (8 * len(data) - at - width) & mask


@pytest.mark.parametrize(
    "name",
    tiered(
        [*STATELESS, *SHARDED], ["jit_tables", "switch_state"], "other programs on several threads"
    ),
)
def test_threads_agree(name):
    program = load_program(FOLDER / f"{name}.json")
    found = sharding_of(program)
    assert found.reason == ""
    assert (found.field is None) == (name in STATELESS)
    fuzzer = StateFuzzer(program, np.random.default_rng(3))
    states = [SwitchState(program, np.random.default_rng(0)) for _ in range(2)]
    one, many = (JitEngine(program, state) for state in states)
    rows = [memory() for _ in range(THREADS)]
    running = [many.inline(each, beside=number > 0) for number, each in enumerate(rows)]
    assert None not in running
    lanes_used, passed = set(), 0
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(5):
            fuzzer.fill(states, entries=12)
            fuzzer.registers(states)
            packets = fuzzer.packets(200)
            if found.field is None:  # those of a port stay on a thread
                owners = [port % THREADS for port, _ in packets]
            else:
                mask = sum(1 << bit for bit in found.bits)
                assert found.broken_by(states[0], mask) is None
                at = offset_in(program, found.field, b"", LONG)
                assert at is not None
                width = program.field(found.field).width
                packets = [each for each in packets if len(each[1]) >= LONG]
                owners = [field_of(data, at, width, mask) % THREADS for _, data in packets]
            states[0].clock = 77
            expected = one.process(PacketBatch.from_packets(packets))
            programs = [each.begin() for each in running]
            counts = [0] * THREADS
            for (port, data), owner in zip(packets, owners, strict=True):
                row, each = counts[owner], rows[owner]
                each.data[row, : len(data)] = np.frombuffer(data, np.uint8)
                each.length[row], each.port[row] = len(data), port
                counts[owner] += 1
            sent = list(pool.map(run_all, zip(programs, counts, strict=True)))
            for each in running:
                each.end()
            whole = expected.to_packets()
            for owner, mine in enumerate(sent):
                its = [x for x, i in zip(whole, expected.origin, strict=True) if owners[i] == owner]
                assert mine == its
            agree(*states)
            assert states[0].statistics == states[1].statistics
            lanes_used |= {owner for owner, count in enumerate(counts) if count}
            passed += len(whole)
    assert len(lanes_used) == THREADS
    assert passed > 0
