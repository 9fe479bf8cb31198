"""Indirect tables as arrays: what entries refer to, and what members and groups are.

An entry holds twice a member's handle and two, or a group's and three (``EntryColumns.targets``),
so half of it is the row of a member, or of a group among groups. Row 0 is the default entry where
that is an action of its own, and the last row runs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.entry_columns import NO_ACTION
from innet.switch.profiles import ProfileState
from innet.switch.table_words import data_width, pack_arguments
from innet.switch.tables import TableState


def member_arrays(
    program: ir.Program, state: TableState, profile: ProfileState
) -> list[NDArray[Any]]:
    """Actions and arguments of members, ``EntryColumns.targets``, and for a table with groups
    where each group's members ``start`` in a list, their ``counts``, and the list of rows. A group
    without members starts at the row that runs nothing.
    """
    table, members = state.table, profile.members
    nothing = len(members.actions) + 1
    actions = np.full(nothing + 1, NO_ACTION, np.uint16)
    data = np.zeros((nothing + 1, data_width(program.actions, table)), np.uint64)
    positions = {action: i for i, action in enumerate(table.actions)}
    for action, own in profile.own_actions[table.name].items():
        actions[1:nothing][members.actions == action] = positions[own]
    words = min(data.shape[1], members.data.shape[1])
    data[1:nothing, :words] = members.data[:, :words]
    if isinstance(state.default, ir.ActionEntry):
        default = pack_arguments(program.actions[state.default.action], state.default.arguments)
        actions[0] = positions[state.default.action]
        data[0, : len(default)] = default
    arrays: list[NDArray[Any]] = [actions, data.view(np.int64), state.columns.targets]
    if table.kind is ir.TableKind.INDIRECT_WS:
        arrays += _group_arrays(profile, nothing)
    return arrays


def _group_arrays(profile: ProfileState, nothing: int) -> list[NDArray[np.uint32]]:
    starts = np.full(max(profile.groups, default=-1) + 2, nothing, np.uint32)
    counts = np.zeros(len(starts), np.uint32)
    listed: list[int] = []
    for group, members in profile.groups.items():
        if members:
            starts[group + 1], counts[group + 1] = len(listed), len(members)
            listed += [member + 1 for member in members]
    return [starts, counts, np.array(listed, np.uint32)]
