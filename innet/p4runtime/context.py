"""What the entities of one pipeline share: the switch, its P4Info, its ports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from innet.p4runtime.messages import p4
from innet.p4runtime.p4info import ActionInfo, P4Index
from innet.p4runtime.status import invalid
from innet.p4runtime.values import SDN_PORT_CPU, decode
from innet.switch import Switch, ir
from innet.switch.control.builtin import BuiltinControlPlane

Undo = Callable[[], object]
"""Takes back one update."""

INSERT, MODIFY, DELETE = p4.Update.INSERT, p4.Update.MODIFY, p4.Update.DELETE
MAX_PORT = 511


class PortStates(Protocol):
    """The ports of a device."""

    @property
    def cpu_port(self) -> int | None:
        """The port whose packets go to controllers; None for none."""
        ...

    def is_port_up(self, port: int) -> bool:
        """Whether a port has an interface that is up; the CPU port is always."""
        ...

    def has_port(self, port: int) -> bool:
        """Whether there is such a port."""
        ...


class PipelineContext(NamedTuple):
    """The switch, its P4Info, its ports."""

    switch: Switch
    ids: P4Index
    ports: PortStates

    @property
    def control(self) -> BuiltinControlPlane:
        return self.switch.control

    def port(self, data: bytes, what: str) -> int:
        """The port of the data plane of an SDN port."""
        number = decode(data, 32, what)
        if number == SDN_PORT_CPU and self.ports.cpu_port is not None:
            return self.ports.cpu_port
        if number > MAX_PORT:
            raise invalid(f"{what} is 0 to {MAX_PORT}, not {number}")
        return number


def only_modify(kind: int, what: str) -> None:
    """INVALID_ARGUMENT for updates that are no MODIFY."""
    if kind != MODIFY:
        raise invalid(f"{what} can be modified, and neither inserted nor deleted")


def action_arguments(action: Any, found: ActionInfo) -> tuple[int, ...]:
    """The arguments of an Action message, in the order of the program.

    Raises:
        StatusError: a parameter is missing, named twice, unknown, or has a bad value.
    """
    codecs = found.codecs
    if len(action.params) == 1 and len(codecs) == 1:  # the most frequent
        (param,) = action.params
        pair = codecs.get(param.param_id)
        if pair is not None:
            return (pair[0].decode(param.value, pair[1]),)
    values: dict[int, int] = {}
    for param in action.params:
        pair = codecs.get(param.param_id)
        if pair is None:
            raise invalid(f"action {found.name} has no parameter with id {param.param_id}")
        if param.param_id in values:
            raise invalid(f"{pair[1]} is given twice")
        values[param.param_id] = pair[0].decode(param.value, pair[1])
    missing = [what for number, (_, what) in codecs.items() if number not in values]
    if missing:
        raise invalid(f"{', '.join(missing)} is missing")
    return tuple(values[number] for number in found.order)


def action_message(entry: ir.ActionEntry, found: ActionInfo) -> Any:
    """The Action message of an entry's action."""
    message = p4.Action(action_id=found.id)
    for number, value in zip(found.order, entry.arguments, strict=True):
        message.params.add(param_id=number, value=found.codecs[number][0].encode(value))
    return message
