"""Expressions of BMv2 JSON, with their types found out.

The JSON does not say whether an operand is an integer, a boolean, a header or a stack, and ``==``
means something else for each. ``Expressions.build`` returns a node whose class tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from innet.switch import ir
from innet.switch.frontend.json_tree import Tree
from innet.switch.frontend.names import Names


@dataclass(frozen=True, slots=True)
class StackName:
    """A stack (of unions, when ``of_unions``) as an operand; never part of the finished form."""

    index: int
    of_unions: bool


Node = ir.DataExpression | ir.BoolExpression | ir.HeaderExpression | ir.UnionExpression | StackName

_DATA_OPERATORS = {operator.value: operator for operator in ir.DataOperator}
_COMPARISONS = {operator.value: operator for operator in ir.Comparison}


@dataclass(frozen=True, slots=True)
class Expressions:
    """Builds expressions; ``parameters`` is how many arguments the enclosing action has."""

    names: Names
    parameters: int = 0

    def data(self, tree: Tree) -> ir.DataExpression:
        """An integer."""
        node = self.build(tree)
        if isinstance(node, ir.DataExpression):
            return node
        raise tree.wrong("an expression with an integer value")

    def boolean(self, tree: Tree) -> ir.BoolExpression:
        node = self.build(tree)
        if isinstance(node, ir.BoolExpression):
            return node
        raise tree.wrong("an expression with a boolean value")

    def header(self, tree: Tree) -> ir.HeaderExpression:
        node = self.build(tree)
        if isinstance(node, ir.HeaderExpression):
            return node
        raise tree.wrong("a header")

    def union(self, tree: Tree) -> ir.UnionExpression:
        node = self.build(tree)
        if isinstance(node, ir.UnionExpression):
            return node
        raise tree.wrong("a header union")

    def stack(self, tree: Tree, of_unions: bool = False) -> int:
        node = self.build(tree)
        if isinstance(node, StackName) and node.of_unions is of_unions:
            return node.index
        raise tree.wrong("a header union stack" if of_unions else "a header stack")

    def any_stack(self, tree: Tree) -> StackName:
        node = self.build(tree)
        if isinstance(node, StackName):
            return node
        raise tree.wrong("a header stack or a header union stack")

    def lvalue(self, tree: Tree) -> ir.LValue:
        """Something that can be written."""
        node = self.build(tree)
        if isinstance(node, ir.FieldRef) and node.field == ir.VALID:
            raise tree.wrong("a field that can be written ($valid$ cannot)")
        if isinstance(node, ir.LValue):
            return node
        raise tree.wrong("a field, to write to")

    def build(self, tree: Tree) -> Node:  # noqa: PLR0911 - one return per kind of value
        """Whatever the type-value object ``tree`` denotes."""
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
                # p4c wraps the arguments of primitives once more.
                return self.build(value) if value.find("op") is None else self._operation(value)
        raise tree["type"].wrong("a type of value known in expressions")

    def _local(self, value: Tree) -> ir.Local:
        index = value.integer(least=0)
        if index >= self.parameters:
            raise value.wrong(f"the position of one of the action's {self.parameters} parameters")
        return ir.Local(index)

    def _operation(self, tree: Tree) -> Node:
        name = tree["op"].string()
        if name in ("==", "!="):
            return self._equality(tree, _COMPARISONS[name])
        if name in _COMPARISONS:
            left, right = self.data(tree["left"]), self.data(tree["right"])
            return ir.Compare(_COMPARISONS[name], left, right)
        if name in _DATA_OPERATORS:
            # Unary plus and minus have no left side.
            left = ir.Const(0) if tree.find("left") is None else self.data(tree["left"])
            return ir.Binary(_DATA_OPERATORS[name], left, self.data(tree["right"]))
        return self._other_operation(tree, name)

    def _equality(self, tree: Tree, operator: ir.Comparison) -> ir.BoolExpression:
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

    def _other_operation(self, tree: Tree, name: str) -> Node:
        if name in ("and", "or"):
            left, right = self.boolean(tree["left"]), self.boolean(tree["right"])
            return ir.Logical(ir.Connective(name), left, right)
        if name == "?":
            return self._choice(tree)
        if name in ("last_stack_index", "size_stack"):
            stack = self.stack(tree["right"])
            return ir.StackSize(stack) if name == "size_stack" else ir.StackLastIndex(stack)
        return self._unary(tree, name) or self._part(tree, name)

    def _unary(self, tree: Tree, name: str) -> Node | None:  # noqa: PLR0911 - one per operation
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

    def _part(self, tree: Tree, name: str) -> Node:
        """A part of something that is found at run time."""
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

    def _choice(self, tree: Tree) -> ir.Choice | ir.BoolChoice | ir.HeaderChoice:
        condition = self.boolean(tree["cond"])
        left = self.build(tree["left"])
        if isinstance(left, ir.DataExpression):
            return ir.Choice(condition, left, self.data(tree["right"]))
        if isinstance(left, ir.BoolExpression):
            return ir.BoolChoice(condition, left, self.boolean(tree["right"]))
        if isinstance(left, ir.HeaderExpression):
            return ir.HeaderChoice(condition, left, self.header(tree["right"]))
        raise tree["left"].wrong("an integer, a boolean or a header to choose")

    def _access_field(self, tree: Tree) -> ir.HeaderField | ir.FieldRef:
        header = self.header(tree["left"])
        index = tree["right"].integer(least=0)
        fields = self.names.types[self.type_of(header)].fields
        if index == len(fields):
            # BMv2 keeps $valid$ behind the fields that are declared.
            index = ir.VALID
        elif index > len(fields):
            raise tree["right"].wrong(f"the position of one of {len(fields)} fields")
        if isinstance(header, ir.HeaderRef):
            return ir.FieldRef(header.header, index)
        return ir.HeaderField(header, index)

    def type_of(self, header: ir.HeaderExpression) -> int:
        """Index of the type of a header, whichever it is at run time."""
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
