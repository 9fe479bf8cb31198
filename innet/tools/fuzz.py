"""Random packets for any program.

Packets are made by walking through the parser: headers have random bytes, except fields of
transition keys, which are set to values that match a transition. Some packets are then truncated,
extended or damaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from innet.switch import ir


class Fuzzer:
    """Makes packets for one program."""

    def __init__(self, program: ir.Program, rng: np.random.Generator) -> None:
        self.program = program
        self.rng = rng
        #: Values of table entries, so that packets hit them.
        self.known: dict[tuple[int, int], list[int]] = {}
        #: Members of parser value sets.
        self.members: list[list[int]] = [[] for _ in program.value_sets]

    def packet(self) -> bytes:
        """A packet for a random path through the parser."""
        walk = ParserWalk(self.program, self.rng, self.known, self.members)
        return walk.run() + self.rng.bytes(int(self.rng.integers(0, 20)))

    def mutate(self, packet: bytes) -> bytes:
        """``packet`` unchanged, truncated, extended or with changed bytes."""
        choice = self.rng.integers(0, 8)
        if choice == 0:
            return packet[: self.rng.integers(0, len(packet) + 1)]
        if choice == 1:
            return packet + self.rng.bytes(int(self.rng.integers(0, 100)))
        if choice == 2 and packet:
            changed = bytearray(packet)
            for _ in range(self.rng.integers(1, 4)):
                changed[self.rng.integers(len(changed))] = int(self.rng.integers(0, 256))
            return bytes(changed)
        if choice == 3 and self.rng.random() < 0.2:
            return self.rng.bytes(int(self.rng.integers(0, 2000)))
        if choice == 4 and self.rng.random() < 0.05:
            return packet + self.rng.bytes(10_000 - len(packet))
        return packet

    def packets(self, count: int, ports: int = 6) -> list[tuple[int, bytes]]:
        """``count`` packets from random ports."""
        return [
            (int(self.rng.integers(0, ports)), self.mutate(self.packet())) for _ in range(count)
        ]


# ----------------------------------------------------------------------------
# One packet: a walk through the parser.

INTERESTING = (0, 1, 2, 3, 7, 8, 15, 127, 128, 255)

Known = Mapping[tuple[int, int], Sequence[int]]
"""(header, field) to values that the program compares it with."""

_MOST_STATES = 12


def interesting_number(rng: np.random.Generator, width: int) -> int:
    """A number of ``width`` bits: small, an end of the range, or any."""
    top = (1 << width) - 1
    choice = rng.integers(0, 4)
    if choice == 0 or width == 0:
        return int(rng.choice(INTERESTING)) & top
    if choice == 1:
        return top - (int(rng.choice(INTERESTING)) & top)
    if choice == 2:
        return 1 << int(rng.integers(0, width))
    return int.from_bytes(rng.bytes((width + 7) // 8), "big") & top


@dataclass(slots=True)
class ParserWalk:
    """The bits of a packet, in the order in which the parser reads them.

    Attributes:
        bits: (value, width) of each field so far.
        offsets: index in ``bits`` of each field of a header; the last one if it is extracted twice.
        counts: extracted elements of each stack or union stack.
        ahead: (value, width) that the next lookahead should find.
        value_sets: the members of each of the parser's value sets.
    """

    program: ir.Program
    rng: np.random.Generator
    known: Known
    value_sets: Sequence[Sequence[int]] = ()
    bits: list[tuple[int, int]] = field(default_factory=list)
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    ahead: tuple[int, int] | None = None

    def run(self) -> bytes:
        """The packet, padded to bytes."""
        state = self.program.parser.initial
        for _ in range(_MOST_STATES):
            if state is None:
                break
            current = self.program.parser.states[state]
            for operation in current.operations:
                if isinstance(operation, ir.Extract):
                    self._extract(operation.target)
                elif isinstance(operation, ir.Advance):
                    self.bits.extend((interesting_number(self.rng, 8), 8) for _ in range(3))
            state = self._follow(current)
        self._flush()
        total = sum(width for _, width in self.bits)
        value = 0
        for part, width in self.bits:
            value = value << width | part
        return (value << (-total % 8)).to_bytes((total + 7) // 8, "big")

    def _flush(self) -> None:
        """Append the bits for a lookahead that no extraction has read."""
        if self.ahead is not None:
            value, width = self.ahead
            self.ahead = None
            self.bits.append((value, width))
            self.bits.append((0, -width % 8))

    def _extract(self, target: ir.HeaderRef | ir.StackNext | ir.UnionStackNext) -> None:
        header = self._next(target)
        if header is None:
            return
        begin = len(self.bits)
        for i, each in enumerate(self.program.type_of(header).fields):
            self.offsets[header, i] = len(self.bits)
            if each.variable:
                length = 8 * int(self.rng.integers(0, each.width // 8 + 1))
                self.bits.append((interesting_number(self.rng, length), length))
                continue
            known = self.known.get((header, i))
            if known and self.rng.random() < 0.7:
                value = known[int(self.rng.integers(len(known)))]
            else:
                value = interesting_number(self.rng, each.width)
            self.bits.append((value & ((1 << each.width) - 1), each.width))
        if self.ahead is not None and self.program.type_of(header).variable is None:
            self._overwrite(begin, *self.ahead)
            self.ahead = None

    def _next(self, target: ir.HeaderRef | ir.StackNext | ir.UnionStackNext) -> int | None:
        """The extracted header; None if a stack is full."""
        if isinstance(target, ir.HeaderRef):
            return target.header
        if isinstance(target, ir.StackNext):
            headers = self.program.stacks[target.stack].headers
            return self._count(("stack", target.stack), headers)
        unions = self.program.union_stacks[target.union_stack].unions
        union = self._count(("union", target.union_stack), unions)
        return None if union is None else self.program.unions[union].headers[target.position]

    def _count(self, key: tuple[str, int], elements: Sequence[int]) -> int | None:
        taken = self.counts[key]
        self.counts[key] += 1
        return elements[taken] if taken < len(elements) else None

    def _overwrite(self, begin: int, value: int, width: int) -> None:
        """Overwrite the bits from ``begin`` with ``width`` bits of ``value``."""
        for index in range(begin, len(self.bits)):
            if width <= 0:
                return
            old, size = self.bits[index]
            if size <= width:
                self.bits[index] = (value >> (width - size) & ((1 << size) - 1), size)
            else:
                rest = size - width
                self.bits[index] = (old & ((1 << rest) - 1) | value << rest, size)
            width -= size
            value &= (1 << max(width, 0)) - 1

    def _follow(self, state: ir.ParserState) -> int | None:
        if not state.key or not state.transitions or self.rng.random() < 0.2:
            return state.default
        wanted = state.transitions[self.rng.integers(len(state.transitions))]
        values, masks = wanted.values, wanted.masks
        if wanted.value_set is not None:
            values, masks = self._from_value_set(state, wanted.value_set)
        for part, value, mask in zip(state.key, values, masks, strict=True):
            if isinstance(part.source, ir.Lookahead):
                self.ahead = (value, part.width)
                continue
            index = self._index_of(part.source)
            if index is not None:
                old, width = self.bits[index]
                self.bits[index] = ((old & ~mask | value) & ((1 << width) - 1), width)
        return wanted.next

    def _index_of(
        self, source: ir.FieldRef | ir.StackLastField | ir.UnionStackLastField
    ) -> int | None:
        """The index in ``bits`` of a key's field."""
        if isinstance(source, ir.FieldRef):
            return self.offsets.get((source.header, source.field))
        if isinstance(source, ir.StackLastField):
            elements = self.program.stacks[source.stack].headers
            count = min(self.counts["stack", source.stack], len(elements))
            return self.offsets.get((elements[count - 1], source.field)) if count else None
        unions = self.program.union_stacks[source.union_stack].unions
        count = min(self.counts["union", source.union_stack], len(unions))
        if not count:
            return None
        header = self.program.unions[unions[count - 1]].headers[source.position]
        return self.offsets.get((header, source.field))

    def _from_value_set(
        self, state: ir.ParserState, value_set: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A member of a value set, split into the parts of the key; no condition if it is empty."""
        members = self.value_sets[value_set] if self.value_sets else ()
        if not members:
            return (0,) * len(state.key), (0,) * len(state.key)
        rest = members[int(self.rng.integers(len(members)))]
        values: list[int] = []
        for part in reversed(state.key):
            values.insert(0, rest & ((1 << part.width) - 1))
            rest >>= part.width
        return tuple(values), tuple((1 << part.width) - 1 for part in state.key)
