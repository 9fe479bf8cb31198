"""Writes records (``jit.records``), for emitted code of recording builds."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from innet.switch.jit.records import TAIL_WORDS
from innet.switch.jit.runtime.core import copy, data_of, get, inlined, put

kinds: Any = types

__all__ = ["note", "note_bytes"]  # what emitted code may import


def _note(_typing: Any, array: Any, _recorded: Any, *words: Any) -> Any:
    row = kinds.StarArgTuple.from_types([types.int64] * len(words))
    signature = types.int64(array, types.int64, row)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        events, recorded, packed = arguments
        values = [builder.extract_value(packed, i) for i in range(len(words))]
        kind = signature.args[0]
        data = data_of(context, builder, kind, events)
        size = context.data_model_manager[kind].get(builder, events, "nitems")
        end = builder.add(recorded, recorded.type(len(values)))
        fits = builder.icmp_signed("<=", end, builder.sub(size, size.type(TAIL_WORDS)))
        with builder.if_else(fits, likely=True) as (there, nowhere):
            with there:
                for position, value in enumerate(values):
                    at = builder.add(recorded, recorded.type(position))
                    builder.store(value, builder.gep(data, [at]))
            with nowhere:
                lost = builder.gep(data, [builder.sub(size, size.type(1))])
                builder.store(builder.add(builder.load(lost), ir.IntType(64)(1)), lost)
        return builder.select(fits, end, recorded)

    return signature, emit


# note(events, recorded, word, ...): append words to the first ``recorded`` ones; returns how many
# there are then. The last word of ``events`` counts calls for which there was no room. An
# intrinsic, since emitted code has many such calls, and this is the least that LLVM can be given.
note: Any = intrinsic(_note)


@inlined
def note_bytes(events: Any, recorded: int, data: Any, start: int, size: int) -> int:
    """Append the number of bytes and the bytes, in whole words."""
    words = (size + 7) >> 3
    last = len(events) - 1
    if recorded + 1 + words > len(events) - TAIL_WORDS:
        put(events, last, get(events, last) + 1)
        return recorded
    put(events, recorded, size)
    copy(events, 8 * (recorded + 1), data, start, size)
    return recorded + 1 + words
