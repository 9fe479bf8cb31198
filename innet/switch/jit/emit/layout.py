"""The variables of fields and registers in emitted code.

Fields (``VariableLayout``):

* A field outside runs is a variable: int64 up to 64 bits, ``wide.Wide`` above.
* A varbit field is two int64 variables: where its bits are in ``data``, and how many (``WIDTH``).
* Fields of one width that a ``Loop`` steps through, or that lie side by side in a packet header,
  are elements of an array, so that loops over them become vector operations.
* A run of metadata fields that only one lane of one loop ever uses at a time (the temporaries that
  p4c makes for each repetition) is a variable inside that loop and takes no memory at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.engine import dtype_of
from innet.switch.ir.tree import walk
from innet.switch.jit import lowered
from innet.switch.jit.emit.arithmetic import Value, affine, truncated
from innet.switch.jit.lowered import START, WIDTH
from innet.switch.state.entries import word_count

#: Fewer equal fields of a header remain variables.
SHORTEST_RUN = 8


@dataclass(frozen=True, slots=True)
class ArrayVariable:
    """Fields ``first`` .. ``last`` of ``header``, all ``width`` bits wide."""

    name: str
    header: int
    first: int
    last: int
    width: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def item(self) -> int:
        """Bits of an element: 8, 16, 32 or 64."""
        return next(bits for bits in (8, 16, 32, 64) if self.width <= bits)

    @property
    def bytes(self) -> int:
        """Of the whole array."""
        return self.count * self.item // 8

    @property
    def dtype(self) -> str:
        """64-bit elements are signed like all integers of emitted code (see ``runtime.core``)."""
        return "int64" if self.item == 64 else f"uint{self.item}"


Run = tuple[int, int, int]
"""(header, first field, last field), both included."""


class VariableLayout:
    """The names of a packet's variables.

    Args:
        program: whose fields.
        bodies: all statements of the program, rolled.
        live: the fields that need a variable.
        passthrough: per header the runs of fields that are copied from the packet.
    """

    def __init__(
        self,
        program: ir.Program,
        bodies: Iterable[lowered.Body],
        live: set[ir.FieldRef],
        passthrough: Mapping[int, Sequence[tuple[int, int]]],
    ) -> None:
        self.program = program
        self.live = live
        self.passthrough = passthrough
        #: Signed fields that may hold values above their range (``find_overflowing_fields``).
        self.overflowing: frozenset[ir.FieldRef] = frozenset()
        everything = tuple(bodies)
        self.locals = _loop_locals(program, everything)
        self.arrays: list[ArrayVariable] = []
        self._arrays: dict[tuple[int, int], ArrayVariable] = {}
        self._names: dict[tuple[int, int], str] = {}
        taken: set[str] = set()
        for header, first, last in self._runs(everything):
            fields = program.type_of(header).fields
            stem = f"{_word(program.headers[header].name)}__{_word(fields[first].name)}"
            name = _unique(f"{stem}_to_{_word(fields[last].name)}", taken)
            array = ArrayVariable(name, header, first, last, fields[first].width)
            self.arrays.append(array)
            self._arrays.update({(header, field): array for field in range(first, last + 1)})
        for header, instance in enumerate(program.headers):
            stem = _word(instance.name)
            self._names[header, ir.VALID] = _unique(f"{stem}__valid", taken)
            self._names[header, START] = _unique(f"{stem}__start", taken)
            self._names[header, WIDTH] = _unique(f"{stem}__width", taken)
            for i, field in enumerate(program.type_of(header).fields):
                if (header, i) not in self._arrays:
                    self._names[header, i] = _unique(f"{stem}__{_word(field.name)}", taken)

    def name(self, header: int, field: int) -> str:
        """The variable of a field that is in no array.

        Also of a header's validity (``ir.VALID``), of where its first byte is (``START``) and of
        how wide its varbit field is (``WIDTH``). The variable of a varbit field itself is the
        position in ``data``, in bits, of its first bit; a negative one: all its bits are 0.
        """
        return self._names[header, field]

    def limbs(self, header: int, field: int) -> int:
        """How many 64-bit words the variable of a field takes.

        1: it is an int64, as ``START``, ``WIDTH`` and varbit fields always are (``VALID`` is a
        boolean); more: it is a ``wide.Wide(64 * limbs)``. Fields in arrays have 1.
        """
        if field < 0:
            return 1
        spec = self.program.type_of(header).fields[field]
        if spec.variable:
            return 1
        # A value above a signed field's range needs a sign of its own.
        return word_count(spec.width + (ir.FieldRef(header, field) in self.overflowing))

    def words(self, header: int, field: int) -> list[str]:
        """Sources of the int64 words of a field's variable, the most significant first."""
        name, count = self.name(header, field), self.limbs(header, field)
        if count == 1:
            return [name]
        return [f"word({name}, {64 * i})" for i in reversed(range(count))]

    def zero(self, header: int, field: int) -> str:
        """What to assign to a field's variable so that it is 0."""
        count = self.limbs(header, field)
        return "0" if count == 1 else f"wide(0, {64 * count})"

    def array(self, header: int, field: int) -> ArrayVariable | None:
        """The array that holds a field, or None."""
        return self._arrays.get((header, field))

    def local(self, lane: lowered.Lane) -> str | None:
        """The variable inside the loop that stands for ``lane``, or None."""
        return f"lane_{lane.header}_{lane.first}" if lane in self.locals else None

    def _runs(self, bodies: tuple[lowered.Body, ...]) -> list[Run]:
        """Disjoint runs of fields that become arrays."""
        program = self.program
        wanted: list[Run] = []
        for loop in (node for node in walk(bodies) if isinstance(node, lowered.Loop)):
            for lane in (node for node in walk(loop) if isinstance(node, lowered.Lane)):
                if lane not in self.locals:
                    ends = (lane.first, lane.first + lane.stride * (loop.count - 1))
                    wanted.append((lane.header, min(ends), max(ends)))
        for header, instance in enumerate(program.headers):
            if not instance.metadata:
                runs = _header_runs(header, program.type_of(header))
                wanted.extend(run for run in runs if self._is_mostly_live(run))
        return _merged(wanted)

    def _is_mostly_live(self, run: Run) -> bool:
        """Whether enough fields of a run are live for an array."""
        header, first, last = run
        count = sum(ir.FieldRef(header, field) in self.live for field in range(first, last + 1))
        return count >= SHORTEST_RUN


def _header_runs(header: int, kind: ir.HeaderType) -> list[Run]:
    """Runs of equal, whole-byte fields in a packet header."""
    runs: list[Run] = []
    start = 0
    for end in range(1, len(kind.fields) + 1):
        field = kind.fields[start]
        if end < len(kind.fields) and _shape(kind.fields[end]) == _shape(field):
            continue
        plain = not (field.signed or field.saturating or field.variable)
        whole = field.width in (8, 16, 32, 64) and field.offset % 8 == 0
        if end - start >= SHORTEST_RUN and plain and whole:
            runs.append((header, start, end - 1))
        start = end
    return runs


def _shape(field: ir.Field) -> tuple[int, bool, bool, bool]:
    return (field.width, field.signed, field.saturating, field.variable)


def _merged(runs: Iterable[Run]) -> list[Run]:
    """Merge overlapping runs."""
    merged: list[Run] = []
    for header, first, last in sorted(set(runs)):
        if merged and merged[-1][0] == header and first <= merged[-1][2]:
            merged[-1] = (header, merged[-1][1], max(last, merged[-1][2]))
        else:
            merged.append((header, first, last))
    return merged


def _word(name: str) -> str:
    """A part of a Python name."""
    return re.sub(r"\W+", "_", name).strip("_") or "field"


def _unique(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


# ── Temporaries of one loop ──────────────────────────────────────────────────────────────────────


def _loop_locals(program: ir.Program, bodies: tuple[lowered.Body, ...]) -> frozenset[lowered.Lane]:
    """Lanes of metadata whose fields nothing but one loop uses, written there before they are read.

    Then no value passes from one repetition, packet or statement to another through them. A
    register read out of bounds writes nothing and leaves the 0 that metadata starts with, which the
    emitted variable starts with as well. Inside a loop of the program it would leave what the last
    time round wrote, so such lanes are left out.
    """
    # How often each field is used: by name, by the switch itself, as a lane of a loop.
    uses = Counter(node for node in walk(bodies) if isinstance(node, ir.FieldRef))
    uses.update(_implicit_uses(program))
    loops = [node for node in walk(bodies) if isinstance(node, lowered.Loop)]
    repeated = {
        id(inner)
        for outer in walk(bodies)
        if isinstance(outer, lowered.While | lowered.Blocks)
        for inner in walk(outer)
        if isinstance(inner, lowered.Loop)
    }
    lanes: list[tuple[lowered.Lane, lowered.Loop]] = []
    for loop in loops:
        for lane in {node for node in walk(loop) if isinstance(node, lowered.Lane)}:
            lanes.append((lane, loop))
            uses.update(lane.fields(loop.count))
    return frozenset(
        lane
        for lane, loop in lanes
        if program.headers[lane.header].metadata
        and id(loop) not in repeated
        and all(uses[field] == 1 for field in lane.fields(loop.count))
        and _written_first(lane, loop.body)
    )


def _implicit_uses(program: ir.Program) -> list[ir.FieldRef]:
    """Fields that the switch itself, keys, checksums and field lists use."""
    standard = program.standard
    holders = (standard, program.tables, program.hashes, program.field_lists)
    more = (program.learn_lists, program.checksums, program.meters)
    return [node for node in walk((holders, more)) if isinstance(node, ir.FieldRef)]


def _written_first(lane: lowered.Lane, body: lowered.Body) -> bool:
    """Whether the first statement that mentions ``lane`` writes it without reading it."""
    for statement in body:
        if not any(node == lane for node in walk(statement)):
            continue
        match statement:
            case lowered.SetInteger(target, value):
                return target == lane and not any(node == lane for node in walk(value))
            case lowered.LoadCell(target, _, _, index):
                return target == lane and not any(node == lane for node in walk(index))
            case _:
                return False
    return False


# ── Registers ────────────────────────────────────────────────────────────────────────────────────


class RegisterLayout:
    """The source of access to cells of register arrays.

    Arrays of one size and width are columns of one flat array, ``r<group>``, so that a run of
    registers with one index is a run of memory.

    Args:
        program: whose registers.
        groups: ``RegisterGroup.registers`` of every group.
    """

    def __init__(self, program: ir.Program, groups: tuple[tuple[int, ...], ...]) -> None:
        self.program = program
        self._columns = {
            register: (group, len(registers), column)
            for group, registers in enumerate(groups)
            for column, register in enumerate(registers)
        }

    def read(self, register: int, stride: int, index: str) -> Value:
        """The value of a cell whose index is in bounds; in a ``Loop`` columns advance by
        ``stride``.
        """
        width = self.program.registers[register].width

        def at(bits: int) -> str:
            element = self._array_and_index(register, stride, index, word_count(width) - bits // 64)
            return f"get({element})" if bits == 64 else f"get_words({element}, {bits // 64})"

        return Value(at(64), 0, self.highest(register), at)

    def highest(self, register: int) -> int:
        """The greatest number that the memory of a cell holds: whoever writes to
        ``Switch.registers`` may leave more in it than the register's width.
        """
        width = self.program.registers[register].width
        bits = 8 * dtype_of(width).itemsize * word_count(width)
        return (1 << bits) - 1

    def write(self, register: int, stride: int, index: str, value: Value) -> str:
        """The statement that gives a cell ``value``."""
        width = self.program.registers[register].width
        text = value.text if width in (8, 16, 32, 64) else truncated(value, width)
        name = "put" if width <= 64 else "put_words"
        return f"{name}({self._array_and_index(register, stride, index, 0)}, {text})"

    def _array_and_index(self, register: int, stride: int, index: str, word: int) -> str:
        """The array, and the index in it, of word ``word`` of a cell."""
        group, columns, column = self._columns[register]
        element = index if columns == 1 else f"{index} * {columns}"
        if column:
            element += f" + {column}"
        if stride:
            element += f" + {affine(0, stride)}"
        words = word_count(self.program.registers[register].width)
        if words > 1:
            element = f"({element}) * {words} + {word}"
        return f"r{group}, {element}"
