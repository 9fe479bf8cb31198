"""Table entries over P4Runtime: match kinds, priorities, defaults, direct resources, refusals."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("grpc", reason="gRPC is not installed")

from support.p4runtime import DELETE, INSERT, MODIFY, Client, id_of, p4info_of

from innet.core.errors import InnetError
from innet.p4runtime.messages import p4
from innet.p4runtime.status import Code, StatusError, status_of


@pytest.fixture
def priorities():
    return Client("fuzz_priorities")


@pytest.fixture
def io():
    return Client("p4runtime_io")


@pytest.fixture
def ageing():
    return Client("switch_ageing")


def refused(call, *arguments, **options):
    """The code with which it is refused."""
    with pytest.raises(InnetError) as error:
        call(*arguments, **options)
    assert str(error.value)
    return status_of(error.value).code


def base(a=0, b=0, c=0, d=0, e=0, f=0):
    return (a << 104 | b << 96 | c << 84 | d << 80 | e << 72 | f).to_bytes(15, "big")


def packet(address):
    """For switch_ageing: 8 bytes."""
    return bytes(3) + address.to_bytes(4, "big") + bytes(1)


def marks(client, packet):
    ((_, data),) = client.switch.process([(0, packet)])
    return [int.from_bytes(data[15 + 2 * i : 17 + 2 * i], "big") for i in range(5)]


class TestMatchKinds:
    def test_the_highest_priority_wins(self, priorities):
        c = priorities
        for priority, mask, value in ((10, b"\xff\x00", 1), (20, b"\xf0\x00", 2)):
            match = {1: ("ternary", b"\x10\x00", mask), 2: b"\x07"}
            action = c.action("I.set", bytes([value]))
            c.write(INSERT, table_entry=c.entry("I.ternaries", match, action, priority=priority))
        assert marks(c, base(a=0x1000, b=7))[0] == 2
        c.write(DELETE, table_entry=c.entry("I.ternaries", match, priority=20))
        assert marks(c, base(a=0x1000, b=7))[0] == 1

    def test_every_kind_is_read_as_it_was_written(self, priorities):
        c = priorities
        entries = [
            c.entry("I.ternaries", {1: ("ternary", b"\x10", b"\x10"), 2: b"\x07"}, priority=3),
            c.entry("I.ternaries", {2: b"\x07"}, priority=3),
            c.entry("I.ranges", {1: ("range", b"\x02", b"\x0b\xff")}, priority=1),
            c.entry("I.optionals", {1: ("optional", b"\x05"), 3: b"\x01"}, priority=9),
            c.entry("I.mixed", {2: ("lpm", b"\x12\x00", 7), 3: b"\x80"}, priority=4),
        ]
        for entry in entries:
            entry.action.action.CopyFrom(c.action("I.set", b"\x01\x02"))
            entry.metadata = b"mine"
            entry.controller_metadata = 11
            c.write(INSERT, table_entry=entry)
        found = [e for e in c.read(table_entry=p4.TableEntry()) if not e.is_const]
        assert found == entries

    def test_prefixes_of_a_table_with_lpm(self, io):
        c = io
        c.write(MODIFY, table_entry=c.entry("I.vrfs", {}, is_default_action=True))
        entries = [
            c.entry("I.routes", {1: b"red", 2: ("lpm", b"\x02\x00\x00\x00\x00\x00", 47)}),
            c.entry("I.routes", {1: b"red"}),
        ]
        for entry, port in zip(entries, (b"\x03", b"\x04"), strict=True):
            entry.action.action.CopyFrom(c.action("I.forward", port))
            c.write(INSERT, table_entry=entry)
        entry = c.entry("I.vrfs", {1: b"\x01"}, c.action("I.set_vrf", b"red"))
        c.write(INSERT, table_entry=entry)
        frames = [bytes([first]) + bytes(13) for first in (2, 4)]
        left = c.switch.process([(1, frame) for frame in frames])
        assert [port for port, _ in left] == [3, 4]
        assert c.read(table_entry=c.entry("I.routes", {})) == entries
        assert c.read(table_entry=c.entry("I.vrfs", {1: b"\x01"})) == [entry]

    def test_keys_at_the_edge_of_what_is_allowed(self, priorities):
        c = priorities
        for match in (
            {1: ("range", b"\x03", b"\x03")},
            {1: ("range", b"\x00", b"\x0f\xfe")},
            {},
        ):
            entry = c.entry("I.ranges", match, c.action("I.set", b"\x01"), priority=1)
            c.write(INSERT, table_entry=entry)
            key = c.entry("I.ranges", match, priority=1)
            assert entry in c.read(table_entry=key)
        every = {1: ("ternary", b"\xff\xff", b"\xff\xff"), 2: b"\x07"}
        entry = c.entry("I.ternaries", every, c.action("I.set", b"\x01"), priority=2**31 - 1)
        c.write(INSERT, table_entry=entry)
        assert entry in c.read(table_entry=c.entry("I.ternaries", {}))

    def test_a_field_twice_is_invalid(self, io):
        entry = io.entry("I.vrfs", {1: b"\1"}, io.action("I.set_vrf", b"a"))
        entry.match.add(field_id=1).exact.value = b"\1"
        assert refused(io.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT

    def test_an_optional_value_before_anything(self, priorities):
        c = priorities
        exact = {1: ("optional", b"\x05"), 3: b"\x01"}
        for match, priority, value in (({3: b"\x01"}, 5, b"\1"), (exact, 9, b"\2")):
            action = c.action("I.set", value)
            c.write(INSERT, table_entry=c.entry("I.optionals", match, action, priority=priority))
        assert [marks(c, base(b=b))[2] for b in (5, 6)] == [2, 1]
        c.write(DELETE, table_entry=c.entry("I.optionals", exact, priority=9))
        assert [marks(c, base(b=b))[2] for b in (5, 6)] == [1, 1]

    @pytest.mark.parametrize(
        ("table", "match", "priority"),
        [
            ("I.ternaries", {1: ("ternary", b"\x10", b"\x10"), 2: b"\x07"}, 0),  # no priority
            ("I.ternaries", {1: ("ternary", b"\x11", b"\x10"), 2: b"\x07"}, 1),  # bits outside
            ("I.ternaries", {1: ("ternary", b"\x00", b"\x00"), 2: b"\x07"}, 1),  # mask of zeros
            ("I.ternaries", {1: ("ternary", b"\x10", b"\x10")}, 1),  # an exact field is missing
            ("I.ternaries", {1: b"\x10", 2: b"\x07"}, 1),  # not its kind
            ("I.ternaries", {2: b"\x07", 9: b"\x07"}, 1),  # no such field
            ("I.ternaries", {2: b"\x07"}, 0),  # everything, and no priority
            ("I.optionals", {1: ("optional", b"\x05"), 3: b"\x01"}, 0),
            ("I.ternaries", {}, 1),  # no field at all
            ("I.ranges", {1: ("range", b"\x03", b"\x02")}, 1),
            ("I.ranges", {1: ("range", b"\x00", b"\x0f\xff")}, 1),  # everything
            ("I.mixed", {2: ("lpm", b"\x12\x00", 0), 3: b"\x80"}, 1),
            ("I.mixed", {2: ("lpm", b"\x12\x00", 17), 3: b"\x80"}, 1),
            ("I.mixed", {2: ("lpm", b"\x12\x01", 15), 3: b"\x80"}, 1),  # bits behind the prefix
        ],
    )
    def test_bad_keys_are_invalid(self, priorities, table, match, priority):
        c = priorities
        entry = c.entry(table, match, c.action("I.set", b"\x01"), priority=priority)
        before = c.everything()
        assert refused(c.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        assert c.everything() == before

    def test_a_priority_where_there_is_none_is_invalid(self, io):
        entry = io.entry("I.vrfs", {1: b"\1"}, io.action("I.set_vrf", b"a"), priority=1)
        assert refused(io.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT

    def test_values_that_do_not_fit_are_out_of_range(self, priorities):
        c = priorities
        entry = c.entry("I.ternaries", {2: b"\x01\x07"}, c.action("I.set", b"\x01"), priority=1)
        assert refused(c.write, INSERT, table_entry=entry) is Code.OUT_OF_RANGE


class TestActions:
    @pytest.mark.parametrize("params", [[], [1, 1], [2], [1, 2]])
    def test_parameters_are_given_once_each(self, priorities, params):
        action = priorities.action("I.set")
        for number in params:
            action.params.add(param_id=number, value=b"\1")
        entry = priorities.entry("I.ternaries", {2: b"\x07"}, action, priority=1)
        assert refused(priorities.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT

    def test_an_action_of_another_table_is_invalid(self, io):
        entry = io.entry("I.vrfs", {1: b"\1"}, io.action("I.forward", b"\1"))
        assert refused(io.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT

    def test_scopes_are_kept(self, io):
        entry = io.entry("I.routes", {1: b"x"}, io.action("I.drop"))
        assert refused(io.write, INSERT, table_entry=entry) is Code.PERMISSION_DENIED
        entry = io.entry("I.sources", {1: b"\1"}, io.action("I.learn"))
        assert refused(io.write, INSERT, table_entry=entry) is Code.PERMISSION_DENIED

    def test_scopes_of_entries_and_of_the_default(self):
        info = p4info_of("p4runtime_io")
        (routes,) = (each for each in info.tables if each.preamble.name == "I.routes")
        only = {id_of(info, "I.flood"): 1, id_of(info, "I.drop"): 2}
        for ref in routes.action_refs:
            ref.scope = only.get(ref.id, 0)
        c = Client("p4runtime_io", info)

        def default(action, *values):
            entry = c.entry("I.routes", {}, c.action(action, *values), is_default_action=True)
            return c.write(MODIFY, table_entry=entry)

        def insert(action, *values):
            return c.write(
                INSERT, table_entry=c.entry("I.routes", {1: b"x"}, c.action(action, *values))
            )

        default("I.forward", b"\1")
        default("I.drop")
        assert refused(default, "I.flood", b"\1") is Code.PERMISSION_DENIED
        assert refused(insert, "I.drop") is Code.PERMISSION_DENIED
        insert("I.flood", b"\1")

    def test_an_insert_needs_an_action_and_a_modify_does_not(self, io):
        entry = io.entry("I.vrfs", {1: b"\1"})
        assert refused(io.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        full = io.entry("I.vrfs", {1: b"\1"}, io.action("I.set_vrf", b"a"))
        io.write(INSERT, table_entry=full)
        io.write(MODIFY, table_entry=io.entry("I.vrfs", {1: b"\1"}, metadata=b"m"))
        (found,) = io.read(table_entry=io.entry("I.vrfs", {}))
        assert found.action == full.action
        assert found.metadata == b"m"


class TestUpdates:
    def test_codes_of_what_is_there_and_what_is_not(self, io):
        entry = io.entry("I.vrfs", {1: b"\1"}, io.action("I.set_vrf", b"a"))
        for kind in (MODIFY, DELETE):
            assert refused(io.write, kind, table_entry=entry) is Code.NOT_FOUND
        io.write(INSERT, table_entry=entry)
        assert refused(io.write, INSERT, table_entry=entry) is Code.ALREADY_EXISTS
        io.write(DELETE, table_entry=io.entry("I.vrfs", {1: b"\0\1"}))
        assert io.read(table_entry=io.entry("I.vrfs", {})) == []

    def test_a_full_table(self, io):
        entries = [
            io.entry("I.routes", {1: b"%d" % i}, io.action("I.flood", b"\1")) for i in range(9)
        ]
        codes = io.batch(*((INSERT, p4.Entity(table_entry=each)) for each in entries))
        assert codes == [Code.OK] * 8 + [Code.RESOURCE_EXHAUSTED]

    def test_what_an_update_cannot_say(self, io):
        entry = io.entry("I.vrfs", {1: b"\1"}, io.action("I.set_vrf", b"a"), is_const=True)
        assert refused(io.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        entry.is_const = False
        assert refused(io.write, 0, table_entry=entry) is Code.INVALID_ARGUMENT
        entry.table_id = 77
        assert refused(io.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        with pytest.raises(StatusError, match="no entity"):
            io.pipeline.apply(p4.Update(type=INSERT))
        assert refused(io.write, INSERT, extern_entry=p4.ExternEntry()) is Code.UNIMPLEMENTED

    def test_constant_tables(self, ageing):
        c = ageing
        entry = c.entry("I.constant_table", {1: b"\1"}, c.action("I.mark", b"\1"))
        for kind in (INSERT, MODIFY, DELETE):
            assert refused(c.write, kind, table_entry=entry) is Code.PERMISSION_DENIED
        found = c.read(table_entry=c.entry("I.constant_table", {}))
        assert [(e.match[0].exact.value, e.is_const) for e in found] == [
            (b"\1", True),
            (b"\2", True),
        ]


# One table of each match kind: program, table, match, priority, action.
KINDS = {
    "exact": ("p4runtime_io", "I.vrfs", {1: b"\1"}, 0, ("I.set_vrf", b"a")),
    "lpm": (
        "switch_ageing", "I.lpm_table", {1: ("lpm", b"\xaa\xf0\0\0", 12)}, 0, ("I.tally", b"\1"),
    ),
    "ternary": (
        "fuzz_priorities", "I.ternaries", {1: ("ternary", b"\x10", b"\x10"), 2: b"\7"}, 7,
        ("I.set", b"\1"),
    ),
    "optional": (
        "fuzz_priorities", "I.optionals", {1: ("optional", b"\5"), 3: b"\1"}, 7, ("I.set", b"\1"),
    ),
    "range": (
        "fuzz_priorities", "I.ranges", {1: ("range", b"\2", b"\x0b\xff")}, 7, ("I.set", b"\1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKindOfTable:
    """The same life of an entry in a table of each match kind."""

    def made(self, kind):
        name, table, match, priority, (action, value) = KINDS[kind]
        c = Client(name)
        made = c.entry(table, match, c.action(action, value), priority=priority)
        made.controller_metadata = 0xAB
        return c, table, made

    def test_insert_read_modify_delete(self, kind):
        c, table, entry = self.made(kind)
        c.write(INSERT, table_entry=entry)
        assert refused(c.write, INSERT, table_entry=entry) is Code.ALREADY_EXISTS
        key = p4.TableEntry()
        key.CopyFrom(entry)
        key.ClearField("action")
        key.ClearField("controller_metadata")
        for wanted in (c.entry(table, {}), key):
            found = [each for each in c.read(table_entry=wanted) if not each.is_const]
            assert found == [entry]
        entry.action.action.params[0].value = b"b"
        c.write(MODIFY, table_entry=entry)
        assert [each for each in c.read(table_entry=key) if not each.is_const] == [entry]
        c.write(DELETE, table_entry=key)
        assert c.read(table_entry=key) == []
        assert refused(c.write, DELETE, table_entry=key) is Code.NOT_FOUND
        assert refused(c.write, MODIFY, table_entry=entry) is Code.NOT_FOUND

    def test_a_batch_goes_on_behind_its_errors(self, kind):
        c, table, entry = self.made(kind)
        before = c.everything()
        entity = p4.Entity(table_entry=entry)
        codes = c.batch(*((each, entity) for each in (DELETE, INSERT, INSERT, DELETE)))
        assert codes == [Code.NOT_FOUND, Code.OK, Code.ALREADY_EXISTS, Code.OK]
        assert c.everything() == before
        assert c.read(table_entry=entry) == []
        assert table

    def test_ids_that_are_nowhere(self, kind):
        c, table, entry = self.made(kind)
        right = entry.table_id
        for number in (0, right + 1, 0xFF000000, entry.action.action.action_id):
            entry.table_id = number
            assert refused(c.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
            if number:
                wanted = p4.TableEntry(table_id=number)
                assert refused(c.read, table_entry=wanted) is Code.INVALID_ARGUMENT
        entry.table_id = right
        for number in (0, entry.action.action.action_id ^ 0x5A5A, 0xFF000000, right):
            entry.action.action.action_id = number
            assert refused(c.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        assert [each for each in c.read(table_entry=c.entry(table, {})) if not each.is_const] == []


class TestDefaults:
    def test_are_apart_from_the_key_of_zeros(self, io):
        default = io.entry("I.vrfs", {}, io.action("I.set_vrf", b"a"), is_default_action=True)
        zeros = io.entry("I.vrfs", {1: b"\0"}, io.action("I.set_vrf", b"b"))
        io.write(MODIFY, table_entry=default)
        io.write(INSERT, table_entry=zeros)
        io.write(MODIFY, table_entry=default)
        assert io.read(table_entry=io.entry("I.vrfs", {})) == [zeros]
        wanted = io.entry("I.vrfs", {}, is_default_action=True)
        assert io.read(table_entry=wanted) == [default]
        io.write(DELETE, table_entry=zeros)
        assert io.read(table_entry=wanted) == [default]

    def test_a_constant_one_is_read_and_stays(self, io):
        wanted = io.entry("I.sources", {}, is_default_action=True)
        (found,) = io.read(table_entry=wanted)
        assert found.action.action == io.action("I.learn")
        for action in ("I.learn", "NoAction"):
            entry = io.entry("I.sources", {}, io.action(action), is_default_action=True)
            assert refused(io.write, MODIFY, table_entry=entry) is Code.PERMISSION_DENIED
        assert refused(io.write, MODIFY, table_entry=wanted) is Code.PERMISSION_DENIED
        assert io.read(table_entry=wanted) == [found]

    def test_is_changed_and_reset(self, priorities):
        c = priorities
        wanted = p4.TableEntry(table_id=c.id("I.optionals"), is_default_action=True)
        (before,) = c.read(table_entry=wanted)
        assert before.action.action == c.action("I.set", b"\x77")
        entry = c.entry("I.optionals", {}, c.action("I.add", b"\5"), is_default_action=True)
        entry.metadata = b"m"
        c.write(MODIFY, table_entry=entry)
        assert c.read(table_entry=wanted) == [entry]
        c.write(MODIFY, table_entry=wanted)
        assert c.read(table_entry=wanted) == [before]

    def test_what_is_refused(self, io):
        c = io
        entry = c.entry("I.vrfs", {}, c.action("I.set_vrf", b"a"), is_default_action=True)
        for kind in (INSERT, DELETE):
            assert refused(c.write, kind, table_entry=entry) is Code.INVALID_ARGUMENT
        entry.match.add(field_id=1).exact.value = b"\1"
        assert refused(c.write, MODIFY, table_entry=entry) is Code.INVALID_ARGUMENT
        constant = c.entry("I.sources", {}, c.action("I.learn"), is_default_action=True)
        assert refused(c.write, MODIFY, table_entry=constant) is Code.PERMISSION_DENIED
        timed = c.entry("I.vrfs", {}, is_default_action=True, idle_timeout_ns=5)
        assert refused(c.write, MODIFY, table_entry=timed) is Code.INVALID_ARGUMENT


class TestDirectCounters:
    def insert(self, c, packets=0):
        entry = c.entry("I.routes", {1: b"0"}, c.action("I.forward", b"\3"))
        if packets:
            entry.counter_data.packet_count = packets
        c.write(INSERT, table_entry=entry)
        c.switch.registers["I.seen"][:] = 0
        return entry

    def test_begin_where_they_are_told(self, io):
        entry = self.insert(io, 7)
        wanted = io.entry("I.routes", {})
        assert not io.read(table_entry=wanted)[0].HasField("counter_data")
        wanted.counter_data.SetInParent()
        assert io.read(table_entry=wanted)[0].counter_data.packet_count == 7
        io.write(MODIFY, table_entry=io.entry("I.routes", {1: b"0"}))  # leaves it
        key = io.entry("I.routes", {1: b"0"})
        wanted = p4.DirectCounterEntry(table_entry=key)
        (found,) = io.read(direct_counter_entry=wanted)
        assert found.data.packet_count == 7
        assert found.table_entry == key
        wanted.data.byte_count = 9
        io.write(MODIFY, direct_counter_entry=wanted)
        every = p4.DirectCounterEntry(table_entry=p4.TableEntry())
        (found,) = io.read(direct_counter_entry=every)
        assert (found.data.packet_count, found.data.byte_count) == (0, 9)
        assert entry.table_id == found.table_entry.table_id

    def test_codes(self, io):
        key = p4.DirectCounterEntry(table_entry=io.entry("I.routes", {1: b"0"}))
        assert refused(io.write, MODIFY, direct_counter_entry=key) is Code.NOT_FOUND
        assert refused(io.read, direct_counter_entry=key) is Code.NOT_FOUND
        self.insert(io)
        for kind in (INSERT, DELETE):
            assert refused(io.write, kind, direct_counter_entry=key) is Code.INVALID_ARGUMENT
        other = p4.DirectCounterEntry(table_entry=io.entry("I.vrfs", {1: b"\1"}))
        assert refused(io.write, MODIFY, direct_counter_entry=other) is Code.INVALID_ARGUMENT
        entry = io.entry("I.vrfs", {1: b"\1"}, io.action("I.set_vrf", b"a"))
        entry.counter_data.packet_count = 1
        assert refused(io.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        entry.ClearField("counter_data")
        entry.meter_config.cir = 1
        assert refused(io.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        entry.ClearField("meter_config")
        entry.meter_counter_data.SetInParent()
        assert refused(io.write, INSERT, table_entry=entry) is Code.UNIMPLEMENTED

    @pytest.mark.parametrize("engine", ["interpret", "jit"])
    def test_count_the_packets_of_their_entry(self, engine):
        c = Client("switch_ageing", engine=engine)
        for prefix in (b"\x0a", b"\x0b"):
            match = {1: ("lpm", prefix + bytes(3), 8)}
            c.write(INSERT, table_entry=c.entry("I.lpm_table", match, c.action("I.tally", b"\1")))
        c.switch.process([(1, packet(address=0x0A000001)), (1, packet(address=0x0A000002) + b"x")])
        c.switch.process([(1, packet(address=0x0B000001)), (1, packet(address=0x0C000001))])
        counts = {b"\x0a": (2, 17), b"\x0b": (1, 8)}
        for prefix, wanted in counts.items():
            key = c.entry("I.lpm_table", {1: ("lpm", prefix + bytes(3), 8)})
            asked = p4.DirectCounterEntry(table_entry=key)
            (found,) = c.read(direct_counter_entry=asked)
            assert (found.data.packet_count, found.data.byte_count) == wanted
            key.counter_data.SetInParent()
            (entry,) = c.read(table_entry=key)
            assert entry.counter_data == found.data

    def test_the_table_entry_must_be_set(self, io):
        self.insert(io)
        bare = p4.DirectCounterEntry()
        assert refused(io.read, direct_counter_entry=bare) is Code.INVALID_ARGUMENT
        assert refused(io.write, MODIFY, direct_counter_entry=bare) is Code.INVALID_ARGUMENT

    def test_default_entries_have_none(self, io):
        entry = io.entry("I.routes", {}, io.action("I.drop"), is_default_action=True)
        asked = p4.DirectCounterEntry(table_entry=entry)
        assert refused(io.write, MODIFY, direct_counter_entry=asked) is Code.UNIMPLEMENTED
        entry.counter_data.packet_count = 3
        assert refused(io.write, MODIFY, table_entry=entry) is Code.UNIMPLEMENTED


class TestIdleTimeouts:
    def test_are_kept_to_the_nanosecond_and_reported(self, ageing):
        c = ageing
        entry = c.entry("I.small_table", {1: b"\1"}, c.action("I.mark", b"\1"))
        entry.idle_timeout_ns, entry.metadata = 1_500_000_001, b"m"
        c.write(INSERT, table_entry=entry)
        wanted = c.entry("I.small_table", {})
        assert c.read(table_entry=wanted) == [entry]
        wanted.time_since_last_hit.SetInParent()
        c.switch.state.clock = 1_000_000
        assert c.read(table_entry=wanted)[0].time_since_last_hit.elapsed_ns == 1_000_000_000
        c.switch.state.clock = 2_000_000
        (idle,) = c.switch.take_idle_timeouts() or [None]
        entry.ClearField("action")
        assert c.pipeline.idle_entries(idle.table, idle.handles) == [entry]

    def idle(self, c, seconds):
        """The handles that are idle at a time."""
        c.switch.state.clock = seconds * 1_000_000
        return [handle for each in c.switch.take_idle_timeouts() for handle in each.handles]

    def test_an_entry_that_stays_idle_is_reported_again(self, ageing):
        c = ageing
        entry = c.entry("I.small_table", {1: b"\1"}, c.action("I.mark", b"\1"))
        entry.idle_timeout_ns = 2 * 10**9
        c.write(INSERT, table_entry=entry)
        told = [second for second in range(1, 9) if self.idle(c, second)]
        assert told[0] in (2, 3)
        assert 1 < len(told) < 6

    def test_entries_that_are_idle_together_come_in_one_message(self, ageing):
        c = ageing
        made = []
        for number in range(3):
            entry = c.entry("I.small_table", {1: bytes([number])}, c.action("I.mark", b"\1"))
            entry.idle_timeout_ns = 2 * 10**9
            c.write(INSERT, table_entry=entry)
            entry.ClearField("action")
            made.append(entry)
        c.switch.state.clock = 3_000_000
        (idle,) = c.switch.take_idle_timeouts()
        assert c.pipeline.idle_entries(idle.table, idle.handles) == made

    def test_another_time_out_starts_anew(self, ageing):
        c = ageing
        entry = c.entry("I.small_table", {1: b"\1"}, c.action("I.mark", b"\1"))
        entry.idle_timeout_ns = 30 * 10**9
        c.write(INSERT, table_entry=entry)
        assert not any(self.idle(c, second) for second in range(1, 5))
        entry.idle_timeout_ns = 4 * 10**9
        c.write(MODIFY, table_entry=entry)
        assert c.read(table_entry=c.entry("I.small_table", {})) == [entry]
        told = [second for second in range(5, 12) if self.idle(c, second)]
        assert told[0] in (8, 9)
        # The same time-out again: the time goes on.
        other = Client("switch_ageing")
        other.write(INSERT, table_entry=entry)
        assert not any(self.idle(other, second) for second in range(1, 4))
        other.write(MODIFY, table_entry=entry)
        told = [second for second in range(4, 12) if self.idle(other, second)]
        assert told[0] in (4, 5)

    def test_a_hit_starts_anew(self, ageing):
        c = ageing
        entry = c.entry("I.small_table", {1: b"\1"}, c.action("I.mark", b"\1"))
        entry.idle_timeout_ns = 3 * 10**9
        c.write(INSERT, table_entry=entry)
        assert not any(self.idle(c, second) for second in (1, 2))
        c.switch.process([(1, b"\1" + packet(0)[1:])])
        wanted = c.entry("I.small_table", {})
        wanted.time_since_last_hit.SetInParent()
        assert c.read(table_entry=wanted)[0].time_since_last_hit.elapsed_ns < 10**9
        told = [second for second in range(3, 9) if self.idle(c, second)]
        assert told[0] in (5, 6)

    def test_an_index_inherits_none(self, ageing):
        c = ageing
        entry = c.entry("I.small_table", {1: b"\1"}, c.action("I.mark", b"\1"))
        timed = p4.TableEntry()
        timed.CopyFrom(entry)
        timed.idle_timeout_ns = 10**9
        c.write(INSERT, table_entry=timed)
        c.write(DELETE, table_entry=timed)
        c.write(INSERT, table_entry=entry)
        c.switch.state.clock = 5_000_000
        assert c.switch.take_idle_timeouts() == []
        assert c.read(table_entry=c.entry("I.small_table", {})) == [entry]

    def test_where_they_are_refused(self, ageing):
        c = ageing
        entry = c.entry("I.steady_table", {1: b"\1"}, c.action("I.mark", b"\1"))
        entry.idle_timeout_ns = 1
        assert refused(c.write, INSERT, table_entry=entry) is Code.INVALID_ARGUMENT
        timed = c.entry("I.small_table", {1: b"\1"}, c.action("I.mark", b"\1"))
        timed.time_since_last_hit.SetInParent()
        assert refused(c.write, INSERT, table_entry=timed) is Code.INVALID_ARGUMENT
        timed.ClearField("time_since_last_hit")
        timed.idle_timeout_ns = -1
        assert refused(c.write, INSERT, table_entry=timed) is Code.INVALID_ARGUMENT


class TestReads:
    def test_filters(self, io):
        for i, action in enumerate(("I.forward", "I.flood", "I.forward")):
            entry = io.entry(
                "I.routes", {1: b"%d" % i}, io.action(action, b"\1"), metadata=b"%d" % i
            )
            io.write(INSERT, table_entry=entry)

        def count(**fields):
            return len(io.read(table_entry=io.entry("I.routes", {}, **fields)))

        assert count() == 3
        assert count(metadata=b"1") == 1
        assert count(controller_metadata=4) == 0
        wanted = io.entry("I.routes", {})
        wanted.action.action.action_id = io.id("I.forward")
        assert len(io.read(table_entry=wanted)) == 2
        assert len(io.read(table_entry=io.entry("I.routes", {1: b"1"}))) == 1
        assert io.read(table_entry=io.entry("I.routes", {1: b"none"})) == []

    def test_what_is_refused(self, io):
        wanted = io.entry("I.routes", {})
        wanted.action.action.action_id = io.id("I.learn")
        assert refused(io.read, table_entry=wanted) is Code.INVALID_ARGUMENT
        assert refused(io.read, table_entry=p4.TableEntry(table_id=5)) is Code.INVALID_ARGUMENT
        with pytest.raises(StatusError):
            list(io.pipeline.read(p4.Entity()))


def test_the_zeroth_entry_made_over_thrift_is_read_as_well(io):
    io.switch.command("table_add vrfs set_vrf 3 => 1")
    (found,) = io.read(table_entry=io.entry("I.vrfs", {}))
    assert found.match[0].exact.value == b"\3"


@pytest.mark.parametrize(
    "change",
    [
        lambda info: info.tables.pop(),
        lambda info: info.tables[0].match_fields.pop(),
        lambda info: info.actions.pop(),
        lambda info: setattr(info.tables[1].match_fields[1], "bitwidth", 47),
        lambda info: setattr(info.tables[0].preamble, "name", "I.other"),
        lambda info: setattr(info.tables[0].preamble, "id", info.tables[1].preamble.id),
        lambda info: setattr(info.registers[0].type_spec.bitstring.bit, "bitwidth", 5),
    ],
)
def test_a_p4info_of_another_program_is_refused(change):
    info = p4info_of("p4runtime_io")
    gone = change(info)
    if gone is not None and gone.DESCRIPTOR.name == "Table":
        Client("p4runtime_io", info)  # a controller need not know every table
        return
    with pytest.raises(StatusError) as error:
        Client("p4runtime_io", info)
    assert error.value.code is Code.INVALID_ARGUMENT
