"""How the ranks of a process group find their switch and join a job."""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.core.errors import InnetError, InputError, NetworkError, StalledError
from innet.core.numbers import is_real, number_list
from innet.core.settings import MAX_WORKERS, too_many_workers
from innet.core.waiting import WaitNotice
from innet.service import Membership, join
from innet.service.process import START_SECONDS, local_switch
from innet.torch.tensors import torch
from innet.transport.transports import AUTO, checked_transport

dist = torch.distributed

Offer = dict[str, Any]
Publish = Callable[[Offer | None], Offer]
"""A broadcast: rank 0 passes the value, the others None; it returns the value on all ranks."""

JOIN_DEADLINE = 60.0
_LOOK_SECONDS = 0.01  # seconds between two checks of a store


@dataclass(frozen=True, slots=True)
class RendezvousSettings:
    """How to reach the switch.

    Attributes:
        switch: HOST:PORT; None if rank 0 starts one on its machine.
        job: prefix of the job's name; rank 0 draws the rest.
        key: the switch's key.
        deadline: seconds that an all-reduce waits for a worker.
        transport: what carries packets to the switch: auto, udp, shm or another's name.
    """

    switch: str | None = None
    job: str | None = None
    key: str | None = None
    deadline: float = 300.0
    transport: str = AUTO

    @classmethod
    def of(
        cls,
        *,
        switch: str | None = None,
        job: str | None = None,
        key: str | None = None,
        deadline: float,
        environment: Mapping[str, str] = os.environ,
    ) -> RendezvousSettings:
        """Fill missing arguments from ``INNET_SWITCH``, ``INNET_JOB`` and ``INNET_KEY``, or the
        file that ``INNET_KEY_FILE`` names. ``INNET_TRANSPORT`` is the transport.

        Raises:
            InputError: there is no such transport, the deadline is not positive and finite, an
                argument is not a string, or the key's file cannot be read.
        """
        texts: dict[str, object] = {"switch": switch, "job": job, "key": key}
        for name, given in texts.items():
            if not isinstance(given, str | None):
                raise InputError(f"the {name} is a {type(given).__name__}; give a string.")
        deadline = checked_deadline(deadline)
        if key is None:
            key = environment.get("INNET_KEY") or _key_in(environment.get("INNET_KEY_FILE"))
        return cls(
            switch or environment.get("INNET_SWITCH") or None,
            job or environment.get("INNET_JOB") or None,
            key,
            deadline,
            checked_transport(environment.get("INNET_TRANSPORT") or AUTO, "INNET_TRANSPORT"),
        )


def checked_deadline(deadline: float) -> float:
    """A deadline in seconds, as a float: locks do not accept NumPy's numbers.

    Raises:
        InputError: it is not positive and finite.
    """
    if not (is_positive(deadline) and deadline < math.inf):
        raise InputError(f"a deadline of {deadline} s; give a positive, finite number.")
    return float(deadline)


def is_positive(value: object) -> bool:
    """Whether it is a positive number."""
    return is_real(value) and value > 0


def _key_in(file: str | None) -> str | None:
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeError) as error:
        raise InputError(f"INNET_KEY_FILE: cannot read {file}: {error}.") from None


def join_group(group: Any, settings: RendezvousSettings) -> tuple[Membership, bool]:
    """Join a job of all ranks of a process group; None is the default group.

    Returns:
        This rank's membership, and whether this is rank 0 and has started the switch.

    Raises:
        InnetError: on every rank, if the switch is not available or a rank is missing.
    """
    if not dist.is_initialized():
        raise InputError("there is no process group; call torch.distributed.init_process_group.")
    rank = dist.get_rank(group)
    if rank < 0:
        raise InputError("this rank is not in the process group.")
    first = 0 if group is None else dist.get_global_rank(group, 0)

    def publish(offer: Offer | None) -> Offer:
        box = [offer]
        dist.broadcast_object_list(box, src=first, group=group)
        assert box[0] is not None
        return box[0]

    member, offer = _meet(publish, rank, dist.get_world_size(group), settings)
    return member, "machine" in offer


def join_store(store: Any, rank: int, size: int, settings: RendezvousSettings) -> Membership:
    """The same for a group that is being made, by its store.

    Args:
        store: of this group only, or also of earlier groups: torchrun keeps its store and the
            contents when it restarts the ranks.
        rank: of this process in the group.
        size: of the group.
        settings: where the switch is.
    """

    def publish(offer: Offer | None) -> Offer:
        until = time.monotonic() + settings.deadline
        if offer is None:
            return _ask(store, rank, until + START_SECONDS)  # rank 0 may have a switch to start
        _answer(store, offer, size, until)
        return offer

    member, _ = _meet(publish, rank, size, settings)
    return member


def _ask(store: Any, rank: int, until: float) -> Offer:
    """What rank 0 offers, under a name that was drawn just now, so that no answer is an old one."""
    drawn = secrets.token_hex(8)
    store.set(f"innet/asks/{rank}", drawn)
    waiting = WaitNotice(lambda: f"rank {rank} waits for rank 0 to come to the group")
    while not store.check([f"innet/answer/{drawn}"]):
        waiting.check()
        if time.monotonic() > until:
            raise StalledError(f"rank {rank} waited for rank 0 to come to the group.")
        time.sleep(_LOOK_SECONDS)
    offer: Offer = json.loads(store.get(f"innet/answer/{drawn}"))
    store.set(f"innet/heard/{offer['drawn']}/{rank}", "")
    return offer


def _answer(store: Any, offer: Offer, size: int, until: float) -> None:
    """Tell the other ranks; who asked may be of another time, until its answer is heard."""
    offer["drawn"] = secrets.token_hex(8)
    missing = set(range(1, size))
    answered = set()
    waiting = WaitNotice(lambda: f"rank 0 waits for {_ranks(missing)} to come to the group")
    while True:
        for rank in sorted(missing):
            if store.check([f"innet/heard/{offer['drawn']}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"innet/asks/{rank}"]):
                asked = store.get(f"innet/asks/{rank}").decode()
                if asked not in answered:
                    answered.add(asked)
                    store.set(f"innet/answer/{asked}", json.dumps(offer))
        if not missing:
            return
        if time.monotonic() > until:
            raise StalledError(f"rank 0 waited for {_ranks(missing)} to come to the group.")
        waiting.check()
        time.sleep(_LOOK_SECONDS)


def _ranks(ranks: set[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {number_list(ranks)}"


def _meet(
    publish: Publish, rank: int, size: int, settings: RendezvousSettings
) -> tuple[Membership, Offer]:
    """Agree on a switch and a job, and join it.

    Raises:
        InnetError: on every rank, if the switch is not available or a rank is missing.
    """
    if size > MAX_WORKERS:
        raise InputError(too_many_workers(size))
    offer = publish(_offer(settings) if rank == 0 else None)
    if offer.get("error"):
        raise NetworkError(f"rank 0 has no switch: {offer['error']}")
    if offer.get("machine") not in (None, _machine()):
        raise InputError(
            "the ranks are on several machines, and the switch that rank 0 has started serves its "
            "own only; start `innet switch serve` on one of them and set INNET_SWITCH everywhere."
        )
    member = join(
        offer["switch"],
        job=offer["job"],
        worker=rank,
        workers=size,
        key=offer.get("key") or settings.key,
        deadline=min(JOIN_DEADLINE, settings.deadline),
        transport=settings.transport,
    )
    return member, offer


def _offer(settings: RendezvousSettings) -> Offer:
    # Drawn, so that neither other groups of this program nor another program's meet in this job.
    job = f"{settings.job or 'innet'}-{secrets.token_hex(4)}"
    if settings.switch is not None:
        return {"switch": settings.switch, "job": job}
    try:
        switch = local_switch()
    except InnetError as error:
        return {"error": str(error)}
    return {"switch": switch.address, "job": job, "key": switch.key, "machine": _machine()}


def _machine() -> str:
    """Tells this machine from others, since it was started last."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
