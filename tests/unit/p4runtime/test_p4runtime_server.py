"""The gRPC server: RPCs, configs, the stream, hostile and slow clients."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("grpc", reason="gRPC is not installed")
pytest.importorskip("thrift", reason="Thrift's library is not installed")

import grpc
from support.p4runtime import (
    DELETE,
    INSERT,
    MODIFY,
    Client,
    Controller,
    Process,
    details,
    id_of,
    p4info_of,
)
from support.switch_cases import program

from innet.bmv2 import shell
from innet.core.errors import InputError, NetworkError
from innet.p4runtime import server
from innet.p4runtime.messages import P4DeviceConfig, p4
from innet.p4runtime.server import Tls
from innet.p4runtime.status import Code, StatusError
from innet.simple_switch.grpc_process import main
from innet.simple_switch.log import Log

IO = "p4runtime_io"


@pytest.fixture(scope="module")
def names():
    """Makes entities of the program by names, without a switch of its own at work."""
    return Client(IO)


@pytest.fixture
def process():
    made = Process()
    yield made
    made.close()


@pytest.fixture
def controller(process):
    with Controller(process.port) as made:
        assert made.arbitrate().status.code == Code.OK
        yield made


@pytest.fixture
def ready(controller):
    controller.set_config(IO)
    return controller


def vrf(names, port, text=b"a"):
    return p4.Entity(table_entry=names.entry("I.vrfs", {1: port}, names.action("I.set_vrf", text)))


def entries(controller):
    wanted = p4.TableEntry(table_id=id_of(p4info_of(IO), "I.vrfs"))
    return controller.read(p4.Entity(table_entry=wanted))


def forwarded(info):
    """An entry of the table of p4runtime_removed that there is."""
    made = p4.TableEntry(table_id=id_of(info, "I.forwarding"))
    made.match.add(field_id=1).exact.value = b"\1"
    made.action.action.action_id = id_of(info, "I.drop")
    return made


def removed_entities(info):
    """Updates of a table that p4c removed."""
    removed = p4.TableEntry(table_id=id_of(info, "I.counted"))
    yield MODIFY, p4.Entity(direct_counter_entry=p4.DirectCounterEntry(table_entry=removed))
    yield INSERT, p4.Entity(table_entry=removed)
    removed.is_default_action = True
    yield MODIFY, p4.Entity(table_entry=removed)


def frame(number):
    """What comes in of a packet out that leaves at the CPU port: all but its first two bytes."""
    return bytes(10) + number.to_bytes(2, "big") + b"\x88\xb5" + bytes(900)


def reflected(number):
    """The message with such a packet."""
    message = p4.StreamMessageRequest()
    message.packet.payload = bytes(2) + frame(number)
    message.packet.metadata.add(metadata_id=1, value=b"\xff")
    message.packet.metadata.add(metadata_id=2, value=b"\0")
    return message


def code_of(call, *arguments, **options):
    """The code with which an update without gRPC is refused."""
    with pytest.raises(StatusError) as error:
        call(*arguments, **options)
    return error.value.code


def code(call, *arguments, **options):
    with pytest.raises(grpc.RpcError) as error:
        call(*arguments, **options)
    return error.value.code()


class TestConfig:
    def test_every_answer(self, controller):
        assert not controller.get_config().HasField("config")
        controller.set_config(IO, cookie=7)
        found = controller.get_config().config
        assert found.p4info == p4info_of(IO)
        assert json.loads(found.p4_device_config) == program(IO)
        for kind, fields in (
            ("COOKIE_ONLY", ["cookie"]),
            ("P4INFO_AND_COOKIE", ["p4info", "cookie"]),
            ("DEVICE_CONFIG_AND_COOKIE", ["p4_device_config", "cookie"]),
        ):
            config = controller.get_config(kind).config
            assert [each.name for each, _ in config.ListFields()] == fields
            assert config.cookie.cookie == 7

    def test_a_config_comes_back_as_it_was_given(self, controller):
        data = json.dumps(program(IO)).encode() + b" " * 40_000
        controller.set_config(IO, data=data, cookie=3)
        assert controller.get_config().config.p4_device_config == data
        request = controller.identified(p4.SetForwardingPipelineConfigRequest())
        request.action = p4.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request.config.p4info.CopyFrom(p4info_of(IO))
        request.config.p4_device_config = data
        response = p4.SetForwardingPipelineConfigResponse
        controller.call("SetForwardingPipelineConfig", request, response)
        assert not controller.get_config().config.HasField("cookie")

    def test_bmv2s_own_wrapping_is_taken(self, controller):
        data = P4DeviceConfig(reassign=True, device_data=json.dumps(program(IO)).encode())
        controller.set_config(IO, data=data.SerializeToString())
        assert entries(controller) == []

    def test_what_cannot_be_realized_changes_nothing(self, ready, names):
        ready.write((INSERT, vrf(names, b"\1")))
        for data in (b"", b"nonsense", b"\xff\xfe", b"{", b"{}", b'{"a": 1}'):
            for action in (
                "VERIFY",
                "VERIFY_AND_SAVE",
                "VERIFY_AND_COMMIT",
                "RECONCILE_AND_COMMIT",
            ):
                refused = code(ready.set_config, IO, data=data, action=action)
                assert refused is grpc.StatusCode.INVALID_ARGUMENT
        other = code(ready.set_config, "fuzz_meters", info=p4info_of(IO))
        assert other is grpc.StatusCode.INVALID_ARGUMENT
        assert code(ready.set_config) is grpc.StatusCode.INVALID_ARGUMENT  # without a config
        assert len(entries(ready)) == 1

    def test_tables_that_p4c_removed_are_named_and_have_no_entries(self, tmp_path):
        info = p4info_of("p4runtime_removed")
        lines = Log(path=str(tmp_path / "log"), flush=True)
        process = Process(log=lines)
        try:
            with Controller(process.port) as controller:
                controller.arbitrate()
                controller.set_config("p4runtime_removed")
                log = (tmp_path / "log.txt").read_text()
                assert "P4Info has table I.counted, which p4c removed" in log
                assert "P4Info has table I.shared" in log
                refused = (Code.UNIMPLEMENTED, "table I.counted is in P4Info, but not in the")
                for kind, entity in removed_entities(info):
                    with pytest.raises(grpc.RpcError) as error:
                        controller.write((kind, entity))
                    (found,) = details(error.value)
                    assert (found.canonical_code, found.message[:44]) == refused
                    assert controller.read(entity) == []
                whole = p4.Entity(table_entry=p4.TableEntry())
                added = p4.Entity(table_entry=forwarded(info))
                controller.write((INSERT, added))
                assert controller.read(whole) == [added]
                controller.set_config("p4runtime_removed", action="RECONCILE_AND_COMMIT")
                assert controller.read(whole) == [added]
        finally:
            process.close()
            lines.close()

    def test_a_profile_of_removed_tables_takes_no_members(self):
        client = Client("p4runtime_removed")
        member = p4.ActionProfileMember(action_profile_id=client.id("I.ways"), member_id=1)
        member.action.CopyFrom(client.action("I.forward", b"\1"))
        assert code_of(client.write, INSERT, action_profile_member=member) == Code.INVALID_ARGUMENT
        assert client.read(action_profile_member=p4.ActionProfileMember()) == []

    def test_p4info_with_a_table_of_another_name_is_refused(self):
        info = p4info_of("p4runtime_removed")
        info.tables[0].preamble.name = "I.renamed"
        with pytest.raises(
            StatusError, match=r"I.renamed, .* lacks its table I.forwarding"
        ) as error:
            Client("p4runtime_removed", info)
        assert error.value.code == Code.INVALID_ARGUMENT

    def test_verify_changes_nothing(self, ready, names):
        ready.write((INSERT, vrf(names, b"\1")))
        ready.set_config("fuzz_meters", action="VERIFY")
        assert len(entries(ready)) == 1

    def test_a_saved_config_takes_writes_until_it_is_committed(self, process, ready, names):
        assert code(ready.set_config, action="COMMIT") is grpc.StatusCode.NOT_FOUND
        ready.write((INSERT, vrf(names, b"\1")))
        before = process.switch.switch
        ready.set_config(IO, action="VERIFY_AND_SAVE")
        assert entries(ready) == []
        ready.write((INSERT, vrf(names, b"\2")), (INSERT, vrf(names, b"\3")))
        assert process.switch.switch is before
        both = code(ready.set_config, IO, action="COMMIT")
        assert both is grpc.StatusCode.INVALID_ARGUMENT
        ready.set_config(action="COMMIT")
        assert process.switch.switch is not before
        assert len(entries(ready)) == 2

    def test_committing_clears_and_reconciling_keeps(self, ready, names):
        ready.write((INSERT, vrf(names, b"\1")))
        ready.set_config(IO, action="RECONCILE_AND_COMMIT", cookie=9)
        assert len(entries(ready)) == 1
        assert ready.get_config().config.cookie.cookie == 9
        lost = code(ready.set_config, "fuzz_meters", action="RECONCILE_AND_COMMIT")
        assert lost is grpc.StatusCode.INVALID_ARGUMENT
        ready.set_config(IO)
        assert entries(ready) == []

    def test_only_the_primary_may(self, process, controller):
        with Controller(process.port, election_id=0) as backup:
            assert code(backup.set_config, IO) is grpc.StatusCode.PERMISSION_DENIED
            backup.role = "other"
            assert code(backup.set_config, IO) is grpc.StatusCode.NOT_FOUND


class TestWrites:
    def test_before_a_config(self, controller, names):
        refused = code(controller.write, (INSERT, vrf(names, b"\1")))
        assert refused is grpc.StatusCode.FAILED_PRECONDITION
        assert code(controller.read) is grpc.StatusCode.FAILED_PRECONDITION

    def test_each_update_has_its_error(self, ready, names):
        good, bad = vrf(names, b"\1"), p4.Entity(table_entry=names.entry("I.vrfs", {1: b"\2"}))
        with pytest.raises(grpc.RpcError) as error:
            ready.write((INSERT, good), (INSERT, bad), (DELETE, vrf(names, b"\7")))
        assert error.value.code() is grpc.StatusCode.UNKNOWN
        found = details(error.value)
        assert [e.canonical_code for e in found] == [0, Code.INVALID_ARGUMENT, Code.NOT_FOUND]
        assert "needs an action" in found[1].message
        assert len(entries(ready)) == 1

    @pytest.mark.parametrize("atomicity", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
    def test_all_or_nothing(self, ready, names, atomicity):
        good, bad = vrf(names, b"\1"), p4.Entity(table_entry=names.entry("I.vrfs", {1: b"\2"}))
        with pytest.raises(grpc.RpcError) as error:
            ready.write((INSERT, good), (INSERT, bad), atomicity=atomicity)
        codes = [each.canonical_code for each in details(error.value)]
        assert codes == [Code.ABORTED, Code.INVALID_ARGUMENT]
        assert entries(ready) == []
        ready.write((INSERT, good), atomicity=atomicity)
        assert len(entries(ready)) == 1

    def test_details_of_many_errors_fit_what_clients_take(self, process, ready, names):
        bad = p4.Entity(table_entry=names.entry("I.vrfs", {1: b"\2"}))
        with Controller(process.port, options=[("grpc.max_metadata_size", 8192)]) as other:
            with pytest.raises(grpc.RpcError) as error:
                other.write(*[(INSERT, bad)] * 120)
            assert [e.canonical_code for e in details(error.value)] == [3] * 120

    def test_a_read_tells_what_it_can(self, ready, names):
        ready.write((INSERT, vrf(names, b"\1")))
        wanted = p4.ReadRequest()
        wanted.entities.add().table_entry.table_id = 1
        wanted.entities.add().table_entry.table_id = names.id("I.vrfs")
        call = ready.channel.unary_stream(
            "/p4.v1.P4Runtime/Read", p4.ReadRequest.SerializeToString, p4.ReadResponse.FromString
        )
        responses = call(wanted, timeout=60)
        assert len(next(responses).entities) == 1
        with pytest.raises(grpc.RpcError) as error:
            next(responses)
        assert [e.canonical_code for e in details(error.value)] == [Code.INVALID_ARGUMENT, 0]

    def test_a_read_sees_no_half_of_what_another_controller_does(self, ready):
        """A member comes before its entry and goes after it: no read finds the entry alone."""
        c = Client("switch_profiles")
        ready.set_config("switch_profiles")
        member = p4.ActionProfileMember(action_profile_id=c.id("I.members"), member_id=9)
        member.action.CopyFrom(c.action("I.plain", b"\1"))
        entry = c.entry("I.plain_table", {1: b"\7"})
        entry.action.action_profile_member_id = 9
        both = [p4.Entity(action_profile_member=member), p4.Entity(table_entry=entry)]
        wanted = [
            p4.Entity(action_profile_member=p4.ActionProfileMember()),
            p4.Entity(table_entry=p4.TableEntry(table_id=entry.table_id)),
        ]
        errors = []

        def write():
            try:
                for _ in range(40):
                    for each in both:
                        ready.write((INSERT, each))
                    for each in reversed(both):
                        ready.write((DELETE, each))
            except grpc.RpcError as error:  # told by the test's thread
                errors.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        seen = set()
        while thread.is_alive():
            seen.add(tuple(each.WhichOneof("entity") for each in ready.read(*wanted)))
        thread.join(60)
        assert errors == []
        allowed = {(), ("action_profile_member",), ("action_profile_member", "table_entry")}
        assert seen
        assert seen <= allowed

    def test_thrift_and_grpc_change_the_same_switch(self, process, ready, names):
        ready.write((INSERT, vrf(names, b"\1")))
        port = process.switch.thrift_port
        assert shell.run("127.0.0.1", port, ["table_add vrfs set_vrf 2 => 1"]) == 0
        assert len(entries(ready)) == 2
        assert shell.run("127.0.0.1", port, ["reset_state"]) == 0
        assert entries(ready) == []
        ready.write((INSERT, vrf(names, b"\1")))
        assert len(entries(ready)) == 1


class TestStream:
    def test_mastership_changes(self, process, controller, names):
        with Controller(process.port, election_id=9) as second:
            assert second.arbitrate().status.code == Code.OK
            assert controller.receive().arbitration.status.code == Code.ALREADY_EXISTS
            refused = code(controller.set_config, IO)
            assert refused is grpc.StatusCode.PERMISSION_DENIED
            second.set_config(IO)
        assert controller.receive().arbitration.status.code == Code.NOT_FOUND
        assert controller.arbitrate(10).status.code == Code.OK
        controller.write((INSERT, vrf(names, b"\1")))

    def test_what_ends_it(self, process):
        with Controller(process.port) as other:
            assert code(other.arbitrate, device_id=7) is grpc.StatusCode.NOT_FOUND
        with Controller(process.port) as other:
            other.send(b"\xff\xff")
            assert code(other.receive) is grpc.StatusCode.INVALID_ARGUMENT

    def test_an_election_id_of_another_ends_it(self, process, controller):
        with Controller(process.port, election_id=1) as second:
            assert code(second.arbitrate) is grpc.StatusCode.INVALID_ARGUMENT
        controller.set_config(IO)  # the first one goes on
        assert controller.arbitrate(1).status.code == Code.OK

    def test_packets_out_and_in(self, process, ready, names):
        update = names.entry("I.vrfs", {}, names.action("I.set_vrf", b"v"), is_default_action=True)
        route = names.entry("I.routes", {1: b"v"}, names.action("I.to_controller", b"\5"))
        ready.write((MODIFY, p4.Entity(table_entry=update)), (INSERT, p4.Entity(table_entry=route)))
        frame = bytes(12) + b"\x88\xb5"
        message = p4.StreamMessageRequest()
        message.packet.payload = frame
        message.packet.metadata.add(metadata_id=1, value=b"\xff")  # out at the CPU port
        message.packet.metadata.add(metadata_id=2, value=b"\0")
        ready.send(message)
        # The packet leaves at the CPU port without the header packet_in: it is no packet-in of
        # two bytes, but its first bytes are read as one.
        found = ready.receive().packet
        assert found.payload == frame[2:]

    def test_packets_come_to_the_primary_alone(self, process, ready, names):
        with Controller(process.port, election_id=0) as backup:
            assert backup.arbitrate().status.code == Code.ALREADY_EXISTS
            for number in range(3):
                ready.send(reflected(number))
                assert ready.receive().packet.payload == frame(number)
            backup.send(reflected(9))
            assert backup.receive().error.canonical_code == Code.PERMISSION_DENIED
            refused = code(backup.write, (INSERT, vrf(names, b"\1")))
            assert refused is grpc.StatusCode.PERMISSION_DENIED
            ready.close()
            # Nobody follows by itself: the specification wants an id as high as any before.
            assert backup.receive().arbitration.status.code == Code.NOT_FOUND
            refused = code(backup.write, (INSERT, vrf(names, b"\1")))
            assert refused is grpc.StatusCode.PERMISSION_DENIED
            assert backup.arbitrate(1).status.code == Code.OK
            backup.write((INSERT, vrf(names, b"\1")))
            backup.send(reflected(4))
            assert backup.receive().packet.payload == frame(4)

    def test_a_client_with_one_thread_writes_between_packets(self, ready, names):
        for number in range(200):
            ready.send(reflected(number))
        for number in range(200):
            assert ready.receive().packet.payload == frame(number)
            kind = DELETE if number % 2 else INSERT
            ready.write((kind, vrf(names, b"\1")))
        assert entries(ready) == []

    def test_packets_that_cannot_be(self, process, ready):
        message = p4.StreamMessageRequest()
        message.packet.metadata.add(metadata_id=7, value=b"\xff")
        ready.send(message)
        error = ready.receive().error
        assert error.canonical_code == Code.INVALID_ARGUMENT
        assert error.packet_out.packet_out == message.packet
        message = p4.StreamMessageRequest()
        message.digest_ack.digest_id = 4
        ready.send(message)
        error = ready.receive().error
        assert error.canonical_code == Code.INVALID_ARGUMENT
        assert error.digest_list_ack.digest_list_ack == message.digest_ack
        with Controller(process.port, election_id=0) as backup:
            backup.arbitrate()
            backup.send(message)
            assert backup.receive().error.canonical_code == Code.PERMISSION_DENIED

    def test_idle_entries(self, process, ready, names):
        digest = p4.DigestEntry(digest_id=names.info.digests[0].preamble.id)
        entry = names.entry("I.sources", {1: b"\1"}, names.action("NoAction"))
        entry.idle_timeout_ns = 10**6
        ready.write(
            (INSERT, p4.Entity(digest_entry=digest)), (INSERT, p4.Entity(table_entry=entry))
        )
        found = ready.receive().idle_timeout_notification
        entry.ClearField("action")
        assert list(found.table_entry) == [entry]
        assert abs(found.timestamp - time.time_ns()) < 60 * 10**9


def test_capabilities_tell_the_version(controller):
    asked = controller.channel.unary_unary(
        "/p4.v1.P4Runtime/Capabilities",
        p4.CapabilitiesRequest.SerializeToString,
        p4.CapabilitiesResponse.FromString,
    )
    assert asked(p4.CapabilitiesRequest(), timeout=60).p4runtime_api_version == "1.5.0"


def test_without_uvloop_pythons_own_loop_serves(monkeypatch):
    monkeypatch.setattr(server, "find_spec", lambda _: None)
    made = Process()
    try:
        with Controller(made.port) as controller:
            assert controller.arbitrate().status.code == Code.OK
            controller.set_config(IO)
            assert entries(controller) == []
        assert type(made.switch._p4runtime._loop).__module__.startswith("asyncio")
    finally:
        made.close()


class TestHostility:
    def test_bytes_that_are_no_messages(self, ready):
        kinds = {
            "Write": p4.WriteResponse,
            "SetForwardingPipelineConfig": p4.SetForwardingPipelineConfigResponse,
            "GetForwardingPipelineConfig": p4.GetForwardingPipelineConfigResponse,
            "Capabilities": p4.CapabilitiesResponse,
        }
        for name, response in kinds.items():
            for data in (
                b"\xff",
                b"\x0a\xff\xff\xff\xff\x0f",
                random.Random(7).randbytes(64) + b"\xff",
            ):
                refused = code(ready.call, name, data, response)
                assert refused is grpc.StatusCode.INVALID_ARGUMENT, name
        assert code(ready.call, "Nothing", b"", p4.WriteResponse) is grpc.StatusCode.UNIMPLEMENTED
        assert entries(ready) == []

    def test_a_request_that_is_too_long(self, ready):
        refused = code(ready.call, "Write", bytes(65 << 20), p4.WriteResponse)
        assert refused is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert entries(ready) == []

    def test_a_slow_reader_costs_a_bounded_memory(self, process, ready):
        """Errors of a flood of packets, which the controller does not read."""
        message = p4.StreamMessageRequest()
        message.packet.payload = bytes(20_000)
        for _ in range(2000):
            ready.send(message)
        ready.set_config(IO)  # comes through
        streams = process.switch._p4runtime._streams
        end = time.monotonic() + 60
        while not any(stream.dropped for stream in streams):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert all(stream._bytes <= 8 << 20 for stream in streams)

    def test_sixteen_controllers_with_changing_mastership(self, process, ready, names):
        errors = []

        def run(number):
            try:
                with Controller(process.port, election_id=number) as mine:
                    mine.arbitrate()
                    for turn in range(5):
                        mine.arbitrate(100 * turn + number)
                        try:
                            mine.write((MODIFY, vrf(names, b"\1", b"%d" % number)))
                        except grpc.RpcError as error:
                            if error.code() is not grpc.StatusCode.PERMISSION_DENIED:
                                raise
            except Exception as error:  # told by the test's thread
                errors.append(error)

        ready.write((INSERT, vrf(names, b"\1")))
        threads = [threading.Thread(target=run, args=(10 + i,)) for i in range(16)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(120)
        assert errors == []
        notice = ready.arbitrate(1000)  # behind those of the others
        while notice.status.code != Code.OK or notice.election_id.low != 1000:
            notice = ready.receive().arbitration
        (found,) = entries(ready)
        assert 10 <= int(found.table_entry.action.action.params[0].value) < 26


class TestTheCommandLine:
    def test_options_that_are_refused(self, capsys):
        assert main(["--dp-grpc-server-addr", "x"]) == 1
        assert main(["--no-p4", "--cpu-port", "700"]) == 1
        assert main(["--no-p4", "--thrift-port", "0", "--grpc-server-ssl"]) == 1
        said = capsys.readouterr().err.splitlines()
        assert ["give interfaces by -i" in said[0], "1 to 510" in said[1]] == [True, True]
        assert "--grpc-server-cert" in said[2]

    def test_an_address_that_is_taken(self, process):
        with pytest.raises(NetworkError, match="--grpc-server-addr"):
            Process(address=f"127.0.0.1:{process.port}")


def test_tls_with_certificates_of_clients(tmp_path):
    for name in ("server", "client"):
        subprocess.run(
            [
                *[
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "rsa:2048",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    "/CN=localhost",
                ],
                *["-addext", "subjectAltName=DNS:localhost"],
                *["-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"],
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
    files = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    tls = Tls(
        str(tmp_path / "server.pem"),
        str(tmp_path / "server.key"),
        str(tmp_path / "client.pem"),
        requires_client=True,
    )
    made = Process(tls=tls)
    try:
        known = grpc.ssl_channel_credentials(
            files["server.pem"], files["client.key"], files["client.pem"]
        )
        with Controller(made.port, credentials=known) as client:
            assert client.arbitrate().status.code == Code.OK
        for credentials in (grpc.ssl_channel_credentials(files["server.pem"]), None):
            with Controller(made.port, credentials=credentials) as stranger:
                assert code(stranger.arbitrate) is grpc.StatusCode.UNAVAILABLE
    finally:
        made.close()
    with pytest.raises(InputError, match="cannot be read"):
        Tls(str(tmp_path / "no.pem"), str(tmp_path / "server.key")).credentials()


def test_the_end_cuts_streams_off_and_frees_the_port():
    made = Process()
    with Controller(made.port) as client:
        client.arbitrate()
        made.close()
        assert code(client.receive) is grpc.StatusCode.UNAVAILABLE
    with socket.create_server(("127.0.0.1", made.port)):
        pass


def test_without_grpc_the_command_says_how_to_get_it():
    script = (
        "import importlib.util, sys; from innet.cli import drop_in\n"
        "drop_in._is_installed = lambda name: False\n"
        "from innet.cli import main; sys.argv = ['innet', 'simple-switch-grpc', '--no-p4']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert "innet[p4runtime]" in done.stderr
