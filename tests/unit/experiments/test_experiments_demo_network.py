"""The demonstration over the real network: codec, packets, P4 program, switch."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.capture_files import read_by_scapy

from innet.core.settings import DemoSettings
from innet.experiments import demo

SETTINGS = DemoSettings(iterations=12)

pytestmark = pytest.mark.xdist_group("demo network")  # which is set up once, not by each process


@pytest.fixture(scope="module")
def result(tmp_path_factory: Any) -> demo.DemoResult:
    folder: Path = tmp_path_factory.mktemp("demo")
    return demo.run(SETTINGS, folder, created=datetime(2030, 1, 2, tzinfo=UTC))


def test_every_sum_is_exact(result: demo.DemoResult) -> None:
    for name in ("dense", "topk"):
        assert result.record.run(name).exact_steps == SETTINGS.iterations


def test_dense_learns_what_float32_learns(result: demo.DemoResult) -> None:
    plain, dense = (
        [step.loss for step in result.record.run(name).steps] for name in ("plain", "dense")
    )
    np.testing.assert_allclose(dense, plain, rtol=1e-4)


def test_quantisation_costs_less_than_float32_rounding(result: demo.DemoResult) -> None:
    for name in ("dense", "topk"):
        for step in result.record.run(name).steps:
            assert step.max_abs_error_sent is not None
            assert step.max_abs_error_sent < 1e-6


def test_every_packet_sent_passes_the_switch_once(result: demo.DemoResult) -> None:
    for name in ("dense", "topk"):
        run = result.record.run(name)
        assert run.total("switch_packets") == run.total("packets_sent") > 0
        assert run.total("packets_received") == run.total("packets_sent")
        assert run.total("retransmissions") == 0


def test_topk_sends_a_tenth(result: demo.DemoResult) -> None:
    assert result.record.run("topk").compression > 8
    assert result.record.run("dense").compression == pytest.approx(1, abs=0.01)


def test_capture_holds_all_packets_of_the_first_all_reduce_in_order(
    result: demo.DemoResult,
) -> None:
    packets, times = read_by_scapy(result.capture_path)
    first = result.record.run("topk").steps[0]
    assert len(packets) == first.packets_sent + first.packets_received
    assert np.all(np.diff(times) > 0)


def test_the_page_plays_an_all_reduce(result: demo.DemoResult) -> None:
    assert result.page_path is not None
    page = result.page_path.read_text()
    assert "<title>All-reduce of 4 workers, top-1 % LHC</title>" in page
    assert page.count('"kind":"host"') == 4
