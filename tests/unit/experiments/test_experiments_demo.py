"""The demonstration, with an oracle in the network's place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.capture_files import read_by_scapy
from support.summing import OracleSumming

from innet.core.errors import InputError, MissingToolError, UnknownNameError
from innet.core.settings import DemoSettings
from innet.experiments import demo
from innet.records import DEMO, Progress, TrainingRecord

CREATED = datetime(2030, 1, 2, tzinfo=UTC)
SHORT = DemoSettings(iterations=24, networks=())  # the oracle has no simulated time

pytestmark = pytest.mark.xdist_group("demo")  # which is set up once, not by each process


@pytest.fixture(scope="module")
def finished(tmp_path_factory: Any) -> tuple[demo.DemoResult, list[Progress], list[OracleSumming]]:
    events: list[Progress] = []
    made: list[OracleSumming] = []

    def make(**arguments: Any) -> OracleSumming:
        made.append(OracleSumming(**arguments))
        return made[-1]

    def draw(record: TrainingRecord, path: Path) -> None:
        path.write_text(record.format)

    result = demo.run(
        SHORT,
        tmp_path_factory.mktemp("demo") / "new" / "folder",
        created=CREATED,
        watch=events.append,
        draw=draw,
        make=make,
    )
    return result, events, made


def test_record_on_disk_is_the_result(finished: Any) -> None:
    result = finished[0]
    assert TrainingRecord.load(result.record_path, DEMO) == result.record
    assert result.record.created == CREATED
    assert result.record.settings == SHORT.model_dump(mode="json")
    assert [run.name for run in result.record.runs] == ["plain", "dense", "topk"]


def test_all_ways_start_equal_and_stay_near(finished: Any) -> None:
    plain, dense, topk = finished[0].record.runs
    assert plain.steps[0].loss == dense.steps[0].loss == topk.steps[0].loss
    losses = [[step.loss for step in run.steps] for run in (plain, dense)]
    np.testing.assert_allclose(*losses, rtol=1e-2)
    assert topk.steps[-1].loss != plain.steps[-1].loss
    assert topk.steps[-1].loss < 0.8 * topk.steps[0].loss


def test_every_iteration_of_the_network_runs_is_reported(finished: Any) -> None:
    plain, dense, topk = finished[0].record.runs
    assert (plain.exact_steps, plain.codec, plain.summed_by_network) == (0, "", False)
    assert dense.exact_steps == topk.exact_steps == SHORT.iterations
    assert (dense.codec, topk.codec) == ("oracle", "oracle top-k")
    assert topk.total("bytes_dense") / topk.total("bytes_sent") > 40


def test_rehearsal_leaves_no_trace_in_what_trains(finished: Any) -> None:
    made = finished[2]
    assert [each.calls for each in made] == [1, SHORT.iterations] * 2
    assert all(each.arguments["values_per_packet"] == 64 for each in made)


def test_each_step_is_told_as_it_is_made(finished: Any) -> None:
    result, events, _ = finished
    for run in result.record.runs:
        steps = [event.step for event in events if event.run == run.name and event.step]
        assert tuple(steps) == run.steps
    assert {event.run for event in events if event.note} == {"dense", "topk"}
    assert all(event.iterations == SHORT.iterations for event in events)


@pytest.mark.repeats("the record on disk, with a capture that cannot be written")
def test_the_record_is_kept_where_no_capture_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_pcap(*_: Any) -> None:
        raise InputError("no room")

    monkeypatch.setattr("innet.experiments.demo.write_pcap", write_pcap)
    with pytest.raises(InputError, match="no room"):
        demo.run(SHORT, tmp_path, created=CREATED, make=OracleSumming)
    assert len(TrainingRecord.load(tmp_path / demo.RECORD, DEMO).runs) == 3


def test_capture_holds_the_first_all_reduce_of_the_last_way(finished: Any) -> None:
    packets, times = read_by_scapy(finished[0].capture_path)
    assert packets == [b"\x01" * 60]
    np.testing.assert_allclose(times, [1e-3])


def test_plot_is_drawn_from_the_record(finished: Any) -> None:
    result = finished[0]
    assert result.plot_path is not None
    assert result.plot_path.read_text() == DEMO
    assert result.notes == ()


def test_without_matplotlib_it_goes_on_and_says_how_to_get_it(tmp_path: Path) -> None:
    def draw(record: TrainingRecord, path: Path) -> None:
        raise MissingToolError("matplotlib", "the plot", "pip install 'innet[plot]'")

    settings = DemoSettings(iterations=1, networks=())
    result = demo.run(settings, tmp_path, created=CREATED, draw=draw, make=OracleSumming)
    assert result.plot_path is None
    assert "pip install 'innet[plot]'" in result.notes[0]
    assert result.record_path.exists()


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        demo.run(SHORT, tmp_path / "file", created=CREATED, make=OracleSumming)


def test_an_unknown_framework_is_told_before_a_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown framework 'jax'\. Known: numpy, torch"):
        demo.run(DemoSettings(framework="jax"), tmp_path / "new", created=CREATED)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", [demo.RECORD, demo.PLOT, demo.CAPTURE])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_trained(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    events: list[Progress] = []
    with pytest.raises(InputError, match=f"cannot write .*{name}: Is a directory"):
        demo.run(SHORT, tmp_path, created=CREATED, make=OracleSumming, watch=events.append)
    assert events == []


def test_a_batch_larger_than_a_shard_is_told(tmp_path: Path) -> None:
    settings = DemoSettings(workers=32, batch_size=64)
    with pytest.raises(InputError, match="choose batch_size from 1 to 44, or fewer workers"):
        demo.run(settings, tmp_path, created=CREATED, make=OracleSumming)


@pytest.mark.repeats("that the ways stay near each other, with all iterations")
def test_default_settings_reach_the_promised_accuracy(tmp_path: Path) -> None:
    result = demo.run(DemoSettings(networks=()), tmp_path, created=CREATED, make=OracleSumming)
    plain, dense, topk = (run.final_score for run in result.record.runs)
    assert min(plain, dense, topk) >= 0.97
    assert abs(plain - dense) <= 0.01
    assert plain - topk <= 0.02
