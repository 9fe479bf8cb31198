"""What a worker's process is told: one settings model, read from TOML or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from innet.core import settings
from innet.core.errors import ConfigError, InputError
from innet.core.settings import (
    AnyPath,
    Density,
    Model,
    Rounds,
    Size,
    load_toml,
    read_toml,
    validate,
)
from innet.network import Faults
from innet.protocol import Timing, network_timing
from innet.topology import Plan, Request, SharedPlan, plan_jobs


class JobSettings(settings.JobSettings):
    """A job on a network, as all its workers and its switches know it."""

    def plan(self) -> Plan:
        """The network, as the job sees it.

        Raises:
            InputError: the program has no room for what is asked, or there is no such job.
        """
        if self.job > self.jobs:
            raise InputError(f"there is no job {self.job}; the network has {self.jobs}.")
        return self.shared_plan().jobs[self.job - 1]

    def shared_plan(self) -> SharedPlan:
        """The network with all jobs on it.

        Raises:
            InputError: the program has no room for what is asked.
        """
        request = Request(
            workers=self.workers,
            window=self.window,
            framing=self.framing,
            racks=self.racks,
            depth=self.depth,
            topology=self.topology,
            ports=self.ports,
        )
        return plan_jobs(self.program, self.values_per_packet, request, self.jobs)

    def timing(self) -> Timing:
        """How patient the workers are."""
        return network_timing(self.timeout, self.give_up, self.partial_after)


class SessionSettings(JobSettings):
    """One worker of a job, whatever it sums.

    Attributes:
        worker: its index.
        service: HOST:PORT of a switch service (``innet switch serve``) to join, instead of the
            network that the job's settings describe; program, values and window are then its own.
        service_job: the job's name there.
        key_file: a file that holds the service's key.
        interface: where to send raw Ethernet; not needed for UDP.
        switch: what runs the program, for the report.
        outcome: where all that verification needs of the last all-reduce goes (.npz).
    """

    worker: Annotated[int, Field(ge=0)]
    service: str | None = None
    service_job: str = "innet"
    key_file: AnyPath | None = None
    interface: str | None = None
    switch: str = "unknown"
    outcome: AnyPath | None = None

    @field_validator("worker")
    @classmethod
    def _is_one_of_them(cls, worker: int, others: ValidationInfo) -> int:
        workers = others.data.get("workers", worker + 1)  # not there where it is wrong itself
        if worker >= workers:
            raise ValueError(f"the job has {workers} workers, from 0 to {workers - 1}")
        return worker

    def faults(self) -> Faults | None:
        """What the worker does to its own packets; None for nothing."""
        if not (self.loss or self.duplicate or self.reorder or self.delay):
            return None
        plan = self.plan()  # with a service, its shape is all the same: one switch
        return Faults(
            loss=self.loss,
            duplicate=self.duplicate,
            reorder=self.reorder,
            delay=self.delay * plan.distance(plan.workers[self.worker]),
            hold=0.01,
            tick=1e-4,
        )


class WorkerSettings(SessionSettings):
    """One worker of all-reduces.

    Attributes:
        input: a NumPy file (.npy) with this worker's gradient; generated if not given.
        size: elements of a generated gradient.
        density: share of its elements that are not zero.
        rounds: how many all-reduces, one after the other.
        output: where the sum of the last one goes (.npy).
    """

    input: AnyPath | None = None
    size: Size = 1_000_000
    density: Density = 1.0
    rounds: Rounds = 1
    output: AnyPath | None = None


class ServerSettings(JobSettings):
    """The parameter server of a job.

    Attributes:
        interface: where to send raw Ethernet; not needed for UDP.
    """

    interface: str | None = None


def read(path: Path) -> WorkerSettings:
    """A worker's settings from a TOML or, if its name ends so, a JSON file.

    Raises:
        ConfigError: the file cannot be read, or names a key that cannot be used.
    """
    return read_as(path, WorkerSettings)


def read_server(path: Path) -> ServerSettings:
    """The same for a parameter server."""
    return read_as(path, ServerSettings)


def read_as(path: Path, kind: type[Model]) -> Model:
    """The same for any settings."""
    if path.suffix != ".json":
        return load_toml(path, kind)
    return validate(kind, _json(path), source=str(path))


def mapping_in(path: Path) -> dict[str, Any]:
    """What a file of settings holds, unchecked.

    Raises:
        ConfigError: it cannot be read.
    """
    return _json(path) if path.suffix == ".json" else read_toml(path)


def _json(path: Path) -> dict[str, Any]:
    try:
        mapping = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}.") from None
    if not isinstance(mapping, dict):
        raise ConfigError(f"{path} holds no settings: it must be a JSON object.")
    return mapping
