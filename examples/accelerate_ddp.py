"""Training on scikit-learn's digits with Accelerate; the gradients go through the switch."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from innet.torch.accelerate import CommHookKwargs


def main() -> None:
    """One rank."""
    accelerator = Accelerator(cpu=True, kwargs_handlers=[CommHookKwargs("topk")])
    images, labels = (torch.from_numpy(each) for each in load_digits(return_X_y=True))
    loader = DataLoader(TensorDataset(images.float() / 16, labels), batch_size=32, shuffle=True)

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(net, optimizer, loader)

    for epoch in range(3):
        right, seen = torch.zeros(1), torch.zeros(1)
        for x, y in loader:
            optimizer.zero_grad()
            scores = model(x)
            accelerator.backward(torch.nn.functional.cross_entropy(scores, y))
            optimizer.step()
            right += (scores.argmax(1) == y).sum()
            seen += len(y)
        right, seen = accelerator.reduce(right), accelerator.reduce(seen)
        accelerator.print(f"epoch {epoch + 1}: {(right / seen).item():.1%} were right")
    accelerator.end_training()


if __name__ == "__main__":
    main()
