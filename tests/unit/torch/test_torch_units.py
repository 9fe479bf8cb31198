"""Units: how parameters are grouped; tensors and futures."""

from __future__ import annotations

import importlib
import inspect
import math
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import innet  # noqa: E402 - after importorskip: innet.torch needs PyTorch
import innet.torch  # noqa: E402
from innet.codecs import SumOptions, build_codec  # noqa: E402
from innet.codecs.build import spec_of_unit  # noqa: E402
from innet.codecs.checks import check_floats  # noqa: E402
from innet.core.errors import (  # noqa: E402
    CompositionError,
    ConfigError,
    GradientError,
    InputError,
    StateError,
    UnknownNameError,
)
from innet.torch import DDPHook, HookState, comm_thread, ddp_hook  # noqa: E402
from innet.torch.bucket_reduction import (  # noqa: E402
    BucketReduction,
    ReductionStats,
    Unit,
    WaitingBucket,
    arrival_order,
    cut,
    joined,
    layers,
)
from innet.torch.callbacks import CallbackThreads  # noqa: E402
from innet.torch.future import SettableFuture  # noqa: E402
from innet.torch.group import BY_GLOO, SwitchGroup, stateless_codec  # noqa: E402
from innet.torch.tensors import DTYPES, premultiplier  # noqa: E402

ROOT = Path(__file__).parents[3]


@given(st.lists(st.integers(0, 50), max_size=40), st.lists(st.integers(1, 100), min_size=1))
def test_units_cover_all_parameters_once_and_end_when_they_have_enough(sizes, limits):
    parts = cut(sizes, limits)
    assert [index for part in parts for index in part] == list(range(len(sizes)))
    for part, enough in zip(parts, limits + limits[-1:] * len(parts), strict=False):
        held = [sizes[index] for index in part]
        assert sum(held[:-1]) < enough  # it was closed as soon as it had enough,
        assert sum(held) >= enough or part.stop == len(sizes)  # and not before


def test_without_a_limit_all_parameters_are_one_unit():
    assert cut([3, 0, 4], [math.inf]) == [range(3)]


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = torch.nn.LSTM(4, 4), torch.nn.Linear(4, 2)

    def forward(self, inputs):
        return self.out(self.lstm(inputs)[0])


_CONVOLUTIONS = [
    torch.nn.Conv2d(1, 4, 3),
    torch.nn.BatchNorm2d(4),
    torch.nn.ReLU(),
    torch.nn.Conv2d(4, 4, 3, bias=False),
    torch.nn.Flatten(),
    torch.nn.Linear(64, 3),
]


@pytest.mark.parametrize(
    ("model", "inputs", "same"),
    [
        (torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 8)), (2, 4), True),
        (torch.nn.Sequential(*_CONVOLUTIONS), (2, 1, 8, 8), True),
        (torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8)), (2, 4), True),
        (Recurrent(), (3, 2, 4), False),
    ],
    ids=["linear", "convolutions", "normalized", "recurrent"],
)
def test_gradients_arrive_in_the_order_that_is_expected(model, inputs, same):
    parameters = list(model.parameters())
    arrived = []
    for index, each in enumerate(parameters):
        each.register_post_accumulate_grad_hook(lambda _, index=index: arrived.append(index))
    model(torch.randn(inputs)).square().mean().backward()
    expected = arrival_order([tuple(each.shape) for each in parameters])
    assert sorted(expected) == list(range(len(parameters)))
    assert (arrived == expected) == same


def test_only_the_unit_with_the_first_parameter_has_a_first_layer():
    assert spec_of_unit("scalecom", first=True)["selector"] == {"name": "scalecom"}
    inner = spec_of_unit({"preset": "scalecom", "selector": {"rate": 7}}, first=False)
    assert inner["selector"] == {"name": "scalecom", "rate": 7, "first_dense": False}
    assert "first_dense" not in spec_of_unit("topk", first=False)["selector"]


def test_a_number_is_a_layer_and_a_parameter_without_elements_is_none():
    assert layers([(), (2, 3), (4, 0)], ["a", "b", "c"]) == {"a": (1,), "b": (2, 3)}
    assert layers([(), (2, 3), (4, 0)], ["a", "", "c"]) == [(1,), (2, 3)]
    assert layers([(0,)], ["a"]) is None


def line_of(size: int) -> torch.Tensor:
    """0, 1, ... from the beginning of a cache line on."""
    room = torch.zeros(size + 16)
    begin = -room.data_ptr() // 4 % 16
    room[begin : begin + size] = torch.arange(size)
    return room[begin : begin + size]


def reduction_of(buffer: torch.Tensor, views: list[torch.Tensor], scale: float) -> BucketReduction:
    unit = Unit(0, tuple(tuple(view.shape) for view in views), build_codec("dense"))
    found = BucketReduction(unit, 2, scale, ReductionStats())
    bucket = WaitingBucket(buffer, SettableFuture(CallbackThreads()))
    for position, view in enumerate(views):
        found.take(position, view, bucket)
    return found


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("in_order", [True, False])
def test_gradients_are_read_in_the_bucket_where_they_lie_in_order(scale, in_order):
    buffer = line_of(10)
    pieces = [(0, 6), (6, 6), (6, 10)] if in_order else [(4, 10), (0, 0), (0, 4)]
    views = [buffer[begin:end] for begin, end in pieces]
    views[0] = views[0].view(2, 3)
    reduction = reduction_of(buffer, views, scale)
    loaded = reduction.load()
    np.testing.assert_array_equal(
        loaded, np.concatenate([view.reshape(-1).numpy() for view in views]) / scale
    )
    copied = not np.shares_memory(loaded, buffer.numpy())
    assert copied == (scale != 1 or not in_order)
    assert buffer.tolist() == list(range(10)), "the bucket is unchanged until there is a result"
    reduction.set_not_finite(())
    (bucket,) = reduction._buckets
    assert bucket.future.wait() is buffer
    assert buffer.isnan().all()


@pytest.mark.parametrize("pieces", [[(0, 6), (6, 10)], [(6, 10), (0, 6)], [(0, 6)]])
def test_means_are_written_into_the_bucket(pieces):
    """Where hooks around innet's read them."""
    buffer = line_of(10)
    reduction = reduction_of(buffer, [buffer[begin:end] for begin, end in pieces], 4.0)
    total = reduction.load() + np.float32(1)
    reduction._give(total, np.float32(4 / 2))
    (bucket,) = reduction._buckets
    means = bucket.future.wait()
    expected = [2 * (each / 4 + 1) for each in range(10)]
    if len(pieces) == 1:  # others are of another unit
        expected[6:] = range(6, 10)
    assert means is buffer
    assert means.tolist() == expected


@pytest.mark.parametrize("pieces", [[(0, 6), (6, 10)], [(6, 10), (0, 6)], [(0, 6)]])
@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("multiplied", [True, False])
def test_means_over_the_gradient_stay_where_they_are(pieces, scale, multiplied):
    buffer = line_of(10)
    reduction = reduction_of(buffer, [buffer[begin:end] for begin, end in pieces], scale)
    assert reduction.options == SumOptions(factor=scale / 2, overwrite=True)
    total = reduction.load()  # its memory takes the sum
    total += np.float32(1)
    if multiplied:
        total *= np.float32(scale / 2)
    left = 1.0 if multiplied else scale / 2
    _, report = innet.all_reduce([np.ones(10, np.float32)] * 2)
    reduction.set_result(total, left, report)
    (bucket,) = reduction._buckets
    means = bucket.future.wait()
    expected = [scale / 2 * (each / scale + 1) for each in range(10)]
    if len(pieces) == 1:  # others are of another unit
        expected[6:] = range(6, 10)
    assert means is buffer
    assert means.tolist() == expected


def test_tensors_are_joined_only_where_they_are_one_piece_of_float32():
    line = line_of(32)
    assert joined([line[:16], line[16:]]).tolist() == list(range(32))
    assert joined([line[16:16], line[16:20], line[20:32].view(3, 4)]).tolist() == list(
        range(16, 32)
    )
    assert joined([]) is None
    assert joined([line[:0]]) is None
    assert joined([line[1:16], line[16:]]) is None, "not at a cache line"
    assert joined([line[:8], line[16:]]) is None, "a gap"
    assert joined([line[16:], line[:16]]) is None, "another order"
    assert joined([line[::2]]) is None
    assert joined([line.view(4, 8).T]) is None
    assert joined([line.view(torch.int32)]) is None
    assert joined([line[:16], line[16:].clone()]) is None


def test_a_future_is_set_by_another_thread():
    future = SettableFuture(CallbackThreads())
    threading.Timer(0.01, future.complete, (torch.ones(2),)).start()
    assert future.wait().tolist() == [1.0, 1.0]
    assert future.error is None


def test_a_failed_future_says_why():
    future = SettableFuture(CallbackThreads())
    future.fail(StateError("nobody came"))
    with pytest.raises(RuntimeError, match="StateError: nobody came"):
        future.wait()


def test_a_hook_needs_a_process_group():
    with pytest.raises(InputError, match="init_process_group"):
        HookState().connect()
    with pytest.raises(InputError, match="unit_cap_mb"):
        HookState(unit_cap_mb=0)
    for deadline in (0, math.inf, math.nan):
        with pytest.raises(InputError, match="a deadline of"):
            HookState(deadline=deadline)
    assert type(HookState(deadline=np.float32(3)).settings.deadline) is float
    assert DDPHook is ddp_hook


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"seed": "x"}, "the codec's seed is 'x'; give an integer"),
        ({"seed": -1}, "the codec's seed is -1; use one from 0"),
        ({"unit_cap_mb": "x"}, "unit_cap_mb is x; give a positive number"),
        ({"unit_cap_mb": True}, "unit_cap_mb is True; give a positive number"),
        ({"deadline": "x"}, "a deadline of x s; give a positive"),
        ({"deadline": True}, "a deadline of True s; give a positive"),
        ({"switch": 48879}, "the switch is a int; give a string"),
        ({"job": 5}, "the job is a int"),
        ({"key": b"secret"}, "the key is a bytes"),
        ({"scale": 65536.0}, r"scale is 65536\.0; give a function, such as scaler\.get_scale"),
        ({"codec": {"preset": "topk", "selector": {"rato": 0.1}}}, "rato"),
        ({"codec": {"preset": "topk", "selector": {"ratio": 5}}}, "ratio"),
    ],
)
def test_a_hook_is_told_at_once_what_it_cannot_use(arguments, said):
    with pytest.raises((InputError, ConfigError), match=said):
        HookState(**arguments)


@pytest.mark.parametrize(
    "state", [None, [], {}, {"weight": 1.0}, {"units": None}, {"units": [{"shapes": ()}]}]
)
def test_a_hook_refuses_what_is_no_state_of_a_hook(state):
    with pytest.raises(StateError, match=r"state is a (NoneType|list|dict.*); give what HookState"):
        HookState().load_state_dict(state)


def test_the_hook_is_for_distributed_data_parallel():
    with pytest.raises(InputError, match=r"given a Tensor.*SwitchReduceScatter"):
        ddp_hook(HookState(), torch.ones(3))
    with pytest.raises(InputError, match="FullyShardedDataParallel does not say"):
        ddp_hook(HookState(), torch.ones(4), torch.ones(2))  # as it calls its hooks
    with pytest.raises(InputError, match=r"state is a NoneType.*HookState"):
        ddp_hook(None, torch.ones(3))  # as PyTorch's own hooks may be registered


def test_codecs_of_a_process_group_remember_nothing(monkeypatch):
    for name in ("exact", "dense", "lhc", "qsgd"):
        assert stateless_codec(name) == name
    for name in ("topk", "scalecom", "thc", "powersgd", "dgc"):
        with pytest.raises(CompositionError, match=f"the codec is '{name}'"):
            stateless_codec(name)
        monkeypatch.setenv("INNET_CODEC", name)
        with pytest.raises(CompositionError, match=f"INNET_CODEC is '{name}'"):
            stateless_codec()
    monkeypatch.delenv("INNET_CODEC")
    assert stateless_codec() == "exact"
    with pytest.raises(UnknownNameError, match="exakt"):
        stateless_codec("exakt")


def test_all_collectives_of_a_group_are_its_own():
    """By PyTorch's own way to gloo they may wait for each other for ever; see innet.torch.group."""
    gloo, group = torch.distributed.ProcessGroupGloo, torch.distributed.ProcessGroup
    collectives = {
        name
        for name in dir(group)
        if hasattr(gloo, name) and "-> c10d::Work" in (getattr(group, name).__doc__ or "")
    }
    assert {"allreduce", "barrier", "send"} < collectives
    assert collectives <= set(vars(SwitchGroup))


# Of torch.distributed.ProcessGroup in PyTorch 2.8 to 2.14: what moves no tensors of its own.
WITHOUT_TENSORS = {
    "BackendType", "CUSTOM", "GLOO", "MPI", "NCCL", "UCC", "UNDEFINED", "XCCL",
    "_add_ephemeral_timeout", "_backend_id", "_device_types", "_enable_collectives_timing",
    "_get_backend", "_get_backend_name", "_get_sequence_number_for_group", "_has_hooks", "_id",
    "_register_backend", "_register_on_completion_hook", "_set_default_backend",
    "_set_group_desc", "_set_group_name", "_set_sequence_number_for_group",
    "_wait_for_pending_works", "abort", "bound_device_id", "boxed", "get_backend",
    "get_group_store", "get_reconfigure_handle", "group_desc", "group_name",
    "merge_remote_group", "name", "new_window", "rank", "reconfigure", "register_abort_hook",
    "register_post_hook", "register_pre_hook", "set_timeout", "shutdown", "size", "split_group",
    "supports_reconfigure", "supports_window", "unbox", "unregister_abort_hook",
    "unregister_post_hook", "unregister_pre_hook", "use_pg_for_symm_mem_rendezvous",
}  # fmt: skip


def test_a_group_keeps_its_ranks():
    with pytest.raises(InputError, match="cannot take other ranks"):
        SwitchGroup.reconfigure(None)


def test_every_call_that_moves_tensors_has_a_handler():
    """A new PyTorch may have new names, which would go to gloo without the group's guard."""
    names = {name for name in dir(torch.distributed.ProcessGroup) if not name.startswith("__")}
    names -= WITHOUT_TENSORS | {"_pybind11_conduit_v1_"}
    unknown = names - set(vars(SwitchGroup))
    assert not unknown, (
        f"this PyTorch has {sorted(unknown)}: name them in innet/torch/gloo.py if gloo runs them, "
        "in SwitchGroup if a switch does, or in WITHOUT_TENSORS here"
    )


def test_a_group_of_torchft_has_them_too():
    pytest.importorskip("torchft")
    group = importlib.import_module("innet.torch.torchft").SwitchProcessGroup
    names = {"allreduce", "allreduce_coalesced", *BY_GLOO}
    for name in names:
        defined = next(each for each in group.__mro__ if name in vars(each))
        assert defined is not torch.distributed.ProcessGroup, name


def test_what_torch_distributed_calls_of_a_group_is_known():
    """Also what a method of another PyTorch's group would not list."""
    source = inspect.getsource(torch.distributed.distributed_c10d)
    called = set(re.findall(r"\bgroup\.([a-z]\w*|_\w+)\(", source))
    assert "allreduce" in called
    assert called <= set(vars(SwitchGroup)) | WITHOUT_TENSORS


def test_the_package_has_no_other_names():
    with pytest.raises(AttributeError, match="no attribute 'hook'"):
        _ = innet.torch.hook
    assert torch.distributed.Backend.INNET == "innet"


def test_the_back_end_is_an_entry_point():
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, name = described["torch.distributed.backends"]["innet"].split(":")
    getattr(importlib.import_module(module), name)()  # a second time, which changes nothing
    assert torch.distributed.Backend.INNET == "innet"


WITHOUT_IMPORT = """
from torch import distributed as dist

dist.init_process_group("innet", store=dist.HashStore(), rank=0, world_size=1)
print(type(dist.group.WORLD).__name__)
"""


@pytest.mark.skipif(
    not hasattr(torch.distributed.Backend, "_ensure_backend_registered"),
    reason="PyTorch before 2.14 has no entry points of back ends",
)
def test_pytorch_finds_the_back_end_without_an_import():
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_IMPORT]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert said.stdout.split() == ["SwitchGroup"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_factor_of_a_sum_is_known(dtype):
    dist = torch.distributed
    for factor in (0.25, torch.tensor([0.25], dtype=dtype)):
        assert premultiplier(dist._make_nccl_premul_sum(factor)) == 0.25
    with pytest.raises(InputError, match="without a factor"):
        premultiplier(dist.ReduceOp.PREMUL_SUM)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_tensor_is_to_be_converted_by_works_for_every_dtype(dtype):
    tensor = torch.ones(2, dtype=dtype, requires_grad=True)
    with pytest.raises(GradientError, match="pass a NumPy array") as caught:
        check_floats(tensor)
    (hint,) = re.findall(r"tensor\..*\(\)", str(caught.value))
    check_floats(eval(hint, {"tensor": tensor}))


def test_a_codec_is_compiled_once_and_before_the_first_iteration(monkeypatch):
    run = []
    monkeypatch.setattr(comm_thread, "warm_up", lambda spec, gradient, layers: run.append(spec))
    monkeypatch.setattr(comm_thread, "_compiled", set())
    for _ in range(2):
        state = HookState("topk")
    assert run == [state.codec]
    HookState("dense")
    assert len(run) == 2


def test_what_cannot_be_compiled_ahead_is_no_error(monkeypatch):
    def refuse(*_):
        raise CompositionError("not by itself")

    monkeypatch.setattr(comm_thread, "warm_up", refuse)
    monkeypatch.setattr(comm_thread, "_compiled", set())
    assert HookState("topk").units == []
