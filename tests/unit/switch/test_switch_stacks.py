"""Stacks and unions as simple_switch handles them, on both engines.

The answers were recorded from simple_switch 1.15.5 running tests/programs/as_bmv2_unions.p4. The
first byte of a packet says what the program does with the rest; of an answer the second byte is
what it saw, the two after it are the length in egress.
"""

from __future__ import annotations

import pytest
from support.switch_cases import program

from innet.switch import Switch

ANSWERS = [
    # lastIndex of an empty stack is 2**64 - 1, which is not less than 3.
    ("00 00 0000", "00120004 "),
    ("01 00 0000 03", "01000005 03"),
    ("01 00 0000 02 04 07", "01000007 0204"),
    ("01 00 0000 02 04 06 09", "01fd0008 020409"),
    ("02 00 0000 02 04 07", "02000008 0002"),
    ("03 00 0000 02 04 07", "03000007 0407"),
    ("04 00 0000 02 04 07", "04000007 07"),
    # Two invalid headers are not equal.
    ("05 00 0000 03", "05010005 03"),
    ("05 00 0000 02 05", "05020006 0205"),
    ("06 00 0000 02 05", "06000006 05"),
    ("06 00 0000 02 04 07", "06000007 070407"),
    # The member of a union that is extracted last is the valid one.
    ("10 00 0000 41 42 4344 42", "10000009 42434442"),
    ("11 00 0000 41 42 4344 42", "1100000c 42434400abcd"),
    ("11 00 0000 41 42 4344 45 46", "1100000d 42434400abcd46"),
    ("12 00 0000 41 42 4344 42", "12000009 424344424344"),
    ("12 00 0000 41 42 4344 45 46", "1200000a 42434442434446"),
    ("13 00 0000 41 42 4344 42", "13000008 424344"),
    ("14 00 0000 41 42 4344 42", "1400000a 0742"),
    ("15 00 0000 41 42 4344 42", "15020009 42434442"),
    ("16 00 0000 41 42 4344 42", "16010005 "),
    # What a push moves out of a full stack of unions comes in at its front, still valid.
    ("20 00 0000 41 820304 00", "20000009 4182030400"),
    ("20 00 0000 820304 42 43 00", "2000000a 438203044200"),
    ("20 00 0000 820304 830506 840708 00", "2000000e 84070882030483050600"),
    ("21 00 0000 41 820304 00", "21000009 8203044100"),
    ("21 00 0000 820304 42 43 00", "2100000a 424382030400"),
    ("21 00 0000 820304 830506 840708 00", "2100000e 83050684070882030400"),
    ("22 00 0000 41 820304 00", "2200000a 3f8203044100"),
    ("22 00 0000 820304 42 43 00", "2200000a 3f4282030400"),
    ("22 00 0000 820304 830506 840708 00", "2200000f 3f83050682030400"),
    ("23 00 0000 41 820304 00", "23000009 4182030400"),
    ("23 00 0000 820304 42 43 00", "2300000a 820304424300"),
    ("23 00 0000 820304 830506 840708 00", "2300000e 82030483050684070800"),
    ("24 00 0000 41 820304 00", "24000009 82030482030400"),
    ("24 00 0000 820304 42 43 00", "2400000a 42424300"),
    ("24 00 0000 820304 830506 840708 00", "2400000e 83050683050684070800"),
]


@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_answers(engine):
    switch = Switch.load(program("as_bmv2_unions"), engine)
    packets = [(1, bytes.fromhex(packet)) for packet, _ in ANSWERS]
    sent = [(port, data.hex()) for port, data in switch.process(packets)]
    assert sent == [(2, answer.replace(" ", "")) for _, answer in ANSWERS]
