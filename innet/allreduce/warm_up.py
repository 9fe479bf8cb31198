"""Warm-up: run codecs once without a network, so that their functions are compiled before use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from innet.codecs import CodecSpec, ModelLayers, build_codec
from innet.codecs.build import descriptions, normalize
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
    """Run a codec as the only worker, and the repair of LHC sums that cannot be peeled.

    Args:
        codec: an argument of ``innet.codecs.build_codec``, from which a new codec is built.
        gradient: float32, of the size of later gradients.
        layers: of the model.
    """
    _run(codec, gradient, layers)
    compile_repairs(codec)


def compile_repairs(codec: CodecSpec) -> None:
    """Compile the repairs for LHC decoding that gets stuck, too rare for a warm-up to meet.

    This takes a second or two for each number of hashes, once on a machine. Otherwise it would
    happen in the middle of a training, while the other workers wait, and count as decoding.
    """
    if all(normalize(each)["carrier"]["name"] != "lhc" for each in descriptions(codec)):
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
