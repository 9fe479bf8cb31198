"""Blocks of SRAM and TCAM that tables, registers and counters take."""

from __future__ import annotations

from innet.budget.tofino import PIPE
from innet.switch import ir

_ENTRY_OVERHEAD = 16  # bits: which action, which table next, versions while entries change


def register_blocks(register: ir.RegisterArray) -> int:
    """SRAM blocks of a register array; cells are padded to 8, 16, 32 or 64 bits."""
    width = next((each for each in (8, 16, 32, 64) if register.width <= each), register.width)
    return max(1, -(-register.size * width // PIPE.sram_bits))


def counter_blocks(counter: ir.CounterArray) -> int:
    """SRAM blocks of a counter array: packets and bytes, 64 bits each."""
    return max(1, -(-counter.size * 128 // PIPE.sram_bits))


def table_blocks(program: ir.Program, table: ir.Table) -> tuple[int, int]:
    """(SRAM, TCAM) blocks of a table; none for one without key."""
    if not table.keys:
        return 0, 0
    key = sum(each.width for each in table.keys)
    data = max(
        (sum(p.width for p in program.actions[action].parameters) for action in table.actions),
        default=0,
    )
    entries = len(table.entries) if table.immutable else table.max_size
    if table.match is ir.MatchKind.EXACT:
        return _sram(entries, key + data + _ENTRY_OVERHEAD), 0
    columns = -(-key // PIPE.tcam_bits)
    rows = max(1, -(-entries // PIPE.tcam_entries))
    return (_sram(entries, data + _ENTRY_OVERHEAD) if data else 0), columns * rows


def _sram(entries: int, bits: int) -> int:
    """Whole words of 128 bits hold one entry or several."""
    words = -(-bits // 128) * entries if bits > 128 else -(-entries // (128 // bits))
    return max(1, -(-words // 1024))
