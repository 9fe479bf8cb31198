"""A worker that was away catches up with what the codecs of the others have in common."""

from __future__ import annotations

import numpy as np
import pytest

import innet
from innet.codecs import build_codec
from innet.core.errors import StateError

SIZE = 3000


def jobs(count):
    rng = np.random.default_rng(0)
    keep = rng.random((count, 3, SIZE)) < 0.02
    return np.where(keep, rng.standard_normal((count, 3, SIZE)), 0).astype(np.float32)


@pytest.mark.parametrize("codec", ["lhc", "gs-sgd", "powersgd", "qsgd", "thc", "topk"])
def test_who_comes_back_has_the_others_counts_and_its_own_residual(codec):
    network = innet.Collective(workers=3, codec=codec)
    first, second, third = (list(job) for job in jobs(3))
    network.all_reduce(first)
    network.leave(1)
    residual = network.codecs[1].state_dict()["parts"]["error_feedback"]
    network.all_reduce(second)
    network.rejoin(1)
    own, other = (network.codecs[i].state_dict()["parts"] for i in (1, 0))
    np.testing.assert_equal(own["error_feedback"], residual)
    np.testing.assert_equal(own["selector"], other["selector"])
    np.testing.assert_equal(own["carrier"], other["carrier"])
    _, report = network.all_reduce(third)  # without that, the workers' codecs would disagree
    assert report.exact
    assert report.workers == 3


def test_another_codecs_state_is_not_adopted():
    codec = build_codec("lhc")
    for other in (build_codec("topk"), build_codec("lhc", seed=1), build_codec("lhc", layers=[3])):
        with pytest.raises(StateError, match="build the codec that the state was saved from"):
            codec.adopt(other.state_dict())
