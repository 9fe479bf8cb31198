"""The compiled forms of packing and parsing equal the naive ones, byte for byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support import naive_wire

from innet.core.packets import PacketBatch
from innet.wire import HEADER, Endpoint, FrameRefusal, PacketLayout, pack, parse, seal
from innet.wire.layout import limits

HERE, THERE = Endpoint.of_worker(0), Endpoint.of_switch()
layouts = st.builds(
    PacketLayout,
    st.integers(1, 40),
    st.sampled_from(["udp", "raw"]),
    has_owners=st.booleans(),
)


def fields_by_chance(layout, count, rng):
    found = {}
    for name in HEADER.names:
        if name not in ("magic", "version", "checksum"):
            low, high = limits(name, layout)
            found[name] = rng.integers(low, high + 1, count).astype(HEADER[name].newbyteorder("="))
    return found


def frames_by_chance(layout, count, rng):
    values = rng.integers(-(2**31), 2**31, (count, layout.values)).astype(np.int32)
    fields = fields_by_chance(layout, count, rng)
    return pack(layout, HERE, THERE, values, **fields), fields, values


@given(layout=layouts, count=st.integers(0, 9), seed=st.integers(0, 1000))
def test_packed_as_naively(layout, count, seed):
    frames, fields, values = frames_by_chance(layout, count, np.random.default_rng(seed))
    outer = frames[:1, : layout.header_offset]
    np.testing.assert_array_equal(frames, naive_wire.packed(layout, outer, fields, values))
    if layout.framing == "udp" and count:
        assert naive_wire.checksum(outer[:, 14:34].copy()).tolist() == [0]


@given(layout=layouts, seed=st.integers(0, 10_000), sealed=st.booleans())
def test_refused_as_naively(layout, seed, sealed):
    rng = np.random.default_rng(seed)
    count = 40
    frames, _, _ = frames_by_chance(layout, count, rng)
    # Most have a few wrong bits, half of them with a checksum that says otherwise.
    for row in range(4, count):
        for _ in range(rng.integers(1, 3)):
            start = rng.integers(layout.values_offset)
            frames[row, start] ^= np.uint8(1 << rng.integers(8))
        if sealed and layout.framing == "udp" and row % 3:
            frames[row, 24:26] = 0
            frames[row, 24:26] = (
                naive_wire.checksum(frames[row : row + 1, 14:34].copy())
                .astype(">u2")
                .view(np.uint8)
            )
    if sealed:
        seal(layout, frames[10:])
    data = np.full((count, layout.frame_size + 6), 0xAA, np.uint8)
    data[:, : layout.frame_size] = frames
    length = rng.choice(
        np.array([layout.frame_size] * 9 + [layout.frame_size + 3], np.int32), count
    )
    # Some end with the header, most of these with the lengths and the checksum of such.
    bare = rng.random(count) < (0.5 if layout.has_owners else 0.1)
    length[bare] = layout.bare_size
    right = bare & (rng.random(count) < 0.8)
    data[right, layout.header_offset + 3] |= 0x80
    kept = data[:, : layout.frame_size][right]
    data[right, : layout.bare_size] = naive_wire.ended(layout, kept)
    batch = parse(layout, PacketBatch(data, length, np.zeros(count, np.int32)))
    expected = naive_wire.refusals(layout, data, length)
    np.testing.assert_array_equal(batch.reason, expected)
    known = (length == layout.frame_size) | (bare & layout.has_owners)
    np.testing.assert_array_equal(batch.header[known], batch.frames["innet"][known])
    if layout.has_owners and not sealed:
        assert batch.valid[right & (np.arange(count) < 4)].all()


def test_every_refusal_occurs():
    """So the test before compares what there is to compare."""
    rng = np.random.default_rng(0)
    layout = PacketLayout(3)
    frames, _, _ = frames_by_chance(layout, 1, rng)
    seen = set()
    for bit in range(8 * layout.frame_size):
        frame = frames.copy()
        frame[0, bit // 8] ^= np.uint8(1 << bit % 8)
        for fixed in (frame, frame.copy()):
            if fixed is not frame:
                seal(layout, fixed)
                fixed[0, 24:26] = 0
                right = naive_wire.checksum(fixed[:, 14:34].copy())
                fixed[0, 24:26] = right.astype(">u2").view(np.uint8)
            (reason,) = parse(layout, fixed).reason
            assert reason == naive_wire.refusals(layout, fixed, np.array([layout.frame_size]))[0]
            seen.add(FrameRefusal(reason))
    seen.add(FrameRefusal(parse(layout, frames[:, :-1]).reason[0]))
    # One wrong bit makes no elements beyond the layout's, nor leaves both UDP ports wrong.
    assert seen >= set(FrameRefusal) - {
        FrameRefusal.UDP_PORT,
        FrameRefusal.OPERATION,
        FrameRefusal.ELEMENTS,
    }


def test_any_memory_will_do():
    """Rows that are not contiguous, and memory that may not be written."""
    layout = PacketLayout(4)
    frames, _, values = frames_by_chance(layout, 5, np.random.default_rng(2))
    wide = np.zeros((10, layout.frame_size + 3), np.uint8)
    wide[::2, : layout.frame_size] = frames
    spread = wide[::2, : layout.frame_size]
    spread.flags.writeable = False
    batch = parse(layout, spread)
    assert batch.valid.all()
    np.testing.assert_array_equal(batch.values, values)
    fortran = np.asfortranarray(values)
    fortran.flags.writeable = False
    fields = {name: 1 for name in HEADER.names if name not in ("magic", "version")}
    del fields["checksum"]
    again = pack(layout, HERE, THERE, fortran, **fields)
    np.testing.assert_array_equal(parse(layout, again).values, values)
