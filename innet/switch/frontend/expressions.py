"""Expressions and primitives of BMv2 JSON, for actions, parser states and deparsers.

The JSON does not state whether an operand is an integer, a boolean, a header or a stack, and ``==``
differs for each. ``ExpressionLoader.build`` returns a node whose class tells the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from innet.switch import ir
from innet.switch.frontend.json_tree import JsonTree, ProgramNames, source_of


@dataclass(frozen=True, slots=True)
class StackName:
    """A stack (of unions, if ``of_unions``) as an operand. It is not part of the finished form."""

    index: int
    of_unions: bool


Node = ir.DataExpression | ir.BoolExpression | ir.HeaderExpression | ir.UnionExpression | StackName

_DATA_OPERATORS = {operator.value: operator for operator in ir.DataOperator}
_COMPARISONS = {operator.value: operator for operator in ir.Comparison}


@dataclass(frozen=True, slots=True)
class ExpressionLoader:
    """Builds expressions. ``parameters`` is the number of parameters of the enclosing action."""

    names: ProgramNames
    parameters: int = 0

    def data(self, tree: JsonTree) -> ir.DataExpression:
        """An integer."""
        node = self.build(tree)
        if isinstance(node, ir.DataExpression):
            return node
        raise tree.wrong("an expression with an integer value")

    def boolean(self, tree: JsonTree) -> ir.BoolExpression:
        node = self.build(tree)
        if isinstance(node, ir.BoolExpression):
            return node
        raise tree.wrong("an expression with a boolean value")

    def header(self, tree: JsonTree) -> ir.HeaderExpression:
        node = self.build(tree)
        if isinstance(node, ir.HeaderExpression):
            return node
        raise tree.wrong("a header")

    def union(self, tree: JsonTree) -> ir.UnionExpression:
        node = self.build(tree)
        if isinstance(node, ir.UnionExpression):
            return node
        raise tree.wrong("a header union")

    def stack(self, tree: JsonTree, of_unions: bool = False) -> int:
        node = self.build(tree)
        if isinstance(node, StackName) and node.of_unions is of_unions:
            return node.index
        raise tree.wrong("a header union stack" if of_unions else "a header stack")

    def any_stack(self, tree: JsonTree) -> StackName:
        node = self.build(tree)
        if isinstance(node, StackName):
            return node
        raise tree.wrong("a header stack or a header union stack")

    def lvalue(self, tree: JsonTree) -> ir.LValue:
        """A target that can be written."""
        node = self.build(tree)
        if isinstance(node, ir.FieldRef) and node.field == ir.VALID:
            raise tree.wrong("a field that can be written ($valid$ cannot)")
        if isinstance(node, ir.LValue):
            return node
        raise tree.wrong("a field, to write to")

    def build(self, tree: JsonTree) -> Node:  # noqa: PLR0911 - one return per kind of value
        """The node for the type-value object ``tree``."""
        kind, value = tree["type"].string(), tree["value"]
        names = self.names
        match kind:
            case "hexstr":
                return ir.Const(value.hexadecimal())
            case "bool":
                return ir.BoolConst(value.boolean())
            case "field":
                return names.field(value)
            case "stack_field":
                return names.stack_field(value)
            case "local" | "runtime_data":
                return self._local(value)
            case "register":
                value.exactly(2)
                return ir.RegisterElement(names.registers.of(value[0]), self.data(value[1]))
            case "header":
                return ir.HeaderRef(names.headers.of(value))
            case "header_stack":
                return StackName(names.stacks.of(value), of_unions=False)
            case "header_union":
                return ir.UnionRef(names.unions.of(value))
            case "header_union_stack":
                return StackName(names.union_stacks.of(value), of_unions=True)
            case "expression":
                # p4c wraps the arguments of primitives twice.
                return self.build(value) if value.find("op") is None else self._operation(value)
        raise tree["type"].wrong("a type of value known in expressions")

    def _local(self, value: JsonTree) -> ir.Local:
        index = value.integer(least=0)
        if index >= self.parameters:
            raise value.wrong(f"the position of one of the action's {self.parameters} parameters")
        return ir.Local(index)

    def _operation(self, tree: JsonTree) -> Node:
        name = tree["op"].string()
        if name in ("==", "!="):
            return self._equality(tree, _COMPARISONS[name])
        if name in _COMPARISONS:
            left, right = self.data(tree["left"]), self.data(tree["right"])
            return ir.Compare(_COMPARISONS[name], left, right)
        if name in _DATA_OPERATORS:
            # Unary plus and minus have no left operand.
            left = ir.Const(0) if tree.find("left") is None else self.data(tree["left"])
            return ir.Binary(_DATA_OPERATORS[name], left, self.data(tree["right"]))
        return self._other_operation(tree, name)

    def _equality(self, tree: JsonTree, operator: ir.Comparison) -> ir.BoolExpression:
        left = self.build(tree["left"])
        if isinstance(left, ir.DataExpression):
            return ir.Compare(operator, left, self.data(tree["right"]))
        if isinstance(left, ir.BoolExpression):
            return ir.Logical(ir.Connective(operator.value), left, self.boolean(tree["right"]))
        if isinstance(left, ir.HeaderExpression):
            return ir.HeaderCompare(operator, left, self.header(tree["right"]))
        if isinstance(left, ir.UnionExpression):
            return ir.UnionCompare(operator, left, self.union(tree["right"]))
        raise tree["left"].wrong("something that can be compared")

    def _other_operation(self, tree: JsonTree, name: str) -> Node:
        if name in ("and", "or"):
            left, right = self.boolean(tree["left"]), self.boolean(tree["right"])
            return ir.Logical(ir.Connective(name), left, right)
        if name == "?":
            return self._choice(tree)
        if name in ("last_stack_index", "size_stack"):
            stack = self.stack(tree["right"])
            return ir.StackSize(stack) if name == "size_stack" else ir.StackLastIndex(stack)
        return self._unary(tree, name) or self._part(tree, name)

    def _unary(self, tree: JsonTree, name: str) -> Node | None:  # noqa: PLR0911 - one per operation
        match name:
            case "not":
                return ir.Not(self.boolean(tree["right"]))
            case "~":
                return ir.Invert(self.data(tree["right"]))
            case "d2b":
                return ir.DataToBool(self.data(tree["right"]))
            case "b2d":
                return ir.BoolToData(self.boolean(tree["right"]))
            case "valid":
                return ir.Valid(self.header(tree["right"]))
            case "valid_union":
                return ir.UnionValid(self.union(tree["right"]))
        return None

    def _part(self, tree: JsonTree, name: str) -> Node:
        """A part of a header, union or stack that is found at run time."""
        match name:
            case "access_field":
                return self._access_field(tree)
            case "access_union_header":
                return ir.UnionMember(self.union(tree["left"]), tree["right"].integer(least=0))
            case "dereference_header_stack" | "dereference_stack":
                return ir.StackElement(self.stack(tree["left"]), self.data(tree["right"]))
            case "dereference_union_stack":
                stack = self.stack(tree["left"], of_unions=True)
                return ir.UnionStackElement(stack, self.data(tree["right"]))
        raise tree["op"].wrong("an operation that BMv2 has")

    def _choice(self, tree: JsonTree) -> ir.Choice | ir.BoolChoice | ir.HeaderChoice:
        condition = self.boolean(tree["cond"])
        left = self.build(tree["left"])
        if isinstance(left, ir.DataExpression):
            return ir.Choice(condition, left, self.data(tree["right"]))
        if isinstance(left, ir.BoolExpression):
            return ir.BoolChoice(condition, left, self.boolean(tree["right"]))
        if isinstance(left, ir.HeaderExpression):
            return ir.HeaderChoice(condition, left, self.header(tree["right"]))
        raise tree["left"].wrong("an integer, a boolean or a header to choose")

    def _access_field(self, tree: JsonTree) -> ir.HeaderField | ir.FieldRef:
        header = self.header(tree["left"])
        index = tree["right"].integer(least=0)
        fields = self.names.types[self.type_of(header)].fields
        if index == len(fields):
            # BMv2 stores $valid$ after the declared fields.
            index = ir.VALID
        elif index > len(fields):
            raise tree["right"].wrong(f"the position of one of {len(fields)} fields")
        if isinstance(header, ir.HeaderRef):
            return ir.FieldRef(header.header, index)
        return ir.HeaderField(header, index)

    def type_of(self, header: ir.HeaderExpression) -> int:
        """Index of the header's type, the same for all headers that are possible at run time."""
        names = self.names
        if isinstance(header, ir.HeaderRef):
            return names.instances[header.header].type
        if isinstance(header, ir.StackElement):
            return names.all_stacks[header.stack].type
        if isinstance(header, ir.HeaderChoice):
            return self.type_of(header.left)
        union = header.union
        index = (
            union.union
            if isinstance(union, ir.UnionRef)
            else names.all_union_stacks[union.union_stack].unions[0]
        )
        return names.instances[names.all_unions[index].headers[header.position]].type


# ------------------------------------------------------------------ primitives

Arguments = list[JsonTree]


@dataclass(frozen=True, slots=True)
class Primitives:
    """Builds primitives. ``parameters`` is the number of parameters of their action."""

    names: ProgramNames
    standard: ir.StandardMetadata
    parameters: int = 0

    def build(self, tree: JsonTree) -> ir.Primitive:
        """The primitive call ``tree``, an ExternCall if v1model does not have the primitive."""
        name = tree["op"].string()
        if name not in _BUILDERS:
            return ir.ExternCall(name)
        count, builder = _BUILDERS[name]
        arguments = list(tree["parameters"].exactly(count))
        return builder(self, ExpressionLoader(self.names, self.parameters), arguments)

    def all(self, trees: JsonTree) -> tuple[ir.Primitive, ...]:
        """All calls of an array. Jumps must stay inside."""
        primitives = [self.build(tree) for tree in trees]
        for position, tree in enumerate(trees):
            primitive = primitives[position]
            if isinstance(primitive, ir.Jump | ir.JumpIfZero):
                if not 0 <= primitive.target <= len(primitives):
                    raise tree["parameters"].wrong("a jump inside the action")
                primitives[position] = replace(primitive, source=source_of(tree.value))
        return tuple(primitives)


Builder = Callable[[Primitives, ExpressionLoader, Arguments], ir.Primitive]


def _assign_variable(_: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    target, source = make.lvalue(args[0]), make.lvalue(args[1])
    for field, tree in ((target, args[0]), (source, args[1])):
        if not isinstance(field, ir.FieldRef | ir.HeaderField):
            raise tree.wrong("a field of variable width")
    assert isinstance(target, ir.FieldRef | ir.HeaderField)
    assert isinstance(source, ir.FieldRef | ir.HeaderField)
    return ir.AssignVariable(target, source)


def _assign_header(_: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    target, source = make.header(args[0]), make.header(args[1])
    if make.type_of(target) != make.type_of(source):
        raise args[1].wrong("a header of the type of the header that it is assigned to")
    return ir.AssignHeader(target, source)


def _push(_: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    stack = make.any_stack(args[0])
    return ir.Push(stack.index, make.data(args[1]), stack.of_unions)


def _pop(_: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    stack = make.any_stack(args[0])
    return ir.Pop(stack.index, make.data(args[1]), stack.of_unions)


def _position(make: ExpressionLoader, tree: JsonTree) -> int:
    target = make.data(tree)
    if not isinstance(target, ir.Const):
        raise tree.wrong("a constant position to jump to")
    return target.value


def _log_message(_: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    listed = args[1]["value"]
    # p4c writes an empty object for an empty list.
    values = () if listed.value == {} else tuple(make.data(value) for value in listed)
    return ir.LogMessage(args[0]["value"].string(), values)


def _mark_to_drop(build: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    header = make.header(args[0])
    names = [field.name for field in build.names.types[make.type_of(header)].fields]
    if not isinstance(header, ir.HeaderRef) or "egress_spec" not in names:
        raise args[0].wrong("the standard metadata, which has a field egress_spec")
    group = names.index("mcast_grp") if "mcast_grp" in names else None
    return ir.MarkToDrop(
        ir.FieldRef(header.header, names.index("egress_spec")),
        None if group is None else ir.FieldRef(header.header, group),
    )


def _drop(build: Primitives, _: ExpressionLoader, __: Arguments) -> ir.Primitive:
    return ir.MarkToDrop(build.standard.egress_spec, build.standard.mcast_grp)


def _execute_meter(build: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    meter = build.names.meters.of(args[0]["value"])
    return ir.ExecuteMeter(meter, make.data(args[1]), make.lvalue(args[2]))


def _register_read(build: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    register = build.names.registers.of(args[1]["value"])
    return ir.RegisterRead(make.lvalue(args[0]), register, make.data(args[2]))


def _register_write(build: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    register = build.names.registers.of(args[0]["value"])
    return ir.RegisterWrite(register, make.data(args[1]), make.data(args[2]))


def _hash(build: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
    calculation = build.names.calculations.of(args[2]["value"])
    return ir.Hash(make.lvalue(args[0]), make.data(args[1]), calculation, make.data(args[3]))


def _compute(operator: ir.DataOperator) -> tuple[int, Builder]:
    """P4_14: target = left operator right."""

    def build(_: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
        value = ir.Binary(operator, make.data(args[1]), make.data(args[2]))
        return ir.Assign(make.lvalue(args[0]), value)

    return 3, build


def _change(operator: ir.DataOperator) -> tuple[int, Builder]:
    """P4_14: target = target operator value."""

    def build(_: Primitives, make: ExpressionLoader, args: Arguments) -> ir.Primitive:
        target = make.lvalue(args[0])
        return ir.Assign(target, ir.Binary(operator, target, make.data(args[1])))

    return 2, build


_BUILDERS: dict[str, tuple[int, Builder]] = {
    "assign": (2, lambda _, m, a: ir.Assign(m.lvalue(a[0]), m.data(a[1]))),
    "modify_field": (2, lambda _, m, a: ir.Assign(m.lvalue(a[0]), m.data(a[1]))),
    "add": _compute(ir.DataOperator.ADD),
    "subtract": _compute(ir.DataOperator.SUB),
    "bit_and": _compute(ir.DataOperator.AND),
    "bit_or": _compute(ir.DataOperator.OR),
    "bit_xor": _compute(ir.DataOperator.XOR),
    "shift_left": _compute(ir.DataOperator.SHIFT_LEFT),
    "shift_right": _compute(ir.DataOperator.SHIFT_RIGHT),
    "add_to_field": _change(ir.DataOperator.ADD),
    "subtract_from_field": _change(ir.DataOperator.SUB),
    "assign_VL": (2, _assign_variable),
    "assign_header": (2, _assign_header),
    "copy_header": (2, _assign_header),
    "assign_header_stack": (2, lambda _, m, a: ir.AssignStack(m.stack(a[0]), m.stack(a[1]))),
    "assign_union": (2, lambda _, m, a: ir.AssignUnion(m.union(a[0]), m.union(a[1]))),
    "assign_union_stack": (
        2,
        lambda _, m, a: ir.AssignUnionStack(
            m.stack(a[0], of_unions=True), m.stack(a[1], of_unions=True)
        ),
    ),
    "push": (2, _push),
    "pop": (2, _pop),
    "add_header": (1, lambda _, m, a: ir.AddHeader(m.header(a[0]))),
    "remove_header": (1, lambda _, m, a: ir.RemoveHeader(m.header(a[0]))),
    "_jump": (1, lambda _, m, a: ir.Jump(_position(m, a[0]))),
    "_jump_if_zero": (2, lambda _, m, a: ir.JumpIfZero(m.data(a[0]), _position(m, a[1]))),
    "no_op": (0, lambda _, __, ___: ir.NoOp()),
    "exit": (0, lambda _, __, ___: ir.Exit()),
    "assert": (1, lambda _, m, a: ir.Assert(ir.DataToBool(m.data(a[0])), assume=False)),
    "assume": (1, lambda _, m, a: ir.Assert(ir.DataToBool(m.data(a[0])), assume=True)),
    "log_msg": (2, _log_message),
    "mark_to_drop": (1, _mark_to_drop),
    "drop": (0, _drop),
    "truncate": (1, lambda _, m, a: ir.Truncate(m.data(a[0]))),
    "count": (2, lambda b, m, a: ir.Count(b.names.counters.of(a[0]["value"]), m.data(a[1]))),
    "execute_meter": (3, _execute_meter),
    "register_read": (3, _register_read),
    "register_write": (3, _register_write),
    "modify_field_with_hash_based_offset": (4, _hash),
    "modify_field_rng_uniform": (
        3,
        lambda _, m, a: ir.Random(m.lvalue(a[0]), m.data(a[1]), m.data(a[2])),
    ),
    "generate_digest": (2, lambda _, m, a: ir.Digest(m.data(a[0]), m.data(a[1]))),
    "clone_ingress_pkt_to_egress": (
        2,
        lambda _, m, a: ir.Clone(egress=False, session=m.data(a[0]), field_list=m.data(a[1])),
    ),
    "clone_egress_pkt_to_egress": (
        2,
        lambda _, m, a: ir.Clone(egress=True, session=m.data(a[0]), field_list=m.data(a[1])),
    ),
    "resubmit": (1, lambda _, m, a: ir.Resubmit(m.data(a[0]))),
    "recirculate": (1, lambda _, m, a: ir.Recirculate(m.data(a[0]))),
}
"""Each primitive of BMv2's v1model: its number of arguments, and its builder."""
