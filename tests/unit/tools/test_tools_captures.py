"""Capture files: read in blocks, whatever wrote them; damage is told with its place."""

from __future__ import annotations

import gzip
import heapq
import struct
import tracemalloc

import numpy as np
import pytest
from support import capture_files as files
from support.capture_files import read_by_scapy
from support.tiers import seeds

from innet.core.errors import InputError, PacketError
from innet.core.pcap import LONGEST
from innet.tools import captures
from innet.tools.captures import CaptureReader, CaptureWriter

RECORDS = [(1_700_000_000_123_456_789, b"abc"), (1_700_000_001_000_000_001, b""), (5, bytes(300))]


def read(path):
    """(nanoseconds, interface, bytes) of all packets."""
    with CaptureReader(path) as capture:
        return [
            (int(time), int(by), block.data[start : start + length].tobytes())
            for block in capture.blocks()
            for time, by, start, length in zip(
                block.time, block.interface, block.start, block.length, strict=True
            )
        ]


def put(tmp_path, content, name="a.pcap"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


class TestPcap:
    @pytest.mark.parametrize("order", ["<", ">"])
    @pytest.mark.parametrize("nano", [False, True])
    def test_any_byte_order_and_resolution(self, tmp_path, order, nano):
        path = put(tmp_path, files.pcap(RECORDS, order=order, nano=nano, link_type=101))
        unit = 1 if nano else 1000
        assert read(path) == [(time // unit * unit, 0, data) for time, data in RECORDS]
        with CaptureReader(path) as capture:
            assert (capture.nano, capture.link_type) == (nano, 101)
            assert not capture.is_pcapng

    def test_a_link_type_that_is_not_ethernet_is_said(self, tmp_path, caplog):
        read(put(tmp_path, files.pcap(RECORDS)))
        assert not caplog.messages
        read(put(tmp_path, files.pcap(RECORDS, link_type=113)))
        (said,) = caplog.messages
        assert "a.pcap has packets of link type Linux cooked (113), not Ethernet (1)" in said

    def test_each_link_type_of_a_pcapng_is_said_once(self, tmp_path, caplog):
        later = files.interface(link_type=147) + files.enhanced(2, 2, b"z")
        content = files.section() + files.interface() + files.interface(link_type=101)
        read(put(tmp_path, content + files.enhanced(0, 1, b"x") + later, "a.pcapng"))
        assert [message.split("link type ")[1].split(",")[0] for message in caplog.messages] == [
            "raw IP (101)",
            "147",
        ]

    def test_compressed(self, tmp_path):
        path = put(tmp_path, gzip.compress(files.pcap(RECORDS)), "a.pcap.gz")
        assert len(read(path)) == 3
        put(tmp_path, path.read_bytes()[:-20], "a.pcap.gz")
        with pytest.raises(PacketError, match=r"a\.pcap\.gz"):
            read(path)

    def test_no_packets(self, tmp_path):
        assert read(put(tmp_path, files.pcap([]))) == []

    def test_packets_across_chunks(self, tmp_path, monkeypatch):
        monkeypatch.setattr(captures, "CHUNK", 100)
        rng = np.random.default_rng(1)
        records = [(i, rng.bytes(int(rng.integers(0, 300)))) for i in range(50)]
        path = put(tmp_path, files.pcap(records))
        assert read(path) == [(time, 0, data) for time, data in records]

    def test_cut_packets_are_counted(self, tmp_path):
        content = files.pcap([(0, b"abc"), (0, b"")])
        at = 24 + 12
        content = content[:at] + struct.pack("<I", 100) + content[at + 4 :]
        with CaptureReader(put(tmp_path, content)) as capture:
            assert [block.cut for block in capture.blocks()] == [1]

    @pytest.mark.parametrize("cut", [*range(1, 24), 24 + 1, 24 + 16, 24 + 18, 24 + 19 + 3])
    def test_cut_off(self, tmp_path, cut):
        path = put(tmp_path, files.pcap(RECORDS)[:cut])
        with pytest.raises(PacketError, match=r"a\.pcap (ends|is neither|is damaged)"):
            read(path)

    def test_damage_names_packet_and_offset(self, tmp_path):
        content = files.pcap(RECORDS)
        path = put(tmp_path, content[:-1])
        with pytest.raises(PacketError, match=r"packet 2 \(counted from 0\), at byte 59, is cut"):
            read(path)
        path = put(tmp_path, content[:51] + struct.pack("<I", LONGEST + 1) + content[55:])
        with pytest.raises(PacketError, match=r"packet 1 .*at byte 43, claims more than 262144"):
            read(path)

    def test_what_comes_before_the_damage_is_given_out(self, tmp_path):
        path = put(tmp_path, files.pcap(RECORDS)[:-1])
        with CaptureReader(path) as capture:
            blocks = capture.blocks()
            assert len(next(blocks)) == 2
            with pytest.raises(PacketError):
                next(blocks)

    @pytest.mark.parametrize("content", [b"", b"abcd" * 20, b"\xa1\xb2", bytes(24)])
    def test_no_capture(self, tmp_path, content):
        with pytest.raises(PacketError, match=r"a\.pcap is (empty|neither a pcap nor a pcapng)"):
            CaptureReader(put(tmp_path, content))

    def test_no_file(self, tmp_path):
        with pytest.raises(InputError, match="No such file"):
            CaptureReader(tmp_path / "a.pcap")
        with pytest.raises(InputError, match="Is a directory"):
            CaptureReader(tmp_path)


class TestPcapng:
    @pytest.mark.parametrize("order", ["<", ">"])
    def test_interfaces_with_clocks_of_their_own(self, tmp_path, order):
        content = (
            files.section(order)
            + files.interface(order)
            + files.interface(order, resolution=9, seconds=-3)
            + files.interface(order, resolution=12)
            + files.interface(order, resolution=0x80 | 20)
            + files.block(0x1234, b"of an unknown kind", order)
            + files.enhanced(0, 7_000_001, b"a", order)
            + files.enhanced(1, 5_000_000_007, b"bb", order)
            + files.enhanced(2, 8_000_000_000_999, b"", order)
            + files.enhanced(3, (9 << 20) + (1 << 19), b"ddd", order)
            + files.old(1, 6_000_000_000, b"e", order)
            + files.simple(b"fffff", order)
        )
        path = put(tmp_path, content)
        assert read(path) == [
            (7_000_001_000, 0, b"a"),
            (2_000_000_007, 1, b"bb"),
            (8_000_000_000, 2, b""),
            (9_500_000_000, 3, b"ddd"),
            (3_000_000_000, 1, b"e"),
            (3_000_000_000, 0, b"fffff"),
        ]
        with CaptureReader(path) as capture:
            assert capture.nano
            assert capture.is_pcapng

    def test_sections_follow_each_other(self, tmp_path):
        content = b"".join(
            files.section(order) + files.interface(order) + files.enhanced(0, 1, b"x", order)
            for order in "<>"
        )
        assert read(put(tmp_path, content)) == [(1000, 0, b"x"), (1000, 1, b"x")]

    def test_snapped_simple_packets(self, tmp_path):
        whole = files.block(3, struct.pack("<I", 900) + b"abcd")
        content = files.section() + files.interface(snapped=4) + whole
        assert read(put(tmp_path, content)) == [(0, 0, b"abcd")]

    def test_across_chunks(self, tmp_path, monkeypatch):
        monkeypatch.setattr(captures, "CHUNK", 64)
        packets = [files.enhanced(0, i, bytes([i] * i)) for i in range(90)]
        content = files.section() + files.interface() + b"".join(packets)
        assert read(put(tmp_path, content)) == [(1000 * i, 0, bytes([i] * i)) for i in range(90)]

    @pytest.mark.parametrize(
        ("damaged", "message"),
        [
            (files.enhanced(1, 0, b"x"), "packet 0 .*at byte 48, came in by an interface"),
            (files.enhanced(0, 0, b"x" * 40)[:-4], "packet 0 .*at byte 48, is cut off"),
            (files.block(6, bytes(16)), "packet 0 .*lengths do not agree"),
            (files.enhanced(0, 0, b"x")[:-4] + bytes(4), "lengths do not agree"),
            (struct.pack("<II", 6, 13) + bytes(20), "lengths do not agree"),
            (files.section()[:8] + bytes(20), "unknown byte order"),
            (files.interface(resolution=19), "whose clock cannot be read"),
            (files.interface(resolution=0x80 | 40), "whose clock cannot be read"),
            (files.interface()[:10], "cut off"),
            (struct.pack("<II", 1, 12) + bytes(40), "a block of 12 bytes, which is malformed"),
        ],
    )
    def test_damage(self, tmp_path, damaged, message):
        path = put(tmp_path, files.section() + files.interface() + damaged)
        with pytest.raises(PacketError, match=rf"a\.pcap is damaged: .*{message}"):
            read(path)

    def test_mangled_bytes_never_crash(self, tmp_path):
        rng = np.random.default_rng(3)
        ng = files.section() + files.interface() + files.enhanced(0, 5, bytes(20)) * 3
        plain = files.pcap(RECORDS)
        told = 0
        for _ in range(400):
            content = bytearray(ng if rng.random() < 0.5 else plain)
            for _ in range(int(rng.integers(1, 4))):
                content[rng.integers(len(content))] = int(rng.integers(256))
            try:
                read(put(tmp_path, bytes(content[: rng.integers(1, len(content) + 1)])))
            except PacketError as error:
                told += "a.pcap" in str(error)
        assert told > 100


class TestWriter:
    @pytest.mark.parametrize("nano", [False, True])
    def test_scapy_reads_it(self, tmp_path, nano):
        path = tmp_path / "out.pcap"
        writer = CaptureWriter(path, nano=nano)
        rows = np.arange(60, dtype=np.uint8).reshape(3, 20)
        length = np.array([20, 0, 7], np.int32)
        time = np.array([1_500_000_001_000, 2_000_000_000, 3], np.int64)
        writer.write(rows, length, time, np.array([0, 2]))
        writer.write(rows, length, time, np.array([1]))
        writer.close()
        packets, _ = read_by_scapy(path)
        assert packets == [rows[0].tobytes(), rows[2, :7].tobytes(), b""]
        unit = 1 if nano else 1000
        assert [by for by, _, _ in read(path)] == [
            each // unit * unit for each in (1_500_000_001_000, 3, 2_000_000_000)
        ]

    def test_that_cannot_be_written(self, tmp_path):
        (tmp_path / "a").write_text("")
        with pytest.raises(InputError, match=r"cannot write .*File exists"):
            CaptureWriter(tmp_path / "a", nano=True)


class TestMerge:
    @pytest.mark.parametrize("seed", seeds(5))
    def test_order_of_time_and_then_of_captures(self, tmp_path, monkeypatch, seed):
        monkeypatch.setattr(captures, "CHUNK", 200)
        rng = np.random.default_rng(seed)
        sources, wanted = [], []
        for number in range(3):
            # With equal times among captures, and steps back within one.
            times = np.cumsum(rng.integers(-2, 6, 80)) + 100
            records = [(int(time), bytes([number]) * int(rng.integers(0, 9))) for time in times]
            path = put(tmp_path, files.pcap(records), f"p{number}.pcap")
            sources.append(captures.CaptureSource(CaptureReader(path), number))
            steady = np.maximum.accumulate(times)
            wanted.append(
                [
                    (int(key), number, time, data)
                    for key, (time, data) in zip(steady, records, strict=True)
                ]
            )
        got = []
        for timed in captures.merge(sources, 7):
            assert 0 < len(timed.packets) <= 7
            got += [
                (int(clock), port, int(time), data)
                for (port, data), time, clock in zip(
                    timed.packets.to_packets(), timed.time, timed.clock, strict=True
                )
            ]
        assert got == list(heapq.merge(*wanted, key=lambda each: each[:2]))
        for source in sources:
            source.capture.__exit__(None, None, None)

    def test_memory_does_not_grow_with_the_capture(self, tmp_path, monkeypatch):
        monkeypatch.setattr(captures, "CHUNK", 1 << 16)
        path = put(tmp_path, files.pcap([(i, bytes(100)) for i in range(40_000)]))
        with CaptureReader(path) as capture:
            source = captures.CaptureSource(capture, 0)
            total = sum(len(each.packets) for each in captures.merge([source], 256))  # warm
        assert total == 40_000
        with CaptureReader(path) as capture:
            tracemalloc.start()
            for _ in captures.merge([captures.CaptureSource(capture, 0)], 256):
                pass
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < path.stat().st_size / 2

    def test_a_long_packet_does_not_widen_thousands_of_rows(self, tmp_path, monkeypatch):
        monkeypatch.setattr(captures, "MOST_BYTES", 10_000)
        records = [(i, bytes(10)) for i in range(50)]
        records[25] = (25, bytes(9_000))
        with CaptureReader(put(tmp_path, files.pcap(records))) as capture:
            sizes = [
                each.packets.data.size
                for each in captures.merge([captures.CaptureSource(capture, 0)], 99)
            ]
        assert len(sizes) == 3
        assert max(sizes) <= 10_000
