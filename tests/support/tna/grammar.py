"""The grammar: the part of P4_16 that innet's TNA programs use."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path

from lark import Lark, Tree
from pcpp import Action, OutputDirective, Preprocessor

GRAMMAR = r"""
start: item*
?item: constant | typedef | record | parser | control | package

annotation: "@" NAME ("(" [expr ("," expr)*] ")")?
annotations: annotation*

constant: "const" type NAME "=" expr ";"
typedef: "typedef" type NAME ";"
record: annotations RECORD NAME "{" member* "}"
member: annotations type NAME ";"
RECORD.2: "struct" | "header"

parser: "parser" NAME parameters "{" state* "}"
state: "state" NAME "{" statement* transition "}"
transition: "transition" NAME ";" -> go
    | "transition" "select" "(" expr ("," expr)* ")" "{" case* "}" -> select
case: keyset ":" NAME ";"

control: "control" NAME parameters "{" local* "apply" block "}"
?local: action | table | instance | annotations type NAME ["=" expr] ";" -> declared
parameters: "(" [parameter ("," parameter)*] ")"
parameter: [DIRECTION] type NAME
DIRECTION.2: "inout" | "in" | "out"
action: annotations "action" NAME parameters block
table: annotations "table" NAME "{" property* "}"
property: "key" "=" "{" key* "}" -> keys
    | "actions" "=" "{" listed* "}" -> actions
    | "const" "entries" "=" "{" entry* "}" -> entries
    | "const"? "default_action" "=" NAME "(" [expr ("," expr)*] ")" ";" -> default
    | NAME "=" expr ";" -> setting
key: expr ":" NAME annotations ";"
listed: annotations NAME ";"
entry: keyset ":" NAME "(" [expr ("," expr)*] ")" ";"
keyset: "(" simple ("," simple)+ ")" | simple
?simple: "_" -> anything
    | "default" -> anything
    | expr "&&&" expr -> masked
    | expr
instance: annotations type "(" [expr ("," expr)*] ")" NAME ["=" "{" method* "}"] ";"
method: "void" NAME parameters block
variable: type NAME ["=" expr] ";"
package: type "(" [created ("," created)*] ")" NAME ";"
created: NAME ["(" ")"]

block: "{" statement* "}"
?statement: block
    | "if" "(" expr ")" statement ["else" statement] -> if_
    | expr "=" expr ";" -> assign
    | expr ";" -> call_
    | variable
    | "return" ";" -> return_
    | ";" -> empty

type: "bit" "<" width ">" -> bit
    | "int" "<" width ">" -> int
    | "bool" -> bool
    | NAME ["<" type ("," type)* ">"] -> named
?width: NUMBER | "(" expr ")"

?expr: either | either "?" expr ":" expr -> choice
?either: both | either "||" both -> either
?both: equal | both "&&" equal -> both
?equal: order | equal "==" order -> eq | equal "!=" order -> ne
?order: or_ | order "<" or_ -> lt | order ">" or_ -> gt | order "<=" or_ -> le
    | order ">=" or_ -> ge
?or_: xor | or_ "|" xor -> or_
?xor: and_ | xor "^" and_ -> xor
?and_: shift | and_ "&" shift -> and_
?shift: sum | shift "<<" sum -> left | shift ">>" sum -> right
?sum: product | sum "+" product -> add | sum "-" product -> sub | sum "|+|" product -> satadd
    | sum "|-|" product -> satsub | sum "++" product -> join
?product: unary | product "*" unary -> mul
?unary: postfix
    | "-" unary -> negative
    | "~" unary -> complement
    | "!" unary -> not_
    | "(" cast_type ")" unary -> cast
cast_type: "bit" "<" width ">" -> bit
    | "int" "<" width ">" -> int
?postfix: NAME -> name
    | NUMBER -> number
    | STRING -> string
    | "true" -> true
    | "false" -> false
    | "(" expr ")"
    | "{" expr ("," expr)* "}" -> list
    | postfix "." NAME -> member_of
    | postfix "[" expr ":" expr "]" -> slice
    | postfix "(" [expr ("," expr)*] ")" -> call

NAME: /[A-Za-z_][A-Za-z0-9_]*/
NUMBER: /\d+[ws]0x[0-9a-fA-F]+|\d+[ws]\d+|0x[0-9a-fA-F]+|\d+/
STRING: /"[^"]*"/
%import common.WS
%ignore WS
"""


class _Preprocessor(Preprocessor):
    """Without the two includes of the system."""

    def on_include_not_found(
        self, is_malformed: bool, is_system_include: bool, curdir: str, includepath: str
    ) -> None:
        if includepath in {"core.p4", "tna.p4"}:
            raise OutputDirective(Action.IgnoreAndRemove)
        super().on_include_not_found(is_malformed, is_system_include, curdir, includepath)


def preprocessed(source: Path, parameters: dict[str, int]) -> str:
    """The source after the C preprocessor, without its two system includes."""
    tool = _Preprocessor()
    tool.line_directive = None
    for name, value in parameters.items():
        tool.define(f"{name} {value}")
    tool.parse(source.read_text("utf-8"), str(source))
    out = io.StringIO()
    tool.write(out)
    assert tool.return_code == 0, source
    return out.getvalue()


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=True, propagate_positions=True)


def parsed(source: Path, parameters: dict[str, int]) -> Tree:
    """The syntax tree of a source.

    Raises:
        lark.UnexpectedInput: it has something that the grammar does not.
    """
    parts = _items(preprocessed(source, parameters))
    return Tree("start", [item for part in parts for item in _item(part).children])


def _items(text: str) -> list[str]:
    """The items of a source. Most of them are those of another one: each is parsed once."""
    found, begin, depth = [], 0, 0
    for match in re.finditer(r'"[^"]*"|[{};]', text):
        mark = match[0]
        depth += {"{": 1, "}": -1}.get(mark, 0)
        if not depth and mark in "};":
            found.append(text[begin : match.end()])
            begin = match.end()
    return [*found, text[begin:]]


@cache
def _item(text: str) -> Tree:
    return _parser().parse(text)
