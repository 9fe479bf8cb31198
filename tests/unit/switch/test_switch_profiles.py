"""Action profiles: what is in use stays, groups choose by hash, and refused commands do nothing."""

from __future__ import annotations

import copy

import pytest
from support.switch_cases import program

from innet.core.errors import ControlError, ProgramError
from innet.switch import Switch
from innet.switch.frontend.loader import load_program
from innet.switch.state.hashes import HashState

ENGINES = ["interpret", "jit"]


@pytest.fixture(scope="module")
def document():
    return program("switch_profiles")


@pytest.fixture
def switch(document):
    return Switch.load(document, engine="interpret")


def packet(kind=0, flow=0, address=0x0A000001, part=0, odd=0):
    head = bytes([kind]) + flow.to_bytes(2, "big") + address.to_bytes(4, "big")
    return head + (part << 13 | odd).to_bytes(2, "big") + b"\0"


def marks(switch, data, port=0):
    """(port, the bytes that the program marks) of the one packet that comes back."""
    [(to, sent)] = switch.process([(port, data)])
    return to, sent[len(data) :]


def state_of(switch):
    profiles = [(copy.deepcopy(each.members), each.groups) for each in switch.state.profiles]
    tables = [(list(table), table.default) for table in switch.state.tables]
    return copy.deepcopy((profiles, tables))


def test_handles_are_the_lowest_that_are_free(switch):
    control = switch.control
    assert [control.act_prof_create_member("members", "plain", [i]) for i in range(3)] == [0, 1, 2]
    control.act_prof_delete_member("members", 1)
    assert control.act_prof_create_member("members", "refuse") == 1
    assert [control.act_prof_create_group("ways") for _ in range(2)] == [0, 1]
    control.act_prof_delete_group("ways", 0)
    assert switch.command("act_prof_create_group ways") == "Group has been created with handle 0"


def test_what_is_in_use_cannot_be_deleted(switch):
    switch.commands(
        """
        act_prof_create_member ways go 1 2
        act_prof_create_member ways stay
        act_prof_create_member ways stay
        act_prof_create_group ways
        act_prof_add_member_to_group ways 0 0
        table_indirect_add_with_group way_table 7 => 0
        table_indirect_add way_table 8 => 1
        table_indirect_set_default way_table 2
        """
    )
    before = state_of(switch)
    for command, message in (
        ("act_prof_delete_member ways 0", "member 0 .* is used by group 0"),
        ("act_prof_delete_member ways 1", "entry 1 of table I.way_table"),
        ("act_prof_delete_member ways 2", "the default of table I.way_table"),
        ("act_prof_delete_group ways 0", "group 0 .* is used by entry 0 of table"),
    ):
        with pytest.raises(ControlError, match=message):
            switch.command(command)
    assert state_of(switch) == before
    switch.commands(
        """
        table_indirect_delete way_table 0
        act_prof_delete_group ways 0
        act_prof_delete_member ways 0
        table_clear way_table
        act_prof_delete_member ways 1
        table_indirect_reset_default way_table
        act_prof_delete_member ways 2
        """
    )
    assert switch.command("act_prof_dump ways") == ""


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("act_prof_create_member nothing go 1 2", "unknown action profile 'nothing'"),
        ("act_prof_create_member ways plain 1", "unknown action 'plain' of action profile"),
        ("act_prof_create_member ways go 1", "needs 2 parameters, not 1"),
        ("act_prof_create_member ways go 512 0", "512 does not fit the 9 bits"),
        ("act_prof_modify_member ways go 9 1 1", "has no member 9: there is 0"),
        ("act_prof_modify_member ways go -1 1 1", "has no member -1"),
        ("act_prof_delete_member ways 5", "has no member 5"),
        ("act_prof_delete_group ways 5", "has no group 5: there is 0, 1"),
        ("act_prof_create_group members", "has no selector, so it has no groups"),
        ("act_prof_add_member_to_group members 0 0", "has no selector"),
        ("act_prof_add_member_to_group ways 0 0", "member 0 is in group 0 of .* already"),
        ("act_prof_add_member_to_group ways 4 0", "has no member 4"),
        ("act_prof_add_member_to_group ways 0 4", "has no group 4"),
        ("act_prof_remove_member_from_group ways 0 1", "member 0 is not in group 1"),
        ("table_add way_table go 1 => 1 2", "takes its actions from action profile I.ways"),
        ("table_set_default way_table stay", "use table_indirect_add"),
        ("table_modify way_table stay 0", "action profile"),
        ("table_indirect_add way_table 1 => 3", "has no member 3"),
        ("table_indirect_add way_table 1 2 => 0", "needs 1 key fields, not 2"),
        ("table_indirect_add way_table 65536 => 0", "does not fit the 16 bits"),
        ("table_indirect_add way_table 6 => 0", "already has an entry with this match"),
        ("table_indirect_add way_table 1 0", "expected => and one handle"),
        ("table_indirect_add way_table 1 => 0 1", "expected => and one handle"),
        ("table_indirect_add masked_table 1&&&1 1&&&1 => 0", "the priority, which comes last|=>"),
        ("table_indirect_add_with_group way_table 1 => 1", "group 1 of I.ways is empty"),
        ("table_indirect_add_with_group way_table 1 => 2", "has no group 2"),
        ("table_indirect_add_with_group plain_table 1 => 0", "has no selector"),
        ("table_indirect_set_default way_table 3", "has no member 3"),
        ("table_indirect_set_default_with_group way_table 3", "has no group 3"),
        ("table_indirect_delete way_table 3", "no entry with handle 3"),
        ("act_prof_dump_member ways 3", "has no member 3"),
        ("act_prof_dump_group ways 3", "has no group 3"),
    ],
)
def test_refused_commands_change_nothing(switch, command, message):
    switch.commands(
        """
        act_prof_create_member ways go 1 2
        act_prof_create_group ways
        act_prof_create_group ways
        act_prof_add_member_to_group ways 0 0
        table_indirect_add way_table 6 => 0
        """
    )
    before = state_of(switch)
    with pytest.raises(ControlError, match=message):
        switch.command(command)
    assert state_of(switch) == before


def test_many_members_are_not_all_listed(switch):
    for _ in range(12):
        switch.command("act_prof_create_member ways go 1 2")
    with pytest.raises(ControlError, match=r"there is 0, 1, .* 9, \.\.\. \(12 in all\)$"):
        switch.command("act_prof_delete_member ways 99")


def test_simple_tables_have_no_members():
    switch = Switch.load(program("switch_tables"), engine="interpret")
    with pytest.raises(ControlError, match=r"table I\.exact_table has no action profile"):
        switch.command("table_indirect_add exact_table 1 1 => 0")


def test_what_there_is_is_listed(switch):
    switch.commands(
        """
        table_indirect_create_member way_table go 3 0x20
        table_indirect_create_member way_table stay
        table_indirect_create_group way_table
        table_indirect_add_member_to_group way_table 1 0
        table_indirect_add_member_to_group way_table 0 0
        table_indirect_add_with_group way_table 5 => 0
        table_indirect_set_default way_table 1
        """
    )
    assert switch.command("act_prof_dump I.ways") == (
        "member 0: I.go 0x3 0x20\nmember 1: I.stay\ngroup 0: members [0, 1]"
    )
    assert switch.command("table_dump_member way_table 1") == "member 1: I.stay"
    assert switch.command("act_prof_dump_group ways 0") == "group 0: members [0, 1]"
    assert switch.command("table_dump way_table") == (
        "0: 0x5 => group 0 priority 0\ndefault: member 1"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_the_hash_chooses_by_position_among_ascending_handles(document, engine):
    switch = Switch.load(document, engine=engine)
    for port in range(1, 6):
        switch.command(f"act_prof_create_member ways go {port} 0")
    switch.command("act_prof_create_group ways")
    for member in (4, 0, 3):
        switch.command(f"act_prof_add_member_to_group ways {member} 0")
    switch.command("table_indirect_add_with_group way_table 1 => 0")
    crc16 = HashState("crc16").value
    for address in range(40):
        # 32 bits of address, 3 of part, 9 of port; the absent header leaves its bits out.
        inputs = (address << 12 | 5 << 9 | 300) << 4
        chosen = (0, 3, 4)[crc16(inputs.to_bytes(6, "big")) % 3]
        assert marks(switch, packet(flow=1, address=address, part=5), 300)[0] == chosen + 1


@pytest.mark.parametrize("engine", ENGINES)
def test_changes_of_members_and_groups_are_seen_at_once(document, engine):
    switch = Switch.load(document, engine=engine)
    switch.commands(
        """
        act_prof_create_member ways go 3 7
        act_prof_create_member ways stay
        act_prof_create_group ways
        act_prof_add_member_to_group ways 0 0
        table_indirect_add_with_group way_table 1 => 0
        """
    )
    miss, hit = packet(flow=2), packet(flow=1)
    assert marks(switch, miss) == (1, bytes([0, 0, 0, 0, 3, 5, 0, 6]))
    assert marks(switch, hit) == (3, bytes([0, 7, 0, 0, 3 + 16, 0, 0, 6]))
    switch.command("act_prof_modify_member ways go 0 4 9")
    assert marks(switch, hit) == (4, bytes([0, 9, 0, 0, 3 + 16, 0, 0, 6]))
    # A group that became empty runs nothing; the entry still counts and meters.
    switch.command("act_prof_remove_member_from_group ways 0 0")
    assert marks(switch, hit) == (1, bytes([0, 0, 0, 0, 3, 0, 0, 6]))
    assert switch.control.counter_read("way_hits", 0)[0] == 3
    switch.command("table_indirect_set_default_with_group way_table 0")
    assert marks(switch, miss) == (1, bytes([0, 0, 0, 0, 3, 5, 0, 6]))
    switch.command("act_prof_add_member_to_group ways 1 0")
    assert marks(switch, miss) == (1, bytes([0, 0, 0, 0, 1 + 32, 5, 0, 6]))
    switch.command("table_indirect_reset_default way_table")
    assert marks(switch, miss) == (1, bytes([0, 0, 0, 0, 3, 5, 0, 6]))


@pytest.mark.parametrize("engine", ENGINES)
def test_tables_that_share_a_profile_each_run_their_own_copy(document, engine):
    switch = Switch.load(document, engine=engine)
    switch.commands(
        """
        act_prof_create_member odd_ways masked 7
        act_prof_create_member odd_ways prefixed 8
        table_indirect_add prefix_table 10.0.0.0/8 => 0
        table_indirect_add masked_table 0&&&0 0&&&0 => 1 1
        """
    )
    assert marks(switch, packet())[1][2:4] == bytes([7, 8])
    switch.command("act_prof_modify_member odd_ways prefixed 0 9")
    assert marks(switch, packet())[1][2:4] == bytes([0, 8])


def test_members_mean_something_to_every_table_that_shares_a_profile(document):
    smaller = copy.deepcopy(document)
    tables = smaller["pipelines"][0]["tables"]
    table = next(table for table in tables if table["name"] == "I.prefix_table")
    place = table["actions"].index("I.leave")
    del table["actions"][place], table["action_ids"][place]
    switch = Switch.load(smaller, engine="interpret")
    switch.command("act_prof_create_member odd_ways masked 7")
    with pytest.raises(ControlError, match="unknown action 'leave' of action profile"):
        switch.command("act_prof_create_member odd_ways leave 7")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "simple"}, "is simple, but has an action profile"),
        ({"type": "indirect", "action_profile": None}, "is indirect, but has no action profile"),
        ({"action_profile": "I.members"}, "is indirect_ws, but its profile I.members has no"),
        ({"entries": []}, "is indirect_ws, but has its own entries"),
    ],
)
def test_tables_and_profiles_must_fit(document, change, message):
    wrong = copy.deepcopy(document)
    tables = wrong["pipelines"][0]["tables"]
    next(table for table in tables if table["name"] == "I.way_table").update(change)
    with pytest.raises(ProgramError, match=message):
        load_program(wrong)
