"""Slots of running switches as tables, on the switch model without a network."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from innet.mininet import inspect
from innet.switch import Switch
from innet.topology import Request, plan_jobs

POOL = "TreeIngress.pool"


def running(request):
    """A tree's plan and its switches, as nodes of Mininet's that run commands."""
    shared = plan_jobs("tree", 32, request)
    nodes = []
    for each in shared.switches:
        model = Switch.load(each.program.json(), engine="interpret")
        model.commands("\n".join(each.commands))
        nodes.append(SimpleNamespace(name=each.name, command=model.command))
    return shared, nodes


def hold(node, index, owner, **cells):
    for name, value in {"owner": owner, **cells}.items():
        node.command(f"register_write {POOL}.{name} {index} {value}")


def rows(table):
    return [tuple(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def test_a_tree_of_more_workers_than_a_bitmap_has_bits_says_who_is_missing():
    shared, (root, first, second) = running(Request(workers=40, racks=2))
    owner = 1 << 16
    hold(first, 2, owner, sequence=2, bitmap=(1 << 20) - 1)
    hold(root, 2, owner, sequence=2, bitmap=0b01)
    hold(second, 2, owner, sequence=2, bitmap=((1 << 20) - 1) & ~(1 << 5))
    waits = [("1", "1", "0", "2", "0-24, 26-39", "25")]
    assert rows(inspect.who_waits([root, first, second], shared)) == waits
    assert rows(inspect.slots(first, shared)) == [("1", "1", "0", "2", "0-19", "20-39")]
    assert rows(inspect.slots(root, shared)) == [("1", "1", "0", "2", "0-19", "20-39")]
    hold(second, 2, owner, sequence=2, bitmap=(1 << 20) - 1)
    assert inspect.who_waits([root, first, second], shared).caption.startswith("no slot waits")
    hold(root, 4, owner | 7, sequence=9, bitmap=0b01)  # of another epoch
    assert inspect.who_waits([root, first, second], shared).caption.startswith("no slot waits")


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1), "0, 1"),
        ((0, 1, 2), "0-2"),
        ((0, 2, 3, 4, 6, 7), "0, 2-4, 6, 7"),
    ],
)
def test_workers_in_a_row_are_a_range(workers, text):
    assert inspect.worker_ranges(workers) == text
