"""Primitives and parser operations of the intermediate form as text that people read."""

from __future__ import annotations

from functools import singledispatchmethod

from innet.switch import ir
from innet.switch.ir_text import Text

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
