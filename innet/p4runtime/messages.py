"""The messages of P4Runtime 1.5, built at run time from ``protocol.txt``.

They live in a separate descriptor pool. So they neither need nor disturb the package
``p4runtime`` of PyPI, whose generated code registers the same names in protobuf's default pool.

Source: names, numbers and types of the fields are those of P4Runtime 1.5.0 (p4runtime.proto,
p4data.proto, p4info.proto, p4types.proto), google.rpc.Status and google.protobuf.Any.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from innet.core.errors import InputError

API_VERSION = "1.5.0"

_Field = descriptor_pb2.FieldDescriptorProto
_PLAIN = {
    "u32": _Field.TYPE_UINT32,
    "u64": _Field.TYPE_UINT64,
    "i32": _Field.TYPE_INT32,
    "i64": _Field.TYPE_INT64,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}


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


class _Builder:
    """Reads ``protocol.txt``."""

    def __init__(self, text: str) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        self._enums = set()
        package = ""
        for line in lines:
            word, _, rest = line.partition(" ")
            if line.startswith("["):
                package = rest.rstrip("]")
            elif word == "enum":
                self._enums.add(f"{package}.{rest}")
        self._files: list[str] = []
        self._file: Any = None
        self._current: Any = None
        self._name, self._is_enum = "", False
        for line in lines:
            self._read(line)
        self._add_file()

    def _read(self, line: str) -> None:
        if line.startswith("["):
            self._add_file()
            path, self._package = line.strip("[]").split()
            self._file = descriptor_pb2.FileDescriptorProto(
                name=path, package=self._package, syntax="proto3", dependency=self._files
            )
            self._messages: dict[str, Any] = {}
        elif line.startswith(" ") and self._is_enum:
            name, number = line.split()
            self._current.value.add(name=name, number=int(number))
        elif line.startswith(" "):
            self._add_field(self._current, self._name, *line.split())
        else:
            word, self._name = line.split()
            self._is_enum = word == "enum"
            outer, _, inner = self._name.rpartition(".")
            owner = self._messages[outer] if outer else self._file
            if self._is_enum:
                self._current = owner.enum_type.add(name=inner)
            else:
                among = owner.nested_type if outer else owner.message_type
                self._current = self._messages[self._name] = among.add(name=inner)

    def _add_file(self) -> None:
        if self._file is not None:
            self.pool.Add(self._file)
            self._files.append(self._file.name)

    def _add_field(self, message: Any, owner: str, name: str, number: str, kind: str) -> None:
        field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
        kind, _, choice = kind.partition("?")
        if choice:
            if choice not in [each.name for each in message.oneof_decl]:
                message.oneof_decl.add(name=choice)
            field.oneof_index = [each.name for each in message.oneof_decl].index(choice)
        if kind.startswith("map:"):
            title = "".join(part.capitalize() for part in name.split("_")) + "Entry"
            entry = message.nested_type.add(name=title)
            entry.options.map_entry = True
            self._add_field(entry, f"{owner}.{title}", "key", "1", "string")
            self._add_field(entry, f"{owner}.{title}", "value", "2", kind[4:])
            field.label, field.type = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
            field.type_name = f".{self._package}.{owner}.{title}"
            return
        if kind.endswith("[]"):
            kind, field.label = kind[:-2], _Field.LABEL_REPEATED
        if kind in _PLAIN:
            field.type = _PLAIN[kind]
            return
        full = kind if kind.split(".")[0] in ("google", "p4") else f"{self._package}.{kind}"
        field.type = _Field.TYPE_ENUM if full in self._enums else _Field.TYPE_MESSAGE
        field.type_name = f".{full}"


POOL = _Builder(
    resources.files("innet.p4runtime").joinpath("protocol.txt").read_text(encoding="utf-8")
).pool

p4: Any = Package(POOL, "p4.v1")
"""Messages of the protocol: ``p4.WriteRequest``, ``p4.TableEntry`` and so on."""

config: Any = Package(POOL, "p4.config.v1")
"""Messages of P4Info: ``config.P4Info`` and what it holds."""

Status: Any = Package(POOL, "google.rpc").Status
AnyMessage: Any = Package(POOL, "google.protobuf").Any
P4DeviceConfig: Any = Package(POOL, "p4.tmp").P4DeviceConfig


def packed(message: Any) -> Any:
    """A message in an ``Any``."""
    return AnyMessage(
        type_url=f"type.googleapis.com/{message.DESCRIPTOR.full_name}",
        value=message.SerializeToString(),
    )


def p4info_from_text(text: str, name: str = "P4Info") -> Any:
    """The P4Info of its text format (p4c's ``--p4runtime-files FILE.txtpb``).

    Raises:
        InputError: it is none; ``name`` is named.
    """
    try:
        return text_format.Parse(text, config.P4Info(), descriptor_pool=POOL)
    except text_format.ParseError as error:
        raise InputError(f"{name} is no P4Info in text format: {error}.") from None
