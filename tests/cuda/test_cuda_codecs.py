"""Whole all-reduces on the CUDA kernels send and return the bits of those on the naive ones."""

from __future__ import annotations

import numpy as np
import pytest
from support.lockstep import all_reduce
from support.tiers import tiered

from innet.codecs import PRESETS, build_codec
from innet.kernels.cuda.device import SIMULATED

SIZE = 200 if SIMULATED else 100_000


@pytest.mark.parametrize(
    "preset",
    tiered(PRESETS.names(), ["topk"], "the tests of the kernels, in other codecs"),
)
def test_presets(preset):
    rng = np.random.default_rng(1)
    keep = rng.random((2, 2, SIZE)) < 0.1
    jobs = np.where(keep, rng.standard_normal((2, 2, SIZE)), 0).astype(np.float32)
    segments, outcomes = {}, {}
    # A worker without a GPU takes part: all must agree, whatever they compute on.
    for name, other in (("reference", "reference"), ("cuda", "cpu")):
        sent = segments.setdefault(name, [])
        codecs = [
            build_codec(preset, worker=i, kernels=each) for i, each in enumerate((name, other))
        ]
        for job in jobs:  # twice, so that the residual counts
            outcomes[name] = all_reduce(
                codecs,
                list(job),
                watch=lambda each, sent=sent: sent.append(
                    [[(s.operation, s.words.tobytes()) for s in own] for own in each]
                ),
            )
    assert segments["reference"] == segments["cuda"]
    for one, other in zip(outcomes["reference"], outcomes["cuda"], strict=True):
        assert one.sum.tobytes() == other.sum.tobytes()
        assert one.integer_sum.tobytes() == other.integer_sum.tobytes()
        assert (one.scale, one.rounds, one.details) == (other.scale, other.rounds, other.details)
