"""Workers that train each by themselves, joined by nothing but the sum of their gradients."""

from __future__ import annotations

import concurrent.futures
import threading

import numpy as np
import pytest

from innet.core.errors import InputError
from innet.experiments.models.digits_cnn import model as digits
from innet.experiments.summing import plain_sum
from innet.experiments.training import TrainingSchedule, one_thread, train, train_replica
from innet.records import Report, Seconds

WORKERS = 3
SCHEDULE = TrainingSchedule(
    workers=WORKERS, iterations=4, batch_size=40, learning_rate=0.05, momentum=0.9
)
NOTHING = Report(
    exact=None,
    workers=WORKERS,
    codec="",
    program="",
    engine="",
    transport="",
    values_per_packet=32,
    elements=0,
    rounds=1,
    packets_sent=1,
    packets_received=1,
    bytes_sent=1,
    bytes_dense=1,
    seconds=Seconds(encode=0, network=0, decode=0, total=0),
    max_abs_error=None,
    max_abs_error_sent=None,
)


class Table:
    """Where workers lay down their gradients and take up the sum, once all are there."""

    def __init__(self):
        self.gradients = {}
        self.sum = None
        self.barrier = threading.Barrier(WORKERS, action=self.add, timeout=60)

    def add(self):
        self.sum, _ = plain_sum([self.gradients[worker] for worker in range(WORKERS)])

    def reduce(self, worker):
        def sum_of_all(gradient):
            self.gradients[worker] = gradient
            self.barrier.wait()
            total = self.sum
            self.barrier.wait()
            return total, NOTHING

        return sum_of_all


def test_replicas_are_the_training():
    model = digits("numpy")
    data = model.load()
    table = Table()

    def one(worker):
        reduce = table.reduce(worker)
        return list(train_replica(SCHEDULE, model, data, reduce, seed=1, worker=worker))

    with one_thread(), concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        steps = list(pool.map(one, range(WORKERS)))
        expected = list(train(SCHEDULE, model, data, plain_sum, 1))
    for index, step in enumerate(expected):
        losses = [each[index].loss for each in steps]
        assert step.loss == pytest.approx(np.mean(losses), rel=1e-15)
        assert steps[0][index].score == step.score
        assert all(each[index].score is None for each in steps[1:])
    assert expected[-1].score is not None


def test_divergence_is_told():
    model = digits("numpy")
    wild = TrainingSchedule(workers=1, iterations=9, batch_size=40, learning_rate=1e9, momentum=0.0)
    with pytest.raises(InputError, match="diverged"):
        list(train_replica(wild, model, model.load(), lambda g: (g, NOTHING), seed=1, worker=0))
