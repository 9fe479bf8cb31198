"""Indirect tables as arrays: what entries refer to, and what members and groups are.

An entry holds twice a member's handle and two, or a group's and three (``EntryColumns.targets``),
from which emitted code has the row of a member among those of ``Members``, or the place of a group
among ``Groups``. All these arrays are used as they are, by all tables that share a profile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.state.entries import NO_ACTION, ActionRows, row_actions
from innet.switch.state.profiles import ProfileState
from innet.switch.state.tables import TableState


def row_arrays(rows: ActionRows) -> list[NDArray[Any]]:
    """What rows run, in the order of ``emit_lookups.lookup_arguments``."""
    return [rows.actions, rows.data.view(np.int64), *([rows.places] if len(rows.places) else [])]


def member_arrays(
    program: ir.Program, state: TableState, profile: ProfileState
) -> list[NDArray[Any]]:
    """What members run, with the table's own copies of actions; ``EntryColumns.targets``; and for a
    table with groups where the members of each begin in a list, and that list.
    """
    table, groups = state.table, profile.groups
    _, *data = row_arrays(profile.members.rows)
    arrays = [_own_actions(program, table, profile), *data, state.columns.targets]
    if table.kind is ir.TableKind.INDIRECT_WS:
        arrays += [groups.starts, groups.listed]
    return arrays


def _own_actions(program: ir.Program, table: ir.Table, profile: ProfileState) -> NDArray[np.uint16]:
    """Of each row of members, the position of its action in the table's list."""
    positions = {action: i for i, action in enumerate(table.actions)}
    own, actions = profile.own_actions[table.name], profile.members.rows.actions
    found = [
        positions.get(own.get(action, action), NO_ACTION) for action in row_actions(program, table)
    ]
    if found == list(range(len(found))):
        return actions
    return np.array([*found, NO_ACTION], np.uint16)[np.minimum(actions, len(found))]
