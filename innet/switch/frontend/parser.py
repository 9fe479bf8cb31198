"""The parser and the deparser of BMv2 JSON."""

from __future__ import annotations

import itertools

from innet.core.errors import UnsupportedError
from innet.switch import ir
from innet.switch.frontend.expressions import ExpressionLoader, Primitives
from innet.switch.frontend.json_tree import JsonTree, ProgramNames, unknown_name
from innet.switch.ir.tree import rebuild, walk


def named(root: JsonTree, section: str, name: str) -> JsonTree:
    """The object called ``name`` in an array. simple_switch looks these up by name."""
    for tree in root[section]:
        if tree["name"].string() == name:
            return tree
    known = [tree["name"].string() for tree in root[section]]
    raise unknown_name(section.removesuffix("s"), name, known, root[section])


def load_parser(root: JsonTree, names: ProgramNames, primitives: Primitives) -> ir.Parser:
    """The parser called ``parser``, the one that simple_switch runs."""
    tree = named(root, "parsers", "parser")
    states = [state["name"].string() for state in tree["parse_states"]]
    loader = _ParserLoader(names, primitives, states)
    return ir.Parser(
        tree["name"].string(),
        tuple(loader.state(state) for state in tree["parse_states"]),
        loader.next(tree, "init_state"),
    )


def load_deparser(root: JsonTree, names: ProgramNames, primitives: Primitives) -> ir.Deparser:
    """The deparser called ``deparser``, the one that simple_switch runs."""
    tree = named(root, "deparsers", "deparser")
    calls = tree.find("primitives")
    return ir.Deparser(
        tree["name"].string(),
        tuple(names.headers.of(each) for each in tree.each("order")),
        () if calls is None else primitives.all(calls),
    )


class _ParserLoader:
    """Builds parse states; ``states`` are the names, in order."""

    def __init__(self, names: ProgramNames, primitives: Primitives, states: list[str]) -> None:
        self.names = names
        self.primitives = primitives
        self.expressions = ExpressionLoader(names)
        self.states = states

    def next(self, tree: JsonTree, key: str) -> int | None:
        """The state that member ``key`` names; None (accept) for null."""
        found = tree.find(key)
        if found is None:
            return None
        if found.string() not in self.states:
            raise unknown_name("parse state", found.string(), self.states, found)
        return self.states.index(found.string())

    def state(self, tree: JsonTree) -> ir.ParserState:
        key = tuple(self.key_part(part) for part in tree.each("transition_key"))
        transitions: list[ir.Transition] = []
        default = None
        for each in tree.each("transitions"):
            kind = "hexstr" if each.find("type") is None else each["type"].string()
            if kind == "default" or each["value"].value == "default":
                default = self.next(each, "next_state")
            elif kind in ("hexstr", "parse_vset"):
                transitions.append(self.transition(each, kind, key))
            else:
                raise each["type"].wrong("'default', 'hexstr' or 'parse_vset'")
        return ir.ParserState(
            tree["name"].string(),
            tuple(part for each in tree.each("parser_ops") for part in self.operations(each)),
            key,
            tuple(transitions),
            default,
        )

    def operations(self, tree: JsonTree) -> tuple[ir.ParserOperation, ...]:
        """What one operation of the document becomes."""
        name, parameters = tree["op"].string(), tree["parameters"]
        if name == "extract":
            return self.extract(parameters.exactly(1), None)
        if name == "extract_VL":
            return self.extract(parameters.exactly(2), self.expressions.data(parameters[1]))
        return (self.operation(tree, name, parameters),)

    def operation(self, tree: JsonTree, name: str, parameters: JsonTree) -> ir.ParserOperation:
        make = self.expressions
        match name:
            case "set":
                return self.set(parameters.exactly(2))
            case "verify":
                parameters.exactly(2)
                return ir.Verify(make.boolean(parameters[0]), self.error(parameters[1]))
            case "advance":
                return ir.Advance(make.data(parameters.exactly(1)[0]))
            case "primitive":
                return self.primitives.build(parameters.exactly(1)[0])
        if name == "shift":
            return ir.Advance(ir.Const(8 * parameters.exactly(1)[0].integer(least=0)))
        raise tree["op"].wrong("an operation that BMv2's parser has")

    def error(self, tree: JsonTree) -> ir.DataExpression:
        if isinstance(tree.value, int):
            return ir.Const(tree.integer())
        return self.expressions.data(tree)

    def extract(
        self, parameters: JsonTree, length: ir.DataExpression | None
    ) -> tuple[ir.ParserOperation, ...]:
        kind, value = parameters[0]["type"].string(), parameters[0]["value"]
        target: ir.HeaderRef | ir.StackNext | ir.UnionStackNext
        names = self.names
        if kind == "regular":
            target = ir.HeaderRef(names.headers.of(value))
            type_index = names.instances[target.header].type
        elif kind == "stack":
            target = ir.StackNext(names.stacks.of(value))
            type_index = names.all_stacks[target.stack].type
        elif kind == "union_stack":
            value.exactly(2)
            target = ir.UnionStackNext(*names.union_stack_member(value[0], value[1]))
            union = names.all_union_stacks[target.union_stack].unions[0]
            type_index = names.instances[names.all_unions[union].headers[target.position]].type
        else:
            raise parameters[0]["type"].wrong("'regular', 'stack' or 'union_stack'")
        variable = names.types[type_index].variable is not None
        if variable and length is None and type_index in names.lengths:
            return self.extract_stated(target, type_index, parameters)
        if variable != (length is not None):
            raise parameters.wrong("a length if and only if the header has a varbit field")
        return (ir.Extract(target, length),)

    def extract_stated(
        self, target: ir.HeaderRef | ir.StackNext | ir.UnionStackNext, kind: int, where: JsonTree
    ) -> tuple[ir.ParserOperation, ...]:
        """P4_14: the type states the length of its variable field, by the header's own fields.

        They are read ahead of the extraction, which needs the length.
        """
        if not isinstance(target, ir.HeaderRef):
            raise UnsupportedError(
                f"{where.path}: an element of a stack whose type states its own length (P4_14) is "
                "not supported; compile the program as P4_16"
            )
        fields = self.names.types[kind].fields
        # "local" numbers the fields of the header itself.
        own = ExpressionLoader(self.names, len(fields)).data(self.names.lengths[kind])
        used = sorted({node.index for node in walk(own) if isinstance(node, ir.Local)})
        of = {i: ir.FieldRef(target.header, i) for i in used}
        ahead = [
            ir.SetFromLookahead(field, ir.Lookahead(fields[i].offset, fields[i].width))
            for i, field in of.items()
        ]
        length = rebuild(own, lambda node: of[node.index] if isinstance(node, ir.Local) else node)
        return (*ahead, ir.Extract(target, length))

    def set(self, parameters: JsonTree) -> ir.ParserOperation:
        target = self.expressions.lvalue(parameters[0])
        if not isinstance(target, ir.FieldRef):
            raise parameters[0].wrong("a field")
        source = parameters[1]
        if source["type"].string() == "lookahead":
            return ir.SetFromLookahead(target, self.lookahead(source["value"]))
        value = self.expressions.data(source)
        if self._variable(target):
            if not isinstance(value, ir.FieldRef) or not self._variable(value):
                raise source.wrong("a field of variable width")
            return ir.AssignVariable(target, value)
        return ir.Assign(target, value)

    def _variable(self, reference: ir.FieldRef) -> bool:
        header_type = self.names.types[self.names.instances[reference.header].type]
        return reference.field == header_type.variable

    def lookahead(self, value: JsonTree) -> ir.Lookahead:
        value.exactly(2)
        return ir.Lookahead(value[0].width(least=0), value[1].width())

    def key_part(self, tree: JsonTree) -> ir.KeyPart:
        kind, value = tree["type"].string(), tree["value"]
        names = self.names
        if kind == "field":
            field = names.field(value)
            return ir.KeyPart(field, names.width(field))
        if kind == "stack_field":
            last = names.stack_field(value)
            kept = names.types[names.all_stacks[last.stack].type].fields[last.field]
            return ir.KeyPart(last, kept.width)
        if kind == "union_stack_field":
            return self._union_stack_key(value.exactly(3))
        if kind == "lookahead":
            ahead = self.lookahead(value)
            return ir.KeyPart(ahead, ahead.width)
        if kind == "expression":
            raise tree["type"].wrong(
                "a field, since BMv2 selects by no expression (select by a variable that it is "
                "assigned to)"
            )
        raise tree["type"].wrong("'field', 'stack_field', 'union_stack_field' or 'lookahead'")

    def _union_stack_key(self, value: JsonTree) -> ir.KeyPart:
        names = self.names
        stack, position = names.union_stack_member(value[0], value[1])
        union = names.all_unions[names.all_union_stacks[stack].unions[0]]
        type_index = names.instances[union.headers[position]].type
        field = names.field_of(type_index, value[2])
        width = names.types[type_index].fields[field].width
        return ir.KeyPart(ir.UnionStackLastField(stack, position, field), width)

    def transition(self, tree: JsonTree, kind: str, key: tuple[ir.KeyPart, ...]) -> ir.Transition:
        after = self.next(tree, "next_state")
        every = tuple((1 << 8 * _bytes(part.width)) - 1 for part in key)
        mask_tree = tree.find("mask")
        masks = every if mask_tree is None else split_key(mask_tree, key)
        if kind == "parse_vset":
            return ir.Transition((), masks, self.names.value_sets.of(tree["value"]), after)
        values = split_key(tree["value"], key)
        return ir.Transition(
            tuple(v & m for v, m in zip(values, masks, strict=True)), masks, None, after
        )


def _bytes(width: int) -> int:
    return (width + 7) // 8


def split_key(tree: JsonTree, key: tuple[ir.KeyPart, ...]) -> tuple[int, ...]:
    """The parts of a value or mask. It is the concatenation of the parts, each padded to bytes."""
    number = tree.hexadecimal()
    sizes = [8 * _bytes(part.width) for part in key]
    if number < 0 or number >> sum(sizes):
        raise tree.wrong(f"a value of {sum(sizes) // 8} bytes, as wide as the transition key")
    parts = []
    for size in reversed(sizes):
        parts.append(number & ((1 << size) - 1))
        number >>= size
    return tuple(reversed(parts))


def load_value_sets(root: JsonTree) -> tuple[ir.ValueSet, ...]:
    """All parser value sets."""
    return tuple(
        ir.ValueSet(tree["name"].string(), tree["compressed_bitwidth"].width())
        for tree in root.each("parse_vsets")
    )


def load_calculations(root: JsonTree, names: ProgramNames) -> tuple[ir.Calculation, ...]:
    """All named calculations, and one for each checksum of type ``ipv4``."""
    named = [
        ir.Calculation(
            tree["name"].string(),
            tree["algo"].string(),
            calculation_inputs(tree.array("input"), names),
        )
        for tree in root.each("calculations")
    ]
    ipv4 = [tree for tree in root.each("checksums") if tree["type"].string() == "ipv4"]
    return (*named, *(_ipv4(tree, names) for tree in ipv4))


def _ipv4(tree: JsonTree, names: ProgramNames) -> ir.Calculation:
    """The checksum of a whole IPv4 header, without the two bytes that hold it."""
    target = names.field(tree["target"])
    fields = names.types[names.instances[target.header].type].fields
    if target.field == ir.VALID or (fields[target.field].offset, fields[target.field].width) != (
        80,
        16,
    ):
        raise tree["target"].wrong("the 16 bits after the first 80 of an IPv4 header")
    others = (ir.FieldRef(target.header, i) for i in range(len(fields)) if i != target.field)
    return ir.Calculation(tree["name"].string(), "csum16", tuple(others))


def calculation_inputs(trees: JsonTree, names: ProgramNames) -> tuple[ir.CalculationInput, ...]:
    """The inputs of a hash. The payload comes last, wherever it is named, as in BMv2."""
    inputs: list[ir.CalculationInput] = []
    payload = False
    for tree in trees:
        match tree["type"].string():
            case "field":
                inputs.append(names.field(tree["value"]))
            case "hexstr":
                inputs.append(constant(tree))
            case "header":
                inputs.append(ir.HeaderRef(names.headers.of(tree["value"])))
            case "payload":
                payload = True
            case _:
                raise tree["type"].wrong("'field', 'hexstr', 'header' or 'payload'")
    return (*inputs, ir.Payload()) if payload else tuple(inputs)


def constant(tree: JsonTree) -> ir.CalculationConstant:
    """A constant with its width in bits."""
    width = tree["bitwidth"].width()
    return ir.CalculationConstant(tree["value"].hexadecimal() & ((1 << width) - 1), width)


def load_checksums(root: JsonTree, names: ProgramNames) -> tuple[ir.Checksum, ...]:
    """All checksums to verify and to update, in the order of the document."""
    make = ExpressionLoader(names)
    ipv4 = itertools.count(len(names.calculations.by_name))  # after the named ones
    checksums = []
    for tree in root.each("checksums"):
        kind = tree["type"].string()
        if kind not in ("generic", "ipv4"):
            raise tree["type"].wrong("'generic' or 'ipv4'")
        condition = tree.find("if_cond")
        checksums.append(
            ir.Checksum(
                tree["name"].string(),
                names.field(tree["target"]),
                next(ipv4) if kind == "ipv4" else names.calculations.of(tree["calculation"]),
                tree.flag("update", default=True),
                tree.flag("verify", default=True),
                None if condition is None else make.boolean(condition),
            )
        )
    return tuple(checksums)
