"""What is sent through the feature programs of tests/programs/switch_*.p4, by a seeded generator.

The same packets go through simple_switch once, when the traces are recorded, and through the
built-in switch in the tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"

Packet = tuple[int, bytes]
Rng = np.random.Generator


def program(name: str) -> dict[str, Any]:
    return json.loads((PROGRAMS / f"{name}.json").read_text(encoding="utf-8"))


def _some(rng: Rng, *choices: bytes) -> bytes:
    return choices[int(rng.integers(len(choices)))]


def _cut(rng: Rng, data: bytes, share: float = 0.15) -> bytes:
    if rng.random() < share:
        return data[: int(rng.integers(0, len(data) + 1))]
    return data


def _state(rng: Rng) -> bytes:
    head = bytes([rng.integers(0, 8), rng.integers(0, 8)])
    edge = _some(rng, b"\x00" * 4, b"\xff" * 4, b"\x80\0\0\0", b"\x7f\xff\xff\xff", rng.bytes(4))
    other = _some(rng, b"\x80\0\0\0", b"\x7f\xff\xff\xff", rng.bytes(4), rng.bytes(4))
    return head + edge + other + rng.bytes(8) + rng.bytes(int(rng.integers(0, 5)))


def _tables(rng: Rng) -> bytes:
    exact = _some(rng, b"\x00\x05", b"\x00\x06", b"\x12\x34", rng.bytes(2))
    prefix = _some(rng, b"\x0a\x00\x00\x01", b"\x0a\x01\x02\x03", b"\x0a\x01\xff\xff", rng.bytes(4))
    odd_and_small = _some(rng, b"\x12\x30", b"\x12\x41", b"\xab\xc1", b"\x00\x02", rng.bytes(2))
    masked = _some(rng, b"\x12\x34\x56", b"\x12\x00\x00", b"\x00\x00\x00", rng.bytes(3))
    low = _some(rng, b"\x00\x05", b"\x00\x07", b"\x00\x09", b"\x01\x00", rng.bytes(2))
    maybe = bytes([rng.integers(0, 8)])
    return exact + prefix + odd_and_small + masked + low + maybe + bytes([rng.integers(0, 3)])


def _headers(rng: Rng) -> bytes:
    op = int(rng.choice([*range(9), *range(10, 15), 20, 21, 25, 26, 30, 31, 32]))
    index = _some(rng, bytes([rng.integers(0, 5)]), rng.bytes(1))
    amount = _some(rng, bytes([rng.integers(0, 16)]), bytes([rng.integers(60, 140)]), rng.bytes(1))
    head = bytes([op]) + index + amount + rng.bytes(1)
    if op < 10:
        depth = int(rng.integers(1, 6))
        labels = bytearray(rng.bytes(3 * depth))
        for i in range(depth):
            labels[3 * i] = labels[3 * i] & 0xFE | (i == depth - 1)
        return head + bytes(labels) + rng.bytes(3)
    if op < 20:
        edge = _some(rng, rng.bytes(34), b"\xff" * 34, bytes(34))
        return head + edge + rng.bytes(2)
    if op < 30:
        return head + rng.bytes(6)
    length = int(rng.integers(0, 14))
    return head + bytes([length]) + rng.bytes(length + 1) + rng.bytes(2)


def _copies(rng: Rng) -> bytes:
    return bytes([rng.integers(0, 17), rng.integers(0, 40)]) + rng.bytes(int(rng.integers(2, 40)))


def _checksums(rng: Rng) -> bytes:
    kind = int(rng.choice([0, 1, 3, 4, 5, 9]))
    first = bytes([kind]) + rng.bytes(2)
    right = _ones_complement(first + b"\0")
    head = first + (right.to_bytes(2, "big") if rng.random() < 0.7 else rng.bytes(2))
    if kind == 0:
        return head + rng.bytes(int(rng.integers(0, 9)))
    data = rng.bytes(6)
    payload = rng.bytes(int(rng.integers(0, 9)))
    total = _ones_complement(data + payload).to_bytes(2, "big")
    check = total if rng.random() < 0.7 else rng.bytes(2)
    return head + data + check + rng.bytes(2) + payload


def _ones_complement(data: bytes) -> int:
    """RFC 1071, written as it says."""
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def _parser(rng: Rng) -> bytes:
    value = _some(rng, rng.bytes(1), b"\x07", b"\x08", b"\x0d", b"\x10", b"\x15", b"\x18", b"\x85")
    rest = _some(rng, b"\x21\x21", b"\x10\x01", b"\xa0\x13", b"\xc0\x00", rng.bytes(2), b"")
    items = b"".join(
        bytes([rng.choice([0, 0, 1, 2])]) + rng.bytes(1) for _ in range(rng.integers(0, 6))
    )
    return bytes([rng.integers(0, 9)]) + value + rest + items


def _meters(rng: Rng) -> bytes:
    index = rng.integers(0, 12) if rng.random() < 0.8 else rng.integers(12, 200)
    key = _some(rng, b"\x12\x34", b"\x12\x35", b"\x00\x07", rng.bytes(2))
    head = bytes([index, rng.integers(0, 8)]) + key + rng.bytes(1)
    return head + rng.bytes(int(rng.integers(0, 60)))


def _hashes(rng: Rng) -> bytes:
    head = bytes([rng.integers(0, 4) if rng.random() < 0.5 else rng.integers(0, 256)])
    return head + rng.bytes(20) + rng.bytes(int(rng.integers(0, 12)))


def _profiles(rng: Rng) -> bytes:
    flow = _some(rng, b"\x00\x01", b"\x00\x02", b"\x00\x03", b"\x00\x04", rng.bytes(2))
    address = _some(rng, b"\x0a\x00\x00\x01", b"\x0a\x01\x00\x07", b"\x0b\x00\x00\x00")
    more = _some(rng, b"\x00", b"\x01")
    head = bytes([rng.integers(0, 6)]) + flow + address[:3] + rng.bytes(3) + more
    return head + rng.bytes(1 + int(rng.integers(0, 6)))


@dataclass(frozen=True)
class Case:
    """Commands, packets and the registers to compare.

    ``ordered``: packets of one port leave in an order that does not depend on timing.
    """

    name: str
    commands: tuple[str, ...]
    make: Callable[[Rng], bytes]
    registers: tuple[str, ...] = ()
    count: int = 500
    cut: float = 0.15
    ordered: bool = True

    def packets(self) -> list[Packet]:
        rng = np.random.default_rng(list(self.name.encode()))
        # The recorder gives simple_switch the ports that it hears from: one packet from each.
        heard = [(port, b"") for port in range(8)]
        return heard + [
            (int(rng.integers(0, 8)), _cut(rng, self.make(rng), self.cut))
            for _ in range(self.count)
        ]


CASES = {
    case.name: case
    for case in (
        Case(
            "switch_state",
            (
                "table_add I.counted I.count_it 1 =>",
                "table_add I.counted I.count_it 3 =>",
                "register_write I.words 3 4294967295",
                "set_crc32_parameters calc_4 0x1edc6f41 0xffffffff 0x0 1 0",
                "set_crc16_parameters calc_5 0x1021 0xffff 0x1 0 1",
            ),
            _state,
            ("I.words", "I.signed_words", "I.wide", "I.narrow"),
        ),
        Case(
            "switch_tables",
            (
                "table_add I.exact_table I.exactly 5 0 => 1",
                "table_add I.exact_table I.exactly 5 1 => 2",
                "table_add I.exact_table I.drop 6 0 =>",
                "table_add I.exact_table I.exactly 0x1234 2 => 3",
                "table_add I.lpm_table I.lpm 0 10.0.0.0/8 => 1",
                "table_add I.lpm_table I.lpm 0 10.1.0.0/16 => 2",
                "table_add I.lpm_table I.lpm 0 10.1.2.3/32 => 3",
                "table_add I.lpm_table I.lpm 1 10.1.2.0/24 => 4",
                "table_add I.lpm_table I.lpm 1 0.0.0.0/0 => 5",
                "table_add I.odd_table I.odd 0x123/12 => 1",
                "table_add I.odd_table I.odd 0x100/8 => 2",
                "table_add I.odd_table I.odd 0xa00/4 => 3",
                "table_add I.ternary_table I.ternary_ 0x120000&&&0xff0000 1 1&&&1 => 1 20",
                "table_add I.ternary_table I.ternary_ 0x123456&&&0xffffff 1 1&&&1 => 2 10",
                "table_add I.ternary_table I.ternary_ 0x123456&&&0xffffff 1 0&&&0 => 3 10",
                "table_add I.ternary_table I.ternary_ 0&&&0 0 0&&&1 => 4 1",
                "table_add I.ternary_table I.ternary_ 0&&&0 2 0&&&0 => 5 2",
                "table_add I.range_table I.range_ 5->9 0&&&0 => 1 30",
                "table_add I.range_table I.range_ 7->7 0&&&0 => 2 20",
                "table_add I.range_table I.range_ 0->65535 0x123456&&&0xffffff => 3 40",
                "table_add I.range_table I.range_ 256->65535 0&&&0x800000 => 4 40",
                "table_add I.optional_table I.optional_ 1&&&0xff 0&&&0 => 1 3",
                "table_add I.optional_table I.optional_ 1&&&0xff 1&&&0xf => 2 2",
                "table_add I.optional_table I.optional_ 0&&&0 2&&&0xf => 3 1",
                "table_add I.run_table I.one 1 =>",
                "table_add I.run_table I.two 2 => 4",
                "table_add I.run_table I.drop 3 =>",
                "table_add I.run_table I.leave 4 =>",
                "table_delete I.ternary_table 0",
                "table_add I.ternary_table I.ternary_ 0x120000&&&0xff0000 1 1&&&1 => 9 15",
                "table_modify I.lpm_table I.lpm 4 6",
                "table_set_default I.range_table I.range_ 0xed",
            ),
            _tables,
        ),
        Case("switch_headers", (), _headers, count=700),
        Case(
            "switch_copies",
            (
                "mirroring_add 5 4",
                "mirroring_add 6 5",
                "mirroring_add 7 6",
                "mirroring_add_mc 8 4",
                "mc_mgrp_create 3",
                "mc_node_create 7 3 2",
                "mc_node_create 9 7",
                "mc_node_associate 3 1",
                "mc_node_associate 3 0",
                "mc_mgrp_create 4",
                "mc_node_create 11 0 1 6",
                "mc_node_associate 4 2",
            ),
            _copies,
            ordered=False,
        ),
        Case("switch_checksums", (), _checksums),
        # Rates so small that only bursts count: the recorder cannot hold simple_switch's clock.
        Case(
            "switch_meters",
            (
                *(f"meter_set_rates I.by_packets {i} 0:{3 * i} 1e-9:{5 * i + 2}" for i in range(9)),
                "meter_array_set_rates I.by_bytes 1e-9:500 2e-9:800",
                "meter_set_rates I.by_bytes 7 0:100 0:100",
                "table_add I.exact_table I.metered 1 => 11",
                "table_add I.exact_table I.metered 2 => 12",
                "table_add I.exact_table I.silent 3 =>",
                "table_add I.exact_table I.metered 4 => 14",
                "meter_set_rates I.exact_meter 0 1e-9:20 1e-9:40",
                "meter_set_rates I.exact_meter 2 1e-9:1 1e-9:30",
                "table_delete I.exact_table 2",
                "table_add I.exact_table I.metered 5 => 15",
                "table_add I.masked_table I.limited 0x1200&&&0xff00 0&&&0 => 5",
                "table_add I.masked_table I.dropped 7&&&0xffff 0&&&0 => 3",
                "meter_set_rates I.masked_meter 0 1e-9:1000 1e-8:3000",
                "meter_set_rates I.masked_meter 1 1e-9:10 1e-8:300",
                "meter_set_rates E.by_port 3 1e-9:15 1e-9:30",
                "meter_set_rates E.by_port 4 1e-9:0 1e-9:30",
            ),
            _meters,
        ),
        Case(
            "switch_hashes",
            (
                "set_crc32_parameters calc_1 0x1edc6f41 0xffffffff 0x12345678 1 0",
                "set_crc16_parameters calc_3 0x1021 0xffff 0x1 0 1",
            ),
            _hashes,
        ),
        Case(
            "switch_profiles",
            (
                "act_prof_create_member I.members I.plain 21",
                "act_prof_create_member I.members I.both 22 0x1234",
                "act_prof_create_member I.members I.refuse",
                "act_prof_create_member I.members I.plain 0",
                "act_prof_delete_member I.members 0",
                "act_prof_create_member I.members I.plain 24",
                "table_indirect_add I.plain_table 1 => 0",
                "table_indirect_add I.plain_table 2 => 1",
                "table_indirect_add I.plain_table 3 => 2",
                "table_indirect_add I.plain_table 4 => 1",
                "act_prof_modify_member I.members I.both 1 23 0x4321",
                "table_indirect_set_default I.plain_table 3",
                *(f"act_prof_create_member I.ways I.go {port} {port + 30}" for port in range(2, 7)),
                "act_prof_create_member I.ways I.stay",
                "act_prof_create_member I.ways NoAction",
                "act_prof_create_group I.ways",
                "act_prof_create_group I.ways",
                "act_prof_create_group I.ways",
                *(f"act_prof_add_member_to_group I.ways {member} 0" for member in (6, 0, 3, 5, 1)),
                *(f"act_prof_add_member_to_group I.ways {member} 1" for member in (4, 2)),
                "act_prof_add_member_to_group I.ways 1 2",
                "act_prof_remove_member_from_group I.ways 3 0",
                "table_indirect_add_with_group I.way_table 1 => 0",
                "table_indirect_add_with_group I.way_table 2 => 1",
                "table_indirect_add I.way_table 3 => 4",
                "table_indirect_add_with_group I.way_table 4 => 2",
                "table_indirect_delete I.way_table 2",
                "table_indirect_add I.way_table 3 => 5",
                "table_indirect_set_default_with_group I.way_table 0",
                "meter_set_rates I.way_meter 0 1e-9:5 1e-9:30",
                *(f"act_prof_create_member I.odd_ways I.masked {value}" for value in range(41, 46)),
                "act_prof_create_member I.odd_ways I.prefixed 50",
                "act_prof_create_member I.odd_ways I.leave 51",
                "act_prof_create_group I.odd_ways",
                "act_prof_create_group I.odd_ways",
                *(f"act_prof_add_member_to_group I.odd_ways {member} 0" for member in (0, 2, 4)),
                *(f"act_prof_add_member_to_group I.odd_ways {member} 1" for member in range(7)),
                "table_indirect_add I.prefix_table 10.0.0.0/8 => 5",
                "table_indirect_add_with_group I.prefix_table 10.1.0.0/16 => 0",
                "table_indirect_add_with_group I.masked_table 0xa000000&&&0xff000000 0&&&1 => 1 10",
                "table_indirect_add I.masked_table 0xa000001&&&0xffffffff 0&&&0 => 1 5",
                "table_indirect_add_with_group I.masked_table 0&&&0 1&&&0x1001 => 0 20",
            ),
            _profiles,
        ),
        # The value set stays empty: simple_switch_CLI 1.15 pads what pvs_add is given to 2 bytes.
        Case("switch_parser", (), _parser, cut=0.05),
    )
}
