"""Parser, pipelines and checksums: from the program's graphs to the statements of a plan."""

from __future__ import annotations

from functools import partial
from typing import Any

from innet.switch import ir
from innet.switch.engine import MAX_PARSER_STATES
from innet.switch.jit import lowered
from innet.switch.jit.lower.actions import lower_action, lower_primitive
from innet.switch.jit.lower.control_flow import structure
from innet.switch.jit.lower.headers import only_member
from innet.switch.jit.lower.select import select_branches
from innet.switch.jit.lower.stacks import extract_next
from innet.switch.jit.lower.terms import Terms
from innet.switch.jit.traits import fixed_default
from innet.switch.state.entries import argument_column

#: How many states the parser has entered, where it has a cycle.
STATES_VISITED: Any = lowered.Scalar("states_visited", 0, MAX_PARSER_STATES + 1)


def lower_program(program: ir.Program) -> lowered.Plan:
    """The plan of a program of which ``unsupported`` names nothing."""
    return lowered.Plan(
        parser=_lower_parser(program),
        verify=_lower_verification(program),
        ingress=_lower_pipeline(program, program.ingress),
        egress=_lower_pipeline(program, program.egress),
        update=(*_lower_updates(program), *_lower_deparser(program)),
    )


def no_arguments(index: int) -> lowered.Expression:
    """For places where no action runs."""
    raise AssertionError(f"argument {index} outside an action")


# ── Parser ───────────────────────────────────────────────────────────────────────────────────────


def _lower_parser(program: ir.Program) -> lowered.Body:
    states = program.parser.states

    def successors(state: int) -> tuple[int | None, ...]:
        branches = select_branches(Terms(program, no_arguments), states[state])
        return (*(following for _, following in branches), states[state].default)

    def write(state: int, bodies: tuple[lowered.Body, ...]) -> lowered.Body:
        statements: list[lowered.Statement] = []
        for operation in states[state].operations:
            statements.extend(_lower_operation(program, operation))
        chain = bodies[-1]
        terms = Terms(program, no_arguments)
        branches = select_branches(terms, states[state])
        for (condition, _), body in zip(reversed(branches), reversed(bodies[:-1]), strict=True):
            chain = (lowered.If(condition, body, chain),)
        if branches:
            statements.extend((*terms.prelude, *chain))
        return tuple(statements)

    return structure(program.parser.initial, successors, write, _count_states(program))


def _count_states(program: ir.Program) -> lowered.Body:
    """Ends a parser that goes round and round without taking anything from the packet."""
    timeout = lowered.Fail(ir.Const(program.errors["ParserTimeout"]))
    more = ir.Binary(ir.DataOperator.ADD, STATES_VISITED, ir.Const(1))
    late = ir.Compare(ir.Comparison.GT, STATES_VISITED, ir.Const(MAX_PARSER_STATES))
    return (lowered.Assign(STATES_VISITED, more), lowered.If(late, (timeout,), ()))


def _lower_operation(program: ir.Program, operation: ir.ParserOperation) -> lowered.Body:
    terms = Terms(program, no_arguments)
    match operation:
        case ir.Extract():
            return _lower_extract(program, operation)
        case ir.SetFromLookahead(target, ir.Lookahead(offset, width)):
            need = lowered.Need(ir.Const((width + 7) // 8))
            field = program.field(target)
            ahead: Any = lowered.Peek(offset, width)
            if field.signed and field.width == width:
                ahead = ir.Binary(ir.DataOperator.TWO_COMP_MOD, ahead, ir.Const(width))
            return (need, lowered.Assign(target, ahead))
        case ir.Verify(condition, error):
            failed = ir.Not(terms.resolve(condition))
            fail = lowered.Fail(terms.resolve(error))
            return (*terms.prelude, lowered.If(failed, (fail,), ()))
        case ir.Advance(bits):
            body = _lower_advance(program, terms.resolve(bits))
            return (*terms.prelude, *body)
        case _:
            return lower_primitive(program, operation, no_arguments)


def _lower_extract(program: ir.Program, operation: ir.Extract) -> lowered.Body:
    terms = Terms(program, no_arguments)
    bits = ir.Const(0) if operation.length is None else terms.resolve(operation.length)

    def extract(header: int, checked: bool) -> lowered.Body:
        fixed = program.type_of(header).variable is None
        taken = lowered.Extract(header, checked) if fixed else lowered.ExtractVariable(header, bits)
        return (taken, *only_member(program, header))

    if isinstance(operation.target, ir.HeaderRef):
        return (*terms.prelude, *extract(operation.target.header, False))
    return (*terms.prelude, *extract_next(program, operation.target, extract))


def _lower_advance(program: ir.Program, bits: Any) -> lowered.Body:
    if isinstance(bits, ir.Const) and bits.value % 8 == 0:
        size: Any = ir.Const(bits.value // 8)
        return (lowered.Need(size), lowered.Skip(size))
    size = ir.Binary(ir.DataOperator.SHIFT_RIGHT, bits, ir.Const(3))
    ragged = ir.DataToBool(ir.Binary(ir.DataOperator.AND, bits, ir.Const(7)))
    fail = lowered.Fail(ir.Const(program.errors["ParserInvalidArgument"]))
    return (lowered.If(ragged, (fail,), ()), lowered.Need(size), lowered.Skip(size))


# ── Pipelines ────────────────────────────────────────────────────────────────────────────────────


def _lower_pipeline(program: ir.Program, pipeline: ir.Pipeline) -> lowered.Body:
    def write(node: ir.Node, bodies: tuple[lowered.Body, ...]) -> lowered.Body:
        if node.kind is ir.NodeKind.CONDITIONAL:
            if len(bodies) == 1:
                return ()
            terms = Terms(program, no_arguments)
            condition = terms.resolve(program.conditionals[node.index].condition)
            return (*terms.prelude, lowered.If(condition, bodies[0], bodies[1]))
        if node.kind is ir.NodeKind.ACTION_CALL:
            action = program.actions[program.action_calls[node.index].action]
            return lower_action(program, action, no_arguments)
        return _lower_table(program, node.index, bodies)

    return structure(pipeline.initial, partial(_successors, program), write)


def _successors(program: ir.Program, node: ir.Node) -> tuple[ir.Node | None, ...]:
    if node.kind is ir.NodeKind.CONDITIONAL:
        conditional = program.conditionals[node.index]
        if conditional.if_true == conditional.if_false:
            return (conditional.if_true,)
        return (conditional.if_true, conditional.if_false)
    if node.kind is ir.NodeKind.ACTION_CALL:
        return (program.action_calls[node.index].next,)
    table = program.tables[node.index]
    if fixed := fixed_default(table):
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


def _lower_table(program: ir.Program, index: int, bodies: tuple[lowered.Body, ...]) -> lowered.Body:
    table = program.tables[index]
    if fixed := fixed_default(table):
        values = fixed.arguments
        return lower_action(program, program.actions[fixed.action], lambda i: ir.Const(values[i]))
    actions = tuple(
        lower_action(
            program, program.actions[action], partial(_argument, index, program.actions[action])
        )
        for action in table.actions
    )
    statements: lowered.Body = (
        lowered.Lookup(index),
        *_direct_meter(program, index),
        lowered.Dispatch(index, actions),
    )
    if len(bodies) == 1:
        return statements
    if table.by_hit:
        return (*statements, lowered.If(lowered.Hit(index), bodies[0], bodies[1]))
    groups = list(_groups(table).values())
    chain = bodies[-1]
    for positions, body in zip(reversed(groups[:-1]), reversed(bodies[:-1]), strict=True):
        condition: Any = lowered.ActionIs(index, positions[0])
        for position in positions[1:]:
            condition = ir.Logical(ir.Connective.OR, condition, _action_is(index, position))
        chain = (lowered.If(condition, body, chain),)
    return (*statements, *chain)


def _direct_meter(program: ir.Program, index: int) -> lowered.Body:
    """The entry's meter runs on a hit, before its action."""
    meter = program.tables[index].meter
    if meter is None or not program.tables[index].keys:
        return ()
    result = program.meters[meter].result
    assert result is not None, "the loader refuses a direct meter without one"
    execute = lowered.ExecuteMeter(result, meter, lowered.EntryIndex(index))
    return (lowered.If(lowered.Hit(index), (execute,), ()),)


def _action_is(table: int, position: int) -> Any:
    return lowered.ActionIs(table, position)


def _argument(table: int, action: ir.Action, parameter: int) -> lowered.Expression:
    described = action.parameters[parameter]
    end = 1 << described.width
    low = -end if described.negative else 0
    return lowered.Argument(table, argument_column(action, parameter), low, end - 1)


# ── Checksums ────────────────────────────────────────────────────────────────────────────────────


def _lower_verification(program: ir.Program) -> lowered.Body:
    error = program.standard.checksum_error
    if error is None:
        return ()
    statements: list[lowered.Statement] = []
    for checksum in program.checksums:
        if checksum.verify:
            value: Any = lowered.HashValue(checksum.calculation)
            width = program.field(checksum.target).width
            held = ir.Binary(ir.DataOperator.AND, checksum.target, ir.Const((1 << width) - 1))
            wrong = ir.Compare(ir.Comparison.NE, held, value)
            mark = lowered.If(wrong, (lowered.Assign(error, ir.Const(1)),), ())
            holder = ir.Valid(ir.HeaderRef(checksum.target.header))
            present = Terms(program, no_arguments).resolve(holder)
            statements.append(lowered.If(present, _guarded(program, checksum, mark), ()))
    return tuple(statements)


def _lower_updates(program: ir.Program) -> lowered.Body:
    statements: list[lowered.Statement] = []
    for checksum in program.checksums:
        if checksum.update:
            write = lowered.Assign(checksum.target, lowered.HashValue(checksum.calculation))
            statements.extend(_guarded(program, checksum, write))
    return tuple(statements)


def _lower_deparser(program: ir.Program) -> lowered.Body:
    """What the deparser does before it emits headers."""
    operations = ir.Action("deparser", (), program.deparser.operations)
    return lower_action(program, operations, no_arguments)


def _guarded(program: ir.Program, checksum: ir.Checksum, inner: lowered.Statement) -> lowered.Body:
    body: lowered.Body = (inner,)
    if checksum.condition is not None:
        terms = Terms(program, no_arguments)
        condition = terms.resolve(checksum.condition)
        if condition != ir.BoolConst(True):
            body = (*terms.prelude, lowered.If(condition, body, ()))
    return body
