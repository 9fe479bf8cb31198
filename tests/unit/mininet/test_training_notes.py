"""A training on a Mininet network that fails says so, as one in memory does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.settings import TrainSettings
from innet.experiments import training as in_memory
from innet.experiments.summing import SumMethod
from innet.mininet import training
from innet.mininet.settings import NetSettings
from innet.records import Step

EPOCHS = TrainSettings(epochs=1, batch_size=300)


@pytest.fixture
def without_mininet(monkeypatch):
    """The network's run is the plain run with other losses and scores."""

    def fail_with(growth, score):
        def on_network(settings, chosen, trial, method, inspect):
            run, _ = in_memory.run_method(SumMethod("plain", "plain", None), trial)
            first = run.steps[0].model_dump()
            steps = [
                Step(**first | {"iteration": n, "loss": 2.3 * growth**n, "score": score})
                for n in range(1, 23)
            ]
            about = {"codec": "dense", "method": "dense in Mininet", "seed": 0}
            return run.model_copy(
                update={"name": "net", "title": "net", "steps": tuple(steps), "settings": about}
            )

        monkeypatch.setattr(training, "_on_network", on_network)

    return fail_with


@pytest.mark.repeats("the same with other outcomes", but=["3.0-*"])
@pytest.mark.parametrize(
    ("growth", "score", "said"),
    [
        (3.0, 0.1, "dense in Mininet: its loss grew, the training diverged."),
        (1.0, 0.1, "dense in Mininet: its accuracy, 10.0 %, is no better than guessing (10.0 %)."),
        (0.9, 0.9, None),
    ],
)
def test_what_failed_is_said(without_mininet, tmp_path, growth, score, said):
    without_mininet(growth, score)
    result = training.run(
        NetSettings(workers=2), EPOCHS, tmp_path, created=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert [note for note in result.notes if note.startswith("dense")] == list(result.notes)
    assert len(result.notes) == (said is not None)
    assert said is None or result.notes[0].startswith(said)


def test_the_command_prints_it(without_mininet, monkeypatch, tmp_path):
    without_mininet(3.0, 0.1)
    monkeypatch.setattr("innet.mininet.network.require_root", lambda what: None)
    options = ["net", "train", "--epochs", "1", "--workers", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0
    assert "its loss grew, the training diverged" in " ".join(result.stderr.split())
