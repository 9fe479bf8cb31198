"""The JSON document with the path of each value, and the names and ids that it defines.

Every error about a document names the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from innet.core.errors import ProgramError, UnknownNameError
from innet.core.recursion import allow_nesting
from innet.switch import ir

MAX_WIDTH = 1 << 16
"""Bits of a field, constant or register. p4c allows 2048. Without a limit the switch could have to
compute with integers that fill the memory."""

MAX_SIZE = (1 << 32) - 1
"""Cells of a register or counter, entries of a table. v1model counts them in 32 bits."""

MAX_DEPTH = 1000
"""Nested arrays and objects, as BMv2's reader of JSON takes them. An operation takes two levels."""

_ORDINARY_DEPTH = 100
"""Functions that walk deeper parts need more nested calls than Python allows by default."""


@dataclass(frozen=True, slots=True)
class JsonTree:
    """``value`` at ``path`` of a document; ``path`` is empty at the root.

    Every accessor raises ProgramError if the value is something else. The message has the path and
    what was expected there.
    """

    value: Any
    path: str = ""
    depth: int = 0

    def wrong(self, expected: str) -> ProgramError:
        """The error for a value that is not ``expected``."""
        shown = repr(self.value)
        if len(shown) > 60:
            shown = shown[:57] + "..."
        return ProgramError(f"{self.path or 'the document'}: expected {expected}, found {shown}")

    def __getitem__(self, key: str | int) -> JsonTree:
        """The member or element ``key``, which must be there (it may be null)."""
        if isinstance(key, int):
            if not isinstance(self.value, list) or key >= len(self.value):
                raise self.wrong(f"an array of at least {key + 1} elements")
            return self._member(self.value[key], f"{self.path}[{key}]")
        if not isinstance(self.value, dict):
            raise self.wrong(f"an object with {key!r}")
        if key not in self.value:
            raise ProgramError(f"{self.path or 'the document'}: expected a member {key!r}")
        return self._member(self.value[key], f"{self.path}.{key}" if self.path else key)

    def _member(self, value: Any, path: str) -> JsonTree:
        if self.depth >= _ORDINARY_DEPTH:
            allow_nesting()
        if self.depth == MAX_DEPTH:
            raise ProgramError(
                f"{path[:100]}...: nested deeper than {MAX_DEPTH} levels, which simple_switch "
                "does not load either"
            )
        return JsonTree(value, path, self.depth + 1)

    def find(self, key: str) -> JsonTree | None:
        """The member ``key``, None when it is absent or null."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self[key] if self.value.get(key) is not None else None

    def __iter__(self) -> Iterator[JsonTree]:
        """The elements of an array."""
        if not isinstance(self.value, list):
            raise self.wrong("an array")
        return (self._member(each, f"{self.path}[{i}]") for i, each in enumerate(self.value))

    def __len__(self) -> int:
        if not isinstance(self.value, list):
            raise self.wrong("an array")
        return len(self.value)

    def array(self, key: str) -> JsonTree:
        """The member ``key``; an empty array if it is absent, as in BMv2."""
        found = self.find(key)
        return JsonTree([], f"{self.path}.{key}", self.depth + 1) if found is None else found

    def each(self, key: str) -> Iterator[JsonTree]:
        """The elements of the array at ``key``; empty if it is absent."""
        return iter(self.array(key))

    def exactly(self, count: int) -> JsonTree:
        """Itself, if it is an array of ``count`` elements."""
        if not isinstance(self.value, list) or len(self.value) != count:
            raise self.wrong(f"an array of {count} elements")
        return self

    def string(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        return self.value

    def holds(self, key: str) -> bool:
        """Whether an object has a member ``key``, which may be null."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return key in self.value

    def integer(self, least: int | None = None, most: int | None = None) -> int:
        # bool is a subclass of int, but JSON's true is not a number.
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.wrong("an integer")
        if least is not None and self.value < least:
            raise self.wrong(f"an integer of at least {least}")
        if most is not None and self.value > most:
            raise self.wrong(f"an integer of at most {most}")
        return self.value

    def width(self, least: int = 1) -> int:
        """A number of bits."""
        return self.integer(least, MAX_WIDTH)

    def size(self) -> int:
        """A number of cells or entries."""
        return self.integer(0, MAX_SIZE)

    def boolean(self) -> bool:
        # p4c writes 0 and 1 for "signed" of a field of type bool.
        if not isinstance(self.value, bool) and self.value not in (0, 1):
            raise self.wrong("true or false")
        return bool(self.value)

    def flag(self, key: str, default: bool) -> bool:
        """The boolean member ``key``, ``default`` when it is absent."""
        found = self.find(key)
        return default if found is None else found.boolean()

    def hexadecimal(self) -> int:
        """A number as BMv2 writes it: hexadecimal with or without 0x, perhaps after a minus."""
        text = self.string()
        digits = text.removeprefix("-").removeprefix("0x")
        try:
            if not digits.isalnum():
                raise ValueError
            number = int(digits, 16)
        except ValueError:
            raise self.wrong("a hexadecimal number in a string") from None
        return -number if text.startswith("-") else number


def source_of(part: Any) -> str:
    """FILE:LINE of the P4 source of a part of the document, from ``source_info``; "" if unknown."""
    found = part.get("source_info") if isinstance(part, Mapping) else None
    if not isinstance(found, Mapping) or "filename" not in found:
        return ""
    return f"{found['filename']}:{found.get('line', '?')}"


# ------------------------------------------------------------------ names and ids as dense indices


@dataclass(slots=True)
class Index:
    """The names and ids of one kind of object, and the number of each."""

    kind: str
    by_name: dict[str, int] = field(default_factory=dict)
    by_id: dict[int, int] = field(default_factory=dict)

    def add(self, entry: JsonTree) -> int:
        """Add the object at ``entry``, which has a name and usually an id; its number."""
        number = self.add_named(entry["name"])
        identity = entry.find("id")
        if identity is not None:
            self._add_id(identity, number)
        return number

    def add_named(self, name: JsonTree) -> int:
        """Add the object with the name at ``name`` and no id; its number."""
        if name.string() in self.by_name:
            raise ProgramError(f"{name.path}: a second {self.kind} named {name.value!r}")
        self.by_name[name.string()] = len(self.by_name)
        return len(self.by_name) - 1

    def add_all(self, entries: Iterable[JsonTree]) -> None:
        for entry in entries:
            self.add(entry)

    def _add_id(self, identity: JsonTree, number: int) -> None:
        if identity.integer() in self.by_id:
            raise ProgramError(f"{identity.path}: a second {self.kind} with id {identity.value}")
        self.by_id[identity.integer()] = number

    def of(self, reference: JsonTree) -> int:
        """The number of the object whose name is at ``reference``."""
        return self.named(reference.string(), reference)

    def named(self, name: str, where: JsonTree) -> int:
        if name not in self.by_name:
            raise unknown_name(self.kind, name, self.by_name, where)
        return self.by_name[name]

    def of_id(self, reference: JsonTree) -> int:
        """The number of the object whose id is at ``reference``."""
        number = self.by_id.get(reference.integer())
        if number is None:
            raise reference.wrong(f"the id of a {self.kind}")
        return number


def unknown_name(kind: str, name: str, known: Iterable[str], where: JsonTree) -> ProgramError:
    """The error for an unknown name."""
    return ProgramError(f"{where.path}: {UnknownNameError(kind, name, known)}")


def _index(kind: str) -> Index:
    return Index(kind)


@dataclass(slots=True)
class ProgramNames:
    """All name spaces of a program, filled while it is loaded."""

    header_types: Index = field(default_factory=lambda: _index("header type"))
    headers: Index = field(default_factory=lambda: _index("header"))
    stacks: Index = field(default_factory=lambda: _index("header stack"))
    unions: Index = field(default_factory=lambda: _index("header union"))
    union_stacks: Index = field(default_factory=lambda: _index("header union stack"))
    value_sets: Index = field(default_factory=lambda: _index("parser value set"))
    calculations: Index = field(default_factory=lambda: _index("calculation"))
    registers: Index = field(default_factory=lambda: _index("register"))
    counters: Index = field(default_factory=lambda: _index("counter"))
    meters: Index = field(default_factory=lambda: _index("meter"))
    tables: Index = field(default_factory=lambda: _index("table"))
    conditionals: Index = field(default_factory=lambda: _index("conditional"))
    action_calls: Index = field(default_factory=lambda: _index("action call"))
    action_profiles: Index = field(default_factory=lambda: _index("action profile"))
    types: tuple[ir.HeaderType, ...] = ()
    lengths: Mapping[int, JsonTree] = field(default_factory=dict)  # of types that state their own
    instances: tuple[ir.Header, ...] = ()
    all_stacks: tuple[ir.Stack, ...] = ()
    all_unions: tuple[ir.Union, ...] = ()
    all_union_stacks: tuple[ir.UnionStack, ...] = ()
    aliases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    _positions: dict[int, dict[str, int]] = field(default_factory=dict)

    def field_of(self, type_index: int, name: JsonTree) -> int:
        """The index of the field named at ``name`` in a header type."""
        header_type = self.types[type_index]
        if type_index not in self._positions:
            numbered = reversed([*enumerate(header_type.fields)])  # among equal names the first
            self._positions[type_index] = {each.name: position for position, each in numbered}
        known = self._positions[type_index]
        if name.string() not in known:
            raise unknown_name(f"field of {header_type.name}", name.string(), list(known), name)
        return known[name.string()]

    def field(self, reference: JsonTree) -> ir.FieldRef:
        """The field named by a pair [header, field]; ``$valid$`` is the hidden validity bit.

        p4c writes an expression instead for a stack element whose index is known at run time only.
        simple_switch does not load that either.
        """
        if isinstance(reference.value, dict):
            raise reference.wrong(
                "a field's name, since BMv2 takes no expression here (name a variable that it is "
                "assigned to)"
            )
        reference.exactly(2)
        if isinstance(reference[0].value, dict):
            raise reference[0].wrong(
                "a header's name, since BMv2 has no isValid() of an element whose index is known "
                "at run time only (ask each element, and compare the index with constants)"
            )
        header = self.headers.of(reference[0])
        if reference[1].string() == "$valid$":
            return ir.FieldRef(header, ir.VALID)
        return ir.FieldRef(header, self.field_of(self.instances[header].type, reference[1]))

    def stack_field(self, reference: JsonTree) -> ir.StackLastField:
        """The field named by a pair [stack, field]."""
        reference.exactly(2)
        stack = self.stacks.of(reference[0])
        return ir.StackLastField(stack, self.field_of(self.all_stacks[stack].type, reference[1]))

    def union_stack_member(self, stack: JsonTree, member: JsonTree) -> tuple[int, int]:
        """(union stack, position) of a member named in the type of a union stack's elements."""
        union_stack = self.union_stacks.of(stack)
        union = self.all_unions[self.all_union_stacks[union_stack].unions[0]]
        if member.string() not in union.members:
            raise unknown_name(
                f"member of {union.type_name}", member.string(), union.members, member
            )
        return union_stack, union.members.index(member.string())

    def width(self, reference: ir.FieldRef) -> int:
        """Bits of a field; 1 for ``$valid$``."""
        if reference.field == ir.VALID:
            return 1
        return self.types[self.instances[reference.header].type].fields[reference.field].width
