"""Commands to simple_switch by Thrift: what travels, what goes wrong, and simple_switch itself."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading

import pytest
from support.bmv2 import needs_simple_switch
from support.switch_cases import program

from innet.bmv2 import cli, simple_switch
from innet.bmv2.process_commands import PROCESS_COMMANDS
from innet.bmv2.session import refused
from innet.core.errors import ControlError, MissingToolError, StalledError
from innet.switch import Switch, load_program

pytest.importorskip("thrift", reason="Thrift's library is not installed")

from innet.bmv2 import thrift_client
from innet.bmv2.control_plane import ThriftControlPlane
from innet.switch.control import commands


class StandIn:
    """A control plane that answers calls by what it was given, and keeps them.

    None instead of an answer ends the connection, and so does, after it, one that tells of a
    service that is not there, as simple_switch's does.
    """

    def __init__(self, answers):
        self.heard = []
        self._answers = iter(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                self._talk(client)

    def _talk(self, client):
        while read := client.recv(1 << 16):
            self.heard.append(read)
            answer = next(self._answers, b"")
            if answer is None:
                return
            client.sendall(answer)
            if b"Unknown service" in answer:
                return

    def close(self):
        with contextlib.suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def stand_in():
    made = []

    def make(*answers):
        made.append(StandIn(answers))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def control(stand_in):
    made = []

    def make(*answers):
        there = stand_in(*answers)
        made.append(ThriftControlPlane(program("fuzz_registers"), there.port))
        return there, made[-1]

    yield make
    for each in made:
        each.close()


def text(word):
    return struct.pack(">i", len(word)) + word.encode()


def reply(name, body, *, kind=2):
    """A whole answer: strict header, name, number 1, fields."""
    return struct.pack(">I", 0x80010000 | kind) + text(name) + struct.pack(">i", 1) + body


def field(code, number, content):
    return struct.pack(">bh", code, number) + content


STOP = b"\0"
REGISTER = "I.words"  # of the program fuzz_registers


def test_a_call_travels_as_thrifts_binary_protocol_has_it(control):
    answer = reply("bm_register_read", field(10, 0, struct.pack(">q", 77)) + STOP)
    there, runtime = control(answer)
    assert commands.run(runtime, f"register_read {REGISTER} 3") == f"{REGISTER}[3]= 77"
    runtime.close()
    expected = struct.pack(">I", 0x80010001) + text("standard:bm_register_read")
    expected += struct.pack(">i", 1)
    expected += field(8, 1, struct.pack(">i", 0)) + field(11, 2, text(REGISTER))
    expected += field(8, 3, struct.pack(">i", 3)) + STOP
    assert there.heard == [expected]


def test_a_refusal_is_told_in_words_and_the_connection_goes_on(control):
    refusal = field(12, 1, field(8, 1, struct.pack(">i", 2)) + STOP) + STOP
    unknown = field(11, 1, text("no such call")) + STOP
    good = reply("bm_register_read", field(10, 0, struct.pack(">q", 5)) + STOP)
    _, runtime = control(
        reply("bm_register_read", refusal),
        reply("bm_register_read", unknown, kind=3),
        good,
    )
    with pytest.raises(ControlError, match="the index is beyond the end"):
        commands.run(runtime, f"register_read {REGISTER} 3")
    with pytest.raises(ControlError, match="no such call"):
        commands.run(runtime, f"register_read {REGISTER} 3")
    assert commands.run(runtime, f"register_read {REGISTER} 0") == f"{REGISTER}[0]= 5"
    runtime.close()


def test_nobody_there_a_silent_one_and_one_that_goes_are_named(control, stand_in):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ControlError, match=f"cannot be reached at port {port}"):
        ThriftControlPlane(program("fuzz_registers"), port)
    _, runtime = control(None)
    with pytest.raises(ControlError, match="control plane is gone"):
        commands.run(runtime, f"register_read {REGISTER} 3")
    there = stand_in()
    client = thrift_client.ThriftClient(there.port, seconds=0.1)
    with pytest.raises(StalledError, match=r"did not answer get_time_elapsed_us in 0\.1 s"):
        client.call("get_time_elapsed_us")
    with pytest.raises(ControlError, match="control plane is gone"):
        client.call("get_time_elapsed_us")


def test_a_garbled_answer_is_refused(control):
    _, runtime = control(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises((ControlError, StalledError)):
        commands.run(runtime, f"register_read {REGISTER} 3")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nothing 1", "unknown command 'nothing'"),
        ("shell ls", "type its command in a terminal"),
        ("register_read", "usage: register_read REGISTER"),
        ("register_read nowhere 1", "unknown register 'nowhere'"),
        ("register_read I.words one", "the index is 'one'; give an integer"),
        ("register_write I.words 0 0x1ffffffffffffffff", "does not fit"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(control, line, said):
    there, runtime = control()
    with pytest.raises(ControlError, match=said):
        commands.run(runtime, line)
    runtime.close()
    there.close()
    assert there.heard == []


def test_services_that_are_not_there_yet_are_waited_for(control):
    absent = field(11, 1, text("Unknown service: simple_switch")) + STOP
    refused = field(12, 1, field(8, 1, struct.pack(">i", 1)) + STOP) + STOP
    seen, runtime = control(
        reply("bm_register_read_all", refused),
        *[reply("bm_mc_get_entries", absent, kind=3)] * 2,
        reply("bm_mc_get_entries", field(11, 0, text("{}")) + STOP),
        reply("get_time_elapsed_us", absent, kind=3),
        reply("get_time_elapsed_us", field(10, 0, struct.pack(">q", 1)) + STOP),
    )
    runtime.wait()
    assert len(seen.heard) == 6
    _, runtime = control(*[reply("bm_register_read_all", absent, kind=3)] * 9)
    with pytest.raises(StalledError, match="all of its services within 0 s"):
        runtime.wait(0)


READY = (
    reply("bm_register_read_all", field(12, 1, field(8, 1, struct.pack(">i", 1)) + STOP) + STOP),
    reply("bm_mc_get_entries", field(11, 0, text("{}")) + STOP),
    reply("get_time_elapsed_us", field(10, 0, struct.pack(">q", 1)) + STOP),
)
"""Answers of a simple_switch all of whose services are there."""


def test_answers_as_text_say_what_was_refused(stand_in):
    refusal = field(12, 1, field(8, 1, struct.pack(">i", 2)) + STOP) + STOP
    there = stand_in(*READY, reply("bm_register_read", refusal), None)
    client = cli.CommandClient(program("fuzz_registers"), there.port)
    answers = client.run([f"register_read {REGISTER} 0", "register_read nowhere", "port_add 1 x"])
    assert [refused(answer) for answer in answers] == [True] * 3
    assert answers[0] == "Error: the index is beyond the end"
    assert answers[2] == "Error: a port is a number, not 'x'"
    for line in ("# nothing", "", "register_reset words\nregister_reset words"):
        with pytest.raises(ControlError, match="not one command"):
            client.run([line])
    with pytest.raises(ControlError, match="control plane is gone"):
        client.run([f"register_read {REGISTER} 0"])
    client.close()


def test_what_does_not_fit_a_call_is_not_sent(control):
    answer = reply("bm_register_read", field(10, 0, struct.pack(">q", 5)) + STOP)
    there, runtime = control(answer)
    with pytest.raises(ControlError, match="bm_mc_node_destroy does not take"):
        commands.run(runtime, f"mc_node_destroy {1 << 40}")
    assert commands.run(runtime, f"register_read {REGISTER} 0") == f"{REGISTER}[0]= 5"
    assert len(there.heard) == 1


def test_only_commands_about_the_process_are_beside_those_of_all_switches():
    beside = set(ThriftControlPlane.unavailable) | set(PROCESS_COMMANDS)
    assert not set(commands.COMMANDS) & beside
    assert {"table_add", "mc_node_create", "set_queue_rate"} <= set(commands.COMMANDS)


def test_simple_switch_suffices_without_its_command_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="simple_switch"):
        simple_switch.find_simple_switch()
    (tmp_path / "simple_switch").write_text("#!/bin/sh\n")
    (tmp_path / "simple_switch").chmod(0o755)
    assert simple_switch.find_simple_switch() == (tmp_path / "simple_switch", None)


SAME_ANSWERS = {
    "switch_tables": [
        "show_tables",
        "table_info lpm_table",
        "table_add exact_table exactly 5 6 => 0x7f",
        "table_add exact_table exactly 5 6 => 1",  # a second time
        "table_add lpm_table I.lpm 2 10.1.2.0/24 => 3",
        "table_add odd_table odd 0x100/9 => 4",
        "table_add ternary_table ternary_ 0x123400&&&0xffff00 4 valid&&&1 => 5 10",
        "table_add ternary_table ternary_ 1 4 5 => 5 10",  # too many fields
        "table_add range_table range_ 5->9 0&&&0 => 6 7",
        "table_add optional_table optional_ 1&&&0xff 0&&&0 => 5 10",
        "table_add run_table two 3 => 300",
        "table_add run_table two 4 => 512",  # a port of 10 bits
        "table_add run_table leave 7 =>",
        "table_dump exact_table",
        "table_dump_entry_from_key exact_table 5 6",
        "table_dump_entry_from_key exact_table 5 7",  # there is none
        "table_dump_entry_from_key range_table 5->9 0&&&0 7",
        "table_set_timeout exact_table 0 1000",  # it has no timeouts
        "table_dump lpm_table",
        "table_dump odd_table",
        "table_dump ternary_table",
        "table_dump range_table",
        "table_dump optional_table",
        "table_dump constant_table",
        "table_dump run_table",
        "table_modify run_table drop 1 =>",
        "table_dump_entry run_table 1",
        "table_delete run_table 1",
        "table_delete run_table 1",  # it is gone
        "table_set_default run_table two 9",
        "table_num_entries run_table",
        "table_reset_default run_table",
        "table_dump run_table",
        "table_clear run_table",
        "table_clear constant_table",  # the program's own
        "table_num_entries run_table",
    ],
    "switch_state": [
        "register_read words 7",
        "register_write words 7 0xffffffff",
        "register_read words 7",
        "register_write wide 3 0xffffffffffff",
        "register_read wide 3",
        "register_reset words",
        "register_read words 7",
        "register_read words 256",
        "counter_write kinds 4 100 2000",
        "counter_read kinds 4",
        "counter_read kinds 256",
        "counter_reset kinds",
        "counter_read kinds 4",
    ],
    "switch_copies": [
        "mc_mgrp_create 3",
        "mc_node_create 9 1 5 2",
        "mc_node_create 10 3",
        "mc_node_associate 3 0",
        "mc_node_associate 3 1",
        "mc_node_associate 3 7",  # there is none
        "mc_node_update 0 2 8",
        "mc_dump",
        "mc_node_dissociate 3 0",
        "mc_dump",
        "mc_node_destroy 0",
        "mc_set_lag_membership 1 8 2",
        "mc_set_lag_membership 256 8",  # one too many
        "mc_node_create 4 5 | 0 1",
        "mc_node_associate 3 0",
        "mc_dump",
        "mc_mgrp_destroy 3",
        "mirroring_add 5 4",
        "mirroring_get 5",
        "mirroring_add_mc 6 3",
        "mirroring_get 6",
        "mirroring_delete 5",
        "mirroring_get 5",  # it is gone
        "set_queue_depth 100",
        "set_queue_depth 0 1",
        "set_queue_depth 2147483647 1 0",
        "set_queue_depth 5 1 1",  # the only priority is 0
        "set_queue_depth 5 1 40",
        "set_queue_depth 5 512",
        "set_queue_rate 1000",
        "set_queue_rate 1000 3",
        "set_queue_rate 9223372036854775807 510 0",
        "set_queue_rate 5 1 1",
        "set_queue_rate -1",
    ],
    "switch_profiles": [
        "act_prof_create_member members plain 7",
        "act_prof_create_member members plain 9",
        "act_prof_create_member members nothing 9",
        "act_prof_create_member ways go 3 4",
        "act_prof_create_member ways go 5 6",
        "act_prof_create_group ways",
        "act_prof_add_member_to_group ways 0 0",
        "act_prof_add_member_to_group ways 1 0",
        "act_prof_add_member_to_group ways 1 0",  # it is in already
        "act_prof_modify_member ways go 1 7 8",
        "act_prof_dump ways",
        "act_prof_dump members",
        "act_prof_dump_member ways 1",
        "act_prof_dump_group ways 0",
        "act_prof_dump_group ways 9",
        "table_info plain_table",
        "table_indirect_set_default way_table 0",
        "table_dump way_table",
        "table_indirect_set_default_with_group way_table 0",
        "table_dump way_table",
        "act_prof_delete_group ways 0",  # still used
        "table_indirect_reset_default way_table",
        "act_prof_remove_member_from_group ways 1 0",
        "act_prof_delete_member ways 1",
        "table_dump_group way_table 0",
        "table_dump_member way_table 0",
        "act_prof_delete_group ways 0",
        "table_indirect_create_member way_table stay",
        "act_prof_dump ways",
        "table_indirect_add way_table 1 => 77",  # no such member
        "table_indirect_delete way_table 3",
    ],
    "fuzz_parser": [
        "show_pvs",
        "pvs_add nines 0x1ff",
        "pvs_add nines 3",
        "pvs_add nines 512",  # too wide
        "pvs_get nines",
        "pvs_remove nines 3",
        "pvs_get nines",
        "pvs_clear nines",
        "pvs_get nines",
    ],
    "switch_hashes": [
        "set_crc32_parameters calc_1 0x04c11db7 0xffffffff 0 false true",
        "set_crc16_parameters calc_3 0x8005 0xffff 0x10 1 0",
        "set_crc16_parameters calc_1 0x8005 0 0 1 0",  # of 32 bits
        "set_crc32_parameters calc_0 1 0 0 0 0",  # that cannot be changed
        "set_toeplitz_hash_key calc_0 00112233",  # another hash
    ],
    "switch_meters": [
        "meter_array_set_rates by_packets 0.5:10 1:20",
        "meter_get_rates by_packets 3",
        "meter_set_rates by_packets 3 0.25:5 2:7",
        "meter_get_rates by_packets 3",
        "meter_get_rates by_packets 999",
    ],
}


@pytest.mark.bmv2
@needs_simple_switch
@pytest.mark.parametrize("name", SAME_ANSWERS)
def test_simple_switch_answers_as_the_built_in_switch(name):
    """What both print is the same; what one refuses, the other refuses."""
    own = Switch(load_program(program(name)), "interpret")
    with simple_switch.open_session(program(name), [], [1], thrift=True) as session:
        for line in SAME_ANSWERS[name]:
            (theirs,) = session.attempt([line])
            try:
                assert theirs == own.command(line), line
            except ControlError:
                assert refused(theirs), line


@pytest.mark.bmv2
@needs_simple_switch
def test_commands_about_the_process_need_no_simple_switch_cli(tmp_path):
    with simple_switch.open_session(program("switch_state"), [], [1], thrift=True) as session:
        path = tmp_path / "program.json"
        assert session.command(f"write_config_to_file {path}  # all of it") == ""
        assert json.loads(path.read_text()) == program("switch_state")
        with pytest.raises(ControlError, match="port_remove 1: Error: the port cannot be"):
            session.command("port_remove 1")  # its packets come from files
        with pytest.raises(ControlError, match="port_add: Error: usage: port_add INTERFACE PORT"):
            session.command("port_add")


@pytest.mark.bmv2
@needs_simple_switch
def test_typed_operations_leave_the_same_in_both():
    builtin = Switch(load_program(program("switch_copies")), "interpret").control
    with simple_switch.open_session(program("switch_copies"), [], [1], thrift=True) as session:
        other = session.control
        for replicas in ([(2, 7), (3, 7), (6, 9)], [(5, 1)]):
            for control in (builtin, other):
                control.multicast_group(3, replicas)
            assert other.replication().replicas(3) == builtin.replication().replicas(3)
            assert other.replication().nodes == builtin.replication().nodes
        for control in (builtin, other):
            control.mirroring_add(5, port=1, group=3)
        assert other.mirroring_get(5) == builtin.mirroring_get(5)
        assert other.show_ports() == "port 1: p1, up"
        assert "thrift_port" in other.switch_info()
        other.reset_state()
        assert not other.replication().groups


@pytest.mark.bmv2
@needs_simple_switch
def test_simple_switch_has_as_many_priorities_as_it_is_told():
    own = Switch(load_program(program("switch_copies")), "interpret", priority_queues=3)
    session = simple_switch.open_session(
        program("switch_copies"), [], [1], thrift=True, priority_queues=3
    )
    with session:
        for priority in range(5):
            for line in (f"set_queue_depth 7 1 {priority}", f"set_queue_rate 9 1 {priority}"):
                (theirs,) = session.attempt([line])
                if priority < 3:
                    assert theirs == own.command(line) == ""
                    continue
                with pytest.raises(ControlError, match=f"there is no priority {priority}"):
                    own.command(line)
                assert theirs.startswith(f"Error: there is no priority {priority}: this simple_sw")
        assert session.attempt(["queue_read"])[0].startswith(
            "Error: simple_switch does not report its queues"
        )
        elapsed = int(session.command("get_time_elapsed"))
        assert 0 < elapsed < int(session.command("get_time_since_epoch"))
