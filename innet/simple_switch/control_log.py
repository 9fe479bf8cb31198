"""The lines that simple_switch logs about calls of its control plane.

Source: the messages of BMv2's servers, match tables, action profiles and replication engines, as
its logs have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from innet.core.errors import Refusal
from innet.switch import Switch, ir
from innet.switch.interpreter.packet_log import PacketLog
from innet.switch.state.tables import ProfileRef

_NAMES = {
    "bm_mt_add_entry": "bm_table_add_entry",
    "bm_mt_set_default_action": "bm_set_default_action",
    "bm_mt_delete_entry": "bm_table_delete_entry",
    "bm_mt_modify_entry": "bm_table_modify_entry",
    "bm_mt_write_counter": "bm_mt_write_counters",
    "mirroring_session_add": "mirroring_sesssion_add",  # spelled so
    "mirroring_mapping_add": "mirroring_mapping_add [DEPRECATED]",
    "mirroring_mapping_delete": "mirroring_mapping_delete [DEPRECATED]",
    "mirroring_mapping_get_egress_port": "mirroring_mapping_get_egress_port [DEPRECATED]",
}
"""What simple_switch calls its calls in the log, where that is another name."""

_DONE = {
    "bm_mt_add_entry": "Entry {answer} added to table '{0}'",
    "bm_mt_delete_entry": "Removed entry {1} from table '{0}'",
    "bm_mt_modify_entry": "Modified entry {1} in table '{0}'",
    "bm_mt_set_default_action": "Set default entry for table '{0}': {default}",
    "bm_mt_reset_default_entry": "Reset default entry for table '{0}' to: {default}",
    "bm_mt_indirect_add_entry": "Entry {answer} added to table '{0}'",
    "bm_mt_indirect_ws_add_entry": "Entry {answer} added to table '{0}'",
    "bm_mt_indirect_delete_entry": "Entry {1} removed from table '{0}'",
    "bm_mt_indirect_modify_entry": "Modified entry {1} in table '{0}'",
    "bm_mt_indirect_ws_modify_entry": "Modified entry {1} in table '{0}'",
    "bm_mt_indirect_set_default_member": "Set default member for table '{0}' to {1}",
    "bm_mt_indirect_ws_set_default_group": "Set default group for table '{0}' to {1}",
    "bm_mt_indirect_reset_default_entry": "Reset default entry for table '{0}' to: {default}",
    "bm_mt_act_prof_add_member": "Added member {answer} to action profile '{0}'",
    "bm_mt_act_prof_delete_member": "Removed member {1} from action profile '{0}'",
    "bm_mt_act_prof_modify_member": "Modified member {1} from action profile '{0}'",
    "bm_mt_act_prof_create_group": "Created group {answer} in action profile '{0}'",
    "bm_mt_act_prof_delete_group": "Removed group {1} from action profile '{0}'",
    "bm_mt_act_prof_add_member_to_group": "Added member {1} to group {2} in action profile '{0}'",
    "bm_mt_act_prof_remove_member_from_group": "Removed member {1} from group {2} in table '{0}'",
    "bm_mc_mgrp_create": "mgrp node created for mgid {0}",
    "bm_mc_mgrp_destroy": "mgrp node deleted for mgid {0}",
    "bm_mc_node_create": "node created for rid {0}",
    "bm_mc_node_update": "node updated for rid {rid}",
    "bm_mc_node_destroy": "node destroyed for rid {rid}",
    "bm_mc_node_associate": "node associated with mgid {0}",
    "bm_mc_node_dissociate": "node dissociated with mgid {0}",
    "bm_mc_set_lag_membership": "lag membership set for lag index {0}",
}
"""The line of a call that was carried out; numbers are its arguments after the context."""

_REFUSED = {
    "bm_mt_add_entry": "Error when trying to add entry to table '{0}': {why}",
    "bm_mt_delete_entry": "Error when trying to remove entry {1} from table '{0}': {why}",
    "bm_mt_modify_entry": "Error when trying to modify entry {1} in table '{0}': {why}",
    "bm_mt_indirect_add_entry": "Error when trying to add entry to table '{0}': {why}",
    "bm_mt_indirect_ws_add_entry": "Error when trying to add entry to table '{0}': {why}",
    "bm_mt_indirect_delete_entry": "Error when trying to remove entry {1} from table '{0}': {why}",
    "bm_mt_indirect_modify_entry": "Error when trying to modify entry {1} in table '{0}': {why}",
    "bm_mt_indirect_ws_modify_entry": "Error when trying to modify entry {1} in table '{0}': {why}",
}
_ENTRIES = {each for each in _DONE if each.endswith(("add_entry", "modify_entry"))}
_WHY = {
    Refusal.TABLE_FULL: "TABLE_FULL",
    Refusal.UNKNOWN_HANDLE: "INVALID_HANDLE",
    Refusal.EXPIRED_HANDLE: "EXPIRED_HANDLE",
    Refusal.UNKNOWN_MEMBER: "INVALID_MBR_HANDLE",
    Refusal.UNKNOWN_GROUP: "INVALID_GRP_HANDLE",
    Refusal.EMPTY_GROUP: "EMPTY_GRP",
    Refusal.DUPLICATE_ENTRY: "DUPLICATE_ENTRY",
    Refusal.BAD_KEY: "BAD_MATCH_KEY",
}


class ControlLog:
    """Writes the lines about calls.

    Args:
        switch: the switch that they change.
        packets: the log of its packets; it knows the form of entries.
    """

    def __init__(self, switch: Switch, packets: PacketLog) -> None:
        self._switch = switch
        self.packets = packets
        self._rid: int | None = None

    def called(self, name: str, arguments: Sequence[Any]) -> None:
        """A call is carried out next."""
        self.packets.plain("trace", _NAMES.get(name, name))
        if name in ("bm_mc_node_update", "bm_mc_node_destroy"):
            node = self._switch.state.replication.nodes.get(arguments[1])
            self._rid = None if node is None else node.rid

    def done(self, name: str, arguments: Sequence[Any], answer: Any) -> None:
        """It was."""
        text = _DONE.get(name)
        if text is None:
            return
        words = arguments[1:]
        named = {"answer": answer, "rid": self._rid}
        if "{default}" in text:
            named["default"] = self.packets.action_entry(self._default(words[0]))
        self.packets.plain("debug", text.format(*words, **named))
        if name in _ENTRIES:
            self.packets.plain("debug", self._dump(words[0], answer if "add" in name else words[1]))

    def refused(self, name: str, arguments: Sequence[Any], code: int | None) -> None:
        """It was refused with a code."""
        text = _REFUSED.get(name)
        why = None if code is None else _WHY.get(Refusal(code)) if code in list(Refusal) else None
        if text is not None and why is not None:
            self.packets.plain("error", text.format(*arguments[1:], why=why))

    def _dump(self, table: str, handle: int) -> str:
        number = self._number(table)
        return self.packets.dump(number, self._switch.state.tables[number].get(handle))

    def _default(self, table: str) -> ir.ActionEntry | None:
        found = self._switch.state.tables[self._number(table)].default
        return None if isinstance(found, ProfileRef) else found

    def _number(self, table: str) -> int:
        return next(i for i, e in enumerate(self._switch.program.tables) if e.name == table)


Told = Callable[[], ControlLog | None]
"""The log of the present program's calls; None for none."""
