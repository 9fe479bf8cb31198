"""What ``benchmarks.service`` measures: codecs, the gradients they get, and bounds beside them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import numpy as np

from innet import kernels
from innet.allreduce.worker import Worker
from innet.codecs import CodecSpec
from innet.codecs.carriers.sketch_sizing import LhcSettings, sketch_layout
from innet.core import buffers
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import ServiceTransport
from innet.kernels.arrays import Floats

SHARE = 0.01  # of the elements of a sparse gradient that are not zero


class Kind(Enum):
    """How the workers' gradients look."""

    FULL = "no element is zero"
    SAME_PLACES = "1 % of the elements are not zero, the same on all workers"
    OWN_PLACES = "1 % of the elements are not zero, each worker's own"


class Case(NamedTuple):
    """What is measured: a codec, the gradients that it gets, how many values a packet has, if that
    is not as the command says, and what carries packets.
    """

    codec: CodecSpec
    kind: Kind = Kind.FULL
    values: int | None = None
    transport: ServiceTransport = "udp"


_BITMAP = {"name": "lhc", "index": "bitmap"}  # more bytes than a filter, and less to look up
CASES: dict[str, Case] = {
    "dense": Case("dense"),
    "dense, 256 values in a packet": Case("dense", values=256),
    "top-k 1 % by LHC": Case("topk"),
    "top-k 1 % by LHC, a bitmap as index": Case({"preset": "topk", "carrier": _BITMAP}),
    "top-k 1 %, the union first": Case({"preset": "topk", "carrier": "union"}),
    "ScaleCom 100 x": Case("scalecom"),
    "LHC of 1 %, the common supports": Case("lhc", Kind.SAME_PLACES),
    "LHC of 1 %, the common supports, a bitmap": Case(
        {"preset": "lhc", "carrier": _BITMAP}, Kind.SAME_PLACES
    ),
    "LHC of 1 %, independent supports": Case("lhc", Kind.OWN_PLACES),
    "LHC of 1 %, independent supports, a bitmap": Case(
        {"preset": "lhc", "carrier": _BITMAP}, Kind.OWN_PLACES
    ),
    "union of 1 %, independent supports": Case(
        {"preset": "lhc", "carrier": "union"}, Kind.OWN_PLACES
    ),
}
MEMORY = "memory alone"
PEELING = "memory and peeling alone"
SENDING = "memory, peeling and network alone"
SPARSE = "the same without a residual"
BOUNDS = {
    MEMORY: "reads gradient and residual, writes residual and sum",
    PEELING: "likewise, and peels as many items as top-k 1 % by LHC does",
    SENDING: "likewise, and sends a bitmap and a sketch of so many",
    SPARSE: "reads the gradient, writes the sum, peels and sends as LHC 1 %, independent, does",
}


def gradient(kind: Kind, size: int, rank: int, workers: int, alike: bool) -> Floats:
    """A worker's, shape (size,): normal where it is not zero; ``alike`` with a part that is common
    to all, of half of the variance.
    """
    own = np.random.default_rng(rank).standard_normal(size)
    if alike:
        own += np.random.default_rng(workers).standard_normal(size)
    if kind is not Kind.FULL:
        seed = rank if kind is Kind.OWN_PLACES else workers
        own[np.random.default_rng([seed, size]).random(size) >= SHARE] = 0
    return own.astype(np.float32)


class Bounds:
    """The part of an all-reduce with a residual that no codec can spare; that no ``lhc`` can, with
    a residual and without.

    Attributes:
        segments: the index and the sketch of as many items as top-k by LHC peels.
    """

    def __init__(self, gradient: Floats, workers: int) -> None:
        self._gradient, self._residual = gradient, np.zeros_like(gradient)
        self._cpu, size = kernels.get("cpu"), gradient.size
        rng = np.random.default_rng(0)
        support = np.flatnonzero(rng.random(size) < 1 - (1 - SHARE) ** workers).astype(np.int32)
        integers = rng.integers(1, 2**31 // workers, support.size, np.int32)
        layout = sketch_layout(max(support.size, workers * size // 100), LhcSettings(), 0)
        assert layout is not None, "a sketch of the benchmark's size can be had"
        bitmap, sketch = self._cpu.lhc_encode(support, integers, size, layout)
        self._sketch = bitmap, sketch, size, layout
        words = sketch // workers  # their sums stay in int32
        self.segments = [Segment(ReduceOp.OR, bitmap), Segment(ReduceOp.SUM, words)]

    def run(self, bound: str, worker: Worker) -> None:
        """Do it once; the worker is one of the worker's own."""
        if bound == SPARSE:
            self._gradient.sum()  # all of it is read
        else:
            self._residual, _ = self._cpu.add_scaled(self._residual, self._gradient, 1.0)
        buffers.zeros(self._gradient.size, np.float32)
        if bound in {SENDING, SPARSE}:
            worker.combine(self.segments)
        if bound != MEMORY:
            self._cpu.lhc_peel(*self._sketch)
