"""Loading BMv2 JSON: what is accepted, and that every refusal names the place."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import json
import lzma
import random
import types
from pathlib import Path

import pytest
from support.switch_cases import CASES, program

from innet.core.errors import InnetError, InputError, ProgramError, UnsupportedError
from innet.switch import Switch, ir, load_program
from innet.switch.frontend.loader import fingerprint
from innet.switch.ir.check import refuse_cycles
from innet.switch.state import tables


@pytest.fixture
def document():
    return copy.deepcopy(program("switch_tables"))


def write(path, data):
    path.write_bytes(data)
    return path


def test_a_program_is_the_same_from_a_file_compressed_or_parsed(tmp_path, document):
    text = json.dumps(document).encode()
    loaded = [
        load_program(document),
        load_program(write(tmp_path / "plain.json", text)),
        load_program(str(write(tmp_path / "program.json.gz", gzip.compress(text)))),
        load_program(write(tmp_path / "program.json.xz", lzma.compress(text))),
    ]
    assert all(each == loaded[0] for each in loaded)
    assert load_program(loaded[0]) is loaded[0]


def test_what_a_program_becomes(document):
    loaded = load_program(document)
    assert loaded.name == "switch_tables.p4"
    header = next(i for i, each in enumerate(loaded.headers) if each.name == "key")
    fields = loaded.type_of(header).fields
    assert [(f.name, f.width, f.offset) for f in fields[:4]] == [
        ("exact_key", 16, 0),
        ("prefix", 32, 16),
        ("odd_prefix", 12, 48),
        ("small", 4, 60),
    ]
    table = next(each for each in loaded.tables if each.name == "I.ternary_table")
    assert table.match is ir.MatchKind.TERNARY
    assert [key.match.value for key in table.keys] == ["ternary", "exact", "ternary"]
    assert table.keys[2].field.field == ir.VALID
    assert loaded.name_of(table.keys[2].field) == "extra.$valid$"
    constant = next(each for each in loaded.tables if each.name == "I.constant_table")
    assert constant.immutable
    assert constant.default_action_const
    assert constant.entries[0].matches == (
        ir.TernaryMatch(0x123456, 0xFFFFFF),
        ir.RangeMatch(5, 9),
    )
    assert loaded.standard.mcast_grp is not None
    assert loaded.name_of(loaded.standard.mcast_grp) == "standard_metadata.mcast_grp"


def test_parser_of_the_stack_program():
    loaded = load_program(program("switch_headers"))
    states = {state.name: state for state in loaded.parser.states}
    label = states["label"]
    assert label.operations == (ir.Extract(ir.StackNext(0), None),)
    assert isinstance(label.key[0].source, ir.StackLastField)
    assert [t.values for t in label.transitions] == [(0,), (1,)]
    assert loaded.parser.states[label.transitions[0].next] is label
    assert label.transitions[1].next is None
    variable = states["variable"].operations
    assert isinstance(variable[-1], ir.Extract)
    assert variable[-1].length is not None


@pytest.mark.parametrize("name", CASES)
def test_fingerprints_ignore_where_the_source_lies(name):
    document = program(name)
    moved = {**document, "program": "/elsewhere/x.p4", "__meta__": {"version": [2, 23]}}
    moved["actions"] = [{**a, "source_info": {"line": 3}} for a in document["actions"]]
    assert fingerprint(moved) == fingerprint(document)
    assert load_program(moved).fingerprint == load_program(document).fingerprint


def test_fingerprints_differ_when_the_program_does(document):
    before = fingerprint(document)
    document["actions"][0]["name"] += "x"
    assert fingerprint(document) != before


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no JSON"),
        (b"\x7fELF", "no JSON"),
        (b"[1, 2", "no JSON"),
        (b'"text"', "headers, parsers, pipelines"),
        (b"{}", "headers, parsers, pipelines"),
        (b"\x1f\x8b broken", "compressed"),
        (gzip.compress(b"{}" * 50, mtime=0)[:-9], "compressed"),
        (b"\xfd7zXZ\x00 broken", "compressed"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_a_file_that_is_no_program(tmp_path, data, words):
    with pytest.raises(ProgramError, match=words):
        load_program(write(tmp_path / "bad.json", data))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ProgramError, match=r"missing\.json"):
        load_program(tmp_path / "missing.json")


@pytest.mark.parametrize("version", [[1, 23], [3, 0], [2, -1], ["2", 23], [2], 2])
def test_a_version_that_is_not_supported(document, version):
    document["__meta__"]["version"] = version
    with pytest.raises(ProgramError, match=r"__meta__\.version"):
        load_program(document)


def at(document, path):
    for step in path[:-1]:
        document = document[step]
    return document, path[-1]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (
            ("headers", 2, "header_type"),
            "nowhere",
            r"headers\[2\].header_type: unknown",
        ),
        (("headers", 2, "id"), 0, r"headers\[2\].id: a second header"),
        (("headers", 2, "metadata"), "yes", r"headers\[2\].metadata: expected true or false"),
        (("header_types", 2, "fields", 0, 1), "wide", r"header_types\[2\].fields\[0\]\[1\]"),
        (("header_types", 2, "fields", 0, 1), -1, "at least 0"),
        (("header_types", 2, "fields", 0), ["exact_key", 0, True], "at least 1"),
        (("header_types", 2, "fields", 0, 1), 7, "whole bytes"),
        (("parsers", 0, "name"), "other", "unknown parser 'parser'"),
        (("parsers", 0, "init_state"), "begin", "unknown parse state 'begin'"),
        (("parsers", 0, "parse_states", 0, "parser_ops", 0, "op"), "eat", "BMv2's parser has"),
        (("parsers", 0, "parse_states", 0, "transitions", 0, "value"), "0x1234", "1 bytes"),
        (("parsers", 0, "parse_states", 0, "transitions", 0, "value"), "zz", "hexadecimal"),
        (("deparsers", 0, "order", 0), "hdr", r"order\[0\]: unknown header 'hdr'"),
        (("pipelines", 0, "name"), "in", "unknown pipeline 'ingress'"),
        (("pipelines", 0, "init_table"), "x", "unknown table or conditional 'x'"),
        (("pipelines", 0, "tables", 0, "type"), "magic", r"tables\[0\].type"),
        (("pipelines", 0, "tables", 0, "match_type"), "fuzzy", r"tables\[0\].match_type"),
        (("pipelines", 0, "tables", 0, "action_ids", 0), 999, "id of a action"),
        (("actions", 0, "primitives"), 5, r"actions\[0\].primitives"),
        (("field_aliases",), [["a", "b"]], r"field_aliases\[0\]\[1\]"),
    ],
)
def test_a_broken_document_names_the_place(document, path, value, words):
    place, key = at(document, path)
    place[key] = value
    with pytest.raises(ProgramError, match=words):
        load_program(document)


def test_a_select_by_an_expression_names_the_remedy():
    """As p4c emits ``select (stack.lastIndex)``, which simple_switch does not load either."""
    document = copy.deepcopy(program("switch_state"))
    key = {"type": "expression", "value": {"type": "hexstr", "value": "0x01"}}
    document["parsers"][0]["parse_states"][0]["transition_key"] = [key]
    with pytest.raises(ProgramError, match=r"transition_key\[0\].*select by a variable"):
        load_program(document)


ELEMENT = {
    "op": "dereference_header_stack",
    "left": {"type": "header_stack", "value": "s"},
    "right": {"type": "hexstr", "value": "0x00"},
}


def test_a_union_with_too_few_headers():
    document = program("as_bmv2_unions")
    document["header_unions"][1]["header_ids"].pop()
    with pytest.raises(ProgramError, match=r"header_unions\[1\].header_ids: .*each of s, l"):
        load_program(document)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ([ELEMENT, "$valid$"], r"target\[0\].*isValid\(\).*compare the index with constants"),
        ({"type": "expression", "value": ELEMENT}, r"target: .*name a variable"),
    ],
)
def test_a_key_from_an_element_known_at_run_time_names_the_remedy(document, target, words):
    """As p4c emits ``stack[index].isValid()`` and ``stack[index].field``."""
    _some_table(document, "I.lpm_table")["key"][0]["target"] = target
    with pytest.raises(ProgramError, match=words):
        load_program(document)


def test_a_program_of_another_architecture_is_refused(document):
    names = document["header_types"][1]["fields"]
    document["header_types"][1]["fields"] = [f for f in names if f[0] != "egress_spec"]
    with pytest.raises(ProgramError, match=r"egress_spec.*PSA and PNA"):
        load_program(document)


@pytest.mark.parametrize("member", ["header_types", "headers", "parsers", "pipelines"])
def test_a_missing_member_is_named(document, member):
    del document[member]
    with pytest.raises(ProgramError, match=member):
        load_program(document)


def test_an_unknown_primitive_is_refused_by_name_when_an_engine_gets_it(document):
    action = next(a for a in document["actions"] if a["name"] == "I.one")
    action["primitives"].append({"op": "_Widget_turn", "parameters": []})
    loaded = load_program(document)
    with pytest.raises(UnsupportedError, match=r"_Widget_turn in action I\.one"):
        Switch(loaded, "interpret")


def test_an_unknown_hash_is_refused_by_name():
    document = program("switch_state")
    document["calculations"][0]["algo"] = "sha3"
    with pytest.raises(UnsupportedError, match=r"sha3 of calculation calc"):
        Switch.load(document, "interpret")


def test_a_jump_knows_its_source(document):
    action = next(a for a in document["actions"] if a["name"] == "I.one")
    jump = {"op": "_jump", "parameters": [{"type": "hexstr", "value": "0x0"}]}
    source = {"filename": "own.p4", "line": 12, "column": 3, "source_fragment": "for"}
    action["primitives"] = [jump, jump | {"source_info": source}]
    loaded = next(a for a in load_program(document).actions if a.name == "I.one")
    assert [each.source for each in loaded.primitives] == ["", "own.p4:12"]


# ── Documents that are damaged anywhere ──


def _some_table(document, name):
    tables = [each for pipeline in document["pipelines"] for each in pipeline["tables"]]
    return next(each for each in tables if each["name"] == name)


def test_a_table_that_leads_to_itself(document):
    table = _some_table(document, "I.lpm_table")
    table["next_tables"] = dict.fromkeys(table["next_tables"], "I.lpm_table")
    with pytest.raises(ProgramError, match=r"without a cycle, found I\.lpm_table -> I\.lpm_table"):
        load_program(document)


def test_queueing_metadata_is_filled_as_a_whole(document):
    standard = load_program(document).standard
    assert None not in (standard.enq_timestamp, standard.deq_timedelta, standard.deq_qdepth)
    aliases = document["field_aliases"]
    aliases[:] = [each for each in aliases if each[0] != "queueing_metadata.enq_qdepth"]
    standard = load_program(document).standard
    names = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth", "qid")
    assert {getattr(standard, name) for name in names} == {None}


def test_a_conditional_that_leads_back():
    document = program("switch_copies")
    conditional = document["pipelines"][0]["conditionals"][0]
    behind = conditional["true_next"]
    table = _some_table(document, behind)
    table["base_default_next"] = conditional["name"]
    with pytest.raises(ProgramError) as caught:
        load_program(document)
    there, back = behind, conditional["name"]
    assert f"{there} -> {back}" in str(caught.value) or f"{back} -> {there}" in str(caught.value)


def test_a_long_chain_is_no_cycle():
    count = 5000  # more than Python would follow by recursion
    make = [
        ir.Conditional(
            f"node_{i}",
            ir.BoolConst(value=True),
            ir.Node(ir.NodeKind.CONDITIONAL, i + 1) if i + 1 < count else None,
            ir.Node(ir.NodeKind.CONDITIONAL, min(i + 2, count - 1)) if i + 1 < count else None,
        )
        for i in range(count)
    ]
    refuse_cycles((), tuple(make), ())
    make[-1] = dataclasses.replace(make[-1], if_false=ir.Node(ir.NodeKind.CONDITIONAL, 4990))
    with pytest.raises(ProgramError, match=r"found node_4990 -> .* -> node_4999 -> node_4990"):
        refuse_cycles((), tuple(make), ())


@pytest.mark.parametrize("target", [3, -1])
@pytest.mark.parametrize("jump", ["_jump", "_jump_if_zero"])
def test_jumps_never_lead_out(document, jump, target):
    zero = {"type": "hexstr", "value": "0x0"}
    places = [zero, {"type": "hexstr", "value": hex(target)}]
    document["actions"][0]["primitives"] = [
        {"op": "no_op", "parameters": []},
        {"op": jump, "parameters": places[-1:] if jump == "_jump" else places},
    ]
    with pytest.raises(ProgramError, match=r"parameters: expected a jump inside the action"):
        load_program(document)


@pytest.mark.parametrize("value", [None, True, 1, [], "x"])
def test_next_tables_that_are_no_object(document, value):
    _some_table(document, "I.lpm_table")["next_tables"] = value
    with pytest.raises(
        ProgramError, match=r"pipelines\[0\]\.tables\[\d\]\.next_tables: expected an ob"
    ):
        load_program(document)


@pytest.mark.parametrize(
    ("case", "path", "message"),
    [
        ("switch_tables", ("header_types", 0, "fields", 0, 1), "at most 65536"),
        ("switch_checksums", ("calculations", 1, "input", 2, "bitwidth"), "at most 65536"),
        ("switch_state", ("register_arrays", 0, "bitwidth"), "at most 65536"),
        ("switch_state", ("register_arrays", 0, "size"), "at most 4294967295"),
        ("switch_state", ("counter_arrays", 0, "size"), "at most 4294967295"),
        ("switch_tables", ("pipelines", 0, "tables", 0, "max_size"), "at most 4294967295"),
    ],
)
@pytest.mark.parametrize("number", [1 << 40, 1 << 70])
def test_numbers_beyond_all_bounds(case, path, message, number):
    document = program(case)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = number
    with pytest.raises(ProgramError, match=message) as caught:
        Switch.load(document, "interpret")
    assert path[0] in str(caught.value)


def test_more_memory_than_there_is(monkeypatch):
    def nothing(*_):
        raise MemoryError

    loaded = load_program(program("switch_state"))
    monkeypatch.setattr(tables, "np", types.SimpleNamespace(zeros=nothing))
    with pytest.raises(ProgramError, match=r"registers .* cells cannot be had"):
        Switch(loaded, "interpret")


@pytest.mark.parametrize("source", [None, 5, [], b"x.json"])
def test_what_is_no_program_at_all(source):
    with pytest.raises(InputError, match=f"not {type(source).__name__}"):
        Switch.load(source)


JUNK = [None, -1, 0, 2**70, "", "0x", [], {}, True, 1.5, [None], ["a", "b"], {"type": "field"}]


def _paths(value, path=()):
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in members:
        if key != "source_info":
            yield (*path, key)
            if isinstance(each, dict | list):
                yield from _paths(each, (*path, key))


@pytest.mark.repeats("the same with other programs", but=["switch_tables", "switch_parser"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_damage_anywhere_is_refused_or_harmless(name):
    rng = random.Random(name)
    paths = list(_paths(program(name)))
    packets = [(rng.randrange(4), rng.randbytes(size)) for size in (0, 1, 14, 60, 300)]
    refused = 0
    for _ in range(150):
        damaged = program(name)
        *steps, last = rng.choice(paths)
        place = damaged
        for step in steps:
            place = place[step]
        if rng.random() < 0.3:
            del place[last]
        else:
            place[last] = rng.choice(JUNK)
        try:
            switch = Switch.load(damaged, "interpret")
        except InnetError:
            refused += 1
        else:
            switch.process(packets)
    assert refused > 50


def test_the_same_text_is_loaded_once_and_another_anew(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "programs" / "switch_tables.json"
    path = tmp_path / "program.json"
    path.write_bytes(source.read_bytes())
    program = load_program(path)
    assert load_program(source) is program
    document = json.loads(source.read_text())
    document["actions"][0]["name"] = "renamed"
    path.write_text(json.dumps(document))
    assert load_program(path).actions[0].name == "renamed"
    assert load_program(source) is program
    assert load_program(json.loads(source.read_text())) is not program


def test_a_program_may_be_given_as_text():
    text = json.dumps(program("switch_parser"))
    assert load_program(text).fingerprint == load_program(program("switch_parser")).fingerprint
    with pytest.raises(ProgramError, match=r"^the program's text: no JSON.*Expecting") as refused:
        load_program(text[:5000])
    assert len(str(refused.value)) < 200
