"""Checks of the process group ``innet`` by two or three ranks: every collective over tensors of
every form, and futures whose callbacks begin collectives.

    python tests/support/group_checks.py FOLDER UNTIL RANKS NAME ...

The right values are computed here from what each rank gave; gloo itself is no oracle for views, as
it takes no notice of strides.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as of_autograd
from ranks import main
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

import innet.torch  # noqa: F401 - registers the back end
from innet.core.errors import InputError

SECONDS = timedelta(seconds=30)
CHECKS = {}
GUARD = 77


def check(function):
    def with_group():
        # Named as new ones, with a warning; they are tested as the old names they are.
        warnings.filterwarnings("ignore", category=FutureWarning)
        group = dist.new_group(backend="innet", timeout=SECONDS)
        function(group)
        dist.barrier(group=group)
        dist.destroy_process_group(group)

    CHECKS[function.__name__] = with_group
    return function


# ---------------------------------------------------------------- tensors and what is around them

SHAPE = (6, 4)


def room(dtype):
    return torch.full((200,), GUARD, dtype=dtype)


LAYOUTS = {  # of shape SHAPE, each within a longer piece of memory
    "contiguous": lambda whole: whole[:24].view(6, 4),
    "with an offset": lambda whole: whole[7:31].view(6, 4),
    "transposed": lambda whole: whole[3:27].view(4, 6).T,
    "every second column": lambda whole: whole[:48].view(6, 8)[:, ::2],
    "every third row": lambda whole: whole[5:77].view(18, 4)[::3],
    "permuted": lambda whole: whole[:48].view(2, 4, 6).permute(0, 2, 1)[1],
    "apart": lambda whole: torch.as_strided(whole, SHAPE, (20, 3), 1),
}


def laid_out(values, layout):
    """A tensor with these values, and the memory that it is in."""
    whole = room(values.dtype)
    tensor = LAYOUTS[layout](whole)
    tensor.copy_(values)
    return tensor, whole


def assert_holds(tensor, whole, expected, layout):
    """The tensor has the values, and what is around it has not changed."""
    torch.testing.assert_close(tensor, expected, rtol=0, atol=0, equal_nan=True)
    around = whole.clone()
    LAYOUTS[layout](around).fill_(GUARD)
    assert (around == GUARD).all(), f"memory around the tensor changed ({layout})"


def values_of(rank, dtype, kind="finite"):
    """What a rank gives: whole numbers, whose sums are exact in every dtype."""
    generator = torch.Generator().manual_seed(rank)
    values = torch.randint(0, 9, SHAPE, generator=generator).to(dtype)
    if kind == "infinite" and rank == 0:
        values[0, 0] = math.inf
        values[3, 1] = -math.inf
    if kind == "nan" and rank == dist.get_world_size() - 1:
        values[2, 2] = math.nan
    return values


def of_ranks(dtype, kind="finite"):
    return [values_of(rank, dtype, kind) for rank in range(dist.get_world_size())]


def done(work):
    if work is not None:
        work.wait()


def layouts_of_ranks():
    """Pairs of the layout of the first rank and that of the others."""
    names = list(LAYOUTS)
    return [*zip(names, names, strict=True), *itertools.pairwise([*names, names[0]])]


# ---------------------------------------------------------------- all-reduces


@check
def all_reduces_of_views(group):
    rank = dist.get_rank()
    for dtype, kind in (
        (torch.float32, "finite"),
        (torch.float32, "infinite"),
        (torch.float32, "nan"),
        (torch.bfloat16, "finite"),
        (torch.float16, "infinite"),
        (torch.float64, "finite"),
        (torch.int64, "finite"),
    ):
        for pair in layouts_of_ranks():
            layout = pair[min(rank, 1)]
            tensor, whole = laid_out(values_of(rank, dtype, kind), layout)
            dist.all_reduce(tensor, group=group)
            assert_holds(tensor, whole, sum(of_ranks(dtype, kind)), layout)
            if dtype.is_floating_point and dtype != torch.float64:
                tensor, whole = laid_out(values_of(rank, dtype, kind) * 6, layout)
                work = dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group, async_op=True)
                while not work.is_completed():
                    time.sleep(0.0002)  # not in a busy loop, beside the thread that completes it
                expected = sum(each * 6 for each in of_ranks(dtype, kind)) / len(of_ranks(dtype))
                assert_holds(tensor, whole, expected, layout)
            tensor, whole = laid_out(values_of(rank, dtype), layout)
            dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)
            assert_holds(tensor, whole, torch.stack(of_ranks(dtype)).amax(0), layout)


@check
def all_reduces_of_odd_tensors(group):
    ranks = dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.int32):
        number = torch.ones((), dtype=dtype)
        dist.all_reduce(number, group=group)
        assert number.item() == ranks
        empty = torch.ones((0, 3), dtype=dtype)
        dist.all_reduce(empty, group=group)
        whole = room(dtype)
        one = whole[2:3].fill_(1).expand(5)  # in memory a single element, with neighbors
        dist.all_reduce(one, group=group)
        assert one.tolist() == [ranks] * 5
        rows = whole[10:14].fill_(1).expand(3, 4)
        dist.all_reduce(rows, group=group)
        assert rows.tolist() == [[ranks] * 4] * 3
        assert (whole[[0, 1, *range(3, 10), *range(14, 200)]] == GUARD).all()
        with pytest.raises(InputError, match=r"share memory.*contiguous"):
            dist.all_reduce(torch.ones(9, dtype=dtype).unfold(0, 3, 1), group=group)
    mixed = torch.ones(5) if dist.get_rank() else torch.ones(1).expand(5)
    dist.all_reduce(mixed, group=group)
    assert mixed.tolist() == [ranks] * 5
    values = torch.complex(torch.arange(4.0), torch.ones(4)) * (dist.get_rank() + 1)
    total = values / (dist.get_rank() + 1) * sum(range(1, ranks + 1))
    for view in (values, values[::2]):
        dist.all_reduce(view, group=group)
    expected = total.clone()
    expected[::2] *= ranks
    torch.testing.assert_close(values, expected)
    negative = torch.complex(torch.zeros(3), torch.ones(3)).conj().imag
    assert negative.is_neg()
    dist.all_reduce(negative, group=group)
    assert negative.tolist() == [-ranks] * 3


@check
def tensors_of_inference_mode_and_parameters(group):
    ranks = dist.get_world_size()
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            for layout in LAYOUTS:
                tensor, whole = laid_out(torch.ones(SHAPE, dtype=dtype), layout)
                dist.all_reduce(tensor, group=group)
                assert_holds(tensor, whole, torch.full(SHAPE, ranks, dtype=dtype), layout)
            one = torch.ones(1, dtype=dtype).expand(3)
            dist.all_reduce(one, group=group)
            assert one.tolist() == [ranks] * 3
        infinite = torch.full((6,), math.inf)[::2]
        dist.all_reduce(infinite, group=group)
        assert infinite.tolist() == [math.inf] * 3
        dist.broadcast(infinite, src=0, group=group)
    parameter = torch.nn.Parameter(torch.ones(4, 2))
    dist.all_reduce(parameter.T, group=group)
    assert torch.equal(parameter, torch.full((4, 2), float(ranks)))


@check
def groups_of_one_rank_have_callbacks_too(group):
    for rank in range(dist.get_world_size()):
        alone = dist.new_group([rank], backend="innet")
        if rank == dist.get_rank():
            work = dist.all_reduce(torch.ones(6)[::2], group=alone, async_op=True)
            inner = lambda _, alone=alone: dist.all_reduce(torch.ones(2), group=alone) or 5  # noqa: E731
            assert work.get_future().then(inner).wait() == 5
            assert work.wait()
    del group


@check
def callbacks_of_two_groups_wait_for_each_other(group):
    other, ranks, futures = dist.new_group(backend="innet"), dist.get_world_size(), []

    def then_over(next_group):
        def sum_again(done):
            work = dist.all_reduce(done.value()[0], group=next_group, async_op=True)
            return work.get_future().wait()[0][0].item()

        return sum_again

    for _ in range(5):
        for first, second in ((group, other), (other, group)):
            work = dist.all_reduce(torch.ones(3), group=first, async_op=True)
            futures.append(work.get_future().then(then_over(second)))
    assert [future.wait() for future in futures] == [float(ranks**2)] * 10
    dist.destroy_process_group(other)


@check
def coalesced_all_reduces_of_views(group):
    rank = dist.get_rank()
    for dtype in (torch.float32, torch.float64):
        pairs = [laid_out(values_of(rank, dtype), layout) for layout in LAYOUTS]
        with dist._coalescing_manager(group=group):
            for tensor, _ in pairs:
                dist.all_reduce(tensor, group=group)
        for (tensor, whole), layout in zip(pairs, LAYOUTS, strict=True):
            assert_holds(tensor, whole, sum(of_ranks(dtype)), layout)


# ---------------------------------------------------------------- the collectives of gloo


@check
def collectives_of_views(group):
    """Each with the first rank's tensors laid out in one way and the others' in another."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine, all_values = values_of(rank, torch.float32), of_ranks(torch.float32)
    last = ranks - 1
    for pair, use_async in itertools.product(layouts_of_ranks(), (False, True)):
        layout = pair[min(rank, 1)]
        options = {"group": group, "async_op": use_async}

        def tensors(count, values=None, layout=layout):
            values = [torch.zeros(SHAPE)] * count if values is None else values
            return zip(*(laid_out(each, layout) for each in values), strict=True)

        (tensor,), (whole,) = tensors(1, [mine])
        done(dist.broadcast(tensor, src=last, **options))
        assert_holds(tensor, whole, all_values[last], layout)

        (tensor,), (whole,) = tensors(1, [mine])
        done(dist.reduce(tensor, dst=last, **options))
        if rank == last:
            assert_holds(tensor, whole, sum(all_values), layout)

        (given,), _ = tensors(1, [mine])
        outputs, wholes = tensors(ranks)
        done(dist.all_gather(list(outputs), given, **options))
        for output, whole, values in zip(outputs, wholes, all_values, strict=True):
            assert_holds(output, whole, values, layout)

        outputs, wholes = tensors(ranks)
        done(dist.gather(given, list(outputs) if rank == last else None, dst=last, **options))
        for output, whole, values in zip(outputs, wholes, all_values, strict=True):
            expected = values if rank == last else torch.zeros(SHAPE)
            assert_holds(output, whole, expected, layout)

        inputs, _ = tensors(ranks, [100 * i + mine for i in range(ranks)])
        (output,), (whole,) = tensors(1)
        done(dist.scatter(output, list(inputs) if rank == last else None, src=last, **options))
        assert_holds(output, whole, 100 * rank + all_values[last], layout)

        (output,), (whole,) = tensors(1)
        done(dist.reduce_scatter(output, list(inputs), **options))
        assert_holds(output, whole, ranks * 100 * rank + sum(all_values), layout)

        outputs, wholes = tensors(ranks)
        done(dist.all_to_all(list(outputs), list(inputs), **options))
        for output, whole, values in zip(outputs, wholes, all_values, strict=True):
            assert_holds(output, whole, 100 * rank + values, layout)

        if rank == 0 or rank == last:
            (tensor,), (whole,) = tensors(1, [mine])
            if use_async:
                call = dist.isend if rank == 0 else dist.irecv
            else:
                call = dist.send if rank == 0 else dist.recv
            found = call(tensor, last if rank == 0 else 0, group=group)
            done(found if use_async else None)
            assert_holds(tensor, whole, all_values[0], layout)


def single(new, old):
    """A collective by the newer of its names that this PyTorch has."""
    return getattr(dist, new, None) or getattr(dist, old)


@check
def collectives_of_one_tensor_for_all_ranks(group):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    all_gather = single("all_gather_single", "all_gather_into_tensor")
    reduce_scatter = single("reduce_scatter_single", "reduce_scatter_tensor")
    for use_async, stride, old in itertools.product((False, True), (1, 2), (False, True)):
        options = {"group": group, "async_op": use_async}
        if old:
            all_gather, reduce_scatter = dist.all_gather_into_tensor, dist.reduce_scatter_tensor
        given = (torch.arange(stride * 3.0) + 10 * rank)[::stride]
        whole = room(torch.float32)
        output = whole[: ranks * 3 * stride : stride]
        done(all_gather(output, given, **options))
        expected = [10.0 * r + stride * i for r in range(ranks) for i in range(3)]
        assert output.tolist() == expected
        given = (torch.arange(stride * 3.0 * ranks) + rank)[::stride]
        output = whole[100 : 100 + 3 * stride : stride]
        done(reduce_scatter(output, given, **options))
        base = ranks * stride * 3 * rank + sum(range(ranks))
        assert output.tolist() == [base + ranks * stride * i for i in range(3)]
        output = whole[150 : 150 + ranks * stride : stride]
        given = (torch.arange(stride * float(ranks)) + 100 * rank)[::stride]
        done(dist.all_to_all_single(output, given, **options))
        assert output.tolist() == [100.0 * r + stride * rank for r in range(ranks)]
        assert (whole[1 : ranks * 3 * stride : stride] == GUARD).all() or stride == 1
        assert (whole[190:] == GUARD).all()
    for use_async in (False, True):
        outputs = [torch.zeros(2 * ranks), torch.zeros(ranks)]
        with dist._coalescing_manager(group=group, async_ops=use_async) as manager:
            all_gather(outputs[0], torch.full((2,), float(rank)), group=group)
            all_gather(outputs[1], torch.full((1,), rank + 0.5), group=group)
        if use_async:
            manager.wait()
        assert outputs[0].tolist() == [float(r) for r in range(ranks) for _ in range(2)]
        assert outputs[1].tolist() == [r + 0.5 for r in range(ranks)]
        shards = [torch.zeros(2), torch.zeros(1)]
        with dist._coalescing_manager(group=group, async_ops=use_async) as manager:
            reduce_scatter(shards[0], torch.arange(2.0 * ranks), group=group)
            reduce_scatter(shards[1], torch.arange(float(ranks)), group=group)
        if use_async:
            manager.wait()
        assert shards[0].tolist() == [ranks * 2.0 * rank, ranks * (2.0 * rank + 1)]
        assert shards[1].tolist() == [ranks * float(rank)]


@check
def an_expanded_tensor_is_one_in_memory(group):
    ranks = dist.get_world_size()
    whole = room(torch.float32)
    tensor = whole[50:51].fill_(float(dist.get_rank())).expand(4)
    dist.broadcast(tensor, src=ranks - 1, group=group)
    assert tensor.tolist() == [ranks - 1.0] * 4
    outputs = [torch.zeros(4) for _ in range(ranks)]
    dist.all_gather(outputs, tensor, group=group)  # as an input it may be anything
    assert outputs[0].tolist() == [ranks - 1.0] * 4
    assert (whole[:50] == GUARD).all()
    assert (whole[51:] == GUARD).all()
    with pytest.raises(InputError, match="different values for elements that share memory"):
        dist.all_gather(
            [torch.zeros(1).expand(4) for _ in range(ranks)], torch.arange(4.0), group=group
        )


@check
def functional_collectives_and_those_of_autograd(group):
    """Which PyTorch calls from C++ and by other names: DTensor and torch.compile do."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(24.0).reshape(4, 6) + rank
    columns = sum((torch.arange(24.0).reshape(4, 6) + r)[:, ::2] for r in range(ranks))
    assert torch.equal(functional.all_reduce(mine[:, ::2], "sum", group) + 0, columns)
    several = functional.all_reduce_coalesced([mine, mine[:, ::2]], "sum", group)
    assert torch.equal(several[1] + 0, columns)
    whole = functional.all_gather_tensor(mine, 0, group) + 0
    assert torch.equal(whole[4 * (ranks - 1) :], mine - rank + ranks - 1)
    shard = functional.reduce_scatter_tensor(torch.arange(2.0 * ranks), "sum", 0, group) + 0
    assert shard.tolist() == [ranks * 2.0 * rank, ranks * (2.0 * rank + 1)]
    assert torch.equal(functional.broadcast(mine.T, 0, group) + 0, (mine - rank).T)
    gathered = functional.all_gather_into_tensor_coalesced([mine, mine[0]], group)
    assert [each.shape[0] for each in gathered] == [4 * ranks, 6 * ranks]
    shards = functional.reduce_scatter_tensor_coalesced(
        [torch.ones(2 * ranks), torch.ones(ranks)], "sum", [0, 0], group
    )
    assert [(each + 0).tolist() for each in shards] == [[float(ranks)] * 2, [float(ranks)]]
    swapped = functional.all_to_all_single(torch.arange(float(ranks)), None, None, group) + 0
    assert swapped.tolist() == [float(rank)] * ranks
    leaf = torch.ones(3, 4, requires_grad=True)
    of_autograd.all_reduce(leaf.T, group=group).sum().backward()
    assert torch.equal(leaf.grad, torch.full((3, 4), float(ranks)))


@check
def what_is_compiled_calls_the_group(group):
    net = torch.nn.Linear(4, 2)
    model = torch.compile(DistributedDataParallel(net, process_group=group), backend="eager")
    for _ in range(3):  # the second forward begins with a collective of DDP's
        model(torch.ones(3, 4)).sum().backward()
    assert net.weight.grad.tolist() == [[9.0] * 4] * 2

    @torch.compile(backend="eager")
    def summed(x):
        y = 2 * x
        dist.all_reduce(y, group=group)
        dist.barrier(group=group)
        return y + 1

    assert summed(torch.ones(2)).tolist() == [2.0 * dist.get_world_size() + 1] * 2


@check
def objects_and_point_to_point_in_batches(group):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    found = [None] * ranks
    dist.all_gather_object(found, {"rank": rank}, group=group)
    assert found == [{"rank": each} for each in range(ranks)]
    mine = [None]
    dist.scatter_object_list(mine, list(range(ranks)) if rank == 0 else None, src=0, group=group)
    assert mine == [rank]
    received = torch.zeros(8)[::2]
    batch = [
        dist.P2POp(dist.isend, torch.full((4,), float(rank)), (rank + 1) % ranks, group=group),
        dist.P2POp(dist.irecv, received, (rank - 1) % ranks, group=group),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert received.tolist() == [float((rank - 1) % ranks)] * 4
    for sender, receiver in ((0, 1), (1, 0), (0, ranks - 1)):  # not all ranks take part
        if rank == sender:
            dist.send(torch.ones(3), receiver, group=group)
        elif rank == receiver:
            dist.recv(received[:3], sender, group=group)
        total = torch.ones(2)
        dist.all_reduce(total, group=group)
        assert total.tolist() == [ranks] * 2
    work = dist.isend(torch.ones(1), 1, group=group) if rank == 0 else None
    if rank == 1:
        work = dist.irecv(received[:1], 0, group=group)
    if work is not None:
        with pytest.raises(RuntimeError, match="getFuture"):
            work.get_future()
        work.wait()


# ---------------------------------------------------------------- futures


@check
def callbacks_may_begin_all_reduces_and_wait_for_them(group):
    """Nested three deep, of several at once, and of gloo's all-gathers."""
    ranks = dist.get_world_size()
    total = sum(range(1, ranks + 1))

    def summed(value):
        work = dist.all_reduce(torch.full((3,), value), group=group, async_op=True)
        return work.get_future().wait()[0][0].item()

    def after(future):
        value = future.value()[0][0].item()
        for _ in range(2):
            value = summed(value)
        return value

    mine = dist.get_rank() + 1.0
    works = [
        dist.all_reduce(torch.full((2,), mine * k), group=group, async_op=True) for k in (1, 2, 3)
    ]
    chained = [work.get_future().then(after) for work in works]
    for k, future in zip((1, 2, 3), chained, strict=True):
        assert future.wait() == k * total * ranks**2
    assert all(work.wait() for work in works)

    outputs = [torch.zeros(1) for _ in range(ranks)]
    work = dist.all_gather(outputs, torch.ones(1), group=group, async_op=True)
    future = work.get_future().then(lambda done: summed(done.value()[0].item()))
    assert future.wait() == ranks
    whole = torch.zeros(2 * ranks)[::2]  # a copy for gloo
    work = single("all_gather_single", "all_gather_into_tensor")(
        whole, torch.ones(1), group=group, async_op=True
    )
    future = work.get_future().then(lambda done: summed(done.value()[0].sum().item()))
    assert future.wait() == ranks**2


@check
def callbacks_of_one_may_wait_for_another(group):
    """That was begun before it or after it, by the program."""
    first = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    second = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
    futures = [first.get_future(), second.get_future()]
    crossed = [
        futures[0].then(lambda _: futures[1].wait()[0][0].item()),
        futures[1].then(lambda _: second.wait()),
    ]
    assert [future.wait() for future in crossed] == [float(dist.get_world_size()), True]


@check
def a_wait_is_over_after_the_callbacks(group):
    for _ in range(50):
        seen = []
        work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
        work.get_future().add_done_callback(lambda _, seen=seen: seen.append(1))
        work.wait()
        assert seen == [1]


@check
def callbacks_run_in_the_order_of_the_all_reduces(group):
    seen = []
    works = [dist.all_reduce(torch.ones(k + 1), group=group, async_op=True) for k in range(30)]
    futures = [
        work.get_future().then(lambda _, k=k: seen.append(k)) for k, work in enumerate(works)
    ]
    for future in futures:
        future.wait()
    # Where one was complete before it got its callback, that ran at once, here.
    assert sorted(seen) == list(range(30))


@check
def a_callback_that_raises_fails_its_future_only(group):
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    failed = work.get_future().then(lambda _: 1 / 0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        failed.wait()
    assert work.wait()
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [dist.get_world_size()] * 2


@check
def a_future_may_be_waited_for_twice_and_by_two_threads(group):
    ranks = dist.get_world_size()
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    found = []

    def wait():
        with torch.no_grad():
            found.append(work.get_future().wait()[0].tolist())
        work.wait()

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait()
    wait()
    for thread in threads:
        thread.join(SECONDS.total_seconds())
        assert not thread.is_alive()
    assert found == [[ranks, ranks]] * 4


# ---------------------------------------------------------------- PyTorch's own hooks


def wide_net():
    torch.manual_seed(5)
    return torch.nn.Sequential(*(torch.nn.Linear(40, 40) for _ in range(5)))


def trained(hook, its_group, steps=6):
    """The weights after a training with a hook of PyTorch's over a group."""
    model = DistributedDataParallel(wide_net(), process_group=its_group, bucket_cap_mb=0.01)
    if hook is not None:
        hook(model, its_group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(8, 40, generator=generator)).pow(2).mean().backward()
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


def with_powersgd(model, its_group, hook=powersgd.powerSGD_hook):
    state = powersgd.PowerSGDState(
        its_group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    model.register_comm_hook(state, hook)


def equal_on_all_ranks(weights):
    flat = torch.cat([each.flatten() for each in weights])
    for rank in range(dist.get_world_size()):
        other = flat.clone()
        dist.broadcast(other, src=rank)
        assert torch.equal(other, flat)
    return flat


@check
def pytorchs_powersgd_runs_over_the_group(group):
    """Its buckets are several, and each has callbacks that begin three all-reduces."""
    flat = equal_on_all_ranks(trained(with_powersgd, group))
    plain = equal_on_all_ranks(trained(None, group))
    assert not torch.equal(flat, plain)
    torch.testing.assert_close(flat, plain, rtol=0, atol=0.05)


if __name__ == "__main__":
    sys.exit(main(CHECKS))
