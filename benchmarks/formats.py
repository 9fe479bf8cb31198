"""Number formats: what their sums lose of models' gradients, in which bytes, and at which speed.

    python -m benchmarks.formats gradients [--workers 4 --workers 64] [--model charlm]
    python -m benchmarks.formats rings [--workers 4 --workers 64] [--model charlm]
    python -m benchmarks.formats trainings runs [--seeds 3]
    python -m benchmarks.formats speed [--size 10000000]

The gradients are those of the models of ``innet train`` after eight steps of plain training, of so
many workers. vNMSE is |sum - true sum|² / |true sum|², both as float64; the largest error is given
by the true sum's largest magnitude. Bytes are those that a worker sends, by those of float32, both
without headers. Encoding reads the gradient twice, for the scales and for the numbers, and writes
its words; decoding reads them and writes float32. Rooflines as in ``benchmarks.codecs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.codecs import best, triad_bandwidth
from benchmarks.common import Row, show
from benchmarks.training import asked_of
from innet.claims.offline import OfflineReducer, gradients_of, model_with_data
from innet.codecs import build_codec
from innet.codecs.carriers.packed import bits_of_sum
from innet.codecs.parts import Ints, Selection
from innet.core.errors import DivergedError
from innet.core.vnmse import vnmse
from innet.experiments.comparison import Store
from innet.experiments.ring_sums import HopRounding, lossless_ratio, ring_sum
from innet.kernels.layout.formats import FORMATS
from innet.sim.messages import ELEMENTS

app = typer.Typer(help=__doc__, no_args_is_help=True)

MODELS = ("mnist5k-cnn", "digits-cnn", "charlm", "ncf")
WORKERS = (4, 16, 64)
OTHERS = ("dense", "exact", "qsgd", "thc")  # beside them
TRAINED = (
    "mxfp4:rounding=stochastic",
    "mxfp4:error_feedback=residual",
    "mxfp6-e2m3:error_feedback=residual",
    "mxfp4:sums=wide",
    "fp8-e5m2:sums=wide",
)
WIDE = ("bf16", "fp16", "fp8-e4m3", "fp8-e5m2", "mxfp8-e4m3", "mxfp8-e5m2", "mxfp6-e2m3", "mxfp4")


@app.command()
def gradients(
    model: Annotated[list[str] | None, typer.Option(help="[default: four]")] = None,
    workers: Annotated[list[int] | None, typer.Option(help="[default: 4, 16 and 64]")] = None,
    seed: int = 0,
) -> None:
    """A Markdown table for each model: bytes, and the errors of a sum, by format."""
    for name in model or MODELS:
        the_model, data = model_with_data(name)
        counts = workers or WORKERS
        jobs = {count: gradients_of(the_model, data, count, seed) for count in counts}
        print(f"\n{name}, {jobs[counts[0]][0].size:,} elements\n")
        heads = [f"{count} workers: bytes | vNMSE | largest error | cosine" for count in counts]
        print(f"| format | {' | '.join(heads)} |")
        print("|---|" + "--:|--:|--:|--:|" * len(counts))
        for codec in _codecs():
            cells = [cell for count in counts for cell in _cells(codec, jobs[count], the_model)]
            print(f"| `{codec}` | {' | '.join(cells)} |", flush=True)


def _codecs() -> Iterator[str]:
    yield from FORMATS
    yield from (f"{name}:sums=wide" for name in WIDE)
    yield from ("mxfp4:rounding=stochastic", "mxfp8-e4m3:rounding=stochastic")
    yield from OTHERS


def _cells(codec: str, job: list[NDArray[np.float32]], model: object) -> list[str]:
    shapes = tuple(model.shapes.values())  # type: ignore[attr-defined] # of innet.experiments
    reducer = OfflineReducer(codec, len(job), shapes)
    total = reducer(job)[0].astype(np.float64)
    exact = np.sum(job, axis=0, dtype=np.float64)
    off = total - exact
    largest = float(np.abs(off).max() / np.abs(exact).max())
    lengths = np.sqrt(np.vdot(total, total) * np.vdot(exact, exact))
    cosine = float(np.vdot(total, exact) / lengths)
    share = reducer.words / exact.size
    return [f"{share:.0%}", f"{vnmse(total, job):.1e}", f"{largest:.1e}", f"{cosine:.4f}"]


@app.command()
def rings(
    model: Annotated[list[str] | None, typer.Option(help="[default: four]")] = None,
    workers: Annotated[list[int] | None, typer.Option(help="[default: 4, 16 and 64]")] = None,
    seed: int = 0,
) -> None:
    """A Markdown table for each model: the vNMSE of rings that round at each hop, to the nearest
    and by chance, and how much shorter a coder without loss makes the gradients.
    """
    for name in model or MODELS:
        the_model, data = model_with_data(name)
        jobs = [gradients_of(the_model, data, count, seed) for count in workers or WORKERS]
        print(f"\n{name}, {jobs[0][0].size:,} elements\n")
        heads = [f"{len(job)} workers: nearest | by chance" for job in jobs]
        print(f"| ring | bytes | {' | '.join(heads)} |")
        print("|---|--:|" + "--:|--:|" * len(jobs))
        for dtype, kind in ELEMENTS.items():
            cells = [cell for job in jobs for cell in _of_ring(dtype, job, seed)]
            share = float(kind.bytes(1 << 20)) / (4 << 20)
            print(f"| `{dtype}` | {share:.1%} | {' | '.join(cells)} |", flush=True)
        for dtype in ("float32", "bfloat16"):
            ratios = [cell for job in jobs for cell in (f"{lossless_ratio(job, dtype):.3f}", "")]
            print(f"| {dtype}, shorter by | | {' | '.join(ratios)} |", flush=True)


def _of_ring(dtype: str, job: list[NDArray[np.float32]], seed: int) -> list[str]:
    if dtype == "float32":  # no other than a nearest sum
        return [f"{vnmse(ring_sum(job, lambda each: each), job):.1e}", ""]
    found = []
    for by_chance in (False, True):
        rounding = HopRounding(dtype, by_chance=by_chance, seed=seed)
        found.append(f"{vnmse(ring_sum(job, rounding, rounding.own), job):.1e}")
    return found


@app.command()
def trainings(folder: Path, seeds: int = 3, workers: int = 4) -> None:
    """Trainings of four models with each format, beside plain sums of the same seeds.

    Runs go to the folder, and are not repeated. A format passes where the mean of its last scores
    is at most a point below that of plain sums; of perplexities, at most 1 % above.
    """
    print(f"| codec | {' | '.join(MODELS)} | within a point |")
    print("|---|" + "--:|" * len(MODELS) + "---|")
    plain: dict[str, list[float]] = {}
    for codec in ("plain", *FORMATS, *TRAINED):
        cells, passed = [], True
        for model in MODELS:
            settings, method = asked_of(model, workers, codec)
            try:
                runs = [Store(folder).run(settings, method, seed).runs[0] for seed in range(seeds)]
            except DivergedError:
                cells.append("diverges")
                passed = False
                continue
            scores = [run.final_score or 0.0 for run in runs]
            plain.setdefault(model, scores)
            mean, usual = np.mean(scores), np.mean(plain[model])
            if runs[0].metric.higher_is_better:
                worse, text = 100 * (usual - mean), f"{100 * mean:.2f} %"
                difference = f"{-worse:+.2f}"
            else:
                worse, text = 100 * (mean / usual - 1), f"{mean:.3f}"
                difference = f"{worse:+.2f} %"
            passed = passed and bool(worse <= 1)
            cells.append(text if codec == "plain" else f"{text} ({difference})")
        print(f"| `{codec}` | {' | '.join(cells)} | {'yes' if passed else 'no'} |", flush=True)


@app.command()
def speed(
    size: Annotated[int, typer.Option(help="Elements of the gradient.")] = 10_000_000,
    workers: int = 4,
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 7,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Encoding and decoding, one thread, by format."""
    bandwidth = triad_bandwidth(repeats)
    x = np.random.default_rng(0).standard_normal(size, np.float32)
    rows = []
    for name in (*FORMATS, "mxfp8-e4m3:rounding=stochastic", "mxfp4:sums=wide"):
        encode, decode, share = _steps(name, x, workers)
        for what, step, moves in (("encode", encode, 2 + share), ("decode", decode, 1 + share)):
            rate = 4 * size / best(step, repeats)
            remark = f"of float32; moves each {moves:.2f} times"
            row = Row(f"{name}, {what}", rate / 1e9, "GB/s", remark, moves * rate / bandwidth)
            rows.append(row)
    rows.append(Row("STREAM triad", bandwidth / 1e9, "GB/s", "the bandwidth", 1.0))
    show(f"formats, {size:,} float32, {workers} workers", "of its roofline", rows, as_json)


def _steps(
    name: str, x: NDArray[np.float32], workers: int
) -> tuple[Callable[[], object], Callable[[], object], float]:
    """To words and back, as the codec does it; and how large the words are, by float32."""
    codec = build_codec(name)
    quantizer, kernels = codec.quantizer, codec.quantizer.context.kernels
    magnitude, nonzero, _ = kernels.absmax_nnz(x)
    selection = Selection(x.size, None, x, magnitude, nonzero)
    bits = bits_of_sum(quantizer.largest_integer(workers), workers)
    lanes = 32 // bits
    answers = [segment.words for segment in quantizer.announce(selection)]
    scaling = quantizer.agree(answers, workers)

    def encode() -> Ints:
        announced = quantizer.announce(selection)
        scales = quantizer.agree([segment.words for segment in announced], workers)
        return kernels.pack(scales.contribute(selection).integers, lanes, bits)

    words = encode()

    def decode() -> object:
        return scaling.restore(kernels.unpack(words, x.size, lanes, bits), x.size)

    return encode, decode, words.size / x.size


if __name__ == "__main__":
    app()
