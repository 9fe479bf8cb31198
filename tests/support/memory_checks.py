"""Checks by two or three ranks that nothing of a gradient is lost: what a parameter received and
what codecs hold back of it is together what was computed. And hooks around innet's see the means.

    python tests/support/memory_checks.py FOLDER UNTIL RANKS NAME ...
"""

from __future__ import annotations

import functools
import io
import random
import sys

import numpy as np
import pytest
import torch
import torch._dynamo  # DistributedDataParallel would, in each of the ranks
import torch.distributed as dist
from ranks import main
from torch.distributed.algorithms.ddp_comm_hooks import (
    ddp_zero_hook,
    default_hooks,
    optimizer_overlap_hooks,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.optim.functional_sgd import _FunctionalSGD
from torch.nn.parallel import DistributedDataParallel

from innet.core.errors import InputError, StateError
from innet.torch import CompressionHook, HookState, SwitchReduceScatter, ddp_hook
from innet.torch.model_hook import ModelHook

CHECKS = {}
LOSSY = ("topk", "powersgd", "dgc", "scalecom")


def check(function):
    CHECKS[function.__name__] = function
    return function


def data(step, rank=None, width=12):
    rank = dist.get_rank() if rank is None else rank
    return torch.randn(6, width, generator=torch.Generator().manual_seed(100 * step + rank))


def state_of(kind, codec, **options):
    return kind(codec, seed=3, deadline=30.0, **{"unit_cap_mb": 0.001, **options})


def both_hooks(codec, **options):
    return (state_of(kind, codec, **options) for kind in (HookState, CompressionHook))


# ---------------------------------------------------------------- parameters that come and go


class Branches(torch.nn.Module):
    """Of equal shapes, so that one could be taken for the other."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(7)
        self.always = torch.nn.Linear(12, 12, dtype=dtype)
        self.first = torch.nn.Linear(12, 12, dtype=dtype)
        self.second = torch.nn.Linear(12, 12, dtype=dtype)
        self.shared = self.always  # used twice
        self.gain = torch.nn.Parameter(torch.ones(1, dtype=dtype))

    def forward(self, x, branches):
        x = self.shared(torch.relu(self.always(x)))
        for name in branches:
            x = x + getattr(self, name)(x)
        return (x * self.gain).pow(2).mean()


def own_gradients(model, step, branches):
    """What this rank computes, as float64, by name; without communication."""
    alone = Branches()
    alone.load_state_dict({name: each.detach() for name, each in model.items()})
    alone(data(step), branches).backward()
    return {
        name: torch.zeros_like(each) if each.grad is None else each.grad.double()
        for name, each in alone.named_parameters()
    }


def branches_in(step, generator):
    """The same on all ranks: DistributedDataParallel and FSDP2 ask for it, or nearly."""
    return [name for name in ("first", "second") if generator.random() < 0.5]


def residuals_of(state, model):
    """What this rank's codecs hold back, by parameter's name."""
    found = {}
    for name, parameter in model.named_parameters():
        place = state._places.get(id(parameter))
        if place is None:
            continue
        (span,) = place.unit.parts[place.position]
        values = np.zeros(place.unit.size, np.float32)
        codec = place.unit.codec
        for group in getattr(codec, "groups", [None]):
            arrays = (group.codec if group else codec).error_feedback.remembered()
            if group and "residual" in arrays:
                group.put(values, arrays["residual"])
            elif "residual" in arrays:
                values[:] = arrays["residual"]
        found[name] = torch.from_numpy(values[span]).reshape(parameter.shape)
    return found


def summed(tensors):
    """Of all ranks."""
    for each in tensors.values():
        dist.all_reduce(each)
    return tensors


def assert_conserved(computed, received, held):
    """By parameter; both hooks give means, and all ranks' residuals are held back."""
    for name, whole in computed.items():
        total = received[name] + held[name]
        scale = max(1.0, whole.abs().max().item())
        torch.testing.assert_close(total / scale, whole / scale, rtol=0, atol=1e-6, msg=name)


@check
def nothing_is_lost_of_unused_parameters():
    ranks = dist.get_world_size()
    for seed, codec, skip, kind in (
        (0, "topk", False, HookState),
        (1, "topk:ratio=0.3", True, HookState),
        (2, "powersgd", False, CompressionHook),
        (3, {"preset": "topk", "layers": {"first.*": "dense"}}, False, HookState),
    ):
        choose = random.Random(seed)
        net = Branches()
        model = DistributedDataParallel(
            net, find_unused_parameters=True, skip_all_reduce_unused_params=skip,
            bucket_cap_mb=0.0005,
        )  # fmt: skip
        options = {"named_parameters": net.named_parameters()} if isinstance(codec, dict) else {}
        state = state_of(kind, codec, **options)
        model.register_comm_hook(state, ddp_hook)
        zeros = {name: torch.zeros_like(each).double() for name, each in net.named_parameters()}
        computed = {name: each.clone() for name, each in zeros.items()}
        received = {name: each.clone() for name, each in zeros.items()}
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for step in range(12):
            branches = branches_in(step, choose)
            if step in (4, 8):  # a checkpoint, and on with other objects
                saved = io.BytesIO()
                torch.save(state.state_dict(), saved)
                saved.seek(0)
                state.close()
                net = Branches()
                net.load_state_dict(model.module.state_dict())
                model = DistributedDataParallel(
                    net, find_unused_parameters=True, skip_all_reduce_unused_params=skip,
                    bucket_cap_mb=0.0005,
                )  # fmt: skip
                if options:
                    options = {"named_parameters": net.named_parameters()}
                state = state_of(kind, codec, **options)
                state.load_state_dict(torch.load(saved, weights_only=True))
                model.register_comm_hook(state, ddp_hook)
                optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
            for name, each in own_gradients(net.state_dict(), step, branches).items():
                computed[name] += each
            optimizer.zero_grad()
            before = residuals_of(state, net)
            model(data(step), branches).backward()
            after = residuals_of(state, net)
            for name, parameter in net.named_parameters():
                if name.split(".")[0] in ("first", "second") and name.split(".")[0] not in branches:
                    assert parameter.grad is None, "as without the hook"
                    if name in before:
                        assert torch.equal(before[name], after[name]), "nothing of it was sent"
                if parameter.grad is not None:
                    received[name] += parameter.grad.double() * ranks
            optimizer.step()
        residuals = residuals_of(state, net)
        held = {name: residuals.get(name, each).double() for name, each in zeros.items()}
        held = {name: each.clone() for name, each in held.items()}
        assert any(each.abs().max() > 0 for each in held.values())
        assert_conserved(summed(computed), received, summed(held))
        state.close()


@check
def nothing_is_lost_of_a_parameter_that_some_ranks_use():
    ranks = dist.get_world_size()
    for codec in ("topk", "scalecom"):
        net = Branches()
        model = DistributedDataParallel(net, find_unused_parameters=True)
        state = state_of(HookState, {"preset": codec})
        model.register_comm_hook(state, ddp_hook)
        zeros = {name: torch.zeros_like(each).double() for name, each in net.named_parameters()}
        computed = {name: each.clone() for name, each in zeros.items()}
        received = {name: each.clone() for name, each in zeros.items()}
        for step in range(8):
            branches = ["first"] if step % 2 and dist.get_rank() == step % ranks else []
            for name, each in own_gradients(net.state_dict(), step, branches).items():
                computed[name] += each
            model.zero_grad()
            model(data(step), branches).backward()
            for name, parameter in net.named_parameters():
                if parameter.grad is not None:
                    received[name] += parameter.grad.double() * ranks
        if codec == "topk":  # ScaleCom's memory forgets on purpose
            residuals = residuals_of(state, net)
            held = {name: residuals.get(name, zeros[name]).double() for name in zeros}
            assert_conserved(summed(computed), received, summed(held))
        state.close()


@check
def parameters_that_are_frozen_keep_what_is_held_back():
    net = Branches()
    model = DistributedDataParallel(net, find_unused_parameters=True)
    state = state_of(HookState, "topk:ratio=0.3")
    model.register_comm_hook(state, ddp_hook)
    for step in range(3):
        model(data(step), ["first"]).backward()
    before = residuals_of(state, net)
    net.first.requires_grad_(False)
    model.zero_grad()
    for step in range(3, 6):
        model(data(step), ["first"]).backward()
    assert net.first.weight.grad is None
    after = residuals_of(state, net)
    for name in ("first.weight", "first.bias"):
        assert torch.equal(before[name], after[name])
    assert before["first.weight"].any()
    net.first.requires_grad_(True)
    model(data(6), ["first"]).backward()
    assert net.first.weight.grad.any()
    assert not torch.equal(residuals_of(state, net)["first.weight"], after["first.weight"])
    state.close()


# ---------------------------------------------------------------- FSDP2


def sharded(codec, modules=()):
    net = Branches()
    for module in modules:
        fully_shard(getattr(net, module))
    fully_shard(net)
    attached = SwitchReduceScatter.attach(net, codec, deadline=30.0, seed=3) if codec else []
    return net, attached


def held_by(attached, net):
    """What is held back of each parameter, summed over all ranks, in PyTorch's padded layout."""
    found = {}
    names = {id(each): name for name, each in net.named_parameters()}
    for reduction in attached:
        state = reduction.state_dict()
        for number, kept in state["held"]:
            parameter = reduction._group.fsdp_params[number].sharded_param
            if "residual" in kept:
                total = kept["residual"].double()
                dist.all_reduce(total)
                found[names[id(parameter)]] = total
    return found


def full(tensor):
    return tensor.full_tensor().double()


@check
def nothing_is_lost_of_shards():
    """Branches that are used now and then, two of equal shapes in turn, and checkpoints."""
    ranks = dist.get_world_size()
    for seed, codec, modules in (
        (0, "topk", ()),
        (1, "topk:ratio=0.3", ("first",)),
        (2, "powersgd", ()),
        (3, "topk", ("always", "first")),
    ):
        choose = random.Random(seed)
        net, attached = sharded(codec, modules)
        plain = Branches()
        computed = {
            name: torch.zeros_like(each).double() for name, each in plain.named_parameters()
        }
        received = {name: torch.zeros_like(each) for name, each in computed.items()}
        for step in range(10):
            branches = [["first"], ["second"], branches_in(step, choose)][step % 3]
            if step == 5:
                states = [each.state_dict() for each in attached]
                file = io.BytesIO()
                torch.save(states, file)
                file.seek(0)
                attached[0].close()
                net, attached = sharded(codec, modules)
                for reduction, saved in zip(
                    attached, torch.load(file, weights_only=True), strict=True
                ):
                    reduction.load_state_dict(saved)
            own = own_gradients(Branches().state_dict(), step, branches)
            for name, each in own.items():
                computed[name] += each
            net.zero_grad()
            net(data(step), branches).backward()
            for name, parameter in net.named_parameters():
                if parameter.grad is not None:
                    received[name] += full(parameter.grad) * ranks
                else:
                    assert name.split(".")[0] not in ("always", "gain", *branches)
        summed(computed)
        held = held_by(attached, net)
        assert any(each.abs().max() > 0 for each in held.values())
        for name, whole in computed.items():
            total = received[name].flatten()
            if name in held:
                total = total + held[name][: total.numel()]
            torch.testing.assert_close(total, whole.flatten(), rtol=0, atol=2e-6, msg=name)
        with pytest.raises(StateError, match="before the first iteration"):
            attached[0].load_state_dict(attached[0].state_dict())
        attached[0].close()


@check
def a_saved_state_of_shards_is_for_the_same_module():
    net, attached = sharded("topk", ("first",))
    net(data(0), ["first"]).backward()
    states = [each.state_dict() for each in attached]
    attached[0].close()
    net, attached = sharded("topk", ("first",))
    for wrong, said in (
        (states[1], "has module 1, this one 0"),
        ({**states[0], "workers": 9}, "has workers 9"),
        ({**states[0], "worker": 7}, "has worker 7"),
        (None, "has version None"),
    ):
        with pytest.raises(StateError, match=said):
            attached[0].load_state_dict(wrong)
    attached[0].close()


@check
def checkpoints_of_shards_go_on_with_the_same_bits():
    def train(net, steps):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for step in steps:
            optimizer.zero_grad()
            net(data(step), [["first"], [], ["first", "second"]][step % 3]).backward()
            optimizer.step()

    for codec in ("topk", "scalecom", "dgc"):
        net, attached = sharded(codec)
        train(net, range(4))
        states, weights = [each.state_dict() for each in attached], net.state_dict()
        weights = {name: each.clone() for name, each in weights.items()}
        train(net, range(4, 8))
        expected = [full(each) for each in net.parameters()]
        attached[0].close()
        net, attached = sharded(codec)
        net.load_state_dict(weights)
        for reduction, saved in zip(attached, states, strict=True):
            reduction.load_state_dict(saved)
        train(net, range(4, 8))
        for one, other in zip(net.parameters(), expected, strict=True):
            assert torch.equal(full(one), other), codec
        attached[0].close()


# ---------------------------------------------------------------- hooks around innet's


def small():
    torch.manual_seed(9)
    return torch.nn.Sequential(torch.nn.Linear(12, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5))


def bits(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def assert_equal_on_all_ranks(flat):
    for rank in range(dist.get_world_size()):
        other = flat.clone()
        dist.broadcast(other, src=rank)
        assert torch.equal(other, flat)


@check
def wrappers_find_the_means_in_the_bucket():
    for codec in ("exact", "dense", "topk", "powersgd", "lhc"):
        for options in ({}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.0002}):
            for state in both_hooks(codec):
                seen = []

                def wrapper(state, bucket, seen=seen):
                    def look(future):
                        assert future.value() is not None
                        means = [each.clone() for each in bucket.gradients()]
                        assert torch.equal(future.value(), bucket.buffer())
                        seen.extend(zip(bucket.parameters(), means, strict=True))
                        return future.value()

                    return ddp_hook(state, bucket).then(look)

                model = DistributedDataParallel(small(), **options)
                model.register_comm_hook(state, wrapper)
                for step in range(3):
                    seen.clear()
                    model.zero_grad()
                    model(data(step)).pow(2).mean().backward()
                    assert len(seen) == 4
                    for parameter, mean in seen:
                        assert torch.equal(parameter.grad, mean)
                    assert_equal_on_all_ranks(
                        torch.cat([each.grad.flatten() for each in model.parameters()])
                    )
                state.close()


@check
def buckets_stay_resizable():
    """PyTorch's batched PowerSGD hook resizes its buffer."""
    state = state_of(HookState, "dense", unit_cap_mb=25.0)
    model = DistributedDataParallel(small())
    buffers = []

    def wrapper(state, bucket):
        buffers.append(bucket.buffer())
        return ddp_hook(state, bucket)

    model.register_comm_hook(state, wrapper)
    model(data(0)).sum().backward()
    for buffer in buffers:
        buffer.resize_(buffer.numel() + 10)
    state.close()


def trained(register, optimizer_of, steps=8, **options):
    """The weights after a training whose hook ``register`` sets."""
    model = DistributedDataParallel(small(), bucket_cap_mb=0.0002, **options)
    optimizer = optimizer_of(model)
    register(model, optimizer)
    for step in range(steps):
        model.zero_grad()
        model(data(step)).pow(2).mean().backward()
        if optimizer is not None:
            optimizer.step()
    return bits(model)


@check
def pytorchs_optimizers_run_in_the_hook():
    """In callbacks of each bucket; compared with an optimizer after backward."""
    sgd = lambda model: torch.optim.SGD(model.parameters(), lr=0.05)  # noqa: E731

    def in_hook(state, hook):
        def register(model, _):
            overlapped = optimizer_overlap_hooks._OptimizerHookState(functional(), None)
            wrapper = optimizer_overlap_hooks._hook_then_optimizer(hook, overlapped)
            model.register_comm_hook(state, wrapper)

        return register

    def functional():
        return _FunctionalSGD([], lr=0.05, _allow_empty_param_list=True)

    for codec in ("exact", "dense", "topk", "powersgd"):
        for kind in (HookState, CompressionHook):
            after, inside = (state_of(kind, codec, unit_cap_mb=25.0) for _ in range(2))
            one = trained(lambda model, _, s=after: model.register_comm_hook(s, ddp_hook), sgd)
            other = trained(in_hook(inside, ddp_hook), lambda _: None)
            assert_equal_on_all_ranks(other)
            assert torch.equal(one, other), codec
            after.close()
            inside.close()
    plain = trained(in_hook(None, default_hooks.allreduce_hook), lambda _: None)
    state = state_of(HookState, "exact")
    exact = trained(in_hook(state, ddp_hook), lambda _: None)
    torch.testing.assert_close(exact, plain, rtol=1e-5, atol=1e-6)
    state.close()


@check
def pytorchs_half_precision_wraps_the_hook():
    for codec in ("exact", "topk"):
        for state in both_hooks(codec):
            model = DistributedDataParallel(small(), bucket_cap_mb=0.0002)
            model.register_comm_hook(state, default_hooks.fp16_compress_wrapper(ddp_hook))
            for step in range(3):
                model.zero_grad()
                model(data(step)).pow(2).mean().backward()
            found = torch.cat([each.grad.flatten() for each in model.parameters()])
            assert_equal_on_all_ranks(found)
            if codec == "exact":
                total = torch.zeros_like(found)
                for rank in range(dist.get_world_size()):
                    alone = small()
                    alone(data(2, rank)).pow(2).mean().backward()
                    total += torch.cat([each.grad.flatten() for each in alone.parameters()])
                mean = total / dist.get_world_size()
                torch.testing.assert_close(found, mean, rtol=2e-3, atol=1e-4)
            state.close()


@check
def pytorchs_zero_runs_in_the_hook():
    """ZeRO's optimizer beside backward, over a group that is not gloo's by name."""
    group = dist.new_group(backend="innet")

    def trained_by_zero(hook_of, state, steps=10):
        model = DistributedDataParallel(small(), process_group=group, bucket_cap_mb=0.0002)
        zero = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, process_group=group, overlap_with_ddp=True, lr=0.05
        )
        inner = ddp_hook if state is not None else default_hooks.allreduce_hook
        model.register_comm_hook(state if state is not None else group, hook_of(inner, model, zero))
        for step in range(steps):
            model.zero_grad()
            model(data(step)).pow(2).mean().backward()
            zero.step()
        return bits(model)

    for hook_of in (
        ddp_zero_hook.hook_with_zero_step,
        ddp_zero_hook.hook_with_zero_step_interleaved,
        functools.partial(ddp_zero_hook.hook_with_zero_step, shard_buckets=True),
    ):
        plain = trained_by_zero(hook_of, None)
        for codec in ("exact", "topk"):
            state = state_of(HookState, codec)
            found = trained_by_zero(hook_of, state)
            assert_equal_on_all_ranks(found)
            if codec == "exact":
                torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
            state.close()
    dist.destroy_process_group(group)


@check
def zero_steps_after_backward():
    for codec in ("exact", "topk"):
        found = []
        for optimizer_of in (
            lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
            lambda model: ZeroRedundancyOptimizer(
                model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9
            ),
        ):
            state = state_of(HookState, codec)
            register = lambda model, _, s=state: model.register_comm_hook(s, ddp_hook)  # noqa: E731
            found.append(trained(register, optimizer_of))
            state.close()
        assert torch.equal(*found)
        assert_equal_on_all_ranks(found[0])


# ---------------------------------------------------------------- complex parameters


class Complex(torch.nn.Module):
    def __init__(self, dtype=torch.complex64):
        super().__init__()
        torch.manual_seed(2)
        self.a = torch.nn.Parameter(torch.randn(7, dtype=dtype))
        self.b = torch.nn.Parameter(torch.randn(3, 4, dtype=dtype))
        self.c = torch.nn.Parameter(torch.randn(5))

    def forward(self, x):
        total = (self.a * x[0, :7]).abs().sum() + self.c.mul(x[1, :5]).pow(2).sum()
        return total + (self.b * x[2:5, :4]).abs().pow(2).sum()


@check
def complex_parameters_are_reduced_whole():
    ranks = dist.get_world_size()
    for codec in ("exact", "dense", "topk:ratio=1", "topk", "powersgd"):
        for options in ({}, {"gradient_as_bucket_view": True}):
            for state in both_hooks(codec):
                net = Complex()
                model = DistributedDataParallel(net, **options)
                model.register_comm_hook(state, ddp_hook)
                for step in range(2):
                    model.zero_grad()
                    model(data(step)).backward()
                    alone = Complex()
                    expected = [0, 0, 0]
                    for rank in range(ranks):
                        alone.zero_grad()
                        alone(data(step, rank)).backward()
                        pairs = zip(expected, alone.parameters(), strict=True)
                        expected = [each + parameter.grad / ranks for each, parameter in pairs]
                    if codec in ("exact", "dense") or (step == 0 and codec == "topk:ratio=1"):
                        for parameter, mean in zip(net.parameters(), expected, strict=True):
                            torch.testing.assert_close(parameter.grad, mean, rtol=1e-5, atol=1e-5)
                    flat = [torch.view_as_real(each.grad) for each in (net.a, net.b)]
                    assert_equal_on_all_ranks(torch.cat([each.flatten() for each in flat]))
                state.close()
    state = state_of(HookState, "dense")
    model = DistributedDataParallel(Complex(torch.complex128))
    model.register_comm_hook(state, ddp_hook)
    with pytest.raises((InputError, RuntimeError), match=r"complex128"):
        model(data(0)).backward()
    state.close()


# ---------------------------------------------------------------- several models of a trainer


@check
def each_model_of_a_trainer_has_its_own_memory():
    def wrapped(hook, count):
        models = [DistributedDataParallel(small()) for _ in range(count)]
        for model in models:
            hook.register(model)
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
        return models, optimizers

    def train(models, optimizers, steps):
        for step in steps:
            for number, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
                optimizer.zero_grad()
                model(data(step + 50 * number)).pow(2).mean().backward()
                optimizer.step()

    options = {"seed": 3, "unit_cap_mb": 0.001, "deadline": 30.0}
    hook = ModelHook("topk", **options)
    models, optimizers = wrapped(hook, 2)
    assert len(hook.states) == 2
    train(models, optimizers, range(3))
    saved = hook.state_dict()
    weights = [{k: v.clone() for k, v in model.module.state_dict().items()} for model in models]
    train(models, optimizers, range(3, 6))
    expected = [bits(model) for model in models]
    hook.close()
    for loads_first in (True, False):
        hook = ModelHook("topk", **options)
        if loads_first:
            hook.load_state_dict(saved)
        models, optimizers = wrapped(hook, 2)
        if not loads_first:
            hook.load_state_dict(saved)
        for model, each in zip(models, weights, strict=True):
            model.module.load_state_dict(each)
        train(models, optimizers, range(3, 6))
        for model, each in zip(models, expected, strict=True):
            assert torch.equal(bits(model), each)
        states = list(hook.states)
        again = DistributedDataParallel(models[0].module)
        hook.register(again)  # as a trainer that fits twice
        assert hook.states[1] is states[1]
        assert hook.states[0] is not states[0]
        assert states[0]._comm_thread is None, "its job is closed"
        hook.close()
        assert all(state._comm_thread is None for state in hook.states)
    single = ModelHook("topk", **options)
    kept, _ = wrapped(single, 2)
    with pytest.raises(StateError, match="of 1 models, and 2 are wrapped"):
        single.load_state_dict(saved["models"][0])
    given = ModelHook(state_of(HookState, "topk"))
    more, _ = wrapped(given, 1)
    with pytest.raises(InputError, match="a HookState is for one model"):
        given.register(DistributedDataParallel(small()))
    del kept, more


if __name__ == "__main__":
    sys.exit(main(CHECKS))
