"""Settings of the processes of a job, read from TOML or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from innet.core import settings
from innet.core.errors import ConfigError, InputError
from innet.core.files import read_toml
from innet.core.settings import (
    ALL_REDUCE,
    AnyPath,
    CollectiveName,
    Density,
    Rounds,
    ServiceTransport,
    Size,
)
from innet.network import Faults
from innet.protocol import Timing, network_timing
from innet.topology import Plan, Request, SharedPlan, aggregation_of, plan_jobs


class NetworkJobSettings(settings.JobSettings):
    """A job on a network: the settings that its workers and switches share."""

    def plan(self) -> Plan:
        """The plan of the job.

        Raises:
            InputError: the program is too small for the job, or there is no such job.
        """
        if self.job > self.jobs:
            raise InputError(f"there is no job {self.job}; the network has {self.jobs}.")
        return self.shared_plan().jobs[self.job - 1]

    def shared_plan(self) -> SharedPlan:
        """The plan of the network with all its jobs.

        Raises:
            InputError: the program is too small for the jobs, or serves several in simulated time
                only.
        """
        if self.jobs > 1 and not aggregation_of(self.program).partitioned:
            raise InputError(
                f"{self.jobs} jobs: {self.program} serves one job of a network of processes, and "
                "several in simulated time only; choose slots or tree for several."
            )
        request = Request(
            workers=self.workers,
            window=self.window,
            framing=self.framing,
            allow_partial=self.partial_after is not None,
            racks=self.racks,
            depth=self.depth,
            topology=self.topology,
            ports=self.ports,
        )
        return plan_jobs(self.program, self.values_per_packet, request, self.jobs)

    def timing(self) -> Timing:
        """The workers' timeouts."""
        return network_timing(self.timeout, self.give_up, self.partial_after)


class SessionSettings(NetworkJobSettings):
    """One worker of a job.

    Attributes:
        worker: its index.
        service: HOST:PORT of a switch service (``innet switch serve``) to join, instead of the
            network that the job's settings describe. The service determines program, values and
            window.
        service_job: the job's name there.
        service_transport: how packets go there: auto, udp, shm or another's name.
        key_file: the file with the service's key.
        interface: the network interface for raw Ethernet; not needed for UDP.
        switch: the kind of switch, for the report.
        outcome: output file (.npz) for the verification of the last all-reduce.
    """

    worker: Annotated[int, Field(ge=0)]
    service: str | None = None
    service_job: str = "innet"
    service_transport: ServiceTransport = "auto"
    key_file: AnyPath | None = None
    interface: str | None = None
    switch: str = "unknown"
    outcome: AnyPath | None = None

    @field_validator("worker")
    @classmethod
    def _is_one_of_them(cls, worker: int, others: ValidationInfo) -> int:
        workers = others.data.get("workers", worker + 1)  # missing if it is invalid itself
        if worker >= workers:
            raise ValueError(f"the job has {workers} workers, from 0 to {workers - 1}")
        return worker

    def faults(self) -> Faults | None:
        """The worker's faults on its packets; None without."""
        if not (self.loss or self.duplicate or self.reorder or self.delay):
            return None
        plan = self.plan()  # a service is always a single switch
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
        density: share of nonzero elements.
        rounds: number of successive all-reduces.
        output: output file (.npy) for the last result.
        collective: what the workers do.
    """

    input: AnyPath | None = None
    size: Size = 1_000_000
    density: Density = 1.0
    rounds: Rounds = 1
    output: AnyPath | None = None
    collective: CollectiveName = ALL_REDUCE


class ServerSettings(NetworkJobSettings):
    """The parameter server of a job.

    Attributes:
        interface: the network interface for raw Ethernet; not needed for UDP.
    """

    interface: str | None = None


def mapping_in(path: Path) -> dict[str, Any]:
    """The unchecked content of a settings file.

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
