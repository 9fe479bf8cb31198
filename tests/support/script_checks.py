"""Training scripts as people write them, run by two ranks in several ways.

    python tests/support/script_checks.py FOLDER UNTIL RANKS NAME ...

Each situation trains a model that ``Way.wrap`` makes data parallel, and returns tensors, which are
the same on both ranks. With the codec exact these are to the last bit what gloo comes to: the sum
of two numbers has one rounding. See ``support.ranks`` for what is written.
"""

from __future__ import annotations

import copy
import faulthandler
import sys
import warnings

import torch
import torch._dynamo  # DistributedDataParallel would, in each of the ranks
import torch.distributed as dist
from ranks import main
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from innet.torch import CompressionHook, HookState, ddp_hook
from innet.torch.comm_thread import compile_codec

SECONDS = 30  # of a situation in one way
OPTIONS = {"seed": 5, "deadline": 20.0, "unit_cap_mb": 0.004}
SITUATIONS = {}


def situation(*but):
    """Registers a situation, which is not possible in these ways."""

    def register(function):
        SITUATIONS[function.__name__] = (function, but)
        return function

    return register


class Way:
    """What sums the gradients: ``gloo``, or innet's ``switch``, ``hook`` or ``group``."""

    def __init__(self, kind, codec, group):
        self.kind = kind
        self.codec = codec
        self.group = group
        self.states = []

    def state(self, **options):
        """The state of a communication hook; None where there is no hook."""
        kinds = {"switch": HookState, "hook": CompressionHook}
        if self.kind not in kinds:
            return None
        self.states.append(kinds[self.kind](self.codec, **OPTIONS, **options))
        return self.states[-1]

    def wrap(self, net, state=None, **options):
        model = DistributedDataParallel(
            net, process_group=self.group, **{"bucket_cap_mb": 0.01, **options}
        )
        if state := state or self.state():
            model.register_comm_hook(state, ddp_hook)
        return model

    def close(self):
        for each in self.states:
            each.close()


def net(width=24, layers=3):
    torch.manual_seed(7)
    parts = [(torch.nn.Linear(12, width), torch.nn.Tanh())]
    parts += [(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(layers - 2)]
    return torch.nn.Sequential(
        *(each for part in parts for each in part), torch.nn.Linear(width, 3)
    )


def batch(step, rows=6):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(rows, 12, generator=generator), torch.randn(rows, 3, generator=generator)


def loss_of(model, step):
    x, y = batch(step)
    return torch.nn.functional.mse_loss(model(x), y)


def train(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **options)


def weights(model):
    return [each.detach().clone() for each in model.parameters()]


# ---------------------------------------------------------------- compiled


def compiled(module, backend="aot_eager", **options):
    return torch.compile(module, backend=backend, **options)


@situation()
def a_model_is_compiled_and_wrapped(way):
    model = way.wrap(compiled(net(width=520)), bucket_cap_mb=1)
    train(model, sgd(model), range(4))
    return weights(model)


@situation()
def a_wrapped_model_is_compiled(way):
    model = way.wrap(net(width=520), bucket_cap_mb=1)
    train(compiled(model), sgd(model), range(4))
    return weights(model)


@situation()
def a_wrapped_model_is_compiled_by_inductor(way):
    model = way.wrap(net(width=520), bucket_cap_mb=1)
    train(compiled(model, "inductor"), sgd(model), range(3))
    return weights(model)


@situation()
def a_step_is_compiled_whole(way):
    model = way.wrap(net(width=520), bucket_cap_mb=1)
    optimizer = sgd(model)

    @compiled
    def step_loss(x, y):
        return torch.nn.functional.mse_loss(model(x), y)

    for step in range(4):
        optimizer.zero_grad()
        step_loss(*batch(step)).backward()
        optimizer.step()
    return weights(model)


@situation()
def an_optimizer_is_compiled(way):
    model = way.wrap(net(width=520), bucket_cap_mb=1)
    optimizer = sgd(model)
    stepped = torch.compile(optimizer.step, backend="aot_eager")
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        stepped()
    return weights(model)


# ---------------------------------------------------------------- backward in other orders


class Checkpointed(torch.nn.Module):
    def __init__(self, *, reentrant):
        super().__init__()
        self.net = net()
        self.reentrant = reentrant

    def forward(self, x):
        x.requires_grad_()  # without it a backward of its own computes no gradients
        for layer in self.net[:-1]:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return self.net[-1](x)


@situation()
def activations_are_computed_again(way):
    model = way.wrap(Checkpointed(reentrant=False))
    train(model, sgd(model), range(4))
    return weights(model)


@situation()
def activations_are_computed_again_in_a_backward_of_their_own(way):
    model = way.wrap(Checkpointed(reentrant=True))
    train(model, sgd(model), range(4))
    return weights(model)


@situation()
def activations_are_computed_again_in_a_static_graph(way):
    model = way.wrap(Checkpointed(reentrant=True), static_graph=True)
    train(model, sgd(model), range(4))
    return weights(model)


@situation()
def gradients_accumulate(way):
    model = way.wrap(net(), gradient_as_bucket_view=True)
    optimizer = sgd(model)
    for step in range(0, 12, 3):
        optimizer.zero_grad()
        with model.no_sync():
            for part in range(2):
                (loss_of(model, step + part) / 3).backward()
        (loss_of(model, step + 2) / 3).backward()
        optimizer.step()
    return weights(model)


@situation()
def a_model_is_called_twice_before_backward(way):
    model = way.wrap(net())
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        (loss_of(model, step) + loss_of(model, step + 50)).backward()
        optimizer.step()
    return weights(model)


@situation()
def an_evaluation_between_steps(way):
    model = way.wrap(net())
    optimizer = sgd(model)
    seen = []
    for step in range(3):
        train(model, optimizer, [step])
        model.eval()
        with torch.no_grad():
            seen.append(loss_of(model, 70 + step))
        model.train()
    dist.all_reduce(total := torch.stack(seen), group=way.group)
    return [*weights(model), total]


@situation()
def a_step_without_backward(way):
    """One whose loss is bad is left out by both ranks."""
    model = way.wrap(net())
    optimizer = sgd(model)
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        if step == 2:
            continue
        loss.backward()
        optimizer.step()
    return weights(model)


# ---------------------------------------------------------------- parameters that change


@situation()
def parameters_are_frozen_half_way(way):
    model = way.wrap(net(), find_unused_parameters=True)
    optimizer = sgd(model)
    train(model, optimizer, range(2))
    for each in model.module[0].parameters():
        each.requires_grad_(False)
    train(model, optimizer, range(2, 4))
    for each in model.module[0].parameters():
        each.requires_grad_(True)
    train(model, optimizer, range(4, 6))
    return weights(model)


@situation()
def a_model_is_wrapped_again_with_parameters_frozen(way):
    module = net()
    model = way.wrap(module)
    train(model, sgd(model), range(2))
    for each in module[0].parameters():
        each.requires_grad_(False)
    del model
    model = way.wrap(module)
    train(model, sgd(model), range(2, 4))
    return weights(model)


@situation()
def a_model_is_wrapped_again_with_parameters_freed(way):
    module = net()
    for each in module[0].parameters():
        each.requires_grad_(False)
    model = way.wrap(module)
    train(model, sgd(model), range(2))
    for each in module.parameters():
        each.requires_grad_(True)
    del model
    model = way.wrap(module)
    train(model, sgd(model), range(2, 4))
    return weights(model)


@situation()
def a_model_and_its_hook_are_copied(way):
    model = way.wrap(net())
    train(model, sgd(model), range(2))
    if way.group is None:
        copy.deepcopy(model)
    again = way.wrap(copy.deepcopy(model.module))
    train(again, sgd(again), range(2, 4))
    return weights(again)


@situation()
def weights_are_averaged_over_time(way):
    model = way.wrap(net())
    optimizer = sgd(model)
    average = AveragedModel(model.module)
    for step in range(3):
        train(model, optimizer, [step])
        average.update_parameters(model.module)
    return weights(average)


# ---------------------------------------------------------------- optimizers


@situation()
def gradients_are_scaled(way):
    """One of rank 1 is infinite once: both ranks leave the step out."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    model = way.wrap(net(), way.state(scale=scaler.get_scale))
    optimizer = sgd(model)
    for step in range(5):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        if step == 2 and dist.get_rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    return [*weights(model), torch.tensor(scaler.get_scale())]


@situation()
def gradients_are_clipped(way):
    model = way.wrap(net())
    optimizer = sgd(model)
    norms = []
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1))
        optimizer.step()
    return [*weights(model), *norms]


@situation()
def autocast(way):
    model = way.wrap(net())
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
    return weights(model)


@situation()
def an_optimizer_asks_for_the_loss_several_times(way):
    model = way.wrap(net())
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()
        with torch.no_grad():  # the same on both ranks, as its next step depends on it
            dist.all_reduce(total := loss.detach().clone(), group=way.group)
        losses.append(total)
        return total

    for _ in range(2):
        optimizer.step(closure)
    return [*weights(model), *losses]


@situation("switch", "hook")  # PyTorch makes it a hook, and takes one
def an_optimizer_is_fused_with_the_model(way):
    model = way.wrap(net())
    model._register_fused_optim(torch.optim.SGD, lr=0.1)
    for step in range(4):
        loss_of(model, step).backward()
    return weights(model)


@situation()
def ranks_share_the_state_of_an_optimizer(way):
    model = way.wrap(net())
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, process_group=way.group, lr=0.1, momentum=0.9
    )
    train(model, optimizer, range(3))
    optimizer.consolidate_state_dict(to=0)
    optimizer.zero_grad()
    loss_of(model, 3).backward()
    optimizer.step()
    return weights(model)


@situation()
def inputs_run_out(way):
    model = way.wrap(net())
    optimizer = sgd(model)
    with Join([model]):
        train(model, optimizer, range(2 + dist.get_rank()))
    return weights(model)


# ---------------------------------------------------------------- two models


@situation()
def two_models_in_turn(way):
    one, other = way.wrap(net()), way.wrap(net(width=16))
    optimizers = sgd(one), sgd(other)
    for step in range(3):
        train(one, optimizers[0], [step])
        for each in optimizers:
            each.zero_grad()
        x, y = batch(step)
        (torch.nn.functional.mse_loss(other(x) + one(x).detach(), y)).backward()
        optimizers[1].step()
    return [*weights(one), *weights(other)]


@situation()
def one_backward_of_two_models(way):
    one, other = way.wrap(net()), way.wrap(net(width=16))
    optimizers = sgd(one), sgd(other)
    for step in range(3):
        for each in optimizers:
            each.zero_grad()
        x, y = batch(step)
        torch.nn.functional.mse_loss(one(x) + other(x), y).backward()
        for each in optimizers:
            each.step()
    return [*weights(one), *weights(other)]


# ---------------------------------------------------------------- all ways

WAYS = {  # what the outcome is compared with
    "gloo": "gloo",
    "switch": "gloo",
    "hook": "gloo",
    "group": "gloo",
    "switch, topk": "switch, topk",
    "hook, topk": "switch, topk",
}


def hold(name):
    """Train in every way that the situation has: as the way beside it, and all ranks alike."""
    function, but = SITUATIONS[name]
    group = dist.new_group(backend="innet")
    outcomes = {}
    for title, other in WAYS.items():
        kind, _, codec = title.partition(", ")
        if kind in but:
            continue
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        way = Way(kind, codec or "exact", group if kind == "group" else None)
        torch._dynamo.reset()
        torch.manual_seed(0)
        try:
            outcomes[title] = function(way)
        except Exception as error:
            raise AssertionError(f"{title}: {type(error).__name__}: {error}") from error
        finally:
            way.close()
        for number, (found, expected) in enumerate(
            zip(outcomes[title], outcomes[other], strict=True)
        ):
            assert torch.equal(found, expected), f"{title}: tensor {number} is not that of {other}"
            ranks = [torch.empty_like(found) for _ in range(dist.get_world_size())]
            dist.all_gather(ranks, found)
            assert all(torch.equal(each, found) for each in ranks), f"{title}: ranks differ"
        dist.barrier()
        faulthandler.cancel_dump_traceback_later()
    dist.destroy_process_group(group)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for codec in ("exact", "topk"):
        compile_codec(codec)  # once, and before there is a deadline
    sys.exit(main({name: lambda name=name: hold(name) for name in SITUATIONS}))
