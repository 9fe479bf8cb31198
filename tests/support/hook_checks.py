"""innet's hooks with every option of DistributedDataParallel and every kind of parameter.

    python tests/support/hook_checks.py FOLDER UNTIL RANKS NAME ...

The table is ``OPTIONS``, ``KINDS`` and ``CODECS``; each combination is a case. With two ranks and
the codec ``exact``, both hooks come to what DistributedDataParallel comes to over gloo, bit for
bit. With ``topk`` they come to the same on all ranks, bit for bit, whether a switch sums or not.
What a hook cannot take it refuses on all ranks, by its name. See ``support.ranks`` for what is
written.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch._dynamo  # DistributedDataParallel would, in each of the ranks
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, optimizer_overlap_hooks
from torch.distributed.optim.functional_sgd import _FunctionalSGD
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from innet.torch import CompressionHook, HookState, ddp_hook
from innet.torch.comm_thread import compile_codec
from support.battery_checks import deadline
from support.ranks import main

STEPS = 3  # buckets are made anew after the first one
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Option:
    """What a script sets, or does, beside the hook.

    Attributes:
        arguments: of DistributedDataParallel.
        does: what is done otherwise; a name that the functions below ask for.
        needs: an argument that older versions of PyTorch lack.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    does: str = ""
    needs: str = ""


OPTIONS = {
    "none": Option(),
    "static graph": Option({"static_graph": True}),
    "static graph, set later": Option({"find_unused_parameters": True}, does="_set_static_graph"),
    "unused parameters": Option({"find_unused_parameters": True}, does="leaves out"),
    "skipped parameters": Option(
        {"find_unused_parameters": True, "skip_all_reduce_unused_params": True},
        does="leaves out",
        needs="skip_all_reduce_unused_params",
    ),
    "buckets as views": Option({"gradient_as_bucket_view": True}),
    "small buckets": Option({"bucket_cap_mb": 0.0001}),
    "delayed": Option(does="delay_all_reduce_named_params"),
    "autocast": Option(does="autocast"),
    "optimizer in the hook": Option(does="_hook_then_optimizer"),
    "uneven inputs": Option({"bucket_cap_mb": 0.0001}, does="join"),
    "checkpoints": Option({"bucket_cap_mb": 0.0001}, does="use_reentrant"),
}


@dataclass(frozen=True)
class Kind:
    """A parameter among others, which are of float32.

    Attributes:
        dtype: its own.
        refused: what an error of the hooks says of it; "" if they take it.
    """

    dtype: torch.dtype = torch.float32
    refused: str = ""


KINDS = {
    "float32": Kind(),
    "float16": Kind(torch.float16),
    "bfloat16": Kind(torch.bfloat16),
    "complex64": Kind(torch.complex64),
    "float64": Kind(torch.float64, refused="a bucket of torch.float64"),
    "complex128": Kind(torch.complex128, refused="a bucket of torch.complex128"),
    "frozen": Kind(),
    "shared": Kind(),
    "sparse": Kind(refused="is sparse"),
    "empty": Kind(),
}

CODECS = ("exact", "topk")
HOOKS: tuple[Callable[..., Any], ...] = (HookState, CompressionHook)
CASES = [
    case
    for case in itertools.product(OPTIONS, KINDS, CODECS)
    if case[:2] != ("checkpoints", "shared")  # which PyTorch refuses
]
assert len(CASES) == 238
SOME = 13  # one of as many is in the first tier: each option, kind and codec is among them


# ---------------------------------------------------------------- one case


class Net(torch.nn.Module):
    """Linear layers around a parameter of some kind, and a layer that may be left out."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        count = 0 if kind == "empty" else 8
        values = torch.linspace(0.5, 1.5, count).to(KINDS[kind].dtype)
        self.special = torch.nn.Parameter(values, requires_grad=kind != "frozen")
        self.table = torch.nn.Embedding(8, 8, sparse=kind == "sparse")
        self.unused = torch.nn.Linear(8, 8)
        self.last = torch.nn.Linear(8, 8)
        if kind == "shared":
            self.last.weight = self.table.weight

    def forward(self, x: torch.Tensor, does: str) -> torch.Tensor:
        if does == "use_reentrant":
            hidden = checkpoint(self.first, x.requires_grad_(), use_reentrant=True)
        else:
            hidden = self.first(x)
        hidden = hidden * self.special if self.special.numel() else hidden + self.special.sum()
        hidden = (hidden.abs() if hidden.is_complex() else hidden).to(torch.float32)
        if does != "leaves out":
            hidden = self.unused(hidden)
        if does == "use_reentrant":
            hidden = checkpoint(self.last, hidden, use_reentrant=True)
        else:
            hidden = self.last(hidden)
        return hidden + self.table(torch.arange(len(x)) % 5)


def wrapped(net: Net, option: Option) -> DistributedDataParallel:
    arguments = dict(option.arguments)
    if option.does == "delay_all_reduce_named_params":
        # PyTorch sums it when the gradient of another is there, and waits for nothing.
        arguments["delay_all_reduce_named_params"] = [("last.bias", net.last.bias)]
        arguments["param_to_hook_all_reduce"] = net.first.bias
    model = DistributedDataParallel(net, **arguments)
    if option.does == "_set_static_graph":
        model._set_static_graph()
    return model


def register(model: DistributedDataParallel, option: Option, state: Any) -> None:
    """The hook of a state; where it is None, PyTorch's own if it needs one."""
    hook = default_hooks.allreduce_hook if state is None else ddp_hook
    if option.does == "_hook_then_optimizer":
        optimizer = _FunctionalSGD([], lr=0.05, _allow_empty_param_list=True)
        overlapped = optimizer_overlap_hooks._OptimizerHookState(optimizer, None)
        hook = optimizer_overlap_hooks._hook_then_optimizer(hook, overlapped)
        model.register_comm_hook(state, hook)
    elif state is not None:
        model.register_comm_hook(state, hook)


def trained(option_name: str, kind: str, state: Any) -> list[torch.Tensor | None]:
    """The parameters at the end, and the gradients of each step; None where there is none."""
    torch.manual_seed(3)
    option, net = OPTIONS[option_name], Net(kind)
    model = wrapped(net, option)
    register(model, option, state)
    kept = [
        each
        for name, each in net.named_parameters()
        if (option.does, name) != ("delay_all_reduce_named_params", "last.bias")
    ]
    found: list[torch.Tensor | None] = []
    steps = STEPS - (dist.get_rank() if option.does == "join" else 0)
    with model.join() if option.does == "join" else contextlib.nullcontext():
        for step in range(steps):
            generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=option.does == "autocast"):
                output = model(torch.randn(8, 6, generator=generator), option.does)
            output.float().square().mean().backward()
            found += [None if each.grad is None else each.grad.clone() for each in kept]
    return [*(each.detach().clone() for each in kept), *found]


def attempted(option_name: str, kind: str, state: Any) -> list[torch.Tensor | None] | Exception:
    """What ``trained`` returns or raises."""
    try:
        return trained(option_name, kind, state)
    except (RuntimeError, ValueError, TypeError) as error:  # innet's are among them
        return error
    finally:
        state.close()


def is_equal(one: list[torch.Tensor | None], other: list[torch.Tensor | None]) -> bool:
    """To the last bit; a zero's sign is none."""
    return len(one) == len(other) and all(
        a is b if a is None or b is None else a.is_sparse == b.is_sparse and torch.equal(a, b)
        for a, b in zip(one, other, strict=True)
    )


def is_the_same_on_all_ranks(found: list[torch.Tensor | None]) -> bool:
    """Of the steps that all of them made."""
    mine = [None if each is None else torch.view_as_real(each).numpy() if each.is_complex()
            else each.float().numpy() for each in found]  # fmt: skip
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    return all(
        (a is None) == (b is None) and (a is None or (a == b).all())
        for each in ranks
        for a, b in zip(mine, each, strict=False)
    )


def problem(option: str, kind: str, codec: str) -> str | None:
    """What is not as it should be; None if nothing is."""
    plain = trained(option, kind, None)
    hooked = [
        attempted(option, kind, make(codec, deadline=20.0, unit_cap_mb=0.0003)) for make in HOOKS
    ]
    names = [make.__name__ for make in HOOKS]
    is_exact = codec == "exact" and dist.get_world_size() == 2  # gloo rounds the sums of more
    for name, found in zip(names, hooked, strict=True):
        refused = KINDS[kind].refused
        if refused:
            if not isinstance(found, Exception) or refused not in str(found):
                return f"{name} does not refuse it by its name: {found!r}"
        elif isinstance(found, Exception):
            return f"{name}: {found!r}"
        elif is_exact and not is_equal(found, plain):
            return f"{name} differs from PyTorch"
    results = [each for each in hooked if not isinstance(each, Exception)]
    if len(results) == 2:
        if not is_equal(*results):
            return "the hooks differ"
        if not is_the_same_on_all_ranks(results[0]):
            return "the ranks differ"
    return None


def exists(option: str, kind: str) -> bool:
    """Whether this PyTorch has the option, and gloo sums such parameters."""
    needs = OPTIONS[option].needs
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    is_old = not hasattr(dist, "all_gather_single")  # before 2.13
    return (not needs or needs in known) and not (is_old and KINDS[kind].dtype.is_complex)


# ---------------------------------------------------------------- the checks


def run_cases(cases: list[tuple[str, str, str]]) -> None:
    """All of them, with a report of each that fails."""
    warnings.filterwarnings("ignore")
    for codec in CODECS:
        compile_codec(codec)  # which no case has time for
    failed, count = [], 0
    for case in cases:
        if not exists(*case[:2]):
            continue
        name = ", ".join(case)
        with deadline(name):
            said = problem(*case)
        count += 1
        if said is not None:
            failed.append(f"{name}: {said}")
    print(f"rank {dist.get_rank()}: {count} cases; {len(failed)} failed", flush=True)
    assert not failed, "\n".join(failed)


@check
def some_hooks():
    run_cases(CASES[::SOME])


@check
def all_hooks():
    run_cases(CASES)


@check
def a_state_of_a_static_graph_goes_on_without_one():
    """Its buckets have the index 0 at first, and yet the places that they have elsewhere."""

    def train(model, steps):
        found = []
        for step in steps:
            generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
            model.zero_grad()
            model(torch.randn(8, 6, generator=generator), "").square().mean().backward()
            found += [each.grad.clone() for each in model.parameters()]
        return found

    def model_with(state, **options):
        torch.manual_seed(3)
        model = DistributedDataParallel(Net("bfloat16"), **options)
        model.register_comm_hook(state, ddp_hook)
        return model

    states = [CompressionHook("topk", deadline=20.0, unit_cap_mb=0.0003) for _ in range(2)]
    before = model_with(states[0], static_graph=True)
    train(before, range(2))
    states[1].load_state_dict(states[0].state_dict())
    after = model_with(states[1])
    assert is_equal(train(before, [2]), train(after, [2]))
    assert not states[1]._saved
    assert len({unit.place for unit in states[0]._units}) == len(states[0].units)
    for state in states:
        state.close()


@check
def a_rule_for_the_first_layer_is_refused_where_none_is_known_to_be_first():
    without = {"preset": "scalecom", "first_dense": False}
    for codec, refused in (("scalecom", True), (without, False)):
        found = attempted("static graph", "bfloat16", CompressionHook(codec, deadline=20.0))
        assert isinstance(found, Exception) == refused, found
        assert not refused or "Set first_dense to False" in str(found)


@check
def a_backward_inside_of_another_one_divides_no_unit():
    whole, inside = (
        attempted(option, "float32", CompressionHook("topk", deadline=20.0))
        for option in ("small buckets", "checkpoints")
    )
    assert is_equal(whole, inside)


if __name__ == "__main__":
    sys.exit(main(CHECKS))
