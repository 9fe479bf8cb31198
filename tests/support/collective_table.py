"""The battery of ``battery_checks`` as one table: every function of torch.distributed that moves
tensors, and the settings it is called with.

``cases`` are chosen so that each two settings occur together (``support.pairwise``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as autograd

from support.pairwise import Case, all_pairs

# ---------------------------------------------------------------- settings

DTYPES = [
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128",
    "int8", "uint8", "int16", "int32", "int64", "bool", "float8_e4m3fn",
]  # fmt: skip

LAYOUTS = {  # where in a longer piece of memory a tensor of this shape is
    "contiguous": lambda memory, shape: memory[: math.prod(shape)].view(shape),
    "with an offset": lambda memory, shape: memory[5 : 5 + math.prod(shape)].view(shape),
    "transposed": lambda memory, shape: memory[: math.prod(shape)].view(shape[::-1]).T,
    "every second column": lambda memory, shape: memory[: 2 * math.prod(shape)].view(
        shape[0], 2 * shape[1]
    )[:, ::2],
    "expanded": lambda memory, shape: memory[2 : 2 + shape[0]].view(-1, 1).expand(shape),
    "zero-size": lambda memory, shape: memory[:0].view(shape),
    "0-dim": lambda memory, shape: memory[3 : 3 + math.prod(shape)].view(shape),
}
ROOM = 16  # elements of the memory beyond twice those of the tensor

BLOCKS = {"zero-size": (0, 3), "0-dim": ()}  # shapes of one rank's part
BLOCK = (4, 3)  # elsewhere


def stacked(block: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The shape of so many blocks, one after the other."""
    return (count * block[0], *block[1:]) if block else (count,)


OTHERS = ["laid out the same", "contiguous on other ranks"]

VALUES = ["finite", "nan", "infinite", "denormal", "negative zero", "overflowing"]

OPERATIONS = ["sum", "avg", "min", "max", "product", "band", "bor", "bxor", "premul_sum"]
FACTOR = 0.75  # of premul_sum

WAYS = ["waits", "asynchronous", "polled", "by its future", "in a callback", "async in a callback"]

GROUPS = ["all ranks", "first and last", "last alone"]


# ---------------------------------------------------------------- functions


@dataclass(frozen=True)
class Collective:
    """A function of torch.distributed, or one that calls it in a way of its own.

    Attributes:
        call: calls it with a ``battery_checks.Call``; returns its work, or a list of the tensors
            that it returns, or None.
        gives: the tensors that it reads: "block", of one rank; "stack", those for all ranks one
            after the other; "blocks", a list of them; "own rows" and "rows for me": 1, 2, ...
            blocks to the ranks and from them. "2 blocks" and the like: of two calls.
        gets: those that it writes, if it does not return them.
        changes: those that it reads and writes.
        reduces: it takes an operation.
        by_switch: it is an all-reduce.
        by_owners: a switch whose program knows owners of chunks does it.
        at_root: the root alone has a result.
        sync: it has no work, or one that has no future.
        functions: the names in torch.distributed for which this stands.
        by_gloo: what is equal to it, where gloo lacks it.
    """

    call: Callable[[Any], Any]
    gives: str = ""
    gets: str = ""
    changes: str = ""
    reduces: bool = False
    by_switch: bool = False
    by_owners: bool = False
    at_root: bool = False
    sync: bool = False
    functions: tuple[str, ...] = ()
    by_gloo: Callable[[Any], Any] | None = None


def single(new: str, old: str) -> Any:
    """A collective of one tensor, by the newer of its names that this PyTorch has."""
    return getattr(dist, new, None) or getattr(dist, old)


def coalesced(call: Any, function: Callable[[int], Any]) -> None:
    try:
        with dist._coalescing_manager(call.group, async_ops=True) as manager:
            for number in range(2):
                function(number)
        manager.wait()
    finally:  # PyTorch forgets it after an error
        dist.distributed_c10d._world.pg_coalesce_state.pop(call.group, None)


def coalesced_on_a_device(call: Any, function: Callable[[int], Any]) -> None:
    """In the form in which the group begins each collective at once."""
    with dist._coalescing_manager(call.group, torch.device("cpu"), async_ops=True) as manager:
        for number in range(2):
            function(number)
    manager.wait()


def coalesced_by_gloo(function: Callable[[Any], Any], tensors: list[Any]) -> None:
    for each in tensors:
        function(each)


def from_first_to_last(call: Any, send: Any, receive: Any) -> Any:
    if call.ranks > 1 and call.rank == 0:
        return send(call.gives[0], call.root, group=call.group)
    if call.ranks > 1 and call.is_root:
        return receive(call.gets[0], group=call.group)
    return None


def in_a_ring(call: Any) -> None:
    after, before = (
        dist.get_global_rank(call.group, (call.rank + step) % call.ranks) for step in (1, -1)
    )
    batch = [
        dist.P2POp(dist.isend, call.gives[0], after, group=call.group),
        dist.P2POp(dist.irecv, call.gets[0], before, group=call.group),
    ]
    for work in dist.batch_isend_irecv(batch) if call.ranks > 1 else ():
        work.wait()


def in_pieces(call: Any) -> list[list[int]]:
    """How many rows each rank receives and sends: one block from and to the first, and so on."""
    rows = call.block[0] if call.block else 1
    sent = [rows * (rank + 1) for rank in range(call.ranks)]
    return [[rows * (call.rank + 1)] * call.ranks, sent]


def objects_of(call: Any, function: Any, found: list[Any], *more: Any, **options: Any) -> list[Any]:
    """Calls a function that fills a list with objects, which are tensors here."""
    function(found, *more, group=call.group, **options)
    return [each for each in found if each is not None]


def gathered_objects(call: Any) -> list[Any]:
    found = [None] * call.ranks if call.is_root else None
    dist.gather_object(call.gives[0], found, call.root, call.group)
    return found or []


def gathered_as_one(call: Any) -> None:
    rows = list(call.gets[0].view(call.ranks, *call.block)) if call.is_root else None
    dist.gather(call.gives[0], rows, call.root, group=call.group)


def reduce_scatter_by_gloo(call: Any) -> None:
    """gloo ends the process where the result is 0-dimensional, and summed whatever the operation
    was before PyTorch 2.13.
    """
    own = hasattr(dist, "reduce_scatter_single") and call.block
    if len(call.gives) > len(call.gets):  # a list of one for each rank
        call.gives[:] = [torch.stack(call.gives).view(stacked(call.block, call.ranks))]
    for given, output in zip(call.gives, call.gets, strict=True):
        if own:
            dist.reduce_scatter_tensor(output, given, call.operation, call.group)
        else:
            total = given.clone()
            dist.all_reduce(total, call.operation, call.group)
            output.copy_(total.view(call.ranks, *call.block)[call.rank])


COLLECTIVES = {
    # ---- all-reduces: of float32, float16 and bfloat16 by the switch
    "all_reduce": Collective(
        lambda c: dist.all_reduce(c.changes[0], c.operation, **c.how),
        changes="block", reduces=True, by_switch=True, functions=("all_reduce",),
    ),
    "all_reduce_coalesced": Collective(
        lambda c: dist.all_reduce_coalesced(c.changes, c.operation, **c.how),
        changes="2 blocks", reduces=True, by_switch=True, functions=("all_reduce_coalesced",),
    ),
    "all_reduce, coalesced": Collective(
        lambda c: coalesced(c, lambda i: dist.all_reduce(c.changes[i], c.operation, c.group)),
        changes="2 blocks", reduces=True, by_switch=True, sync=True,
    ),
    "all_reduce, functional": Collective(
        lambda c: [functional.all_reduce(c.gives[0], c.operation_name, c.group)],
        gives="block", reduces=True, by_switch=True, sync=True,
    ),
    "all_reduce_coalesced, functional": Collective(
        lambda c: functional.all_reduce_coalesced(c.gives, c.operation_name, c.group),
        gives="2 blocks", reduces=True, by_switch=True, sync=True,
    ),
    "all_reduce, of autograd": Collective(
        lambda c: [autograd.all_reduce(c.gives[0], c.operation, c.group)],
        gives="block", reduces=True, by_switch=True, sync=True,
    ),
    # ---- to one rank and from one
    "broadcast": Collective(
        lambda c: dist.broadcast(c.changes[0], c.root, **c.how),
        changes="block", by_owners=True, functions=("broadcast",),
    ),
    "broadcast, functional": Collective(
        lambda c: [functional.broadcast(c.gives[0], c.root, c.group)],
        gives="block", by_owners=True, sync=True,
    ),
    "broadcast, coalesced on a device": Collective(
        lambda c: coalesced_on_a_device(
            c, lambda i: dist.broadcast(c.changes[i], c.root, c.group, async_op=True)
        ),
        changes="2 blocks", by_owners=True, sync=True,
        by_gloo=lambda c: coalesced_by_gloo(
            lambda each: dist.broadcast(each, c.root, c.group), c.changes
        ),
    ),
    "reduce": Collective(
        lambda c: dist.reduce(c.changes[0], c.root, c.operation, **c.how),
        changes="block", reduces=True, by_owners=True, at_root=True, functions=("reduce",),
    ),
    "gather": Collective(
        lambda c: dist.gather(c.gives[0], c.gets if c.is_root else None, c.root, **c.how),
        gives="block", gets="blocks", functions=("gather",),
    ),
    "gather_single": Collective(
        lambda c: dist.gather_single(c.gives[0], c.gets[0] if c.is_root else None, c.root, **c.how),
        gives="block", gets="stack", functions=("gather_single", "gather_into_tensor"),
        by_gloo=gathered_as_one,
    ),
    "scatter": Collective(
        lambda c: dist.scatter(c.gets[0], c.gives if c.is_root else None, c.root, **c.how),
        gives="blocks", gets="block", functions=("scatter",),
    ),
    # ---- from all ranks to all
    "all_gather": Collective(
        lambda c: dist.all_gather(c.gets, c.gives[0], **c.how),
        gives="block", gets="blocks", by_owners=True, functions=("all_gather",),
    ),
    "all_gather_coalesced": Collective(
        lambda c: dist.all_gather_coalesced([c.gets], c.gives, **c.how),
        gives="block", gets="blocks", functions=("all_gather_coalesced",),
    ),
    "all_gather_single": Collective(
        lambda c: single("all_gather_single", "all_gather_into_tensor")(
            c.gets[0], c.gives[0], **c.how
        ),
        gives="block", gets="stack", by_owners=True, functions=("all_gather_single",),
    ),
    "all_gather_into_tensor": Collective(
        lambda c: dist.all_gather_into_tensor(c.gets[0], c.gives[0], **c.how),
        gives="block", gets="stack", by_owners=True, functions=("all_gather_into_tensor",),
    ),
    "all_gather_single, coalesced": Collective(
        lambda c: coalesced(
            c,
            lambda i: single("all_gather_single", "all_gather_into_tensor")(
                c.gets[i], c.gives[i], c.group
            ),
        ),
        gives="2 blocks", gets="2 stacks", by_owners=True, sync=True,
    ),
    "all_gather_tensor, functional": Collective(
        lambda c: [functional.all_gather_tensor(c.gives[0], 0, c.group)],
        gives="block", by_owners=True, sync=True,
    ),
    "all_gather_into_tensor_coalesced, functional": Collective(
        lambda c: functional.all_gather_into_tensor_coalesced(c.gives, c.group),
        gives="2 blocks", by_owners=True, sync=True,
    ),
    "reduce_scatter": Collective(
        lambda c: dist.reduce_scatter(c.gets[0], c.gives, c.operation, **c.how),
        gives="blocks", gets="block", reduces=True, by_owners=True, functions=("reduce_scatter",),
        by_gloo=reduce_scatter_by_gloo,
    ),
    "reduce_scatter_single": Collective(
        lambda c: single("reduce_scatter_single", "reduce_scatter_tensor")(
            c.gets[0], c.gives[0], c.operation, **c.how
        ),
        gives="stack", gets="block", reduces=True, by_owners=True,
        functions=("reduce_scatter_single",),
        by_gloo=reduce_scatter_by_gloo,
    ),
    "reduce_scatter_tensor": Collective(
        lambda c: dist.reduce_scatter_tensor(c.gets[0], c.gives[0], c.operation, **c.how),
        gives="stack", gets="block", reduces=True, by_owners=True,
        functions=("reduce_scatter_tensor",),
        by_gloo=reduce_scatter_by_gloo,
    ),
    "reduce_scatter_single, coalesced": Collective(
        lambda c: coalesced(
            c,
            lambda i: single("reduce_scatter_single", "reduce_scatter_tensor")(
                c.gets[i], c.gives[i], c.operation, c.group
            ),
        ),
        gives="2 stacks", gets="2 blocks", reduces=True, by_owners=True, sync=True,
        by_gloo=reduce_scatter_by_gloo,
    ),
    "reduce_scatter_tensor, functional": Collective(
        lambda c: [functional.reduce_scatter_tensor(c.gives[0], c.operation_name, 0, c.group)],
        gives="stack", reduces=True, by_owners=True, sync=True,
    ),
    "all_to_all": Collective(
        lambda c: dist.all_to_all(c.gets, c.gives, **c.how),
        gives="blocks", gets="blocks", functions=("all_to_all",),
    ),
    "all_to_all_single": Collective(
        lambda c: dist.all_to_all_single(c.gets[0], c.gives[0], **c.how),
        gives="stack", gets="stack", functions=("all_to_all_single",),
    ),
    "all_to_all_single, in pieces": Collective(
        lambda c: dist.all_to_all_single(c.gets[0], c.gives[0], *in_pieces(c), **c.how),
        gives="own rows", gets="rows for me",
    ),
    "all_to_all_single, functional": Collective(
        lambda c: [functional.all_to_all_single(c.gives[0], *in_pieces(c), c.group)],
        gives="own rows", sync=True,
    ),
    # ---- from one rank to another
    "send and recv": Collective(
        lambda c: from_first_to_last(
            c, dist.send, lambda t, group: dist.recv(t, dist.get_global_rank(group, 0), group)
        ),
        gives="block", gets="block", sync=True, functions=("send", "recv"),
    ),
    "recv from any": Collective(
        lambda c: from_first_to_last(c, dist.send, dist.recv),
        gives="block", gets="block", sync=True,
    ),
    "isend and irecv": Collective(
        lambda c: from_first_to_last(
            c, dist.isend, lambda t, group: dist.irecv(t, dist.get_global_rank(group, 0), group)
        ),
        gives="block", gets="block", sync=True, functions=("isend", "irecv"),
    ),
    "batch_isend_irecv": Collective(
        in_a_ring, gives="block", gets="block", sync=True, functions=("batch_isend_irecv",),
    ),
    # ---- objects, which are tensors here
    "all_gather_object": Collective(
        lambda c: objects_of(c, dist.all_gather_object, [None] * c.ranks, c.gives[0]),
        gives="block", sync=True, functions=("all_gather_object",),
    ),
    "broadcast_object_list": Collective(
        lambda c: objects_of(c, dist.broadcast_object_list, [c.gives[0]], src=c.root),
        gives="block", sync=True, functions=("broadcast_object_list",),
    ),
    "gather_object": Collective(
        gathered_objects, gives="block", sync=True, functions=("gather_object",),
    ),
    "scatter_object_list": Collective(
        lambda c: objects_of(
            c, dist.scatter_object_list, [None], c.gives if c.is_root else None, src=c.root
        ),
        gives="blocks", sync=True, functions=("scatter_object_list",),
    ),
    "send_object_list and recv_object_list": Collective(
        lambda c: from_first_to_last(
            c,
            lambda t, to, group: dist.send_object_list([t], to, group),
            lambda t, group: objects_of(
                c, dist.recv_object_list, [None], src=dist.get_global_rank(group, 0)
            ),
        ),
        gives="block", gets="block", sync=True,
        functions=("send_object_list", "recv_object_list"),
    ),
    # ---- no tensors
    "barrier": Collective(
        lambda c: dist.barrier(**c.how), by_owners=True, functions=("barrier",),
    ),
}  # fmt: skip


# ---------------------------------------------------------------- cases

AXES = {
    "collective": list(COLLECTIVES),
    "dtype": DTYPES,
    "layout": list(LAYOUTS),
    "others": OTHERS,
    "values": VALUES,
    "operation": OPERATIONS,
    "way": WAYS,
    "group": GROUPS,
}


def settled(case: Case) -> Case:
    """The case without the settings that mean nothing in it; nothing of one that gloo cannot do."""
    collective = COLLECTIVES[case["collective"]]
    if (case["collective"], case["layout"]) == ("recv from any", "zero-size"):
        return {}  # gloo refuses it where it is received, and waits for ever where it is sent
    if "object" in case["collective"] and case["dtype"] == "float8_e4m3fn":
        return {}  # Python cannot pickle it
    unused = set()
    if not collective.reduces:
        unused.add("operation")
    if "functional" in case["collective"] and case["operation"] == "premul_sum":
        unused.add("operation")  # it has no name for it
    if collective.sync and case["way"] not in ("waits", "in a callback"):
        unused.add("way")
    dtype = getattr(torch, case["dtype"])
    if not (dtype.is_floating_point or dtype.is_complex):
        unused.add("values")
    if case["layout"] in BLOCKS:
        unused.add("others")
    return {axis: "" if axis in unused else setting for axis, setting in case.items()}


SUMS = AXES | {  # of the switch: the same for these alone
    "collective": [name for name, each in COLLECTIVES.items() if each.by_switch],
    "dtype": ["float32", "float16", "bfloat16", "complex64"],
    "operation": ["sum", "avg", "premul_sum"],
}


OWNED = (
    AXES
    | {  # of a switch with owners: the same for what it does, where there is a switch
        "collective": [name for name, each in COLLECTIVES.items() if each.by_owners],
        "group": GROUPS[:2],
    }
)
OWNED_SUMS = OWNED | {
    "collective": [name for name in OWNED["collective"] if COLLECTIVES[name].reduces],
    "dtype": SUMS["dtype"][:3],
    "operation": SUMS["operation"],
}


@functools.cache
def cases() -> tuple[Case, ...]:
    """Of which each two settings occur together, in an order by chance."""
    return (*all_pairs(AXES, settled), *all_pairs(SUMS, settled))


@functools.cache
def owner_cases() -> tuple[Case, ...]:
    """The same of those that a switch does whose program knows owners."""
    both = (*all_pairs(OWNED, settled), *all_pairs(OWNED_SUMS, settled))
    return tuple(case for case in both if not _depends_on_the_order(case))


def _depends_on_the_order(case: Case) -> bool:
    """Whether gloo's reduce-scatter overflows at other elements than its all-reduce, or finds other
    zeros; by that all-reduce the group does those that no switch sums.
    """
    by_switch = (
        case["dtype"] in OWNED_SUMS["dtype"] and case["operation"] in OWNED_SUMS["operation"]
    )
    reduces = COLLECTIVES[case["collective"]].reduces
    return reduces and not by_switch and case["values"] in ("overflowing", "negative zero")
