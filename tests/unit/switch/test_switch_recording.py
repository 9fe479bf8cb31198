"""What machine code records of packets is what the interpreter tells of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.state_fuzzer import StateFuzzer
from support.switch_cases import PROGRAMS, program
from support.tiers import tiered

from innet.core.errors import InputError
from innet.core.packets import PacketBatch
from innet.switch import Switch, ir, load_program
from innet.switch.engine import SwitchState
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.interpreter.tracing import Trace
from innet.switch.jit import JitEngine
from innet.switch.recording import Decoder, MemoryRecorder
from innet.switch.trace import Event
from innet.switch.traffic_manager import FOREVER

COMPILED = Path(__file__).parents[3] / "p4" / "compiled"
#: Packets of these come again thousands of times, which takes the interpreter minutes.
ENDLESS = {"switch_forever", "queue_growth", "queue_resubmit"}
EVERY = sorted(
    [
        *(each for each in PROGRAMS.glob("*.json") if each.stem not in ENDLESS),
        *COMPILED.glob("*.json.gz"),
    ]
)
FIRST = {"tools_tour"}
NAMES = [each.name.split(".")[0] for each in EVERY]
FILES = dict(zip(NAMES, EVERY, strict=True))


def told_of(events: list[Event]) -> list[tuple[Event, int | None, int | None]]:
    """Events with what they do not compare."""
    return [(each, each.packet, each.time) for each in events]


class Both:
    """An interpreter that traces and a JIT that records, with like states."""

    def __init__(self, loaded: ir.Program, priorities: int = 1) -> None:
        self.states = [SwitchState(loaded, np.random.default_rng(0), priorities) for _ in range(2)]
        self._trace = Trace(loaded)
        self._recorder, self._decoder = MemoryRecorder(self.states[1]), Decoder(loaded)
        self.interpreter = InterpretEngine(loaded, self.states[0], self._trace)
        self.jit = JitEngine(loaded, self.states[1], self._recorder)

    def compare(self, batch: PacketBatch, times=None, until: int = FOREVER) -> list[Event]:
        if times is None:
            left = [each.process(batch) for each in (self.interpreter, self.jit)]
        else:
            left = [
                each.process_timed(batch, times, until) for each in (self.interpreter, self.jit)
            ]
        assert left[0].to_packets() == left[1].to_packets()
        expected = self._trace.take()
        found = self._recorder.recording(self._decoder).events()
        assert told_of(found) == told_of(expected)
        return expected


@pytest.fixture
def few_loops(monkeypatch):
    """Packets of some programs come again for ever."""
    monkeypatch.setattr("innet.switch.interpreter.tracing.MOST_EVENTS", 1 << 30)


@pytest.mark.parametrize(
    "name",
    tiered(NAMES, [n for n in NAMES if n in FIRST], "the same with the other programs"),
)
def test_both_engines_tell_the_same(name, few_loops):
    loaded = load_program(FILES[name])
    if JitEngine.unsupported(loaded) or InterpretEngine.unsupported(loaded):
        pytest.skip("one of the engines cannot run it")
    fuzzer = StateFuzzer(loaded, np.random.default_rng(7))
    both = Both(loaded, priorities=2)
    fuzzer.fill(both.states, entries=12)
    fuzzer.registers(both.states)
    told = both.compare(PacketBatch.from_packets(fuzzer.packets(100)))
    # With times, through queues that fill up.
    for state in both.states:
        state.traffic_manager.set_depth(3)
        state.traffic_manager.set_rate(2_000_000)
    rng = np.random.default_rng(3)
    for _ in range(2):
        times = both.states[0].traffic_manager.now + np.cumsum(rng.choice([0, 1, 700], 40))
        batch = PacketBatch.from_packets(fuzzer.packets(40))
        told += both.compare(batch, times, int(times[-1]) + 1000)
    told += both.compare(PacketBatch.empty(), np.zeros(0, np.int64))
    kinds = {each.kind for each in told}
    assert {"ingress", "state", "enqueue"} <= kinds or "drop" in kinds


@pytest.fixture(scope="module")
def tour():
    switch = Switch.load(program("tools_tour"))
    switch.commands("table_add choose send 4&&&0xf 8 0&&&0 => 3 9 5\nset_queue_rate 1000")
    return switch


def test_a_recording_has_passes_and_each_way_once(tour):
    batch = PacketBatch.from_packets([(3, bytes([8, 4]) + b"abc")] * 5 + [(1, b"")])
    left, recording = tour.record(batch)
    assert len(left) == 5
    passes = recording.passes
    assert passes.packet.tolist()[:11] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert set(passes.time.tolist()) == {-1}
    assert passes.is_egress.tolist()[:10] == [False, True] * 5
    # The first finds a register that is 0, which changes no field.
    assert passes.way.tolist()[:10] == [0, 1, *[2, 1] * 4]
    assert [each.first for each in recording.ways][:3] == [0, 1, 2]
    assert len(recording.ways) < len(passes.way)
    apart = [each for number in range(len(passes.way)) for each in recording.events_of(number)]
    assert told_of(apart) == told_of(recording.events())
    assert recording.events()[0].packet == 0


def test_another_entry_is_another_way(tour):
    batch = PacketBatch.from_packets([(3, bytes([8, 4]))])
    _, before = tour.record(batch)
    tour.command("table_add choose send 4&&&0xff 8 0&&&0 => 3 9 1")
    _, after = tour.record(batch)
    entries = [
        [each["entry"] for each in recording.events() if each.kind == "hit"]
        for recording in (before, after)
    ]
    assert entries == [[0], [1]]
    one, other = (set(recording.ways[0].steps) for recording in (before, after))
    assert len(one ^ other) <= 2
    assert before.ways[0].steps != after.ways[0].steps


def test_packets_wait_for_the_next_recording(tour):
    batch = PacketBatch.from_packets([(3, bytes([8, 4]))] * 3)
    now = tour.traffic_manager.now
    left, first = tour.record(batch, times=[now, now, now], until=now)
    assert tour.waiting == 3 - len(left)
    with pytest.raises(InputError, match="wait in the switch's egress queues"):
        tour.process_batch(batch)
    with pytest.raises(InputError, match="wait in the switch's egress queues"):
        tour.record(batch)
    rest, second = tour.record(PacketBatch.empty(), times=[])
    assert len(left) + len(rest) == 3
    assert tour.waiting == 0
    assert set(second.passes.packet.tolist()) <= {-3, -2, -1}
    assert first.passes.packet.tolist()[:1] == [0]


def test_trace_uses_the_recording_build_where_it_is(tour):
    interpreted = Switch.load(program("tools_tour"), "interpret")
    compiled = Switch.load(program("tools_tour"))
    for packet in (bytes([8, 4]) + b"abc", b"", bytes([1, 0, 2])):
        assert compiled.trace(3, packet) == interpreted.trace(3, packet)
    assert type(compiled._tracer.engine) is JitEngine
    assert type(interpreted._tracer.engine) is InterpretEngine


def test_a_long_trace_is_cut_as_the_interpreters(monkeypatch, tour):
    monkeypatch.setattr("innet.switch.interpreter.tracing.MOST_EVENTS", 5)
    told = Switch.load(program("tools_tour")).trace(3, bytes([8, 4]) + b"abc")
    expected = Switch.load(program("tools_tour"), "interpret").trace(3, bytes([8, 4]) + b"abc")
    assert told == expected
    assert told[-1].kind == "cut"
