"""innet.core.pcap: files that others read back equal."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from support.capture_files import read_by_scapy

from innet.core.errors import InputError
from innet.core.packets import PacketBatch
from innet.core.pcap import write_pcap


@pytest.mark.parametrize("kind", ["batch", "array", "bytes"])
def test_pcap_reads_back_equal(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, (5, 60), dtype=np.uint8)
    packets = [frame.tobytes() for frame in frames]
    if kind == "batch":
        packets = [packet[: 20 + 9 * row] for row, packet in enumerate(packets)]
        given_form: object = PacketBatch.from_packets((7, packet) for packet in packets)
    else:
        given_form = frames if kind == "array" else packets
    times = [0.0, 1e-9, 0.25, 1.000000001, 1e9 + 0.5]
    write_pcap(tmp_path / "a.pcap", given_form, times)  # type: ignore[arg-type]
    found, when = read_by_scapy(tmp_path / "a.pcap")
    assert found == packets
    np.testing.assert_allclose(when, times, rtol=0, atol=1e-9)


def test_pcap_literal_bytes(tmp_path: Path) -> None:
    write_pcap(tmp_path / "a.pcap", [b"\x01\x02\x03"], [2.5])
    assert (tmp_path / "a.pcap").read_bytes() == (
        struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
        + struct.pack("<IIII", 2, 500_000_000, 3, 3)
        + b"\x01\x02\x03"
    )


def test_empty_pcap(tmp_path: Path) -> None:
    write_pcap(tmp_path / "a.pcap", [])
    assert read_by_scapy(tmp_path / "a.pcap") == ([], [])


@pytest.mark.parametrize("times", [[1.0], [1.0, -1.0], [1.0, 2.0**32], [1.0, float("nan")]])
def test_impossible_times_are_refused(tmp_path: Path, times: list[float]) -> None:
    with pytest.raises(InputError):
        write_pcap(tmp_path / "a.pcap", [b"\x01", b"\x02"], times)
    assert not (tmp_path / "a.pcap").exists()


def test_unwritable_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*no/a\.pcap"):
        write_pcap(tmp_path / "no" / "a.pcap", [b"\x01"])
