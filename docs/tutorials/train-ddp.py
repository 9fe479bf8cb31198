# %% [markdown]
# # Train with DDP
#
# You take a training script with PyTorch's DistributedDataParallel and let a switch sum its gradients. Two lines
# change. You need innet with PyTorch ([install](index.md#install)).
#
# ## The script
#
# It trains a small network on scikit-learn's digits, first with gloo, then with a codec over the switch. Two lines
# are innet's; they are marked.

# %%
from pathlib import Path

Path("train.py").write_text("""\
import json

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel

from innet.torch import HookState, ddp_hook  # innet


def train(codec):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    model = DistributedDataParallel(net)
    if codec:
        state = HookState(codec)
        model.register_comm_hook(state, ddp_hook)  # innet
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for epoch in range(3):
        for picked in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[picked]), labels[picked])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    right = (model(images).argmax(1) == labels).float().mean()
    dist.all_reduce(right)
    if rank == 0:
        print(f"{codec or 'gloo'}: {right.item() / ranks:.1%} of the training images are right")
        if codec:
            for report in state.reports.values():
                print(f"{report.compression:.1f} x fewer bytes than float32")
    return losses


dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
images, labels = (torch.from_numpy(each) for each in load_digits(return_X_y=True))
images, labels = images.float()[rank::ranks] / 16, labels[rank::ranks]
losses = {"gloo": train(None), "topk": train("topk:ratio=0.1")}
if rank == 0:
    with open("losses.json", "w") as file:
        json.dump(losses, file)
dist.destroy_process_group()
""")

# %% [markdown]
# ## Run it
#
# `torchrun` starts two processes. The first of them starts a switch service beside it; workers send it UDP packets.

# %% language="bash"
# torchrun --standalone --nproc-per-node 2 train.py

# %% [markdown]
# ## Compare the losses

# %%
import json

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.6))
for name, color in (("gloo", "#8a8f98"), ("topk", "#3f7cbf")):
    axes.plot(json.loads(Path("losses.json").read_text())[name], label=name, color=color)
axes.set(xlabel="iterations", ylabel="loss of rank 0", ylim=0)
axes.legend()

# %% [markdown]
# ## On several machines
#
# Write a key into a file, and copy the file to every machine. Only workers with this key may join. Start the switch
# on one machine, here 10.0.0.1. On every machine, tell `torchrun` where the switch is:
#
# ```text
# (umask 077; openssl rand -hex 16 > key)
# innet switch serve --listen 10.0.0.1:48879 --key-file key
# INNET_SWITCH=10.0.0.1:48879 INNET_KEY_FILE=key torchrun ... train.py
# ```
#
# The process group `"innet"`, sharded models, mixed precision, checkpoints and what is slow on one machine:
# [PyTorch](../pytorch.md).
