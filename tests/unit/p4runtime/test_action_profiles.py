"""Members, groups, weights, watched ports and one-shot action sets over P4Runtime."""

from __future__ import annotations

import random
from collections import Counter

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("grpc", reason="gRPC is not installed")

from support.p4runtime import DELETE, INSERT, MODIFY, Client, p4info_of

from innet.core.errors import InnetError
from innet.p4runtime.messages import p4
from innet.p4runtime.status import Code, status_of


@pytest.fixture
def client():
    return Client("switch_profiles")


def refused(call, *arguments, **options):
    with pytest.raises(InnetError) as error:
        call(*arguments, **options)
    return status_of(error.value).code


def member(c, number, action="I.go", values=(b"\1", b"\1"), profile="I.ways"):
    made = p4.ActionProfileMember(action_profile_id=c.id(profile), member_id=number)
    made.action.CopyFrom(c.action(action, *values))
    return made


def group(c, number, *members, profile="I.ways", **fields):
    """Members as (id, weight) or (id, weight, watch_port)."""
    made = p4.ActionProfileGroup(action_profile_id=c.id(profile), group_id=number, **fields)
    for each in members:
        added = made.members.add(member_id=each[0], weight=each[1])
        if len(each) == 3:
            added.watch_port = each[2]
    return made


def by_group(c, number, flow=7):
    entry = c.entry("I.way_table", {1: bytes([flow])})
    entry.action.action_profile_group_id = number
    return entry


def ways(c, count=256, flow=7):
    """How many of so many flows left by each port."""
    draw = random.Random(1)
    packets = [(0, bytes([0, 0, flow]) + draw.randbytes(4) + b"\0\0\0") for _ in range(count)]
    return Counter(port for port, _ in c.switch.process(packets))


class TestMembers:
    def test_are_read_as_they_were_written(self, client):
        c = client
        first, second = member(c, 5), member(c, 9, "I.stay", ())
        for each in (first, second):
            c.write(INSERT, action_profile_member=each)
        assert c.read(action_profile_member=p4.ActionProfileMember()) == [first, second]
        changed = member(c, 5, values=(b"\2", b"\3"))
        c.write(MODIFY, action_profile_member=changed)
        wanted = p4.ActionProfileMember(action_profile_id=c.id("I.ways"), member_id=5)
        assert c.read(action_profile_member=wanted) == [changed]
        c.write(DELETE, action_profile_member=wanted)
        assert c.read(action_profile_member=p4.ActionProfileMember()) == [second]

    def test_ids_that_are_nowhere(self, client):
        c = client
        made = member(c, 5)
        action = made.action.action_id
        for number in (0, made.action_profile_id + 1, 0xFF000000, action):
            made.action_profile_id = number
            code = refused(c.write, INSERT, action_profile_member=made)
            assert code is Code.INVALID_ARGUMENT
            if number:
                wanted = p4.ActionProfileMember(action_profile_id=number)
                assert refused(c.read, action_profile_member=wanted) is Code.INVALID_ARGUMENT
        made.action_profile_id = c.id("I.ways")
        for number in (0, action ^ 0x5A5A, 0xFF000000, c.id("I.masked")):
            made.action.action_id = number
            code = refused(c.write, INSERT, action_profile_member=made)
            assert code is Code.INVALID_ARGUMENT
        assert c.read(action_profile_member=p4.ActionProfileMember()) == []

    def test_codes(self, client):
        c = client
        each = member(c, 5)
        for kind in (MODIFY, DELETE):
            assert refused(c.write, kind, action_profile_member=each) is Code.NOT_FOUND
        c.write(INSERT, action_profile_member=each)
        assert refused(c.write, INSERT, action_profile_member=each) is Code.ALREADY_EXISTS
        assert refused(c.write, INSERT, action_profile_member=member(c, 0)) is Code.INVALID_ARGUMENT
        bare = p4.ActionProfileMember(action_profile_id=c.id("I.ways"), member_id=6)
        assert refused(c.write, INSERT, action_profile_member=bare) is Code.INVALID_ARGUMENT
        other = member(c, 6, "I.masked", (b"\1",))
        assert refused(c.write, INSERT, action_profile_member=other) is Code.INVALID_ARGUMENT
        entry = c.entry("I.way_table", {1: b"\7"})
        entry.action.action_profile_member_id = 5
        c.write(INSERT, table_entry=entry)
        assert c.read(table_entry=c.entry("I.way_table", {})) == [entry]
        assert refused(c.write, DELETE, action_profile_member=each) is Code.FAILED_PRECONDITION
        entry.match[0].exact.value = b"\x08"
        entry.action.action_profile_member_id = 6
        assert refused(c.write, INSERT, table_entry=entry) is Code.NOT_FOUND

    def test_a_full_profile(self, client):
        c = client
        updates = [member(c, i + 1, "I.masked", (b"\1",), "I.odd_ways") for i in range(17)]
        codes = c.batch(*((INSERT, p4.Entity(action_profile_member=each)) for each in updates))
        assert codes[-1] is Code.RESOURCE_EXHAUSTED
        assert set(codes[:-1]) == {Code.OK}


class TestGroups:
    def fill(self, c, *ports):
        for number, port in enumerate(ports, 1):
            c.write(INSERT, action_profile_member=member(c, number, values=(bytes([port]), b"\1")))

    def test_weights_are_shares(self, client):
        c = client
        self.fill(c, 1, 2)
        made = group(c, 4, (1, 1), (2, 3))
        c.write(INSERT, action_profile_group=made)
        c.write(INSERT, table_entry=by_group(c, 4))
        assert c.read(action_profile_group=p4.ActionProfileGroup()) == [made]
        assert c.read(table_entry=c.entry("I.way_table", {})) == [by_group(c, 4)]
        shares = ways(c)
        assert sum(shares.values()) == 256
        assert 2 < shares[2] / shares[1] < 4
        c.write(MODIFY, action_profile_member=member(c, 2, values=(b"\5", b"\1")))
        assert ways(c) == {1: shares[1], 5: shares[2]}
        c.write(MODIFY, action_profile_group=group(c, 4, (1, 1)))
        assert ways(c) == {1: 256}

    def test_equals_of_a_member_go_with_its_weights(self, client):
        c = client
        self.fill(c, 1, 2)

        def equals():
            return len(c.switch.control.act_prof_members("I.ways"))

        for number, weight in ((4, 3), (5, 2)):
            c.write(INSERT, action_profile_group=group(c, number, (1, weight), (2, 1)))
        assert equals() == 3 + 1
        c.write(MODIFY, action_profile_group=group(c, 4, (2, 1), (1, 1)))
        assert equals() == 2 + 1
        found = c.read(action_profile_group=p4.ActionProfileGroup(group_id=5))
        assert found == [group(c, 5, (1, 2), (2, 1))]
        c.write(MODIFY, action_profile_group=group(c, 5, (2, 4)))
        assert equals() == 1 + 4
        c.write(DELETE, action_profile_group=group(c, 5))
        assert equals() == 1 + 1
        in_use = refused(c.write, DELETE, action_profile_member=member(c, 1))
        assert in_use is Code.FAILED_PRECONDITION
        c.write(DELETE, action_profile_group=group(c, 4))
        for number in (1, 2):
            c.write(DELETE, action_profile_member=member(c, number))
        assert equals() == 0

    def test_members_come_and_go(self, client):
        c = client
        self.fill(c, 1, 2)
        c.write(INSERT, action_profile_group=group(c, 4, (1, 1)))
        c.write(INSERT, table_entry=by_group(c, 4))
        assert ways(c) == {1: 256}
        for members, ports in (
            ([(1, 1)], {1}),  # the same again
            ([(1, 1), (2, 1)], {1, 2}),
            ([(2, 1)], {2}),
        ):
            c.write(MODIFY, action_profile_group=group(c, 4, *members))
            assert set(ways(c)) == ports
        wanted = p4.ActionProfileGroup(action_profile_id=c.id("I.ways"), group_id=4)
        assert c.read(action_profile_group=wanted) == [group(c, 4, (2, 1))]

    def test_a_group_that_is_made_again_has_its_new_members_only(self, client):
        c = client
        self.fill(c, 1, 2)
        c.write(INSERT, action_profile_group=group(c, 4, (1, 1), (2, 1)))
        c.write(DELETE, action_profile_group=group(c, 4))
        for number in (1, 2):
            c.write(DELETE, action_profile_member=member(c, number))
        self.fill(c, 1)
        c.write(INSERT, action_profile_group=group(c, 4, (1, 1)))
        c.write(INSERT, table_entry=by_group(c, 4))
        assert ways(c) == {1: 256}

    def test_another_watched_port(self, client):
        """Also one that is down already, and by the number that older controllers give."""
        c = client
        self.fill(c, 1, 2)
        c.ports.down = {4}

        def watching(port):
            made = group(c, 4, (1, 2), (2, 1))
            made.members[0].watch = port
            return made

        c.write(INSERT, action_profile_group=watching(7))
        c.write(INSERT, table_entry=by_group(c, 4))
        assert c.read(action_profile_group=p4.ActionProfileGroup()) == [watching(7)]
        assert set(ways(c)) == {1, 2}
        c.write(MODIFY, action_profile_group=watching(4))
        assert ways(c) == {2: 256}
        c.ports.down = {7}
        c.pipeline.ports_changed()
        assert set(ways(c)) == {1, 2}
        c.write(MODIFY, action_profile_group=watching(7))
        assert ways(c) == {2: 256}
        c.write(DELETE, table_entry=by_group(c, 4))
        c.write(DELETE, action_profile_group=group(c, 4))
        c.ports.down = set()
        c.pipeline.ports_changed()  # the group is gone
        assert c.switch.control.act_prof_groups("I.ways") == {}

    def test_the_size_that_p4info_allows(self):
        info = p4info_of("switch_profiles")
        (ways,) = (each for each in info.action_profiles if each.preamble.name == "I.ways")
        ways.max_group_size = 2
        c = Client("switch_profiles", info)
        self.fill(c, 1, 2, 3)
        for size in (0, 3):
            code = refused(c.write, INSERT, action_profile_group=group(c, 4, max_size=size))
            assert code is Code.INVALID_ARGUMENT
        three = group(c, 4, (1, 1), (2, 1), (3, 1), max_size=2)
        assert refused(c.write, INSERT, action_profile_group=three) is Code.RESOURCE_EXHAUSTED
        c.write(INSERT, action_profile_group=group(c, 4, (1, 1), (2, 1), max_size=2))
        other = Client("switch_profiles", info)
        entry = TestOneShots().entry(other, (1, 1), (2, 1), (3, 1))
        assert refused(other.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        assert other.switch.control.act_prof_members("I.ways") == {}

    def test_a_member_whose_port_is_down_is_left_out(self, client):
        c = client
        self.fill(c, 1, 2)
        c.write(INSERT, action_profile_group=group(c, 4, (1, 1, b"\1"), (2, 1, b"\2")))
        c.write(INSERT, table_entry=by_group(c, 4))
        before = ways(c)
        assert set(before) == {1, 2}
        c.ports.down = {2}
        c.pipeline.ports_changed()
        assert ways(c) == {1: 256}
        c.ports.down = set()
        c.pipeline.ports_changed()
        assert ways(c) == before

    def test_an_empty_group_does_nothing(self, client):
        c = client
        c.write(INSERT, action_profile_group=group(c, 4))
        c.write(INSERT, table_entry=by_group(c, 4))
        assert c.read(table_entry=c.entry("I.way_table", {})) == [by_group(c, 4)]
        assert ways(c, 4) == {1: 4}  # the program's own choice of port

    def test_codes(self, client):
        c = client
        self.fill(c, 1, 2)

        def code(kind, *members, number=4, **fields):
            return refused(c.write, kind, action_profile_group=group(c, number, *members, **fields))

        assert code(MODIFY) is Code.NOT_FOUND
        assert code(DELETE) is Code.NOT_FOUND
        assert code(INSERT, (9, 1)) is Code.NOT_FOUND
        assert code(INSERT, (1, 0)) is Code.INVALID_ARGUMENT
        assert code(INSERT, (1, 1), (1, 2)) is Code.INVALID_ARGUMENT
        assert code(INSERT, (1, 1, b"\x30")) is Code.INVALID_ARGUMENT  # no such port
        assert code(INSERT, (1, 9999)) is Code.RESOURCE_EXHAUSTED
        assert code(INSERT, (1, 3), max_size=2) is Code.RESOURCE_EXHAUSTED
        assert code(INSERT, number=0) is Code.INVALID_ARGUMENT
        assert code(INSERT, profile="I.members") is Code.INVALID_ARGUMENT
        c.write(INSERT, action_profile_group=group(c, 4, (1, 1), max_size=2))
        assert code(INSERT, (1, 1)) is Code.ALREADY_EXISTS
        assert code(MODIFY, (1, 1), max_size=3) is Code.INVALID_ARGUMENT
        used = refused(c.write, DELETE, action_profile_member=member(c, 1))
        assert used is Code.FAILED_PRECONDITION
        c.write(INSERT, table_entry=by_group(c, 4))
        assert code(DELETE) is Code.FAILED_PRECONDITION
        assert refused(c.write, INSERT, table_entry=by_group(c, 5, 8)) is Code.NOT_FOUND


class TestOneShots:
    def entry(self, c, *actions, flow=7):
        """(port, weight) or (port, weight, watch_port) of each action."""
        entry = c.entry("I.way_table", {1: bytes([flow])})
        made = entry.action.action_profile_action_set
        made.SetInParent()
        for port, weight, *watch in actions:
            added = made.action_profile_actions.add(weight=weight)
            added.action.CopyFrom(c.action("I.go", bytes([port]), b"\1"))
            if watch:
                added.watch_port = watch[0]
        return entry

    def test_are_read_as_they_were_written_and_leave_nothing(self, client):
        c = client
        before = c.everything()
        entry = self.entry(c, (1, 1), (2, 2, b"\2"), (1, 1))
        c.write(INSERT, table_entry=entry)
        assert c.read(table_entry=c.entry("I.way_table", {})) == [entry]
        assert set(ways(c)) == {1, 2}
        changed = self.entry(c, (3, 1))
        c.write(MODIFY, table_entry=changed)
        assert ways(c) == {3: 256}
        c.write(DELETE, table_entry=entry)
        assert c.everything() == before
        assert c.switch.control.act_prof_members("I.ways") == {}
        assert c.switch.control.act_prof_groups("I.ways") == {}

    def test_follow_watched_ports(self, client):
        c = client
        c.write(INSERT, table_entry=self.entry(c, (1, 1, b"\1"), (2, 2, b"\2")))
        c.ports.down = {1}
        c.pipeline.ports_changed()
        assert ways(c) == {2: 256}

    def test_codes(self, client):
        c = client
        assert refused(c.write, INSERT, table_entry=self.entry(c, (1, 0))) is Code.INVALID_ARGUMENT
        entry = self.entry(c, (1, 1))
        entry.action.action_profile_action_set.action_selection_mode = 2
        assert refused(c.write, INSERT, table_entry=entry) is Code.UNIMPLEMENTED
        c.write(INSERT, table_entry=self.entry(c, (1, 1)))
        same = self.entry(c, (2, 1))
        assert refused(c.write, INSERT, table_entry=same) is Code.ALREADY_EXISTS
        assert len(c.switch.control.act_prof_members("I.ways")) == 1  # the refused one left none
        assert refused(c.write, INSERT, action_profile_member=member(c, 1)) is Code.INVALID_ARGUMENT
        made = refused(c.write, INSERT, action_profile_group=group(c, 1))
        assert made is Code.INVALID_ARGUMENT
        plain = c.entry("I.plain_table", {1: b"\1"})
        plain.action.action_profile_action_set.SetInParent()
        assert refused(c.write, INSERT, table_entry=plain) is Code.INVALID_ARGUMENT
        plain.action.action.CopyFrom(c.action("I.refuse"))
        assert refused(c.write, INSERT, table_entry=plain) is Code.INVALID_ARGUMENT

    def test_not_beside_members_and_groups(self, client):
        c = client
        c.write(INSERT, action_profile_member=member(c, 1))
        assert refused(c.write, INSERT, table_entry=self.entry(c, (1, 1))) is Code.INVALID_ARGUMENT

    def test_an_empty_profile_is_free_for_either(self, client):
        c = client
        entry = self.entry(c, (1, 1), (2, 3))
        c.write(INSERT, table_entry=entry)
        one = member(c, 1)
        assert refused(c.write, INSERT, action_profile_member=one) is Code.INVALID_ARGUMENT
        c.write(DELETE, table_entry=entry)
        c.write(INSERT, action_profile_member=one)
        assert refused(c.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        c.write(DELETE, action_profile_member=one)
        c.write(INSERT, table_entry=entry)
        assert c.read(table_entry=c.entry("I.way_table", {})) == [entry]

    def test_the_watched_port_by_its_number(self, client):
        c = client
        entry = self.entry(c, (1, 2), (2, 2))
        for each in entry.action.action_profile_action_set.action_profile_actions:
            each.watch = each.action.params[0].value[0]
        c.write(INSERT, table_entry=entry)
        assert c.read(table_entry=c.entry("I.way_table", {})) == [entry]
        c.ports.down = {2}
        c.pipeline.ports_changed()
        assert ways(c) == {1: 256}
        c.ports.down = set()
        c.pipeline.ports_changed()
        assert set(ways(c)) == {1, 2}

    def test_the_default_entry_stays(self, client):
        c = client
        entry = c.entry("I.way_table", {}, c.action("I.stay"), is_default_action=True)
        assert refused(c.write, MODIFY, table_entry=entry) is Code.PERMISSION_DENIED


def test_a_direct_meter_is_set_with_its_entry_and_reset_without(client):
    c = client
    c.write(INSERT, action_profile_member=member(c, 1))
    entry = c.entry("I.way_table", {1: b"\7"})
    entry.action.action_profile_member_id = 1
    entry.meter_config.CopyFrom(p4.MeterConfig(cir=1, cburst=2, pir=3, pburst=4))
    c.write(INSERT, table_entry=entry)
    wanted = c.entry("I.way_table", {})
    wanted.meter_config.SetInParent()
    assert c.read(table_entry=wanted) == [entry]
    every = p4.DirectMeterEntry(table_entry=p4.TableEntry())
    (found,) = c.read(direct_meter_entry=every)
    assert found.config == entry.meter_config
    found.config.pir = 9
    c.write(MODIFY, direct_meter_entry=found)
    assert c.read(direct_meter_entry=every) == [found]
    entry.ClearField("meter_config")
    c.write(MODIFY, table_entry=entry)
    assert not c.read(table_entry=wanted)[0].HasField("meter_config")
    assert refused(c.write, DELETE, direct_meter_entry=found) is Code.INVALID_ARGUMENT


def test_codes_of_direct_meters(client):
    c = client
    c.write(INSERT, action_profile_member=member(c, 1))
    entry = c.entry("I.way_table", {1: b"\7"})
    entry.action.action_profile_member_id = 1
    asked = p4.DirectMeterEntry(table_entry=c.entry("I.way_table", {1: b"\7"}))
    asked.config.CopyFrom(p4.MeterConfig(cir=1, cburst=2, pir=3, pburst=4))
    assert refused(c.write, MODIFY, direct_meter_entry=asked) is Code.NOT_FOUND
    assert refused(c.read, direct_meter_entry=asked) is Code.NOT_FOUND
    c.write(INSERT, table_entry=entry)
    bare = p4.DirectMeterEntry(config=asked.config)
    assert refused(c.write, MODIFY, direct_meter_entry=bare) is Code.INVALID_ARGUMENT
    assert refused(c.read, direct_meter_entry=bare) is Code.INVALID_ARGUMENT
    # One that was never set reads as none, and so it does after an update without rates.
    wanted = c.entry("I.way_table", {1: b"\7"})
    wanted.meter_config.SetInParent()
    for _ in range(2):
        assert not c.read(table_entry=wanted)[0].HasField("meter_config")
        c.write(MODIFY, direct_meter_entry=p4.DirectMeterEntry(table_entry=asked.table_entry))
    c.write(MODIFY, direct_meter_entry=asked)
    assert c.read(direct_meter_entry=p4.DirectMeterEntry(table_entry=asked.table_entry)) == [asked]
    default = c.entry("I.way_table", {}, is_default_action=True)
    whole = p4.DirectMeterEntry(table_entry=default, config=asked.config)
    assert refused(c.write, MODIFY, direct_meter_entry=whole) is Code.UNIMPLEMENTED
