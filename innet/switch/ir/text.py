"""Expressions and statements of the intermediate form as text for people, in P4's spelling."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod

from innet.switch import ir

Node = (
    ir.DataExpression
    | ir.BoolExpression
    | ir.HeaderExpression
    | ir.UnionExpression
    | ir.UnionStackLastField
    | ir.Lookahead
)

_FUNCTIONS = {
    ir.DataOperator.TWO_COMP_MOD: "signed",
    ir.DataOperator.SAT_CAST: "saturate_signed",
    ir.DataOperator.USAT_CAST: "saturate",
}


def match_text(
    match: ir.Match,
    *,
    number: Callable[[int], str] = hex,
    and_mask: str = "&&&",
    to: str = "->",
) -> str:
    """An entry's match of one field.

    Args:
        match: of the entry.
        number: writes values and masks.
        and_mask: stands between a value and its mask.
        to: stands between the ends of a range.
    """
    match match:
        case ir.ExactMatch(value):
            return number(value)
        case ir.LpmMatch(value, prefix):
            return f"{number(value)}/{prefix}"
        case ir.TernaryMatch(value, mask):
            return f"{number(value)}{and_mask}{number(mask)}"
        case ir.RangeMatch(low, high):
            return f"{number(low)}{to}{number(high)}"


class Text:
    """Writes what belongs to one program.

    Args:
        program: for the names.
        parameters: of the action that the expression is in.
    """

    def __init__(self, program: ir.Program, parameters: tuple[ir.Parameter, ...] = ()) -> None:
        self.program = program
        self.parameters = parameters

    def of(self, node: Node) -> str:
        """The expression, without parentheses around it."""
        text = self._inner(node)
        outer = isinstance(
            node, ir.Binary | ir.Compare | ir.Logical | ir.HeaderCompare | ir.UnionCompare
        )
        return text[1:-1] if outer and text.startswith("(") else text

    @singledispatchmethod
    def _inner(self, node: Node) -> str:
        """The expression as a part of another."""
        return type(node).__name__

    # ── Integers and booleans ──

    @_inner.register
    def _(self, node: ir.Const) -> str:
        return str(node.value) if -10 < node.value < 10 else hex(node.value)

    @_inner.register
    def _(self, node: ir.BoolConst) -> str:
        return "true" if node.value else "false"

    @_inner.register
    def _(self, node: ir.Local) -> str:
        known = node.index < len(self.parameters)
        return self.parameters[node.index].name if known else f"argument {node.index}"

    @_inner.register
    def _(self, node: ir.Binary) -> str:
        if node.operator in _FUNCTIONS:
            return f"{_FUNCTIONS[node.operator]}({self.of(node.left)}, {self.of(node.right)})"
        return self._between(node.left, node.operator.value, node.right)

    @_inner.register(ir.Compare)
    @_inner.register(ir.HeaderCompare)
    @_inner.register(ir.UnionCompare)
    @_inner.register(ir.Logical)
    def _(self, node: ir.Compare | ir.HeaderCompare | ir.UnionCompare | ir.Logical) -> str:
        sign = {"and": "&&", "or": "||"}.get(node.operator.value, node.operator.value)
        return self._between(node.left, sign, node.right)

    def _between(self, left: Node, sign: str, right: Node) -> str:
        return f"({self._inner(left)} {sign} {self._inner(right)})"

    @_inner.register
    def _(self, node: ir.Invert) -> str:
        return f"~{self._inner(node.operand)}"

    @_inner.register
    def _(self, node: ir.Not) -> str:
        return f"!{self._inner(node.operand)}"

    @_inner.register(ir.BoolToData)
    @_inner.register(ir.DataToBool)
    def _(self, node: ir.BoolToData | ir.DataToBool) -> str:
        return str(self._inner(node.operand))

    @_inner.register(ir.Choice)
    @_inner.register(ir.BoolChoice)
    @_inner.register(ir.HeaderChoice)
    def _(self, node: ir.Choice | ir.BoolChoice | ir.HeaderChoice) -> str:
        condition = self._inner(node.condition)
        return f"({condition} ? {self._inner(node.left)} : {self._inner(node.right)})"

    @_inner.register
    def _(self, node: ir.RegisterElement) -> str:
        return f"{self.program.registers[node.register].name}[{self.of(node.index)}]"

    @_inner.register
    def _(self, node: ir.Lookahead) -> str:
        ahead = f" + {node.offset} bits" if node.offset else ""
        return f"lookahead<bit<{node.width}>>{ahead}"

    # ── Fields ──

    @_inner.register
    def _(self, node: ir.FieldRef) -> str:
        return self.program.name_of(node).replace(".$valid$", ".isValid()")

    @_inner.register
    def _(self, node: ir.StackLastField) -> str:
        stack = self.program.stacks[node.stack]
        field = self.program.header_types[stack.type].fields[node.field]
        return f"{stack.name}.last.{field.name}"

    @_inner.register
    def _(self, node: ir.UnionStackLastField) -> str:
        stack = self.program.union_stacks[node.union_stack]
        union = self.program.unions[stack.unions[0]]
        field = self.program.type_of(union.headers[node.position]).fields[node.field]
        return f"{stack.name}.last.{union.members[node.position]}.{field.name}"

    @_inner.register
    def _(self, node: ir.HeaderField) -> str:
        header = self._inner(node.header)
        if node.field == ir.VALID:
            return f"{header}.isValid()"
        field = self.program.type_of(self.program.some_header(node.header)).fields[node.field]
        return f"{header}.{field.name}"

    # ── Headers, stacks and unions ──

    @_inner.register
    def _(self, node: ir.StackLastIndex) -> str:
        return f"{self.program.stacks[node.stack].name}.lastIndex"

    @_inner.register
    def _(self, node: ir.StackSize) -> str:
        return f"{self.program.stacks[node.stack].name}.nextIndex"

    @_inner.register
    def _(self, node: ir.Valid) -> str:
        return f"{self._inner(node.header)}.isValid()"

    @_inner.register
    def _(self, node: ir.UnionValid) -> str:
        return f"{self._inner(node.union)}.isValid()"

    @_inner.register
    def _(self, node: ir.HeaderRef) -> str:
        return self.program.headers[node.header].name

    @_inner.register
    def _(self, node: ir.StackElement) -> str:
        return f"{self.program.stacks[node.stack].name}[{self.of(node.index)}]"

    @_inner.register
    def _(self, node: ir.UnionMember) -> str:
        members = self.program.some_union(node.union).members
        return f"{self._inner(node.union)}.{members[node.position]}"

    @_inner.register
    def _(self, node: ir.UnionRef) -> str:
        return self.program.unions[node.union].name

    @_inner.register
    def _(self, node: ir.UnionStackElement) -> str:
        return f"{self.program.union_stacks[node.union_stack].name}[{self.of(node.index)}]"


# ----------------------------------------------------------------------------
# Primitives and parser operations of the intermediate form as text that people read.

Statement = ir.Primitive | ir.ParserOperation


class StatementText:
    """Writes statements of one program.

    Args:
        program: for the names.
        parameters: of the action that the statements are in.
    """

    def __init__(self, program: ir.Program, parameters: tuple[ir.Parameter, ...] = ()) -> None:
        self.program = program
        self.text = Text(program, parameters).of

    @singledispatchmethod
    def of(self, node: Statement) -> str:
        """One statement."""
        return type(node).__name__

    # ── Values ──

    @of.register(ir.Assign)
    @of.register(ir.AssignVariable)
    @of.register(ir.AssignHeader)
    @of.register(ir.AssignUnion)
    def _(self, node: ir.AssignVariable | ir.AssignHeader | ir.AssignUnion | ir.Assign) -> str:
        source = node.value if isinstance(node, ir.Assign) else node.source
        return f"{self.text(node.target)} = {self.text(source)}"

    @of.register
    def _(self, node: ir.AssignStack) -> str:
        stacks = self.program.stacks
        return f"{stacks[node.target].name} = {stacks[node.source].name}"

    @of.register
    def _(self, node: ir.AssignUnionStack) -> str:
        stacks = self.program.union_stacks
        return f"{stacks[node.target].name} = {stacks[node.source].name}"

    @of.register(ir.Push)
    @of.register(ir.Pop)
    def _(self, node: ir.Push | ir.Pop) -> str:
        stacks = self.program.union_stacks if node.of_unions else self.program.stacks
        verb = "push" if isinstance(node, ir.Push) else "pop"
        return f"{stacks[node.stack].name}.{verb}_front({self.text(node.count)})"

    @of.register
    def _(self, node: ir.AddHeader) -> str:
        return f"{self.text(node.header)}.setValid()"

    @of.register
    def _(self, node: ir.RemoveHeader) -> str:
        return f"{self.text(node.header)}.setInvalid()"

    @of.register
    def _(self, node: ir.Hash) -> str:
        algorithm = self.program.hashes[node.calculation].algorithm
        base, size = self.text(node.base), self.text(node.size)
        return f"{self.text(node.target)} = {base} + {algorithm}(...) mod {size}"

    @of.register
    def _(self, node: ir.Random) -> str:
        low, high = self.text(node.low), self.text(node.high)
        return f"{self.text(node.target)} = random({low}, {high})"

    # ── State ──

    @of.register
    def _(self, node: ir.RegisterRead) -> str:
        register = self.program.registers[node.register].name
        return f"{self.text(node.target)} = {register}[{self.text(node.index)}]"

    @of.register
    def _(self, node: ir.RegisterWrite) -> str:
        register = self.program.registers[node.register].name
        return f"{register}[{self.text(node.index)}] = {self.text(node.value)}"

    @of.register
    def _(self, node: ir.Count) -> str:
        return f"{self.program.counters[node.counter].name}.count({self.text(node.index)})"

    @of.register
    def _(self, node: ir.ExecuteMeter) -> str:
        meter = self.program.meters[node.meter].name
        return f"{self.text(node.target)} = {meter}.execute({self.text(node.index)})"

    # ── Control ──

    @of.register
    def _(self, node: ir.Jump) -> str:
        return f"go on at {node.target}"

    @of.register
    def _(self, node: ir.JumpIfZero) -> str:
        return f"unless {self.text(node.condition)}: go on at {node.target}"

    @of.register
    def _(self, _: ir.NoOp) -> str:
        return "nothing"

    @of.register
    def _(self, _: ir.Exit) -> str:
        return "exit"

    @of.register
    def _(self, node: ir.Assert) -> str:
        return f"{'assume' if node.assume else 'assert'}({self.text(node.condition)})"

    @of.register
    def _(self, node: ir.LogMessage) -> str:
        return f"log_msg({', '.join([repr(node.text), *map(self.text, node.values)])})"

    @of.register
    def _(self, _: ir.MarkToDrop) -> str:
        return "mark_to_drop()"

    @of.register
    def _(self, node: ir.Truncate) -> str:
        return f"truncate({self.text(node.length)})"

    @of.register
    def _(self, node: ir.Digest) -> str:
        return f"digest(learn list {self.text(node.learn_list)})"

    @of.register
    def _(self, node: ir.Clone) -> str:
        kind = "E2E" if node.egress else "I2E"
        session, fields = self.text(node.session), self.text(node.field_list)
        return f"clone({kind}, session {session}, field list {fields})"

    @of.register
    def _(self, node: ir.Resubmit) -> str:
        return f"resubmit(field list {self.text(node.field_list)})"

    @of.register
    def _(self, node: ir.Recirculate) -> str:
        return f"recirculate(field list {self.text(node.field_list)})"

    @of.register
    def _(self, node: ir.ExternCall) -> str:
        return f"{node.name}(...)"

    # ── Parser ──

    @of.register
    def _(self, node: ir.Extract) -> str:
        match node.target:
            case ir.HeaderRef(header):
                name = self.program.headers[header].name
            case ir.StackNext(stack):
                name = f"{self.program.stacks[stack].name}.next"
            case ir.UnionStackNext(stack, position):
                union = self.program.unions[self.program.union_stacks[stack].unions[0]]
                name = f"{self.program.union_stacks[stack].name}.next.{union.members[position]}"
        length = "" if node.length is None else f", {self.text(node.length)} bits"
        return f"extract({name}{length})"

    @of.register
    def _(self, node: ir.SetFromLookahead) -> str:
        return f"{self.text(node.target)} = {self.text(node.source)}"

    @of.register
    def _(self, node: ir.Verify) -> str:
        error = self.text(node.error)
        if isinstance(node.error, ir.Const):
            code = node.error.value
            names = [name for name, each in self.program.errors.items() if each == code]
            error = f"error.{names[0]}" if names else error
        return f"verify({self.text(node.condition)}, {error})"

    @of.register
    def _(self, node: ir.Advance) -> str:
        return f"advance({self.text(node.bits)} bits)"
