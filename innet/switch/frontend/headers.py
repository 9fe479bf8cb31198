"""Header types, instances, stacks and unions of BMv2 JSON, and where the switch's metadata are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from innet.core.errors import ProgramError, UnsupportedError
from innet.switch import ir
from innet.switch.frontend.json_tree import MAX_WIDTH, Tree
from innet.switch.frontend.names import Names

#: The length of a header of variable length where the program states none.
_LONGEST_PACKET = 65535

_CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)


def load_headers(root: Tree, names: Names) -> None:
    """Fill the tuples of ``names`` that describe headers."""
    names.header_types.add_all(root["header_types"])
    names.types = tuple(_header_type(tree) for tree in root["header_types"])
    names.headers.add_all(root["headers"])
    names.stacks.add_all(root.each("header_stacks"))
    names.unions.add_all(root.each("header_unions"))
    names.union_stacks.add_all(root.each("header_union_stacks"))
    members = {
        tree["name"].string(): tuple(pair[0].string() for pair in tree["headers"])
        for tree in root.each("header_union_types")
    }
    names.all_stacks = tuple(_stack(tree, names) for tree in root.each("header_stacks"))
    names.all_unions = tuple(_union(tree, names, members) for tree in root.each("header_unions"))
    names.all_union_stacks = tuple(
        ir.UnionStack(
            tree["name"].string(),
            tree["union_type"].string(),
            tuple(names.unions.of_id(each) for each in _some(tree["header_union_ids"])),
        )
        for tree in root.each("header_union_stacks")
    )
    names.instances = _instances(root, names)
    names.aliases = {
        alias[0].string(): (alias[1][0].string(), alias[1][1].string())
        for alias in root.each("field_aliases")
    }


def _header_type(tree: Tree) -> ir.HeaderType:
    if tree.find("length_exp") is not None:
        raise UnsupportedError(
            f"{tree.path}.length_exp: a header type that states its own length (P4_14) is not "
            "supported; compile the program as P4_16"
        )
    max_bytes = tree.find("max_length")
    stated = 0 if max_bytes is None else max_bytes.integer(0, MAX_WIDTH // 8)
    limit = stated or _LONGEST_PACKET
    fixed = sum(each[1].width(0) for each in tree["fields"] if each[1].value != "*")
    members: list[ir.Field] = []
    offset = 0
    for each in tree["fields"]:
        variable = each[1].value == "*"
        signed, saturating = (len(each) > i and each[i].boolean() for i in (2, 3))
        # p4c takes bit<0>, and no int<0>.
        width = max(8 * limit - fixed, 0) if variable else each[1].width(int(signed))
        members.append(ir.Field(each[0].string(), width, signed, saturating, variable, offset))
        offset += 0 if variable else width
    if sum(member.variable for member in members) > 1:
        raise tree["fields"].wrong("at most one field of variable width")
    known = [member.name for member in members]
    if len(set(known)) != len(known):
        raise tree["fields"].wrong("fields with different names")
    bytes_ = limit if any(member.variable for member in members) else 0
    return ir.HeaderType(tree["name"].string(), tuple(members), fixed, bytes_, None)


def _stack(tree: Tree, names: Names) -> ir.Stack:
    return ir.Stack(
        tree["name"].string(),
        names.header_types.of(tree["header_type"]),
        tuple(names.headers.of_id(each) for each in _some(tree["header_ids"])),
    )


def _some(tree: Tree) -> Tree:
    """An array that is not empty."""
    if not len(tree):
        raise tree.wrong("at least one element")
    return tree


def _union(tree: Tree, names: Names, members: Mapping[str, tuple[str, ...]]) -> ir.Union:
    kind = tree["union_type"].string()
    if kind not in members:
        raise tree["union_type"].wrong("the name of a header union type")
    headers = tuple(names.headers.of_id(each) for each in tree["header_ids"])
    if len(headers) != len(members[kind]):
        raise tree["header_ids"].wrong(f"one header for each of {', '.join(members[kind])}")
    return ir.Union(tree["name"].string(), kind, members[kind], headers)


def _instances(root: Tree, names: Names) -> tuple[ir.Header, ...]:
    stacks = {h: (i, k) for i, s in enumerate(names.all_stacks) for k, h in enumerate(s.headers)}
    unions = {h: (i, k) for i, u in enumerate(names.all_unions) for k, h in enumerate(u.headers)}
    instances = []
    for number, tree in enumerate(root["headers"]):
        stack, stack_position = stacks.get(number, (None, 0))
        union, union_position = unions.get(number, (None, 0))
        kind = names.header_types.of(tree["header_type"])
        metadata = tree["metadata"].boolean()
        if not metadata and names.types[kind].width % 8:
            raise tree["header_type"].wrong("a header type of whole bytes")
        instances.append(
            ir.Header(
                tree["name"].string(),
                kind,
                metadata,
                stack,
                stack_position,
                union,
                union_position,
            )
        )
    return tuple(instances)


_QUEUEING = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth", "qid")
_INTRINSIC = (
    "mcast_grp",
    "egress_rid",
    "priority",
    "ingress_global_timestamp",
    "egress_global_timestamp",
)
_REQUIRED = ("ingress_port", "egress_spec", "egress_port", "packet_length", "instance_type")


def load_standard_metadata(root: Tree, names: Names) -> ir.StandardMetadata:
    """The fields that simple_switch reads and writes; ProgramError when one it needs is absent."""
    found: dict[str, ir.FieldRef | None] = {}
    for member in fields(ir.StandardMetadata):
        name = member.name
        owner = "standard_metadata"
        if name in _QUEUEING:
            owner = "queueing_metadata"
        elif name in _INTRINSIC:
            owner = "intrinsic_metadata"
        header, field_name = names.aliases.get(f"{owner}.{name}", (owner, name))
        found[name] = _field(names, header, field_name)
        if found[name] is None and name in _REQUIRED:
            raise ProgramError(
                f"{root['headers'].path}: expected a field {owner}.{name}, which v1model has; "
                "programs of other architectures, such as PSA and PNA, cannot be run"
            )
    if any(found[name] is None for name in _QUEUEING if name != "qid"):
        # simple_switch fills all of the queueing metadata or, where one is missing, none.
        found.update(dict.fromkeys(_QUEUEING))
    return ir.StandardMetadata(**found)  # type: ignore[arg-type] # the required ones were checked


def _field(names: Names, header: str, name: str) -> ir.FieldRef | None:
    index = names.headers.by_name.get(header)
    if index is None:
        return None
    header_type = names.types[names.instances[index].type]
    position = next((i for i, each in enumerate(header_type.fields) if each.name == name), None)
    return None if position is None else ir.FieldRef(index, position)


def load_errors(root: Tree) -> dict[str, int]:
    """Error codes by name. Errors of the core library that the JSON leaves out are numbered after
    the greatest that it states, in the library's order.
    """
    errors = {pair[0].string(): pair[1].integer(least=0) for pair in root.each("errors")}
    code = max(errors.values(), default=-1) + 1
    for name in _CORE_ERRORS:
        if name not in errors:
            errors[name] = code
            code += 1
    return errors
