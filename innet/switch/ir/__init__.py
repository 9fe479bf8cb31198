"""The typed intermediate form of a compiled P4 program: what both switch engines read.

The loader builds one ``Program`` from the BMv2 JSON that p4c emits for v1model. Everything here is
immutable data without behavior; an engine walks it once and makes whatever form it runs.

Numbering
---------
Every reference is a dense index into the tuple of ``Program`` that holds such objects, counted from
0 in the order of the JSON (the ids of the JSON itself are not used, with the two exceptions of
``FieldList.id`` and ``LearnList.id``, which are values that a program computes with at run time).

======================  =================================================================
``HeaderRef.header``    ``Program.headers`` (metadata, packet headers, members of stacks
                        and of unions: all of them are header instances)
``FieldRef``            (header instance, field of its ``HeaderType``); field ``VALID``
                        (-1) is the hidden one-bit field ``$valid$``
stack, union, ...       ``Program.stacks``, ``.unions``, ``.union_stacks``
register, counter, ...  ``Program.registers``, ``.counters``, ``.meters``
action, calculation     ``Program.actions``, ``.calculations``
``Node``                (kind, index) into ``Program.tables``, ``.conditionals`` or
                        ``.action_calls``; None ends the pipeline
parser state            ``Parser.states``; None ends the parser
======================  =================================================================

Values
------
Expressions compute in unbounded signed integers (``DataExpression``) and booleans
(``BoolExpression``). What a place of width W keeps of a value v that is written to it:

* an unsigned field: v modulo 2**W;
* a signed field: v itself when -2**(W-1) <= v < 2**W, else v modulo 2**W as two's complement. So a
  value in 2**(W-1) .. 2**W-1 stays positive until the field is next extracted or computed with
  ``two_comp_mod``; its bits on the wire and in table keys are the same. This is simple_switch's
  behavior and can be observed, for example in a comparison after reading a register into an
  ``int<32>``;
* a saturating field: v clamped to the range of its type;
* a register: v modulo 2**width. It reads as unsigned.

Extracting a signed field sign-extends it. p4c puts an ``&`` with a mask or a ``two_comp_mod``
around each operation that can leave its type's range, so that an engine may compute modulo 2**64
wherever all widths in an expression are at most 64 *and* no operation in it looks at the bits above
(``/``, ``%``, ``>>``, comparisons, ``two_comp_mod``, ``usat_cast``, ``sat_cast``, which may see
sums of one bit more and negative differences).

* ``/`` and ``%`` truncate as in C; a divisor of 0 gives what the engine chooses without failing
  (simple_switch aborts; p4c only emits them for constants). ``>>`` of a negative value rounds down.
* A shift by a negative amount or by more than ``MAX_SHIFT`` leaves no bit (-1 of a negative number
  that is shifted right). simple_switch ends on the former and runs out of memory on great amounts;
  p4c emits amounts of at most 8 bits.
* ``and`` / ``or`` evaluate both sides (nothing has effects, so this cannot be observed).
  ``Conditional`` evaluates one branch.
* ``two_comp_mod(x, w)``: x modulo 2**w as two's complement. ``usat_cast(x, w)``: clamp to
  0 .. 2**w-1. ``sat_cast(x, w)``: clamp to -2**(w-1) .. 2**(w-1)-1.
* Reading a field of an invalid header gives what it last held, 0 when this packet never set it.
  (simple_switch recycles storage, so that there it may be a value of an earlier packet.)
* Comparing headers: equal when both are valid and all fields are equal; two invalid headers are
  *not* equal (``HeaderCompare``).
* Indices of registers, counters and meters are taken modulo 2**32 before the bounds check.

Packets
-------
Field 0 of a header begins at the most significant bit of the header's first byte. ``Field.offset``
counts bits from the start of the header with a variable field taken as empty. Metadata headers are
always valid, are zeroed for every packet, and may have any number of bits; packet headers are a
whole number of bytes.
"""

from __future__ import annotations

# All that these two modules define is public.
from innet.switch.ir.program import *  # noqa: F403
from innet.switch.ir.statements import *  # noqa: F403
