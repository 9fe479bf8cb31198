"""Digests: the fields of a learn list as words of a buffer that the engine decodes.

A digest is the number of its learn list and then one word for each field, modulo 2**64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.jit.expressions import Expressions
from innet.switch.jit.lower_requests import LEARN_LIST
from innet.switch.jit.writer import Writer


def emit_digest(writer: Writer, expressions: Expressions) -> None:
    """Append what ingress asked for to ``digests``, of which ``digested`` words are used."""
    word = "if"
    for number, learn_list in enumerate(expressions.program.learn_lists):
        with writer.block(f"{word} {LEARN_LIST.name} == {learn_list.id}:  # {learn_list.name}"):
            size = 1 + len(learn_list.elements)
            writer.line(f"digests = with_room(digests, digested, int64({size}))")
            writer.line(f"put(digests, digested, {number})")
            for place, reference in enumerate(learn_list.elements, 1):
                text = expressions.data(reference).text
                writer.line(f"put(digests, digested + {place}, {text})")
            writer.line(f"digested += {size}")
        word = "elif"


def decoded(program: ir.Program, words: NDArray[np.int64]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(learn list, values) of each digest in a buffer."""
    left = iter(words.tolist())
    for number in left:
        elements = program.learn_lists[number].elements
        yield number, tuple(next(left) & _every(program, each) for each in elements)


def _every(program: ir.Program, reference: ir.FieldRef) -> Any:
    return (1 << program.field(reference).width) - 1
