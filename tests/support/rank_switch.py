"""A switch that does more than all-reduces, for the ranks of a script of checks."""

from __future__ import annotations

import contextlib
import os
from unittest import mock

import torch.distributed as dist

from support.service import service_process


@contextlib.contextmanager
def switch_with_owners():
    """All ranks enter it together. Groups and hooks that they make meanwhile are at this switch."""
    options = ("--program", "collectives", "--values-per-packet", "64", "--jobs", "8")
    with contextlib.ExitStack() as stack:
        address = [None]
        if dist.get_rank() == 0:
            address[0] = stack.enter_context(service_process(*options))[1]
        dist.broadcast_object_list(address)
        stack.enter_context(mock.patch.dict(os.environ, {"INNET_SWITCH": address[0]}))
        yield
        dist.barrier()
