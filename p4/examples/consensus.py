"""Paxos in switches, with a leader that fails: consensus.p4.

    python p4/examples/consensus.py

Clients send requests to a coordinator switch, which numbers them; three acceptor switches vote;
learners decide what a majority voted for, as in P4xos (IEEE/ACM ToN 2020). Then the coordinator's
links fail. A learner that hears nothing takes over with the other coordinator: it asks acceptors
what they voted for (phase 1), has that voted for again, and lets the new one number requests from
there on.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

from innet.sim import Testbed

PROGRAM = Path(__file__).with_suffix(".json")
MESSAGE = struct.Struct(
    ">6s6sHBBHHIQ"
)  # Ethernet; message, acceptor, round, voted, instance, value
TYPE = 0x88B7
REQUEST, PREPARE, PROMISE, ACCEPT, ACCEPTED = range(5)
ACCEPTORS, MAJORITY = 3, 2
SILENCE = 200e-6  # after which a learner takes over


def message(kind: int, *, voted: int = 0, instance: int = 0, value: int = 0) -> bytes:
    """A frame with a message."""
    return MESSAGE.pack(bytes(6), bytes(6), TYPE, kind, 0, 0, voted, instance, value)


def make(seed: int):
    """Two coordinators, three acceptors; a client and two learners at both coordinators.

    Ports of coordinators: 1 to 3 acceptors, 4 the client, 5 and 6 learners.
    """
    bed = Testbed("10g", seed=seed)
    groups = [
        "mc_mgrp_create 1", "mc_node_create 0 1 2 3", "mc_node_associate 1 0",
        "mc_mgrp_create 2", "mc_node_create 0 4 5 6", "mc_node_associate 2 1",
    ]  # fmt: skip
    # The second coordinator numbers no requests yet: no instance is left there.
    coordinators = [
        bed.switch(
            f"c{n}",
            PROGRAM,
            commands=[
                f"table_set_default role coordinate {n}",
                f"register_write next_instance 0 {first}",
                *groups,
            ],
        )
        for n, first in ((1, 0), (2, 1024))
    ]
    acceptors = [
        bed.switch(f"a{n}", PROGRAM, commands=[f"table_set_default role accept_as {n}"])
        for n in range(1, ACCEPTORS + 1)
    ]
    hosts = [bed.host(name) for name in ("client", "learner1", "learner2")]
    links = defaultdict(list)
    for coordinator in coordinators:
        for port, acceptor in enumerate(acceptors, start=1):
            link = bed.link(coordinator, acceptor, ports=(port, int(coordinator.name[1])))
            links[coordinator.name].append(link)
        for port, host in enumerate(hosts, start=4):
            links[coordinator.name].append(bed.link(host, coordinator, port=port))
    return bed, coordinators, links, hosts


def learn(host, decided: dict, promises: list):
    """Let a host count votes; it notes what is decided, and promises."""
    votes = defaultdict(set)

    @host.serve
    async def count():
        while True:
            frame = await host.receive()
            *_, kind, acceptor, round_, voted, instance, value = MESSAGE.unpack(frame)
            if kind == PROMISE:
                promises.append((acceptor, instance, voted, value))
            elif kind == ACCEPTED:
                votes[instance, round_, value].add(acceptor)
                if len(votes[instance, round_, value]) >= MAJORITY:
                    decided.setdefault(instance, []).append((round_, value, host.now))


def take_over(host, decided: dict, promises: list, coordinator):
    """Let a learner take over when it has heard nothing for a while."""

    @host.run
    async def watch():
        before = -1
        while len(decided) != before or not decided:
            before = len(decided)
            await host.sleep(SILENCE)
        known = max(decided) + 1
        # Phase 1, for all that may have been voted for, by the second link: the other coordinator.
        for instance in range(known + 8):
            host.send(message(PREPARE, instance=instance), link=1)
        await host.sleep(50e-6)
        last = -1
        for instance in range(known + 8):
            heard = [p for p in promises if p[1] == instance]
            assert len({acceptor for acceptor, *_ in heard}) >= MAJORITY
            _, _, voted, value = max(heard, key=lambda p: p[2])
            if voted:  # somebody may have decided it: it is proposed again
                host.send(message(ACCEPT, instance=instance, value=value), link=1)
                last = instance
        coordinator.model.registers["Consensus.next_instance"][0] = last + 1
        return host.now

    return watch


def run(requests: int = 60, fails: float = 100e-6, seed: int = 1):
    """Decide requests while the first coordinator fails; returns what each learner decided."""
    bed, coordinators, links, (client, *learners) = make(seed)
    decided, promises = [{}, {}], [[], []]
    for learner, known, heard in zip(learners, decided, promises, strict=True):
        learn(learner, known, heard)
    watch = take_over(learners[0], decided[0], promises[0], coordinators[1])
    for link in links["c1"]:
        link.down(fails, 1.0)

    @client.run
    async def ask():
        latencies = []
        way = 0
        for value in range(1, requests + 1):
            begun = client.now
            done = False
            while not done:
                client.send(message(REQUEST, value=value), link=way)
                voters = set()
                while not done:
                    frame = await client.receive(timeout=SILENCE)
                    if frame is None:
                        way = 1 - way
                        break
                    *_, kind, acceptor, _, _, _, found = MESSAGE.unpack(frame)
                    if kind == ACCEPTED and found == value:
                        voters.add(acceptor)
                        done = len(voters) >= MAJORITY
            latencies.append(client.now - begun)
        return latencies

    bed.run()
    return bed, decided, ask.result(), watch.result()


if __name__ == "__main__":
    bed, decided, latencies, taken = run()
    print(f"took over after {taken * 1e6:.0f} us; requests took {min(latencies) * 1e6:.1f} us")
    print(f"the one that met the failure took {max(latencies) * 1e6:.1f} us")
    print(f"learners decided {len(decided[0])} and {len(decided[1])} instances")
