"""BMv2 JSON of older compilers is the program that it always was: simple_switch loads it."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from support.json_expressions import constant, operation
from support.old_json import aged, with_stated_lengths

from innet import programs
from innet.core.errors import ProgramError, UnsupportedError
from innet.switch import Switch, ir, load_program

PROGRAMS = Path(__file__).parents[2] / "programs"
ENGINES = ["interpret", "jit"]


def document(name):
    return json.loads((PROGRAMS / f"{name}.json").read_text())


@pytest.mark.repeats("the same with the other programs", but=["switch_*", "jit_*"])
@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.json")))
def test_an_older_document_is_the_same_program(name):
    new = load_program(document(name))
    old = load_program(aged(document(name)))
    assert old.version == ()
    # The size of a profile is that of its table, since older JSON has none and BMv2 ignores it.
    profiles = [
        [dataclasses.replace(each, max_size=0) for each in program.action_profiles]
        for program in (old, new)
    ]
    assert profiles[0] == profiles[1]
    same = {"version": new.version, "fingerprint": new.fingerprint}
    assert dataclasses.replace(old, **same, action_profiles=new.action_profiles) == new


@pytest.mark.parametrize("version", [[2, 0], [2, 5], [2, 7], [2, 17], None])
def test_versions_before_that_of_today(version):
    changed = document("fuzz_ends")
    changed["__meta__"] = {} if version is None else {"version": version}
    packets = [(1, bytes(60)), (2, b"\xff" * 60)]
    for engine in ENGINES:
        switch = Switch.load(changed, engine)
        assert switch.program.version == tuple(version or ())
        expected = Switch.load(document("fuzz_ends"), engine).process(packets)
        assert switch.process(packets) == expected


FIELD = ir.FieldRef(0, 0)
P4_14 = {
    "add": "+",
    "subtract": "-",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "shift_left": "<<",
    "shift_right": ">>",
    "add_to_field": "+",
    "subtract_from_field": "-",
}


@pytest.mark.parametrize("name", P4_14)
def test_primitives_of_p4_14(name):
    changed = document("fuzz_ends")
    header = changed["headers"][0]["name"]
    field = changed["header_types"][0]["fields"][0][0]
    target = {"type": "field", "value": [header, field]}
    sides = [target, constant(3)] if name.endswith("_field") else [target, target, constant(3)]
    changed["actions"][0]["primitives"] = [{"op": name, "parameters": sides}]
    made = load_program(changed).actions[0].primitives
    value = ir.Binary(ir.DataOperator(P4_14[name]), FIELD, ir.Const(3))
    assert made == (ir.Assign(FIELD, value),)


# ── A header type that states the length of its variable field ──


#: Of fuzz_varbit: ip_t has its words in field 1, next_t its bits in field 0.
LENGTHS = {"ip_t": operation("*", operation("-", 1, constant(3)), constant(32)), "next_t": None}
LENGTHS["next_t"] = operation("+", 0, constant(0))


def of_variable_length(rng):
    packets = []
    for _ in range(40):
        words, kind, bits = rng.integers(3, 14), rng.choice([17, 6]), 8 * rng.integers(0, 9)
        fixed = struct.pack(
            ">BBHHI", 0x40 | words, kind, *rng.integers(0, 1 << 16, 2), rng.integers(1 << 32)
        )
        rest = rng.bytes(4 * (words - 3)) + bytes([bits]) + rng.bytes(bits // 8 + 2)
        packets.append((0, fixed + rest + rng.bytes(rng.integers(0, 20))))
    return packets


@pytest.mark.parametrize("engine", ENGINES)
def test_a_type_that_states_the_length_of_its_variable_field(engine):
    new = document("fuzz_varbit")
    old = with_stated_lengths(new, LENGTHS)
    packets = of_variable_length(np.random.default_rng(1))
    packets += [(0, data[:size]) for (_, data), size in zip(packets, range(40), strict=True)]
    assert Switch.load(old, engine).process(packets) == Switch.load(new, engine).process(packets)


def test_an_element_of_a_stack_that_states_its_length_is_refused():
    changed = document("jit_varbit")
    kinds = {each["header_type"] for each in changed["header_stacks"]}
    lengths = dict.fromkeys(kinds, operation("+", 0, constant(8)))
    for state in changed["parsers"][0]["parse_states"]:
        for each in state["parser_ops"]:
            if each["op"] == "extract_VL" and each["parameters"][0]["type"] == "stack":
                each.update(op="extract", parameters=each["parameters"][:1])
    for kind in changed["header_types"]:
        if kind["name"] in lengths:
            kind["length_exp"] = lengths[kind["name"]]
    with pytest.raises(UnsupportedError, match=r"parser_ops\[\d+\].*an element of a stack"):
        load_program(changed)


# ── Checksums of type ipv4 ──


def with_ipv4_checksums():
    changed = programs.find("slots", 32).json()
    for each in changed["checksums"]:
        if each["target"][0] == "ipv4":
            each["type"] = "ipv4"
            del each["calculation"]
    return changed


def test_a_checksum_of_type_ipv4():
    new, old = (
        load_program(each) for each in (programs.find("slots", 32).json(), with_ipv4_checksums())
    )
    assert [each.target for each in old.checksums] == [each.target for each in new.checksums]
    for before, after in zip(new.checksums, old.checksums, strict=True):
        first, second = new.calculations[before.calculation], old.calculations[after.calculation]
        assert (first.algorithm, first.inputs) == (second.algorithm, second.inputs)


def test_a_checksum_of_type_ipv4_elsewhere_is_refused():
    changed = with_ipv4_checksums()
    changed["checksums"][0]["target"] = ["ipv4", "ttl"]
    with pytest.raises(ProgramError, match=r"checksums\[0\].target: expected the 16 bits after"):
        load_program(changed)
