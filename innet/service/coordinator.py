"""Membership of jobs and the start of their epochs, without sockets or clocks.

A job begins an epoch when all its workers are ready. Packets of earlier epochs are ignored. After a
failure every worker requests the next epoch, and may name workers to continue without. The epoch
begins when all others have requested it. A worker that was left out takes part again in the first
epoch that begins after its own request.

    absent ── join ──► joined ── ready ──► ready ── all are ready ──► running
                                             ▲                         │  │
                                             ├──── request_epoch ──────┘  │
                                             └── request_epoch ── left out ◄┘

The switch service coordinates the workers that connect to it (``Jobs``); a run in Mininet
coordinates the worker processes that it has started (``innet.mininet.worker_pool``).
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from innet.core.errors import InputError
from innet.core.numbers import is_int
from innet.core.settings import MAX_WORKERS, too_many_workers
from innet.protocol.admission import epoch_after
from innet.service.protocol import MAX_CONFIG, MAX_NAME, TOKEN, Message
from innet.transport.peers import Peer

_FEW = 16  # workers; so few are named to all at every arrival


class Switches(Protocol):
    """The switches that a job runs on, as its coordinator controls them."""

    def begin_epoch(self, job: JobCoordinator) -> Message:
        """Admit exactly ``job.present``, under ``job.epoch``.

        Returns:
            The description of the plan, for these workers.
        """

    def late_workers(self, job: JobCoordinator) -> frozenset[int]:
        """Workers that results of this epoch lack, if results do not name them themselves."""

    def end_job(self, job: JobCoordinator) -> None:
        """Admit none of its workers."""


class MemberState(enum.Enum):
    """The state of a worker; see above."""

    JOINED = "joined"
    READY = "ready"
    RUNNING = "running"
    LEFT_OUT = "left out"


@dataclass(slots=True)
class JobMember:
    """A worker of a job.

    Attributes:
        client: its client's number, for messages.
        token: what its hello datagram must hold, if it has to show its address.
        state: its state.
        address: the source of its frames, once it is known.
        is_new: it was not in the previous epoch.
        requested: when it requested the next epoch, as an increasing number.
        without: workers that it wants to continue without.
    """

    client: int
    token: bytes = b""
    state: MemberState = MemberState.JOINED
    address: Peer | None = None
    is_new: bool = True
    requested: int = 0
    without: frozenset[int] = frozenset()


@dataclass(slots=True)
class JobCoordinator:
    """The workers of one job, and the epochs that they go through together.

    Attributes:
        name: as its workers call it.
        workers: how many it has.
        switches: what it runs on.
        tell: takes (client, message): messages for workers.
        partition: its part of the switch.
        number, epoch: as in the header.
        epochs: how many have begun.
        config: what all workers have in common, as the first who said so has it.
        absent: workers that take no part in this epoch.
        members: by worker.
    """

    name: str
    workers: int
    switches: Switches
    tell: Callable[[int, Message], None]
    partition: int = 0
    number: int = 1
    epoch: int = 0
    epochs: int = 0
    config: str | None = None
    absent: frozenset[int] = frozenset()
    members: dict[int, JobMember] = field(default_factory=dict)
    _requests: int = 0

    def _in(self, state: MemberState) -> set[int]:
        return {worker for worker, member in self.members.items() if member.state is state}

    @property
    def present(self) -> tuple[int, ...]:
        """Workers that take part in this epoch."""
        return tuple(worker for worker in range(self.workers) if worker not in self.absent)

    @property
    def is_running(self) -> bool:
        """Whether all workers of this epoch are in it."""
        return self._in(MemberState.RUNNING) == set(self.present)

    @property
    def is_renewing(self) -> bool:
        """Whether somebody waits for the next epoch."""
        return bool(self._in(MemberState.READY))

    @property
    def left_out(self) -> set[int]:
        """Workers without whom the next epoch begins."""
        ready = self._in(MemberState.READY)
        out = set(self.absent - ready)
        # The first who requested it decides; requests of those who are left out do not count.
        for worker in sorted(ready, key=lambda each: self.members[each].requested):
            if worker not in out:
                out |= self.members[worker].without
        return out

    @property
    def awaited(self) -> list[int]:
        """Workers that the next epoch waits for."""
        there = self._in(MemberState.READY) | self.left_out
        return [worker for worker in range(self.workers) if worker not in there]

    def start(self) -> None:
        """Start a job whose workers are all present, in an epoch that the switches have already."""
        self.members = {
            worker: JobMember(worker, state=MemberState.RUNNING, is_new=False)
            for worker in range(self.workers)
        }

    def ready(self, worker: int) -> None:
        """A worker that has joined is ready."""
        self._set_ready(self.members[worker])
        self._tell_others(worker, {"joined": worker})
        self._begin_if_all_are_ready(worker)

    def request_epoch(self, worker: int, epoch: object, without: object = ()) -> None:
        """A worker requests the next epoch.

        A request from an earlier epoch has no effect, as the next epoch has already begun.

        Args:
            worker: its index.
            epoch: the epoch that it is in.
            without: workers that it wants to continue without.

        Raises:
            InputError: it cannot continue without these.
        """
        if not (isinstance(without, (list, tuple)) and all(map(is_int, without))) or (
            worker in without
        ):
            raise InputError(f"worker {worker} cannot go on without {without!r:.100}.")
        member = self.members[worker]
        if member.state is MemberState.JOINED:
            return
        if member.state is not MemberState.LEFT_OUT and epoch != self.epoch:
            return
        if member.state is not MemberState.READY:
            self._set_ready(member)
            self._tell_others(worker, {"renewing": worker})
        late = self.switches.late_workers(self) if self.awaited else frozenset()
        member.without = (late.union(without) & frozenset(range(self.workers))) - {worker}
        self._begin_if_all_are_ready(worker)

    def leave(self, worker: int, *, on_purpose: bool = False) -> JobMember:
        """A worker is gone. The others wait for it unless they leave it out; it may join again."""
        member = self.members.pop(worker)
        if self.members:
            self._tell_others(worker, {"left": worker, "on_purpose": on_purpose}, *MemberState)
            self._tell_awaited()
        else:
            self.switches.end_job(self)
        return member

    def expel(self, workers: Iterable[int]) -> None:
        """Workers are gone for good. The others do not wait for them."""
        for worker in workers:
            self.members.pop(worker, None)
            self.absent |= {worker}
        if self.is_renewing:
            self._begin_if_all_are_ready()

    def _set_ready(self, member: JobMember) -> None:
        self._requests += 1
        member.requested = self._requests
        member.state = MemberState.READY

    def _begin_if_all_are_ready(self, newcomer: int | None = None) -> None:
        if self.awaited:
            self._tell_awaited(newcomer)
            return
        self.absent = frozenset(self.left_out)
        self.epoch = epoch_after(self.number, self.epoch)
        self.epochs += 1
        plan = self.switches.begin_epoch(self)
        present = [self.members[worker] for worker in self.present]
        newcomers = [worker for worker in self.present if self.members[worker].is_new]
        for worker, member in self.members.items():
            member.is_new = worker in self.absent
            member.without = frozenset()
            if member.is_new and member.state is MemberState.RUNNING:
                member.state = MemberState.LEFT_OUT
                self.tell(member.client, {"left_out": list(self.present)})
        for member in present:
            member.state = MemberState.RUNNING
            self.tell(member.client, {"plan": plan, "newcomers": newcomers})
        self._tell_awaited()  # those who were left out

    def _tell_awaited(self, newcomer: int | None = None) -> None:
        """Tell those who wait whom they wait for.

        With a thousand workers, the list at every arrival would be a million lists. So while many
        are awaited, the list goes to the newcomer, and to all whenever half of them have come.
        """
        awaited = self.awaited
        number = len(awaited)
        to_all = newcomer is None or number <= _FEW or number & (number - 1) == 0
        for worker, member in self.members.items():
            if member.state is MemberState.READY and (to_all or worker == newcomer):
                self.tell(member.client, {"awaited": awaited})

    def _tell_others(self, worker: int, message: Message, *states: MemberState) -> None:
        """Tell the others what a worker does: those in one of ``states``, by default all but those
        who are ready, who hear whom they wait for anyway.
        """
        states = states or (MemberState.JOINED, MemberState.RUNNING, MemberState.LEFT_OUT)
        for other, member in self.members.items():
            if other != worker and member.state in states:
                self.tell(member.client, message)


class Jobs:
    """The jobs of a switch service. Requests and departures of clients go in, messages come out.

    Args:
        switches: the switches that jobs are admitted to.
        partitions: the most jobs at the same time.
        workers: the most workers of a job.
        tell: called with (client, message) for each message to a client.
        draw: returns a random number below its argument, for numbers and first epochs of jobs. They
            should differ from those of an earlier service at the same address.
        offers: what workers have to know of the service's transports, by key.
        released: called for each worker that is gone.
    """

    def __init__(
        self,
        switches: Switches,
        partitions: int,
        workers: int,
        tell: Callable[[int, Message], None],
        draw: Callable[[int], int] = secrets.randbelow,
        *,
        offers: Message | None = None,
        released: Callable[[JobMember], None] = lambda _: None,
    ) -> None:
        self._switches = switches
        self._partitions = partitions
        self._workers = workers
        self._tell = tell
        self._draw = draw
        self._offers = offers or {}
        self._released = released
        self._jobs: dict[str, JobCoordinator] = {}
        self._clients: dict[int, tuple[JobCoordinator, int]] = {}
        self._tokens: dict[bytes, tuple[JobCoordinator, int]] = {}

    def __iter__(self) -> Iterator[JobCoordinator]:
        return iter(self._jobs.values())

    def join(self, client: int, message: Message) -> None:
        """Let a client join as a worker. It gets a token for its hello datagram.

        Raises:
            InputError: there is no such worker, or its index is taken; nothing has changed.
        """
        name, worker, workers = self._requested(message)
        job = self._jobs.get(name)
        if job is None:
            job = self._new(name, workers)
        if job.workers != workers:
            raise InputError(
                f"job {name!r} has {job.workers} workers, not {workers}; start all with the same "
                "number, or give this job another name."
            )
        config = _config(message)
        if None not in (job.config, config) and job.config != config:
            raise InputError(
                f"job {name!r} is one of {job.config}; worker {worker} comes with {config}. "
                "Give all workers the same, or the job another name."
            )
        if worker in job.members:
            raise InputError(
                f"job {name!r} has a worker {worker} already, which is connected; give each worker "
                "a different index, or the job another name."
            )
        self._jobs[name] = job
        job.config = job.config or config
        token = secrets.token_bytes(TOKEN)
        job.members[worker] = JobMember(client, token)
        self._clients[client] = self._tokens[token] = (job, worker)
        self._tell(client, {"token": token.hex(), **self._offers})

    def joined(self, token: bytes) -> tuple[JobCoordinator, JobMember] | None:
        """Who has a token, and the job; None for no worker."""
        if token not in self._tokens:
            return None
        job, worker = self._tokens[token]
        return job, job.members[worker]

    def hello(self, token: bytes, sender: Peer) -> bool:
        """A datagram with ``token`` came from ``sender``; whether the token is a worker's."""
        if token not in self._tokens or self._is_taken(sender, token):
            return False
        job, worker = self._tokens[token]
        if job.members[worker].state is MemberState.JOINED:
            job.members[worker].address = sender
            job.ready(worker)
        return True

    def renew(self, client: int, message: Message) -> None:
        """A client requests its job's next epoch.

        Raises:
            InputError: it has not joined, or cannot continue without the workers that it names.
        """
        if client not in self._clients:
            raise InputError("join a job first.")
        job, worker = self._clients[client]
        job.request_epoch(worker, message.get("epoch"), message.get("without", []))

    def partition_of(self, client: int) -> int:
        """The partition of a client's job.

        Raises:
            InputError: it has not joined.
        """
        if client not in self._clients:
            raise InputError("join a job first.")
        return self._clients[client][0].partition

    def gone(self, client: int, *, left: bool = False) -> None:
        """A client is gone: its connection ended, or it ``left`` on purpose."""
        if client not in self._clients:
            return
        job, worker = self._clients.pop(client)
        member = job.leave(worker, on_purpose=left)
        del self._tokens[member.token]
        self._released(member)
        if not job.members:
            del self._jobs[job.name]

    def _is_taken(self, sender: Peer, token: bytes) -> bool:
        members = (member for job in self for member in job.members.values())
        return any(member.address == sender and member.token != token for member in members)

    def _requested(self, message: Message) -> tuple[str, int, int]:
        name, worker, workers = (message.get(each) for each in ("job", "worker", "workers"))
        # Names are displayed, so they must be printable.
        if not (isinstance(name, str) and name.isprintable() and 1 <= len(name) <= MAX_NAME):
            raise InputError(f"a job has a name of 1 to {MAX_NAME} printable characters.")
        if is_int(workers) and workers > MAX_WORKERS:
            raise InputError(too_many_workers(workers))
        if not is_int(workers) or not 1 <= workers <= self._workers:
            raise InputError(
                f"job {name!r} with {workers!r} workers; this switch takes 1 to {self._workers} "
                "(--workers-max)."
            )
        if not is_int(worker) or not 0 <= worker < workers:
            raise InputError(
                f"there is no worker {worker!r} in job {name!r}; it has 0 .. {workers - 1}."
            )
        return name, worker, workers

    def _new(self, name: str, workers: int) -> JobCoordinator:
        taken = {job.partition for job in self}
        free = [partition for partition in range(self._partitions) if partition not in taken]
        if not free:
            names = ", ".join(repr(each) for each in self._jobs)
            raise InputError(
                f"no room for job {name!r}: this switch takes {self._partitions} at the same time, "
                f"and there are {names}. Leave one of them, or start the switch with more: by "
                "--jobs, or by INNET_JOBS where a process of PyTorch's starts it."
            )
        numbers = {job.number for job in self}
        number = next(n for n in iter(lambda: 1 + self._draw(0xFFFF), 0) if n not in numbers)
        return JobCoordinator(
            name,
            workers,
            self._switches,
            self._tell,
            partition=free[0],
            number=number,
            epoch=self._draw(0x10000),
        )


def _config(message: Message) -> str | None:
    config = message.get("config")
    if config is None:
        return None
    if not (isinstance(config, str) and config.isprintable() and 1 <= len(config) <= MAX_CONFIG):
        raise InputError(f"a job's config has 1 to {MAX_CONFIG} printable characters.")
    return config
