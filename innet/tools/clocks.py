"""Does a program look at the time? Then its packets cannot share one reading of the clock."""

from __future__ import annotations

from innet.switch import ir
from innet.switch.jit.tree import walk


def looks_at_clock(program: ir.Program) -> bool:
    """Whether anything that ``program`` does depends on the switch's clock."""
    if program.meters or any(table.support_timeout for table in program.tables):
        return True
    standard = program.standard
    clocks = {
        standard.ingress_global_timestamp,
        standard.egress_global_timestamp,
        standard.enq_timestamp,
    } - {None}
    parts = (
        program.parser,
        program.deparser,
        program.actions,
        program.tables,
        program.conditionals,
        program.calculations,
        program.checksums,
        program.field_lists,
        program.learn_lists,
    )
    whole = {each.header for each in clocks if each is not None}
    return any(
        (isinstance(node, ir.FieldRef) and node in clocks)
        or (isinstance(node, ir.HeaderRef) and node.header in whole)
        for node in walk(parts)
    )
