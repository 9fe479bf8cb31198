"""Packet sockets, opened without NumPy and Numba, whose imports take longer than scripts wait.

Sources: packet(7), socket(7).
"""

from __future__ import annotations

import socket
import struct

from innet.core.errors import NetworkError

SO_SNDBUFFORCE = 32  # may exceed the system's limit; needs CAP_NET_ADMIN
SO_RCVBUFFORCE = 33

_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_PACKET_MR_PROMISC = 1
_MEMBERSHIP = struct.Struct("=iH10x")  # struct packet_mreq
_BUFFER = 64 << 20  # bytes; holds many windows of every worker


def widen_buffers(sock: socket.socket, size: int = _BUFFER) -> None:
    """Enlarge a socket's buffers: to ``size`` bytes as root, else to what the system allows."""
    for forced, plain in (
        (SO_RCVBUFFORCE, socket.SO_RCVBUF),
        (SO_SNDBUFFORCE, socket.SO_SNDBUF),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, size)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, size)


def open_interface(interface: str, ethertype: int | None = None) -> socket.socket:
    """A packet socket of ``interface``, for a switch's port or a host.

    A switch's receives all that passes the interface but what the socket itself sends: also what
    other programs and the kernel send there. simple_switch does so, as libpcap does. Scripts inject
    packets that way, on the switch's end of a cable.

    Args:
        interface: its name in this network namespace.
        ethertype: a host's: it receives frames of this EtherType only, and only those that arrive.

    Raises:
        NetworkError: no such interface, or not root.
    """
    try:
        # Protocol 0: the socket receives nothing until it is bound.
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except PermissionError:
        raise NetworkError(
            f"raw frames of {interface} need root (CAP_NET_RAW); run it with sudo."
        ) from None
    try:
        widen_buffers(sock)
        if ethertype is not None:
            sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        protocol = _ETH_P_ALL if ethertype is None else ethertype
        sock.bind((interface, protocol))
        if ethertype is None:  # a switch also receives frames for other addresses
            request = _MEMBERSHIP.pack(socket.if_nametoindex(interface), _PACKET_MR_PROMISC)
            sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, request)
            sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)  # tells VLAN tags taken off
    except OSError as error:
        sock.close()
        raise NetworkError(
            f"cannot open the interface {interface}: {error.strerror}. `ip link` lists those "
            "that exist."
        ) from None
    return sock
