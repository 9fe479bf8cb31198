"""The script own_training.py with 16 emulated workers, four codecs, a network and stragglers."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import innet
from innet.codecs import SELECTORS
from innet.codecs.parts import INCLUDES_LARGEST, LEAVES_RESIDUAL, Capabilities, Selector

EPOCHS, BATCH = 6, 128


class AboveMean(Selector):
    """A codec of one's own: send what is at least four times the mean magnitude."""

    name = "above-mean"
    capabilities = Capabilities(provides=frozenset({LEAVES_RESIDUAL, INCLUDES_LARGEST}))

    def select(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Indices and values; what is not among them is added to the next gradient."""
        magnitude = np.abs(x)
        least = min(4 * magnitude.mean(), magnitude.max(initial=0))
        indices = np.flatnonzero(magnitude >= least).astype(np.int32)
        return indices, x[indices]


SELECTORS.register("above-mean", AboveMean)


class Net(nn.Module):
    """Two convolutions with batch normalization, dropout, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.25), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of the ten digits."""
        return self.head(self.features(images))


images, labels = (torch.from_numpy(each) for each in load_digits(return_X_y=True))
images = images.float().reshape(-1, 1, 8, 8) / 16
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, test = order[:1437], order[1437:]


def main(run) -> None:
    """Train, and say how many of the test images are right."""
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    run.attach(model, optimizer)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    loader = DataLoader(TensorDataset(images[train], labels[train]), BATCH, shuffle=True)
    for epoch in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss = run.backward(lambda x, y: nn.functional.cross_entropy(model(x), y), x, y)
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(images[test]).argmax(1) == labels[test]).float().mean()
        model.train()
        run.score(accuracy)
        print(f"{run}, epoch {epoch + 1}: {accuracy:.1%}, loss {loss:.3f}")


emulation = innet.EmulatedTraining(
    workers=16,
    codecs=["dense", "topk", "qsgd", "topk:selector=above-mean"],
    networks="25g",
    compute=500e-6,  # seconds of a worker for its part of a batch
    straggler="lognormal:sigma=0.3",
    seeds=3,
)
for run in emulation:
    main(run)
emulation.report("innet-out")
