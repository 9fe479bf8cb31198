"""Digests: the fields of a learn list as words of a buffer that the engine decodes.

A digest is the number of its learn list and then the words of each field, the most significant one
first.
"""

from __future__ import annotations

from innet.switch.jit.emit.expressions import Expressions
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.lower.requests import LEARN_LIST
from innet.switch.jit.traits import digest_words


def emit_digest(writer: Writer, expressions: Expressions) -> None:
    """Append what ingress asked for to ``digests``, of which ``digested`` words are used."""
    word = "if"
    for number, learn_list in enumerate(expressions.program.learn_lists):
        with writer.block(f"{word} {LEARN_LIST.name} == {learn_list.id}:  # {learn_list.name}"):
            place = 1
            sizes = [digest_words(expressions.program, each) for each in learn_list.elements]
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
