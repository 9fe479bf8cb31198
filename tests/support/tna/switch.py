"""A switch that executes a TNA program: parsers, ingress, multicast, egress, recirculation."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .grammar import parsed
from .translate import Bits, Record, Translator

RECIRCULATION_PORT = 68
"""Of pipe 0: what leaves by it comes in again by it."""

PASSES = 16
"""A packet that passes the switch more often than that is an error of the program."""

Packet = tuple[int, bytes]


class Dropped(Exception):  # noqa: N818 - the parser drops it
    pass


class Struct:
    """A struct or header; its fields are attributes."""

    def __init__(self, kind: Record) -> None:
        self.kind = kind
        self.valid = False

    def set_valid(self, valid: bool) -> None:
        self.valid = valid


class PacketIn:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def extract(self, target: Struct) -> None:
        kind = target.kind
        if not kind.header:
            return  # intrinsic metadata, which the bench has set
        size = sum(of.width for _, of in kind.fields) // 8
        if self.at + size > len(self.data):
            raise Dropped
        value = int.from_bytes(self.data[self.at : self.at + size])
        self.at += size
        for name, of in reversed(kind.fields):
            setattr(target, name, value & (1 << of.width) - 1)
            value >>= of.width
        target.valid = True


class PacketOut:
    def __init__(self) -> None:
        self.data = b""

    def emit(self, source: Struct) -> None:
        if not source.kind.header:
            for name, _ in source.kind.fields:
                self.emit(getattr(source, name))
        elif source.valid:
            value, width = 0, 0
            for name, of in source.kind.fields:
                value = value << of.width | getattr(source, name)
                width += of.width
            self.data += value.to_bytes(width // 8)


class Cells:
    """What a register's cells hold: the name of a struct, or None for a number."""

    def __init__(self, struct: str | None) -> None:
        self.struct = struct


class Structs(Sequence[Struct]):
    """The cells of an array of structs, which are made when they are asked for."""

    def __init__(self, new: Callable[[], Struct], size: int) -> None:
        self.new, self.size = new, size
        self.made: dict[int, Struct] = {}

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if (found := self.made.get(index)) is None:
            if index >= self.size:
                raise IndexError(index)
            found = self.made[index] = self.new()
        return found

    def __setitem__(self, index: int, value: Struct) -> None:
        self.made[index] = value


class Register:
    def __init__(self, bench: TnaSwitch, cells: Cells, size: int | None) -> None:
        new = (lambda: 0) if cells.struct is None else (lambda: bench.new(cells.struct, zero=True))
        self.new = new
        self.cells: Any = {}
        if size is not None:
            self.cells = [0] * size if cells.struct is None else Structs(new, size)

    def reset(self) -> None:
        if isinstance(self.cells, Structs):
            self.cells.made.clear()
            return
        where = self.cells if isinstance(self.cells, dict) else range(len(self.cells))
        for index in where:
            self.cells[index] = self.new()

    def check(self, index: Any) -> None:
        if isinstance(self.cells, dict):
            assert index in self.cells, "a direct register outside an entry"
        else:
            assert 0 <= index < len(self.cells), f"index {index} of {len(self.cells)} cells"


class Table:
    """``entries`` of the program, or those that ``add`` has added."""

    def __init__(self, name: str, widths: list[int], entries: Any, default: Any) -> None:
        self.name, self.widths, self.default = name, widths, default
        self.constant = entries is not None
        self.entries: list[tuple[Any, str, tuple[int, ...]]] = list(entries or ())
        self.direct: Register | None = None
        self.found: dict[Any, tuple[int | None, str, tuple[int, ...]]] = {}

    def add(self, key: Sequence[int | tuple[int, int]], action: str, data: Sequence[int]) -> None:
        """An entry. A part of the key is a value, or value and mask; earlier entries come first."""
        assert not self.constant, f"{self.name} has constant entries"
        assert len(key) == len(self.widths), self.name
        parts = tuple(
            each if isinstance(each, tuple) else (each, (1 << width) - 1)
            for each, width in zip(key, self.widths, strict=True)
        )
        if self.direct is not None:
            self.direct.cells[len(self.entries)] = self.direct.new()
        self.entries.append((parts, action, tuple(data)))
        self.found.clear()

    def clear(self) -> None:
        assert not self.constant, f"{self.name} has constant entries"
        self.entries.clear()
        self.found.clear()

    def run(self, block: Any, key: tuple[int, ...]) -> None:
        found = self.found.get(key)
        if found is None:
            found = self._search(key)
            if len(self.found) < 10_000:
                self.found[key] = found
        entry, action, data = found
        block.entry = entry
        if action != "NoAction":
            getattr(block, f"A_{action}")(*data)
        block.entry = None

    def _search(self, key: tuple[int, ...]) -> tuple[int | None, str, tuple[int, ...]]:
        for number, (parts, action, data) in enumerate(self.entries):
            if matches(key, parts):
                return number, action, data
        return (None, *self.default)


def matches(key: Sequence[int], parts: Sequence[tuple[int, int] | None]) -> bool:
    """Whether a key lies in a set: (value, mask) for each part, None for anything."""
    return all(
        part is None or value & part[1] == part[0] & part[1]
        for value, part in zip(key, parts, strict=True)
    )


class Block:
    """A parser or control; subclasses are what the translator writes."""

    PARAMETERS: Sequence[tuple[str, str]] = ()

    def __init__(self, bench: TnaSwitch, path: str) -> None:
        self.bench, self.path = bench, path
        self.entry: int | None = None
        self.make()

    def make(self) -> None:
        pass

    def set(self, *arguments: Any) -> None:
        for (name, _), value in zip(self.PARAMETERS, arguments, strict=True):
            setattr(self, name, value)

    def apply(self, *arguments: Any) -> None:
        self.set(*arguments)
        self.body()

    def body(self) -> None:
        raise NotImplementedError

    def run(self, *arguments: Any) -> None:
        """A parser: from ``start`` to ``accept``."""
        self.set(*arguments)
        state = "start"
        while state != "accept":
            if state == "reject":
                raise Dropped
            state = getattr(self, f"S_{state}")()

    # Instances of a control.

    def register(self, name: str, cells: Cells, size: int | None) -> Register:
        made = self.bench.registers[f"{self.path}.{name}"] = Register(self.bench, cells, size)
        return made

    def counter(self, name: str) -> Counter[int]:
        made = self.bench.counters[f"{self.path}.{name}"] = Counter()
        return made

    def control(self, name: str, kind: str) -> Block:
        return self.bench.classes[kind](self.bench, f"{self.path}.{name}")

    def table(self, name: str, widths: list[int], entries: Any, default: Any, direct: Any) -> Table:
        made = self.bench.tables[f"{self.path}.{name}"] = Table(name, widths, entries, default)
        if direct:
            made.direct = direct
        return made


@cache
def _translated(source: Path, changed: int, parameters: tuple[tuple[str, int], ...]) -> Translator:
    """``changed``: when the source was; its includes are not watched."""
    return Translator(parsed(source, dict(parameters)))


class TnaSwitch:
    """One pipe.

    Attributes:
        tables, registers, counters: by their names with the controls that they lie in.
        groups: for each multicast group, (port, replication id) of its copies.
    """

    def __init__(self, source: Path, seed: int = 0, **parameters: int) -> None:
        program = _translated(source, source.stat().st_mtime_ns, tuple(sorted(parameters.items())))
        self.program = program
        self.types = program.types
        self.zeroed = "pa_auto_init_metadata" in program.annotations
        self.random = random.Random(seed)
        self.tables: dict[str, Table] = {}
        self.registers: dict[str, Register] = {}
        self.counters: dict[str, Counter[int]] = {}
        self.groups: dict[int, list[tuple[int, int]]] = {}
        space: dict[str, Any] = {"Block": Block, "Cells": Cells, "matches": matches}
        exec(program.code, space)
        self.classes = {name: space[name] for name in program.controls}
        self.blocks = [self.classes[name](self, name) for name in program.package]

    def undefined(self, width: int, signed: bool) -> int:
        """What stands where nothing was written."""
        value = self.random.getrandbits(width)
        return value - (1 << width - 1) if signed else value

    def new(self, name: str, *, zero: bool = False) -> Struct:
        """A struct; what nothing has set is random, or 0."""
        kind = self.types[name]
        made = Struct(kind)
        for each, of in kind.fields:
            if isinstance(of, Bits):
                value = 0 if zero else self.undefined(of.width, of.signed)
            else:
                value = self.new(of.name, zero=zero and not of.header)
            setattr(made, each, value)
        return made

    def process(self, port: int, frame: bytes) -> list[Packet]:
        """What leaves the switch, in order, when ``frame`` comes in by ``port``."""
        waiting, sent = deque([(port, frame, 1)]), []
        while waiting:
            at, data, passes = waiting.popleft()
            assert passes <= PASSES, "the packet does not leave the switch"
            for out, answer in self.one_pass(at, data):
                if out == RECIRCULATION_PORT:
                    waiting.append((out, answer, passes + 1))
                else:
                    sent.append((out, answer))
        return sent

    def one_pass(self, port: int, frame: bytes) -> list[Packet]:
        """What leaves the pipe, by its own port as well."""
        parser, control, deparser = self.blocks[:3]
        try:
            made, payload = self._parse(parser, frame, {"ingress_port": port})
        except Dropped:
            return []
        made["for_deparser"] = self._intrinsic("ingress_intrinsic_metadata_for_deparser_t")
        made["for_tm"] = self._intrinsic("ingress_intrinsic_metadata_for_tm_t")
        made["for_deparser"].drop_ctl = 0
        made["for_tm"].ucast_egress_port = made["for_tm"].mcast_grp_a = None
        made["for_tm"].bypass_egress = 0
        self._run(control, made)
        if made["for_deparser"].drop_ctl & 1:
            return []
        data = self._deparse(deparser, made) + payload
        copies = []
        if made["for_tm"].ucast_egress_port is not None:
            copies.append((made["for_tm"].ucast_egress_port, 0))
        if made["for_tm"].mcast_grp_a is not None:
            copies += self.groups[made["for_tm"].mcast_grp_a]
        if made["for_tm"].bypass_egress:
            return [(port, data) for port, _ in copies]
        return [answer for copy in copies for answer in self._egress(*copy, data)]

    def _egress(self, port: int, replication: int, frame: bytes) -> list[Packet]:
        parser, control, deparser = self.blocks[3:]
        intrinsic = {"egress_port": port, "egress_rid": replication}
        try:
            made, payload = self._parse(parser, frame, intrinsic)
        except Dropped:
            return []
        made["for_deparser"] = self._intrinsic("egress_intrinsic_metadata_for_deparser_t")
        made["for_deparser"].drop_ctl = 0
        self._run(control, made)
        if made["for_deparser"].drop_ctl & 1:
            return []
        return [(port, self._deparse(deparser, made) + payload)]

    def _intrinsic(self, name: str) -> Struct:
        return self.new(name)

    def _parse(
        self, parser: Block, frame: bytes, intrinsic: dict[str, int]
    ) -> tuple[dict[str, Struct], bytes]:
        packet = PacketIn(frame)
        made: dict[str, Any] = {}
        for position, (_, kind) in enumerate(parser.PARAMETERS):
            if position == 0:
                made["packet"] = packet
            else:
                role = ("", "hdr", "meta", "intrinsic")[position]
                made[role] = self.new(kind, zero=self.zeroed and role == "meta")
        for name, value in intrinsic.items():
            setattr(made["intrinsic"], name, value)
        parser.run(*made.values())
        return made, frame[packet.at :]

    def _run(self, control: Block, made: dict[str, Struct]) -> None:
        """Parameters of a control: headers, metadata, intrinsic, from the parser, then the rest."""
        arguments = []
        for position, (_, kind) in enumerate(control.PARAMETERS):
            if position < 3:
                arguments.append(made[("hdr", "meta", "intrinsic")[position]])
            elif kind.endswith("for_deparser_t"):
                arguments.append(made["for_deparser"])
            elif kind.endswith("for_tm_t"):
                arguments.append(made["for_tm"])
            else:
                arguments.append(self._intrinsic(kind))
        control.apply(*arguments)

    def _deparse(self, deparser: Block, made: dict[str, Struct]) -> bytes:
        packet = PacketOut()
        deparser.apply(packet, made["hdr"], made["meta"], made["for_deparser"])
        return packet.data
