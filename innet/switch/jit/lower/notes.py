"""What a recording build adds to lowered statements: records of what they do.

The build for all other calls is lowered with ``SILENT``, which adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.analysis import written_fields
from innet.switch.jit.lowered import WIDTH
from innet.switch.jit.records import Kind, field_words, first_primitives

_Effect = tuple[int, int]
_FIRST: _Effect = (-1, -1)


class Notes:
    """Adds no records."""

    is_recording = False

    def note(
        self,
        kind: Kind,  # noqa: ARG002 - of RecordNotes
        site: int = 0,  # noqa: ARG002
        values: Sequence[Any] = (),  # noqa: ARG002
        words: Sequence[int] = (),  # noqa: ARG002
    ) -> lowered.Body:
        """A record of expressions ``values``, each with its number of words."""
        return ()

    def primitive(self, action: ir.Action, step: int) -> lowered.Body:  # noqa: ARG002
        """A record of a primitive that is run next."""
        return ()

    def changes(self, body: lowered.Body) -> lowered.Body:
        """``body``, followed by records of the fields and headers that it changed."""
        return body


SILENT = Notes()


class RecordNotes(Notes):
    """Adds records.

    Args:
        program: whose statements are lowered.
    """

    is_recording = True

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        sizes = (len(program.type_of(i).fields) for i in range(len(program.headers)))
        self._first = list(accumulate(sizes, initial=0))
        *firsts, self._first_of_deparser = first_primitives(program)
        self._first_primitive = {
            id(action): first for action, first in zip(program.actions, firsts, strict=True)
        }

    def note(
        self, kind: Kind, site: int = 0, values: Sequence[Any] = (), words: Sequence[int] = ()
    ) -> lowered.Body:
        """See ``Notes.note``."""
        return (lowered.Note(int(kind), ir.Const(site), tuple(values), tuple(words)),)

    def primitive(self, action: ir.Action, step: int) -> lowered.Body:
        """See ``Notes.primitive``."""
        first = self._first_primitive.get(id(action), self._first_of_deparser)
        return self.note(Kind.PRIMITIVE, first + step)

    def changes(self, body: lowered.Body) -> lowered.Body:
        """See ``Notes.changes``. Changes of validity come first, then fields in their order."""
        if self._last_effect(body, _FIRST) is not None:
            return self._told_one_by_one(body)
        fields, headers = written_fields((body,))
        fields = {self._value_of(each) for each in fields}
        before: list[lowered.Statement] = []
        after: list[lowered.Statement] = []
        for number, header in enumerate(sorted(headers)):
            keep, tell = self._validity(header, f"was_valid_{number}")
            before.append(keep)
            after.append(tell)
        for number, field in enumerate(sorted(fields, key=self._slot)):
            keep, tell = self._field(field, f"was_{number}")
            before.append(keep)
            after.append(tell)
        return (*before, *body, *after)

    def _value_of(self, field: ir.FieldRef) -> ir.FieldRef:
        """The field itself; also of the width of a varbit field."""
        if field.field != WIDTH:
            return field
        variable = self._program.type_of(field.header).variable
        assert variable is not None, "only a varbit field has a width"
        return ir.FieldRef(field.header, variable)

    def _slot(self, field: ir.FieldRef) -> int:
        return self._first[field.header] + field.field

    def _field(self, field: ir.FieldRef, name: str) -> tuple[lowered.Statement, lowered.Statement]:
        """What keeps a field's value, and what tells later that it is another one."""
        described = self._program.field(field)
        low = -(1 << (described.width - 1)) if described.signed else 0
        words = field_words(described)
        suffix = "" if words == 1 else f"_of_{words}"
        was: Any = lowered.IntVariable(name + suffix, low, (1 << described.width) - 1)
        tell = self.note(Kind.FIELD, self._slot(field), (was, field), (words, words))
        differs = ir.Compare(ir.Comparison.NE, was, field)
        return lowered.SetInteger(was, field), lowered.If(differs, tell, ())

    def _validity(self, header: int, name: str) -> tuple[lowered.Statement, lowered.Statement]:
        """The same of whether a header is valid."""
        valid = ir.Valid(ir.HeaderRef(header))
        was: Any = lowered.IntVariable(name, 0, 1)
        now = ir.BoolToData(valid)
        ways = (self.note(Kind.VALID, 2 * header + value) for value in (1, 0))
        differs = ir.Compare(ir.Comparison.NE, was, now)
        return lowered.SetInteger(was, now), lowered.If(differs, (lowered.If(valid, *ways),), ())

    # ── One by one, where the statements have the order of the records ──
    #
    # Then a value is kept only while it changes, and runs of like statements remain such runs.

    def _last_effect(self, body: Iterable[Any], last: _Effect | None) -> _Effect | None:
        """The last of the changes in ``body``; None if they are not in the order of records."""
        for statement in body:
            if last is None:
                return None
            match statement:
                case lowered.If(_, then, otherwise):
                    one, other = self._last_effect(then, last), self._last_effect(otherwise, last)
                    last = None if one is None or other is None else max(one, other)
                    continue
                case lowered.SetValid(header):
                    effect = (0, header)
                case (
                    lowered.SetInteger(ir.FieldRef() as target)
                    | lowered.LoadCell(ir.FieldRef() as target)
                    | lowered.MeterPacket(ir.FieldRef() as target)
                ):
                    effect = (1, self._slot(target))
                case lowered.SetInteger(lowered.VarbitOffset() | lowered.VarbitWidth()):
                    return None
                case lowered.While() | lowered.Blocks() | lowered.Dispatch():
                    return None
                case _:
                    continue
            if effect <= last:
                return None
            last = effect
        return last

    def _told_one_by_one(self, body: lowered.Body) -> lowered.Body:
        told: list[lowered.Statement] = []
        for statement in body:
            match statement:
                case lowered.If(condition, then, otherwise):
                    ways = self._told_one_by_one(then), self._told_one_by_one(otherwise)
                    told.append(lowered.If(condition, *ways))
                    continue
                case lowered.SetValid(header):
                    keep, tell = self._validity(header, "was_valid")
                case (
                    lowered.SetInteger(ir.FieldRef() as target)
                    | lowered.LoadCell(ir.FieldRef() as target)
                    | lowered.MeterPacket(ir.FieldRef() as target)
                ):
                    keep, tell = self._field(target, "was")
                case _:
                    told.append(statement)
                    continue
            told += [keep, statement, tell]
        return tuple(told)
