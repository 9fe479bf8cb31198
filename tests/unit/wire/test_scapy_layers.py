"""innet.wire.scapy_layers: scapy and innet.wire read and write the same bytes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from support.traffic import without_values

from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.wire import (
    HEADER,
    MAX_VALUES,
    WITHOUT_VALUES,
    Endpoint,
    Framing,
    HeaderFlag,
    PacketLayout,
    pack,
    parse,
    parse_strict,
)
from innet.wire.scapy_layers import Innet

LAYOUTS = [
    PacketLayout(1),
    PacketLayout(3, "raw"),
    PacketLayout(32),
    PacketLayout(64, "raw"),
    PacketLayout(4, has_owners=True),
]
FIELDS = [name for name in HEADER.names if name not in {"magic", "version", "checksum"}]


def field_values(name: str, layout: PacketLayout) -> st.SearchStrategy[int]:
    if name == "operation":
        known = (*ReduceOp, *CollectiveOp) if layout.has_owners else tuple(ReduceOp)
        return st.sampled_from([int(each) for each in known])
    if name == "slot_version":
        return st.integers(0, 1)
    if name == "elements":
        return st.integers(1, layout.values)
    return st.integers(0, 256 ** HEADER[name].itemsize - 1)


@st.composite
def contents(draw: st.DrawFn) -> tuple[PacketLayout, Endpoint, dict[str, int], list[int]]:
    layout = draw(st.sampled_from(LAYOUTS))
    source = Endpoint(
        ":".join(f"{byte:02x}" for byte in draw(st.binary(min_size=6, max_size=6))),
        ".".join(str(byte) for byte in draw(st.binary(min_size=4, max_size=4))),
        draw(st.integers(1, 0xFFFF)),
    )
    fields = {name: draw(field_values(name, layout)) for name in FIELDS}
    size = layout.values
    values = draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=size, max_size=size))
    return layout, source, fields, values


def with_scapy(
    layout: PacketLayout,
    source: Endpoint,
    destination: Endpoint,
    fields: dict[str, int],
    values: list,
) -> Ether:
    ethernet = Ether(src=source.mac, dst=destination.mac)
    header = Innet(**fields, values=values)
    if layout.framing == "raw":
        return ethernet / header
    return (
        ethernet
        / IP(src=source.ip, dst=destination.ip, flags="DF", id=0)
        / UDP(sport=source.udp_port, dport=destination.udp_port, chksum=0)
        / header
    )


@given(contents())
def test_both_write_the_same_bytes(
    content: tuple[PacketLayout, Endpoint, dict[str, int], list[int]],
) -> None:
    layout, source, fields, values = content
    switch = Endpoint.of_switch()
    ours = pack(layout, source, switch, np.array([values], np.int32), **fields)
    assert bytes(with_scapy(layout, source, switch, fields, values)) == ours.tobytes()


@given(contents())
def test_both_read_the_same_fields(
    content: tuple[PacketLayout, Endpoint, dict[str, int], list[int]],
) -> None:
    layout, source, fields, values = content
    switch = Endpoint.of_switch()
    # Bytes from wire, read by scapy.
    frame = pack(layout, source, switch, np.array([values], np.int32), **fields).tobytes()
    packet = Ether(frame)
    assert {name: int(packet[Innet].getfieldval(name)) for name in FIELDS} == fields
    assert packet[Innet].values == values
    assert (packet.src, packet.dst) == (source.mac, switch.mac)
    if layout.framing == "udp":
        assert (packet[IP].src, packet[IP].dst) == (source.ip, switch.ip)
        assert (packet[UDP].sport, packet[UDP].dport) == (source.udp_port, switch.udp_port)
        right = IP(bytes(packet[IP]))
        del right.chksum
        assert packet[IP].chksum == IP(bytes(right)).chksum
    # Bytes from scapy, read by wire.
    built = bytes(with_scapy(layout, source, switch, fields, values))
    batch = parse_strict(layout, built)
    assert {name: int(batch.header[name][0]) for name in FIELDS} == fields
    assert batch.values[0].tolist() == values
    # The sender of a result uses port 48879 as the source; scapy follows that, too.
    answer = pack(layout, switch, source, np.array([values], np.int32), **fields).tobytes()
    assert Ether(answer)[Innet].values == values


@pytest.mark.parametrize("values", [100, 101, 256, 1024, MAX_VALUES])
@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_packets_of_many_values_are_read(values: int, framing: Framing) -> None:
    fields = {"operation": 1, "job": 1, "epoch": 0, "slot": 0, "slot_version": 0, "worker": 0}
    given_values = np.arange(values, dtype=np.int32)
    ends = Endpoint.of_worker(0), Endpoint.of_switch()
    frame = pack(PacketLayout(values, framing), *ends, given_values[None], sequence=1, **fields)
    assert Ether(frame.tobytes())[Innet].values == given_values.tolist()


def test_layers_have_the_fields_of_the_layout_in_order_and_size() -> None:
    described = [(field.name, field.sz) for field in Innet.fields_desc[:-1]]
    described = [(name, int(size)) for name, size in described]
    assert described == [(name, HEADER[name].itemsize) for name in HEADER.names]
    assert Innet.fields_desc[-1].name == "values"


def test_default_packet_is_valid() -> None:
    frame = bytes(Ether() / IP() / UDP(sport=5, chksum=0) / Innet(values=[5]))
    assert parse(PacketLayout(1), PacketBatch.from_packets([(0, frame)])).valid.all()


def test_shows_what_a_person_wants_to_see() -> None:
    values = np.array([[-1, 7]], np.int32)
    frame = pack(
        PacketLayout(2),
        Endpoint.of_worker(0),
        Endpoint.of_switch(),
        values,
        operation=ReduceOp.MAX,
        job=3,
        epoch=1,
        sequence=9,
        slot=8,
        slot_version=1,
        worker=2,
        flags=HeaderFlag.RESULT | HeaderFlag.RESEND,
        bitmap=0b111,
    ).tobytes()
    packet = Ether(frame)
    shown = packet.show(dump=True)
    for line in ("= MAX", "= resend+result", "= 0x7", "= [-1, 7]", "= 0x494e"):
        assert line in shown
    assert packet.summary().endswith("innet result MAX job 3/1 chunk 9 slot 8.1 worker 2")


@pytest.mark.parametrize("framing", ["udp", "raw"])
@pytest.mark.parametrize("operation", list(CollectiveOp))
def test_packets_that_end_with_the_header(framing: Framing, operation: CollectiveOp) -> None:
    """Both write the same bytes, and what is behind the header is no value, as padding is none."""
    layout = PacketLayout(3, framing, has_owners=True)
    ends = Endpoint.of_worker(1), Endpoint.of_switch()
    fields = dict.fromkeys(FIELDS, 1) | {"operation": int(operation), "exponent": 9}
    whole = pack(layout, *ends, np.ones((1, 3), np.int32), **fields)[0].tobytes()
    bare = without_values(layout, whole)
    fields["operation"] |= WITHOUT_VALUES
    assert bytes(with_scapy(layout, *ends, fields, [])) == bare
    which = "job 1/1 chunk 1 slot 1.1 worker 1 owner 9"
    for behind in (b"", bytes(14)):
        packet = Ether(bare + behind)[Innet]
        assert packet.values == []
        assert packet.mysummary() == f"innet update {operation.name} without values {which}"
    packet = Ether(whole)[Innet]
    assert packet.values == [1, 1, 1]
    assert packet.mysummary() == f"innet update {operation.name} {which}"


def test_truncated_packets_do_not_raise() -> None:
    values = np.arange(3, dtype=np.int32)[None]
    fields = dict.fromkeys(FIELDS, 1)
    frame = pack(
        PacketLayout(3, "raw"), Endpoint.of_worker(0), Endpoint.of_switch(), values, **fields
    ).tobytes()
    whole = len(frame)
    assert Ether(frame[: whole - 4])[Innet].values == [0, 1]
    cut = Ether(frame[: whole - 3])[Innet]
    assert (cut.values, bytes(cut[Raw])) == ([0, 1], b"\0")
    for length in range(14, whole):
        assert bytes(Ether(frame[:length])) == frame[:length]


def test_import_is_quiet_and_leaves_logging_alone() -> None:
    code = (
        "import logging; logging.getLogger('scapy').setLevel(logging.INFO); "
        "import innet.wire.scapy_layers; "
        "assert logging.getLogger('scapy').level == logging.INFO"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.repeats("the same in the other order", but=["scapy.all"])
@pytest.mark.parametrize("first", ["scapy.all", "innet.wire.scapy_layers"])
def test_found_by_scapy_in_any_order_of_imports(first: str) -> None:
    """Scapy's own VXLAN layer claims UDP port 48879 too."""
    second = {"scapy.all": "innet.wire.scapy_layers", "innet.wire.scapy_layers": "scapy.all"}[first]
    frame = pack(
        PacketLayout(4),
        Endpoint.of_worker(0),
        Endpoint.of_switch(),
        np.ones((1, 4), np.int32),
        operation=1,
        job=1,
        epoch=0,
        sequence=1,
        slot=0,
        slot_version=0,
        worker=0,
    )[0].tobytes()
    code = (
        f"import warnings; warnings.simplefilter('ignore'); import {first}; import {second};"
        f"from scapy.layers.l2 import Ether; print(Ether({frame!r}).lastlayer().name)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == "innet"
