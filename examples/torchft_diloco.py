"""Training on scikit-learn's digits with torchft's DiLoCo; pseudo-gradients go through the switch.

Each rank is one replica; rank 0 runs torchft's lighthouse beside it.
"""

import os

import torch
from sklearn.datasets import load_digits
from torch.distributed import TCPStore
from torchft import Manager
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

from innet.torch.torchft import SwitchProcessGroup

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def main() -> None:
    """One replica."""
    shared = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    if RANK == 0:
        lighthouse = LighthouseServer("127.0.0.1:0", min_replicas=RANKS, join_timeout_ms=60_000)
        shared.set("lighthouse", lighthouse.address())
    mine = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    images, labels = (torch.from_numpy(each) for each in load_digits(return_X_y=True))
    x, y = images.float()[RANK::RANKS] / 16, labels[RANK::RANKS]

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    manager = Manager(
        pg=SwitchProcessGroup(codec="lhc"), min_replica_size=RANKS, use_async_quorum=False,
        load_state_dict=net.load_state_dict, state_dict=net.state_dict, init_sync=False,
        rank=0, world_size=1, store_addr="127.0.0.1", store_port=mine.port,
        lighthouse_addr=shared.get("lighthouse").decode(), replica_id=f"replica_{RANK}",
    )  # fmt: skip
    with DiLoCo(manager, [net], inner, outer, sync_every=8):
        for first in range(0, 48 * 8, 8):
            rows = torch.arange(first, first + 32) % len(y)
            inner.zero_grad()
            torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            inner.step()
    right = (net(images.float() / 16).argmax(1) == labels).float().mean().item()
    shared.set(f"done {RANK}", "")
    shared.wait([f"done {rank}" for rank in range(RANKS)])
    if RANK == 0:
        print(f"after {manager.current_step()} sums of all: {right:.1%} were right", flush=True)
    os._exit(0)  # torchft's threads would go on


if __name__ == "__main__":
    main()
