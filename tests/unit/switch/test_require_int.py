"""Operations on whole headers, unions and stacks, which BMv2 has and this p4c takes apart.

JSON that other versions of p4c wrote holds them, so a test writes them into the actions of
tests/programs/as_bmv2_whole.p4. The answers were recorded from simple_switch 1.15.5 running the
same JSON, except where it would end its process.
"""

from __future__ import annotations

import pytest
from support.switch_cases import program

from innet.switch import Switch


def operation(name, left, right, **rest):
    value = {"op": name, "left": left, "right": right, **rest}
    return {"type": "expression", "value": value}


def named(kind, *names):
    return [{"type": kind, "value": name} for name in names]


def primitive(name, *parameters):
    """p4c wraps operations in parameters once more."""
    wrapped = [
        {"type": "expression", "value": each} if each["type"] == "expression" else each
        for each in parameters
    ]
    return {"op": name, "parameters": wrapped}


def number(value):
    return {"type": "hexstr", "value": hex(value)}


A, B, INDEX = ({"type": "field", "value": ["base", name]} for name in ("a", "b", "index"))
ITEM, OTHER = named("header", "i", "j")
FEW, MORE = named("header_stack", "few", "more")
ONE, TWO = named("header_union", "one", "two")
MANY, OTHERS = named("header_union_stack", "many", "others")
LEFT, RIGHT = operation(">>", INDEX, number(4)), operation("&", INDEX, number(0xF))
FEW_AT, MORE_AT = (
    operation("dereference_header_stack", stack, at) for stack, at in ((FEW, LEFT), (MORE, RIGHT))
)
MANY_AT, OTHERS_AT = (
    operation("dereference_union_stack", stack, at) for stack, at in ((MANY, LEFT), (OTHERS, RIGHT))
)


def valid(header):
    return operation("valid", None, header)


def told(target, boolean):
    return primitive("assign", target, operation("b2d", None, boolean))


def compared(*pairs):
    """The first pair is compared by ==, the second by !=."""
    operators = ((A, "=="), (B, "!="))
    return [
        told(target, operation(operator, left, right))
        for (target, operator), (left, right) in zip(operators, pairs, strict=True)
    ]


ACTIONS = {
    "op0": [primitive("assign_union", ONE, TWO)],
    "op1": [
        primitive("assign_header_stack", FEW, MORE),
        primitive("assign", A, operation("size_stack", None, FEW)),
    ],
    "op2": [primitive("assign_union_stack", MANY, OTHERS)],
    "op3": [primitive("assign_union", MANY_AT, OTHERS_AT)],
    "op4": compared((ONE, TWO), (ONE, TWO)),
    "op5": compared((ITEM, OTHER), (FEW_AT, MORE_AT)),
    "op6": compared((MANY_AT, OTHERS_AT), (valid(ITEM), valid(OTHER))),
    "op7": [told(A, operation("valid_union", None, MANY_AT))],
    "op8": [
        told(
            A, operation("?", valid(ITEM), valid(OTHER), cond=operation("valid_union", None, ONE))
        ),
        primitive("assign_header", operation("?", FEW_AT, MORE_AT, cond=valid(ITEM)), OTHER),
    ],
    # simple_switch ends where a member is asked of a union that is found at run time.
    "op9": [
        primitive(
            "assign",
            A,
            operation("access_field", operation("access_union_header", OTHERS_AT, 1), 0),
        ),
        primitive(
            "assign",
            operation("access_field", operation("access_union_header", MANY_AT, 0), 0),
            number(0x177),
        ),
    ],
    "op10": [
        primitive("add_header", operation("access_union_header", MANY_AT, 1)),
        primitive("remove_header", operation("access_union_header", OTHERS_AT, 0)),
    ],
}


def whole():
    document = program("as_bmv2_whole")
    for action in document["actions"]:
        name = action["name"].removeprefix("I.")
        action["primitives"] = ACTIONS.get(name, action["primitives"])
    return document


ANSWERS = [
    # one = two
    ("00010000 08020002 00", "00010000 02000202000200"),
    ("00000000 0502 08020001 00", "00000000 02000102000100"),
    ("00100000 0502 00", "00100000 00"),
    # few = more, the size of few
    ("01110000 0301 0302 00", "01110000 00"),
    ("01100000 0301 0401 0401 00", "01100200 0101010100"),
    ("01100000 0301 0302 0402 00", "01100100 020200"),
    # many = others
    ("02000000 0a010002 0c010002 0b01 00", "02000000 010002010100020100"),
    ("02000000 0a010001 0a020001 0b02 0c020002 00", "02000000 020200020202000200"),
    ("02000000 0902 0901 00", "02000000 00"),
    # many[...] = others[...]
    ("03100000 0a020001 0a010002 00", "03100000 02000100"),
    ("03010000 0901 0b02 00", "03010000 0200"),
    ("03110000 0902 0902 0b01 00", "03110000 020100"),
    # one == two, one != two
    ("04010000 08010002 00", "04010001 01000200"),
    ("04000000 06020001 0701 00", "04000001 0200010100"),
    ("04110000 06010001 08010001 00", "04110100 01000101000100"),
    ("04100000  00", "04100001 00"),
    # i == j, few[...] != more[...]
    ("05100000 0202 0302 0301 00", "05100001 02020100"),
    ("05000000 0102 0202 00", "05000101 020200"),
    ("05110000 0101 0201 0402 00", "05110101 01010200"),
    ("05000000 0102 0302 0402 0401 00", "05000000 0202020100"),
    # many[...] == others[...], i.isValid() != j.isValid()
    ("06000000 0102 0202 00", "06000000 020200"),
    ("06100000 0101 0c020002 0c020002 00", "06100001 0102000202000200"),
    ("06000000 0101 0a010002 0c010002 00", "06000101 0101000201000200"),
    # many[...].isValid()
    ("07000000 0902 0902 0c010002 00", "07000100 020201000200"),
    ("07110000 0a010001 00", "07110000 01000100"),
    # one.isValid() ? i.isValid() : j.isValid(), (i.isValid() ? few[...] : more[...]) = j
    ("08100000 0101 0202 0402 0402 0501 08010001 00", "08100100 01020202020101000100"),
    ("08010000 0202 0302 0401 06020001 00", "08010000 0202010202000100"),
    ("08110000 0201 0301 0402 0402 0701 00", "08110100 010102010100"),
    # a = others[...].l.x, many[...].s.x = 0x177
    ("09000000 0901 0a020002 0c010001 00", "09000100 7702000201000100"),
    ("09110000 0a010002 00", "09110000 01000200"),
    # many[...].l.setValid(), others[...].s.setInvalid()
    ("0a110000 0c020001 00", "0a110000 00000002000100"),
    ("0a100000 0901 0c020002 0b02 00", "0a100000 010000000200020200"),
    ("0a000000 0a010001 0b01 00", "0a000000 01000100"),
]


@pytest.mark.repeats("the same compiled", but=["interpret"])
@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_answers(engine):
    switch = Switch.load(whole(), engine)
    packets = [(1, bytes.fromhex(packet)) for packet, _ in ANSWERS]
    sent = [(port, data.hex()) for port, data in switch.process(packets)]
    assert sent == [(2, answer.replace(" ", "")) for _, answer in ANSWERS]
