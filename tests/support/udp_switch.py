"""The built-in switch behind a UDP socket of the loopback interface: a network without root."""

from __future__ import annotations

import dataclasses
import socket
import threading

import numpy as np
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from innet.plan import Plan, aggregation_of
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
        self._lock = threading.Lock()
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
            with self._lock:
                leaving = self.switch.process([(self.plan.attachment(host).port, frame)])
            for port, data in leaving:
                to = by_port[port].endpoint
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
    """Leads participants in threads from epoch to epoch: what ``Participant`` calls ``renew``."""

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
