"""The built-in switch behind a UDP socket of the loopback interface: a network without root."""

from __future__ import annotations

import dataclasses
import socket
import threading

import numpy as np
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from innet.plan import Plan
from innet.switch import Switch
from innet.wire import Endpoint

HEADERS = 42  # Ethernet, IPv4, UDP


def on_loopback(plan: Plan) -> Plan:
    """``plan`` with addresses of the loopback interface, in a part of it drawn by chance."""
    net = "127.{}.{}".format(*np.random.default_rng().integers(1, 255, 2))
    switch = Endpoint("02:00:00:00:ff:fe", f"{net}.254")
    hosts = tuple(
        dataclasses.replace(
            host, endpoint=Endpoint(host.endpoint.mac, f"{net}.{number}"), peer=switch
        )
        for number, host in enumerate(plan.hosts, start=1)
    )
    return dataclasses.replace(plan, hosts=hosts)


class UdpSwitch:
    """Runs in a thread while the context is open. ``plan`` is one of ``on_loopback``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        planned = plan.switches[0]
        self.switch = Switch.load(planned.program.json(), engine="interpret")
        self.switch.commands("\n".join(planned.commands))
        where = plan.hosts[0].peer
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((where.ip, where.udp_port))
        self._socket.settimeout(0.05)
        self._open = True
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._open = False
        self._thread.join(10)
        self._socket.close()

    def _run(self) -> None:
        by_address = {(h.endpoint.ip, h.endpoint.udp_port): h for h in self.plan.hosts}
        by_port = {self.plan.attachment(host).port: host for host in self.plan.hosts}
        while self._open:
            try:
                payload, address = self._socket.recvfrom(4096)
            except TimeoutError:
                continue
            host = by_address[address]
            headers = (
                Ether(src=host.endpoint.mac, dst=host.peer.mac)
                / IP(src=host.endpoint.ip, dst=host.peer.ip)
                / UDP(sport=host.endpoint.udp_port, dport=host.peer.udp_port)
            )
            frame = bytes(headers / payload)
            for port, data in self.switch.process([(self.plan.attachment(host).port, frame)]):
                to = by_port[port].endpoint
                self._socket.sendto(data[HEADERS:], (to.ip, to.udp_port))
