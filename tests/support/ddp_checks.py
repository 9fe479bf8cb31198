"""Checks of DistributedDataParallel over a switch, run by four ranks.

    python tests/support/ddp_checks.py FOLDER UNTIL RANKS NAME ...

See ``support.ranks`` for what is written.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import pickle
import signal
import sys
import time
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch._dynamo  # DistributedDataParallel would, in each of the ranks
import torch.distributed as dist
from ranks import main
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import innet
from innet.codecs import PRESETS, SumOptions, build_codec
from innet.codecs.build import spec_of_unit
from innet.core.errors import (
    CompositionError,
    ConfigError,
    InputError,
    MembershipError,
    StateError,
)
from innet.core.reduce_op import ReduceOp, Segment
from innet.service.process import local_switch
from innet.torch import (
    CompressionHook,
    DDPHook,
    HookState,
    SwitchAllReduce,
    SwitchReduceScatter,
    ddp_hook,
)
from innet.torch.bucket_reduction import layers
from innet.torch.reducers import GroupReducer

CAP = 0.004  # megabytes: three units for the model below
VALUES = 256  # in a packet of the switch that is started
RANKS = 4
CHECKS = {}
BIASES = {"layers": {"*.bias": "dense"}}


def check(function):
    CHECKS[function.__name__] = function
    return function


class Net(torch.nn.Module):
    """Used and unused layers, and a parameter that is one number."""

    def __init__(self, *, unused: bool = False) -> None:
        super().__init__()
        self.first = torch.nn.Linear(20, 64)
        self.second = torch.nn.Linear(64, 48)
        self.unused = torch.nn.Linear(7, 5) if unused else None
        self.last = torch.nn.Linear(48, 10)
        self.gain = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(torch.relu(self.second(x))) * self.gain


def wrapped(codec, dtype=torch.float32, *, unused=False, **options):
    """A model, wrapped, and the state of its hook."""
    torch.manual_seed(7)
    net = Net(unused=unused).to(dtype)
    state_options = {
        name: options.pop(name) for name in ("scale", "unit_cap_mb", "gain") if name in options
    }
    if isinstance(codec, dict):
        state_options["named_parameters"] = net.named_parameters()
    model = DistributedDataParallel(net, **{"bucket_cap_mb": 0.01, **options})
    state = HookState(codec, seed=5, deadline=60.0, **{"unit_cap_mb": CAP, **state_options})
    model.register_comm_hook(state, ddp_hook)
    return model, state


def loss_of(model, step, rank=None):
    generator = torch.Generator().manual_seed(
        1000 * step + (dist.get_rank() if rank is None else rank)
    )
    dtype = list(model.parameters())[-1].dtype
    x = torch.randn(8, 20, generator=generator).to(dtype)
    return model(x).float().pow(2).mean()


def own_gradients(net, step):
    """This rank's gradients, without any communication."""
    alone = copy.deepcopy(net)
    alone.zero_grad()
    loss_of(alone, step).backward()
    return [
        torch.zeros_like(each) if each.grad is None else each.grad for each in alone.parameters()
    ]


def gathered(tensors):
    """Those of all ranks, by rank."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, [each.float().numpy() for each in tensors])
    return found


def means(net):
    return [each.grad.float().numpy() for each in net.parameters()]


class InMemory:
    """What all ranks' codecs make of the same gradients over a switch in memory; on rank 0."""

    def __init__(self, codec, state, net):
        shapes = [tuple(each.shape) for each in net.parameters()]
        names = [name for name, _ in net.named_parameters()]
        places = [state._places[id(each)] for each in net.parameters()]
        self.collectives = []
        for unit in state._units:
            part = sorted(
                (i for i, place in enumerate(places) if place.unit is unit),
                key=lambda i: places[i].position,
            )
            assert [shapes[i] for i in part] == list(unit.shapes)
            its_layers = layers(unit.shapes, [names[i] for i in part])
            self.collectives.append((part, self.collective(codec, 0 in part, its_layers)))
        assert sum(len(part) for part, _ in self.collectives) == len(shapes)

    @staticmethod
    def collective(codec, first, its_layers):
        if dist.get_rank():
            return None  # it would take a second each
        return innet.Collective(
            workers=dist.get_world_size(),
            codec=spec_of_unit(codec, first=first, names=list(its_layers)),
            layers=its_layers,
            values_per_packet=VALUES,
            seed=5,
        )

    def means(self, gradients):
        """Of all ranks' gradients, for all ranks."""
        found = [[None] * len(gradients[0])]
        if dist.get_rank() == 0:
            for part, collective in self.collectives:
                flat = [np.concatenate([each[i].ravel() for i in part]) for each in gradients]
                total, report = collective.all_reduce(flat)
                assert report.exact
                total *= np.float32(1) / np.float32(len(gradients))
                shapes = [gradients[0][i].shape for i in part]
                ends = np.cumsum([math.prod(shape) for shape in shapes])
                for i, shape, values in zip(part, shapes, np.split(total, ends[:-1]), strict=True):
                    found[0][i] = values.reshape(shape)
        dist.broadcast_object_list(found)
        return found[0]


def equal_to_memory(codec, steps=3):
    """Training over UDP, bit for bit as in memory, over DDP's rebuilding of its buckets."""
    model, state = wrapped(codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = None
    for step in range(steps):
        gradients = gathered(own_gradients(model.module, step))
        optimizer.zero_grad()
        loss_of(model, step).backward()
        memory = memory or InMemory(codec, state, model.module)
        assert len(state.units) == 3
        for found, expected in zip(means(model.module), memory.means(gradients), strict=True):
            np.testing.assert_array_equal(found, expected)
        optimizer.step()
    assert {report.transport for report in state.reports.values()} == {"shm"}
    state.close()


@check
def topk_equals_memory():
    equal_to_memory("topk", steps=4)


@check
def scalecom_equals_memory():
    equal_to_memory("scalecom", steps=4)


@check
def formats_equal_memory():
    equal_to_memory("mxfp4:error_feedback=residual,rounding=stochastic", steps=3)


@check
def codecs_by_layer_and_by_schedule_equal_memory():
    ratio = "exponential(0.5, 0.05, steps=3)"
    patterns = {"*.bias": "dense", "second.*": f"topk:ratio={ratio}", "gain": "dense"}
    equal_to_memory({"preset": "scalecom", "rate": 10, "layers": patterns}, steps=4)


@check
def patterns_need_the_names_of_a_model():
    with pytest.raises(InputError, match=r"named_parameters=model.named_parameters\(\)"):
        HookState({"preset": "topk", "layers": {"*.bias": "dense"}})
    named = Net().named_parameters()
    with pytest.raises(ConfigError, match=r"'conv\.\*' decides for no layer"):
        HookState({"preset": "topk", "layers": {"conv.*": "dense"}}, named_parameters=named)


@check
def the_gain_is_that_of_all_ranks_gradients():
    model, state = wrapped({"preset": "exact"}, gain=True)
    for step in range(2):
        gradients = gathered(own_gradients(model.module, step))
        model.zero_grad()
        loss_of(model, step).backward()
        found = state.adascale_gain()
        flat = np.array([np.concatenate([part.ravel() for part in each]) for each in gradients])
        if step == 0:  # later ones are averages
            mean = (flat.astype(np.float64).sum(0) / RANKS) ** 2
            variance = ((flat.astype(np.float64) ** 2).sum() - RANKS * mean.sum()) / (RANKS - 1)
            square = mean.sum() - variance / RANKS
            expected = (variance + square) / (variance / RANKS + square)
            assert found == pytest.approx(expected, rel=1e-5)
            assert 1 < found < RANKS
        assert state.adascale_gain() == found  # nothing new was summed
    assert state.state_dict()["adascale"]["gain"] == found
    with pytest.raises(InputError, match="HookState\\(gain=True\\)"):
        HookState("exact").adascale_gain()
    state.close()


@check
def a_checkpoint_goes_on_with_another_schedule():
    model, state = wrapped({"preset": "topk", "ratio": "linear(0.5, 0.1, steps=4)", **BIASES})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, range(2))
    saved = io.BytesIO()
    torch.save(state.state_dict(), saved)
    saved.seek(0)
    state.close()
    again, other = wrapped({"preset": "topk", "ratio": "steps({0: 0.1, 3: 0.02})", **BIASES})
    other.load_state_dict(torch.load(saved, weights_only=True))
    again.module.load_state_dict(model.module.state_dict())
    optimizer = torch.optim.SGD(again.parameters(), lr=0.1)
    selected = []
    for step in range(2, 4):
        train(again, optimizer, [step])
        codecs = [getattr(unit.codec, "codecs", (unit.codec,)) for unit in other._units]
        kept = [codec for each in codecs for codec in each if codec.keeps_state]
        assert len(kept) == len(other.units)
        selected.append([codec.selector.parameters for codec in kept])
    assert {each.ratio for each in selected[0]} == {0.1}
    assert {each.ratio for each in selected[1]} == {0.02}
    with pytest.raises(StateError, match="codec"):
        HookState("topk", seed=5, unit_cap_mb=CAP).load_state_dict(state.state_dict())
    other.close()


@check
def every_codec_equals_memory():
    for codec in sorted({*PRESETS.names()} - {"fpisa"}):  # which needs a switch that adds floats
        equal_to_memory(codec)


@check
def exact_is_the_correctly_rounded_mean():
    model, state = wrapped("exact")
    gradients = gathered(own_gradients(model.module, 0))
    loss_of(model, 0).backward()
    for index, found in enumerate(means(model.module)):
        each = np.stack([rank[index].ravel() for rank in gradients]).astype(np.float64)
        sums = [np.float32(math.fsum(column)) for column in each.T]
        np.testing.assert_array_equal(found.ravel(), np.array(sums) * np.float32(0.25))
    state.close()


@check
def dense_is_close_to_plain_all_reduce():
    """Two models, one with gloo's all-reduce, learn the same."""
    close_to_plain_all_reduce("dense")


@check
def exact_is_close_to_plain_all_reduce():
    """The difference is gloo's, which rounds each of three additions."""
    close_to_plain_all_reduce("exact", steps=20)


def close_to_plain_all_reduce(codec, steps=4):
    model, state = wrapped(codec)
    models = [model, DistributedDataParallel(copy.deepcopy(model.module))]
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in models]
    for step in range(steps):
        losses = []
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            losses.append(loss)
        torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
        for one, other in zip(*(means(each.module) for each in models), strict=True):
            # Integers have steps of 2**-30 of the unit's largest gradient.
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7 * np.abs(other).max())
        for optimizer in optimizers:
            optimizer.step()
    state.close()


@check
def dtypes():
    for dtype in (torch.float16, torch.bfloat16):
        model, state = wrapped("exact", dtype)
        gradients = gathered(own_gradients(model.module, 0))
        loss_of(model, 0).backward()
        for index, parameter in enumerate(model.module.parameters()):
            assert parameter.grad.dtype == dtype
            total = sum(rank[index].astype(np.float64) for rank in gradients)
            mean = torch.from_numpy(np.asarray(total.astype(np.float32) * np.float32(0.25)))
            torch.testing.assert_close(parameter.grad, mean.to(dtype), rtol=0, atol=0)
        state.close()


@check
def float64_is_refused_everywhere():
    model, state = wrapped("dense", torch.float64)
    with pytest.raises(innet.core.errors.InputError, match=r"float64.*Convert the model"):
        loss_of(model, 0).backward()
    state.close()


@check
def unused_parameters():
    for options in ({"find_unused_parameters": True}, {"static_graph": True}):
        model, state = wrapped("exact", unused=True, **options)
        for step in range(3):
            gradients = gathered(own_gradients(model.module, step))
            model.zero_grad()
            loss_of(model, step).backward()
            for index, parameter in enumerate(model.module.parameters()):
                total = sum(rank[index].astype(np.float64) for rank in gradients)
                if parameter.grad is None:
                    assert not total.any()
                    continue
                expected = total.astype(np.float32) * np.float32(0.25)
                np.testing.assert_allclose(parameter.grad.numpy(), expected, rtol=1e-6)
        state.close()


@check
def backward_goes_on_while_gradients_are_under_way():
    """Rank 3 comes late: the others' backward has handed out every bucket before one is done."""
    early = []
    store = dist.PrefixStore("under way", dist.distributed_c10d._get_default_store())

    def watched(state, bucket):
        future = ddp_hook(state, bucket)
        if not future.done():
            early.append(bucket.index())
        if bucket.is_last() and dist.get_rank() != 3:
            store.add(f"handed out in {step}", 1)
        return future

    model = DistributedDataParallel(Net(), bucket_cap_mb=CAP)
    state = HookState("topk", seed=5, deadline=60.0, unit_cap_mb=CAP)
    model.register_comm_hook(state, watched)
    for step in range(3):
        early.clear()
        loss = loss_of(model, step)
        dist.barrier()
        if dist.get_rank() == 3 and step:  # in the first one all meet at the switch
            # Polled: `wait` would wait for a key, not for its third addition.
            until = time.monotonic() + 60
            while store.add(f"handed out in {step}", 0) < 3:
                assert time.monotonic() < until, "the others have not handed out their buckets"
                time.sleep(0.01)
        loss.backward()
        if dist.get_rank() != 3:
            assert early == list(range(len(early)))
            assert len(early) > 1 or step == 0  # later, the first iteration's one bucket is several
    state.close()


@check
def gradients_accumulate():
    model, state = wrapped("exact", gradient_as_bucket_view=True)
    for step in (0, 10, 20):
        each = [gathered(own_gradients(model.module, step + part)) for part in range(2)]
        model.zero_grad()
        with model.no_sync():
            loss_of(model, step).backward()
        loss_of(model, step + 1).backward()
        for index, found in enumerate(means(model.module)):
            total = sum(rank[index].astype(np.float64) for part in each for rank in part)
            np.testing.assert_allclose(found, total / 4, rtol=1e-5, atol=1e-7)
    state.close()


@check
def a_nan_of_one_rank_is_skipped_by_all():
    """As if the step had never been, with codecs that remember."""
    outcomes = []
    for poisoned in (False, True):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        model, state = wrapped("topk", scale=scaler.get_scale)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in (0, 1, 99, 2):
            if step == 99 and not poisoned:
                continue
            optimizer.zero_grad()
            loss = loss_of(model, step)
            if step == 99 and dist.get_rank() == 2:
                loss = loss * float("nan")
            scaler.scale(loss).backward()
            if step == 99:
                assert all(bool(each.grad.isnan().any()) for each in model.parameters())
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == (2.0**9 if poisoned else 2.0**10)
        assert state.skipped == (3 if poisoned else 0)
        outcomes.append([each.detach().numpy() for each in model.parameters()])
        state.close()
    for one, other in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(one, other)


def train(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


@check
def a_checkpoint_goes_on_with_the_same_bits():
    model, state = wrapped("scalecom")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer, range(3))
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), state.state_dict()], file)
    pickled = pickle.dumps(state)
    train(model, optimizer, range(3, 6))
    expected = [each.detach().numpy() for each in model.parameters()]
    state.close()
    for way in ("state_dict", "pickle"):
        model, state = wrapped("scalecom")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        file.seek(0)
        of_model, of_optimiser, of_hook = torch.load(file, weights_only=True)
        model.load_state_dict(of_model)
        optimizer.load_state_dict(of_optimiser)
        if way == "state_dict":
            state.load_state_dict(of_hook)
        else:
            state.close()
            state = pickle.loads(pickled)
            model = DistributedDataParallel(model.module, bucket_cap_mb=0.01)
            model.register_comm_hook(state, ddp_hook)
        train(model, optimizer, range(3, 6))
        for one, other in zip(model.parameters(), expected, strict=True):
            np.testing.assert_array_equal(one.detach().numpy(), other)
        with pytest.raises(StateError, match="before the first iteration"):
            state.load_state_dict(of_hook)
        state.close()
    with pytest.raises(StateError, match=r"of 5 workers, and there are 4"):
        HookState("scalecom", seed=5, unit_cap_mb=CAP).load_state_dict({**of_hook, "workers": 5})
    other = HookState("topk", seed=5, unit_cap_mb=CAP)
    with pytest.raises(StateError, match="has codec"):
        other.load_state_dict(of_hook)


@check
def a_bucket_that_grows_is_told_to_all_and_training_can_go_on():
    model, state = wrapped("topk")
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), range(2))
    if dist.get_rank() == 3:  # as if a parameter were another one from now on
        state._places.clear()
    expected = (StateError, "make a new HookState") if dist.get_rank() == 3 else (
        RuntimeError, "worker 3 gave up: .*make a new HookState"
    )  # fmt: skip
    with pytest.raises(expected[0], match=expected[1]):
        loss_of(model, 2).backward()
    with pytest.raises(StateError, match="make a new HookState"):  # at once: nobody is waited for
        wrapped_again(model, state)
    held_back = state.state_dict()["units"]
    state.renew()
    for one, other in zip(held_back, state.state_dict()["units"], strict=True):
        before, after = (
            each["codec"]["parts"]["error_feedback"]["residual"] for each in (one, other)
        )
        assert torch.equal(before, after)
        assert before.any() or before.numel() == 1  # of one number nothing is left
    again = wrapped_again(model, state)
    assert all(np.isfinite(each).all() for each in means(again.module))
    assert len(state.units) == 3
    state.close()


def wrapped_again(model, state):
    """A backward of a new wrapper; one in which an error was raised is of no use any more."""
    again = DistributedDataParallel(copy.deepcopy(model.module), bucket_cap_mb=0.01)
    again.register_comm_hook(state, DDPHook)
    again.zero_grad()
    loss_of(again, 3).backward()
    return again


@check
def another_switch_takes_the_place_of_one_that_died():
    model, state = wrapped("topk")
    loss_of(model, 1).backward()
    group = dist.new_group(backend="innet")
    if dist.get_rank() == 0:
        os.kill(local_switch().pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"the switch .* is gone"):
        loss_of(model, 2).backward()
    with pytest.raises(MembershipError, match=r"the switch .* is gone"):
        dist.all_reduce(torch.ones(3), group=group)
    held_back = state.state_dict()["units"]
    state.renew()
    for one, other in zip(held_back, state.state_dict()["units"], strict=True):
        before, after = (
            each["codec"]["parts"]["error_feedback"]["residual"] for each in (one, other)
        )
        assert torch.equal(before, after)
    again = wrapped_again(model, state)
    assert all(np.isfinite(each).all() for each in means(again.module))
    state.close()
    dist.destroy_process_group(group)
    with switch_group() as group:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [RANKS] * 3


@contextlib.contextmanager
def switch_group(ranks=None):
    group = dist.new_group(ranks, backend="innet")
    yield group
    dist.destroy_process_group(group)


@check
def the_group_reduces_by_the_switch():
    with switch_group() as group:
        rank, workers = dist.get_rank(), dist.get_world_size()
        rng = np.random.default_rng(3)
        each = rng.laplace(size=(workers, 1000)).astype(np.float32)
        expected = np.array([np.float32(math.fsum(column)) for column in each.T.astype(float)])
        tensor = torch.from_numpy(each[rank].copy())
        dist.all_reduce(tensor, group=group)
        np.testing.assert_array_equal(tensor.numpy(), expected)
        views = [torch.from_numpy(each[rank].reshape(10, 100) * k).T for k in range(5)]
        works = [
            dist.all_reduce(view, dist.ReduceOp.AVG, group=group, async_op=True) for view in views
        ]
        for k, (tensor, work) in enumerate(zip(views, works, strict=True)):
            assert work.wait()
            assert work.is_completed()
            assert work.is_success()
            np.testing.assert_allclose(
                tensor.T.numpy().ravel(), k * expected / 4, rtol=1e-5, atol=1e-6
            )
        half = torch.full((3,), rank + 0.5, dtype=torch.bfloat16)
        dist.all_reduce(half, group=group)
        assert half.tolist() == [8.0] * 3
        with dist._coalescing_manager(group=group):
            pair = [torch.full((n,), float(rank)) for n in (2, 3)]
            for tensor in pair:
                dist.all_reduce(tensor, group=group)
        assert [each.tolist() for each in pair] == [[6.0] * 2, [6.0] * 3]
        assert len(group.reports) == 1 + 5 + 1 + 2
        assert group.reports[0].codec == "exact"
    before = os.environ.get("INNET_CODEC")
    os.environ["INNET_CODEC"] = "dense"
    try:
        with switch_group() as group:
            dense_sums_take_the_place_of_tensors(group, each, rank)
    finally:
        os.environ.pop("INNET_CODEC")
        if before is not None:
            os.environ["INNET_CODEC"] = before


def dense_sums_take_the_place_of_tensors(group, each, rank):
    """Of those that are one piece of float32, and the others get copies; neighbors stay."""
    total, _ = innet.all_reduce(list(each), values_per_packet=64)
    for operation, expected in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.AVG, total / 4)):
        for begin, step in ((0, 1), (5, 1), (0, 2)):
            line = torch.full((2020,), 7.0)
            tensor = line[begin::step][:1000]
            tensor.copy_(torch.from_numpy(each[rank]))
            dist.all_reduce(tensor, operation, group=group)
            np.testing.assert_array_equal(tensor.numpy(), expected)
            tensor.fill_(7.0)
            assert (line == 7).all()


@check
def the_group_leaves_the_rest_to_gloo():
    with switch_group() as group:
        rank = dist.get_rank()
        assert dist.get_backend(group) == "innet"
        for dtype, operation, expected in (
            (torch.int64, dist.ReduceOp.SUM, 6),
            (torch.float64, dist.ReduceOp.SUM, 6),
            (torch.float32, dist.ReduceOp.MAX, 3),
            (torch.float32, dist.ReduceOp.MIN, 0),
        ):
            tensor = torch.full((4,), rank, dtype=dtype)
            dist.all_reduce(tensor, operation, group=group)
            assert tensor.tolist() == [expected] * 4
        dist.all_reduce(torch.zeros(0), group=group)
        with pytest.raises(RuntimeError, match="non-empty"):
            group.allreduce_coalesced([]).wait(timedelta(seconds=5))
        dist.barrier(group=group)
        found = [None] * 4
        dist.all_gather_object(found, {"rank": rank}, group=group)
        assert found == [{"rank": each} for each in range(4)]
        box = [rank]
        dist.broadcast_object_list(box, src=2, group=group)
        assert box == [2]
        parts = [torch.zeros(2) for _ in range(4)]
        dist.all_gather(parts, torch.full((2,), float(rank)), group=group)
        assert [part.tolist() for part in parts] == [[float(each)] * 2 for each in range(4)]
        assert not group.reports


@check
def infinite_values_are_summed_as_floats():
    with switch_group() as group:
        rank = dist.get_rank()
        for _ in range(2):
            tensor = torch.tensor(
                [1.0, math.inf if rank == 1 else 2.0, math.nan if rank == 3 else 0.0]
            )
            dist.all_reduce(tensor, group=group)
            assert tensor[:2].tolist() == [4.0, math.inf]
            assert math.isnan(tensor[2])
            mean = torch.tensor([-math.inf if rank == 0 else 1.0, float(rank)])
            dist.all_reduce(mean, dist.ReduceOp.AVG, group=group)
            assert mean.tolist() == [-math.inf, 1.5]
            finite = torch.ones(2)
            dist.all_reduce(finite, group=group)
            assert finite.tolist() == [4.0, 4.0]


@check
def groups_of_some_ranks():
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 2], backend="innet"), dist.new_group([1, 3], backend="innet")]
    mine = pairs[rank % 2]
    with pytest.raises(InputError, match="this rank is not in the process group"):
        HookState("exact", process_group=pairs[1 - rank % 2]).connect()
    tensor = torch.full((5,), float(rank))
    dist.all_reduce(tensor, group=mine)
    assert tensor.tolist() == [2.0 if rank % 2 == 0 else 4.0] * 5
    state = HookState("exact", process_group=mine, deadline=60.0)
    torch.manual_seed(7)
    model = DistributedDataParallel(Net(), process_group=mine)
    model.register_comm_hook(state, ddp_hook)
    gradients = gathered(own_gradients(model.module, 0))
    loss_of(model, 0).backward()
    for index, found in enumerate(means(model.module)):
        total = gradients[rank % 2][index] + gradients[rank % 2 + 2][index]
        np.testing.assert_array_equal(found, total * np.float32(0.5))
    state.close()
    dist.destroy_process_group(mine)


@check
def a_model_over_the_group_needs_no_hook():
    with switch_group() as group:
        torch.manual_seed(7)
        model = DistributedDataParallel(Net(), process_group=group, bucket_cap_mb=0.01)
        for step in range(3):
            gradients = gathered(own_gradients(model.module, step))
            model.zero_grad()
            loss_of(model, step).backward()
            for index, found in enumerate(means(model.module)):
                # DDP divides before it sums.
                total = sum((rank[index] / np.float32(4)).astype(np.float64) for rank in gradients)
                np.testing.assert_array_equal(found, total.astype(np.float32))
        assert len(group.reports) > 3


@check
def the_workers_mean_the_same():
    with switch_group() as group:
        tensor = torch.zeros(3 if dist.get_rank() else 4)
        with pytest.raises(innet.core.errors.InputError, match="run different collectives"):
            dist.all_reduce(tensor, group=group)
        work = dist.all_reduce(torch.zeros(2), group=group, async_op=True)
        with pytest.raises(StateError, match="before this one failed"):
            work.wait()
        assert work.exception() is not None


@check
def shards_of_a_model():
    """fully_shard through the switch, beside itself through gloo, and with error feedback."""
    models = []
    for codec in (None, "exact", "topk"):
        torch.manual_seed(7)
        net = Net()
        net.gain = torch.nn.Parameter(net.gain.detach().reshape(1))  # a number is never sharded
        for module in (net.first, net.second, net):
            fully_shard(module)
        attached = SwitchReduceScatter.attach(net, codec, deadline=60.0, seed=5) if codec else []
        assert len(attached) == (3 if codec else 0)
        models.append((net, torch.optim.SGD(net.parameters(), lr=0.1), attached))
    for step in range(4):
        for net, optimizer, _ in models:
            optimizer.zero_grad()
            loss_of(net, step).backward()
            optimizer.step()
    plain, exact, topk = ([each.full_tensor() for each in net.parameters()] for net, _, _ in models)
    for one, other in zip(exact, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    assert any(not torch.allclose(one, other) for one, other in zip(topk, plain, strict=True))
    for _, _, attached in models[1:]:
        assert all(each.reports for each in attached)
        attached[0].close()
    with pytest.raises(innet.core.errors.InputError, match="apply fully_shard first"):
        SwitchReduceScatter.attach(Net())


def with_divide_factor(net):
    for module in (net.first, net.second, net):
        module.set_gradient_divide_factor(2.0 * RANKS)


SETTINGS = {  # of FSDP2, and what it makes of gradients; those that this PyTorch has
    "set_gradient_divide_factor": (with_divide_factor, 0.5),
    "set_force_sum_reduction_for_comms": (
        lambda net: [
            each.set_force_sum_reduction_for_comms(True) for each in (net.first, net.second, net)
        ],
        1.0,
    ),
    "set_separate_reduce_scatter_group": (
        lambda net: net.set_separate_reduce_scatter_group(True),
        1.0,
    ),
    "set_reduce_scatter_max_input_buffers": (
        lambda net: net.set_reduce_scatter_max_input_buffers(1),
        1.0,
    ),
    "set_reduce_scatter_unused_params": (
        lambda net: net.set_reduce_scatter_unused_params(True),
        1.0,
    ),
}
REFUSED = {  # by PyTorch, where a reduce-scatter of one's own is attached
    "set_allocate_memory_from_process_group_for_comm": [True],
    "set_symm_mem_for_comm": [],
}


@check
def settings_of_shards():
    def gradients_with(change):
        torch.manual_seed(7)
        net = Net()
        net.gain = torch.nn.Parameter(net.gain.detach().reshape(1))
        for module in (net.first, net.second, net):
            fully_shard(module)
        attached = SwitchReduceScatter.attach(net, "exact", deadline=60.0, seed=5)
        change(net)
        loss_of(net, 0).backward()
        found = [each.grad.full_tensor() for each in net.parameters()]
        for name, arguments in REFUSED.items():
            if hasattr(net, name):
                with pytest.raises((AssertionError, RuntimeError), match="custom"):
                    getattr(net, name)(*arguments)
        attached[0].close()
        return found

    plain = gradients_with(lambda net: None)
    for name, (change, factor) in SETTINGS.items():
        if hasattr(fully_shard(torch.nn.Linear(2, 2)), name):
            for one, other in zip(gradients_with(change), plain, strict=True):
                torch.testing.assert_close(one, other * factor, rtol=1e-6, atol=1e-9)


@check
def replicas_of_shards():
    """Hybrid sharding with innet's all-reduce over the replicas, beside PyTorch's own."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    models = []
    for codec in (None, "exact", "topk"):
        torch.manual_seed(7)
        net = Net()
        net.gain = torch.nn.Parameter(net.gain.detach().reshape(1))
        for module in (net.first, net.second, net):
            fully_shard(module, mesh=mesh["shard"] if codec else mesh)
        attached = []
        if codec:
            group = mesh["replicate"].get_group()
            attached = SwitchAllReduce.attach(
                net, codec, process_group=group, deadline=60.0, seed=5
            )
            assert len(attached) == 3
        models.append((net, torch.optim.SGD(net.parameters(), lr=0.1), attached))
    for step in range(3):
        for net, optimizer, _ in models:
            optimizer.zero_grad()
            loss_of(net, step).backward()
            optimizer.step()
    plain, exact, topk = ([each.full_tensor() for each in net.parameters()] for net, _, _ in models)
    for one, other in zip(exact, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    assert any(not torch.allclose(one, other) for one, other in zip(topk, plain, strict=True))
    for _, _, attached in models[1:]:
        assert all(each.reports[0].workers == 2 for each in attached)
        attached[0].close()


@check
def uneven_inputs():
    """Ranks that have no more inputs take part with zeros, as PyTorch lets them."""
    model, state = wrapped("topk")
    with model.join():
        for step in range(3 + dist.get_rank()):
            model.zero_grad()
            loss_of(model, step).backward()
    assert np.isfinite(np.concatenate([each.ravel() for each in means(model.module)])).all()
    state.close()


@check
def several_dtypes_in_one_model():
    torch.manual_seed(7)
    net = Net()
    net.gain = torch.nn.Parameter(net.gain.detach().bfloat16())
    model = DistributedDataParallel(net, bucket_cap_mb=0.01)
    state = HookState("exact", seed=5, deadline=60.0, unit_cap_mb=CAP)
    model.register_comm_hook(state, ddp_hook)
    for step in range(3):
        gradients = gathered(own_gradients(net, step))
        model.zero_grad()
        loss_of(model, step).backward()
        for index, parameter in enumerate(net.parameters()):
            total = sum(rank[index].astype(np.float64) for rank in gradients)
            mean = torch.from_numpy(np.asarray(total.astype(np.float32) * np.float32(0.25)))
            torch.testing.assert_close(parameter.grad, mean.to(parameter.dtype), rtol=1e-6, atol=0)
    assert net.gain.grad.dtype == torch.bfloat16
    state.close()


# ---------------------------------------------------------------- without a switch


def without_switch(codec, **options):
    """A model, wrapped, and the state of a hook over gloo."""
    torch.manual_seed(7)
    net = Net()
    model = DistributedDataParallel(net, bucket_cap_mb=0.01)
    if isinstance(codec, dict):
        options["named_parameters"] = net.named_parameters()
    state = CompressionHook(codec, seed=5, deadline=60.0, unit_cap_mb=CAP, **options)
    model.register_comm_hook(state, ddp_hook)
    return model, state


def assert_same(one, other):
    """Saved states, to the last bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for each in zip(one, other, strict=True):
            assert_same(*each)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other or one != one


def equal_without_switch(codec, steps=3):
    """Gradients and states of a hook over gloo are those of one over the switch; then each goes on
    with the other's state.
    """
    pairs = [wrapped(codec), without_switch(codec)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model, _ in pairs]
    for step in range(steps):
        for (model, _), optimizer in zip(pairs, optimizers, strict=True):
            train(model, optimizer, [step])
        for one, other in zip(*(means(model.module) for model, _ in pairs), strict=True):
            np.testing.assert_array_equal(one, other)
    saved = [copy.deepcopy(state.state_dict()) for _, state in pairs]
    assert_same(*saved)
    weights = pairs[0][0].module.state_dict()
    for _, state in pairs:
        assert len(state.units) == 3
        state.close()
    again = [wrapped(codec), without_switch(codec)]
    for (model, state), other in zip(again, reversed(saved), strict=True):
        state.load_state_dict(other)
        model.module.load_state_dict(weights)
        loss_of(model, steps).backward()
    for one, other in zip(*(means(model.module) for model, _ in again), strict=True):
        np.testing.assert_array_equal(one, other)
    for _, state in again:
        state.close()
    return again


@check
def a_hook_without_a_switch_equals_one_with_it():
    for codec in ("dense", "topk", "scalecom", {"preset": "topk", **BIASES}):
        (_, over_switch), (_, over_gloo) = equal_without_switch(codec)
        report = over_gloo.reports[0]
        assert report.transport == "gloo"
        assert report.rounds == over_switch.reports[0].rounds
        assert 0 < report.bytes_sent < over_switch.reports[0].bytes_sent  # no headers


@check
def every_codec_without_a_switch_equals_one_with_it():
    for codec in sorted({*PRESETS.names()} - {"fpisa"}):
        equal_without_switch(codec)


@check
def a_group_without_or_and_some_of_its_ranks():
    """As NCCL: bits travel as bytes. And a group that saturates is refused what wraps."""
    group = dist.new_group([1, 3])
    if dist.get_rank() not in (1, 3):
        return
    reducer = GroupReducer(group, deadline=60.0)
    assert (reducer.worker, reducer.workers) == (dist.get_rank() // 2, 2)
    words = np.array([1 << dist.get_rank(), -(2**31), 5 - dist.get_rank()], np.int32)
    segments = [Segment(operation, words) for operation in ReduceOp]
    expected = [[10, 0, 6], [10, -(2**31), 4 | 2], [8, -(2**31), 4]]
    assert reducer._has_or
    for has_or in (True, False):
        reducer._has_or = has_or
        assert [each.tolist() for each in reducer.combine(segments)] == expected
    reducer.check(build_codec("lhc"))
    reducer._wraps = False
    reducer.check(build_codec("dense"))
    with pytest.raises(CompositionError, match=r"sums modulo 2\*\*32.*\(gloo\)"):
        reducer.check(build_codec("lhc"))
    reducer.leave()


@check
def an_overflow_without_a_switch_repeats_the_round():
    codec = {"preset": "dense", "quantizer": {"name": "optimistic", "headroom": 1}}
    reducer = GroupReducer(None, deadline=60.0)
    gradient = np.full(100, 1.0, np.float32)
    codec = build_codec(codec, seed=5, worker=reducer.worker)
    outcome, report = reducer.all_reduce(gradient, codec, SumOptions())
    np.testing.assert_allclose(outcome.sum, gradient * RANKS, rtol=1e-6)
    assert report.details["overflows"] >= 1
    reducer.leave()


@check
def an_error_of_one_rank_without_a_switch_is_everybodys():
    model, state = without_switch("topk")
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), range(2))
    if dist.get_rank() == 2:
        state.scale = lambda: 1 / 0
    expected = (ZeroDivisionError, "division") if dist.get_rank() == 2 else (
        RuntimeError, "worker 2 gave up: .*division"
    )  # fmt: skip
    with pytest.raises(expected[0], match=expected[1]):
        loss_of(model, 2).backward()
    state.scale = None
    state.renew()
    wrapped_again(model, state)
    assert len(state.units) == 3
    state.close()


if __name__ == "__main__":
    sys.exit(main(CHECKS))
