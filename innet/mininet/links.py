"""Links with a rate, a delay or a loss, or an error: never links without what was asked for."""

from __future__ import annotations

from typing import Any

from innet.core.errors import InputError, NetworkError
from innet.mininet.debian import Link, TCIntf

_REMEDY = (
    "`innet doctor` says what this kernel has. Leave out what it lacks; a delay can be made by "
    "innet's workers instead (--delay-by workers)."
)


class LimitedInterface(TCIntf):
    """An end of a ``LimitedLink``."""

    def tc(self, cmd: str, tc: str = "tc") -> str:
        """Called by Mininet, which prints what the kernel refuses and goes on without it.

        Raises:
            NetworkError: it was refused.
        """
        said = str(super().tc(cmd, tc))
        refused = [line for line in said.splitlines() if line and not line.startswith("Warning")]
        if " add " in cmd and refused:
            why = " ".join(refused).removeprefix("Error: ")
            raise NetworkError(f"the kernel refused `{cmd % (tc, self)}`: {why} {_REMEDY}")
        return said

    def bwCmds(self, bw: float | None = None, **options: Any) -> tuple[list[str], str]:  # noqa: N802 - Mininet's name
        """Called by Mininet, which does without a rate that is out of range.

        Raises:
            InputError: it is.
        """
        if bw is not None and not 0 < bw <= self.bwParamMax:
            raise InputError(
                f"{self.name}: a rate of {bw:g} Mbit/s; give one above 0 and at most "
                f"{self.bwParamMax}."
            )
        commands, parent = super().bwCmds(bw, **options)
        return commands, parent


class LimitedLink(Link):
    """Mininet's TCLink, which raises what that only prints."""

    def __init__(self, *ends: Any, **options: Any) -> None:
        options.setdefault("cls1", LimitedInterface)
        options.setdefault("cls2", LimitedInterface)
        super().__init__(*ends, **options)
