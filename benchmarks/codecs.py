"""Gradient bytes per second through the codec kernels, as a fraction of what memory allows.

    python -m benchmarks.codecs [--size 10000000] [--json]

One thread. The bandwidth is that of a STREAM triad (a = b + s·c; McCalpin, IEEE TCCA newsletter,
December 1995) over arrays larger than the caches, measured in the same run. A step's roofline is
that bandwidth divided by how often it must move each gradient byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import numpy as np
import typer
from numba import njit
from numpy.typing import NDArray

from benchmarks.common import Row, show
from innet import kernels
from innet.codecs import build_codec
from innet.codecs.carriers.sketch_sizing import LhcSettings, sketch_layout
from innet.kernels import CountLayout, Filter, Limbs

RATIO = 0.01  # of top-k
DENSITY = 0.05  # of the sparse gradients
TRIAD_SIZE = 1 << 25  # float64: three arrays of 256 MiB

Step = Callable[[], object]


def main(
    size: Annotated[int, typer.Option(help="Elements of the gradient.")] = 10_000_000,
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 7,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print fractions first."""
    bandwidth = triad_bandwidth(repeats)
    rows = []
    seconds: dict[str, float] = {}
    for name, moves, items, step in steps(size, np.random.default_rng(0)):
        spent = seconds[name] = best(step, repeats)
        rate = 4 * size / spent
        remark = f"{rate / bandwidth:.3g} of bandwidth, roofline 1/{moves}"
        if items:
            remark += f"; {items / spent / 1e6:.3g} M items/s"
        rows.append(Row(name, rate / 1e9, "GB/s", remark, moves * rate / bandwidth))
    rows.append(Row("STREAM triad", bandwidth / 1e9, "GB/s", "the bandwidth", 1.0))
    note = versus_torch(size, seconds["top-k 1 % with residual"])
    show(f"codec kernels, {size:,} float32, one thread", "of its roofline", rows, as_json, note)


def steps(size: int, rng: np.random.Generator) -> Iterator[tuple[str, int, int, Step]]:
    """Each step's name, how often it must move each gradient byte, its items, and how to run it."""
    cpu = kernels.get("cpu")
    x = rng.standard_normal(size, np.float32)
    k = max(1, int(RATIO * size))
    residual = rng.standard_normal(size, np.float32)
    yield "survey: maximum, zeros, finite", 1, 0, lambda: cpu.absmax_nnz(x)
    yield "top-k 1 %", 1, 0, lambda: cpu.top_k(x, k)
    yield "top-k 1 % with residual", 3, 0, lambda: cpu.top_k_residual(x, residual, k)
    yield "quantize", 2, 0, lambda: cpu.quantize(x, 1e6)
    yield "quantize by chance", 2, 0, lambda: cpu.quantize_stochastic(x, 20.0, 1)
    integers = cpu.quantize(np.where(rng.random(size) < DENSITY, x, np.float32(0)), 1e6)
    yield "dequantize", 2, 0, lambda: cpu.dequantize(integers, 1e-6)
    indices = np.flatnonzero(integers).astype(np.int32)
    values = integers[indices]
    items = indices.size
    yield "sparse decode 5 %", 1, items, lambda: cpu.scatter(indices, values, size)
    yield from selector_steps(x, residual)
    yield from exact_steps(x)
    yield from rotation_steps(x)
    yield from low_rank_steps(x)
    yield from sketch_steps(indices, values, size)
    yield from count_steps(x)


def selector_steps(
    x: NDArray[np.float32], gradient: NDArray[np.float32]
) -> Iterator[tuple[str, int, int, Step]]:
    """What SIDCo and AdaComp find: a stage reads twice, the end once more; AdaComp reads two."""
    cpu = kernels.get("cpu")
    threshold = partial(cpu.select_threshold_residual, x, gradient, 3.3)
    yield "threshold, 0.1 %, with residual", 3, 0, threshold
    for stages in (1, 2):
        codec = build_codec(
            {"preset": "sidco-p", "selector": {"ratio": 0.001, "stages": stages, "every": 0}}
        )
        name = f"sidco-p, {stages} of its stages"
        yield name, 2 * stages + 1, 0, partial(codec.selector.select, x)
    for width in (50, 500):
        step = partial(cpu.select_above_chunk_max, x, gradient, 1.0, width)
        yield f"adacomp, bins of {width}", 2, 0, step


def count_steps(x: NDArray[np.float32]) -> Iterator[tuple[str, int, int, Step]]:
    """A count sketch of 5 rows; its cells take part in no roofline, as they stay in a cache."""
    cpu = kernels.get("cpu")
    layout = CountLayout(5, max(1, x.size // 100), 0)
    cells = np.random.default_rng(0).integers(-1000, 1000, layout.cells).astype(np.int32)
    yield "count sketch, 5 rows", 5, 0, lambda: cpu.count_sketch_encode(x, layout)
    yield "count sketch, estimates", 2, 0, lambda: cpu.count_sketch_estimate(cells, x.size, layout)


def exact_steps(x: NDArray[np.float32]) -> Iterator[tuple[str, int, int, Step]]:
    """The exact quantizer, of x in two limbs, as many as normal numbers take."""
    cpu = kernels.get("cpu")
    limbs = Limbs(exponent=-30, bits=29, count=2)
    sums = cpu.split_limbs(x, limbs)
    yield "lowest set bit", 1, 0, lambda: cpu.lowest_exponent(x)
    yield "split into 2 limbs", 3, 0, lambda: cpu.split_limbs(x, limbs)
    yield "join 2 limbs", 3, 0, lambda: cpu.join_limbs(sums, limbs)


def rotation_steps(x: NDArray[np.float32]) -> Iterator[tuple[str, int, int, Step]]:
    """Quantizer thc, with blocks of 4096, and four of its integers in a word."""
    cpu = kernels.get("cpu")
    block = 4096
    scales = np.full(-(-x.size // block), 2.0**30 / block / 8)
    table = np.arange(0, 32, 2, dtype=np.int32)
    rotated = cpu.hadamard(x, scales, block, 1)
    coarse = 15 / (2 * scales * np.sqrt(block))
    integers = cpu.quantize_to_table(rotated, coarse, table, block, 1)
    words = cpu.pack(integers, 4, 8)
    yield "sums of squares of blocks", 1, 0, lambda: cpu.block_squares(x, block)
    yield "Hadamard transform", 2, 0, lambda: cpu.hadamard(x, scales, block, 1)
    yield (
        "round to a table", 2, 0,
        lambda: cpu.quantize_to_table(rotated, coarse, table, block, 1),
    )  # fmt: skip
    yield (
        "Hadamard transform back", 2, 0,
        lambda: cpu.hadamard_inverse(integers, scales, block, 1, x.size),
    )  # fmt: skip
    yield "pack four in a word", 1, 0, lambda: cpu.pack(integers, 4, 8)
    yield "unpack them", 1, 0, lambda: cpu.unpack(words, integers.size, 4, 8)


def low_rank_steps(x: NDArray[np.float32]) -> Iterator[tuple[str, int, int, Step]]:
    """Selector powersgd, with rank 2, of a matrix of 1024 columns."""
    cpu = kernels.get("cpu")
    columns = 1024
    matrix = x[: x.size // columns * columns]
    right, left = matrix[: 2 * columns], matrix[: 2 * (matrix.size // columns)]
    yield "matrix times 2 vectors", 1, 0, lambda: cpu.project_rows(matrix, columns, right)
    yield "the transposed matrix", 1, 0, lambda: cpu.project_columns(matrix, columns, left)
    yield "product of 2 factors", 1, 0, lambda: cpu.factor_product(left, right, 2)


def sketch_steps(
    indices: NDArray[np.int32], values: NDArray[np.int32], size: int
) -> Iterator[tuple[str, int, int, Step]]:
    """Encode and decode of a sketch, with either index."""
    cpu = kernels.get("cpu")
    items = indices.size
    integers = cpu.scatter(indices, values, size)
    layout = sketch_layout(items, LhcSettings(), 0)
    assert layout is not None
    bitmap, sketch = cpu.lhc_encode(None, integers, size, layout)
    missing = cpu.lhc_peel(bitmap, sketch, size, layout)[1]
    assert not missing.any()
    yield (
        "lhc encode 5 %, scanning", 7, items,
        lambda: cpu.lhc_encode(None, integers, size, layout),
    )  # fmt: skip
    yield (
        "lhc encode 5 %, from indices", 7, items,
        lambda: cpu.lhc_encode(indices, values, size, layout),
    )  # fmt: skip
    yield "lhc peel 5 %", 1, items, lambda: cpu.lhc_peel(bitmap, sketch, size, layout)
    shape = Filter(words=items // 4, probes=6, seed=0)
    words = cpu.bloom_insert(bitmap, shape)
    yield "Bloom filter of 5 %, test all", 1, 0, lambda: cpu.bloom_query(words, size, shape)


def best(step: Step, repeats: int) -> float:
    """Seconds of the fastest of ``repeats`` runs, after one that compiles and fills the caches."""
    step()
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def triad_bandwidth(repeats: int) -> float:
    """Bytes per second of a STREAM triad, counted as STREAM does: two reads and a write."""
    a, b, c = (np.full(TRIAD_SIZE, value) for value in (0.0, 1.0, 2.0))
    return 3 * a.nbytes / best(lambda: _triad(a, b, c, 3.0), repeats)


def versus_torch(size: int, seconds: float) -> str:
    """How much faster top-k with a residual is than torch's without one, on one thread too."""
    try:
        import torch  # noqa: PLC0415 - it is optional, and slow to import
    except ImportError:
        return "torch is not installed: no comparison with torch.topk."
    torch.set_num_threads(1)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(size, np.float32))
    k = max(1, int(RATIO * size))
    theirs = best(lambda: torch.topk(x.abs(), k, sorted=False), 3)
    return (
        f"top-k 1 % with residual runs {theirs / seconds:.3g} x as fast as torch.topk of |x| "
        f"({4 * size / theirs / 1e9:.3g} GB/s, torch {torch.__version__}, one thread)."
    )


@njit(cache=True)
def _triad(
    a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64], s: float
) -> None:
    for i in range(a.size):
        a[i] = b[i] + s * c[i]


if __name__ == "__main__":
    typer.run(main)
