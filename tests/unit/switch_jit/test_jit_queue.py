"""Programs that clone, resubmit or recirculate, compiled: loops, growth, many packets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.state_fuzzer import StateFuzzer

from innet.core.packets import PacketBatch
from innet.switch import Switch
from innet.switch.engine import MAX_LOOPS, SwitchState
from innet.switch.frontend.loader import load_program
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.jit import JitEngine

PROGRAMS = Path(__file__).parents[2] / "programs"

Packet = tuple[int, bytes]


def switch_of(name: str, engine: str = "jit") -> Switch:
    return Switch.load(PROGRAMS / f"{name}.json", engine)


def answer(switch: Switch, port: int, data: str) -> list[tuple[int, str]]:
    return [(sent, out.hex()) for sent, out in switch.process([(port, bytes.fromhex(data))])]


@pytest.mark.parametrize(("op", "counted"), [("00", "resubmitted"), ("01", "recirculated")])
def test_a_packet_that_would_go_round_forever_is_stopped(op: str, counted: str) -> None:
    switch = switch_of("switch_forever")
    assert answer(switch, 0, op) == []
    assert getattr(switch.statistics, counted) == MAX_LOOPS
    assert switch.statistics.looped == 1
    assert answer(switch, 0, "07") == [(1, "07")]


def test_clones_of_clones_are_stopped() -> None:
    switch = switch_of("switch_forever")
    switch.mirror_session(1, port=2)
    assert len(answer(switch, 0, "03")) == MAX_LOOPS + 1
    assert switch.statistics.looped == 1


def test_a_parser_that_goes_round_forever_is_stopped() -> None:
    switch = switch_of("switch_forever")
    assert answer(switch, 0, "04ff") == [(1, "04ff")]
    assert switch.statistics.parser_errors == 1


def test_a_failed_assertion_drops_the_packet() -> None:
    switch = switch_of("switch_forever")
    assert answer(switch, 0, "02") == []
    assert answer(switch, 5, "02") == [(1, "02")]
    assert switch.statistics.failed_assertions == 1


#: A packet grows each time that it comes again, as often as its first two bytes say.
GROWING = "queue_growth"


@pytest.mark.parametrize("rounds", [0, 1, 2, 200, MAX_LOOPS])
@pytest.mark.parametrize("size", [5, 1400])
def test_a_packet_may_grow_in_every_round(rounds: int, size: int) -> None:
    """Longer than all buffers that the batch started with, several times over."""
    switch = switch_of(GROWING)
    payload = bytes(range(256)) * 6
    packets = [(1, rounds.to_bytes(2, "big") + payload[: size + i]) for i in range(3)]
    grown = b"".join(i.to_bytes(2, "big") for i in range(1, rounds + 1))
    assert switch.process(packets) == [(1, bytes(2) + grown + packet[2:]) for _, packet in packets]
    assert switch.statistics.recirculated == 3 * rounds


def test_a_packet_that_grows_without_end_is_dropped() -> None:
    switch = switch_of(GROWING)
    assert switch.process([(1, b"\xff\xff")]) == []
    assert switch.statistics.recirculated == MAX_LOOPS
    assert switch.statistics.dropped_egress == 1


@pytest.fixture
def engines() -> tuple[list[SwitchState], InterpretEngine, JitEngine, StateFuzzer]:
    program = load_program(PROGRAMS / "jit_copies.json")
    fuzzer = StateFuzzer(program, np.random.default_rng(3))
    states = [SwitchState(program, np.random.default_rng(0)) for _ in range(2)]
    fuzzer.fill(states, entries=12)
    return states, InterpretEngine(program, states[0]), JitEngine(program, states[1]), fuzzer


def test_packets_of_a_batch_do_not_know_of_each_other(
    engines: tuple[list[SwitchState], InterpretEngine, JitEngine, StateFuzzer],
) -> None:
    """However they are cut into batches, and in which order, each leads to the same."""
    _, _, jit, fuzzer = engines
    packets = [(port, data) for port, data in fuzzer.packets(150) if data[:1] < b"\x0c"]
    packets = [each for each in packets if each[1] and each[1][0] & 15 not in (6, 14)]
    assert len(packets) > 20
    alone = [jit.process(PacketBatch.from_packets([each])).to_packets() for each in packets]
    together = jit.process(PacketBatch.from_packets(packets))
    assert together.to_packets() == [sent for each in alone for sent in each]
    assert together.origin is not None
    assert together.origin.tolist() == [i for i, each in enumerate(alone) for _ in each]
    backwards = jit.process(PacketBatch.from_packets(packets[::-1])).to_packets()
    assert backwards == [sent for each in alone[::-1] for sent in each]


def test_mirror_sessions_change_between_batches(
    engines: tuple[list[SwitchState], InterpretEngine, JitEngine, StateFuzzer],
) -> None:
    states, interpret, jit, fuzzer = engines
    seen = set()
    for _ in range(6):
        fuzzer.fill(states, entries=0)
        batch = PacketBatch.from_packets(fuzzer.packets(40))
        sent = jit.process(batch).to_packets()
        assert sent == interpret.process(batch).to_packets()
        seen.add(states[1].statistics.cloned)
        for state in states:
            for session in list(state.replication.sessions):
                state.replication.delete_session(session)
        batch = PacketBatch.from_packets(fuzzer.packets(10))
        assert jit.process(batch).to_packets() == interpret.process(batch).to_packets()
        assert states[0].statistics == states[1].statistics
    assert len(seen) == 6


def test_a_batch_of_nothing(
    engines: tuple[list[SwitchState], InterpretEngine, JitEngine, StateFuzzer],
) -> None:
    _, _, jit, _ = engines
    for batch in (
        PacketBatch.empty(),
        PacketBatch.empty(100),
        PacketBatch.from_packets([(1, b"")]),
    ):
        assert len(jit.process(batch)) == len(batch)


def test_output_belongs_to_the_caller() -> None:
    """Buffers that the emitted code left as they were, and those that it replaced."""
    state = SwitchState(load_program(PROGRAMS / f"{GROWING}.json"), np.random.default_rng(0))
    engine = JitEngine(state.program, state)
    rounds = [0, 300, 0, 1, 20, 0]
    batches = [
        PacketBatch.from_packets([(1, count.to_bytes(2, "big") + bytes([count & 255]) * 4)] * 3)
        for count in rounds
    ]
    expected = [engine.process(batch).to_packets() for batch in batches]
    held = [engine.process(batch) for batch in batches]
    for _ in range(10):
        engine.process(PacketBatch.from_packets([(1, b"\0\0" + b"\xff" * 700)] * 3))
    assert [batch.to_packets() for batch in held] == expected


def test_dropped_output_is_used_again() -> None:
    state = SwitchState(load_program(PROGRAMS / f"{GROWING}.json"), np.random.default_rng(0))
    engine = JitEngine(state.program, state)
    batch = PacketBatch.from_packets([(1, b"\0\2abc")])
    engine.process(batch)  # its packet grows more than one of its headers does
    first = engine.process(batch).data.ctypes.data
    assert engine.process(batch).data.ctypes.data == first


@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize("times", [None, [5]])
def test_each_pass_of_a_packet_may_need_room(engine: str, times: list[int] | None) -> None:
    """A thousand passes, each with a clone that waits: more than there is memory for at first."""
    switch = switch_of("queue_resubmit", engine)
    switch.mirror_session(1, port=3)
    switch.traffic_manager.set_depth(10_000)
    data = (1000).to_bytes(2, "big") + bytes(300)
    sent = switch.process([(1, data)], times=times)
    assert sent == [(3, data)] * 1001 + [(2, data)]
    assert switch.statistics.resubmitted == 1000
    assert switch.waiting == 0
