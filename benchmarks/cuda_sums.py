"""Sums of gradients that stay on the GPU, by innet's hooks; ``benchmarks.cuda --check`` runs it.

    python -m benchmarks.cuda_sums switch|nccl [cpu]

``switch``: two ranks on one GPU, a process group of gloo, and ``HookState``, which sums through a
switch process. ``nccl``: one rank, and ``CompressionHook`` over NCCL. Each line of the output is
JSON: the codec, whether all gradients lie on the GPU, whether they are the correctly rounded means
(of the codec exact), and seconds of an iteration. ``cpu`` tries the first without a GPU.
"""

from __future__ import annotations

import copy
import json
import os
import socket
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from innet.torch import CompressionHook, HookState, ddp_hook

STEPS = 5
WIDTH = 1024
SECONDS = 60.0  # that a sum waits for a rank


def rank_main(rank: int, ranks: int, port: int, way: str, device: str) -> None:
    """One rank: train with each codec, and print what became of the gradients."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("nccl" if way == "nccl" else "gloo", rank=rank, world_size=ranks)
    for codec in ("exact", "dense", "topk", "lhc"):
        found = trained(rank, way, codec, device)
        if rank == 0:
            print(json.dumps({"way": way, "codec": codec, "ranks": ranks, **found}), flush=True)
    dist.destroy_process_group()


def trained(rank: int, way: str, codec: str, device: str) -> dict[str, Any]:
    """Some steps with a codec."""
    torch.manual_seed(7)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 10)]
    net = torch.nn.Sequential(*layers).to(device)
    alone = copy.deepcopy(net)
    model = DistributedDataParallel(net)
    make: Any = CompressionHook if way == "nccl" else HookState
    state = make(codec, deadline=SECONDS)
    model.register_comm_hook(state, ddp_hook)
    generator = torch.Generator().manual_seed(rank)
    seconds, is_exact, on_device = [], True, True
    for _ in range(STEPS):
        x = torch.randn(32, WIDTH, generator=generator).to(device)
        own = gradients(alone, x)
        begun = time.perf_counter()
        means = gradients(model, x)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
        on_device &= all(each.device.type == device for each in means)
        for mine, mean in zip(own, means, strict=True):
            parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, mine)
            total = torch.stack([each.double() for each in parts]).sum(0).float()
            is_exact &= bool(torch.equal(total / len(parts), mean))
    state.close()
    return {"on_device": on_device, "exact": is_exact, "seconds": min(seconds)}


def gradients(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Those of the parameters, for a batch."""
    model.zero_grad()
    model(x).pow(2).mean().backward()
    return [each.grad for each in model.parameters() if each.grad is not None]


def main(way: str, device: str = "cuda") -> None:
    """Start the ranks, and wait for them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = 1 if way == "nccl" else 2
    spawn(rank_main, (ranks, port, way, device), nprocs=ranks)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(*sys.argv[1:])
