"""A traced packet does what any packet does, and tells every step."""

from __future__ import annotations

import json
from string import Formatter

import numpy as np
import pytest
from support.state_fuzzer import StateFuzzer
from support.switch_cases import PROGRAMS, program
from support.tiers import tiered

from innet import programs
from innet.core.errors import InputError, UnsupportedError
from innet.core.packets import PacketBatch
from innet.switch import Switch, ir
from innet.switch.engine import SwitchState
from innet.switch.frontend.loader import load_program
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.interpreter.tracing import Trace
from innet.switch.ir.text import Text
from innet.switch.trace import FORMATS, Event, MacAddress, notation

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


def event(kind, /, **values):
    return Event(kind, values)


def of(told, *kinds):
    return [each for each in told if each.kind in kinds]


@pytest.mark.repeats("the same with the other programs", but=["jit_*"])
@pytest.mark.parametrize(
    "name",
    tiered(
        INTERPRETED,
        [name for name in INTERPRETED if not name.startswith("fuzz_")],
        "the same with the other programs",
    ),
)
def test_tracing_changes_nothing(name, monkeypatch):
    monkeypatch.setattr(
        "innet.switch.interpreter.engine.MAX_LOOPS", 8
    )  # some programs go on forever
    loaded = load_program(program(name))
    fuzzer = StateFuzzer(loaded, np.random.default_rng(7))
    states = [SwitchState(loaded, np.random.default_rng(0)) for _ in range(2)]
    fuzzer.fill(states, entries=12)
    fuzzer.registers(states)
    trace = Trace(loaded)
    plain, traced = InterpretEngine(loaded, states[0]), InterpretEngine(loaded, states[1], trace)
    told = []
    for port, data in fuzzer.packets(150):
        batch = PacketBatch.from_packets([(port, data)])
        expected = plain.process(batch).to_packets()
        assert traced.process(batch).to_packets() == expected
        told += (found := trace.take())
        assert [(each["port"], each["data"]) for each in of(found, "sent")] == expected
        json.dumps([each.as_dict() for each in found])
        assert all(str(each) for each in found)
    assert states[0].statistics.as_dict() == states[1].statistics.as_dict()
    for one, other in zip(states[0].registers, states[1].registers, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(states[0].counters, states[1].counters, strict=True):
        np.testing.assert_array_equal(one, other)
    statistics = states[1].statistics
    drops = [each["pipeline"] for each in of(told, "drop")]
    assert drops.count("ingress") == statistics.dropped_ingress
    assert drops.count("egress") == statistics.dropped_egress
    assert len(of(told, "ingress")) == (
        statistics.packets_in + statistics.resubmitted + statistics.recirculated
    )
    stops = of(told, "parser_error")
    assert len(stops) >= statistics.parser_errors  # clones are parsed again


def test_the_way_of_a_packet(tour):
    told = tour.trace(3, bytes([8, 4]) + b"abc")
    assert told[:4] == [
        event("ingress", instance_type="normal", port=3, length=5),
        event("state", state="start", position=0),
        event("extract", header="base", fields={"kind": 8, "value": 4}, data=b"\x08\x04"),
        event("select", key=(8,), next="accept"),
    ]
    assert event("counter", counter="I.kinds", index=8, packets=1, bytes=5) in told
    assert event("register_read", register="I.seen", index=8, value=0) in told
    assert event("register_write", register="I.seen", index=8, old=0, new=1) in told
    key = {"h.base.value": 4, "h.base.kind": 8, "m.round": 1}
    place = told.index(event("hit", table="I.choose", key=key, entry=4))
    assert told[place + 1 : place + 5] == [
        event("counter", counter="I.hits", index=4, packets=1, bytes=5),
        event("action", action="I.send", arguments={"port": 3, "value": 9}),
        event("field", field="standard_metadata.egress_spec", old=0, new=3),
        event("field", field="base.value", old=4, new=9),
    ]
    condition = "scalars.metadata_t.round == 1"
    assert event("if", name="node_4", condition=condition, result=True) in told
    assert event("set_valid", header="extra") in told
    assert event("egress", instance_type="normal", port=3) in told
    assert event("request_truncate", length=3) in told
    deparsed, sent = told[-2:]
    assert deparsed["headers"] == ("base", "extra")
    assert (deparsed["payload"], deparsed["data"][-3:]) == (3, b"abc")
    assert sent == event("sent", port=3, length=3, data=deparsed["data"][:3])


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
    place = told.index(event("counter", counter="I.way_hits", index=0, packets=2, bytes=20))
    assert told[place + 1 : place + 3] == [
        event("meter", meter="I.way_meter", index=0, color="yellow"),
        event("field", field="scalars.metadata_t.colour", old=5, new=1),
    ]


def test_checksums_that_are_verified(tour):
    switch = Switch.load(program("switch_checksums"), "interpret")
    for packet, correct in (("000000ffff", True), ("0000000000", False)):
        told = switch.trace(1, bytes.fromhex(packet))
        assert of(told, "checksums") == [event("checksums", correct=correct)]
    assert not of(tour.trace(0, bytes(9)), "checksums")


def test_misses_and_drops(tour):
    told = tour.trace(0, b"\x00\x00")
    assert [each.kind for each in of(told, "hit", "miss") if each["key"]] == ["miss"]
    assert told[-1] == event("drop", pipeline="ingress", reason="marked to drop")
    assert event("request_drop") in told
    told = tour.trace(0, bytes([9, 4]))
    assert told[-1] == event("drop", pipeline="egress", reason="marked to drop")


def test_resubmission_and_recirculation(tour):
    told = tour.trace(0, bytes([1, 1, 3]))
    starts = of(told, "ingress")
    assert [start["instance_type"] for start in starts] == ["normal", "resubmitted"]
    assert event("resubmit") in told
    told = tour.trace(0, bytes([7, 4]))
    starts = of(told, "ingress")
    assert [start["instance_type"] for start in starts] == ["normal", "recirculated"]
    assert starts[1]["length"] == 5
    assert event("recirculate") in told


def test_clones_and_replicas(tour):
    told = tour.trace(0, bytes([1, 2, 3]))
    assert event("clone", session=5) in told
    assert event("parse_clone", length=3) in told
    assert of(told, "egress") == [
        event("egress", instance_type="ingress clone", port=6),
        event("egress", instance_type="normal", port=4),
    ]
    tour.command("mirroring_delete 5")
    assert event("unknown_session", session=5) in tour.trace(0, bytes([1, 2, 3]))
    told = tour.trace(0, bytes([0, 3]))
    assert event("multicast", group=1, copies=2) in told
    assert of(told, "replica") == [event("replica", port=1, rid=7), event("replica", port=2, rid=7)]
    assert [sent["port"] for sent in of(told, "sent")] == [1, 2]
    tour.command("mc_node_dissociate 1 0")
    assert event("unknown_group", group=1, copies=0) in tour.trace(0, bytes([0, 3]))


def test_stacks_and_parser_errors(tour):
    told = tour.trace(0, bytes([1, 0, 2, 4, 6]))
    assert [each["header"] for each in of(told, "extract")] == ["base", "tags[0]", "tags[1]"]
    assert [each["state"] for each in of(told, "state")] == ["start", *["tags"] * 3]
    assert of(told, "parser_error") == [event("parser_error", error="StackOutOfBounds")]
    told = tour.trace(0, b"")
    assert of(told, "parser_error") == [event("parser_error", error="PacketTooShort")]


def test_on_the_jit_it_is_the_same_state():
    switch = Switch.load(program("tools_clock"), "jit")
    switch.state.clock = 77
    told = switch.trace(0, b"\x03x")
    assert of(told, "sent") == [
        event("sent", port=port, length=len(data), data=data)
        for port, data in switch.process([(0, b"\x03x")])
    ]
    assert switch.statistics.packets_in == 2


def test_an_endless_loop_is_cut(monkeypatch):
    monkeypatch.setattr("innet.switch.interpreter.tracing.MOST_EVENTS", 50)
    switch = Switch.load(program("switch_forever"), "interpret")
    told = max((switch.trace(0, bytes([i, i, i, i])) for i in range(5)), key=len)
    assert len(told) == 51
    assert told[-1].kind == "cut"
    assert told[-1]["left_out"] > 1000


def test_mac_addresses_are_written_as_such():
    switch = Switch.load(programs.find("slots", 32).json())
    told = switch.trace(1, bytes.fromhex("02000000fffe 0200000000a1 88b5") + bytes(60))
    (ethernet,) = (each for each in of(told, "extract") if each["header"] == "ethernet")
    assert ethernet["fields"]["source"] == 0x0200000000A1
    line = "extract ethernet: destination 02:00:00:00:ff:fe, source 02:00:00:00:00:a1, ethertype 0x"
    assert str(ethernet).startswith(line)
    assert json.loads(json.dumps(ethernet.as_dict()))["fields"]["source"] == 0x0200000000A1


@pytest.mark.parametrize(
    ("name", "width", "mac"),
    [
        ("ethernet.dstAddr", 48, True),
        ("arp.sha", 48, True),
        ("ipv4.dstAddr", 32, False),
        ("standard_metadata.ingress_global_timestamp", 48, False),
        ("times.source_time", 48, False),
        ("h.count", 48, False),
    ],
)
def test_which_fields_are_mac_addresses(name, width, mac):
    assert (notation(name, width) is MacAddress) == mac


def test_every_format_names_values_that_an_event_can_have():
    for kind, line in FORMATS.items():
        names = [name for _, name, _, _ in Formatter().parse(line) if name]
        assert str(event(kind, **dict.fromkeys(names, 5)))


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


class TestTimes:
    """Traced packets meet in the egress queues; tools_clock stamps each with its times."""

    @pytest.fixture
    def clock(self):
        switch = Switch.load(program("tools_clock"), "jit")
        switch.commands("set_queue_rate 1000000 2\nset_queue_depth 2 2")
        return switch

    def test_packets_meet(self, clock):
        told = [each for time in (0, 10, 20) for each in clock.trace(1, b"\2", time=time)]
        assert clock.waiting == 2
        assert clock.next_departure == 1000
        told += clock.trace_until(1500)
        assert clock.waiting == 1
        told += clock.trace(1, b"\3", time=1700) + clock.trace_until()
        met = [
            (each.packet, each.time, each.kind, each.values.get("depth"))
            for each in of(told, "ingress", "enqueue", "queue_full", "dequeue", "sent")
        ]
        assert met == [
            (0, 0, "ingress", None),
            (0, 0, "enqueue", 0),
            (1, 10, "ingress", None),
            (1, 10, "enqueue", 1),
            (2, 20, "ingress", None),
            (2, 20, "queue_full", 2),
            (0, 1000, "dequeue", 1),
            (0, 1000, "sent", None),
            (3, 1700, "ingress", None),
            (3, 1700, "enqueue", 0),
            (3, 1700, "dequeue", 0),
            (3, 1700, "sent", None),
            (1, 2000, "dequeue", 0),
            (1, 2000, "sent", None),
        ]
        (waited,) = {str(each) for each in told if each.kind == "dequeue" and each.packet == 1}
        assert waited == "left the queue after 1990 ns, 0 behind it"
        assert clock.state.clock == 2
        assert clock.statistics.dropped_queue == 1

    def test_without_times_events_have_none(self, clock):
        assert {each.time for each in clock.trace(1, b"\2")} == {None}

    @pytest.mark.repeats("the order of what waits, in test_traffic_manager.py")
    def test_nobody_passes_by_what_waits(self, clock):
        clock.trace(1, b"\2", time=0)
        with pytest.raises(InputError, match=r"1 packets wait .*; trace_until\(\) lets them leave"):
            clock.process([(1, b"\2")])
        with pytest.raises(InputError, match=r"1 packets wait .*; trace_until\(\) lets them leave"):
            clock.trace(1, b"\2")
        with pytest.raises(InputError, match="1 packets that were traced wait"):
            clock.process([(1, b"\2")], times=[5])
        assert len(of(clock.trace_until(), "sent")) == 1
        assert len(clock.process([(1, b"\2")] * 2, times=[5000] * 2, until=5000)) == 1
        with pytest.raises(InputError, match=r"wait .* that are not traced.*; run_until\(\)"):
            clock.trace(1, b"\2", time=5000)
        with pytest.raises(InputError, match=r"1 packets wait .*; run_until\(\) lets them leave"):
            clock.trace(1, b"\2")
        assert clock.run_until().to_packets() == [(2, b"\2" + bytes(5) + b"\5" + bytes(5) + b"\6")]
        assert clock.trace(1, b"\2", time=6000)

    def test_times_that_are_none(self, clock):
        clock.trace(1, b"\2", time=5)
        with pytest.raises(InputError, match="time runs forward: packet 0 is at 4 ns"):
            clock.trace(1, b"\2", time=4)
        with pytest.raises(InputError, match="time runs forward: until= is at 4 ns"):
            clock.trace_until(4)
        with pytest.raises(InputError, match="whole numbers of nanoseconds"):
            clock.trace(1, b"\2", time=1.5)
