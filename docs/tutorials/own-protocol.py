# %% [markdown]
# # A protocol of your own, from packets to a plot
#
# You have a P4 program with a header of its own, and hosts that speak it. You put both on the clock: links with rates and
# losses, switches with queues. Then you measure what a paper would show.
#
# The protocol here is a sum in the switch, in the manner of SwitchML: workers send chunks of a vector, the switch adds them, and
# sends the sum to all. It has nothing of innet's own protocol. `innet p4 example` copies the program, what p4c made of it, and
# its hosts.

# %% language="bash"
# innet p4 example aggregation -o aggregation
# wc -l aggregation/aggregation.p4 aggregation/aggregation.py

# %% [markdown]
# ## The packet
#
# The header follows Ethernet's: worker, version of the slot, slot, offset of the chunk; then eight values.

# %%
import struct

HEADER = struct.Struct(">6s6sHBBHI")


def chunk(worker, version, slot, offset, values):
    head = HEADER.pack(bytes(6), bytes(6), 0x88B5, worker, version, slot, offset)
    return head + struct.pack(">8i", *values)


print(len(chunk(0, 0, 0, 0, range(8))), "bytes")

# %% [markdown]
# ## One sum, by hand
#
# Two workers at a switch, one chunk each. The switch multicasts the sum when the second one has come.

# %%
from innet.sim import Testbed

bed = Testbed("10g")
switch = bed.switch(
    "s1",
    "aggregation/aggregation.json",
    commands=[
        "table_set_default job set_workers 2",
        "mc_mgrp_create 1",
        "mc_node_create 0 1 2",
        "mc_node_associate 1 0",
    ],
)
hosts = [bed.host("h1"), bed.host("h2")]
for host in hosts:
    bed.link(host, switch)


def add(host, number):
    @host.run
    async def work():
        host.send(chunk(number, 0, slot=0, offset=0, values=[number + 1] * 8))
        answer = await host.receive()
        return struct.unpack_from(">8i", answer, HEADER.size)

    return work


tasks = [add(host, number) for number, host in enumerate(hosts)]
bed.run()
print(tasks[0].result(), f"after {bed.now * 1e6:.3f} us")

# %% [markdown]
# ## Registers
#
# What the switch keeps can be read at any time, under the names of the program.

# %%
registers = switch.model.registers
print("who was added in slot 0:", bin(registers["Aggregation.seen"][0]))

# %% [markdown]
# ## The whole protocol
#
# `aggregation.py` has the worker: a window of slots, and a chunk that is sent again if no sum comes in time. `run` sums random
# vectors and returns the bed, the workers' results, and what the sum must be.

# %%
import sys

sys.path.insert(0, "aggregation")
import aggregation

bed, tasks, expected = aggregation.run(workers=4, elements=4000, loss=1e-3)
for task in tasks:
    result, again = task.result()
    assert (result == expected).all()
    print(f"{task.node.name}: right, {again} chunks sent again")
print(f"{bed.now * 1e6:.1f} us")

# %% [markdown]
# ## A plot
#
# How much do losses cost? Each point is a run; the bars are three seeds.

# %%
import matplotlib.pyplot as plt
import numpy as np

losses = [0, 1e-3, 3e-3, 1e-2]
times = np.array(
    [
        [aggregation.run(elements=4000, loss=loss, seed=seed)[0].now * 1e6 for seed in range(3)]
        for loss in losses
    ]
)
figure, axes = plt.subplots(figsize=(6, 2.6))
axes.errorbar(range(len(losses)), times.mean(axis=1), times.std(axis=1), marker="o", capsize=4)
axes.set_xticks(range(len(losses)), [f"{loss:g}" for loss in losses])
axes.set(xlabel="probability of a loss on each link", ylabel="µs of simulated time", ylim=0)
figure.tight_layout()
assert times[-1].mean() > times[0].mean()

# %% [markdown]
# ## Where to go from here
#
# [The page on testbeds](../testbed.md) has the rest: controllers that learn from digests, hosts in compiled code for millions of
# packets, jobs of innet beside yours, links that fail. `innet p4 example cache` (a cache with a controller), `consensus` (Paxos with a
# leader that fails), `balance` (load balancing under a link failure) and `telemetry` are four more protocols, each a program and a file of hosts.
