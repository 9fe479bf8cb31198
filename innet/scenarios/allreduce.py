"""One all-reduce of generated tensors, or of tensors from NumPy files."""

from __future__ import annotations

import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.collective import Collective
from innet.allreduce.worker import Worker
from innet.core.errors import InputError
from innet.core.settings import (
    AllReduceSettings,
    CollectiveName,
    FaultSettings,
    SimulateSettings,
)
from innet.core.shards import Shards
from innet.network import Faults, Outage
from innet.protocol import Timing
from innet.records import Report
from innet.sim import Network
from innet.topology import Request, make_plan
from innet.topology.emulation import default_timing

# Errors that NumPy raises for damaged files, and for files of other formats.
_UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    OverflowError,
    SyntaxError,
    RuntimeError,  # an encrypted or deeply nested one
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def gradients(settings: AllReduceSettings) -> list[NDArray[Any]]:
    """The workers' tensors: from ``settings.input``, or generated.

    Raises:
        InputError: a file that cannot be used, another number of arrays than workers, or tensors
            that do not fit into memory.
    """
    if settings.input:
        tensors = read(settings.input)
        if "workers" in settings.model_fields_set and settings.workers != len(tensors):
            raise InputError(
                f"workers = {settings.workers}, but the input holds {len(tensors)} arrays, one for "
                "each worker; leave workers out, or give as many arrays."
            )
        return tensors
    too_large = InputError(
        f"{settings.size} elements for each of {settings.workers} workers do not fit the "
        "memory; choose a smaller size or fewer workers."
    )
    # Linux allows allocating more memory than there is, and kills the process that uses it.
    if settings.workers * settings.size * np.dtype(np.float32).itemsize > _memory():
        raise too_large
    rng = np.random.default_rng(settings.seed)
    try:
        return generate(settings.workers, settings.size, settings.density, rng)
    except MemoryError:
        raise too_large from None


def run_collective(
    collective: Collective, name: CollectiveName, tensors: Sequence[NDArray[Any]]
) -> tuple[NDArray[Any] | None, Report]:
    """Do what ``name`` says with the workers' tensors; the root is worker 0.

    Returns:
        The result, None of a barrier: the sum, its parts one after the other, the parts that were
        gathered (of each worker's tensor its own), or the root's tensor; and the report.
    """
    if name == "barrier":
        return None, collective.barrier()
    if name == "broadcast":
        return collective.broadcast(tensors[0])
    if name == "reduce":
        return collective.reduce(tensors)
    if name == "all-gather":
        shards = Shards.of(tensors[0].size, range(len(tensors)))
        flat = [tensor.reshape(-1) for tensor in tensors]
        return collective.all_gather(
            [each[shards.part(worker)] for worker, each in enumerate(flat)]
        )
    if name == "reduce-scatter":
        parts, report = collective.reduce_scatter(tensors)
        return np.concatenate(parts), report
    return collective.all_reduce(tensors)


def take_part(
    worker: Worker, name: CollectiveName, tensor: NDArray[Any]
) -> tuple[NDArray[Any] | None, Report]:
    """``run_collective`` of one worker; None where it has no result."""
    if name == "barrier":
        return None, worker.barrier()
    if name == "broadcast":
        return worker.broadcast(tensor)
    if name == "reduce":
        return worker.reduce(tensor)
    if name == "all-gather":
        shards = Shards.of(tensor.size, worker.plan.job.present)
        sizes = [end - begin for begin, end in pairwise(shards.bounds)]
        return worker.all_gather(tensor.reshape(-1)[shards.part(worker.worker)], sizes=sizes)
    return worker.reduce_scatter(tensor) if name == "reduce-scatter" else worker.all_reduce(tensor)


def _memory() -> float:
    """Bytes of memory of this machine; infinite if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # names that not every system knows
        return math.inf


def faults_of(settings: FaultSettings, workers: int) -> Faults | None:
    """The faults of a network with this number of workers; None if there are none.

    Raises:
        InputError: an outage of a worker that does not exist.
    """
    given = settings.model_dump(exclude_unset=True)
    if not given:
        return None
    for worker in sorted({worker for each in settings.outages for worker in each.workers}):
        if worker >= workers:
            raise InputError(f"there is no worker {worker} to cut off; the job has {workers}.")
    outages = tuple(
        Outage(
            each.begin,
            math.inf if each.end is None else each.end,
            tuple(worker + 1 for worker in each.workers),
            each.switches,
        )
        for each in settings.outages
    )
    return Faults(**{**given, "outages": outages})


def timing_of(
    settings: AllReduceSettings | SimulateSettings, network: Network | None = None
) -> Timing | None:
    """The workers' timing, or None for the default.

    Args:
        settings: of the job.
        network: if packets take simulated time. Time-outs are then those of such a network.

    Raises:
        InputError: settings of which no network can be planned.
    """
    if settings.window_control == "fixed" and settings.partial_after is None:
        return None
    usual = Timing()
    if network is not None:
        request = Request(
            **settings.model_dump(
                include={
                    "workers", "window", "framing", "topology", "racks", "depth", "ports", "thin",
                }
            )
        )  # fmt: skip
        stated = getattr(settings, "elements_per_packet", None)  # of thin packets
        plan = make_plan(settings.program, stated or settings.values_per_packet, request)
        usual = default_timing(plan, network)
    return replace(
        usual, window_control=settings.window_control, partial_after=settings.partial_after
    )


def generate(
    workers: int, size: int, density: float, rng: np.random.Generator
) -> list[NDArray[np.float32]]:
    """Normally distributed tensors of shape (size,), zero except at a share ``density`` of indices.

    The indices are independent for each worker. Their number is the same for all.
    """
    filled = round(density * size)
    tensors = []
    for _ in range(workers):
        tensor = np.zeros(size, np.float32)
        values = rng.standard_normal(filled, np.float32)
        values[values == 0] = 1  # a drawn zero would lower the density by chance
        # At density 1 there is nothing to draw, and drawing would take longest.
        indices = slice(None) if filled == size else rng.choice(size, filled, replace=False)
        tensor[indices] = values
        tensors.append(tensor)
    return tensors


def read(paths: Sequence[Path]) -> list[NDArray[Any]]:
    """One tensor per worker: every array of every file, in order.

    An .npy file holds one worker's tensor, an .npz file a tensor in each array. Dtypes and shapes
    are not changed; the collective checks them.

    Raises:
        InputError: a file that cannot be read, or holds no arrays of numbers.
    """
    tensors: list[NDArray[Any]] = []
    for path in paths:
        try:
            # Opened here, as NumPy leaves a file open that it cannot read. Pickled objects are
            # refused, as they could run code.
            with path.open("rb") as stream:
                loaded = np.load(stream, allow_pickle=False)
                if isinstance(loaded, np.ndarray):
                    tensors.append(loaded)
                else:
                    tensors += [loaded[name] for name in loaded.files]
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}.") from None
        except MemoryError:
            raise InputError(
                f"the memory has no room for what {path} says it holds; if that is not what was "
                "saved, the file is damaged."
            ) from None
        except _UNREADABLE:
            raise InputError(
                f"{path} is no NumPy file of numbers; write it by numpy.savez or numpy.save."
            ) from None
    if not tensors:
        raise InputError(
            f"there is no array in {', '.join(map(str, paths))}; one per worker is needed."
        )
    return tensors
