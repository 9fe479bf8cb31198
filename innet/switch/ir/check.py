"""Checks that all references between the parts of a program are valid.

Programs from the loader always pass. A program that was made or changed in Python is checked here,
so that a wrong index raises ProgramError when the switch is made, instead of a crash at a packet.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from innet.core.errors import ProgramError
from innet.switch import ir
from innet.switch.ir.tree import walk

_Check = Callable[[ir.Program, Any], str | None]
_Step = ir.Table | ir.Conditional | ir.ActionCall
_Graph = Mapping[ir.Node, tuple[ir.Node | None, ...]]


def check_references(program: ir.Program) -> None:
    """Raise ProgramError, with the part and its reference, if a reference is invalid."""
    if _checked.get(id(program)) is program:
        return
    for name, part in _parts(program):
        parameters = len(part.parameters) if isinstance(part, ir.Action) else None
        for node in walk(part):
            wrong = _wrong(program, node, parameters)
            if wrong is not None:
                raise ProgramError(f"{name} refers to what the program does not have: {wrong}")
    refuse_cycles(program.tables, program.conditionals, program.action_calls)
    _checked[id(program)] = program


#: Programs that passed, which nothing can change since. By identity: to compare two takes as long.
_checked: weakref.WeakValueDictionary[int, ir.Program] = weakref.WeakValueDictionary()


def refuse_cycles(
    tables: tuple[ir.Table, ...],
    conditionals: tuple[ir.Conditional, ...],
    calls: tuple[ir.ActionCall, ...],
) -> None:
    """Raise ProgramError, with the names along the cycle, if a node leads back to itself.

    P4 has no loops outside the parser. A packet would never leave one.
    """
    graph: dict[ir.Node, tuple[ir.Node | None, ...]] = {}
    names: dict[ir.Node, str] = {}
    kinds: tuple[tuple[ir.NodeKind, Sequence[_Step]], ...] = (
        (ir.NodeKind.TABLE, tables),
        (ir.NodeKind.CONDITIONAL, conditionals),
        (ir.NodeKind.ACTION_CALL, calls),
    )
    for kind, nodes in kinds:
        for number, each in enumerate(nodes):
            graph[ir.Node(kind, number)] = each.successors
            names[ir.Node(kind, number)] = each.name
    cycle = _cycle(graph)
    if cycle:
        path = " -> ".join(names[node] for node in cycle)
        raise ProgramError(
            f"pipelines: expected tables and conditionals without a cycle, found {path}"
        )


def _cycle(graph: _Graph) -> list[ir.Node]:
    """The nodes along a cycle, with the first repeated at the end; empty if there is none."""
    finished: set[ir.Node] = set()
    for root in graph:
        if root in finished:
            continue
        # The path from the root, with the successors of each node that are not yet visited.
        path: dict[ir.Node, Iterator[ir.Node | None]] = {root: iter(graph[root])}
        while path:
            node, rest = next(reversed(path.items()))
            successor = next((each for each in rest if each not in finished and each), None)
            if successor is None:
                finished.add(node)
                del path[node]
            elif successor in path:
                nodes = list(path)
                return [*nodes[nodes.index(successor) :], successor]
            else:
                path[successor] = iter(graph[successor])
    return []


def _parts(program: ir.Program) -> Iterator[tuple[str, Any]]:
    """The parts of a program, each with a name for error messages."""
    for member in dataclasses.fields(program):
        value = getattr(program, member.name)
        if isinstance(value, tuple):
            for position, each in enumerate(value):
                if dataclasses.is_dataclass(each):
                    name = getattr(each, "name", "")
                    yield f"{member.name}[{position}] {name}".rstrip(), each
        elif dataclasses.is_dataclass(value):
            yield member.name, value


_OF: dict[type, tuple[tuple[str, str], ...]] = {
    ir.Header: (("type", "header_types"),),
    ir.Stack: (("type", "header_types"), ("headers", "headers")),
    ir.Union: (("headers", "headers"),),
    ir.UnionStack: (("unions", "unions"),),
    ir.FieldRef: (("header", "headers"),),
    ir.HeaderRef: (("header", "headers"),),
    ir.StackLastField: (("stack", "stacks"),),
    ir.StackLastIndex: (("stack", "stacks"),),
    ir.StackSize: (("stack", "stacks"),),
    ir.StackElement: (("stack", "stacks"),),
    ir.StackNext: (("stack", "stacks"),),
    ir.AssignStack: (("target", "stacks"), ("source", "stacks")),
    ir.UnionRef: (("union", "unions"),),
    ir.UnionStackElement: (("union_stack", "union_stacks"),),
    ir.UnionStackLastField: (("union_stack", "union_stacks"),),
    ir.UnionStackNext: (("union_stack", "union_stacks"),),
    ir.AssignUnionStack: (("target", "union_stacks"), ("source", "union_stacks")),
    ir.RegisterElement: (("register", "registers"),),
    ir.RegisterRead: (("register", "registers"),),
    ir.RegisterWrite: (("register", "registers"),),
    ir.Count: (("counter", "counters"),),
    ir.ExecuteMeter: (("meter", "meters"),),
    ir.Hash: (("calculation", "calculations"),),
    ir.Checksum: (("calculation", "calculations"),),
    ir.CounterArray: (("table", "tables"),),
    ir.MeterArray: (("table", "tables"),),
    ir.Deparser: (("order", "headers"),),
    ir.ActionEntry: (("action", "actions"),),
    ir.ActionCall: (("action", "actions"),),
    ir.Table: (
        ("actions", "actions"),
        ("counter", "counters"),
        ("meter", "meters"),
        ("action_profile", "action_profiles"),
    ),
}
"""Members that are indices (or tuples of them, or None) into a tuple of the program."""

_STEPS = {
    ir.NodeKind.TABLE: "tables",
    ir.NodeKind.CONDITIONAL: "conditionals",
    ir.NodeKind.ACTION_CALL: "action_calls",
}


def _wrong(program: ir.Program, node: Any, parameters: int | None) -> str | None:
    """What is wrong with ``node`` itself. ``parameters``: how many its action has."""
    for member, owner in _OF.get(type(node), ()):
        value = getattr(node, member)
        indices = value if isinstance(value, tuple) else () if value is None else (value,)
        for index in indices:
            if not 0 <= index < len(getattr(program, owner)):
                return f"{owner}[{index}] of {len(getattr(program, owner))}"
    if isinstance(node, ir.Local) and not 0 <= node.index < (parameters or 0):
        return f"parameter {node.index} of {parameters or 0}"
    check = _CHECKS.get(type(node))
    return check(program, node) if check is not None else None


def _field(program: ir.Program, node: ir.FieldRef) -> str | None:
    fields = program.type_of(node.header).fields
    if node.field == ir.VALID or 0 <= node.field < len(fields):
        return None
    return f"field {node.field} of {len(fields)} in header {program.headers[node.header].name}"


def _action(program: ir.Program, node: ir.Action) -> str | None:
    del program
    for position, primitive in enumerate(node.primitives):
        if isinstance(primitive, ir.Jump | ir.JumpIfZero) and not (
            0 <= primitive.target <= len(node.primitives)
        ):
            return f"primitive {primitive.target} from {position} of {len(node.primitives)}"
    return None


def _stack(program: ir.Program, node: ir.Stack) -> str | None:
    types = {program.headers[header].type for header in node.headers}
    return None if types == {node.type} else "an element, each of the stack's type"


def _union_stack(program: ir.Program, node: ir.UnionStack) -> str | None:
    types = {
        tuple(program.headers[header].type for header in program.unions[union].headers)
        for union in node.unions
    }
    return None if len(types) == 1 else "an element, each of the same union type"


def _push_or_pop(program: ir.Program, node: ir.Push | ir.Pop) -> str | None:
    owner = program.union_stacks if node.of_unions else program.stacks
    return None if 0 <= node.stack < len(owner) else f"stack {node.stack} of {len(owner)}"


def _step(program: ir.Program, node: ir.Node) -> str | None:
    owner = _STEPS[node.kind]
    known = len(getattr(program, owner))
    return None if 0 <= node.index < known else f"{owner}[{node.index}] of {known}"


def _parser(program: ir.Program, node: ir.Parser) -> str | None:
    following = [state.default for state in node.states] + [
        transition.next for state in node.states for transition in state.transitions
    ]
    for state in (node.initial, *following):
        if state is not None and not 0 <= state < len(node.states):
            return f"state {state} of {len(node.states)}"
    for each in node.states:
        for transition in each.transitions:
            wrong = _transition(program, each, transition)
            if wrong is not None:
                return f"state {each.name}: {wrong}"
    return None


def _transition(
    program: ir.Program, state: ir.ParserState, transition: ir.Transition
) -> str | None:
    if transition.value_set is None:
        if len(transition.values) == len(transition.masks) == len(state.key):
            return None
        return f"{len(transition.values)} values for a key of {len(state.key)} parts"
    if 0 <= transition.value_set < len(program.value_sets):
        return None
    return f"value_sets[{transition.value_set}] of {len(program.value_sets)}"


def _table(program: ir.Program, node: ir.Table) -> str | None:
    if not node.by_hit and len(node.next) != len(node.actions):
        return f"{len(node.next)} following nodes for {len(node.actions)} actions"
    entries = [entry.entry for entry in node.entries]
    entries += [node.default] if node.default is not None else []
    for entry in entries:
        if not 0 <= entry.action < len(program.actions):
            return f"actions[{entry.action}] of {len(program.actions)}"
        wanted = len(program.actions[entry.action].parameters)
        if len(entry.arguments) != wanted:
            return f"{len(entry.arguments)} arguments for an action of {wanted} parameters"
    for each in node.entries:
        if len(each.matches) != len(node.keys):
            return f"{len(each.matches)} matches for a key of {len(node.keys)} fields"
    return None


_CHECKS: dict[type, _Check] = {
    ir.FieldRef: _field,
    ir.Action: _action,
    ir.Stack: _stack,
    ir.UnionStack: _union_stack,
    ir.Push: _push_or_pop,
    ir.Pop: _push_or_pop,
    ir.Node: _step,
    ir.Parser: _parser,
    ir.Table: _table,
}
