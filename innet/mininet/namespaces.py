"""Into another network namespace and back, and what is set there without a tool.

Sources: setns(2), network_namespaces(7), netdevice(7), linux/ethtool.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator

from innet.core.errors import NetworkError

_CLONE_NEWNET = 0x40000000
_SIOCSIFMTU = 0x8922
_SIOCETHTOOL = 0x8946
_OFFLOADS = {  # ETHTOOL_S...: receive and transmit checksums, scatter-gather, segmentation
    "rx": 0x15,
    "tx": 0x17,
    "sg": 0x19,
    "tso": 0x1F,
    "gso": 0x24,
    "gro": 0x2C,
}

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def network_namespace_of(pid: int) -> Iterator[None]:
    """This thread is in the network namespace of process ``pid`` while the context is open.

    Sockets that are opened there stay there.

    Raises:
        NetworkError: there is no such process, or not root.
    """
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        _enter(f"/proc/{pid}/ns/net")
        try:
            yield
        finally:
            if _libc.setns(own, _CLONE_NEWNET):
                raise NetworkError("cannot return to the network namespace that was left.")
    finally:
        os.close(own)


def _enter(path: str) -> None:
    try:
        namespace = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise NetworkError(f"no network namespace at {path}: {error.strerror}.") from None
    try:
        if _libc.setns(namespace, _CLONE_NEWNET):
            raise NetworkError(
                f"cannot enter {path}: {os.strerror(ctypes.get_errno())}; run as root."
            )
    finally:
        os.close(namespace)


def turn_offloads_off(interface: str) -> None:
    """Let an interface of this namespace send and deliver frames as they are on a cable.

    On a veth pair checksums would never be computed and segments never be cut, since both ends are
    the same kernel's; a P4 program would see what no cable carries. What a driver does not have is
    left alone.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for command in _OFFLOADS.values():
            value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value)).ljust(40)
            with contextlib.suppress(OSError):
                fcntl.ioctl(sock, _SIOCETHTOOL, request)


def set_mtu(interface: str, mtu: int) -> None:
    """Let an interface of this namespace carry frames of up to ``mtu`` bytes behind the Ethernet
    header.

    Raises:
        NetworkError: its driver cannot.
    """
    request = struct.pack("16si", interface.encode(), mtu).ljust(40)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock, _SIOCSIFMTU, request)
        except OSError as error:
            raise NetworkError(
                f"interface {interface} takes no frames of {mtu} bytes: {error.strerror}."
            ) from None


def listens(port: int) -> bool:
    """Whether something listens at a TCP port of this namespace's loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
