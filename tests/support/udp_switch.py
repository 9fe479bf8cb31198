"""The built-in switch behind a UDP socket of the loopback interface: a network without root."""

from __future__ import annotations

import dataclasses
import socket
import threading

import numpy as np
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from innet.switch import Switch
from innet.topology import Plan, aggregation_of
from innet.wire import Endpoint
from support.repeating import Repeating

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


class UdpSwitch(Repeating):
    """Runs in a thread while the context is open. ``plan`` is one of ``on_loopback``."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self._by_address = {(h.endpoint.ip, h.endpoint.udp_port): h for h in plan.hosts}
        self._by_port = {plan.attachment(host).port: host for host in plan.hosts}
        planned = plan.switches[0]
        self.switch = Switch.load(planned.program.json(), engine="interpret")
        self.switch.commands("\n".join(planned.commands))
        where = plan.hosts[0].peer
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((where.ip, where.udp_port))
        self._socket.settimeout(0.05)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._socket.close()

    def step(self) -> None:
        try:
            payload, address = self._socket.recvfrom(4096)
        except TimeoutError:
            return
        host = self._by_address[address]
        headers = (
            Ether(src=host.endpoint.mac, dst=host.peer.mac)
            / IP(src=host.endpoint.ip, dst=host.peer.ip)
            / UDP(sport=host.endpoint.udp_port, dport=host.peer.udp_port)
        )
        frame = bytes(headers / payload)
        with self._lock:
            leaving = self.switch.process([(self.plan.attachment(host).port, frame)])
        for port, data in leaving:
            to = self._by_port[port].endpoint
            self._socket.sendto(data[HEADERS:], (to.ip, to.udp_port))

    def next_epoch(self, absent: frozenset[int]) -> Plan:
        """The job's next epoch, let in by the switch."""
        with self._lock:
            self.plan, commands = aggregation_of(self.plan.aggregation).next_epoch(
                self.plan,
                absent,
                lambda _, table: [entry.handle for entry in self.switch.table_entries(table)],
            )
            for lines in commands.values():
                self.switch.commands("\n".join(lines))
            return self.plan


class Leader:
    """Leads workers in threads from epoch to epoch: what ``Worker`` calls ``renew``."""

    def __init__(self, network: UdpSwitch) -> None:
        self._network = network
        self._turn = threading.Condition()
        self._asked: list[tuple[int, ...]] = []
        self._plan = network.plan

    def renew(self, without: tuple[int, ...]) -> Plan:
        with self._turn:
            before = self._plan
            self._asked.append(without)
            absent = before.job.absent.union(*self._asked)
            if len(self._asked) == len(before.job.members) - len(absent):
                assert len(set(self._asked)) == 1  # all have seen the same
                self._asked.clear()
                self._plan = self._network.next_epoch(absent)
                self._turn.notify_all()
            assert self._turn.wait_for(lambda: self._plan is not before, timeout=20)
            return self._plan
