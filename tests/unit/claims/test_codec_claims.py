"""Claims that compare codecs: shares that are selected, times as published, convergence."""

from __future__ import annotations

import numpy as np
import pytest

from innet.claims import selection
from innet.claims.claim import ClaimContext, ReproduceOptions
from innet.claims.papers import paper_of
from innet.claims.selection import PublishedSelectionTime, SelectionQuality
from innet.claims.training import Convergence
from innet.core.settings import validate
from innet.experiments.comparison import Store

TOPK = {"preset": "topk", "carrier": "dense"}


def context(tmp_path, **options):
    return ClaimContext(paper_of("sidco-e"), ReproduceOptions(**options), Store(tmp_path, None))


def test_what_is_selected_is_compared_over_seeds(tmp_path):
    measure = validate(
        SelectionQuality,
        {
            "kind": "selection-quality",
            "model": "digits-cnn",
            "workers": 2,
            "steps": 10,
            "codecs": {"topk": TOPK, "threshold": {"preset": "gaussiank", "carrier": "dense"}},
            "targets": [0.05],
            "subject": "topk",
            "within": 1.01,
            "better_than": ["threshold"],
        },
    )
    found = measure.finding(context(tmp_path, seeds=2))
    assert found.holds is True  # top-k selects what is wanted, rounded down
    assert found.numbers["topk"]["mean"] == pytest.approx((1.0,), rel=2e-3)
    assert found.numbers["topk"]["deviation"] == (0.0,)
    assert found.numbers["threshold"]["off_by"][0] > 1.01
    assert "2 seeds" in found.setup
    other = measure.model_copy(update={"subject": "threshold", "better_than": ()})
    assert other.finding(context(tmp_path, seeds=1)).holds is False
    assert measure.finding(context(tmp_path, quick=True)).holds is None


def test_baselines_in_torch_select_what_they_should():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)  # twenty of the sample decide, so some draws are beyond the bounds
    x = np.random.default_rng(0).laplace(size=200_000).astype(np.float32)
    tensor = torch.from_numpy(x)
    largest = set(np.argsort(-np.abs(x))[:2000].tolist())
    assert set(selection.torch_topk(tensor, 0.01).tolist()) == largest
    found = [
        selection.torch_dgc(tensor, 0.01, sample) for sample in ("permutation", "draws", "strided")
    ]
    found += [selection.torch_sidco(tensor, 0.01, stages) for stages in (1, 2, 3)]
    for indices in found:
        magnitudes = np.abs(x)[indices.numpy()]
        assert 1200 < indices.numel() < 2700
        assert np.count_nonzero(np.abs(x) >= magnitudes.min()) == indices.numel()
    # Where most of the sample is by chance too small, what reaches the threshold is cut to k.
    tensor[::100] = 0
    assert selection.torch_dgc(tensor, 0.01, "strided").numel() == 2000


def test_times_are_those_of_one_thread_side_by_side(tmp_path):
    pytest.importorskip("torch")
    measure = validate(
        PublishedSelectionTime,
        {
            "kind": "published-selection-time",
            "elements": 20_000,
            "ratio": 0.01,
            "reference": "SIDCo-E, torch",
            "min_ratio": {"torch.topk": 1e9},
            "codecs": {"innet": TOPK},
        },
    )
    found = measure.finding(context(tmp_path))
    assert found.holds is False
    assert found.numbers["ratios"]["SIDCo-E, torch"] == 1
    assert found.numbers["selected"]["torch.topk"] == found.numbers["selected"]["innet"] == 1
    assert all(seconds > 0 for seconds in found.numbers["seconds"].values())
    assert measure.finding(context(tmp_path, quick=True)).setup.startswith("2,000 elements")


def test_codecs_train_like_for_like(tmp_path):
    measure = validate(
        Convergence,
        {
            "kind": "convergence",
            "model": "digits-cnn",
            "workers": 2,
            "batch_size": 300,
            "epochs": 2,
            "codecs": {"dense": "dense", "random": {"preset": "randomk", "selector": {"k": 1}}},
            "subject": "dense",
            "against": ["random"],
        },
    )
    found = measure.finding(context(tmp_path, seeds=1))
    assert found.holds is True
    assert "dense" in found.measured
    assert found.numbers["bytes_beside"]["random"] < 0.1
    assert [series.label for series in found.series] == ["plain", "dense", "random"]
    reverse = measure.model_copy(update={"subject": "random", "against": ("dense",)})
    assert reverse.finding(context(tmp_path, seeds=1)).holds is False  # from what was stored
    assert measure.finding(context(tmp_path, quick=True)).holds is None
