"""Checks of sharded models (FSDP2) at a switch that does reduce-scatters and all-gathers.

    python tests/support/shard_checks.py FOLDER UNTIL RANKS NAME ...

A model is trained by gloo, over the group ``innet``, and with innet's hooks of ``fully_shard``.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

from innet.core.errors import InputError
from innet.torch import SwitchAllGather, SwitchReduceScatter
from support.rank_switch import switch_with_owners
from support.ranks import main

SECONDS = 30.0
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


# ---------------------------------------------------------------- trainings


def sharded(mesh=None, **options):
    """A model whose parameters have rows that the ranks share unevenly."""
    torch.manual_seed(7)
    net = torch.nn.Sequential(
        torch.nn.Linear(20, 33), torch.nn.ReLU(), torch.nn.Linear(33, 48), torch.nn.ReLU(),
        torch.nn.Linear(48, 10),
    )  # fmt: skip
    for module in (net[0], net[2], net):
        fully_shard(module, mesh=mesh, **options)
    return net


def trained(net, steps=4):
    """Its losses, and its parameters after that, whole."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        optimizer.zero_grad()
        loss = net(torch.randn(8, 20, generator=generator)).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(each.full_tensor() for each in net.parameters())]


class Recorded(ReduceScatter):
    """A reduce-scatter, and what it was given and has made."""

    def __init__(self, call):
        self.call, self.calls = call, []

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        given = input_tensor.clone()
        self.call(output_tensor, input_tensor, group, op, async_op)
        self.calls.append((given, op, output_tensor.clone()))

    def check(self):
        """Each shard is the sum in float64, rounded once."""
        assert self.calls
        ranks = dist.get_world_size()
        for given, op, found in self.calls:
            all_given = [torch.empty_like(given) for _ in range(ranks)]
            dist.all_gather(all_given, given)
            total = sum(each.double() for each in all_given).float()
            if op == dist.ReduceOp.AVG:
                total /= ranks
            mine = total.view(ranks, -1)[dist.get_rank()]
            assert torch.equal(found, mine.to(found.dtype) + 0.0)


def assert_trained_alike(found, expected):
    """By two ranks to the last bit; gloo rounds sums of more at each step."""
    exact = dist.get_world_size() == 2
    for one, other in zip(found, expected, strict=True):
        tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(one, other, **tolerance)


def record(net, calls):
    """Let each module's reduce-scatter be recorded."""
    modules = [net[0], net[2], net]
    made = [Recorded(call) for call in calls]
    for module, each in zip(modules, made, strict=True):
        module.set_custom_reduce_scatter(each)
    return made


@check
def hooks_of_shards_by_a_switch():
    plain = trained(sharded())
    with switch_with_owners():
        net = sharded()
        scatters = SwitchReduceScatter.attach(net, "exact", deadline=SECONDS)
        gathers = SwitchAllGather.attach(net, deadline=SECONDS)
        recorded = record(net, scatters)
        found = trained(net)
        for each in recorded:
            each.check()
        assert_trained_alike(found, plain)
        for each in scatters:
            assert each.reports[0].details["collective"] == "reduce-scatter"
        for each in gathers:
            assert each.reports[0].details["collective"] == "all-gather"
        gathers[0].close()
        scatters[0].close()


@check
def shards_over_the_group():
    """Without a hook; also bfloat16, with parameters gathered in it, and sums in float32."""
    policies = [
        {},
        {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)},
        {
            "mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16),
            "reshard_after_forward": 1,
        },
    ]
    plain = [trained(sharded(**policy)) for policy in policies[:2]]
    with switch_with_owners():
        group = dist.new_group(backend="innet", timeout=timedelta(seconds=SECONDS))
        mesh = DeviceMesh.from_group(group, "cpu", list(range(dist.get_world_size())))
        for index, policy in enumerate(policies):
            net = sharded(mesh, **policy)
            recorded = record(net, [scatter_over_the_group] * 3)
            found = trained(net)
            for each in recorded:
                each.check()
            if index < len(plain):
                assert_trained_alike(found, plain[index])
        done = {each.details["collective"] for each in group.reports if each.details}
        assert {"reduce-scatter", "all-gather"} <= done
        dist.destroy_process_group(group)


def scatter_over_the_group(output, given, group, op, async_op):
    dist.reduce_scatter_tensor(output, given, op, group, async_op)


def trained_with(codec):
    """What it comes to, and what the reports say was done."""
    net = sharded()
    attached = SwitchReduceScatter.attach(net, codec, deadline=SECONDS, seed=3)
    found = trained(net, steps=3)
    done = {report.details.get("collective") for each in attached for report in each.reports}
    attached[0].close()
    return found, done


@check
def codecs_of_shards_come_to_the_same_as_by_all_reduces():
    """Also one that holds something back; one that cannot be sharded all-reduces."""
    scattered = ("dense", "scalecom", "mxfp8-e4m3", "mxfp4:error_feedback=residual")
    codecs = {**dict.fromkeys(scattered, "reduce-scatter"), "topk": None}
    expected = [trained_with(codec) for codec in codecs]
    with switch_with_owners():
        for (codec, collective), (by_all_reduce, before) in zip(
            codecs.items(), expected, strict=True
        ):
            found, done = trained_with(codec)
            assert before == {None}
            assert done == {collective}
            for one, other in zip(found, by_all_reduce, strict=True):
                assert torch.equal(one, other), codec


@check
def other_programs_gather_no_shards():
    with pytest.raises(InputError, match=r"knows no all-gather.*INNET_PROGRAM=collectives"):
        SwitchAllGather.attach(sharded(), deadline=SECONDS)


if __name__ == "__main__":
    sys.exit(main(CHECKS))
