"""examples/innet.lua knows the layout of innet.wire, and Wireshark reads packets with it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.traffic import without_values

from innet.core.pcap import write_pcap
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.wire import (
    ETHERTYPE,
    HEADER,
    MAGIC,
    UDP_PORT,
    VERSION,
    WITHOUT_VALUES,
    Endpoint,
    HeaderFlag,
    PacketLayout,
    pack,
)

SCRIPT = Path(__file__).parents[3] / "examples" / "innet.lua"

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark on PATH")


def test_the_script_has_the_fields_of_the_header() -> None:
    text = SCRIPT.read_text()
    rows = re.findall(r"\{ (\d+), (\d), ProtoField\.uint(\d+)\(\"innet\.(\w+)\"", text)
    assert [name for *_, name in rows] == list(HEADER.names)
    for offset, size, bits, name in rows:
        field, start = HEADER.fields[name][:2]
        assert (int(offset), int(size), int(bits)) == (start, field.itemsize, 8 * field.itemsize)
    masks = re.findall(r"\"innet\.flags\.(\w+)\",.*?(0x\w\w)\)", text)
    expected = {
        str(each.name).lower(): each.value for each in HeaderFlag if each < HeaderFlag.URGENCY_1
    }
    assert {name: int(mask, 16) for name, mask in masks} == expected | {
        "urgency": HeaderFlag.URGENCY
    }
    for each in (*ReduceOp, *CollectiveOp):
        assert f'[{each.value}] = "{each.name}"' in text
    assert f"local FIRST_WITH_OWNER = {int(min(CollectiveOp))}\n" in text
    assert f"local WITHOUT_VALUES = {WITHOUT_VALUES:#x}\n" in text
    assert f"local VERSION = {VERSION}\n" in text
    assert f"{MAGIC:X}" in text
    assert f'DissectorTable.get("udp.port"):add({UDP_PORT}, innet)' in text
    assert f'DissectorTable.get("ethertype"):add(0x{ETHERTYPE:X}, innet)' in text


def dissected(path: Path) -> list[dict]:
    command = ["tshark", "-X", f"lua_script:{SCRIPT}", "-r", path]
    command += ["-T", "json", "--no-duplicate-keys"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [each["_source"]["layers"] for each in json.loads(run.stdout)]


@needs_tshark
@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_wireshark_shows_every_field(framing: str, tmp_path: Path) -> None:
    layout = PacketLayout(3, framing)
    fields = {
        "operation": ReduceOp.MAX,
        "job": 0x1234,
        "epoch": 7,
        "sequence": 0xFFFF_FFFE,
        "slot": 0x203,
        "slot_version": 1,
        "flags": HeaderFlag.RESULT | HeaderFlag.PARTIAL | HeaderFlag.URGENCY_2,
        "bitmap": 0x8000_0001,
        "worker": 300,
        "count": 1000,
        "elements": 2,
        "exponent": 0x8001,
        "message": 0xABCD,
    }
    values = np.array([[1, -2, 2**31 - 1]], np.int32)
    frames = pack(layout, Endpoint.of_switch(), Endpoint.of_worker(300), values, **fields)
    write_pcap(tmp_path / "round.pcap", frames)
    (shown,) = dissected(tmp_path / "round.pcap")
    header = shown["innet"]
    found = {name: int(header[f"innet.{name}"], 0) for name in fields}
    assert found == {name: int(value) for name, value in fields.items()}
    assert "innet.wrong_checksum" not in json.dumps(header)
    tree = header["innet.flags_tree"]
    assert {name.rsplit(".", 1)[1] for name, value in tree.items() if value == "1"} == {
        "result",
        "partial",
    }
    assert tree["innet.flags.urgency"] == "2"
    assert header["_ws.lua.text"]["innet.value"] == ["1", "-2", str(2**31 - 1)]


@needs_tshark
@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_wireshark_shows_owners_and_packets_without_values(framing: str, tmp_path: Path) -> None:
    layout = PacketLayout(3, framing, has_owners=True)
    fields = {"job": 1, "epoch": 0, "slot": 0, "slot_version": 0, "worker": 2, "exponent": 7}
    whole = pack(
        layout, Endpoint.of_worker(2), Endpoint.of_switch(), np.ones((1, 3), np.int32),
        operation=CollectiveOp.REDUCE, sequence=1, **fields,
    )[0].tobytes()  # fmt: skip
    frames = [whole, without_values(layout, whole)]
    write_pcap(tmp_path / "round.pcap", frames)
    shown = dissected(tmp_path / "round.pcap")
    for each, operation, values in zip(shown, (4, 0x84), (3, 0), strict=True):
        header = each["innet"]
        assert int(header["innet.operation"], 0) == operation
        assert header["innet.owner"] == "7"
        assert json.dumps(header).count('"innet.value"') == min(values, 1)
        assert "wrong_checksum" not in json.dumps(header)


@needs_tshark
def test_wireshark_names_damage_and_other_versions(tmp_path: Path) -> None:
    layout = PacketLayout(3, "raw")
    fields = {"operation": 1, "job": 1, "epoch": 0, "slot": 0, "slot_version": 0, "worker": 0}
    frame = pack(
        layout,
        Endpoint.of_worker(0),
        Endpoint.of_switch(),
        np.zeros((1, 3), np.int32),
        sequence=1,
        **fields,
    )[0].tobytes()
    damaged, older, other = bytearray(frame), bytearray(frame), bytearray(frame)
    damaged[-1] ^= 1
    older[layout.header_offset + 2] = 2
    other[layout.header_offset] ^= 1
    write_pcap(tmp_path / "round.pcap", [frame, *map(bytes, (damaged, older, other))])
    shown = [json.dumps(each) for each in dissected(tmp_path / "round.pcap")]
    assert ["wrong_checksum" in each for each in shown] == [False, True, False, False]
    assert ["wrong_version" in each for each in shown] == [False, False, True, False]
    assert ["innet.magic" in each for each in shown] == [True, True, True, False]
