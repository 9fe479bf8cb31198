"""A traced packet does what any packet does, and tells every step."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.guided import Fuzzer
from support.switch_cases import PROGRAMS, program

from innet.core.errors import InputError, UnsupportedError
from innet.core.packets import PacketBatch
from innet.switch import Switch, ir
from innet.switch.engine import InstanceType, SwitchState
from innet.switch.frontend.loader import load_program
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.ir.text import Text
from innet.switch.trace import events, units
from innet.switch.trace.tracer import TraceEngine

ALL = sorted(path.stem for path in PROGRAMS.glob("*.json"))
INTERPRETED = [name for name in ALL if name != "switch_forever"]


@pytest.fixture
def tour():
    switch = Switch.load(program("tools_tour"), "interpret")
    switch.commands(
        """
        mc_mgrp_create 1
        mc_node_create 7 1 2
        mc_node_associate 1 0
        mirroring_add 5 6
        table_add choose again  1&&&255 1 1&&&255 => 1
        table_add choose copy   2&&&255 1 0&&&0 => 4 1
        table_add choose spread 3&&&255 0 0&&&0 => 1
        table_add choose send   4&&&0xf 7 0&&&0 => 3 9 5
        table_add choose send   4&&&0xf 8 0&&&0 => 3 9 5
        table_add choose send   4&&&0xf 9 0&&&0 => 3 9 5
        """
    )
    return switch


def kinds(told):
    return [type(event).__name__ for event in told]


def of(kind, told):
    return [event for event in told if isinstance(event, kind)]


@pytest.mark.parametrize("name", INTERPRETED)
def test_tracing_changes_nothing(name, monkeypatch):
    monkeypatch.setattr(
        "innet.switch.interpreter.engine.MAX_LOOPS", 8
    )  # some programs go on forever
    loaded = load_program(program(name))
    guide = Fuzzer(loaded, np.random.default_rng(7))
    states = [SwitchState(loaded, np.random.default_rng(0)) for _ in range(2)]
    guide.fill(states, entries=12)
    guide.registers(states)
    plain, traced = InterpretEngine(loaded, states[0]), TraceEngine(loaded, states[1])
    told = []
    for port, data in guide.packets(150):
        expected = plain.process(PacketBatch.from_packets([(port, data)])).to_packets()
        told += (found := traced.trace(port, data))
        assert [(each.port, each.data) for each in of(events.Sent, found)] == expected
        json.dumps([events.as_document(event) for event in found])
        assert all(str(event) for event in found)
    assert states[0].statistics.as_dict() == states[1].statistics.as_dict()
    for one, other in zip(states[0].registers, states[1].registers, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(states[0].counters, states[1].counters, strict=True):
        np.testing.assert_array_equal(one, other)
    statistics = states[1].statistics
    drops = [event.pipeline for event in of(events.Dropped, told)]
    assert drops.count("ingress") == statistics.dropped_ingress
    assert drops.count("egress") == statistics.dropped_egress
    assert len(of(events.IngressStarted, told)) == (
        statistics.packets_in + statistics.resubmitted + statistics.recirculated
    )
    stops = of(events.ParserStopped, told)
    assert len(stops) >= statistics.parser_errors  # clones are parsed again


def test_the_way_of_a_packet(tour):
    told = tour.trace(3, bytes([8, 4]) + b"abc")
    assert kinds(told)[:4] == ["IngressStarted", "StateEntered", "HeaderExtracted", "Selected"]
    assert told[:4] == [
        events.IngressStarted(InstanceType.NORMAL, 3, 5),
        events.StateEntered("start", 0),
        events.HeaderExtracted("base", (("kind", 8), ("value", 4)), b"\x08\x04"),
        events.Selected((8,), None),
    ]
    assert events.Counted("I.kinds", 8, 1, 5) in told
    assert events.RegisterRead("I.seen", 8, 0) in told
    assert events.RegisterWritten("I.seen", 8, 0, 1) in told
    place = told.index(
        events.TableApplied(
            "I.choose", (("h.base.value", 4), ("h.base.kind", 8), ("m.round", 1)), 4
        )
    )
    assert told[place + 1 : place + 5] == [
        events.Counted("I.hits", 4, 1, 5),
        events.ActionRun("I.send", (("port", 3), ("value", 9))),
        events.FieldChanged("standard_metadata.egress_spec", 0, 3),
        events.FieldChanged("base.value", 4, 9),
    ]
    assert events.ConditionTested("node_4", "scalars.metadata_t.round == 1", outcome=True) in told
    assert events.ValidityChanged("extra", valid=True) in told
    assert events.EgressStarted(InstanceType.NORMAL, 3) in told
    assert events.Requested("truncation", (("length", 3),)) in told
    deparsed, sent = told[-2:]
    assert deparsed.headers == ("base", "extra")
    assert (deparsed.payload, deparsed.data[-3:]) == (3, b"abc")
    assert sent == events.Sent(3, deparsed.data[:3])


def test_direct_counters_and_meters():
    switch = Switch.load(program("switch_profiles"), "interpret")
    switch.commands(
        """
        act_prof_create_member ways go 3 7
        table_indirect_add way_table 1 => 0
        meter_set_rates way_meter 0 0.0001:1 0.0001:2
        """
    )
    packet = bytes.fromhex("00 0001 0a000001 000000")
    told = switch.trace(0, packet) and switch.trace(0, packet)
    place = told.index(events.Counted("I.way_hits", 0, 2, 20))
    assert told[place + 1 : place + 3] == [
        events.MeterExecuted("I.way_meter", 0, 1),
        events.FieldChanged("scalars.metadata_t.color", 5, 1),
    ]


def test_checksums_that_are_verified(tour):
    switch = Switch.load(program("switch_checksums"), "interpret")
    for packet, correct in (("000000ffff", True), ("0000000000", False)):
        told = switch.trace(1, bytes.fromhex(packet))
        assert of(events.ChecksumsVerified, told) == [events.ChecksumsVerified(correct)]
    assert not of(events.ChecksumsVerified, tour.trace(0, bytes(9)))


def test_misses_and_drops(tour):
    told = tour.trace(0, b"\x00\x00")
    assert [event.entry for event in of(events.TableApplied, told) if event.key] == [None]
    assert told[-1] == events.Dropped("ingress", "marked to drop")
    assert events.Requested("dropping") in told
    told = tour.trace(0, bytes([9, 4]))
    assert told[-1] == events.Dropped("egress", "marked to drop")


def test_resubmission_and_recirculation(tour):
    told = tour.trace(0, bytes([1, 1, 3]))
    starts = of(events.IngressStarted, told)
    assert [start.kind for start in starts] == [InstanceType.NORMAL, InstanceType.RESUBMITTED]
    assert events.ComesAgain(resubmitted=True) in told
    told = tour.trace(0, bytes([7, 4]))
    starts = of(events.IngressStarted, told)
    assert [start.kind for start in starts] == [InstanceType.NORMAL, InstanceType.RECIRCULATED]
    assert starts[1].length == 5
    assert events.ComesAgain(resubmitted=False) in told


def test_clones_and_replicas(tour):
    told = tour.trace(0, bytes([1, 2, 3]))
    assert events.Cloned(5, exists=True) in told
    assert events.CloneParsed(3) in told
    starts = of(events.EgressStarted, told)
    assert starts == [
        events.EgressStarted(InstanceType.INGRESS_CLONE, 6),
        events.EgressStarted(InstanceType.NORMAL, 4),
    ]
    tour.command("mirroring_delete 5")
    assert events.Cloned(5, exists=False) in tour.trace(0, bytes([1, 2, 3]))
    told = tour.trace(0, bytes([0, 3]))
    assert events.Replicated(1, ((1, 7), (2, 7))) in told
    assert [sent.port for sent in of(events.Sent, told)] == [1, 2]


def test_stacks_and_parser_errors(tour):
    told = tour.trace(0, bytes([1, 0, 2, 4, 6]))
    assert [each.header for each in of(events.HeaderExtracted, told)] == [
        "base",
        "tags[0]",
        "tags[1]",
    ]
    assert [each.state for each in of(events.StateEntered, told)] == ["start", *["tags"] * 3]
    assert of(events.ParserStopped, told) == [events.ParserStopped("StackOutOfBounds")]
    assert of(events.ParserStopped, tour.trace(0, b"")) == [events.ParserStopped("PacketTooShort")]


def test_on_the_jit_it_is_the_same_state():
    switch = Switch.load(program("tools_clock"), "jit")
    switch.state.clock = 77
    told = switch.trace(0, b"\x03x")
    assert of(events.Sent, told) == [
        events.Sent(port, data) for port, data in switch.process([(0, b"\x03x")])
    ]
    assert switch.statistics.packets_in == 2


def test_an_endless_loop_is_cut(monkeypatch):
    monkeypatch.setattr(units, "MOST_EVENTS", 50)
    switch = Switch.load(program("switch_forever"), "interpret")
    told = max((switch.trace(0, bytes([i, i, i, i])) for i in range(5)), key=len)
    assert len(told) == 51
    assert isinstance(told[-1], events.TraceCut)
    assert told[-1].left_out > 1000


def test_wrong():
    switch = Switch.load(program("tools_clock"), "interpret")
    with pytest.raises(InputError, match=r"arrives at port 511; a switch has ports 0\.\.510"):
        switch.trace(511, b"")
    document = program("tools_clock")
    document["extern_instances"] = [{"name": "thing", "id": 0, "type": "none"}]
    with pytest.raises(UnsupportedError):
        Switch.load(document, "interpret")


class TestText:
    """Expressions as people read them."""

    def test_every_expression_of_every_program_has_a_text(self):
        for name in ALL:
            loaded = load_program(program(name))
            for conditional in loaded.conditionals:
                text = Text(loaded).of(conditional.condition)
                assert text
                assert not any(kind in text for kind in vars(ir) if kind in text.split("("))

    def test_spelling(self):
        loaded = load_program(program("tools_tour"))
        base = next(i for i, header in enumerate(loaded.headers) if header.name == "base")
        kind, small = ir.FieldRef(base, 0), ir.Const(3)
        add = ir.Binary(ir.DataOperator.ADD, kind, small)
        condition = ir.Logical(
            ir.Connective.AND,
            ir.Valid(ir.HeaderRef(base)),
            ir.Not(ir.Compare(ir.Comparison.LE, add, ir.Const(0xFF))),
        )
        assert Text(loaded).of(condition) == "base.isValid() && !((base.kind + 3) <= 0xff)"
        signed = ir.Binary(ir.DataOperator.TWO_COMP_MOD, add, ir.Const(8))
        assert Text(loaded).of(signed) == "signed(base.kind + 3, 8)"
        element = ir.HeaderField(ir.StackElement(0, kind), 1)
        assert Text(loaded).of(element) == "tags[base.kind].last"
        assert Text(loaded).of(ir.StackLastField(0, 0)) == "tags.last.mark"
        parameters = (ir.Parameter("port", 9),)
        assert Text(loaded, parameters).of(ir.Local(0)) == "port"


@pytest.mark.parametrize(("port", "data"), [(1, "x"), (1, None), ("1", b""), (1 << 40, b"")])
def test_only_packets_are_traced(port, data):
    switch = Switch.load(program("switch_tables"), "interpret")
    with pytest.raises(InputError):
        switch.trace(port, data)
