"""A training script as anybody would write it: a small CNN learns scikit-learn's digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 6, 128


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


def main() -> None:
    """Train, and say how many of the test images are right."""
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    loader = DataLoader(TensorDataset(images[train], labels[train]), BATCH, shuffle=True)
    for epoch in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(images[test]).argmax(1) == labels[test]).float().mean()
        model.train()
        print(f"epoch {epoch + 1}: {accuracy:.1%}, loss {loss:.3f}")


main()
