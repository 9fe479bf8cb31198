"""From the syntax tree of a TNA program to Python source: a class for each parser and control.

Every expression gets a type when it is translated, so that the Python code masks and wraps where
P4_16 does. bit<W> is an int from 0 to 2**W - 1, int<W> one from -2**(W - 1) to 2**(W - 1) - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lark import Token, Tree


@dataclass(frozen=True)
class Bits:
    width: int
    signed: bool = False


@dataclass(frozen=True)
class Record:
    """A struct or header."""

    name: str
    header: bool
    fields: tuple[tuple[str, Any], ...]

    def type_of(self, name: str) -> Any:
        return dict(self.fields)[name]


@dataclass(frozen=True)
class Action:
    """What a register action returns: the type, and whether it is one of a direct register."""

    result: Bits
    direct: bool


@dataclass(frozen=True)
class Extern:
    """An instance that is used by its methods: a hash, counter, table, control, package."""

    kind: str
    result: Any = None


BOOL, LITERAL, NONE = "bool", "literal", "none"

INTRINSIC = [
    Record(name, False, tuple((each, Bits(width)) for each, width in fields.items()))
    for name, fields in {
        "ingress_intrinsic_metadata_t": {"ingress_port": 9},
        "ingress_intrinsic_metadata_from_parser_t": {"parser_err": 16},
        "ingress_intrinsic_metadata_for_deparser_t": {"drop_ctl": 3},
        "ingress_intrinsic_metadata_for_tm_t": {
            "ucast_egress_port": 9, "mcast_grp_a": 16, "bypass_egress": 1,
        },
        "egress_intrinsic_metadata_t": {"egress_port": 9, "egress_rid": 16},
        "egress_intrinsic_metadata_from_parser_t": {"parser_err": 16},
        "egress_intrinsic_metadata_for_deparser_t": {"drop_ctl": 3},
        "egress_intrinsic_metadata_for_output_port_t": {},
    }.items()
]  # fmt: skip
GIVEN = {"packet_in", "packet_out", *(each.name for each in INTRINSIC)}

Code = tuple[str, Any]


class UnknownError(Exception):
    """Something that the bench does not know."""


@dataclass
class Scope:
    """Names that are visible, and lines of code."""

    names: dict[str, Code]
    lines: list[str] = field(default_factory=list)
    depth: int = 2

    def inner(self) -> Scope:
        return Scope(dict(self.names), self.lines, self.depth)

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


def items(tree: Tree, data: str) -> list[Tree]:
    return [each for each in tree.children if isinstance(each, Tree) and each.data == data]


def given(children: list[Any]) -> list[Any]:
    """Children that are there: optional ones are None."""
    return [each for each in children if each is not None]


class Translator:
    """``code``: of the classes; ``package``: the names of the six parts of the pipeline."""

    def __init__(self, tree: Tree) -> None:
        self.types: dict[str, Any] = {each.name: each for each in INTRINSIC}
        self.names: dict[str, Code] = {"PORT_METADATA_SIZE": ("64", LITERAL)}
        self.classes: list[str] = []
        self.package: list[str] = []
        self.annotations: set[str] = set()
        self.controls: set[str] = set()
        for each in tree.iter_subtrees():
            if each.data == "annotation":
                self.annotations.add(str(each.children[0]))
        for each in tree.children:
            getattr(self, f"on_{each.data}")(each)
        self.code = compile("\n".join(self.classes), "<TNA program>", "exec")

    # ---------------------------------------------------------------- declarations

    def on_constant(self, tree: Tree) -> None:
        kind, name, value = tree.children
        code, of = self.expression(value, Scope(self.names))
        wanted = self.type(kind)
        self.names[str(name)] = (self.cast(code, of, wanted), wanted)

    def on_typedef(self, tree: Tree) -> None:
        kind, name = tree.children
        self.types[str(name)] = self.type(kind)

    def on_record(self, tree: Tree) -> None:
        _, keyword, name, *members = tree.children
        fields = tuple((str(each.children[2]), self.type(each.children[1])) for each in members)
        self.types[str(name)] = Record(str(name), keyword == "header", fields)

    def on_package(self, tree: Tree) -> None:
        if self.type(tree.children[0]).kind == "Pipeline":
            self.package = [str(each.children[0]) for each in items(tree, "created")]

    def type(self, tree: Tree) -> Any:
        if tree.data in {"bit", "int"}:
            width, of = self.expression(tree.children[0], Scope(self.names))
            assert of == LITERAL
            return Bits(int(eval(width)), tree.data == "int")
        if tree.data == "bool":
            return BOOL
        name, *arguments = tree.children
        if name in self.types:
            return self.types[name]
        results = [self.type(each) for each in given(arguments)]
        return Extern(str(name), results)

    # ---------------------------------------------------------------- parsers

    def on_parser(self, tree: Tree) -> None:
        name, parameters, *states = tree.children
        scope, lines = self._head(str(name), parameters)
        lines.append("    STATES = {")
        lines += [f"        {str(s.children[0])!r}: 'S_{s.children[0]}'," for s in states]
        lines.append("    }")
        for state in states:
            title, *statements, transition = state.children
            inner = Scope(dict(scope.names), lines)
            lines.append(f"    def S_{title}(self):")
            for each in statements:
                self.statement(each, inner)
            if transition.data == "go":
                inner.emit(f"return {str(transition.children[0])!r}")
                continue
            chosen = [each for each in transition.children if each.data != "case"]
            codes = [self.expression(each, inner) for each in chosen]
            inner.emit(f"key = ({''.join(code + ', ' for code, _ in codes)})")
            for case in items(transition, "case"):
                keys, target = case.children
                sets = self.keyset(keys, [of for _, of in codes])
                inner.emit(f"if matches(key, {sets!r}): return {str(target)!r}")
            inner.emit("return 'reject'")
        self.classes.append("\n".join(lines))

    def keyset(self, tree: Tree, types: list[Any]) -> tuple[tuple[int, int] | None, ...]:
        """(value, mask) for each part; None matches anything."""
        parts = tree.children
        if len(parts) == 1 and len(types) > 1:
            assert parts[0].data == "anything"
            return (None,) * len(types)
        found: list[tuple[int, int] | None] = []
        for part, of in zip(parts, types, strict=True):
            full = (1 << of.width) - 1
            if part.data == "anything":
                found.append(None)
            elif part.data == "masked":
                value, mask = (self.constant_value(each, of) for each in part.children)
                found.append((value & mask, mask))
            else:
                found.append((self.constant_value(part, of), full))
        return tuple(found)

    def constant_value(self, tree: Tree, of: Any) -> int:
        code, type_ = self.expression(tree, Scope(self.names))
        value = eval(self.cast(code, type_, of), dict(RUNTIME))
        assert isinstance(value, int)
        return value

    # ---------------------------------------------------------------- controls

    def _head(self, name: str, parameters: Tree) -> tuple[Scope, list[str]]:
        """A class with an attribute for each parameter."""
        self.controls.add(name)
        names = dict(self.names)
        listed = []
        for each in given(parameters.children):
            _, kind, parameter = each.children
            of = self.type(kind)
            assert isinstance(of, Record | Extern), f"{name}: parameter {parameter}"
            listed.append((str(parameter), of.name if isinstance(of, Record) else of.kind))
            names[str(parameter)] = (f"self.{parameter}", of)
        lines = [
            f"class {name}(Block):",
            f"    PARAMETERS = {listed!r}",
        ]
        return Scope(names, lines), lines

    def on_control(self, tree: Tree) -> None:
        name, parameters, *locals_, body = tree.children
        scope, lines = self._head(str(name), parameters)
        made: list[str] = []
        for each in locals_:
            getattr(self, f"local_{each.data}")(each, scope, made)
        lines.append("    def make(self):")
        lines += [f"        {each}" for each in made] or ["        pass"]
        lines.append("    def body(self):")
        inner = Scope(dict(scope.names), lines)
        self.statement(body, inner)
        inner.emit("return")
        self.classes.append("\n".join(lines))

    def local_declared(self, tree: Tree, scope: Scope, made: list[str]) -> None:
        raise UnknownError("a variable of a control")

    def local_action(self, tree: Tree, scope: Scope, made: list[str]) -> None:
        _, name, parameters, body = tree.children
        inner = Scope(dict(scope.names), scope.lines)
        data = []
        for each in given(parameters.children):
            direction, kind, parameter = each.children
            assert direction is None, f"{name}: action data has no direction"
            inner.names[str(parameter)] = (f"p_{parameter}", self.type(kind))
            data.append(self.type(kind))
        names = "".join(f", p_{each.children[2]}" for each in given(parameters.children))
        scope.lines.append(f"    def A_{name}(self{names}):")
        self.statement(body, inner)
        inner.emit("return")
        scope.names[str(name)] = (f"self.A_{name}", Extern("action", data))

    def local_instance(self, tree: Tree, scope: Scope, made: list[str]) -> None:
        _, kind, *rest = tree.children
        methods = [each for each in rest if isinstance(each, Tree) and each.data == "method"]
        name = str(next(each for each in rest if isinstance(each, Token) and each.type == "NAME"))
        arguments = [each for each in rest[: rest.index(name)] if each is not None]
        of = self.type(kind)
        assert isinstance(of, Extern), name
        if of.kind in {"Register", "DirectRegister"}:
            cell = of.result[0]
            shape = f"Cells({cell.name!r})" if isinstance(cell, Record) else "Cells(None)"
            size = self.expression(arguments[0], scope)[0] if arguments else "None"
            made.append(f"self.{name} = self.register({name!r}, {shape}, {size})")
            scope.names[name] = (f"self.{name}", of)
        elif of.kind in {"RegisterAction", "DirectRegisterAction"}:
            register, cells = self.expression(arguments[0], scope)
            self.register_action(name, of, register, cells.result[0], methods, scope)
        elif of.kind == "Hash":
            algorithm = self.qualified(arguments[0])
            if algorithm != "HashAlgorithm_t.IDENTITY":
                raise UnknownError(algorithm)
            scope.names[name] = ("", of)
        elif of.kind == "Counter":
            made.append(f"self.{name} = self.counter({name!r})")
            scope.names[name] = (f"self.{name}", of)
        elif of.kind in self.controls:
            made.append(f"self.{name} = self.control({name!r}, {of.kind!r})")
            scope.names[name] = (f"self.{name}", Extern("control"))
        else:
            raise UnknownError(of.kind)

    @staticmethod
    def qualified(tree: Tree) -> str:
        assert tree.data == "member_of", tree
        return f"{tree.children[0].children[0]}.{tree.children[1]}"

    def register_action(
        self, name: str, of: Extern, register: str, cell: Any, methods: list[Tree], scope: Scope
    ) -> None:
        direct = of.kind == "DirectRegisterAction"
        [method] = methods
        title, parameters, body = method.children
        assert title == "apply"
        held, result = (each.children for each in parameters.children)
        assert (held[0], result[0]) == ("inout", "out")
        inner = Scope(dict(scope.names), scope.lines)
        returned = of.result[-1]
        scope.lines.append(f"    def R_{name}(self{'' if direct else ', index'}):")
        where = "self.entry" if direct else "index"
        inner.names[str(held[2])] = ("held", cell)
        inner.names[str(result[2])] = ("result", self.type(result[1]))
        assert self.type(result[1]) == returned
        inner.emit(f"{register}.check({where})")
        inner.emit(f"held = {register}.cells[{where}]")
        inner.emit(f"result = self.bench.undefined({returned.width}, {returned.signed})")
        self.statement(body, inner)
        inner.emit(f"{register}.cells[{where}] = held")
        inner.emit("return result")
        scope.names[name] = (f"self.R_{name}", Action(returned, direct))

    def local_table(self, tree: Tree, scope: Scope, made: list[str]) -> None:
        _, name, *properties = tree.children
        parts: dict[str, Tree] = {}
        for each in properties:
            if each.data == "setting":
                parts[str(each.children[0])] = each.children[1]
            else:
                parts[str(each.data)] = each
        keys = [self.expression(each.children[0], scope) for each in parts["keys"].children]
        kinds = [str(each.children[1]) for each in parts["keys"].children]
        assert set(kinds) <= {"exact", "ternary"}, kinds
        types = [of for _, of in keys]
        entries = [
            (
                self.keyset(each.children[0], types),
                str(each.children[1]),
                self.data(str(each.children[1]), given(each.children[2:]), scope),
            )
            for each in (parts["entries"].children if "entries" in parts else ())
        ]
        default = parts["default"].children
        fallback = (
            str(default[0]),
            self.data(str(default[0]), given(list(default[1:])), scope),
        )
        made.append(
            f"self.{name} = self.table({str(name)!r}, {[t.width for t in types]!r}, "
            f"{entries if 'entries' in parts else None!r}, {fallback!r}, "
            f"{self.expression(parts['registers'], scope)[0] if 'registers' in parts else None})"
        )
        scope.lines.append(f"    def T_{name}(self):")
        inner = Scope(dict(scope.names), scope.lines)
        codes = "".join(f"{self.unsigned(code, of)}, " for code, of in keys)
        inner.emit(f"return self.{name}.run(self, ({codes}))")
        scope.names[str(name)] = (f"self.T_{name}", Extern("table"))

    def data(self, action: str, arguments: list[Tree], scope: Scope) -> tuple[int, ...]:
        wanted = [] if action == "NoAction" else scope.names[action][1].result
        return tuple(
            self.constant_value(each, of) for each, of in zip(arguments, wanted, strict=True)
        )

    # ---------------------------------------------------------------- statements

    def statement(self, tree: Tree, scope: Scope) -> None:
        getattr(self, f"do_{tree.data}")(tree, scope)

    def do_block(self, tree: Tree, scope: Scope) -> None:
        inner = scope.inner()
        for each in tree.children:
            self.statement(each, inner)

    def do_empty(self, tree: Tree, scope: Scope) -> None:
        pass

    def do_return_(self, tree: Tree, scope: Scope) -> None:
        scope.emit("return")

    def do_if_(self, tree: Tree, scope: Scope) -> None:
        condition, then, otherwise = tree.children
        code, of = self.expression(condition, scope)
        assert of == BOOL, condition
        scope.emit(f"if {code}:")
        self._nested(then, scope)
        if otherwise is not None:
            scope.emit("else:")
            self._nested(otherwise, scope)

    def _nested(self, tree: Tree, scope: Scope) -> None:
        inner = scope.inner()
        inner.depth += 1
        inner.emit("pass")
        self.statement(tree, inner)

    def do_variable(self, tree: Tree, scope: Scope) -> None:
        kind, name, value = tree.children
        of = self.type(kind)
        code = f"self.bench.undefined({of.width}, {of.signed})"
        if value is not None:
            code = self.cast(*self.expression(value, scope), of)
        scope.names[str(name)] = (f"v_{name}", of)
        scope.emit(f"v_{name} = {code}")

    def do_assign(self, tree: Tree, scope: Scope) -> None:
        target, value = tree.children
        code, of = self.expression(value, scope)
        if target.data == "slice":
            whole, high, low = target.children
            place, kind = self.expression(whole, scope)
            bits = [int(eval(self.expression(each, scope)[0])) for each in (high, low)]
            part = Bits(bits[0] - bits[1] + 1)
            kept = ((1 << kind.width) - 1) ^ (((1 << part.width) - 1) << bits[1])
            scope.emit(f"{place} = {place} & {kept} | ({self.cast(code, of, part)}) << {bits[1]}")
            return
        place, wanted = self.expression(target, scope)
        scope.emit(f"{place} = {self.cast(code, of, wanted)}")

    def do_call_(self, tree: Tree, scope: Scope) -> None:
        code, _ = self.expression(tree.children[0], scope)
        scope.emit(code)

    # ---------------------------------------------------------------- expressions

    def expression(self, tree: Any, scope: Scope) -> Code:
        if isinstance(tree, Token):  # the width of a type
            return self.number(str(tree))
        handler = getattr(self, f"e_{tree.data}", None)
        if handler is None:
            raise UnknownError(str(tree.data))
        return handler(tree.children, scope)

    def e_name(self, children: list[Any], scope: Scope) -> Code:
        name = str(children[0])
        if name in scope.names:
            return scope.names[name]
        raise UnknownError(name)

    def e_true(self, children: list[Any], scope: Scope) -> Code:
        return "True", BOOL

    def e_false(self, children: list[Any], scope: Scope) -> Code:
        return "False", BOOL

    def e_number(self, children: list[Any], scope: Scope) -> Code:
        return self.number(str(children[0]))

    @staticmethod
    def number(text: str) -> Code:
        if "w" in text:
            width, value = text.split("w")
            return str(int(value, 0)), Bits(int(width))
        if "s" in text:
            width, value = text.split("s")
            return str(int(value, 0)), Bits(int(width), True)
        return str(int(text, 0)), LITERAL

    def e_member_of(self, children: list[Any], scope: Scope) -> Code:
        code, of = self.expression(children[0], scope)
        return f"{code}.{children[1]}", of.type_of(str(children[1]))

    def e_slice(self, children: list[Any], scope: Scope) -> Code:
        code, of = self.expression(children[0], scope)
        high, low = (int(eval(self.expression(each, scope)[0])) for each in children[1:])
        assert of.width > high >= low >= 0
        width = high - low + 1
        return f"(({self.unsigned(code, of)}) >> {low} & {(1 << width) - 1})", Bits(width)

    def e_choice(self, children: list[Any], scope: Scope) -> Code:
        condition, left, right = children
        code, of = self.expression(condition, scope)
        assert of == BOOL
        (a, b), kind = self.same(left, right, scope)
        return f"({a} if {code} else {b})", kind

    def e_not_(self, children: list[Any], scope: Scope) -> Code:
        code, of = self.expression(children[0], scope)
        assert of == BOOL
        return f"(not {code})", BOOL

    def e_negative(self, children: list[Any], scope: Scope) -> Code:
        code, of = self.expression(children[0], scope)
        return self.wrapped(f"-{code}", of), of

    def e_complement(self, children: list[Any], scope: Scope) -> Code:
        code, of = self.expression(children[0], scope)
        return self.wrapped(f"~{code}", of), of

    def e_cast(self, children: list[Any], scope: Scope) -> Code:
        of = self.type(children[0])
        return self.cast(*self.expression(children[1], scope), of, explicit=True), of

    def e_either(self, children: list[Any], scope: Scope) -> Code:
        return self.logical("or", children, scope)

    def e_both(self, children: list[Any], scope: Scope) -> Code:
        return self.logical("and", children, scope)

    def logical(self, word: str, children: list[Any], scope: Scope) -> Code:
        left, right = (self.expression(each, scope) for each in children)
        assert left[1] == right[1] == BOOL
        return f"({left[0]} {word} {right[0]})", BOOL

    def same(self, left: Any, right: Any, scope: Scope) -> tuple[tuple[str, str], Any]:
        """Both sides, of one type: a literal takes that of the other side."""
        (a, of_a), (b, of_b) = self.expression(left, scope), self.expression(right, scope)
        if of_a == LITERAL and of_b != LITERAL:
            a, of_a = self.cast(a, of_a, of_b), of_b
        elif of_b == LITERAL and of_a != LITERAL:
            b, of_b = self.cast(b, of_b, of_a), of_a
        if of_a != of_b:
            raise UnknownError(f"{of_a} beside {of_b}")
        return (a, b), of_a

    def binary(self, operator: str, children: list[Any], scope: Scope) -> Code:
        (a, b), of = self.same(*children, scope)
        return self.wrapped(f"({a} {operator} {b})", of), of

    def compared(self, operator: str, children: list[Any], scope: Scope) -> Code:
        (a, b), _ = self.same(*children, scope)
        return f"({a} {operator} {b})", BOOL

    def e_join(self, children: list[Any], scope: Scope) -> Code:
        (a, of_a), (b, of_b) = (self.expression(each, scope) for each in children)
        code = f"({self.unsigned(a, of_a)} << {of_b.width} | {self.unsigned(b, of_b)})"
        return code, Bits(of_a.width + of_b.width)

    def saturated(self, operator: str, children: list[Any], scope: Scope) -> Code:
        (a, b), of = self.same(*children, scope)
        least = -(1 << of.width - 1) if of.signed else 0
        most = least + (1 << of.width) - 1
        return f"max({least}, min({most}, {a} {operator} {b}))", of

    def shifted(self, operator: str, children: list[Any], scope: Scope) -> Code:
        (a, of), (b, _) = (self.expression(each, scope) for each in children)
        return self.wrapped(f"({a} {operator} {b})", of), of

    def e_list(self, children: list[Any], scope: Scope) -> Code:
        parts = [self.expression(each, scope) for each in children]
        code, width = "0", 0
        for part, of in parts:
            code = f"({code} << {of.width} | {self.unsigned(part, of)})"
            width += of.width
        return code, Bits(width)

    def e_call(self, children: list[Any], scope: Scope) -> Code:
        called, *arguments = children
        arguments = given(arguments)
        if called.data == "name":
            name = str(called.children[0])
            if name in {"max", "min"}:
                (a, b), of = self.same(*arguments, scope)
                return f"{name}({a}, {b})", of
            code, of = self.expression(called, scope)
            assert of.kind == "action", name
            values = [
                self.cast(*self.expression(each, scope), wanted)
                for each, wanted in zip(arguments, of.result, strict=True)
            ]
            return f"{code}({', '.join(values)})", NONE
        assert called.data == "member_of", called
        owner, method = called.children
        code, of = self.expression(owner, scope)
        return self.method(code, of, str(method), arguments, scope)

    def method(self, code: str, of: Any, name: str, arguments: list[Any], scope: Scope) -> Code:
        values = [self.expression(each, scope) for each in arguments]
        match of, name, values:
            case Action(result, direct), "execute", _:
                assert len(values) == (0 if direct else 1)
                return f"{code}({''.join(self.unsigned(*each) for each in values)})", result
            case Extern("Hash", [result]), "get", [(value, Bits(width))] if width <= result.width:
                return value, result
            case Extern("Counter"), "count", [(value, _)]:
                return f"{code}.update([{value}])", NONE
            case Extern("table"), "apply", []:
                return f"{code}()", NONE
            case Extern("control"), "apply", _:
                return f"{code}.apply({', '.join(value for value, _ in values)})", NONE
            case Record(header=True), "isValid", []:
                return f"{code}.valid", BOOL
            case Record(header=True), "setValid", []:
                return f"{code}.set_valid(True)", NONE
            case Record(header=True), "setInvalid", []:
                return f"{code}.set_valid(False)", NONE
            case Extern("packet_in"), "extract", [(value, _)]:
                return f"{code}.extract({value})", NONE
            case Extern("packet_in"), "advance", [("64", _)]:
                return "pass", NONE
            case Extern("packet_out"), "emit", [(value, _)]:
                return f"{code}.emit({value})", NONE
        raise UnknownError(f"{of}.{name}")

    # ---------------------------------------------------------------- types

    @staticmethod
    def wrapped(code: str, of: Any) -> str:
        if of == LITERAL:
            return f"({code})"
        if of.signed:
            half = 1 << of.width - 1
            return f"((({code}) + {half} & {2 * half - 1}) - {half})"
        return f"(({code}) & {(1 << of.width) - 1})"

    def unsigned(self, code: str, of: Any) -> str:
        if of in (LITERAL, BOOL):
            return code
        return f"(({code}) & {(1 << of.width) - 1})" if of.signed else code

    def cast(self, code: str, of: Any, wanted: Any, *, explicit: bool = False) -> str:
        if of == wanted:
            return code
        if of == LITERAL and isinstance(wanted, Bits):
            return self.wrapped(code, wanted)
        if isinstance(of, Bits) and isinstance(wanted, Bits) and explicit:
            if of.signed != wanted.signed and of.width != wanted.width:
                raise UnknownError(f"cast of {of} to {wanted}")
            return self.wrapped(code, wanted)
        if of == BOOL and wanted == Bits(1) and explicit:
            return f"int({code})"
        raise UnknownError(f"{of} as {wanted}")


RUNTIME = {"max": max, "min": min, "int": int, "__builtins__": {}}


def _operators() -> None:
    table = {
        "binary": {"add": "+", "sub": "-", "mul": "*", "or_": "|", "xor": "^", "and_": "&"},
        "compared": {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="},
        "saturated": {"satadd": "+", "satsub": "-"},
        "shifted": {"left": "<<", "right": ">>"},
    }
    for kind, names in table.items():
        for name, operator in names.items():

            def handler(
                self: Any, children: list[Any], scope: Scope, kind: str = kind, op: str = operator
            ) -> Code:
                return getattr(self, kind)(op, children, scope)

            setattr(Translator, f"e_{name}", handler)


_operators()
