# %% [markdown]
# # A first all-reduce
#
# Four workers have a gradient each. A P4 program on innet's switch adds them, and every worker gets the sum.
# You see what that costs in bytes, what a codec saves, and that lost packets do not change the sum.
#
# You need innet ([install](index.md#install)) and ten minutes. No root, no GPU, no P4 compiler. The first call on a
# machine compiles for about ten seconds; innet keeps the result, so that later calls are fast.
#
# ## One sum

# %%
import numpy as np

import innet

rng = np.random.default_rng(0)
gradients = [rng.standard_normal(20_000, np.float32) for _ in range(4)]

total, report = innet.all_reduce(gradients, codec="dense")

print("sum     ", total[:4])
print("float64 ", np.sum(gradients, axis=0, dtype=np.float64)[:4])
print("exact   ", report.exact)
print("packets ", report.packets_sent, "from all workers")
print("bytes   ", report.bytes_sent, "from each worker")

# %% [markdown]
# Switches add integers, not floats. With the codec `dense` all workers agree on a scale, turn each float32
# into an int32, and divide the sum by the scale. `exact` is about the integers: innet adds them again
# in plain NumPy and compares each sum.
#
# `max_abs_error` is the error of rounding to integers:

# %%
print(f"largest error: {report.max_abs_error:.1e}, largest value: {abs(total).max():.2f}")

# %% [markdown]
# ## Fewer bytes
#
# Gradients are often sparse, or can be made so. `topk` sends the largest elements of each worker and keeps
# the rest for the next time. `innet codecs` lists all codecs with their papers.

# %%
CODECS = ["dense", "topk:ratio=0.1", "topk:ratio=0.01", "signsgd"]
compression = {}
for codec in CODECS:
    total, report = innet.all_reduce(gradients, codec=codec)
    compression[codec] = report.compression
    print(f"{codec:16} {report.bytes_sent:8,} bytes, {report.rounds} rounds, exact: {report.exact}")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.2))
axes.barh(list(compression), list(compression.values()), color="#3f7cbf")
axes.axvline(1, color="gray", linewidth=1)
axes.invert_yaxis()
axes.set_xlabel("times fewer bytes than float32 (higher is better)")

# %% [markdown]
# ## Lost packets
#
# Links may lose, duplicate and delay packets. A worker sends a packet again if no answer comes. The switch remembers
# which workers it has added, and adds none of them twice.

# %%
from innet.network import Faults

lossless, _ = innet.all_reduce(gradients, codec="dense")
for loss in (0, 0.01, 0.1):
    faults = Faults(loss=loss, duplicate=loss, delay=1e-4)
    total, report = innet.all_reduce(gradients, codec="dense", faults=faults, seed=1)
    assert (total == lossless).all()
    print(f"loss {loss:4.0%}: {report.retransmissions:4} packets sent again, the same sum")

# %% [markdown]
# ## From the command line
#
# `innet allreduce` does the same with generated gradients. `--json` prints every field of the report.

# %% language="bash"
# innet allreduce --codec topk:ratio=0.01 --size 20000 --loss 0.01 --seed 1

# %% [markdown]
# ## How long would it take?
#
# So far packets took no time. `network=` gives links a rate, and packets take simulated time:

# %%
for network in ("10g", "100g"):
    for codec in ("dense", "topk:ratio=0.01"):
        _, report = innet.all_reduce(gradients, codec=codec, network=network)
        print(f"{network:5} {codec:16} {report.seconds.simulated * 1e6:6.0f} µs")

# %% [markdown]
# Next: [a codec of your own](own-codec.md), [simulate your cluster](simulate-cluster.md), or
# [what the fields of a report mean](../guide.md#reading-reports-and-records).
