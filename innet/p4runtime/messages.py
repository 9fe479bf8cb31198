"""The messages of P4Runtime 1.5, from the descriptors in ``protocol.binpb``.

They live in a separate descriptor pool. So they neither need nor disturb the package
``p4runtime`` of PyPI, whose generated code registers the same names in protobuf's default pool.

``protocol.binpb`` is a serialized ``google.protobuf.FileDescriptorSet``: names, numbers and types
of the messages of P4Runtime 1.5.0 (p4runtime.proto, p4data.proto, p4info.proto, p4types.proto), of
google.rpc.Status, google.protobuf.Any and BMv2's p4.tmp.P4DeviceConfig.
docs/p4runtime.md says how to read it, and how to make that of a later version.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from innet.core.errors import InputError

API_VERSION = "1.5.0"


class Package:
    """The messages of one package, as attributes."""

    def __init__(self, pool: descriptor_pool.DescriptorPool, package: str) -> None:
        self._pool, self._package = pool, package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of Python's own, as copying asks for them
            raise AttributeError(name)
        try:
            descriptor = self._pool.FindMessageTypeByName(f"{self._package}.{name}")
        except KeyError:
            raise AttributeError(f"{self._package} has no message {name}") from None
        found = message_factory.GetMessageClass(descriptor)
        setattr(self, name, found)  # found at once the next time
        return found


def _read_descriptors() -> descriptor_pool.DescriptorPool:
    """A pool of the files of ``protocol.binpb``, each of which comes after those it imports."""
    data = resources.files("innet.p4runtime").joinpath("protocol.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


POOL = _read_descriptors()

p4: Any = Package(POOL, "p4.v1")
"""Messages of the protocol: ``p4.WriteRequest``, ``p4.TableEntry`` and so on."""

config: Any = Package(POOL, "p4.config.v1")
"""Messages of P4Info: ``config.P4Info`` and what it holds."""

Status: Any = Package(POOL, "google.rpc").Status
P4DeviceConfig: Any = Package(POOL, "p4.tmp").P4DeviceConfig


def copied(message: Any) -> Any:
    """A message of the same content, which later changes of the other do not touch."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def p4info_from_text(text: str, name: str = "P4Info") -> Any:
    """The P4Info of its text format (p4c's ``--p4runtime-files FILE.txtpb``).

    Raises:
        InputError: it is none; ``name`` is named.
    """
    try:
        return text_format.Parse(text, config.P4Info(), descriptor_pool=POOL)
    except text_format.ParseError as error:
        raise InputError(f"{name} is no P4Info in text format: {error}.") from None
