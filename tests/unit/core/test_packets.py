"""Batches refuse arrays that do not fit together, and engines take any that do."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.switch_cases import program

from innet.core.errors import InputError
from innet.core.packets import PacketBatch
from innet.switch import Switch

DATA = np.zeros((2, 20), np.uint8)
TWO = np.full(2, 20, np.int32)


@pytest.mark.parametrize(
    ("data", "length", "port", "message"),
    [
        (DATA, np.full(200_000, 20, np.int32), np.ones(200_000, np.int32), "2 rows, 200000 length"),
        (np.zeros((9, 20), np.uint8), np.full(9, 20, np.int32), TWO, "9 lengths and 2 ports"),
        (DATA[0], TWO, TWO, "data of a batch must be uint8 of shape (n, stride); found uint8 of"),
        (DATA.view(np.int8), TWO, TWO, "found int8"),
        (DATA, TWO.astype(np.int64), TWO, "length of a batch must be int32 of shape (n,)"),
        (DATA, TWO, TWO.astype(">i4"), "port of a batch must be int32"),
        (DATA, TWO, TWO[:, None], "shape (2, 1)"),
        (DATA, [20, 20], TWO, "length of a batch must be a NumPy array, not list"),
    ],
)
def test_arrays_that_do_not_fit(data, length, port, message):
    with pytest.raises(InputError, match=re.escape(message)):
        PacketBatch(data, length, port)


@pytest.mark.parametrize(
    "packets",
    [None, [(1, "text")], [(1, None)], [(1, 60)], [1], b"ab", [(1, b"x", 2)], [(1, [1, 2])]],
)
def test_packets_that_are_none(packets):
    with pytest.raises(InputError, match="packets are pairs of a port and bytes"):
        PacketBatch.from_packets(packets)


@pytest.mark.parametrize("port", [1.5, "1", None, 1 << 40, -1 << 40, 1 << 70, b""])
def test_ports_that_are_none(port):
    with pytest.raises(InputError, match="a port is"):
        PacketBatch.from_packets([(port, b"x"), (port, b"y")])
    with pytest.raises(InputError, match="port"):
        PacketBatch.uniform(DATA[:1], port)
    with pytest.raises(InputError, match="a port is"):
        PacketBatch.from_packets([(1, b"x"), (port, b"y")])


def test_one_port_for_all_or_one_each():
    assert PacketBatch.uniform(DATA, 3).port.tolist() == [3, 3]
    assert PacketBatch.uniform(DATA, np.array([3, 4])).port.tolist() == [3, 4]
    with pytest.raises(InputError, match="one port or 2"):
        PacketBatch.uniform(DATA, np.array([3, 4, 5]))
    assert len(PacketBatch.from_packets([])) == 0


def test_origins_go_along():
    known = PacketBatch(DATA, TWO, TWO, np.array([4, 7], np.int32))
    assert known.take(np.array([1])).origin.tolist() == [7]
    assert PacketBatch.concatenate([known, known]).origin.tolist() == [4, 7, 4, 7]
    unknown = PacketBatch(DATA, TWO, TWO)
    assert PacketBatch.concatenate([known, unknown]).origin is None
    assert unknown.take(np.array([0])).origin is None
    with pytest.raises(InputError, match="2 packets has 1 origins"):
        PacketBatch(DATA, TWO, TWO, np.zeros(1, np.int32))


@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize("length", [-1, 21, 1 << 30])
def test_lengths_outside_the_row(engine, length):
    switch = Switch.load(program("jit_parser"), engine)
    batch = PacketBatch(DATA, np.array([20, length], np.int32), np.ones(2, np.int32))
    with pytest.raises(InputError, match=r"lengths must be in 0\.\.20"):
        switch.process_batch(batch)
    assert switch.statistics.packets_in == 0


def _read_only(array):
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def _misaligned(array):
    padded = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:]
    return padded.view(array.dtype).reshape(array.shape)


def _strided(array):
    return np.repeat(array, 2, axis=-1)[..., ::2]


class _Subclass(np.ndarray):
    pass


@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize(
    "as_other",
    [_read_only, _misaligned, _strided, np.asfortranarray, lambda array: array.view(_Subclass)],
)
def test_arrays_of_any_layout(engine, as_other):
    data = np.random.default_rng(5).integers(0, 256, (40, 64)).astype(np.uint8)
    length = np.arange(24, 64, dtype=np.int32)
    port = np.arange(40, dtype=np.int32)
    plain = PacketBatch(data, length, port)
    expected = Switch.load(program("jit_parser"), engine).process_batch(plain).to_packets()
    assert len(expected) > 1
    other = PacketBatch(*map(as_other, (data.copy(), length, port)))
    switch = Switch.load(program("jit_parser"), engine)
    assert switch.process_batch(other).to_packets() == expected
    assert np.array_equal(other.data, data)
