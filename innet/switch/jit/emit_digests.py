"""Digests: the fields of a learn list as words of a buffer that the engine decodes.

A digest is the number of its learn list and then the words of each field, the most significant one
first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.jit.expressions import Expressions
from innet.switch.jit.layout import words_of
from innet.switch.jit.lower_requests import LEARN_LIST
from innet.switch.jit.writer import Writer

_WORD = (1 << 64) - 1


def emit_digest(writer: Writer, expressions: Expressions) -> None:
    """Append what ingress asked for to ``digests``, of which ``digested`` words are used."""
    word = "if"
    for number, learn_list in enumerate(expressions.program.learn_lists):
        with writer.block(f"{word} {LEARN_LIST.name} == {learn_list.id}:  # {learn_list.name}"):
            place = 1
            sizes = [_words(expressions.program, each) for each in learn_list.elements]
            size = 1 + sum(sizes)
            writer.line(f"digests = with_room(digests, digested, int64({size}))")
            writer.line(f"put(digests, digested, {number})")
            for reference, words in zip(learn_list.elements, sizes, strict=True):
                name = "put" if words == 1 else "put_words"
                text = expressions.data(reference).at(64 * words)
                writer.line(f"{name}(digests, digested + {place}, {text})")
                place += words
            writer.line(f"digested += {size}")
        word = "elif"


def decoded(program: ir.Program, words: NDArray[np.int64]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(learn list, values) of each digest in a buffer."""
    left = iter(words.tolist())
    for number in left:
        values = []
        for reference in program.learn_lists[number].elements:
            value = 0
            for _ in range(_words(program, reference)):
                value = value << 64 | next(left) & _WORD
            values.append(value & ((1 << program.field(reference).width) - 1))
        yield number, tuple(values)


def _words(program: ir.Program, reference: ir.FieldRef) -> int:
    return words_of(program.field(reference).width)
