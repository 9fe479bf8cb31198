"""Codecs run once without a network, so that what is compiled at first use is compiled by then."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.codecs import CodecSpec, ModelLayers, build_codec
from innet.codecs.build import normalize
from innet.kernels.layout.lhc import HASHES

# Fewer cells than items: nothing can be peeled.
_HALTING = {
    "name": "lhc",
    "hashing": "plain",
    "cells_per_item": 0.5,
    "spread": 0.0,
    "pair_stalls": 1.0,
}


def warm_up(
    codec: CodecSpec, gradient: NDArray[np.float32], layers: ModelLayers | None = None
) -> None:
    """Run a codec as a single worker does, and what mends its sums when they cannot be peeled.

    Args:
        codec: what ``innet.codecs.build_codec`` takes; this one is forgotten.
        gradient: of as many elements as those to come, float32.
        layers: of the model.
    """
    _run(codec, gradient, layers)
    rehearse_repairs(codec)


def rehearse_repairs(codec: CodecSpec) -> None:
    """Compile what mends a peel of LHC that halts, which is too rare for a rehearsal: a second or
    two for each number of hashes, once on a machine. It would come in the middle of a training,
    while the other workers wait, and count as decoding.
    """
    if normalize(codec)["carrier"]["name"] != "lhc":
        return
    sparse = np.zeros(1024, np.float32)
    sparse[::16] = 1
    for hashes in HASHES:
        _run({"carrier": {**_HALTING, "hashes": hashes}}, sparse, None)


def _run(codec: CodecSpec, gradient: NDArray[np.float32], layers: ModelLayers | None) -> None:
    exchange = build_codec(codec, seed=0, worker=0, layers=layers).exchange(gradient, 1)
    try:
        segments = next(exchange)
        while True:
            segments = exchange.send([segment.words for segment in segments])
    except StopIteration:
        pass
