"""Networks of processes in a star, as links of a given rate would make it; needs root, on Linux.

Each place is a network namespace that a process of its own holds, so that the kernel takes it down
when that process ends, however it does. A bridge is in the middle, to which a pair of virtual
Ethernet interfaces leads from each of the other places. Both ends of a pair send at a rate, by a
token bucket: what links of that rate in both directions let through.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from innet.core.errors import MissingToolError, NetworkError

INTERFACE = "eth0"
_BRIDGE = "br0"
_NETWORK = 0x40000000  # Linux: CLONE_NEWNET
_BURST = 1e-4  # seconds at the link's rate that pass at once, or where that is more
_LEAST_BURST = 80 << 10  # a long datagram with the headers of its packets: none is cut up for it
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}


class Place(NamedTuple):
    """A network: the process that holds it, and the address there."""

    pid: int
    ip: str


def enter(place: Place) -> None:
    """Have this process, which has a single thread yet, in that network."""
    library = ctypes.CDLL(None, use_errno=True)  # Python has it from 3.12 on
    with Path(f"/proc/{place.pid}/ns/net").open("rb") as namespace:
        if library.setns(namespace.fileno(), _NETWORK):
            raise NetworkError(f"cannot enter a network: {os.strerror(ctypes.get_errno())}.")


class Star:
    """The networks; used as a context.

    Args:
        leaves: how many places at the ends.
        card: whether the switch process is at a further end, behind one link as machines are, and
            not in the middle, where switches are.

    Attributes:
        places: of the leaves, and of the switch at the end.

    Raises:
        NetworkError: who runs it is not root, or the kernel has not what it takes.
        MissingToolError: a command is missing.
    """

    def __init__(self, leaves: int, *, card: bool = False) -> None:
        if os.geteuid():
            raise NetworkError("networks with rates can be made by root only; run it by sudo.")
        for tool, package in _TOOLS.items():
            if shutil.which(tool) is None:
                raise MissingToolError(
                    tool, "networks with rates", f"Install it by: sudo apt install {package}"
                )
        self._count, self._card = leaves, card
        self._ends: list[Place] = []
        self._stack = contextlib.ExitStack()
        self.places: tuple[Place, ...] = ()

    def __enter__(self) -> Star:
        with contextlib.ExitStack() as stack:
            count = self._count + self._card
            self._ends = [Place(self._started(stack), f"10.77.0.{1 + end}") for end in range(count)]
            self._middle = Place(self._started(stack), "10.77.0.254")
            self._wire()
            last = [] if self._card else [self._middle]
            self.places = (*self._ends, *last)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    def _started(stack: contextlib.ExitStack) -> int:
        run = ["unshare", "--net", "cat"]  # which ends when its input does
        pipe = subprocess.PIPE
        holder = subprocess.Popen(run, stdin=pipe, stdout=pipe, stderr=pipe, text=True)  # noqa: S603 - ours
        stack.callback(holder.communicate)
        assert holder.stdin is not None
        assert holder.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            holder.stdin.write("\n")
            holder.stdin.flush()
        if not holder.stdout.readline():
            _, failure = holder.communicate()
            raise NetworkError(f"no network namespace can be made here: {failure.strip()}.")
        return holder.pid

    def _wire(self) -> None:
        middle = self._middle
        _in(middle, f"ip link add {_BRIDGE} type bridge")
        _in(middle, f"ip link set {_BRIDGE} up")
        for end, leaf in enumerate(self._ends):
            _in(middle, f"ip link add leaf{end} type veth peer name {INTERFACE} netns {leaf.pid}")
            _in(middle, f"ip link set leaf{end} master {_BRIDGE} up")
            _in(leaf, f"ip link set {INTERFACE} up")
            _in(leaf, f"ip address add {leaf.ip}/24 dev {INTERFACE}")
        _in(middle, f"ip address add {middle.ip}/24 dev {_BRIDGE}")
        for place in (*self._ends, middle):
            _in(place, "ip link set lo up")

    def limit(self, megabits: float, queue: int) -> None:
        """Have all links carry so many millions of bits a second, each way.

        Args:
            megabits: a second.
            queue: bytes that may wait at each end of a link; what is more is lost.
        """
        burst = max(_LEAST_BURST, round(megabits * 1e6 / 8 * _BURST))
        limits = f"root tbf rate {round(megabits * 1e6)}bit burst {burst} limit {queue}"
        for end, leaf in enumerate(self._ends):
            for place, interface in ((leaf, INTERFACE), (self._middle, f"leaf{end}")):
                _in(place, f"tc qdisc replace dev {interface} {limits}")

    def lose(self, share: float) -> None:
        """Have this share of the packets lost that arrive at any place, each by chance.

        Raises:
            MissingToolError: iptables is missing.
        """
        if shutil.which("iptables") is None:
            raise MissingToolError(
                "iptables", "losing packets", "Install it by: sudo apt install iptables"
            )
        for leaf in self._ends:
            # Many packets that pass as one datagram would be lost together.
            _in(leaf, f"ip link set {INTERFACE} gso_max_segs 1 gro_max_size 1")
        for end in range(len(self._ends)):
            _in(self._middle, f"ip link set leaf{end} gso_max_segs 1 gro_max_size 1")
        for place in self.places:
            rule = f"-m statistic --mode random --probability {share} -j DROP"
            _in(place, f"iptables -A INPUT {rule}")


def _in(place: Place, command: str) -> None:
    run = ["nsenter", "-t", str(place.pid), "-n", *command.split()]
    done = subprocess.run(run, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode:
        raise NetworkError(f"`{command}` failed: {done.stderr.strip()} (`innet doctor` says more)")
