"""When workers average: the periods of local SGD, and texts that are none."""

from __future__ import annotations

from itertools import islice

import pytest

from innet.core.errors import ConfigError
from innet.core.local_sgd import LocalSgd

LETTERS = {"job": "J", "rack": "r", "none": "."}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "JJJJJJJJJJJJ"),
        ("4", "...J...J...J"),
        ("2,6", ".r.r.J.r.r.J"),
        ("1, 3", "rrJrrJrrJrrJ"),
        ("4,6", "...r.J...r.J"),  # all workers' average is also each rack's
        ("steps({0: 1, 4: 3})", "JJJJ..J..J.."),
        ("steps({0: 1, 3: 2}),6", "rrr.rJ.r.r.J"),
    ],
)
def test_who_averages_after_each_step(text, expected):
    found = "".join(LETTERS[each] for each in islice(LocalSgd.parse(text).scopes(), 12))
    assert found == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no number of steps"),
        ("0", "is no number of steps"),
        ("4,", "is no number of steps"),
        ("-1,4", "is no number of steps"),
        ("1.5", "is no number of steps"),
        ("1,2,3", "write it as K2 or K1,K2"),
        ("8,4", "K1 must be less than K2"),
        ("4,4", "K1 must be less than K2"),
        ("steps(3)", "is no schedule"),
    ],
)
def test_what_says_no_steps(text, message):
    with pytest.raises(ConfigError, match=message):
        LocalSgd.parse(text)
