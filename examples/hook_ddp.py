"""Data-parallel training on scikit-learn's digits, as anybody would write it."""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel

from innet.torch import HookState, ddp_hook


def main() -> None:
    """One rank."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    images, labels = (torch.from_numpy(each) for each in load_digits(return_X_y=True))
    images, labels = images.float()[rank::ranks] / 16, labels[rank::ranks]

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    model = DistributedDataParallel(net)
    model.register_comm_hook(HookState("topk"), ddp_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(3):
        for picked in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[picked]), labels[picked])
            loss.backward()
            optimizer.step()
        right = (model(images).argmax(1) == labels).float().mean()
        dist.all_reduce(right)
        if rank == 0:
            print(f"epoch {epoch + 1}: {right.item() / ranks:.1%} of the training images are right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
