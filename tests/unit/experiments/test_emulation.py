"""A script's own training with emulated workers: gradients, time, record, and what is refused."""

from __future__ import annotations

import html
import itertools
import re
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

import innet  # noqa: E402 - after importorskip
from innet import EmulatedTraining  # noqa: E402
from innet.cli.app import app  # noqa: E402
from innet.core.errors import (  # noqa: E402
    CompositionError,
    ConfigError,
    DivergedError,
    InputError,
    StateError,
    UnknownNameError,
)
from innet.records import PERPLEXITY, TrainingRecord  # noqa: E402
from innet.torch.emulated_workers import EmulatedWorkers, split  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.xdist_group("emulated training")
INPUTS, TARGETS = torch.randn(24, 5, generator=torch.Generator().manual_seed(1)), None
TARGETS = INPUTS @ torch.arange(5.0)[:, None] + 1
WHOLE = slice(0, 24)
ROWS = (slice(0, 8), slice(8, 16), slice(16, 21))  # the last one cannot be divided evenly


def net(*layers):
    return nn.Sequential(*(layers or (nn.Linear(5, 4), nn.Tanh())), nn.Linear(4, 1))


def mean_square(model):
    return lambda x, y: nn.functional.mse_loss(model(x), y)


def train(run, model=None, rows=ROWS, **options):
    """A script's loop. Returns the model."""
    model = model or net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    run.attach(model, optimizer)
    for each in rows:
        optimizer.zero_grad()
        run.backward(mean_square(model), INPUTS[each], TARGETS[each], **options)
        optimizer.step()
    run.score(0.5)
    return model


def weights(model):
    return torch.cat([each.detach().reshape(-1).float() for each in model.parameters()])


def by_hand(seed=0, rows=ROWS):
    """The script without an emulation."""
    torch.manual_seed(seed)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for each in rows:
        optimizer.zero_grad()
        mean_square(model)(INPUTS[each], TARGETS[each]).backward()
        optimizer.step()
    return weights(model)


def emulated(**options):
    return EmulatedTraining(**{"workers": 3, "codecs": "dense", "networks": (), **options})


def first(**options):
    return next(iter(emulated(**options)))


class TestGradients:
    @pytest.mark.repeats("means of gradients that are those of the batch")
    def test_one_worker_is_the_script_alone(self):
        found = [weights(train(run)) for run in emulated(workers=1, codecs="exact")]
        assert all(torch.equal(each, by_hand()) for each in found)

    @pytest.mark.parametrize("workers", [3, 30])
    def test_the_mean_is_that_of_the_batch_however_it_is_divided(self, workers):
        """Also where there are fewer samples than workers."""
        found = [weights(train(run)) for run in emulated(workers=workers, codecs="exact")]
        for each in found:
            torch.testing.assert_close(each, by_hand(), rtol=1e-4, atol=1e-6)

    def test_a_codec_gets_what_each_worker_computes(self):
        """The same loop over a Collective by hand."""
        *_, run = emulated(codecs="topk:ratio=0.2")
        model = train(run, rows=ROWS[:2])

        torch.manual_seed(0)
        other = net()
        optimizer = torch.optim.SGD(other.parameters(), lr=0.05, momentum=0.9)
        shapes = {name: tuple(each.shape) for name, each in other.named_parameters()}
        network = innet.Collective(workers=3, codec="topk:ratio=0.2", layers=shapes)
        for rows in ROWS[:2]:
            gradients = []
            for x, y in zip(
                INPUTS[rows].tensor_split(3), TARGETS[rows].tensor_split(3), strict=True
            ):
                optimizer.zero_grad()
                mean_square(other)(x, y).backward()
                gradient = torch.cat([each.grad.reshape(-1) for each in other.parameters()])
                gradients.append(gradient.numpy() * np.float32(len(x) * 3 / 8))
            total, _ = network.all_reduce(gradients)
            mean = torch.from_numpy(total / np.float32(3))
            nn.utils.vector_to_parameters(weights(other), other.parameters())
            sizes = [each.numel() for each in other.parameters()]
            for each, piece in zip(other.parameters(), mean.split(sizes), strict=True):
                each.grad = piece.reshape(each.shape)
            optimizer.step()
        assert torch.equal(weights(model), weights(other))

    def test_own_batches_of_the_workers_count_the_same(self):
        run = first()
        model = net(nn.Linear(5, 4, bias=False))
        run.attach(model)
        own = [(INPUTS[:1], TARGETS[:1]), (INPUTS[1:8], TARGETS[1:8]), (INPUTS[8:], TARGETS[8:])]
        loss = run.backward(mean_square(model), batches=own)
        losses = [mean_square(model)(*each) for each in own]
        torch.testing.assert_close(loss, torch.stack(losses).mean())
        with pytest.raises(InputError, match="2 batches for 3 workers; give one each"):
            run.backward(mean_square(model), batches=own[:2])
        with pytest.raises(InputError, match="leave one of them out"):
            run.backward(mean_square(model), INPUTS, batches=own)

    def test_accumulation_is_one_sum(self):
        run, parts = first(networks="10g", codecs="exact"), (slice(0, 12), slice(12, 24))
        model = net()
        run.attach(model)
        run.backward(mean_square(model), INPUTS[parts[0]], TARGETS[parts[0]], synchronize=False)
        assert run.iteration == 0
        assert all(each.grad is None for each in model.parameters())
        with pytest.raises(StateError, match="call backward before"):
            run.score(0.5)
        with pytest.raises(StateError, match="its last 1 gradient of each worker wait"):
            run.done()
        run.backward(mean_square(model), INPUTS[parts[1]], TARGETS[parts[1]])
        found = torch.cat([each.grad.reshape(-1) for each in model.parameters()])
        (mean_square(model)(INPUTS, TARGETS) * 2).backward()  # on top, as grad is not zeroed
        both = torch.cat([each.grad.reshape(-1) for each in model.parameters()])
        torch.testing.assert_close(both, 2 * found, rtol=1e-4, atol=1e-6)
        (step,) = run.done().steps
        assert step.loss == pytest.approx(mean_square(model)(INPUTS, TARGETS).item(), rel=1e-5)
        assert run.done().simulated["10g"].compute == 2 * 200e-6

    def test_a_parameter_without_gradient_has_none(self):
        for run in emulated(codecs="topk:ratio=0.2"):
            model = nn.ModuleDict({"used": nn.Linear(5, 1), "unused": nn.Linear(5, 1)})
            run.attach(model)
            for rows in ROWS:
                run.backward(mean_square(model["used"]), INPUTS[rows], TARGETS[rows])
                assert model["unused"].weight.grad is None
                assert model["used"].weight.grad is not None

    def test_what_a_codec_kept_of_a_parameter_still_comes(self):
        """An iteration later, in which no worker has a gradient to it."""
        *_, run = emulated(workers=2, codecs="topk:ratio=0.1")
        model = nn.ModuleDict({"large": nn.Linear(5, 1), "small": nn.Linear(5, 1)})
        run.attach(model)
        run.backward(lambda x: (100 * model["large"](x) + 0.01 * model["small"](x)).mean(), INPUTS)
        model.zero_grad()
        for _ in range(12):
            run.backward(lambda x: 0 * model["large"](x).mean(), INPUTS)
        assert model["small"].weight.grad.abs().max() > 0

    def test_clipping_sees_the_mean(self):
        run = first(codecs="exact")
        model = net()
        run.attach(model)
        run.backward(mean_square(model), INPUTS, TARGETS)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        torch.manual_seed(0)
        other = net()
        mean_square(other)(INPUTS, TARGETS).backward()
        assert norm.item() == pytest.approx(
            nn.utils.clip_grad_norm_(other.parameters(), 1e-3).item()
        )

    def test_a_scaler_changes_nothing(self):
        """Neither gradients, nor what codecs keep when the scale changes, nor the loss."""
        found = []
        for scale in (None, 1024.0):
            *_, run = emulated(codecs="topk:ratio=0.2")
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            run.attach(model, optimizer)
            scaler = scale and torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1)
            for rows in ROWS:
                optimizer.zero_grad()
                run.backward(mean_square(model), INPUTS[rows], TARGETS[rows], scaler=scaler)
                if scaler:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
            found.append((weights(model), [step.loss for step in run.done().steps]))
        assert torch.equal(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_gradients_have_the_parameters_dtype(self, dtype):
        run = first(codecs="exact")
        model = nn.Sequential(nn.Linear(5, 4).to(dtype), nn.Linear(4, 1))
        run.attach(model)
        run.backward(lambda x: model[1](model[0](x.to(dtype)).float()).mean(), INPUTS)
        assert [each.grad.dtype for each in model.parameters()] == [dtype] * 2 + [torch.float32] * 2


class TestWorkers:
    def test_each_has_its_own_random_numbers_and_a_seed_the_same(self):
        seen: list[list[torch.Tensor]] = []
        for run in emulated(codecs=["dense", "qsgd"]):
            dropout, model, masks = nn.Dropout(0.5), net(), []

            def loss_of(x, y, dropout=dropout, model=model, masks=masks):
                masks.append(dropout(torch.ones_like(x)))
                return nn.functional.mse_loss(model(x * masks[-1]), y)

            run.attach(model)
            run.backward(loss_of, INPUTS, TARGETS)
            seen.append(masks)
        assert not any(torch.equal(a, b) for a, b in itertools.combinations(seen[0], 2))
        for masks in seen[1:]:
            assert all(map(torch.equal, masks, seen[0]))

    def test_batch_norm_is_of_each_part_and_its_statistics_of_worker_0(self):
        run = first()
        model = nn.Sequential(nn.BatchNorm1d(5, momentum=1.0), nn.Linear(5, 1))
        run.attach(model)
        means = []

        def loss_of(x):
            out = model[0](x)
            means.append(out.mean(0).abs().max())
            return model[1](out).square().mean()

        run.backward(loss_of, INPUTS)
        assert max(means) < 1e-6  # each part is normalized by itself
        torch.testing.assert_close(model[0].running_mean, INPUTS[:8].mean(0))
        assert model[0].num_batches_tracked == 1

    def test_an_error_says_whose_part_it_was(self):
        run = first()
        model = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1))
        run.attach(model)
        with pytest.raises(ValueError, match="more than 1 value") as error:
            run.backward(lambda x: model(x).mean(), INPUTS[:4])
        assert error.value.__notes__ == ["It was worker 1's part of the batch, of 1 samples."]
        assert all(each.grad is None for each in model.parameters())

    def test_not_finite_gradients_reach_all_and_no_codec(self):
        """As with a GradScaler, which then leaves the step out."""
        *_, run = emulated(codecs="topk:ratio=0.2", networks="10g")
        model = net()
        run.attach(model)
        for rows, factor in ((ROWS[0], 1.0), (ROWS[1], float("nan")), (ROWS[1], 1.0)):
            model.zero_grad()
            seen = iter(range(9))

            def loss_of(x, y, factor=factor, seen=seen):
                loss = mean_square(model)(x, y)
                if next(seen) == 1:
                    loss.register_hook(lambda gradient: gradient * factor)
                return loss

            run.backward(loss_of, INPUTS[rows], TARGETS[rows])
            finite = [bool(each.grad.isfinite().all()) for each in model.parameters()]
            assert finite == [factor == 1.0] * 4
        before, failed, after = run.done().steps
        assert (failed.scope, failed.packets_sent, after.exact) == ("none", 0, True)
        spent = failed.simulated_seconds["10g"] - before.simulated_seconds["10g"]
        assert spent == pytest.approx(200e-6)


class TestSplit:
    def test_parts_of_anything(self):
        Pair = namedtuple("Pair", "a b")
        batch = (
            {"ids": torch.arange(5), "texts": list("abcde")},
            Pair(np.arange(5), [torch.arange(5), torch.arange(10).reshape(5, 2)]),
            0.5,
            "mean",
        )
        parts = split(batch, 2)
        one, two = parts.arguments
        assert parts.shares == [6 / 5, 4 / 5]
        assert one[0]["ids"].tolist() == [0, 1, 2]
        assert two[0]["ids"].tolist() == [3, 4]
        assert (one[0]["texts"], two[0]["texts"]) == (["a", "b", "c"], ["d", "e"])
        assert isinstance(two[1], Pair)
        assert two[1].a.tolist() == [3, 4]
        assert two[1].b[1].tolist() == [[6, 7], [8, 9]]
        assert two[2:] == (0.5, "mean")

    def test_workers_without_samples(self):
        parts = split((torch.arange(2),), 3)
        assert parts.arguments[2] is None
        assert parts.shares == [1.5, 1.5, 0]

    @pytest.mark.parametrize(
        ("batch", "said"),
        [
            ((torch.zeros(3), torch.zeros(4)), "a batch with 3, 4 samples in its parts"),
            ((1.0, "mean"), "no tensor of the batch has samples"),
            ((), "no tensor of the batch has samples"),
            ((torch.zeros(0, 3),), "a batch with 0 samples"),
        ],
    )
    def test_what_cannot_be_divided(self, batch, said):
        with pytest.raises(InputError, match=re.escape(said)):
            split(batch, 2)


class TestRuns:
    def test_times_stragglers_and_scores(self, tmp_path: Path, capsys: Any) -> None:
        options = {
            "codecs": ["dense", "topk:ratio=0.2"],
            "networks": ["25g", "1g"],
            "straggler": "fixed:worker=1,factor=3",
            "compute": 1e-3,
            "seeds": 2,
            "title": "a small net",
        }
        emulation = emulated(**options)
        for run in emulation:
            train(run)
            assert run.simulated_seconds["1g"] > run.seconds == run.simulated_seconds["25g"] > 9e-3
            assert f"seed {run.seed}, iteration 3, 9." in str(run)
        record = emulation.report(tmp_path)
        assert [run.name for run in record.runs[:3]] == [
            "plain-seed-0",
            "dense-seed-0",
            "topk(ratio=0.2)-seed-0",
        ]
        assert len(record.runs) == 6
        for run in record.runs:
            assert run.simulated["25g"].compute == pytest.approx(9e-3)
            assert [step.score for step in run.steps] == [None, None, 0.5]
            assert run.exact_steps == (0 if run.codec == "" else 3)
        shown = " ".join(capsys.readouterr().out.split())
        assert "a small net: 3 workers, 3 iterations, seeds: 2" in shown
        assert "topk:ratio=0.2" in shown
        assert "Accuracy over simulated time" in shown
        assert "longer for stragglers (fixed:worker=1,factor=3)" in shown
        assert "0.1 and 0.1 ns per element (assumed)" in shown
        assert TrainingRecord.load(tmp_path / "emulation.json") == record
        assert (tmp_path / "emulation.png").stat().st_size > 10_000
        page = tmp_path / "page.html"
        words = ["report", str(tmp_path / "emulation.json"), "--html", str(page)]
        assert CliRunner().invoke(app, words).exit_code == 0
        called = "innet.EmulatedTraining(workers=3, networks=['25g', '1g'], compute=0.001,"
        assert called in html.unescape(page.read_text())
        again = emulated(**options)
        for run in again:
            train(run)
        for one, two in zip(record.runs, again.record.runs, strict=True):
            keys = {"loss", "score", "simulated_seconds", "bytes_sent"}
            assert [s.model_dump(include=keys) for s in one.steps] == [
                s.model_dump(include=keys) for s in two.steps
            ]

    def test_seeds_that_begin_alike_are_told(self):
        emulation = emulated(seeds=2)
        for run in emulation:
            torch.manual_seed(0)
            train(run)
        assert ["leave torch.manual_seed out" in each for each in emulation.notes] == [True]
        other = emulated(seeds=2)
        for run in other:
            train(run)
        assert other.notes == ()

    def test_codecs_with_momentum_take_it_from_sgd(self):
        *_, run = emulated(codecs="dgc")
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        run.attach(model, optimizer)
        (group,) = optimizer.param_groups
        assert (group["momentum"], group["nesterov"], group["lr"]) == (0.0, False, 0.1)
        torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=9)
        with pytest.raises(StateError, match="cycle_momentum=False"):
            run.backward(mean_square(model), INPUTS, TARGETS)
        for optimizer in (None, torch.optim.AdamW(model.parameters())):
            *_, run = emulated(codecs="dgc")
            with pytest.raises(InputError, match=r"attach a torch\.optim\.SGD"):
                run.attach(model, optimizer)

    def test_a_run_that_diverges_is_left_out(self):
        emulation = emulated(codecs=["dense", "topk:ratio=0.2"])
        for run in emulation:
            try:
                model = net()
                run.attach(model)
                run.backward(mean_square(model), INPUTS, TARGETS)
                with torch.no_grad():
                    for each in model.parameters():
                        each.fill_(float("inf") if run.codec == "dense" else 0.1)
                run.backward(mean_square(model), INPUTS, TARGETS)
            except DivergedError as error:
                assert "dense, seed 0: the training diverged: the loss of iteration 2" in str(error)  # noqa: PT017
        assert [run.settings["method"] for run in emulation.record.runs] == [
            "plain float32",
            "topk:ratio=0.2",
        ]
        assert emulation.notes == ("dense, seed 0, diverged and is left out.",)


class TestRefused:
    def test_a_model_from_outside_of_the_loop(self):
        model, runs = net(), iter(emulated())
        train(next(runs), model)
        run = next(runs)
        with pytest.raises(InputError, match="make the model inside of the loop"):
            train(run, model)

    def test_other_batches(self):
        runs = iter(emulated())
        train(next(runs))
        run = next(runs)
        with pytest.raises(InputError, match="they see other batches"):
            train(run, rows=ROWS[::-1])

    def test_an_optimizer_of_another_model(self):
        optimizer = torch.optim.AdamW(net().parameters())
        with pytest.raises(InputError, match="none of the model's 4 parameters"):
            first().attach(net(), optimizer)

    @pytest.mark.parametrize(
        ("model", "said"),
        [
            (lambda: nn.Linear(2, 1).double(), "parameter 'weight' is torch.float64"),
            (lambda: nn.SyncBatchNorm(3), "SyncBatchNorm, which needs a process group"),
            (lambda: nn.LazyLinear(3), "not initialized yet"),
            (lambda: nn.Linear(2, 1).requires_grad_(False), "no parameter of the model requires"),
        ],
    )
    def test_models_that_cannot_be_summed(self, model, said):
        with pytest.raises(InputError, match=said):
            first().attach(model())

    def test_sparse_gradients(self):
        run, model = first(), nn.Embedding(9, 2, sparse=True)
        run.attach(model)
        with pytest.raises(InputError, match="'weight' is sparse"):
            run.backward(lambda x: model(x).mean(), torch.arange(9))

    def test_parameters_that_are_unfrozen_later(self):
        run, model = first(), net()
        model[0].requires_grad_(False)
        run.attach(model)
        model[0].requires_grad_(True)
        with pytest.raises(StateError, match=r"parameter '0.weight' did not require"):
            run.backward(mean_square(model), INPUTS, TARGETS)

    @pytest.mark.parametrize("wrong", [lambda x: 1.0, lambda x: x, lambda x: None])
    def test_what_is_no_loss(self, wrong):
        run = first()
        run.attach(net())
        with pytest.raises(InputError, match="expected is the mean loss of its samples"):
            run.backward(wrong, INPUTS)

    def test_a_loss_in_place_of_its_function(self):
        run, model = first(), net()
        run.attach(model)
        with pytest.raises(InputError, match="backward got a Tensor; expected is a function"):
            run.backward(model(INPUTS).mean(), INPUTS)

    @pytest.mark.parametrize(
        ("score", "error", "said"),
        [
            (97.5, InputError, "expected is a share from 0 to 1"),
            ("good", InputError, "the accuracy is 'good'; expected is a number"),
            (float("nan"), DivergedError, "the accuracy of iteration 3 is nan"),
        ],
    )
    def test_scores(self, score, error, said):
        run = first()
        train(run)
        with pytest.raises(error, match=said):
            run.score(score)
        other = first(metric=PERPLEXITY)
        train(other)
        other.score(torch.tensor([97.5], requires_grad=True))

    def test_the_order_of_calls(self):
        run = first()
        for call in (lambda: run.score(0.5), lambda: run.backward(None, INPUTS)):
            with pytest.raises(StateError, match=r"call run.attach\(model, optimizer\) first"):
                call()
        with pytest.raises(StateError, match="give networks='25g'"):
            _ = run.seconds
        run.attach(net())
        with pytest.raises(StateError, match="has its model already"):
            run.attach(net())
        with pytest.raises(StateError, match=r"has no iteration; call run\.backward"):
            run.done()

    def test_a_turn_that_attaches_no_model_is_skipped(self):
        emulation = emulated(codecs=["dense", "topk"])
        for run in emulation:
            if run.codec == "topk":
                train(run)
        assert [run.name for run in emulation.record.runs] == ["topk-seed-0"]
        for _ in emulation:
            pass
        with pytest.raises(InputError, match="no run is complete yet"):
            _ = emulation.record

    def test_seeds_of_unequal_length(self):
        emulation = emulated(seeds=2)
        for run in emulation:
            train(run, rows=ROWS[: 2 + run.seed])
        with pytest.raises(InputError, match="train and score all seeds of a codec alike"):
            _ = emulation.record

    def test_settings(self):
        with pytest.raises(ConfigError, match=r"unknown key 'network'. Did you mean 'networks'"):
            emulated(network="25g")
        with pytest.raises(UnknownNameError, match="sometimes"):
            emulated(straggler="sometimes", networks="25g")
        with pytest.raises(ConfigError, match="straggler and pauses change simulated time alone"):
            emulated(straggler="lognormal")
        with pytest.raises(ConfigError, match=r"metric = 'accuracy' cannot be used"):
            emulated(metric="accuracy")

    def test_codecs_are_checked_before_anything_is_trained(self):
        with pytest.raises(UnknownNameError, match="topq"):
            emulated(codecs="topq")
        with pytest.raises(ConfigError, match="the codec Mine is a class; give it a name"):
            emulated(codecs=["dense", type("Mine", (), {})])
        run = first(codecs={"preset": "scalecom", "selector": {"rates": [2, 3]}})
        with pytest.raises((CompositionError, InputError, ConfigError), match="layers"):
            run.attach(net())


def test_the_digest_is_of_all_that_a_model_has():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    workers = EmulatedWorkers(model, 2)
    before = workers.digest()
    model[1].running_mean += 1
    assert workers.digest() != before
