"""Training on scikit-learn's digits with Lightning; the gradients go through the switch."""

import os

import lightning
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from innet.torch.lightning import CommHookStrategy


class Digits(lightning.LightningModule):
    """A small model."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of a batch."""
        images, labels = batch
        scores = self.net(images)
        right = (scores.argmax(1) == labels).float().mean()
        self.log("right", right, on_step=False, on_epoch=True, sync_dist=True)
        return torch.nn.functional.cross_entropy(scores, labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    """One rank; torchrun starts the others."""
    images, labels = (torch.from_numpy(each) for each in load_digits(return_X_y=True))
    loader = DataLoader(TensorDataset(images.float() / 16, labels), batch_size=32, shuffle=True)
    trainer = lightning.Trainer(
        strategy=CommHookStrategy("topk"), accelerator="cpu", max_epochs=3,
        devices=int(os.environ["LOCAL_WORLD_SIZE"]), logger=False,
        enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Digits(), loader)
    if trainer.is_global_zero:
        print(f"epoch 3: {trainer.callback_metrics['right']:.1%} were right")


if __name__ == "__main__":
    main()
