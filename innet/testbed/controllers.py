"""Controllers of a testbed's switches: programs at a distance, in simulated time.

What a controller learns comes a latency after it happened, and what it orders happens a latency
later, before the packets of that time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from functools import partial
from typing import Any

from innet.core.errors import InnetError, InputError, UnknownNameError
from innet.sim.network import SECOND
from innet.sim.scripts import ScriptPort
from innet.switch import Switch
from innet.testbed.hosts import BedHost, BedInbox
from innet.testbed.tasks import HostTask, suspended

_DIGESTS = 1 << 16  # that wait for a task at most


class LearnedDigest:
    """A digest. Its fields are attributes by the last parts of their names, too.

    Attributes:
        list: name of the learn list.
        values: of its fields, in their order.
        names: of the fields, as the program has them, or as they were given.
        time: when the switch sent it, simulated seconds.
    """

    def __init__(
        self, name: str, values: tuple[int, ...], names: Sequence[str], time: float
    ) -> None:
        self.list, self.values, self.names, self.time = name, values, tuple(names), time

    def __getattr__(self, name: str) -> int:
        for known, value in zip(self.names, self.values, strict=True):
            if known.rpartition(".")[2] == name:
                return value
        raise AttributeError(
            f"digest {self.list} has {', '.join(self.names)}, not {name}; where p4c has made up "
            "names of its own, say them: control.digests(list, fields=...)."
        )

    def __repr__(self) -> str:
        fields = (f"{n}={v}" for n, v in zip(self.names, self.values, strict=True))
        return f"LearnedDigest({self.list}: {', '.join(fields)})"


class Order:
    """What a controller ordered. Await it for its result, which comes a latency after it happened.

    If the switch refuses and nobody awaits it, that ends the run.
    """

    def __init__(self, controller: BedController) -> None:
        self._controller = controller
        self._result: Any = None
        self._error: InnetError | None = None
        self._is_done = False
        self._waiting: HostTask | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if not self._is_done:
            self._waiting = self._controller.current
            yield from suspended.__await__()
        if self._error is not None:
            raise self._error
        return self._result

    def carry_out(self, function: Callable[[], Any]) -> None:
        """Do it, at the switch."""
        try:
            self._result = function()
        except InnetError as error:
            self._error = error

    def come_back(self) -> None:
        """The answer reaches the controller."""
        self._is_done = True
        if self._waiting is not None:
            self._waiting.step()
        elif self._error is not None:
            raise self._error


class BedController(BedHost):
    """A controller of a switch; made by ``BedSwitch.controller``.

    It sends and receives frames as a host does, through the switch's port for it, if it has one:
    packet-outs and packet-ins.

    Args:
        name: for errors.
        switch: the switch.
        schedule: calls a function at a time, picoseconds, between the switch's packets.
        latency: picoseconds from the switch to the controller, and back.
        longest: bytes of the longest frame that it may send.
    """

    def __init__(
        self,
        name: str,
        switch: Switch,
        schedule: Callable[[int, Callable[[], None]], None],
        latency: int,
        longest: int,
    ) -> None:
        super().__init__(name, 0, longest, _DIGESTS)
        self._switch, self._schedule, self.latency = switch, schedule, latency
        self._learned: dict[str, BedInbox] = {}
        self._lists = {each.name: each for each in switch.program.learn_lists}

    # ------------------------------------------------------------------ what comes

    async def digest(
        self, name: str, timeout: float | None = None, *, fields: Sequence[str] | None = None
    ) -> LearnedDigest | None:
        """The next digest of a learn list.

        Args:
            name: of the list.
            timeout: seconds until there is None instead; by default it waits for ever.
            fields: names for the values; by default those of the program.

        Raises:
            UnknownNameError: the program has no such list.
            InputError: not one name for each value.
        """
        if name not in self._lists:
            raise UnknownNameError("learn list", name, self._lists)
        count = len(self._lists[name].elements)
        if fields is not None and len(fields) != count:
            raise InputError(f"digest {name} has {count} values; {len(fields)} names were given.")
        found: LearnedDigest | None = await self._inbox_of(name).get(timeout)
        if found is not None and fields is not None:
            found.names = tuple(fields)
        return found

    async def digests(
        self, name: str, *, fields: Sequence[str] | None = None
    ) -> AsyncIterator[LearnedDigest]:
        """All digests of a learn list, for ever: ``async for each in control.digests("macs")``."""
        while True:
            found = await self.digest(name, fields=fields)
            assert found is not None, "there is no time-out"
            yield found

    def _inbox_of(self, name: str) -> BedInbox:
        if name not in self._learned:
            self._learned[name] = BedInbox(self, _DIGESTS)
        return self._learned[name]

    def learn(self, time: int) -> None:
        """The switch has sent digests at a time; they are under way."""
        for name, values in self._switch.take_digests():
            names = [self._switch.program.name_of(each) for each in self._lists[name].elements]
            found = LearnedDigest(name, values, names, time / SECOND)
            due = time + self.latency
            self._at(due, partial(self._inbox_of(name).put, found))
            self._ports[0].wake(due)

    # ------------------------------------------------------------------ what it orders

    def order(self, function: Callable[[Switch], Any]) -> Order:
        """Let a function be called with the switch, a latency from now.

        Returns:
            what may be awaited for the function's result; then twice the latency has passed.
        """
        order = Order(self)
        there = self.ticks + self.latency
        back = there + self.latency

        def arrive() -> None:
            order.carry_out(lambda: function(self._switch))
            self._at(back, order.come_back)
            self._ports[0].wake(back)

        self._schedule(there, arrive)
        return order

    def command(self, line: str) -> Order:
        """A command of simple_switch_CLI; the result is what it prints."""
        return self.order(lambda switch: switch.command(line))

    def table_add(
        self,
        table: str,
        action: str,
        keys: Sequence[Any],
        parameters: Sequence[Any] = (),
        priority: int | None = None,
    ) -> Order:
        """``Switch.table_add``; the result is the entry's handle."""
        return self.order(lambda s: s.table_add(table, action, keys, parameters, priority))

    def table_modify(
        self, table: str, action: str, handle: int, parameters: Sequence[Any] = ()
    ) -> Order:
        """``Switch.table_modify``."""
        return self.order(lambda s: s.table_modify(table, action, handle, parameters))

    def table_delete(self, table: str, handle: int) -> Order:
        """``Switch.table_delete``."""
        return self.order(lambda s: s.table_delete(table, handle))

    def register_read(self, name: str, index: int) -> Order:
        """A cell of a register; the result is its value."""
        return self.order(lambda s: int(s.registers[name][index]))

    def register_write(self, name: str, index: int, value: int) -> Order:
        """Write a cell of a register."""

        def write(switch: Switch) -> None:
            switch.registers[name][index] = value

        return self.order(write)

    # ------------------------------------------------------------------ a controller is no host

    def attach(self, ports: ScriptPort) -> None:
        super().attach(ports)
        # What packets take of hosts' processors is not said of controllers.
        ports.receives = ports.sends = ports.byte = ports.jitter = 0

    def _require_no_time(self) -> None:
        raise InputError(f"{self.name} sends packets in its coroutine only.")
