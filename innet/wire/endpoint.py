"""Addresses of workers and switches."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from innet.errors import InputError
from innet.wire.layout import UDP_PORT


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where packets come from or go to: Ethernet and IPv4 addresses in text form, and a UDP port.

    Raises:
        InputError: an address or port that is none.
    """

    mac: str
    ip: str
    udp_port: int = UDP_PORT

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}", self.mac):
            raise InputError(f"{self.mac!r} is no MAC address; write it as 02:00:00:00:00:01.")
        try:
            ipaddress.IPv4Address(self.ip)
        except ValueError as error:
            raise InputError(f"{self.ip!r} is no IPv4 address: {error}.") from error
        if not 0 < self.udp_port <= 0xFFFF:
            raise InputError(f"UDP port {self.udp_port} is not in 1 .. 65535.")

    @classmethod
    def of_worker(cls, index: int) -> Endpoint:
        """The default address of worker ``index``: locally administered MAC, 10.0.0.0/16."""
        if not 0 <= index < 0xFF00:
            raise InputError(f"worker index {index} is not in 0 .. {0xFF00 - 1}.")
        high, low = divmod(index + 1, 256)
        return cls(f"02:00:00:00:{high:02x}:{low:02x}", f"10.0.{high}.{low}")

    @classmethod
    def of_switch(cls, index: int = 0) -> Endpoint:
        """The default address of switch ``index``; above those of all workers."""
        if not 0 <= index < 0xFD:
            raise InputError(f"switch index {index} is not in 0 .. {0xFD - 1}.")
        return cls(f"02:00:00:00:ff:{0xFE - index:02x}", f"10.0.255.{0xFE - index}")

    @classmethod
    def of_server(cls) -> Endpoint:
        """The default address of a job's parameter server; below those of the switches."""
        return cls("02:00:00:00:ff:01", "10.0.255.1")

    @property
    def mac_bytes(self) -> bytes:
        return bytes.fromhex(self.mac.replace(":", ""))

    @property
    def ip_number(self) -> int:
        return int(ipaddress.IPv4Address(self.ip))
