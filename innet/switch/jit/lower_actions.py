"""Actions: primitives with jumps become nested statements, parameters become arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from innet.switch import ir
from innet.switch.jit import plan
from innet.switch.jit.control import structure
from innet.switch.jit.lower_requests import lower_random, lower_request
from innet.switch.jit.tree import rebuild

# Any: expressions of the plan stand where the program's own types name only the program's.
#: Counts the bytes of headers that come and go; becomes packet_length in egress.
PACKET_LENGTH: Any = plan.Scalar("packet_length", -(1 << 31), 1 << 31)
#: Bytes of a packet that may leave; ``truncate`` lowers it.
LONGEST: Any = plan.Scalar("longest", 0, (1 << 63) - 1)
#: Set by ``exit`` where it depends on a condition.
LEAVING = "leaving"

Arguments = Callable[[int], plan.Expression]


def resolve(program: ir.Program, expression: Any, arguments: Arguments) -> Any:
    """An expression of the program with arguments put in and header operations spelled out."""

    def replace(node: Any) -> Any:  # noqa: PLR0911 - one branch per node
        match node:
            case ir.Local(index):
                return arguments(index)
            case ir.HeaderField(ir.HeaderRef(header), field):
                return ir.FieldRef(header, field)
            case ir.FieldRef(header, ir.VALID):
                return ir.BoolToData(ir.Valid(ir.HeaderRef(header)))
            case ir.DataToBool(ir.BoolToData(operand)):
                return operand
            case ir.Valid(ir.HeaderRef(header)) if program.headers[header].metadata:
                return ir.BoolConst(True)
            case ir.HeaderCompare(operator, ir.HeaderRef(left), ir.HeaderRef(right)):
                equal = _equal_headers(program, left, right)
                return equal if operator is ir.Comparison.EQ else ir.Not(equal)
            case _:
                return node

    return rebuild(expression, replace)


def _equal_headers(program: ir.Program, left: int, right: int) -> ir.BoolExpression:
    """As simple_switch compares: false when either is invalid, even when both are."""
    equal: ir.BoolExpression = ir.Logical(
        ir.Connective.AND, ir.Valid(ir.HeaderRef(left)), ir.Valid(ir.HeaderRef(right))
    )
    for field in range(len(program.type_of(left).fields)):
        same = ir.Compare(ir.Comparison.EQ, ir.FieldRef(left, field), ir.FieldRef(right, field))
        equal = ir.Logical(ir.Connective.AND, equal, same)
    return equal


def lower_action(program: ir.Program, action: ir.Action, arguments: Arguments) -> plan.Body:
    """The statements of one action at one place of the program."""
    primitives = action.primitives
    end = len(primitives)

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

    def write(step: int, bodies: tuple[plan.Body, ...]) -> plan.Body:
        primitive = primitives[step]
        if isinstance(primitive, ir.Jump):
            return ()
        if isinstance(primitive, ir.JumpIfZero):
            if len(bodies) == 1:
                return ()
            value = resolve(program, primitive.condition, arguments)
            condition = value.operand if isinstance(value, ir.BoolToData) else ir.DataToBool(value)
            return (plan.If(condition, bodies[0], bodies[1]),)
        return lower_primitive(program, primitive, arguments)

    body = structure(0 if primitives else None, successors, write)
    if not any(isinstance(primitive, ir.Exit) for primitive in primitives):
        return body
    if not any(isinstance(primitive, ir.Jump | ir.JumpIfZero) for primitive in primitives):
        return (*_without_leaving(body), plan.Stop())
    return (*body, plan.If(plan.Flag(LEAVING), (plan.Stop(),), ()))


def _without_leaving(body: plan.Body) -> plan.Body:
    return tuple(
        statement
        for statement in body
        if not (isinstance(statement, plan.SetFlag) and statement.name == LEAVING)
    )


def lower_primitive(  # noqa: PLR0911, PLR0912 - one branch per primitive
    program: ir.Program, primitive: ir.Primitive, arguments: Arguments
) -> plan.Body:
    """The statements of one primitive that is no jump."""

    def data(expression: Any) -> Any:
        return resolve(program, expression, arguments)

    match primitive:
        case ir.NoOp() | ir.LogMessage():
            return ()
        case ir.Assign(target, value):
            return (plan.Assign(data(target), data(value)),)
        case ir.RegisterRead(target, register, index):
            return (plan.RegisterRead(data(target), register, 0, data(index)),)
        case ir.RegisterWrite(register, index, value):
            return (plan.RegisterWrite(register, 0, data(index), data(value)),)
        case ir.Count(counter, index):
            return (plan.Count(counter, data(index)),)
        case ir.ExecuteMeter(meter, index, target):
            return (plan.ExecuteMeter(data(target), meter, data(index)),)
        case ir.MarkToDrop(egress_spec, mcast_grp):
            drop = plan.Assign(egress_spec, ir.Const(511))
            if mcast_grp is None:
                return (drop,)
            return (drop, plan.Assign(mcast_grp, ir.Const(0)))
        case ir.Exit():
            return (plan.SetFlag(LEAVING, ir.BoolConst(True)),)
        case ir.Truncate(length):
            shorter = ir.Compare(ir.Comparison.LT, data(length), LONGEST)
            return (plan.If(shorter, (plan.Assign(LONGEST, data(length)),), ()),)
        case ir.Random():
            return lower_random(primitive, data)
        case ir.Clone() | ir.Digest() | ir.Resubmit() | ir.Recirculate():
            return lower_request(primitive, data)
        case ir.Hash(target, base, calculation, size):
            return (plan.Assign(data(target), _hash(data(base), calculation, data(size))),)
        case _:
            return _lower_header_primitive(program, primitive)


def _hash(base: Any, calculation: int, size: Any) -> Any:
    """``base`` + H mod size, with a size of 0 taken as 1."""
    positive: Any = ir.Choice(ir.DataToBool(size), size, ir.Const(1))
    if isinstance(size, ir.Const):
        positive = ir.Const(size.value or 1)
    value: Any = plan.HashValue(calculation)
    remainder = ir.Binary(ir.DataOperator.MOD, value, positive)
    return ir.Binary(ir.DataOperator.ADD, base, remainder)


def _lower_header_primitive(program: ir.Program, primitive: ir.Primitive) -> plan.Body:
    match primitive:
        case ir.AddHeader(ir.HeaderRef(header)):
            fields = range(len(program.type_of(header).fields))
            zeros = tuple(plan.Assign(ir.FieldRef(header, i), ir.Const(0)) for i in fields)
            valid = plan.SetValid(header, ir.BoolConst(True))
            then = (*zeros, valid, _lengthen(program, header, 1))
            return (plan.If(ir.Not(ir.Valid(ir.HeaderRef(header))), then, ()),)
        case ir.RemoveHeader(ir.HeaderRef(header)):
            invalid = plan.SetValid(header, ir.BoolConst(False))
            then = (invalid, _lengthen(program, header, -1))
            return (plan.If(ir.Valid(ir.HeaderRef(header)), then, ()),)
        case ir.AssignHeader(ir.HeaderRef(target), ir.HeaderRef(source)):
            return _copy_header(program, target, source)
        case ir.AssignStack(target, source):
            pairs = zip(program.stacks[target].headers, program.stacks[source].headers, strict=True)
            return tuple(
                statement
                for left, right in pairs
                for statement in _copy_header(program, left, right)
            )
        case _:
            raise AssertionError(f"{type(primitive).__name__} was not refused at load")


def _copy_header(program: ir.Program, target: int, source: int) -> plan.Body:
    fields = range(len(program.type_of(source).fields))
    copies = tuple(plan.Assign(ir.FieldRef(target, i), ir.FieldRef(source, i)) for i in fields)
    if program.headers[source].metadata:
        return copies
    valid = plan.SetValid(target, ir.BoolConst(True))
    invalid = plan.SetValid(target, ir.BoolConst(False))
    return (plan.If(ir.Valid(ir.HeaderRef(source)), (valid, *copies), (invalid,)),)


def _lengthen(program: ir.Program, header: int, sign: int) -> plan.Statement:
    size = sign * (program.type_of(header).width // 8)
    grown = ir.Binary(ir.DataOperator.ADD, PACKET_LENGTH, ir.Const(size))
    return plan.Assign(PACKET_LENGTH, grown)
