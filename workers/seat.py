"""Where a worker sits: on a network that its settings describe, or in a job of a switch service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from innet.codecs import ModelLayers
from innet.participant import ClockedFabric, Participant, connect
from innet.plan import Plan, RegisterReader
from innet.service import join
from innet.service.daemon import key_of
from workers.settings import WorkerSettings


class Seat(NamedTuple):
    """What a ``Participant`` needs of the network.

    Attributes:
        plan: of the job.
        fabric: the connection to the switch.
        read: reads the switch's registers, to say who is missing; None if it cannot be asked.
    """

    plan: Plan
    fabric: ClockedFabric
    read: RegisterReader | None

    def participant(
        self, settings: WorkerSettings, layers: ModelLayers | None = None
    ) -> Participant:
        """The worker that sits here.

        Args:
            settings: its own.
            layers: of the gradient; see ``innet.codecs.build_codec``.
        """
        return Participant(
            self.plan,
            settings.worker,
            codec=settings.codec,
            fabric=self.fabric,
            switch=settings.switch,
            faults=settings.faults(),
            timing=settings.timing(),
            layers=layers,
            seed=settings.seed,
        )


@contextmanager
def seated(settings: WorkerSettings) -> Iterator[Seat]:
    """A worker's seat while the context is open.

    Raises:
        InnetError: the network, or the service, does not take it.
    """
    if settings.service is None:
        plan = settings.plan()
        with connect(plan, settings.worker, settings.interface) as fabric:
            yield Seat(plan, fabric, None)
        return
    with join(
        settings.service,
        job=settings.service_job,
        worker=settings.worker,
        workers=settings.workers,
        key=key_of(None, settings.key_file),
        deadline=settings.give_up,
    ) as membership:
        yield Seat(membership.plan, membership.fabric, membership.read_register)
