"""A switch that does more than all-reduces, for the ranks of a script of checks."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from unittest import mock

import torch.distributed as dist

from innet.service.process import LocalSwitch

SETTINGS = {"INNET_PROGRAM": "collectives", "INNET_VALUES": "64", "INNET_JOBS": "8"}


@contextlib.contextmanager
def switch_with_owners():
    """All ranks enter it together. Groups and hooks that they make meanwhile are at this switch,
    which ends with the first rank.
    """
    with mock.patch.dict(os.environ, _where()):
        yield
        dist.barrier()


@functools.cache
def _where():
    found = [None]
    if dist.get_rank() == 0:
        with mock.patch.dict(os.environ, SETTINGS):
            switch = LocalSwitch()
        atexit.register(switch.close)
        found[0] = {"INNET_SWITCH": switch.address, "INNET_KEY": switch.key}
    dist.broadcast_object_list(found)
    return found[0]
