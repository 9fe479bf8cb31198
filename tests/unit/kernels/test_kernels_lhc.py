"""The sketch: hashing, linearity, and how many cells peeling needs."""

from __future__ import annotations

import numpy as np
import pytest

from innet import kernels
from innet.core import threads
from innet.core.threads import while_others_wait
from innet.kernels import Filter, SketchLayout
from innet.kernels.reference import lhc as reference

cpu = kernels.get("cpu")

# fmt: off
FROZEN_PLAIN = [
    0, -2147483648, 0, 0, 2147483647, 0, -1, 7, 0, 0, 0, -5, 0, 0, 0, -2147483648, 1,
    2147483635, 0, 0, 0, 0, 0, 0, 0, 1, 2147483641, 0, 0, 0, 2147483647, 0, 0, 0, 0, -5,
]
FROZEN_COUPLED = [
    0, 0, 0, 0, 0, 0, 0, -5, 0, -2147483648, 0, 0, 2147483647, -5, -1, 7, 0, 0, 0,
    -2147483648, 1, 2147483640, 0, -5, 0, 1, 2147483641, 0, 0, 0, 2147483642, 0, 1, -6, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
]
# fmt: on


def unit_sketch(item, size, layout):
    dense = np.zeros(size, np.int32)
    dense[item] = 1
    return reference.lhc_encode(None, dense, size, layout)[1].reshape(layout.rows, layout.lanes)


@pytest.mark.parametrize("lanes", [1, 16, 128])
@pytest.mark.parametrize("hashes", [3, 4])
@pytest.mark.parametrize("starts", [1, 5])
def test_an_element_has_distinct_rows_in_neighboring_segments(lanes, hashes, starts):
    layout = SketchLayout(4, lanes, 99, hashes, starts)
    begun = set()
    for item in range(0, 2000, 37):
        sketch = unit_sketch(item, 2000, layout)
        rows, _ = np.nonzero(sketch)
        first = rows[0] // layout.part
        begun.add(int(first))
        assert (rows // layout.part).tolist() == list(range(first, first + hashes))
        assert set(np.abs(sketch[sketch != 0])) == {1}
    assert begun <= set(range(starts))
    assert len(begun) == starts or lanes > 16


def test_elements_of_a_block_share_rows_and_signs_but_no_cell():
    layout = SketchLayout(50, 16, 1)
    sketches = [unit_sketch(item, 4096, layout) for item in range(320, 336)]
    assert len({tuple(np.nonzero(sketch)[0]) for sketch in sketches}) == 1
    assert np.abs(np.sum(sketches, axis=0)).max() == 1
    signs = {tuple(sketch[np.nonzero(sketch)]) for sketch in sketches}
    assert len(signs) == 1


@pytest.mark.parametrize(
    ("layout", "frozen"),
    [
        (SketchLayout(3, 4, 2**63 - 1), FROZEN_PLAIN),
        (SketchLayout(2, 4, 2**63 - 1, 4, 3), FROZEN_COUPLED),
    ],
)
def test_a_sketch_that_is_frozen(layout, frozen):
    # What is sent must not change unnoticed: other implementations have to hash in the same way.
    integers = np.array([7, -1, 2**31 - 1, 0, -(2**31), 5], np.int32)
    indices = np.array([0, 3, 31, 32, 63, 64], np.int32)
    bitmap, sketch = cpu.lhc_encode(indices, integers, 65, layout)
    assert bitmap.view(np.uint32).tolist() == [0x80000009, 0x80000000, 0x1]
    assert sketch.tolist() == frozen


def test_a_filter_that_is_frozen():
    bitmap = np.array([-(2**31) + 9, -(2**31) + 1, 1], np.int32)
    assert cpu.bloom_insert(bitmap, Filter(3, 5, 2**63 - 1)).tolist() == [
        1275070656,
        1040385921,
        -1627389856,
    ]


def test_sketches_add_up_modulo_2_to_the_32():
    rng = np.random.default_rng(0)
    layout = SketchLayout(900, 1, 5)
    dense = rng.integers(-(2**31), 2**31, (4, 2000)).astype(np.int32)
    encoded = [cpu.lhc_encode(None, each, 2000, layout) for each in dense]
    with np.errstate(over="ignore"):
        sketch = sum(sketch for _, sketch in encoded).astype(np.int32)
        total = dense.sum(axis=0, dtype=np.int32)
    bitmap = np.bitwise_or.reduce([bitmap for bitmap, _ in encoded])
    found, missing = cpu.lhc_peel(bitmap, sketch, 2000, layout)
    assert not missing.any()
    np.testing.assert_array_equal(cpu.scatter(*found, 2000), total)


# Cells per item against the share not recovered and the rounds. G blocks at 5 % density give
# G / 20 items in each hypergraph when lanes stay apart, as in the paper; a layout of one lane is
# such a hypergraph.
PEELING = [
    # items, cells per item, at least unrecovered, at most, most rounds
    (65_536 // 20, 1.22, 0.20, 0.50, 120),
    (65_536 // 20, 1.30, 0.00, 0.002, 40),
    (65_536 // 20, 1.60, 0.00, 0.0005, 14),
    (65_536 // 20, 2.00, 0.00, 0.0005, 9),
    (4_096 // 20, 1.22, 0.20, 0.55, 60),
    (4_096 // 20, 1.60, 0.00, 0.002, 14),
]


def peel_random_items(items, cells_per_item, lanes, seed):
    rng = np.random.default_rng(seed)
    size = 20 * items
    dense = np.zeros(size, np.int32)
    dense[rng.choice(size, items, replace=False)] = rng.integers(1, 2**31, items)
    layout = SketchLayout(-(-int(cells_per_item * items) // (3 * lanes)), lanes, seed)
    bitmap, sketch = cpu.lhc_encode(None, dense, size, layout)
    return bitmap, sketch, size, layout


@pytest.mark.parametrize(("items", "ratio", "least", "most", "rounds"), PEELING)
def test_the_peeling_threshold(items, ratio, least, most, rounds):
    lost, needed = [], []
    for seed in range(20):
        case = peel_random_items(items, ratio, 1, seed)
        lost.append(cpu.popcount(cpu.lhc_peel(*case)[1]) / items)
        needed.append(reference.peel_rounds(*case)[2])
    assert least <= np.mean(lost) <= most
    assert np.mean(needed) <= rounds


def test_turned_lanes_peel_as_one_hypergraph():
    # 3,277 items in 16 lanes: apart, each lane would have 205 and nearly all tries would stall
    # (see the last rows above); together they need no more cells than 3,277 items do.
    stalls = [
        cpu.popcount(cpu.lhc_peel(*peel_random_items(3277, 1.35, 16, seed))[1]) > 0
        for seed in range(100)
    ]
    assert np.mean(stalls) <= 0.05


def assert_peels_as_the_oracle(dense, layout):
    bitmap, sketch = cpu.lhc_encode(None, dense, dense.size, layout)
    (items, integers), missing = cpu.lhc_peel(bitmap, sketch, dense.size, layout)
    (_, expected), left = reference.lhc_peel(bitmap, sketch, dense.size, layout)
    np.testing.assert_array_equal(integers, expected)
    np.testing.assert_array_equal(missing, left)
    return (
        items.size,
        cpu.popcount(missing),
        int(cpu.lhc_occupancy(bitmap, dense.size, layout).max()),
    )


@pytest.mark.parametrize(
    ("items", "layout"),
    [
        (24_000, SketchLayout(400, 1, 3, 4, 10)),  # fewer in the first and last segments
        (32, SketchLayout(1, 1, 3)),  # as many as a cell has room for
        (33, SketchLayout(1, 1, 3)),
    ],
)
def test_cells_that_hold_very_many_elements(items, layout):
    rng = np.random.default_rng(4)
    dense = np.zeros(2 * items, np.int32)
    dense[rng.choice(dense.size, items, replace=False)] = rng.integers(-(2**31), 2**31, items)
    peeled, missing, fullest = assert_peels_as_the_oracle(dense, layout)
    assert fullest >= 32
    assert 0 < missing <= peeled
    assert items <= 33 or missing < peeled


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("hashes", "starts"), [(3, 1), (4, 9)])
@pytest.mark.parametrize("items", [40, 900, 1300])
def test_sketches_with_too_many_elements_for_numbers(lanes, hashes, starts, items, monkeypatch):
    # Some of them stall, some do not, some nearly.
    monkeypatch.setattr("innet.kernels.cpu.lhc._MOST", 0)
    layout = SketchLayout(-(-1400 // ((starts + hashes - 1) * lanes)), lanes, 3, hashes, starts)
    rng = np.random.default_rng(items)
    dense = np.zeros(5000, np.int32)
    dense[rng.choice(5000, items, replace=False)] = rng.integers(1, 2**31, items)
    assert_peels_as_the_oracle(dense, layout)


@pytest.mark.parametrize(
    ("layout", "least", "most"),
    [
        (SketchLayout(50, 4, 3, 4, 60), 0, 0),
        (SketchLayout(24, 8, 5, 3, 70), 0, 0),
        (SketchLayout(40, 4, 3, 4, 60), 5000, 8500),  # from both ends, and no further
        (SketchLayout(50, 1, 3, 4, 40), 8500, 9000),  # cells hold too many elements
        (SketchLayout(4, 4, 7, 4, 8), 9000, 9000),  # and nearly all elements are in between
    ],
)
def test_two_halves_are_peeled_while_others_wait(layout, least, most, monkeypatch):
    items = 9000
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr("innet.kernels.cpu.lhc._SPLIT_STARTS", 8)
    monkeypatch.setattr("innet.kernels.cpu.lhc._SPLIT_ITEMS", 1000)
    rng = np.random.default_rng(items)
    dense = np.zeros(70_001, np.int32)
    dense[rng.choice(dense.size, items, replace=False)] = rng.integers(-(2**31), 2**31, items)
    with while_others_wait(1):
        _, missing, _ = assert_peels_as_the_oracle(dense, layout)
    assert least <= missing <= most


def test_a_half_of_which_a_cell_holds_too_many(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr("innet.kernels.cpu.lhc._SPLIT_STARTS", 8)
    monkeypatch.setattr("innet.kernels.cpu.lhc._SPLIT_ITEMS", 100)
    layout = SketchLayout(9, 1, 3, 3, 40)
    # All elements of one segment of the second half; of the others, one in eight.
    first = (reference._places(np.arange(20_000), layout)[0] // layout.part)[0]
    chosen = (first == 30) | (np.arange(20_000) % 80 == 0)
    dense = np.where(chosen, np.arange(20_000) + 1, 0).astype(np.int32)
    with while_others_wait(1):
        _, missing, fullest = assert_peels_as_the_oracle(dense, layout)
    assert fullest >= 32
    assert 0 < missing < np.count_nonzero(dense)
