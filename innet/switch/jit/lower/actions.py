"""Lowers actions: primitives with jumps become nested statements, parameters become arguments.

What a program asks of the switch (clone, digest, resubmit, recirculate, truncate) becomes an
assignment to a variable, a request, which the end of the pipeline looks at. The last call wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from innet.switch import ir
from innet.switch.engine import MAX_BACKWARD_JUMPS, backward_jumps
from innet.switch.ir.tree import walk
from innet.switch.jit import lowered
from innet.switch.jit.lower.control_flow import structure_loops
from innet.switch.jit.lower.expressions import Arguments, Resolver, body_of
from innet.switch.jit.lower.headers import (
    add_header,
    copy_field,
    copy_header,
    copy_stack,
    copy_union,
    copy_union_stack,
    remove_header,
    shift,
)
from innet.switch.jit.lower.notes import SILENT, Notes
from innet.switch.jit.records import Kind, log_messages

# Any: lowered expressions stand where the program's own types name only the program's.

#: Most bytes of a packet that may leave; ``truncate`` lowers it.
MAX_LENGTH: Any = lowered.IntVariable("max_length", 0, (1 << 63) - 1)
#: Set by ``exit`` where it depends on a condition.
EXITED = "exited"
#: Set by an assertion that failed: the packet is dropped.
FAILED = "failed"
#: How often the action that runs has jumped back.
JUMPS: Any = lowered.IntVariable("jumps", 0, MAX_BACKWARD_JUMPS)

#: The mirror session that a clone goes to, -1 where none was asked for, and the metadata it keeps.
CLONE_SESSION: Any = lowered.IntVariable("clone_session", -1, 0x7FFF)
CLONE_LIST: Any = lowered.IntVariable("clone_list", 0, 0xFFFF)
#: ``LearnList.id`` of a digest, 0 for none.
LEARN_LIST: Any = lowered.IntVariable("learn_list", 0, 0xFFFF)
#: ``FieldList.id`` of what is kept when the packet comes again, 0 where it does not.
RESUBMIT_LIST: Any = lowered.IntVariable("resubmit_list", 0, 0xFFFF)
RECIRCULATE_LIST: Any = lowered.IntVariable("recirculate_list", 0, 0xFFFF)

#: Every request, and its value where nothing was asked for.
REQUESTS = {CLONE_SESSION: -1, CLONE_LIST: 0, LEARN_LIST: 0, RESUBMIT_LIST: 0, RECIRCULATE_LIST: 0}

_UINT16 = (1 << 16) - 1
_UINT32 = (1 << 32) - 1
_UINT64 = (1 << 64) - 1


def lower_action(
    program: ir.Program, action: ir.Action, arguments: Arguments, notes: Notes = SILENT
) -> lowered.Body:
    """The statements of one action at one place of the program."""
    primitives = action.primitives
    end = len(primitives)
    loops = {
        step: (lowered.JumpBack(backward_jumps(program).index((action.name, primitive))),)
        for step, primitive in enumerate(primitives)
        if isinstance(primitive, ir.Jump | ir.JumpIfZero) and primitive.target <= step
    }

    def successors(step: int) -> tuple[int | None, ...]:
        following: tuple[int, ...]
        match primitives[step]:
            case ir.Jump(target):
                following = (target,)
            case ir.JumpIfZero(_, target):
                following = (target,) if target == step + 1 else (step + 1, target)
            case _:
                following = (step + 1,)
        return tuple(position if position < end else None for position in following)

    def write(step: int, bodies: tuple[lowered.Body, ...]) -> lowered.Body:
        primitive = primitives[step]
        jump_back: lowered.Body = loops.get(step, ())
        told = notes.primitive(action, step)
        if isinstance(primitive, ir.Jump):
            return (*told, *jump_back)
        if isinstance(primitive, ir.JumpIfZero):
            if len(bodies) == 1 and not notes.is_recording:
                return ()
            resolver = Resolver(program, arguments)
            value = resolver.resolve(primitive.condition)
            if len(bodies) == 1:
                return (*told, *resolver.prelude)  # what it reads is told
            condition = value.operand if isinstance(value, ir.BoolToData) else ir.DataToBool(value)
            zero = (*jump_back, *bodies[1])
            return (*told, *resolver.prelude, lowered.If(condition, bodies[0], zero))
        return (*told, *lower_primitive(program, primitive, arguments, notes))

    # The primitives are a graph of steps: jumps become nested ifs and loops, or numbered blocks.
    body = structure_loops(0 if primitives else None, successors, write, _stop_failed)
    if loops:
        body = (lowered.SetInteger(JUMPS, ir.Const(0)), *body)
    # exit() ends the action, and then the pipeline.
    if not any(isinstance(primitive, ir.Exit) for primitive in primitives):
        return body
    if not any(isinstance(primitive, ir.Jump | ir.JumpIfZero) for primitive in primitives):
        return (*_without_flag(body), lowered.Stop())
    return (*body, lowered.If(lowered.BoolVariable(EXITED), (lowered.Stop(),), ()))


#: Primitives that request something: the record, and the variables with its values.
_REQUESTED: dict[type, tuple[Kind, tuple[Any, ...]]] = {
    ir.Clone: (Kind.REQUEST_CLONE, (CLONE_SESSION, CLONE_LIST)),
    ir.Resubmit: (Kind.REQUEST_RESUBMIT, (RESUBMIT_LIST,)),
    ir.Recirculate: (Kind.REQUEST_RECIRCULATE, (RECIRCULATE_LIST,)),
    ir.Digest: (Kind.REQUEST_DIGEST, (LEARN_LIST,)),
    ir.Truncate: (Kind.REQUEST_TRUNCATE, (MAX_LENGTH,)),
    ir.MarkToDrop: (Kind.REQUEST_DROP, ()),
    ir.Exit: (Kind.REQUEST_EXIT, ()),
}


def _stop_failed(loop: lowered.Body) -> lowered.Body:
    """What follows a ``While`` or ``Blocks``: the Stop of an assertion in it only left the loop."""
    return (
        (lowered.If(lowered.BoolVariable(FAILED), (lowered.Stop(),), ()),) if may_fail(loop) else ()
    )


def _without_flag(body: lowered.Body) -> lowered.Body:
    return tuple(
        statement
        for statement in body
        if not (isinstance(statement, lowered.SetBool) and statement.name == EXITED)
    )


def may_fail(body: lowered.Body) -> bool:
    """Whether a body has an assertion."""
    return any(isinstance(node, lowered.SetBool) and node.name == FAILED for node in walk(body))


def lower_primitive(
    program: ir.Program, primitive: ir.Primitive, arguments: Arguments, notes: Notes = SILENT
) -> lowered.Body:
    """The statements of one primitive that is no jump."""
    resolver = Resolver(program, arguments)
    if notes.is_recording:
        body = _lower_and_tell(resolver, primitive, notes)
    else:
        body = _lower_plain(resolver, primitive)
    return (*resolver.prelude, *body)


def _lower_and_tell(resolver: Resolver, primitive: ir.Primitive, notes: Notes) -> lowered.Body:
    """A primitive with records: what it draws or computes, requests, and changes."""
    match primitive:
        case ir.Hash(target, base, calculation, size):
            low, modulus = (_masked(resolver.resolve(each), _UINT64) for each in (base, size))
            value = resolver.named(_hash(low, modulus, calculation), 64)
            told = notes.note(Kind.HASH, 0, (low, modulus, value), (1, 1, 1))
            return (*told, *notes.changes(resolver.assign(target, value)))
        case ir.Random():
            return notes.changes(_tell_drawn(lower_random(primitive, resolver), notes))
        case ir.LogMessage(_, values):
            number = log_messages(resolver.program).index(primitive)
            return notes.note(Kind.LOG, number, [resolver.resolve(each) for each in values])
    body = _lower_plain(resolver, primitive)
    if isinstance(primitive, ir.Assert):
        return body  # one that fails is told by the drop
    if isinstance(primitive, ir.AddHeader):
        body = tuple(map(_valid_first, body))
    kind, variables = _REQUESTED.get(type(primitive), (None, ()))
    told = () if kind is None else notes.note(kind, 0, variables, [1] * len(variables))
    if isinstance(primitive, ir.MarkToDrop):  # which requests nothing of a variable
        return (*told, *notes.changes(body))
    return (*body, *told) if told else notes.changes(body)


def _tell_drawn(body: lowered.Body, notes: Notes) -> lowered.Body:
    """The statements of ``lower_random`` with a record of what is drawn, if anything is."""
    told: list[lowered.Statement] = []
    for each in body:
        match each:
            case lowered.If(condition, then, _):
                nothing = notes.note(Kind.RANDOM_EMPTY)
                told.append(lowered.If(condition, _tell_drawn(then, notes), nothing))
            case lowered.DrawRandom(target, low, high):
                told += [each, *notes.note(Kind.RANDOM, 0, (low, high, target), (1, 1, 1))]
            case _:
                told.append(each)
    return tuple(told) or notes.note(Kind.RANDOM_EMPTY)


def _valid_first(statement: Any) -> Any:
    """``add_header`` with what it makes valid or invalid before it sets fields, which makes no
    difference and is the order of records.
    """
    if not isinstance(statement, lowered.If):
        return statement
    if any(isinstance(each, lowered.If) for each in statement.then):  # one header of several
        ways = [tuple(map(_valid_first, way)) for way in (statement.then, statement.otherwise)]
        return lowered.If(statement.condition, *ways)
    then = sorted(statement.then, key=lambda each: not isinstance(each, lowered.SetValid))
    return lowered.If(statement.condition, tuple(then), statement.otherwise)


def _lower_plain(  # noqa: PLR0911, PLR0912 - one branch per primitive
    resolver: Resolver, primitive: ir.Primitive
) -> lowered.Body:
    data = resolver.resolve
    match primitive:
        case ir.NoOp() | ir.LogMessage():
            return ()
        case ir.Assign(target, value):
            return resolver.assign(target, data(value))
        case ir.AssignVariable(target, source):
            return _assign_variable(resolver, target, source)
        case ir.RegisterRead(target, register, index):
            return _register_read(resolver, target, register, _cell(resolver, index))
        case ir.RegisterWrite(register, index, value):
            return (lowered.StoreCell(register, 0, _cell(resolver, index), data(value)),)
        case ir.Count(counter, index):
            return (lowered.CountPacket(counter, _cell(resolver, index)),)
        case ir.ExecuteMeter(meter, index, target):
            return _execute_meter(resolver, target, meter, _cell(resolver, index))
        case ir.MarkToDrop(egress_spec, mcast_grp):
            drop = lowered.SetInteger(egress_spec, ir.Const(resolver.program.drop_port))
            if mcast_grp is None:
                return (drop,)
            return (drop, lowered.SetInteger(mcast_grp, ir.Const(0)))
        case ir.Exit():
            return (lowered.SetBool(EXITED, ir.BoolConst(True)),)
        case ir.Assert(condition):
            failed = (lowered.SetBool(FAILED, ir.BoolConst(True)), lowered.Stop())
            return (lowered.If(ir.Not(data(condition)), failed, ()),)
        case ir.Truncate(length):
            wanted = _masked(data(length), _UINT64)
            shorter = ir.Compare(ir.Comparison.LT, wanted, MAX_LENGTH)
            return (lowered.If(shorter, (lowered.SetInteger(MAX_LENGTH, wanted),), ()),)
        case ir.Random():
            return lower_random(primitive, resolver)
        case ir.Clone() | ir.Digest() | ir.Resubmit() | ir.Recirculate():
            return lower_request(primitive, data)
        case ir.Hash(target, base, calculation, size):
            return resolver.assign(target, _hash(data(base), data(size), calculation))
        case _:
            return _lower_header_primitive(resolver, primitive)


def _cell(resolver: Resolver, index: ir.DataExpression) -> Any:
    """The index of a register, counter or meter modulo 2**32."""
    resolved = resolver.resolve(index)
    match resolved:
        case ir.Const(value):
            return ir.Const(value & _UINT32)
        case ir.FieldRef(_, field) if field != ir.VALID:
            kept = resolver.program.field(resolved)
            if not kept.signed and kept.width <= 32:
                return resolved
        case lowered.Argument(_, _, low, high) | lowered.IntVariable(_, low, high):
            if low >= 0 and high <= _UINT32:
                return resolved
        case ir.Binary(ir.DataOperator.AND, _, ir.Const(mask)) if 0 <= mask <= _UINT32:
            return resolved
    return ir.Binary(ir.DataOperator.AND, resolved, ir.Const(_UINT32))


def _assign_variable(
    resolver: Resolver, target: ir.FieldRef | ir.HeaderField, source: ir.FieldRef | ir.HeaderField
) -> lowered.Body:
    """Between headers that are found at run time; where one of them is none nothing happens."""
    to, to_field = resolver.header_and_field(target)
    origin, origin_field = resolver.header_and_field(source)

    def copy(header: int, other: int) -> lowered.Body:
        pair = ir.FieldRef(header, to_field), ir.FieldRef(other, origin_field)
        return copy_field(resolver.program, *pair)

    return body_of(to, lambda header: body_of(origin, lambda other: copy(header, other)))


def _register_read(
    resolver: Resolver, target: ir.LValue, register: int, index: Any
) -> lowered.Body:
    if isinstance(target, ir.RegisterElement):
        # Out of bounds the cell is written back as it was.
        cell = resolver.resolve(target)
        read = lowered.LoadCell(cell, register, 0, index)
        return (read, *resolver.assign(target, cell))
    return resolver.store(target, lambda field: (lowered.LoadCell(field, register, 0, index),))


def _execute_meter(resolver: Resolver, target: ir.LValue, meter: int, index: Any) -> lowered.Body:
    """The meter runs even where no field is meant that could take its color."""
    unseen: Any = lowered.IntVariable("unseen", 0, 2)
    if isinstance(target, ir.RegisterElement):
        cell = resolver.resolve(target)
        return (lowered.MeterPacket(cell, meter, index), *resolver.assign(target, cell))
    tree, field = resolver.header_and_field(target)
    return body_of(
        tree,
        lambda header: (lowered.MeterPacket(ir.FieldRef(header, field), meter, index),),
        (lowered.MeterPacket(unseen, meter, index),),
    )


def _hash(base: Any, size: Any, calculation: int) -> Any:
    """``base`` + H mod size, with a size of 0 taken as 1."""
    base, size = _masked(base, _UINT64), _masked(size, _UINT64)
    positive: Any = ir.Choice(ir.DataToBool(size), size, ir.Const(1))
    if isinstance(size, ir.Const):
        positive = ir.Const(size.value or 1)
    value: Any = lowered.HashValue(calculation)
    remainder = ir.Binary(ir.DataOperator.MOD, value, positive)
    return _masked(ir.Binary(ir.DataOperator.ADD, base, remainder), _UINT64)


def _masked(value: Any, mask: int) -> Any:
    """The low bits of a resolved integer: what simple_switch takes of its big integers."""
    if isinstance(value, ir.Const):
        return ir.Const(value.value & mask)
    return ir.Binary(ir.DataOperator.AND, value, ir.Const(mask))


def _lower_header_primitive(  # noqa: PLR0911 - one branch per primitive
    resolver: Resolver, primitive: ir.Primitive
) -> lowered.Body:
    program = resolver.program
    match primitive:
        case ir.AddHeader(header):
            return body_of(resolver.headers(header), lambda each: add_header(program, each))
        case ir.RemoveHeader(header):
            return body_of(resolver.headers(header), lambda each: remove_header(program, each))
        case ir.AssignHeader(target, source):
            origins = resolver.headers(source)
            return body_of(
                resolver.headers(target),
                lambda to: body_of(
                    origins,
                    lambda origin: copy_header(program, to, origin),
                    copy_header(program, to, None),
                ),
            )
        case ir.AssignUnion(target, source):
            unions = resolver.unions(source)
            return body_of(
                resolver.unions(target),
                lambda to: body_of(unions, lambda origin: copy_union(program, to, origin)),
            )
        case ir.AssignStack(target, source):
            return copy_stack(program, target, source)
        case ir.AssignUnionStack(target, source):
            return copy_union_stack(program, target, source)
        case ir.Push() | ir.Pop():
            return shift(resolver, primitive)
        case _:
            raise AssertionError(f"{type(primitive).__name__} was not refused at load")


# ── Requests to the switch ───────────────────────────────────────────────────────────────────────


def lower_request(
    primitive: ir.Clone | ir.Digest | ir.Resubmit | ir.Recirculate, data: Callable[[Any], Any]
) -> lowered.Body:
    """The statements of one primitive; ``data`` resolves its expressions.

    BMv2 keeps 16 bits of a session and of the id of a list.
    """
    match primitive:
        case ir.Clone(_, session, field_list):
            number = ir.Binary(
                ir.DataOperator.AND, _masked(data(session), _UINT16), ir.Const(0x7FFF)
            )
            return (
                lowered.SetInteger(CLONE_SESSION, number),
                lowered.SetInteger(CLONE_LIST, _masked(data(field_list), _UINT16)),
            )
        case ir.Digest(_, learn_list):
            return (lowered.SetInteger(LEARN_LIST, _masked(data(learn_list), _UINT16)),)
        case ir.Resubmit(field_list):
            return (lowered.SetInteger(RESUBMIT_LIST, _masked(data(field_list), _UINT16)),)
        case ir.Recirculate(field_list):
            return (lowered.SetInteger(RECIRCULATE_LIST, _masked(data(field_list), _UINT16)),)


def lower_random(primitive: ir.Random, resolver: Resolver) -> lowered.Body:
    """Draw and assign, unless the bounds are the wrong way round."""
    bounds = (primitive.low, primitive.high)
    low, high = (_masked(resolver.resolve(bound), _UINT64) for bound in bounds)
    fixed = isinstance(low, ir.Const) and isinstance(high, ir.Const)
    drawn: Any = lowered.IntVariable("drawn", 0, high.value if fixed else _UINT64)
    then = (lowered.DrawRandom(drawn, low, high), *resolver.assign(primitive.target, drawn))
    if fixed:
        return then if low.value <= high.value else ()
    return (lowered.If(ir.Compare(ir.Comparison.LE, low, high), then, ()),)
