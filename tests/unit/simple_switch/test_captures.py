"""Captures of a switch's interfaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.capture_files import packets_of

from innet.core.errors import OutputError
from innet.core.packets import PacketBatch
from innet.simple_switch.captures import Captures


def test_files_hold_packets_at_once(tmp_path):
    (tmp_path / "a_in.pcap").write_text("of an earlier run")
    captures = Captures(tmp_path, {1: "a", 2: "b"})
    assert packets_of(tmp_path / "a_in.pcap") == []
    arrived = PacketBatch.from_packets([(1, b"x" * 60), (2, b"y" * 61), (1, b"z" * 62)])
    left = PacketBatch.from_packets([(2, b"l" * 63), (7, b"nowhere")])
    captures.write(arrived, left)
    # Nothing was closed: what ends the process does not matter.
    first, second = packets_of(tmp_path / "a_in.pcap")
    assert (first.data, second.data) == (b"x" * 60, b"z" * 62)
    between = packets_of(tmp_path / "b_in.pcap")[0]
    sent = packets_of(tmp_path / "b_out.pcap")[0]
    assert (between.data, sent.data) == (b"y" * 61, b"l" * 63)
    assert first.time < between.time < second.time == sent.time
    # What waited in a queue leaves when nothing arrives.
    captures.write(PacketBatch.empty(), left)
    later = packets_of(tmp_path / "b_out.pcap")
    assert len(later) == 2
    assert later[1].time > sent.time
    captures.write(arrived, PacketBatch.empty())
    assert packets_of(tmp_path / "a_in.pcap")[2].time > later[1].time
    captures.close()


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OutputError, match=r"a_in\.pcap"):
        Captures(tmp_path / "nowhere", {1: "a"})


def test_a_full_disk_is_named(tmp_path):
    captures = Captures(tmp_path, {1: "a", 2: "b"})
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), captures.compiled.files[1, 1])
    left = PacketBatch.from_packets([(1, b"there"), (2, b"lost")])
    with pytest.raises(OutputError, match=r"b_out\.pcap: the disk is full"):
        captures.write(PacketBatch.empty(), left)
    assert [each.data for each in packets_of(tmp_path / "a_out.pcap")] == [b"there"]
    captures.close()
