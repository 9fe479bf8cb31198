"""What cannot be copied says so, and what to do instead."""

from __future__ import annotations

import copy
import pickle

import pytest

import innet
from innet import programs
from innet.codecs import build_codec
from innet.core.errors import InputError
from innet.switch import Switch


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_switch(engine, copied):
    switch = Switch.load(programs.find("slots", 32).json(), engine)
    with pytest.raises(InputError, match=r"a Switch can be neither copied .*Switch\.load"):
        copied(switch)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_codecs_and_what_holds_them(copied):
    with pytest.raises(InputError, match=r"a Codec can be neither .* its state_dict there\.$"):
        copied(build_codec("topk"))
    with pytest.raises(InputError, match="a Collective can be neither copied nor pickled"):
        copied(innet.Collective(workers=2))
