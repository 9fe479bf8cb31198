"""Errors reach whoever started the process in which they were raised."""

from __future__ import annotations

import pickle

import pytest

from innet.core.errors import InnetError, MissingToolError, UnknownNameError

ERRORS = [
    UnknownNameError("codec", "dens", ["dense", "topk"], of="a list"),
    MissingToolError("p4c", "compiling", "Install it."),
    *(
        kind("what happened")
        for kind in InnetError.__subclasses__()
        if kind != MissingToolError and kind.__init__ is InnetError.__init__
    ),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_come_back_from_another_process_as_they_were(error):
    error.add_note("and more")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
