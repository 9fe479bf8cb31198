"""The battery of ``collective_table``: every case over the group ``innet``, beside gloo in the same
processes.

    python tests/support/battery_checks.py FOLDER UNTIL RANKS NAME ...

A result equals gloo's, bit for bit; NaNs are equal to each other. Where the switch sums and gloo
would round more than once, it equals the sum in float64 instead, rounded to float32 and then to
the tensor's dtype. What gloo refuses, the group refuses, too, but dtypes and shapes that a switch
only moves. All memory around the tensors, and that of those that are only read, stays as it was.

The checks ``..._with_owners`` are of the collectives that a switch does with the program
``collectives``. Each of them has to have gone through it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import math
import os
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist

import innet.torch  # noqa: F401 - registers the back end
from support.collective_table import (
    BLOCK,
    BLOCKS,
    COLLECTIVES,
    FACTOR,
    LAYOUTS,
    ROOM,
    cases,
    owner_cases,
    stacked,
)
from support.rank_switch import switch_with_owners
from support.ranks import main

SECONDS = 30  # that a case may take
GUARD = 0x5A  # each byte of memory that nobody may change
SUMMED = (torch.float32, torch.float16, torch.bfloat16)
PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


# ---------------------------------------------------------------- values and memory


def values_of(kind, dtype, shape, rank, number):
    """What a rank gives: the same in every column, as expanded tensors have it."""
    if dtype in PARTS:
        parts = (values_of(kind, PARTS[dtype], shape, rank, number + each) for each in (0, 1))
        return torch.complex(*parts)
    generator = torch.Generator().manual_seed(100 * number + rank)
    rows = math.prod(shape[:1])
    if dtype.is_floating_point:
        column = some_floats(kind, dtype, rows, rank, generator)
    else:
        limit = {torch.bool: 2, torch.uint8: 200, torch.int8: 100}.get(dtype, 2**15)
        column = torch.randint(limit, (rows,), generator=generator).to(dtype)
    whole = column.view(rows, *[1] * (len(shape) - 1)) if shape else column[0]
    return whole.expand(shape).contiguous()


def some_floats(kind, dtype, count, rank, generator):
    limits = torch.finfo(dtype)
    values = torch.randn(count, generator=generator, dtype=torch.float64)
    values *= 2.0 ** torch.randint(-6, 6, (count,), generator=generator)
    if kind == "denormal":
        values *= limits.smallest_normal / 8
    if kind == "overflowing":
        values = values.sign() * limits.max * 0.9
    if kind == "negative zero":
        values = torch.where(torch.rand(count, generator=generator) < 0.3, 0.0, -0.0)
    if kind == "nan" and rank % 2:
        values[-1:] = math.nan
    if kind == "infinite":
        values[:1] = math.inf if rank % 2 else -math.inf
        values[-1:] = math.inf
    return values.to(dtype)


def as_floats(tensor):
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def bits(tensor):
    """Its bytes, with the same ones for every NaN."""
    tensor = as_floats(tensor)
    if tensor.dtype in (*SUMMED, torch.float64):
        tensor = torch.where(tensor.isnan(), math.nan, tensor)
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def put(tensor, values):
    """Write values, also where all columns are one."""
    if 0 in tensor.stride():
        tensor, values = tensor[:, :1], values[:, :1]
    tensor.copy_(values)


class Place:
    """A tensor in a longer piece of memory."""

    def __init__(self, shape, dtype, layout, values=None):
        self.shape, self.layout = shape, layout
        count = 2 * math.prod(shape) + ROOM
        guards = torch.full((count * dtype.itemsize,), GUARD, dtype=torch.uint8)
        self.whole = (guards & 1 if dtype == torch.bool else guards).view(dtype)
        self.tensor = LAYOUTS[layout](self.whole, shape)
        if values is not None:
            put(self.tensor, values)
        self.before = self.whole.clone()

    def is_unchanged(self):
        return torch.equal(bits(self.whole), bits(self.before))

    def holds(self, expected):
        """Whether the tensor has these values, and around it is what was there."""
        put(LAYOUTS[self.layout](self.before, self.shape), expected)
        return self.is_unchanged()


# ---------------------------------------------------------------- one case


def shapes_of(what, block, ranks, rank):
    """The shapes of the tensors that the table names so."""
    if not what:
        return []
    if what == "blocks":
        return [block] * ranks
    count, name = (2, what[2:-1]) if what[0] == "2" else (1, what)
    shape = {
        "block": block,
        "stack": stacked(block, ranks),
        "own rows": stacked(block, ranks * (ranks + 1) // 2),
        "rows for me": stacked(block, ranks * (rank + 1)),
    }[name]
    return [shape] * count


def operation_of(name):
    if name == "premul_sum":
        return dist._make_nccl_premul_sum(FACTOR)
    return getattr(dist.ReduceOp, name.upper()) if name else dist.ReduceOp.SUM


class Trial:
    """A case in one process of a group."""

    def __init__(self, number, case, group, gloo, *, has_owners=False):
        self.number, self.case, self.group, self.gloo = number, case, group, gloo
        self.collective = COLLECTIVES[case["collective"]]
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.dtype = getattr(torch, case["dtype"])
        self.block = BLOCKS.get(case["layout"], BLOCK)
        self.is_refused = False
        self.by_owners = has_owners and self.collective.by_owners and self.ranks > 1
        if self.collective.gives or self.collective.changes:
            self.by_owners &= math.prod(self.block) > 0

    def places(self, layout):
        """The tensors, with values of their own, by their names in the table."""
        found, numbers = {}, itertools.count(2000 * self.number, 2)
        for name in ("gives", "changes", "gets"):
            shapes = shapes_of(getattr(self.collective, name), self.block, self.ranks, self.rank)
            found[name] = []
            for shape, number in zip(shapes, numbers, strict=False):
                values = None if name == "gets" else self.given(number, shape, self.rank)
                found[name].append(Place(shape, self.dtype, layout, values))
        return found

    def given(self, number, shape, rank):
        return values_of(self.case["values"] or "finite", self.dtype, shape, rank, number)

    def call(self, group, places, operation, way="waits"):
        """Call the function; returns the tensors that it returns."""
        call = SimpleNamespace(
            group=group, rank=self.rank, ranks=self.ranks, block=self.block,
            root=dist.get_global_rank(group, self.ranks - 1), is_root=self.rank == self.ranks - 1,
            operation=operation_of(operation), operation_name=operation or "sum",
            how={"group": group},
            **{name: [place.tensor for place in each] for name, each in places.items()},
        )  # fmt: skip
        function = self.collective.call
        if group is self.gloo:
            function = self.collective.by_gloo or function
        elif not self.collective.sync and way not in ("waits", "in a callback"):
            call.how["async_op"] = True
        if not way.endswith("in a callback"):
            return ended(function(call), way)
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        return work.get_future().then(lambda _: ended(function(call), way)).wait()

    def expected(self):
        """What the tensors become, by name; or the error that is to be raised."""
        places, operation = self.places("contiguous"), self.case["operation"]
        if self.is_scaled(operation):
            for place in itertools.chain(*places.values()):
                as_floats(place.tensor).mul_(FACTOR)
            operation = "sum"
        try:
            returned = self.call(self.gloo, places, operation)
        except (RuntimeError, ValueError) as error:
            may_move = self.by_owners and not self.collective.reduces
            return self.moved() if may_move and "root rank" not in str(error) else error
        found = {"returned": returned}
        found |= {name: [each.tensor for each in places[name]] for name in ("gets", "changes")}
        if self.is_summed():
            summed = next(name for name in ("changes", "gets", "returned") if found[name])
            found[summed] = list(itertools.starmap(self.by_switch, enumerate(found[summed])))
        return found

    def moved(self):
        """What an all-gather or a broadcast makes of tensors that gloo does not take."""
        root, first = self.ranks - 1, 2000 * self.number
        shape = stacked(self.block, self.ranks)

        def gathered(index):
            given = (self.given(first + 2 * index, self.block, r) for r in range(self.ranks))
            return list(given)

        of_root = [gathered(index)[root] for index in (0, 1)]
        stacks = [torch.stack(gathered(index)).view(shape) for index in (0, 1)]
        functional = of_root if "broadcast" in self.case["collective"] else stacks
        by_name = {"": [], "block": of_root[:1], "2 blocks": of_root, "blocks": gathered(0)}
        by_name |= {"stack": stacks[:1], "2 stacks": stacks}
        found = {name: by_name[getattr(self.collective, name)] for name in ("gets", "changes")}
        is_returned = not (found["gets"] or found["changes"])
        count = 2 if self.collective.gives.startswith("2") else 1
        return found | {"returned": functional[: is_returned * count]}

    def is_scaled(self, operation):
        return operation == "premul_sum" and self.is_summed()

    def is_summed(self):
        """Whether the switch sums, where values are finite."""
        if self.by_owners:
            return self.collective.reduces and self.dtype in SUMMED
        summed = (*SUMMED, torch.complex64)  # which PyTorch gives as float32
        return self.collective.by_switch and self.dtype in summed

    def by_switch(self, index, gloos):
        """The sum that the switch makes; gloo's where gloo makes it.

        A sum of two is gloo's, with +0.0 for -0.0, whose sign integers do not have.
        """
        operation = self.case["operation"] or "sum"
        if operation not in ("sum", "avg", "premul_sum") or self.ranks == 1 or not gloos.numel():
            return gloos
        given = [self.summed(index, gloos.shape, rank) for rank in range(self.ranks)]
        if not all(bool(each.isfinite().all()) for each in given):
            total = self.sum_by_gloo(as_floats(given[self.rank]), operation)
        elif operation == "sum" and self.ranks == 2:
            return gloos + 0.0
        else:
            total = self.sum_of([as_floats(each) for each in given], operation)
        total = torch.view_as_complex(total) if gloos.is_complex() else total
        if self.is_scattered():
            total = total.view(self.ranks, -1)[self.rank]
        return total.view(gloos.shape)

    def is_scattered(self):
        return self.collective.reduces and bool(self.collective.gives) and self.by_owners

    def summed(self, index, shape, rank):
        """What a rank gives to that sum, or to the sums for all ranks of which it is a part."""
        first = 2000 * self.number
        if not self.is_scattered():
            return self.given(first + 2 * index, shape, rank)
        if self.collective.gives == "blocks":
            numbers = range(first, first + 2 * self.ranks, 2)
            return torch.stack([self.given(each, self.block, rank) for each in numbers])
        return self.given(first + 2 * index, stacked(self.block, self.ranks), rank)

    def sum_by_gloo(self, values, operation):
        """Of each tensor by itself, as gloo rounds several that are coalesced in another order."""
        total = values * FACTOR if operation == "premul_sum" else values.clone()
        dist.all_reduce(total, group=self.gloo)
        return total / self.ranks if operation == "avg" else total

    def sum_of(self, given, operation):
        factor = FACTOR if operation == "premul_sum" else 1.0
        total = sum((each.float() * factor).double() for each in given).float() + 0.0
        return (total / self.ranks if operation == "avg" else total).to(given[0].dtype)

    def problem(self):
        """What is not as it should be; None if nothing is."""
        expected = self.expected()
        mixed = self.case["others"].startswith("contiguous") and self.rank
        places = self.places("contiguous" if mixed else self.case["layout"])
        before = self.last_report()
        try:
            returned = self.call(self.group, places, self.case["operation"], self.case["way"])
        except Exception as error:
            if isinstance(expected, Exception):
                self.is_refused = True
                return None
            return f"{type(error).__name__}: {error}"
        if isinstance(expected, Exception):
            return f"not refused, but gloo says {expected}"
        if self.is_at_switch() and self.last_report() is before:
            return "the switch has not done it"
        if not all(place.is_unchanged() for place in places["gives"]):
            return "what is only read has changed"
        for name in ("gets", "changes"):
            for place, values in zip(places[name], expected[name], strict=True):
                if self.collective.at_root and self.rank < self.ranks - 1:
                    values = place.tensor.clone()  # noqa: PLW2901
                shown = place.tensor.tolist()
                if not place.holds(values):
                    return f"{name} {shown} instead of {values.tolist()}, or memory around it"
        if len(returned) != len(expected["returned"]):
            return f"{len(returned)} tensors returned instead of {len(expected['returned'])}"
        for found, values in zip(returned, expected["returned"], strict=True):
            if found.shape != values.shape or not torch.equal(bits(found), bits(values)):
                return f"returned {found.tolist()} instead of {values.tolist()}"
        return None

    def is_at_switch(self):
        """Whether it is one of those with owners, and gloo does nothing of it."""
        if not self.collective.reduces:
            return self.by_owners
        summed = self.case["operation"] in ("", "sum", "avg", "premul_sum")
        finite = self.case["values"] not in ("nan", "infinite")
        return self.by_owners and self.is_summed() and summed and finite

    def last_report(self):
        return self.group.reports[-1] if getattr(self.group, "reports", None) else None


def ended(found, way):
    """Wait in this way for what a function returned; the tensors among it."""
    if found is None or isinstance(found, int):  # recv's is the rank
        return []
    if isinstance(found, list):  # of functional collectives, which have to be waited for
        return [each.wait() if hasattr(each, "wait") else each for each in found]
    is_work = not isinstance(found, torch.futures.Future)
    if way == "polled":
        while not (found.is_completed() if is_work else found.done()):
            time.sleep(0.0002)  # not in a busy loop, beside the thread that completes it
        if not is_work or not found.is_success():
            found.wait()  # raises what went wrong
    elif is_work and way in ("by its future", "async in a callback"):
        found.get_future().wait()
    else:
        found.wait()
    return []


def exists(case):
    """Whether this PyTorch has the function, and it takes the tensors."""
    name = case["collective"]
    if not hasattr(dist, "all_gather_single"):  # before 2.13
        if name.startswith("reduce_scatter") and case["dtype"].startswith("complex"):
            return False
        if "functional" in name and case["layout"] not in ("contiguous", "with an offset"):
            return False
    functions = COLLECTIVES[name].functions
    return not functions or any(hasattr(dist, each) for each in functions)


# ---------------------------------------------------------------- the battery


@contextlib.contextmanager
def deadline(name):
    """Ends this rank if what is done takes too long, and says where it is."""

    def end():
        print(f"{name} came to no end", file=sys.stderr)
        faulthandler.dump_traceback()
        os._exit(1)

    timer = threading.Timer(SECONDS, end)
    timer.start()
    faulthandler.dump_traceback_later(SECONDS + 5, exit=True)  # where none can run
    try:
        yield
    finally:
        timer.cancel()
        faulthandler.cancel_dump_traceback_later()


def run_cases(chosen, *, has_owners=False):
    """All of them, with a report of each that fails."""
    warnings.filterwarnings("ignore")  # of old names
    last = dist.get_world_size() - 1
    members = {"all ranks": None, "first and last": sorted({0, last}), "last alone": [last]}
    groups = {}
    for name, ranks in members.items():
        timeout = timedelta(seconds=SECONDS)
        groups[name] = [
            dist.new_group(ranks, backend=backend, timeout=timeout) for backend in ("innet", "gloo")
        ]
    faulthandler.enable()
    failed, count, refused = [], 0, 0
    for number, case in chosen:
        ranks = members[case["group"]]
        if not exists(case) or (ranks and dist.get_rank() not in ranks):
            continue
        name = f"case {number} {', '.join(filter(None, case.values()))}"
        with deadline(name):
            trial = Trial(number, case, *groups[case["group"]], has_owners=has_owners)
            said = trial.problem()
        count += 1
        refused += trial.is_refused
        if said is not None:
            failed.append(f"{name}: {said}")
    said = f"{count} cases, of which both refused {refused}; {len(failed)} failed"
    print(f"rank {dist.get_rank()} of {last + 1}: {said}", flush=True)
    for name, ranks in members.items():
        if ranks is None or dist.get_rank() in ranks:
            dist.destroy_process_group(groups[name][0])
    assert not failed, "\n".join(failed)


@check
def some_cases():
    run_cases(list(enumerate(cases()))[::8])


@check
def all_cases():
    run_cases(list(enumerate(cases())))


@check
def some_cases_with_owners():
    with switch_with_owners():
        run_cases(list(enumerate(owner_cases()))[::8], has_owners=True)


@check
def all_cases_with_owners():
    with switch_with_owners():
        run_cases(list(enumerate(owner_cases())), has_owners=True)


if __name__ == "__main__":
    sys.exit(main(CHECKS))
