"""Properties of a program that the emitter and the engine share, so that arguments match.

This module does not need Numba, whose import takes longer than loading a cached program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.engine import MAX_LOOPS, Statistics
from innet.switch.state.entries import word_count
from innet.switch.state.hashes import RESULT_BITS

#: Position of each counter in emitted code's array of statistics.
STATISTICS = {name: position for position, name in enumerate(Statistics().as_dict())}

#: In ``sessions``, rows of a port and a group: no such session; and no port, or no group.
NO_SESSION, NONE = -2, -1

#: Words of an entry of ``waiting`` and of ``origins`` (``runtime.queue``).
ENTRY_WORDS, ORIGIN_WORDS = 8, 2
#: Why a program with queues stopped early: it needs more slots, entries or output rows, longer
#: slots and rows, more space for digests, or for the records of a recording build.
NEED_SLOTS, NEED_ENTRIES, NEED_ROWS, NEED_BYTES, NEED_DIGESTS, NEED_RECORDS = range(1, 7)

#: CRCs with the table as argument, since the control plane may change it.
CUSTOM_CRCS = ("crc8_custom", "crc16_custom", "crc32_custom", "crc64_custom")
#: Algorithms with an argument: a table, a key, a count.
_WITH_STATE = (*CUSTOM_CRCS, "toeplitz", "round_robin")
#: Algorithms that store their inputs, which emitted code does not support.
_REMEMBERING = ("round_robin_consistent",)
#: Algorithms that emitted code supports.
ALGORITHMS = frozenset(RESULT_BITS) - frozenset(_REMEMBERING)

#: What may change the length of a packet, or which of its headers leave.
_RESIZING = (
    ir.AddHeader
    | ir.RemoveHeader
    | ir.AssignHeader
    | ir.AssignStack
    | ir.AssignVariable
    | ir.Push
    | ir.Pop
    | ir.Truncate
    | ir.Advance
)

_WORD = (1 << 64) - 1


def needs_queue(program: ir.Program) -> bool:
    """Whether packets are cloned, resubmitted or recirculated, so that emitted code needs
    queues.
    """
    return _uses(program, ir.Clone | ir.Resubmit | ir.Recirculate)


def resizes(program: ir.Program) -> bool:
    """Whether a packet may leave with another length than that with which it was enqueued."""
    extracted = [
        operation.target
        for state in program.parser.states
        for operation in state.operations
        if isinstance(operation, ir.Extract)
    ]
    headers = [each.header for each in extracted if isinstance(each, ir.HeaderRef)]
    headers += [
        header
        for each in extracted
        if isinstance(each, ir.StackNext)
        for header in program.stacks[each.stack].headers
    ]
    order = program.deparser.order
    # Each header that came is to leave, once.
    keeps = len({*order}) == len(order) and {*headers} <= {*order} and not program.unions
    return not keeps or len({*headers}) < len(headers) or _uses(program, _RESIZING)


def uses_random(program: ir.Program) -> bool:
    """Whether a program calls random()."""
    return _uses(program, ir.Random)


def uses_digests(program: ir.Program) -> bool:
    """Whether a program sends digests."""
    return _uses(program, ir.Digest)


def _uses(program: ir.Program, kinds: Any) -> bool:
    bodies = (
        *(state.operations for state in program.parser.states),
        *(action.primitives for action in program.actions),
        program.deparser.operations,
    )
    return any(isinstance(operation, kinds) for body in bodies for operation in body)


def searched_tables(program: ir.Program) -> list[int]:
    """The tables whose entries or default can change, so that emitted code must search them."""
    return [i for i, table in enumerate(program.tables) if constant_action(table) is None]


def constant_action(table: ir.Table) -> ir.ActionEntry | None:
    """The only entry of a table without keys, if nothing can change it."""
    if table.keys or not (table.default_action_const and table.default_entry_const):
        return None
    return table.default


def stateful_hashes(program: ir.Program) -> list[int]:
    """The numbers of the hashes that have an argument."""
    return [i for i, each in enumerate(program.hashes) if each.algorithm in _WITH_STATE]


def digest_words(program: ir.Program, reference: ir.FieldRef) -> int:
    """How many words a field takes in a digest."""
    return word_count(program.field(reference).width)


def digest_room(program: ir.Program) -> int:
    """How many words of digests one received packet may make before another event."""
    sizes = [
        1 + sum(digest_words(program, each) for each in learn_list.elements)
        for learn_list in program.learn_lists
    ]
    ingresses = MAX_LOOPS + 1 if _uses(program, ir.Resubmit) else 1
    return ingresses * max(sizes, default=0) if uses_digests(program) else 0


def decode_digests(
    program: ir.Program, words: NDArray[np.int64]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(learn list, values) of each digest in a buffer that ``emit.packet`` describes."""
    left = iter(words.tolist())
    for number in left:
        values = []
        for reference in program.learn_lists[number].elements:
            value = 0
            for _ in range(digest_words(program, reference)):
                value = value << 64 | next(left) & _WORD
            values.append(value & ((1 << program.field(reference).width) - 1))
        yield number, tuple(values)
