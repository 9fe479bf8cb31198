"""A worker and the switch service are killed while four processes sum: benchmarks.soak, briefly."""

from __future__ import annotations

import pytest

from benchmarks.soak import Load, soak


@pytest.mark.repeats("the service's tests of workers and switches that die, all at once")
def test_kills_cost_no_sum_and_hang_nobody():
    run = soak(4, 4, load=Load(size=3000, pause=0.05), values=32, patience=120)
    assert run.stats.errors == []
    assert run.stats.kills == {"worker 0": 1, "switch": 1}
    assert len(run.stats.interruptions) == 2
    assert len(run.stats.epochs) >= 3
    assert set(run.stats.sums) == set(run.workers)
