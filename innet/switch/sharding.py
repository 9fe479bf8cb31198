"""Which packets of a program may run at the same time on several processors.

Packets share a program's registers. Two of them may run side by side if no cell that the program
writes is reached by both. ``sharding_of`` looks for bits of a packet's header field that stand, as
they are and at the same places, in each index by which a written register is reached. Packets that
differ in those bits never share a cell; so whoever runs all packets with equal bits, in order, runs
the program as one processor would.

The bits of each index are followed through the pipeline: each is 0, 1, a bit of the packet as it
came, an argument of an entry, or unknown. Conditions are followed where they compare with numbers.
An OR of a packet's bit and an entry's is the packet's bit where the entry's is 0, so that the
answer depends on entries: ``Sharding.broken_by`` looks at those that are there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from innet.switch import ir
from innet.switch.engine import SwitchState, backward_jumps
from innet.switch.ir.tree import walk
from innet.switch.jit.traits import constant_action, needs_queue, uses_digests, uses_random

_BITS = 64  # of a value that are followed
_MOST_WAYS = 512  # in which a step of the pipeline is reached, with other bits each


class EntryBit(NamedTuple):
    """A bit, from the lowest on, of an argument of the entries that name an action."""

    action: int
    parameter: int
    bit: int


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a program's packets may be spread.

    Attributes:
        reason: why they may not, as the end of a sentence; empty if they may.
        field: whose bits tell packets apart that share nothing; None if no packets share anything.
        bits: of the field, from the lowest on, which do so.
        zeros: for each of ``bits``, the bits of entries that have to be 0.
    """

    reason: str = ""
    field: ir.FieldRef | None = None
    bits: tuple[int, ...] = ()
    zeros: tuple[frozenset[EntryBit], ...] = ()

    def broken_by(self, state: SwitchState, mask: int) -> str | None:
        """The table with an entry that lets packets share cells which differ in the bits of
        ``mask`` of the field; None if there is none.
        """
        wanted: dict[int, dict[int, int]] = {}
        for bit, zeros in zip(self.bits, self.zeros, strict=True):
            for each in zeros if mask >> bit & 1 else ():
                of_action = wanted.setdefault(each.action, {})
                of_action[each.parameter] = of_action.get(each.parameter, 0) | 1 << each.bit
        for table in state.tables:
            if not wanted.keys() & set(table.table.actions):
                continue
            for target in (table.default, *(entry.action for entry in table)):
                if isinstance(target, ir.ActionEntry):
                    masks = wanted.get(target.action, {})
                    if any(target.arguments[i] & bits for i, bits in masks.items()):
                        return table.table.name
        return None


def sharding_of(program: ir.Program) -> Sharding:
    """How a program's packets may be spread over processors."""
    if reason := next(_obstacles(program), ""):
        return Sharding(reason)
    walker = _Walker(program)
    try:
        walker.run()
    except _LostError as error:
        return Sharding(str(error))
    return _key(program, walker)


def _obstacles(program: ir.Program) -> Iterator[str]:
    """What packets share besides registers and counters, or what needs Python between packets."""
    if program.externs:
        yield f"the extern {program.externs[0]} has a state of its own"
    if program.meters:
        yield f"all packets of a cell share meter {program.meters[0].name}"
    if uses_random(program):
        yield "random() draws one number after the other"
    if uses_digests(program):
        yield f"digests such as {program.learn_lists[0].name} leave in the order of packets"
    if needs_queue(program):
        yield "packets are cloned, resubmitted or recirculated, and so meet others in a queue"
    for table in program.tables:
        if table.support_timeout:
            yield f"the entries of table {table.name} age by their last packet"
    for calculation in program.hashes:
        if calculation.algorithm.startswith("round_robin"):
            yield f"{calculation.name} chooses in turns ({calculation.algorithm})"
    for action, _ in backward_jumps(program):
        yield f"the loop in {action} may have no end, which Python has to tell"
    early = (program.parser.states, program.checksums, program.deparser)
    for node in walk(early):
        if isinstance(node, ir.RegisterElement | ir.RegisterRead | ir.RegisterWrite):
            yield f"register {program.registers[node.register].name} is used beside the pipeline"


def _key(program: ir.Program, walker: _Walker) -> Sharding:
    """The field whose bits are in every index, with most of them."""
    common: dict[tuple[ir.FieldRef, int], frozenset[EntryBit]] | None = None
    before = ""
    for register in sorted(walker.written):
        name = program.registers[register].name
        indices = [index for index, reached in walker.accesses.items() if register in reached]
        if not indices:  # in no action that runs
            continue
        # A bit of the packet counts where it stands at one place in all indices of the register.
        found: dict[tuple[ir.FieldRef, int], frozenset[EntryBit]] = {}
        for place in range(_BITS):
            there = {each.bits[place] for each in indices}
            of_packet = [each for each in there if isinstance(each, PacketBit)]
            names = {(each.field, each.bit) for each in of_packet}
            if len(of_packet) == len(there) and len(names) == 1:
                found[names.pop()] = frozenset().union(*(each.zeros for each in of_packet))
        if not found:
            return Sharding(f"the index of register {name} is no field of the packet")
        if common is None:
            common, before = found, name
            continue
        common = {each: zeros | found[each] for each, zeros in common.items() if each in found}
        if not common:
            return Sharding(f"registers {before} and {name} are indexed by different fields")
    if common is None:
        return Sharding()
    fields = [field for field, _ in common]
    field = max(fields, key=lambda each: (fields.count(each), -each.header, -each.field))
    bits = sorted(bit for each, bit in common if each == field)
    return Sharding("", field, tuple(bits), tuple(common[field, bit] for bit in bits))


# ── The bits of values ───────────────────────────────────────────────────────────────────────────


class PacketBit(NamedTuple):
    """Bit ``bit`` of a field of the packet as it came, if the bits ``zeros`` of entries are 0."""

    field: ir.FieldRef
    bit: int
    zeros: frozenset[EntryBit] = frozenset()


_Bit: TypeAlias = int | PacketBit | EntryBit | None


class _Value(NamedTuple):
    """The lowest bits of a number, and whether all others are 0."""

    bits: tuple[_Bit, ...]
    is_short: bool

    def number(self) -> int | None:
        """The number, if all of it is known."""
        if not self.is_short or any(each not in (0, 1) for each in self.bits):
            return None
        return sum(cast("int", each) << place for place, each in enumerate(self.bits))

    def cut(self, width: int) -> _Value:
        """What an unsigned field of ``width`` bits keeps of it."""
        kept = self.bits[:width]
        return _Value(kept + (0,) * (_BITS - len(kept)), width <= _BITS or self.is_short)


_UNKNOWN = _Value((None,) * _BITS, False)
_ZERO = _Value((0,) * _BITS, True)


def _constant(number: int) -> _Value:
    return _Value(tuple(number >> i & 1 for i in range(_BITS)), 0 <= number < 1 << _BITS)


def _both(left: _Bit, right: _Bit) -> _Bit:
    """AND."""
    if 0 in (left, right):
        return 0
    if 1 in (left, right):
        return right if left == 1 else left
    return left if left == right else None


def _either(left: _Bit, right: _Bit) -> _Bit:
    """OR; XOR is the same where one side is 0."""
    if 0 in (left, right):
        return right if left == 0 else left
    if 1 in (left, right):
        return 1
    for packet, entry in ((left, right), (right, left)):
        if isinstance(packet, PacketBit) and isinstance(entry, EntryBit):
            return PacketBit(packet.field, packet.bit, packet.zeros | {entry})
    return left if left == right else None


def _binary(kind: ir.DataOperator, left: _Value, right: _Value) -> _Value:  # noqa: PLR0911
    pairs = list(zip(left.bits, right.bits, strict=True))
    short = left.is_short and right.is_short
    amount = right.number()
    match kind:
        case ir.DataOperator.AND:
            return _Value(tuple(_both(*each) for each in pairs), left.is_short or right.is_short)
        case ir.DataOperator.OR:
            return _Value(tuple(_either(*each) for each in pairs), short)
        case ir.DataOperator.XOR:
            bits = tuple(_either(*each) if 0 in each else None for each in pairs)
            return _Value(bits, short)
        case ir.DataOperator.ADD:
            # Without carries as long as one side has 0; after the first carry all is unknown.
            clear = next((i for i, each in enumerate(pairs) if 0 not in each), _BITS)
            bits = tuple(_either(*each) for each in pairs[:clear])
            return _Value(bits + (None,) * (_BITS - clear), short and clear == _BITS)
        case ir.DataOperator.MUL if amount is not None and amount.bit_count() == 1:
            return _shifted(left, amount.bit_length() - 1)
        case ir.DataOperator.SHIFT_LEFT if amount is not None:
            return _shifted(left, amount)
        case ir.DataOperator.SHIFT_RIGHT if amount is not None and amount < _BITS:
            above: _Bit = 0 if left.is_short else None
            return _Value(left.bits[amount:] + (above,) * amount, left.is_short)
        case ir.DataOperator.MOD if amount is not None and amount.bit_count() == 1:
            return left.cut(amount.bit_length() - 1) if left.is_short else _UNKNOWN
        case _:
            return _UNKNOWN


def _shifted(value: _Value, amount: int) -> _Value:
    amount = min(amount, _BITS)
    lost = value.bits[_BITS - amount :]
    bits = (0,) * amount + value.bits[: _BITS - amount]
    return _Value(bits, value.is_short and all(each == 0 for each in lost))


# ── The ways through the pipeline ────────────────────────────────────────────────────────────────

_State: TypeAlias = tuple[_Value, ...]
"""A value for each field that is followed."""


class _Stretch(NamedTuple):
    """Some primitives of an action, ``begin`` to ``end``.

    Attributes:
        accesses: the registers that are reached, by the index.
        last: the last of them.
    """

    begin: int
    end: int
    accesses: dict[ir.DataExpression, set[int]]
    last: ir.Primitive


class _LostError(Exception):
    """There are too many ways; the message ends a sentence."""


class _Walker:
    """Goes all ways through ingress and egress.

    Attributes:
        accesses: by index, the registers that are reached by it.
        written: the registers that the program writes.
    """

    def __init__(self, program: ir.Program) -> None:
        self.accesses: dict[_Value, set[int]] = {}
        self.written = {
            register
            for action in program.actions
            for primitive in action.primitives
            for register in _written_by(primitive)
        }
        self._program = program
        self._unsure = {
            target
            for state in program.parser.states
            for operation in state.operations
            for target in _targets(operation)
        }
        self._place = {field: i for i, field in enumerate(self._followed())}
        self._parameters: dict[int, list[_Value]] = {}
        self._stretches: dict[int, list[_Stretch]] = {}

    def run(self) -> None:
        """Find all accesses.

        Raises:
            _LostError: there are too many ways.
        """
        states = {tuple(self._initial(field) for field in self._place)}
        for pipeline in (self._program.ingress, self._program.egress):
            states = self._through(pipeline, states)
            states = {self._without_standard(state) for state in states}

    def _through(self, pipeline: ir.Pipeline, states: set[_State]) -> set[_State]:
        """The states at the end of a pipeline."""
        ends: set[_State] = set()
        at: dict[ir.Node | None, set[_State]] = {pipeline.initial: states}
        for node in self._in_order(pipeline.initial):
            for state in at.pop(node, set()):
                for following, after in self._step(self._program.step(node), state):
                    there = ends if following is None else at.setdefault(following, set())
                    there.add(after)
                    if len(there) > _MOST_WAYS:
                        name = self._program.step(node).name
                        raise _LostError(f"there are too many ways through it, first at {name}")
        return ends | at.get(None, set())

    def _in_order(self, initial: ir.Node | None) -> list[ir.Node]:
        """The nodes of a pipeline, each before those that follow it."""
        done: dict[ir.Node, None] = {}
        pending = [] if initial is None else [(initial, False)]
        while pending:
            node, is_left = pending.pop()
            if is_left:
                done.setdefault(node)
            elif node not in done:
                pending.append((node, True))
                following = self._program.step(node).successors
                pending += [(each, False) for each in following if each is not None]
        return list(reversed(done))

    def _step(
        self, step: ir.Table | ir.Conditional | ir.ActionCall, state: _State
    ) -> Iterator[tuple[ir.Node | None, _State]]:
        if isinstance(step, ir.Conditional):
            for index, registers in _accesses(step.condition).items():
                self._note(index, registers, state, ())
            for truth, following in ((True, step.if_true), (False, step.if_false)):
                after = self._assuming(step.condition, truth, state)
                if after is not None:
                    yield following, after
        elif isinstance(step, ir.ActionCall):
            for after in self._act(step.action, (), state):
                yield step.next, after
        else:
            yield from self._look_up(step, state)

    def _look_up(self, step: ir.Table, state: _State) -> Iterator[tuple[ir.Node | None, _State]]:
        only = constant_action(step)
        if step.default is None or step.action_profile is not None:  # a miss, or no such member
            for each in (step.hit, step.miss) if step.by_hit else (step.base_default_next,):
                yield each, state
        for position, action in enumerate(step.actions):
            arguments = self._entries_of(action)
            if step.action_profile is not None:
                arguments = [_UNKNOWN] * len(arguments)
            if only is not None and action != only.action:
                continue
            if only is not None:
                arguments = [_constant(argument) for argument in only.arguments]
            nexts = (step.hit, step.miss) if step.by_hit else (step.next[position],)
            for after in self._act(action, arguments, state):
                for each in nexts:
                    yield each, after

    def _entries_of(self, action: int) -> list[_Value]:
        """The arguments of an action, whatever they are."""
        if action not in self._parameters:
            self._parameters[action] = [
                _Value(tuple(EntryBit(action, number, i) for i in range(_BITS)), True).cut(
                    each.width
                )
                if each.width <= _BITS and not each.negative
                else _UNKNOWN
                for number, each in enumerate(self._program.actions[action].parameters)
            ]
        return self._parameters[action]

    # ── Actions ──

    def _act(self, action: int, given: Sequence[_Value], state: _State) -> set[_State]:
        """The states after an action, whose jumps go forward."""
        if action not in self._stretches:
            self._stretches[action] = self._stretches_of(self._program.actions[action].primitives)
        stretches, length = self._stretches[action], len(self._program.actions[action].primitives)
        at: dict[int, set[_State]] = {0: {state}}
        for begin, end, accesses, last in stretches:
            for before in at.pop(begin, ()):
                for index, registers in accesses.items():
                    self._note(index, registers, before, given)
                after = self._do(last, before, given)
                for following in (
                    (last.target,)
                    if isinstance(last, ir.Jump)
                    else (last.target, end)
                    if isinstance(last, ir.JumpIfZero)
                    else (end,)
                ):
                    at.setdefault(following, set()).add(after)
        return at[length]

    def _stretches_of(self, primitives: Sequence[ir.Primitive]) -> list[_Stretch]:
        """An action in parts, of which the last primitive alone jumps or changes the state."""
        jumps = [each for each in primitives if isinstance(each, ir.Jump | ir.JumpIfZero)]
        begins = {each.target for each in jumps}
        parts: list[_Stretch] = []
        begin, accesses = 0, _accesses(())
        for position, primitive in enumerate(primitives):
            for index, registers in _accesses(primitive).items():
                accesses.setdefault(index, set()).update(registers)
            is_last = position + 1 in begins or position + 1 == len(primitives)
            if is_last or isinstance(primitive, ir.Jump | ir.JumpIfZero) or self._hit(primitive):
                parts.append(_Stretch(begin, position + 1, accesses, primitive))
                begin, accesses = position + 1, {}
        return parts

    def _hit(self, primitive: ir.Primitive) -> list[ir.FieldRef]:
        """The fields that are followed and that a primitive may change."""
        return [
            field
            for target in _targets(primitive)
            for field in ([target] if isinstance(target, ir.FieldRef) else self._place)
            if field in self._place and _covers(target, field, self._program)
        ]

    def _do(self, primitive: ir.Primitive, state: _State, given: Sequence[_Value]) -> _State:
        if isinstance(primitive, ir.Assign) and isinstance(primitive.target, ir.FieldRef):
            if primitive.target not in self._place:
                return state
            return self._set(state, primitive.target, self._value(primitive.value, state, given))
        for field in self._hit(primitive):
            state = self._set(state, field, _UNKNOWN)
        return state

    def _note(
        self,
        index: ir.DataExpression,
        registers: set[int],
        state: _State,
        given: Sequence[_Value],
    ) -> None:
        # As the engines do: an index is taken modulo 2**32 before its bounds are checked.
        value = self._value(index, state, given).cut(32)
        self.accesses.setdefault(value, set()).update(registers)

    def _set(self, state: _State, field: ir.FieldRef, value: _Value) -> _State:
        place = self._place.get(field)
        if place is None:
            return state
        kept = _UNKNOWN
        if field.field == ir.VALID:
            kept = value.cut(1)
        elif not (declared := self._program.field(field)).signed and not declared.saturating:
            kept = value.cut(declared.width)
        return (*state[:place], kept, *state[place + 1 :])

    # ── Expressions ──

    def _value(  # noqa: PLR0911 - one return per kind of expression
        self, expression: ir.DataExpression, state: _State, given: Sequence[_Value]
    ) -> _Value:
        match expression:
            case ir.Const(number):
                return _constant(number)
            case ir.FieldRef():
                place = self._place.get(expression)
                return _UNKNOWN if place is None else state[place]
            case ir.Local(index):
                return given[index]
            case ir.Binary(kind, left, right):
                sides = (self._value(each, state, given) for each in (left, right))
                return _binary(kind, *sides)
            case ir.BoolToData():
                return _Value((None, *_ZERO.bits[1:]), True)
            case ir.Choice(_, left, right):
                one, other = (self._value(each, state, given) for each in (left, right))
                pairs = zip(one.bits, other.bits, strict=True)
                bits = tuple(a if a == b else None for a, b in pairs)
                return _Value(bits, one.is_short and other.is_short)
            case _:
                return _UNKNOWN

    def _assuming(  # noqa: PLR0911 - one per kind of condition
        self, condition: ir.BoolExpression, truth: bool, state: _State
    ) -> _State | None:
        """The state where a condition is ``truth``; None if it is not."""
        match condition:
            case ir.BoolConst(value):
                return state if value == truth else None
            case ir.Not(operand):
                return self._assuming(operand, not truth, state)
            case ir.Logical(ir.Connective.AND | ir.Connective.OR as connective, left, right):
                if (connective is ir.Connective.AND) == truth:  # both sides are ``truth``
                    after = self._assuming(left, truth, state)
                    return None if after is None else self._assuming(right, truth, after)
                for side, other in ((left, right), (right, left)):  # one of them is
                    if self._assuming(side, truth, state) is None:
                        return self._assuming(other, truth, state)
                return state
            case ir.Compare(kind, left, ir.Const(number)):
                return self._comparing(kind, left, number, truth, state)
            case _:
                return state

    def _comparing(
        self,
        kind: ir.Comparison,
        left: ir.DataExpression,
        number: int,
        truth: bool,
        state: _State,
    ) -> _State | None:
        value = self._value(left, state, ())
        known = value.number()
        if known is not None:
            return state if _HOLDS[kind](known, number) == truth else None
        if kind in (ir.Comparison.EQ, ir.Comparison.NE):
            is_equal = (kind is ir.Comparison.EQ) == truth
            bits = enumerate(value.bits)
            if is_equal and any(each in (0, 1) and each != number >> i & 1 for i, each in bits):
                return None
            match left:
                case ir.Binary(ir.DataOperator.AND, ir.FieldRef() as field, ir.Const(mask)):
                    return self._clearing(state, field, mask) if is_equal and not number else state
            most = 0 if is_equal and not number else None
        else:  # at most so much
            most = {
                (ir.Comparison.GT, False): number,
                (ir.Comparison.LE, True): number,
                (ir.Comparison.GE, False): number - 1,
                (ir.Comparison.LT, True): number - 1,
            }.get((kind, truth))
        if most is None or most < 0 or not value.is_short or not isinstance(left, ir.FieldRef):
            return state
        return self._clearing(state, left, -1 << most.bit_length())

    def _clearing(self, state: _State, field: ir.FieldRef, mask: int) -> _State:
        """The state in which the bits of ``mask`` of a field are 0."""
        place = self._place.get(field)
        if place is None:
            return state
        bits, is_short = state[place]
        bits = tuple(0 if mask >> i & 1 else each for i, each in enumerate(bits))
        return (*state[:place], _Value(bits, is_short or mask < 0), *state[place + 1 :])

    # ── Fields ──

    def _followed(self) -> list[ir.FieldRef]:
        """The fields that indices depend on, and those of numbers that decide about the way."""
        bodies = (self._program.actions, self._program.conditionals)
        found: set[ir.FieldRef] = set()
        writes: list[ir.Assign] = []
        for node in walk(bodies):
            if isinstance(node, ir.RegisterRead | ir.RegisterWrite | ir.RegisterElement):
                found |= _fields(node.index)
            elif isinstance(node, ir.Assign) and isinstance(node.target, ir.FieldRef):
                writes.append(node)
        size = -1
        while len(found) > size:
            size = len(found)
            for write in writes:
                if write.target in found:
                    found |= _fields(write.value)
        standard = self._program.standard.ingress_port.header
        for node in walk(self._program.conditionals):
            if isinstance(node, ir.Compare) and isinstance(node.right, ir.Const):
                found |= {
                    each
                    for each in _fields(node.left)
                    if self._program.headers[each.header].metadata and each.header != standard
                }
        return sorted(found, key=lambda each: (each.header, each.field))

    def _initial(self, field: ir.FieldRef) -> _Value:
        """A field as the parser leaves it."""
        header = self._program.headers[field.header]
        standard = self._program.standard
        if field in self._unsure or field.field == ir.VALID:
            return _UNKNOWN
        if header.stack is not None or header.union is not None:
            return _UNKNOWN
        declared = self._program.field(field)
        if field.header == standard.ingress_port.header and field != standard.ingress_port:
            return _UNKNOWN
        if header.metadata and field != standard.ingress_port:
            return _ZERO
        if declared.signed or declared.variable or declared.width > _BITS:
            return _UNKNOWN
        return _Value(tuple(PacketBit(field, i) for i in range(_BITS)), True).cut(declared.width)

    def _without_standard(self, state: _State) -> _State:
        """The state at egress, where the switch has set its own fields."""
        own = self._program.standard.ingress_port
        known = zip(self._place, state, strict=True)
        return tuple(
            _UNKNOWN if field.header == own.header and field != own else each
            for field, each in known
        )


_HOLDS: dict[ir.Comparison, Callable[[int, int], bool]] = {
    ir.Comparison.EQ: operator.eq,
    ir.Comparison.NE: operator.ne,
    ir.Comparison.LT: operator.lt,
    ir.Comparison.LE: operator.le,
    ir.Comparison.GT: operator.gt,
    ir.Comparison.GE: operator.ge,
}


def _targets(node: object) -> tuple[object, ...]:
    """What a primitive may change: fields and headers; what is found at run time, as it is."""
    match node:
        case ir.MarkToDrop(egress_spec, mcast_grp):
            return (egress_spec, mcast_grp)
        case ir.AddHeader(header):
            return (header,)
        case (
            ir.Assign(target)
            | ir.AssignVariable(target)
            | ir.AssignHeader(target)
            | ir.SetFromLookahead(target)
            | ir.RegisterRead(target)
            | ir.Hash(target)
            | ir.Random(target)
        ):
            return (target,)
        case ir.AssignStack() | ir.AssignUnion() | ir.AssignUnionStack() | ir.Push() | ir.Pop():
            return (node,)
        case _:
            return ()


def _covers(target: object, field: ir.FieldRef, program: ir.Program) -> bool:
    """Whether who writes a target of ``_targets`` may change a field."""
    if isinstance(target, ir.FieldRef):
        return target == field
    if isinstance(target, ir.HeaderRef):
        return target.header == field.header
    return not isinstance(target, ir.RegisterElement) and not program.headers[field.header].metadata


def _written_by(node: object) -> Iterator[int]:
    """The registers that a primitive writes."""
    if isinstance(node, ir.RegisterWrite):
        yield node.register
    for target in _targets(node):
        if isinstance(target, ir.RegisterElement):
            yield target.register


def _accesses(node: object) -> dict[ir.DataExpression, set[int]]:
    """The registers that a primitive or an expression reaches, by the index."""
    found: dict[ir.DataExpression, set[int]] = {}
    for each in walk(node):
        if isinstance(each, ir.RegisterRead | ir.RegisterWrite | ir.RegisterElement):
            found.setdefault(each.index, set()).add(each.register)
    return found


def _fields(expression: object) -> set[ir.FieldRef]:
    return {node for node in walk(expression) if isinstance(node, ir.FieldRef)}


# ── Where the field is in packets ────────────────────────────────────────────────────────────────


def offset_in(  # noqa: PLR0911 - one return for each thing that it may depend on
    program: ir.Program, field: ir.FieldRef, head: bytes, size: int
) -> int | None:
    """Where a field begins, in bits, in all packets of at least ``size`` bytes that begin with
    ``head``; None if that depends on more.
    """
    states, number, at = program.parser.states, program.parser.initial, 0
    targets = [each for state in states for op in state.operations for each in _targets(op)]
    extracted = [each.header for each in walk(states) if isinstance(each, ir.HeaderRef)]
    place: dict[int, int] = {}
    seen: set[int] = set()
    while number is not None and number not in seen:
        seen.add(number)
        state = states[number]
        # Whatever may stop the parser, or moves it by what the packet says, ends this.
        for operation in state.operations:
            if isinstance(operation, ir.Assign):
                continue
            if not isinstance(operation, ir.Extract) or operation.length is not None:
                return None
            if not isinstance(operation.target, ir.HeaderRef):
                return None
            header = operation.target.header
            place[header], at = at, at + program.type_of(header).width
            if at > 8 * size or extracted.count(header) > 1 or _comes_again(program, number):
                return None
            if header == field.header:
                return place[header] + program.field(field).offset
        key = [_key_part(program, part, place, head) for part in state.key]
        if None in key or any(part.source in targets for part in state.key):
            return None
        if any(each.value_set is not None for each in state.transitions):
            return None
        number = state.default
        for each in reversed(state.transitions):
            triples = zip(cast("list[int]", key), each.masks, each.values, strict=True)
            if all(part & mask == value for part, mask, value in triples):
                number = each.next
    return None


def _key_part(
    program: ir.Program, part: ir.KeyPart, place: dict[int, int], head: bytes
) -> int | None:
    """A part of a parser state's key, if it is in the packet's ``head``."""
    if not isinstance(part.source, ir.FieldRef) or part.source.header not in place:
        return None
    end = place[part.source.header] + program.field(part.source).offset + part.width
    below = 8 * len(head) - end
    return None if below < 0 else int.from_bytes(head, "big") >> below & (1 << part.width) - 1


def _comes_again(program: ir.Program, number: int) -> bool:
    """Whether the parser may enter a state more than once."""
    pending, seen = [number], set[int]()
    while pending:
        state = program.parser.states[pending.pop()]
        for following in (state.default, *(each.next for each in state.transitions)):
            if following == number:
                return True
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    return False
