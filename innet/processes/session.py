"""A worker's session: on the network that its settings describe, or in a job of a switch
service.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from innet.allreduce.worker import Renew, Worker, connect
from innet.codecs import ModelLayers, build_codec
from innet.core.errors import InputError
from innet.network import ClockedTransport
from innet.processes.commandline import say
from innet.processes.settings import SessionSettings
from innet.service import join
from innet.service.connections import key_of
from innet.service.protocol import Message, decode
from innet.topology import Plan, RegisterReader, next_epoch_plan


class WorkerSession(NamedTuple):
    """The network parts of a ``Worker``.

    Attributes:
        plan: of the job.
        transport: the connection to the switch.
        read: reads the switch's registers, to name missing workers; None if not possible.
        renew: begins the job's next epoch; None if this process cannot.
    """

    plan: Plan
    transport: ClockedTransport
    read: RegisterReader | None
    renew: Renew | None

    def worker(self, settings: SessionSettings, layers: ModelLayers | None = None) -> Worker:
        """The worker of this session.

        Args:
            settings: of the worker.
            layers: of the gradient; see ``innet.codecs.build_codec``.
        """
        return Worker(
            self.plan,
            settings.worker,
            codec=settings.codec,
            transport=self.transport,
            switch=settings.switch,
            faults=settings.faults(),
            timing=settings.timing(),
            layers=layers,
            seed=settings.seed,
            renew=self.renew,
            keep_integers=settings.outcome is not None,
        )


@contextmanager
def worker_session(
    settings: SessionSettings,
    what: str,
    layers: ModelLayers | None = None,
    *,
    coordinated: bool = False,
) -> Iterator[WorkerSession]:
    """A worker's session while the context is open.

    Args:
        settings: of the worker.
        what: description of the joint work; a service refuses workers with another one.
        layers: of the gradient; see ``innet.codecs.build_codec``.
        coordinated: the process that started this one coordinates the network's workers; see
            ``epoch_requests``.

    Raises:
        InnetError: the network or the service refuses it.
    """
    if settings.service is None:
        plan = settings.plan()
        with connect(plan, settings.worker, settings.interface) as transport:
            yield WorkerSession(
                plan, transport, None, epoch_requests(plan) if coordinated else None
            )
        return
    _check_no_network(settings)
    codec = build_codec(settings.codec, layers=layers).describe()
    with join(
        settings.service,
        job=settings.service_job,
        worker=settings.worker,
        workers=settings.workers,
        key=key_of(None, settings.key_file),
        deadline=settings.give_up,
        transport=settings.service_transport,
        config=f"{what}, codec {codec}, seed {settings.seed}",
    ) as membership:
        yield WorkerSession(
            membership.plan,
            membership.transport,
            membership.read_register,
            lambda late: membership.renew(settings.give_up, without=late),
        )


def _check_no_network(settings: SessionSettings) -> None:
    """Refuse settings of a network, by an InputError: a service has its own."""
    for name in ("topology", "racks", "depth", "ports"):
        if (value := getattr(settings, name)) is not None:
            raise InputError(
                f"{name} is {value!r}, and service {settings.service!r}: a job on a switch service "
                f"has the service's switches. Leave {name} or service out."
            )


def ask(request: Message) -> Message:
    """Send a request to the process that started this one, and return the answer.

    Raises:
        EOFError: that process is gone.
    """
    say(request)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return decode(line.encode())


def epoch_requests(plan: Plan) -> Renew:
    """Requests the job's next epoch from the process that started this one; waits for the plan.

    Args:
        plan: of the job's first epoch.
    """
    present = plan

    def renew(late: tuple[int, ...]) -> Plan:
        nonlocal present
        answer = ask({"request": "renew", "epoch": present.job.epoch, "without": list(late)})
        present = next_epoch_plan(present, answer["plan"]["absent"])
        return present

    return renew
