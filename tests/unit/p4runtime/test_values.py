"""P4Runtime's byte strings: the specification's own examples, both ways."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from google.protobuf import descriptor_pool

from innet.p4runtime import values
from innet.p4runtime.messages import p4, p4info_from_text
from innet.p4runtime.status import Code, StatusError


@pytest.mark.parametrize(
    ("width", "data", "value"),
    [
        (8, b"\x63", 99),
        (16, b"\x00\x63", 99),
        (16, b"\x63", 99),
        (16, b"\x30\x64", 12388),
        (16, b"\x00\x30\x64", 12388),
        (12, b"\x00\x00\x63", 99),
        (9, b"\x01\xff", 511),
    ],
)
def test_unsigned_strings_are_read(width, data, value):
    assert values.decode(data, width, "x") == value
    assert values.encode(value) == data.lstrip(b"\0")


@pytest.mark.parametrize(
    ("width", "data"),
    [(8, b"\x01\x63"), (8, b""), (16, b"\x01\x00\x63"), (12, b"\x10\x63"), (12, b"\x00\x40\x63")],
)
def test_unsigned_strings_that_do_not_fit_are_out_of_range(width, data):
    with pytest.raises(StatusError) as refused:
        values.decode(data, width, "field x")
    assert refused.value.code is Code.OUT_OF_RANGE
    assert "field x" in str(refused.value)


@pytest.mark.parametrize(
    ("width", "data", "value", "canonical"),
    [
        (8, b"\x63", 99, True),
        (8, b"\x9d", -99, True),
        (8, b"\xff\x9d", -99, False),
        (12, b"\xfd\x1d", -739, True),
        (16, b"\x00\x00", 0, False),
        (16, b"\x00", 0, True),
        (16, b"\x00\x80", 128, True),
    ],
)
def test_signed_strings_are_read(width, data, value, canonical):
    assert values.decode_signed(data, width, "x") == value
    assert (values.encode_signed(value) == data) is canonical


@pytest.mark.parametrize(("width", "data"), [(8, b"\x00\x9d"), (12, b"\x8d\x1d"), (16, b"")])
def test_signed_strings_that_do_not_fit_are_out_of_range(width, data):
    with pytest.raises(StatusError) as refused:
        values.decode_signed(data, width, "x")
    assert refused.value.code is Code.OUT_OF_RANGE


def test_zero_is_one_byte():
    assert values.encode(0) == values.encode_signed(0) == b"\0"


def test_strings_get_numbers_and_keep_them():
    strings = values.StringMap("vrf", 2)
    assert [strings.number(each) for each in ("a", "b", "a", "c")] == [1, 2, 1, 3]
    assert strings.text(2) == "b"
    with pytest.raises(StatusError) as refused:
        strings.number("d")
    assert refused.value.code is Code.RESOURCE_EXHAUSTED


def test_nested_types_are_fields_in_a_row():
    info = p4info_from_text(
        """
        registers { preamble { id: 1 name: "r" } type_spec { struct { name: "s" } } }
        type_info {
          structs { key: "s" value {
            members { name: "a" type_spec { bitstring { bit { bitwidth: 9 } } } }
            members { name: "b" type_spec { tuple {
              members { bool {} } members { bitstring { int { bitwidth: 8 } } } } } }
            members { name: "c" type_spec { serializable_enum { name: "e" } } }
            members { name: "d" type_spec { new_type { name: "n" } } }
          } }
          serializable_enums { key: "e" value { underlying_type { bitwidth: 4 } } }
          new_types { key: "n" value { original_type { bitstring { bit { bitwidth: 3 } } } } }
        }"""
    )
    kind = values.DataType(info.registers[0].type_spec, info)
    assert kind.widths == [9, 1, 8, 4, 3]
    data = kind.encode(iter([300, 1, 0xFD, 5, 2]))
    assert data.struct.members[1].tuple.members[1].bitstring == b"\xfd"
    assert kind.decode(data, "r") == [300, 1, 0xFD, 5, 2]
    with pytest.raises(StatusError, match="must be a struct"):
        kind.decode(p4.P4Data(bool=True), "r")


def test_the_messages_are_in_a_pool_of_their_own():
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("p4.v1.WriteRequest")
    assert p4.WriteRequest.DESCRIPTOR.full_name == "p4.v1.WriteRequest"


def test_refusals_come_back_from_another_process_as_they_were():
    error = StatusError(Code.NOT_FOUND, "there is no such entry")
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, str(again)) == (Code.NOT_FOUND, "there is no such entry")
