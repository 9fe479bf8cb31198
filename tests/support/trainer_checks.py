"""Checks of trainers with innet's hook, run by two ranks.

    python tests/support/trainer_checks.py FOLDER NAME ...

The ranks are forked, which saves each of them the import of the trainers, and have the environment
of torchrun. Each rank writes what became of each check to FOLDER/RANK.json: "passed", or a
traceback.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import signal
import socket
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from innet.core.errors import InputError, StateError
from innet.torch import CompressionHook, HookState, ddp_hook
from innet.torch.model_hook import ModelHook

SAVED = 3  # steps of each of the two epochs; a training is saved between them
CODEC = {"preset": "topk", "ratio": 0.05, "layers": {"*2.bias": "dense"}}
OPTIONS = {"seed": 5, "unit_cap_mb": 0.001, "deadline": 60.0}
CHECKS = {}
RANKS = 2
EXPECTED = []  # losses of a loop without a trainer


def check(function):
    CHECKS[function.__name__] = function
    return function


class Tiny(torch.nn.Module):
    """A model that returns its loss and remembers its losses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3)
        )
        self.losses = []

    def forward(self, x, y):
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.losses.append(loss.item())
        return {"loss": loss}


class Rows(Dataset):
    """This rank's data: 8 rows for each step of an epoch."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1000 + dist.get_rank())
        self.x = torch.randn(8 * SAVED, 20, generator=generator)
        self.y = torch.randn(8 * SAVED, 3, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.y[index]}


def loader():
    return DataLoader(Rows(), batch_size=8)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def raw():
    """Losses of a loop that anybody would write, with the hook."""
    tiny = Tiny()
    model = DistributedDataParallel(tiny)
    state = HookState(CODEC, named_parameters=tiny.named_parameters(), **OPTIONS)
    model.register_comm_hook(state, ddp_hook)
    optimizer = sgd(model)
    for batch in [*loader(), *loader()]:
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()
    state.close()
    return tiny.losses


def failing_hook():
    """A hook that fails on rank 1, in the second step."""
    seen = []

    def scale():
        seen.append(None)
        if dist.get_rank() == 1 and len(seen) > 1:
            raise ValueError("no factor")
        return 1.0

    return CompressionHook("topk", scale=scale, **OPTIONS)


def fails_everywhere(train):
    """Run a training with ``failing_hook``: rank 0 is told which rank failed, and why."""
    said = "no factor" if dist.get_rank() == 1 else "worker 1 gave up: no factor"
    with pytest.raises((ValueError, RuntimeError), match=said):
        train()


# ---------------------------------------------------------------- Accelerate


@check
def accelerate_trains_as_a_loop_does():
    from accelerate import Accelerator

    from innet.torch.accelerate import CommHookKwargs

    folder = FOLDER / "accelerate"

    def prepared(hook=CODEC, **options):
        handler = CommHookKwargs(hook, **options)
        accelerator = Accelerator(cpu=True, kwargs_handlers=[handler])
        model, optimizer = accelerator.prepare(tiny := Tiny(), sgd(tiny))
        accelerator.register_for_checkpointing(handler)
        return accelerator, model, optimizer, tiny.losses, handler.hook

    def train(accelerator, model, optimizer, batches):
        for batch in batches:
            optimizer.zero_grad()
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()

    options = {"hook_options": OPTIONS, "gradient_as_bucket_view": True}
    accelerator, model, optimizer, losses, hook = prepared(**options)
    assert isinstance(hook.state, HookState)
    assert len(hook.state.units) == 0
    assert model.gradient_as_bucket_view
    batches = list(loader())
    train(accelerator, model, optimizer, batches)
    accelerator.save_state(folder)
    train(accelerator, model, optimizer, batches)
    assert losses == EXPECTED
    hook.close()
    accelerator, model, optimizer, losses, hook = prepared(**options)
    accelerator.load_state(folder)
    train(accelerator, model, optimizer, batches)
    assert losses == EXPECTED[SAVED:]
    hook.close()
    accelerator, model, optimizer, _, hook = prepared(failing_hook())
    fails_everywhere(lambda: train(accelerator, model, optimizer, batches))
    with pytest.raises(InputError, match="options seed beside a CompressionHook"):
        ModelHook(CompressionHook("dense"), seed=5)


@check
def accelerate_accumulates_and_clips_as_without_the_hook():
    from accelerate import Accelerator

    from innet.torch.accelerate import CommHookKwargs

    def losses(*handlers):
        accelerator = Accelerator(
            cpu=True, gradient_accumulation_steps=2, mixed_precision="bf16",
            kwargs_handlers=list(handlers),
        )  # fmt: skip
        tiny = Tiny()
        optimizer = sgd(tiny)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        model, optimizer, schedule = accelerator.prepare(tiny, optimizer, schedule)
        for batch in [*loader(), *loader()]:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        for handler in handlers:
            handler.hook.close()
        return tiny.losses

    assert losses(CommHookKwargs("exact", OPTIONS)) == losses()


# ---------------------------------------------------------------- Transformers


@check
def transformers_trains_as_a_loop_does():
    from transformers import TrainingArguments

    from innet.torch.transformers import CommHookTrainer

    class Unshuffled(CommHookTrainer):
        def get_train_dataloader(self):
            return loader()

    def trainer(hook, comm_hook_options=None, **options):
        arguments = TrainingArguments(
            output_dir=str(FOLDER / "transformers"), use_cpu=True, ddp_backend="gloo",
            max_grad_norm=0.0, ddp_find_unused_parameters=False, num_train_epochs=2,
            report_to="none", disable_tqdm=True, save_steps=SAVED, logging_strategy="no",
            dataloader_pin_memory=False, **options,
        )  # fmt: skip
        tiny = Tiny()
        optimizer = sgd(tiny)
        constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        made = Unshuffled(
            tiny, arguments, train_dataset=Rows(), optimizers=(optimizer, constant),
            comm_hook=hook, comm_hook_options=comm_hook_options,
        )  # fmt: skip
        return made, tiny.losses

    made, losses = trainer(CODEC, comm_hook_options=OPTIONS)
    made.train()
    assert losses == EXPECTED
    made.comm_hook.hook.close()
    dist.barrier()
    saved = FOLDER / "transformers" / f"checkpoint-{SAVED}"
    made, losses = trainer(CODEC, comm_hook_options=OPTIONS)
    made.train(resume_from_checkpoint=str(saved))
    assert losses == EXPECTED[SAVED:]
    made.comm_hook.hook.close()
    made, _ = trainer(failing_hook(), save_strategy="no")
    fails_everywhere(made.train)
    dist.barrier()
    (saved / f"comm_hook_{dist.get_rank()}.pt").unlink()
    made, _ = trainer("topk")
    with pytest.raises(StateError, match=f"has no comm_hook_{dist.get_rank()}.pt"):
        made.train(resume_from_checkpoint=str(saved))


@check
def transformers_accumulates_clips_and_evaluates_as_without_the_hook():
    from transformers import Trainer, TrainingArguments

    from innet.torch.transformers import CommHookMixin

    class Unshuffled(Trainer):
        def get_train_dataloader(self):
            return loader()

    class WithHook(CommHookMixin, Unshuffled):
        pass

    def losses(kind, **options):
        arguments = TrainingArguments(
            output_dir=str(FOLDER / "options"), use_cpu=True, ddp_backend="gloo", bf16=True,
            max_grad_norm=0.5, gradient_accumulation_steps=2, eval_strategy="epoch",
            ddp_find_unused_parameters=False, num_train_epochs=2, report_to="none",
            disable_tqdm=True, save_strategy="no", logging_strategy="no",
            dataloader_pin_memory=False, label_names=["y"],
        )  # fmt: skip
        tiny = Tiny()
        made = kind(tiny, arguments, train_dataset=Rows(), eval_dataset=Rows(), **options)
        made.train()
        made.evaluate()
        if options:
            made.comm_hook.hook.close()
        return tiny.losses

    assert losses(WithHook, comm_hook="exact", comm_hook_options=OPTIONS) == losses(Unshuffled)


# ---------------------------------------------------------------- Lightning


@check
def lightning_trains_as_a_loop_does():
    import lightning

    from innet.torch.lightning import CommHookStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.tiny = Tiny()

        def training_step(self, batch, _):
            return self.tiny(**batch)["loss"]

        def configure_optimizers(self):
            return sgd(self)

    def fitted(strategy, epochs=2, saved=None):
        module = Module()
        trainer = lightning.Trainer(
            strategy=strategy, accelerator="cpu", devices=2, max_epochs=epochs, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            use_distributed_sampler=False, default_root_dir=FOLDER,
        )  # fmt: skip
        trainer.fit(module, loader(), ckpt_path=saved)
        return trainer, module.tiny.losses

    def strategy():
        return CommHookStrategy(CODEC, OPTIONS)

    _, losses = fitted(strategy())
    assert losses == EXPECTED
    trainer, losses = fitted(strategy(), epochs=1)
    assert losses == EXPECTED[:SAVED]
    saved = FOLDER / "lightning.ckpt"
    trainer.save_checkpoint(saved)
    _, losses = fitted(strategy(), saved=saved)
    assert losses == EXPECTED[SAVED:]
    fails_everywhere(lambda: fitted(CommHookStrategy(failing_hook())))
    with pytest.raises(InputError, match="two hooks"):
        CommHookStrategy("topk", ddp_comm_hook=ddp_hook)


@check
def lightning_accumulates_clips_and_validates_as_without_the_hook():
    import lightning
    from lightning.pytorch.callbacks import StochasticWeightAveraging

    from innet.torch.lightning import CommHookStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.tiny = Tiny()

        def training_step(self, batch, _):
            return self.tiny(**batch)["loss"]

        def validation_step(self, batch, _):
            self.log("loss", self.tiny(**batch)["loss"], sync_dist=True)

        def configure_optimizers(self):
            return sgd(self)

    def losses(strategy):
        module = Module()
        trainer = lightning.Trainer(
            strategy=strategy, accelerator="cpu", devices=2, max_epochs=3, logger=False,
            accumulate_grad_batches=2, gradient_clip_val=0.5, precision="bf16-mixed",
            callbacks=[StochasticWeightAveraging(0.05, swa_epoch_start=1)],
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            use_distributed_sampler=False, default_root_dir=FOLDER,
        )  # fmt: skip
        trainer.fit(module, loader(), loader())
        trainer.validate(module, loader(), verbose=False)
        trainer.fit_loop.max_epochs = 4
        trainer.fit(module, loader(), loader())
        return module.tiny.losses

    assert losses(CommHookStrategy("exact", OPTIONS)) == losses("ddp")


def run_rank(names: list[str]) -> int:
    found, status = {}, 0
    for name in names:
        try:
            CHECKS[name]()
            found[name] = "passed"
        except BaseException as error:
            found[name] = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            status = 1
        (FOLDER / f"{dist.get_rank()}.json").write_text(json.dumps(found))
        if status:
            break
        dist.barrier()
    return status


def forked(rank: int, port: int, names: list[str]) -> int:
    """The process of a rank."""
    if (process := os.fork()) != 0:
        return process
    status = 1
    try:
        where = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        sizes = {"WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
        os.environ.update({name: str(value) for name, value in {**where, **sizes}.items()})
        dist.init_process_group("gloo")
        EXPECTED.extend(raw())
        assert EXPECTED[-1] != EXPECTED[0]
        if not (status := run_rank(names)):
            dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def launch(names: list[str]) -> int:
    """An exit status; a rank that fails ends the others, who would wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = {forked(rank, port, names) for rank in range(RANKS)}
    status = 0
    while ranks and not status:
        process, how = os.wait()
        ranks.remove(process)
        status = os.waitstatus_to_exitcode(how)
    for process in ranks:
        os.kill(process, signal.SIGKILL)
    return status


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    for trainer in ("accelerate", "transformers.trainer", "lightning"):
        with contextlib.suppress(ImportError):
            importlib.import_module(trainer)
    gc.collect()
    gc.freeze()  # what ranks would look through, and so copy
    FOLDER = Path(sys.argv[1])
    sys.exit(launch(sys.argv[2:]))
