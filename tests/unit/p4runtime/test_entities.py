"""Counters, meters, registers, value sets, replication, digests and batches over P4Runtime."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("grpc", reason="gRPC is not installed")

from support.p4runtime import DELETE, INSERT, MODIFY, Client, p4info_of
from support.switch_cases import program

from innet.core.errors import InnetError
from innet.p4runtime.messages import p4
from innet.p4runtime.p4info import P4Index
from innet.p4runtime.packet_io import packet_in, packet_out
from innet.p4runtime.status import Code, StatusError, status_of
from innet.switch import load_program


@pytest.fixture
def io():
    return Client("p4runtime_io")


def refused(call, *arguments, **options):
    with pytest.raises(InnetError) as error:
        call(*arguments, **options)
    return status_of(error.value).code


def indexed(kind, number, index=None, **fields):
    made = kind(**{kind.DESCRIPTOR.fields[0].name: number}, **fields)
    if index is not None:
        made.index.index = index
    return made


def frame(last=0, ethertype=0x88B5, source=1, kind=None):
    probe = b"" if kind is None else bytes([kind, 0])
    return (
        (last).to_bytes(6, "big") + source.to_bytes(6, "big") + ethertype.to_bytes(2, "big") + probe
    )


class TestCounters:
    def test_are_read_and_written(self, io):
        number = io.id("I.by_kind")
        data = p4.CounterData(packet_count=5)
        io.write(MODIFY, counter_entry=indexed(p4.CounterEntry, number, 2, data=data))
        cells = io.read(counter_entry=p4.CounterEntry())
        assert [each.data.packet_count for each in cells] == [0, 0, 5, 0, 0, 0, 0, 0]
        assert io.read(counter_entry=indexed(p4.CounterEntry, number, 2)) == [cells[2]]
        io.write(MODIFY, counter_entry=indexed(p4.CounterEntry, number, data=data))
        io.write(MODIFY, counter_entry=indexed(p4.CounterEntry, number))  # changes nothing
        cells = io.read(counter_entry=indexed(p4.CounterEntry, number))
        assert [each.data.packet_count for each in cells] == [5] * 8
        assert not any(each.data.byte_count for each in cells)  # it counts packets only

    def test_codes(self, io):
        number = io.id("I.by_kind")
        for kind in (INSERT, DELETE):
            code = refused(io.write, kind, counter_entry=indexed(p4.CounterEntry, number, 0))
            assert code is Code.INVALID_ARGUMENT
        for index, code in ((-1, Code.INVALID_ARGUMENT), (8, Code.OUT_OF_RANGE)):
            entry = indexed(p4.CounterEntry, number, index)
            assert refused(io.write, MODIFY, counter_entry=entry) is code
            assert refused(io.read, counter_entry=entry) is code
        assert refused(io.read, counter_entry=indexed(p4.CounterEntry, 1)) is Code.INVALID_ARGUMENT


class TestMeters:
    def test_are_set_reset_and_read(self):
        c = Client("fuzz_meters")
        number = c.info.meters[0].preamble.id
        config = p4.MeterConfig(cir=1_000_001, cburst=10, pir=2_000_003, pburst=20)
        entry = indexed(p4.MeterEntry, number, 1, config=config)
        c.write(MODIFY, meter_entry=entry)
        cells = c.read(meter_entry=indexed(p4.MeterEntry, number))
        assert cells[1] == entry
        assert not cells[0].HasField("config")
        c.write(MODIFY, meter_entry=indexed(p4.MeterEntry, number, config=config))
        assert all(e.config == config for e in c.read(meter_entry=indexed(p4.MeterEntry, number)))
        c.write(MODIFY, meter_entry=indexed(p4.MeterEntry, number))
        cells = c.read(meter_entry=indexed(p4.MeterEntry, number))
        assert not any(each.HasField("config") for each in cells)

    @pytest.mark.parametrize(
        "config", [{"cir": -1}, {"cir": 2, "pir": 1}, {"cir": 1, "pir": 1, "eburst": 1}]
    )
    def test_bad_configs_are_invalid(self, config):
        c = Client("fuzz_meters")
        number = c.info.meters[0].preamble.id
        entry = indexed(p4.MeterEntry, number, 1, config=p4.MeterConfig(**config))
        assert refused(c.write, MODIFY, meter_entry=entry) is Code.INVALID_ARGUMENT
        assert refused(c.write, INSERT, meter_entry=entry) is Code.INVALID_ARGUMENT
        counted = indexed(p4.MeterEntry, number, 1)
        counted.counter_data.SetInParent()
        assert refused(c.write, MODIFY, meter_entry=counted) is Code.UNIMPLEMENTED
        assert refused(c.read, meter_entry=counted) is Code.UNIMPLEMENTED


def test_bmv2_has_no_excess_burst():
    info = p4info_of("fuzz_meters")
    spec = info.meters[0].spec
    spec.type = type(spec).SINGLE_RATE_THREE_COLOR
    c = Client("fuzz_meters", info)
    rates = {"cir": 1, "cburst": 1, "pir": 1, "pburst": 1}
    number = info.meters[0].preamble.id
    entry = indexed(p4.MeterEntry, number, 1, config=p4.MeterConfig(**rates, eburst=1))
    assert refused(c.write, MODIFY, meter_entry=entry) is Code.UNIMPLEMENTED
    entry.config.eburst = 0
    c.write(MODIFY, meter_entry=entry)
    assert c.read(meter_entry=indexed(p4.MeterEntry, number, 1)) == [entry]


class TestRegisters:
    def test_are_read_and_written(self, io):
        seen, signed = io.id("I.seen"), io.id("I.signed")
        entry = indexed(p4.RegisterEntry, seen, 3, data=p4.P4Data(bitstring=b"\x01\x00"))
        io.write(MODIFY, register_entry=entry)
        assert io.read(register_entry=indexed(p4.RegisterEntry, seen, 3)) == [entry]
        assert io.switch.registers["I.seen"].tolist() == [0, 0, 0, 256, 0, 0, 0, 0]
        entry = indexed(p4.RegisterEntry, signed, data=p4.P4Data(bitstring=b"\xfd"))
        io.write(MODIFY, register_entry=entry)
        cells = io.read(register_entry=indexed(p4.RegisterEntry, signed))
        assert [each.data.bitstring for each in cells] == [b"\xfd"] * 4
        assert io.switch.registers["I.signed"][0] == 0xFFFD
        assert len(io.read(register_entry=p4.RegisterEntry())) == 12

    def test_wide_cells(self):
        c = Client("fuzz_registers")
        wide = next(e for e in c.info.registers if e.type_spec.bitstring.bit.bitwidth > 64)
        value = bytes(range(1, 1 + wide.type_spec.bitstring.bit.bitwidth // 8))
        data = p4.P4Data(bitstring=value)
        c.write(MODIFY, register_entry=indexed(p4.RegisterEntry, wide.preamble.id, data=data))
        found = c.read(register_entry=indexed(p4.RegisterEntry, wide.preamble.id))
        assert all(each.data.bitstring == value for each in found)

    def test_codes(self, io):
        seen = io.id("I.seen")
        data = p4.P4Data(bitstring=b"\1")
        for kind in (INSERT, DELETE):
            entry = indexed(p4.RegisterEntry, seen, 0, data=data)
            assert refused(io.write, kind, register_entry=entry) is Code.INVALID_ARGUMENT
        for entry, code in (
            (indexed(p4.RegisterEntry, seen, -1, data=data), Code.INVALID_ARGUMENT),
            (indexed(p4.RegisterEntry, seen, 8, data=data), Code.OUT_OF_RANGE),
            (indexed(p4.RegisterEntry, seen, 0), Code.INVALID_ARGUMENT),
            (indexed(p4.RegisterEntry, seen, 0, data=p4.P4Data(bool=True)), Code.INVALID_ARGUMENT),
            (
                indexed(p4.RegisterEntry, seen, 0, data=p4.P4Data(bitstring=b"\1" * 5)),
                Code.OUT_OF_RANGE,
            ),
        ):
            assert refused(io.write, MODIFY, register_entry=entry) is code


class TestValueSets:
    def entry(self, io, *values):
        made = p4.ValueSetEntry(value_set_id=io.info.value_sets[0].preamble.id)
        for value in values:
            made.members.add().match.add(field_id=1).exact.value = value
        return made

    def test_steer_the_parser(self, io):
        io.switch.process([(1, frame(kind=3))])
        assert io.switch.registers["I.seen"][1] == 0
        entry = self.entry(io, b"\x12\x34", b"\x88\xb5")
        io.write(MODIFY, value_set_entry=entry)
        assert io.read(value_set_entry=p4.ValueSetEntry()) == [entry]
        io.switch.process([(1, frame(kind=3))])
        assert io.switch.registers["I.seen"][1] == 1
        io.write(MODIFY, value_set_entry=self.entry(io))
        assert io.read(value_set_entry=p4.ValueSetEntry()) == [self.entry(io)]

    def test_codes(self, io):
        for kind in (INSERT, DELETE):
            code = refused(io.write, kind, value_set_entry=self.entry(io))
            assert code is Code.INVALID_ARGUMENT
        twice = self.entry(io, b"\1", b"\0\1")
        assert refused(io.write, MODIFY, value_set_entry=twice) is Code.ALREADY_EXISTS
        many = self.entry(io, *(bytes([i]) for i in range(5)))
        assert refused(io.write, MODIFY, value_set_entry=many) is Code.RESOURCE_EXHAUSTED


class TestReplication:
    def group(self, number, *replicas, **fields):
        made = p4.PacketReplicationEngineEntry()
        made.multicast_group_entry.multicast_group_id = number
        for port, instance, *backups in replicas:
            added = made.multicast_group_entry.replicas.add(port=bytes([port]), instance=instance)
            for backup, other in backups:
                added.backup_replicas.add(port=bytes([backup]), instance=other)
        for name, value in fields.items():
            setattr(made.multicast_group_entry, name, value)
        return made

    def flooded(self, io, group=5):
        vrf = io.entry("I.vrfs", {}, io.action("I.set_vrf", b"0"), is_default_action=True)
        io.write(MODIFY, table_entry=vrf)
        entry = io.entry("I.routes", {1: b"0"}, io.action("I.flood", bytes([group])))
        io.write(INSERT, table_entry=entry)
        return lambda: sorted(
            (port, int.from_bytes(data[12:14], "big") == 0x7777)
            for port, data in io.switch.process([(1, frame())])
        )

    def test_groups_copy_and_are_read_as_they_were_written(self, io):
        entry = self.group(5, (2, 7), (3, 1), metadata=b"m")
        io.write(INSERT, packet_replication_engine_entry=entry)
        wanted = p4.PacketReplicationEngineEntry()
        wanted.multicast_group_entry.SetInParent()
        assert io.read(packet_replication_engine_entry=wanted) == [entry]
        copies = self.flooded(io)
        assert copies() == [(2, True), (3, False)]
        io.write(MODIFY, packet_replication_engine_entry=self.group(5, (4, 0)))
        assert copies() == [(4, False)]
        io.write(DELETE, packet_replication_engine_entry=self.group(5))
        assert copies() == []
        assert io.read(packet_replication_engine_entry=wanted) == []
        assert io.switch.state.replication.nodes == {}

    def test_replicas_come_and_go(self, io):
        """Instances that share ports, and ports that share an instance; a port as a number, too."""
        copies = self.flooded(io)
        entry = self.group(5, (1, 7), (2, 2))
        io.write(INSERT, packet_replication_engine_entry=entry)
        assert copies() == [(1, True), (2, False)]
        for more in ([(3, 7), (4, 4)], [(3, 7)], []):
            entry = self.group(5, (1, 7), (2, 2), *more)
            io.write(MODIFY, packet_replication_engine_entry=entry)
            wanted = [(1, True), (2, False), *((port, rid == 7) for port, rid in more)]
            assert copies() == wanted
            found = io.read(packet_replication_engine_entry=self.group(5))
            assert found == [entry]
        numbers = self.group(5)
        for port, instance in ((1, 7), (1, 2), (2, 2)):
            numbers.multicast_group_entry.replicas.add(egress_port=port, instance=instance)
        io.write(MODIFY, packet_replication_engine_entry=numbers)
        assert copies() == [(1, False), (1, True), (2, False)]
        assert io.read(packet_replication_engine_entry=self.group(5)) == [numbers]

    def test_groups_of_clone_sessions_are_no_groups_of_controllers(self, io):
        session = p4.PacketReplicationEngineEntry()
        session.clone_session_entry.session_id = 7
        session.clone_session_entry.replicas.add(port=b"\2", instance=2)
        group, other = self.group(66, (1, 1)), self.group(7, (1, 1), (1, 2), (2, 2))
        for each in (group, session, other):
            io.write(INSERT, packet_replication_engine_entry=each)
        every = p4.PacketReplicationEngineEntry()
        every.multicast_group_entry.SetInParent()
        assert io.read(packet_replication_engine_entry=every) == [other, group]
        every.clone_session_entry.SetInParent()
        assert io.read(packet_replication_engine_entry=every) == [session]
        one = p4.PacketReplicationEngineEntry()
        one.clone_session_entry.session_id = 8
        assert io.read(packet_replication_engine_entry=one) == []

    def test_clones_leave_by_each_replica_beside_the_packet(self):
        c = Client("fuzz_clone")

        def left(session):
            """(port, instance) of what leaves, for a program that clones to a session."""
            out = c.switch.process([(1, bytes([1, session, 0, 0]))])
            return sorted((port, int.from_bytes(data[-2:], "big")) for port, data in out)

        entry = p4.PacketReplicationEngineEntry()
        entry.clone_session_entry.session_id = 9
        entry.clone_session_entry.replicas.add(egress_port=4, instance=1)
        c.write(INSERT, packet_replication_engine_entry=entry)
        assert left(9) == [(2, 0), (4, 1)]
        entry.clone_session_entry.replicas.add(egress_port=3, instance=2)
        c.write(MODIFY, packet_replication_engine_entry=entry)
        assert left(9) == [(2, 0), (3, 2), (4, 1)]
        assert left(8) == [(2, 0)]
        c.write(DELETE, packet_replication_engine_entry=entry)
        assert left(9) == [(2, 0)]
        for number in (0, 40_000):
            entry.clone_session_entry.session_id = number
            code = refused(c.write, INSERT, packet_replication_engine_entry=entry)
            assert code is Code.INVALID_ARGUMENT

    def test_backups_step_in(self, io):
        entry = self.group(5, (2, 7, (3, 1), (4, 7)))
        io.write(INSERT, packet_replication_engine_entry=entry)
        copies = self.flooded(io)
        for down, wanted in (
            (set(), [(2, True)]),
            ({2}, [(3, False)]),
            ({2, 3}, [(4, True)]),
            ({2, 3, 4}, [(2, True)]),
            ({3}, [(2, True)]),
        ):
            io.ports.down = down
            io.pipeline.ports_changed()
            assert copies() == wanted

    def test_clone_sessions(self, io):
        entry = p4.PacketReplicationEngineEntry()
        session = entry.clone_session_entry
        session.session_id = 9
        session.replicas.add(egress_port=255, instance=1)
        io.write(INSERT, packet_replication_engine_entry=entry)
        wanted = p4.PacketReplicationEngineEntry()
        wanted.clone_session_entry.SetInParent()
        assert io.read(packet_replication_engine_entry=wanted) == [entry]
        assert io.switch.control.mirroring_get(9).group == 32768 + 9
        assert io.switch.state.replication.replicas(32768 + 9) == ((255, 1),)
        session.replicas[0].port = b"\xff\xff\xff\xfd"
        io.write(MODIFY, packet_replication_engine_entry=entry)
        assert io.switch.state.replication.replicas(32768 + 9) == ((255, 1),)
        for name in ("class_of_service", "packet_length_bytes"):
            other = p4.PacketReplicationEngineEntry()
            other.CopyFrom(entry)
            setattr(other.clone_session_entry, name, 1)
            code = refused(io.write, MODIFY, packet_replication_engine_entry=other)
            assert code is Code.UNIMPLEMENTED
        io.write(DELETE, packet_replication_engine_entry=entry)
        assert io.read(packet_replication_engine_entry=wanted) == []
        assert io.switch.state.replication.sessions == {}

    def test_codes(self, io):
        def code(kind, entry):
            return refused(io.write, kind, packet_replication_engine_entry=entry)

        assert code(MODIFY, self.group(5)) is Code.NOT_FOUND
        assert code(DELETE, self.group(5)) is Code.NOT_FOUND
        assert code(INSERT, self.group(0)) is Code.INVALID_ARGUMENT
        assert code(INSERT, self.group(5, (1, 1), (1, 1))) is Code.INVALID_ARGUMENT
        assert code(INSERT, self.group(5, (1, 70000))) is Code.INVALID_ARGUMENT
        assert code(INSERT, self.group(5, (1, 1, (1, 2)))) is Code.INVALID_ARGUMENT
        assert code(INSERT, p4.PacketReplicationEngineEntry()) is Code.INVALID_ARGUMENT
        io.write(INSERT, packet_replication_engine_entry=self.group(5))
        assert code(INSERT, self.group(5)) is Code.ALREADY_EXISTS

    def test_groups_made_over_thrift_are_read(self, io):
        io.switch.control.multicast_group(3, [(1, 2)])
        wanted = self.group(3)
        assert io.read(packet_replication_engine_entry=wanted) == [self.group(3, (1, 2))]


class TestDigests:
    SECOND = 10**9

    def enable(self, io, kind=INSERT, **config):
        entry = p4.DigestEntry(digest_id=io.info.digests[0].preamble.id)
        entry.config.CopyFrom(p4.DigestEntry.Config(**config))
        io.write(kind, digest_entry=entry)
        return entry

    def learn(self, io, *sources, now=0):
        io.switch.process([(1, frame(source=each)) for each in sources])
        io.pipeline.digests.take(list(io.switch.state.digests), now)
        io.switch.state.digests.clear()
        lists = [
            [int.from_bytes(d.struct.members[0].bitstring, "big") for d in each.data]
            for each in io.sent
        ]
        io.sent.clear()
        return lists

    def test_each_at_once(self, io):
        entry = self.enable(io)
        assert io.read(digest_entry=p4.DigestEntry()) == [entry]
        assert self.learn(io, 5, 6) == [[5], [6]]
        assert self.learn(io, 5) == [[5]]  # without ack_timeout_ns nothing is remembered

    def test_lists_are_full_or_time_out(self, io):
        self.enable(io, max_list_size=3, max_timeout_ns=2 * self.SECOND)
        assert self.learn(io, 5, 6, 6, 7, 8) == [[5, 6, 7]]
        assert io.pipeline.digests.run_due(self.SECOND) == 2 * self.SECOND
        assert io.sent == []
        assert io.pipeline.digests.run_due(2 * self.SECOND) is None
        assert len(io.sent) == 1

    def test_what_is_not_acknowledged_is_not_told_again(self, io):
        self.enable(io, ack_timeout_ns=5 * self.SECOND)
        io.switch.process([(1, frame(source=5))])
        io.pipeline.digests.take(list(io.switch.state.digests), 0)
        io.switch.state.digests.clear()
        (message,) = io.sent
        io.sent.clear()
        fields = [each.WhichOneof("data") for each in message.data[0].struct.members]
        assert fields == ["bitstring", "bitstring", "bool"]
        assert self.learn(io, 5, now=self.SECOND) == []
        ack = p4.DigestListAck(digest_id=message.digest_id, list_id=message.list_id)
        io.pipeline.digests.acknowledge(ack)
        assert self.learn(io, 5, now=self.SECOND) == [[5]]
        assert self.learn(io, 5, now=5 * self.SECOND) == []
        assert self.learn(io, 5, now=6 * self.SECOND) == [[5]]

    def test_another_config_and_a_new_beginning(self, io):
        self.enable(io)
        assert self.learn(io, 5, 5) == [[5], [5]]
        config = {"ack_timeout_ns": 10 * self.SECOND}
        entry = self.enable(io, MODIFY, **config)
        assert io.read(digest_entry=p4.DigestEntry()) == [entry]
        assert self.learn(io, 5, 5) == [[5]]  # told once from now on
        assert self.learn(io, 5) == []
        io.write(DELETE, digest_entry=entry)
        self.enable(io, **config)
        assert self.learn(io, 5) == [[5]]  # what was told before is forgotten

    def test_only_enabled_ones(self, io):
        assert self.learn(io, 5) == []
        entry = self.enable(io)
        assert refused(io.write, INSERT, digest_entry=entry) is Code.ALREADY_EXISTS
        io.write(DELETE, digest_entry=entry)
        assert self.learn(io, 5) == []
        for kind in (MODIFY, DELETE):
            assert refused(io.write, kind, digest_entry=entry) is Code.NOT_FOUND
        entry.config.max_list_size = -1
        assert refused(io.write, INSERT, digest_entry=entry) is Code.INVALID_ARGUMENT
        with pytest.raises(StatusError):
            io.pipeline.digests.acknowledge(p4.DigestListAck(digest_id=7))


class TestPackets:
    def out(self, io, *metadata):
        made = p4.PacketOut(payload=b"abc")
        for number, value in metadata:
            made.metadata.add(metadata_id=number, value=value)
        return packet_out(io.pipeline.index, made)

    def test_out(self, io):
        assert self.out(io, (2, b"\x05"), (1, b"\x01\x02")) == b"\x81\x05abc"

    def test_every_value_goes_out_and_comes_in(self, io):
        """In any order, with any leading zeros."""
        for port in (*range(0, 512, 7), 511):
            for flags in range(0, 128, 9):
                front = (port << 7 | flags).to_bytes(2, "big")
                metadata = [(1, bytes([port >> 8, port & 255])), (2, bytes([flags]))]
                assert self.out(io, *metadata) == front + b"abc"
                assert self.out(io, metadata[1], (1, b"\0" + metadata[0][1])) == front + b"abc"
                message = packet_in(io.pipeline.index, front + b"abc")
                values = {each.metadata_id: each.value for each in message.metadata}
                shortest = metadata[0][1].lstrip(b"\0") or b"\0"
                assert values == {1: shortest, 2: bytes([flags])}
                assert message.payload == b"abc"

    def test_without_controller_headers_packets_pass_as_they_are(self):
        info = p4info_of("p4runtime_io")
        info.ClearField("controller_packet_metadata")
        c = Client("p4runtime_io", info)
        assert self.out(c) == b"abc"
        assert packet_in(c.pipeline.index, b"abc") == p4.PacketIn(payload=b"abc")
        with pytest.raises(StatusError) as error:
            self.out(c, (1, b"\1"))
        assert error.value.code is Code.INVALID_ARGUMENT

    @pytest.mark.parametrize(
        "metadata",
        [
            [(1, b"\1")],
            [(1, b"\1"), (2, b"\1"), (7, b"\1")],
            [(1, b"\1"), (2, b"\1"), (2, b"\1")],
            [(1, b"\2\0"), (2, b"\1")],
        ],
    )
    def test_out_with_other_metadata(self, io, metadata):
        with pytest.raises(StatusError) as error:
            self.out(io, *metadata)
        assert error.value.code in (Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE)

    def test_a_header_with_another_name_and_a_translated_field(self):
        info = p4info_of("p4runtime_io")
        translated = info.type_info.new_types["port_t"].translated_type
        translated.uri, translated.sdn_bitwidth = "example.org/PortId", 32
        (out,) = (
            each for each in info.controller_packet_metadata if each.preamble.name == "packet_out"
        )
        out.metadata[0].type_name.name, out.metadata[0].bitwidth = "port_t", 32
        text = json.dumps(program("p4runtime_io"))
        renamed = load_program(json.loads(text.replace('"packet_out"', '"from_cpu"')))
        header = P4Index(info, renamed, None).headers["packet_out"]
        assert [width for _, _, width, _ in header.fields] == [9, 7]
        out.metadata[0].name = "no_field"
        index = P4Index(info, renamed, None)  # only a packet needs it
        assert packet_in(index, b"\x81\x05abc").payload == b"abc"
        with pytest.raises(StatusError, match="no header with the fields no_field, flags"):
            packet_out(index, p4.PacketOut(payload=b"abc"))

    @pytest.mark.parametrize("name", ["packet_in", "other"])
    def test_a_header_that_the_program_does_not_use(self, name):
        """PI rounds its bits up to bytes, and asks for nothing else."""
        info = p4info_of("p4runtime_io")
        (unused,) = (
            each for each in info.controller_packet_metadata if each.preamble.name == "packet_in"
        )
        unused.preamble.name = name
        del unused.metadata[1]  # 9 bits are left
        c = Client("p4runtime_io", info)
        assert self.out(c, (1, b"\x01\x02"), (2, b"\x05")) == b"\x81\x05abc"
        if name == "packet_in":
            message = packet_in(c.pipeline.index, b"\x81\x05abc")
            assert [each.value for each in message.metadata] == [b"\x01\x02"]
            assert message.payload == b"abc"

    def test_an_unused_header_whose_port_is_translated_to_strings(self):
        info = p4info_of("p4runtime_io")
        info.type_info.new_types["port_t"].translated_type.uri = "example.org/PortName"
        info.type_info.new_types["port_t"].translated_type.sdn_string.SetInParent()
        unused = info.controller_packet_metadata.add()
        unused.preamble.name, unused.preamble.id = "unused", 0x04000077
        unused.metadata.add(id=1, name="nowhere").type_name.name = "port_t"
        c = Client("p4runtime_io", info)
        assert self.out(c, (1, b"\x01\x02"), (2, b"\x05")) == b"\x81\x05abc"

    def test_in(self, io):
        message = packet_in(io.pipeline.index, b"\x81\x05abc")
        assert message.payload == b"abc"
        values = {each.metadata_id: each.value for each in message.metadata}
        assert values == {1: b"\x01\x02", 2: b"\x05"}
        with pytest.raises(StatusError):
            packet_in(io.pipeline.index, b"\x81")


class TestBatches:
    def updates(self, io):
        """Updates of all kinds that go well."""
        forward = io.action("I.forward", b"\1")
        entry = io.entry("I.routes", {1: b"a"}, forward, metadata=b"m")
        other = io.entry("I.routes", {1: b"b"}, forward)
        vrf = io.entry("I.vrfs", {}, io.action("I.set_vrf", b"a"), is_default_action=True)
        counted = indexed(p4.CounterEntry, io.id("I.by_kind"), data=p4.CounterData(packet_count=4))
        register = indexed(p4.RegisterEntry, io.id("I.seen"), data=p4.P4Data(bitstring=b"\7"))
        value = p4.ValueSetEntry(value_set_id=io.info.value_sets[0].preamble.id)
        value.members.add().match.add(field_id=1).exact.value = b"\1"
        digest = p4.DigestEntry(digest_id=io.info.digests[0].preamble.id)
        copies = p4.PacketReplicationEngineEntry()
        copies.multicast_group_entry.multicast_group_id = 8
        copies.multicast_group_entry.replicas.add(port=b"\2")
        clones = p4.PacketReplicationEngineEntry()
        clones.clone_session_entry.session_id = 8
        there = io.entry("I.routes", {1: b"there"})
        gone = io.entry("I.routes", {1: b"gone"})
        return [
            (INSERT, p4.Entity(table_entry=entry)),
            (INSERT, p4.Entity(table_entry=other)),
            (MODIFY, p4.Entity(table_entry=there)),
            (DELETE, p4.Entity(table_entry=gone)),
            (MODIFY, p4.Entity(table_entry=vrf)),
            (MODIFY, p4.Entity(counter_entry=counted)),
            (MODIFY, p4.Entity(register_entry=register)),
            (MODIFY, p4.Entity(value_set_entry=value)),
            (INSERT, p4.Entity(digest_entry=digest)),
            (INSERT, p4.Entity(packet_replication_engine_entry=copies)),
            (INSERT, p4.Entity(packet_replication_engine_entry=clones)),
            (DELETE, p4.Entity(table_entry=entry)),
        ]

    @pytest.fixture
    def filled(self, io):
        for key in (b"there", b"gone"):
            entry = io.entry("I.routes", {1: key}, io.action("I.flood", b"\5"), metadata=key)
            entry.counter_data.packet_count = 6
            io.write(INSERT, table_entry=entry)
        return io

    def test_the_good_updates_stay(self, filled):
        io = filled
        updates = self.updates(io)
        bad = (INSERT, p4.Entity(table_entry=io.entry("I.routes", {1: b"x"})))
        codes = io.batch(*updates, bad)
        assert codes == [Code.OK] * len(updates) + [Code.INVALID_ARGUMENT]
        assert len(io.read(table_entry=io.entry("I.routes", {}))) == 2

    def test_all_or_nothing(self, filled):
        io = filled
        before = io.everything()
        updates = self.updates(io)
        bad = (INSERT, p4.Entity(table_entry=io.entry("I.routes", {1: b"x"})))
        codes = io.batch(*updates, bad, whole=True)
        assert codes == [Code.ABORTED] * len(updates) + [Code.INVALID_ARGUMENT]
        assert sorted(io.everything()) == sorted(before)
        assert io.batch(*updates, whole=True) == []
        assert io.everything() != before

    def test_another_pipeline_takes_the_state(self, filled):
        io = filled
        assert io.batch(*self.updates(io)) == []
        other = Client("p4runtime_io")
        other.pipeline.take_state_of(io.pipeline)
        assert sorted(other.everything()) == sorted(io.everything())
        with pytest.raises(StatusError, match="does not fit"):
            Client("fuzz_meters").pipeline.take_state_of(io.pipeline)
