"""Lowers a program: its parser, pipelines and checksums, from graphs to structured statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from innet.switch import ir
from innet.switch.engine import DEPARSER, MAX_PARSER_STATES
from innet.switch.ir.simplify import simplify
from innet.switch.jit import lowered
from innet.switch.jit.lower.actions import lower_action, lower_primitive
from innet.switch.jit.lower.control_flow import structure
from innet.switch.jit.lower.expressions import Arguments, Resolver, logical
from innet.switch.jit.lower.headers import extract_next, only_member
from innet.switch.jit.lower.notes import SILENT, Notes
from innet.switch.jit.records import Kind, field_words, parameter_words, parser_operations
from innet.switch.jit.traits import constant_action
from innet.switch.state.entries import WORD, argument_column, value_set_words, word_count

#: How many bytes the parser has taken.
_POSITION: Any = lowered.IntVariable("at", 0, lowered.LAST_BIT)
#: How many states the parser has entered, where it has a cycle.
STATES_VISITED: Any = lowered.IntVariable("states_visited", 0, MAX_PARSER_STATES + 1)


def lower_program(program: ir.Program, notes: Notes = SILENT) -> lowered.Regions:
    """A program against which ``compiler.structural_reasons`` says nothing, lowered.

    ``notes`` adds the records of a recording build, in which each primitive stays what it is.
    """
    if not notes.is_recording:
        program = simplify(program)
    updates = notes.changes(_lower_updates(program, notes))
    return lowered.Regions(
        parser=_lower_parser(program, notes),
        verify=_lower_verification(program, notes),
        ingress=_lower_pipeline(program, program.ingress, notes),
        egress=_lower_pipeline(program, program.egress, notes),
        update=(*updates, *_lower_deparser(program, notes)),
    )


def no_arguments(index: int) -> lowered.Expression:
    """For places where no action runs."""
    raise AssertionError(f"argument {index} outside an action")


# ── Parser ───────────────────────────────────────────────────────────────────────────────────────


def _lower_parser(program: ir.Program, notes: Notes) -> lowered.Body:
    states = program.parser.states

    def successors(state: int) -> tuple[int | None, ...]:
        branches = select_branches(Resolver(program, no_arguments), states[state])
        return (*(following for _, following in branches), states[state].default)

    def write(state: int, bodies: tuple[lowered.Body, ...]) -> lowered.Body:
        statements = list(notes.note(Kind.STATE, state, (_POSITION,), (1,)))
        for position, operation in enumerate(states[state].operations):
            body = _lower_operation(program, operation, notes)
            if notes.is_recording:
                body = _tell_operation(program, state, position, body, notes)
            statements.extend(body)
        resolver = Resolver(program, no_arguments)
        branches = select_branches(resolver, states[state])
        chosen = _selections(resolver, state, notes)
        chain = (*chosen(states[state].default), *bodies[-1])
        for (condition, following), body in zip(
            reversed(branches), reversed(bodies[:-1]), strict=True
        ):
            chain = (lowered.If(condition, (*chosen(following), *body), chain),)
        if branches or notes.is_recording:
            statements.extend((*resolver.prelude, *chain))
        return tuple(statements)

    return structure(program.parser.initial, successors, write, _count_states(program))


def _selections(
    resolver: Resolver, state: int, notes: Notes
) -> Callable[[int | None], lowered.Body]:
    """The record of a transition from a state to another."""
    if not notes.is_recording:
        return lambda _: ()
    states = resolver.program.parser.states
    parts = states[state].key
    key = [
        _POSITION,
        *(_whole_part(_key_part(resolver, part), part.width) for part in parts),
    ]
    words = [1, *(word_count(part.width) for part in parts)]

    def chosen(following: int | None) -> lowered.Body:
        place = 0 if following is None else following + 1
        return notes.note(Kind.SELECT, state * (len(states) + 1) + place, key, words)

    return chosen


def _whole_part(source: Any, width: int) -> Any:
    """A part of a key as a number without a sign."""
    return ir.Binary(ir.DataOperator.AND, source, ir.Const((1 << width) - 1))


def _count_states(program: ir.Program) -> lowered.Body:
    """Ends a parser that goes round and round without taking anything from the packet."""
    timeout = lowered.ParserError(ir.Const(program.errors["ParserTimeout"]))
    more = ir.Binary(ir.DataOperator.ADD, STATES_VISITED, ir.Const(1))
    late = ir.Compare(ir.Comparison.GT, STATES_VISITED, ir.Const(MAX_PARSER_STATES))
    return (lowered.SetInteger(STATES_VISITED, more), lowered.If(late, (timeout,), ()))


def _tell_operation(
    program: ir.Program, state: int, position: int, body: lowered.Body, notes: Notes
) -> lowered.Body:
    """An operation with the record of what it set, or of the method that runs."""
    operation = program.parser.states[state].operations[position]
    number = parser_operations(program).index((state, position))
    match operation:
        case ir.Extract() | ir.Verify() | ir.Advance():
            return body
        case ir.SetFromLookahead(target) | ir.Assign(target) | ir.AssignVariable(target):
            assert isinstance(target, ir.FieldRef), "a parser sets fields"
            words = (field_words(program.field(target)),)
            return (*body, *notes.note(Kind.PARSER_SET, number, (target,), words))
    return (*notes.note(Kind.METHOD, number), *body)


def _lower_operation(
    program: ir.Program, operation: ir.ParserOperation, notes: Notes
) -> lowered.Body:
    resolver = Resolver(program, no_arguments)
    match operation:
        case ir.Extract():
            return _lower_extract(program, operation, notes)
        case ir.SetFromLookahead(target, ir.Lookahead(offset, width)):
            need = lowered.RequireBytes(ir.Const((width + 7) // 8))
            field = program.field(target)
            ahead: Any = lowered.Peek(offset, width)
            if field.signed and field.width == width:
                ahead = ir.Binary(ir.DataOperator.TWO_COMP_MOD, ahead, ir.Const(width))
            return (need, *notes.changes((lowered.SetInteger(target, ahead),)))
        case ir.Verify(condition, error):
            failed = ir.Not(resolver.resolve(condition))
            fail = lowered.ParserError(resolver.resolve(error))
            return (*resolver.prelude, lowered.If(failed, (fail,), ()))
        case ir.Advance(bits):
            wanted = resolver.resolve(bits)
            told = notes.note(Kind.ADVANCE, 0, (wanted,))
            return (*resolver.prelude, *told, *_lower_advance(program, wanted))
        case _:
            return lower_primitive(program, operation, no_arguments, notes)


def _lower_extract(program: ir.Program, operation: ir.Extract, notes: Notes) -> lowered.Body:
    resolver = Resolver(program, no_arguments)
    bits = ir.Const(0) if operation.length is None else resolver.resolve(operation.length)

    def extract(header: int, checked: bool) -> lowered.Body:
        fixed = program.type_of(header).variable is None
        taken = (
            lowered.ExtractHeader(header, checked) if fixed else lowered.ExtractVarbit(header, bits)
        )
        return (taken, *notes.changes(only_member(program, header)))

    target = operation.target
    if isinstance(target, ir.HeaderRef):
        has_length = operation.length is not None
        told = notes.note(Kind.EXTRACTING, 2 * target.header + has_length)
        return (*told, *resolver.prelude, *extract(target.header, False))
    of_unions = isinstance(target, ir.UnionStackNext)
    number = target.union_stack if isinstance(target, ir.UnionStackNext) else target.stack
    stack: Any = ir.Const(number)

    def tell(header: int) -> lowered.Body:
        return notes.note(Kind.EXTRACTING_NEXT, 2 * header + of_unions, (stack,), (1,))

    return (*resolver.prelude, *extract_next(program, target, extract, tell))


def _lower_advance(program: ir.Program, bits: Any) -> lowered.Body:
    if isinstance(bits, ir.Const) and bits.value % 8 == 0:
        size: Any = ir.Const(bits.value // 8)
        return (lowered.RequireBytes(size), lowered.SkipBytes(size))
    size = ir.Binary(ir.DataOperator.SHIFT_RIGHT, bits, ir.Const(3))
    ragged = ir.DataToBool(ir.Binary(ir.DataOperator.AND, bits, ir.Const(7)))
    fail = lowered.ParserError(ir.Const(program.errors["ParserInvalidArgument"]))
    return (lowered.If(ragged, (fail,), ()), lowered.RequireBytes(size), lowered.SkipBytes(size))


# ── Transitions of parser states ─────────────────────────────────────────────────────────────────


def select_branches(resolver: Resolver, state: ir.ParserState) -> list[tuple[Any, int | None]]:
    """(condition, next state) of the transitions; neighbors that lead to one state are joined."""
    branches: list[tuple[list[Any], int | None]] = []
    key = [_key_part(resolver, part) for part in state.key]
    for transition in state.transitions if state.key else ():
        if transition.value_set is None:
            condition = _equals(resolver.program, key, state.key, transition)
        else:
            condition = _in_set(resolver.program, key, state.key, transition)
        if branches and branches[-1][1] == transition.next:
            branches[-1][0].append(condition)
        else:
            branches.append(([condition], transition.next))
    while branches and branches[-1][1] == state.default:
        branches.pop()
    return [(logical(ir.Connective.OR, parts), following) for parts, following in branches]


def _key_part(resolver: Resolver, part: ir.KeyPart) -> Any:
    """One part of the key; what has to be searched for is put into a variable."""
    if isinstance(part.source, ir.Lookahead):
        return lowered.Peek(part.source.offset, part.source.width)
    source = resolver.resolve(part.source)
    return resolver.named(source, part.width) if isinstance(source, ir.Choice) else source


def _equals(
    program: ir.Program, key: Sequence[Any], parts: Sequence[ir.KeyPart], transition: ir.Transition
) -> Any:
    conditions: list[Any] = []
    for source, part, value, mask in zip(
        key, parts, transition.values, transition.masks, strict=True
    ):
        full = (1 << part.width) - 1
        if mask & full == 0:
            if value != 0:
                return ir.BoolConst(False)
            continue
        masked = source
        if mask & full != full or _is_signed(program, source):
            masked = ir.Binary(ir.DataOperator.AND, source, ir.Const(mask & full))
        conditions.append(ir.Compare(ir.Comparison.EQ, masked, ir.Const(value)))
    return logical(ir.Connective.AND, conditions)


def _is_signed(program: ir.Program, source: Any) -> bool:
    return isinstance(source, ir.FieldRef) and program.field(source).signed


def _in_set(
    program: ir.Program, key: Sequence[Any], parts: Sequence[ir.KeyPart], transition: ir.Transition
) -> Any:
    """The key's parts one after the other, as words like those of the members."""
    assert transition.value_set is not None
    words: list[list[Any]] = [
        [] for _ in range(value_set_words(program.value_sets[transition.value_set]))
    ]
    masks = [0] * len(words)
    shift = 0
    for source, part, mask in zip(
        reversed(key), reversed(parts), reversed(transition.masks), strict=True
    ):
        for number in range(shift // WORD, -(-(shift + part.width) // WORD)):
            words[number].append(_piece(source, part.width, shift - number * WORD))
            masks[number] |= _moved(mask & ((1 << part.width) - 1), shift - number * WORD)
        shift += part.width
    joined_words = tuple(_or(pieces) for pieces in words)
    return lowered.InValueSet(transition.value_set, joined_words, tuple(masks))


def _moved(value: int, shift: int) -> int:
    """What a word holds of ``value`` when it begins ``shift`` bits above the word's lowest."""
    return (value << shift if shift >= 0 else value >> -shift) & ((1 << WORD) - 1)


def _piece(source: Any, width: int, shift: int) -> Any:
    """The same of an expression, of which the lowest ``width`` bits count."""
    first, last = max(-shift, 0), min(width, WORD - shift)
    low = source
    if first:
        low = ir.Binary(ir.DataOperator.SHIFT_RIGHT, low, ir.Const(first))
    low = ir.Binary(ir.DataOperator.AND, low, ir.Const((1 << (last - first)) - 1))
    if shift > 0:
        low = ir.Binary(ir.DataOperator.SHIFT_LEFT, low, ir.Const(shift))
    return low


def _or(pieces: Sequence[Any]) -> Any:
    if not pieces:
        return ir.Const(0)
    word = pieces[0]
    for piece in pieces[1:]:
        word = ir.Binary(ir.DataOperator.OR, word, piece)
    return word


# ── Pipelines ────────────────────────────────────────────────────────────────────────────────────


def _lower_pipeline(program: ir.Program, pipeline: ir.Pipeline, notes: Notes) -> lowered.Body:
    def write(node: ir.Node, bodies: tuple[lowered.Body, ...]) -> lowered.Body:
        if node.kind is ir.NodeKind.CONDITIONAL:
            if len(bodies) == 1:
                if not notes.is_recording:
                    return ()
                bodies = ((), ())  # only what is told differs
            resolver = Resolver(program, no_arguments)
            condition = resolver.resolve(program.conditionals[node.index].condition)
            told = [notes.note(Kind.IF, 2 * node.index + result) for result in (1, 0)]
            ways = [(*each, *body) for each, body in zip(told, bodies, strict=True)]
            return (*resolver.prelude, lowered.If(condition, ways[0], ways[1]))
        if node.kind is ir.NodeKind.ACTION_CALL:
            number = program.action_calls[node.index].action
            return _run_action(program, number, no_arguments, notes)
        return _lower_table(program, node.index, bodies, notes)

    return structure(pipeline.initial, partial(_successors, program), write)


def _run_action(
    program: ir.Program, number: int, arguments: Arguments, notes: Notes
) -> lowered.Body:
    """An action of the program, and the record of its start."""
    action = program.actions[number]
    told: lowered.Body = ()
    if notes.is_recording:
        values = [arguments(i) for i in range(len(action.parameters))]
        words = [parameter_words(each) for each in action.parameters]
        told = notes.note(Kind.ACTION, number, values, words)
    return (*told, *lower_action(program, action, arguments, notes))


def _successors(program: ir.Program, node: ir.Node) -> tuple[ir.Node | None, ...]:
    if node.kind is ir.NodeKind.CONDITIONAL:
        conditional = program.conditionals[node.index]
        if conditional.if_true == conditional.if_false:
            return (conditional.if_true,)
        return (conditional.if_true, conditional.if_false)
    if node.kind is ir.NodeKind.ACTION_CALL:
        return (program.action_calls[node.index].next,)
    table = program.tables[node.index]
    if fixed := constant_action(table):
        return (table.miss if table.by_hit else table.next[table.actions.index(fixed.action)],)
    if table.by_hit:
        return (table.hit,) if table.hit == table.miss else (table.hit, table.miss)
    return tuple(_groups(table))


def _groups(table: ir.Table) -> dict[ir.Node | None, list[int]]:
    """Next node to the positions of the actions that lead there; -1 stands for no action."""
    groups: dict[ir.Node | None, list[int]] = {}
    if table.default is None or table.kind is not ir.TableKind.SIMPLE:  # a group may be empty
        groups[table.base_default_next] = [-1]
    for position, following in enumerate(table.next):
        groups.setdefault(following, []).append(position)
    return groups


def _lower_table(
    program: ir.Program, index: int, bodies: tuple[lowered.Body, ...], notes: Notes
) -> lowered.Body:
    table = program.tables[index]
    # A table that p4c made for a call of an action is that action.
    if fixed := constant_action(table):
        values = fixed.arguments
        told = notes.note(Kind.MISS, index)
        return (
            *told,
            *_run_action(program, fixed.action, lambda i: ir.Const(values[i]), notes),
        )
    # The row that the key hits, then the body of its action.
    actions = tuple(
        _run_action(program, action, partial(_argument, index, program.actions[action]), notes)
        for action in table.actions
    )
    statements: lowered.Body = (
        lowered.Lookup(index),
        *_direct_meter(program, index, notes),
        lowered.Dispatch(index, actions),
    )
    # What comes next depends on nothing, on a hit, or on the action that ran.
    if len(bodies) == 1:
        return statements
    if table.by_hit:
        return (*statements, lowered.If(lowered.Hit(index), bodies[0], bodies[1]))
    groups = list(_groups(table).values())
    chain = bodies[-1]
    for positions, body in zip(reversed(groups[:-1]), reversed(bodies[:-1]), strict=True):
        ran = [lowered.ActionIs(index, position) for position in positions]
        chain = (lowered.If(logical(ir.Connective.OR, ran), body, chain),)
    return (*statements, *chain)


def _direct_meter(program: ir.Program, index: int, notes: Notes) -> lowered.Body:
    """The entry's meter runs on a hit, before its action."""
    meter = program.tables[index].meter
    if meter is None or not program.tables[index].keys:
        return ()
    result = program.meters[meter].result
    assert result is not None, "the loader refuses a direct meter without one"
    execute = lowered.MeterPacket(result, meter, lowered.EntryIndex(index))
    return (lowered.If(lowered.Hit(index), notes.changes((execute,)), ()),)


def _argument(table: int, action: ir.Action, parameter: int) -> lowered.Expression:
    described = action.parameters[parameter]
    end = 1 << described.width
    low = -end if described.negative else 0
    return lowered.Argument(table, argument_column(action, parameter), low, end - 1)


# ── Checksums ────────────────────────────────────────────────────────────────────────────────────


def _lower_verification(program: ir.Program, notes: Notes) -> lowered.Body:
    error = program.standard.checksum_error
    if error is None:
        return ()
    statements: list[lowered.Statement] = []
    for number, checksum in enumerate(program.checksums):
        if checksum.verify:
            value: Any = lowered.HashValue(checksum.calculation)
            kept: lowered.Body = ()
            if notes.is_recording:
                computed: Any = lowered.IntVariable("computed", 0, (1 << WORD) - 1)
                kept, value = (lowered.SetInteger(computed, value),), computed
            width = program.field(checksum.target).width
            held = ir.Binary(ir.DataOperator.AND, checksum.target, ir.Const((1 << width) - 1))
            wrong = ir.Compare(ir.Comparison.NE, held, value)
            told = (value, held), (1, word_count(width))
            fails, passes = (notes.note(Kind.CHECKSUM, 2 * number + i, *told) for i in (0, 1))
            mark = lowered.If(wrong, (*fails, lowered.SetInteger(error, ir.Const(1))), passes)
            absent, unmet = (
                notes.note(Kind.CHECKSUM_SKIPPED, 2 * number + there) for there in (0, 1)
            )
            holder = ir.Valid(ir.HeaderRef(checksum.target.header))
            present = Resolver(program, no_arguments).resolve(holder)
            checked = _guarded(program, checksum, (*kept, mark), unmet)
            statements.append(lowered.If(present, checked, absent))
    return tuple(statements)


def _lower_updates(program: ir.Program, notes: Notes) -> lowered.Body:
    statements: list[lowered.Statement] = []
    for number, checksum in enumerate(program.checksums):
        if checksum.update:
            write = lowered.SetInteger(checksum.target, lowered.HashValue(checksum.calculation))
            told, unmet = (
                notes.note(kind, number) for kind in (Kind.UPDATING, Kind.UPDATE_SKIPPED)
            )
            statements.extend(_guarded(program, checksum, (*told, write), unmet))
    return tuple(statements)


def _lower_deparser(program: ir.Program, notes: Notes) -> lowered.Body:
    """What the deparser does before it emits headers."""
    operations = ir.Action(DEPARSER, (), program.deparser.operations)
    return lower_action(program, operations, no_arguments, notes)


def _guarded(
    program: ir.Program, checksum: ir.Checksum, body: lowered.Body, unmet: lowered.Body = ()
) -> lowered.Body:
    """``body`` under a checksum's condition, and ``unmet`` where it does not hold."""
    if checksum.condition is not None:
        resolver = Resolver(program, no_arguments)
        condition = resolver.resolve(checksum.condition)
        if condition != ir.BoolConst(True):
            body = (*resolver.prelude, lowered.If(condition, body, unmet))
    return body
