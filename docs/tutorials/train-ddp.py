# %% [markdown]
# # Train with DDP
#
# You take a training script with PyTorch's DistributedDataParallel and let a switch sum its gradients. Two lines
# change. You need `pip install 'innet[torch]'`.
#
# ## The script
#
# It trains a small network on scikit-learn's digits. The lines that are marked are innet's.

# %%
from pathlib import Path

Path("train.py").write_text("""\
import json
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel

codec = sys.argv[1]
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
images, labels = (torch.from_numpy(each) for each in load_digits(return_X_y=True))
images, labels = images.float()[rank::ranks] / 16, labels[rank::ranks]

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model = DistributedDataParallel(net)
if codec != "gloo":
    from innet.torch import HookState, ddp_hook  # innet

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
    print(f"{codec}: {right.item() / ranks:.1%} of the training images are right")
    if codec != "gloo":
        print(f"all sums exact: {all(each.exact for each in state.reports.values())}")
        print(f"{state.reports[0].compression:.1f} x fewer bytes than float32")
    with open("losses-" + codec.partition(":")[0] + ".json", "w") as file:
        json.dump(losses, file)
dist.destroy_process_group()
""")

# %% [markdown]
# ## Run it
#
# `torchrun` starts two processes. The first of them starts a switch service beside it; workers send it UDP packets.

# %% language="bash"
# torchrun --standalone --nproc-per-node 2 train.py gloo 2>/dev/null
# torchrun --standalone --nproc-per-node 2 train.py topk:ratio=0.2 2>/dev/null

# %% [markdown]
# ## Compare the losses

# %%
import json

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.6))
for name, color in (("gloo", "#8a8f98"), ("topk", "#3f7cbf")):
    axes.plot(json.loads(Path(f"losses-{name}.json").read_text()), label=name, color=color)
axes.set(xlabel="iterations", ylabel="loss of rank 0", ylim=0)
axes.legend()

# %% [markdown]
# ## On several machines
#
# Start the switch on one machine, and name it to all ranks:
#
# ```text
# innet switch serve --listen 0.0.0.0:48879 --key-file key
# INNET_SWITCH=10.0.0.1:48879 INNET_KEY_FILE=key torchrun ... train.py topk
# ```
#
# The process group `"innet"`, sharded models, mixed precision, checkpoints and what is slow on one machine:
# [PyTorch](../pytorch.md).
