"""Logs of trainings: the numbers of the record, read back."""

from __future__ import annotations

import csv
import sys

import pytest

from innet.core.errors import ConfigError, MissingToolError
from innet.records import Progress, Step
from innet.records.report import Seconds
from innet.reports.training_log import TrainingLog, numbers_of

STEPS = [
    Step(iteration=1, loss=2.3, simulated_seconds={"100g": 1 / 3}),
    Step(
        iteration=2, loss=0.1 + 0.2, score=0.5, exact=True, bytes_sent=2**40 + 1, packets_sent=3,
        seconds=Seconds(encode=1e-7, network=0.1, decode=0.2, total=0.5),
        simulated_seconds={"100g": 2 / 3},
    ),
]  # fmt: skip
RUNS = ("plain-seed-0", "topk (selector/ratio=0.05)", "topk /selector(ratio=0.05)")


def write(kinds, folder):
    with TrainingLog(kinds, folder) as log:
        for run in RUNS:
            log(Progress(run=run, title=run, iterations=2, note="preparing"))
            for step in STEPS:
                log(Progress(run=run, title=run, iterations=2, step=step))


def test_numbers_are_those_that_are_known():
    first, second = map(numbers_of, STEPS)
    assert first["loss"] == 2.3
    assert first["simulated_seconds.100g"] == 1 / 3
    assert not {"iteration", "score", "exact", "seconds"} & first.keys()
    assert second["exact"] == 1.0
    assert second["seconds.encode"] == 1e-7
    assert "seconds.switch" not in second


def test_csv_files_are_the_record(tmp_path):
    for _ in range(2):  # the second replaces the first
        write(["csv"], tmp_path)
    files = sorted(path.name for path in (tmp_path / "log").iterdir())
    assert files == [
        "plain-seed-0.csv",
        "topk_selector_ratio=0.05.csv",
        "topk_selector_ratio=0.05_.csv",
    ]
    for name in files:
        with (tmp_path / "log" / name).open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row.pop("iteration") for row in rows] == ["1", "2"]
        found = [{key: float(value) for key, value in row.items() if value} for row in rows]
        assert found == [numbers_of(step) for step in STEPS]


def test_tensorboard_events_are_the_record(tmp_path):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    make_ndarray = pytest.importorskip("tensorboard.util.tensor_util").make_ndarray
    for _ in range(2):
        write(["tensorboard", "tensorboard"], tmp_path)
    folders = sorted((tmp_path / "log").iterdir())
    assert len(folders) == len(RUNS)
    for folder in folders:
        (_,) = folder.iterdir()
        events = event_accumulator.EventAccumulator(str(folder)).Reload()
        found = [{}, {}]
        for tag in events.Tags()["tensors"]:
            assert events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars"
            for event in events.Tensors(tag):
                value = make_ndarray(event.tensor_proto).item()
                found[event.step - 1][tag.replace("/", ".")] = value
        assert found == [numbers_of(step) for step in STEPS]


def test_what_cannot_be_logged_is_said_at_once(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="no log 'wandb'; choose tensorboard or csv"):
        TrainingLog(["csv", "wandb"], tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(MissingToolError, match=r"innet\[tensorboard\].*--log csv"):
        TrainingLog(["tensorboard"], tmp_path)
    assert not (tmp_path / "log").exists()
    TrainingLog([], tmp_path)
    assert not (tmp_path / "log").exists()
