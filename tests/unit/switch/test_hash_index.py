"""A hash index finds what a dictionary finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.switch.state.hash_index import (
    SLACK_FOR_CONTROL,
    SLACK_FOR_PACKETS,
    DirectIndex,
    HashIndex,
    all_hashed,
    all_slots,
    hashed,
    slot_of,
    slots_with_rows,
)

WORDS = st.lists(st.integers(0, (1 << 64) - 1), min_size=2, max_size=2)


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=200)


@given(STEPS, st.booleans(), st.sampled_from([SLACK_FOR_CONTROL, SLACK_FOR_PACKETS]))
def test_rows_come_and_go(steps: list[tuple[bool, int]], compact: bool, quarters: int) -> None:
    matrix = np.zeros((62, 2), np.uint64)
    matrix[1:, 0] = np.arange(61) // 4  # so that rows share a word
    matrix[1:, 1] = np.arange(61) % 4
    live = np.zeros(62, np.bool_)
    index = HashIndex(quarters)
    for insert, number in steps:
        row = number + 1
        if insert and not live[row]:
            live[row] = True
            index.insert(matrix, row, live, matrix[row].tolist())
        elif not insert and live[row]:
            live[row] = False
            index.remove(matrix, row, live)
        if compact:
            index.compact(matrix, live)
        words = matrix[row].tolist()
        assert index.find(matrix, words) == (row if live[row] else 0)
    for row in range(1, 62):
        assert index.find(matrix, matrix[row].tolist()) == (row if live[row] else 0)


@given(STEPS)
def test_words_that_are_short_come_and_go(steps: list[tuple[bool, int]]) -> None:
    matrix = np.arange(62, dtype=np.uint64)[:, None] - np.uint64(1)  # row 0 holds no word
    live = np.zeros(62, np.bool_)
    index = DirectIndex(6)
    for insert, number in steps:
        row = number + 1
        live[row] = insert
        if insert:
            index.insert(matrix, row, live, [number])
        else:
            index.remove(matrix, row, live)
        assert index.find(matrix, [number]) == (row if insert else 0)
    found = [index.find(matrix, [word]) for word in range(61)]
    assert found == [row if live[row] else 0 for row in range(1, 62)]
    index.rebuild(matrix, live)
    assert found == [index.find(matrix, [word]) for word in range(61)]


@pytest.mark.parametrize("quarters", [SLACK_FOR_CONTROL, SLACK_FOR_PACKETS])
@pytest.mark.parametrize("count", [1, 9, 32, 33, 512, 513, 5000])
def test_all_rows_are_found_however_many(count: int, quarters: int) -> None:
    rng = np.random.default_rng(count)
    matrix = rng.integers(0, 1 << 64, (count + 1, 1), np.uint64)
    live = np.ones(count + 1, np.bool_)
    live[0] = False
    index = HashIndex(quarters)
    index.rebuild(matrix, live)
    assert [index.find(matrix, [each]) for each in matrix[1:, 0].tolist()] == list(
        range(1, count + 1)
    )
    assert quarters * count // 4 <= len(index.slots) <= max(16, 8 * count)


@pytest.mark.parametrize("quarters", [SLACK_FOR_CONTROL, SLACK_FOR_PACKETS])
def test_slots_keep_to_the_rows_as_these_come_and_go(quarters: int) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.integers(0, 1 << 64, (2001, 1), np.uint64)
    live = np.zeros(2001, np.bool_)
    index = HashIndex(quarters)
    for row in [*range(1, 2001), *range(2000, 100, -1)]:
        live[row] = not live[row]
        if live[row]:
            index.insert(matrix, row, live, matrix[row].tolist())
        else:
            index.remove(matrix, row, live)
        if (rows := int(live.sum())) > 100:
            wanted = quarters * rows / 4
            assert 0.89 * wanted <= len(index.slots) <= 1.17 * wanted


@given(WORDS, st.integers(0, 31))
def test_one_and_all_are_hashed_alike(words: list[int], seed: int) -> None:
    hashes = all_hashed(np.array([words], np.uint64), seed)
    assert hashes.tolist() == [hashed(words, seed)]
    assert all_slots(hashes, 1000).tolist() == [slot_of(hashed(words, seed), 1000)]


def test_rows_beyond_the_end_go_on_at_the_start() -> None:
    rows, wanted = np.array([5, 6, 7, 8]), np.array([7, 7, 0, 6], np.uint64)
    slots = slots_with_rows(rows, wanted, 8)
    assert slots.tolist() == [7, 6, 0, 0, 0, 0, 8, 5]
