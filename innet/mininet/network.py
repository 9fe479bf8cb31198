"""A Mininet network that runs while a context is open, and cleans up afterwards.

Links that cannot have the requested rate, delay and loss are an error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from innet.core.errors import InnetError, InputError, NetworkError
from innet.mininet.debian import Link, Mininet, TCIntf, Topo, setLogLevel
from innet.mininet.nodes import P4Switch
from innet.sim.network import OVERHEAD

_PREFIX = "innet-net-"
_REMEDY = (
    "`innet doctor` says what this kernel has. Leave out what it lacks; a delay can be made by "
    "innet's workers instead (--delay-by workers)."
)


_BURST = 1e-3  # seconds of its rate that a link with a queue lets through at once after a pause
_LEAST_BURST = 15_000  # bytes, as Mininet has it
_TBF_LIMIT = 1 << 20  # bytes of its own queue, which the one behind it replaces
_OF_HOSTS = 1 << 17  # packets; a host's card waits with what a worker has under way


class LimitedInterface(TCIntf):
    """One end of a ``LimitedLink``.

    With ``queue`` the rate is that of an Ethernet cable: the kernel's token bucket also counts
    preamble, check sequence and gap. A switch's end then holds ``queue`` packets beside those that
    the bucket lets through, and a host's end holds whatever its worker has under way.
    """

    _queue: int | None = None

    def config(self, queue: int | None = None, **options: Any) -> Any:
        """Called by Mininet, with the options of the link."""
        self._queue = queue
        return super().config(**options)

    def tc(self, cmd: str, tc: str = "tc") -> str:
        """Called by Mininet, which by itself only prints the kernel's refusal and goes on.

        Raises:
            NetworkError: the kernel refused it.
        """
        said = str(super().tc(cmd, tc))
        refused = [line for line in said.splitlines() if line and not line.startswith("Warning")]
        if " add " in cmd and refused:
            why = " ".join(refused).removeprefix("Error: ")
            raise NetworkError(f"the kernel refused `{cmd % (tc, self)}`: {why} {_REMEDY}")
        return said

    def bwCmds(self, bw: float | None = None, **options: Any) -> tuple[list[str], str]:  # noqa: N802 - Mininet's name
        """Called by Mininet, which by itself ignores a rate that is out of range.

        Raises:
            InputError: the rate is out of range.
        """
        if bw is not None and not 0 < bw <= self.bwParamMax:
            raise InputError(
                f"{self.name}: a rate of {bw:g} Mbit/s; give one above 0 and at most "
                f"{self.bwParamMax}."
            )
        if bw is None or self._queue is None:
            commands, parent = super().bwCmds(bw, **options)
            return commands, parent
        burst = max(_LEAST_BURST, round(bw * 1e6 / 8 * _BURST))
        held = self._queue if isinstance(self.node, P4Switch) else _OF_HOSTS
        return [
            f"%s qdisc add dev %s root handle 5: tbf rate {bw:f}Mbit burst {burst} "
            f"limit {_TBF_LIMIT} overhead {OVERHEAD}",
            f"%s qdisc add dev %s parent 5:1 handle 6: pfifo limit {held}",
        ], " parent 6: "


class LimitedLink(Link):
    """Mininet's TCLink, which only prints errors; this one raises them."""

    def __init__(self, *ends: Any, **options: Any) -> None:
        options.setdefault("cls1", LimitedInterface)
        options.setdefault("cls2", LimitedInterface)
        super().__init__(*ends, **options)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary folder for the files of a run. Folders of killed runs are removed, too."""
    here = Path(tempfile.gettempdir())
    for folder in here.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as made:
        yield Path(made)


@contextlib.contextmanager
def network(topo: Topo, *, limited: bool = False) -> Iterator[Any]:
    """``topo`` as a running network.

    Hosts without a MAC address get one by their number. If the topology names no neighbors, every
    host knows the addresses of all others. The network is stopped when the context closes: after
    success, errors, Ctrl-C and SIGTERM.

    Args:
        topo: the topology.
        limited: whether links have a rate, a delay or a loss.

    Yields:
        Mininet's ``Mininet``.

    Raises:
        InputError: not root.
        InnetError: a switch did not start; see ``P4Switch.start``.
    """
    require_root("a Mininet network")
    setLogLevel("error")
    with _terminated_like_interrupted():
        net = None
        try:
            with _mininet_errors():
                net = Mininet(
                    topo=None,
                    controller=None,
                    link=LimitedLink if limited else Link,
                    build=False,
                    ipBase="10.0.0.0/16",
                    autoSetMacs=True,  # if the topology names none
                )
                net.topo = topo
                net.build()
                if not any(topo.nodeInfo(host).get("neighbors") for host in topo.hosts()):
                    net.staticArp()  # P4 programs answer no ARP requests
                net.start()
            yield net
        finally:
            if net is not None:
                take_down(net)


def take_down(net: Any) -> None:
    """Stop everything, even if a step fails. Ctrl-C takes effect afterwards."""
    with _undisturbed():
        for switch in net.switches:
            with contextlib.suppress(Exception):  # the others must be stopped as well
                switch.stop()
        for node in (*net.switches, *net.hosts):
            with contextlib.suppress(Exception):
                node.terminate()
        for node in (*net.switches, *net.hosts):
            if node.shell is not None:
                with contextlib.suppress(Exception):
                    node.shell.wait(5)


def require_root(what: str) -> None:
    """Raise InputError unless this process may make namespaces and interfaces."""
    if os.geteuid() != 0:
        raise InputError(f"{what} needs root: run the command with sudo.")


def make_folder(folder: Path) -> Path:
    """The folder for captures as an absolute path, since switches run in other folders. It is
    created.

    Raises:
        InputError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror or error}.") from None
    return folder.resolve()


def check_switches(net: Any) -> None:
    """Raise NetworkError if a switch has ended, with its name and output."""
    for switch in net.switches:
        if isinstance(switch, P4Switch):
            switch.check()


@contextlib.contextmanager
def _mininet_errors() -> Iterator[None]:
    """Mininet raises bare exceptions; their text is more useful than a traceback."""
    try:
        yield
    except InnetError:
        raise
    except Exception as error:
        raise NetworkError(f"Mininet could not build the network: {error}") from error


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, so that contexts are closed, unless the program handles
    SIGTERM itself, as ``innet`` does.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal asks
        raise KeyboardInterrupt

    with _handler(signal.SIGTERM, interrupt):
        yield


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    with _handler(signal.SIGINT, signal.SIG_IGN), _handler(signal.SIGTERM, signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _handler(
    number: int, handler: Callable[[int, FrameType | None], Any] | signal.Handlers
) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
