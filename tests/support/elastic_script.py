"""A training that goes on after a rank has died, as torchrun starts all ranks anew.

    torchrun --nproc-per-node 2 --max-restarts 1 tests/support/elastic_script.py FOLDER WAY DYING

Rank DYING dies in the middle of step DEADLY, the first time. The second time all go on from the
last checkpoint; rank 0 writes the weights to FOLDER/found.json, and beside them those of a training
in which nobody died.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from innet.torch import CompressionHook, HookState, ddp_hook

SECONDS = 60  # of an attempt
STEPS, DEADLY = 6, 3
OPTIONS = {"seed": 5, "deadline": 20.0}
STATES = {"switch": HookState, "hook": CompressionHook}


class Training:
    """A model, data parallel, that is saved after each step: by each rank, as its hook's state is
    its own.
    """

    def __init__(self, way):
        torch.manual_seed(7)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 3)
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.parts = {"net": self.net, "optimizer": self.optimizer}
        self.rank = dist.get_rank()
        group = dist.new_group(backend="innet") if way == "group" else None
        self.model = DistributedDataParallel(self.net, process_group=group)
        if way in STATES:
            self.parts["hook"] = STATES[way]("topk", **OPTIONS)
            self.model.register_comm_hook(self.parts["hook"], ddp_hook)

    def step(self, number, dies=False):
        generator = torch.Generator().manual_seed(100 * number + self.rank)
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(6, 12, generator=generator)).pow(2).mean()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        self.optimizer.step()

    def save(self, file):
        torch.save({name: part.state_dict() for name, part in self.parts.items()}, file)

    def load(self, file):
        saved = torch.load(file, weights_only=True)
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])

    def weights(self):
        return [each.tolist() for each in self.net.parameters()]


def main(folder, way, dying):
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    dist.init_process_group("gloo")
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    rank = dist.get_rank()
    training = Training(way)
    if attempt:
        training.load(folder / f"{rank}-{DEADLY}.pt")
    for number in range(DEADLY if attempt else 0, STEPS):
        training.step(number, dies=number == DEADLY and not attempt and rank == dying)
        training.save(folder / f"{rank}-{number + 1}.pt")
    whole = Training(way)
    for number in range(STEPS):
        whole.step(number)
    if rank == 0:
        found = {"found": training.weights(), "expected": whole.weights(), "attempt": attempt}
        (folder / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
