"""Training on scikit-learn's digits with the Trainer; the gradients go through the switch."""

import torch
from sklearn.datasets import load_digits
from transformers import TrainingArguments

from innet.torch.transformers import CommHookTrainer


class Digits(torch.nn.Module):
    """A model as the Trainer calls it: named inputs, the loss among the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Of a batch."""
        scores = self.net(images)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


def right(found: tuple) -> dict[str, float]:
    """The share of images that are right."""
    scores, labels = found
    return {"right": float((scores.argmax(1) == labels).mean())}


def main() -> None:
    """One rank."""
    images, labels = (torch.from_numpy(each) for each in load_digits(return_X_y=True))
    data = [{"images": x, "labels": y} for x, y in zip(images.float() / 16, labels, strict=True)]
    arguments = TrainingArguments(
        output_dir="innet-out/trainer", use_cpu=True, ddp_backend="gloo", num_train_epochs=3,
        per_device_train_batch_size=32, learning_rate=0.1, optim="sgd", max_grad_norm=0,
        save_strategy="no", report_to="none", disable_tqdm=True,
        ddp_find_unused_parameters=False, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = CommHookTrainer(
        Digits(), arguments, train_dataset=data, eval_dataset=data, compute_metrics=right,
        comm_hook="topk",
    )  # fmt: skip
    trainer.train()
    score = trainer.evaluate()["eval_right"]
    if trainer.is_world_process_zero():
        print(f"{score:.1%} of the training images are right")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
