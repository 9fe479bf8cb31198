"""How often the lossless sketch stalls, by its size and by how the non-zero elements lie.

    python -m benchmarks.stalls [--tries 1000]
    python -m benchmarks.stalls --items 100000 --tries 10000

The first table is of the carrier's own sizing, for each form of hashing; the second of plain ratios
of cells to items. With ``--items`` there is what the carrier does by default for so many of them,
and a bound on the true share of stalls (Clopper and Pearson, Biometrika 26, 1934, one-sided).
"blocks" are runs of 16 neighbors, as the rows of an embedding table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

from innet import kernels
from innet.codecs.carriers.sketch_sizing import LhcSettings, sketch_layout
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
    items: Annotated[
        int | None, typer.Option(help="This number of items alone, with so many tries.", min=2)
    ] = None,
) -> None:
    """Simulate and print."""
    console = Console()
    if items is not None:
        console.print(one_number(items, tries))
        return
    console.print(own_sizing(tries))
    console.print(plain_ratios(tries))


def one_number(items: int, tries: int) -> str:
    """How often the default sizing stalls, and what that says of how often it ever does."""
    layout = sketch_layout(items, LhcSettings(), 0)
    assert layout is not None
    lines = [f"{items:,} items, {layout.cells / items:.4g} cells for each, {tries} tries each:"]
    for blocks, place in ((False, "anywhere"), (True, "in blocks")):
        share, _ = stalled(items, layout, blocks, tries)
        count = round(share * tries)
        bound = stats.beta.ppf(0.95, count + 1, tries - count) if count < tries else 1.0
        lines.append(f"  {place}: {count} stalls; below {bound:.2%} with 95 % confidence")
    return "\n".join(lines)


def own_sizing(tries: int) -> Table:
    """The carrier's sizing, for each form of hashing."""
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
    return table


def plain_ratios(tries: int) -> Table:
    """Ratios of cells to items, with plain hashing."""
    table = Table("items", "lanes", *(f"{ratio:.2f}" for ratio in RATIOS), title="stalls / lost")
    for items, lanes in ((3277, 1), (3277, 16), (52_429, 1), (52_429, 16)):
        cells = []
        for ratio in RATIOS:
            layout = SketchLayout(-(-int(ratio * items) // (3 * lanes)), lanes, 0)
            share, lost = stalled(items, layout, False, max(20, tries // 10))
            cells.append(f"{share:.0%} / {lost:.2%}")
        table.add_row(f"{items:,}", str(lanes), *cells)
    return table


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
