"""Rows of an indirect table: members put in the place of what refers to them.

A row that refers to a member is what the member runs. A row that refers to a group says where the
rows of the group's members are, after all others, and how many: a look-up that comes to it goes on
to one of them, by the hash of the packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.profiles import ProfileState
from innet.switch.tables import Reference, Target


@dataclass(frozen=True, slots=True)
class ResolvedRows:
    """``actions``: per row; None runs nothing. ``starts``, ``counts``: per row that a look-up may
    find the rows of its group, 0 of them where it has none.
    """

    actions: list[ir.ActionEntry | None]
    starts: list[int]
    counts: list[int]


def resolved_rows(
    table: ir.Table, targets: Sequence[Target | None], profile: ProfileState | None
) -> ResolvedRows:
    """The rows of ``targets``, those of the default and of the entries."""
    rows = ResolvedRows([], [], [])
    extra: list[ir.ActionEntry | None] = []
    starts: dict[int, int] = {}
    for target in targets:
        start = count = 0
        action: ir.ActionEntry | None = None
        if not isinstance(target, Reference):
            action = target
        else:
            assert profile is not None, "only indirect tables hold references"
            if target.group:
                members = profile.groups[target.handle]
                if target.handle not in starts:
                    starts[target.handle] = len(targets) + len(extra)
                    extra += [profile.resolve(table, member) for member in members]
                start, count = starts[target.handle], len(members)
            else:
                action = profile.resolve(table, target.handle)
        rows.actions.append(action)
        rows.starts.append(start)
        rows.counts.append(count)
    rows.actions.extend(extra)
    return rows
