"""Mastership: which controller of a role is its primary.

No I/O and no threads: ``Arbitration`` decides, and says whom to tell what.

Source: P4Runtime 1.5, section "Client Arbitration and Controller Replication".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from innet.p4runtime.messages import Status, p4
from innet.p4runtime.status import (
    Code,
    failed_precondition,
    invalid,
    not_found,
    permission_denied,
    resource_exhausted,
)

MOST_CONTROLLERS = 128
"""Streams of one role."""
_MOST_ROLES = 64
_LONGEST_ROLE = 256

_UNSET = -1
"""An election id that was not given: below all others."""


def election_id(message: Any, holder: Any) -> int:
    """The election id of a message that may have one."""
    return message.high << 64 | message.low if holder.HasField("election_id") else _UNSET


def role_name(name: str, number: int) -> str:
    """The name of a role; older controllers give a number instead."""
    return name or (str(number) if number else "")


@dataclass(slots=True, eq=False)
class Controller:
    """A stream of a controller, once its role is known.

    Attributes:
        stream: what messages for it are given to.
    """

    stream: Any
    role: str | None = None
    election_id: int = _UNSET
    role_number: int = 0


@dataclass(slots=True)
class _Role:
    """A role: its streams, its primary, and the highest election id ever seen from a primary."""

    controllers: list[Controller] = field(default_factory=list)
    primary: Controller | None = None
    highest: int = _UNSET


class Arbitration:
    """The controllers of one device.

    Args:
        device_id: of the device.
    """

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._roles: dict[str, _Role] = {"": _Role()}

    def update(self, controller: Controller, message: Any) -> list[tuple[Controller, Any]]:
        """A MasterArbitrationUpdate of a controller.

        Returns:
            Whom to send which MasterArbitrationUpdate, in order.

        Raises:
            StatusError: the stream must end with it.
        """
        # The steps are those of "Rules for Handling MasterArbitrationUpdate Messages Received from
        # Controllers". Step 1: the device and the role exist, and are those of the stream.
        name = role_name(message.role.name, message.role.id)
        is_new = controller.role is None
        if message.device_id != self._device_id:
            if is_new:
                raise not_found(self._no_device(message.device_id))
            raise failed_precondition("a stream keeps its device; open another for another")
        if not is_new and name != controller.role:
            raise failed_precondition("a stream keeps its role; open another for another")
        if message.role.HasField("config"):
            raise invalid("roles have no config here: each has access to the full pipeline")
        given = election_id(message.election_id, message)
        role = self._roles.get(name)
        if role is None:
            if len(self._roles) >= _MOST_ROLES or len(name) > _LONGEST_ROLE:
                raise resource_exhausted(f"there are at most {_MOST_ROLES} roles")
            role = self._roles[name] = _Role()
        # Step 2: no other stream of the role has the election id; streams without one may be many.
        others = [each for each in role.controllers if each is not controller]
        if given != _UNSET and any(each.election_id == given for each in others):
            raise invalid(f"election id {given} of role {name!r} is another controller's")
        # Step 3: a new stream joins the role, if there is room, and takes the election id.
        if is_new:
            if len(role.controllers) >= MOST_CONTROLLERS:
                raise resource_exhausted(f"a role has at most {MOST_CONTROLLERS} controllers")
            role.controllers.append(controller)
            controller.role, controller.role_number = name, message.role.id
        controller.election_id = given
        # Step 4: the highest id that was ever seen makes the primary, and a primary that takes a
        # lower one or none steps down. All streams of the role hear of a change, else this alone.
        if given != _UNSET and given >= role.highest:
            role.primary, role.highest = controller, given
            return self._notices(role, [*others, controller])
        if role.primary is controller:  # it stepped down
            role.primary = None
            return self._notices(role, [*others, controller])
        return self._notices(role, [controller])

    def leave(self, controller: Controller) -> list[tuple[Controller, Any]]:
        """A controller's stream has ended; returns as ``update``."""
        if controller.role is None:
            return []
        role = self._roles[controller.role]
        role.controllers.remove(controller)
        if role.primary is not controller:
            return []
        role.primary = None
        return self._notices(role, role.controllers)

    def require_device(self, device_id: int) -> None:
        """NOT_FOUND unless it is this device."""
        if device_id != self._device_id:
            raise not_found(self._no_device(device_id))

    def require_primary(self, request: Any) -> None:
        """Raise unless a request with device, role and election id is the primary's.

        Raises:
            StatusError: NOT_FOUND for another device or a role that no controller has;
                PERMISSION_DENIED.
        """
        self.require_device(request.device_id)
        name = role_name(request.role, request.role_id)
        role = self._roles.get(name)
        if role is None:
            raise not_found(f"no controller has the role {name!r}")
        given = election_id(request.election_id, request)
        if role.primary is None or given == _UNSET or given != role.highest:
            raise permission_denied("this is not the primary controller")

    def primaries(self) -> list[Controller]:
        """The primary of each role that has one; that of the default role comes first."""
        return [role.primary for role in self._roles.values() if role.primary is not None]

    def is_primary(self, controller: Controller) -> bool:
        """Whether it is the primary of its role."""
        return controller.role is not None and (self._roles[controller.role].primary is controller)

    def _notices(self, role: _Role, to: list[Controller]) -> list[tuple[Controller, Any]]:
        return [(each, self._notice(role, each)) for each in to]

    def _notice(self, role: _Role, to: Controller) -> Any:
        message = p4.MasterArbitrationUpdate(device_id=self._device_id)
        if to.role:
            message.role.name = "" if to.role_number else to.role
            message.role.id = to.role_number
        if role.highest != _UNSET:
            message.election_id.high = role.highest >> 64
            message.election_id.low = role.highest & ((1 << 64) - 1)
        if role.primary is to:
            message.status.CopyFrom(Status(code=Code.OK, message="this is the primary controller"))
        elif role.primary is not None:
            text = "there is another primary controller"
            message.status.CopyFrom(Status(code=Code.ALREADY_EXISTS, message=text))
        else:
            text = "there is no primary controller"
            message.status.CopyFrom(Status(code=Code.NOT_FOUND, message=text))
        return message

    def _no_device(self, device_id: int) -> str:
        return f"there is no device {device_id}, but {self._device_id}"
