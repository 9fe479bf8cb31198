"""Commands of all kinds: what they answer, and that one that is refused changes nothing."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.switch_cases import program
from support.tiers import examples

from innet.core.errors import ControlError, InputError
from innet.switch import Switch
from innet.switch.control.commands import COMMANDS


def snapshot(switch):
    """All that a command could change, as plain values."""
    state = switch.state
    tables = [
        (list(table), table.default, table.columns.versions.tolist()) for table in state.tables
    ]
    arrays = [
        *(cells.tobytes() for cells in (*state.registers, *state.counters)),
        *(cells.tobytes() for meter in state.meters for cells in (meter.rates, meter.cells)),
    ]
    profiles = [(profile.members, profile.groups) for profile in state.profiles]
    replication = state.replication
    nodes = {h: (n.rid, n.ports, n.lags, n.group) for h, n in replication.nodes.items()}
    copied = (replication.groups, nodes, replication.lags, replication.sessions)
    hashes = [(each.parameters, each.key, each.count.tolist()) for each in state.hashes]
    manager = state.traffic_manager
    queues = (manager.queues.tobytes(), manager.used_queues())
    others = (state.value_sets, hashes, state.clock, state.generation.value, queues)
    return copy.deepcopy((tables, arrays, profiles, copied, others))


def switch_of(name):
    switch = Switch.load(program(name), engine="interpret")
    switch.commands("mc_mgrp_create 1\nmc_node_create 1 2 | 3\nmirroring_add 5 1")
    if name == "switch_profiles":
        switch.commands(
            """
            act_prof_create_member ways go 1 2
            act_prof_create_group ways
            act_prof_add_member_to_group ways 0 0
            table_indirect_add_with_group way_table 1 => 0
            """
        )
    if name == "switch_tables":
        switch.command("table_add exact_table exactly 5 0 => 1")
    return switch


SWITCHES = {
    name: switch_of(name)
    for name in ("switch_tables", "switch_profiles", "switch_meters", "switch_state")
}
WORDS = ["0", "1", "2", "5", "7", "-1", "511", "65536", "1.5", "1:2", "0:0", "nan:1", "1:-1"]
WORDS += ["=>", "|", "x", "0x", "1&&&1", "5->1", "1/8", "10.0.0.0/8", "10.0.0.0/33", "true"]
WORDS += ["9" * 5000, "\u0663", "00:11:22:33:44:55", "::1", "nothing", "", "#", "1e999:1"]


def names_of(switch):
    parts = switch.program
    kinds = (parts.tables, parts.actions, parts.registers, parts.counters, parts.meters)
    more = (parts.action_profiles, parts.calculations, parts.value_sets)
    return [each.name for kind in (*kinds, *more) for each in kind]


@st.composite
def garbage(draw):
    """A program's name and a line of words that may belong together."""
    name = draw(st.sampled_from(sorted(SWITCHES)))
    command = draw(st.sampled_from([*sorted(COMMANDS), "nonsense"]))
    words = st.one_of(
        st.sampled_from(names_of(SWITCHES[name])), st.sampled_from(WORDS), st.text(max_size=4)
    )
    return name, " ".join([command, *draw(st.lists(words, max_size=6))])


@settings(deadline=None, max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(garbage())
@example(("switch_tables", "table_add I.ternary_table I.ternary_ 1 1 1 => 1"))
@example(("switch_tables", "mc_node_update 0 1 1"))
@example(("switch_tables", "mc_node_update 0 1 | 256"))
@example(("switch_meters", "meter_set_rates I.by_packets 0 1:1 0.5:1"))
def test_a_refused_command_changes_nothing(given_line):
    name, line = given_line
    switch = SWITCHES[name]
    before = snapshot(switch)
    try:
        switch.command(line)
    except ControlError:
        assert snapshot(switch) == before
    else:
        if snapshot(switch) != before:  # it was a good one: go on from the start
            SWITCHES[name] = switch_of(name)


# ── What they answer ─────────────────────────────────────────────────────────────────────────────


def test_tables_and_actions_are_described():
    switch = switch_of("switch_tables")
    tables = switch.command("show_tables").splitlines()
    assert any(line.startswith("I.exact_table [h.key.exact_key(exact, 16), ") for line in tables)
    assert "I.exactly [v(8)]" in switch.command("show_actions").splitlines()
    listed = switch.command("table_show_actions exact_table").splitlines()
    assert {line.split()[0] for line in listed} >= {"I.exactly", "I.drop"}
    assert switch.command("table_info exact_table").splitlines()[1:] == listed


def test_a_name_may_have_the_sign_of_comments_in_it():
    document = program("switch_state")
    register = document["register_arrays"][0]
    text = json.dumps(document).replace(json.dumps(register["name"]), '"I.a#b"')
    switch = Switch.load(json.loads(text), engine="interpret")
    assert switch.command("register_write I.a#b 0 7 #register") == ""
    assert switch.command("register_read I.a#b 0") == "I.a#b[0]= 7"
    assert switch.command("# register_write I.a#b 0 8") == ""
    assert switch.registers["I.a#b"][0] == 7


def test_entries_are_found_by_handle_and_by_key():
    switch = switch_of("switch_tables")
    line = "0: 0x5 0x0 => I.exactly 0x1 priority 0"
    assert switch.command("table_dump_entry exact_table 0") == line
    assert switch.command("table_dump_entry_from_key exact_table 5 0") == line
    handle = switch.table_add("lpm_table", "lpm", [1, "10.1.0.0/16"], [9])
    found = switch.command("table_dump_entry_from_key lpm_table 1 10.1.2.3/16")
    assert found == f"{handle}: 0x1 0xa010000/16 => I.lpm 0x9 priority 0"
    switch.table_add("range_table", "range_", [(1, 5), (0, 0)], [3], 7)
    assert switch.command("table_dump_entry_from_key range_table 1->5 0&&&0 7").startswith("0: ")
    for command in (
        "table_dump_entry_from_key range_table 1->5 0&&&0 8",
        "table_dump_entry_from_key range_table 1->6 0&&&0 7",
        "table_dump_entry_from_key exact_table 5 1",
        "table_dump_entry exact_table 1",
    ):
        with pytest.raises(ControlError, match="no entry"):
            switch.command(command)


def test_the_validity_of_a_header_has_names():
    switch = Switch.load(program("jit_tables"), engine="interpret")
    switch.command("table_add wide_table wide_mark 1 2 true 3 => 4")
    assert switch.command("table_dump_entry_from_key wide_table 1 2 valid 3").startswith("0: ")
    with pytest.raises(ControlError, match="'true' is no number for key field"):
        switch.command("table_add wide_table wide_mark true 2 1 3 => 4")


def test_the_switch_itself():
    switch = switch_of("switch_state")
    switch.state.clock = 1234
    assert switch.command("get_time_elapsed") == switch.command("get_time_since_epoch") == "1234"
    assert switch.command("switch_info").startswith("program: switch_state")
    assert switch.command("show_ports") == "ports 0..510 are up"
    assert switch.command("show_pvs") == ""
    with pytest.raises(ControlError, match="reset_state of simple_switch_CLI means nothing here"):
        switch.command("reset_state")


UNUSED = "no queue was used so far, or set by its port"


def test_queues_are_set_and_shown():
    switch = Switch.load(program("switch_copies"), engine="interpret", priority_queues=2)
    assert switch.command("queue_read") == UNUSED
    assert switch.command("set_queue_depth 10") == switch.command("set_queue_rate 1000") == ""
    assert switch.command("queue_read") == UNUSED
    line = "port 3 priority 0: depth 0, capacity 10, rate 1000, dropped 0"
    assert switch.command("queue_read 3 0") == line
    assert switch.command("set_queue_depth 5 4") == switch.command("set_queue_rate 0 4 1") == ""
    shown = [
        "port 4 priority 0: depth 0, capacity 5, rate 1000, dropped 0",
        "port 4 priority 1: depth 0, capacity 5, rate unlimited, dropped 0",
    ]
    assert switch.command("queue_read").splitlines() == shown
    assert switch.command("queue_read 0x4").splitlines() == shown
    assert switch.command("queue_read 4 1") == shown[1]
    assert switch.command("set_queue_depth 0 4 1") == ""
    assert switch.control.queue_read(4, 1) == [switch.traffic_manager.queue(4, 1)]
    assert switch.traffic_manager.queue(4, 1).capacity == 0
    assert switch.traffic_manager.queue(4, 0).capacity == 5
    assert "innet's own" in switch.command("help queue_read")


@pytest.mark.parametrize("command", ["set_queue_depth 5 ", "set_queue_rate 5 ", "queue_read "])
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("512", "512 does not fit the 9 bits of the port"),
        ("-1", "-1 does not fit the 9 bits of the port"),
        ("x", "the port is 'x'; give an integer"),
        ("1 2", "no priority 2: this switch has 2 queues per port; --priority-queues says how"),
        ("1 40", "no priority 40: this switch has 2 queues per port"),
        ("1 -1", "-1 does not fit the 31 bits of the priority"),
        ("1 x", "the priority is 'x'; give an integer"),
        ("1 1 1", r"EGRESS_PORT \[PRIORITY\]\]"),
    ],
)
def test_queues_that_are_not_there(command, where, message):
    switch = Switch.load(program("switch_copies"), engine="interpret", priority_queues=2)
    with pytest.raises(ControlError, match=message):
        switch.command(command + where)
    assert switch.traffic_manager.used_queues() == []


def test_depths_and_rates_that_no_queue_has():
    switch = switch_of("switch_copies")
    for line, message in (
        ("set_queue_depth", r"usage: set_queue_depth NB_PKTS \[EGRESS_PORT \[PRIORITY\]\]"),
        ("set_queue_rate", r"usage: set_queue_rate RATE_PPS \[EGRESS_PORT \[PRIORITY\]\]"),
        ("set_queue_depth -1", "-1 does not fit the 31 bits of the depth"),
        ("set_queue_depth 0x80000000", "0x80000000|2147483648"),
        ("set_queue_depth 1.5", "the number of packets is '1.5'; give an integer"),
        ("set_queue_rate -1", "-1 does not fit the 63 bits of the rate"),
        ("set_queue_rate fast 1", "the rate is 'fast'; give an integer"),
    ):
        with pytest.raises(ControlError, match=message):
            switch.command(line)
    with pytest.raises(ControlError, match="the priority of a queue needs a port"):
        switch.control.set_queue_rate(1, priority=0)
    assert switch.command("queue_read") == UNUSED


def test_every_command_is_described():
    switch = switch_of("switch_tables")
    listed = switch.command("help").splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    for name, known in COMMANDS.items():
        usage, sentence = switch.command(f"help {name}").splitlines()
        assert usage == f"{name} {known.usage}".rstrip()
        assert sentence.strip().endswith("."), name
    with pytest.raises(ControlError, match="Did you mean 'table_add'"):
        switch.command("help table_ad")
    with pytest.raises(ControlError, match="all ports are there"):
        switch.command("help port_add")


def test_what_a_command_needs_is_what_its_usage_says():
    needs = {name: (each.least, each.most) for name, each in COMMANDS.items()}
    assert needs["table_add"] == needs["table_modify"] == (3, None)
    assert needs["table_dump_entry_from_key"] == needs["mc_node_update"] == (2, None)
    assert needs["mc_node_create"] == (1, None)
    assert needs["register_read"] == (1, 2)
    assert needs["set_queue_rate"] == (1, 3)
    assert needs["queue_read"] == (0, 2)
    assert needs["table_dump_member"] == (2, 2)
    assert needs["show_tables"] == (0, 0)


def test_mirror_sessions_are_shown():
    switch = switch_of("switch_state")
    assert switch.command("mirroring_get 5") == "port 1, multicast group None"
    with pytest.raises(ControlError, match="no mirror session 6"):
        switch.command("mirroring_get 6")


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_an_aggregation_group_sends_to_one_of_its_ports(engine):
    switch = Switch.load(program("jit_tables"), engine=engine)
    switch.commands(
        """
        table_set_default ternary_table ternary_group 1
        mc_mgrp_create 1
        mc_node_create 9 6 2 | 1 0 7
        mc_node_associate 1 0
        mc_set_lag_membership 0 5 4
        """
    )
    packet = (0, bytes(30))
    # The ports of the node, then of each lag the one at 255 modulo its size; lags 1, 7 have none.
    assert [port for port, _ in switch.process([packet])] == [2, 6, 5]
    switch.command("mc_set_lag_membership 1 8 9 3")
    assert [port for port, _ in switch.process([packet])] == [2, 6, 5, 3]
    switch.command("mc_node_update 0 1 | 1")
    assert [port for port, _ in switch.process([packet])] == [1, 3]
    assert switch.command("mc_dump").splitlines() == [
        "group 1: port 1 rid 9, port 3 rid 9",
        "lag 0: ports 4, 5",
        "lag 1: ports 3, 8, 9",
    ]
    for command in ("mc_set_lag_membership 256 1", "mc_set_lag_membership 0 1 1"):
        with pytest.raises(ControlError):
            switch.command(command)


@pytest.mark.parametrize("given", [5, None, b"show_tables", ["show_tables"]])
def test_a_command_is_text(given):
    switch = Switch.load(program("switch_tables"), "interpret")
    for run in (switch.command, switch.commands):
        with pytest.raises(InputError, match=f"not {type(given).__name__}"):
            run(given)


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_all_cells_of_counters_are_read_of_direct_ones_those_of_entries(engine):
    switch = Switch.load(program("fuzz_counters"), engine=engine)
    control = switch.control
    control.counter_write("both", 1, 3, 200)
    assert control.counter_read_all("I.both") == [(0, 0), (3, 200), (0, 0), (0, 0), (0, 0)]
    assert control.counter_read_all("exact_hits") == []
    for key in (5, 6, 7):
        switch.command(f"table_add exactly drop {key} =>")
    switch.command("table_delete exactly 1")
    control.counter_write("exact_hits", 2, 4, 300)
    assert control.counter_read_all("exact_hits") == [(0, 0), (4, 300)]
    with pytest.raises(ControlError, match="unknown counter 'nothing'"):
        control.counter_read_all("nothing")
