"""How often the lossless sketch stalls, by its size and by how the non-zero elements lie.

    python -m benchmarks.stalls [--tries 1000]

The first table is of the carrier's own sizing, for each form of hashing; the second of plain ratios
of cells to items. "blocks" are runs of 16 neighbours, as the rows of an embedding table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from innet import kernels
from innet.codecs.carriers.sketch_plan import LhcSettings, sketch_layout
from innet.kernels import SketchLayout

ITEMS = (2, 10, 50, 200, 1000, 3000, 10_000, 50_000, 100_000, 1_000_000)
FORMS = {
    "auto": LhcSettings(),
    "plain, 3 hashes": LhcSettings(hashing="plain", hashes=3),
    "coupled, 3 hashes": LhcSettings(hashing="coupled", hashes=3),
    "coupled, 4 hashes": LhcSettings(hashing="coupled", hashes=4),
}
RATIOS = (1.22, 1.25, 1.30, 1.40, 1.60, 2.00)
SPARSITY = 20  # elements for each item


def main(
    tries: Annotated[int, typer.Option(help="Sketches for each number up to 3000 items.")] = 1000,
) -> None:
    """Simulate and print."""
    console = Console()
    table = Table("items", *FORMS, title="cells/item: stalls, stalls in blocks; lhc's own sizing")
    for items in ITEMS:
        cells = []
        for settings in FORMS.values():
            layout = sketch_layout(items, settings, 0)
            assert layout is not None
            runs = max(12, tries // max(1, items // 3000))
            shares = [stalled(items, layout, blocks, runs)[0] for blocks in (False, True)]
            cells.append(f"{layout.cells / items:.3g}: {shares[0]:.1%}, {shares[1]:.1%}")
        table.add_row(f"{items:,}", *cells)
    console.print(table)
    table = Table("items", "lanes", *(f"{ratio:.2f}" for ratio in RATIOS), title="stalls / lost")
    for items, lanes in ((3277, 1), (3277, 16), (52_429, 1), (52_429, 16)):
        cells = []
        for ratio in RATIOS:
            layout = SketchLayout(-(-int(ratio * items) // (3 * lanes)), lanes, 0)
            share, lost = stalled(items, layout, False, max(20, tries // 10))
            cells.append(f"{share:.0%} / {lost:.2%}")
        table.add_row(f"{items:,}", str(lanes), *cells)
    console.print(table)


def stalled(items: int, layout: SketchLayout, blocks: bool, tries: int) -> tuple[float, float]:
    """The share of sketches that stall, and the share of items that are not recovered."""
    cpu = kernels.get("cpu")
    size = SPARSITY * items + 16 * SPARSITY
    lost = []
    for seed in range(tries):
        dense = np.zeros(size, np.int32)
        dense[places(items, size, blocks, np.random.default_rng(seed))] = 1
        layout = replace(layout, seed=seed)
        _, missing = cpu.lhc_peel(*cpu.lhc_encode(None, dense, size, layout), size, layout)
        lost.append(cpu.popcount(missing))
    return float(np.mean(np.array(lost) > 0)), float(np.mean(lost)) / items


def places(items: int, size: int, blocks: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """Where the items are: anywhere, or in whole blocks of 16."""
    if not blocks:
        return rng.choice(size, items, replace=False)
    starts = 16 * rng.choice(size // 16, -(-items // 16), replace=False)
    return np.ravel(starts[:, np.newaxis] + np.arange(16))[:items]


if __name__ == "__main__":
    typer.run(main)
