"""The log of packets that machine code runs: the interpreter's lines, whatever packets share."""

from __future__ import annotations

import numpy as np
import pytest
from support import switch_logs

from innet.core.errors import UnsupportedError
from innet.core.packets import PacketBatch
from innet.switch import Switch, flow_log, load_program, unlogged

REASONS = {
    "fuzz_clone": "the primitive Clone",
    "fuzz_loops": "the primitive Resubmit",
    "fuzz_digests": "the primitive Digest",
    "fuzz_meters": "a meter",
    "fuzz_parser": "a header stack, or a header of variable length",
    "fuzz_registers": "a register that is read",
    "fuzz_varbit": "a parser that looks ahead or skips",
    "switch_checksums": "a checksum that is verified",
}
HEAD = bytes.fromhex("020000000002 020000000001 88b5")


@pytest.fixture(scope="module")
def cases():
    return switch_logs.cases()


def logging(document, engine):
    switch = Switch.load(document, engine)
    lines = []
    switch.log_packets(document, lambda *line: lines.append(line), engine=engine)
    return switch, lines


def state(switch):
    kept = switch.state
    return (
        kept.statistics.as_dict(),
        [each.tolist() for each in kept.counters],
        [group.matrix.tolist() for group in kept.register_groups],
        kept.clock,
    )


def forward():
    document, rounds = switch_logs.cases(1)["forward"]
    switch, lines = logging(document, "jit")
    for each in rounds[0][0]:
        switch.command(each)
    return switch, lines


@pytest.mark.parametrize("name", switch_logs.COMPILED)
def test_lines_packets_and_state_are_the_interpreters(cases, name):
    document, rounds = cases[name]
    switches = [logging(document, engine) for engine in ("jit", "interpret")]
    for commands, packets in rounds:
        for command in commands:
            for switch, _ in switches:
                try:
                    switch.command(command)
                except Exception:  # refused by both
                    continue
        for some in (packets, packets[::-1], packets[:3] * 2):
            (jit, jit_lines), (interpreter, lines) = switches
            assert jit.process(some) == interpreter.process(some)
            assert jit_lines == lines
            assert state(jit) == state(interpreter)
    assert len(lines) > 50


@pytest.mark.parametrize("name", REASONS)
def test_lines_that_depend_on_more_than_the_packet(name):
    document = switch_logs.document_of(name)
    assert unlogged(load_program(document)) == REASONS[name]
    if name == "fuzz_registers":
        switch = Switch.load(document, "interpret")
        with pytest.raises(UnsupportedError, match="a register that is read"):
            switch.log_packets(document, print, engine="jit")
        assert switch.engine_name == "interpret"


def test_the_key_has_the_bits_that_matter():
    document = switch_logs.document_of("forward")
    key = flow_log.find_key(load_program(document))
    same = [(1, HEAD + bytes(50)), (1, HEAD[:6] + bytes(6) + HEAD[12:] + b"x" * 50)]
    other = [
        (2, HEAD + bytes(50)),
        (1, HEAD + bytes(51)),
        (1, bytes([1]) + HEAD[1:] + bytes(50)),
        (1, HEAD[:3]),
    ]
    found = key.of(PacketBatch.from_packets(same + other))
    assert found[0] == found[1]
    assert len(set(found)) == 1 + len(other)
    # What stands behind the end of a packet in its row does not matter.
    rows = PacketBatch.from_packets([(1, HEAD[:3]), (1, HEAD)])
    rows.data[0, 3:] = 0xFF
    assert key.of(rows)[0] == found[-1]
    assert key.of(PacketBatch.empty()) == []


def test_few_packets_are_interpreted(monkeypatch):
    switch, lines = forward()
    asked = []
    sampled = flow_log.FlowLogEngine._sampled
    monkeypatch.setattr(
        flow_log.FlowLogEngine, "_sampled", lambda *each: asked.append(each) or sampled(*each)
    )
    packets = [(1, HEAD + bytes([number]) * 50) for number in range(20)]
    switch.process(packets)
    switch.process(packets)
    assert len(asked) == 1
    heads = {text.split("]")[0] for _, text in lines}
    assert {f"[{number}.0" for number in range(40)} <= heads
    # Another entry may change what is said about the same packets.
    switch.command("table_clear addresses")
    switch.process(packets)
    assert len(asked) == 2
    assert "miss" in " ".join(text for _, text in lines if text.startswith("[59.0"))


def test_lines_of_many_kinds_are_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(flow_log, "_MOST_KINDS", 4)
    switch, lines = forward()
    packets = [(1, HEAD + bytes(size)) for size in (*range(50, 60), *range(50, 60))]
    switch.process(packets)
    assert len(switch._engine._kinds) <= 4
    sizes = [text for _, text in lines if "Transmitting" in text]
    assert [int(text.split("size ")[1].split()[0]) for text in sizes] == [
        len(data) for _, data in packets
    ]


def test_numbers_go_on_with_times_and_with_another_engine():
    document = switch_logs.document_of("forward")
    lines = []
    switch = Switch.load(document, "interpret")
    packets = [(1, HEAD + bytes(50))] * 2
    for engine in ("interpret", "jit"):
        switch.log_packets(document, lambda *line: lines.append(line[1]), engine=engine)
        switch.process(packets)
        switch.process(packets, times=np.array([1, 2]) + switch.traffic_manager.now)
        switch.process(packets)
    started = [text.split(".")[0] for text in lines if "Processing packet received" in text]
    assert started == [f"[{number}" for number in range(12)]
