"""The data, its distribution over workers, and the training loop."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from support.records import a_report

import innet.experiments
from innet.core.errors import ConfigError, InputError, UnknownNameError
from innet.core.local_sgd import LocalSgd
from innet.experiments.models import digits_cnn
from innet.experiments.models.model import MODELS, data_of, model_of
from innet.experiments.summing import plain_sum
from innet.experiments.training import (
    Data,
    PlainAverager,
    Samples,
    TrainingSchedule,
    batches,
    shards,
    steps_per_epoch,
    train,
    train_local,
    train_replica,
)
from innet.records import Report


@pytest.fixture(scope="module")
def digits() -> Data:
    return digits_cnn.load()


def numbered(count: int) -> Samples:
    """Samples that can be told apart by their labels."""
    return Samples(np.zeros((count, 8, 8), np.float32), np.arange(count))


class TestData:
    def test_split_is_the_same_each_time_and_loses_nothing(self, digits: Data) -> None:
        again = digits_cnn.load()
        assert np.array_equal(digits.train.inputs, again.train.inputs)
        assert np.array_equal(digits.test.targets, again.test.targets)
        assert (len(digits.train), len(digits.test)) == (1438, 359)
        images = np.concatenate([digits.train.inputs, digits.test.inputs]).reshape(1797, -1)
        assert images.sum() * 16 == pytest.approx(561718)  # of all pixels of the data set
        assert (images.min(), images.max(), images.dtype) == (0, 1, np.float32)

    def test_every_digit_is_in_both_parts(self, digits: Data) -> None:
        for part in (digits.train, digits.test):
            assert np.bincount(part.targets).min() >= 25
            assert len(np.bincount(part.targets)) == 10

    @pytest.mark.parametrize(("count", "workers"), [(10, 1), (10, 3), (10, 10), (1438, 32)])
    def test_shards_partition_the_samples(self, count: int, workers: int) -> None:
        parts = shards(numbered(count), workers)
        assert len(parts) == workers
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        together = np.concatenate([part.targets for part in parts])
        assert sorted(together) == list(range(count))

    @pytest.mark.parametrize("workers", [0, -1, 11])
    def test_impossible_shards_are_refused(self, workers: int) -> None:
        with pytest.raises(InputError, match="choose from 1 to 10 workers"):
            shards(numbered(10), workers)

    def test_an_epoch_shows_each_sample_once_and_the_next_in_another_order(self) -> None:
        parts = shards(numbered(24), 2)
        assert steps_per_epoch(parts, 4) == 3
        stream = batches(parts, 4, np.random.default_rng(0))
        first, second = (list(itertools.islice(stream, 3)) for _ in range(2))
        for worker, part in enumerate(parts):
            orders = [
                np.concatenate([step[worker].targets for step in epoch])
                for epoch in (first, second)
            ]
            assert sorted(orders[0]) == sorted(orders[1]) == sorted(part.targets)
            assert not np.array_equal(*orders)

    def test_equal_generators_give_equal_batches(self) -> None:
        parts = shards(numbered(24), 2)
        one, two = (batches(parts, 5, np.random.default_rng(7)) for _ in range(2))
        for left, right in itertools.islice(zip(one, two, strict=True), 9):
            assert all(map(np.array_equal, *([b.targets for b in side] for side in (left, right))))

    @pytest.mark.parametrize("size", [0, 13])
    def test_a_batch_that_does_not_fit_is_refused(self, size: int) -> None:
        with pytest.raises(InputError, match="choose batch_size from 1 to 12"):
            steps_per_epoch(shards(numbered(25), 2), size)


MODEL = digits_cnn.model()
SCHEDULE = TrainingSchedule(
    workers=4, iterations=5, batch_size=16, learning_rate=0.05, momentum=0.9
)


class TestTraining:
    def test_equal_seeds_equal_runs_other_seeds_other_runs(self, digits: Data) -> None:
        runs = [
            [step.loss for step in train(SCHEDULE, MODEL, digits, plain_sum, seed)]
            for seed in (1, 1, 2)
        ]
        assert runs[0] == runs[1]
        assert runs[0] != runs[2]

    def test_the_learning_rate_decays_as_half_a_cosine(self, digits: Data) -> None:
        schedule = replace(SCHEDULE, iterations=4, momentum=0.0, decay="cosine")
        rates = [schedule.rate(iteration) for iteration in range(1, 5)]
        assert rates == pytest.approx([0.05, 0.05 * 0.8535534, 0.025, 0.05 * 0.1464466])
        assert [SCHEDULE.rate(iteration) for iteration in (1, 5)] == [0.05, 0.05]
        parameters = []

        def gradient(flat: np.ndarray, *_: np.ndarray) -> tuple[float, np.ndarray]:
            parameters.append(flat.copy())
            return 1.0, np.ones_like(flat)

        list(train(schedule, replace(MODEL, gradient=gradient), digits, plain_sum, 0))
        moved = [float((one - two).mean()) for one, two in itertools.pairwise(parameters[::4])]
        assert moved == pytest.approx(rates[:3], rel=1e-4)

    def test_every_gradient_of_every_worker_reaches_the_reducer(self, digits: Data) -> None:
        computed, reduced = [], []

        def gradient(*args: np.ndarray) -> tuple[float, np.ndarray]:
            result = digits_cnn.gradient(*args)
            computed.append(result[1])
            return result

        def reduce(gradients: list[np.ndarray]) -> tuple[np.ndarray, None]:
            reduced.extend(gradients)
            return plain_sum(gradients)

        steps = list(train(SCHEDULE, replace(MODEL, gradient=gradient), digits, reduce, 0))
        assert len(steps) == 5
        assert len(computed) == 20
        assert all(left is right for left, right in zip(computed, reduced, strict=True))

    def test_the_optimizer_uses_what_the_reducer_answers(self, digits: Data) -> None:
        seen = []

        def gradient(flat: np.ndarray, *_: np.ndarray) -> tuple[float, np.ndarray]:
            seen.append(flat.copy())
            return 1.0, np.zeros_like(flat)

        def reduce(gradients: list[np.ndarray]) -> tuple[np.ndarray, None]:
            return np.full_like(gradients[0], 4.0), None  # a mean of 1 for 4 workers

        schedule = TrainingSchedule(
            workers=4, iterations=3, batch_size=1, learning_rate=0.5, momentum=0.5
        )
        list(train(schedule, replace(MODEL, gradient=gradient), digits, reduce, 0))
        first, second, third = seen[0], seen[4], seen[8]
        np.testing.assert_allclose(first - second, 0.5, atol=1e-6)  # v = 1
        np.testing.assert_allclose(second - third, 0.75, atol=1e-6)  # v = 1.5

    def test_workers_with_the_same_data_equal_one_worker(self, digits: Data) -> None:
        """The mean of n equal gradients is the gradient, whatever n is."""
        few = Data(digits.train.take(np.zeros(8, np.int64)), digits.test)
        losses = []
        for workers in (1, 4):
            schedule = TrainingSchedule(workers, 4, 2, learning_rate=0.05, momentum=0.9)
            losses.append([step.loss for step in train(schedule, MODEL, few, plain_sum, 0)])
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
        assert losses[0][-1] < losses[0][0]

    def test_accuracy_comes_after_each_epoch_and_at_the_end(self, digits: Data) -> None:
        few = Data(digits.train.take(np.arange(64)), digits.test)
        schedule = TrainingSchedule(
            4, iterations=25, batch_size=8, learning_rate=0.05, momentum=0.9
        )
        steps = list(train(schedule, MODEL, few, plain_sum, 0))
        assert [s.iteration for s in steps if s.score is not None] == [*range(2, 25, 2), 25]

    def test_reports_reach_the_steps(self, digits: Data) -> None:
        def reduce(gradients: list[np.ndarray]) -> tuple[np.ndarray, Report]:
            return plain_sum(gradients)[0], a_report(exact=True, bytes_sent=77)

        steps = list(train(SCHEDULE, MODEL, digits, reduce, 0))
        assert [(step.exact, step.bytes_sent) for step in steps] == [(True, 77)] * 5

    def test_divergence_is_told_with_the_remedy(self, digits: Data) -> None:
        schedule = TrainingSchedule(
            4, iterations=50, batch_size=16, learning_rate=1e6, momentum=0.9
        )
        with pytest.raises(InputError, match=r"diverged: .*Choose a learning_rate below 1e\+06"):
            list(train(schedule, MODEL, digits, plain_sum, 0))

    @pytest.mark.parametrize("by", ["train", "train_replica"])
    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (
                {"initial": lambda _: np.zeros(30, np.float32)},
                r"first parameters of model 'digits-cnn' are float32 \(30,\); .*\(55018,\)",
            ),
            ({"initial": lambda _: np.zeros(MODEL.size)}, r"are float64 \(55018,\)"),
            ({"initial": lambda _: [0.0] * MODEL.size}, "first parameters .* are list"),
            (
                {"gradient": lambda flat, *_: (1.0, flat[1:])},
                r"gradients of model 'digits-cnn' are float32 \(55017,\); .*\(55018,\)",
            ),
            ({"gradient": lambda flat, *_: (1.0, flat.astype(float))}, "gradients .* are float64"),
            (
                {"gradient": lambda flat, *_: flat},
                "gradient of model 'digits-cnn' returned a ndarray; expected is a tuple of the los",
            ),
            (
                {"gradient": lambda flat, *_: (None, flat)},
                "loss of model 'digits-cnn' is None; expected is a number",
            ),
            (
                {"evaluate": lambda *_: np.inf},
                "training diverged: the accuracy after iteration 1 is inf. Choose a learning_rate",
            ),
            (
                {"evaluate": lambda *_: None},
                "score of model 'digits-cnn' is None; expected is a number",
            ),
        ],
    )
    def test_a_model_that_answers_what_it_must_not(self, digits, by, change, match) -> None:
        model = replace(MODEL, **change)
        schedule = replace(SCHEDULE, iterations=1)
        if by == "train":
            steps = train(schedule, model, digits, plain_sum, 0)
        else:
            steps = train_replica(schedule, model, digits, lambda x: (x, None), seed=0, worker=0)
        with pytest.raises(InputError, match=match):
            next(steps)

    def test_learns_the_digits(self, digits: Data) -> None:
        schedule = TrainingSchedule(
            4, iterations=88, batch_size=16, learning_rate=0.05, momentum=0.9
        )
        steps = list(train(schedule, MODEL, digits, plain_sum, 0))
        assert steps[-1].score is not None
        assert steps[-1].score > 0.95

    def test_unknown_framework(self) -> None:
        with pytest.raises(InputError, match="Known: numpy, torch"):
            digits_cnn.FRAMEWORKS.get("jax")


def test_plain_sum_adds_in_the_order_of_workers_and_keeps_its_inputs() -> None:
    gradients = [np.array([value], np.float32) for value in (1.0, 2.0**25, -(2.0**25))]
    total, report = plain_sum(gradients)
    assert total[0] == 0.0  # 1 is lost beside 2**25; another order would keep it
    assert report is None
    assert gradients[0][0] == 1.0


class TestOfOthers:
    """What another distribution registers, and is not as it has to be."""

    @pytest.fixture
    def register(self, monkeypatch):
        def as_entry_point(made: object) -> str:
            monkeypatch.setitem(MODELS._loaded, "theirs", made)
            return "theirs"

        return as_entry_point

    @pytest.mark.parametrize(
        ("made", "match"),
        [
            (7, "model 'theirs' is no function that takes a framework's name or None: 7"),
            (lambda: MODEL, "model 'theirs' is no function that takes a framework's name or None"),
            (lambda _: None, r"model 'theirs' is made as NoneType; .* return an innet\..*Model"),
            (
                lambda _: replace(MODEL, shapes=[(3, 4)]),
                r"model 'theirs' has the shapes \[\(3, 4\)\]; they must be a mapping",
            ),
            (lambda _: replace(MODEL, shapes={"all": 12}), "has the shapes {'all': 12}"),
            (
                lambda _: replace(MODEL, recipe=None),
                "the recipe of model 'theirs' is None; expected is an innet.*Recipe. docs/extend",
            ),
            (
                lambda _: replace(MODEL, metric="loss"),
                "the metric of model 'theirs' is 'loss'; expected is an innet.records.Metric, "
                r"such as innet.records.ACCURACY. docs/extending.md, .A model to train.",
            ),
            (
                lambda _: replace(MODEL, load=lambda: None),
                'load of model \'theirs\' is no function that takes a part, "test" or "valid',
            ),
            (
                lambda _: replace(MODEL, gradient=lambda flat, batch: None),
                "gradient of model 'theirs' is no function that takes parameters, inputs, targets",
            ),
        ],
    )
    def test_a_model(self, register, made, match) -> None:
        name = register(made)
        with pytest.raises(ConfigError, match=match):
            model_of(name)

    @pytest.mark.parametrize(
        ("loaded", "match"),
        [
            ((np.zeros((3, 8)), np.zeros(3)), "data of model 'digits-cnn' are of type tuple"),
            (
                Data(Samples(np.zeros((3, 8)), np.zeros(2)), numbered(1)),
                "have 3 inputs and 2 targets in train",
            ),
            (Data(numbered(5), numbered(0)), "have 0 inputs and 0 targets in test"),
        ],
    )
    def test_data(self, loaded, match) -> None:
        with pytest.raises(InputError, match=match):
            data_of(replace(MODEL, load=lambda part: loaded), "test")


@pytest.mark.repeats("test_pytorchs_optimizers_step_as_those_of_numpy")
def test_adam_is_pytorchs(digits: Data) -> None:
    torch = pytest.importorskip("torch")
    schedule = TrainingSchedule(2, 6, 8, 0.01, 0.9, optimizer="adam", decay="cosine")
    found = [step.loss for step in train(schedule, MODEL, digits, plain_sum, seed=3)]
    for_parameters, for_batches = np.random.default_rng(3).spawn(2)
    at = torch.from_numpy(MODEL.initial(for_parameters).copy())
    optimizer = torch.optim.Adam([at], lr=0.01)
    stream = batches(shards(digits.train, 2), 8, for_batches)
    for iteration, loss in enumerate(found, 1):
        made = [MODEL.gradient(at.numpy(), each.inputs, each.targets) for each in next(stream)]
        assert loss == pytest.approx(sum(each for each, _ in made) / 2, rel=1e-4)
        at.grad = torch.from_numpy((made[0][1] + made[1][1]) / np.float32(2))
        optimizer.param_groups[0]["lr"] = schedule.rate(iteration)
        optimizer.step()


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"momentum": 0.5}, "momentum with optimizer adam"),
        ({"local_sgd": "4"}, "local_sgd with optimizer adam"),
        ({"codecs": ["dgc"]}, "has the momentum of SGD, and cannot stand beside"),
        ({"optimizer": "adamw:lr=1"}, "give lr as learning_rate instead"),
        ({"optimizer": "adamw:decay=1"}, "optimizer adamw: unknown key 'decay'. Known: amsgrad, b"),
        ({"optimizer": "adamw", "codecs": ["dgc"]}, "beside the optimizer adamw"),
        ({"optimizer": "muon"}, "optimizer 'muon' cannot be used"),
    ],
)
def test_what_adam_cannot_have_is_refused(more, match) -> None:
    with pytest.raises(ConfigError, match=match):
        innet.experiments.train(**{"optimizer": "adam", "epochs": 1, **more})


def test_optimizers_that_do_not_exist_are_listed() -> None:
    pytest.importorskip("torch")
    with pytest.raises(UnknownNameError, match=r"adamv.*adamw"):
        innet.experiments.train(optimizer="adamv", epochs=1)


@pytest.mark.parametrize("name", ["sgd:momentum=0.9", "adam:eps=1e-8"])
def test_pytorchs_optimizers_step_as_those_of_numpy(digits: Data, name: str) -> None:
    """The two that there are twice."""
    pytest.importorskip("torch")
    other = TrainingSchedule(2, 6, 8, 0.01, 0.9, optimizer=name.partition(":")[0], decay="cosine")
    losses = [
        [step.loss for step in train(each, MODEL, digits, plain_sum, seed=3)]
        for each in (replace(other, optimizer=name), other)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.repeats("the optimizers of test_pytorchs_optimizers_step_as_those_of_numpy")
def test_adam_has_a_learning_rate_of_its_own() -> None:
    record = innet.experiments.train(codecs=["dense"], optimizer="adam", epochs=1, workers=8)
    assert (record.settings["learning_rate"], record.settings["momentum"]) == (0.001, 0)
    plain, dense = record.runs
    assert dense.steps[-1].loss == pytest.approx(plain.steps[-1].loss, rel=1e-3)
    assert plain.steps[-1].loss < 0.9 * plain.steps[0].loss


class TestLocalSgd:
    """Local SGD and Hier-AVG, beside a loop that averages the parameters themselves."""

    RACKS = ((0, 1), (2, 3))
    SCHEDULE = TrainingSchedule(4, 7, 8, 0.05, 0.9)

    def by_hand(self, digits: Data, text: str) -> tuple[list[float], list[str]]:
        model = digits_cnn.model()
        for_parameters, for_batches = np.random.default_rng(5).spawn(2)
        start = model.initial(for_parameters).astype(np.float64)
        own, velocity = [start.copy() for _ in range(4)], [np.zeros_like(start) for _ in range(4)]
        stream = batches(shards(digits.train, 4), 8, for_batches)
        losses, scopes = [], list(itertools.islice(LocalSgd.parse(text).scopes(), 7))
        for scope in scopes:
            found = []
            for worker, part in enumerate(next(stream)):
                at = own[worker].astype(np.float32)
                loss, gradient = model.gradient(at, part.inputs, part.targets)
                velocity[worker] = 0.9 * velocity[worker] + gradient
                own[worker] = own[worker] - 0.05 * velocity[worker]
                found.append(loss)
            losses.append(sum(found) / 4)
            groups = {"job": [(0, 1, 2, 3)], "rack": self.RACKS, "none": []}[scope]
            for group in groups:
                mean = np.mean([own[worker] for worker in group], axis=0)
                for worker in group:
                    own[worker] = mean.copy()
        return losses, scopes

    @pytest.mark.parametrize("text", ["1", "3", "2,4", "1,3"])
    def test_parameters_are_averaged_when_it_is_time(self, digits: Data, text: str) -> None:
        losses, scopes = self.by_hand(digits, text)
        schedule = replace(self.SCHEDULE, local_sgd=LocalSgd.parse(text))
        average = PlainAverager(self.RACKS)
        steps = list(train_local(schedule, digits_cnn.model(), digits, average, 5))
        assert [step.scope for step in steps] == scopes
        assert [step.loss for step in steps] == pytest.approx(losses, rel=1e-4)
        assert steps[-1].score is not None

    def test_with_an_average_at_every_step_and_no_momentum_it_is_sgd(self, digits: Data) -> None:
        schedule = replace(self.SCHEDULE, momentum=0.0)
        plain = list(train(schedule, digits_cnn.model(), digits, plain_sum, 5))
        local = replace(schedule, local_sgd=LocalSgd(1))
        average = PlainAverager(self.RACKS)
        steps = list(train_local(local, digits_cnn.model(), digits, average, 5))
        expected = [step.loss for step in plain]
        assert [step.loss for step in steps] == pytest.approx(expected, rel=1e-4)


def test_the_learning_rate_rises_to_that_of_its_decay() -> None:
    schedule = TrainingSchedule(1, 8, 1, 0.4, 0.0, warmup=4)
    assert [schedule.rate(i) for i in range(1, 7)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    cosine, warm = (replace(schedule, decay="cosine", warmup=n) for n in (0, 4))
    assert warm.rate(2) == pytest.approx(cosine.rate(2) / 2)
    assert [warm.rate(i) for i in range(4, 9)] == [cosine.rate(i) for i in range(4, 9)]
