"""Memory that is used again: only when nobody can see it any more."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from innet.core import buffers

LARGE = 1 << 20  # int32: 4 MiB


@pytest.fixture(autouse=True)
def nothing_kept():
    buffers._unused.clear()
    yield
    buffers._unused.clear()


def address(array):
    return array.__array_interface__["data"][0]


def test_what_is_gone_is_used_again():
    first = buffers.empty(LARGE, np.int32)
    place = address(first)
    del first
    second = buffers.empty(LARGE - 5, np.float32)
    assert address(second) == place
    assert (second.dtype, second.shape) == (np.float32, (LARGE - 5,))
    assert second.flags.writeable
    assert second.flags.c_contiguous


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[5:7],
        lambda array: array.view(np.uint32),
        lambda array: array.reshape(2, -1)[1],
        memoryview,
        lambda array: np.asarray(memoryview(array))[3:],
    ],
    ids=("slice", "type", "row", "buffer", "array of a buffer"),
)
def test_a_view_keeps_it_from_being_used_again(view):
    seen = view(buffers.zeros(LARGE, np.int32))
    other = buffers.empty(LARGE, np.int32)
    other.fill(-1)
    assert not np.asarray(seen).any()
    assert not buffers._unused


def test_zeros_are_zeros_again():
    buffers.zeros(LARGE, np.int32).fill(7)
    assert not buffers.zeros(LARGE, np.int32).any()


def test_small_arrays_and_pieces_far_too_large_are_not_bothered_with():
    del (array := {0: buffers.empty(LARGE, np.int32)})[0]
    assert not array
    assert len(buffers._unused) == 1
    buffers.empty(10, np.int32)
    buffers.zeros(10, np.int32)
    buffers.empty(LARGE // 3, np.int32)
    assert sorted(piece.nbytes for piece in buffers._unused) == [4 * (LARGE // 3), 4 * LARGE]


@pytest.mark.parametrize("order", [(5, 4, 6), (6, 5, 4), (4, 6, 5)])
def test_the_smallest_piece_that_suffices_is_taken(order):
    """So that large ones are there for who needs them."""
    arrays = {quarters: buffers.empty(quarters * LARGE // 4, np.int32) for quarters in order}
    places = {quarters: address(array) for quarters, array in arrays.items()}
    arrays.clear()
    kept = [buffers.empty(size, np.int32) for size in (LARGE, LARGE, LARGE + 8, LARGE + 8)]
    assert [address(array) for array in kept[:3]] == [places[4], places[5], places[6]]
    assert address(kept[3]) not in places.values()
    assert not buffers._unused


def test_few_are_kept():
    arrays = [buffers.empty(LARGE, np.int8) for _ in range(3 * buffers._KEPT)]
    arrays.clear()
    assert len(buffers._unused) == buffers._KEPT


def test_threads_never_share_memory():
    wrong = []

    def work(mark):
        for _ in range(200):
            array = buffers.empty(LARGE, np.int8)
            array[:: 1 << 16] = mark
            if (array[:: 1 << 16] != mark).any():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
