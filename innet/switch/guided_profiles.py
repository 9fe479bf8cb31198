"""Random members, groups and references to them, made to fit a program (see ``guided``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.tables import Reference

MakeEntry = Callable[[Sequence[int]], ir.ActionEntry]
"""Makes an action of those given, with random arguments."""


def fill_profiles(rng: np.random.Generator, states: Sequence[SwitchState], make: MakeEntry) -> None:
    """The same members and groups for every profile of all ``states``: some are new, some change.

    Groups that are in use may become empty.
    """
    for index, profile in enumerate(states[0].profiles):
        actions = tuple(profile.actions.values())
        if not actions:  # no table uses the profile, so that it holds nothing
            continue
        for _ in range(4):
            entry = make(actions)
            for state in states:
                state.profiles[index].create_member(entry)
        changed = int(rng.choice(list(profile.members)))
        entry = make(actions)
        for state in states:
            state.profiles[index].modify_member(changed, entry)
        if profile.profile.selector is not None:
            for state in states:
                state.profiles[index].create_group()
            _change_groups(rng, states, index)


def _change_groups(rng: np.random.Generator, states: Sequence[SwitchState], index: int) -> None:
    first = states[0].profiles[index]
    for group in list(first.groups):
        for member in rng.permutation(list(first.members))[: rng.integers(0, 6)]:
            inside = int(member) in first.groups[group]
            for state in states:
                profile = state.profiles[index]
                change = profile.remove_from_group if inside else profile.add_to_group
                change(int(member), group)


def reference(rng: np.random.Generator, state: SwitchState, table: ir.Table) -> Reference:
    """A member or group that an entry of an indirect table may refer to."""
    profile = state.profile_of(table)
    assert profile is not None, "only indirect tables hold references"
    if table.kind is ir.TableKind.INDIRECT_WS and rng.random() < 0.7:
        return Reference(True, int(rng.choice(list(profile.groups))))
    return Reference(False, int(rng.choice(list(profile.members))))
