"""Several jobs on the same switches and links, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from innet.core.errors import InputError, StalledError
from innet.core.reduce_op import Segment, ThinSegment
from innet.network import Host
from innet.protocol import Timing
from innet.sim import Network
from innet.switch import Switch
from innet.switch.frontend.loader import load_text
from innet.topology.aggregation import WorkerEnd, aggregation_of
from innet.topology.plan import SharedPlan

Round = Sequence[Segment] | Sequence[ThinSegment]
Later = Callable[[int, int], Sequence[float]]
"""Of a job and its round, both from 0: by how many seconds later each worker begins."""


@dataclass(frozen=True, slots=True)
class JobRound:
    """A round of a job, in simulated seconds.

    Attributes:
        job: position in the plan.
        begin: when its workers began.
        end: when the last of them had its results.
    """

    job: int
    begin: float
    end: float


class SharedEmulation:
    """The network of several jobs in simulated time, whose packets share queues and links.

    Args:
        shared: the jobs' plans.
        network: rates, delays and queues.
        timing: timeouts of the workers.
        seed: of losses.

    Attributes:
        simulation: the network.
        workers: the workers' ends, by job and index.
        servers: the parameter servers of the jobs that have one.

    Raises:
        InputError: a network that cannot carry the jobs' packets, or packets of several layouts.
    """

    def __init__(
        self,
        shared: SharedPlan,
        network: Network,
        *,
        timing: Timing | None = None,
        seed: int = 0,
    ) -> None:
        # Its compiled code takes a second to load.
        from innet.sim.simulation import TIMING, Cable, Simulation  # noqa: PLC0415

        layout = shared.jobs[0].layout
        if any(plan.layout != layout for plan in shared.jobs):
            raise InputError("jobs on one network have packets of the same layout.")
        self._shared = shared
        timing = TIMING if timing is None else timing
        switches: dict[str, Switch | None] = {}
        for number, planned in enumerate(shared.switches):
            switch = Switch(
                load_text(planned.program.text()),
                seed=seed + number,
                priority_queues=network.priorities,
            )
            for command in planned.commands:
                switch.command(command)
            switches[planned.name] = switch
        self.workers: list[list[WorkerEnd]] = []
        self._ends: list[dict[int, Host]] = []
        self._servers: list[dict[int, Host]] = []
        cables: list[Cable] = []
        first = 0
        for plan in shared.jobs:
            aggregation = aggregation_of(plan.aggregation)
            where = plan.attachments()
            ends: dict[int, Host] = {}
            servers: dict[int, Host] = {}
            workers: list[WorkerEnd] = []
            for number, host in enumerate(plan.hosts):
                port = where[number + 1]
                cables.append(Cable(port.node, port.port, first + number))
                if host.role == "worker":
                    workers.append(aggregation.worker_end(plan, host, timing))
                    ends[first + number] = workers[-1]
                else:
                    servers[first + number] = aggregation.server_end(plan, host)
            first += len(plan.hosts)
            self.workers.append(workers)
            self._ends.append(ends)
            self._servers.append(servers)
        trunks = dict.fromkeys(link for plan in shared.jobs for link in plan.trunks())
        cables += [Cable(*link.a, None, *link.b) for link in trunks]
        for plan in shared.jobs:
            network.check_priority(plan.job.priority)
        self.simulation = Simulation(network, layout, switches, cables, first, seed=seed)
        self.servers = [end for each in self._servers for end in each.values()]

    def set_pace(self, job: int, rate: float) -> None:
        """Let packets of a job's hosts leave at a rate, bits per second; see ``Network``."""
        self.simulation.set_pace([*self._ends[job], *self._servers[job]], rate)

    def run(
        self,
        rounds: Sequence[Sequence[Round]],
        starts: Mapping[int, float] | None = None,
        delays: Sequence[Sequence[float]] = (),
        later: Later | None = None,
    ) -> list[JobRound]:
        """Let all jobs do their rounds, each one when the one before is done.

        Args:
            rounds: of each job.
            starts: when a job begins, by position, seconds from now; by default now.
            delays: of each job, seconds from a round's end to the begin of the next, one fewer than
                rounds; by default none.
            later: by how much later than the others workers begin; by default they do together.

        Returns:
            All rounds, in the order in which they ended.

        Raises:
            StalledError: a worker gave up.
            InputError: rounds of other than all jobs.
        """
        if len(rounds) != len(self._ends):
            raise InputError(f"rounds of {len(rounds)} jobs, but there are {len(self._ends)}.")
        left = [list(each) for each in rounds]
        waits = [list(each) for each in delays] or [[] for _ in rounds]
        running: dict[int, tuple[int, float]] = {}
        now = self.simulation.now

        def launch(job: int, at: float) -> None:
            number = len(rounds[job]) - len(left[job])
            segments = left[job].pop(0)
            begins = dict.fromkeys(self._ends[job], at)
            if later is not None:
                by = zip(begins, later(job, number), strict=True)
                begins = {host: at + seconds for host, seconds in by}
            for end, begin in zip(self.workers[job], begins.values(), strict=True):
                end.start(segments, begin)
            group = self.simulation.launch(self._ends[job], begins, self._servers[job])
            running[group] = job, at

        for job, each in enumerate(left):
            if each:
                launch(job, now + (starts or {}).get(job, 0.0))
        done: list[JobRound] = []
        while running:
            try:
                group = self.simulation.wait()
            except StalledError as error:
                waiting = sorted(job for job, _ in running.values())
                raise StalledError(f"jobs {waiting}: {error}") from error
            job, begin = running.pop(group)
            end = max(self.simulation.finished(host) for host in self._ends[job])
            done.append(JobRound(job, begin, end))
            if left[job]:
                launch(job, end + (waits[job].pop(0) if waits[job] else 0.0))
        return done
