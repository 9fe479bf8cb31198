"""Compiled P4 programs: BMv2 JSON in, ``ir.Program`` out.

BMv2's ``docs/JSON_format.md`` describes the format. The loader takes what p4c's bmv2 back end
writes for the v1model architecture, and what simple_switch takes of older compilers: all versions
2.x, documents without a version, and primitives of P4_14. An absent array is an empty one. A
document that breaks the format raises ProgramError with the path. A construct that no engine can
run raises UnsupportedError with its name.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import hashlib
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from innet.core.errors import InputError, ProgramError
from innet.core.recursion import allow_nesting
from innet.switch import ir
from innet.switch.frontend.expressions import ExpressionLoader, Primitives
from innet.switch.frontend.json_tree import MAX_WIDTH, Index, JsonTree, ProgramNames
from innet.switch.frontend.parser import (
    constant,
    load_calculations,
    load_checksums,
    load_deparser,
    load_parser,
    load_value_sets,
)
from innet.switch.frontend.pipelines import PipelineLoader
from innet.switch.ir.check import refuse_cycles

MAJOR_VERSION = 2

_Loaded = TypeVar("_Loaded")

MAX_RATES = 64
"""The most rates of a meter. p4c gives every meter two."""


def load_program(source: str | Path | Mapping[str, Any] | ir.Program) -> ir.Program:
    """Load a program from a file (JSON, perhaps compressed by gzip or xz) or from JSON itself.

    Raises:
        InputError: ``source`` is neither a path nor a program.
        ProgramError: the file cannot be read, is no JSON, or is no BMv2 program. The message names
            the path in the document and what was expected there.
        UnsupportedError: the program uses a construct that the intermediate form does not have.
    """
    if isinstance(source, ir.Program):
        return source
    if not isinstance(source, str | os.PathLike | Mapping):
        raise InputError(
            "a program is the path of a JSON file, a parsed JSON object or a loaded program, not "
            f"{type(source).__name__}"
        )
    if isinstance(source, Mapping):
        return _from_document(source)
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return _once(source.encode(), lambda text: _parse(Path("the program's text"), text))
    path = Path(source)
    return _once(_read(path), lambda text: _parse(path, text))


def load_text(text: bytes) -> ir.Program:
    """``load_program`` of a program's JSON as text, which must be JSON."""
    return _once(text, _loads)


_KEPT = 16
_kept: dict[bytes, ir.Program] = {}  # by the digest of their text, the latest last


def _once(text: bytes, parse: Callable[[bytes], Any]) -> ir.Program:
    """The program that a text says: of the latest texts the same one again, since nothing can
    change it and reading one takes longer than a small all-reduce.
    """
    key = hashlib.sha256(text).digest()
    program = _kept.pop(key, None) or _from_document(parse(text))
    _kept[key] = program
    while len(_kept) > _KEPT:
        _kept.pop(next(iter(_kept)), None)
    return program


def _from_document(document: Any) -> ir.Program:
    try:
        with _no_collection():
            return _nested(lambda: _load(JsonTree(document)))
    except RecursionError:
        raise ProgramError("the program's parts are nested too deeply to be read") from None


def _nested(function: Callable[[], _Loaded]) -> _Loaded:
    """What ``function`` returns, with more nested calls if it needs them."""
    try:
        return function()
    except RecursionError:
        allow_nesting()
        return function()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without garbage collection, which takes a third of the time to load a large program and finds
    little.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_document(path: Path) -> Any:
    """The JSON in a file, plain or compressed; ProgramError when it cannot be read."""
    return _parse(path, _read(path))


def _read(path: Path) -> bytes:
    """The text in a file, plain or compressed; ProgramError when it cannot be read."""
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            return gzip.decompress(data)
        if data.startswith(b"\xfd7zXZ\x00"):
            return lzma.decompress(data)
        return data
    except OSError as error:
        named = isinstance(error, FileNotFoundError) and not path.suffix
        hint = ". One that innet has is found by innet.programs.find(NAME, VALUES)" if named else ""
        raise ProgramError(f"cannot read the program {path}: {error.strerror}{hint}") from error
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise ProgramError(f"{path}: broken compressed data: {error}") from error
    except ValueError as error:  # a name that no file can have
        raise ProgramError(f"{path}: no JSON, so no compiled P4 program: {error}") from error


def _loads(text: bytes) -> Any:
    return _nested(lambda: json.loads(text))


def _parse(path: Path, text: bytes) -> Any:
    try:
        return _loads(text)
    except (ValueError, RecursionError) as error:
        if path.suffix == ".p4":
            raise ProgramError(
                f"{path} is a program's source: compile it first (innet p4 compile {path}), and "
                "name the JSON"
            ) from error
        raise ProgramError(f"{path}: no JSON, so no compiled P4 program: {error}") from error


def _load(root: JsonTree) -> ir.Program:
    # Sections of the document are those of BMv2's JSON_format.md.
    version = _version(root)
    # Step 1: names and numbers of what others refer to. Headers come first, since all fields do.
    names = ProgramNames()
    load_headers(root, names)
    standard = load_standard_metadata(root, names)
    names.value_sets.add_all(root.each("parse_vsets"))
    names.calculations.add_all(root.each("calculations"))
    names.registers.add_all(root.each("register_arrays"))
    names.counters.add_all(root.each("counter_arrays"))
    names.meters.add_all(root.each("meter_arrays"))
    # Step 2: "actions" before "pipelines", whose tables name them and give their arguments.
    primitives = Primitives(names, standard)
    actions, action_ids = _actions(root, primitives)
    pipelines = PipelineLoader(root, names, actions, action_ids)
    tables = pipelines.tables()
    actions = _with_negative(actions, tables)
    conditionals, calls = pipelines.conditionals(), pipelines.action_calls()
    refuse_cycles(tables, conditionals, calls)
    # Step 3: what belongs to a table, direct meters and action profiles, must fit it.
    meters = tuple(_meter(tree, names, tables) for tree in root.each("meter_arrays"))
    _require_direct(tables, meters)
    profiles = pipelines.action_profiles()
    _require_profiles(tables, profiles)
    # Step 4: the rest, which only refers to what is loaded.
    program = root.find("program")
    return ir.Program(
        name="program" if program is None else Path(program.string()).name,
        version=version,
        fingerprint=fingerprint(root.value),
        header_types=names.types,
        headers=names.instances,
        stacks=names.all_stacks,
        unions=names.all_unions,
        union_stacks=names.all_union_stacks,
        errors=load_errors(root),
        enums={
            tree["name"].string(): {
                entry[0].string(): entry[1].integer() for entry in tree["entries"]
            }
            for tree in root.each("enums")
        },
        standard=standard,
        parser=load_parser(root, names, primitives),
        value_sets=load_value_sets(root),
        deparser=load_deparser(root, names, primitives),
        calculations=load_calculations(root, names),
        checksums=load_checksums(root, names),
        field_lists=_field_lists(root, names),
        learn_lists=_learn_lists(root, names),
        registers=tuple(
            ir.RegisterArray(
                tree["name"].string(),
                tree["size"].size(),
                tree["bitwidth"].width(),
            )
            for tree in root.each("register_arrays")
        ),
        counters=tuple(_counter(tree, names, tables) for tree in root.each("counter_arrays")),
        meters=meters,
        actions=actions,
        tables=tables,
        conditionals=conditionals,
        action_calls=calls,
        action_profiles=profiles,
        ingress=pipelines.pipeline("ingress", root),
        egress=pipelines.pipeline("egress", root),
        externs=tuple(tree["name"].string() for tree in root.each("extern_instances")),
    )


def _version(root: JsonTree) -> tuple[int, ...]:
    """The version that the document states, () if it states none, as before 2.0."""
    parts = ("headers", "parsers", "pipelines")
    meta = root.find("__meta__") if isinstance(root.value, Mapping) else None
    stated = None if meta is None else meta.find("version")
    if stated is None and not (isinstance(root.value, Mapping) and root.value.keys() & parts):
        raise ProgramError(
            f"no compiled P4 program: expected a JSON object with {', '.join(parts)}, as p4c's "
            "bmv2 back end writes it"
        )
    if stated is None:
        return ()
    major, minor = stated.exactly(2)[0].integer(), stated[1].integer(0)
    if major != MAJOR_VERSION:
        raise ProgramError(
            f"{stated.path}: BMv2 JSON of version {major}.{minor}; supported are versions "
            f"{MAJOR_VERSION}.x. Compile the program with a recent p4c"
        )
    return major, minor


def fingerprint(document: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a program, without its name and the positions in its source."""
    kept = {key: value for key, value in document.items() if key not in ("program", "__meta__")}
    canonical = json.dumps(without_source(kept), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def without_source(value: Any) -> Any:
    """A JSON value without the ``source_info`` of all its parts."""
    if isinstance(value, dict):  # ten times as fast as isinstance of Mapping
        parts = value.items()
        return {key: without_source(each) for key, each in parts if key != "source_info"}
    if isinstance(value, list):
        return [without_source(each) for each in value]
    if isinstance(value, Mapping):
        return without_source(dict(value))
    return value


def _actions(root: JsonTree, primitives: Primitives) -> tuple[tuple[ir.Action, ...], Index]:
    """The actions, and an index by their ids. Several actions may have one name."""
    ids = Index("action")
    actions = []
    for number, tree in enumerate(root.each("actions")):
        identity = tree["id"]
        if identity.integer() in ids.by_id:
            raise identity.wrong("an id that no other action has")
        ids.by_id[identity.integer()] = number
        parameters = tuple(
            ir.Parameter(each["name"].string(), each["bitwidth"].width(least=0))
            for each in tree.each("runtime_data")
        )
        body = Primitives(primitives.names, primitives.standard, len(parameters))
        actions.append(
            ir.Action(tree["name"].string(), parameters, body.all(tree.array("primitives")))
        )
    return tuple(actions), ids


def _with_negative(
    actions: tuple[ir.Action, ...], tables: tuple[ir.Table, ...]
) -> tuple[ir.Action, ...]:
    """``actions`` with ``Parameter.negative`` set where a table's entry has a negative argument."""
    entries = [entry.entry for table in tables for entry in table.entries]
    entries += [table.default for table in tables if table.default is not None]
    negative = {
        (entry.action, i) for entry in entries for i, each in enumerate(entry.arguments) if each < 0
    }
    return tuple(
        replace(
            action,
            parameters=tuple(
                replace(each, negative=(number, i) in negative)
                for i, each in enumerate(action.parameters)
            ),
        )
        for number, action in enumerate(actions)
    )


def _field_lists(root: JsonTree, names: ProgramNames) -> tuple[ir.FieldList, ...]:
    lists = []
    for tree in root.each("field_lists"):
        elements: list[ir.FieldRef | ir.CalculationConstant] = []
        for element in tree.each("elements"):
            if element["type"].string() == "hexstr":
                elements.append(constant(element))
            else:
                elements.append(names.field(element["value"]))
        lists.append(ir.FieldList(tree["id"].integer(), tree["name"].string(), tuple(elements)))
    return tuple(lists)


def _learn_lists(root: JsonTree, names: ProgramNames) -> tuple[ir.LearnList, ...]:
    make = ExpressionLoader(names)
    lists = []
    for tree in root.each("learn_lists"):
        elements = []
        for element in tree.each("elements"):
            field = make.build(element)
            if not isinstance(field, ir.FieldRef):
                raise element.wrong("a field")
            elements.append(field)
        lists.append(ir.LearnList(tree["id"].integer(), tree["name"].string(), tuple(elements)))
    return tuple(lists)


def _counter(tree: JsonTree, names: ProgramNames, tables: tuple[ir.Table, ...]) -> ir.CounterArray:
    name = tree["name"].string()
    if not tree.flag("is_direct", default=False):
        return ir.CounterArray(name, tree["size"].size(), None)
    table = names.tables.of(tree["binding"])
    return ir.CounterArray(name, tables[table].max_size, table)


def _require_direct(tables: tuple[ir.Table, ...], meters: tuple[ir.MeterArray, ...]) -> None:
    for number, table in enumerate(tables):
        if table.meter is not None and meters[table.meter].table != number:
            raise ProgramError(
                f"the direct meter of table {table.name}, {meters[table.meter].name}, is not bound "
                "to that table"
            )


def _require_profiles(tables: tuple[ir.Table, ...], profiles: tuple[ir.ActionProfile, ...]) -> None:
    for table in tables:
        where = f"table {table.name} is {table.kind.value}, but"
        if table.kind is ir.TableKind.SIMPLE:
            if table.action_profile is not None:
                raise ProgramError(f"{where} has an action profile")
        elif table.action_profile is None:
            raise ProgramError(f"{where} has no action profile")
        elif table.immutable:
            raise ProgramError(f"{where} has its own entries, which simple_switch refuses")
        elif table.kind is ir.TableKind.INDIRECT_WS:
            profile = profiles[table.action_profile]
            if profile.selector is None:
                raise ProgramError(f"{where} its profile {profile.name} has no selector")


def _meter(tree: JsonTree, names: ProgramNames, tables: tuple[ir.Table, ...]) -> ir.MeterArray:
    kind = tree["type"].string()
    if kind not in ("packets", "bytes"):
        raise tree["type"].wrong("'packets' or 'bytes'")
    table = result = None
    if tree.flag("is_direct", default=False):
        table = names.tables.of(tree["binding"])
        result = names.field(tree["result_target"])
        size = tables[table].max_size
    else:
        size = tree["size"].size()
    return ir.MeterArray(
        tree["name"].string(),
        size,
        kind == "bytes",
        tree["rate_count"].integer(0, MAX_RATES),
        table,
        result,
    )


# ------------------------------------------------------------------ headers and metadata

#: The greatest length of a header of variable length if the program states none.
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


def load_headers(root: JsonTree, names: ProgramNames) -> None:
    """Fill the tuples of ``names`` that describe headers."""
    types = list(root["header_types"])
    names.header_types.add_all(types)
    names.types = tuple(_header_type(tree) for tree in types)
    stated = {number: tree.find("length_exp") for number, tree in enumerate(types)}
    names.lengths = {number: tree for number, tree in stated.items() if tree is not None}
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


def _header_type(tree: JsonTree) -> ir.HeaderType:
    max_bytes = tree.find("max_length")
    stated = 0 if max_bytes is None else max_bytes.integer(0, MAX_WIDTH // 8)
    limit = stated or _LONGEST_PACKET
    fixed = sum(each[1].width(0) for each in tree.each("fields") if each[1].value != "*")
    members: list[ir.Field] = []
    offset = 0
    for each in tree.each("fields"):
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
    return ir.HeaderType(tree["name"].string(), tuple(members), fixed, bytes_)


def _stack(tree: JsonTree, names: ProgramNames) -> ir.Stack:
    return ir.Stack(
        tree["name"].string(),
        names.header_types.of(tree["header_type"]),
        tuple(names.headers.of_id(each) for each in _some(tree["header_ids"])),
    )


def _some(tree: JsonTree) -> JsonTree:
    """An array that is not empty."""
    if not len(tree):
        raise tree.wrong("at least one element")
    return tree


def _union(tree: JsonTree, names: ProgramNames, members: Mapping[str, tuple[str, ...]]) -> ir.Union:
    kind = tree["union_type"].string()
    if kind not in members:
        raise tree["union_type"].wrong("the name of a header union type")
    headers = tuple(names.headers.of_id(each) for each in tree["header_ids"])
    if len(headers) != len(members[kind]):
        raise tree["header_ids"].wrong(f"one header for each of {', '.join(members[kind])}")
    return ir.Union(tree["name"].string(), kind, members[kind], headers)


def _instances(root: JsonTree, names: ProgramNames) -> tuple[ir.Header, ...]:
    stacks = {h: (i, k) for i, s in enumerate(names.all_stacks) for k, h in enumerate(s.headers)}
    unions = {h: (i, k) for i, u in enumerate(names.all_unions) for k, h in enumerate(u.headers)}
    instances = []
    for number, tree in enumerate(root["headers"]):
        stack, stack_position = stacks.get(number, (None, 0))
        union, union_position = unions.get(number, (None, 0))
        kind = names.header_types.of(tree["header_type"])
        metadata = tree.flag("metadata", default=False)
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


def load_standard_metadata(root: JsonTree, names: ProgramNames) -> ir.StandardMetadata:
    """The fields that simple_switch reads and writes; ProgramError if a required one is absent."""
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
        # simple_switch fills all queueing metadata, or none if a field is missing.
        found.update(dict.fromkeys(_QUEUEING))
    return ir.StandardMetadata(**found)  # type: ignore[arg-type] # the required ones were checked


def _field(names: ProgramNames, header: str, name: str) -> ir.FieldRef | None:
    index = names.headers.by_name.get(header)
    if index is None:
        return None
    header_type = names.types[names.instances[index].type]
    position = next((i for i, each in enumerate(header_type.fields) if each.name == name), None)
    return None if position is None else ir.FieldRef(index, position)


def load_errors(root: JsonTree) -> dict[str, int]:
    """Error codes by name. Core library errors that the JSON leaves out follow the greatest code,
    in the library's order.
    """
    errors = {pair[0].string(): pair[1].integer(least=0) for pair in root.each("errors")}
    code = max(errors.values(), default=-1) + 1
    for name in _CORE_ERRORS:
        if name not in errors:
            errors[name] = code
            code += 1
    return errors
