"""Primitives of BMv2 JSON: what actions, parser states and deparsers do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.frontend.expressions import Expressions
from innet.switch.frontend.json_tree import Tree
from innet.switch.frontend.names import Names

Arguments = list[Tree]


@dataclass(frozen=True, slots=True)
class Primitives:
    """Builds primitives; ``parameters`` is how many arguments the enclosing action has."""

    names: Names
    standard: ir.StandardMetadata
    parameters: int = 0

    def build(self, tree: Tree) -> ir.Primitive:
        """The primitive call ``tree``; one that v1model does not have becomes an ExternCall."""
        name = tree["op"].string()
        if name not in _BUILDERS:
            return ir.ExternCall(name)
        count, builder = _BUILDERS[name]
        arguments = list(tree["parameters"].exactly(count))
        return builder(self, Expressions(self.names, self.parameters), arguments)

    def all(self, trees: Tree) -> tuple[ir.Primitive, ...]:
        """All calls of an array, with jumps checked to stay inside and to go forward."""
        primitives = tuple(self.build(tree) for tree in trees)
        for position, (primitive, tree) in enumerate(zip(primitives, trees, strict=True)):
            if isinstance(primitive, ir.Jump | ir.JumpIfZero) and not (
                position < primitive.target <= len(primitives)
            ):
                raise tree["parameters"].wrong("a jump forward inside the action")
        return primitives


Builder = Callable[[Primitives, Expressions, Arguments], ir.Primitive]
_BUILDERS: dict[str, tuple[int, Builder]] = {}


def _primitive(*names: str, arguments: int) -> Callable[[Builder], Builder]:
    """Register how a primitive with that many arguments is built."""

    def register(builder: Builder) -> Builder:
        for name in names:
            _BUILDERS[name] = (arguments, builder)
        return builder

    return register


@_primitive("assign", "modify_field", arguments=2)
def _assign(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Assign(make.lvalue(args[0]), make.data(args[1]))


@_primitive("assign_VL", arguments=2)
def _assign_variable(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    target, source = make.lvalue(args[0]), make.lvalue(args[1])
    for place, tree in ((target, args[0]), (source, args[1])):
        if not isinstance(place, ir.FieldRef | ir.HeaderField):
            raise tree.wrong("a field of variable width")
    assert isinstance(target, ir.FieldRef | ir.HeaderField)
    assert isinstance(source, ir.FieldRef | ir.HeaderField)
    return ir.AssignVariable(target, source)


@_primitive("assign_header", "copy_header", arguments=2)
def _assign_header(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    target, source = make.header(args[0]), make.header(args[1])
    if make.type_of(target) != make.type_of(source):
        raise args[1].wrong("a header of the type of the header that it is assigned to")
    return ir.AssignHeader(target, source)


@_primitive("assign_header_stack", arguments=2)
def _assign_stack(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.AssignStack(make.stack(args[0]), make.stack(args[1]))


@_primitive("assign_union", arguments=2)
def _assign_union(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.AssignUnion(make.union(args[0]), make.union(args[1]))


@_primitive("assign_union_stack", arguments=2)
def _assign_union_stack(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.AssignUnionStack(
        make.stack(args[0], of_unions=True), make.stack(args[1], of_unions=True)
    )


@_primitive("push", arguments=2)
def _push(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    stack = make.any_stack(args[0])
    return ir.Push(stack.index, make.data(args[1]), stack.of_unions)


@_primitive("pop", arguments=2)
def _pop(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    stack = make.any_stack(args[0])
    return ir.Pop(stack.index, make.data(args[1]), stack.of_unions)


@_primitive("add_header", arguments=1)
def _add_header(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.AddHeader(make.header(args[0]))


@_primitive("remove_header", arguments=1)
def _remove_header(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.RemoveHeader(make.header(args[0]))


def _position(make: Expressions, tree: Tree) -> int:
    target = make.data(tree)
    if not isinstance(target, ir.Const):
        raise tree.wrong("a constant position to jump to")
    return target.value


@_primitive("_jump", arguments=1)
def _jump(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Jump(_position(make, args[0]))


@_primitive("_jump_if_zero", arguments=2)
def _jump_if_zero(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.JumpIfZero(make.data(args[0]), _position(make, args[1]))


@_primitive("no_op", arguments=0)
def _no_op(_: Primitives, __: Expressions, ___: Arguments) -> ir.Primitive:
    return ir.NoOp()


@_primitive("exit", arguments=0)
def _exit(_: Primitives, __: Expressions, ___: Arguments) -> ir.Primitive:
    return ir.Exit()


@_primitive("assert", arguments=1)
def _assert(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Assert(ir.DataToBool(make.data(args[0])), assume=False)


@_primitive("assume", arguments=1)
def _assume(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Assert(ir.DataToBool(make.data(args[0])), assume=True)


@_primitive("log_msg", arguments=2)
def _log_message(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    listed = args[1]["value"]
    # p4c writes an empty object where there is nothing to list.
    values = () if listed.value == {} else tuple(make.data(value) for value in listed)
    return ir.LogMessage(args[0]["value"].string(), values)


@_primitive("mark_to_drop", arguments=1)
def _mark_to_drop(build: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    header = make.header(args[0])
    names = [field.name for field in build.names.types[make.type_of(header)].fields]
    if not isinstance(header, ir.HeaderRef) or "egress_spec" not in names:
        raise args[0].wrong("the standard metadata, which has a field egress_spec")
    group = names.index("mcast_grp") if "mcast_grp" in names else None
    return ir.MarkToDrop(
        ir.FieldRef(header.header, names.index("egress_spec")),
        None if group is None else ir.FieldRef(header.header, group),
    )


@_primitive("drop", arguments=0)
def _drop(build: Primitives, _: Expressions, __: Arguments) -> ir.Primitive:
    return ir.MarkToDrop(build.standard.egress_spec, build.standard.mcast_grp)


@_primitive("truncate", arguments=1)
def _truncate(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Truncate(make.data(args[0]))


@_primitive("count", arguments=2)
def _count(build: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Count(build.names.counters.of(args[0]["value"]), make.data(args[1]))


@_primitive("execute_meter", arguments=3)
def _execute_meter(build: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    meter = build.names.meters.of(args[0]["value"])
    return ir.ExecuteMeter(meter, make.data(args[1]), make.lvalue(args[2]))


@_primitive("register_read", arguments=3)
def _register_read(build: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    register = build.names.registers.of(args[1]["value"])
    return ir.RegisterRead(make.lvalue(args[0]), register, make.data(args[2]))


@_primitive("register_write", arguments=3)
def _register_write(build: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    register = build.names.registers.of(args[0]["value"])
    return ir.RegisterWrite(register, make.data(args[1]), make.data(args[2]))


@_primitive("modify_field_with_hash_based_offset", arguments=4)
def _hash(build: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    calculation = build.names.calculations.of(args[2]["value"])
    return ir.Hash(make.lvalue(args[0]), make.data(args[1]), calculation, make.data(args[3]))


@_primitive("modify_field_rng_uniform", arguments=3)
def _random(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Random(make.lvalue(args[0]), make.data(args[1]), make.data(args[2]))


@_primitive("generate_digest", arguments=2)
def _digest(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Digest(make.data(args[0]), make.data(args[1]))


@_primitive("clone_ingress_pkt_to_egress", arguments=2)
def _clone_ingress(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Clone(egress=False, session=make.data(args[0]), field_list=make.data(args[1]))


@_primitive("clone_egress_pkt_to_egress", arguments=2)
def _clone_egress(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Clone(egress=True, session=make.data(args[0]), field_list=make.data(args[1]))


@_primitive("resubmit", arguments=1)
def _resubmit(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Resubmit(make.data(args[0]))


@_primitive("recirculate", arguments=1)
def _recirculate(_: Primitives, make: Expressions, args: Arguments) -> ir.Primitive:
    return ir.Recirculate(make.data(args[0]))
