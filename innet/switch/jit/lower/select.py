"""Transitions of parser states: conditions over the parts of a key, and value sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from innet.switch import ir
from innet.switch.jit import lowered
from innet.switch.jit.lower.terms import Terms, joined
from innet.switch.state.entries import WORD, set_words


def select_branches(terms: Terms, state: ir.ParserState) -> list[tuple[Any, int | None]]:
    """(condition, next state) of the transitions; neighbors that lead to one state are joined."""
    branches: list[tuple[list[Any], int | None]] = []
    key = [_key_part(terms, part) for part in state.key]
    for transition in state.transitions if state.key else ():
        if transition.value_set is None:
            condition = _equals(terms.program, key, state.key, transition)
        else:
            condition = _in_set(terms.program, key, state.key, transition)
        if branches and branches[-1][1] == transition.next:
            branches[-1][0].append(condition)
        else:
            branches.append(([condition], transition.next))
    while branches and branches[-1][1] == state.default:
        branches.pop()
    return [(joined(ir.Connective.OR, parts), following) for parts, following in branches]


def _key_part(terms: Terms, part: ir.KeyPart) -> Any:
    """One part of the key; what has to be searched for is put into a variable."""
    if isinstance(part.source, ir.Lookahead):
        return lowered.Peek(part.source.offset, part.source.width)
    source = terms.resolve(part.source)
    return terms.named(source, part.width) if isinstance(source, ir.Choice) else source


def _equals(
    program: ir.Program, key: Sequence[Any], parts: Sequence[ir.KeyPart], transition: ir.Transition
) -> Any:
    conditions: list[Any] = []
    for source, part, value, mask in zip(
        key, parts, transition.values, transition.masks, strict=True
    ):
        full = (1 << part.width) - 1
        if mask & full == 0:
            if value != 0:
                return ir.BoolConst(False)
            continue
        masked = source
        if mask & full != full or _is_signed(program, source):
            masked = ir.Binary(ir.DataOperator.AND, source, ir.Const(mask & full))
        conditions.append(ir.Compare(ir.Comparison.EQ, masked, ir.Const(value)))
    return joined(ir.Connective.AND, conditions)


def _is_signed(program: ir.Program, source: Any) -> bool:
    return isinstance(source, ir.FieldRef) and program.field(source).signed


def _in_set(
    program: ir.Program, key: Sequence[Any], parts: Sequence[ir.KeyPart], transition: ir.Transition
) -> Any:
    """The key's parts one after the other, as words like those of the members."""
    assert transition.value_set is not None
    words: list[list[Any]] = [
        [] for _ in range(set_words(program.value_sets[transition.value_set]))
    ]
    masks = [0] * len(words)
    shift = 0
    for source, part, mask in zip(
        reversed(key), reversed(parts), reversed(transition.masks), strict=True
    ):
        for number in range(shift // WORD, -(-(shift + part.width) // WORD)):
            words[number].append(_piece(source, part.width, shift - number * WORD))
            masks[number] |= _moved(mask & ((1 << part.width) - 1), shift - number * WORD)
        shift += part.width
    joined_words = tuple(_or(pieces) for pieces in words)
    return lowered.InSet(transition.value_set, joined_words, tuple(masks))


def _moved(value: int, shift: int) -> int:
    """What a word holds of ``value`` when it begins ``shift`` bits above the word's lowest."""
    return (value << shift if shift >= 0 else value >> -shift) & ((1 << WORD) - 1)


def _piece(source: Any, width: int, shift: int) -> Any:
    """The same of an expression, of which the lowest ``width`` bits count."""
    first, last = max(-shift, 0), min(width, WORD - shift)
    low = source
    if first:
        low = ir.Binary(ir.DataOperator.SHIFT_RIGHT, low, ir.Const(first))
    low = ir.Binary(ir.DataOperator.AND, low, ir.Const((1 << (last - first)) - 1))
    if shift > 0:
        low = ir.Binary(ir.DataOperator.SHIFT_LEFT, low, ir.Const(shift))
    return low


def _or(pieces: Sequence[Any]) -> Any:
    if not pieces:
        return ir.Const(0)
    word = pieces[0]
    for piece in pieces[1:]:
        word = ir.Binary(ir.DataOperator.OR, word, piece)
    return word
