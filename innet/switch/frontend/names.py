"""What the JSON's names and ids mean: the dense indices of the intermediate form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from innet.core.errors import ProgramError, UnknownNameError
from innet.switch import ir
from innet.switch.frontend.json_tree import Tree


@dataclass(slots=True)
class Index:
    """Names of one kind of object, and what each stands for."""

    kind: str
    by_name: dict[str, int] = field(default_factory=dict)
    by_id: dict[int, int] = field(default_factory=dict)

    def add(self, entry: Tree) -> int:
        """Number the object at ``entry``, which has a name and usually an id."""
        number = len(self.by_name)
        name = entry["name"].string()
        if name in self.by_name:
            raise ProgramError(f"{entry.path}.name: a second {self.kind} named {name!r}")
        self.by_name[name] = number
        identity = entry.find("id")
        if identity is not None:
            self._add_id(identity, number)
        return number

    def add_all(self, entries: Iterable[Tree]) -> None:
        for entry in entries:
            self.add(entry)

    def _add_id(self, identity: Tree, number: int) -> None:
        if identity.integer() in self.by_id:
            raise ProgramError(f"{identity.path}: a second {self.kind} with id {identity.value}")
        self.by_id[identity.integer()] = number

    def of(self, reference: Tree) -> int:
        """What the name at ``reference`` stands for."""
        return self.named(reference.string(), reference)

    def named(self, name: str, where: Tree) -> int:
        if name not in self.by_name:
            raise dangling(self.kind, name, self.by_name, where)
        return self.by_name[name]

    def of_id(self, reference: Tree) -> int:
        """What the id at ``reference`` stands for."""
        number = self.by_id.get(reference.integer())
        if number is None:
            raise reference.wrong(f"the id of a {self.kind}")
        return number


def dangling(kind: str, name: str, known: Iterable[str], where: Tree) -> ProgramError:
    """The error for a name that nothing has."""
    return ProgramError(f"{where.path}: {UnknownNameError(kind, name, known)}")


def _index(kind: str) -> Index:
    return Index(kind)


@dataclass(slots=True)
class Names:
    """Every name space of a program, filled while it is loaded."""

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
    instances: tuple[ir.Header, ...] = ()
    all_stacks: tuple[ir.Stack, ...] = ()
    all_unions: tuple[ir.Union, ...] = ()
    all_union_stacks: tuple[ir.UnionStack, ...] = ()
    aliases: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    _positions: dict[int, dict[str, int]] = field(default_factory=dict)

    def field_of(self, type_index: int, name: Tree) -> int:
        """The index of the field named at ``name`` in a header type."""
        header_type = self.types[type_index]
        if type_index not in self._positions:
            numbered = reversed([*enumerate(header_type.fields)])  # the first of a name counts
            self._positions[type_index] = {each.name: position for position, each in numbered}
        known = self._positions[type_index]
        if name.string() not in known:
            raise dangling(f"field of {header_type.name}", name.string(), list(known), name)
        return known[name.string()]

    def field(self, reference: Tree) -> ir.FieldRef:
        """A pair [header, field] of names, where the field may be the hidden ``$valid$``.

        p4c writes an expression instead where an element of a stack is known at run time only,
        which simple_switch does not load either.
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

    def stack_field(self, reference: Tree) -> ir.StackLastField:
        """A pair [stack, field] of names."""
        reference.exactly(2)
        stack = self.stacks.of(reference[0])
        return ir.StackLastField(stack, self.field_of(self.all_stacks[stack].type, reference[1]))

    def union_stack_member(self, stack: Tree, member: Tree) -> tuple[int, int]:
        """(union stack, position) of a member named in the type of a union stack's elements."""
        union_stack = self.union_stacks.of(stack)
        union = self.all_unions[self.all_union_stacks[union_stack].unions[0]]
        if member.string() not in union.members:
            raise dangling(f"member of {union.type_name}", member.string(), union.members, member)
        return union_stack, union.members.index(member.string())

    def width(self, reference: ir.FieldRef) -> int:
        """Bits of a field; 1 for ``$valid$``."""
        if reference.field == ir.VALID:
            return 1
        return self.types[self.instances[reference.header].type].fields[reference.field].width
