"""A process group for torchft: its LocalSGD, DiLoCo and fault-tolerant sums go through a switch.

    from torchft import Manager
    from innet.torch.torchft import SwitchProcessGroup

    manager = Manager(pg=SwitchProcessGroup(codec="lhc"), ...)

``pip install 'innet[torchft]'``. torchft makes a new group when a replica dies or comes back; each
group is a new job at the switch. Let ``INNET_SWITCH`` name a switch that runs by itself
(``innet switch serve``): one that the first rank starts ends with that rank.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from innet.core.errors import MissingToolError
from innet.records import Report
from innet.torch.group import BY_GLOO, SwitchGroup, stateless_codec

try:
    from torchft.process_group import ProcessGroupWrapper
except ImportError as error:
    raise MissingToolError(
        "torchft",
        "innet.torch.torchft",
        f"Install it by: pip install 'innet[torchft]' ({error}).",
    ) from error


class SwitchProcessGroup(ProcessGroupWrapper):
    """torchft's process group over ``SwitchGroup``.

    All-reduces with SUM or AVG of float32, float16 and bfloat16 go through the switch, and what
    else its program can do; all the rest through gloo.

    Args:
        codec: a preset's name, of a codec that remembers nothing between all-reduces, as a process
            group does not know which tensor is which; by default that of ``INNET_CODEC``, or
            ``exact``.
        timeout: of an all-reduce, and of meeting the other replicas.

    Raises:
        UnknownNameError: the codec does not exist.
        CompositionError: it has error feedback or momentum.
    """

    def __init__(
        self, codec: str | None = None, timeout: timedelta = timedelta(seconds=60)
    ) -> None:
        super().__init__(timeout)
        self._codec = stateless_codec(codec)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        return "torchft-innet"

    @property
    def reports(self) -> list[Report]:
        """Reports of the current group's most recent all-reduces."""
        return list(self._pg.reports) if isinstance(self._pg, SwitchGroup) else []

    def _create_pg(self, store: Any, rank: int, world_size: int) -> SwitchGroup:
        return SwitchGroup(store, rank, world_size, self._timeout, self._codec)

    def shutdown(self) -> None:
        """Leave the job; torchft's ``Manager.shutdown`` does not call it."""
        self.abort(errored=False)


def _by_the_group(name: str) -> Callable[..., Any]:
    def collective(self: SwitchProcessGroup, *arguments: Any, **options: Any) -> Any:
        return getattr(self.parent, name)(*arguments, **options)

    collective.__name__ = name
    return collective


# Collectives, and names of them, that torchft does not know would not come to the group.
for _name in BY_GLOO:
    if _name not in vars(ProcessGroupWrapper):
        setattr(SwitchProcessGroup, _name, _by_the_group(_name))
