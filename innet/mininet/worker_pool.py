"""The processes of a job on a Mininet network, and the messages to and from them."""

from __future__ import annotations

import json
import os
import selectors
import sys
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from innet.allreduce.loop import Vector
from innet.core import child_process
from innet.core.child_process import ChildProcess
from innet.core.errors import InnetError, NetworkError, StalledError
from innet.core.numbers import number_list
from innet.mininet.control import NetworkSwitches, read_register
from innet.mininet.network import check_switches
from innet.processes.settings import (
    NetworkJobSettings,
    ServerSettings,
    SessionSettings,
    WorkerSettings,
)
from innet.records import Report
from innet.service.coordinator import JobCoordinator
from innet.service.protocol import Message
from innet.topology import Plan, SharedPlan

_READY_SECONDS = 120.0
_STARTING_PER_CORE = 4  # workers that start at the same time
_TURN = 0.2  # seconds between two checks of the switches
_MARGIN = 30.0  # seconds beyond the workers' own deadline


class WorkerPool:
    """A process for each worker and server. As a context manager it starts and ends them.

    If the settings limit the wait for late workers (``partial_after``), the others go on without
    workers that are late, died or gave up, in the job's next epoch. The processes of dropped
    workers are ended.

    Args:
        net: Mininet's network, running.
        plan: the job.
        settings: of the workers; they differ in ``worker`` and the files.
        folder: for their settings, gradients, outcomes and logs.
        program: the module that they run.

    Attributes:
        departed: workers that dropped out, and why.
    """

    def __init__(
        self,
        net: Any,
        plan: Plan,
        settings: SessionSettings,
        folder: Path,
        program: str = "innet.processes.allreduce",
    ) -> None:
        self._net = net
        self._plan = plan
        self._settings = settings
        self._folder = folder
        self._program = program
        self.processes: list[ChildProcess] = []
        self.departed: dict[int, str] = {}
        self._servers: list[ChildProcess] = []
        self._switches = NetworkSwitches(
            plan, lambda switch, line: str(net.get(switch).command(line)), self._begin_epoch
        )
        self._job = JobCoordinator(
            settings.program,
            len(plan.workers),
            self._switches,
            self._tell,
            number=plan.job.number,
            epoch=plan.job.epoch,
        )
        self._job.start()
        self._goes_on = settings.partial_after is not None
        self._deadline = 0.0
        self._renew_by = 0.0
        self._events: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        try:
            for host in self._plan.servers:
                self._servers.append(self._launch_server(self._net.get(host.name)))
            for process in self._servers:
                self._await_ready(process)
            self._launch_workers()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def present(self) -> tuple[int, ...]:
        """The workers that take part."""
        return self._job.present

    @property
    def contributors(self) -> tuple[int, ...]:
        """The workers whose gradients are in the last sum; some may have died since."""
        return self._switches.plan.job.present

    def pids(self) -> list[int]:
        """The processes of workers and servers."""
        return [process.pid for process in [*self.processes, *self._servers] if process.running]

    def outcome(self, worker: int) -> Path:
        """The file to which a worker writes what verification needs."""
        return self._folder / f"outcome{worker}.npz"

    def output(self, worker: int) -> Path:
        """The file to which a worker writes its sum."""
        return self._folder / f"sum{worker}.npy"

    def write_gradient(self, worker: int, gradient: Vector) -> Path:
        """Write the file from which a worker reads its gradient; call it before the worker
        starts.
        """
        path = self._folder / f"gradient{worker}.npy"
        np.save(path, gradient)
        return path

    def all_reduce(self) -> list[Report]:
        """Run a round on all workers and wait for them; returns their reports by worker.

        Raises:
            NetworkError: a worker, server or switch ended.
            StalledError: a worker gave up, or nothing came in time; says whom it waits for.
        """
        return [Report.model_validate(event["report"]) for event in self.round()]

    def round(self) -> list[dict[str, Any]]:
        """Like ``round``; returns the workers' complete messages by worker."""
        self.begin()
        return self.finish()

    def begin(self) -> None:
        """Let all workers begin a round without waiting for them."""
        self._events.clear()
        for worker in self.present:
            self.outcome(worker).unlink(missing_ok=True)
            self.processes[worker].write_line("start")
        self._be_patient()

    def poll(self, seconds: float = _TURN) -> bool:
        """Handle messages for up to ``seconds``; returns whether all workers are done with the
        round.

        Raises:
            NetworkError: a worker, server or switch ended.
            StalledError: a worker gave up, or nothing came in time; says whom it waits for.
        """
        self._check_others()
        waiting = self._waiting()
        with selectors.DefaultSelector() as selector:
            for worker in waiting:
                selector.register(self.processes[worker].fileno(), selectors.EVENT_READ, worker)
            for key, _ in selector.select(seconds) if waiting else ():
                self._hear(int(key.data))
        self._expel_late()
        late = self._waiting()
        if late and time.monotonic() > self._deadline:
            names = number_list(late)
            raise StalledError(f"workers {names} were not done in time.")
        return not late

    def finish(self) -> list[dict[str, Any]]:
        """Wait until all workers are done with the current round; see ``round``."""
        while not self.poll():
            pass
        return [self._events[worker] for worker in sorted(self._events)]

    def _waiting(self) -> list[int]:
        """The workers that are not done with the round."""
        return [worker for worker in self.present if worker not in self._events]

    def _be_patient(self) -> None:
        self._deadline = time.monotonic() + self._settings.give_up + _MARGIN

    def _hear(self, worker: int) -> None:
        """Handle a worker's message. A worker that dies or gives up is dropped, if the others may
        go on.
        """
        process = self.processes[worker]
        try:
            event = self._event(process.read_line(_READY_SECONDS, "done"), process)
        except (NetworkError, StalledError) as error:
            if not self._goes_on or self.present == (worker,):
                raise
            self._lose(worker, str(error))
            return
        if "report" in event:
            self._events[worker] = event
        elif event.get("request") == "renew":
            if not self._job.is_renewing:
                self._renew_by = time.monotonic() + self._settings.give_up
            self._job.request_epoch(worker, event["epoch"], event["without"])

    def _lose(self, worker: int, why: str) -> None:
        self.departed[worker] = why
        self.processes[worker].end()
        self._job.expel([worker])

    def _expel_late(self) -> None:
        """End workers that were dropped, or that did not request the next epoch in time."""
        late = self._settings.partial_after
        for worker in sorted(self._job.absent - set(self.departed)):
            name = self.processes[worker].name
            self._lose(worker, f"{name} was late by {late:g} s or more.")
        if self._job.is_renewing and time.monotonic() > self._renew_by:
            for worker in self._job.awaited:
                name = self.processes[worker].name
                self._lose(worker, f"{name} did not request the next epoch when the others did.")

    def _begin_epoch(self, plan: Plan) -> None:
        """Send the epoch's plan to the servers, before the workers get it."""
        shared = getattr(self._net.topo, "plan", None)
        if isinstance(shared, SharedPlan):  # for inspection of the network
            self._net.topo.plan = shared.with_job(plan)
        for server in self._servers:
            server.send({"plan": {"absent": sorted(plan.job.absent)}})
            self._await_ready(server)
        self._be_patient()

    def _tell(self, worker: int, message: Message) -> None:
        """Answer a worker's request for the next epoch. The worker waits for nothing else."""
        if "plan" in message:
            self.processes[worker].send(message)

    def _check_others(self) -> None:
        """Raise NetworkError if a switch or a server has ended."""
        check_switches(self._net)
        for server in self._servers:
            if not server.running:
                raise server.death()

    def _launch_workers(self) -> None:
        """Start the workers, a few at a time: each is then ready soon, however many there are."""
        at_once = _STARTING_PER_CORE * (os.cpu_count() or 1)
        ready = 0
        for host in self._plan.workers:
            assert host.worker is not None
            if len(self.processes) - ready == at_once:
                self._await_ready(self.processes[ready])
                ready += 1
            self.processes.append(self._launch(host.worker, self._net.get(host.name)))
        for process in self.processes[ready:]:
            self._await_ready(process)

    def _await_ready(self, process: ChildProcess) -> None:
        self._event(process.read_line(_READY_SECONDS, "ready"), process)

    def _launch(self, worker: int, node: Any) -> ChildProcess:
        local: dict[str, Any] = {
            "worker": worker,
            "interface": node.defaultIntf().name,
            "outcome": self.outcome(worker),
        }
        if isinstance(self._settings, WorkerSettings):
            gradient = self._folder / f"gradient{worker}.npy"
            local["input"] = gradient if gradient.exists() else None
            local["output"] = self.output(worker)
        settings = self._settings.model_copy(update=local)
        return self._start(f"worker {worker}", node, self._program, settings)

    def _launch_server(self, node: Any) -> ChildProcess:
        shared = {name: getattr(self._settings, name) for name in NetworkJobSettings.model_fields}
        settings = ServerSettings(interface=node.defaultIntf().name, **shared)
        return self._start("parameter server", node, "innet.processes.parameter_server", settings)

    def _start(
        self, name: str, node: Any, program: str, settings: NetworkJobSettings
    ) -> ChildProcess:
        path = self._folder / f"{name.replace(' ', '')}.json"
        path.write_text(settings.model_dump_json(), encoding="utf-8")
        return ChildProcess(
            f"{name} on {node.name}",
            [child_process.PYTHON, "-m", program, path, "--wait"],
            path.with_suffix(".log"),
            node=node.pid,
            environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def _event(self, line: str, process: ChildProcess) -> dict[str, Any]:
        """The next message of a worker. Requests to read registers are answered here."""
        event: dict[str, Any] = json.loads(line)
        if "error" in event:
            kind = StalledError if event.get("stalled") else NetworkError
            raise kind(f"{process.name}: {event['error']}")
        if event.get("request") == "read":
            value = self._read(event["switch"], event["register"], event["index"])
            process.send({"value": value})
        return event

    def _read(self, switch: str, register: str, index: int) -> int | None:
        """A register's cell; None if the switch does not answer."""
        try:
            return read_register(self._net.get(switch), register, index)
        except InnetError:
            return None

    def _end(self) -> None:
        for process in [*self.processes, *self._servers]:
            process.end()


def interface_packets(switch: Any) -> int:
    """How many packets have arrived at a switch's interfaces, for both kinds of switch."""
    try:
        links = json.loads(switch.cmd("ip -s -j link"))
        return sum(
            int(link["stats64"]["rx"]["packets"]) for link in links if link["ifname"] != "lo"
        )
    except (ValueError, KeyError) as error:
        raise NetworkError(f"the interfaces of {switch.name} cannot be read: {error}.") from None
