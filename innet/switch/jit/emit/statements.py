"""Lowered statements as Python source.

``Statements`` writes bodies; ``expressions`` gives the source of what they compute, ``headers``,
``lookups`` and ``hashes`` write what takes more than a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from innet.core.errors import UnsupportedError
from innet.switch import ir
from innet.switch.ir.tree import rebuild, walk
from innet.switch.jit import lowered
from innet.switch.jit.emit import arithmetic
from innet.switch.jit.emit.expressions import Expressions, Value, affine, literal, truncated
from innet.switch.jit.emit.headers import emit_extract_varbit, emit_loads
from innet.switch.jit.emit.layout import VariableLayout
from innet.switch.jit.emit.lookups import emit_lookup
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.lower.actions import EXITED, FAILED, JUMPS, may_fail
from innet.switch.jit.records import FAILED_ASSERTION, Kind, drop_site
from innet.switch.jit.traits import STATISTICS
from innet.switch.state.entries import word_count

#: More bytes than any packet has, and few enough that arithmetic with it does not overflow.
_HUGE = 1 << 62


class Statements:
    """Writes the bodies of a lowered program."""

    def __init__(self, writer: Writer, layout: VariableLayout, expressions: Expressions) -> None:
        self.writer = writer
        self.layout = layout
        self.expressions = expressions
        self.program = layout.program
        self.live = layout.live
        self.block_variables: list[str] = []

    def body(self, body: lowered.Body) -> None:
        for statement in body:
            self.statement(statement)

    def region(self, body: lowered.Body) -> None:
        """A body that ``Stop`` and parser errors leave."""
        leaves = (
            lowered.Stop,
            lowered.ParserError,
            lowered.RequireBytes,
            lowered.ExtractHeader,
            lowered.ExtractVarbit,
        )
        # A loop that runs once is what ``break`` leaves; blocks are a loop already.
        blocks = len(body) == 1 and isinstance(body[0], lowered.Blocks)
        if may_fail(body):
            self.writer.line(f"{FAILED} = False")
        if blocks or not any(isinstance(node, leaves) for node in walk(body)):
            self.body(body)
            return
        with self.writer.block("while True:"):
            self.body(body)
            self.writer.line("break")

    def pipeline(self, body: lowered.Body) -> None:
        """Ingress or egress, which ``exit`` leaves."""
        if any(
            isinstance(node, lowered.BoolVariable) and node.name == EXITED for node in walk(body)
        ):
            self.writer.line(f"{EXITED} = False")
        self.region(body)

    def drop_failed(self, body: lowered.Body, dropped: str) -> None:
        """After a region: a packet for which an assertion was false goes no further."""
        if may_fail(body):
            with self.writer.block(f"if {FAILED}:"):
                self.count("failed_assertions")
                self.count(dropped)
                self.writer.note(Kind.DROP, drop_site(FAILED_ASSERTION, dropped))
                self.writer.line("continue")

    def count(self, name: str, by: str = "1") -> None:
        """Add to one of the switch's statistics."""
        self.writer.line(f"statistics[{STATISTICS[name]}] += {by}")

    def set_field(self, reference: ir.FieldRef | None, text: str, low: int, high: int) -> None:
        """The switch itself writes ``text``, of range low .. high, if the program has the field."""
        if reference is not None:
            self.statement(lowered.SetInteger(reference, lowered.IntVariable(text, low, high)))

    def statement(self, statement: Any) -> None:  # noqa: PLR0912 - one branch per statement
        line = self.writer.line
        match statement:
            case lowered.SetInteger(target, value):
                if self._is_live(target):
                    self._store(target, self.expressions.data(value))
            case lowered.SetValid(header, value):
                name = self.layout.name(header, ir.VALID)
                line(f"{name} = {self.expressions.condition(value)}")
            case lowered.SetBool(name, value):
                line(f"{name} = {self.expressions.condition(value)}")
            case lowered.LoadCell() | lowered.StoreCell():
                self._register(statement)
            case lowered.CountPacket(counter, index):
                self._count(counter, self.expressions.data(index))
            case lowered.DrawRandom(target, low, high):
                least, most = (self.expressions.data(bound).text for bound in (low, high))
                # int64(): otherwise Numba compiles the callee again for each literal.
                line(f"{target.name} = uniform(random_state, int64({least}), int64({most}))")
            case lowered.MeterPacket(target, meter, index):
                kind = Kind.METER
                if isinstance(index, lowered.EntryIndex):
                    kind = Kind.DIRECT_METER
                self._execute_meter(target, meter, self.expressions.data(index), kind)
            case lowered.If():
                self._if(statement)
            case lowered.Loop():
                self._loop(statement)
            case lowered.While(body):
                with self.writer.block("while True:"):
                    self.body(body)
            case lowered.Leave():
                line("break")
            case lowered.JumpBack(site):
                line(f"{JUMPS.name} = count_jump({JUMPS.name}, {site})")
            case lowered.Lookup(table):
                emit_lookup(self.writer, self.expressions, table)
            case lowered.Dispatch(table, bodies):
                self._dispatch(table, bodies)
            case lowered.Blocks(first, blocks):
                self._blocks(first, blocks)
            case lowered.Goto(block):
                line(f"{self.block_variables[-1]} = {block}")
            case lowered.Stop():
                line("break")
            case lowered.Note():
                self._record(statement)
            case _:
                self._parser_statement(statement)

    # ── Parser ──

    def _parser_statement(self, statement: Any) -> None:
        line = self.writer.line
        match statement:
            case lowered.ExtractHeader(header, checked):
                size = self.program.type_of(header).width // 8
                line(f"# {self.program.headers[header].name}")
                if not checked:
                    self._require(str(size))
                emit_loads(self.writer, self.expressions, header)
                line(f"{self.layout.name(header, ir.VALID)} = True")
                line(f"at += {size}")
                self.writer.note(Kind.EXTRACT, header, f"at - {size}", "0")
            case lowered.ExtractVarbit():
                emit_extract_varbit(self.writer, self.expressions, statement)
            case lowered.RequireBytes(size):
                self._require(self._bytes(self.expressions.data(size)))
            case lowered.SkipBytes(size):
                line(f"at += {self.expressions.data(size).text}")
            case lowered.ParserError(code):
                self._fail(self.expressions.data(code).text)
            case _:
                raise AssertionError(f"{type(statement).__name__} has no source")

    def _require(self, size: str) -> None:
        with self.writer.block(f"if size - at < {size}:"):
            self._fail(str(self.program.errors["PacketTooShort"]))

    def _bytes(self, value: Value) -> str:
        """A number of bytes; a negative one is more than there are."""
        if value.low >= 0 and value.fits_int64:
            return value.text
        limited = arithmetic.cast(ir.DataOperator.SAT_CAST, value, 63)
        name = self._named(limited.text, "bytes")
        return f"({name} if {name} >= 0 else {_HUGE})"

    def _fail(self, code: str) -> None:
        self.writer.line(f"parser_error = {code}")
        self.writer.line("break")

    # ── Fields and registers ──

    def _is_live(self, target: Any) -> bool:
        if isinstance(target, ir.FieldRef):
            in_array = self.layout.array(target.header, target.field) is not None
            return in_array or target in self.live
        return True

    def _store(self, target: Any, value: Value) -> None:
        line = self.writer.line
        match target:
            case lowered.VarbitOffset() | lowered.VarbitWidth():
                line(f"{self.expressions.data(target).text} = {value.text}")
            case lowered.IntVariable(name, low, high):
                line(f"{name} = {value.at(Value(name, low, high).bits)}")
            case lowered.Lane(header, first, _):
                width = self.program.type_of(header).fields[first].width
                local = self.layout.local(target)
                if local is not None:
                    line(f"{local} = {truncated(value, width)}")
                else:
                    text = self._element_text(value, width)
                    line(f"{self.expressions.lane_element(target)} = {text}")
            case ir.FieldRef(header, field):
                if self.program.field(target).variable:
                    raise UnsupportedError(
                        f"writing a number to the varbit field {self.program.name_of(target)}"
                    )
                array = self.layout.array(header, field)
                if array is None:
                    name = self.layout.name(header, field)
                    line(f"{name} = {self.expressions.fit_to_field(target, value)}")
                else:
                    text = self._element_text(value, array.width)
                    line(f"{array.name}[{field - array.first}] = {text}")
            case _:
                raise AssertionError(f"{type(target).__name__} cannot be written")

    def _element_text(self, value: Value, width: int) -> str:
        """What to write to an array element, which itself cuts off what does not fit."""
        return value.text if width in (8, 16, 32, 64) else truncated(value, width)

    def _register(self, statement: Any) -> None:
        registers = self.expressions.registers
        register, stride = statement.register, statement.stride
        index = self.expressions.data(statement.index)
        if isinstance(statement, lowered.LoadCell) and not self._is_live(statement.target):
            return
        outside = (Kind.REGISTER_OUT, affine(register, stride) if stride else register)
        with self._in_bounds(index, self.program.registers[register].size, outside) as cell:
            if isinstance(statement, lowered.LoadCell):
                read = registers.read(register, stride, cell)
                self._store(statement.target, read)
                if self.writer.recording:
                    self._note_register(statement, cell, read)
            else:
                value = self.expressions.data(statement.value)
                before = registers.read(register, stride, cell)
                was = self._kept(before) if self.writer.recording else before
                self.writer.line(registers.write(register, stride, cell, value))
                if self.writer.recording:
                    self._note_register(statement, cell, was, before)

    # ── Records ──

    def _record(self, record: lowered.Note) -> None:
        site = self.expressions.data(record.site)
        place: int | str = site.low if site.is_constant else site.text
        words: list[str] = []
        values = [self.expressions.data(each) for each in record.values]
        if record.words:
            for value, count in zip(values, record.words, strict=True):
                words += self._words(value, count)
        else:
            for value in values:
                count = value.bits // 64
                words += [str(2 * count + (value.low < 0)), *self._words(value, count)]
        self.writer.note(record.kind, place, *words)

    def _words(self, value: Value, count: int) -> list[str]:
        """Sources of ``count`` words of a value, the most significant first."""
        if count == 1:
            return [value.text]
        name = self.writer.fresh(f"noted_{count}")
        self.writer.line(f"{name} = {value.at(64 * count)}")
        return [f"word({name}, {64 * i})" for i in reversed(range(count))]

    def _kept(self, value: Value) -> Value:
        """A variable with a value as it is now."""
        name = self.writer.fresh(f"cell_was_{value.bits}")
        self.writer.line(f"{name} = {value.at(value.bits)}")
        return arithmetic.variable(name, value.low, value.high)

    def _note_register(
        self, statement: lowered.LoadCell | lowered.StoreCell, cell: str, *values: Value
    ) -> None:
        register = statement.register
        count = word_count(self.program.registers[register].width)
        words = [each for value in values for each in self._words(value, count)]
        kind = Kind.REGISTER_READ if isinstance(statement, lowered.LoadCell) else None
        place = affine(register, statement.stride) if statement.stride else register
        self.writer.note(kind or Kind.REGISTER_WRITE, place, cell, *words)

    @contextmanager
    def _in_bounds(self, index: Value, size: int, outside: tuple[Kind, int | str]) -> Iterator[str]:
        """A block for an access that does nothing out of bounds; yields the source of the index.

        There is no check where the range of ``index`` says that it is in bounds. ``outside``: kind
        and site of the record of an index that is not.
        """
        if index.low >= 0 and index.high < size:
            yield index.text
            return
        name = self._named(index.text, "index")
        with self.writer.block(f"if {_inside(name, index, size)}:"):
            yield name
        if self.writer.recording:
            with self.writer.block("else:"):
                self.writer.note(*outside, name)

    def _named(self, text: str, stem: str) -> str:
        """A variable that holds ``text``, which is a variable itself where it can be."""
        if text.isidentifier():
            return text
        name = self.writer.fresh(stem)
        self.writer.line(f"{name} = {text}")
        return name

    def _count(self, counter: int, index: Value) -> None:
        outside = (Kind.COUNTER_OUT, counter)
        with self._in_bounds(index, self.program.counters[counter].size, outside) as cell:
            name = self._named(cell, "index")
            self.writer.line(f"bump(c{counter}, {name} * 2, 1)")
            self.writer.line(f"bump(c{counter}, {name} * 2 + 1, {self.expressions.length})")
            cells = (f"get(c{counter}, {name} * 2{more})" for more in ("", " + 1"))
            self.writer.note(Kind.COUNTER, counter, name, *cells)

    def _execute_meter(self, target: Any, meter: int, index: Value, kind: Kind) -> None:
        array = self.program.meters[meter]
        amount = self.expressions.length if array.bytes else "1"
        with self._in_bounds(index, array.size, (Kind.METER_OUT, meter)) as cell:
            color = self.writer.fresh("color")
            arrays = f"m{meter}_rates, m{meter}_cells"
            call = f"execute_meter({arrays}, {array.rates}, {cell}, {amount}, clock)"
            self.writer.line(f"{color} = {call}")
            self.writer.note(kind, meter, cell, color)
            if self._is_live(target):
                self._store(target, Value(color, 0, array.rates))

    # ── Control flow ──

    def _if(self, statement: lowered.If, word: str = "if") -> None:
        condition = self.expressions.condition(statement.condition)
        then, otherwise = statement.then, statement.otherwise
        if not then and not otherwise:
            return
        if not then:
            condition, then, otherwise = f"not {condition}", otherwise, ()
        with self.writer.block(f"{word} {condition}:"):
            self.body(then)
        if len(otherwise) == 1 and isinstance(otherwise[0], lowered.If):
            following = otherwise[0]
            # A hash is computed in lines of its own, which cannot stand before an elif.
            if not any(isinstance(node, lowered.HashValue) for node in walk(following.condition)):
                self._if(following, "elif")
                return
        if otherwise:
            with self.writer.block("else:"):
                self.body(otherwise)

    def _dispatch(self, table: int, bodies: tuple[lowered.Body, ...]) -> None:
        self.writer.line(f"t{table}_action = get(t{table}_actions, t{table}_row)")
        word = "if"
        for position, body in enumerate(bodies):
            if body:
                action = self.program.actions[self.program.tables[table].actions[position]]
                head = f"{word} t{table}_action == {position}:  # {_comment(action.name)}"
                with self.writer.block(head):
                    self.body(body)
                word = "elif"

    def _blocks(self, first: int, blocks: tuple[tuple[int, lowered.Body], ...]) -> None:
        variable = self.writer.fresh("block")
        self.block_variables.append(variable)
        self.writer.line(f"{variable} = {first}")
        with self.writer.block(f"while {variable} >= 0:"):
            word = "if"
            for number, body in blocks:
                with self.writer.block(f"{word} {variable} == {number}:"):
                    self.body(body)
                word = "elif"
        self.block_variables.pop()

    # ── Loops ──

    def _loop(self, loop: lowered.Loop) -> None:
        """A run. Where all register accesses share one index, it is checked once, before."""
        shared = self._shared_index(loop)
        if shared is None or self.writer.recording:  # an index out of bounds is told each time
            self._plain_loop(loop)
            return
        node, size = shared
        index = self.expressions.data(node)
        if index.low >= 0 and index.high < size:
            self._plain_loop(loop)
            return
        # In bounds the whole loop; out of bounds what is left of it without registers.
        name = self._named(index.text, "index")
        inside = lowered.IntVariable(name, 0, size - 1)
        with self.writer.block(f"if {_inside(name, index, size)}:"):
            self._plain_loop(rebuild(loop, lambda part: _with_index(part, inside)))
        rest = rebuild(loop, _without_registers)
        if rest.body:
            with self.writer.block("else:"):
                self._plain_loop(rest)

    def _plain_loop(self, loop: lowered.Loop) -> None:
        with self.writer.lanes(loop.count):
            lanes = {node for node in walk(loop) if isinstance(node, lowered.Lane)}
            # Variables inside the loop start at 0, as the metadata that they stand for.
            names = sorted(filter(None, map(self.layout.local, lanes)))
            for name in names:
                self.writer.line(f"{name} = 0")
            self.expressions.in_loop = True
            self.expressions.carried = frozenset(
                node.target
                for node in walk(loop)
                if isinstance(node, lowered.SetInteger)
                and isinstance(node.target, ir.FieldRef)
                and node.target in walk(node.value)
            )
            self.body(loop.body)
            self.expressions.in_loop, self.expressions.carried = False, frozenset()

    def _shared_index(self, loop: lowered.Loop) -> tuple[Any, int] | None:
        """(index, size) when every register access of a loop uses them and nothing changes it."""
        accesses = [
            node for node in walk(loop) if isinstance(node, lowered.LoadCell | lowered.StoreCell)
        ]
        shared = {(node.index, self.program.registers[node.register].size) for node in accesses}
        if len(shared) != 1:
            return None
        index, size = shared.pop()
        # What differs from one repetition to the next, or is not a plain variable.
        varying = (
            lowered.Lane,
            lowered.Affine,
            lowered.HashValue,
            lowered.Peek,
            ir.RegisterElement,
        )
        if any(isinstance(node, varying) for node in walk(index)):
            return None
        # What the loop writes: an index that depends on it changes on the way.
        written = {
            node.target
            for node in walk(loop)
            if isinstance(node, lowered.SetInteger | lowered.LoadCell)
        }
        arrays = {
            self.layout.array(lane.header, lane.first)
            for lane in written
            if isinstance(lane, lowered.Lane)
        }
        for node in walk(index):
            if node in written:
                return None
            if isinstance(node, ir.FieldRef):
                array = self.layout.array(node.header, node.field)
                if array is not None and array in arrays:
                    return None
        return index, size


def _with_index(node: Any, index: lowered.IntVariable) -> Any:
    if isinstance(node, lowered.LoadCell):
        return lowered.LoadCell(node.target, node.register, node.stride, index)
    if isinstance(node, lowered.StoreCell):
        return lowered.StoreCell(node.register, node.stride, index, node.value)
    return node


def _without_registers(node: Any) -> Any:
    """The rest of a loop when its index is out of bounds, where registers do nothing."""

    def kept(body: lowered.Body) -> lowered.Body:
        return tuple(
            part for part in body if not isinstance(part, lowered.LoadCell | lowered.StoreCell)
        )

    match node:
        case lowered.Loop(count, body):
            return lowered.Loop(count, kept(body))
        case lowered.If(condition, then, otherwise):
            return lowered.If(condition, kept(then), kept(otherwise))
        case lowered.Dispatch(table, bodies):
            return lowered.Dispatch(table, tuple(map(kept, bodies)))
        case _:
            return node


def _inside(name: str, index: Value, size: int) -> str:
    """The bounds check of ``name``, a variable or literal with the range of ``index``."""
    if index.low >= 0 and index.high <= (1 << 63) - 1:
        return f"{name} < {literal(size)}"
    return f"0 <= {name} < {literal(size)}"


def _comment(text: str) -> str:
    return text.replace("\n", " ")
