"""Integers in emitted source: what they stand for, and operations on them, exact as BMv2's.

With each piece of source goes the range of the mathematical value. As long as only low bits of a
result count (``+ - * & | ^ ~ <<`` and casts), operations are computed modulo 2**64, or modulo what
is asked for. What looks at a whole value (order, ``/ % >>`` and saturation) computes in the fewest
words that hold it: in int64 where that is 64 bits, with functions for numbers without a sign, else
in ``wide.Wide``.

In a loop over lanes, what 32 bits hold is computed with 32 bits, by functions: a vector has room
for twice as many of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from innet.switch import ir
from innet.switch.interpreter.expressions import OPERATORS

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_KIND = ir.DataOperator
#: Functions for operations whose result may need more than int64 has.
_WRAPPED = {"+": "wrapped_add", "-": "wrapped_subtract", "*": "wrapped_multiply"}


@dataclass(frozen=True, slots=True)
class Value:
    """An integer expression and the range of what it stands for.

    Attributes:
        text: source of the value modulo 2**64, an int64.
        low, high: the range.
        modulo: given a multiple of 64 above 64 and up to ``bits``, source of the value modulo 2 to
            the power of it, a ``Wide``; None where 64 bits hold the value.
        in_loop: it is computed for each lane of a loop.
        low32: source of the value modulo 2**32, where that needs less than the value.
        saturated32: of the number of 32 bits without a sign that is nearest to the value, likewise.
    """

    text: str
    low: int
    high: int
    modulo: Callable[[int], str] | None = None
    in_loop: bool = False
    low32: str | None = None
    saturated32: str | None = None

    @property
    def bits(self) -> int:
        """How many bits, in whole words, hold it: as two's complement or, if it is never negative,
        without a sign.
        """
        return _whole_words(self.high.bit_length() if self.low >= 0 else _signed_bits(self))

    @property
    def fits_int64(self) -> bool:
        """int64 holds it exactly."""
        return self.low >= _LOWEST and self.high <= _HIGHEST

    @property
    def is_unsigned32(self) -> bool:
        """A number of 32 bits without a sign holds it."""
        return self.low >= 0 and not self.high >> 32

    @property
    def is_constant(self) -> bool:
        """It can only be one number."""
        return self.low == self.high

    def at(self, bits: int) -> str:
        """Source of the value modulo 2**bits: int64 for 64, ``Wide(bits)`` for more."""
        if bits == 64:
            return self.text
        if bits > self.bits:
            extend = "wide" if self.low < 0 else "wide_unsigned"
            return f"{extend}({self.at(self.bits)}, {bits})"
        assert self.modulo is not None, self.text
        return self.modulo(bits)


def are_narrow(*values: Value) -> bool:
    """Whether an operation of these is one of a loop, and of numbers of 32 bits without a sign."""
    return any(each.in_loop for each in values) and all(each.is_unsigned32 for each in values)


def _signed_bits(value: Value) -> int:
    """Bits of the shortest two's complement that holds a value."""
    return (
        max((bound if bound >= 0 else ~bound).bit_length() for bound in (value.low, value.high)) + 1
    )


def _whole_words(bits: int) -> int:
    return max(64, (bits + 63) // 64 * 64)


def literal(value: int) -> str:
    """A constant modulo 2**64, as int64."""
    wrapped = (value + (1 << 63)) % (1 << 64) - (1 << 63)
    if wrapped == _LOWEST:
        # To Numba, ``0x8000000000000000`` is unsigned, and what is assigned a global is never
        # anything else. Of this Python makes one constant.
        return "(-0x7fffffffffffffff - 1)"
    return str(wrapped) if -10 < wrapped < 256 else hex(wrapped)


def affine(first: int, step: int) -> str:
    """``first + step * k`` as an index, k being the variable of a loop."""
    text = "k" if step == 1 else f"{step} * k"
    return f"{text} + {first}" if first else text


def constant(value: int) -> Value:
    """A number that the program states."""

    def modulo(bits: int) -> str:
        words = ", ".join(literal(value >> shift) for shift in range(bits - 64, -1, -64))
        return f"words(({words}))"

    return Value(literal(value), value, value, modulo)


def variable(name: str, low: int, high: int) -> Value:
    """A variable that is as many words long as the range asks for."""
    value = Value(name, low, high)
    return value if value.bits == 64 else _computed(name, value.bits, low, high)


def _computed(text: str, bits: int, low: int, high: int) -> Value:
    """``text`` has the type of ``bits`` bits, which hold the value, and maybe fewer would."""

    def modulo(wanted: int) -> str:
        return text if wanted == bits else f"wide({text}, {wanted})"

    return Value(text if bits == 64 else f"low_word({text})", low, high, modulo)


def common_width(*values: Value) -> tuple[int, bool]:
    """The fewest bits in which all are exact in one way, and whether that way has a sign."""
    with_sign = _whole_words(max(_signed_bits(value) for value in values))
    if all(value.low >= 0 for value in values):
        without = _whole_words(max(value.high.bit_length() for value in values))
        if without < with_sign:
            return without, False
    return with_sign, True


def truncated(value: Value, width: int) -> str:
    """``value`` modulo 2**width, as an unsigned number: int64, or a ``Wide`` of as many words."""
    mask = (1 << width) - 1
    bits = _whole_words(width)
    text = value.at(bits)
    if width == bits or (value.low >= 0 and value.high <= mask):
        return text
    if width == 32 and value.low32:
        return value.low32
    return _masked(text, width) if bits == 64 else f"low_bits({text}, {width})"


def _masked(text: str, width: int) -> str:
    """The low bits of an int64."""
    return f"low32({text})" if width == 32 else f"({text} & {literal((1 << width) - 1)})"


def compare(operator: str, left: Value, right: Value) -> str:
    """A boolean expression; ``operator`` is Python's."""
    bits, with_sign = common_width(left, right)
    one, other = left.at(bits), right.at(bits)
    # Where one is a constant, LLVM finds out by itself.
    if are_narrow(left, right) and not (left.is_constant or right.is_constant):
        less, more = f"less32({one}, {other})", f"less32({other}, {one})"
        equal = f"equal32({one}, {other})"
        narrow = {"<": less, ">": more, "<=": f"(not {more})", ">=": f"(not {less})"}
        return (narrow | {"==": equal, "!=": f"(not {equal})"})[operator]
    if with_sign or operator in ("==", "!="):
        return f"({one} {operator} {other})"
    less = "less" if bits == 64 else "wide_unsigned_less"
    order = {"<": f"{less}({one}, {other})", ">": f"{less}({other}, {one})"}
    order |= {"<=": f"(not {less}({other}, {one}))", ">=": f"(not {less}({one}, {other}))"}
    return order[operator]


def choice(condition: str, left: Value, right: Value) -> Value:
    """``left`` where ``condition`` holds, else ``right``."""

    def at(bits: int) -> str:
        return f"({left.at(bits)} if {condition} else {right.at(bits)})"

    low, high = min(left.low, right.low), max(left.high, right.high)
    if are_narrow(left, right):
        return _narrow(f"choose32({condition}, {left.text}, {right.text})", low, high)
    return Value(at(64), low, high, at)


def _narrow(text: str, low: int, high: int) -> Value:
    return Value(text, low, high, in_loop=True)


def invert(value: Value) -> Value:
    """``-value - 1``"""
    if value.is_constant:
        return constant(~value.low)

    def at(bits: int) -> str:
        return f"(~{value.at(bits)})"

    return Value(at(64), -value.high - 1, -value.low - 1, at)


def binary(operator: ir.DataOperator, left: Value, right: Value) -> Value:
    """An operation of two integers."""
    if left.is_constant and right.is_constant:
        # Python itself would compute it while it reads the source, and not modulo 2**64.
        return constant(OPERATORS[operator](left.low, right.low))
    value = _binary(operator, left, right)
    in_loop = left.in_loop or right.in_loop
    return replace(value, in_loop=True) if in_loop and not value.in_loop else value


def _binary(operator: ir.DataOperator, left: Value, right: Value) -> Value:  # noqa: PLR0911
    match operator:
        case _KIND.ADD:
            value = _joined("+", left, right, left.low + right.low, left.high + right.high)
            return _saturable("saturating_add32", value, left, right)
        case _KIND.SUB:
            value = _joined("-", left, right, left.low - right.high, left.high - right.low)
            return _saturable("saturating_subtract32", value, left, right)
        case _KIND.MUL:
            ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
            return _joined("*", left, right, min(ends), max(ends))
        case _KIND.AND | _KIND.OR | _KIND.XOR:
            return _bitwise(operator, left, right)
        case _KIND.SHIFT_LEFT:
            return _shift_left(left, right)
        case _KIND.SHIFT_RIGHT:
            return _shift_right(left, right)
        case _KIND.DIV | _KIND.MOD:
            return _divide(operator, left, right)
        case _:
            assert right.is_constant, "the width of a cast is a constant"
            return cast(operator, left, right.low)


def _joined(symbol: str, left: Value, right: Value, low: int, high: int) -> Value:
    """An operation whose low bits depend on the operands' low bits only."""
    exact = left.fits_int64 and right.fits_int64 and low >= _LOWEST and high <= _HIGHEST

    def at(bits: int) -> str:
        if bits == 64 and symbol in _WRAPPED and not exact:
            return f"{_WRAPPED[symbol]}({left.at(64)}, {right.at(64)})"
        return f"({left.at(bits)} {symbol} {right.at(bits)})"

    return Value(at(64), low, high, at)


def _saturable(function: str, value: Value, left: Value, right: Value) -> Value:
    """A sum or difference that may be cut to 32 bits without a sign later."""
    if not are_narrow(left, right):
        return value
    return replace(value, saturated32=f"{function}({left.text}, {right.text})")


_NARROW = {_KIND.AND: "bits_and32", _KIND.OR: "bits_or32", _KIND.XOR: "bits_xor32"}


def _bitwise(operator: ir.DataOperator, left: Value, right: Value) -> Value:
    symbol = operator.value
    if operator is _KIND.AND:
        for mask, other in ((left, right), (right, left)):
            if mask.is_constant and mask.low >= 0 and _is_ones(mask.low):
                if other.low >= 0 and other.high <= mask.low:
                    return other  # every bit that can be set passes
                return _low_bits(other, mask.low)
    if are_narrow(left, right):
        bits = max(left.high.bit_length(), right.high.bit_length())
        high = min(left.high, right.high) if operator is _KIND.AND else (1 << bits) - 1
        return _narrow(f"{_NARROW[operator]}({left.text}, {right.text})", 0, high)
    if operator is _KIND.AND and (left.low >= 0 or right.low >= 0):
        highs = [side.high for side in (left, right) if side.low >= 0]
        return _joined(symbol, left, right, 0, min(highs))
    bits = max(_signed_bits(left), _signed_bits(right)) - 1
    low = 0 if left.low >= 0 and right.low >= 0 else -(1 << bits)
    return _joined(symbol, left, right, low, (1 << bits) - 1)


def _is_ones(mask: int) -> bool:
    return mask & (mask + 1) == 0


def _low_bits(value: Value, mask: int) -> Value:
    """``value & mask``, where the mask is 2**w - 1: the rest of ``value`` need not be known."""
    width = mask.bit_length()

    def at(bits: int) -> str:
        text = value.at(bits)
        if width >= bits:
            return text
        if width == 32 and bits == 64 and value.low32:
            return value.low32
        return _masked(text, width) if bits == 64 else f"low_bits({text}, {width})"

    return Value(at(64), 0, mask, at)


# ── Shifts ───────────────────────────────────────────────────────────────────────────────────────


def _amount(value: Value, bits: int) -> str:
    """A shift amount of numbers of ``bits`` bits: an int64 that is exact up to ``bits`` and, where
    the amount is greater or negative, anything that is so too.
    """
    if value.bits == 64 and (bits <= ir.MAX_SHIFT or value.high <= ir.MAX_SHIFT):
        return value.text
    least, most = constant(0), constant(ir.MAX_SHIFT)
    inside = f"{compare('>=', value, least)} and {compare('<=', value, most)}"
    return f"({value.text} if {inside} else -1)"


def _amounts(value: Value) -> tuple[int, int]:
    """The least and the greatest amount that shifts; what is above ``MAX_SHIFT`` leaves nothing."""
    return min(max(value.low, 0), ir.MAX_SHIFT), min(max(value.high, 0), ir.MAX_SHIFT)


def _leaves(value: Value) -> bool:
    """Whether every amount leaves something."""
    return value.low >= 0 and value.high <= ir.MAX_SHIFT


def _shift_left(left: Value, right: Value) -> Value:
    if left.is_constant and left.low == 0:
        return left
    if right.is_constant and not _leaves(right):
        return constant(0)
    least, most = _amounts(right)
    nothing = () if _leaves(right) else (0,)
    low = min(left.low << least, left.low << most, *nothing)
    high = max(left.high << least, left.high << most, *nothing)

    def at(bits: int) -> str:
        if bits > 64:
            return f"wide_shift_left({left.at(bits)}, {_amount(right, bits)})"
        if right.is_constant:
            return f"({left.text} << {least})" if least < 64 else "0"
        return f"shift_left({left.text}, {_amount(right, bits)})"

    value = Value(at(64), low, high, at)
    if right.is_constant or not (left.in_loop and right.is_unsigned32):
        return value
    return replace(value, low32=f"shift_left32({left.text}, {right.text})")


def _shift_right(left: Value, right: Value) -> Value:
    least, most = _amounts(right)
    nothing = () if _leaves(right) else (-1 if left.low < 0 else 0,)
    low = min(left.low >> least, left.low >> most, *nothing)
    high = max(left.high >> least, left.high >> most, *nothing)
    amount = _amount(right, left.bits)
    if left.bits > 64:
        name = "wide_shift_right" if left.low < 0 else "wide_shift_right_unsigned"
        return _computed(f"{name}({left.at(left.bits)}, {amount})", left.bits, low, high)
    if not left.fits_int64:
        return Value(f"shift_right_unsigned({left.text}, {amount})", low, high)
    if right.is_constant:
        shift = min(least, 63) if _leaves(right) else 63
        return Value(f"({left.text} >> {shift})", low, high)
    if are_narrow(left, right):
        return _narrow(f"shift_right32({left.text}, {right.text})", low, high)
    if left.in_loop and right.is_unsigned32 and left.low >= -(1 << 31) and left.high < 1 << 31:
        return _narrow(f"shift_right_signed32({left.text}, {right.text})", low, high)
    return Value(f"shift_right({left.text}, {amount})", low, high)


# ── Division and casts ───────────────────────────────────────────────────────────────────────────


def _divide(operator: ir.DataOperator, left: Value, right: Value) -> Value:
    name = "divide" if operator is _KIND.DIV else "modulo"
    if left.low < 0 or right.low < 0:
        return _divide_signed(name, left, right)
    high = left.high if name == "divide" else max(min(left.high, right.high - 1), 0)
    bits, _ = common_width(left, right)
    if bits > 64:
        text = f"wide_{name}_unsigned({left.at(bits)}, {right.at(bits)})"
        return _computed(text, bits, 0, high)
    if left.fits_int64 and right.fits_int64 and right.low > 0:
        symbol = "//" if name == "divide" else "%"
        if right.is_constant and right.low & (right.low - 1) == 0:
            shift = right.low.bit_length() - 1
            mask = literal(right.low - 1)
            text = f"{left.text} >> {shift}" if symbol == "//" else f"{left.text} & {mask}"
            return Value(f"({text})", 0, high)
        return Value(f"({left.text} {symbol} {right.text})", 0, high)
    return Value(f"{name}({left.text}, {right.text})", 0, high)


def _divide_signed(name: str, left: Value, right: Value) -> Value:
    """Rare enough to be done in ``Wide`` always."""
    most = max(abs(left.low), abs(left.high))
    result = Value("", -most, most)
    bits = max(128, _whole_words(max(map(_signed_bits, (left, right, result)))))
    return _computed(f"wide_{name}({left.at(bits)}, {right.at(bits)})", bits, -most, most)


def cast(operator: ir.DataOperator, value: Value, width: int) -> Value:
    """``TWO_COMP_MOD``, ``SAT_CAST`` or ``USAT_CAST`` to ``width`` bits."""
    if operator is _KIND.USAT_CAST:
        low, high = 0, (1 << width) - 1
    else:
        low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    if low <= value.low and value.high <= high:
        return value
    if operator is not _KIND.TWO_COMP_MOD:
        return _clamp(value, low, high)
    bits = _whole_words(width)
    shift = bits - width
    text = value.at(bits)
    if shift:
        text = (
            f"sign_extended({text}, {width})" if bits > 64 else f"(({text} << {shift}) >> {shift})"
        )
    return _computed(text, bits, low, high)


def _clamp(value: Value, low: int, high: int) -> Value:
    if value.saturated32 and (low, high) == (0, (1 << 32) - 1):
        return _narrow(value.saturated32, low, high)
    least, most = constant(low), constant(high)
    bits = _whole_words(max(map(_signed_bits, (value, least, most))))
    name = "clamp" if bits == 64 else "wide_clamp"
    text = f"{name}({value.at(bits)}, {least.at(bits)}, {most.at(bits)})"
    return _computed(text, bits, low, high)
