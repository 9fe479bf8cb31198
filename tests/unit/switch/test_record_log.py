"""The log of packets that machine code runs: the interpreter's lines."""

from __future__ import annotations

import numpy as np
import pytest
from support import switch_logs
from support.tiers import tiered

from innet.core.packets import PacketBatch
from innet.switch import Switch

HEAD = bytes.fromhex("020000000002 020000000001 88b5")


def logging(document, engine):
    switch = Switch.load(document, "interpret")
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


@pytest.mark.parametrize(
    "name",
    tiered(switch_logs.PROGRAMS, switch_logs.COMPILED, "the same with the other programs"),
)
def test_lines_packets_and_state_are_the_interpreters(name):
    document, rounds = switch_logs.cases()[name]
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
            # In time, with queues that fill up.
            times = interpreter.traffic_manager.now + np.arange(len(some)) * 100
            for switch in (jit, interpreter):
                switch.command("set_queue_rate 1000000")
                switch.command("set_queue_depth 2")
            assert jit.process(some, times=times) == interpreter.process(some, times=times)
            assert jit_lines == lines
    assert len(lines) > 50


def test_numbers_go_on_with_times_and_with_another_engine():
    document = switch_logs.document_of("forward")
    lines = []
    switch = Switch.load(document, "interpret")
    packets = [(1, HEAD + bytes(50))] * 2
    for engine in ("interpret", "jit", "jit", "interpret"):
        switch.log_packets(document, lambda *line: lines.append(line[1]), engine=engine)
        switch.process(packets)
        switch.process(packets, times=np.array([1, 2]) + switch.traffic_manager.now)
    started = [text.split(".")[0] for text in lines if "Processing packet received" in text]
    assert started == [f"[{number}" for number in range(16)]


def test_compiled_code_of_others_does_not_run_packets_that_are_logged():
    document = switch_logs.document_of("forward")
    switch, _ = logging(document, "jit")
    batch = PacketBatch.from_packets([(1, HEAD)])
    assert switch.inline(batch) is None
    assert switch.inline_queues(batch) is None


def test_memory_stays_where_nothing_is_written_and_grows_for_a_long_pass():
    document = switch_logs.document_of("forward")
    switch, lines = logging(document, "jit")
    tree = switch._record_log._tree
    for _ in range(3):
        switch.process([])
    assert len(tree.output) == 1 << 20
    tree.output = tree.output[:64]
    switch.process([(1, HEAD + bytes(50))] * 3)
    assert 64 < len(tree.output) < 1 << 16
    assert sum("Processing packet received" in text for _, text in lines) == 3
