"""Gradient bytes per second through the CUDA kernels, as a fraction of the GPU's bandwidth.

    python -m benchmarks.cuda [--size 100000000] [--json]
    python -m benchmarks.cuda --check [--sizes 0,1,31,33,1000000,100000000] --output cuda.json

With ``--check`` it first compares each kernel's results with those of the naive kernels, and from
``NAIVE`` elements on with those of the CPU's, which are equal to them (``tests/unit/kernels``): bit
for bit, of arrays that are copied to the GPU. After it has measured, gradients on the GPU are
summed (``benchmarks/cuda_sums.py``). All is written to a file of JSON.

Arrays lie on the GPU and stay there. The bandwidth is that of a STREAM triad (a = b + s·c;
McCalpin, IEEE TCCA newsletter, December 1995) on the GPU, measured in the same run. A step's
roofline is that bandwidth divided by how often it must move each gradient byte.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.codecs import DENSITY, RATIO, Step, best
from benchmarks.common import Row, show
from benchmarks.cuda_cases import calls, same
from innet import kernels
from innet.core.errors import MissingToolError
from innet.kernels import CountLayout, Filter, Limbs, SketchLayout

NAIVE = 1000
SIZES = "0,1,31,33,1000000,100000000"
SUM_SECONDS = 100
TRIAD_SIZE = 1 << 26  # float64: three arrays of 512 MiB
CELLS_PER_ITEM = 1.3  # of the sketch
Timed = tuple[str, int, Step]


def main(
    size: Annotated[int, typer.Option(help="Elements of the gradient.")] = 100_000_000,
    *,
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 7,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    check: Annotated[bool, typer.Option(help="Compare results first.")] = False,
    sizes: Annotated[str, typer.Option(help="Elements of what is compared.")] = SIZES,
    output: Annotated[Path, typer.Option(help="Where --check writes.")] = Path("cuda.json"),
) -> None:
    """Measure, and print fractions first; without a GPU, say so."""
    try:
        gpu: Any = kernels.get("cuda")
    except MissingToolError as error:
        print(f"There is no GPU to measure: {error}")
        return
    from innet.kernels.cuda.device import SIMULATED  # noqa: PLC0415 - numba-cuda is optional

    found: dict[str, Any] = {"gpu": "simulated" if SIMULATED else gpu_name()}
    if check:
        found["compared"] = [each for n in sizes.split(",") for each in compared(gpu, int(n))]
        wrong = [each for each in found["compared"] if not each["same"]]
        print(f"{len(found['compared'])} results were compared, and {len(wrong)} differ.")
        for each in wrong:
            print(f"  {each['kernel']} of {each['size']:,} elements: {each['said']}")
        output.write_text(json.dumps(found, indent=1))
        if SIMULATED or wrong:
            raise typer.Exit(bool(wrong))
    if SIMULATED:
        print("There is no GPU to measure: numba-cuda's simulator is on, whose times mean nothing.")
        return
    bandwidth = 3 * 8 * TRIAD_SIZE / best(triad(TRIAD_SIZE), repeats)
    rows = []
    for name, moves, step in steps(gpu, size, np.random.default_rng(0)):
        rate = 4 * size / best(synchronized(step), repeats)
        remark = f"{rate / bandwidth:.3g} of bandwidth, roofline 1/{moves}"
        rows.append(Row(name, rate / 1e9, "GB/s", remark, moves * rate / bandwidth))
    rows.append(Row("STREAM triad", bandwidth / 1e9, "GB/s", "the bandwidth", 1.0))
    if check:
        found |= {"size": size, "rates": [asdict(row) for row in rows]}
        output.write_text(json.dumps(found, indent=1))
        found["sums"] = [each for way in ("switch", "nccl") for each in summed(way)]
        output.write_text(json.dumps(found, indent=1))
    title = f"CUDA kernels, {size:,} float32, {gpu_name()}"
    show(title, "of its roofline", rows, as_json)


def compared(gpu: Any, size: int) -> Iterator[dict[str, Any]]:
    """For each kernel, whether its result is that of the naive kernel or of the CPU's."""
    name = "reference" if size < NAIVE else "cpu"
    other = kernels.get(name)
    for kernel, call in calls(size, np.random.default_rng(size)):
        try:
            is_same, said = same(call(gpu), call(other)), "other bits"
        except Exception as error:
            is_same, said = False, f"{type(error).__name__}: {error}"
        yield {
            "kernel": kernel,
            "size": size,
            "other": name,
            "same": is_same,
            "said": "" if is_same else said,
        }


def summed(way: str) -> list[dict[str, Any]]:
    """What ``benchmarks.cuda_sums`` finds, in a process of its own; or why it does not end."""
    command = [sys.executable, "-m", "benchmarks.cuda_sums", way]
    try:
        done = subprocess.run(  # noqa: S603 - our own
            command, capture_output=True, text=True, timeout=SUM_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return [{"way": way, "error": f"no end after {SUM_SECONDS} s"}]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        lines.append({"way": way, "error": done.stderr[-2000:]})
    return lines


def steps(gpu: Any, size: int, rng: np.random.Generator) -> Iterator[Timed]:
    """Each kernel's name, how often it must move each gradient byte, and how to run it."""
    from numba import cuda  # noqa: PLC0415 - optional

    host = rng.standard_normal(size, np.float32)
    x, residual = cuda.to_device(host), cuda.to_device(host[::-1].copy())
    k = max(1, int(RATIO * size))
    sparse = gpu.quantize(np.where(rng.random(size) < DENSITY, host, np.float32(0)), 1e6)
    places = np.flatnonzero(sparse).astype(np.int32)
    integers, indices = cuda.to_device(sparse), cuda.to_device(places)
    values = cuda.to_device(sparse[places])
    yield "absmax_nnz", 1, lambda: gpu.absmax_nnz(x)
    yield "lowest_exponent", 1, lambda: gpu.lowest_exponent(x)
    yield "moments", 1, lambda: gpu.moments(x, 0.0, 0.0)
    yield "top-k 1 %", 3, lambda: gpu.top_k(x, k)
    yield "top-k 1 % with residual", 5, lambda: gpu.top_k_residual(x, residual, k)
    yield "threshold, 1.2 %", 1, lambda: gpu.select_threshold(x, 2.5)
    yield "largest of chunks of 100", 1, lambda: gpu.chunk_argmax(x, 100)
    yield "quantize", 2, lambda: gpu.quantize(x, 1e6)
    yield "dequantize", 2, lambda: gpu.dequantize(integers, 1e-6)
    yield "sparse to dense, 5 %", 1, lambda: gpu.scatter(indices, values, size)
    limbs = Limbs(-40, 25, 2)
    parts = gpu.split_limbs(x, limbs)
    yield "split in 2 limbs", 3, lambda: gpu.split_limbs(x, limbs)
    yield "join 2 limbs", 3, lambda: gpu.join_limbs(parts, limbs)
    yield "non-zero blocks of 256", 1, lambda: gpu.block_bitmap(integers, 256)
    layout = SketchLayout(max(1, int(CELLS_PER_ITEM * places.size / 3 / 32)), 32, 0)
    bitmap, sketch = gpu.lhc_encode(None, integers, size, layout)
    yield "list a bitmap, 5 %", 1, lambda: gpu.bitmap_to_indices(bitmap, size)
    yield "lhc encode 5 %", 1, lambda: gpu.lhc_encode(None, integers, size, layout)
    yield "lhc peel 5 %", 1, lambda: gpu.lhc_peel(bitmap, sketch, size, layout)
    shape = Filter(max(1, places.size * 10 // 22), 10, 0)  # half of the bits set
    words = gpu.bloom_insert(bitmap, shape)
    yield "Bloom filter, members", 1, lambda: gpu.bloom_query(words, size, shape)
    columns = CountLayout(5, max(1, size // 100), 0)
    cells = cuda.to_device(rng.integers(-1000, 1000, columns.cells).astype(np.int32))
    yield "count sketch, 5 rows", 1, lambda: gpu.count_sketch_encode(x, columns)
    yield "count sketch, estimates", 1, lambda: gpu.count_sketch_estimate(cells, size, columns)


def synchronized(step: Step) -> Step:
    """The step, and until the GPU has done it."""
    from numba import cuda  # noqa: PLC0415 - optional

    def run() -> None:
        step()
        cuda.synchronize()

    return run


def triad(size: int) -> Step:
    """A STREAM triad on the GPU: two reads and a write of 8 bytes an element."""
    from numba import cuda  # noqa: PLC0415 - optional

    @cuda.jit
    def add(a: Any, b: Any, c: Any, s: float) -> None:
        for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
            a[i] = b[i] + s * c[i]

    a, b, c = (cuda.to_device(np.full(size, value)) for value in (0.0, 1.0, 2.0))
    grid = min(-(-size // 256), 65_536), 256
    return synchronized(lambda: add[grid](a, b, c, 3.0))


def gpu_name() -> str:
    """What the GPU calls itself."""
    from numba import cuda  # noqa: PLC0415 - optional

    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


if __name__ == "__main__":
    typer.run(main)
