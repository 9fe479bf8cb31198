# %% [markdown]
# # Simulate your cluster
#
# How long would an iteration of training take on your network: with a ring all-reduce, with the switch adding, with a
# codec? innet simulates it packet by packet. You describe the network, the model and the workers.
#
# ## One iteration
#
# ResNet-20, eight workers, links of 10 Gbit/s. The switch runs the compiled P4 program.

# %%
import innet

record = innet.simulate(workers=8, model="resnet20", network="10g", baselines=("ring",))
iteration = record.iterations[0]
print(f"an iteration takes {record.iteration_seconds * 1e3:.1f} ms")
print(f"of which {max(iteration.exposed) * 1e3:.2f} ms are the network's, not hidden by computing")
ring = record.baselines["ring"]
print(f"a ring all-reduce of float32 over TCP: {ring.iteration_seconds * 1e3:.1f} ms")
print(f"goodput {record.simulated.goodput_gbps:.1f} Gbit/s")

# %% [markdown]
# `exposed` is the time that workers wait for sums after the backward pass. The rest of the network's time is hidden
# behind it, as in PyTorch's DistributedDataParallel, whose buckets are simulated.
#
# ## Your network
#
# A network is a preset with settings, or a TOML file. `innet.sim.PRESETS` has the presets; the
# [page on simulated time](../simulation.md) describes every setting.

# %%
from pathlib import Path

Path("cluster.toml").write_text("""\
preset = "25g"
delay = 2e-6
queue_packets = 128
loss = 1e-5
""")
record = innet.simulate(workers=8, model="resnet20", network="cluster.toml")
print(f"{record.iteration_seconds * 1e3:.2f} ms on the network of cluster.toml")

# %% [markdown]
# ## Your model
#
# A model is a list of layers with their shapes. [A TOML file](../simulate.md#models) describes one that innet does not have.
#
# ## Compare
#
# A sweep simulates all combinations of settings. `jobs` is the number of processes (default: one for each core). With
# `out_dir=` it writes its points to a folder; if you interrupt it and run it again, it simulates only the missing ones.

# %%
sweep = innet.sweep(
    {"workers": 4, "model": "resnet20", "compute": 2e-3},
    {"codec": ["dense", "topk:ratio=0.01"], "network": ["1g", "10g", "100g"]},
    jobs=1,
)
for point in sweep.points:
    print(point.values, f"{point.means['iteration_seconds'] * 1e3:7.2f} ms")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.6))
for codec, color in (("dense", "#3f7cbf"), ("topk:ratio=0.01", "#d9822b")):
    points = [each for each in sweep.points if each.values["codec"] == codec]
    rates = [each.values["network"] for each in points]
    axes.plot(rates, [1e3 * each.means["iteration_seconds"] for each in points], "o-", color=color)
    axes.annotate(
        codec, (0, 1e3 * points[0].means["iteration_seconds"]), (8, 0), textcoords="offset points"
    )
axes.set(xlabel="links", ylabel="ms an iteration", ylim=0)

# %% [markdown]
# On slow links the codec saves time. On fast links an iteration takes as long as its computation.
#
# ## Slow workers
#
# One worker that takes longer holds up all others.

# %%
for given in ({}, {"straggler": "lognormal:sigma=0.3"}):
    record = innet.simulate(
        workers=8, model="resnet20", network="10g", iterations=5, seed=2, **given
    )
    print(
        f"{given.get('straggler', 'none'):22} {record.iteration_seconds * 1e3:6.2f} ms an iteration"
    )
