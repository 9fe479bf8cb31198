"""Runs that are kept are found again, and by nothing but what they were asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from innet.core.errors import ConfigError, DivergedError, InputError
from innet.core.settings import TrainSettings
from innet.experiments import comparison as store_module
from innet.experiments.comparison import Store, methods
from innet.experiments.models.model import model_of

QUICK = TrainSettings(codecs=("dense", "topk"), workers=2, batch_size=300, epochs=1)
PLAIN, DENSE, TOPK = methods(QUICK)


def test_a_run_is_made_once(tmp_path):
    seen = []
    store = Store(tmp_path / "new", seen.append)
    made = store.run(QUICK, PLAIN, 3)
    steps = len(seen)
    assert steps == len(made.runs[0].steps) == 2
    assert store.run(QUICK, PLAIN, 3) == Store(tmp_path / "new").run(QUICK, PLAIN, 3) == made
    assert len(seen) == steps
    assert {event.title for event in seen} == {"digits-cnn, 2 workers, plain float32, seed 3"}
    assert made.settings["batch_size"] == 300
    assert made.settings["learning_rate"] == 0.05  # the model's
    assert made.runs[0].settings["seed"] == 3


def test_runs_with_other_workers_or_parameters_are_shown_apart():
    seen = []
    store = Store(None, seen.append)
    alone = QUICK.model_copy(update={"workers": 1})
    for settings in (QUICK, alone, QUICK):
        store.run(settings, PLAIN, 0, 1)
    assert len({event.run for event in seen}) == 3
    assert {event.title for event in seen} == {
        "digits-cnn, 2 workers, plain float32, seed 0",
        "digits-cnn, 1 worker, plain float32, seed 0",
    }


def test_whatever_matters_is_another_run(tmp_path):
    store = Store(tmp_path)
    denser = methods(QUICK.model_copy(update={"codecs": ({"preset": "topk", "carrier": "dense"},)}))
    paths = {
        store.path(QUICK, PLAIN, 0),
        store.path(QUICK, DENSE, 0),
        store.path(QUICK, TOPK, 0),
        store.path(QUICK, denser[1], 0),
        store.path(QUICK, TOPK, 1),
        store.path(QUICK, TOPK, 0, 1),
        store.path(QUICK.model_copy(update={"momentum": 0.5}), TOPK, 0),
        store.path(QUICK.model_copy(update={"workers": 4}), TOPK, 0),
        store.path(QUICK.model_copy(update={"decay": "cosine"}), TOPK, 0),
    }
    assert len(paths) == 9
    # What the model would take anyway, and which codecs were compared, is no difference.
    same = QUICK.model_copy(update={"momentum": 0.9, "codecs": ("topk",), "repeats": 7})
    assert store.path(same, TOPK, 0) in paths
    # A schedule is known by what it means.
    assert store.path(QUICK.model_copy(update={"schedule": "long"}), TOPK, 0) in paths


def test_a_model_without_a_long_schedule_says_so(monkeypatch):
    short = replace(model_of("digits-cnn"), long=None)
    monkeypatch.setattr(store_module, "model_of", lambda *_: short)
    with pytest.raises(ConfigError, match="no long schedule; leave schedule out"):
        Store(None).run(QUICK.model_copy(update={"schedule": "long"}), PLAIN, 0, 1)


def test_steps_bound_a_run(tmp_path):
    assert len(Store(None).run(QUICK, PLAIN, 0, 1).runs[0].steps) == 1
    assert not list(tmp_path.iterdir())


def test_a_damaged_run_is_told_with_what_mends_it(tmp_path):
    store = Store(tmp_path)
    path = store.path(QUICK, PLAIN, 0)
    path.write_text('{"format": "innet-tra')
    with pytest.raises(InputError, match=rf"{path}.*Remove this file, and the run is made again"):
        store.run(QUICK, PLAIN, 0)


def test_where_nothing_can_be_kept_nothing_is_trained(tmp_path):
    (tmp_path / "runs").touch()
    with pytest.raises(InputError, match=f"cannot make the folder {tmp_path}/runs: File exists"):
        Store(tmp_path / "runs", pytest.fail).run(QUICK, PLAIN, 0)


def test_a_divergence_is_remembered(tmp_path, monkeypatch):
    tried = []

    def diverging(method, trial):
        tried.append(trial.seed)
        raise DivergedError("the training diverged: the loss of iteration 2 is nan.")

    monkeypatch.setattr(store_module, "run_seed", diverging)
    for _ in range(2):
        with pytest.raises(DivergedError, match="iteration 2 is nan"):
            Store(tmp_path).run(QUICK, PLAIN, 0)
    assert tried == [0]
    (kept,) = tmp_path.iterdir()
    assert kept.suffix == ".diverged"
