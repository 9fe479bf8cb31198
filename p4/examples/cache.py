"""A switch that answers reads of hot keys, and a controller that learns which they are: cache.p4.

    python p4/examples/cache.py

Clients read keys of a Zipf distribution from a server that is slow. The controller gives hot keys
places in the switch, as NetCache does (SOSP 2017).
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from innet.sim import Testbed

PROGRAM = Path(__file__).with_suffix(".json")
MESSAGE = struct.Struct(">6s6sHBBIQQ")  # Ethernet; operation, from the cache, request, key, value
TYPE = 0x88B6
GET, PUT, GOT, DID = 1, 2, 3, 4
PLACES = 64


def mac(host) -> bytes:
    """A host's Ethernet address."""
    return bytes.fromhex(host.mac.replace(":", ""))


def make(clients: int, seed: int):
    """Clients and a server at a switch, whose controller is 50 us away."""
    bed = Testbed("10g", seed=seed)
    switch = bed.switch(
        "s1",
        PROGRAM,
        commands=[
            f"table_add hosts forward 02:00:00:00:00:{n:02x} => {n}" for n in range(1, clients + 2)
        ],
    )
    server, *others = [bed.host(f"h{n}") for n in range(1, clients + 2)]
    for port, host in enumerate([server, *others], start=1):
        bed.link(host, switch, port=port)

    @switch.controller(latency=50e-6)
    async def learn(control):
        place = 0
        async for digest in control.digests("hot_key_t", fields=("key",)):
            if place < PLACES:
                control.table_add("cache", "cached", [digest.key], [place])
                place += 1

    return bed, switch, server, others


def serve(server, takes: float):
    """Let the server answer one request after the other; returns what it stores."""
    store = {}

    @server.serve
    async def answer():
        while True:
            frame = await server.receive()
            await server.sleep(takes)
            _, client, _, operation, _, request, key, value = MESSAGE.unpack(frame)
            if operation == PUT:
                store[key] = value
            else:
                value = store.get(key, 0)
            reply = GOT if operation == GET else DID
            server.send(MESSAGE.pack(client, mac(server), TYPE, reply, 0, request, key, value))

    return store


async def call(host, server, operation: int, *, request: int, key: int, value: int = 0):
    """A request and its answer: the value, and whether the switch answered."""
    head = mac(server), mac(host), TYPE
    while True:
        host.send(MESSAGE.pack(*head, operation, 0, request, key, value))
        frame = await host.receive(
            timeout=1e-3, match=lambda frame: MESSAGE.unpack(frame)[5] == request
        )
        if frame is not None:
            *_, from_cache, _, _, found = MESSAGE.unpack(frame)
            return found, bool(from_cache)


def run(clients: int = 4, reads: int = 500, takes: float = 2e-6, seed: int = 1):
    """Let clients read and write; returns the bed, its switch, and each client's history."""
    bed, switch, server, hosts = make(clients, seed)
    serve(server, takes)
    generator = np.random.default_rng(seed)
    tasks = []
    for number, host in enumerate(hosts, start=1):
        keys = generator.zipf(1.3, reads) % 1000

        def begin(host=host, number=number, keys=keys):
            @host.run
            async def work():
                history = []
                for n, key in enumerate(keys.tolist()):
                    request = number << 16 | n
                    begun = host.now
                    if n % 20 == 0:  # the value says who wrote it, and when
                        await call(host, server, PUT, request=request, key=key, value=request)
                        history.append(("put", key, request, begun, host.now, False))
                    else:
                        value, cached = await call(host, server, GET, request=request, key=key)
                        history.append(("get", key, value, begun, host.now, cached))
                return history

            return work

        tasks.append(begin())
    bed.run()
    return bed, switch, [task.result() for task in tasks]


if __name__ == "__main__":
    bed, switch, histories = run()
    gets = [each for history in histories for each in history if each[0] == "get"]
    for name, chosen in (("switch", True), ("server", False)):
        times = [end - begin for _, _, _, begin, end, cached in gets if cached == chosen]
        print(f"{len(times)} reads answered by the {name}, {np.mean(times) * 1e6:.1f} us each")
