"""Settings of jobs on a Mininet network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innet.allreduce.loop import Vector
from innet.bmv2.build import version
from innet.core.errors import InputError
from innet.core.settings import AllReduceSettings, MininetSettings
from innet.mininet.doctor import has_feature
from innet.mininet.topologies import Links, PlanTopo
from innet.processes.settings import NetworkJobSettings, WorkerSettings
from innet.scenarios import allreduce
from innet.topology import Plan, SharedPlan

_WINDOW_OF_BMV2 = 64
_QUEUE_OF_LINK = 15_000  # bytes that a TCLink queues without loss at any rate


class NetSettings(MininetSettings, NetworkJobSettings):
    """A job on a Mininet network, or several equal jobs."""

    def completed(self) -> NetSettings:
        """The settings with defaults filled in from the other settings and this machine.

        The window is all slots, or as much as simple_switch or a limited link can queue. It also
        chooses what delays packets, and a timeout that is longer than two round trips.
        """
        windows = [self.window]
        if self.window is None and self.switch == "bmv2":
            windows.append(_WINDOW_OF_BMV2)
        if self.window is None and self.rate is not None:
            # Links between switches carry one packet of each chunk for every job.
            held = self.queue or _QUEUE_OF_LINK // self.plan().layout.frame_size
            fitting = held // self.jobs
            windows.append(1 << max(0, fitting.bit_length() - 1))  # a power of two
        known = [window for window in windows if window is not None]
        changes: dict[str, Any] = {"window": min(known, default=None)}
        if self.link_delay:
            by = self.delay_by or ("netem" if has_feature("netem") else "workers")
            changes |= {"delay_by": by}
            if by == "workers":
                changes |= {"delay": self.link_delay / 1e3}
            if "timeout" not in self.model_fields_set:
                plan = self.plan()
                distances = plan.distances()
                links = max(distances[host.name] for host in plan.workers)
                changes |= {"timeout": self.timeout + 4 * links * self.link_delay / 1e3}
        return self.model_copy(update=changes)

    def of_job(self, job: int) -> NetSettings:
        """The settings of one of the jobs, counted from 1."""
        return self.model_copy(update={"job": job})

    def gradients(self) -> list[Vector]:
        """The workers' gradients. Those of job 1 are the same as ``innet allreduce``'s with these
        settings.

        Raises:
            InputError: they cannot be read, or are files and there are several jobs.
        """
        if self.input and self.jobs > 1:
            raise InputError(f"input files need a single job; there are {self.jobs}.")
        seed = self.seed + self.job - 1
        chosen: dict[str, Any] = {"seed": seed, "size": self.size, "density": self.density}
        if not self.input or "workers" in self.model_fields_set:
            chosen["workers"] = self.workers
        return allreduce.gradients(AllReduceSettings(input=self.input, **chosen))

    @property
    def limited(self) -> bool:
        """Whether the kernel limits links, so that they must be TCLinks."""
        return self.rate is not None or bool(self.link_delay and self.delay_by == "netem")

    @property
    def links(self) -> str:
        """For reports: the links' rate and delay, and what makes them; "" without."""
        said = [] if self.rate is None else [f"links of {self.rate:g} Mbit/s by the kernel's tbf"]
        if self.queue is not None:
            said.append(f"queues of {self.queue:,} packets")
        if self.link_delay:
            by = "the kernel's netem" if self.delay_by == "netem" else "the workers' own faults"
            said.append(f"links of {self.link_delay:g} ms by {by}")
        return ", ".join(said)

    def mininet_topo(self, plan: Plan | SharedPlan, folder: Path) -> PlanTopo:
        """The Mininet topology."""
        options: dict[str, Any] = {"pcap": self.pcap, "priority_queues": self.priority_queues}
        options |= {"thrift_port": self.thrift_port, "log_level": self.log_level}
        if self.switch == "bmv2":
            options |= {"simple_switch": self.simple_switch}
        else:
            options |= {"engine": self.engine, "seed": self.seed}
        netem = self.link_delay and self.delay_by == "netem"
        return PlanTopo(
            plan,
            switch=self.switch,
            switch_options=options,
            links=Links(
                rate=self.rate,
                delay=f"{self.link_delay:g}ms" if netem else None,
                queue=self.queue,
            ),
            folder=folder,
        )

    def of_worker(self) -> WorkerSettings:
        """The settings of the workers' processes, without those that differ between them."""
        names = NetworkJobSettings.model_fields
        shared = {name: getattr(self, name) for name in names}
        runs = f"simple_switch {version()}" if self.switch == "bmv2" else self.engine
        return WorkerSettings(
            worker=0, switch=runs, rounds=self.rounds, collective=self.collective, **shared
        )
