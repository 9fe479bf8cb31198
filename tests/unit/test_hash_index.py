"""A hash index finds what a dictionary finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.switch.hash_index import SMALL, HashIndex, all_hashed, hashed, placed

WORDS = st.lists(st.integers(0, (1 << 64) - 1), min_size=2, max_size=2)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=200), st.booleans())
def test_rows_come_and_go(steps: list[tuple[bool, int]], tidy: bool) -> None:
    matrix = np.zeros((62, 2), np.uint64)
    matrix[1:, 0] = np.arange(61) // 4  # so that rows share a word
    matrix[1:, 1] = np.arange(61) % 4
    live = np.zeros(62, np.bool_)
    index = HashIndex()
    for insert, number in steps:
        row = number + 1
        if insert and not live[row]:
            live[row] = True
            index.insert(matrix, row, live)
        elif not insert and live[row]:
            live[row] = False
            index.remove(matrix, row)
        if tidy:
            index.tidy(matrix, live)
        words = matrix[row].tolist()
        assert index.find(matrix, words) == (row if live[row] else 0)
    for row in range(1, 62):
        assert index.find(matrix, matrix[row].tolist()) == (row if live[row] else 0)


@pytest.mark.parametrize("count", [1, SMALL, SMALL + 1, 5000])
def test_all_rows_are_found_however_many(count: int) -> None:
    rng = np.random.default_rng(count)
    matrix = rng.integers(0, 1 << 64, (count + 1, 1), np.uint64)
    live = np.ones(count + 1, np.bool_)
    live[0] = False
    index = HashIndex()
    index.rebuild(matrix, live)
    assert [index.find(matrix, [each]) for each in matrix[1:, 0].tolist()] == list(
        range(1, count + 1)
    )
    assert 2 * count <= len(index.slots)


@given(WORDS, st.integers(0, 31))
def test_one_and_all_are_hashed_alike(words: list[int], seed: int) -> None:
    assert all_hashed(np.array([words], np.uint64), seed).tolist() == [hashed(words, seed)]


def test_rows_beyond_the_end_go_on_at_the_start() -> None:
    rows, wanted = np.array([5, 6, 7, 8]), np.array([7, 7, 0, 6], np.uint64)
    slots = placed(rows, wanted, 8)
    assert slots.tolist() == [7, 6, 0, 0, 0, 0, 8, 5]
