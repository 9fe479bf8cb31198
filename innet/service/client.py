"""A worker's membership in a job on a switch service.

    with join("127.0.0.1:48879", job="mine", worker=0, workers=4) as membership:
        worker = Worker(
            membership.plan, membership.worker, codec="lhc", transport=membership.transport
        )
        total, report = worker.all_reduce(gradient)

The connection stays open. When it ends, the switch notifies the other workers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from innet.core.errors import (
    ControlError,
    InputError,
    MembershipError,
    NetworkError,
    StalledError,
    StateError,
)
from innet.core.not_copyable import NotCopyable
from innet.core.numbers import is_real, number_list, require_int
from innet.core.settings import MAX_WORKERS, too_many_workers
from innet.core.waiting import WaitNotice
from innet.service.connections import Channel, resolve
from innet.service.protocol import HELLO, Message, check_greeting, request
from innet.service.slot_partition import plan_of
from innet.service.transport import Departure, ServiceTransport
from innet.topology import Plan
from innet.transport.transports import (
    AUTO,
    AUTOMATIC,
    ControlConnection,
    UnavailableError,
    checked_transport,
    name_offered_as,
    offer_key,
    provider_of,
)

DEADLINE = 30.0
_HELLO_SECONDS = 0.05  # between two datagrams that show the address
_RETRY_SECONDS = 0.1  # between two attempts to connect
_CONNECT_SECONDS = 60.0  # for one of them
_LEAVE_SECONDS = 2.0


def join(
    switch: str,
    *,
    job: str,
    worker: int,
    workers: int,
    key: str | None = None,
    deadline: float = DEADLINE,
    config: str | None = None,
    transport: str = AUTO,
) -> Membership:
    """Join a job on a switch service, and wait until all its workers are there.

    Args:
        switch: the service's address, HOST:PORT; the port may be left out.
        job: its name, the same for all its workers. The first worker that joins creates it.
        worker: index of this worker.
        workers: how many the job has.
        key: the service's key, if it has one. It is not sent.
        deadline: seconds to wait, for the switch and for the others.
        config: a text that must be the same for all workers, such as codec, seed and size. A worker
            with another text gets an error that shows both. Without it, the first all-reduce finds
            the difference, or a timeout if the number of words differs.
        transport: what carries packets: "shm" (memory that this process shares with the switch
            process of its machine), "udp", another that is registered and that the service has
            (``innet.transport.transports``), or "auto": shared memory where it is possible, else
            udp, or what the service requires.

    Raises:
        InputError: an invalid address, an infinite deadline or an argument of the wrong type; or
            the service refuses: a wrong key, a worker index that is taken, another number of
            workers, another config, no room for another job; or there is no shared memory, and
            the transport is "shm".
        NetworkError: the switch or its UDP port cannot be reached, or it has another version.
        StalledError: not all workers joined; names the missing ones.
    """
    texts = {"the switch": switch, "the job": job}
    texts |= {} if key is None else {"the key": key}
    texts |= {} if config is None else {"the config": config}
    for what, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"{what} is of type {type(text).__name__}; give it as text.")
    return Membership(
        switch,
        job=job,
        worker=require_int(worker, "the worker's index"),
        workers=require_int(workers, "the number of workers"),
        key=key,
        until=_deadline(deadline),
        config=config,
        transport=checked_transport(transport),
    )


class Membership(NotCopyable):
    """A worker's session in a job; made by ``join``.

    Attributes:
        job, worker, workers: as they were given.
        plan: the network and the job's current epoch, for ``innet.allreduce.worker.Worker``.
        newcomers: workers that were not in the previous epoch, which may need the others' state; in
            a job's first epoch, all.
        transport: the connection to the switch. It stays the same over ``renew``.
    """

    instead_of_a_copy = "join the job in the process that takes part in it"

    def __init__(
        self,
        switch: str,
        *,
        job: str,
        worker: int,
        workers: int,
        key: str | None,
        until: float,
        config: str | None,
        transport: str = AUTO,
    ) -> None:
        if workers > MAX_WORKERS:
            raise InputError(too_many_workers(workers))
        self.switch = switch
        self.job = job
        self.worker = worker
        self.workers = workers
        self._key = key
        self._config = config
        self._wanted = transport
        self._offers: Message = {}  # the switch's answer, with what its transports need
        self._untried: list[str] = []  # transports, if the one in use turns out to be impossible
        self._where = resolve(switch)
        self._channel: Channel | None = None
        self._departures: dict[int, Departure] = {}  # the transport looks at it
        self._gone: set[int] = set()
        self._waiting: set[int] = set()
        self._absent: frozenset[int] = frozenset()  # from this epoch
        self._pending: Message | None = None  # a plan that no call waited for
        self.newcomers: frozenset[int] = frozenset()
        self.transport = ServiceTransport(
            worker, lambda: self._open().fileno(), self._receive_departures, self._departures
        )
        try:
            self.plan: Plan = self._enter(until, again=False)
        except BaseException:
            self.close()
            raise

    @property
    def epoch(self) -> int:
        """The job's current epoch."""
        return self.plan.job.epoch

    def __enter__(self) -> Membership:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.leave()
        else:
            self.close()

    def renew(self, deadline: float = DEADLINE, *, without: Iterable[int] = ()) -> Plan:
        """Continue after a failure: wait until all workers request the next epoch.

        If the switch was restarted, the job is joined again.

        Args:
            deadline: seconds to wait.
            without: workers to continue without; the first request decides. All others are waited
                for, except those who were left out before and have not requested to come back.

        Returns:
            The new plan, for ``Worker.begin_epoch`` or a new ``Worker``.

        Raises:
            StalledError: not all workers requested it; names the missing ones.
            NetworkError, InputError: as ``join``.
        """
        until = _deadline(deadline)
        named = {require_int(worker, "a worker to go on without") for worker in without}
        if self._channel is not None:
            try:
                return self._ask(until, sorted(named))
            except MembershipError:
                self._disconnect()
        try:
            self.plan = self._enter(until, again=True)
        except BaseException:
            self._disconnect()  # the next call starts over, not halfway through joining
            raise
        return self.plan

    def _ask(self, until: float, without: list[int]) -> Plan:
        self._receive_departures()
        if self._pending is None:
            request = {"request": "renew", "epoch": self.epoch, "without": without}
            self._open().send(request)
            self.plan = self._await_plan(until)
        else:  # it came after a call that had waited too long
            self.plan = self._begin(self._pending)
        return self.plan

    @property
    def gone(self) -> frozenset[int]:
        """Workers of this epoch that have left the job, as far as the switch has reported."""
        self._receive_departures()
        return frozenset(self._gone)

    @property
    def waiting(self) -> frozenset[int]:
        """Workers that are not in this epoch and wait for the next one."""
        self._receive_departures()
        return frozenset(self._waiting)

    def read_register(self, switch: str, name: str, index: int) -> int:
        """The value of a register cell of the switch, for ``Worker.diagnose``.

        Args:
            switch: its name in the job's plan.
            name: of the register.
            index: of the cell.

        Raises:
            ControlError: no such register or cell.
            NetworkError: the switch does not answer.
        """
        channel = self._open()
        channel.send({"request": "read", "switch": switch, "register": name, "index": index})
        answer = self._wait(time.monotonic() + _LEAVE_SECONDS, "value", lambda: "its answer")
        if answer["value"] is None:
            raise ControlError(f"the switch at {self.switch} has no register {name}[{index}].")
        return int(answer["value"])

    def leave(self) -> None:
        """Leave the job. The other workers do not wait for this worker.

        It has no effect in a process that was forked from the one that joined.
        """
        if self._channel is not None and self._channel.owned:
            try:
                self._channel.send({"request": "leave"})
                self._wait(time.monotonic() + _LEAVE_SECONDS, "left_job", lambda: "its answer")
            except (NetworkError, StalledError):
                pass  # gone either way
        self.close()

    def close(self) -> None:
        """Close the connections. The others see a worker that died."""
        self._disconnect()
        self.transport.close()

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # ------------------------------------------------------------------ joining

    def _enter(self, until: float, *, again: bool) -> Plan:
        """Connect, join, send a hello datagram, wait for the others."""
        while True:
            try:
                return self._enter_once(until)
            except (InputError, MembershipError):
                # The switch may not have noticed yet that the earlier connection has ended, or it
                # is shutting down.
                if not again or time.monotonic() + _RETRY_SECONDS > until:
                    raise
            self._open().close()
            time.sleep(_RETRY_SECONDS)

    def _enter_once(self, until: float) -> Plan:
        self._channel = channel = self._connect(until)
        nonce = check_greeting(self._next(until, "its greeting"), self.switch)
        fields = {"job": self.job, "worker": self.worker, "workers": self.workers}
        if self._config is not None:
            fields["config"] = self._config
        channel.send(request("join", nonce, self._key, **fields))
        answer = self._wait(until, "token", lambda: "its answer")
        hello = HELLO + bytes.fromhex(answer["token"])
        self._offers = answer
        self._untried = self._candidates()
        self._open_transport()
        return self._await_plan(until, hello)

    def _candidates(self) -> list[str]:
        """The transports to try, in this order.

        Raises:
            InputError: the switch requires one, and this side wants another.
            UnknownNameError: the switch requires one that this side does not have.
        """
        required = [
            name_offered_as(key)
            for key, offer in self._offers.items()
            if isinstance(offer, dict) and offer.get("required")
        ]
        for name in required:
            if self._wanted not in (AUTO, name):
                raise InputError(
                    f"the switch at {self.switch} takes workers by {provider_of(name).what} only "
                    f"(--transport {name}), and this one wants {self._wanted}; leave the transport "
                    "auto on one side."
                )
        if required:
            return required
        return [*AUTOMATIC] if self._wanted == AUTO else [self._wanted]

    def _open_transport(self, reason: str = "") -> None:
        """Open the next transport that is possible.

        Args:
            reason: why the one before it is not.

        Raises:
            InputError: none is possible.
            NetworkError: one is, but cannot be opened.
        """
        channel = self._open()
        control = ControlConnection(self.switch, channel.local_ip, channel.peer)
        last = provider_of(self.transport.name)
        while self._untried:
            name = self._untried.pop(0)
            last = provider_of(name)
            try:
                session = last.join(self._offers.get(offer_key(name, last)), control)
            except UnavailableError as error:
                reason = str(error)
            else:
                self.transport.open(name, session)
                return
        raise InputError(f"no {last.what} for worker {self.worker}: {reason}. {last.remedy}")

    def _show(self, hello: bytes) -> None:
        """Show the switch where this worker's packets come from."""
        try:
            self.transport.show(hello)
        except UnavailableError as error:
            self._open_transport(str(error))
            self.transport.show(hello)

    def _connect(self, until: float) -> Channel:
        waiting = WaitNotice(lambda: f"worker {self.worker} waits for a switch at {self.switch}")
        while True:
            left = until - time.monotonic()
            try:
                return Channel.connect(self._where, min(max(left, 0.01), _CONNECT_SECONDS))
            except OSError as error:
                reason = error.strerror or str(error)
            if left <= _RETRY_SECONDS:
                raise NetworkError(
                    f"cannot reach a switch at {self.switch}: {reason}. Start one with "
                    f"`innet switch serve --listen {self.switch}`, or check the address."
                ) from None
            waiting.check()
            time.sleep(_RETRY_SECONDS)

    def _await_plan(self, until: float, hello: bytes | None = None) -> Plan:
        """Wait for the epoch to begin; send ``hello`` until the switch confirms the address."""
        awaited: list[int] | None = None

        def missing() -> str:
            if awaited is None and hello is None:
                return "an answer"
            if awaited is None:
                return "an answer to the datagrams that show this worker's address; a firewall?"
            names = number_list(awaited)
            return f"worker{'s' if len(awaited) != 1 else ''} {names} of job {self.job!r}"

        waiting = WaitNotice(lambda: f"worker {self.worker} waits for {missing()}")
        while True:
            turn = waiting.next_check(until)
            if hello is not None and awaited is None:
                self._show(hello)
                turn = min(turn, time.monotonic() + _HELLO_SECONDS)
            message = self._message(turn)
            if message is None:
                if time.monotonic() >= until:
                    raise self._late(missing())
                waiting.check()
                continue
            if "awaited" in message:
                awaited = list(message["awaited"])
            elif "plan" in message:
                return self._begin(message)
            else:
                self._note(message)

    def _begin(self, message: Message) -> Plan:
        """Start an epoch."""
        plan = plan_of(message["plan"])
        self.newcomers = frozenset(message["newcomers"])
        self._pending = None
        self._departures.clear()
        self._gone.clear()
        self._absent = plan.job.absent
        self._waiting &= self._absent
        self.transport.begin(plan.layout)
        return plan

    # ------------------------------------------------------------------ messages from the switch

    def _receive_departures(self) -> None:
        """Handle the messages that have arrived from the switch.

        Raises:
            MembershipError: the switch is gone.
        """
        while (message := self._message(0.0)) is not None:
            self._note(message)

    def _note(self, message: Message) -> None:
        """Note what another worker did."""
        if "left" in message:
            worker, on_purpose = message["left"], bool(message.get("on_purpose"))
            how = "left job" if on_purpose else "lost its connection to job"
            self._gone.add(worker)
            self._waiting.discard(worker)
            self._depart(worker, f"{how} {self.job!r}", on_purpose=on_purpose)
        elif "renewing" in message:
            self._waiting.add(message["renewing"])
            self._depart(message["renewing"], f"asks for the next epoch of job {self.job!r}")
        elif "joined" in message:
            self._waiting.add(message["joined"])
        elif "left_out" in message:
            self._depart(self.worker, f"was left out by the others of job {self.job!r}")
        elif "plan" in message:
            self._pending = message
            self._depart(self.worker, f"has not gone on to the next epoch of job {self.job!r}")

    def _depart(self, worker: int, what: str, *, on_purpose: bool = False) -> None:
        # Nobody waits for workers outside this epoch.
        if worker not in self._absent:
            self._departures[worker] = Departure(what, on_purpose)

    def _next(self, until: float, what: str) -> Message:
        message = self._message(until)
        if message is None:
            raise self._late(what)
        return message

    def _wait(self, until: float, name: str, what: Callable[[], str]) -> Message:
        """The next message with key ``name``; other messages are noted."""
        while name not in (message := self._next(until, what())):
            self._note(message)
        return message

    def _message(self, until: float) -> Message | None:
        """The next message from the switch; None if none arrives until then.

        Raises:
            MembershipError: it stopped, or the connection ended.
            InputError: it refuses the request.
        """
        message = self._open().receive(until)
        if message is None:
            return None
        if "error" in message:
            raise InputError(f"the switch at {self.switch} refuses: {message['error']}")
        if "stopping" in message or "closed" in message:
            how = "was stopped" if "stopping" in message else "is gone"
            raise MembershipError(
                f"the switch at {self.switch} {how} while worker {self.worker} was in job "
                f"{self.job!r}; start it again unless innet does, and call renew() on all workers."
            )
        return message

    def _open(self) -> Channel:
        if self._channel is None:
            raise StateError(f"worker {self.worker} is not in job {self.job!r} any more.")
        return self._channel

    def _late(self, what: str) -> StalledError:
        return StalledError(
            f"worker {self.worker} of {self.workers} waited for {what} at the switch "
            f"{self.switch} until its deadline."
        )


def _deadline(deadline: float) -> float:
    """The time after this number of seconds, by ``time.monotonic``."""
    if not (is_real(deadline) and math.isfinite(deadline)):
        raise InputError(f"a deadline of {deadline!r} s; give a finite number of seconds.")
    return time.monotonic() + float(deadline)  # NumPy's of fewer bits would take the time's away
