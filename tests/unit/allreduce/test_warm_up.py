"""What is compiled at first use is compiled by the warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from innet import kernels
from innet.allreduce.warm_up import warm_up
from innet.kernels.layout.lhc import HASHES


@pytest.mark.parametrize(
    ("codec", "repaired"),
    [
        ("lhc", HASHES),
        ({"preset": "topk", "carrier": {"hashes": 3}}, HASHES),
        ("gtopk", HASHES),
        ({"preset": "topk", "carrier": "union"}, ()),
        ("dense", ()),
    ],
)
def test_a_warm_up_needs_no_network_and_mends_what_cannot_be_peeled(codec, repaired, monkeypatch):
    """Real workers would compile it in the middle of a training, while the others wait."""
    mended = []
    cpu = kernels.get("cpu")
    unlock = cpu.lhc_unblock

    def recorded(bitmap, size, layout):
        mended.append(layout.hashes)
        return unlock(bitmap, size, layout)

    monkeypatch.setattr(cpu, "lhc_unblock", recorded)
    warm_up(codec, np.random.default_rng(0).standard_normal(1000, np.float32))
    assert sorted(mended) == sorted(repaired)
