"""Who is in which job, without sockets or clocks: requests and departures in, messages out.

A job begins once all its workers are joined_session, each with an address that it has shown. Each
beginning is an epoch: what was under way before counts no more. Whoever leaves, on purpose or by
losing the connection, frees the session; the others are told, and go on when all have asked for the
next epoch: with somebody else on that session, or without whom they name. Who was left out takes
part again in the first epoch that begins after it has asked. A job is over when its last worker has
left.

    absent ── join ──► joined_session ── hello (an address) ──► ready ── all are ready ──► running
                                                          ▲                       │  │
                                                          ├────────── renew ──────┘  │
                                                          └── renew ── left out ◄────┘
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeGuard

from innet.core.errors import InputError
from innet.service.protocol import LONGEST_NAME, LONGEST_TERMS, TOKEN, Message
from innet.transport.peers import Address


class HostedSwitch(Protocol):
    """Where jobs are admitted."""

    def begin(self, job: RunningJob, addresses: dict[int, Address]) -> Message:
        """Admit the workers at ``addresses``, and nobody else; what they are to be told."""

    def end(self, place: int) -> None:
        """Admit nobody there any more."""


class State(enum.Enum):
    """Of a worker; see above."""

    SEATED = "joined_session"
    READY = "ready"
    RUNNING = "running"
    LEFT_OUT = "left out"


@dataclass(slots=True)
class WorkerSession:
    """A worker of a job.

    Attributes:
        client: its connection.
        token: what its datagram must hold.
        state: where it is.
        address: where its frames come from, once it has shown it.
        is_new: it was not in the epoch before.
        asked: when it asked for the next epoch, as a number that grows.
        without: workers that it asked to leave out.
    """

    client: int
    token: bytes
    state: State = State.SEATED
    address: Address | None = None
    is_new: bool = True
    asked: int = 0
    without: frozenset[int] = frozenset()


@dataclass(slots=True)
class RunningJob:
    """A job that somebody has joined.

    Attributes:
        name: as its workers call it.
        workers: how many it has.
        place: its part of the switch.
        number, epoch: as in the header.
        epochs: how many have begun.
        terms: what all workers have in common, as the first who said so has it.
        absent: workers that take no part in this epoch.
        seats: by worker.
    """

    name: str
    workers: int
    place: int
    number: int
    epoch: int
    epochs: int = 0
    terms: str | None = None
    absent: frozenset[int] = frozenset()
    seats: dict[int, WorkerSession] = field(default_factory=dict)

    def _in(self, state: State) -> set[int]:
        return {worker for worker, session in self.seats.items() if session.state is state}

    @property
    def left_out(self) -> set[int]:
        """Workers without whom the next epoch begins."""
        ready = self._in(State.READY)
        out = set(self.absent - ready)
        # Who asked first says whom to go without; who is left out has no say.
        for worker in sorted(ready, key=lambda each: self.seats[each].asked):
            if worker not in out:
                out |= self.seats[worker].without
        return out

    @property
    def awaited(self) -> list[int]:
        """Workers that the next epoch waits for."""
        there = self._in(State.READY) | self.left_out
        return [worker for worker in range(self.workers) if worker not in there]

    @property
    def is_running(self) -> bool:
        """Whether all workers of this epoch are in it."""
        return self._in(State.RUNNING) == set(range(self.workers)) - self.absent


class Place(NamedTuple):
    """Where a client sits."""

    job: RunningJob
    worker: int


class Jobs:
    """The jobs of a service.

    Args:
        board: where they are admitted.
        places: how many there may be at the same time.
        workers: how many workers a job may have.
        say: takes (client, message): what clients are to be told.
        draw: a random number below its argument; for the jobs' numbers and first epochs, which
            should differ from those of an earlier service at the same address.
    """

    def __init__(
        self,
        board: HostedSwitch,
        places: int,
        workers: int,
        say: Callable[[int, Message], None],
        draw: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._board = board
        self._places = places
        self._workers = workers
        self._say = say
        self._draw = draw
        self._jobs: dict[str, RunningJob] = {}
        self._clients: dict[int, Place] = {}
        self._tokens: dict[bytes, Place] = {}
        self._requests = 0

    def __iter__(self) -> Iterator[RunningJob]:
        return iter(self._jobs.values())

    def of(self, client: int) -> Place | None:
        """Where a client sits; None if it has not joined."""
        return self._clients.get(client)

    def join(self, client: int, message: Message) -> None:
        """Give a client the session that it asks for, and a token to show its address with.

        Raises:
            InputError: no such session, or it is taken; nothing has changed.
        """
        name, worker, workers = self._asked(message)
        job = self._jobs.get(name)
        if job is None:
            job = self._new(name, workers)
        if job.workers != workers:
            raise InputError(
                f"job {name!r} has {job.workers} workers, not {workers}; start all with the same "
                "number, or give this job another name."
            )
        terms = _terms(message)
        if None not in (job.terms, terms) and job.terms != terms:
            raise InputError(
                f"job {name!r} is one of {job.terms}; worker {worker} comes with {terms}. Give all "
                "workers the same, or the job another name."
            )
        if worker in job.seats:
            raise InputError(
                f"job {name!r} has a worker {worker} already, which is connected; give each worker "
                "an index of its own, or the job another name."
            )
        self._jobs[name] = job
        job.terms = job.terms or terms
        session = WorkerSession(client, secrets.token_bytes(TOKEN))
        job.seats[worker] = session
        self._clients[client] = self._tokens[session.token] = Place(job, worker)
        self._say(client, {"token": session.token.hex()})

    def hello(self, token: bytes, sender: Address) -> bool:
        """A datagram with ``token`` came from ``sender``; whether it is anybody's."""
        place = self._tokens.get(token)
        if place is None or self._is_taken(sender, token):
            return False
        job, worker = place
        session = job.seats[worker]
        if session.state is State.SEATED:
            session.address = sender
            self._ready(session)
            self._tell_others(place, {"joined": worker})
            self._begin_if_all_are_ready(job)
        return True

    def renew(self, client: int, message: Message) -> None:
        """A client asks for the job's next epoch.

        A request from one that has not seen the present epoch yet is none: it gets what it wants.

        Raises:
            InputError: it has not joined; or cannot go on without the workers that it names.
        """
        place = self._clients.get(client)
        if place is None:
            raise InputError("join a job first.")
        job, worker = place
        without = message.get("without", [])
        if not (isinstance(without, list) and all(map(_whole, without))) or worker in without:
            raise InputError(f"worker {worker} cannot go on without {without!r:.100}.")
        session = job.seats[worker]
        if session.state is State.SEATED:
            return
        if session.state is not State.LEFT_OUT and message.get("epoch") != job.epoch:
            return
        if session.state is not State.READY:
            self._ready(session)
            self._tell_others(place, {"renewing": worker})
        session.without = frozenset(without) & frozenset(range(job.workers))
        self._begin_if_all_are_ready(job)

    def gone(self, client: int, *, left: bool = False) -> None:
        """A client is not there any more: its connection ended, or it ``left`` on purpose."""
        place = self._clients.pop(client, None)
        if place is None:
            return
        job, worker = place
        del self._tokens[job.seats.pop(worker).token]
        if not job.seats:
            del self._jobs[job.name]
            self._board.end(job.place)
            return
        self._tell_others(place, {"left": worker, "on_purpose": left})
        self._tell_awaited(job)

    def _ready(self, session: WorkerSession) -> None:
        self._requests += 1
        session.asked = self._requests
        session.state = State.READY

    def _is_taken(self, sender: Address, token: bytes) -> bool:
        seats = (session for job in self for session in job.seats.values())
        return any(session.address == sender and session.token != token for session in seats)

    def _asked(self, message: Message) -> tuple[str, int, int]:
        name, worker, workers = (message.get(each) for each in ("job", "worker", "workers"))
        # It is shown to people, so it is printable.
        if not (isinstance(name, str) and name.isprintable() and 1 <= len(name) <= LONGEST_NAME):
            raise InputError(f"a job has a name of 1 to {LONGEST_NAME} printable characters.")
        if not _whole(workers) or not 1 <= workers <= self._workers:
            raise InputError(
                f"job {name!r} with {workers!r} workers; this switch takes 1 to {self._workers} "
                "(--workers-max)."
            )
        if not _whole(worker) or not 0 <= worker < workers:
            raise InputError(
                f"there is no worker {worker!r} in job {name!r}; it has 0 .. {workers - 1}."
            )
        return name, worker, workers

    def _new(self, name: str, workers: int) -> RunningJob:
        taken = {job.place for job in self._jobs.values()}
        free = [place for place in range(self._places) if place not in taken]
        if not free:
            names = ", ".join(repr(each) for each in self._jobs)
            raise InputError(
                f"no room for job {name!r}: this switch takes {self._places} at the same time, and "
                f"there are {names}. Leave one of them, or start the switch with more: by --jobs, "
                "or by INNET_JOBS where a process of PyTorch's starts it."
            )
        numbers = {job.number for job in self._jobs.values()}
        number = next(n for n in iter(lambda: 1 + self._draw(0xFFFF), 0) if n not in numbers)
        return RunningJob(name, workers, free[0], number, self._draw(0x10000))

    def _begin_if_all_are_ready(self, job: RunningJob) -> None:
        if job.awaited:
            self._tell_awaited(job)
            return
        job.absent = frozenset(job.left_out)
        job.epoch = (job.epoch + 1) % 0x10000
        job.epochs += 1
        present = {
            worker: job.seats[worker] for worker in sorted(job.seats) if worker not in job.absent
        }
        addresses = {
            worker: session.address for worker, session in present.items() if session.address
        }
        plan = self._board.begin(job, addresses)
        newcomers = [worker for worker, session in present.items() if session.is_new]
        for worker, session in job.seats.items():
            session.is_new = worker in job.absent
            session.without = frozenset()
            if session.is_new and session.state is State.RUNNING:
                session.state = State.LEFT_OUT
                self._say(session.client, {"left_out": sorted(present)})
        for session in present.values():
            session.state = State.RUNNING
            self._say(session.client, {"plan": plan, "newcomers": newcomers})
        self._tell_awaited(job)  # those who were left out

    def _tell_awaited(self, job: RunningJob) -> None:
        for session in job.seats.values():
            if session.state is State.READY:
                self._say(session.client, {"awaited": job.awaited})

    def _tell_others(self, place: Place, message: Message) -> None:
        for worker, session in place.job.seats.items():
            if worker != place.worker:
                self._say(session.client, message)


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _terms(message: Message) -> str | None:
    terms = message.get("terms")
    if terms is None:
        return None
    if not (isinstance(terms, str) and terms.isprintable() and 1 <= len(terms) <= LONGEST_TERMS):
        raise InputError(f"a job's terms are 1 to {LONGEST_TERMS} printable characters.")
    return terms
