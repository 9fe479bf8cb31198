"""A resumed Collective gives the same bits."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from innet.allreduce.collective import Collective
from innet.core.errors import StateError
from innet.network import Faults

KEPT = ["topk", "scalecom", "dgc", "qsgd", "powersgd"]


def jobs(count, workers=3, size=600):
    rng = np.random.default_rng(11)
    return [list(rng.standard_normal((workers, size), np.float32)) for _ in range(count)]


def bits(collective, each):
    return [collective.all_reduce(job)[0].tobytes() for job in each]


@pytest.mark.parametrize("codec", KEPT)
def test_it_goes_on_with_the_same_bits(codec):
    steps = jobs(5)
    through = Collective(workers=3, codec=codec, seed=4)
    expected = bits(through, steps)
    first = Collective(workers=3, codec=codec, seed=4)
    bits(first, steps[:2])
    saved = pickle.loads(pickle.dumps(first.state_dict()))
    bits(first, steps)  # what was saved is a copy
    second = Collective(workers=3, codec=codec, seed=4, faults=Faults(loss=0.05))
    bits(second, steps[3:])  # what it had is replaced
    second.load_state_dict(saved)
    assert bits(second, steps[2:]) == expected[2:]
    assert second.state_dict()["completed"] == 5


def test_who_left_is_part_of_the_state():
    steps = jobs(3)
    first = Collective(workers=3, codec="topk")
    bits(first, steps[:1])
    first.leave(1)
    saved = first.state_dict()
    second = Collective(workers=3, codec="topk")
    second.load_state_dict(saved)
    assert second.present == (0, 2)
    assert bits(second, steps[1:]) == bits(first, steps[1:])


def test_a_state_of_another_collective_changes_nothing():
    steps = jobs(2)
    mine = Collective(workers=3, codec="topk")
    bits(mine, steps[:1])
    good = mine.state_dict()
    before = pickle.dumps(good)
    for change, message in {
        "workers": "workers 2, this Collective 3",
        "seed": "seed 9, this Collective 0",
        "version": "version 77",
    }.items():
        other = {**good, change: {"workers": 2, "seed": 9, "version": 77}[change]}
        with pytest.raises(StateError, match=message):
            mine.load_state_dict(other)
    for wrong in ({**good, "absent": [7]}, {**good, "codecs": []}, {**good, "completed": -1}):
        with pytest.raises(StateError, match="does not describe 3 workers"):
            mine.load_state_dict(wrong)
    with pytest.raises(StateError, match=r"give what Collective\.state_dict returned"):
        mine.load_state_dict({})
    # One worker's state is of another codec: what was loaded before it is taken back.
    broken = copy.deepcopy(good)
    broken["codecs"][2]["seed"] = 5
    broken["codecs"][0]["parts"]["error_feedback"]["residual"][:] = 1
    with pytest.raises(StateError, match="seed 5"):
        mine.load_state_dict(broken)
    assert pickle.dumps(mine.state_dict()) == before
