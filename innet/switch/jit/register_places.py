"""Where registers lie in the flat arrays that emitted code is given."""

from __future__ import annotations

from innet.switch import ir
from innet.switch.engine import dtype_of
from innet.switch.jit.emit.arithmetic import Value, counting, truncated
from innet.switch.state.entries import words_of


class RegisterPlaces:
    """Which group and column holds each register array, and the source of access to its cells.

    Args:
        program: whose registers.
        groups: ``RegisterGroup.registers`` of every group.
    """

    def __init__(self, program: ir.Program, groups: tuple[tuple[int, ...], ...]) -> None:
        self.program = program
        self._places = {
            register: (group, len(registers), column)
            for group, registers in enumerate(groups)
            for column, register in enumerate(registers)
        }

    def read(self, register: int, stride: int, index: str) -> Value:
        """What a cell holds, whose index is in bounds; in a ``Loop`` columns advance by
        ``stride``.
        """
        width = self.program.registers[register].width

        def at(bits: int) -> str:
            place = self._place(register, stride, index, words_of(width) - bits // 64)
            return f"get({place})" if bits == 64 else f"get_words({place}, {bits // 64})"

        return Value(at(64), 0, self.highest(register), at)

    def highest(self, register: int) -> int:
        """The greatest number that the memory of a cell holds: whoever writes to
        ``Switch.registers`` may leave more in it than the register's width.
        """
        width = self.program.registers[register].width
        bits = 8 * dtype_of(width).itemsize * words_of(width)
        return (1 << bits) - 1

    def write(self, register: int, stride: int, index: str, value: Value) -> str:
        """The statement that gives a cell ``value``."""
        width = self.program.registers[register].width
        text = value.text if width in (8, 16, 32, 64) else truncated(value, width)
        name = "put" if width <= 64 else "put_words"
        return f"{name}({self._place(register, stride, index, 0)}, {text})"

    def _place(self, register: int, stride: int, index: str, word: int) -> str:
        """The array and the place of word ``word`` of a cell."""
        group, columns, column = self._places[register]
        place = index if columns == 1 else f"{index} * {columns}"
        if column:
            place += f" + {column}"
        if stride:
            place += f" + {counting(0, stride)}"
        words = words_of(self.program.registers[register].width)
        if words > 1:
            place = f"({place}) * {words} + {word}"
        return f"r{group}, {place}"
