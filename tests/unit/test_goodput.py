"""The table of goodput in the docs is what the code does."""

from __future__ import annotations

import pytest

from benchmarks.goodput import LOSSES, SNAPSHOT, WINDOWS, goodput


def snapshot() -> dict[tuple[float, int], str]:
    lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| loss |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 :]]
    return {
        (loss, window): cell
        for loss, (name, *cells) in zip(LOSSES, rows[: len(LOSSES)], strict=True)
        for window, cell in zip(WINDOWS, cells, strict=True)
        if name == f"{100 * loss:g} %"
    }


def test_the_table_is_whole() -> None:
    assert set(snapshot()) == {(loss, window) for loss in LOSSES for window in WINDOWS}


@pytest.mark.parametrize(("loss", "window"), [(0.0, 16), (0.001, 256), (0.01, 64), (0.1, 256)])
def test_equal_seeds_give_the_numbers_of_the_table(loss: float, window: int) -> None:
    assert f"{goodput(loss, window):.3g}" == snapshot()[loss, window]
