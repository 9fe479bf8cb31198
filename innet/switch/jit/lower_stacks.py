"""Header stacks: their counts, extraction to the next element, push and pop."""

from __future__ import annotations

from typing import Any

from innet.switch import ir
from innet.switch.jit import plan
from innet.switch.jit.tree import walk


def stack_count(program: ir.Program, stack: int) -> Any:
    """The variable with the count of a header stack; ``next`` is the element of that number."""
    return plan.Scalar(f"stack_{stack}_count", 0, len(program.stacks[stack].headers))


def union_stack_count(program: ir.Program, stack: int) -> Any:
    """As ``stack_count``, of a stack of header unions."""
    return plan.Scalar(f"union_stack_{stack}_count", 0, len(program.union_stacks[stack].unions))


def packet_scalars(program: ir.Program, bodies: tuple[plan.Body, ...]) -> list[plan.Scalar]:
    """The variables beside its fields that a packet carries from one of ``bodies`` to another.

    They are 0 when a packet is received; a copy of a packet has the values of its original.
    """
    counts = [stack_count(program, i) for i in range(len(program.stacks))]
    counts += [union_stack_count(program, i) for i in range(len(program.union_stacks))]
    used = {node for node in walk(bodies) if isinstance(node, plan.Scalar)}
    return [count for count in counts if count in used]
