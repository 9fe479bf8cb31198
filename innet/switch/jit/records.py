"""The records that a recording build of a program writes, one for each event.

A record is a row of int64 words: a head (``head``: its kind and its site in the program, such as
the number of a table), then what is only known at run time. How many words follow is known from
the program, so that records need no table of their own: ``innet.switch.recording`` reads them. A
number takes the words of its type, the most significant one first.

This module does not need Numba, as ``traits``.
"""

from __future__ import annotations

import enum
from itertools import accumulate

from innet.switch import ir
from innet.switch.ir.tree import walk
from innet.switch.state.entries import word_count

_KIND_BITS = 8
KIND_MASK = (1 << _KIND_BITS) - 1

BUFFER_WORDS = 1 << 21
"""Words of the buffer of records; the last counts records for which there was no room."""
TAIL_WORDS = 16
"""Words at its end that are not for records."""
HAND_OVER_WORDS = 1 << 17
"""After so many words emitted code lets its caller take them, before the next packet."""

NO_TIME = -1
"""The time of a call without times."""

DROP_REASONS = (
    "marked to drop",
    "an assertion failed",
    "too many clones, resubmissions and recirculations",
    "no queue of that priority",
)
MARKED, FAILED_ASSERTION, LOOPED, NO_QUEUE = range(len(DROP_REASONS))


PASS_WORDS = ("following", "bytes_begin", "bytes_end", "made", "number", "time")
"""What the record of a pass begins with: the positions in the buffer of the next pass (0: there is
none) and of its bytes; the copies that were enqueued before; the packet; the time."""
FOLLOWING, BYTES_BEGIN, BYTES_END, MADE, NUMBER, TIME = range(1, 1 + len(PASS_WORDS))
WAITED, DEPTH_BEHIND, COPY = range(TIME + 1, TIME + 4)
INGRESS_STEPS, EGRESS_STEPS = TIME + 1, COPY + 1
"""The first words of a pass that do not differ from one packet to the next as these do."""


class Kind(enum.IntEnum):
    """What a record tells; in brackets its site, then its words."""

    # Passes of a packet
    INGRESS = enum.auto()  # ``PASS_WORDS``; instance type, port, length; bytes
    PARSE_CLONE = enum.auto()  # length
    EGRESS = enum.auto()  # ``PASS_WORDS``, wait, depth behind, number of copy; instance type, port
    # Parser
    STATE = enum.auto()  # [state] position
    EXTRACT = enum.auto()  # [header] position, bits of its varbit field
    SELECT = enum.auto()  # [state * (number of states + 1) + next state + 1] position, key
    PARSER_ERROR = enum.auto()  # code
    CHECKSUMS = enum.auto()  # [correct]
    # Tables and actions
    IF = enum.auto()  # [conditional * 2 + result]
    HIT = enum.auto()  # [table] row, key
    MISS = enum.auto()  # [table] key
    ACTION = enum.auto()  # [action] arguments
    FIELD = enum.auto()  # [number among all fields] old, new
    VALID = enum.auto()  # [header * 2 + whether it is valid now]
    LOG = enum.auto()  # [number among all messages] values, each after its description
    # State
    REGISTER_READ = enum.auto()  # [register] index, value
    REGISTER_WRITE = enum.auto()  # [register] index, old, new
    COUNTER = enum.auto()  # [counter] index, packets, bytes
    DIRECT_COUNTER = enum.auto()  # [table] the same
    METER = enum.auto()  # [meter] index, color
    DIRECT_METER = enum.auto()  # [meter] index, color
    REGISTER_OUT = enum.auto()  # [register] index
    COUNTER_OUT = enum.auto()  # [counter] index
    METER_OUT = enum.auto()  # [meter] index
    # Requests of primitives
    REQUEST_CLONE = enum.auto()  # session, field list
    REQUEST_RESUBMIT = enum.auto()  # field list
    REQUEST_RECIRCULATE = enum.auto()  # field list
    REQUEST_DIGEST = enum.auto()  # learn list
    REQUEST_TRUNCATE = enum.auto()  # length
    REQUEST_DROP = enum.auto()
    REQUEST_EXIT = enum.auto()
    # What the switch does
    CLONE = enum.auto()  # session
    UNKNOWN_SESSION = enum.auto()  # session
    MULTICAST = enum.auto()  # group, copies
    UNKNOWN_GROUP = enum.auto()  # group
    REPLICA = enum.auto()  # port, replication id
    ENQUEUE = enum.auto()  # port, priority, depth, wait (-1 without times)
    QUEUE_FULL = enum.auto()  # port, priority, depth
    RESUBMIT = enum.auto()
    RECIRCULATE = enum.auto()
    DIGEST = enum.auto()  # [learn list] values
    DECIDED = enum.auto()  # ingress and its clone are done; a digest is told now
    DEPARSE = enum.auto()  # which headers, bytes of payload; bytes
    MARKED_BYTES = enum.auto()  # bytes: as the deparser's, marked for congestion
    DROP = enum.auto()  # [reason * 2 + whether in egress]
    SENT = enum.auto()  # port, length
    # What only the log in simple_switch's words tells
    EXTRACTING = enum.auto()  # [header * 2 + whether it has a varbit field]
    EXTRACTING_NEXT = enum.auto()  # [header * 2 + whether of unions] stack
    BAD_LENGTH = enum.auto()  # bits
    PARSER_SET = enum.auto()  # [number among all operations] value
    METHOD = enum.auto()  # [number among all operations]
    ADVANCE = enum.auto()  # bits, after their description
    CHECKSUM = enum.auto()  # [checksum * 2 + whether it is correct] computed, actual
    UPDATE_SKIPPED = enum.auto()  # [checksum]
    CHECKSUM_SKIPPED = enum.auto()  # [checksum * 2 + whether its header is there]
    PARSED = enum.auto()
    PIPELINE_START = enum.auto()  # [whether egress]
    PIPELINE_END = enum.auto()  # [whether egress]
    CHOSEN = enum.auto()  # [table] member, group
    PRIMITIVE = enum.auto()  # [number among all primitives]
    HASH = enum.auto()  # base, size, value
    RANDOM = enum.auto()  # low, high, value
    RANDOM_EMPTY = enum.auto()
    UNKNOWN_DIGEST = enum.auto()  # id of the learn list
    ASKED = enum.auto()  # egress port, -1 for a multicast group
    CLONED = enum.auto()
    MIRROR_GROUP = enum.auto()  # group
    MIRROR_PORT = enum.auto()  # port
    DEPARSING = enum.auto()
    UPDATING = enum.auto()  # [checksum]


def drop_site(reason: int, counted: str) -> int:
    """The site of a drop that is counted in this one of the switch's statistics."""
    return 2 * reason + (counted == "dropped_egress")


def head(kind: int, site: int) -> int:
    """The first word of a record."""
    return kind | site << _KIND_BITS


def split(word: int) -> tuple[int, int]:
    """Kind and site of a head."""
    return word & KIND_MASK, word >> _KIND_BITS


def head_text(kind: int, site: str) -> str:
    """Source of a head whose site is an expression of emitted code."""
    return f"({int(kind)} + {1 << _KIND_BITS} * ({site}))"


def field_words(field: ir.Field) -> int:
    """Words of a field's value in a record; a signed one may hold values above its range."""
    return word_count(field.width + field.signed)


def parameter_words(parameter: ir.Parameter) -> int:
    """Words of an argument in a record."""
    return word_count(parameter.bits)


def is_detail(kind: int) -> bool:
    """Whether only the log in simple_switch's words tells it."""
    return kind >= Kind.EXTRACTING


def parser_operations(program: ir.Program) -> list[tuple[int, int]]:
    """State and position of each operation of the parser, in the order of their numbers."""
    return [
        (number, position)
        for number, state in enumerate(program.parser.states)
        for position in range(len(state.operations))
    ]


def first_primitives(program: ir.Program) -> list[int]:
    """The number of each action's first primitive; last that of the deparser's."""
    return list(accumulate((len(each.primitives) for each in program.actions), initial=0))


def log_messages(program: ir.Program) -> list[ir.LogMessage]:
    """The messages of a program, in the order of their numbers."""
    bodies = (program.parser, program.actions, program.deparser)
    return [node for node in walk(bodies) if isinstance(node, ir.LogMessage)]


def flag_words(count: int) -> list[range]:
    """The flags that each word of so many flags has."""
    return [range(first, min(first + _FLAGS, count)) for first in range(0, count, _FLAGS)]


_FLAGS = 62  # in a word, which stays positive
