"""P4Runtime for tests: a pipeline, a process, and a client."""

from __future__ import annotations

import json
import queue
import threading

import grpc

from innet.p4runtime.messages import Status, p4, p4info_from_text
from innet.p4runtime.pipeline import ForwardingPipeline
from innet.p4runtime.status import Code
from innet.simple_switch.grpc_process import SimpleSwitchGrpc
from innet.simple_switch.log import Log
from innet.simple_switch.options import SwitchOptions
from innet.switch import Switch
from support.switch_cases import PROGRAMS, program

INSERT, MODIFY, DELETE = p4.Update.INSERT, p4.Update.MODIFY, p4.Update.DELETE


def p4info_of(name):
    """The P4Info of one of tests/programs, as p4c made it."""
    return p4info_from_text((PROGRAMS / f"{name}.p4info.txtpb").read_text(), name)


def id_of(info, name):
    """The id of what P4Info has by a name."""
    for group, among in info.ListFields():
        if group.name not in ("pkg_info", "type_info"):
            for each in among:
                if each.preamble.name == name:
                    return each.preamble.id
    raise KeyError(name)


class Ports:
    """Ports 0 to 15, of which some are down, and a CPU port."""

    def __init__(self, cpu_port=255):
        self.cpu_port = cpu_port
        self.down = set()

    def is_port_up(self, port):
        return port not in self.down

    def has_port(self, port):
        return port < 16 or port == self.cpu_port


class Client:
    """Updates and reads of a pipeline without gRPC, by names."""

    def __init__(self, name, info=None, engine="interpret"):
        document = program(name)
        self.info = info or p4info_of(name)
        forwarding = p4.ForwardingPipelineConfig(p4info=self.info)
        forwarding.p4_device_config = json.dumps(document).encode()
        self.ports = Ports()
        self.switch = Switch.load(document, engine)
        self.sent = []
        self.pipeline = ForwardingPipeline(self.switch, forwarding, self.ports, self.sent.append)

    def id(self, name):
        return id_of(self.info, name)

    def action(self, name, *values):
        """An Action message."""
        made = p4.Action(action_id=self.id(name))
        for place, value in enumerate(values, 1):
            made.params.add(param_id=place, value=value)
        return made

    def entry(self, table, matches, action=None, **fields):
        """A TableEntry: matches as bytes, or as (kind, first, second) by the field's id."""
        made = p4.TableEntry(table_id=self.id(table), **fields)
        for number, match in matches.items():
            field = made.match.add(field_id=number)
            if isinstance(match, bytes):
                field.exact.value = match
                continue
            kind, *values = match
            part = getattr(field, kind)
            names = [each.name for each in part.DESCRIPTOR.fields]
            for name, value in zip(names, values, strict=False):
                setattr(part, name, value)
        if action is not None:
            made.action.action.CopyFrom(action)
        return made

    def write(self, kind, **entity):
        """One update."""
        return self.pipeline.apply(p4.Update(type=kind, entity=p4.Entity(**entity)))

    def batch(self, *updates, whole=False):
        """The codes of (kind, entity) pairs; none where all went well."""
        made = [p4.Update(type=kind, entity=entity) for kind, entity in updates]
        steps = self.pipeline.write(made, all_or_nothing=whole)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return [Code(each.canonical_code) for each in end.value]

    def read(self, **entity):
        """What an entity asks for."""
        (name,) = entity
        return [getattr(each, name) for each in self.pipeline.read(p4.Entity(**entity))]

    def everything(self):
        """All that can be read, as bytes that are equal if it is equal."""
        found = []
        for field in p4.Entity.DESCRIPTOR.fields:
            entity = p4.Entity()
            getattr(entity, field.name).SetInParent()
            if field.name == "table_entry":
                entity.table_entry.counter_data.SetInParent()
                entity.table_entry.meter_config.SetInParent()
            if field.name.startswith("direct"):
                getattr(entity, field.name).table_entry.SetInParent()
            wanted = [entity]
            if field.name == "packet_replication_engine_entry":
                wanted = [p4.Entity(), p4.Entity()]
                entries = [each.packet_replication_engine_entry for each in wanted]
                entries[0].multicast_group_entry.SetInParent()
                entries[1].clone_session_entry.SetInParent()
            for each in wanted:
                found += [e.SerializeToString(deterministic=True) for e in self.pipeline.read(each)]
        return found


# ----------------------------------------------------------------------------
# Over gRPC.

_DEADLINE = 60.0


class Process:
    """``innet simple-switch-grpc`` in a thread of this process."""

    def __init__(self, cpu_port=255, interfaces=None, engine="interpret", log=None, **options):
        address, tls = options.pop("address", "127.0.0.1:0"), options.pop("tls", None)
        given = SwitchOptions(
            interfaces or {}, thrift_port=0, enable_swap=True, engine=engine, **options
        )
        self.switch = SimpleSwitchGrpc(
            None, given, log or Log(), address=address, tls=tls, cpu_port=cpu_port
        )
        self.port = self.switch.grpc_port
        self._thread = threading.Thread(target=self.switch.run, daemon=True)
        self._thread.start()

    def close(self):
        self.switch.stop()
        self._thread.join(_DEADLINE)
        assert not self._thread.is_alive()


class Controller:
    """A controller over gRPC; its stream is opened by ``arbitrate``."""

    def __init__(self, port, election_id=1, role="", credentials=None, options=()):
        target = f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
        options = [("grpc.max_metadata_size", 1 << 20), *options]
        if credentials is None:
            self.channel = grpc.insecure_channel(target, options=options)
        else:
            self.channel = grpc.secure_channel(target, credentials, options=options)
        self.election_id, self.role = election_id, role
        self._requests = queue.Queue()
        self.stream = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._requests.put(None)
        if self.stream is not None:
            self.stream.cancel()
        self.channel.close()

    # ── The stream ──

    def send(self, message):
        """Send a StreamMessageRequest, or its bytes."""
        if self.stream is None:
            call = self.channel.stream_stream("/p4.v1.P4Runtime/StreamChannel", _bytes, None)
            self.stream = call(iter(self._requests.get, None), timeout=_DEADLINE)
        self._requests.put(message)

    def receive(self):
        return p4.StreamMessageResponse.FromString(next(self.stream))

    def arbitrate(self, election_id=None, device_id=0):
        """Send a MasterArbitrationUpdate; returns the answer."""
        message = p4.StreamMessageRequest()
        message.arbitration.device_id = device_id
        self.election_id = self.election_id if election_id is None else election_id
        if self.election_id >= 0:
            message.arbitration.election_id.high = self.election_id >> 64
            message.arbitration.election_id.low = self.election_id & ((1 << 64) - 1)
        if self.role:
            message.arbitration.role.name = self.role
        self.send(message)
        return self.receive().arbitration

    # ── The other RPCs ──

    def call(self, name, request, response):
        """The response of an RPC; ``request`` a message or bytes."""
        made = self.channel.unary_unary(f"/p4.v1.P4Runtime/{name}", _bytes, response.FromString)
        return made(request, timeout=_DEADLINE)

    def identified(self, request):
        """A request with device, role and election id."""
        request.role = self.role
        request.election_id.high = self.election_id >> 64
        request.election_id.low = self.election_id & ((1 << 64) - 1)
        return request

    def set_config(self, name=None, info=None, action="VERIFY_AND_COMMIT", cookie=0, data=None):
        request = self.identified(p4.SetForwardingPipelineConfigRequest())
        request.action = getattr(p4.SetForwardingPipelineConfigRequest, action)
        if name is not None:
            request.config.p4info.CopyFrom(info or p4info_of(name))
            made = json.dumps(program(name)).encode() if data is None else data
            request.config.p4_device_config = made
            request.config.cookie.cookie = cookie
        return self.call(
            "SetForwardingPipelineConfig", request, p4.SetForwardingPipelineConfigResponse
        )

    def get_config(self, kind="ALL"):
        request = p4.GetForwardingPipelineConfigRequest()
        request.response_type = getattr(p4.GetForwardingPipelineConfigRequest, kind)
        response = p4.GetForwardingPipelineConfigResponse
        return self.call("GetForwardingPipelineConfig", request, response)

    def write(self, *updates, atomicity="CONTINUE_ON_ERROR"):
        """Carry out (kind, Entity) pairs."""
        request = self.identified(p4.WriteRequest())
        request.atomicity = getattr(p4.WriteRequest, atomicity)
        for kind, entity in updates:
            request.updates.add(type=kind, entity=entity)
        return self.call("Write", request, p4.WriteResponse)

    def read(self, *entities):
        request = p4.ReadRequest(entities=entities)
        made = self.channel.unary_stream(
            "/p4.v1.P4Runtime/Read", _bytes, p4.ReadResponse.FromString
        )
        return [each for part in made(request, timeout=_DEADLINE) for each in part.entities]


def _bytes(message):
    return message if isinstance(message, bytes) else message.SerializeToString()


def details(error):
    """The p4.v1.Error messages of an RpcError."""
    for name, value in error.trailing_metadata():
        if name == "grpc-status-details-bin":
            return [p4.Error.FromString(each.value) for each in Status.FromString(value).details]
    return []
