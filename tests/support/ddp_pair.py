"""What two ranks of DistributedDataParallel meet when something is wrong, and what they learn.

    python ddp_pair.py FOLDER

FOLDER/places.json says where the switches are. Each rank, a process, writes what became of each
case to FOLDER/RANK.json: {case: {"said": ..., "seconds": ...}}. After ``SECONDS`` it ends with a
traceback.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from unittest import mock

import torch
import torch._dynamo  # DistributedDataParallel would, in each of the ranks
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from innet import kernels
from innet.core.errors import MissingToolError
from innet.torch import HookState, ddp_hook
from innet.torch.tensors import kernels_for

SECONDS = 120
DEADLINE = 2.0  # of most cases' all-reduces
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def wrapped(state, layers=2, width=12):
    torch.manual_seed(7)
    net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    model = DistributedDataParallel(net)
    if state is not None:
        model.register_comm_hook(state, ddp_hook)
    return model


def loss_of(model, step=0):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return model(torch.randn(6, 12, generator=generator)).pow(2).mean()


def error_of(function):
    """What is raised, as "Type: message"."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def backward(state, **options):
    model = wrapped(state, **options)  # alive until backward is over
    loss_of(model).backward()


def hook_at(switch, codec="dense", deadline=DEADLINE, key="right", **options):
    return HookState(codec, switch=switch, key=key, deadline=deadline, **options)


# ---------------------------------------------------------------- mistakes


@case
def no_switch(at):
    return error_of(lambda: backward(hook_at(at["nowhere"])))


@case
def no_switch_for_a_group(at):
    environment = {"INNET_SWITCH": at["nowhere"]}
    with mock.patch.dict(os.environ, environment):
        return error_of(
            lambda: dist.new_group(backend="innet", timeout=timedelta(seconds=DEADLINE))
        )


@case
def a_switch_that_cannot_be_started(at):
    with mock.patch.dict(os.environ, {"INNET_VALUES": "33"}):
        return error_of(lambda: backward(HookState(deadline=DEADLINE)))


@case
def another_version(at):
    return error_of(lambda: backward(hook_at(at["another version"])))


@case
def a_wrong_key_of_rank_1(at):
    key = "wrong" if dist.get_rank() else "right"
    return error_of(lambda: backward(hook_at(at["switch"], key=key)))


@case
def a_second_rank_0(at):
    """Rank 1 takes itself for another one, as where RANK is set wrongly."""
    with mock.patch.object(dist, "get_rank", return_value=0):
        state = hook_at(at["switch"])
        said = error_of(state.connect)
    both = [None, None]
    dist.all_gather_object(both, said)
    return " | ".join(sorted(both))


@case
def a_gpu_without_its_kernels_in_rank_1(at):
    missing = MissingToolError("numba-cuda", "kernels on a GPU", "Install it.")

    def on_a_gpu(device):
        return kernels_for(torch.device("cuda", 0))  # there is none here to put a tensor on

    state = hook_at(at["switch"])
    if dist.get_rank() == 0:
        said = error_of(lambda: backward(state))
    else:
        with (
            mock.patch("innet.torch.ddp.kernels_for", on_a_gpu),
            mock.patch.object(kernels.gpu, "missing", return_value=missing),
        ):
            said = error_of(lambda: backward(state))
    state.close()
    return said


@case
def a_model_that_grows(at):
    state = hook_at(at["switch"])
    backward(state)
    said = error_of(lambda: backward(state, layers=3))
    state.close()
    return said


@case
def a_model_that_is_wrapped_anew(at):
    """As the error of the case before asks for; whose traceback must not keep the old wrapper."""
    net = wrapped(None).module
    state = hook_at(at["switch"])
    backward(state)
    gc.disable()  # it would find the old wrapper in a cycle, some time

    def backward_of_net(state):
        model = DistributedDataParallel(net)
        model.register_comm_hook(state, ddp_hook)
        loss_of(model).backward()

    said = error_of(lambda: backward_of_net(state))
    assert "make a new HookState" in said
    state.close()
    state = hook_at(at["switch"])
    said = error_of(lambda: backward_of_net(state))
    gc.enable()
    state.close()
    return said


class Words(torch.nn.Module):
    """With a layer whose gradients are sparse."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(20, 12, sparse=True)
        self.last = torch.nn.Linear(12, 12)

    def forward(self, x):
        return self.last(self.words(x.abs().long()))


@case
def sparse_gradients(at):
    state = hook_at(at["switch"])
    model = DistributedDataParallel(Words())
    model.register_comm_hook(state, ddp_hook)
    said = error_of(lambda: loss_of(model).backward())
    state.close()
    return said


@case
def another_seed_of_rank_1(at):
    state = hook_at(at["switch"], "lhc", seed=dist.get_rank())
    said = error_of(lambda: backward(state))
    state.close()
    return said


# ---------------------------------------------------------------- what is right


@case
def a_nan_under_amp(at):
    """The step is skipped by both ranks, and the next one is made."""
    state = hook_at(at["switch"], "topk")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    state.scale = scaler.get_scale
    model = wrapped(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for step in range(3):
        before = [each.detach().clone() for each in model.parameters()]
        optimizer.zero_grad()
        loss = loss_of(model, step)
        if step == 1 and dist.get_rank() == 1:
            loss = loss * float("nan")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        pairs = zip(before, model.parameters(), strict=True)
        seen.append("stays" if all(torch.equal(*pair) for pair in pairs) else "moves")
    state.close()
    return [*seen, scaler.get_scale()]


def trained(switch, codec, steps=3):
    """The parameters afterwards, as numbers."""
    state = hook_at(switch, codec, deadline=SECONDS / 2)
    model = wrapped(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    state.close()
    return [each.tolist() for each in model.parameters()]


@case
def a_training_whose_packets_are_lost(at):
    """Whether it comes to the same bits as one without loss, by codec."""
    return {
        codec: trained(at["lossy"], codec) == trained(at["switch"], codec)
        for codec in ("exact", "topk")
    }


def curve(state, steps=12):
    model = wrapped(state)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


@case
def curves(at):
    """Of two ranks, so that gloo's float32 sums are the correctly rounded ones as well."""
    found = {"gloo": curve(None)}
    for codec in ("exact", "dense"):
        state = hook_at(at["switch"], codec)
        found[codec] = curve(state)
        state.close()
    return found


class Product(torch.nn.Module):
    """With the data below, what PyTorch's tests compare hooks by: no two ranks' gradients alike;
    and a parameter without elements, as some models have to tell their device by.
    """

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.p = torch.nn.Parameter(torch.randn(40, 20))
        self.nothing = torch.nn.Parameter(torch.empty(0))

    def forward(self, x, rank):
        return self.p * x ** (1 + rank) + self.nothing.sum()


def gradient_of_product(state):
    model = DistributedDataParallel(Product())
    if state is not None:
        model.register_comm_hook(state, ddp_hook)
    torch.manual_seed(2020)
    model(torch.randn(40, 20), dist.get_rank()).mean().backward()
    return next(model.parameters()).grad


@case
def gradients_as_pytorch_compares_them(at):
    """The largest difference from plain all-reduce: as a part of the element, and beyond 1e-5 of it
    as a part of the largest element."""
    plain = gradient_of_product(None)
    found = {}
    for codec in ("exact", "dense"):
        state = hook_at(at["switch"], codec)
        off, size = (gradient_of_product(state) - plain).abs(), plain.abs()
        found[codec] = [float((off / size).max()), float((off - 1e-5 * size).max() / size.max())]
        state.close()
    return found


def run_rank(folder, rank):
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    torch.set_num_threads(1)
    at = json.loads((folder / "places.json").read_text())
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    found = {}
    for name, function in CASES.items():
        dist.barrier()
        begun = time.monotonic()
        try:
            said = function(at)
        except Exception:
            said = traceback.format_exc()
        found[name] = {"said": said, "seconds": time.monotonic() - begun}
        (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def launch(folder):
    """Fork the ranks, which saves each of them the import of torch; an exit status."""
    gc.collect()
    gc.freeze()  # a rank would look through it for garbage, and so copy it
    ranks = []
    for rank in range(2):
        if (process := os.fork()) == 0:
            run_rank(folder, rank)
            sys.exit()  # with all that is done at exit
        ranks.append(process)
    return max(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) != 0 for each in ranks)


if __name__ == "__main__":
    sys.exit(launch(Path(sys.argv[1])))
